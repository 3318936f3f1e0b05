"""The arcs of a hierarchy, the same for all costs."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from superarm.core import Ints
from superarm.core.caching import cached_property
from superarm.roads.networks import LineGraph
from superarm.roads.networks.line_graph import is_permutation
from superarm.roads.networks.stored import read_stored, store
from superarm.roads.routing.search import Numbers

from ._compiled_arcs import arcs_between
from ._compiled_contraction import complete, elimination_tree
from ._compiled_updates import lower_arcs


class Topology(NamedTuple):
    """What a hierarchy has without costs: edges in their order, and arcs by their lower ends."""

    order: Numbers  # the edge of each rank, (n,)
    parents: Numbers  # in the elimination tree, n for a root, (n,)
    up_pointers: Numbers  # where the rising arcs of each tail begin, (n + 1,)
    up_heads: Numbers  # (u,)
    down_pointers: Numbers  # where the falling arcs into each edge begin, (n + 1,)
    down_heads: Numbers  # where they come from, (d,)


class Links(NamedTuple):
    """Arcs by their lower ends, their upper ends sorted."""

    pointers: Numbers  # (n + 1,)
    heads: Numbers


def contract(graph: LineGraph) -> Topology:
    """The topology of a line graph.

    Args:
        graph: The roads.
    """
    n = len(graph)
    order = graph.elimination_order
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    first, second = rank[graph.turns].T
    rises = first < second
    falls = first > second
    rising = _links(first[rises], second[rises], n)
    falling = _links(second[falls], first[falls], n)
    parents = elimination_tree(*rising, *falling)
    up_pointers, up_heads, down_pointers, down_heads = complete(*rising, *falling)
    return Topology(
        order=order.astype(np.int32),
        parents=parents,
        up_pointers=up_pointers.astype(np.int32),
        up_heads=up_heads,
        down_pointers=down_pointers.astype(np.int32),
        down_heads=down_heads,
    )


def _links(lower: Ints, upper: Ints, n: int) -> Links:
    keys = np.sort(lower * n + upper)
    tails, heads = np.divmod(keys, n)
    counts = np.bincount(tails, minlength=n)
    pointers = np.concatenate([[0], np.cumsum(counts)])
    return Links(pointers.astype(np.int32), heads.astype(np.int32))


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
    return hierarchy if hierarchy.has_all_turns else None


def _is_sound(topology: Topology, n: int) -> bool:
    """Whether loops can use these arrays."""
    if not is_permutation(topology.order, n):
        return False
    parents = topology.parents
    if len(parents) != n or not (parents > np.arange(n)).all() or parents.max() > n:
        return False
    return _are_links(topology.up_pointers, topology.up_heads, n) and _are_links(
        topology.down_pointers, topology.down_heads, n
    )


def _are_links(pointers: Numbers, heads: Numbers, n: int) -> bool:
    """Whether all heads are above their tails, and those of a tail are sorted."""
    if len(pointers) != n + 1:
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


class _TurnArcs(NamedTuple):
    """Turns that rise or fall, and their arcs."""

    turns: Numbers
    arcs: Numbers
    tails: Numbers  # the lower ends of these arcs


class _LowerArcs(NamedTuple):
    """The arcs into each edge from lower ones, sorted by these."""

    starts: Numbers  # where those of each edge begin, (n + 1,)
    arcs: Numbers
    tails: Numbers  # where they come from


class Hierarchy:
    """The arcs of a line graph, for all costs.

    Args:
        graph: The roads.
        topology: That of :func:`contract` for the same roads.
    """

    def __init__(self, graph: LineGraph, topology: Topology) -> None:
        n = len(graph)
        self.order = topology.order
        self.parents = topology.parents
        self.up = Links(topology.up_pointers, topology.up_heads)
        self.down = Links(topology.down_pointers, topology.down_heads)
        self.rank: Numbers = np.empty(n, dtype=np.int32)
        self.rank[self.order] = np.arange(n, dtype=np.int32)
        first, second = graph.turns.T
        self.first: Numbers = first.astype(np.int32)
        self.turn_pointers: Numbers = np.searchsorted(first, np.arange(n + 1)).astype(
            np.int32
        )
        self.turn_ends: Numbers = second.astype(np.int32)
        first_rank = self.rank[first]
        second_rank = self.rank[second]
        self.rising = _turn_arcs(self.up, first_rank, second_rank)
        self.falling = _turn_arcs(self.down, second_rank, first_rank)

    @property
    def has_all_turns(self) -> bool:
        """Whether every turn from one edge into another has its arc."""
        rising = self.rising.arcs
        falling = self.falling.arcs
        return bool((rising >= 0).all() and (falling >= 0).all())

    def turns_into(self, edge: int) -> Ints:
        """The turns that enter an edge.

        Args:
            edge: The edge.
        """
        entries, pointers = self._entries
        begin, end = pointers[edge : edge + 2]
        return entries[begin:end]

    @cached_property
    def _entries(self) -> tuple[Ints, Ints]:
        """Turns by the edge that they enter, and where those of each edge begin."""
        entries = np.argsort(self.turn_ends, kind="stable")
        edges = np.arange(len(self.order) + 1)
        return entries, np.searchsorted(self.turn_ends[entries], edges)

    @cached_property
    def lower_up(self) -> _LowerArcs:
        """The rising arcs into each edge."""
        return _lower_arcs(self.up)

    @cached_property
    def lower_down(self) -> _LowerArcs:
        """The falling arcs that leave each edge."""
        return _lower_arcs(self.down)


def _turn_arcs(links: Links, lower: Numbers, upper: Numbers) -> _TurnArcs:
    turns = np.flatnonzero(lower < upper).astype(np.int32)
    tails = lower[turns]
    arcs = arcs_between(*links, tails, upper[turns])
    return _TurnArcs(turns, arcs, tails)


def _lower_arcs(links: Links) -> _LowerArcs:
    n = len(links.pointers) - 1
    counts = np.bincount(links.heads, minlength=n)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    arcs = np.empty(len(links.heads), dtype=np.int32)
    tails = np.empty(len(links.heads), dtype=np.int32)
    lower_arcs(*links, starts, arcs, tails)
    return _LowerArcs(starts, arcs, tails)
