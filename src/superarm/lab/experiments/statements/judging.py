"""What decides a statement, whichever paper it is from.

==============  ================================================================================
``share``       how much was used of what a statement allows; above 1, it fails
``failures``    trials, seeds as a rule, in which a statement failed that may fail with probability δ
``chance``      probability of a wrong verdict, on one side
==============  ================================================================================
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from superarm.lab.experiments.claims import Margin, Word
from superarm.lab.results.formats import count_text
from superarm.lab.results.verdicts import LEAST_SEEDS, Sharing
from superarm.lab.simulation import Run

EXACT_POSTERIORS = ("auto", "finite", "streaming")
CHANCE = 0.01
ROUNDING = 1e-6
"""Of shares that are sums over hundreds of rounds."""


def word_if(holds: bool) -> Word:
    """The verdict on a statement that is decided either way.

    Args:
        holds: whether it does.
    """
    return "holds" if holds else "does not hold"


def word_of_share(share: float, rounding: float = ROUNDING) -> Word:
    """The verdict on a statement that must hold for sure.

    Args:
        share: the largest share of what is allowed.
        rounding: by how much rounding may raise it above 1.
    """
    return word_if(share <= 1.0 + rounding)


def share_of(used: float, allowed: float) -> float:
    """How much was used of what is allowed; where nothing is allowed, 0 or infinity.

    Args:
        used: what was used.
        allowed: what is allowed, 0 or more.

    >>> share_of(1.0, 4.0), share_of(0.0, 0.0), share_of(1.0, 0.0)
    (0.25, 0.0, inf)
    """
    if allowed > 0.0 or math.isnan(used) or math.isnan(allowed):
        return used / allowed if allowed else math.nan
    return 0.0 if used <= 0.0 else math.inf


def word_of_margin(margin: Margin, sharing: Sharing) -> Word:
    """The verdict on a statement about a mean, by the rules of claims.

    Args:
        margin: above zero in the mean if the statement is true.
        sharing: what seeds have in common.
    """
    if not np.isfinite(margin.values).all():
        return "undecided"
    strength = margin.strength(sharing, 1)
    if abs(strength) <= 1.0:
        return "undecided"
    return word_if(strength > 0.0)


class FailureTails(NamedTuple):
    """How probable a number of failures is, if each trial fails with probability δ."""

    as_few: float
    """Probability of this many failures or fewer."""
    as_many: float
    """Probability of this many failures or more."""

    def word(self, chance: float = CHANCE) -> Word:
        """Whether failures have at most probability δ.

        They do if so few would be improbable at δ, and do not if so many would be.

        Args:
            chance: probability of a wrong verdict, on one side.
        """
        if self.as_many < chance:
            return "does not hold"
        return "holds" if self.as_few < chance else "undecided"


def failure_tails(failures: int, trials: int, delta: float) -> FailureTails:
    """Exact binomial tails.

    Args:
        failures: in how many trials the statement failed.
        trials: how many independent trials there are.
        delta: δ, the probability with which a trial may fail, in (0, 1).

    >>> [failure_tails(0, trials, 0.05).word() for trials in (5, 90)], failure_tails(3, 5, 0.05).word()
    (['undecided', 'holds'], 'does not hold')
    """
    from scipy.special import bdtr, bdtrc

    as_few = float(bdtr(failures, trials, delta))
    as_many = 1.0
    if failures:
        fewer = failures - 1
        as_many = float(bdtrc(fewer, trials, delta))
    return FailureTails(as_few, as_many)


def trials_needed(delta: float, chance: float = CHANCE) -> int:
    """How many trials without a failure decide that failures have at most probability δ.

    Args:
        delta: δ, in (0, 1).
        chance: probability of a wrong verdict.

    >>> trials_needed(0.05)
    90
    """
    return math.ceil(math.log(chance) / math.log1p(-delta))


# --- texts of evidence ----------------------------------------------------------------------


def size_text(run: Run) -> str:
    """How many seeds and rounds evidence is from.

    Args:
        run: a finished run.
    """
    return f"({count_text(len(run.seeds), 'seed')}, T = {run.rounds})"


def few_seeds_text(run: Run) -> str:
    """Why few seeds decide nothing about a mean; empty where they are enough.

    Args:
        run: a finished run.
    """
    if len(run.seeds) >= LEAST_SEEDS:
        return ""
    return f"; needs at least {LEAST_SEEDS} seeds"


def too_few_text(word: Word, failures: int, delta: float) -> str:
    """How many seeds without a failure would decide; empty where that is no help.

    Args:
        word: the verdict.
        failures: in how many seeds the statement failed.
        delta: δ, in (0, 1).
    """
    if word != "undecided" or failures:
        return ""
    needed = trials_needed(delta)
    return f"; deciding needs {count_text(needed, 'seed')} without a failure"
