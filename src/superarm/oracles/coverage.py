"""The k nodes that reach the most others: greedy coverage, and TIM+ for cascades.

An arm is a directed link that carries influence with some probability; its desirability, clipped to
[0, 1], is taken as that probability. To choose a node is to choose all links that leave it.

Notation

=========  =======================================================================
``p``      probability of each link, (m,)
``k``      nodes to choose
RR set     the nodes that reach a random node when every link works by chance
=========  =======================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple

import numpy as np

from superarm.core import EXACT, Floats, Guarantee, Ints, Rescore, Rng, Selection
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.graphs import Pairs, renumbered, require_structure
from superarm.core.inputs import (
    as_count,
    as_generator,
    as_number,
    as_positive,
    require_type,
)
from superarm.core.registry import register

from .base import check_desirability, rescored

_BATCH = 1 << 24  # nodes times RR sets that are drawn side by side: 16 MB of marks
_MOST_SETS = 50_000_000
_MOST_MEMBERS = 1 << 26
_MOST_FRONTIER = (
    1 << 23
)  # links looked at in one step of all sets drawn side by side: 256 MB


class _Links(NamedTuple):
    """Links that are available, in the order of the nodes that they leave."""

    arms: Ints  # (m,) positions in the offer
    sources: Ints  # (s,) the nodes that some link leaves
    first: Ints  # (s + 1,) where the links of each begin
    target: Ints  # (m,) numbered 0 … targets − 1
    targets: int
    p: Floats  # (m,)

    def of(self, source: int) -> slice:
        return slice(int(self.first[source]), int(self.first[source + 1]))


def _links(desirability: Floats, pairs: Pairs, k: int) -> _Links:
    arms = np.flatnonzero(desirability > -np.inf)
    arms = arms[np.argsort(pairs.left[arms], kind="stable")]
    sources, first = np.unique(pairs.left[arms], return_index=True)
    if len(sources) < k:
        raise InfeasibleError(
            f"k = {k} nodes are to be chosen, but links leave only {len(sources)}; offer links from "
            "more nodes, or lower k"
        )
    known, target = renumbered(pairs.right[arms])
    p = np.clip(desirability[arms], 0.0, 1.0)
    return _Links(arms, sources, np.append(first, len(arms)), target, len(known), p)


def _selection(links: _Links, chosen: list[int], guarantee: Guarantee) -> Selection:
    """The action is the nodes, in the order in which they were chosen."""
    positions = np.concatenate([links.arms[links.of(each)] for each in chosen])
    return Selection(tuple(links.sources[chosen].tolist()), positions, guarantee)


@register("oracle", "coverage")
@dataclass(frozen=True, kw_only=True)
class GreedyCoverage:
    """The ``k`` left nodes that reach the most right nodes on average, chosen one after the other.

    The offer's structure is a ``Pairs`` of two sides. A right node is reached with probability
    1 − Π(1 − p) over its links from chosen nodes. This greedy choice reaches at least
    1 − (1 − 1/k)ᵏ of the optimum, which is more than 1 − 1/e. Desirabilities are clipped to [0, 1]: a
    negative one is a link that never works, and its node may still be chosen. With ``rescore`` they are
    asked for anew after every node.

    Args:
        k: How many nodes are chosen.
    """

    k: int
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", as_count(self.k, "k"))

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        pairs = require_structure(structure, Pairs, len(desirability), "GreedyCoverage")
        links = _links(desirability, pairs, self.k)
        promised = Guarantee(alpha=1.0 - (1.0 - 1.0 / self.k) ** self.k)
        n = len(desirability)
        chosen = (
            self._lazy(links) if rescore is None else self._stepwise(links, rescore, n)
        )
        return _selection(
            links, chosen, EXACT if self.k in (1, len(links.sources)) else promised
        )

    def _lazy(self, links: _Links) -> list[int]:
        """Gains only shrink, so that one which beats what the others had before is the largest."""
        missed = np.ones(links.targets)
        gains = np.add.reduceat(links.p, links.first[:-1])
        heap = [(-gain, source) for source, gain in enumerate(gains.tolist())]
        heapify(heap)
        chosen: list[int] = []
        while len(chosen) < self.k:
            _, source = heappop(heap)
            of = links.of(source)
            gain = float(missed[links.target[of]] @ links.p[of])
            if heap and (-gain, source) > heap[0]:
                heappush(heap, (-gain, source))
                continue
            chosen.append(source)
            missed[links.target[of]] *= 1.0 - links.p[of]
        return chosen

    def _stepwise(self, links: _Links, rescore: Rescore, n: int) -> list[int]:
        missed, positions = np.ones(links.targets), np.empty(0, dtype=np.intp)
        chosen: list[int] = []
        while True:
            gains = np.add.reduceat(missed[links.target] * links.p, links.first[:-1])
            gains[chosen] = -1.0
            source = int(gains.argmax())
            of = links.of(source)
            missed[links.target[of]] *= 1.0 - links.p[of]
            chosen.append(source)
            if len(chosen) == self.k:
                return chosen
            positions = np.concatenate([positions, links.arms[of]])
            again = rescored(rescore, positions, n)
            check_desirability(again)
            links = links._replace(p=np.clip(again[links.arms], 0.0, 1.0))


# --- cascades ------------------------------------------------------------------------------


class _Cascade(NamedTuple):
    """A graph by the links that enter each node."""

    source: Ints  # (m,), in the order of the nodes that they enter
    first: Ints  # (n + 1,)
    p: Floats  # (m,)
    degree: Ints  # (n,) links that enter each node

    @property
    def n(self) -> int:
        return len(self.degree)

    @classmethod
    def of(cls, source: Ints, target: Ints, p: Floats, n: int) -> _Cascade:
        order = np.argsort(target, kind="stable")
        degree = np.bincount(target, minlength=n)
        return cls(
            source[order], np.concatenate([[0], np.cumsum(degree)]), p[order], degree
        )


class _Sets(NamedTuple):
    """RR sets one after the other."""

    members: Ints  # nodes
    of_set: Ints  # which set each member belongs to, rising
    size: int


def draw_sets(graph: _Cascade, count: int, rng: Rng) -> _Sets:
    """RR sets of ``count`` uniform nodes, many drawn side by side: breadth first, against the links."""
    parts: list[tuple[Ints, Ints]] = []
    total, begin = 0, 0
    # In the worst case a set looks at all links; where it does not, more sets are drawn at once.
    batch = max(1, min(_BATCH // graph.n, _MOST_FRONTIER // len(graph.source)))
    while begin < count:
        size, widest = min(batch, count - begin), 0
        node, of_set = rng.integers(graph.n, size=size), np.arange(size)
        seen = np.zeros((size, graph.n), dtype=np.bool_)
        seen[of_set, node] = True
        found = [(node, of_set)]
        while len(node):
            degree = graph.degree[node]
            ends = np.cumsum(degree)
            widest = max(widest, int(ends[-1]))
            # The numbers of all links that enter the frontier, node by node.
            links = np.repeat(graph.first[node] - (ends - degree), degree) + np.arange(
                ends[-1]
            )
            works = rng.random(len(links)) < graph.p[links]
            node, of_set = graph.source[links[works]], np.repeat(of_set, degree)[works]
            fresh = ~seen[of_set, node]
            node, of_set = node[fresh], of_set[fresh]
            seen[of_set, node] = True
            # One node may be entered by several links in the same step.
            _, once = np.unique(of_set * graph.n + node, return_index=True)
            node, of_set = node[once], of_set[once]
            found.append((node, of_set))
        nodes, owners = map(np.concatenate, zip(*found, strict=True))
        order = np.argsort(owners, kind="stable")
        parts.append((nodes[order], owners[order] + begin))
        total, begin = total + len(nodes), begin + size
        if 4 * widest <= _MOST_FRONTIER:
            batch = min(2 * batch, _BATCH // graph.n)
        if total > _MOST_MEMBERS:
            raise InputError(
                f"the sets that TIM+ samples hold more than {_MOST_MEMBERS:,} nodes; raise epsilon"
            )
    members, of_set = map(np.concatenate, zip(*parts, strict=True))
    return _Sets(members, of_set, count)


def cover_most(sets: _Sets, candidates: int, n: int, k: int) -> list[int]:
    """The ``k`` of the first ``candidates`` nodes that greedily lie in most sets."""
    order = np.argsort(sets.members, kind="stable")
    by_node = sets.of_set[order]
    starts = np.searchsorted(sets.members[order], np.arange(n + 1))
    begins = np.searchsorted(sets.of_set, np.arange(sets.size + 1))
    left = np.bincount(sets.members, minlength=n)
    left[candidates:] = -1
    covered = np.zeros(sets.size, dtype=np.bool_)
    chosen: list[int] = []
    for _ in range(k):
        node = int(left.argmax())
        chosen.append(node)
        owners = by_node[starts[node] : starts[node + 1]]
        owners = owners[~covered[owners]]
        covered[owners] = True
        sizes = begins[owners + 1] - begins[owners]
        ends = np.cumsum(sizes)
        if len(owners):
            places = np.repeat(begins[owners] - (ends - sizes), sizes) + np.arange(
                ends[-1]
            )
            left -= np.bincount(sets.members[places], minlength=n)
        left[node] = -1
        left[candidates:] = -1
    return chosen


@register("oracle", "tim")
@dataclass(frozen=True, kw_only=True)
class TIM:
    """The ``k`` nodes of largest expected spread in a cascade, by TIM+ [tang2014influence].

    The offer's structure is a ``Pairs``. With ``two_sided`` its left nodes are chosen and its right
    nodes are reached, as in coverage; otherwise left and right number the same nodes, and those reached
    pass the influence on. The spread includes the chosen nodes themselves, and the guarantee is about
    this spread: at least 1 − 1/e − ε of the optimum with probability 1 − 3n^{−ℓ}, where n is the number
    of all nodes. TIM+ is randomised, so bounds on regret that assume a deterministic oracle do not
    cover it.

    Args:
        k: How many nodes are chosen.
        epsilon: Ε: what the guarantee gives up of 1 − 1/e; smaller takes longer.
        ell: ℓ: the guarantee fails with probability 3n^−ℓ at most.
        two_sided: Whether left and right nodes are different ones; else both are numbers of the
            same nodes.
    """

    k: int
    epsilon: float = 0.1
    ell: float = 1.0
    two_sided: bool = True
    deterministic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", as_count(self.k, "k"))
        object.__setattr__(
            self, "epsilon", as_number(self.epsilon, "epsilon", 1e-3, 1.0)
        )
        object.__setattr__(self, "ell", as_positive(self.ell, "ell"))
        require_type(self.two_sided, bool, "two_sided")

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        pairs = require_structure(structure, Pairs, len(desirability), "TIM")
        if rescore is not None:
            raise InputError(
                "TIM chooses all nodes at once, not arm by arm: leave stepwise out"
            )
        as_generator(rng)
        links = _links(desirability, pairs, self.k)
        leaves = np.repeat(np.arange(len(links.sources)), np.diff(links.first))
        if self.two_sided:
            target, n = (
                links.target + len(links.sources),
                len(links.sources) + links.targets,
            )
        else:
            # The nodes that a link leaves come first, then those that are only entered.
            entered = pairs.right[links.arms]
            nodes = np.concatenate(
                [links.sources, np.setdiff1d(entered, links.sources)]
            )
            back = np.argsort(nodes, kind="stable")
            target = back[np.searchsorted(nodes, entered, sorter=back)]
            n = len(nodes)
        graph = _Cascade.of(leaves, target, links.p, n)
        chosen = self._chosen(graph, len(links.sources), rng)
        alpha = 1.0 - math.exp(-1.0) - self.epsilon
        likely = max(0.0, 1.0 - 3.0 * n**-self.ell)
        return _selection(links, chosen, Guarantee(max(alpha, 0.0), likely))

    def _chosen(self, graph: _Cascade, candidates: int, rng: Rng) -> list[int]:
        """Algorithms 1 to 3 of the paper: bound the optimum from below, then cover enough RR sets."""
        n, k, ell, epsilon = graph.n, self.k, self.ell, self.epsilon
        if k == candidates:
            return list(range(k))
        least, sets = self._estimate(graph, rng)
        # Refinement: what the nodes that cover most of these sets reach in fresh ones is another bound.
        first = cover_most(sets, candidates, n, k)
        finer = 5.0 * (ell * epsilon**2 / (k + ell)) ** (1.0 / 3.0)
        enough = (2.0 + finer) * ell * n * math.log(n) / finer**2
        fresh = draw_sets(graph, self._few(enough / least), rng)
        hit = np.zeros(fresh.size, dtype=np.bool_)
        hit[fresh.of_set[np.isin(fresh.members, first)]] = True
        least = max(least, float(hit.mean()) * n / (1.0 + finer))
        choices = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        enough = (
            (8.0 + 2.0 * epsilon)
            * n
            * (ell * math.log(n) + choices + math.log(2.0))
            / epsilon**2
        )
        return cover_most(
            draw_sets(graph, self._few(enough / least), rng), candidates, n, k
        )

    def _estimate(self, graph: _Cascade, rng: Rng) -> tuple[float, _Sets]:
        """KPT*, a lower bound of the optimum, and the sets that it comes from."""
        n, m = graph.n, len(graph.source)
        steps = max(1, int(math.log2(n)) - 1)
        for i in range(1, steps + 1):
            count = (
                6.0 * self.ell * math.log(n) + 6.0 * math.log(math.log2(n))
            ) * 2.0**i
            sets = draw_sets(graph, self._few(count), rng)
            width = np.bincount(
                sets.of_set, graph.degree[sets.members], minlength=sets.size
            )
            share = float(np.mean(1.0 - (1.0 - width / m) ** self.k))
            if share > 2.0**-i:
                return n * share / 2.0, sets
        return 1.0, sets

    def _few(self, count: float) -> int:
        if count > _MOST_SETS:
            raise InputError(
                f"TIM+ would need {count:.3g} random sets for epsilon = {self.epsilon:g} and "
                f"ell = {self.ell:g}; raise epsilon or lower ell"
            )
        return max(1, math.ceil(count))
