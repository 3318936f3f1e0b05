"""What a form of :class:`superarm.posteriors.FiniteGP` must do, and the visited form of it."""

from __future__ import annotations

import warnings
from typing import Protocol

import numpy as np

from superarm.core import Floats, Ints
from superarm.errors import InputError, NotPositiveDefiniteError, PrecisionWarning
from superarm.kernels import Covariance
from superarm.linalg import cholesky, psd_root, solve_lower

_REFRESH_EVERY = 256
_LEAST_NOISE = 1e-4
"""Relative to the largest prior variance: with less, digits go within a few observations."""
_DRIFT_SMALL, _DRIFT_ALLOWED = 1e-11, 1e-9


class FiniteEngine(Protocol):
    """One form of the posterior over all arms; ``variance`` is never below 0."""

    mean: Floats  # (n,)
    variance: Floats  # (n,)

    @property
    def rank(self) -> int: ...
    @property
    def tolerance(self) -> float: ...
    def absorb(self, rows: Ints, rewards: Floats, noise: Floats, weight: Floats) -> float:
        """Learn from distinct rows, all or nothing; returns the information gained.

        ``weight`` is Σ 1/noise of every arm's observations before this one, (n,).
        """
        ...

    def absorb_one(self, row: int, reward: float, noise: float, weight: Floats) -> float: ...
    def check_noise(self, noise: Floats) -> None:
        """Refuse noise that this form has not the digits for."""
        ...

    def maintain(self, weight: Floats, weighted_rewards: Floats) -> None:
        """Called after every observation with all merged data: clears rounding now and then."""
        ...

    def covariance(self, rows: Ints) -> Floats: ...
    @property
    def normals_per_draw(self) -> int:
        """Standard normals that a joint draw takes: the same however much was observed."""
        ...

    def draw(self, normals: Floats, weight: Floats) -> Floats:
        """Joint draws about zero of all arms, (m, n), from normals (m, ``normals_per_draw``)."""
        ...


class VisitedEngine:
    """P = K − K_EV H K_VE over the arms visited so far; columns of K are made on demand."""

    tolerance = 0.0

    def __init__(self, kernel: Covariance, arms: Floats, mean: Floats) -> None:
        self._kernel = kernel
        self._arms = arms
        self.mean = mean.copy()
        self.variance = np.array(kernel.diag(arms), dtype=np.float64)
        if not (self.variance >= 0.0).all():
            where = int(np.argmin(self.variance))
            raise NotPositiveDefiniteError(
                f"arm {where} has prior variance {self.variance[where]}; it must not be negative"
            )
        self._visited = np.empty(0, dtype=np.intp)
        self._slot = np.full(len(arms), -1, dtype=np.intp)  # where an arm stands in V
        self._columns = np.empty((0, len(arms)))  # K_VE, grown by doubling
        self._precision = np.empty((0, 0))  # H, grown likewise
        self._prior_root: Floats | None = None
        self._prior_mean = mean.copy()
        self._updates = 0
        self._refresh_at = self._interval = 8
        self._warned = False

    @property
    def rank(self) -> int:
        return len(self._visited)

    def absorb(self, rows: Ints, rewards: Floats, noise: Floats, weight: Floats) -> float:
        # Q = I_S − K_SV H, C = chol(Q K_VS + D), B = C⁻¹Q, W = B K_VE, z = C⁻¹(y − m_S);
        # H gains BᵀB. For an arm seen before, Q is H's own row over its weight, because
        # (K_VV + diag(1/weight)) H = I: the same number without its cancellation.
        fresh = rows[self._slot[rows] < 0]
        columns, precision = self._grown(fresh)
        size = len(self._visited) + len(fresh)
        slots = self._slot[rows].copy()
        slots[slots < 0] = np.arange(len(self._visited), size)
        K_SV = columns[:size, rows].T
        seen = weight[rows] > 0.0
        Q = precision[slots, :size]
        Q[seen] /= weight[rows[seen], None]
        Q[~seen] = -(K_SV[~seen] @ precision[:size, :size])
        Q[~seen, slots[~seen]] += 1.0
        C = cholesky(Q @ K_SV.T + np.diag(noise), "the covariance of the observed arms")
        B = solve_lower(C, Q)
        W = B @ columns[:size]
        z = solve_lower(C, rewards - self.mean[rows])
        # From here on nothing can fail.
        self._columns, self._precision = columns, precision
        self._slot[fresh] = np.arange(len(self._visited), size)
        self._visited = np.concatenate([self._visited, fresh])
        self.mean += z @ W
        self.variance -= np.einsum("ij,ij->j", W, W)
        np.maximum(self.variance, 0.0, out=self.variance)
        self._precision[:size, :size] += B.T @ B
        return float(np.log(np.diagonal(C)).sum() - 0.5 * np.log(noise).sum())

    def _grown(self, fresh: Ints) -> tuple[Floats, Floats]:
        """Buffers that also hold the fresh arms' columns, with zeros for them in H."""
        used, size = len(self._visited), len(self._visited) + len(fresh)
        columns, precision = self._columns, self._precision
        if size > len(columns):
            capacity = max(64, 2 * len(columns), size)
            columns = np.empty((capacity, len(self._arms)))
            columns[:used] = self._columns[:used]
            precision = np.zeros((capacity, capacity))
            precision[:used, :used] = self._precision[:used, :used]
        if len(fresh):
            columns[used:size] = self._kernel(self._arms[fresh], self._arms)
        return columns, precision

    def absorb_one(self, row: int, reward: float, noise: float, weight: Floats) -> float:
        return self.absorb(np.array([row]), np.array([reward]), np.array([noise]), weight)

    def check_noise(self, noise: Floats) -> None:
        least = _LEAST_NOISE * float(np.max(self._kernel.diag(self._arms)))
        if noise.min() < least:
            raise InputError(
                f"noise_variance {noise.min():.3g} is too small for the visited form, which keeps an "
                f"inverse: it needs at least {least:.3g} here; use form='root'"
            )

    def maintain(self, weight: Floats, weighted_rewards: Floats) -> None:
        # H grows by sums whose rounding it then multiplies: solve afresh before that shows.
        self._updates += 1
        if self._updates < self._refresh_at:
            return
        visited, size = self._visited, len(self._visited)
        K_VE = self._columns[:size]
        noise = 1.0 / weight[visited]
        L = cholesky(K_VE[:, visited] + np.diag(noise), "the covariance of the visited arms")
        half = solve_lower(L, np.eye(size))
        residual = weighted_rewards[visited] * noise - self._prior_mean[visited]
        W = half @ K_VE
        carried = self.mean
        self._precision[:size, :size] = half.T @ half
        self.mean = self._prior_mean + (half @ residual) @ W
        self.variance = self._kernel.diag(self._arms) - np.einsum("ij,ij->j", W, W)
        np.maximum(self.variance, 0.0, out=self.variance)
        self._report_drift(carried)

    def _report_drift(self, carried: Floats) -> None:
        """How far the mean had drifted from a fresh solve: say so, once, if digits were lost."""
        prior_std = float(np.sqrt(np.max(self._kernel.diag(self._arms))))
        scale = max(prior_std, float(np.max(np.abs(self.mean)))) or 1.0
        drift = float(np.max(np.abs(carried - self.mean))) / scale
        # Seldom while all is well, often where digits go fast.
        self._interval = min(2 * self._interval, _REFRESH_EVERY) if drift < _DRIFT_SMALL else 8
        self._refresh_at = self._updates + self._interval
        if drift > _DRIFT_ALLOWED and not self._warned:
            self._warned = True
            warnings.warn(
                f"the visited form had drifted by {drift:.0e} of the largest mean: with so "
                "little noise the visited arms' covariance is nearly singular; use form='root'",
                PrecisionWarning,
                stacklevel=5,
            )

    def covariance(self, rows: Ints) -> Floats:
        size = len(self._visited)
        K_VR = self._columns[:size, rows]
        return (
            np.asarray(self._kernel(self._arms[rows])) - K_VR.T @ self._precision[:size, :size] @ K_VR
        )

    @property
    def normals_per_draw(self) -> int:
        return int(self._prior().shape[1]) + len(self._arms)

    def draw(self, normals: Floats, weight: Floats) -> Floats:
        """Pathwise: a prior draw u, corrected where arms were visited: u − K_EV H (u_V + ε)."""
        root = self._prior()
        rank, count = root.shape[1], len(self._visited)
        drawn: Floats = normals[:, :rank] @ root.T
        if count:
            noise = normals[:, rank : rank + count] / np.sqrt(weight[self._visited])
            pull = (drawn[:, self._visited] + noise) @ self._precision[:count, :count]
            drawn -= pull @ self._columns[:count]
        return drawn

    def _prior(self) -> Floats:
        """A root of the prior covariance over all arms, made when the first draw is asked for."""
        if self._prior_root is None:
            prior = np.asarray(self._kernel(self._arms))
            self._prior_root = psd_root(prior, "the prior covariance of the arms").root
        return self._prior_root
