"""Customisation, compiled: the costs of all arcs from those of turns."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.core.compiling import compiled
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import FLOATS, GRAPH, INTS


@compiled(f"void({GRAPH}, {FLOATS}, {FLOATS}, {INTS}, {INTS})")
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


@compiled(f"void({GRAPH}, {FLOATS}, {FLOATS})")
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
