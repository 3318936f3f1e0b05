"""Loops of the contraction hierarchy, compiled (extra ``[fast]``); the notation is that of ``hierarchy``.

Nodes are ranks: node 0 is contracted first. ``heads`` of a node are sorted, so that an arc is found by
bisection, and the first head is the node's parent in the elimination tree. Every loop also ends on arrays
that do not fit together, as a damaged file may hold them.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.compiling import compiled

from ._compiled import pop, push, route_to
from .search import Numbers

# Types of arguments, as numba writes them.
_INTS = "i4[::1]"
_FLOATS = "f8[::1]"
# Arrays of a hierarchy may be read-only: memory-mapped files.
_FIXED = "Array(i4, 1, 'C', readonly=True)"
_GRAPH = f"{_FIXED}, {_FIXED}"  # pointers, heads
_WEIGHTED = f"{_GRAPH}, {_FLOATS}"
_NONE = -1


@compiled(f"Tuple(({_INTS}, {_INTS}))({_GRAPH})")
def complete(pointers: Numbers, heads: Numbers) -> tuple[Numbers, Numbers]:
    """Pointers and heads with all shortcuts, from the later neighbours of each node.

    The later neighbours of a node's children in the elimination tree become its own.
    """
    n = len(pointers) - 1
    full_pointers = np.zeros(n + 1, dtype=np.int32)
    full_heads = np.empty(max(4 * len(heads), 16), dtype=np.int32)
    seen = np.full(n, _NONE, dtype=np.int32)  # the node that has met each node last
    first_child = np.full(n, _NONE, dtype=np.int32)
    sibling = np.full(n, _NONE, dtype=np.int32)
    found = np.empty(n, dtype=np.int32)
    size = 0
    for node in range(n):
        count = 0
        seen[node] = node
        for place in range(pointers[node], pointers[node + 1]):
            head = heads[place]
            if seen[head] != node:
                seen[head] = node
                found[count] = head
                count += 1
        child = first_child[node]
        while child >= 0:
            for place in range(full_pointers[child], full_pointers[child + 1]):
                head = full_heads[place]
                if seen[head] != node:
                    seen[head] = node
                    found[count] = head
                    count += 1
            child = sibling[child]
        if size + count > len(full_heads):
            longer = np.empty(2 * len(full_heads) + count, dtype=np.int32)
            longer[:size] = full_heads[:size]
            full_heads = longer
        later = np.sort(found[:count])
        full_heads[size : size + count] = later
        size += count
        full_pointers[node + 1] = size
        if count > 0:
            parent = later[0]
            sibling[node] = first_child[parent]
            first_child[parent] = node
    return full_pointers, full_heads[:size].copy()


@compiled(f"i8({_GRAPH}, i8, i8)")
def arc_between(pointers: Numbers, heads: Numbers, lower: int, upper: int) -> int:
    """The arc from a node to a later one; −1: none."""
    begin = pointers[lower]
    end = pointers[lower + 1]
    last = end
    while begin < end:
        middle = (begin + end) // 2
        if heads[middle] < upper:
            begin = middle + 1
        else:
            end = middle
    is_found = begin < last and heads[begin] == upper
    arc: int = begin if is_found else _NONE
    return arc


@compiled(f"{_INTS}({_GRAPH}, {_INTS}, {_INTS})")
def arcs_between(
    pointers: Numbers, heads: Numbers, ones: Numbers, others: Numbers
) -> Numbers:
    """The arc of each pair of nodes, in either direction; −1: none."""
    arcs = np.empty(len(ones), dtype=np.int32)
    for pair in range(len(ones)):
        lower = min(ones[pair], others[pair])
        upper = max(ones[pair], others[pair])
        arcs[pair] = arc_between(pointers, heads, lower, upper)
    return arcs


@compiled(f"void({_GRAPH}, {_FLOATS}, {_FLOATS}, {_INTS}, {_INTS})")
def customise(
    pointers: Numbers,
    heads: Numbers,
    up: Floats,
    down: Floats,
    via_up: Numbers,
    via_down: Numbers,
) -> None:
    """Lower ``up`` and ``down`` from the costs of turns to those of shortcuts.

    Node by node, the ways a → node → b and b → node → a between two of its later neighbours.
    """
    for node in range(len(pointers) - 1):
        end = pointers[node + 1]
        for first in range(pointers[node], end):
            if up[first] == np.inf and down[first] == np.inf:
                continue
            near = heads[first]
            arc = pointers[near]
            near_end = pointers[near + 1]
            for second in range(first + 1, end):
                far = heads[second]
                while arc < near_end and heads[arc] < far:
                    arc += 1
                if arc == near_end:
                    break
                outwards = down[first] + up[second]
                if outwards < up[arc]:
                    up[arc] = outwards
                    via_up[arc] = node
                inwards = down[second] + up[first]
                if inwards < down[arc]:
                    down[arc] = inwards
                    via_down[arc] = node


@compiled(f"void({_GRAPH}, {_FLOATS}, {_FLOATS})")
def shorten(pointers: Numbers, heads: Numbers, up: Floats, down: Floats) -> None:
    """Lower customised ``up`` and ``down`` to the costs of the cheapest ways of all.

    Node by node from the top, by ways over its other later neighbours.
    """
    for node in range(len(pointers) - 2, -1, -1):
        end = pointers[node + 1]
        for first in range(pointers[node], end):
            near = heads[first]
            arc = pointers[near]
            near_end = pointers[near + 1]
            for second in range(first + 1, end):
                far = heads[second]
                while arc < near_end and heads[arc] < far:
                    arc += 1
                if arc == near_end:
                    break
                up[first] = min(up[first], up[second] + down[arc])
                up[second] = min(up[second], up[first] + up[arc])
                down[first] = min(down[first], up[arc] + down[second])
                down[second] = min(down[second], down[arc] + down[first])


@compiled(f"void({_GRAPH}, {_INTS}, {_INTS})")
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


@compiled(f"i8({_INTS}, i8, i4)")
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


@compiled(f"i8({_INTS}, i8)")
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


@compiled(f"f8({_INTS}, {_INTS}, {_FLOATS}, i8, i8)")
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
    f"Tuple((f8, f8, i8, i8))({_INTS}, {_INTS}, {_INTS}, {_FLOATS}, {_FLOATS}, i8, i8, f8, f8)"
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
    middle_up = _NONE
    middle_down = _NONE
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
    f"Tuple(({_INTS}, i8))({_GRAPH}, {_FLOATS}, {_FLOATS}, {_INTS}, {_INTS}, {_INTS}, i8, b1[::1], "
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
    f"i8({_GRAPH}, {_INTS}, {_INTS}, {_INTS}, {_FIXED}, {_INTS}, {_INTS}, {_FLOATS}, "
    f"{_FLOATS}, {_FLOATS}, {_INTS}, {_INTS}, {_INTS})"
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


@compiled(f"i8({_INTS}, {_INTS}, i8)")
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
    f"Tuple((f8, i8))({_INTS}, {_WEIGHTED}, {_WEIGHTED}, {_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, f8, "
    f"{_FLOATS}, {_FLOATS}, {_INTS}, {_INTS})"
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
        before[node] = _NONE
    for place in range(len(goals)):
        node = goals[place]
        back[node] = min(back[node], goal_costs[place])
        behind[node] = _NONE
    best = limit
    top = _NONE
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


@compiled(f"{_INTS}({_GRAPH}, {_INTS}, {_INTS}, {_INTS}, {_INTS}, i8)")
def unpack(
    pointers: Numbers,
    heads: Numbers,
    via_up: Numbers,
    via_down: Numbers,
    before: Numbers,
    behind: Numbers,
    top: int,
) -> Numbers:
    """All nodes of the way over ``top`` that :func:`meet` has found."""
    n = len(pointers) - 1
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
        lower = min(last, following)
        upper = max(last, following)
        arc = arc_between(pointers, heads, lower, upper)
        middle = _NONE
        if arc >= 0:
            middle = via_up[arc] if last < following else via_down[arc]
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


@compiled(f"void({_INTS}, {_WEIGHTED}, {_INTS}, {_FLOATS})")
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


@compiled(f"f8({_INTS}, {_WEIGHTED}, {_FLOATS}, b1[::1], {_INTS}, i8)")
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


@compiled(f"Tuple(({_FLOATS}, {_INTS}))({_FLOATS}, {_INTS}, i8)")
def with_room(keys: Floats, edges: Numbers, size: int) -> tuple[Floats, Numbers]:
    """A heap of ``size`` entries with room for one more."""
    if size == len(keys):
        keys = np.concatenate((keys, np.empty(size)))
        edges = np.concatenate((edges, np.empty(size, dtype=np.int32)))
    return keys, edges


@compiled(
    f"Tuple((f8, {_INTS}))({_INTS}, {_WEIGHTED}, {_WEIGHTED}, {_INTS}, {_FIXED}, {_INTS}, {_INTS}, "
    f"{_FLOATS}, b1[::1], {_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, f8)"
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
    best_last = _NONE
    for place in range(len(starts)):
        edge = order[starts[place]]
        if start_costs[place] >= costs[edge]:
            continue
        costs[edge] = start_costs[place]
        before[edge] = _NONE
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


@compiled(
    f"i8({_INTS}, {_WEIGHTED}, {_INTS}, {_FLOATS}, {_FLOATS}, {_INTS}, {_FLOATS})"
)
def climb(
    parents: Numbers,
    pointers: Numbers,
    heads: Numbers,
    weights: Floats,
    starts: Numbers,
    start_costs: Floats,
    costs: Floats,
    nodes: Numbers,
    reached: Floats,
) -> int:
    """Least costs to all later nodes over rising arcs alone; returns how many ``nodes`` were reached.

    ``costs`` is infinite everywhere before and after. ``nodes`` and ``reached`` have room for n each.
    """
    n = len(parents)
    cursors = starts.copy()
    node = n
    for place in range(len(starts)):
        start = starts[place]
        costs[start] = min(costs[start], start_costs[place])
        node = min(node, start)
    count = 0
    while node < n:
        cost = costs[node]
        costs[node] = np.inf
        if cost < np.inf:
            nodes[count] = node
            reached[count] = cost
            count += 1
            for arc in range(pointers[node], pointers[node + 1]):
                head = heads[arc]
                costs[head] = min(costs[head], cost + weights[arc])
        node = step_cursors(parents, cursors, node)
    return count


@compiled(
    f"void({_INTS}, i8[::1], i8[::1], {_FLOATS}, {_INTS}, {_FLOATS}, i8, {_FLOATS})"
)
def join(
    place_of: Numbers,
    bucket_starts: Ints,
    bucket_rows: Ints,
    bucket_costs: Floats,
    nodes: Numbers,
    reached: Floats,
    count: int,
    column: Floats,
) -> None:
    """The least cost of each row over the nodes that a climb from a goal has reached.

    ``place_of`` is the bucket of each node, −1 where no start has reached it.
    """
    for number in range(count):
        bucket = place_of[nodes[number]]
        if bucket < 0:
            continue
        for entry in range(bucket_starts[bucket], bucket_starts[bucket + 1]):
            row = bucket_rows[entry]
            column[row] = min(column[row], bucket_costs[entry] + reached[number])
