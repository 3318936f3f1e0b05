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
from superarm.core.errors import InputError
from superarm.core.inputs import as_features, as_number
from superarm.roads.networks.line_graph import LineGraph

from .route_search import NEAR, Route, find_route, thin
from .street_map import SAMPLE, StreetMap, project, street_map
from .traces import as_rising, to_metres

# σ driven of an edge at an end of the trace for the edge to count.
_ENDS = 2.0
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
        complete: Whether an edge was driven from end to end, as far as points show; never the first and
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
    complete: Bools
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
    is_near = nearest_sample <= NEAR * sigma + 0.5 * SAMPLE
    on_road = np.flatnonzero(is_near)
    thinned = thin(points, on_road, sigma)
    route = find_route(graph, streets, points, thinned, sigma)
    if not route.edges:
        raise InputError(
            f"no point of the trace is within {NEAR * sigma:g} m of a road of {graph.network.name}; "
            "is it the right network, and are longitude and latitude swapped?"
        )
    first_seen = route.matches[0].point
    last_seen = route.matches[-1].point
    is_used = (on_road >= first_seen) & (on_road <= last_seen)
    used = on_road[is_used]
    projected = _project_on_route(streets, route, points, used)
    driven, crossed = _time_boundaries(
        graph, route, streets.metres[route.edges], projected.along, clock[used], sigma
    )
    guessed = np.array(route.guessed[driven])
    is_inner = np.ones(len(guessed), dtype=np.bool_)
    is_inner[[0, -1]] = False
    return MatchedTrace(
        edges=np.array(route.edges[driven]),
        enter=crossed[:-1],
        leave=crossed[1:],
        complete=~guessed & is_inner,
        guessed=guessed,
        median=float(np.median(projected.distance)),
        worst=float(projected.distance.max()),
        missed=len(points) - len(used),
    )


def _time_boundaries(
    graph: LineGraph,
    route: Route,
    lengths: Floats,
    along: Floats,
    clock: Floats,
    sigma: float,
) -> tuple[slice, Floats]:
    """Return the edges that were driven, and when their boundaries were crossed.

    Args:
        graph: The roads.
        route: The route.
        lengths: Metres of each of its edges, (k,).
        along: Metres along the route of each point, (u,).
        clock: The time of each point, seconds, (u,).
        sigma: The noise of a point, metres.
    """
    bounds = np.append(0.0, np.cumsum(lengths))
    driven = _driven_edges(bounds, along, sigma)
    # A junction belongs to the edge before it, as in SUMO's drives; courses meet in its middle.
    turns = graph.turn_numbers(route.edges)
    bounds[1:-1] += 0.5 * graph.turn_length[turns]
    bounds = np.maximum.accumulate(bounds)
    driven_bounds = bounds[driven.start : driven.stop + 1]
    crossed = np.interp(driven_bounds, along, clock)
    return driven, crossed


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


class _PointsAlong(NamedTuple):
    along: Floats  # metres along the route, (u,)
    distance: Floats  # metres from it, (u,)


def _project_on_route(
    streets: StreetMap,
    route: Route,
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


def _places_around(route: Route, used: Ints) -> tuple[Ints, Ints]:
    """Return the places in the route of the points matched before and after each point used."""
    matched, places = np.array(route.matches).T
    after = np.searchsorted(matched, used)
    is_matched = matched[after] == used
    # A point that was matched is itself the one before and after.
    before = after - 1
    before = np.where(is_matched, after, before)
    return places[before], places[after]
