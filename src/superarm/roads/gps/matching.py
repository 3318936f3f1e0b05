"""The route behind a GPS trace.

=================  ====================================================================
``p``, ``k``       points of a trace; edges of the route that was driven
``noise``          σ, standard deviation of a point's easting and of its northing, metres
part               a straight part of an edge's course
stretch            points that the library matches in one go; between stretches a way is guessed
boundary           where one edge of the route and the junction behind it end
=================  ====================================================================

Leuven.MapMatching (extra ``gps``) finds the likeliest parts by a hidden Markov model with states
between points: "HMM with non-emitting states for map matching" (Meert and Verbeke 2018). Points are
thinned to 4σ before, or noise would drive to and fro; "Hidden Markov map matching through noise and
sparseness" (Newson and Krumm 2009) thins to 2σ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.inputs import as_features, as_number
from superarm.core.shortest_paths import shortest_paths
from superarm.roads.networks.line_graph import LineGraph

from .street_map import SAMPLE, StreetMap, load_library, project, street_map
from .traces import as_rising, norms, to_metres

# Metres between points, above which the way between them is guessed.
_LONGEST = 500.0
# How far from its road a point may be: so many σ, and such a share of a gap.
_NEAR = 10.0
_REACH = 0.5
# σ between points that are matched.
_APART = 4.0
# σ driven of an edge at an end of the trace for the edge to count.
_ENDS = 2.0
# Ways that are tracked for each point.
_WIDTH = 10
# Factor for each part without a point.
_UNSEEN = 0.95
# Metres: between these σ is estimated.
_LEAST_NOISE = 5.0
_MOST_NOISE = 50.0
# The median distance from a straight line, in σ.
_MEDIAN_SIGMAS = 0.674
# Places on roads among which the nearest road is sought.
_LOOKED_UP = 8
MOST_POINTS = 100_000
"""Of one trace: a day, a point a second."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedTrace:
    """The route behind a trace.

    Args:
        edges: Numbers of the line graph, each a legal turn from the one before, (k,).
        enter: When each edge was entered, seconds on the trace's clock, (k,).
        leave: When each edge and the junction behind it were left, (k,).
        whole: Whether an edge was driven from end to end, as far as points show; never the first and
            last edge, (k,).
        guessed: Whether no points are on an edge: it is on the shortest way between those that have
            some, (k,).
        median: Median distance of points from the route, metres.
        worst: Largest distance of points from the route, metres.
        missed: Number of points that were left out.
    """

    edges: Ints
    enter: Floats
    leave: Floats
    whole: Bools
    guessed: Bools
    median: float
    worst: float
    missed: int


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
    clock = _as_clock(times, len(points))
    if metres is None:
        metres = graph.network.lon_lat is None
    if not metres:
        points = to_metres(graph.network, points)
    streets = street_map(graph)
    if noise is None:
        noise = _estimate_noise(streets, points)
    sigma = as_number(noise, "noise", 0.1, 100.0)

    nearest_sample, _ = streets.tree.query(points)
    is_near = nearest_sample <= _NEAR * sigma + 0.5 * SAMPLE
    on_road = np.flatnonzero(is_near)
    thinned = _thin(points, on_road, sigma)
    route = _find_route(graph, streets, points, thinned, sigma)
    if not route.edges:
        raise InputError(
            f"no point of the trace is within {_NEAR * sigma:g} m of a road of {graph.network.name}; "
            "is it the right network, and are longitude and latitude swapped?"
        )
    first_seen = route.matches[0].point
    last_seen = route.matches[-1].point
    is_used = (on_road >= first_seen) & (on_road <= last_seen)
    used = on_road[is_used]
    projected = _project_on_route(streets, route, points, used)

    lengths = streets.metres[route.edges]
    bounds = np.append(0.0, np.cumsum(lengths))
    driven = _driven_edges(bounds, projected.along, sigma)
    # A junction belongs to the edge before it, as in SUMO's drives; courses meet in its middle.
    turns = graph.turn_numbers(route.edges)
    bounds[1:-1] += 0.5 * graph.turn_length[turns]
    bounds = np.maximum.accumulate(bounds)
    driven_bounds = bounds[driven.start : driven.stop + 1]
    crossed = np.interp(driven_bounds, projected.along, clock[used])
    guessed = np.array(route.guessed[driven])
    is_inner = np.ones(len(guessed), dtype=np.bool_)
    is_inner[[0, -1]] = False
    return MatchedTrace(
        edges=np.array(route.edges[driven]),
        enter=crossed[:-1],
        leave=crossed[1:],
        whole=~guessed & is_inner,
        guessed=guessed,
        median=float(np.median(projected.distance)),
        worst=float(projected.distance.max()),
        missed=len(points) - len(used),
    )


def _driven_edges(bounds: Floats, along: Floats, sigma: float) -> slice:
    """Return the edges of a route that were driven.

    A car that is just over a boundary when a trace begins or ends may not have been there at all.

    Args:
        bounds: Metres along the route where its edges begin, and its end, (k + 1,).
        along: Metres along the route of each point, (u,).
        sigma: The noise of a point, metres.
    """
    margin = _ENDS * sigma
    begins = bounds[:-1]
    ends = bounds[1:]
    last_edge = len(ends) - 1
    first = np.searchsorted(ends - margin, along[0])
    first = min(int(first), last_edge)
    stop = np.searchsorted(begins + margin, along[-1])
    stop = max(int(stop), first + 1)
    return slice(first, stop)


def _as_clock(times: Any, count: int) -> Floats:
    if times is None:
        return np.arange(count, dtype=np.float64)
    return as_rising(times, "times", count)


def _estimate_noise(streets: StreetMap, points: Floats) -> float:
    """Estimate σ of a trace, metres: the median distance from one straight road is 0.674 σ.

    Beside several roads the nearest is nearer, so that the estimate is rather too small.
    """
    count = min(_LOOKED_UP, len(streets.sampled))
    _, samples = streets.tree.query(points, k=count)
    sampled = streets.sampled[samples]
    parts = sampled.reshape(len(points), -1)  # (p, k)
    begin = streets.begin[parts]
    end = streets.end[parts]
    projection = project(points[:, None, :], begin, end)
    nearest = projection.distance.min(axis=1)  # (p,)
    sigma = np.median(nearest) / _MEDIAN_SIGMAS
    clipped = np.clip(sigma, _LEAST_NOISE, _MOST_NOISE)
    return float(clipped)


def _thin(points: Floats, rows: Ints, sigma: float) -> Ints:
    """Return rows of points at least 4σ from the one before, and the last row."""
    least = _APART * sigma
    thinned: list[int] = []
    for row in rows.tolist():
        is_end = not thinned or row == rows[-1]
        if not is_end:
            last = thinned[-1]
            distance = norms(points[row] - points[last])
            if distance < least:
                continue
        thinned.append(row)
    return np.array(thinned, dtype=np.intp)


class _PointOnRoute(NamedTuple):
    point: int  # its row in the trace
    place: int  # of its edge in the route


class _Route(NamedTuple):
    edges: list[int]
    guessed: list[bool]  # of each edge
    matches: list[_PointOnRoute]  # of every point that was matched

    def add_edge(self, edge: int) -> None:
        """Add an edge, unless the route ends with it."""
        is_last = self.edges[-1:] == [edge]
        if not is_last:
            self.edges.append(edge)
            self.guessed.append(False)

    def add_match(self, point: int) -> None:
        """Add a point that was matched to the last edge."""
        place = len(self.edges) - 1
        self.matches.append(_PointOnRoute(point, place))

    def add_guess(self, way: list[int]) -> None:
        """Add the edges of a way from the last edge, which then is guessed too."""
        self.guessed[-1] = True
        self.edges.extend(way)
        self.guessed.extend(True for _ in way)


def _find_route(
    graph: LineGraph,
    streets: StreetMap,
    points: Floats,
    thinned: Ints,
    sigma: float,
) -> _Route:
    route = _Route([], [], [])
    steps = np.diff(points[thinned], axis=0)
    gaps = norms(steps)
    breaks = np.flatnonzero(gaps > _LONGEST) + 1
    stretches = np.split(thinned, breaks)
    stretches.reverse()  # a stack, the first stretch on top
    while stretches:
        rows = stretches.pop()
        if len(rows) == 0:
            continue
        states, matched = _match_stretch(streets, points[rows], sigma)
        stretches.append(rows[matched:])
        edges = [_edge_of_state(streets, state) for state in states]
        if route.edges and edges:
            _guess_way(route, graph, edges[0])
        for state, edge in zip(states, edges, strict=True):
            route.add_edge(edge)
            if state.is_emitting():
                point = int(rows[state.obs])
                route.add_match(point)
    return route


def _guess_way(route: _Route, graph: LineGraph, goal: int) -> None:
    """Lead the route on to an edge by the shortest way, unless it ends there."""
    last_edge = route.edges[-1]
    if last_edge != goal:
        way = _shortest_way(graph, last_edge, goal)
        route.add_guess(way[1:])


def _edge_of_state(streets: StreetMap, state: Any) -> int:
    part = state.edge_m
    return streets.edge_of((part.l1, part.l2))


def _match_stretch(
    streets: StreetMap,
    points: Floats,
    sigma: float,
) -> tuple[list[Any], int]:
    """Return the library's likeliest states from the first point on, and how many points they cover."""
    gap = norms(np.diff(points, axis=0)).max(initial=0.0)
    near = _NEAR * sigma
    library = load_library("matcher.distance")
    matcher = library.DistanceMatcher(
        streets,
        obs_noise=2.0 * sigma,
        obs_noise_ne=4.0 * sigma,
        dist_noise=4.0 * sigma,
        max_dist_init=near,
        max_dist=near + _REACH * gap,
        max_lattice_width=_WIDTH,
        non_emitting_length_factor=_UNSEEN,
    )
    path, last = matcher.match([tuple(point) for point in points.tolist()])
    if not path:
        return [], 1
    # The library looks for the last state in a set, whose order differs between processes.
    last_column = matcher.lattice[last].values(0)
    ends = [state for state in last_column if not state.stop]
    state = max(ends, key=lambda state: state.logprob)
    states = [state]
    while state.prev:
        state = next(iter(state.prev))
        states.append(state)
    states.reverse()
    return states, last + 1


def _shortest_way(graph: LineGraph, start: int, goal: int) -> list[int]:
    """Return the edges of the shortest way, with both ends."""
    turns = graph.successors.astype(np.float64)
    turns.data = graph.length[turns.indices]
    paths = shortest_paths(turns, start)
    way = paths.route_to(goal)
    if way is None:
        raise InfeasibleError(
            f"the trace has a gap between edges {graph.ids[start]} and {graph.ids[goal]}, which no "
            "route joins; match the points before and after the gap as two trips"
        )
    return way


class _PointsAlong(NamedTuple):
    along: Floats  # metres along the route, (u,)
    distance: Floats  # metres from it, (u,)


def _project_on_route(
    streets: StreetMap,
    route: _Route,
    points: Floats,
    used: Ints,
) -> _PointsAlong:
    """Project the points used on the route, each between the matched points around it.

    Along it cars never go back: least squares among what rises, as noise makes standing cars move.
    """
    from scipy.optimize import isotonic_regression

    parts_of_edges = [streets.parts_of(edge) for edge in route.edges]
    counts = [len(parts) for parts in parts_of_edges]
    starts = np.append(0, np.cumsum(counts))  # of edges among the parts
    parts = np.concatenate(parts_of_edges)
    lengths = streets.length[parts]
    metres_before = np.cumsum(lengths) - lengths

    first_places, last_places = _places_around(route, used)
    begins = starts[first_places]
    ends = starts[last_places + 1]
    along = np.empty(len(used))
    distance = np.empty(len(used))
    for row, point in enumerate(points[used]):
        begin = begins[row]
        near = parts[begin : ends[row]]
        part_begins = streets.begin[near]
        part_ends = streets.end[near]
        shares, distances = project(point, part_begins, part_ends)
        nearest = int(distances.argmin())
        best = begin + nearest  # among the parts
        metres = shares[nearest] * lengths[best]
        along[row] = metres_before[best] + metres
        distance[row] = distances[nearest]
    return _PointsAlong(isotonic_regression(along).x, distance)


def _places_around(route: _Route, used: Ints) -> tuple[Ints, Ints]:
    """Return the places in the route of the points matched before and after each point used."""
    matched, places = np.array(route.matches).T
    after = np.searchsorted(matched, used)
    is_matched = matched[after] == used
    before = np.where(is_matched, after, after - 1)
    return places[before], places[after]
