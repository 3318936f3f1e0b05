"""The cheapest route, again and again, where costs stay the same.

=================  ====================================================================
``c``              cost of each edge, (n,)
``w``              cost of each turn and the edge that it enters, (a,)
``s``, ``g``       how much of an edge lies before the start, and before the goal, 0 to 1
``d(u, v)``        least cost of a way from the end of edge u to the end of edge v
``L``              landmarks: a few edges far from each other
``π``              lower bound of the cost from the end of v to the goal, (n,)
=================  ====================================================================

*Ends.* A route begins with (1 − s)·c of its first edge and ends with g·c of its last: the last turn
and edge cost w − (1 − g)·c. On a single edge it costs (g − s)·c, where the goal lies ahead. Otherwise
the same edge is both first and last of a loop.

*Guidance.* By the triangle inequality d(v, goal) is at least d(L, goal) − d(L, v) and
d(v, L) − d(goal, L). π is the largest of these and 0, less (1 − g)·c; with several goals the smallest π
of them. Costs w − π(u) + π(v) are not negative and have the same cheapest routes; with them a search
goes towards the goal [goldberg2005computing, section 5]. Closed edges make no d smaller, so that the
bounds still hold. Landmarks take as long as a dozen searches of the whole graph: they are made once
some routes were asked for, or by :meth:`Search.prepare`.

*Two forms.* scipy's search of the graph within a radius, which grows until the goal is found; and,
where numba is installed (extra ``[fast]``) and there are landmarks, a compiled search that stops at the
goal.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.compiling import Backend, is_compiled
from superarm.roads.networks import LineGraph

_LANDMARKS, _USED = (
    6,
    3,
)  # and how many bounds are used for a goal: the best of the first start
_FIRST, _WIDER, _TRIES = (
    0.05,
    2.5,
    4,
)  # how far a search goes, in shares of π; then so much farther
_UNGUIDED = 8  # routes that are found before landmarks are made
_SLACK = 1e-9  # of a known cost, by which the same cost may be larger when summed in another order

Numbers = NDArray[np.int32]
"""Edges and turns as scipy and compiled loops take them."""


class Ends(NamedTuple):
    """Edges that a route may begin or end on, and how much of each lies before the place there."""

    edges: Ints  # (e,)
    shares: Floats  # 0 to 1, (e,)

    def open(self, closed: Bools | None) -> Ends:
        """Those that are not closed."""
        if closed is None:
            return self
        kept = ~closed[self.edges]
        return Ends(self.edges[kept], self.shares[kept])


class RoutePath(NamedTuple):
    """A route, and how much of each of its edges is driven."""

    edges: Ints  # (k,)
    shares: Floats  # 0 to 1, (k,)


class BestPath(NamedTuple):
    """The cheapest route that was found; none costs infinitely much."""

    cost: float
    way: RoutePath | None


class Search:
    """Routes of least Σ ``costs`` of edges and ``turn_costs`` of turns, none of them negative.

    Args:
        graph: the roads.
        costs: of each edge, (n,).
        turn_costs: of each turn, (a,).
        backend: "numpy" never compiles, "numba" must, "auto" compiles where numba is installed.
    """

    def __init__(
        self,
        graph: LineGraph,
        costs: Floats,
        turn_costs: Floats,
        *,
        backend: Backend = "auto",
    ) -> None:
        self._n, self._costs, self._backend = len(graph), costs, backend
        self._graph, self._turn_costs = graph, turn_costs
        self._first, self._second = graph.turns.T
        self._weights: Floats = costs[self._second] + turn_costs  # w, (a,)
        self._ends: Numbers = self._second.astype(np.int32)
        self._pointers: Numbers = np.searchsorted(
            self._first, np.arange(self._n + 1)
        ).astype(np.int32)
        self._asked = 0
        self._guided = False

    def prepare(self) -> None:
        """Make the landmarks now, so that no route has to wait for them."""
        self._guided = True
        if self._compiled is None:
            _ = self._marks

    def cost(self, way: RoutePath) -> float:
        """What a route costs here."""
        turns = self._graph.turn_numbers(way.edges)
        return float(
            way.shares @ self._costs[way.edges] + self._turn_costs[turns].sum()
        )

    def find(
        self,
        starts: Ends,
        goals: Ends,
        closed: Bools | None = None,
        known: RoutePath | None = None,
    ) -> RoutePath | None:
        """The cheapest route from one of ``starts`` to one of ``goals``; ``None``: there is no way.

        ``closed`` edges are not used, (n,). ``known``: a route between these ends on open edges; no
        farther is searched than it costs.
        """
        starts, goals = starts.open(closed), goals.open(closed)
        if not len(starts.edges) or not len(goals.edges):
            return None
        best = self._on_one_edge(starts, goals)
        limit = np.inf if known is None else (1.0 + _SLACK) * self.cost(known)
        limit = min(limit, best.cost)
        if not self._guided:
            self._asked += 1
            if self._asked > _UNGUIDED:
                self.prepare()
        if not self._guided:
            found = self._around(starts, goals, closed, limit)
        elif self._compiled is None:
            found = self._towards(starts, goals, closed, limit)
        else:
            found = self._compiled.find(starts, goals, closed, limit)
        return min(best, found, key=lambda each: each.cost).way

    def _on_one_edge(self, starts: Ends, goals: Ends) -> BestPath:
        """The cheapest route that stays on its first edge, where a goal lies ahead."""
        best = BestPath(np.inf, None)
        for edge, start in zip(*starts, strict=True):
            for same in np.flatnonzero(goals.edges == edge):
                share = float(goals.shares[same] - start)
                cost = share * float(self._costs[edge])
                if share >= 0.0 and cost < best.cost:
                    best = BestPath(
                        cost,
                        RoutePath(np.array([edge], dtype=np.intp), np.array([share])),
                    )
        return best

    # --- with scipy ------------------------------------------------------------------------

    def _around(
        self, starts: Ends, goals: Ends, closed: Bools | None, limit: float
    ) -> BestPath:
        """Search in all directions."""
        entering = (1.0 - starts.shares) * self._costs[starts.edges]
        weights = self._opened(closed)
        costs, previous = self._searched(weights, starts.edges, entering, limit)
        return self._ended(costs, previous, starts, goals)

    def _towards(
        self, starts: Ends, goals: Ends, closed: Bools | None, limit: float
    ) -> BestPath:
        """Search by costs reduced by π, farther and farther until the goal is reached."""
        ahead = self._bounds(starts, goals)
        weights = self._opened(closed) + ahead[self._second] - ahead[self._first]
        np.maximum(weights, 0.0, out=weights)  # rounding apart, they are not negative
        entering = (1.0 - starts.shares) * self._costs[starts.edges] + ahead[
            starts.edges
        ]
        least = float(entering.min())
        radius = _FIRST * max(least, 0.0) + float(self._weights.mean())
        for tried in range(_TRIES + 1):
            farthest = limit - least
            last = tried == _TRIES or radius >= farthest
            radius = farthest if last else radius
            costs, previous = self._searched(
                weights, starts.edges, entering - least, radius
            )
            found = self._ended(costs - ahead + least, previous, starts, goals)
            # Whatever was not reached costs more than the radius, the rest of the way included.
            if last or found.cost <= radius + least:
                return found
            radius *= _WIDER
        raise AssertionError("the last search has no radius")

    def _opened(self, closed: Bools | None) -> Floats:
        """w, infinite into closed edges, (a,)."""
        return (
            self._weights
            if closed is None
            else np.where(closed[self._second], np.inf, self._weights)
        )

    def _searched(
        self, weights: Floats, starts: Ints, entering: Floats, limit: float
    ) -> tuple[Floats, Numbers]:
        """Costs up to the end of every edge within the limit, (n,), and the edges before them, (n,)."""
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import dijkstra

        n = self._n
        # One more node, from which all starts are entered.
        data = np.append(weights, entering)
        indices = np.append(self._ends, starts.astype(np.int32))
        pointers = np.append(self._pointers, np.int32(len(data)))
        matrix = csr_matrix((data, indices, pointers), shape=(n + 1, n + 1), copy=False)
        # The limit may be 0, or a little less by rounding: the starts themselves are always reached.
        limit = max(limit, float(entering.min()))
        found = dijkstra(
            matrix, indices=np.array([n]), return_predecessors=True, limit=limit
        )
        return found[0][0, :n], found[1][0, :n]

    def _ended(
        self, costs: Floats, previous: Numbers, starts: Ends, goals: Ends
    ) -> BestPath:
        """The cheapest last turn, and the route that leads to it."""
        best, last, goal = np.inf, -1, -1
        for number, edge in enumerate(goals.edges):
            turns = self._turns_into(int(edge))
            spared = (1.0 - goals.shares[number]) * self._costs[edge]
            total = costs[self._first[turns]] + self._weights[turns] - spared
            if len(total) and total.min() < best:
                nearest = int(total.argmin())
                best, last, goal = (
                    float(total[nearest]),
                    int(self._first[turns[nearest]]),
                    number,
                )
        if last < 0:
            return BestPath(np.inf, None)
        route = [int(goals.edges[goal]), last]
        while (before := int(previous[route[-1]])) != self._n:
            route.append(before)
        edges = np.array(route[::-1], dtype=np.intp)
        return BestPath(best, partial_way(edges, starts, float(goals.shares[goal])))

    def _turns_into(self, edge: int) -> Ints:
        order, pointers = self._by_end
        return order[pointers[edge] : pointers[edge + 1]]

    @cached_property
    def _by_end(self) -> tuple[Ints, Ints]:
        """The turns by the edge that they enter, (a,), and where those of each edge begin, (n + 1,)."""
        order = np.argsort(self._second, kind="stable")
        return order, np.searchsorted(self._second[order], np.arange(self._n + 1))

    # --- landmarks -------------------------------------------------------------------------

    def _bounds(self, starts: Ends, goals: Ends) -> Floats:
        """π, (n,)."""
        marks, least = self._marks, np.full(self._n, np.inf)
        for edge, share in zip(*goals, strict=True):
            best = best_marks(marks[:, starts.edges[0]], marks[:, edge])
            bounds = np.maximum(
                (marks[best, edge, None] - marks[best]).max(axis=0), 0.0
            )
            np.minimum(least, bounds - (1.0 - share) * self._costs[edge], out=least)
        return least

    @cached_property
    def _marks(self) -> Floats:
        return self._made_marks()

    def _made_marks(self) -> Floats:
        """d(L, v) and −d(v, L), (2·landmarks, n)."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        ends, shape = (self._first, self._second), (self._n, self._n)
        onward = csr_array((self._weights, ends), shape=shape)
        back = csr_array((self._weights, ends[::-1]), shape=shape)

        def costs(graph: Any, mark: int) -> Floats:
            return np.asarray(dijkstra(graph, indices=np.array([mark]))[0])

        mark, apart = int(costs(onward, 0).argmax()), np.full(self._n, np.inf)
        marks: list[Floats] = []
        for _ in range(_LANDMARKS):  # each as far as can be from those before it
            there, here = costs(onward, mark), costs(back, mark)
            marks += [there, -here]
            apart = np.minimum(apart, there + here)
            mark = int(apart.argmax())
        return np.array(marks)

    @cached_property
    def _compiled(self) -> Any:
        """The compiled search with its landmarks; ``None`` where it is not wanted."""
        if not is_compiled(self._backend):
            return None
        from ._compiled import CompiledSearch

        parts = (self._pointers, self._ends, self._weights, self._costs)
        return CompiledSearch(
            *parts, self._made_marks()
        )  # which it keeps in another order


def best_marks(start: Floats, goal: Floats) -> Ints:
    """Which landmarks bound the cost between two edges best, by their marks there."""
    return np.argsort(start - goal, kind="stable")[:_USED]


def partial_way(edges: Ints, starts: Ends, goal_share: float) -> RoutePath:
    """A route of two or more edges, from its start on the first to its goal on the last."""
    shares = np.ones(len(edges))
    shares[0] = 1.0 - float(starts.shares[starts.edges == edges[0]][0])
    shares[-1] = goal_share
    return RoutePath(edges, shares)
