"""Contraction, compiled: all shortcuts of an elimination order."""

from __future__ import annotations

import numpy as np

from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import GRAPH, INTS, NONE


@compiled(f"Tuple(({INTS}, {INTS}))({GRAPH})")
def complete(pointers: Numbers, heads: Numbers) -> tuple[Numbers, Numbers]:
    """Pointers and heads with all shortcuts, from the later neighbours of each node.

    The later neighbours of a node's children in the elimination tree become its own.
    """
    n = len(pointers) - 1
    full_pointers = np.zeros(n + 1, dtype=np.int32)
    full_heads = np.empty(max(4 * len(heads), 16), dtype=np.int32)
    seen = np.full(n, NONE, dtype=np.int32)  # the node that has met each node last
    first_child = np.full(n, NONE, dtype=np.int32)
    sibling = np.full(n, NONE, dtype=np.int32)
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
