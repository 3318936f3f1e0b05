"""Regret bounds of similar work side by side: Table 1 of sandberg2025bayesian."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.inputs import as_count

from .arguments import as_rounds, evaluate


class ComparedWork(NamedTuple):
    """One column of Table 1."""

    name: str
    infinite: bool
    """Whether it covers infinitely many arms."""
    volatile: bool
    """Whether the arms on offer may change."""
    combinatorial: bool
    """Whether a decision may hold several arms."""
    bayesian: bool
    """Whether the bound is on Bayesian regret; else on frequentist regret."""
    gp_ucb: bool
    gp_ts: bool
    gp_bucb: bool

    @property
    def algorithms(self) -> str:
        """The algorithms whose regret it bounds."""
        covered = {
            "GP-UCB": self.gp_ucb,
            "GP-TS": self.gp_ts,
            "GP-BUCB": self.gp_bucb,
        }
        return ", ".join(name for name, is_covered in covered.items() if is_covered)

    @property
    def scope(self) -> str:
        """Which arms, offers and decisions it covers, and whose regret it bounds."""
        arms = "infinite" if self.infinite else "finite"
        offers = "volatile" if self.volatile else "static"
        decisions = "several arms" if self.combinatorial else "one arm"
        regret = "Bayesian" if self.bayesian else "frequentist"
        return f"{arms} and {offers} arms, {decisions} a round, {regret} regret"

    @property
    def formula(self) -> str:
        """The order of its bound, as the table prints it."""
        return "K√(T γ_{TK} ln T)" if self.combinatorial else "√(T γ_T ln T)"

    def order(self, rounds: Any, gamma: Gamma, budget: int = 1) -> Floats:
        """K√(T·γ_{TK}·ln T) where it is combinatorial, √(T·γ_T·ln T) elsewhere, without constants.

        Args:
            rounds: T, one or several.
            gamma: N ↦ γ_N.
            budget: K, the most arms a decision may hold; 1 for work on single arms.
        """
        T = as_rounds(rounds)
        K = 1
        if self.combinatorial:
            K = as_count(budget, "budget")
        information = evaluate(gamma, T * K)
        squares = T * information * np.log(T)
        return np.asarray(K * np.sqrt(squares))


COMPARED_WORKS = (
    ComparedWork(
        name="Sandberg et al. 2025",
        infinite=True,
        volatile=True,
        combinatorial=True,
        bayesian=True,
        gp_ucb=True,
        gp_ts=True,
        gp_bucb=True,
    ),
    ComparedWork(
        name="Nika et al. 2022",
        infinite=True,
        volatile=True,
        combinatorial=True,
        bayesian=False,
        gp_ucb=True,
        gp_ts=False,
        gp_bucb=False,
    ),
    ComparedWork(
        name="Takeno et al. 2023, 2024",
        infinite=True,
        volatile=False,
        combinatorial=False,
        bayesian=True,
        gp_ucb=True,
        gp_ts=True,
        gp_bucb=False,
    ),
    ComparedWork(
        name="Kandasamy et al. 2018",
        infinite=True,
        volatile=False,
        combinatorial=False,
        bayesian=True,
        gp_ucb=False,
        gp_ts=True,
        gp_bucb=False,
    ),
    ComparedWork(
        name="Russo and Van Roy 2014",
        infinite=False,
        volatile=True,
        combinatorial=False,
        bayesian=True,
        gp_ucb=True,
        gp_ts=True,
        gp_bucb=False,
    ),
    ComparedWork(
        name="Srinivas et al. 2012",
        infinite=True,
        volatile=False,
        combinatorial=False,
        bayesian=False,
        gp_ucb=True,
        gp_ts=False,
        gp_bucb=False,
    ),
)
"""Table 1, from left to right."""
