"""The search by landmarks as compiled loops (extra ``[fast]``); the notation is that of ``search``.

A* with a binary heap of (cost so far + π, edge). An edge that becomes cheaper is pushed again, and its
old entry skipped when it comes up. π is computed for edges that are reached, and for no others.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.compiling import compiled

from .search import BestPath, Ends, Numbers, best_marks, partial_way

_FLOATS, _INTS, _TABLE, _HEAP = (
    "f8[::1]",
    "i4[::1]",
    "f8[:, ::1]",
    "f8[::1], i4[::1], i8",
)


class CompiledSearch:
    """Routes by landmarks; made of a ``Search``'s pointers, ends of turns, w, c and marks."""

    def __init__(
        self,
        pointers: Numbers,
        second: Numbers,
        weights: Floats,
        costs: Floats,
        marks: Floats,
    ) -> None:
        self._pointers, self._second = pointers, second
        self._weights, self._costs = np.ascontiguousarray(weights), costs
        self._nothing_closed = np.zeros(0, dtype=np.bool_)
        self._marks = np.ascontiguousarray(
            marks.T
        )  # (n, 2·landmarks): those of an edge side by side

    def find(
        self, starts: Ends, goals: Ends, closed: Bools | None, limit: float
    ) -> BestPath:
        """The cheapest route of two or more edges that costs no more than ``limit``."""
        marks = self._marks
        used = np.stack(
            [best_marks(marks[starts.edges[0]], marks[edge]) for edge in goals.edges]
        )
        cost, goal, edges = search(
            self._pointers,
            self._second,
            self._weights,
            self._nothing_closed if closed is None else closed,
            marks,
            used,
            starts.edges.astype(np.int32),
            (1.0 - starts.shares) * self._costs[starts.edges],
            goals.edges.astype(np.int32),
            (1.0 - goals.shares) * self._costs[goals.edges],
            limit,
        )
        if goal < 0:
            return BestPath(np.inf, None)
        return BestPath(
            cost, partial_way(edges.astype(np.intp), starts, float(goals.shares[goal]))
        )


@compiled(f"void({_HEAP}, f8, i4)")
def push(keys: Floats, edges: Numbers, size: int, key: float, edge: int) -> None:
    """Add an entry to a heap of ``size`` entries, for which there is room."""
    at = size
    while at > 0:
        above = (at - 1) // 2
        if keys[above] <= key:
            break
        keys[at], edges[at] = keys[above], edges[above]
        at = above
    keys[at], edges[at] = key, edge


@compiled(f"void({_HEAP})")
def pop(keys: Floats, edges: Numbers, size: int) -> None:
    """Take the first entry off a heap of ``size`` entries."""
    last = size - 1
    key, edge, at = keys[last], edges[last], 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if below + 1 < last and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], edges[at] = keys[below], edges[below]
        at = below
    keys[at], edges[at] = key, edge


@compiled(f"f8({_TABLE}, i8[:, ::1], {_INTS}, {_FLOATS}, i8)")
def bound(
    marks: Floats, used: Ints, goals: Numbers, spared: Floats, edge: int
) -> float:
    """π of an edge."""
    least = np.inf
    for goal in range(len(goals)):
        largest = 0.0
        for mark in used[goal]:
            largest = max(largest, marks[goals[goal], mark] - marks[edge, mark])
        least = min(least, largest - spared[goal])
    return least


@compiled(f"i8({_INTS}, i8)")
def place_of(goals: Numbers, edge: int) -> int:
    """Which of the goals an edge is; −1: none of them."""
    for goal in range(len(goals)):
        if goals[goal] == edge:
            return goal
    return -1


@compiled(f"{_INTS}({_INTS}, i8, i8)")
def route_to(before: Numbers, last: int, goal: int) -> Numbers:
    """The edges from a start, before which there is −1, to the last but one, and the goal."""
    count, edge = 1, last
    while edge >= 0:
        count, edge = count + 1, before[edge]
    route = np.empty(count, dtype=np.int32)
    route[count - 1], edge = goal, last
    for place in range(count - 2, -1, -1):
        route[place] = edge
        edge = before[edge]
    return route


@compiled(
    f"Tuple((f8, i8, {_INTS}))({_INTS}, {_INTS}, {_FLOATS}, b1[::1], {_TABLE}, i8[:, ::1], "
    f"{_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, f8)"
)
def search(
    pointers: Numbers,
    ends: Numbers,
    weights: Floats,
    closed: Bools,
    marks: Floats,
    used: Ints,
    starts: Numbers,
    entering: Floats,
    goals: Numbers,
    spared: Floats,
    limit: float,
) -> tuple[float, int, Numbers]:
    """The least cost up to ``limit``, the goal's place among the goals (−1: none), and the route.

    ``entering``: cost up to the end of each start. ``spared``: (1 − g)·c of each goal. ``closed`` may
    be empty: all edges are open.
    """
    n = len(pointers) - 1
    costs, bounds, before = np.full(n, np.inf), np.empty(n), np.empty(n, dtype=np.int32)
    keys, edges, size = np.empty(1024), np.empty(1024, dtype=np.int32), 0
    best, best_goal, best_last = limit, -1, -1
    for number in range(len(starts)):
        edge = starts[number]
        costs[edge], before[edge] = entering[number], -1
        bounds[edge] = bound(marks, used, goals, spared, edge)
        push(keys, edges, size, costs[edge] + bounds[edge], edge)
        size += 1
    while size > 0 and keys[0] <= best:
        key, edge = keys[0], edges[0]
        pop(keys, edges, size)
        size -= 1
        cost = costs[edge]
        if key > cost + bounds[edge]:
            continue  # it has become cheaper since, and was handled then
        for turn in range(pointers[edge], pointers[edge + 1]):
            after, reached = ends[turn], cost + weights[turn]
            if len(closed) > 0 and closed[after]:
                continue
            goal = place_of(goals, after)
            if goal >= 0 and reached - spared[goal] <= best:
                best, best_goal, best_last = reached - spared[goal], goal, edge
            if reached >= costs[after]:
                continue
            if costs[after] == np.inf:
                bounds[after] = bound(marks, used, goals, spared, after)
            costs[after], before[after] = reached, edge
            if reached + bounds[after] <= best:
                if size == len(keys):
                    keys = np.concatenate((keys, np.empty(size)))
                    edges = np.concatenate((edges, np.empty(size, dtype=np.int32)))
                push(keys, edges, size, reached + bounds[after], after)
                size += 1
    if best_goal < 0:
        return best, -1, np.empty(0, dtype=np.int32)
    return best, best_goal, route_to(before, best_last, goals[best_goal])
