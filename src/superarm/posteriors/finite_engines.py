"""The two forms of :class:`superarm.posteriors.FiniteGP`; notation as in ``finite.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np

from superarm.core import Floats, Ints
from superarm.errors import InputError, NotPositiveDefiniteError
from superarm.kernels import Covariance
from superarm.linalg import cholesky, psd_root, root_update, solve_lower

Backend = Literal["auto", "numpy", "numba"]
ObserveOne = Callable[[Floats, Floats, Floats, int, float, float], float]
_REFRESH_EVERY = 4096
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
    """P = R Rᵀ; see :func:`superarm.linalg.root_update`."""

    def __init__(self, kernel: Covariance, arms: Floats, mean: Floats, backend: Backend) -> None:
        factor = psd_root(np.asarray(kernel(arms)), "the prior covariance of the arms")
        self.root = factor.root
        self.tolerance = factor.error
        self.mean = mean.copy()
        self.variance = self._row_squares()
        self._observe_one = observe_one_with(backend)
        self._until_refresh = _REFRESH_EVERY

    def _row_squares(self) -> Floats:
        squares: Floats = np.einsum("ij,ij->i", self.root, self.root)
        return squares

    @property
    def rank(self) -> int:
        return int(self.root.shape[1])

    def absorb(self, rows: Ints, rewards: Floats, noise: Floats, weight: Floats) -> float:
        observed = self.root[rows]
        update = root_update(self.root, observed, noise)
        self.mean += update.gain @ (rewards - self.mean[rows])
        self.root -= update.downdate @ observed
        self.variance = self._row_squares()
        return update.information

    def absorb_one(self, row: int, reward: float, noise: float, weight: Floats) -> float:
        return self._observe_one(self.root, self.mean, self.variance, row, reward, noise)

    def maintain(self, weight: Floats, weighted_rewards: Floats) -> None:
        # The variance is carried along by subtraction; the root itself does not cancel.
        self._until_refresh -= 1
        if not self._until_refresh:
            self.variance = self._row_squares()
            self._until_refresh = _REFRESH_EVERY

    def covariance(self, rows: Ints) -> Floats:
        chosen = self.root[rows]
        return chosen @ chosen.T

    def draw(self, rows: Ints, rng: np.random.Generator, size: int, weight: Floats) -> Floats:
        normals = rng.standard_normal((size, self.rank))
        if size == 1 and 2 * len(rows) > len(self.root):
            drawn: Floats = (self.root @ normals[0])[rows]  # cheaper than gathering rows first
            return drawn[None, :]
        return normals @ self.root[rows].T


def observe_one_numpy(
    root: Floats, mean: Floats, variance: Floats, row: int, reward: float, noise: float
) -> float:
    """Condition a root on one observation, in place (Potter's form of ``root_update``)."""
    from scipy.linalg.blas import dger

    observed = root[row].copy()  # (r,)
    cross = root @ observed  # (n,) the covariance column of the observed arm
    total = cross[row] + noise
    scaled = cross / np.sqrt(total)
    mean += scaled * ((reward - mean[row]) / np.sqrt(total))
    variance -= scaled * scaled
    np.maximum(variance, 0.0, out=variance)
    # dger works on the transpose, which is how BLAS reads a C-ordered array.
    factor = -1.0 / (np.sqrt(total) + np.sqrt(noise))
    dger(factor, observed, scaled, a=root.T, overwrite_a=1)
    return 0.5 * float(np.log(total / noise))


def observe_one_with(backend: Backend) -> ObserveOne:
    """The one-observation update: compiled where numba is installed, unless told otherwise."""
    if backend not in ("auto", "numpy", "numba"):
        raise InputError(f"backend is {backend!r}; choose 'auto', 'numpy' or 'numba'")
    if backend == "numpy":
        return observe_one_numpy
    from superarm.errors import MissingExtraError

    try:
        from ._compiled import observe_one
    except MissingExtraError:
        if backend == "numba":
            raise
        return observe_one_numpy
    compiled: ObserveOne = observe_one
    return compiled


class VisitedEngine:
    """P = K − K_EV H K_VE over the arms visited so far; columns of K are made on demand."""

    tolerance = 0.0

    def __init__(self, kernel: Covariance, arms: Floats, mean: Floats) -> None:
        self._kernel = kernel
        self._arms = arms
        self.mean = mean.copy()
        self.variance = np.array(kernel.diag(arms), dtype=np.float64)
        if not (self.variance > 0.0).all():
            where = int(np.argmin(self.variance))
            raise NotPositiveDefiniteError(
                f"arm {where} has prior variance {self.variance[where]}; it must be above 0"
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
