"""The two forms of :class:`superarm.posteriors.FiniteGP`; notation as in ``finite.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import numpy as np

from superarm.core import Floats, Ints
from superarm.errors import InputError, MissingExtraError, NotPositiveDefiniteError
from superarm.kernels import Covariance
from superarm.linalg import cholesky, psd_root, root_update, solve_lower

Backend = Literal["auto", "numpy", "numba"]
PENDING = 32
"""Different arms that may be pending: enough for a policy that has settled, and for BLAS to work
well when they are folded in."""
FOLD_EVERY = 512
"""Observations after which what is pending is folded in, so that rounding cannot build up."""
MOST_WEIGHT = 1e5
"""Pending Σ 1/noise, relative to 1/prior variance, past which H's rounding would show: it grows
like this number times the machine's precision. Nearly noiseless rewards are folded in at once."""
_REFRESH_VISITED = 256


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
    def maintain(self, weight: Floats, weighted_rewards: Floats) -> None:
        """Called after every observation with all merged data: clears rounding now and then."""
        ...

    def covariance(self, rows: Ints) -> Floats: ...
    def draw(self, rows: Ints, rng: np.random.Generator, size: int, weight: Floats) -> Floats:
        """Joint draws about zero, (size, len(rows))."""
        ...


class RootEngine:
    """P = R Rᵀ − Cᵀ H C: a square root of the covariance, and what came since it was last brought
    up to date.

    A policy plays a few arms again and again. Their observations are kept *pending*: C (v, n)
    holds the covariance columns of the v pending arms at the last update and H their precision,
    so an observation costs v·n, not r·n. When more than ``PENDING`` different arms are pending,
    or now and then, all of them are folded into R at once (:func:`superarm.linalg.root_update`).
    Mean and variance are always up to date.
    """

    def __init__(self, kernel: Covariance, arms: Floats, mean: Floats, backend: Backend) -> None:
        factor = psd_root(np.asarray(kernel(arms)), "the prior covariance of the arms")
        self.root = factor.root
        self.tolerance = factor.error
        self.mean = mean.copy()
        self.variance = self._row_squares()
        self._loops = loops_of(backend)
        self._columns = np.zeros((PENDING, len(arms)))  # C
        self._precision = np.zeros((PENDING, PENDING))  # H
        self._weight = np.zeros(PENDING)  # Σ 1/noise since R was brought up to date
        self._pending = np.zeros(PENDING, dtype=np.intp)  # V, of which len(_slot) are in use
        self._slot: dict[int, int] = {}
        self._until_fold = FOLD_EVERY
        self._most_weight = MOST_WEIGHT / float(self.variance.max())

    def _row_squares(self) -> Floats:
        squares: Floats = np.einsum("ij,ij->i", self.root, self.root)
        return squares

    @property
    def rank(self) -> int:
        return int(self.root.shape[1])

    def absorb(self, rows: Ints, rewards: Floats, noise: Floats, weight: Floats) -> float:
        fresh = sum(row not in self._slot for row in rows.tolist())
        if len(rows) > PENDING // 4 or 1.0 / noise.min() > self._most_weight:
            self._fold()
            observed = self.root[rows]
            update = root_update(self.root, observed, noise)
            self.mean += update.gain @ (rewards - self.mean[rows])
            self.root -= update.downdate @ observed
            self.variance = self._row_squares()
            return update.information
        if len(self._slot) + fresh > PENDING:
            self._fold()
        return sum(map(self._observe, rows.tolist(), rewards.tolist(), noise.tolist()))

    def absorb_one(self, row: int, reward: float, noise: float, weight: Floats) -> float:
        if 1.0 / noise > self._most_weight:
            return self.absorb(np.array([row]), np.array([reward]), np.array([noise]), weight)
        if len(self._slot) == PENDING and row not in self._slot:
            self._fold()
        return self._observe(row, reward, noise)

    def _observe(self, row: int, reward: float, noise: float) -> float:
        slot = self._slot.get(row, -1)
        if slot < 0:
            slot = len(self._slot)
            np.dot(self.root, self.root[row], out=self._columns[slot])
            self._slot[row] = slot
            self._pending[slot] = row
        information = self._loops.step(
            self._columns, self._precision, self._weight, len(self._slot), slot,
            self.mean, self.variance, row, reward, noise,
        )  # fmt: skip
        if self._weight[slot] > self._most_weight:
            self._until_fold = 1
        return information

    def maintain(self, weight: Floats, weighted_rewards: Floats) -> None:
        # H gains by sums whose rounding it then multiplies; the root does not.
        self._until_fold -= 1
        if not self._until_fold:
            self._fold()

    def _fold(self) -> None:
        """Bring the root up to date; nothing is pending afterwards."""
        self._until_fold = FOLD_EVERY
        size = len(self._slot)
        if not size:
            return
        observed = self.root[self._pending[:size]]
        update = root_update(self.root, observed, 1.0 / self._weight[:size])
        self.root -= update.downdate @ observed
        self.variance = self._row_squares()
        self._precision[:size, :size] = 0.0
        self._weight[:size] = 0.0
        self._slot.clear()

    def covariance(self, rows: Ints) -> Floats:
        chosen = self.root[rows]
        size = len(self._slot)
        C = self._columns[:size, rows]
        return chosen @ chosen.T - C.T @ self._precision[:size, :size] @ C

    def draw(self, rows: Ints, rng: np.random.Generator, size: int, weight: Floats) -> Floats:
        count = len(self._slot)
        normals = rng.standard_normal((size, self.rank + count))
        return self._loops.draw(
            self.root, normals, self._columns, self._precision, self._weight, self._pending[:count]
        )[:, rows]


def pending_step_numpy(
    columns: Floats, precision: Floats, weight: Floats, size: int, slot: int,
    mean: Floats, variance: Floats, row: int, reward: float, noise: float,
) -> float:  # fmt: skip
    """Condition on one observation of a pending arm, in place; returns the information gained.

    With q = e − H C e (e picks the arm) the arm's covariance column is p = Cᵀ q, and with
    s = p_row + noise: mean += p (y − m)/s, variance −= p²/s, H += q qᵀ/s. For an arm that is
    pending already q is H's own row over its weight, without cancellation.
    """
    C, H = columns[:size], precision[:size, :size]
    if weight[slot] > 0.0:
        q = H[slot] / weight[slot]
    else:
        q = -(H @ C[:, row])
        q[slot] += 1.0
    p = q @ C
    total = p[row] + noise
    mean += p * ((reward - mean[row]) / total)
    variance -= p * p / total
    np.maximum(variance, 0.0, out=variance)
    H += np.multiply.outer(q, q / total)
    weight[slot] += 1.0 / noise
    return 0.5 * math.log(total / noise)


def pending_draw_numpy(
    root: Floats, normals: Floats, columns: Floats, precision: Floats, weight: Floats, pending: Ints
) -> Floats:
    """Joint draws (m, n) from normals (m, r + v): u of N(0, R Rᵀ), corrected by what is pending.

    u − Cᵀ H (u_V + ε) with ε of the pending observations' noise.
    """
    rank, count = root.shape[1], len(pending)
    drawn: Floats = normals[:, :rank] @ root.T
    if count:
        seen = drawn[:, pending] + normals[:, rank:] / np.sqrt(weight[:count])
        drawn -= seen @ precision[:count, :count] @ columns[:count]
    return drawn


class Loops(NamedTuple):
    """The root engine's inner loops, in numpy or compiled."""

    step: Callable[[Floats, Floats, Floats, int, int, Floats, Floats, int, float, float], float]
    draw: Callable[[Floats, Floats, Floats, Floats, Floats, Ints], Floats]


def loops_of(backend: Backend) -> Loops:
    """Compiled where numba is installed, unless told otherwise."""
    if backend not in ("auto", "numpy", "numba"):
        raise InputError(f"backend is {backend!r}; choose 'auto', 'numpy' or 'numba'")
    plain = Loops(pending_step_numpy, pending_draw_numpy)
    if backend == "numpy":
        return plain
    try:
        from ._compiled import pending_draw, pending_step
    except MissingExtraError:
        if backend == "numba":
            raise
        return plain
    return Loops(pending_step, pending_draw)


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
        self._until_refresh = _REFRESH_VISITED

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

    def maintain(self, weight: Floats, weighted_rewards: Floats) -> None:
        # H grows by sums whose rounding it then multiplies: solve afresh before that shows.
        self._until_refresh -= 1
        if self._until_refresh > 0:
            return
        visited, size = self._visited, len(self._visited)
        K_VE = self._columns[:size]
        noise = 1.0 / weight[visited]
        L = cholesky(K_VE[:, visited] + np.diag(noise), "the covariance of the visited arms")
        half = solve_lower(L, np.eye(size))
        residual = weighted_rewards[visited] * noise - self._prior_mean[visited]
        W = half @ K_VE
        self._precision[:size, :size] = half.T @ half
        self.mean = self._prior_mean + (half @ residual) @ W
        self.variance = self._kernel.diag(self._arms) - np.einsum("ij,ij->j", W, W)
        np.maximum(self.variance, 0.0, out=self.variance)
        self._until_refresh = _REFRESH_VISITED

    def covariance(self, rows: Ints) -> Floats:
        size = len(self._visited)
        K_VR = self._columns[:size, rows]
        return (
            np.asarray(self._kernel(self._arms[rows])) - K_VR.T @ self._precision[:size, :size] @ K_VR
        )

    def draw(self, rows: Ints, rng: np.random.Generator, size: int, weight: Floats) -> Floats:
        """Pathwise: one prior draw u, corrected where arms were visited: u − K_EV H (u_V + ε)."""
        if self._prior_root is None:
            self._prior_root = psd_root(
                np.asarray(self._kernel(self._arms)), "the prior covariance of the arms"
            ).root
        prior = rng.standard_normal((size, self._prior_root.shape[1])) @ self._prior_root.T
        count = len(self._visited)
        if not count:
            return prior[:, rows]
        noise = rng.standard_normal((size, count)) / np.sqrt(weight[self._visited])
        pull = (prior[:, self._visited] + noise) @ self._precision[:count, :count]
        return prior[:, rows] - pull @ self._columns[:count, rows]
