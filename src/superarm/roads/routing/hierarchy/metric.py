"""The costs of a hierarchy's arcs, and the arcs that searches need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.roads.routing.search import Numbers

from ._compiled_customisation import customise, shorten
from ._compiled_updates import recustomise
from .topology import Hierarchy

# Share of all turns up to which customising the arcs that depend on them is faster than starting over.
_FEW = 0.001


class Metric(NamedTuple):
    """What ways over a hierarchy's arcs cost."""

    weights: Floats  # w, (c,)
    up: Floats  # (m,)
    down: Floats  # (m,)
    via_up: Numbers  # (m,)
    via_down: Numbers  # (m,)


def customised(hierarchy: Hierarchy, weights: Floats) -> Metric:
    """The costs of all arcs.

    Args:
        hierarchy: The arcs.
        weights: w, the cost of each turn and the edge that it enters, (c,); infinite where closed.
    """
    count = len(hierarchy.heads)
    is_arc = hierarchy.arcs >= 0
    rising = is_arc & hierarchy.rises
    falling = is_arc & ~hierarchy.rises
    up = np.full(count, np.inf)
    down = np.full(count, np.inf)
    up[hierarchy.arcs[rising]] = weights[rising]
    down[hierarchy.arcs[falling]] = weights[falling]
    via_up = np.full(count, -1, dtype=np.int32)
    via_down = np.full(count, -1, dtype=np.int32)
    customise(hierarchy.pointers, hierarchy.heads, up, down, via_up, via_down)
    return Metric(np.ascontiguousarray(weights), up, down, via_up, via_down)


def recustomised(hierarchy: Hierarchy, metric: Metric, weights: Floats) -> Metric:
    """The costs of all arcs, from those that other weights had; equal to the last bit.

    Args:
        hierarchy: The arcs.
        metric: The costs of arcs by other weights.
        weights: w, (c,).
    """
    turns = np.flatnonzero(weights != metric.weights)
    if len(turns) > _FEW * len(weights):
        return customised(hierarchy, weights)
    arcs = hierarchy.arcs[turns]
    starts, lower = hierarchy.lower_arcs
    changed = Metric(
        np.ascontiguousarray(weights),
        metric.up.copy(),
        metric.down.copy(),
        metric.via_up.copy(),
        metric.via_down.copy(),
    )
    recustomise(
        hierarchy.pointers,
        hierarchy.heads,
        hierarchy.tails,
        starts,
        lower,
        hierarchy.order,
        hierarchy.turn_pointers,
        hierarchy.turn_ends,
        changed.weights,
        changed.up,
        changed.down,
        changed.via_up,
        changed.via_down,
        arcs[arcs >= 0],
    )
    return changed


class UsedArcs(NamedTuple):
    """The arcs that searches use, in one direction."""

    pointers: Numbers  # (n + 1,)
    heads: Numbers
    weights: Floats


class Usable(NamedTuple):
    """A metric, and the arcs that searches by it use."""

    metric: Metric
    up: UsedArcs
    down: UsedArcs


def all_arcs(hierarchy: Hierarchy, metric: Metric) -> Usable:
    """All arcs.

    Args:
        hierarchy: The arcs.
        metric: What they cost.
    """
    pointers = hierarchy.pointers
    heads = hierarchy.heads
    up = UsedArcs(pointers, heads, metric.up)
    down = UsedArcs(pointers, heads, metric.down)
    return Usable(metric, up, down)


def needed_arcs(hierarchy: Hierarchy, metric: Metric) -> Usable:
    """Without arcs for which there is a cheaper way over higher edges.

    Args:
        hierarchy: The arcs.
        metric: What they cost.
    """
    least_up = metric.up.copy()
    least_down = metric.down.copy()
    shorten(hierarchy.pointers, hierarchy.heads, least_up, least_down)
    up = _cheapest_arcs(least_up, metric.up, hierarchy)
    down = _cheapest_arcs(least_down, metric.down, hierarchy)
    return Usable(metric, up, down)


def _cheapest_arcs(least: Floats, weights: Floats, hierarchy: Hierarchy) -> UsedArcs:
    """The arcs that can be used and cost no more than the cheapest way, (m,)."""
    is_needed = (weights == least) & (weights < np.inf)
    needed_before = np.concatenate([[0], np.cumsum(is_needed)])
    pointers = needed_before[hierarchy.pointers].astype(np.int32)
    heads = hierarchy.heads[is_needed]
    return UsedArcs(pointers, heads, weights[is_needed])
