"""The arcs of a hierarchy, the same for all costs."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from superarm.core import Bools, Ints
from superarm.core.caching import cached_property
from superarm.roads.networks import LineGraph
from superarm.roads.networks.line_graph import is_permutation
from superarm.roads.networks.stored import read_stored, store
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import arcs_between
from ._compiled_contraction import complete
from ._compiled_updates import lower_arcs


class Topology(NamedTuple):
    """What a hierarchy has without costs: edges in their order, and arcs by their tails."""

    order: Numbers  # the edge of each rank, (n,)
    pointers: Numbers  # where the arcs of each tail begin, (n + 1,)
    heads: Numbers  # (m,)


def contract(graph: LineGraph) -> Topology:
    """The topology of a line graph.

    Args:
        graph: The roads.
    """
    n = len(graph)
    order = graph.elimination_order
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    ends = rank[graph.turns]
    tails = ends.min(axis=1)
    heads = ends.max(axis=1)
    is_loop = tails == heads
    keys = np.unique(tails[~is_loop] * n + heads[~is_loop])
    tails, heads = np.divmod(keys, n)
    counts = np.bincount(tails, minlength=n)
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    full_pointers, full_heads = complete(pointers, heads.astype(np.int32))
    return Topology(order.astype(np.int32), full_pointers, full_heads)


_KIND = "hierarchy"  # of the arrays stored beside a network
_HIERARCHIES: WeakKeyDictionary[LineGraph, Hierarchy] = WeakKeyDictionary()


def hierarchy_of(graph: LineGraph) -> Hierarchy:
    """The hierarchy of a line graph, which all its searches share.

    Args:
        graph: The roads.
    """
    hierarchy = _HIERARCHIES.get(graph)
    if hierarchy is None:
        # Without a lock: two threads may both compute it, and then share the first.
        hierarchy = _stored_hierarchy(graph)
        if hierarchy is None:
            topology = contract(graph)
            store(graph, _KIND, topology)
            hierarchy = Hierarchy(graph, topology)
        hierarchy = _HIERARCHIES.setdefault(graph, hierarchy)
    return hierarchy


def _stored_hierarchy(graph: LineGraph) -> Hierarchy | None:
    """The hierarchy that is stored beside the network; ``None`` where there is none that fits."""
    stored = read_stored(graph, _KIND)
    if stored is None or len(stored) != len(Topology._fields):
        return None
    topology = Topology(*stored)
    if not _is_sound(topology, len(graph)):
        return None
    hierarchy = Hierarchy(graph, topology)
    first, second = graph.turns.T
    has_arc = (hierarchy.arcs >= 0) | (first == second)
    return hierarchy if has_arc.all() else None


def _is_sound(topology: Topology, n: int) -> bool:
    """Whether loops can use these arrays: all arcs rise, and those of a tail are sorted by heads."""
    order, pointers, heads = topology
    if not is_permutation(order, n) or len(pointers) != n + 1:
        return False
    counts = np.diff(pointers)
    if pointers[0] != 0 or pointers[-1] != len(heads) or (counts < 0).any():
        return False
    if not len(heads):
        return True
    tails = np.repeat(np.arange(n, dtype=np.int32), counts)
    rises = (heads > tails).all() and heads.max() < n
    is_sorted = (np.diff(heads) > 0) | (np.diff(tails) > 0)
    return bool(rises and is_sorted.all())


class Hierarchy:
    """The arcs of a line graph, for all costs.

    Args:
        graph: The roads.
        topology: That of :func:`contract` for the same roads.
    """

    def __init__(self, graph: LineGraph, topology: Topology) -> None:
        n = len(graph)
        self.order, self.pointers, self.heads = topology
        self.rank: Numbers = np.empty(n, dtype=np.int32)
        self.rank[self.order] = np.arange(n, dtype=np.int32)
        first, second = graph.turns.T
        self.first = first
        first_rank = self.rank[first]
        second_rank = self.rank[second]
        # The arc of each turn, −1 where it leads back into the same edge, (c,).
        self.arcs: Numbers = arcs_between(
            self.pointers, self.heads, first_rank, second_rank
        )
        self.rises: Bools = first_rank < second_rank
        self.turn_pointers: Numbers = np.searchsorted(first, np.arange(n + 1)).astype(
            np.int32
        )
        self.turn_ends: Numbers = second.astype(np.int32)
        # Turns by the edge that they enter, and where those of each edge begin.
        self._entries = np.argsort(second, kind="stable")
        self._entry_pointers = np.searchsorted(second[self._entries], np.arange(n + 1))

    def turns_into(self, edge: int) -> Ints:
        """The turns that enter an edge.

        Args:
            edge: The edge.
        """
        begin, end = self._entry_pointers[edge : edge + 2]
        return self._entries[begin:end]

    @cached_property
    def parents(self) -> Numbers:
        """The parent of each edge in the elimination tree, n for a root, (n,)."""
        n = len(self.order)
        parents = np.full(n, n, dtype=np.int32)
        starts = self.pointers[:-1]
        has_arcs = starts < self.pointers[1:]
        parents[has_arcs] = self.heads[starts[has_arcs]]
        return parents

    @cached_property
    def tails(self) -> Numbers:
        """The tail of each arc, (m,)."""
        nodes = np.arange(len(self.order), dtype=np.int32)
        return np.repeat(nodes, np.diff(self.pointers))

    @cached_property
    def lower_arcs(self) -> tuple[Numbers, Numbers]:
        """Where the arcs into each edge begin, (n + 1,), and these arcs, (m,)."""
        counts = np.bincount(self.heads, minlength=len(self.order))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        arcs = np.empty(len(self.heads), dtype=np.int32)
        lower_arcs(self.pointers, self.heads, starts, arcs)
        return starts, arcs
