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

import difflib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.arrays import repeated
from superarm.core.errors import InputError, UnknownArmError

from .geography import COMPLEX, Points, great_circle, mercator, metres_per_radian, pairs
from .road import LineGraph

_FARTHEST = 500.0  # metres from a place to an edge that is used for it
_PIECE, _STEP = (
    50.0,
    2.0,
)  # lengths of pieces in metres: to look for, and to measure with
_BESIDE = 15.0  # metres by which the other way may be farther from a place
_ALONG, _LONG, _SLANT = (
    10.0,
    30.0,
    0.5,
)  # metres from a line; metres along it; sine of the angle to it
_LONGEST_LINE = 5e6  # metres of a line through the network
_PIECES_AT_ONCE = 20_000  # of roads, in each of which there are at most 25 points
_COMPARED_AT_ONCE = 1 << 21  # pairs of a point and a border
_LIKE, _MOST_TOLD = 0.8, 5  # how alike names must be, and how many are told


class PlaceMatch(NamedTuple):
    """The edge of a place and its other ways; what the place is, and how the edge belongs to it."""

    edges: tuple[int, ...]
    place: str = ""
    how: str = ""
    shares: tuple[float, ...] | None = None
    """How much of each edge lies before the place; ``None``: whole edges are meant."""


@dataclass(frozen=True, eq=False)
class Places:
    """Edges by place, by the name of their street, along lines and within areas.

    What it takes to look them up is made when it is first needed.
    """

    graph: LineGraph

    def find(self, place: str | tuple[float, float]) -> PlaceMatch:
        """An edge id, "latitude,longitude" in degrees or a pair of these, or the name of a street.

        An edge that is named by its id is meant as a whole. Coordinates, and the middle of a street,
        are points: where they lie on an edge is the place of its course that is nearest to them.
        """
        if not isinstance(place, str):
            return self._nearest(*_degrees(place))
        if place in self.graph:
            return PlaceMatch((self.graph.number(place),))
        try:
            pair = [float(part) for part in place.split(",")]
        except ValueError:
            pair = []
        if len(pair) == 2 and np.isfinite(pair).all():
            return self._nearest(*_degrees(pair))
        name, edges = self._street(place)
        pieces = self._pieces.at(np.isin(self._pieces.edge, edges))
        weights = np.abs(pieces.step)
        middle = np.average(pieces.middle, weights=weights if weights.any() else None)
        how = "nearest to the middle of the street" if len(edges) > 1 else ""
        ways, _ = pieces.ways(middle, self.graph)
        return PlaceMatch(ways, name, how, self._shares(ways, complex(middle)))

    def street(self, name: str) -> Ints:
        """The edge of this id, or all edges of the street of this name."""
        return (
            np.array([self.graph.number(name)])
            if name in self.graph
            else self._street(name)[1]
        )

    def along(
        self, line: Sequence[Sequence[float]], budget: Budget | None = None
    ) -> Ints:
        """Edges that run along a line of longitudes and latitudes, in either direction.

        Within 10 m of it and at most 30° askew, for 30 m or half of their length. The line may be at
        most 5,000 km long where the network is; elsewhere it costs nothing.
        """
        from scipy.spatial import cKDTree

        all_pieces = self._pieces
        places = pairs(all_pieces.middle)
        reach = (
            _ALONG + _PIECE
        )  # between the middles of pieces of which some part is within 10 m
        points = self._plane(line)
        drawn = _Pieces(
            np.zeros(len(points) - 1, dtype=np.intp), points[:-1], np.diff(points)
        )
        drawn = drawn.clipped(places.min(axis=0) - reach, places.max(axis=0) + reach)
        length = float(np.abs(drawn.step).sum())
        if length > _LONGEST_LINE:
            raise InputError(
                f"a line may run at most {_LONGEST_LINE / 1000.0:,.0f} km through the network, got "
                f"{length / 1000.0:,.0f} km; split it"
            )
        (budget or Budget()).spend(_PER_STEP * length / _STEP)
        drawn = drawn.split(_PIECE)
        if not len(drawn.edge):
            return np.empty(0, dtype=np.intp)
        ends = pairs(drawn.middle)
        low, high = ends.min(axis=0) - reach, ends.max(axis=0) + reach
        near = np.flatnonzero(((places >= low) & (places <= high)).all(axis=1))
        near = near[_is_near(places[near], ends, reach)]
        if not len(near):
            return np.empty(0, dtype=np.intp)
        drawn = drawn.at(
            _is_near(ends, places[near], reach)
        )  # the rest is far from every road
        fine, drawn = all_pieces.at(near).split(_STEP), drawn.split(_STEP)
        nearest = cKDTree(pairs(drawn.middle)).query(pairs(fine.middle))[1]
        beside = drawn.at(nearest)
        askew = np.abs((fine.step * np.conj(beside.step)).imag)
        parallel = askew <= _SLANT * np.abs(fine.step) * np.abs(beside.step)
        parallel &= beside.distance(fine.middle) <= _ALONG
        n = len(self.graph)
        covered = np.bincount(fine.edge, np.abs(fine.step) * parallel, minlength=n)
        whole = np.bincount(all_pieces.edge, np.abs(all_pieces.step), minlength=n)
        return np.flatnonzero(
            (covered > 0.0) & (covered >= np.minimum(_LONG, 0.5 * whole))
        )

    def within(
        self, rings: Sequence[Sequence[Sequence[float]]], budget: Budget | None = None
    ) -> Ints:
        """Edges of which some part lies in an area: inside the first ring, outside the others."""
        budget = budget or Budget()
        borders = [self._plane(ring) for ring in rings]
        low = (
            np.array([pairs(border).min(axis=0) for border in borders]).min(axis=0)
            - _PIECE
        )
        high = (
            np.array([pairs(border).max(axis=0) for border in borders]).max(axis=0)
            + _PIECE
        )
        places = pairs(self._pieces.middle)
        pieces = self._pieces.at(((places >= low) & (places <= high)).all(axis=1))
        begin = np.concatenate(borders)
        end = np.concatenate([np.roll(border, -1) for border in borders])
        found: list[Ints] = [np.empty(0, dtype=np.intp)]
        for first in range(0, len(pieces.edge), _PIECES_AT_ONCE):
            fine = pieces.at(slice(first, first + _PIECES_AT_ONCE)).split(_STEP)
            budget.spend(_PER_POINT * len(fine.edge))
            found.append(np.unique(fine.edge[_inside(fine.middle, begin, end, budget)]))
        return np.unique(np.concatenate(found))

    # --- by place --------------------------------------------------------------------------

    def _nearest(self, latitude: float, longitude: float) -> PlaceMatch:
        point = self._plane([[longitude, latitude]])[0]
        bound = self._pieces.at([self._tree.query(pairs(point))[1]]).distance(point)[0]
        close = np.array(
            sorted(self._tree.query_ball_point(pairs(point), bound + _PIECE))
        )
        ways, away = self._pieces.at(close).ways(point, self.graph)
        # Near a pole the map's scale at the place alone would make any distance small.
        begin = self.graph.network.tail[self.graph.edges[ways[0]]]
        there = self._lon_lat[begin]
        away *= float(metres_per_radian([latitude, there[1]]).max()) / self._scale
        name = self.graph.ids[ways[0]]
        told = f"latitude {latitude:.5f}, longitude {longitude:.5f}"
        if away > _FARTHEST:
            ends = self._lon_lat
            # The map exaggerates long distances, and a long edge may begin far away.
            metres = min(away, great_circle((longitude, latitude), there))
            (west, south), (east, north) = ends.min(axis=0), ends.max(axis=0)
            swapped = west <= latitude <= east and south <= longitude <= north
            raise UnknownArmError(
                f"{told} is {metres / 1000.0:.1f} km from the nearest edge that can be used, {name!r}, "
                f"more than {_FARTHEST:.0f} m; "
                + ("are they swapped? " if swapped else "")
                + f"give latitude,longitude on the network, from {south:.4f},{west:.4f} to "
                f"{north:.4f},{east:.4f}"
            )
        return PlaceMatch(
            ways, told, f"{away:.0f} m away", self._shares(ways, complex(point))
        )

    def _shares(self, edges: Sequence[int], point: complex) -> tuple[float, ...]:
        """How much of each edge lies before the place on it that is nearest to a point."""
        return tuple(_share(self._course(edge), point) for edge in edges)

    @property
    def _lon_lat(self) -> Floats:
        return self.graph.network.on_earth("name edges by their ids")

    @cached_property
    def _scale(self) -> float:
        """Metres of the plane for a radian."""
        return float(metres_per_radian(self._lon_lat[:, 1].mean()))

    def _plane(self, lon_lat: Any) -> Points:
        return self._scale * mercator(lon_lat)

    @cached_property
    def _frames(self) -> tuple[Points, Points, Points]:
        """What turns metres of each edge into places of the plane: a, b, f of a + (z − b)·f, (n,)."""
        graph, network = self.graph, self.graph.network
        ends = np.stack([network.tail, network.head])[:, graph.edges]
        first, last = begin, end = (network.junctions[:, :2] @ COMPLEX)[ends]
        if network.lon_lat is not None:
            first, last = self._plane(network.lon_lat)[ends]
        ring = (
            begin == end
        )  # of which only the metres are known: north is taken to be up
        turned = np.where(ring, 1.0, (last - first) / np.where(ring, 1.0, end - begin))
        return first, begin, turned

    def _course(self, edge: int) -> Points:
        """The course of one edge in the plane, (p,)."""
        first, begin, turned = (each[edge] for each in self._frames)
        course: Points = first + (self.graph.course(edge) @ COMPLEX - begin) * turned
        return course

    @cached_property
    def _pieces(self) -> _Pieces:
        """The courses of all edges: in the network's metres, then turned and scaled to their ends."""
        first, begin, turned = self._frames
        courses, counts = self.graph.courses()
        edge = np.repeat(np.arange(len(self.graph)), counts)
        places = first[edge] + (courses @ COMPLEX - begin[edge]) * turned[edge]
        joined = edge[1:] == edge[:-1]
        pieces = _Pieces(edge[1:][joined], places[:-1][joined], np.diff(places)[joined])
        return pieces.split(_PIECE)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        return cKDTree(pairs(self._pieces.middle))

    # --- by name ---------------------------------------------------------------------------

    @cached_property
    def _streets(self) -> dict[str, tuple[str, list[int]]]:
        """The edges of every street, by its name in plain letters."""
        streets: dict[str, tuple[str, list[int]]] = {}
        for edge, name in enumerate(self.graph.street_names or ()):
            if name:
                streets.setdefault(_plain(name), (name, []))[1].append(edge)
        return streets

    def _street(self, name: str) -> tuple[str, Ints]:
        """The street of this name, or of the one name that is like it."""
        wanted, streets = _plain(name), self._streets
        if (
            not streets
            or not wanted
            or (wanted not in streets and name in self.graph.network.edge_ids)
        ):
            self.graph.number(name)  # says why there is none
        like = (
            [wanted]
            if wanted in streets
            else [each for each in streets if wanted in each]
        )
        like = like or difflib.get_close_matches(
            wanted, streets, n=_MOST_TOLD, cutoff=_LIKE
        )
        if len(like) != 1:
            known = self.graph.network.name
            several = (
                f"{len(like)} streets of {known} fit {name!r}, such as"
                if like
                else (f"{known} has no edge and no street {name!r}; did you mean")
            )
            told = like or difflib.get_close_matches(
                wanted, streets, n=_MOST_TOLD, cutoff=0.5
            )
            names = " or ".join(
                repr(streets[each][0]) for each in sorted(told)[:_MOST_TOLD]
            )
            end = "; write more of the name" if like else "?"
            raise UnknownArmError(
                f"{several} {names}{end}" if told else several.partition(";")[0]
            )
        found, edges = streets[like[0]]
        return found, np.array(edges)


@dataclass(slots=True)
class Budget:
    """How much work lines and areas may still cost, together: some ten seconds in the beginning."""

    left: float = 1e9  # steps of about 10 ns

    def spend(self, steps: float) -> None:
        self.left -= steps
        if self.left < 0.0:
            raise InputError(
                "lines and areas have too many corners for this network; simplify them, or remove "
                "those that do not matter"
            )


_PER_STEP = 100.0  # of the budget: looking for what is nearest to 2 m of a line
_PER_POINT = 20.0  # one point of a road, every 2 m
_PER_CROSSING = 5.0  # a border beside a point


def _is_near(points: Floats, others: Floats, reach: float) -> Bools:
    """Which points, (p, 2), have another one within reach."""
    from scipy.spatial import cKDTree

    farthest = np.nextafter(reach, np.inf)  # what is as far as that counts as near
    away = cKDTree(others).query(points, distance_upper_bound=farthest)[0]
    near: Bools = np.isfinite(away)
    return near


def _inside(points: Points, begin: Points, end: Points, budget: Budget) -> Bools:
    """Which points lie inside: a ray to the right crosses an odd number of borders.

    A border, from ``begin`` to ``end``, is compared only with points between the heights of its ends.
    """
    x, y = points.real, points.imag
    by_height = np.argsort(y)
    heights = y[by_height]
    first = np.searchsorted(heights, np.minimum(begin.imag, end.imag))
    last = np.searchsorted(heights, np.maximum(begin.imag, end.imag))
    counts = last - first
    budget.spend(_PER_CROSSING * float(counts.sum()))
    odd: Bools = np.zeros(len(points), dtype=bool)
    # As many borders at once as fit into memory with their points.
    blocks = np.cumsum(counts) // _COMPARED_AT_ONCE
    for block in np.split(np.arange(len(counts)), np.flatnonzero(np.diff(blocks)) + 1):
        row, nth = repeated(counts[block])
        a, b = begin[block][row], end[block][row]
        point = by_height[first[block][row] + nth]
        crossed = a.real + (y[point] - a.imag) / (b.imag - a.imag) * (b.real - a.real)
        right = point[x[point] < crossed]
        odd ^= np.bincount(right, minlength=len(points)) % 2 == 1
    return odd


class _Pieces(NamedTuple):
    edge: Ints  # (p,)
    begin: Points  # in the plane, (p,)
    step: Points  # from there to its end

    @property
    def middle(self) -> Points:
        return self.begin + 0.5 * self.step

    def at(self, rows: Any) -> _Pieces:
        return _Pieces(self.edge[rows], self.begin[rows], self.step[rows])

    def clipped(self, low: Floats, high: Floats) -> _Pieces:
        """What of them lies in a box; a piece inside it stays as it is."""
        share: list[
            Floats
        ] = []  # where a piece, from 0 to 1, enters and leaves the box
        for begin, step, lower, upper in (
            (self.begin.real, self.step.real, low[0], high[0]),
            (self.begin.imag, self.step.imag, low[1], high[1]),
        ):
            still = step == 0.0
            beside = still & ((begin < lower) | (begin > upper))
            moving = np.where(still, 1.0, step)
            ends = np.sort([(lower - begin) / moving, (upper - begin) / moving], axis=0)
            share.append(np.where(beside, np.inf, np.where(still, 0.0, ends[0])))
            share.append(np.where(beside, -np.inf, np.where(still, 1.0, ends[1])))
        enters = np.maximum(0.0, np.maximum(share[0], share[2]))
        leaves = np.minimum(1.0, np.minimum(share[1], share[3]))
        inside = enters <= leaves
        enters, leaves = enters[inside], leaves[inside]
        kept = self.at(inside)
        return _Pieces(
            kept.edge, kept.begin + enters * kept.step, (leaves - enters) * kept.step
        )

    def split(self, most: float) -> _Pieces:
        """The same in pieces of at most so many metres."""
        counts = np.maximum(1, np.ceil(np.abs(self.step) / most)).astype(np.intp)
        rows, nth = repeated(counts)
        step = self.step[rows] / counts[rows]
        return _Pieces(self.edge[rows], self.begin[rows] + nth * step, step)

    def distance(self, points: Any) -> Floats:
        """Metres in the plane from each piece to one point, or to a point of its own."""
        away, square = points - self.begin, np.square(np.abs(self.step))
        share = (away * np.conj(self.step)).real / np.where(square > 0.0, square, 1.0)
        metres: Floats = np.abs(away - np.clip(share, 0.0, 1.0) * self.step)
        return metres

    def ways(self, point: complex, graph: LineGraph) -> tuple[tuple[int, ...], float]:
        """The edge nearest to a point with its other ways, and how far away it is."""
        away = self.distance(point).round(6)
        nearest = int(away.argmin())
        tail, head = (
            end[graph.edges] for end in (graph.network.tail, graph.network.head)
        )
        edge = int(self.edge[nearest])
        back = (
            (tail[self.edge] == head[edge])
            & (head[self.edge] == tail[edge])
            & (self.edge != edge)
        )
        others = self.edge[back & (away <= away[nearest] + _BESIDE)]
        return (edge, *np.unique(others).tolist()), float(away[nearest])


def _share(course: Points, point: complex) -> float:
    """How much of a course lies before its place nearest to a point, 0 to 1."""
    steps = np.diff(course)
    lengths = np.abs(steps)
    total = float(lengths.sum())
    if total == 0.0:
        return 0.0
    away = point - course[:-1]
    squares = np.where(lengths > 0.0, lengths, 1.0) ** 2
    along = np.clip((away * np.conj(steps)).real / squares, 0.0, 1.0)
    nearest = int(np.abs(away - along * steps).argmin())
    before = float(lengths[:nearest].sum() + along[nearest] * lengths[nearest])
    return min(before / total, 1.0)


def _plain(name: str) -> str:
    """Small letters without accents, one space between words."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return " ".join(
        "".join(each for each in parts if not unicodedata.combining(each)).split()
    )


def _degrees(pair: Sequence[float]) -> tuple[float, float]:
    try:
        latitude, longitude = (float(number) for number in pair)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"place is {pair!r:.60}; give an edge id, the name of a street, or latitude and longitude"
        ) from None
    if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
        raise UnknownArmError(
            f"latitude {latitude:g}, longitude {longitude:g} is no place on Earth; latitude comes first"
        )
    return latitude, longitude
