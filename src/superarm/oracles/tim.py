"""TIM+: the k nodes of largest spread in a cascade [tang2014influence].

=========  =======================================================================
``n``      nodes
``m``      links
``k``      nodes to choose
RR set     the nodes that reach a random node when every link works by chance
``κ``      1 − (1 − w/m)ᵏ, w the number of links that enter an RR set
=========  =======================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from superarm.core import Floats, Guarantee, Ints, Rescore, Rng, Selection
from superarm.core.errors import InputError
from superarm.core.graphs import Pairs, require_structure
from superarm.core.inputs import (
    as_count,
    as_generator,
    as_number,
    as_positive,
    require_type,
)
from superarm.core.registry import register

from .base import check_desirability, refuse_rescore
from .cascades import Cascade, ReachableSets, cover_most, draw_sets
from .links import ChoosesNodes, Links, available_links

_MOST_SETS = 50_000_000


class _LowerBound(NamedTuple):
    """A lower bound on the optimal spread, and the RR sets that it comes from."""

    spread: float
    sets: ReachableSets


@register("oracle", "tim")
@dataclass(frozen=True, kw_only=True)
class TIM(ChoosesNodes):
    """The ``k`` nodes of largest expected spread in a cascade, by TIM+ [tang2014influence].

    The offer's structure is a ``Pairs``. With ``two_sided`` its left nodes are chosen and its right
    nodes are reached, as in coverage; otherwise left and right number the same nodes, and those reached
    pass the influence on. The spread includes the chosen nodes themselves, and the guarantee is about
    this spread: at least 1 − 1/e − ε of the optimum with probability 1 − 3n^{−ℓ}, where n is the number
    of all nodes. TIM+ is randomised, so bounds on regret that assume a deterministic oracle do not
    cover it.

    Args:
        k: Number of nodes to choose.
        epsilon: ε in the guarantee 1 − 1/e − ε; a smaller ε takes longer.
        ell: ℓ: the guarantee fails with probability 3n^−ℓ at most.
        two_sided: Whether left and right nodes are different; otherwise both number the same nodes.
    """

    k: int
    epsilon: float = 0.1
    ell: float = 1.0
    two_sided: bool = True
    deterministic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        k = as_count(self.k, "k")
        object.__setattr__(self, "k", k)
        epsilon = as_number(self.epsilon, "epsilon", 1e-3, 1.0)
        object.__setattr__(self, "epsilon", epsilon)
        ell = as_positive(self.ell, "ell")
        object.__setattr__(self, "ell", ell)
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
        refuse_rescore(rescore, "TIM chooses all nodes at once")
        as_generator(rng)
        links = available_links(desirability, pairs, self.k)
        graph = self._cascade(links, pairs)
        chosen = self._choose(graph, len(links.sources), rng)
        alpha = 1.0 - math.exp(-1.0) - self.epsilon
        failure = 3.0 * graph.n**-self.ell
        probability = max(0.0, 1.0 - failure)
        guarantee = Guarantee(max(alpha, 0.0), probability)
        return links.select(chosen, guarantee)

    def _cascade(self, links: Links, pairs: Pairs) -> Cascade:
        """The graph of the links; sources come first, then the nodes that links only enter."""
        count = len(links.sources)
        link_counts = np.diff(links.first)
        source = np.repeat(np.arange(count), link_counts)
        if self.two_sided:
            target = links.target + count
            n = count + links.targets
        else:
            entered = pairs.right[links.arms]
            only_entered = np.setdiff1d(entered, links.sources)
            nodes = np.concatenate([links.sources, only_entered])
            target = _positions(entered, nodes)
            n = len(nodes)
        return Cascade.from_links(source, target, links.p, n)

    def _choose(self, graph: Cascade, candidates: int, rng: Rng) -> list[int]:
        """Algorithms 1 to 3 of the paper: bound the optimum from below, then cover enough RR sets."""
        n = graph.n
        if self.k == candidates:
            return list(range(self.k))
        bound = self._estimate(graph, rng)
        first_choice = cover_most(bound.sets, candidates, n, self.k)
        refined = self._refine(graph, first_choice, bound.spread, rng)
        least = max(bound.spread, refined)
        # λ / KPT⁺ sets are enough.
        enough = self._lambda(n) / least
        count = self._count(enough)
        sets = draw_sets(graph, count, rng)
        return cover_most(sets, candidates, n, self.k)

    def _lambda(self, n: int) -> float:
        """λ of the paper: the number of sets, times the optimum, that Algorithm 1 needs."""
        epsilon = self.epsilon
        log_nodes = self.ell * math.log(n)
        log_choices = _log_binomial(n, self.k)
        logarithms = log_nodes + log_choices + math.log(2.0)
        factor = (8.0 + 2.0 * epsilon) * n
        return factor * logarithms / epsilon**2

    def _estimate(self, graph: Cascade, rng: Rng) -> _LowerBound:
        """KPT* of Algorithm 2."""
        n = graph.n
        m = len(graph.source)
        doublings = math.log2(n)
        steps = max(1, int(doublings) - 1)
        log_nodes = 6.0 * self.ell * math.log(n)
        logarithms = log_nodes + 6.0 * math.log(doublings)
        for i in range(1, steps + 1):
            count = self._count(logarithms * 2.0**i)
            sets = draw_sets(graph, count, rng)
            entering = graph.degree[sets.members]
            width = np.bincount(sets.of_set, entering, minlength=sets.size)
            link_share = width / m
            missed = (1.0 - link_share) ** self.k
            kappa = float(np.mean(1.0 - missed))
            if kappa > 2.0**-i:
                spread = n * kappa / 2.0
                return _LowerBound(spread, sets)
        return _LowerBound(1.0, sets)

    def _refine(
        self, graph: Cascade, chosen: list[int], least: float, rng: Rng
    ) -> float:
        """KPT⁺ of Algorithm 3: another bound, from how many new sets the chosen nodes cover."""
        n = graph.n
        ell = self.ell
        # Algorithm 3: ε′ = 5 (ℓ ε² / (ℓ + k))^⅓, λ′ = (2 + ε′) ℓ n ln n / ε′²
        ratio = ell * self.epsilon**2 / (self.k + ell)
        accuracy: float = 5.0 * ratio ** (1.0 / 3.0)
        numerator = (2.0 + accuracy) * ell * n * math.log(n)
        enough = numerator / accuracy**2
        count = self._count(enough / least)
        sets = draw_sets(graph, count, rng)
        is_chosen = np.isin(sets.members, chosen)
        sets_with_chosen = sets.of_set[is_chosen]
        covered = np.zeros(sets.size, dtype=np.bool_)
        covered[sets_with_chosen] = True
        share = float(covered.mean())
        return share * n / (1.0 + accuracy)

    def _count(self, count: float) -> int:
        """A number of RR sets, refused where it is too large."""
        if count > _MOST_SETS:
            raise InputError(
                f"TIM+ would need {count:.3g} random sets for epsilon = {self.epsilon:g} and "
                f"ell = {self.ell:g}; raise epsilon or lower ell"
            )
        return max(1, math.ceil(count))


def _positions(values: Ints, nodes: Ints) -> Ints:
    """Where each of ``values`` is in ``nodes``, which need not be sorted."""
    order = np.argsort(nodes, kind="stable")
    places = np.searchsorted(nodes, values, sorter=order)
    return np.asarray(order[places])


def _log_binomial(n: int, k: int) -> float:
    """ln (n choose k)."""
    log_orders = math.lgamma(n + 1)
    log_chosen = math.lgamma(k + 1)
    log_others = math.lgamma(n - k + 1)
    return log_orders - log_chosen - log_others
