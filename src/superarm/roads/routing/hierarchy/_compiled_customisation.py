"""Customisation, compiled: the costs of all arcs from those of turns.

``near`` and ``far`` are the arcs of both directions in either order: what rising arcs are to falling
ones, falling arcs are to rising ones.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import FLOATS, GRAPH, INTS, WEIGHTED


@compiled(f"void({WEIGHTED}, {WEIGHTED}, {INTS}, i8)", nogil=True)
def lower_over(
    near_pointers: Numbers,
    near_heads: Numbers,
    near: Floats,
    far_pointers: Numbers,
    far_heads: Numbers,
    far: Floats,
    via: Numbers,
    node: int,
) -> None:
    """Lower ``far`` arcs to the costs of ways over a node, and note it in ``via``.

    Those are arcs from a head of a ``near`` arc of the node to a higher head of a ``far`` one.
    """
    first = far_pointers[node]
    last = far_pointers[node + 1]
    for one in range(near_pointers[node], near_pointers[node + 1]):
        lower = near_heads[one]
        while first < last and far_heads[first] <= lower:
            first += 1
        if first == last:
            break
        cost = near[one]
        arc = far_pointers[lower]
        end = far_pointers[lower + 1]
        for other in range(first, last):
            upper = far_heads[other]
            while arc < end and far_heads[arc] < upper:
                arc += 1
            if arc == end:
                break
            over = cost + far[other]
            if over < far[arc]:
                far[arc] = over
                via[arc] = node


@compiled(f"void({GRAPH}, {GRAPH}, {FLOATS}, {FLOATS}, {INTS}, {INTS})", nogil=True)
def customise(
    up_pointers: Numbers,
    up_heads: Numbers,
    down_pointers: Numbers,
    down_heads: Numbers,
    up: Floats,
    down: Floats,
    via_up: Numbers,
    via_down: Numbers,
) -> None:
    """Lower ``up`` and ``down`` from the costs of turns to those of shortcuts, node by node."""
    for node in range(len(up_pointers) - 1):
        lower_over(
            down_pointers, down_heads, down, up_pointers, up_heads, up, via_up, node
        )
        lower_over(
            up_pointers, up_heads, up, down_pointers, down_heads, down, via_down, node
        )


@compiled(f"{FLOATS}(i8, {INTS}, {INTS}, {FLOATS})", nogil=True)
def turn_costs(count: int, arcs: Numbers, turns: Numbers, weights: Floats) -> Floats:
    """The costs of ``count`` arcs by turns alone: ``weights`` where an arc is a turn, else infinite."""
    costs = np.full(count, np.inf)
    for place in range(len(arcs)):
        costs[arcs[place]] = weights[turns[place]]
    return costs
