"""The streets of a generated city, as the borders of Voronoi cells.

=================  ====================================================================
point              a complex number: metres to the east, and i times metres to the north
``district``       has streets in two directions; its borders, the seams, are main roads
``site``           a point whose Voronoi cell is a block, or a stretch of the river
``ridge``          the border of two cells: a street, or a place where a bridge could be
=================  ====================================================================

A Voronoi diagram draws a line exactly where one wants it if sites stand in mirrored pairs beside
it: so along seams, and along the river, which has sites of its own down its middle. The river is
crossed only where a seam meets it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints, Rng
from superarm.core.arrays import repeated

from .city_land import RIVER, Land
from .geography import Points, pairs
from .line_graph import components

# Metres between the centres of districts; less in a small town.
_DISTRICT = 800.0
# Metres between sites down the middle of the river.
_RIVER_STEP = 115.0
# Metres between an embankment and the nearest site of a block.
_BANK = 38.0
# Metres: shorter streets become one junction, unless they are bridges.
_SHORTEST = 27.0
# Share of local streets with one direction.
_ONE_WAY = 0.16
# Shares of local streets that are left out: anywhere, and beside a ring road.
_MISSING = 0.07
_MISSING_AT_RING = 0.6
# Share of districts with a limit of 30.
_CALM = 0.65
# Metres between parallel streets whose directions alternate, roughly.
_STRIPE = 110.0
# Random numbers that stripes share, a prime.
_STRIPE_DRAWS = 8191


class Road(IntEnum):
    """The classes of roads, from small to large."""

    LOCAL = 0
    COLLECTOR = 1
    ARTERIAL = 2
    RING = 3


class Streets(NamedTuple):
    """Places and the undirected streets between them, one row for each street."""

    places: Points  # (p,)
    ends: Ints  # places, (s, 2)
    road: Ints  # a Road, (s,)
    bridge: Bools  # (s,)
    calm: Bools  # whether the limit is 30, (s,)
    one_way: Ints  # +1, −1, or 0 for both directions, (s,)

    def spans(self) -> Points:
        """Return the way from the first end of each street to the second, (s,)."""
        first, second = self.ends.T
        spans: Points = self.places[second] - self.places[first]
        return spans

    def select(self, rows: Bools | Ints) -> Streets:
        """Return some of the streets and the places they need."""
        used, ends = np.unique(self.ends[rows], return_inverse=True)
        return Streets(
            places=self.places[used],
            ends=ends.reshape(-1, 2),
            road=self.road[rows],
            bridge=self.bridge[rows],
            calm=self.calm[rows],
            one_way=self.one_way[rows],
        )


def draw_streets(land: Land, rng: Rng) -> Streets:
    """Draw all streets of a plan, somewhat beyond the outline."""
    # The order of the draws is part of what a seed means.
    districts = _draw_districts(land, rng)
    sites = _draw_sites(land, districts, rng)
    ridges = _find_ridges(sites.points)
    places = ridges.corners
    is_inside = land.level(places) < 1.08
    has_ends_inside = is_inside[ridges.ends].all(axis=1)
    ends = ridges.ends[has_ends_inside]
    sides = ridges.sides[has_ends_inside]

    district, _ = districts.nearest(sites.points)
    district_sides = district[sides]  # (s, 2)
    water_sides = sites.is_water[sides].sum(axis=1)  # 0, 1 or 2
    road = districts.seam(district_sides)
    is_embankment = water_sides == 1
    road[is_embankment] = Road.COLLECTOR
    crosses_river = water_sides == 2
    is_local = road == Road.LOCAL

    is_missing = _draw_missing(ends, road, len(places), rng)
    is_missing |= crosses_river
    is_missing &= is_local
    is_calm_district = rng.random(len(districts.centres)) < _CALM
    first_district, _ = district_sides.T
    streets = Streets(
        places=places,
        ends=ends,
        road=road,
        bridge=crosses_river,
        calm=is_local & is_calm_district[first_district],
        one_way=np.zeros(len(ends), dtype=np.intp),
    )
    streets = streets.select(~is_missing)
    streets = _contract(streets)
    return streets._replace(one_way=_draw_one_way(streets, rng))


def _draw_missing(ends: Ints, road: Ints, places: int, rng: Rng) -> Bools:
    """Draw which streets are left out, if they are local, (s,)."""
    # Few small streets open on a ring road.
    ring_ends = ends[road == Road.RING]
    is_at_ring = np.zeros(places, dtype=bool)
    is_at_ring[ring_ends] = True
    opens_on_ring = is_at_ring[ends].any(axis=1)
    missing_share = np.where(opens_on_ring, _MISSING_AT_RING, _MISSING)
    is_missing: Bools = rng.random(len(ends)) < missing_share
    return is_missing


def cut_streets(streets: Streets, land: Land, edges: int) -> Streets:
    """Return the inner part with about ``edges`` directed edges, in one piece."""
    level = land.level(streets.places)
    outermost = level[streets.ends].max(axis=1)
    order = np.argsort(outermost, kind="stable")
    is_two_way = streets.one_way == 0
    directions = np.where(is_two_way, 2, 1)
    count = np.cumsum(directions[order])
    # A little is lost where streets lead nowhere.
    is_inner = count <= 1.02 * edges
    inner = streets.select(order[is_inner])
    first_end, _ = inner.ends.T
    places = len(inner.places)
    component = components(inner.ends, places, directed=False)
    street_component = component[first_end]
    sizes = np.bincount(street_component)
    largest = sizes.argmax()
    return inner.select(street_component == largest)


# --- districts ----------------------------------------------------------------------------


class _Districts(NamedTuple):
    apart: float  # metres between neighbouring centres
    centres: Points  # (d,)
    circle: Ints  # the number of the circle that a district stands on, (d,)
    sector: Ints  # avenues run between sectors, (d,)
    angle: Floats  # the direction of streets, radians, (d,)
    spacing: Floats  # metres between streets, (d,)
    rings: Ints  # ring roads lie within these circles, (r,)

    def seam(self, sides: Ints) -> Ints:
        """Return the class of road between two districts, by rows; local within one.

        Args:
            sides: The districts on both sides of each road, (s, 2).
        """
        side, other_side = sides.T
        circle, other_circle = self.circle[sides.T]
        sector, other_sector = self.sector[sides.T]
        is_seam = side != other_side
        road = np.where(is_seam, Road.COLLECTOR, Road.LOCAL)
        inner_circle = np.minimum(circle, other_circle)
        is_avenue = sector != other_sector
        is_avenue &= inner_circle > 0
        # Every fourth circle has a main street.
        is_main_circle = circle // 4 != other_circle // 4
        road[is_avenue | is_main_circle] = Road.ARTERIAL
        for ring in self.rings:
            is_ring = (circle < ring) != (other_circle < ring)
            road[is_ring] = Road.RING
        return road

    def nearest(self, points: Points) -> tuple[Ints, Floats]:
        """Return the district of each point, and its metres to the next district."""
        from scipy.spatial import cKDTree

        tree = cKDTree(pairs(self.centres))
        query: Any = tree.query(pairs(points), k=2)
        distances, districts = query  # (p, 2) each, the nearest first
        near, far = distances.T
        district, next_district = districts.T
        between = self.centres[district] - self.centres[next_district]
        apart = np.abs(between)
        to_border = (far**2 - near**2) / (2.0 * apart)
        return district, to_border


def _draw_districts(land: Land, rng: Rng) -> _Districts:
    """Draw districts on circles, six more on each."""
    apart = min(_DISTRICT, 0.42 * land.radius)
    outermost = np.ceil(1.2 * land.radius / apart)
    circles = np.arange(outermost + 1, dtype=np.intp)
    per_circle = np.maximum(6 * circles, 1)
    circle, number = repeated(per_circle)
    turn = (number + 0.5) / per_circle[circle]  # 0 to 1, around the centre
    count = len(circle)
    x_jitter = rng.random(count) - 0.5
    y_jitter = rng.random(count) - 0.5
    jitter = 0.16 * (x_jitter + 1j * y_jitter)
    on_circle = circle * np.exp(2j * np.pi * turn)
    # Avenues are rays between sectors; where they are far apart, there are twice as many.
    times_as_far = np.maximum(circle, 2) / 1.5
    doublings = np.floor(np.log2(times_as_far))
    sectors = 6 * 2**doublings
    is_askew = rng.random(count) < 0.3
    angle = 0.5 * np.pi * rng.random(count)
    askew = np.where(is_askew, angle, 0.0)
    # Streets are closer to each other in the centre.
    remoteness = np.minimum(apart * circle / land.radius, 1.2)
    spacing_factor = 0.85 + 0.35 * rng.random(count)
    spacing = (130.0 + 90.0 * remoteness) * spacing_factor
    return _Districts(
        apart=apart,
        centres=apart * (on_circle + jitter),
        circle=circle,
        sector=np.floor(turn * sectors).astype(np.intp),
        angle=2.0 * np.pi * turn + askew,
        spacing=spacing,
        rings=_ring_circles(land.radius, apart),
    )


def _ring_circles(radius: float, apart: float) -> Ints:
    """Return the circles within which ring roads lie; a small town has none."""
    outermost = 0.5 + 0.5 * radius / apart
    rings = outermost / 3.0 ** np.arange(4)
    has_ring = (rings > 1.6) & (radius > 1500.0)
    circles = rings[has_ring].round()
    return circles.astype(np.intp)


# --- sites --------------------------------------------------------------------------------


class _Sites(NamedTuple):
    points: Points  # (s,)
    is_water: Bools  # (s,)


def _draw_sites(land: Land, districts: _Districts, rng: Rng) -> _Sites:
    lattices = _draw_lattices(districts, rng)
    seams = _draw_seam_pairs(districts, rng)
    blocks = np.concatenate([lattices, seams])
    river_distance = land.river_distance(blocks)
    is_dry = river_distance > RIVER + _BANK
    blocks = blocks[is_dry]
    river, banks = _river_sites(land)
    points = np.concatenate([blocks, banks, river])
    count = len(points)
    is_water = np.arange(count) >= count - len(river)
    # No four sites may stand on one circle.
    x_jitter = rng.random(count)
    y_jitter = rng.random(count)
    points += x_jitter + 1j * y_jitter
    inside = land.level(points) < 1.15
    return _Sites(points[inside], is_water[inside])


def _river_sites(land: Land) -> tuple[Points, Points]:
    """Return sites down the middle of the river, and in mirrored pairs along its banks."""
    reach = 1.3 * land.radius
    downstream = np.arange(-reach, reach, _RIVER_STEP)
    sideways = land.river.sum(downstream)
    middle = downstream + 1j * sideways
    # At right angles to the river, as long as it is wide.
    across = np.gradient(middle) * 1j
    across *= RIVER / np.abs(across)
    left_bank = middle + across
    right_bank = middle - across
    banks = np.concatenate([left_bank, right_bank])
    return land.heading * middle, land.heading * banks


def _draw_lattices(districts: _Districts, rng: Rng) -> Points:
    """Draw sites within the districts, each on a lattice that is turned its own way."""
    extent = 0.75 * districts.apart  # metres from the centre of a district
    reach = int(np.ceil(extent / districts.spacing.min()))
    lattice = _draw_jittered_lattice(len(districts.centres), reach, rng)
    direction = np.exp(1j * districts.angle)
    turn = districts.spacing * direction
    offset = lattice * turn[:, None]  # from the centre of the district
    district, column = np.nonzero(np.abs(offset) < extent)
    points: Points = districts.centres[district] + offset[district, column]
    nearest, to_seam = districts.nearest(points)
    spacing = districts.spacing[district]
    is_site = nearest == district
    is_site &= to_seam > 0.8 * spacing
    sites: Points = points[is_site]
    return sites


def _draw_jittered_lattice(districts: int, reach: int, rng: Rng) -> Points:
    """Draw lattice points around 0, about 1 apart, (districts, (2·reach + 1)²)."""
    axis = np.arange(-reach, reach + 1.0)
    across, up = np.meshgrid(axis, axis)
    across = across.reshape(1, -1)
    up = up.reshape(1, -1)
    # Old towns are less regular.
    old_draws = rng.random((districts, 1))
    jitter = np.where(old_draws < 0.2, 0.45, 0.12)
    aspect_draws = rng.random((districts, 1))
    aspect = np.sqrt(1.1 + 0.9 * aspect_draws)
    shape = (districts, across.size)
    x_jitter = jitter * (rng.random(shape) - 0.5)
    y_jitter = jitter * (rng.random(shape) - 0.5)
    x = (across + x_jitter) * aspect
    y = (up + y_jitter) / aspect
    lattice: Points = x + 1j * y
    return lattice


def _draw_seam_pairs(districts: _Districts, rng: Rng) -> Points:
    """Draw mirrored pairs of sites along the borders of districts."""
    ridges = _find_ridges(districts.centres)
    begin, end = ridges.corners[ridges.ends.T]
    centre, other_centre = districts.centres[ridges.sides.T]
    spacing = districts.spacing[ridges.sides].mean(axis=1)
    # At the border of the plan a seam may be endless.
    span = end - begin
    length = np.minimum(np.abs(span), 2000.0)
    pairs_of_sites = np.round(length / (0.95 * spacing))
    count = pairs_of_sites.astype(np.intp)
    seam, number = repeated(count)
    jitter = 0.3 * (rng.random(len(seam)) - 0.5)
    share = (number + 0.5 + jitter) / count[seam]
    middle = begin[seam] + share * span[seam]
    between = other_centre - centre
    across = 0.42 * spacing * between / np.abs(between)
    seam_across = across[seam]
    near_side = middle - seam_across
    far_side = middle + seam_across
    # Beside a corner, a site may fall into a third district.
    near_district, _ = districts.nearest(near_side)
    far_district, _ = districts.nearest(far_side)
    side, other_side = ridges.sides[seam].T
    at_home = near_district == side
    at_home &= far_district == other_side
    return np.concatenate([near_side[at_home], far_side[at_home]])


class _Ridges(NamedTuple):
    """The finite borders of Voronoi cells."""

    corners: Points  # (v,)
    ends: Ints  # corners, (r, 2)
    sides: Ints  # the sites on both sides, (r, 2)


def _find_ridges(points: Points) -> _Ridges:
    from scipy.spatial import Delaunay

    triangulation = Delaunay(pairs(points))
    triangles = triangulation.simplices.astype(np.intp)  # (v, 3)
    a, b, c = points[triangles.T]
    # Two triangles that share a side make a ridge, seen from the one with the smaller number.
    neighbors = triangulation.neighbors  # (v, 3)
    numbers = np.arange(len(triangles))
    first, opposite = np.nonzero(neighbors > numbers[:, None])
    second = neighbors[first, opposite].astype(np.intp)
    # The two corners of the first triangle that are not opposite the second.
    side = triangles[first, (opposite + 1) % 3]
    other_side = triangles[first, (opposite + 2) % 3]
    return _Ridges(
        corners=_circumcentres(a, b, c),
        ends=np.stack([first, second], axis=1),
        sides=np.stack([side, other_side], axis=1),
    )


def _circumcentres(a: Points, b: Points, c: Points) -> Points:
    """Return the centres of the circles through the corners of each triangle, (v,)."""
    u = b - a
    v = c - a
    product = u.conj() * v
    area = 2.0 * product.imag
    # Slivers of the hull have corners far outside anyway.
    is_wide = np.abs(area) > 1e-9
    area = np.where(is_wide, area, np.inf)
    u_weighted = u * np.abs(v) ** 2
    v_weighted = v * np.abs(u) ** 2
    centres: Points = a + 1j * (v_weighted - u_weighted) / -area
    return centres


# --- streets ------------------------------------------------------------------------------


def _contract(streets: Streets) -> Streets:
    """Merge the ends of very short streets; of parallel streets keep the largest."""
    length = np.abs(streets.spans())
    is_short = length < _SHORTEST
    is_short &= ~streets.bridge
    short_ends = streets.ends[is_short]
    merged = components(short_ends, len(streets.places), directed=False)
    ends = merged[streets.ends]
    contracted = streets._replace(
        places=_mean_places(streets.places, merged),
        ends=np.sort(ends, axis=1),
    )
    largest = _largest_of_parallel(contracted)
    return contracted.select(largest)


def _mean_places(places: Points, merged: Ints) -> Points:
    """Return the mean of the places with the same number, number by number."""
    count = np.bincount(merged)
    x = np.bincount(merged, weights=places.real)
    y = np.bincount(merged, weights=places.imag)
    total = x + 1j * y
    return np.array(total / count, dtype=np.complex128)


def _largest_of_parallel(streets: Streets) -> Ints:
    """Return one street for each pair of different ends."""
    first, second = streets.ends.T
    # Parallel streets stand one after another, the largest first.
    order = np.lexsort((-streets.road, second, first))
    first = first[order]
    second = second[order]
    is_new = np.ones(len(order), dtype=bool)
    has_other_first = np.diff(first) != 0
    has_other_second = np.diff(second) != 0
    is_new[1:] = has_other_first | has_other_second
    is_street = first != second
    largest: Ints = order[is_new & is_street]
    return largest


def _draw_one_way(streets: Streets, rng: Rng) -> Ints:
    """Draw the directions of local streets: +1, −1, or 0 for both, (s,).

    Streets on one line share a draw, and parallel ones alternate.
    """
    span = streets.spans()
    direction = span / np.abs(span)
    # A line has one direction, whichever end of a street comes first.
    is_eastward = direction.real + 0.2 * direction.imag >= 0.0
    flip = np.where(is_eastward, 1, -1)
    middle = streets.places[streets.ends].mean(axis=1)
    offset = direction.conj() * middle
    # Lines with the same distance from the centre are in one stripe.
    stripe = np.floor(flip * offset.imag / _STRIPE)
    draws = rng.random(_STRIPE_DRAWS)
    key = _stripe_key(middle, stripe)
    draw = draws[key]
    is_one_way = streets.road == Road.LOCAL
    is_one_way &= draw < _ONE_WAY
    is_even = stripe % 2 == 0
    alternate = np.where(is_even, 1, -1)
    return np.where(is_one_way, flip * alternate, 0)


def _stripe_key(middle: Points, stripe: Floats) -> Ints:
    """Return a number for each street, the same for a stripe within a square."""
    square = np.floor(pairs(middle) / _DISTRICT)
    square_key = square @ np.array([7919.0, 104_729.0])
    key = np.mod(square_key + 31.0 * stripe, _STRIPE_DRAWS)
    numbers: Ints = key.astype(np.intp)
    return numbers
