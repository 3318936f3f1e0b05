"""Looking up arcs, compiled (extra ``[fast]``); the notation is that of the package.

Nodes are ranks: node 0 is contracted first. ``heads`` of a node are sorted, so that an arc is found by
bisection. All compiled loops of the hierarchy also end on arrays that do not fit together, as a damaged
file may hold them.
"""

from __future__ import annotations

import numpy as np

from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

# Types of arguments, as numba writes them.
INTS = "i4[::1]"
FLOATS = "f8[::1]"
# Arrays of a hierarchy may be read-only: memory-mapped files.
FIXED = "Array(i4, 1, 'C', readonly=True)"
GRAPH = f"{FIXED}, {FIXED}"  # pointers, heads
WEIGHTED = f"{GRAPH}, {FLOATS}"
NONE = -1


@compiled(f"i8({GRAPH}, i8, i8)")
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
    arc: int = begin if is_found else NONE
    return arc


@compiled(f"{INTS}({GRAPH}, {INTS}, {INTS})")
def arcs_between(
    pointers: Numbers, heads: Numbers, lower: Numbers, upper: Numbers
) -> Numbers:
    """The arc of each pair of nodes, the lower one first; −1: none."""
    arcs = np.empty(len(lower), dtype=np.int32)
    for pair in range(len(lower)):
        arcs[pair] = arc_between(pointers, heads, lower[pair], upper[pair])
    return arcs
