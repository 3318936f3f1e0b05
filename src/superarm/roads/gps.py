"""GPS traces as routes: which edges were driven, when, and what one or several of them took.

=================  ====================================================================
``p``, ``k``       points of a trace; edges of the route that was driven
``noise``          σ, standard deviation of a point's easting and of its northing, metres
part               a straight part of an edge's course
stretch            points that the library matches in one go; between stretches a way is guessed
boundary           where one edge of the route and the junction behind it end
section            edges one after another, of which one energy is known
=================  ====================================================================

Leuven.MapMatching (extra ``gps``) finds the likeliest parts by a hidden Markov model with states
between points: "HMM with non-emitting states for map matching" (Meert and Verbeke 2018). It knows
streets by the junctions at their ends, and any turn. Here it walks on a map of ours, where labels name
one part of one edge and only what may be driven next follows: the route is always legal. Points are
thinned to 4σ before, or noise would drive to and fro; "Hidden Markov map matching through noise and
sparseness" (Newson and Krumm 2009) thins to 2σ.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.errors import InputError, require_extra
from superarm.core.inputs import as_features, as_number, as_vector
from superarm.roads.networks.geography import COMPLEX, mercator, pairs
from superarm.roads.networks.line_graph import LineGraph
from superarm.roads.networks.road import RoadNetwork

_TOLERANCE = 1.0  # metres that a course may be off when points of it are left out
_SAMPLE = (
    25.0  # metres between places on a road by which roads near a point are looked up
)
_LONGEST = 500.0  # metres between points, above which the way between them is guessed
_NEAR, _REACH = (
    10.0,
    0.5,
)  # how far from its road a point may be: so many σ, and such a share of a gap
_APART, _ENDS = (
    4.0,
    2.0,
)  # σ between points that are matched; σ driven of an edge at an end to count
_WIDTH, _UNSEEN = (
    10,
    0.95,
)  # ways that are kept for each point; factor for each part without a point
_LEAST_NOISE, _MOST_NOISE = 5.0, 50.0  # metres: between these σ is estimated
_LOOKED_UP = 8  # places on roads among which the nearest road is sought
_PAUSE = 120.0  # seconds without a point, above which a trace is split
_FASTEST, _FAR = (
    70.0,
    200.0,
)  # m/s and metres between points, above which a trace is split
MOST_POINTS = 100_000
"""Of one trace: a day, a point a second."""
_FITS = 1.0  # metres by which longitudes and latitudes may disagree with x and y


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedTrace:
    """The route behind a trace."""

    edges: (
        Ints  # numbers of the line graph, each a legal turn from the one before, (k,)
    )
    enter: Floats  # seconds on the trace's clock, (k,)
    leave: Floats  # (k,)
    whole: Bools  # driven from end to end, as far as points tell: never the first and last edge, (k,)
    guessed: Bools  # no points tell about it: on the shortest way between those that do, (k,)
    median: float  # metres of points from the route
    worst: float
    missed: int  # points that were left out


class TraceSection(NamedTuple):
    """Edges one after another, driven from end to end, and what they took together."""

    edges: tuple[int, ...]
    energy: float  # Wh
    seconds: float


def match_trace(
    graph: LineGraph,
    places: Any,
    times: Any = None,
    *,
    noise: float | None = None,
    metres: bool | None = None,
) -> MatchedTrace:
    """Match a GPS trace to the route that was driven.

    Points farther than 10 ``noise`` from any road are dropped. Where points are too far apart to
    determine the route, it takes the shortest way, and marks it as ``guessed``.

    Args:
        graph: The roads.
        places: Longitudes and latitudes in degrees, (p, 2).
        times: Rising, in seconds; by default one second per point.
        noise: The standard deviation of a point in metres. By default it is estimated from the
            distances of points to the nearest roads, and at least 5. With too small a value, matching
            takes several times as long and finds wrong routes.
        metres: Whether ``places`` are x and y of the network in metres; by default if the network has
            no geographic reference.
    """
    points = as_features(places, "places", columns=2)
    if len(points) > MOST_POINTS:
        raise InputError(
            f"a trace may have at most {MOST_POINTS:,} points, got {len(points):,}; split it into trips"
        )
    clock = (
        np.arange(len(points)) * 1.0
        if times is None
        else _rising(times, "times", len(points))
    )
    if not (graph.network.lon_lat is None if metres is None else metres):
        points = _in_metres(graph.network, points)
    streets = _streets_of(graph)
    sigma = (
        _noise_of(streets, points)
        if noise is None
        else as_number(noise, "noise", 0.1, 100.0)
    )
    on_road = np.flatnonzero(
        streets.tree.query(points)[0] <= _NEAR * sigma + 0.5 * _SAMPLE
    )
    route, guessed, seen = _route(
        graph, streets, points, _thinned(points, on_road, sigma), sigma
    )
    if not route:
        told = f"no point of the trace is within {_NEAR * sigma:g} m of a road of {graph.network.name}"
        raise InputError(
            f"{told}; is it the right network, and are longitude and latitude swapped?"
        )
    used = on_road[(on_road >= seen[0][0]) & (on_road <= seen[-1][0])]
    along, away = _along(streets, route, seen, points, used)
    bounds = np.concatenate([[0.0], np.cumsum(streets.metres[route])])
    # A car that is just over a boundary when a trace begins or ends may not have been there at all.
    first = min(np.searchsorted(bounds[1:] - _ENDS * sigma, along[0]), len(route) - 1)
    last = max(np.searchsorted(bounds[:-1] + _ENDS * sigma, along[-1]), first + 1)
    # A junction belongs to the edge before it, as in SUMO's drives; courses meet in its middle.
    bounds[1:-1] += 0.5 * graph.turn_length[graph.turn_numbers(route)]
    bounds = np.maximum.accumulate(bounds)
    crossed = np.interp(bounds[first : last + 1], along, clock[used])
    unsure = np.array(guessed[first:last])
    inside = np.arange(first, last)
    return MatchedTrace(
        edges=np.array(route[first:last]),
        enter=crossed[:-1],
        leave=crossed[1:],
        whole=~unsure & (inside > first) & (inside < last - 1),
        guessed=unsure,
        median=float(np.median(away)),
        worst=float(away.max()),
        missed=len(points) - len(used),
    )


def energies_along(
    matched: MatchedTrace, times: Any, cumulative_wh: Any, *, doubt: float = 0.1
) -> tuple[TraceSection, ...]:
    """What whole edges took by a counter of energy that was read at ``times`` of the trace's clock.

    The counter is interpolated at boundaries. At t between readings at a and b this is wrong by no more
    than (t − a)(b − t)/(b − a) seconds times the range of power; a section takes in edges until the
    seconds of its two ends are at most the share ``doubt`` of its own. Edges that remain join the
    section before them, or are left out. A reading that repeats the one before tells nothing.
    """
    share, clock = as_number(doubt, "doubt", 0.0, 1.0), _rising(times, "times")
    counter = as_vector(cumulative_wh, "cumulative_wh", len(clock))
    told = np.diff(counter, prepend=np.nan) != 0.0
    clock, counter = clock[told], counter[told]
    if len(clock) < 2:
        return ()
    bounds = np.append(matched.enter, matched.leave[-1])
    after = np.clip(np.searchsorted(clock, bounds), 1, len(clock) - 1)
    since, until = bounds - clock[after - 1], clock[after] - bounds
    slack = np.where(
        (since >= 0.0) & (until >= 0.0), since * until / (since + until), np.inf
    )
    energy = np.interp(bounds, clock, counter)

    def fine(begin: int, end: int) -> bool:
        return bool(slack[begin] + slack[end] <= share * (bounds[end] - bounds[begin]))

    found: list[tuple[int, int]] = []
    changes = np.flatnonzero(np.diff(matched.whole, prepend=False, append=False))
    for start, stop in changes.reshape(-1, 2).tolist():  # a row of whole edges
        begin, row = start, len(found)
        for end in range(start + 1, stop + 1):
            if fine(begin, end):
                found.append((begin, end))
                begin = end
        if begin < stop and len(found) > row and fine(found[-1][0], stop):
            found[-1] = (found[-1][0], stop)
    edges, seconds = matched.edges.tolist(), bounds
    return tuple(
        TraceSection(
            tuple(edges[i:j]),
            float(energy[j] - energy[i]),
            float(seconds[j] - seconds[i]),
        )
        for i, j in found
    )


def pieces_of(graph: LineGraph, places: Any, times: Any) -> list[slice]:
    """The stretches of a trace between jumps: of its clock, or of its places.

    A clock jumps where the time between two points is above two minutes and ten times the usual: what
    happened meanwhile is not known, and a counter must not be interpolated there. Places jump where the
    vehicle would have been faster than 250 km/h over more than 200 m.
    """
    clock = _rising(times, "times")
    points = as_features(places, "places", columns=2)
    if graph.network.lon_lat is not None:
        points = _in_metres(graph.network, points)
    seconds = np.diff(clock)
    if not len(seconds):
        return [slice(0, len(clock))]
    metres = np.hypot(*np.diff(points, axis=0).T)
    late = seconds > np.maximum(_PAUSE, 10.0 * np.median(seconds))
    far = (metres > _FAR) & (metres > _FASTEST * seconds)
    ends = [0, *(np.flatnonzero(late | far) + 1).tolist(), len(clock)]
    return [slice(begin, end) for begin, end in pairwise(ends)]


def _noise_of(streets: _Streets, points: Floats) -> float:
    """σ of a trace, metres: the median distance from one straight road is 0.674 σ.

    Beside several roads the nearest is nearer, so that the estimate is rather too small.
    """
    nearest = streets.sampled[
        streets.tree.query(points, k=min(_LOOKED_UP, len(streets.sampled)))[1]
    ]
    rows = nearest.reshape(len(points), -1)  # parts near each point, (p, k)
    away = _projected(points[:, None, :], streets.begin[rows], streets.end[rows])[
        1
    ]  # (k, p)
    return float(
        np.clip(np.median(away.min(axis=0)) / 0.674, _LEAST_NOISE, _MOST_NOISE)
    )


def _rising(values: Any, name: str, length: int | None = None) -> Floats:
    vector = as_vector(values, name, length)
    if len(back := np.flatnonzero(np.diff(vector) <= 0.0)):
        before, after = vector[back[0] : back[0] + 2]
        raise InputError(
            f"{name} must rise, but {after:g} follows {before:g}; sort the log by time"
        )
    return vector


def _in_metres(network: RoadNetwork, lon_lat: Floats) -> Floats:
    """Longitudes and latitudes on the network's own map, where its junctions say how they lie.

    Both this map and Mercator's are conformal: one is an analytic function of the other. A cubic
    is right to a centimetre over 100 km of UTM.
    """
    known = mercator(network.on_earth("give places in metres"))
    wanted = network.junctions[:, :2] @ COMPLEX
    middle, powers = known.mean(), np.arange(min(4, len(known)))
    scale = np.abs(known - middle).max() or 1.0
    terms = ((known - middle) / scale)[:, None] ** powers
    factors = np.linalg.lstsq(terms, wanted)[0]
    if (off := np.abs(terms @ factors - wanted).max()) > _FITS:
        told = f"{network.name}: longitudes and latitudes are up to {off:.1f} m off its x and y"
        raise InputError(f"{told}; give places in metres")
    return pairs(((mercator(lon_lat) - middle) / scale)[:, None] ** powers @ factors)


def _thinned(points: Floats, rows: Ints, sigma: float) -> Ints:
    """Of these points, those at least 4σ from the one kept before, and the last."""
    kept: list[int] = []
    for row in rows.tolist():
        if (
            not kept
            or row == rows[-1]
            or np.hypot(*(points[row] - points[kept[-1]])) >= _APART * sigma
        ):
            kept.append(row)
    return np.array(kept, dtype=np.intp)


def _along(
    streets: _Streets,
    route: list[int],
    seen: list[tuple[int, int]],
    points: Floats,
    used: Ints,
) -> tuple[Floats, Floats]:
    """Metres along the route and away from it of the points used, each between the matched around it.

    Along it cars never go back: least squares among what rises, as noise makes standing cars move.
    """
    from scipy.optimize import isotonic_regression

    parts = np.concatenate(
        [np.arange(*streets.first[edge : edge + 2]) for edge in route]
    )
    starts = np.concatenate(
        [[0], np.cumsum(np.diff(streets.first)[route])]
    )  # of edges among the parts
    before = np.cumsum(streets.length[parts]) - streets.length[parts]
    matched, places = np.array(seen).T
    after = np.searchsorted(matched, used)
    since = np.where(matched[after] == used, after, after - 1)
    along, away = np.empty((2, len(used)))
    for row, (point, low, high) in enumerate(
        zip(used, places[since], places[after], strict=True)
    ):
        near = parts[starts[low] : starts[high + 1]]
        share, off = _projected(points[point], streets.begin[near], streets.end[near])
        best = int(off.argmin())
        away[row] = off[best]
        along[row] = (
            before[starts[low] + best] + share[best] * streets.length[near[best]]
        )
    return isotonic_regression(along).x, away


# --- the library ---------------------------------------------------------------------------


def _library(part: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # about escapes in its docstrings, where it is not compiled yet
        return require_extra(f"leuvenmapmatching.{part}", "gps")


class _Streets:
    """A line graph as the library asks for maps: parts of edges, and which may follow which.

    A junction's label is its number and other points have one of their own, so that two labels name
    one part of one edge, of two edges between the same junctions too.
    """

    def __init__(self, graph: LineGraph) -> None:
        from scipy.spatial import cKDTree

        geometry = _library("util.dist_euclidean")
        self.distance = geometry.distance
        self.distance_point_to_segment = geometry.distance_point_to_segment
        self.distance_segment_to_segment = geometry.distance_segment_to_segment
        labels: list[tuple[int, int]] = []
        network, courses, first, taken = graph.network, [], [0], set()
        free = len(network.junction_ids)
        for edge in graph.edges:
            ends = int(network.tail[edge]), int(network.head[edge])
            course = network.junctions[ends, :2]
            if network.shapes is not None:
                course = _simplified(network.shapes[edge])
            if len(course) == 2 and ends in taken:
                course = np.insert(course, 1, course.mean(axis=0), axis=0)
            taken.add(ends)
            labels += pairwise(
                [ends[0], *range(free, free := free + len(course) - 2), ends[1]]
            )
            courses.append(course)
            first.append(len(labels))
        self.first = np.array(
            first
        )  # edge i has the parts first[i] … first[i + 1] − 1, (n + 1,)
        self.edge = np.repeat(np.arange(len(graph)), np.diff(first))  # of each part
        self.begin = np.concatenate([course[:-1] for course in courses])
        self.end = np.concatenate([course[1:] for course in courses])
        self.length = np.hypot(*(self.end - self.begin).T)
        self.metres = np.add.reduceat(self.length, first[:-1])  # of each edge's course
        self.number = {label: part for part, label in enumerate(labels)}
        tails, heads = (map(tuple, each.tolist()) for each in (self.begin, self.end))
        self._parts = [
            (i, p, j, q) for (i, j), p, q in zip(labels, tails, heads, strict=True)
        ]
        self._next = [[part + 1] for part in range(len(labels))]
        for last in self.first[1:] - 1:
            self._next[last] = []
        for before, after in graph.turns.tolist():
            self._next[first[before + 1] - 1].append(first[after])
        counts = np.ceil(self.length / _SAMPLE).astype(int) + 1
        self.sampled = rows = np.repeat(np.arange(len(labels)), counts)
        shares = np.concatenate([np.linspace(0.0, 1.0, count) for count in counts])[
            :, None
        ]
        self.tree = cKDTree(self.begin[rows] + shares * (self.end - self.begin)[rows])

    def edges_nbrto(self, label: tuple[int, int]) -> list[Any]:
        """The parts that may follow."""
        return [self._parts[part] for part in self._next[self.number[label]]]

    def edges_closeto(self, place: tuple[float, float], max_dist: float) -> list[Any]:
        """Parts near a place: distance, the part, its nearest point and how far along that is."""
        near = np.unique(
            self.sampled[self.tree.query_ball_point(place, max_dist + 0.5 * _SAMPLE)]
        )
        share, away = _projected(np.array(place), self.begin[near], self.end[near])
        nearest = self.begin[near] + share[:, None] * (self.end - self.begin)[near]
        told = zip(
            away.tolist(), near.tolist(), nearest.tolist(), share.tolist(), strict=True
        )
        return [
            (off, *self._parts[k], tuple(at), far)
            for off, k, at, far in told
            if off <= max_dist
        ]


@lru_cache(maxsize=2)
def _streets_of(graph: LineGraph) -> _Streets:
    return _Streets(graph)


def _projected(point: Floats, begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """The share of each part at which it is nearest to a point, and how far away that is."""
    step, seen = end - begin, point - begin
    square = (step**2).sum(axis=-1)
    share = np.clip(
        (seen * step).sum(axis=-1) / np.where(square > 0.0, square, 1.0), 0.0, 1.0
    )
    return share, np.hypot(*(seen - share[..., None] * step).T)


def _simplified(course: Floats) -> Floats:
    """Without points that are hardly off the line between others (Douglas and Peucker 1973)."""
    kept, todo = {0, len(course) - 1}, [(0, len(course) - 1)]
    while todo:
        begin, end = todo.pop()
        away = _projected(course[begin : end + 1], course[begin], course[end])[1]
        if away.max() > _TOLERANCE:
            kept.add(worst := begin + int(away.argmax()))
            todo += [(begin, worst), (worst, end)]
    return course[sorted(kept)]


def _route(
    graph: LineGraph, streets: _Streets, points: Floats, thinned: Ints, sigma: float
) -> tuple[list[int], list[bool], list[tuple[int, int]]]:
    """Edges, whether each is guessed, and of every point matched its place among the edges."""
    route: list[int] = []
    guessed: list[bool] = []
    seen: list[tuple[int, int]] = []
    gaps = np.hypot(*np.diff(points[thinned], axis=0).T)
    todo = np.split(thinned, np.flatnonzero(gaps > _LONGEST) + 1)[::-1]
    while todo:
        if len(rows := todo.pop()) == 0:
            continue
        states, count = _stretch(streets, points[rows], sigma)
        todo.append(rows[count:])
        edges = [
            int(streets.edge[streets.number[each.edge_m.l1, each.edge_m.l2]])
            for each in states
        ]
        if route and edges and route[-1] != edges[0]:
            way = _shortest(graph, route[-1], edges[0])[1:]
            route, guessed = route + way, [*guessed[:-1], True, *[True] * len(way)]
        for state, edge in zip(states, edges, strict=True):
            if not route or route[-1] != edge:
                route.append(edge)
                guessed.append(False)
            if state.is_emitting():
                seen.append((int(rows[state.obs]), len(route) - 1))
    return route, guessed, seen


def _stretch(streets: _Streets, points: Floats, sigma: float) -> tuple[list[Any], int]:
    """The library's likeliest states from the first point on, and how many points it came along."""
    matcher_of = _library("matcher.distance").DistanceMatcher
    gap, near = np.hypot(*np.diff(points, axis=0).T).max(initial=0.0), _NEAR * sigma
    matcher = matcher_of(
        streets, obs_noise=2.0 * sigma, obs_noise_ne=4.0 * sigma, dist_noise=4.0 * sigma,
        max_dist_init=near, max_dist=near + _REACH * gap, max_lattice_width=_WIDTH,
        non_emitting_length_factor=_UNSEEN,
    )  # fmt: skip
    found, last = matcher.match([tuple(point) for point in points.tolist()])
    if not found:
        return [], 1
    # The library looks for the last state in a set, whose order is another in every process.
    ends = [state for state in matcher.lattice[last].values(0) if not state.stop]
    states = [max(ends, key=lambda state: state.logprob)]
    while states[-1].prev:
        states.append(next(iter(states[-1].prev)))
    return states[::-1], last + 1


def _shortest(graph: LineGraph, start: int, goal: int) -> list[int]:
    """The edges of the shortest way, with both ends."""
    from scipy.sparse.csgraph import dijkstra

    turns = graph.successors.astype(np.float64)
    turns.data = graph.length[turns.indices]
    came, way = (
        dijkstra(turns, indices=np.array([start]), return_predecessors=True)[1],
        [goal],
    )
    while way[-1] != start:
        way.append(int(came[0, way[-1]]))
    return way[::-1]
