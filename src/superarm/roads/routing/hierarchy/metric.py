"""The costs of a hierarchy's arcs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.roads.routing.search import Numbers

from ._compiled_customisation import customise, turn_costs
from ._compiled_updates import recustomise
from .topology import Hierarchy

# Share of all turns up to which customising the arcs that depend on them is faster than starting over.
_FEW = 0.001


class Metric(NamedTuple):
    """What ways over a hierarchy's arcs cost."""

    weights: Floats  # w, (c,)
    up: Floats  # (u,)
    down: Floats  # (d,)
    via_up: Numbers  # (u,)
    via_down: Numbers  # (d,)


def customised(hierarchy: Hierarchy, weights: Floats) -> Metric:
    """The costs of all arcs.

    Args:
        hierarchy: The arcs.
        weights: w, the cost of each turn and the edge that it enters, (c,); infinite where closed.
    """
    weights = np.ascontiguousarray(weights)
    rising = hierarchy.rising
    falling = hierarchy.falling
    rising_arcs = len(hierarchy.up.heads)
    falling_arcs = len(hierarchy.down.heads)
    up = turn_costs(rising_arcs, rising.arcs, rising.turns, weights)
    down = turn_costs(falling_arcs, falling.arcs, falling.turns, weights)
    via_up = np.full(rising_arcs, -1, dtype=np.int32)
    via_down = np.full(falling_arcs, -1, dtype=np.int32)
    customise(*hierarchy.up, *hierarchy.down, up, down, via_up, via_down)
    return Metric(weights, up, down, via_up, via_down)


def recustomised(hierarchy: Hierarchy, metric: Metric, weights: Floats) -> Metric:
    """The costs of all arcs, from those that other weights had; equal to the last bit.

    Args:
        hierarchy: The arcs.
        metric: The costs of arcs by other weights, which stay as they are.
        weights: w, (c,).
    """
    is_changed = weights != metric.weights
    if np.count_nonzero(is_changed) > _FEW * len(weights):
        return customised(hierarchy, weights)
    is_rising = is_changed[hierarchy.rising.turns]
    is_falling = is_changed[hierarchy.falling.turns]
    rising_tails = hierarchy.rising.tails[is_rising]
    falling_tails = hierarchy.falling.tails[is_falling]
    changed = Metric(
        np.ascontiguousarray(weights),
        metric.up.copy(),
        metric.down.copy(),
        metric.via_up.copy(),
        metric.via_down.copy(),
    )
    recustomise(
        *hierarchy.up,
        *hierarchy.down,
        *hierarchy.lower_up,
        *hierarchy.lower_down,
        hierarchy.order,
        hierarchy.turn_pointers,
        hierarchy.turn_ends,
        changed.weights,
        changed.up,
        changed.down,
        changed.via_up,
        changed.via_down,
        hierarchy.rising.arcs[is_rising],
        hierarchy.falling.arcs[is_falling],
        np.concatenate([rising_tails, falling_tails]),
    )
    return changed
