"""Contraction, compiled: all shortcuts of an elimination order.

Rising and falling arcs are completed together, as the rows of U and the columns of L in a sparse LU
factorisation that looks left [gilbert1988sparse].
"""

from __future__ import annotations

import numpy as np

from superarm.core import Ints
from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import GRAPH, INTS, NONE


@compiled(f"{INTS}({GRAPH}, {GRAPH})", nogil=True)
def elimination_tree(
    up_pointers: Numbers, up_heads: Numbers, down_pointers: Numbers, down_heads: Numbers
) -> Numbers:
    """The parent of each node, n for a root, (n,) [liu1990role, algorithm 4.2].

    The arcs are turns alone, rising and falling ones, by their lower ends. Those of :func:`complete`
    lead to ancestors, too.
    """
    n = len(up_pointers) - 1
    # The lower ends of the turns at each node.
    starts = np.zeros(n + 1, dtype=np.int64)
    for head in up_heads:
        starts[head + 1] += 1
    for head in down_heads:
        starts[head + 1] += 1
    starts = np.cumsum(starts)
    lower = np.empty(len(up_heads) + len(down_heads), dtype=np.int32)
    place = starts[:n].copy()
    for node in range(n):
        for arc in range(up_pointers[node], up_pointers[node + 1]):
            lower[place[up_heads[arc]]] = node
            place[up_heads[arc]] += 1
        for arc in range(down_pointers[node], down_pointers[node + 1]):
            lower[place[down_heads[arc]]] = node
            place[down_heads[arc]] += 1
    parents = np.full(n, n, dtype=np.int32)
    ancestors = np.full(n, n, dtype=np.int32)  # shortcuts to the root so far
    for node in range(n):
        for entry in range(starts[node], starts[node + 1]):
            root = lower[entry]
            while ancestors[root] != n and ancestors[root] != node:
                above = ancestors[root]
                ancestors[root] = node
                root = above
            if ancestors[root] == n and root != node:
                ancestors[root] = node
                parents[root] = node
    return parents


@compiled(
    f"i8({GRAPH}, i8[::1], {INTS}, {INTS}, {INTS}, i8, {INTS}, {INTS})", nogil=True
)
def collect(
    turn_pointers: Numbers,
    turn_heads: Numbers,
    pointers: Ints,
    heads: Numbers,
    first: Numbers,
    following: Numbers,
    node: int,
    met: Numbers,
    found: Numbers,
) -> int:
    """Collect the heads of a node: those of its turns, and of lower nodes with an arc from it.

    ``first`` and ``following`` chain those nodes. ``met`` holds the node that has met each head last.
    Returns how many heads were ``found``.
    """
    count = 0
    for turn in range(turn_pointers[node], turn_pointers[node + 1]):
        head = turn_heads[turn]
        if met[head] != node:
            met[head] = node
            found[count] = head
            count += 1
    lower = first[node]
    while lower >= 0:
        for arc in range(pointers[lower], pointers[lower + 1]):
            head = heads[arc]
            if head > node and met[head] != node:
                met[head] = node
                found[count] = head
                count += 1
        lower = following[lower]
    return count


@compiled(f"{INTS}({INTS}, i8, {INTS}, i8)", nogil=True)
def appended(heads: Numbers, size: int, found: Numbers, count: int) -> Numbers:
    """Heads whose first ``size`` are in use, and behind them those ``found``, sorted."""
    if size + count > len(heads):
        longer = np.empty(2 * len(heads) + count, dtype=np.int32)
        longer[:size] = heads[:size]
        heads = longer
    heads[size : size + count] = np.sort(found[:count])
    return heads


@compiled(
    f"void(i8[::1], {INTS}, {INTS}, {INTS}, i8[::1], i8)",
    nogil=True,
)
def advance(
    pointers: Ints,
    heads: Numbers,
    first: Numbers,
    following: Numbers,
    place: Ints,
    node: int,
) -> None:
    """Move a node and the lower ones that are chained at it to the chains of their next heads."""
    place[node] = pointers[node] - 1
    following[node] = first[node]
    lower = node
    while lower >= 0:
        after = following[lower]
        place[lower] += 1
        if place[lower] < pointers[lower + 1]:
            head = heads[place[lower]]
            following[lower] = first[head]
            first[head] = lower
        lower = after


@compiled(f"Tuple((i8[::1], {INTS}, i8[::1], {INTS}))({GRAPH}, {GRAPH})", nogil=True)
def complete(
    up_pointers: Numbers, up_heads: Numbers, down_pointers: Numbers, down_heads: Numbers
) -> tuple[Ints, Numbers, Ints, Numbers]:
    """Pointers and heads of all rising and of all falling arcs, from those of turns.

    A way b → v → a over a node v below both becomes an arc: a rising one of b, or a falling one of a.
    """
    n = len(up_pointers) - 1
    all_up_pointers = np.zeros(n + 1, dtype=np.int64)
    all_up_heads = np.empty(max(4 * len(up_heads), 16), dtype=np.int32)
    all_down_pointers = np.zeros(n + 1, dtype=np.int64)
    all_down_heads = np.empty(max(4 * len(down_heads), 16), dtype=np.int32)
    # Chains of lower nodes by the next head of their rising, and of their falling arcs.
    first_up = np.full(n, NONE, dtype=np.int32)
    following_up = np.full(n, NONE, dtype=np.int32)
    place_up = np.zeros(n, dtype=np.int64)
    first_down = np.full(n, NONE, dtype=np.int32)
    following_down = np.full(n, NONE, dtype=np.int32)
    place_down = np.zeros(n, dtype=np.int64)
    met_up = np.full(n, NONE, dtype=np.int32)
    met_down = np.full(n, NONE, dtype=np.int32)
    found = np.empty(n, dtype=np.int32)
    for node in range(n):
        # A falling arc of a lower node begins here, and its rising arcs lead on.
        count = collect(
            up_pointers,
            up_heads,
            all_up_pointers,
            all_up_heads,
            first_down,
            following_down,
            node,
            met_up,
            found,
        )
        size = all_up_pointers[node]
        all_up_heads = appended(all_up_heads, size, found, count)
        all_up_pointers[node + 1] = size + count
        count = collect(
            down_pointers,
            down_heads,
            all_down_pointers,
            all_down_heads,
            first_up,
            following_up,
            node,
            met_down,
            found,
        )
        size = all_down_pointers[node]
        all_down_heads = appended(all_down_heads, size, found, count)
        all_down_pointers[node + 1] = size + count
        advance(all_up_pointers, all_up_heads, first_up, following_up, place_up, node)
        advance(
            all_down_pointers,
            all_down_heads,
            first_down,
            following_down,
            place_down,
            node,
        )
    return (
        all_up_pointers,
        all_up_heads[: all_up_pointers[n]].copy(),
        all_down_pointers,
        all_down_heads[: all_down_pointers[n]].copy(),
    )
