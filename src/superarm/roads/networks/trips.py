"""A trip on a network that nobody has chosen one for: two edges between which learning pays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import InfeasibleError
from superarm.core.shortest_paths import shortest_costs
from superarm.core.streams import stream

from .line_graph import LineGraph

# Starts that are tried, and goals for each; fewer in a network of more than _LARGE edges.
_STARTS = 8
_GOALS = 4
_FEW_STARTS = 3
_FEW_GOALS = 2
_LARGE = 50_000
# A trip takes between these shares of the longest trip's time.
_NEAR = 0.6
_FAR = 0.8
# An edge is an alternative if the way over it takes at most so many times the fastest.
_DETOUR = 1.15


class _Trip(NamedTuple):
    score: float  # alternative edges for each second of the trip
    start: int
    goal: int


def suggest_trip(graph: LineGraph, seed: int = 0) -> tuple[str, str]:
    """Suggest the ids of a start and a goal that are far apart, with many ways between.

    Far apart: 60 to 80 % of the longest fastest trip. A few pairs are drawn; the one with the most
    edges on ways at most 15 % slower than the fastest wins, in proportion to the length of the trip.

    Args:
        graph: The roads.
        seed: The same graph and seed give the same pair.
    """
    from scipy.sparse import csr_array

    n = len(graph)
    if n < 2 or len(graph.turns) == 0:
        raise InfeasibleError(
            f"{graph.network.name} has no two edges with a route between them"
        )
    rng = stream(seed, "trip", 0)
    first, second = graph.turns.T
    time = graph.travel_time[second]
    # Paths cost the seconds from an edge's end to another edge's end.
    forward = csr_array((time, (first, second)), shape=(n, n))
    backward = csr_array((time, (second, first)), shape=(n, n))
    any_edge = int(rng.integers(n))
    remote = int(shortest_costs(forward, any_edge).argmax())
    longest = float(shortest_costs(forward, remote).max())
    start_count = _STARTS
    goal_count = _GOALS
    if n > _LARGE:
        start_count = _FEW_STARTS
        goal_count = _FEW_GOALS
    best: _Trip | None = None
    for start in rng.integers(n, size=start_count).tolist():
        since = shortest_costs(forward, start)
        goals = _draw_goals(since, longest, rng, goal_count)
        for goal in goals.tolist():
            score = -1.0
            if goal != start:
                until = shortest_costs(backward, goal)
                score = _score(since, until, since[goal])
            if best is None or score > best.score:
                best = _Trip(score, start, goal)
    if best is None or best.score <= 0.0:
        raise InfeasibleError(
            f"{graph.network.name}: no route was found between the edges tried; take another seed"
        )
    return graph.ids[best.start], graph.ids[best.goal]


def _score(since: Floats, until: Floats, fastest: float) -> float:
    """Return how many edges lie on a way that is hardly slower, for each second of the trip."""
    is_alternative = since + until <= _DETOUR * fastest
    return np.count_nonzero(is_alternative) / fastest


def _draw_goals(since: Floats, longest: float, rng: Rng, count: int) -> Ints:
    """Draw edges about as far away as they should be; if there are none, take the nearest to it."""
    is_suitable = since >= _NEAR * longest
    is_suitable &= since <= _FAR * longest
    suitable = np.flatnonzero(is_suitable)
    if len(suitable) == 0:
        middle = 0.5 * (_NEAR + _FAR) * longest
        nearest = np.argmin(np.abs(since - middle))
        return np.array([nearest])
    draws = rng.integers(len(suitable), size=count)
    return suitable[draws]
