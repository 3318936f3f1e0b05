"""The same posteriors written by hand in plain numpy and scipy, or numba: the rivals that count.

A user who needs one form for one case writes a dozen lines, without checks, states, threads or late
feedback. These are such lines, each as fast as we could write it. What the library costs beyond them
pays for everything else that it does.

Notation as in the posteriors: ``n`` arms, ``P`` covariance (n, n), ``N`` observations, ``r`` features,
``s`` inducing points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Rng

from .peers import Moments

_JITTER = 1e-10
_SMALLEST_SCALE = 1e-100
_README_LENGTHSCALE = 0.3
_README_NOISE = 0.01

# --- fixed arms ---------------------------------------------------------------------------


class RankOne:
    """The whole of P, and one ``dger`` an observation.

    Args:
        prior: Prior covariance, (n, n).
        noise_variance: Of a reward.
    """

    name = "numpy by hand, dger"

    def __init__(self, prior: Floats, noise_variance: float) -> None:
        from scipy.linalg.blas import dger

        self.mean = np.zeros(len(prior))
        self.P = prior.copy()
        self._variance = np.diagonal(self.P)  # a view
        self._noise = noise_variance
        self._dger = dger

    def ask(self) -> tuple[Floats, Floats]:
        """Mean and std of all arms."""
        return self.mean, np.sqrt(self._variance)

    def learn(self, arm: Any, reward: float) -> None:
        """Condition on one reward.

        Args:
            arm: Its arm.
            reward: The reward.
        """
        column = self.P[arm].copy()
        total = column[arm] + self._noise
        self.mean += column * ((reward - self.mean[arm]) / total)
        self._dger(-1.0 / total, column, column, a=self.P.T, overwrite_a=1)

    def draw(self, rng: Rng) -> Floats:
        """A joint sample of all arms, (n,).

        Args:
            rng: Random numbers.
        """
        L = np.linalg.cholesky(self.P + _JITTER * np.eye(len(self.P)))
        sample: Floats = self.mean + L @ rng.standard_normal(len(L))
        return sample


RankOneUpdate = Callable[[Floats, Floats, int, float, float], None]


def compiled_rank_one() -> RankOneUpdate:
    """Compile the update of mean and P by one observation, in place."""
    import numba

    @numba.njit("void(f8[:, ::1], f8[::1], i8, f8, f8)", error_model="numpy")
    def learn(P: Floats, mean: Floats, arm: int, reward: float, noise: float) -> None:
        n = len(mean)
        column = P[arm].copy()
        total = column[arm] + noise
        innovation = (reward - mean[arm]) / total
        for i in range(n):
            share = column[i] / total
            mean[i] += column[i] * innovation
            for j in range(n):
                P[i, j] -= share * column[j]

    compiled: RankOneUpdate = learn
    return compiled


class CompiledRankOne(RankOne):
    """The whole of P, updated by a loop that numba compiled."""

    name = "numba by hand, rank one"

    def __init__(self, prior: Floats, noise_variance: float) -> None:
        super().__init__(prior, noise_variance)
        self._learn = compiled_rank_one()

    def learn(self, arm: Any, reward: float) -> None:
        self._learn(self.P, self.mean, arm, reward, self._noise)


def compiled_rounds() -> Callable[..., Ints]:
    """Compile whole rounds against a table of rewards, (T, n)."""
    import numba

    @numba.njit("i8[::1](f8[:, ::1], f8[::1], f8[:, ::1], f8, f8)", error_model="numpy")
    def play(
        P: Floats, mean: Floats, rewards: Floats, width: float, noise: float
    ) -> Ints:
        n = len(mean)
        column = np.empty(n)
        chosen = np.empty(len(rewards), dtype=np.int64)
        for t in range(len(rewards)):
            arm = 0
            highest = -np.inf
            for i in range(n):
                index = mean[i] + width * math.sqrt(P[i, i])
                if index > highest:
                    arm = i
                    highest = index
            for i in range(n):
                column[i] = P[arm, i]
            total = column[arm] + noise
            innovation = (rewards[t, arm] - mean[arm]) / total
            for i in range(n):
                share = column[i] / total
                mean[i] += column[i] * innovation
                for j in range(n):
                    P[i, j] -= share * column[j]
            chosen[t] = arm
        return chosen

    compiled: Callable[..., Ints] = play
    return compiled


# --- drifting rewards ---------------------------------------------------------------------


class Folded:
    """The covariance as prior − Wᵀ diag(faded²) W: one product over all rounds so far.

    It never drops a row of W, so it is for short runs.

    Args:
        prior: Returns an arm's prior covariances with all arms, (n,): rows of a matrix that was
            computed before, or computed on demand.
        n: How many arms.
        epsilon: Drift of the rewards in one round.
        noise_variance: Of a reward.
        rounds: At most this many.
    """

    name = "numpy by hand, folded"

    def __init__(
        self,
        prior: Callable[[int], Floats],
        n: int,
        epsilon: float,
        noise_variance: float,
        rounds: int,
    ) -> None:
        self._prior = prior
        self._noise = noise_variance
        self._decay = math.sqrt(1.0 - epsilon)
        self._W = np.empty((rounds, n))
        self._faded = np.empty(rounds)
        self._t = 0
        self._mean = np.zeros(n)
        self._explained = np.zeros(n)

    def round(self, arm: int, reward: float) -> Moments:
        """Learn a reward of this round; mean and std of every arm in the next one.

        Args:
            arm: The arm.
            reward: Its reward.
        """
        t = self._t
        W = self._W[:t]
        faded = self._faded[:t]
        column = self._prior(arm) - (W[:, arm] * faded**2) @ W
        total = column[arm] + self._noise
        column /= math.sqrt(total)
        self._mean += column * ((reward - self._mean[arm]) / math.sqrt(total))
        self._explained += column * column
        self._W[t] = column
        self._faded[t] = 1.0
        self._t = t + 1
        self._faded[: t + 1] *= self._decay
        self._mean *= self._decay
        self._explained *= self._decay**2
        variance = np.maximum(1.0 - self._explained, 0.0)
        return Moments(self._mean.copy(), np.sqrt(variance))


class FoldedOnDemand(Folded):
    """The same, for rows of the prior covariance that are computed when an arm is first played."""

    name = "numpy by hand, folded, rows on demand"


def rows_on_demand(
    covariance: Callable[[Floats, Floats], Floats], arms: Floats
) -> Callable[[int], Floats]:
    """Rows of the prior covariance of all arms, each computed once.

    Args:
        covariance: The kernel.
        arms: Their features, (n, d).
    """
    rows: dict[int, Floats] = {}

    def row(arm: int) -> Floats:
        if arm not in rows:
            rows[arm] = covariance(arms[arm : arm + 1], arms)[0]
        return rows[arm]

    return row


class KroneckerKalman:
    """A Kalman filter of the weights wₜ of the features B, with variance 1 for each weight.

    The covariance of the weights is I − G. After one round G fades by 1 − ε; an observation adds a
    matrix of rank one.

    Args:
        features: B, (n, r).
        epsilon: Drift of the rewards in one round.
        noise_variance: Of a reward.
    """

    name = "numpy by hand, Kalman filter"

    def __init__(self, features: Floats, epsilon: float, noise_variance: float) -> None:
        from scipy.linalg.blas import dger

        self._B = np.ascontiguousarray(features)  # (n, r)
        self._BT = np.ascontiguousarray(features.T)
        r = features.shape[1]
        self._G = np.zeros((r, r))  # over self._scale
        self._scale = 1.0
        self._prior = np.einsum("ij,ij->i", features, features)
        self._mean = np.zeros(len(features))
        self._explained = np.zeros(len(features))
        self._decay = math.sqrt(1.0 - epsilon)
        self._noise = noise_variance
        self._dger = dger

    def round(self, arm: int, reward: float) -> Moments:
        """Learn a reward of this round; mean and std of every arm in the next one.

        Args:
            arm: The arm.
            reward: Its reward.
        """
        b = self._B[arm]
        gain = b - self._scale * (b @ self._G)
        total = gain @ b + self._noise
        gain /= math.sqrt(total)
        column = gain @ self._BT
        self._mean += column * ((reward - self._mean[arm]) / math.sqrt(total))
        self._explained += column * column
        self._dger(1.0 / self._scale, gain, gain, a=self._G.T, overwrite_a=1)
        self._scale *= self._decay**2
        if self._scale < _SMALLEST_SCALE:
            self._G *= self._scale
            self._scale = 1.0
        self._mean *= self._decay
        self._explained *= self._decay**2
        variance = np.maximum(self._prior - self._explained, 0.0)
        return Moments(self._mean.copy(), np.sqrt(variance))


# --- inducing points ----------------------------------------------------------------------


def titsias_round(
    arms: Floats,
    rewards: Floats,
    points: Floats,
    offered: Floats,
    noise: float,
    jitter: float,
) -> Moments:
    """The sparse posterior of all data with these inducing points, at the arms on offer.

    Squared exponential kernel, lengthscale 1.

    Args:
        arms: All that were observed, (N, d).
        rewards: Their rewards, (N,).
        points: Inducing points, (s, d).
        offered: The arms on offer, (m, d).
        noise: Variance of a reward.
        jitter: Added to the inducing points' variances.
    """
    from scipy.linalg import solve_triangular

    L = np.linalg.cholesky(_se(points, points) + jitter * np.eye(len(points)))
    A = solve_triangular(
        L, _se(points, arms), lower=True, check_finite=False, overwrite_b=True
    )  # (s, N)
    M = np.linalg.cholesky(np.eye(len(points)) + A @ A.T / noise)
    z = solve_triangular(M, A @ rewards, lower=True, check_finite=False) / noise
    prior = solve_triangular(
        L, _se(points, offered), lower=True, check_finite=False, overwrite_b=True
    )  # (s, m)
    rows = solve_triangular(M, prior, lower=True, check_finite=False)  # (s, m)
    explained = np.einsum("ij,ij->j", prior, prior)
    uncertain = np.einsum("ij,ij->j", rows, rows)
    variance = 1.0 - explained + uncertain
    return Moments(z @ rows, np.sqrt(variance))


def _se(X: Floats, Y: Floats, lengthscale: float = 1.0) -> Floats:
    from scipy.spatial.distance import cdist

    K: Floats = cdist(X, Y, "sqeuclidean")
    K *= -0.5 / lengthscale**2
    return np.exp(K, out=K)


def se_of_short_range(X: Floats, Y: Floats) -> Floats:
    """Squared exponential kernel, lengthscale 0.2.

    Args:
        X: Arms, (n, d).
        Y: Others, (m, d).
    """
    return _se(X, Y, 0.2)


def matern_of_short_range(X: Floats, Y: Floats) -> Floats:
    """Matérn-5/2 kernel, lengthscale 0.2.

    Args:
        X: Arms, (n, d).
        Y: Others, (m, d).
    """
    from scipy.spatial.distance import cdist

    z: Floats = cdist(X, Y)
    z *= math.sqrt(5.0) / 0.2
    K = z / 3.0
    K += 1.0
    K *= z
    K += 1.0
    K *= np.exp(-z)
    return K


# --- the README's round -------------------------------------------------------------------


class ReadmeRound:
    """O'CLOK-UCB's round by hand: a Cholesky factor in a buffer that is large enough.

    Args:
        rounds: At most this many.
        width: Of the confidence interval in a round.
        k: Arms of a super arm.
    """

    name = "numpy by hand, Cholesky rows"

    def __init__(self, rounds: int, width: Callable[[int], float], k: int = 3) -> None:
        size = k * rounds
        self._k = k
        self._width = width
        self._N = 0
        self._X = np.empty((size, 2))
        self._z = np.empty(size)
        # The transpose of L, upper, in Fortran's order of the transpose: BLAS reads it in place.
        self._L = np.zeros((size, size), order="F")
        # What ``learn`` needs of the latest decision.
        self._chosen: Floats
        self._chosen_W: Floats
        self._chosen_mean: Floats

    def decide(self, arms: Floats, step: int) -> tuple[Ints, Floats, Floats]:
        """Positions, means and stds of the chosen arms, (k,) each.

        Args:
            arms: On offer, (m, 2).
            step: The round.
        """
        from scipy.linalg.blas import dtrsm

        N = self._N
        W = _se(arms, self._X[:N], _README_LENGTHSCALE)  # (m, N)
        mean = np.zeros(len(arms))
        variance = np.ones(len(arms))
        if N:
            W = dtrsm(1.0, self._L[:N, :N], W.T, lower=1, overwrite_b=1).T
            mean = W @ self._z[:N]
            variance = 1.0 - np.einsum("ij,ij->i", W, W)
        std = np.sqrt(variance)
        index = mean + self._width(step) * std
        positions = np.argsort(-index, kind="stable")[: self._k]
        self._chosen = arms[positions]
        self._chosen_W = W[positions]
        self._chosen_mean = mean[positions]
        return positions, mean[positions], std[positions]

    def learn(self, rewards: Floats) -> None:
        """Learn the rewards of the latest decision.

        Args:
            rewards: Of its arms, (k,).
        """
        W = self._chosen_W
        old = self._N
        new = old + self._k
        S = _se(self._chosen, self._chosen, _README_LENGTHSCALE) - W @ W.T
        S[np.diag_indices(self._k)] += _README_NOISE
        corner = np.linalg.cholesky(S)
        self._L[old:new, :old] = W
        self._L[old:new, old:new] = corner
        self._z[old:new] = np.linalg.solve(corner, rewards - self._chosen_mean)
        self._X[old:new] = self._chosen
        self._N = new
