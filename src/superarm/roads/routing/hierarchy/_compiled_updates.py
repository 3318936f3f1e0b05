"""Updates, compiled: the costs of those arcs that depend on a few turns.

Nodes come up from the bottom, each with those of its arcs that may have changed: a worklist. A changed arc
touches the arcs of the triangles above it, whose lower ends are higher.

``near`` and ``far`` are the arcs of both directions in either order, as in ``_compiled_customisation``.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats
from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import FIXED, FLOATS, GRAPH, INTS, NONE, WEIGHTED, arc_between

_BOOLS = "b1[::1]"
_LOWER = f"{INTS}, {INTS}, {INTS}"  # starts, arcs, tails
_TURNS = f"{FIXED}, {INTS}, {INTS}, {FLOATS}"  # order, pointers, ends, weights


@compiled(f"void({GRAPH}, {INTS}, {INTS}, {INTS})", nogil=True)
def lower_arcs(
    pointers: Numbers, heads: Numbers, starts: Numbers, arcs: Numbers, tails: Numbers
) -> None:
    """Fill in the arcs into each node, and their tails, which rise.

    ``starts`` is where the arcs of each node begin, (n + 1,).
    """
    place = starts.copy()
    for node in range(len(pointers) - 1):
        for arc in range(pointers[node], pointers[node + 1]):
            head = heads[arc]
            arcs[place[head]] = arc
            tails[place[head]] = node
            place[head] += 1


@compiled(f"{INTS}({INTS}, i8)", nogil=True)
def with_room(heap: Numbers, size: int) -> Numbers:
    """A heap of ``size`` nodes with room for one more: the same one, or a copy twice as long."""
    if size < len(heap):
        return heap
    longer = np.empty(2 * len(heap), dtype=np.int32)
    longer[:size] = heap
    return longer


@compiled(f"i8({INTS}, i8, i4)", nogil=True)
def push_node(heap: Numbers, size: int, node: int) -> int:
    """Add a node to a heap with room for it, the lowest node on top; returns its new size."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if heap[parent] <= node:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = node
    return size + 1


@compiled(f"i8({INTS}, i8)", nogil=True)
def pop_node(heap: Numbers, size: int) -> int:
    """Take the lowest node off a heap; returns its new size."""
    last = size - 1
    node = heap[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= node:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = node
    return last


@compiled(f"f8({_TURNS}, i8, i8)", nogil=True)
def turn_weight(
    order: Numbers,
    turn_pointers: Numbers,
    turn_ends: Numbers,
    weights: Floats,
    first: int,
    second: int,
) -> float:
    """w of the turn from one node into another, infinite where there is none."""
    edge = order[first]
    after = order[second]
    weight: float = np.inf
    for turn in range(turn_pointers[edge], turn_pointers[edge + 1]):
        if turn_ends[turn] == after:
            weight = weights[turn]
    return weight


@compiled(
    f"Tuple((f8, i8))({_LOWER}, {FLOATS}, {_LOWER}, {FLOATS}, i8, i8, f8)", nogil=True
)
def least_below(
    near_starts: Numbers,
    near_arcs: Numbers,
    near_tails: Numbers,
    near: Floats,
    far_starts: Numbers,
    far_arcs: Numbers,
    far_tails: Numbers,
    far: Floats,
    tail: int,
    head: int,
    turn_cost: float,
) -> tuple[float, int]:
    """The cost of a ``far`` arc by its turn and over all nodes below it, and its middle.

    Of equal ones the turn, then the lowest node, as in customisation.
    """
    best = turn_cost
    middle = NONE
    one = near_starts[tail]
    one_end = near_starts[tail + 1]
    if one == one_end:
        return best, middle
    # The head has many lower arcs: leave out those from nodes below all that lead to the tail.
    lowest = near_tails[one]
    other = far_starts[head]
    other_end = far_starts[head + 1]
    begin = other
    end = other_end
    while begin < end:
        half = (begin + end) // 2
        if far_tails[half] < lowest:
            begin = half + 1
        else:
            end = half
    other = begin
    while one < one_end and other < other_end:
        node = near_tails[one]
        other_node = far_tails[other]
        if node < other_node:
            one += 1
        elif other_node < node:
            other += 1
        else:
            over = near[near_arcs[one]] + far[far_arcs[other]]
            if over < best:
                best = over
                middle = node
            one += 1
            other += 1
    return best, middle


@compiled(
    f"Tuple(({INTS}, i8))({WEIGHTED}, {WEIGHTED}, {INTS}, i8, i8, {INTS}, i8, {_BOOLS}, {_BOOLS})",
    nogil=True,
)
def push_above(
    near_pointers: Numbers,
    near_heads: Numbers,
    near: Floats,
    far_pointers: Numbers,
    far_heads: Numbers,
    far: Floats,
    far_via: Numbers,
    node: int,
    changed: int,
    heap: Numbers,
    size: int,
    is_queued: Bools,
    is_due: Bools,
) -> tuple[Numbers, int]:
    """Mark the ``far`` arcs that a changed ``near`` arc of a node changes; returns the heap and its size.

    Those are arcs from its head to a higher head of the node, whose ways lead over the node, or now
    cost as little over it.
    """
    lower = near_heads[changed]
    cost = near[changed]
    arc = far_pointers[lower]
    end = far_pointers[lower + 1]
    any_due = False
    for other in range(far_pointers[node], far_pointers[node + 1]):
        upper = far_heads[other]
        if upper <= lower:
            continue
        while arc < end and far_heads[arc] < upper:
            arc += 1
        if arc == end:
            break
        over = cost + far[other]
        is_as_low = over <= far[arc] and over < np.inf
        if is_as_low or far_via[arc] == node:
            is_due[arc] = True
            any_due = True
    if any_due and not is_queued[lower]:
        is_queued[lower] = True
        heap = with_room(heap, size)
        size = push_node(heap, size, lower)
    return heap, size


@compiled(
    f"Tuple(({INTS}, i8))({WEIGHTED}, {WEIGHTED}, {INTS}, i8, i8, {INTS}, i8, {_BOOLS}, {_BOOLS})",
    nogil=True,
)
def push_beside(
    near_pointers: Numbers,
    near_heads: Numbers,
    near: Floats,
    far_pointers: Numbers,
    far_heads: Numbers,
    far: Floats,
    far_via: Numbers,
    node: int,
    changed: int,
    heap: Numbers,
    size: int,
    is_queued: Bools,
    is_due: Bools,
) -> tuple[Numbers, int]:
    """Mark the ``far`` arcs that a changed ``far`` arc of a node changes; returns the heap and its size.

    Those are arcs from lower heads of its ``near`` arcs to the head of the changed one.
    """
    upper = far_heads[changed]
    cost = far[changed]
    for one in range(near_pointers[node], near_pointers[node + 1]):
        lower = near_heads[one]
        if lower >= upper:
            break
        arc = arc_between(far_pointers, far_heads, lower, upper)
        if arc < 0:
            continue
        over = near[one] + cost
        is_as_low = over <= far[arc] and over < np.inf
        if not is_as_low and far_via[arc] != node:
            continue
        is_due[arc] = True
        if is_queued[lower]:
            continue
        is_queued[lower] = True
        heap = with_room(heap, size)
        size = push_node(heap, size, lower)
    return heap, size


@compiled(
    f"i8({_LOWER}, {FLOATS}, {WEIGHTED}, {_LOWER}, {INTS}, {_TURNS}, b1, i8, {_BOOLS}, {INTS})",
    nogil=True,
)
def customise_due(
    near_starts: Numbers,
    near_arcs: Numbers,
    near_tails: Numbers,
    near: Floats,
    far_pointers: Numbers,
    far_heads: Numbers,
    far: Floats,
    far_starts: Numbers,
    far_arcs: Numbers,
    far_tails: Numbers,
    far_via: Numbers,
    order: Numbers,
    turn_pointers: Numbers,
    turn_ends: Numbers,
    weights: Floats,
    rises: bool,
    node: int,
    is_due: Bools,
    changed: Numbers,
) -> int:
    """Customise the ``far`` arcs of a node that are due; returns how many costs ``changed``."""
    count = 0
    for arc in range(far_pointers[node], far_pointers[node + 1]):
        if not is_due[arc]:
            continue
        is_due[arc] = False
        head = far_heads[arc]
        first = node if rises else head
        second = head if rises else node
        turn_cost = turn_weight(order, turn_pointers, turn_ends, weights, first, second)
        cost, middle = least_below(
            near_starts,
            near_arcs,
            near_tails,
            near,
            far_starts,
            far_arcs,
            far_tails,
            far,
            node,
            head,
            turn_cost,
        )
        if cost != far[arc]:
            changed[count] = arc
            count += 1
        far[arc] = cost
        far_via[arc] = middle
    return count


@compiled(
    f"i8({GRAPH}, {GRAPH}, {_LOWER}, {_LOWER}, {_TURNS}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, "
    f"{INTS}, {INTS}, {INTS})",
    nogil=True,
)
def recustomise(
    up_pointers: Numbers,
    up_heads: Numbers,
    down_pointers: Numbers,
    down_heads: Numbers,
    up_starts: Numbers,
    up_arcs: Numbers,
    up_tails: Numbers,
    down_starts: Numbers,
    down_arcs: Numbers,
    down_tails: Numbers,
    order: Numbers,
    turn_pointers: Numbers,
    turn_ends: Numbers,
    weights: Floats,
    up: Floats,
    down: Floats,
    via_up: Numbers,
    via_down: Numbers,
    due_up: Numbers,
    due_down: Numbers,
    nodes: Numbers,
) -> int:
    """Customise those arcs again that depend on arcs that are due; returns at how many nodes.

    ``nodes`` are the lower ends of the arcs that are due at first.
    """
    n = len(up_pointers) - 1
    is_queued = np.zeros(n, dtype=np.bool_)
    is_due_up = np.zeros(len(up_heads), dtype=np.bool_)
    is_due_down = np.zeros(len(down_heads), dtype=np.bool_)
    for arc in due_up:
        is_due_up[arc] = True
    for arc in due_down:
        is_due_down[arc] = True
    heap = np.empty(len(nodes) + 64, dtype=np.int32)
    size = 0
    for node in nodes:
        if not is_queued[node]:
            is_queued[node] = True
            size = push_node(heap, size, node)
    changed_up = np.empty(n, dtype=np.int32)
    changed_down = np.empty(n, dtype=np.int32)
    count = 0
    while size > 0:
        node = heap[0]
        size = pop_node(heap, size)
        is_queued[node] = False
        count += 1
        count_up = customise_due(
            down_starts,
            down_arcs,
            down_tails,
            down,
            up_pointers,
            up_heads,
            up,
            up_starts,
            up_arcs,
            up_tails,
            via_up,
            order,
            turn_pointers,
            turn_ends,
            weights,
            True,
            node,
            is_due_up,
            changed_up,
        )
        count_down = customise_due(
            up_starts,
            up_arcs,
            up_tails,
            up,
            down_pointers,
            down_heads,
            down,
            down_starts,
            down_arcs,
            down_tails,
            via_down,
            order,
            turn_pointers,
            turn_ends,
            weights,
            False,
            node,
            is_due_down,
            changed_down,
        )
        for place in range(count_up):
            arc = changed_up[place]
            heap, size = push_beside(
                down_pointers,
                down_heads,
                down,
                up_pointers,
                up_heads,
                up,
                via_up,
                node,
                arc,
                heap,
                size,
                is_queued,
                is_due_up,
            )
            heap, size = push_above(
                up_pointers,
                up_heads,
                up,
                down_pointers,
                down_heads,
                down,
                via_down,
                node,
                arc,
                heap,
                size,
                is_queued,
                is_due_down,
            )
        for place in range(count_down):
            arc = changed_down[place]
            heap, size = push_beside(
                up_pointers,
                up_heads,
                up,
                down_pointers,
                down_heads,
                down,
                via_down,
                node,
                arc,
                heap,
                size,
                is_queued,
                is_due_down,
            )
            heap, size = push_above(
                down_pointers,
                down_heads,
                down,
                up_pointers,
                up_heads,
                up,
                via_up,
                node,
                arc,
                heap,
                size,
                is_queued,
                is_due_up,
            )
    return count
