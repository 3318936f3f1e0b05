"""Greedy coverage: the k nodes that reach the most others.

=========  =======================================================================
``p``      probability of each link, (m,)
``k``      nodes to choose
=========  =======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import ClassVar

import numpy as np

from superarm.core import EXACT, Floats, Guarantee, Rescore, Rng, Selection
from superarm.core.graphs import Pairs, require_structure
from superarm.core.inputs import as_count
from superarm.core.registry import register

from .base import call_rescore, check_desirability
from .links import ChoosesNodes, Links, available_links

_CHOSEN = -1.0  # the gain of a node that was chosen


@register("oracle", "coverage")
@dataclass(frozen=True, kw_only=True)
class GreedyCoverage(ChoosesNodes):
    """The ``k`` left nodes that reach the most right nodes on average, chosen one after the other.

    The offer's structure is a ``Pairs`` of two sides. A right node is reached with probability
    1 − Π(1 − p) over its links from chosen nodes. This greedy choice reaches at least 1 − (1 − 1/k)ᵏ of
    the optimum, which is more than 1 − 1/e. Desirabilities are clipped to [0, 1]: a negative one is a
    link that never works, and its node may still be chosen. ``rescore`` updates them after every node.

    Args:
        k: Number of nodes to choose.
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
        n = len(desirability)
        pairs = require_structure(structure, Pairs, n, "GreedyCoverage")
        links = available_links(desirability, pairs, self.k)
        chosen = self._choose(links, rescore, n)
        # One node, or all of them, are chosen exactly.
        if self.k in (1, len(links.sources)):
            return links.select(chosen, EXACT)
        missed_share = (1.0 - 1.0 / self.k) ** self.k
        guarantee = Guarantee(alpha=1.0 - missed_share)
        return links.select(chosen, guarantee)

    def _choose(self, links: Links, rescore: Rescore | None, n: int) -> list[int]:
        if rescore is None:
            return self._choose_lazily(links)
        return self._choose_stepwise(links, rescore, n)

    def _choose_lazily(self, links: Links) -> list[int]:
        """Gains only shrink, so one that beats the earlier gains of all others is the largest."""
        missed = np.ones(links.targets)  # probability that a target is not reached
        starts = links.first[:-1]
        gains = np.add.reduceat(links.p, starts)
        heap = [(-gain, source) for source, gain in enumerate(gains.tolist())]
        heapify(heap)
        chosen: list[int] = []
        while len(chosen) < self.k:
            _, source = heappop(heap)
            leaving = links.leaving(source)
            target = links.target[leaving]
            p = links.p[leaving]
            gain = float(missed[target] @ p)
            entry = (-gain, source)
            if heap and entry > heap[0]:
                heappush(heap, entry)
                continue
            chosen.append(source)
            missed[target] *= 1.0 - p
        return chosen

    def _choose_stepwise(self, links: Links, rescore: Rescore, n: int) -> list[int]:
        """The same with probabilities that change after every node."""
        missed = np.ones(links.targets)
        starts = links.first[:-1]
        p = links.p
        positions = np.empty(0, dtype=np.intp)
        chosen: list[int] = []
        while True:
            link_gains = missed[links.target] * p
            gains = np.add.reduceat(link_gains, starts)
            gains[chosen] = _CHOSEN
            source = int(gains.argmax())
            leaving = links.leaving(source)
            target = links.target[leaving]
            missed[target] *= 1.0 - p[leaving]
            chosen.append(source)
            if len(chosen) == self.k:
                return chosen
            arms = links.arms[leaving]
            positions = np.concatenate([positions, arms])
            updated = call_rescore(rescore, positions, n)
            check_desirability(updated)
            p = np.clip(updated[links.arms], 0.0, 1.0)
