"""Routes and matrices by a customised hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.roads.routing.search import (
    BestPath,
    Ends,
    Numbers,
    RoutePath,
    partial_path,
)

from ._compiled_detours import detour
from ._compiled_matrix import climb, join
from ._compiled_queries import meet, unpack
from .metric import Metric, customised, recustomised
from .topology import Hierarchy, Links

# Routes around the same closures before these are customised, which takes as long as dozens of them.
_RARE = 20


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
    metric: Metric | None  # what ways cost without them, once it is customised


class HierarchySearch:
    """Routes by a hierarchy.

    Args:
        hierarchy: The arcs.
        weights: w, (c,).
        costs: c, (n,).
        before: The costs of arcs by other weights, from which those of few changes follow faster.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        weights: Floats,
        costs: Floats,
        before: Metric | None = None,
    ) -> None:
        self._hierarchy = hierarchy
        self._costs = costs
        if before is None:
            self.metric = customised(hierarchy, weights)
        else:
            self.metric = recustomised(hierarchy, before, weights)
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
        best = self._find(self.metric, starts, goals, limit)
        if closed is None or best.path is None or not closed[best.path.edges].any():
            return best
        metric = self._without(closed)
        if metric is None:
            return self._find_around(closed, starts, goals, limit)
        return self._find(metric, starts, goals, limit)

    def _without(self, closed: Bools) -> Metric | None:
        """The costs without closed edges; ``None`` where these closures are too rare to customise."""
        closure = self._closure
        if closure is None or not np.array_equal(closure.closed, closed):
            closure = _Closure(closed.copy(), 0, None)
        routes = closure.routes + 1
        metric = closure.metric
        if metric is None and routes > _RARE:
            is_closed = closed[self._hierarchy.turn_ends]
            weights = np.where(is_closed, np.inf, self.metric.weights)
            metric = recustomised(self._hierarchy, self.metric, weights)
        self._closure = _Closure(closure.closed, routes, metric)
        return metric

    def _find_around(
        self, closed: Bools, starts: Ends, goals: Ends, limit: float
    ) -> BestPath:
        """Search over turns, guided by costs without closures."""
        hierarchy = self._hierarchy
        from_start = self._leaving(starts)
        to_goal = self._entering(goals)
        cost, edges = detour(
            hierarchy.parents,
            *hierarchy.up,
            self.metric.up,
            *hierarchy.down,
            self.metric.down,
            hierarchy.rank,
            hierarchy.order,
            hierarchy.turn_pointers,
            hierarchy.turn_ends,
            self.metric.weights,
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
        self, metric: Metric, starts: Ends, goals: Ends, limit: float
    ) -> BestPath:
        hierarchy = self._hierarchy
        from_start = self._leaving(starts)
        to_goal = self._entering(goals)
        space = self._take_workspace()
        cost, top = meet(
            hierarchy.parents,
            *hierarchy.up,
            metric.up,
            *hierarchy.down,
            metric.down,
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
        ranks = unpack(
            *hierarchy.up,
            *hierarchy.down,
            metric.via_up,
            metric.via_down,
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
            costs.append(self.metric.weights[turns] - not_driven)
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

        def climb_from(links: Links, costs: Floats, seeds: _Seeds) -> int:
            return climb(
                hierarchy.parents,
                *links,
                costs,
                seeds.ranks,
                seeds.costs,
                space.out,
                reached_nodes,
                reached_costs,
            )

        climbs = []
        for start in starts:
            count = climb_from(hierarchy.up, self.metric.up, self._leaving(start))
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
            count = climb_from(hierarchy.down, self.metric.down, self._entering(goal))
            join(
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
