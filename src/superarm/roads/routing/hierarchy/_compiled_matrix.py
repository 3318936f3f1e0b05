"""Matrices, compiled: costs between many places at once."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import FIXED, FLOATS, INTS, WEIGHTED
from ._compiled_queries import step_cursors


@compiled(f"i8({FIXED}, {WEIGHTED}, {INTS}, {FLOATS}, {FLOATS}, {INTS}, {FLOATS})")
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


@compiled(f"void({INTS}, i8[::1], i8[::1], {FLOATS}, {INTS}, {FLOATS}, i8, {FLOATS})")
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
