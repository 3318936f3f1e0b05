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
_UNSEEN = 0.05  # probability that n seeds miss what happens in a share q_n of all
_RARE = 0.1  # what happens in fewer seeds is ignored
ROUNDING = 1e-9
"""Of the numbers that are compared: a difference below it is none."""


class Sharing(NamedTuple):
    """What seeds have in common, which makes them worth less than independent ones.

    Args:
        share: The share of its records that a seed has in common with another one, below
            1.
        independent: How many independent seeds all of them are worth at most, where
            records follow each other.
    """

    share: float = 0.0
    independent: float = math.inf


INDEPENDENT_SEEDS = Sharing()


class Lead(NamedTuple):
    """Evidence on a number that is above zero if a claim is true of a seed.

    Args:
        mean: The mean over seeds.
        stderr: Its standard error, with what shared records add to it.
        t: Mean over standard error; ±∞ where all seeds have the same number, 0 where all
            are tied.
        corrected: t, or t without skewness: whichever is nearer to zero.
        seeds: The number of seeds, or of independent ones that they are worth, rounded
            down.
        scale: The size of what the number is a difference of.
        tied: Whether every seed's number is zero, but for rounding.
    """

    mean: float
    stderr: float
    t: float
    corrected: float
    seeds: int
    scale: float
    tied: bool

    def strength(self, comparisons: int = 1) -> float:
        """Above 1 the mean is decidedly above zero, below −1 decidedly below.

        Args:
            comparisons: The number of comparisons in which a negative mean was looked for.
        """
        if self.seeds < LEAST_SEEDS or self.tied or not math.isfinite(self.mean):
            return 0.0
        tested = self.comparisons(comparisons)
        limit = needed_errors(self.seeds, tested)
        by_chance = abs(self.corrected) / limit
        by_unlike_seeds = math.inf
        outweighed = self.outweighed
        if outweighed > 0.0:
            by_unlike_seeds = abs(self.mean) / outweighed
        weaker = min(by_chance, by_unlike_seeds)
        return math.copysign(weaker, self.mean)

    def comparisons(self, count: int) -> int:
        """The number of comparisons to correct for: a lead must be decided in all of them.

        Args:
            count: The number of comparisons in all.
        """
        return count if self.mean < 0.0 else 1

    @property
    def outweighed(self) -> float:
        """The largest lead that seeds unlike these could reverse."""
        share = unlike_share(self.seeds)
        return share * self.scale if share > _RARE else 0.0

    @property
    def seeds_needed(self) -> int:
        """The number of seeds with which unlike seeds could not reverse such a lead."""
        share = max(_RARE, abs(self.mean) / self.scale)
        if share >= 1.0:
            return LEAST_SEEDS
        seeds = math.floor(math.log(_UNSEEN) / math.log1p(-share)) + 1
        return max(LEAST_SEEDS, seeds)


def lead_of(
    values: Floats, *, scale: float = 0.0, sharing: Sharing = INDEPENDENT_SEEDS
) -> Lead:
    """Weigh one number per seed.

    Args:
        values: One for each seed, (n,).
        scale: The size of what the numbers are differences of; 0 where seeds unlike these
            are no concern.
        sharing: What seeds have in common.

    >>> lead_of(np.array([1.0, 2.0, 1.5, 1.2, 1.3])).strength() > 1.0
    True
    """
    count = len(values)
    tied = bool(np.all(np.abs(values) <= ROUNDING * scale))
    mean = 0.0
    spread = 0.0  # s
    if not tied:
        mean = float(values.mean())
        if count > 1:
            spread = float(values.std(ddof=1))
    share = sharing.share
    variance_factor = 1.0 / count + share / (1.0 - share)  # 1/n + ρ/(1 − ρ)
    stderr = spread * math.sqrt(variance_factor)
    t, corrected = _t_values(values, mean, spread, stderr)
    return Lead(
        mean=mean,
        stderr=stderr,
        t=t,
        corrected=corrected,
        seeds=int(min(count, sharing.independent)),
        scale=scale,
        tied=tied,
    )


def _t_values(
    values: Floats, mean: float, spread: float, stderr: float
) -> tuple[float, float]:
    """t, and t corrected for skewness, with the standard error that shared records leave."""
    if spread <= ROUNDING * abs(mean):  # all seeds have the same number
        t = math.copysign(math.inf, mean) if mean else 0.0
        return t, t
    count = len(values)
    root = math.sqrt(count)
    t = mean * root / spread
    corrected = _without_skewness(t, _skewness(values), count)
    inflation = spread / (stderr * root)  # 1 where nothing is shared
    return t * inflation, corrected * inflation


def _skewness(values: Floats) -> float:
    """Skewness corrected for bias; 0 for fewer than three numbers."""
    count = len(values)
    if count < 3:
        return 0.0
    deviations = values - values.mean()
    second_moment = np.mean(deviations**2)
    third_moment = np.mean(deviations**3)
    biased = float(third_moment / second_moment**1.5)
    return biased * math.sqrt(count * (count - 1)) / (count - 2)


def _without_skewness(t: float, skewness: float, count: int) -> float:
    """Hall's transformation of t where it is nearer to zero, t elsewhere; never beyond zero."""
    root = math.sqrt(count)
    transformed = (
        t
        + skewness * t**2 / (3.0 * root)
        + skewness**2 * t**3 / (27.0 * count)
        + skewness / (6.0 * root)
    )
    sign = math.copysign(1.0, t)
    size = max(0.0, sign * transformed)
    nearer = min(abs(t), size)
    return math.copysign(nearer, t)


def needed_errors(seeds: int, comparisons: int = 1) -> float:
    """Standard errors that a mean must be away from zero, by Student's t.

    Args:
        seeds: The number of seeds.
        comparisons: The number of means that are tested together.

    >>> [round(needed_errors(seeds), 2) for seeds in (4, 5, 25)], round(needed_errors(5, 10), 2)
    ([4.54, 3.75, 2.49], 7.17)
    """
    from scipy.special import stdtrit

    if seeds <= 1:
        return math.inf
    return float(stdtrit(seeds - 1, 1.0 - _CHANCE / comparisons))


def unlike_share(seeds: int) -> float:
    """q_n: the share of all seeds that n of them may have missed, at 95 %.

    Args:
        seeds: n.

    >>> [round(unlike_share(seeds), 3) for seeds in (5, 10, 25, 200)]
    [0.451, 0.259, 0.113, 0.015]
    """
    return float(-math.expm1(math.log(_UNSEEN) / seeds))


def within_noise(
    differences: Floats,
    *,
    comparisons: int = 1,
    scale: float = 0.0,
    sharing: Sharing = INDEPENDENT_SEEDS,
) -> bool:
    """Whether the mean of one difference per seed may be chance; always so for few seeds.

    Ignores seeds unlike these: it describes what was seen and decides no claim.

    Args:
        differences: One for each seed, (n,).
        comparisons: The number of such means that are looked at together.
        scale: The size of what the numbers are differences of, by which rounding is
            recognised.
        sharing: What seeds have in common.
    """
    lead = lead_of(differences, scale=scale, sharing=sharing)
    limit = needed_errors(lead.seeds, comparisons)
    return lead.seeds < LEAST_SEEDS or abs(lead.corrected) <= limit or lead.tied
