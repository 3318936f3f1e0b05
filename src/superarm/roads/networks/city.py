"""Cities that exist nowhere: seeded streets, a river, hills and ring roads, of any size.

=================  ====================================================================
point              a complex number: metres to the east, and i times metres to the north
``R``, ``ρ``       radius of the city; distance from the centre over the outline's
``waves``          (w, 3): wave vector as a point, phase, amplitude of cosines that add up
``plan``           where rings are round; bending it makes the map
``district``       has streets in two directions; its borders, the seams, are main roads
``site``           a point whose Voronoi cell is a block, or a stretch of the river
``ridge``          the border of two cells: a street, or a place where a bridge could be
=================  ====================================================================

Districts stand on circles around the centre, so that their seams are circles and rays: ring roads,
avenues and main streets. Within a district sites stand on a turned, jittered lattice, whose cells are
blocks as in a real town. A Voronoi diagram draws a line exactly where one wants it if sites stand in
mirrored pairs beside it: so along seams, and along the river, which has sites of its own down its
middle. It is crossed only where a seam meets it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints, Rng
from superarm.core.arrays import repeated
from superarm.core.inputs import as_count, as_number
from superarm.core.streams import stream

from .geography import Points, pairs
from .road import VEHICLE_CLASSES, RoadNetwork, components, largest_part

FEWEST_EDGES, MOST_EDGES = 200, 2_000_000
_LOCAL, _COLLECTOR, _ARTERIAL, _RING = range(4)
_AREA_PER_EDGE = (
    8200.0  # square metres of land for a directed edge, with a margin that is cut off
)
_DISTRICT = 800.0  # metres between the centres of districts; less in a small town
# Metres between the embankments, between sites down the middle, and from the river to half the height.
_RIVER, _RIVER_STEP, _VALLEY = 60.0, 115.0, 500.0
_SHORTEST = (
    27.0  # streets shorter than this become one junction, unless they are bridges
)
_STEEP, _SOFT = (
    0.08,
    0.3,
)  # grade of one street in fifty; how softly hills begin, in typical heights
# Shares of local streets with one direction, of those left out, of main crossings without left turns.
_ONE_WAY, _MISSING, _NO_LEFT = 0.16, 0.07, 0.3


def generate_city(
    *, edges: int = 2000, seed: int = 0, hills: float = 1.0
) -> RoadNetwork:
    """A city with about ``edges`` directed edges, all of which a passenger car can reach and leave.

    ``hills`` scales the heights: 0 is flat; with 1 one street in fifty is steeper than 8 %. Edge ids:
    ``r7`` and ``-r7`` are the two directions of a road, ``bridge…`` crosses the river, ``ring…`` is a
    fast road around the centre.

    >>> city = generate_city(edges=1000, seed=3)
    >>> abs(len(city.line_graph()) - 1000) < 100
    True
    """
    as_count(edges, "edges", FEWEST_EDGES, MOST_EDGES)
    as_number(hills, "hills", 0, 3)
    rng = stream(seed, "city", 0)
    land = _drawn_land(edges, rng)
    streets = _cut(_streets(land, rng), land, edges)
    height = land.height(streets.places)
    streets = streets._replace(
        places=(streets.places + land.bend(streets.places)).round(2)
    )
    # To the centimetre, and not below the straight line.
    length = np.ceil(np.abs(streets.spans()) * 100.0 - 1e-6) / 100.0
    steep = np.quantile(
        np.abs(np.diff(height[streets.ends], axis=1)[:, 0]) / length, 0.98
    )
    height = (height * (hills * _STEEP / steep)).round(2)
    return _network(f"city-{edges}-{seed}", streets, height, length, rng)


# --- the land -----------------------------------------------------------------------------


class _Land(NamedTuple):
    """What is there before any street."""

    radius: float
    outline: (
        Floats  # (k, 2): amplitude and phase of the outline's waves around the centre
    )
    heading: complex  # the river flows in this direction …
    river: Points  # … and these waves, along it, move it sideways
    hills: Points
    east: Points
    north: Points  # waves by which the map is off the plan

    def level(self, points: Points) -> Floats:
        """ρ of each point, below 1 inside the city."""
        angle = np.angle(points)
        waves = [
            a * np.cos(k * angle + phase)
            for k, (a, phase) in enumerate(self.outline, start=2)
        ]
        level: Floats = np.abs(points) / (self.radius * (1.0 + np.sum(waves, axis=0)))
        return level

    def bend(self, points: Points) -> Points:
        """How far the map is from the plan; so little per metre that no street crosses another."""
        return _sum(self.east, points) + 1j * _sum(self.north, points)

    def river_distance(self, points: Points) -> Floats:
        """Metres to the middle of the river, nearly."""
        turned = points / self.heading
        here, ahead = (_sum(self.river, turned.real + step) for step in (0.0, 1.0))
        return np.abs(turned.imag - here) / np.hypot(1.0, ahead - here)

    def height(self, points: Points) -> Floats:
        """Of the land, in no unit: lowlands are flat, hills stand out of them, the river is lowest."""
        typical = np.sqrt((self.hills[:, 2].real ** 2).sum() / 2.0)
        near = (self.river_distance(points) / _VALLEY) ** 2
        hills = np.logaddexp(0.0, (_sum(self.hills, points) / typical + 0.5) / _SOFT)
        height: Floats = hills * near / (near + 1.0)
        return height


def _drawn_land(edges: int, rng: Rng) -> _Land:
    radius = float(np.sqrt(_AREA_PER_EDGE * (edges + 60.0) / np.pi))
    river = _waves(rng, 3, (max(0.8 * radius, 900.0), max(3.0 * radius, 2700.0)), 0.3)
    river[:, 0] = np.abs(river[:, 0])
    return _Land(
        radius=radius,
        outline=rng.random((4, 2))
        * (0.09, 2.0 * np.pi)
        / ((1, 1), (2, 1), (3, 1), (4, 1)),
        heading=complex(np.exp(2j * np.pi * rng.random())),
        river=river,
        hills=_waves(
            rng, 32, (min(1.2 * radius, 2500.0), min(4.0 * radius, 8000.0)), 1.0
        ),
        east=_waves(rng, 4, (0.8 * radius, 3.0 * radius), 0.1),
        north=_waves(rng, 4, (0.8 * radius, 3.0 * radius), 0.1),
    )


def _waves(
    rng: Rng, count: int, lengths: tuple[float, float], steepness: float
) -> Points:
    """Waves of all directions, the longer the higher; each at most ``steepness`` steep."""
    k = 2.0 * np.pi / (lengths[0] * (lengths[1] / lengths[0]) ** rng.random(count))
    angle, phase = 2.0 * np.pi * rng.random((2, count))
    return np.stack([k * np.exp(1j * angle), phase, steepness / k], axis=1)


def _sum(waves: Points, points: Points | Floats) -> Floats:
    total = np.zeros(len(points))
    for k, phase, amplitude in waves:  # one by one: a city may have a million points
        total += amplitude.real * np.cos((points * k.conj()).real + phase.real)
    return total


# --- streets ------------------------------------------------------------------------------


class _Streets(NamedTuple):
    """Places and the undirected streets between them, one row each."""

    places: Points
    ends: Ints
    road: Ints  # class of road, local to ring
    bridge: Bools
    calm: Bools  # a limit of 30
    one_way: Ints  # +1, −1, or 0 for both directions

    def spans(self) -> Points:
        """From the first end of each street to the second."""
        return self.places[self.ends[:, 1]] - self.places[self.ends[:, 0]]

    def chosen(self, rows: Bools | Ints) -> _Streets:
        """Some streets and the places they need."""
        used, ends = np.unique(self.ends[rows], return_inverse=True)
        parts: Any = (part[rows] for part in self[2:])
        return _Streets(self.places[used], ends.reshape(-1, 2), *parts)


class _Districts(NamedTuple):
    apart: float
    centres: Points
    circle: Ints
    sector: Ints
    angle: Floats
    spacing: Floats
    rings: Ints  # ring roads lie within these circles

    def seam(self, sides: Ints) -> Ints:
        """Class of road between two districts, by rows; local within one."""
        (a, b), (p, q) = self.circle[sides.T], self.sector[sides.T]
        road = np.where(sides[:, 0] != sides[:, 1], _COLLECTOR, _LOCAL)
        road[(p != q) & (np.minimum(a, b) > 0) | (a // 4 != b // 4)] = _ARTERIAL
        road[((a[:, None] < self.rings) != (b[:, None] < self.rings)).any(axis=1)] = (
            _RING
        )
        return road

    def nearest(self, points: Points) -> tuple[Ints, Floats]:
        """The district of each point, and how many metres it is from the next."""
        from scipy.spatial import cKDTree

        found: Any = cKDTree(pairs(self.centres)).query(pairs(points), k=2)
        (near, far), (own, other) = found[0].T, found[1].T
        return own, (far**2 - near**2) / (
            2.0 * np.abs(self.centres[own] - self.centres[other])
        )


def _drawn_districts(land: _Land, rng: Rng) -> _Districts:
    """Districts on circles, six more on each."""
    apart = min(_DISTRICT, 0.42 * land.radius)
    each = np.maximum(
        6 * np.arange(np.ceil(1.2 * land.radius / apart) + 1, dtype=np.intp), 1
    )
    circle, within = repeated(each)
    turn = (within + 0.5) / each[circle]
    count = len(circle)
    jitter = 0.16 * (rng.random(count) - 0.5 + 1j * (rng.random(count) - 0.5))
    # Avenues are rays between sectors; where they are far apart, there are twice as many.
    sectors = 6 * 2 ** np.floor(np.log2(np.maximum(circle, 2) / 1.5))
    away = np.minimum(apart * circle / land.radius, 1.2)
    askew = np.where(rng.random(count) < 0.3, 0.5 * np.pi * rng.random(count), 0.0)
    rings = (0.5 + 0.5 * land.radius / apart) / 3.0 ** np.arange(4)
    return _Districts(
        apart=apart,
        centres=apart * (circle * np.exp(2j * np.pi * turn) + jitter),
        circle=circle,
        sector=np.floor(turn * sectors).astype(np.intp),
        angle=2.0 * np.pi * turn + askew,
        spacing=(130.0 + 90.0 * away) * (0.85 + 0.35 * rng.random(count)),
        rings=rings[(rings > 1.6) & (land.radius > 1500.0)].round().astype(np.intp),
    )


def _streets(land: _Land, rng: Rng) -> _Streets:
    """All streets of a plan, somewhat beyond the outline."""
    districts = _drawn_districts(land, rng)
    blocks = np.concatenate([_lattices(districts, rng), _seam_pairs(districts, rng)])
    blocks = blocks[land.river_distance(blocks) > _RIVER + 38.0]
    along = np.arange(-1.3 * land.radius, 1.3 * land.radius, _RIVER_STEP)
    middle = along + 1j * _sum(land.river, along)
    aside = np.gradient(middle) * 1j
    aside *= _RIVER / np.abs(aside)
    river = land.heading * np.concatenate([middle + aside, middle - aside, middle])
    sites = np.concatenate([blocks, river])
    water = np.arange(len(sites)) >= len(sites) - len(along)
    sites += rng.random(len(sites)) + 1j * rng.random(
        len(sites)
    )  # no four sites on one circle
    inside = land.level(sites) < 1.15
    sites, water = sites[inside], water[inside]
    places, ends, sides = _ridges(sites)
    within = (land.level(places) < 1.08)[ends].all(axis=1)
    ends, sides = ends[within], sides[within]
    home = districts.nearest(sites)[0][sides]
    road, wet = districts.seam(home), water[sides].sum(axis=1)
    road[wet == 1] = _COLLECTOR  # embankments
    at_ring = np.zeros(len(places), dtype=bool)
    at_ring[ends[road == _RING]] = True  # few small streets open on a ring road
    missing = rng.random(len(ends)) < np.where(at_ring[ends].any(axis=1), 0.6, _MISSING)
    gone = (road == _LOCAL) & (missing | (wet == 2))
    calm = (road == _LOCAL) & (rng.random(len(districts.centres))[home[:, 0]] < 0.65)
    both = np.zeros(len(ends), dtype=np.intp)
    streets = _contracted(
        _Streets(places, ends, road, wet == 2, calm, both).chosen(~gone)
    )
    return streets._replace(one_way=_one_way(streets, rng))


def _lattices(districts: _Districts, rng: Rng) -> Points:
    """Sites within the districts, each on a lattice that is turned its own way."""
    count = (len(districts.centres), 1)
    reach = int(np.ceil(0.75 * districts.apart / districts.spacing.min()))
    axis = np.arange(-reach, reach + 1.0)
    across, up = (part.reshape(1, -1) for part in np.meshgrid(axis, axis))
    jitter = np.where(rng.random(count) < 0.2, 0.45, 0.12)  # old towns are less regular
    aspect = np.sqrt(1.1 + 0.9 * rng.random(count))
    size = (count[0], across.shape[1])
    x = (across + jitter * (rng.random(size) - 0.5)) * aspect
    y = (up + jitter * (rng.random(size) - 0.5)) / aspect
    offset = (x + 1j * y) * (districts.spacing * np.exp(1j * districts.angle))[:, None]
    home, column = np.nonzero(np.abs(offset) < 0.75 * districts.apart)
    points: Points = districts.centres[home] + offset[home, column]
    own, to_seam = districts.nearest(points)
    kept: Points = points[(own == home) & (to_seam > 0.8 * districts.spacing[home])]
    return kept


def _seam_pairs(districts: _Districts, rng: Rng) -> Points:
    """Mirrored pairs of sites along the borders of districts."""
    corners, ends, sides = _ridges(districts.centres)
    (begin, end), (own, other) = corners[ends.T], districts.centres[sides.T]
    spacing = districts.spacing[sides].mean(axis=1)
    # At the border of the plan a seam may go on for ever.
    count = np.round(np.minimum(np.abs(end - begin), 2000.0) / (0.95 * spacing)).astype(
        np.intp
    )
    seam, place = repeated(count)
    share = (place + 0.5 + 0.3 * (rng.random(len(seam)) - 0.5)) / count[seam]
    middle = begin[seam] + share * (end - begin)[seam]
    across = (0.42 * spacing * (other - own) / np.abs(other - own))[seam]
    pair = middle - across, middle + across
    kept = [
        districts.nearest(points)[0] == sides[seam, k] for k, points in enumerate(pair)
    ]
    return np.concatenate([points[kept[0] & kept[1]] for points in pair])


def _ridges(points: Points) -> tuple[Points, Ints, Ints]:
    """Finite borders of the Voronoi cells: corners (v,), ends (r, 2), the sites beside (r, 2)."""
    from scipy.spatial import Delaunay

    triangulation = Delaunay(pairs(points))
    triangles = triangulation.simplices.astype(np.intp)
    a, b, c = points[triangles.T]
    u, v = b - a, c - a
    area = 2.0 * (u.conj() * v).imag
    area = np.where(
        np.abs(area) > 1e-9, area, np.inf
    )  # slivers of the hull: far outside anyway
    corners = a + 1j * (v * np.abs(u) ** 2 - u * np.abs(v) ** 2) / -area
    first, corner = np.nonzero(
        triangulation.neighbors > np.arange(len(triangles))[:, None]
    )
    second = triangulation.neighbors[first, corner].astype(np.intp)
    beside = np.stack([triangles[first, (corner + k) % 3] for k in (1, 2)], axis=1)
    return corners, np.stack([first, second], axis=1), beside


def _contracted(streets: _Streets) -> _Streets:
    """Ends of very short streets become one place; of parallel streets the largest stays."""
    short = (np.abs(streets.spans()) < _SHORTEST) & ~streets.bridge
    label = components(streets.ends[short], len(streets.places), directed=False)
    x, y = (
        np.bincount(label, weights=axis)
        for axis in (streets.places.real, streets.places.imag)
    )
    ends = np.sort(label[streets.ends], axis=1)
    order = np.lexsort((-streets.road, ends[:, 1], ends[:, 0]))
    kept = ends[order, 0] != ends[order, 1]
    kept[1:] &= (np.diff(ends[order], axis=0) != 0).any(axis=1)
    places = np.array((x + 1j * y) / np.bincount(label), dtype=np.complex128)
    return streets._replace(places=places, ends=ends).chosen(order[kept])


def _one_way(streets: _Streets, rng: Rng) -> Ints:
    """Streets on one line have the same fate, and parallel ones alternate."""
    forward = streets.spans() / np.abs(streets.spans())
    flip = np.where(forward.real + 0.2 * forward.imag >= 0.0, 1, -1)
    middle = streets.places[streets.ends].mean(axis=1)
    stripe = np.floor(flip * (forward.conj() * middle).imag / 110.0)
    block = (
        np.floor(pairs(middle) / _DISTRICT) @ np.array([7919.0, 104_729.0])
        + 31.0 * stripe
    )
    draw = rng.random(8191)[np.mod(block, 8191).astype(np.intp)]
    chosen = (streets.road == _LOCAL) & (draw < _ONE_WAY)
    return np.where(chosen, flip * np.where(stripe % 2 == 0, 1, -1), 0)


def _cut(streets: _Streets, land: _Land, edges: int) -> _Streets:
    """The inner part with the wanted number of directed edges, in one piece."""
    order = np.argsort(
        land.level(streets.places)[streets.ends].max(axis=1), kind="stable"
    )
    count = np.cumsum(np.where(streets.one_way[order] == 0, 2, 1))
    inner = streets.chosen(
        order[count <= 1.02 * edges]
    )  # a little is lost where streets lead nowhere
    label = components(inner.ends, len(inner.places), directed=False)[inner.ends[:, 0]]
    return inner.chosen(label == np.bincount(label).argmax())


# --- from streets to a network ------------------------------------------------------------


def _network(
    name: str, streets: _Streets, height: Floats, length: Floats, rng: Rng
) -> RoadNetwork:
    """Edges in both directions and the legal turns between them: all that is strongly connected."""
    there, back_again = (
        np.flatnonzero(streets.one_way >= 0),
        np.flatnonzero(streets.one_way <= 0),
    )
    street = np.concatenate([there, back_again])
    back = np.arange(len(street)) >= len(there)
    ends = np.where(back[:, None], streets.ends[street, ::-1], streets.ends[street])
    turns = _lock(streets, street, ends, rng)
    kept, turns = largest_part(np.arange(len(street)), turns, len(street))
    street, back = street[kept], back[kept]
    used, ends = np.unique(ends[kept], return_inverse=True)
    tail, head = ends.reshape(-1, 2).T
    road, away = streets.road[street], np.abs(streets.places)
    fast = (road == _ARTERIAL) & (away[streets.ends[street, 0]] > 0.45 * away.max())
    limit = np.select(
        [streets.calm[street], road == _RING, fast], [30.0, 90.0, 70.0], 50.0
    )
    word = np.select([streets.bridge[street], road == _RING], ["bridge", "ring"], "r")
    ids = np.char.add(np.char.add(np.where(back, "-", ""), word), street.astype(str))
    permits = {who: np.ones(len(street), dtype=bool) for who in VEHICLE_CLASSES}
    permits |= dict.fromkeys(("bicycle", "pedestrian"), road != _RING)
    return RoadNetwork(
        name=name,
        junction_ids=tuple(f"j{place}" for place in range(len(used))),
        junctions=np.column_stack([pairs(streets.places), height])[used],
        edge_ids=tuple(ids.tolist()),
        tail=tail,
        head=head,
        length=length[street],
        speed=limit / 3.6,
        permits=permits,
        connections=turns,
        turn_permits={
            who: may[turns[:, 0]] & may[turns[:, 1]] for who, may in permits.items()
        },
    )


def _lock(streets: _Streets, street: Ints, ends: Ints, rng: Rng) -> Ints:
    """From each edge into those that leave where it ends, less what is forbidden.

    One turns back only where there is no other way; where a ban would leave none, it is not posted.
    """
    tail, head = ends.T
    by_tail = np.argsort(tail, kind="stable")
    begins = np.searchsorted(tail[by_tail], np.arange(len(streets.places) + 1))
    first, within = repeated(begins[head + 1] - begins[head])
    second = by_tail[begins[head[first]] + within]
    heading = streets.places[head] - streets.places[tail]
    angle = np.angle(heading[second] / heading[first])
    main = streets.road >= _COLLECTOR
    meet = np.bincount(streets.ends[main].ravel(), minlength=len(streets.places))
    strict = (meet >= 3) & (rng.random(len(meet)) < _NO_LEFT)
    back = street[first] == street[second]
    banned = strict[head[first]] & main[street[first]] & (angle > 0.7) & (angle < 2.7)
    for barred in (banned, back):
        ways = np.bincount(first[~(back | banned)], minlength=len(street))
        np.logical_and(barred, ways[first] > 0, out=barred)
    kept = ~(banned | back)
    return np.stack([first[kept], second[kept]], axis=1)
