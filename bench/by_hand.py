"""The same posteriors written by hand in plain numpy and scipy, or numba: the rivals that count.

A user who needs one form for one case writes a dozen lines, without checks, states, threads or late
feedback. These are such lines, each as fast as we could write it. What a library may cost beside
them is the price of everything it does besides.

Notation as in the posteriors: ``n`` arms, ``P`` covariance (n, n), ``N`` observations, ``r`` features,
``s`` inducing points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from superarm.core import Floats, Ints

from .peers import Moments

# --- fixed arms ---------------------------------------------------------------------------


class RankOne:
    """P as a whole, and one ``dger`` an observation."""

    name = "numpy by hand, dger"

    def __init__(self, prior: Floats, noise_variance: float) -> None:
        from scipy.linalg.blas import dger

        self.mean = np.zeros(len(prior))
        self.P = prior.copy()
        self._variance = np.diagonal(self.P)  # a view
        self._noise = noise_variance
        self._dger = dger

    def ask(self) -> tuple[Floats, Floats]:
        return self.mean, np.sqrt(self._variance)

    def learn(self, arm: Any, reward: float) -> None:
        column = self.P[arm].copy()
        total = column[arm] + self._noise
        self.mean += column * ((reward - self.mean[arm]) / total)
        self._dger(-1.0 / total, column, column, a=self.P.T, overwrite_a=1)

    def draw(self, rng: np.random.Generator) -> Floats:
        L = np.linalg.cholesky(self.P + 1e-10 * np.eye(len(self.P)))
        drawn: Floats = self.mean + L @ rng.standard_normal(len(L))
        return drawn


def compiled_rank_one() -> Callable[[Floats, Floats, int, float, float], None]:
    """Mean and P after one observation, in place."""
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

    made: Callable[[Floats, Floats, int, float, float], None] = learn
    return made


class CompiledRankOne(RankOne):
    """P as a whole, updated by a loop that numba compiled."""

    name = "numba by hand, rank one"

    def __init__(self, prior: Floats, noise_variance: float) -> None:
        super().__init__(prior, noise_variance)
        self._learn = compiled_rank_one()

    def learn(self, arm: Any, reward: float) -> None:
        self._learn(self.P, self.mean, arm, reward, self._noise)


def compiled_rounds() -> Callable[..., Ints]:
    """Whole rounds against a table of rewards, (T, n)."""
    import numba

    @numba.njit("i8[::1](f8[:, ::1], f8[::1], f8[:, ::1], f8, f8)", error_model="numpy")
    def play(
        P: Floats, mean: Floats, rewards: Floats, width: float, noise: float
    ) -> Ints:
        n = len(mean)
        column = np.empty(n)
        played = np.empty(len(rewards), dtype=np.int64)
        for t in range(len(rewards)):
            arm, highest = 0, -np.inf
            for i in range(n):
                index = mean[i] + width * math.sqrt(P[i, i])
                if index > highest:
                    arm, highest = i, index
            for i in range(n):
                column[i] = P[arm, i]
            total = column[arm] + noise
            innovation = (rewards[t, arm] - mean[arm]) / total
            for i in range(n):
                share = column[i] / total
                mean[i] += column[i] * innovation
                for j in range(n):
                    P[i, j] -= share * column[j]
            played[t] = arm
        return played

    made: Callable[..., Ints] = play
    return made


# --- drifting rewards ---------------------------------------------------------------------


class Folded:
    """What was learned as W Wᵀ, whose columns fade together: one product over all rounds so far.

    It never forgets a column, so that it is meant for short runs. ``prior`` gives an arm's prior
    covariances with all ``n`` arms: rows of a matrix that was made before, or made on demand.
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
        self._prior, self._noise = prior, noise_variance
        self._keep = math.sqrt(1.0 - epsilon)
        self._W = np.empty((rounds, n))
        self._faded = np.empty(rounds)
        self._t = 0
        self._mean = np.zeros(n)
        self._known = np.zeros(n)

    def round(self, arm: int, reward: float) -> Moments:
        """Learn a reward of this round; mean and std of every arm in the next one."""
        t = self._t
        W, faded = self._W[:t], self._faded[:t]
        column = self._prior(arm) - (W[:, arm] * faded**2) @ W
        total = column[arm] + self._noise
        column /= math.sqrt(total)
        self._mean += column * ((reward - self._mean[arm]) / math.sqrt(total))
        self._known += column * column
        self._W[t] = column
        self._faded[t] = 1.0
        self._t = t + 1
        self._faded[: t + 1] *= self._keep
        self._mean *= self._keep
        self._known *= self._keep**2
        return Moments(self._mean.copy(), np.sqrt(np.maximum(1.0 - self._known, 0.0)))


class FoldedOnDemand(Folded):
    """The same, for rows of the prior covariance that are made when an arm is first played."""

    name = "numpy by hand, folded, rows on demand"


def rows_on_demand(
    covariance: Callable[[Floats, Floats], Floats], arms: Floats
) -> Callable[[int], Floats]:
    """A row of the prior covariance of all arms, made once."""
    made: dict[int, Floats] = {}

    def row(arm: int) -> Floats:
        if arm not in made:
            made[arm] = covariance(arms[arm : arm + 1], arms)[0]
        return made[arm]

    return row


class KroneckerKalman:
    """A Kalman filter of the features' weights, B wₜ, with one variance a weight lost to time.

    Covariance of the weights: I − G. After one round G fades by 1 − ε; an observation adds a rank one.
    """

    name = "numpy by hand, Kalman filter"

    def __init__(self, features: Floats, epsilon: float, noise_variance: float) -> None:
        from scipy.linalg.blas import dger

        self._B = np.ascontiguousarray(features)  # (n, r)
        self._BT = np.ascontiguousarray(features.T)
        r = features.shape[1]
        self._G, self._scale = np.zeros((r, r)), 1.0
        self._prior = np.einsum("ij,ij->i", features, features)
        self._mean = np.zeros(len(features))
        self._known = np.zeros(len(features))
        self._keep, self._noise, self._dger = (
            math.sqrt(1.0 - epsilon),
            noise_variance,
            dger,
        )

    def round(self, arm: int, reward: float) -> Moments:
        """Learn a reward of this round; mean and std of every arm in the next one."""
        b = self._B[arm]
        gain = b - self._scale * (b @ self._G)
        total = gain @ b + self._noise
        gain /= math.sqrt(total)
        column = gain @ self._BT
        self._mean += column * ((reward - self._mean[arm]) / math.sqrt(total))
        self._known += column * column
        self._dger(1.0 / self._scale, gain, gain, a=self._G.T, overwrite_a=1)
        self._scale *= self._keep**2
        if self._scale < 1e-100:
            self._G *= self._scale
            self._scale = 1.0
        self._mean *= self._keep
        self._known *= self._keep**2
        return Moments(
            self._mean.copy(), np.sqrt(np.maximum(self._prior - self._known, 0.0))
        )


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
    """
    from scipy.linalg import solve_triangular

    L = np.linalg.cholesky(_se(points, points) + jitter * np.eye(len(points)))
    A = solve_triangular(
        L, _se(points, arms), lower=True, check_finite=False, overwrite_b=True
    )
    M = np.linalg.cholesky(np.eye(len(points)) + A @ A.T / noise)
    z = solve_triangular(M, A @ rewards, lower=True, check_finite=False) / noise
    prior = solve_triangular(
        L, _se(points, offered), lower=True, check_finite=False, overwrite_b=True
    )
    rows = solve_triangular(M, prior, lower=True, check_finite=False)
    variance = (
        1.0 - np.einsum("ij,ij->j", prior, prior) + np.einsum("ij,ij->j", rows, rows)
    )
    return Moments(z @ rows, np.sqrt(variance))


def _se(X: Floats, Y: Floats, lengthscale: float = 1.0) -> Floats:
    from scipy.spatial.distance import cdist

    K: Floats = cdist(X, Y, "sqeuclidean")
    K *= -0.5 / lengthscale**2
    return np.exp(K, out=K)


def se_of_short_range(X: Floats, Y: Floats) -> Floats:
    """Squared exponential kernel, lengthscale 0.2."""
    return _se(X, Y, 0.2)


def matern_of_short_range(X: Floats, Y: Floats) -> Floats:
    """Matérn-5/2 kernel, lengthscale 0.2."""
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
    """O'CLOK-UCB's round by hand: a Cholesky factor in a buffer that is large enough."""

    name = "numpy by hand, Cholesky rows"

    def __init__(self, rounds: int, width: Callable[[int], float], k: int = 3) -> None:
        size = k * rounds
        self._k, self._width = k, width
        self._X, self._z = np.empty((size, 2)), np.empty(size)
        # The transpose of L, upper, in Fortran's order of the transpose: BLAS reads it in place.
        self._L = np.zeros((size, size), order="F")
        self._N = 0
        self._asked: Any = None

    def decide(self, arms: Floats, step: int) -> tuple[Ints, Floats, Floats]:
        from scipy.linalg.blas import dtrsm

        N = self._N
        W = _se(arms, self._X[:N], 0.3)  # (m, N)
        mean, variance = np.zeros(len(arms)), np.ones(len(arms))
        if N:
            W = dtrsm(1.0, self._L[:N, :N], W.T, lower=1, overwrite_b=1).T
            mean = W @ self._z[:N]
            variance = 1.0 - np.einsum("ij,ij->i", W, W)
        std = np.sqrt(variance)
        chosen = np.argsort(-(mean + self._width(step) * std), kind="stable")[: self._k]
        self._asked = (arms[chosen], W[chosen], mean[chosen])
        return chosen, mean[chosen], std[chosen]

    def learn(self, rewards: Floats) -> None:
        chosen, W, mean = self._asked
        N, grown = self._N, self._N + self._k
        S = _se(chosen, chosen, 0.3) - W @ W.T
        S[np.diag_indices(self._k)] += 0.01
        corner = np.linalg.cholesky(S)
        self._L[N:grown, :N], self._L[N:grown, N:grown] = W, corner
        self._z[N:grown] = np.linalg.solve(corner, rewards - mean)
        self._X[N:grown] = chosen
        self._N = grown
