"""Observations as the engines of :class:`superarm.posteriors.FiniteGP` learn them."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.posteriors.fixed import COUNT, INFORMATION


class Batch(NamedTuple):
    """Distinct arms, each with the weighted mean of its rewards."""

    rows: Ints
    rewards: Floats
    noise: Floats  # variances of these means
    added: (
        Floats  # what the posterior's totals gain; an engine fills in the information
    )

    @classmethod
    def of(cls, added: Floats) -> Self:
        """What is added to the totals, arm by arm."""
        n = len(added) // 2 - 1
        weight, weighted = added[:n], added[n:INFORMATION]
        rows = np.flatnonzero(weight)
        noise = 1.0 / weight[rows]
        return cls(rows, weighted[rows] * noise, noise, added)

    @classmethod
    def of_one(cls, row: int, reward: float, noise: float, n: int) -> Self:
        """One reward of one of n arms."""
        added = np.zeros(2 * n + 2)
        added[row] = 1.0 / noise
        added[n + row] = reward / noise
        added[COUNT] = 1.0
        return cls(np.array([row]), np.array([reward]), np.array([noise]), added)
