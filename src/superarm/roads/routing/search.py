"""Searches for many cheapest routes by the same costs.

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
bounds still hold. Landmarks take as long as a dozen searches of the whole graph: they are computed
after a few routes, or by :meth:`Search.prepare`.

*Forms.* scipy's search of the graph within a radius, which grows until the goal is found; and, where
numba is installed (extra ``[fast]``) and there are landmarks, a compiled search that stops at the goal.
On large networks a compiled hierarchy takes the place of landmarks (:mod:`.hierarchy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InputError
from superarm.core.inputs import require_choice
from superarm.core.shortest_paths import ShortestPaths, shortest_costs, shortest_paths
from superarm.roads.networks import LineGraph
from superarm.roads.networks.stored import LEAST_STORED

_LANDMARKS = 6
_USED = 3  # bounds that are used for a goal: the best of the first start
_FIRST_RADIUS = 0.05  # of the first search, as a share of π
_WIDER = 2.5  # factor by which the radius grows
_TRIES = 4  # searches within a radius before one without
_UNGUIDED = 8  # routes that are searched before landmarks are computed
# Routes by landmarks before a hierarchy replaces them, and starts of a matrix from which it is used: its
# customisation takes as long as about so many.
_MANY_ROUTES = 1000
_MANY_STARTS = 50
# Share by which a known cost may be larger when it is summed in another order.
_SLACK = 1e-9
# Edges from which "auto" prefers a hierarchy, and from which it is stored beside the network. Below,
# landmarks answer within a millisecond too, and their loops compile faster.
_LEAST_EDGES = LEAST_STORED

Form = Literal["auto", "landmarks", "hierarchy"]
"""How a search is prepared."""

Numbers = NDArray[np.int32]
"""Edges and turns as scipy and compiled loops take them."""


class Ends(NamedTuple):
    """Edges that a route may begin or end on, and how much of each lies before the place there."""

    edges: Ints  # (e,)
    shares: Floats  # 0 to 1, (e,)

    def open(self, closed: Bools | None) -> Ends:
        """The ends that are not closed.

        Args:
            closed: Which edges are closed, (n,); ``None`` for none.
        """
        if closed is None:
            return self
        is_open = ~closed[self.edges]
        return Ends(self.edges[is_open], self.shares[is_open])


class RoutePath(NamedTuple):
    """A route, and how much of each of its edges is driven."""

    edges: Ints  # (k,)
    shares: Floats  # 0 to 1, (k,)


class BestPath(NamedTuple):
    """The cheapest route of a search; without one the cost is infinite."""

    cost: float
    path: RoutePath | None


class Search:
    """Routes of least Σ ``costs`` of edges and ``turn_costs`` of turns, none of them negative.

    Args:
        graph: The roads.
        costs: Cost of each edge, (n,).
        turn_costs: Cost of each turn, (a,).
        backend: "numpy" never compiles, "numba" must, "auto" compiles where numba is installed.
        form: "landmarks", "hierarchy", which must be compiled, or "auto": a hierarchy on large networks
            where the backend compiles.
    """

    def __init__(
        self,
        graph: LineGraph,
        costs: Floats,
        turn_costs: Floats,
        *,
        backend: Backend = "auto",
        form: Form = "auto",
    ) -> None:
        require_form(form, backend)
        self._n = len(graph)
        self._graph = graph
        self._costs = costs
        self._turn_costs = turn_costs
        self._backend = backend
        self._form = form
        self._first, self._second = graph.turns.T  # edges before and behind each turn
        self._weights: Floats = costs[self._second] + turn_costs  # w, (a,)
        # The turns of each edge as rows of a sparse matrix.
        pointers = np.searchsorted(self._first, np.arange(self._n + 1))
        self._pointers: Numbers = pointers.astype(np.int32)
        self._ends: Numbers = self._second.astype(np.int32)
        self._routes = 0
        self._guided = False
        self._climbs = False  # whether the hierarchy is used
        self._hierarchy_is_due = True  # once there are many routes
        self._other: Search | None = None  # from whose hierarchy this one is customised

    def prepare(self) -> None:
        """Compute the landmarks or the hierarchy now, so that no route has to wait for them."""
        self._climbs = self._hierarchy is not None
        if not self._climbs and self._compiled is None:
            _ = self._marks
        self._guided = True

    def prepare_like(self, other: Search) -> None:
        """Prepare what another search has prepared: its landmarks, or its hierarchy.

        Where few costs differ, its hierarchy is customised from the other one.

        Args:
            other: A search on the same roads.
        """
        if other._climbs:
            self._other = other
            self.prepare()
            self._other = None
        elif other._guided:
            if self._compiled is None:
                _ = self._marks
            self._guided = True
        self._routes = other._routes

    def cost(self, path: RoutePath) -> float:
        """The cost of a route.

        Args:
            path: The route.
        """
        turns = self._graph.turn_numbers(path.edges)
        edge_costs = self._costs[path.edges]
        edge_cost = path.shares @ edge_costs
        turn_cost = self._turn_costs[turns].sum()
        return float(edge_cost + turn_cost)

    def find(
        self,
        starts: Ends,
        goals: Ends,
        closed: Bools | None = None,
        known: RoutePath | None = None,
    ) -> RoutePath | None:
        """The cheapest route from one of ``starts`` to one of ``goals``; ``None`` if there is none.

        Args:
            starts: Where it may begin.
            goals: Where it may end.
            closed: Edges that are not used, (n,).
            known: A route between these ends on open edges, whose cost limits the search.
        """
        starts = starts.open(closed)
        goals = goals.open(closed)
        if not len(starts.edges) or not len(goals.edges):
            return None
        on_one_edge = self._on_one_edge(starts, goals)
        limit = on_one_edge.cost
        if known is not None:
            known_cost = (1.0 + _SLACK) * self.cost(known)
            limit = min(known_cost, limit)
        self._count_route()
        if not self._guided:
            longer = self._search_around(starts, goals, closed, limit)
        elif self._climbs:
            longer = self._hierarchy.find(starts, goals, closed, limit)
        elif self._compiled is None:
            longer = self._search_towards(starts, goals, closed, limit)
        else:
            longer = self._compiled.find(starts, goals, closed, limit)
        if on_one_edge.cost <= longer.cost:
            return on_one_edge.path
        return longer.path

    def _count_route(self) -> None:
        """Prepare what pays after so many routes: landmarks, later a hierarchy."""
        self._routes += 1
        if self._climbs or self._routes <= _UNGUIDED:
            return
        if self._form == "hierarchy":
            self.prepare()
            return
        self._guided = True  # by landmarks
        if self._routes >= _MANY_ROUTES and self._hierarchy_is_due:
            self._hierarchy_is_due = False  # other threads go on with landmarks
            self.prepare()

    def least_costs(self, starts: Sequence[Ends], goals: Sequence[Ends]) -> Floats:
        """The cost of the cheapest route from each start to each goal, (s, g); infinite without one.

        Args:
            starts: Where routes may begin.
            goals: Where routes may end.
        """
        is_many = self._form == "hierarchy" or len(starts) >= _MANY_STARTS
        if is_many and self._hierarchy is not None:
            self.prepare()
        if not starts or not goals:
            costs = np.zeros((len(starts), len(goals)))
        elif self._climbs:
            costs = self._hierarchy.least_costs(starts, goals)
        else:
            rows = [self._costs_from(start, goals) for start in starts]
            costs = np.array(rows).reshape(len(starts), len(goals))
        for row, start in zip(costs, starts, strict=True):
            on_one_edge = [self._on_one_edge(start, goal).cost for goal in goals]
            np.minimum(row, on_one_edge, out=row)
        return costs

    def reached(self, starts: Ends) -> Floats:
        """The least cost from the starts to the beginning of every edge, (n,); 0 where there is no way.

        Args:
            starts: Where to begin.
        """
        entering = self._entering(starts)
        paths = self._distances(self._weights, starts.edges, entering, np.inf)
        before = paths.costs[:-1] - self._costs
        has_way = np.isfinite(before) & (before > 0.0)
        return np.where(has_way, before, 0.0)

    def _costs_from(self, start: Ends, goals: Sequence[Ends]) -> Floats:
        """The cost of the cheapest route of two or more edges to each goal, (g,)."""
        entering = self._entering(start)
        reached = self._distances(self._weights, start.edges, entering, np.inf)
        costs = [self._cheapest_end(reached, start, goal).cost for goal in goals]
        return np.array(costs)

    def _on_one_edge(self, starts: Ends, goals: Ends) -> BestPath:
        """The cheapest route that stays on its first edge, where a goal lies ahead."""
        best = BestPath(np.inf, None)
        for edge, start in zip(starts.edges, starts.shares, strict=True):
            is_same_edge = goals.edges == edge
            for goal in goals.shares[is_same_edge]:
                share = float(goal - start)
                cost = share * float(self._costs[edge])
                if share >= 0.0 and cost < best.cost:
                    path = RoutePath(
                        edges=np.array([edge], dtype=np.intp),
                        shares=np.array([share]),
                    )
                    best = BestPath(cost, path)
        return best

    def _entering(self, starts: Ends) -> Floats:
        """Cost from each start to the end of its edge, (1 − s)·c, (e,)."""
        costs = self._costs[starts.edges]
        entering: Floats = (1.0 - starts.shares) * costs
        return entering

    # --- with scipy ------------------------------------------------------------------------

    def _search_around(
        self, starts: Ends, goals: Ends, closed: Bools | None, limit: float
    ) -> BestPath:
        """Search in all directions."""
        entering = self._entering(starts)
        weights = self._open_weights(closed)
        reached = self._distances(weights, starts.edges, entering, limit)
        return self._cheapest_end(reached, starts, goals)

    def _search_towards(
        self, starts: Ends, goals: Ends, closed: Bools | None, limit: float
    ) -> BestPath:
        """Search by costs reduced by π, farther and farther until the goal is reached."""
        ahead = self._bounds(starts, goals)  # π
        open_weights = self._open_weights(closed)
        weights = open_weights + ahead[self._second] - ahead[self._first]
        np.maximum(weights, 0.0, out=weights)  # rounding apart, they are not negative
        entering = self._entering(starts) + ahead[starts.edges]
        least = float(entering.min())
        farthest = limit - least
        radius = _FIRST_RADIUS * max(least, 0.0) + float(self._weights.mean())
        for attempt in range(_TRIES + 1):
            is_last = attempt == _TRIES or radius >= farthest
            if is_last:
                radius = farthest
            reached = self._distances(weights, starts.edges, entering - least, radius)
            costs = reached.costs[:-1] - ahead + least
            unreduced = reached._replace(costs=costs)
            best = self._cheapest_end(unreduced, starts, goals)
            # Whatever was not reached costs more than the radius, the rest of the way included.
            if is_last or best.cost <= radius + least:
                return best
            radius *= _WIDER
        raise AssertionError("the last search has no radius")

    def _open_weights(self, closed: Bools | None) -> Floats:
        """w, infinite into closed edges, (a,)."""
        if closed is None:
            return self._weights
        is_closed = closed[self._second]
        return np.where(is_closed, np.inf, self._weights)

    def _distances(
        self, weights: Floats, starts: Ints, entering: Floats, limit: float
    ) -> ShortestPaths:
        """Costs up to the end of every edge within the limit, and the ways there.

        They begin at one more node, the last, from which all starts are entered.
        """
        from scipy.sparse import csr_matrix

        origin = self._n  # the node from which all starts are entered
        nodes = origin + 1
        data = np.append(weights, entering)
        indices = np.append(self._ends, starts.astype(np.int32))
        pointers = np.append(self._pointers, np.int32(len(data)))
        rows = (data, indices, pointers)
        matrix = csr_matrix(rows, shape=(nodes, nodes), copy=False)
        # The limit may be 0, or a little less by rounding: the starts themselves are always reached.
        limit = max(limit, float(entering.min()))
        return shortest_paths(matrix, origin, limit)

    def _cheapest_end(
        self, reached: ShortestPaths, starts: Ends, goals: Ends
    ) -> BestPath:
        """The cheapest last turn, and the route that leads to it."""
        best_cost = np.inf
        best_last = -1  # the last edge but one
        best_goal = -1
        for number, edge in enumerate(goals.edges):
            turns = self._turns_into(int(edge))
            if not len(turns):
                continue
            not_driven = (1.0 - goals.shares[number]) * self._costs[edge]
            before = self._first[turns]
            up_to_turn = reached.costs[before]
            total = up_to_turn + self._weights[turns] - not_driven
            cheapest = int(total.argmin())
            if total[cheapest] < best_cost:
                best_cost = float(total[cheapest])
                best_last = int(before[cheapest])
                best_goal = number
        route = None
        if best_goal >= 0:
            route = reached.route_to(best_last)
        if route is None:
            return BestPath(np.inf, None)
        # Without the node from which all starts are entered.
        edges = np.array([*route[1:], goals.edges[best_goal]], dtype=np.intp)
        goal_share = float(goals.shares[best_goal])
        return BestPath(best_cost, partial_path(edges, starts, goal_share))

    def _turns_into(self, edge: int) -> Ints:
        order, pointers = self._by_end
        return order[pointers[edge] : pointers[edge + 1]]

    @cached_property
    def _by_end(self) -> tuple[Ints, Ints]:
        """The turns by the edge that they enter, (a,), and where those of each edge begin, (n + 1,)."""
        order = np.argsort(self._second, kind="stable")
        edges = np.arange(self._n + 1)
        pointers = np.searchsorted(self._second[order], edges)
        return order, pointers

    # --- landmarks -------------------------------------------------------------------------

    def _bounds(self, starts: Ends, goals: Ends) -> Floats:
        """π, (n,)."""
        marks = self._marks
        least = np.full(self._n, np.inf)
        first_start = marks[:, starts.edges[0]]
        for edge, share in zip(goals.edges, goals.shares, strict=True):
            goal_marks = marks[:, edge]
            best = best_marks(first_start, goal_marks)
            differences = goal_marks[best, None] - marks[best]
            largest = differences.max(axis=0)
            bounds = np.maximum(largest, 0.0)
            not_driven = (1.0 - share) * self._costs[edge]
            np.minimum(least, bounds - not_driven, out=least)
        return least

    @cached_property
    def _marks(self) -> Floats:
        return self._compute_marks()

    def _compute_marks(self) -> Floats:
        """d(L, v) and −d(v, L), (2·landmarks, n)."""
        from scipy.sparse import csr_array

        shape = (self._n, self._n)
        weights = self._weights
        forward = csr_array((weights, (self._first, self._second)), shape=shape)
        backward = csr_array((weights, (self._second, self._first)), shape=shape)

        from_first_edge = shortest_costs(forward, 0)
        landmark = int(from_first_edge.argmax())
        distance = np.full(self._n, np.inf)  # to the nearest landmark and back
        marks: list[Floats] = []
        for _ in range(_LANDMARKS):
            from_landmark = shortest_costs(forward, landmark)
            to_landmark = shortest_costs(backward, landmark)
            marks.append(from_landmark)
            marks.append(-to_landmark)
            distance = np.minimum(distance, from_landmark + to_landmark)
            landmark = int(distance.argmax())  # as far as possible from those before
        return np.array(marks)

    @cached_property
    def _hierarchy(self) -> Any:
        """The search by a hierarchy; ``None`` where landmarks are used."""
        is_wanted = self._form == "hierarchy"
        if self._form == "auto" and self._n >= _LEAST_EDGES:
            is_wanted = is_compiled(self._backend)
        if not is_wanted:
            return None
        from .hierarchy import HierarchySearch, hierarchy_of

        hierarchy = hierarchy_of(self._graph)
        before = None if self._other is None else self._other._hierarchy.metric
        return HierarchySearch(hierarchy, self._weights, self._costs, before)

    @cached_property
    def _compiled(self) -> Any:
        """The compiled search with its landmarks; ``None`` where the backend does not compile."""
        if not is_compiled(self._backend):
            return None
        from ._compiled import CompiledSearch

        return CompiledSearch(
            self._pointers,
            self._ends,
            self._weights,
            self._costs,
            # Not ``_marks``: the compiled search stores them in another order.
            self._compute_marks(),
        )


def require_form(form: Form, backend: Backend) -> None:
    """Refuse a form of search that is unknown, or that the backend cannot have.

    Args:
        form: How a search is prepared.
        backend: "numpy", "numba" or "auto".
    """
    require_choice(form, "search", get_args(Form))
    if form != "hierarchy":
        return
    if backend == "numpy":
        raise InputError(
            'a hierarchy needs compiled loops: pass backend="numba" or "auto", or search="landmarks"'
        )
    is_compiled("numba")


def best_marks(start: Floats, goal: Floats) -> Ints:
    """Which landmarks bound the cost between two edges best.

    Args:
        start: Marks of the first edge.
        goal: Marks of the second.
    """
    return np.argsort(start - goal, kind="stable")[:_USED]


def partial_path(edges: Ints, starts: Ends, goal_share: float) -> RoutePath:
    """A route of two or more edges, from its start on the first to its goal on the last.

    Args:
        edges: Its edges, (k,).
        starts: Where it may begin.
        goal_share: How much of the last edge is driven.
    """
    is_first = starts.edges == edges[0]
    start_share = float(starts.shares[is_first][0])
    shares = np.ones(len(edges))
    shares[0] = 1.0 - start_share
    shares[-1] = goal_share
    return RoutePath(edges, shares)
