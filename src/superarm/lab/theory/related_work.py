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

    def order(self, rounds: Any, gamma: Gamma, budget: int = 1) -> Floats:
        """K√(T·γ_{TK}·ln T) where it is combinatorial, √(T·γ_T·ln T) elsewhere, without constants.

        Args:
            rounds: T, one or several.
            gamma: N ↦ γ_N.
            budget: K, the most arms a decision may hold; 1 for work on single arms.
        """
        T = as_rounds(rounds)
        K = as_count(budget, "budget") if self.combinatorial else 1
        return np.asarray(K * np.sqrt(T * evaluate(gamma, T * K) * np.log(T)))


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


def comparison_table(rounds: Any, gamma: Gamma, budget: int) -> str:
    """Table 1 as Markdown, with the order of each bound at some numbers of rounds.

    Args:
        rounds: T, one or several: a row of orders for each.
        gamma: N ↦ γ_N.
        budget: K of the combinatorial work.

    >>> print(comparison_table(100, lambda count: 10.0, 3).splitlines()[-1].split("|")[1:4])
    [' order at T = 100 ', ' 204 ', ' 204 ']
    """
    T = np.atleast_1d(as_rounds(rounds))
    columns = [_column(work) for work in COMPARED_WORKS]
    for work, column in zip(COMPARED_WORKS, columns, strict=True):
        for horizon in T:
            order = float(work.order(horizon, gamma, budget))
            column.append(f"{order:,.0f}")
    labels = [*_LABELS, *(f"order at T = {horizon:,.0f}" for horizon in T)]
    rows = zip(labels, *columns, strict=True)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_LABELS = (
    "",
    "---",
    "arms",
    "offers",
    "combinatorial",
    "regret",
    "GP-UCB",
    "GP-TS",
    "GP-BUCB",
    "bound",
)


def _column(work: ComparedWork) -> list[str]:
    """The entries of a work, in the order of the labels."""
    return [
        work.name,
        "---",
        "infinite" if work.infinite else "finite",
        "volatile" if work.volatile else "static",
        _tick(work.combinatorial),
        "Bayesian" if work.bayesian else "frequentist",
        _tick(work.gp_ucb),
        _tick(work.gp_ts),
        _tick(work.gp_bucb),
        _formula(work),
    ]


def _tick(value: bool) -> str:
    return "✓" if value else "✗"


def _formula(work: ComparedWork) -> str:
    return "K√(T γ_{TK} ln T)" if work.combinatorial else "√(T γ_T ln T)"
