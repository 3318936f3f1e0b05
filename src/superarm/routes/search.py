"""The cheapest route, again and again, where costs stay the same.

=================  ====================================================================
``w``              cost of each turn and the edge that it enters, (c,)
``d(u, v)``        least cost of a way from the end of edge u to the end of edge v
``L``              landmarks: a few edges far from each other
``π``              lower bound of d(v, goal), (n,): the largest of d(L, goal) − d(L, v) and
                   d(v, L) − d(goal, L), by the triangle inequality
=================  ====================================================================

Costs w − π(u) + π(v) are not negative and have the same cheapest routes; with them a search goes
towards the goal [goldberg2005computing, section 5]. Closed edges make no d smaller, so that the
bounds still hold.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.networks import LineGraph

_LANDMARKS, _USED = 6, 3  # and how many bounds are used for a trip: the best of its start
_FIRST, _WIDER, _TRIES = 0.05, 2.5, 4  # how far a search goes, in shares of π; then so much farther


class _Way(NamedTuple):
    cost: float
    edges: Ints


class Search:
    """Routes of least Σ ``costs`` of edges and ``turn_costs`` of turns, none of them negative.

    Of several ends, that is found with the least ``before`` of its first and ``after`` of its last edge
    added, (n,) of any sign. ``guided``: by landmarks, which are worth their making where more than a
    dozen routes are found.
    """

    def __init__(
        self,
        graph: LineGraph,
        costs: Floats,
        turn_costs: Floats,
        *,
        before: Floats | None = None,
        after: Floats | None = None,
        guided: bool = False,
    ) -> None:
        self._n, self._guided = len(graph), guided
        self._entering = costs if before is None else costs + before
        self._after = np.zeros(self._n) if after is None else after
        self._first, self._second = graph.turns.T
        self._weights: Floats = costs[self._second] + turn_costs
        self._pointers = np.searchsorted(self._first, np.arange(self._n + 1)).astype(np.int32)

    def find(self, starts: Ints, goals: Ints, closed: Bools | None = None) -> Ints | None:
        """The cheapest route from one of ``starts`` to one of ``goals``, both included; none: no way.

        ``closed`` edges are not used, (n,).
        """
        weights = self._weights
        if closed is not None:
            weights = np.where(closed[self._second], np.inf, weights)
            starts, goals = starts[~closed[starts]], goals[~closed[goals]]
        found = [self._to(starts, int(goal), weights) for goal in goals if len(starts)]
        ways = [way for way in found if way is not None]
        return min(ways, key=lambda way: way.cost).edges if ways else None

    def _to(self, starts: Ints, goal: int, weights: Floats) -> _Way | None:
        ahead = self._bounds(int(starts[0]), goal) if self._guided else np.zeros(self._n)
        if self._guided:  # rounding apart, they are not negative
            weights = np.maximum(weights + ahead[self._second] - ahead[self._first], 0.0)
        # One more node, from which all starts are entered.
        entering = self._entering[starts] + ahead[starts]
        least = float(entering.min())
        weights = np.append(weights, entering - least)
        pointers = np.append(self._pointers, np.int32(len(weights)))
        indices = np.append(self._second, starts).astype(np.int32)
        limit = _FIRST * float(ahead[starts].min()) + float(self._weights.mean())
        for wider in range(_TRIES + 1 if self._guided else 1):
            last = wider == _TRIES or not self._guided
            found = self._searched(weights, indices, pointers, goal, np.inf if last else limit)
            if found is not None:
                return _Way(found.cost + least + float(self._after[goal]), found.edges)
            limit *= _WIDER
        return None

    def _searched(
        self, weights: Floats, indices: Any, pointers: Any, goal: int, limit: float
    ) -> _Way | None:
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import dijkstra

        n = self._n
        matrix = csr_matrix((weights, indices, pointers), shape=(n + 1, n + 1), copy=False)
        found = dijkstra(matrix, indices=np.array([n]), return_predecessors=True, limit=limit)
        costs, previous = found[0][0], found[1][0]
        if costs[goal] == np.inf:
            return None
        route = [goal]
        while (before := int(previous[route[-1]])) != n:
            route.append(before)
        return _Way(float(costs[goal]), np.array(route[::-1], dtype=np.intp))

    def _bounds(self, start: int, goal: int) -> Floats:
        """π, which is 0 at the goal, (n,)."""
        marks = self._marks
        best = np.argsort(marks[:, start] - marks[:, goal], kind="stable")[:_USED]
        bounds: Floats = np.maximum((marks[best, goal, None] - marks[best]).max(axis=0), 0.0)
        return bounds

    @cached_property
    def _marks(self) -> Floats:
        """d(L, v), and −d(v, L), of landmarks each as far as can be from those before it."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        ends, shape = (self._first, self._second), (self._n, self._n)
        onward = csr_array((self._weights, ends), shape=shape)
        back = csr_array((self._weights, ends[::-1]), shape=shape)

        def costs(graph: Any, mark: int) -> Floats:
            return np.asarray(dijkstra(graph, indices=np.array([mark]))[0])

        mark, apart = int(costs(onward, 0).argmax()), np.full(self._n, np.inf)
        marks: list[Floats] = []
        for _ in range(_LANDMARKS):
            there, here = costs(onward, mark), costs(back, mark)
            marks += [there, -here]
            apart = np.minimum(apart, there + here)
            mark = int(apart.argmax())
        return np.array(marks)
