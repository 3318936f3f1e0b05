"""Records of what :class:`~superarm.roads.posterior.engine.RoadEngine` forecasts and draws.

The notation is that of :mod:`.engine`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats
from superarm.core.linalg import cholesky, solve_lower

from .matrices import half_log_det

_LOG_2_PI = np.log(2.0 * np.pi)


class ExpectedRewards(NamedTuple):
    """The forecast of some rewards."""

    mean: Floats  # (M,)
    cov: Floats  # without noise, (M, M)
    noise: Floats  # R, (M, M)
    # H K A and what is known of vehicles, (s, M): rewards teach A less this.
    explained: Floats

    @property
    def total_cov(self) -> Floats:
        """The covariance of the rewards, noise included, (M, M)."""
        return self.cov + self.noise

    def log_density(self, rewards: Floats, farthest: float = np.inf) -> float:
        """−½ zᵀz − ½ ln det Σ − ½ M ln 2π with Σ = L Lᵀ and z = L⁻¹ (y − mean), nats.

        Args:
            rewards: y, (M,).
            farthest: Entries of z count as at most this large.
        """
        L = cholesky(self.total_cov, "the covariance of a trip's rewards")
        residual = rewards - self.mean
        z = solve_lower(L, residual)
        z = np.clip(z, -farthest, farthest)
        quadratic = 0.5 * float(z @ z)
        log_det = float(half_log_det(L))
        constant = 0.5 * len(z) * _LOG_2_PI
        return float(-quadratic - log_det - constant)

    def only(self, rewards: Bools, noise: Floats) -> ExpectedRewards:
        """The forecast of some of the rewards, (M,), with another noise."""
        places = np.flatnonzero(rewards)
        block = np.ix_(places, places)
        return ExpectedRewards(
            mean=self.mean[places],
            cov=self.cov[block],
            noise=noise,
            explained=self.explained[:, places],
        )


class VehicleShare(NamedTuple):
    """What rewards owe to what is known of their vehicles."""

    slots: Floats  # sums of slots that are subtracted from each reward, (s, M)
    mean: Floats  # what is added, (M,)
    cov: Floats  # of what is still unknown of the vehicles, (M, M)


class VehicleTerms(NamedTuple):
    """The terms w of one vehicle, those of the fleet included, given what it has driven."""

    vehicle: int
    rows: Bools  # the keys of this vehicle, (m,)
    slots: Floats  # sums of slots in w, (s, 5)
    mean: Floats  # what is added, (5,)
    cov: Floats  # of what is in none of the slots, (5, 5)


class RoadDraw(NamedTuple):
    """A draw of the prior, or of the posterior about its mean."""

    fleet: Floats  # w of the fleet, (5,)
    roads: Floats  # f of every road, (n,)


class NoiseDraw(NamedTuple):
    """A draw of the noise, with vehicles eliminated."""

    slots: Floats  # r, (s,)
    vehicles: dict[int, Floats]  # w of each vehicle, less what depends on the slots
