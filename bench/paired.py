"""Is one side slower than the other? An interval from pairs of measurements.

Both sides are measured next to each other, in pairs, so that a load that lasts longer than a pair
affects both. Of each pair only the ratio counts. The interval lies between two of the sorted ratios. It
assumes that pairs are independent, and nothing about how ratios are distributed: the median of the
distribution lies below the k-th smallest of n ratios only if fewer than k of n fair coins show heads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.95
LEAST_PAIRS = 6
"""With fewer, not even the smallest and the largest ratio are an interval of 95 %."""


class Interval(NamedTuple):
    """What the ratio of new to old times may be."""

    lower: float
    upper: float

    @property
    def verdict(self) -> str:
        """What is certain: ``slower``, ``faster``, or neither, ``undecided``."""
        if self.lower > 1.0:
            return "slower"
        if self.upper < 1.0:
            return "faster"
        return "undecided"


def coverage(pairs: int, rank: int) -> float:
    """The probability that the median lies between two of the sorted ratios.

    Args:
        pairs: The number of ratios.
        rank: The place of the lower one, from 1 for the smallest; the upper one is as far from the
            other end.
    """
    below = sum(math.comb(pairs, heads) for heads in range(rank))
    return 1.0 - 2.0 * below / 2.0**pairs


def median_interval(ratios: Sequence[float]) -> Interval:
    """The shortest interval between sorted ratios that contains the median with at least 95 %.

    Args:
        ratios: One ratio for each pair, new over old; at least six.
    """
    pairs = len(ratios)
    if pairs < LEAST_PAIRS:
        raise ValueError(f"an interval of 95 % needs {LEAST_PAIRS} pairs, got {pairs}")
    rank = 1
    while coverage(pairs, rank + 1) >= LEVEL:
        rank += 1
    ordered = sorted(ratios)
    return Interval(lower=ordered[rank - 1], upper=ordered[-rank])


class Comparison(NamedTuple):
    """One case: the times of both sides in every pair, in seconds."""

    case: str
    old: list[float]
    new: list[float]

    @property
    def ratios(self) -> list[float]:
        return [new / old for old, new in zip(self.old, self.new, strict=True)]

    @property
    def ratio(self) -> float:
        """The ratio of medians."""
        return statistics.median(self.new) / statistics.median(self.old)

    @property
    def interval(self) -> Interval:
        return median_interval(self.ratios)


class Overall(NamedTuple):
    """All cases of a suite together: of each pair the geometric mean of their ratios."""

    ratio: float  # the median of the pairs
    interval: Interval


def overall(cases: Sequence[Comparison]) -> Overall:
    """Compare all cases of a suite at once, each with the same weight.

    Args:
        cases: The cases, with equally many pairs.
    """
    by_pair = zip(*(case.ratios for case in cases), strict=True)
    means = [statistics.geometric_mean(ratios) for ratios in by_pair]
    return Overall(ratio=statistics.median(means), interval=median_interval(means))
