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
        ends = np.cumsum(degree)
        first = np.concatenate([[0], ends])
        return cls(
            source=source[order],
            first=first,
            p=p[order],
            degree=degree,
        )


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
    most_by_nodes = _BATCH // graph.n
    most_by_links = _MOST_FRONTIER // len(graph.source)
    batch = max(1, min(most_by_nodes, most_by_links))
    while begin < count:
        size = min(batch, count - begin)
        nodes, of_set, widest = _draw_batch(graph, size, rng)
        order = np.argsort(of_set, kind="stable")
        part = _Members(nodes[order], of_set[order] + begin)
        parts.append(part)
        total += len(nodes)
        begin += size
        if 4 * widest <= _MOST_FRONTIER:
            batch = min(2 * batch, most_by_nodes)
        if total > _MOST_MEMBERS:
            raise InputError(
                f"the sets that TIM+ samples hold more than {_MOST_MEMBERS:,} nodes; raise epsilon"
            )
    joined = _join(parts)
    return ReachableSets(joined.nodes, joined.of_set, count)


def _join(parts: list[_Members]) -> _Members:
    """All members, part after part."""
    nodes = [part.nodes for part in parts]
    of_set = [part.of_set for part in parts]
    return _Members(
        nodes=np.concatenate(nodes),
        of_set=np.concatenate(of_set),
    )


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
        first = graph.first[nodes]
        links = _ranges(first, degree)
        set_of_link = np.repeat(of_set, degree)
        count = len(links)
        widest = max(widest, count)
        works = rng.random(count) < graph.p[links]
        reached = graph.source[links[works]]
        layer = _unseen(reached, set_of_link[works], seen)
        layers.append(layer)
        nodes, of_set = layer
    joined = _join(layers)
    return _Batch(joined.nodes, joined.of_set, widest)


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """The numbers start, start + 1, … of each range, range after range."""
    ends = np.cumsum(sizes)
    begins = ends - sizes
    offsets = np.repeat(starts - begins, sizes)
    places = np.arange(ends[-1])
    return np.asarray(offsets + places)


def _unseen(nodes: Ints, of_set: Ints, seen: Bools) -> _Members:
    """Those that their set does not contain yet, once each; marks them as seen."""
    is_new = ~seen[of_set, nodes]
    nodes = nodes[is_new]
    of_set = of_set[is_new]
    seen[of_set, nodes] = True
    # Several links may enter one node in the same step.
    n = seen.shape[1]
    member = of_set * n + nodes
    _, first = np.unique(member, return_index=True)
    return _Members(nodes[first], of_set[first])


def cover_most(sets: ReachableSets, candidates: int, n: int, k: int) -> list[int]:
    """Choose ``k`` nodes greedily, each in most of the sets that are not covered yet.

    Args:
        sets: The RR sets.
        candidates: How many nodes may be chosen: the first ones.
        n: Number of nodes.
        k: How many nodes to choose.
    """
    members, of_set, size = sets
    order = np.argsort(members, kind="stable")
    sets_by_node = of_set[order]
    sorted_members = members[order]
    node_starts = np.searchsorted(sorted_members, np.arange(n + 1))
    set_starts = np.searchsorted(of_set, np.arange(size + 1))
    counts = np.bincount(members, minlength=n)  # uncovered sets of each node
    counts[candidates:] = _EXCLUDED
    covered = np.zeros(size, dtype=np.bool_)
    chosen: list[int] = []
    for _ in range(k):
        node = int(counts.argmax())
        chosen.append(node)
        start = node_starts[node]
        stop = node_starts[node + 1]
        containing = sets_by_node[start:stop]
        new_sets = containing[~covered[containing]]
        covered[new_sets] = True
        if len(new_sets):
            starts = set_starts[new_sets]
            stops = set_starts[new_sets + 1]
            places = _ranges(starts, stops - starts)
            counts -= np.bincount(members[places], minlength=n)
        counts[node] = _EXCLUDED
        counts[candidates:] = _EXCLUDED
    return chosen
