"""Whether seeds decide: one number per seed, and whether its mean is above or below zero.

==============  ================================================================================
``n``           how many seeds there are
``x̄``, ``s``    mean and standard deviation of the numbers; t = √n x̄/s
``g``           their skewness, corrected for bias
``ρ``           the share of its records that a seed has in common with another one
``scale``       the size of what the number is a difference of, in the same unit
==============  ================================================================================

Four things must be excluded before seeds decide.

*Chance.* Student's t, at 99 % on the side in question. A claim about several comparisons *holds* only
if each of them is decided, so that none needs a correction; it *does not hold* if any one of them is
decided the other way, so that each is tested at 1 % / (number of comparisons), after Bonferroni.

*Skewness.* Where a few seeds are far worse than the others, few seeds show none of them, and t is too
large. Hall's transformation [hall1992removal] takes skewness out of t,

    t + g t²/(3√n) + g² t³/(27n) + g/(6√n),

and what is nearer to zero counts, t or this: skewness may withhold a verdict, never make one.

*Seeds unlike these.* What happens in a share q of all seeds is missed by n of them with probability
(1 − q)ⁿ. At 95 % such seeds may be as many as q_n = 1 − 0.05^{1/n}: 45 % for five seeds, 11 % for 25.
If each of them were worse by ``scale``, the mean would be lower by q_n · scale. A lead must exceed
that, unless there are 29 seeds or more: q_n is then below 10 %, and what is rarer is left out of
account. No rule that looks at the seeds alone does without such a scale: a loss that is rare and large
enough turns any lead around, unseen.

*Records that seeds share.* If each of n totals is a sum over records, of which two have a share ρ in
common, their correlation is ρ: the variance of their mean is s² (1/n + ρ/(1 − ρ)), not s²/n
[nadeau2003inference].

Such totals are exchangeable, and t keeps n − 1 degrees of freedom. Where each seed takes one of many
records that follow each other in time, such as readings of two mornings, it is not so: the spread
between seeds is known as badly as their mean. All seeds together then count as no more than the number
of independent records, by their autocorrelation, that have a mean as uncertain.

A lead of less than a billionth of ``scale`` is rounding: it counts as a tie. Fewer than four seeds
decide nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from superarm.core import Floats

LEAST_SEEDS = 4
_CHANCE = 0.01  # of a wrong verdict, on one side
_UNSEEN = (
    0.05  # with which probability n seeds may miss what happens in a share q_n of them
)
_RARE = 0.1  # what happens in fewer seeds is left out of account
ROUNDING = 1e-9
"""Of the numbers that are compared: a difference below it is none."""


class Sharing(NamedTuple):
    """What seeds have in common, so that they say less than as many independent ones."""

    share: float = 0.0
    """Of its records, the share that a seed has in common with another one; below 1."""
    independent: float = math.inf
    """How many independent seeds all of them are worth at most, where records follow each other."""


ALONE = Sharing()


class Lead(NamedTuple):
    """What seeds say of a number that is above zero if something is true of them."""

    mean: float
    stderr: float
    """With what shared records add to it."""
    t: float
    """Mean over standard error; ±∞ where all seeds have the same number, 0 where all are tied."""
    corrected: float
    """t, or what is left of it without skewness: whichever is nearer to zero."""
    seeds: int
    """How many there are, or how many independent ones they are worth, rounded down."""
    scale: float
    tied: bool
    """Whether every seed's number is zero, but for rounding."""

    def strength(self, comparisons: int = 1) -> float:
        """Beyond 1 it is decided that the mean is above zero, beyond −1 that it is below.

        Args:
            comparisons: among how many it was looked for, if it is below zero.
        """
        if self.seeds < LEAST_SEEDS or self.tied:
            return 0.0
        by_chance = abs(self.corrected) / needed_errors(
            self.seeds, self.comparisons(comparisons)
        )
        unlike = self.outweighed
        by_unlike_seeds = abs(self.mean) / unlike if unlike > 0.0 else math.inf
        weaker = min(by_chance, by_unlike_seeds)
        return math.copysign(weaker, self.mean) if math.isfinite(self.mean) else 0.0

    def comparisons(self, count: int) -> int:
        """How many comparisons the limit is corrected for: a lead must be decided in all of them."""
        return count if self.mean < 0.0 else 1

    @property
    def outweighed(self) -> float:
        """The largest lead that seeds unlike these could turn around."""
        share = unlike_share(self.seeds)
        return share * self.scale if share > _RARE else 0.0

    @property
    def seeds_needed(self) -> int:
        """With how many seeds a lead of this size could not be turned around by seeds unlike them."""
        share = max(_RARE, abs(self.mean) / self.scale)
        if share >= 1.0:
            return LEAST_SEEDS
        return max(LEAST_SEEDS, math.floor(math.log(_UNSEEN) / math.log1p(-share)) + 1)


def lead_of(values: Floats, *, scale: float = 0.0, sharing: Sharing = ALONE) -> Lead:
    """Weigh one number per seed.

    Args:
        values: (n,), one for each seed.
        scale: of what the numbers are differences of; 0 where seeds unlike these are no concern.
        sharing: what seeds have in common.

    >>> lead_of(np.array([1.0, 2.0, 1.5, 1.2, 1.3])).strength() > 1.0
    True
    """
    count = len(values)
    tied = (
        bool(np.all(np.abs(values) <= ROUNDING * scale))
        if scale
        else not np.any(values)
    )
    mean = 0.0 if tied else float(values.mean())
    spread = float(values.std(ddof=1)) if count > 1 and not tied else 0.0
    stderr = spread * math.sqrt(1.0 / count + sharing.share / (1.0 - sharing.share))
    seeds = int(min(count, sharing.independent))
    if spread <= ROUNDING * abs(mean):
        t = math.copysign(math.inf, mean) if mean else 0.0
        return Lead(mean, stderr, t, t, seeds, scale, tied)
    inflation = spread / (stderr * math.sqrt(count))  # 1 where nothing is shared
    t = mean * math.sqrt(count) / spread
    corrected = _without_skewness(t, _skewness(values), count)
    return Lead(mean, stderr, t * inflation, corrected * inflation, seeds, scale, tied)


def _skewness(values: Floats) -> float:
    """Corrected for bias; 0 for fewer than three numbers."""
    count = len(values)
    if count < 3:
        return 0.0
    away = values - values.mean()
    plain = float(np.mean(away**3) / np.mean(away**2) ** 1.5)
    return plain * math.sqrt(count * (count - 1)) / (count - 2)


def _without_skewness(t: float, skewness: float, count: int) -> float:
    """Hall's transformation of t where it is nearer to zero, t elsewhere; never beyond zero."""
    root = math.sqrt(count)
    turned = (
        t
        + skewness * t**2 / (3.0 * root)
        + skewness**2 * t**3 / (27.0 * count)
        + skewness / (6.0 * root)
    )
    nearer = min(abs(t), max(0.0, math.copysign(1.0, t) * turned))
    return math.copysign(nearer, t)


def needed_errors(seeds: int, comparisons: int = 1) -> float:
    """Standard errors that a mean must be away from zero, by Student's t.

    >>> [round(needed_errors(seeds), 2) for seeds in (4, 5, 25)], round(needed_errors(5, 10), 2)
    ([4.54, 3.75, 2.49], 7.17)
    """
    from scipy.special import stdtrit

    return (
        float(stdtrit(seeds - 1, 1.0 - _CHANCE / comparisons))
        if seeds > 1
        else math.inf
    )


def unlike_share(seeds: int) -> float:
    """q_n: how large a share of all seeds n of them may have missed, at 95 %.

    >>> [round(unlike_share(seeds), 3) for seeds in (5, 10, 25, 200)]
    [0.451, 0.259, 0.113, 0.015]
    """
    return float(-math.expm1(math.log(_UNSEEN) / seeds))


def within_noise(
    differences: Floats,
    *,
    comparisons: int = 1,
    scale: float = 0.0,
    sharing: Sharing = ALONE,
) -> bool:
    """Whether the mean of one difference per seed may be chance; few seeds cannot say.

    Seeds unlike these are left out of account: what was seen is described, no claim is decided.

    Args:
        differences: (n,), one for each seed.
        comparisons: how many such means are looked at together.
        scale: of what the numbers are differences of, by which rounding is recognised.
        sharing: what seeds have in common.
    """
    lead = lead_of(differences, scale=scale, sharing=sharing)
    limit = needed_errors(lead.seeds, comparisons)
    return lead.seeds < LEAST_SEEDS or abs(lead.corrected) <= limit or lead.tied
