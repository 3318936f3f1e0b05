"""The likeliest route behind the points of a trace; :mod:`.matching` explains the words."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InfeasibleError
from superarm.core.shortest_paths import shortest_paths
from superarm.roads.networks.line_graph import LineGraph

from .street_map import StreetMap, load_library
from .traces import norms

NEAR = 10.0
"""How far from its road a point may be, in σ."""
# The share of a gap that comes on top.
_REACH = 0.5
# Metres between points, above which the way between them is guessed.
_LONGEST = 500.0
# σ between points that are matched.
_APART = 4.0
# Ways that are tracked for each point.
_WIDTH = 10
# Factor for each part without a point.
_UNSEEN = 0.95


def thin(points: Floats, rows: Ints, sigma: float) -> Ints:
    """Return rows of points at least 4σ from the one before, and the last row.

    Args:
        points: x and y, metres, (p, 2).
        rows: Rows of the points to choose from, rising.
        sigma: The noise of a point, metres.
    """
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


class PointOnRoute(NamedTuple):
    """A point that was matched."""

    point: int  # its row in the trace
    place: int  # of its edge in the route


class Route(NamedTuple):
    """The edges behind a trace, in driving order."""

    edges: list[int]
    guessed: list[bool]  # of each edge
    matches: list[PointOnRoute]  # of every point that was matched

    def add_edge(self, edge: int) -> None:
        """Add an edge, unless the route ends with it."""
        is_last = self.edges[-1:] == [edge]
        if not is_last:
            self.edges.append(edge)
            self.guessed.append(False)

    def add_match(self, point: int) -> None:
        """Add a point that was matched to the last edge."""
        place = len(self.edges) - 1
        self.matches.append(PointOnRoute(point, place))

    def add_guess(self, way: list[int]) -> None:
        """Add the edges of a way from the last edge, which then is guessed too."""
        self.guessed[-1] = True
        self.edges.extend(way)
        self.guessed.extend(True for _ in way)


def find_route(
    graph: LineGraph,
    streets: StreetMap,
    points: Floats,
    thinned: Ints,
    sigma: float,
) -> Route:
    """Return the likeliest route; between stretches the shortest way is guessed.

    Args:
        graph: The roads.
        streets: Their map.
        points: x and y, metres, (p, 2).
        thinned: Rows of the points that are matched, rising.
        sigma: The noise of a point, metres.
    """
    route = Route(edges=[], guessed=[], matches=[])
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


def _guess_way(route: Route, graph: LineGraph, goal: int) -> None:
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
    near = NEAR * sigma
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
