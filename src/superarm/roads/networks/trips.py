"""Where to go on a network nobody has told us about: two edges that make a trip worth learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import InfeasibleError
from superarm.core.streams import stream

from .line_graph import LineGraph

_STARTS, _GOALS = 8, 4
_FEW_STARTS, _FEW_GOALS = (
    3,
    2,
)  # starts that are tried, and goals for each, above ``_LARGE`` edges
_LARGE = 50_000
_NEAR, _FAR = 0.6, 0.8  # a trip takes between these shares of the longest trip's time
_DETOUR = 1.15  # an edge is an alternative if the way over it takes at most so many times the fastest


def suggest_trip(graph: LineGraph, seed: int = 0) -> tuple[str, str]:
    """Ids of a start and a goal far apart (60 to 80 % of the longest fastest trip), many ways between.

    A few pairs are drawn and the one with the most edges on ways at most 15 % slower than the fastest
    is taken, in proportion to the length of the trip. It is the same pair for the same graph and seed.
    """
    from scipy.sparse import csr_array

    n = len(graph)
    if n < 2 or len(graph.turns) == 0:
        raise InfeasibleError(
            f"{graph.network.name} has no two edges with a route between them"
        )
    rng = stream(seed, "trip", 0)
    first, second = graph.turns.T
    time = graph.travel_time
    forward = csr_array((time[second], (first, second)), shape=(n, n))
    backward = csr_array((time[second], (second, first)), shape=(n, n))
    far = int(_times(forward, int(rng.integers(n))).argmax())
    longest = float(_times(forward, far).max())
    best: tuple[float, int, int] | None = None
    starts, goals = (_STARTS, _GOALS) if n <= _LARGE else (_FEW_STARTS, _FEW_GOALS)
    for start in rng.integers(n, size=starts):
        since = _times(forward, int(start))
        for goal in _goals(since, longest, rng, goals):
            until, trip = _times(backward, int(goal)), since[goal]
            on_the_way = np.count_nonzero(since + until <= _DETOUR * trip)
            score = on_the_way / trip if goal != start else -1.0
            if best is None or score > best[0]:
                best = (score, int(start), int(goal))
    if best is None or best[0] <= 0.0:
        raise InfeasibleError(
            f"{graph.network.name}: no route was found between the edges tried; take another seed"
        )
    return graph.ids[best[1]], graph.ids[best[2]]


def _times(graph: Any, source: int) -> Floats:
    """Seconds from an edge's end to every edge's end."""
    from scipy.sparse.csgraph import dijkstra

    times: Floats = dijkstra(graph, indices=np.array([source]))[0]
    return times


def _goals(since: Floats, longest: float, rng: Rng, count: int) -> Ints:
    """Edges about as far away as wanted; if there are none, the one that is nearest to it."""
    fit = np.flatnonzero((since >= _NEAR * longest) & (since <= _FAR * longest))
    if len(fit) == 0:
        return np.array([np.argmin(np.abs(since - 0.5 * (_NEAR + _FAR) * longest))])
    return fit[rng.integers(len(fit), size=count)]
