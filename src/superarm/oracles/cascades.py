"""Random reverse reachable (RR) sets of a cascade, and the nodes that cover most of them.

An RR set contains the nodes that reach a random node when every link works by chance. The share of RR
sets that contain one of some nodes estimates the spread of these nodes [tang2014influence].

=========  =======================================================================
``n``      nodes
``m``      links
``p``      probability of each link, (m,)
=========  =======================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints, Rng
from superarm.core.errors import InputError

_BATCH = 1 << 24  # nodes times RR sets that are drawn side by side: 16 MB of marks
_MOST_MEMBERS = 1 << 26
# Links examined in one step of all sets drawn side by side: 256 MB.
_MOST_FRONTIER = 1 << 23
_EXCLUDED = -1  # the count of a node that must not be chosen


class Cascade(NamedTuple):
    """A graph by the links that enter each node."""

    source: Ints  # (m,), in the order of the nodes that they enter
    first: Ints  # (n + 1,), where the links that enter each node begin
    p: Floats  # (m,)
    degree: Ints  # (n,) links that enter each node

    @property
    def n(self) -> int:
        """The number of nodes."""
        return len(self.degree)

    @classmethod
    def from_links(cls, source: Ints, target: Ints, p: Floats, n: int) -> Cascade:
        """The graph with these links.

        Args:
            source: The node that each link leaves, (m,).
            target: The node that each link enters, (m,).
            p: Probability of each link, (m,).
            n: Number of nodes.
        """
        order = np.argsort(target, kind="stable")
        degree = np.bincount(target, minlength=n)
        first = np.concatenate([[0], np.cumsum(degree)])
        return cls(source[order], first, p[order], degree)


class ReachableSets(NamedTuple):
    """RR sets, one after the other."""

    members: Ints  # nodes
    of_set: Ints  # the set that each member belongs to, rising
    size: int  # number of sets


class _Members(NamedTuple):
    """Nodes, and the set of each."""

    nodes: Ints
    of_set: Ints


def draw_sets(graph: Cascade, count: int, rng: Rng) -> ReachableSets:
    """RR sets of uniformly drawn nodes, many side by side.

    Args:
        graph: The cascade.
        count: How many sets to draw.
        rng: The random generator.
    """
    parts: list[_Members] = []
    total = 0
    begin = 0
    # In the worst case a set examines all links; where it does not, more sets are drawn at once.
    batch = max(1, min(_BATCH // graph.n, _MOST_FRONTIER // len(graph.source)))
    while begin < count:
        size = min(batch, count - begin)
        drawn = _draw_batch(graph, size, rng)
        order = np.argsort(drawn.of_set, kind="stable")
        parts.append(_Members(drawn.nodes[order], drawn.of_set[order] + begin))
        total += len(drawn.nodes)
        begin += size
        if 4 * drawn.widest <= _MOST_FRONTIER:
            batch = min(2 * batch, _BATCH // graph.n)
        if total > _MOST_MEMBERS:
            raise InputError(
                f"the sets that TIM+ samples hold more than {_MOST_MEMBERS:,} nodes; raise epsilon"
            )
    members = np.concatenate([part.nodes for part in parts])
    of_set = np.concatenate([part.of_set for part in parts])
    return ReachableSets(members, of_set, count)


class _Batch(NamedTuple):
    """RR sets drawn side by side, unordered."""

    nodes: Ints
    of_set: Ints
    widest: int  # most links examined in one step


def _draw_batch(graph: Cascade, size: int, rng: Rng) -> _Batch:
    """Breadth-first search against the links, of ``size`` sets at once."""
    nodes = rng.integers(graph.n, size=size)
    of_set = np.arange(size)
    seen = np.zeros((size, graph.n), dtype=np.bool_)
    seen[of_set, nodes] = True
    layers = [_Members(nodes, of_set)]
    widest = 0
    while len(nodes):
        degree = graph.degree[nodes]
        links = _ranges(graph.first[nodes], degree)
        widest = max(widest, len(links))
        works = rng.random(len(links)) < graph.p[links]
        nodes = graph.source[links[works]]
        of_set = np.repeat(of_set, degree)[works]
        nodes, of_set = _unseen(nodes, of_set, seen)
        layers.append(_Members(nodes, of_set))
    all_nodes = np.concatenate([layer.nodes for layer in layers])
    all_sets = np.concatenate([layer.of_set for layer in layers])
    return _Batch(all_nodes, all_sets, widest)


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """The numbers start, start + 1, … of each range, range after range."""
    ends = np.cumsum(sizes)
    offsets = starts - (ends - sizes)
    return np.asarray(np.repeat(offsets, sizes) + np.arange(ends[-1]))


def _unseen(nodes: Ints, of_set: Ints, seen: Bools) -> _Members:
    """Those that their set does not contain yet, once each; marks them as seen."""
    is_new = ~seen[of_set, nodes]
    nodes = nodes[is_new]
    of_set = of_set[is_new]
    seen[of_set, nodes] = True
    # Several links may enter one node in the same step.
    n = seen.shape[1]
    _, once = np.unique(of_set * n + nodes, return_index=True)
    return _Members(nodes[once], of_set[once])


def cover_most(sets: ReachableSets, candidates: int, n: int, k: int) -> list[int]:
    """Choose ``k`` nodes greedily, each in most of the sets that are not covered yet.

    Args:
        sets: The RR sets.
        candidates: How many nodes may be chosen: the first ones.
        n: Number of nodes.
        k: How many nodes to choose.
    """
    order = np.argsort(sets.members, kind="stable")
    sets_by_node = sets.of_set[order]
    node_starts = np.searchsorted(sets.members[order], np.arange(n + 1))
    set_starts = np.searchsorted(sets.of_set, np.arange(sets.size + 1))
    counts = np.bincount(sets.members, minlength=n)  # uncovered sets of each node
    counts[candidates:] = _EXCLUDED
    covered = np.zeros(sets.size, dtype=np.bool_)
    chosen: list[int] = []
    for _ in range(k):
        node = int(counts.argmax())
        chosen.append(node)
        newly = sets_by_node[node_starts[node] : node_starts[node + 1]]
        newly = newly[~covered[newly]]
        covered[newly] = True
        if len(newly):
            starts = set_starts[newly]
            places = _ranges(starts, set_starts[newly + 1] - starts)
            counts -= np.bincount(sets.members[places], minlength=n)
        counts[node] = _EXCLUDED
        counts[candidates:] = _EXCLUDED
    return chosen
