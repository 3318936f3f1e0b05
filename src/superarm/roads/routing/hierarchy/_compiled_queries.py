"""Queries, compiled: the cheapest way between two places, and the edges on it."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import FIXED, FLOATS, GRAPH, INTS, NONE, WEIGHTED, arc_between


@compiled(f"i8({FIXED}, {INTS}, i8)")
def step_cursors(parents: Numbers, cursors: Numbers, node: int) -> int:
    """Move the cursors at a node to its parent, as one; returns the first node of all."""
    n = len(parents)
    parent = parents[node]
    has_moved = False
    lowest = n
    for place in range(len(cursors)):
        if cursors[place] == node:
            cursors[place] = n if has_moved else parent
            has_moved = True
        lowest = min(lowest, cursors[place])
    return lowest


@compiled(
    f"Tuple((f8, i8))({FIXED}, {WEIGHTED}, {WEIGHTED}, {INTS}, {FLOATS}, {INTS}, {FLOATS}, f8, "
    f"{FLOATS}, {FLOATS}, {INTS}, {INTS})"
)
def meet(
    parents: Numbers,
    up_pointers: Numbers,
    up_heads: Numbers,
    up: Floats,
    down_pointers: Numbers,
    down_heads: Numbers,
    down: Floats,
    starts: Numbers,
    start_costs: Floats,
    goals: Numbers,
    goal_costs: Floats,
    limit: float,
    out: Floats,
    back: Floats,
    before: Numbers,
    behind: Numbers,
) -> tuple[float, int]:
    """The least cost up to ``limit``, and the highest node of a way that costs it; −1: none.

    ``out`` and ``back`` are infinite everywhere before and after. ``before`` and ``behind`` receive the
    nodes next to each on ways from a start and to a goal; −1 at starts and goals.
    """
    n = len(parents)
    cursors = np.concatenate((starts, goals))
    for place in range(len(starts)):
        node = starts[place]
        out[node] = min(out[node], start_costs[place])
        before[node] = NONE
    for place in range(len(goals)):
        node = goals[place]
        back[node] = min(back[node], goal_costs[place])
        behind[node] = NONE
    best = limit
    top = NONE
    node = n
    for cursor in cursors:
        node = min(node, cursor)
    while node < n:
        from_start = out[node]
        to_goal = back[node]
        out[node] = np.inf
        back[node] = np.inf
        if from_start + to_goal <= best and from_start + to_goal < np.inf:
            best = from_start + to_goal
            top = node
        if from_start < np.inf and from_start <= best:
            for arc in range(up_pointers[node], up_pointers[node + 1]):
                head = up_heads[arc]
                reached = from_start + up[arc]
                if reached < out[head]:
                    out[head] = reached
                    before[head] = node
        if to_goal < np.inf and to_goal <= best:
            for arc in range(down_pointers[node], down_pointers[node + 1]):
                head = down_heads[arc]
                reached = to_goal + down[arc]
                if reached < back[head]:
                    back[head] = reached
                    behind[head] = node
        node = step_cursors(parents, cursors, node)
    return best, top


@compiled(f"i8({GRAPH}, {GRAPH}, {INTS}, {INTS}, i8, i8)")
def middle_of(
    up_pointers: Numbers,
    up_heads: Numbers,
    down_pointers: Numbers,
    down_heads: Numbers,
    via_up: Numbers,
    via_down: Numbers,
    first: int,
    second: int,
) -> int:
    """The node between two on the way that their arc stands for; −1: none, it is a turn."""
    middle: int = NONE
    if first < second:
        arc = arc_between(up_pointers, up_heads, first, second)
        if arc >= 0:
            middle = via_up[arc]
    else:
        arc = arc_between(down_pointers, down_heads, second, first)
        if arc >= 0:
            middle = via_down[arc]
    return middle


@compiled(f"{INTS}({GRAPH}, {GRAPH}, {INTS}, {INTS}, {INTS}, {INTS}, i8)")
def unpack(
    up_pointers: Numbers,
    up_heads: Numbers,
    down_pointers: Numbers,
    down_heads: Numbers,
    via_up: Numbers,
    via_down: Numbers,
    before: Numbers,
    behind: Numbers,
    top: int,
) -> Numbers:
    """All nodes of the way over ``top`` that :func:`meet` has found."""
    n = len(up_pointers) - 1
    first = top
    count = 1
    while before[first] >= 0 and count < n:
        first = before[first]
        count += 1
    node = top
    while behind[node] >= 0 and count < n:
        node = behind[node]
        count += 1
    # The nodes that are still to come, the next one last; at first those behind the start.
    stack = np.empty(2 * count, dtype=np.int32)
    size = count - 1
    node = top
    rises = 0
    while before[node] >= 0 and rises < size:
        node = before[node]
        rises += 1
    node = top
    for place in range(size - rises, size):
        stack[place] = node
        node = before[node]
    node = top
    for place in range(size - rises - 1, -1, -1):
        node = behind[node]
        stack[place] = node
    route = np.empty(256, dtype=np.int32)
    route[0] = first
    length = 1
    while size > 0:
        last = route[length - 1]
        following = stack[size - 1]
        middle = middle_of(
            up_pointers,
            up_heads,
            down_pointers,
            down_heads,
            via_up,
            via_down,
            last,
            following,
        )
        if middle >= 0:
            if size == len(stack):
                stack = np.concatenate((stack, np.empty(size, dtype=np.int32)))
            stack[size] = middle
            size += 1
            continue
        if length == len(route):
            route = np.concatenate((route, np.empty(length, dtype=np.int32)))
        route[length] = following
        length += 1
        size -= 1
    return route[:length].copy()
