"""Rewards that depend on the sum of what the arms yield."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.registry import register


def total(values: Floats) -> float:
    """The sum, smallest first.

    In one fixed order, rounding cannot lift a super arm above one whose arms are each at least as
    good; so the regret against the best super arm is never below zero, not even by 1e-16.

    Args:
        values: Any numbers, (k,).
    """
    return float(np.sort(values).sum())


@register("reward", "sum")
@dataclass(frozen=True, kw_only=True)
class Sum:
    """The sum of what the arms yield.

    >>> Sum().worth(np.array([1.0, 2.0]), np.array([0, 1]), None)
    3.0
    """

    lipschitz = 1.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        return total(outcomes)


@register("reward", "log-sum")
@dataclass(frozen=True, kw_only=True)
class LogSum:
    """ln(1 + Σ outcomes): each further arm is worth less [nika2022oclok, section 5.1].

    Noise may bring the sum below 0, where the logarithm is steep and then ends: such a sum is worth 0,
    so that the worth is monotone with B = 1 everywhere.
    """

    lipschitz = 1.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        return log1p(max(total(outcomes), 0.0))
