"""Updates, compiled: the costs of those arcs that depend on a few turns."""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats
from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import FIXED, FLOATS, GRAPH, INTS, NONE, arc_between


@compiled(f"void({GRAPH}, {INTS}, {INTS})")
def lower_arcs(
    pointers: Numbers, heads: Numbers, starts: Numbers, arcs: Numbers
) -> None:
    """Fill in the arcs into each node, sorted by tail; ``starts`` is where they begin, (n + 1,)."""
    place = starts.copy()
    for node in range(len(pointers) - 1):
        for arc in range(pointers[node], pointers[node + 1]):
            head = heads[arc]
            arcs[place[head]] = arc
            place[head] += 1


@compiled(f"i8({INTS}, i8, i4)")
def push_arc(heap: Numbers, size: int, arc: int) -> int:
    """Add an arc to a heap with room for it, the first arc on top; returns its new size."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if heap[parent] <= arc:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = arc
    return size + 1


@compiled(f"i8({INTS}, i8)")
def pop_arc(heap: Numbers, size: int) -> int:
    """Take the first arc off a heap; returns its new size."""
    last = size - 1
    arc = heap[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= arc:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = arc
    return last


@compiled(f"f8({INTS}, {INTS}, {FLOATS}, i8, i8)")
def turn_weight(
    turn_pointers: Numbers, turn_ends: Numbers, weights: Floats, first: int, second: int
) -> float:
    """w of the turn from one edge into another, infinite where there is none."""
    weight: float = np.inf
    for turn in range(turn_pointers[first], turn_pointers[first + 1]):
        if turn_ends[turn] == second:
            weight = weights[turn]
    return weight


@compiled(
    f"Tuple((f8, f8, i8, i8))({INTS}, {INTS}, {INTS}, {FLOATS}, {FLOATS}, i8, i8, f8, f8)"
)
def least_below(
    tails: Numbers,
    lower_starts: Numbers,
    lower: Numbers,
    up: Floats,
    down: Floats,
    tail: int,
    head: int,
    turn_up: float,
    turn_down: float,
) -> tuple[float, float, int, int]:
    """``up``, ``down`` and the middles of an arc, by its turns and by all nodes below both ends."""
    best_up = turn_up
    best_down = turn_down
    middle_up = NONE
    middle_down = NONE
    one = lower_starts[tail]
    other = lower_starts[head]
    while one < lower_starts[tail + 1] and other < lower_starts[head + 1]:
        to_tail = lower[one]
        to_head = lower[other]
        node = tails[to_tail]
        if node != tails[to_head]:
            if node < tails[to_head]:
                one += 1
            else:
                other += 1
            continue
        outwards = down[to_tail] + up[to_head]
        if outwards < best_up:
            best_up = outwards
            middle_up = node
        inwards = down[to_head] + up[to_tail]
        if inwards < best_down:
            best_down = inwards
            middle_down = node
        one += 1
        other += 1
    return best_up, best_down, middle_up, middle_down


@compiled(
    f"Tuple(({INTS}, i8))({GRAPH}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, {INTS}, i8, b1[::1], "
    "i8, i8)"
)
def push_above(
    pointers: Numbers,
    heads: Numbers,
    up: Floats,
    down: Floats,
    via_up: Numbers,
    via_down: Numbers,
    heap: Numbers,
    size: int,
    waiting: Bools,
    tail: int,
    changed: int,
) -> tuple[Numbers, int]:
    """Add the arcs to a heap that a changed arc of ``tail`` changes; returns it and its new size.

    Those are arcs between two heads of ``tail`` whose ways lead over it, or now cost as little over it.
    """
    begin = pointers[tail]
    end = pointers[tail + 1]
    if size + end - begin > len(heap):
        longer = np.empty(2 * len(heap) + end - begin, dtype=np.int32)
        longer[:size] = heap[:size]
        heap = longer
    for beside in range(begin, end):
        if beside == changed:
            continue
        near = min(beside, changed)
        far = max(beside, changed)
        arc = arc_between(pointers, heads, heads[near], heads[far])
        if arc < 0 or waiting[arc]:
            continue
        outwards = down[near] + up[far]
        inwards = down[far] + up[near]
        depends = via_up[arc] == tail or via_down[arc] == tail
        is_as_low = (outwards <= up[arc] and outwards < np.inf) or (
            inwards <= down[arc] and inwards < np.inf
        )
        if depends or is_as_low:
            waiting[arc] = True
            size = push_arc(heap, size, arc)
    return heap, size


@compiled(
    f"i8({GRAPH}, {INTS}, {INTS}, {INTS}, {FIXED}, {INTS}, {INTS}, {FLOATS}, "
    f"{FLOATS}, {FLOATS}, {INTS}, {INTS}, {INTS})"
)
def recustomise(
    pointers: Numbers,
    heads: Numbers,
    tails: Numbers,
    lower_starts: Numbers,
    lower: Numbers,
    order: Numbers,
    turn_pointers: Numbers,
    turn_ends: Numbers,
    weights: Floats,
    up: Floats,
    down: Floats,
    via_up: Numbers,
    via_down: Numbers,
    changed: Numbers,
) -> int:
    """Customise those arcs again that depend on ``changed`` ones; returns how many there were.

    Arcs come up by their numbers: those that begin before an arc are final by then.
    """
    waiting = np.zeros(len(heads), dtype=np.bool_)
    heap = np.empty(len(changed) + 64, dtype=np.int32)
    size = 0
    for arc in changed:
        if not waiting[arc]:
            waiting[arc] = True
            size = push_arc(heap, size, arc)
    count = 0
    while size > 0:
        arc = heap[0]
        size = pop_arc(heap, size)
        waiting[arc] = False
        count += 1
        tail = tails[arc]
        head = heads[arc]
        first = order[tail]
        second = order[head]
        turn_up = turn_weight(turn_pointers, turn_ends, weights, first, second)
        turn_down = turn_weight(turn_pointers, turn_ends, weights, second, first)
        best_up, best_down, middle_up, middle_down = least_below(
            tails, lower_starts, lower, up, down, tail, head, turn_up, turn_down
        )
        is_same = best_up == up[arc] and best_down == down[arc]
        up[arc] = best_up
        down[arc] = best_down
        via_up[arc] = middle_up
        via_down[arc] = middle_down
        if not is_same:
            heap, size = push_above(
                pointers,
                heads,
                up,
                down,
                via_up,
                via_down,
                heap,
                size,
                waiting,
                tail,
                arc,
            )
    return count
