"""The search by landmarks as compiled loops (extra ``[fast]``); the notation is that of ``search``.

A* with a binary heap of (cost so far + π, edge). An edge that becomes cheaper is pushed once more, and
its old entry skipped when it comes up. π is computed only for edges that are reached.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.compiling import compiled

from .search import BestPath, Ends, Numbers, best_marks, partial_path

# Types of arguments, as numba writes them.
_FLOATS = "f8[::1]"
_INTS = "i4[::1]"
_TABLE = "f8[:, ::1]"
_HEAP = "f8[::1], i4[::1], i8"
_FIRST_ROOM = 1024  # of the heap


class CompiledSearch:
    """Routes by landmarks.

    Args:
        pointers: Where the turns of each edge begin, (n + 1,).
        second: The edge that each turn enters, (a,).
        weights: w, (a,).
        costs: c, (n,).
        marks: d(L, v) and −d(v, L), (2·landmarks, n).
    """

    def __init__(
        self,
        pointers: Numbers,
        second: Numbers,
        weights: Floats,
        costs: Floats,
        marks: Floats,
    ) -> None:
        self._pointers = pointers
        self._second = second
        self._weights = np.ascontiguousarray(weights)
        self._costs = costs
        self._nothing_closed = np.zeros(0, dtype=np.bool_)
        # (n, 2·landmarks): those of an edge side by side.
        self._marks = np.ascontiguousarray(marks.T)

    def find(
        self, starts: Ends, goals: Ends, closed: Bools | None, limit: float
    ) -> BestPath:
        """The cheapest route of two or more edges.

        Args:
            starts: Where it may begin.
            goals: Where it may end.
            closed: Edges that are not used, (n,).
            limit: The largest cost.
        """
        marks = self._marks
        first_start = marks[starts.edges[0]]
        used = np.stack([best_marks(first_start, marks[edge]) for edge in goals.edges])
        if closed is None:
            closed = self._nothing_closed
        entering = (1.0 - starts.shares) * self._costs[starts.edges]
        spared = (1.0 - goals.shares) * self._costs[goals.edges]
        cost, goal, edges = search(
            self._pointers,
            self._second,
            self._weights,
            closed,
            marks,
            used,
            starts.edges.astype(np.int32),
            entering,
            goals.edges.astype(np.int32),
            spared,
            limit,
        )
        if goal < 0:
            return BestPath(np.inf, None)
        goal_share = float(goals.shares[goal])
        path = partial_path(edges.astype(np.intp), starts, goal_share)
        return BestPath(cost, path)


@compiled(f"void({_HEAP}, f8, i4)")
def push(keys: Floats, edges: Numbers, size: int, key: float, edge: int) -> None:
    """Add an entry to a heap of ``size`` entries, for which there is room."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if keys[parent] <= key:
            break
        keys[place] = keys[parent]
        edges[place] = edges[parent]
        place = parent
    keys[place] = key
    edges[place] = edge


@compiled(f"void({_HEAP})")
def pop(keys: Floats, edges: Numbers, size: int) -> None:
    """Take the first entry off a heap of ``size`` entries."""
    last = size - 1
    key = keys[last]
    edge = edges[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place] = keys[child]
        edges[place] = edges[child]
        place = child
    keys[place] = key
    edges[place] = edge


@compiled(f"f8({_TABLE}, i8[:, ::1], {_INTS}, {_FLOATS}, i8)")
def bound(
    marks: Floats, used: Ints, goals: Numbers, spared: Floats, edge: int
) -> float:
    """π of an edge; ``spared`` is (1 − g)·c of each goal."""
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
    count = 1
    edge = last
    while edge >= 0:
        count += 1
        edge = before[edge]
    route = np.empty(count, dtype=np.int32)
    route[count - 1] = goal
    edge = last
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
    costs = np.full(n, np.inf)
    bounds = np.empty(n)
    before = np.empty(n, dtype=np.int32)
    keys = np.empty(_FIRST_ROOM)
    edges = np.empty(_FIRST_ROOM, dtype=np.int32)
    size = 0
    best = limit
    best_goal = -1
    best_last = -1
    for number in range(len(starts)):
        edge = starts[number]
        costs[edge] = entering[number]
        before[edge] = -1
        bounds[edge] = bound(marks, used, goals, spared, edge)
        push(keys, edges, size, costs[edge] + bounds[edge], edge)
        size += 1
    while size > 0 and keys[0] <= best:
        key = keys[0]
        edge = edges[0]
        pop(keys, edges, size)
        size -= 1
        cost = costs[edge]
        if key > cost + bounds[edge]:
            continue  # it became cheaper, and was handled then
        for turn in range(pointers[edge], pointers[edge + 1]):
            after = ends[turn]
            reached = cost + weights[turn]
            if len(closed) > 0 and closed[after]:
                continue
            goal = place_of(goals, after)
            if goal >= 0 and reached - spared[goal] <= best:
                best = reached - spared[goal]
                best_goal = goal
                best_last = edge
            if reached >= costs[after]:
                continue
            if costs[after] == np.inf:
                bounds[after] = bound(marks, used, goals, spared, after)
            costs[after] = reached
            before[after] = edge
            if reached + bounds[after] <= best:
                if size == len(keys):
                    keys = np.concatenate((keys, np.empty(size)))
                    edges = np.concatenate((edges, np.empty(size, dtype=np.int32)))
                push(keys, edges, size, reached + bounds[after], after)
                size += 1
    if best_goal < 0:
        return best, -1, np.empty(0, dtype=np.int32)
    return best, best_goal, route_to(before, best_last, goals[best_goal])
