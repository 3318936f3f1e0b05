"""Observations as the engines of :class:`superarm.posteriors.FiniteGP` learn them."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.posteriors.fixed import COUNT, INFORMATION


class Batch(NamedTuple):
    """Distinct arms, each with the weighted mean of its rewards."""

    rows: Ints  # (s,)
    rewards: Floats  # (s,)
    noise: Floats  # (s,), variances of these means
    # What the posterior's totals gain, (2n + 2,); an engine fills in the information.
    added: Floats

    @classmethod
    def of(cls, added: Floats) -> Self:
        """The batch that adds this to the totals.

        Args:
            added: What the totals gain, (2n + 2,).
        """
        n = len(added) // 2 - 1
        weight = added[:n]
        weighted_rewards = added[n:INFORMATION]
        rows = weight.nonzero()[0]  # ``np.flatnonzero`` takes three times as long
        noise = 1.0 / weight[rows]
        return cls(rows, weighted_rewards[rows] * noise, noise, added)

    @classmethod
    def of_one(cls, row: int, reward: float, noise: float, n: int) -> Self:
        """A batch of one reward.

        Args:
            row: Row number of the arm.
            reward: The reward.
            noise: Its noise variance.
            n: Number of arms.
        """
        added = np.zeros(2 * n + 2)
        added[row] = 1.0 / noise
        added[n + row] = reward / noise
        added[COUNT] = 1.0
        rows = np.array([row])
        rewards = np.array([reward])
        variances = np.array([noise])
        return cls(rows, rewards, variances, added)
