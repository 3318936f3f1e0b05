"""Detours, compiled: the cheapest way around closed edges."""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats
from superarm.core.compiling import compiled
from superarm.roads.routing._compiled import pop, push, route_to
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import FIXED, FLOATS, INTS, NONE, WEIGHTED
from ._compiled_queries import step_cursors


@compiled(f"void({FIXED}, {WEIGHTED}, {INTS}, {FLOATS})")
def climb_back(
    parents: Numbers,
    pointers: Numbers,
    heads: Numbers,
    weights: Floats,
    goals: Numbers,
    costs: Floats,
) -> None:
    """Lower ``costs``, which are finite at goals, to those of ways that fall to a goal from above it."""
    n = len(parents)
    cursors = goals.copy()
    node = n
    for goal in goals:
        node = min(node, goal)
    while node < n:
        for arc in range(pointers[node], pointers[node + 1]):
            head = heads[arc]
            costs[head] = min(costs[head], costs[node] + weights[arc])
        node = step_cursors(parents, cursors, node)


@compiled(f"f8({FIXED}, {WEIGHTED}, {FLOATS}, b1[::1], {INTS}, i8)")
def cost_ahead(
    parents: Numbers,
    pointers: Numbers,
    heads: Numbers,
    weights: Floats,
    ahead: Floats,
    known: Bools,
    stack: Numbers,
    node: int,
) -> float:
    """The least cost from a node to a goal, closures apart.

    ``ahead`` has that of ``known`` nodes, and of others what :func:`climb_back` has left.
    """
    n = len(parents)
    size = 0
    above = node
    while above < n and not known[above]:
        stack[size] = above
        size += 1
        above = parents[above]
    for place in range(size - 1, -1, -1):
        here = stack[place]
        least = ahead[here]
        for arc in range(pointers[here], pointers[here + 1]):
            least = min(least, weights[arc] + ahead[heads[arc]])
        ahead[here] = least
        known[here] = True
    cost: float = ahead[node]
    return cost


@compiled(f"Tuple(({FLOATS}, {INTS}))({FLOATS}, {INTS}, i8)")
def with_room(keys: Floats, edges: Numbers, size: int) -> tuple[Floats, Numbers]:
    """A heap of ``size`` entries with room for one more."""
    if size == len(keys):
        keys = np.concatenate((keys, np.empty(size)))
        edges = np.concatenate((edges, np.empty(size, dtype=np.int32)))
    return keys, edges


@compiled(
    f"Tuple((f8, {INTS}))({FIXED}, {WEIGHTED}, {WEIGHTED}, {INTS}, {FIXED}, {INTS}, {INTS}, "
    f"{FLOATS}, b1[::1], {INTS}, {FLOATS}, {INTS}, {FLOATS}, f8)"
)
def detour(
    parents: Numbers,
    up_pointers: Numbers,
    up_heads: Numbers,
    up: Floats,
    down_pointers: Numbers,
    down_heads: Numbers,
    down: Floats,
    rank: Numbers,
    order: Numbers,
    turn_pointers: Numbers,
    turn_ends: Numbers,
    weights: Floats,
    closed: Bools,
    starts: Numbers,
    start_costs: Floats,
    goals: Numbers,
    goal_costs: Floats,
    limit: float,
) -> tuple[float, Numbers]:
    """The least cost up to ``limit`` on open edges, and the edges from a start to a goal; none: no way.

    A* over turns, guided by what the rest of a way would cost if nothing were closed. ``starts`` and
    ``goals`` are ranks.
    """
    n = len(parents)
    ahead = np.full(n, np.inf)
    known = np.zeros(n, dtype=np.bool_)
    stack = np.empty(n, dtype=np.int32)
    for place in range(len(goals)):
        ahead[goals[place]] = min(ahead[goals[place]], goal_costs[place])
    climb_back(parents, down_pointers, down_heads, down, goals, ahead)
    costs = np.full(n, np.inf)  # of edges, by number
    before = np.empty(n, dtype=np.int32)
    keys = np.empty(1024)
    edges = np.empty(1024, dtype=np.int32)
    size = 0
    best = limit
    best_last = NONE
    for place in range(len(starts)):
        edge = order[starts[place]]
        if start_costs[place] >= costs[edge]:
            continue
        costs[edge] = start_costs[place]
        before[edge] = NONE
        rest = cost_ahead(
            parents, up_pointers, up_heads, up, ahead, known, stack, rank[edge]
        )
        keys, edges = with_room(keys, edges, size)
        push(keys, edges, size, costs[edge] + rest, edge)
        size += 1
    while size > 0 and keys[0] <= best and keys[0] < np.inf:
        key = keys[0]
        edge = edges[0]
        pop(keys, edges, size)
        size -= 1
        cost = costs[edge]
        if key > cost + ahead[rank[edge]]:
            continue  # it became cheaper, and was handled then
        for place in range(len(goals)):
            if goals[place] == rank[edge] and cost + goal_costs[place] <= best:
                best = cost + goal_costs[place]
                best_last = edge
        for turn in range(turn_pointers[edge], turn_pointers[edge + 1]):
            after = turn_ends[turn]
            reached = cost + weights[turn]
            if closed[after] or reached >= costs[after]:
                continue
            rest = cost_ahead(
                parents, up_pointers, up_heads, up, ahead, known, stack, rank[after]
            )
            costs[after] = reached
            before[after] = edge
            if reached + rest > best or rest == np.inf:
                continue
            keys, edges = with_room(keys, edges, size)
            push(keys, edges, size, reached + rest, after)
            size += 1
    if best_last < 0:
        return best, np.empty(0, dtype=np.int32)
    # Without the goal that is added behind the last edge.
    return best, route_to(before, best_last, best_last)[:-1].copy()
