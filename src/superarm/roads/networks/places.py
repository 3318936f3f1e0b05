"""Where the edges of a line graph are on Earth, and what their streets are called.

=================  ====================================================================
plane              Mercator's map as complex numbers, in metres of the middle latitude
piece              a straight part of an edge's course, at most 50 m long
share              how much of an edge's course lies before a place on it, 0 to 1
the other ways     edges between the same junctions as another and right beside it, back to front
=================  ====================================================================

Mercator's scale depends on the latitude alone, so that a distance is corrected by the ratio of two
scales: at 500 m it is wrong by centimetres. What is nearest on the map is nearest on Earth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.errors import InputError, UnknownArmError

from .geography import COMPLEX, Points, great_circle, mercator, metres_per_radian, pairs
from .line_graph import LineGraph
from .pieces import Budget, Pieces, is_inside, is_near
from .street_names import Street, StreetNames

# Metres from a place to the farthest edge that is used for it.
_FARTHEST = 500.0
# Metres of the longest piece: to search with, and to measure with.
_PIECE = 50.0
_STEP = 2.0
# Metres by which the other way may be farther from a place.
_BESIDE = 15.0
# An edge runs along a line if it is within so many metres of it …
_ALONG = 10.0
# … at an angle of at most this sine …
_SLANT = 0.5
# … for so many metres, or half of its length.
_LONG = 30.0
# Metres between the middles of pieces of which some part is within 10 m of the other.
_MIDDLES_APART = _ALONG + _PIECE
# Metres of a line through the network.
_LONGEST_LINE = 5e6
# Pieces of roads that are split in one go, each into at most 25 points.
_PIECES_AT_ONCE = 20_000
# Steps of the budget: to find the nearest road for 2 m of a line, and for a point of a road.
_PER_STEP = 100.0
_PER_POINT = 20.0


class PlaceMatch(NamedTuple):
    """The edge of a place and its other ways."""

    edges: tuple[int, ...]
    place: str = ""
    """What the place is."""
    how: str = ""
    """How the edge belongs to the place."""
    shares: tuple[float, ...] | None = None
    """How much of each edge lies before the place; ``None``: whole edges are meant."""


class _Frames(NamedTuple):
    """How metres z of each edge become places of the plane: origin + (z − begin)·turn, (n,)."""

    origin: Points
    begin: Points
    turn: Points


class _NearestWays(NamedTuple):
    edges: tuple[int, ...]  # the nearest edge, then its other ways
    distance: float  # metres of the plane


@dataclass(frozen=True, eq=False)
class Places:
    """Edges by place, by the name of their street, along lines and within areas.

    Search trees are built when they are first needed.

    Args:
        graph: The roads.
    """

    graph: LineGraph

    def find(self, place: str | tuple[float, float]) -> PlaceMatch:
        """Find the edge of a place.

        An edge that is named by its id is meant as a whole. Coordinates, and the middle of a street,
        are points: where they lie on an edge is the place of its course that is nearest to them.

        Args:
            place: An edge id, "latitude,longitude" in degrees or a pair of these, or the name of a
                street.
        """
        if not isinstance(place, str):
            latitude, longitude = _as_degrees(place)
            return self._find_nearest(latitude, longitude)
        if place in self.graph:
            number = self.graph.number(place)
            return PlaceMatch((number,))
        pair = _parse_pair(place)
        if pair is not None:
            latitude, longitude = _as_degrees(pair)
            return self._find_nearest(latitude, longitude)
        street = self._street_names.find(place)
        return self._find_middle(street)

    def _find_middle(self, street: Street) -> PlaceMatch:
        """Find the edge at the middle of a street."""
        is_street = np.isin(self._pieces.edge, street.edges)
        pieces = self._pieces.take(is_street)
        lengths = np.abs(pieces.step)
        weights = lengths if lengths.any() else None
        middle = np.average(pieces.middle, weights=weights)
        ways = self._nearest_ways(pieces, middle)
        how = ""
        if len(street.edges) > 1:
            how = "nearest to the middle of the street"
        shares = self._shares(ways.edges, complex(middle))
        return PlaceMatch(ways.edges, street.name, how, shares)

    def street(self, name: str) -> Ints:
        """Return the edge of this id, or all edges of the street of this name."""
        if name in self.graph:
            number = self.graph.number(name)
            return np.array([number])
        street = self._street_names.find(name)
        return np.array(street.edges)

    def along(
        self, line: Sequence[Sequence[float]], budget: Budget | None = None
    ) -> Ints:
        """Return edges that run along a line, in either direction.

        Within 10 m of it and at most 30° askew, for 30 m or half of their length. The line may be at
        most 5,000 km long where the network is; elsewhere it costs nothing.

        Args:
            line: Longitudes and latitudes in degrees.
            budget: Pays for the work; by default a fresh one.
        """
        drawn = self._clip_line(line)
        length = float(np.abs(drawn.step).sum())
        if length > _LONGEST_LINE:
            raise InputError(
                f"a line may run at most {_LONGEST_LINE / 1000.0:,.0f} km through the network, got "
                f"{length / 1000.0:,.0f} km; split it"
            )
        budget = budget or Budget()
        budget.spend(_PER_STEP * length / _STEP)
        drawn = drawn.split(_PIECE)
        if not len(drawn.edge):
            return np.empty(0, dtype=np.intp)
        roads = self._pieces
        places = pairs(roads.middle)
        line_places = pairs(drawn.middle)
        near = _in_box(places, line_places, _MIDDLES_APART)
        near = near[is_near(places[near], line_places, _MIDDLES_APART)]
        if not len(near):
            return np.empty(0, dtype=np.intp)
        # Most of a line may be far from every road.
        is_near_road = is_near(line_places, places[near], _MIDDLES_APART)
        covered = self._covered_metres(roads.take(near), drawn.take(is_near_road))
        lengths = self._sum_by_edge(roads.edge, np.abs(roads.step))
        enough = np.minimum(_LONG, 0.5 * lengths)
        is_along = covered > 0.0
        is_along &= covered >= enough
        return np.flatnonzero(is_along)

    def _clip_line(self, line: Sequence[Sequence[float]]) -> Pieces:
        """Return the parts of a line that are near the network."""
        points = self._to_plane(line)
        steps = np.diff(points)
        drawn = Pieces(
            edge=np.zeros(len(steps), dtype=np.intp),  # a line has no edges
            begin=points[:-1],
            step=steps,
        )
        places = pairs(self._pieces.middle)
        lowest = places.min(axis=0)
        highest = places.max(axis=0)
        return drawn.clip(lowest - _MIDDLES_APART, highest + _MIDDLES_APART)

    def _covered_metres(self, roads: Pieces, line: Pieces) -> Floats:
        """Return metres of each edge that run along a line, (n,)."""
        from scipy.spatial import cKDTree

        roads = roads.split(_STEP)
        line = line.split(_STEP)
        tree = cKDTree(pairs(line.middle))
        _, nearest = tree.query(pairs(roads.middle))
        beside = line.take(nearest)
        lengths = np.abs(roads.step)
        # Of a product of two steps the imaginary part is its size times the sine of their angle.
        product = roads.step * np.conj(beside.step)
        askew = np.abs(product.imag)
        is_along = askew <= _SLANT * lengths * np.abs(beside.step)
        distance = beside.distance(roads.middle)
        is_along &= distance <= _ALONG
        metres = lengths * is_along
        return self._sum_by_edge(roads.edge, metres)

    def _sum_by_edge(self, edge: Ints, values: Floats) -> Floats:
        """Return the sum of the values of each edge, (n,)."""
        total: Any = np.bincount(edge, values, minlength=len(self.graph))
        sums: Floats = total
        return sums

    def within(
        self, rings: Sequence[Sequence[Sequence[float]]], budget: Budget | None = None
    ) -> Ints:
        """Return edges of which some part lies in an area.

        Args:
            rings: Longitudes and latitudes in degrees. The area is inside the first ring and outside
                the others.
            budget: Pays for the work; by default a fresh one.
        """
        budget = budget or Budget()
        borders = []
        next_corners = []
        for ring in rings:
            border = self._to_plane(ring)
            borders.append(border)
            next_corners.append(np.roll(border, -1))
        begin = np.concatenate(borders)
        end = np.concatenate(next_corners)
        places = pairs(self._pieces.middle)
        near = _in_box(places, pairs(begin), _PIECE)
        pieces = self._pieces.take(near)
        no_edges: Ints = np.empty(0, dtype=np.intp)
        edges = [no_edges]
        for first in range(0, len(pieces.edge), _PIECES_AT_ONCE):
            rows = slice(first, first + _PIECES_AT_ONCE)
            points = pieces.take(rows).split(_STEP)
            budget.spend(_PER_POINT * len(points.edge))
            inside = is_inside(points.middle, begin, end, budget)
            edges.append(np.unique(points.edge[inside]))
        return np.unique(np.concatenate(edges))

    @cached_property
    def _street_names(self) -> StreetNames:
        return StreetNames(self.graph)

    # --- by place --------------------------------------------------------------------------

    def _find_nearest(self, latitude: float, longitude: float) -> PlaceMatch:
        points = self._to_plane([[longitude, latitude]])
        point = points[0]
        ways = self._nearest_ways(self._close_pieces(point), point)
        # Near a pole the map's scale at the place alone would make any distance small.
        edge = ways.edges[0]
        _, edge_latitude = self._begin_of(edge)
        scales = metres_per_radian([latitude, edge_latitude])
        scale = float(scales.max())
        distance = ways.distance * (scale / self._scale)
        if distance > _FARTHEST:
            raise self._too_far(latitude, longitude, edge, distance)
        place = _describe(latitude, longitude)
        shares = self._shares(ways.edges, complex(point))
        return PlaceMatch(ways.edges, place, f"{distance:.0f} m away", shares)

    def _close_pieces(self, point: complex) -> Pieces:
        """Return the pieces among which the nearest one to a point is."""
        pair = pairs(point)
        _, nearest_middle = self._tree.query(pair)
        # The piece with the nearest middle bounds how far the nearest piece can be.
        candidate = self._pieces.take([nearest_middle])
        (bound,) = candidate.distance(point)
        close = self._tree.query_ball_point(pair, bound + _PIECE)
        rows = np.array(sorted(close))
        return self._pieces.take(rows)

    def _too_far(
        self, latitude: float, longitude: float, edge: int, distance: float
    ) -> UnknownArmError:
        lon_lat = self._lon_lat
        # The map exaggerates long distances, and a long edge may begin far away.
        straight = great_circle((longitude, latitude), self._begin_of(edge))
        metres = min(distance, straight)
        west, south = lon_lat.min(axis=0)
        east, north = lon_lat.max(axis=0)
        is_swapped = west <= latitude <= east and south <= longitude <= north
        question = "Did you swap them? " if is_swapped else ""
        return UnknownArmError(
            f"{_describe(latitude, longitude)} is {metres / 1000.0:.1f} km from the nearest usable "
            f"edge, {self.graph.ids[edge]!r}; the limit is {_FARTHEST:.0f} m. {question}"
            f"Pass latitude,longitude on the network, from {south:.4f},{west:.4f} to "
            f"{north:.4f},{east:.4f}"
        )

    def _begin_of(self, edge: int) -> Floats:
        """Return longitude and latitude of the junction where an edge begins."""
        number = self.graph.edges[edge]
        junction = self.graph.network.tail[number]
        begin: Floats = self._lon_lat[junction]
        return begin

    def _nearest_ways(self, pieces: Pieces, point: complex) -> _NearestWays:
        """Return the edge of these pieces nearest to a point, with its other ways."""
        network = self.graph.network
        tail = network.tail[self.graph.edges]
        head = network.head[self.graph.edges]
        distance = pieces.distance(point).round(6)
        nearest = int(distance.argmin())
        least = distance[nearest]
        edge = int(pieces.edge[nearest])
        candidates = pieces.edge
        is_other_way = candidates != edge
        is_other_way &= tail[candidates] == head[edge]
        is_other_way &= head[candidates] == tail[edge]
        is_other_way &= distance <= least + _BESIDE
        others = np.unique(candidates[is_other_way])
        return _NearestWays((edge, *others.tolist()), float(least))

    def _shares(self, edges: Sequence[int], point: complex) -> tuple[float, ...]:
        """Return how much of each edge lies before the place on it nearest to a point."""
        return tuple(_share(self._course(edge), point) for edge in edges)

    @property
    def _lon_lat(self) -> Floats:
        return self.graph.network.on_earth("; use edge ids")

    @cached_property
    def _scale(self) -> float:
        """Metres of the plane for a radian."""
        return float(metres_per_radian(self._lon_lat[:, 1].mean()))

    def _to_plane(self, lon_lat: Any) -> Points:
        return self._scale * mercator(lon_lat)

    @cached_property
    def _frames(self) -> _Frames:
        network = self.graph.network
        tail = network.tail[self.graph.edges]
        head = network.head[self.graph.edges]
        places = network.junctions[:, :2] @ COMPLEX
        plane_places = places
        if network.lon_lat is not None:
            plane_places = self._to_plane(network.lon_lat)
        begin = places[tail]
        end = places[head]
        plane_begin = plane_places[tail]
        plane_end = plane_places[head]
        # Of a ring only the metres are known: north is taken to be up.
        is_ring = begin == end
        span = np.where(is_ring, 1.0, end - begin)
        turn = np.where(is_ring, 1.0, (plane_end - plane_begin) / span)
        return _Frames(plane_begin, begin, turn)

    def _course(self, edge: int) -> Points:
        """Return the course of one edge in the plane, (p,)."""
        frames = self._frames
        metres = self.graph.course(edge) @ COMPLEX
        turned = (metres - frames.begin[edge]) * frames.turn[edge]
        course: Points = frames.origin[edge] + turned
        return course

    @cached_property
    def _pieces(self) -> Pieces:
        """The courses of all edges: in the network's metres, then turned and scaled to their ends."""
        frames = self._frames
        courses, counts = self.graph.courses()
        edge = np.repeat(np.arange(len(self.graph)), counts)
        metres = courses @ COMPLEX
        turned = (metres - frames.begin[edge]) * frames.turn[edge]
        points = frames.origin[edge] + turned
        # All points are in one row: a piece joins two of the same edge.
        next_edge = edge[1:]
        is_joined = next_edge == edge[:-1]
        steps = Pieces(edge=next_edge, begin=points[:-1], step=np.diff(points))
        pieces = steps.take(is_joined)
        return pieces.split(_PIECE)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        return cKDTree(pairs(self._pieces.middle))


def _in_box(points: Floats, corners: Floats, margin: float) -> Ints:
    """Return rows of points, (p, 2), that lie in the box around corners, (c, 2), and a margin."""
    low = corners.min(axis=0) - margin
    high = corners.max(axis=0) + margin
    is_between = (points >= low) & (points <= high)  # (p, 2)
    is_in_box = is_between.all(axis=1)
    return np.flatnonzero(is_in_box)


def _share(course: Points, point: complex) -> float:
    """Return how much of a course lies before its place nearest to a point, 0 to 1."""
    steps = np.diff(course)
    lengths = np.abs(steps)
    total = float(lengths.sum())
    if total == 0.0:
        return 0.0
    # Of each step, the share that lies before the point nearest to ours.
    offset = point - course[:-1]
    product = offset * np.conj(steps)
    squares = np.where(lengths > 0.0, lengths, 1.0) ** 2
    along = np.clip(product.real / squares, 0.0, 1.0)
    distance = np.abs(offset - along * steps)
    nearest = int(distance.argmin())
    steps_before = lengths[:nearest].sum()
    on_step = along[nearest] * lengths[nearest]
    before = float(steps_before + on_step)
    return min(before / total, 1.0)


def _describe(latitude: float, longitude: float) -> str:
    return f"latitude {latitude:.5f}, longitude {longitude:.5f}"


def _parse_pair(text: str) -> list[float] | None:
    """Return the two numbers of a text such as "49.6,6.1", if it is one."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    if len(numbers) != 2 or not np.isfinite(numbers).all():
        return None
    return numbers


def _as_degrees(pair: Sequence[float]) -> tuple[float, float]:
    """Return latitude and longitude, or raise an error if they are no place on Earth."""
    try:
        latitude, longitude = (float(number) for number in pair)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "a place must be an edge id, the name of a street, or latitude and longitude, got "
            f"{pair!r:.60}"
        ) from None
    if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
        raise UnknownArmError(
            f"latitude {latitude:g}, longitude {longitude:g} is not on Earth; latitude comes first"
        )
    return latitude, longitude
