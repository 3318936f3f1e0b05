"""Searches by a customisable contraction hierarchy.

=================  ====================================================================
``n``, ``c``       edges, and turns from one into the next
rank               an edge's place in the elimination order; edges are named by it here
``m``              arcs: pairs of edges, the lower rank its tail and the higher its head
``up``, ``down``   least cost of a way from tail to head, and from head to tail, (m,)
``via``            the edge below both in the middle of that way, −1: a single turn, (m,)
=================  ====================================================================

*Topology.* Edges are contracted in the elimination order of the network's ``turn_graph``: all edges
behind a contracted one that turns join to it become joined to each other. Arcs are the entries of a sparse
factor with this order, and the elimination tree is that of the factor. No cost plays a part.

*Customisation.* Way by way over lower edges, from the bottom: up(a, b) ≤ down(v, a) + up(v, b) and
down(a, b) ≤ down(v, b) + up(v, a) for every v below a and b [dibbelt2016customizable]. Where few costs
change, only the arcs that depend on them are customised again.

*Shortening.* Where a way over higher edges costs less than an arc, some cheapest route does without the
arc, and searches leave it out. After a partial customisation they use all arcs.

*Routes.* Some cheapest way rises to its highest edge and falls from there. It is found where the climbs
from the start and from the goal, each along a path of the elimination tree, have the least sum.

*Closures.* A cheapest route without closed edges is the cheapest. Where it has one, A* goes over turns, guided
by the cost of the rest of the way if nothing were closed. Closures that come again and again are customised.

*Rounding.* Costs are added as floats, in an order of their own. For a route of k edges the error is at most
2·k·2⁻⁵³ of its cost, edges and turns together. It counts once in what shortening leaves out and once in the
search, on both sides of a comparison: of two routes whose costs differ by less than 8·k·2⁻⁵³ of them,
either may be found. Nothing else is approximate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.caching import cached_property
from superarm.roads.networks import LineGraph
from superarm.roads.networks.line_graph import is_permutation
from superarm.roads.networks.stored import read_stored, store

from . import _compiled_hierarchy as loops
from .search import BestPath, Ends, Numbers, RoutePath, partial_path

# Share of all turns up to which customising the arcs that depend on them is faster than starting over.
_FEW = 0.001
# Routes around the same closures before these are customised, which takes as long as dozens of them.
_RARE = 20


class Topology(NamedTuple):
    """What a hierarchy has without costs: edges in their order, and arcs by their tails."""

    order: Numbers  # the edge of each rank, (n,)
    pointers: Numbers  # where the arcs of each tail begin, (n + 1,)
    heads: Numbers  # (m,)


def contract(graph: LineGraph) -> Topology:
    """The topology of a line graph.

    Args:
        graph: The roads.
    """
    n = len(graph)
    order = graph.elimination_order
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    ends = rank[graph.turns]
    tails = ends.min(axis=1)
    heads = ends.max(axis=1)
    is_loop = tails == heads
    keys = np.unique(tails[~is_loop] * n + heads[~is_loop])
    tails, heads = np.divmod(keys, n)
    counts = np.bincount(tails, minlength=n)
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    full_pointers, full_heads = loops.complete(pointers, heads.astype(np.int32))
    return Topology(order.astype(np.int32), full_pointers, full_heads)


_KIND = "hierarchy"  # of the arrays stored beside a network
_HIERARCHIES: WeakKeyDictionary[LineGraph, Hierarchy] = WeakKeyDictionary()


def hierarchy_of(graph: LineGraph) -> Hierarchy:
    """The hierarchy of a line graph, which all its searches share.

    Args:
        graph: The roads.
    """
    hierarchy = _HIERARCHIES.get(graph)
    if hierarchy is None:
        # Without a lock: two threads may both compute it, and then share the first.
        hierarchy = _stored_hierarchy(graph)
        if hierarchy is None:
            topology = contract(graph)
            store(graph, _KIND, topology)
            hierarchy = Hierarchy(graph, topology)
        hierarchy = _HIERARCHIES.setdefault(graph, hierarchy)
    return hierarchy


def _stored_hierarchy(graph: LineGraph) -> Hierarchy | None:
    """The hierarchy that is stored beside the network; ``None`` where there is none that fits."""
    stored = read_stored(graph, _KIND)
    if stored is None or len(stored) != len(Topology._fields):
        return None
    topology = Topology(*stored)
    if not _is_sound(topology, len(graph)):
        return None
    hierarchy = Hierarchy(graph, topology)
    first, second = graph.turns.T
    has_arc = (hierarchy.arcs >= 0) | (first == second)
    return hierarchy if has_arc.all() else None


def _is_sound(topology: Topology, n: int) -> bool:
    """Whether loops can use these arrays: all arcs rise, and those of a tail are sorted by heads."""
    order, pointers, heads = topology
    if not is_permutation(order, n) or len(pointers) != n + 1:
        return False
    counts = np.diff(pointers)
    if pointers[0] != 0 or pointers[-1] != len(heads) or (counts < 0).any():
        return False
    if not len(heads):
        return True
    tails = np.repeat(np.arange(n, dtype=np.int32), counts)
    rises = (heads > tails).all() and heads.max() < n
    is_sorted = (np.diff(heads) > 0) | (np.diff(tails) > 0)
    return bool(rises and is_sorted.all())


class Hierarchy:
    """The arcs of a line graph, for all costs.

    Args:
        graph: The roads.
        topology: That of :func:`contract` for the same roads.
    """

    def __init__(self, graph: LineGraph, topology: Topology) -> None:
        n = len(graph)
        self.order, self.pointers, self.heads = topology
        self.rank: Numbers = np.empty(n, dtype=np.int32)
        self.rank[self.order] = np.arange(n, dtype=np.int32)
        first, second = graph.turns.T
        self.first = first
        first_rank = self.rank[first]
        second_rank = self.rank[second]
        # The arc of each turn, −1 where it leads back into the same edge, (c,).
        self.arcs: Numbers = loops.arcs_between(
            self.pointers, self.heads, first_rank, second_rank
        )
        self.rises: Bools = first_rank < second_rank
        self.turn_pointers: Numbers = np.searchsorted(first, np.arange(n + 1)).astype(
            np.int32
        )
        self.turn_ends: Numbers = second.astype(np.int32)
        # Turns by the edge that they enter, and where those of each edge begin.
        self._entries = np.argsort(second, kind="stable")
        self._entry_pointers = np.searchsorted(second[self._entries], np.arange(n + 1))

    def turns_into(self, edge: int) -> Ints:
        """The turns that enter an edge.

        Args:
            edge: The edge.
        """
        begin, end = self._entry_pointers[edge : edge + 2]
        return self._entries[begin:end]

    @cached_property
    def parents(self) -> Numbers:
        """The parent of each edge in the elimination tree, n for a root, (n,)."""
        n = len(self.order)
        parents = np.full(n, n, dtype=np.int32)
        starts = self.pointers[:-1]
        has_arcs = starts < self.pointers[1:]
        parents[has_arcs] = self.heads[starts[has_arcs]]
        return parents

    @cached_property
    def tails(self) -> Numbers:
        """The tail of each arc, (m,)."""
        nodes = np.arange(len(self.order), dtype=np.int32)
        return np.repeat(nodes, np.diff(self.pointers))

    @cached_property
    def lower_arcs(self) -> tuple[Numbers, Numbers]:
        """Where the arcs into each edge begin, (n + 1,), and these arcs, (m,)."""
        counts = np.bincount(self.heads, minlength=len(self.order))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        arcs = np.empty(len(self.heads), dtype=np.int32)
        loops.lower_arcs(self.pointers, self.heads, starts, arcs)
        return starts, arcs


class Metric(NamedTuple):
    """What ways over a hierarchy's arcs cost."""

    weights: Floats  # w, (c,)
    up: Floats  # (m,)
    down: Floats  # (m,)
    via_up: Numbers  # (m,)
    via_down: Numbers  # (m,)


def customised(hierarchy: Hierarchy, weights: Floats) -> Metric:
    """The costs of all arcs.

    Args:
        hierarchy: The arcs.
        weights: w, the cost of each turn and the edge that it enters, (c,); infinite where closed.
    """
    count = len(hierarchy.heads)
    is_arc = hierarchy.arcs >= 0
    rising = is_arc & hierarchy.rises
    falling = is_arc & ~hierarchy.rises
    up = np.full(count, np.inf)
    down = np.full(count, np.inf)
    up[hierarchy.arcs[rising]] = weights[rising]
    down[hierarchy.arcs[falling]] = weights[falling]
    via_up = np.full(count, -1, dtype=np.int32)
    via_down = np.full(count, -1, dtype=np.int32)
    loops.customise(hierarchy.pointers, hierarchy.heads, up, down, via_up, via_down)
    return Metric(np.ascontiguousarray(weights), up, down, via_up, via_down)


def recustomised(hierarchy: Hierarchy, metric: Metric, weights: Floats) -> Metric:
    """The costs of all arcs, from those that other weights had; equal to the last bit.

    Args:
        hierarchy: The arcs.
        metric: The costs of arcs by other weights.
        weights: w, (c,).
    """
    turns = np.flatnonzero(weights != metric.weights)
    if len(turns) > _FEW * len(weights):
        return customised(hierarchy, weights)
    arcs = hierarchy.arcs[turns]
    starts, lower = hierarchy.lower_arcs
    changed = Metric(
        np.ascontiguousarray(weights),
        metric.up.copy(),
        metric.down.copy(),
        metric.via_up.copy(),
        metric.via_down.copy(),
    )
    loops.recustomise(
        hierarchy.pointers,
        hierarchy.heads,
        hierarchy.tails,
        starts,
        lower,
        hierarchy.order,
        hierarchy.turn_pointers,
        hierarchy.turn_ends,
        changed.weights,
        changed.up,
        changed.down,
        changed.via_up,
        changed.via_down,
        arcs[arcs >= 0],
    )
    return changed


class _Arcs(NamedTuple):
    """The arcs that searches use, in one direction."""

    pointers: Numbers  # (n + 1,)
    heads: Numbers
    weights: Floats


class _Usable(NamedTuple):
    """A metric, and the arcs that searches by it use."""

    metric: Metric
    up: _Arcs
    down: _Arcs


def _all_arcs(hierarchy: Hierarchy, metric: Metric) -> _Usable:
    pointers = hierarchy.pointers
    heads = hierarchy.heads
    up = _Arcs(pointers, heads, metric.up)
    down = _Arcs(pointers, heads, metric.down)
    return _Usable(metric, up, down)


def _needed_arcs(hierarchy: Hierarchy, metric: Metric) -> _Usable:
    """Without arcs for which there is a cheaper way over higher edges."""
    least_up = metric.up.copy()
    least_down = metric.down.copy()
    loops.shorten(hierarchy.pointers, hierarchy.heads, least_up, least_down)
    up = _cheapest_arcs(least_up, metric.up, hierarchy)
    down = _cheapest_arcs(least_down, metric.down, hierarchy)
    return _Usable(metric, up, down)


def _cheapest_arcs(least: Floats, weights: Floats, hierarchy: Hierarchy) -> _Arcs:
    """The arcs that can be used and cost no more than the cheapest way, (m,)."""
    is_needed = (weights == least) & (weights < np.inf)
    needed_before = np.concatenate([[0], np.cumsum(is_needed)])
    pointers = needed_before[hierarchy.pointers].astype(np.int32)
    heads = hierarchy.heads[is_needed]
    return _Arcs(pointers, heads, weights[is_needed])


class _Workspace(NamedTuple):
    """Room for one search at a time."""

    out: Floats  # (n,), infinite between searches
    back: Floats  # (n,), infinite between searches
    before: Numbers  # (n,)
    behind: Numbers  # (n,)


class _Seeds(NamedTuple):
    """Edges, by rank, from which a climb begins."""

    ranks: Numbers  # (e,)
    costs: Floats  # (e,)
    ends: Ints  # which of the places each belongs to, (e,)


class _Closure(NamedTuple):
    """Edges that are closed, and how often routes had to avoid them."""

    closed: Bools  # (n,)
    routes: int
    usable: _Usable | None  # what ways cost without them, once it is customised


class HierarchySearch:
    """Routes by a hierarchy.

    Args:
        hierarchy: The arcs.
        weights: w, (c,).
        costs: c, (n,).
    """

    def __init__(self, hierarchy: Hierarchy, weights: Floats, costs: Floats) -> None:
        self._hierarchy = hierarchy
        self._costs = costs
        metric = customised(hierarchy, weights)
        self._usable = _needed_arcs(hierarchy, metric)
        self._weights = metric.weights
        self._closure: _Closure | None = None
        # Taken out while they are used, so that threads share none.
        self._workspaces: list[_Workspace] = []

    def find(
        self, starts: Ends, goals: Ends, closed: Bools | None, limit: float
    ) -> BestPath:
        """The cheapest route of two or more edges.

        Args:
            starts: Where it may begin, on open edges.
            goals: Where it may end, on open edges.
            closed: Edges that are not used, (n,).
            limit: The largest cost.
        """
        best = self._find(self._usable, starts, goals, limit)
        if closed is None or best.path is None or not closed[best.path.edges].any():
            return best
        usable = self._without(closed)
        if usable is None:
            return self._find_around(closed, starts, goals, limit)
        return self._find(usable, starts, goals, limit)

    def _without(self, closed: Bools) -> _Usable | None:
        """The costs without closed edges; ``None`` where these closures are too rare to customise."""
        closure = self._closure
        if closure is None or not np.array_equal(closure.closed, closed):
            closure = _Closure(closed.copy(), 0, None)
        routes = closure.routes + 1
        usable = closure.usable
        if usable is None and routes > _RARE:
            is_closed = closed[self._hierarchy.turn_ends]
            weights = np.where(is_closed, np.inf, self._weights)
            metric = recustomised(self._hierarchy, self._usable.metric, weights)
            usable = _all_arcs(self._hierarchy, metric)
        self._closure = _Closure(closure.closed, routes, usable)
        return usable

    def _find_around(
        self, closed: Bools, starts: Ends, goals: Ends, limit: float
    ) -> BestPath:
        """Search over turns, guided by costs without closures."""
        hierarchy = self._hierarchy
        from_start = self._leaving(starts)
        to_goal = self._entering(goals)
        cost, edges = loops.detour(
            hierarchy.parents,
            *self._usable.up,
            *self._usable.down,
            hierarchy.rank,
            hierarchy.order,
            hierarchy.turn_pointers,
            hierarchy.turn_ends,
            self._weights,
            closed,
            from_start.ranks,
            from_start.costs,
            to_goal.ranks,
            to_goal.costs,
            limit,
        )
        if not len(edges):
            return BestPath(np.inf, None)
        return BestPath(cost, self._path(edges, starts, goals, to_goal))

    def _find(
        self, usable: _Usable, starts: Ends, goals: Ends, limit: float
    ) -> BestPath:
        hierarchy = self._hierarchy
        from_start = self._leaving(starts)
        to_goal = self._entering(goals)
        space = self._take_workspace()
        cost, top = loops.meet(
            hierarchy.parents,
            *usable.up,
            *usable.down,
            from_start.ranks,
            from_start.costs,
            to_goal.ranks,
            to_goal.costs,
            limit,
            space.out,
            space.back,
            space.before,
            space.behind,
        )
        if top < 0:
            self._workspaces.append(space)
            return BestPath(np.inf, None)
        ranks = loops.unpack(
            hierarchy.pointers,
            hierarchy.heads,
            usable.metric.via_up,
            usable.metric.via_down,
            space.before,
            space.behind,
            top,
        )
        self._workspaces.append(space)
        edges = hierarchy.order[ranks]
        return BestPath(cost, self._path(edges, starts, goals, to_goal))

    def _path(
        self, edges: Numbers, starts: Ends, goals: Ends, to_goal: _Seeds
    ) -> RoutePath:
        """The route over these edges, and from the last one to the cheapest goal behind it."""
        last = self._hierarchy.rank[edges[-1]]
        leads_on = np.flatnonzero(to_goal.ranks == last)
        cheapest = leads_on[to_goal.costs[leads_on].argmin()]
        goal = int(to_goal.ends[cheapest])
        route = np.append(edges, goals.edges[goal]).astype(np.intp)
        return partial_path(route, starts, float(goals.shares[goal]))

    def _leaving(self, starts: Ends) -> _Seeds:
        """The starts, each with (1 − s)·c."""
        costs = (1.0 - starts.shares) * self._costs[starts.edges]
        return _Seeds(self._hierarchy.rank[starts.edges], costs, np.arange(len(costs)))

    def _entering(self, goals: Ends) -> _Seeds:
        """The edges before each goal, with the cost of the turn into it and of its part."""
        hierarchy = self._hierarchy
        ranks = []
        costs = []
        ends = []
        for number, edge in enumerate(goals.edges.tolist()):
            turns = hierarchy.turns_into(edge)
            not_driven = (1.0 - goals.shares[number]) * self._costs[edge]
            ranks.append(hierarchy.rank[hierarchy.first[turns]])
            costs.append(self._weights[turns] - not_driven)
            ends.append(np.full(len(turns), number))
        # By rounding, w − (1 − g)·c may fall below zero.
        all_costs = np.maximum(np.concatenate(costs), 0.0)
        return _Seeds(np.concatenate(ranks), all_costs, np.concatenate(ends))

    def _take_workspace(self) -> _Workspace:
        try:
            return self._workspaces.pop()
        except IndexError:
            n = len(self._hierarchy.order)
            return _Workspace(
                np.full(n, np.inf),
                np.full(n, np.inf),
                np.empty(n, dtype=np.int32),
                np.empty(n, dtype=np.int32),
            )

    # --- many at once ----------------------------------------------------------------------

    def least_costs(self, starts: Sequence[Ends], goals: Sequence[Ends]) -> Floats:
        """The cost of the cheapest route of two or more edges from each start to each goal, (s, g).

        All starts climb first, and every edge that they reach collects their costs in a bucket. Then a
        climb from each goal joins them.

        Args:
            starts: Where routes may begin.
            goals: Where routes may end.
        """
        hierarchy = self._hierarchy
        n = len(hierarchy.order)
        space = self._take_workspace()
        reached_nodes = np.empty(n, dtype=np.int32)
        reached_costs = np.empty(n)

        def climb(arcs: _Arcs, seeds: _Seeds) -> int:
            return loops.climb(
                hierarchy.parents,
                *arcs,
                seeds.ranks,
                seeds.costs,
                space.out,
                reached_nodes,
                reached_costs,
            )

        climbs = []
        for start in starts:
            count = climb(self._usable.up, self._leaving(start))
            climbs.append((reached_nodes[:count].copy(), reached_costs[:count].copy()))
        nodes = np.concatenate([climbed[0] for climbed in climbs])
        entry_costs = np.concatenate([climbed[1] for climbed in climbs])
        rows = np.repeat(np.arange(len(starts)), [len(found) for found, _ in climbs])
        by_node = np.argsort(nodes, kind="stable")
        distinct, first = np.unique(nodes[by_node], return_index=True)
        bucket_starts = np.append(first, len(nodes))
        place_of = np.full(n, -1, dtype=np.int32)
        place_of[distinct] = np.arange(len(distinct), dtype=np.int32)
        bucket_rows = rows[by_node]
        bucket_costs = entry_costs[by_node]
        costs = np.full((len(goals), len(starts)), np.inf)
        for goal, column in zip(goals, costs, strict=True):
            count = climb(self._usable.down, self._entering(goal))
            loops.join(
                place_of,
                bucket_starts,
                bucket_rows,
                bucket_costs,
                reached_nodes,
                reached_costs,
                count,
                column,
            )
        self._workspaces.append(space)
        return np.ascontiguousarray(costs.T)
