"""Information gain, computed from a kernel and its arms.

======================  ================================================================
``λ``                   ``noise_variance``
``I(A)``                ½ ln det(I + K_A/λ): the information of the points A about f, in nats
``γ_t``                 max I(A) over all A with t points (points may repeat)
``W``                   rows of the Cholesky factor of K + λI: cov = K − WᵀW
``L``                   the same in columns, of the arms of one round: cov = K − LLᵀ
======================  ================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.errors import InputError, NotPositiveDefiniteError
from superarm.core.growing_cholesky import GrowingCholesky
from superarm.core.inputs import as_count, as_features, as_positive
from superarm.core.registry import register
from superarm.core.threads import one_blas_thread

# The share of the maximum that a greedy choice reaches at least.
GREEDY_SHARE = 1.0 - math.exp(-1.0)


def information_gain(kernel: Covariance, X: Any, noise_variance: float) -> float:
    """½ ln det(I + K/λ), of one observation at each row of ``X``: chowdhury2017kernelized, eq. 10.

    Args:
        kernel: The kernel.
        X: One row per observation, (n, d).
        noise_variance: λ: variance of the noise of one observation.
    """
    _check_kernel(kernel)
    rows = as_features(X, "X")
    noise = as_positive(noise_variance, "noise_variance")
    if len(rows) == 0:
        return 0.0
    K = kernel(rows)
    matrix = np.eye(len(rows)) + K / noise
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            "I + K/noise_variance is not positive definite: "
            "the kernel is not positive semi-definite"
        ) from None
    return float(np.log(factor.diagonal()).sum())


def _check_kernel(kernel: object) -> None:
    if not isinstance(kernel, Covariance):
        raise InputError(
            f"kernel must be a kernel, such as SquaredExponential(), got {kernel!r:.80}"
        )


class GreedyGain(NamedTuple):
    """The result of :func:`greedy_information_gain`."""

    positions: Ints  # the chosen candidates in order, (count,)
    gains: Floats  # information after 0, 1, …, count observations, (count + 1,)

    @property
    def upper_bounds(self) -> Floats:
        """γ_t ≤ gains[t] / (1 − 1/e), (count + 1,)."""
        return np.asarray(self.gains / GREEDY_SHARE)


@one_blas_thread
def greedy_information_gain(
    kernel: Covariance, candidates: Any, count: int, noise_variance: float
) -> GreedyGain:
    """Choose ``count`` candidates one by one, each where the posterior variance is largest.

    The gain is monotone and submodular, so greedy reaches at least 1 − 1/e of γ_t over these
    candidates (srinivas2010gaussian, section 2, after nemhauser1978analysis).

    Args:
        kernel: The kernel.
        candidates: The m arms to choose from, (m, d); each may be chosen several times.
        count: How many observations to choose.
        noise_variance: λ: variance of the noise of one observation.
    """
    _check_kernel(kernel)
    rows = as_features(candidates, "candidates")
    noise = as_positive(noise_variance, "noise_variance")
    count = as_count(count, "count", least=0)
    if count > 0 and len(rows) == 0:
        raise InputError("candidates has no rows; give at least one")
    if count == 0:
        nothing = np.empty(0, dtype=np.intp)
        return GreedyGain(nothing, np.zeros(1))
    if count >= len(rows):
        return _greedy_by_covariance(kernel, rows, count, noise)
    return _greedy_by_rows(kernel, rows, count, noise)


def _greedy_by_covariance(
    kernel: Covariance, rows: Floats, count: int, noise: float
) -> GreedyGain:
    """O(count · m²): updates the posterior covariance [chowdhury2017kernelized, eq. 20]."""
    cov = np.array(kernel(rows))  # (m, m)
    variances = cov.diagonal()  # a view, which every update of ``cov`` changes

    def observe(step: int, best: int, variance: float) -> None:
        nonlocal cov
        column = cov[:, best].copy()
        scaled = column / (noise + variance)
        cov -= np.outer(column, scaled)

    return _choose_most_uncertain(variances, count, noise, observe)


def _greedy_by_rows(
    kernel: Covariance, rows: Floats, count: int, noise: float
) -> GreedyGain:
    """O(count² · m): stores one solved row per choice, cov = K − WᵀW."""
    W = np.empty((count, len(rows)))
    variances = np.array(kernel.diag(rows))

    def observe(step: int, best: int, variance: float) -> None:
        nonlocal variances
        prior = _prior_column(kernel, rows, best)
        solved = W[:step]
        column = prior - solved[:, best] @ solved
        new_row = column / math.sqrt(noise + variance)
        W[step] = new_row
        variances -= new_row**2

    return _choose_most_uncertain(variances, count, noise, observe)


def _choose_most_uncertain(
    variances: Floats,
    count: int,
    noise: float,
    observe: Callable[[int, int, float], None],
) -> GreedyGain:
    """Choose the candidate of largest variance, again and again.

    Args:
        variances: Posterior variances of all candidates, (m,).
        count: How many candidates to choose.
        noise: λ.
        observe: Updates ``variances`` in place after a choice: its number from 0, the candidate, and
            the variance of that candidate.
    """
    positions = np.empty(count, dtype=np.intp)
    gains = np.zeros(count + 1)
    for step in range(count):
        best = int(np.argmax(variances))
        variance = max(0.0, float(variances[best]))
        positions[step] = best
        information = 0.5 * math.log1p(variance / noise)
        gains[step + 1] = gains[step] + information
        observe(step, best, variance)
    return GreedyGain(positions, gains)


def _prior_column(kernel: Covariance, rows: Floats, position: int) -> Floats:
    """Prior covariances of all rows with one of them, (m,)."""
    row = rows[position : position + 1]
    return kernel(rows, row)[:, 0]


@one_blas_thread
def arriving_information_gain(
    kernel: Covariance, arrivals: Iterable[Any], k: int, noise_variance: float
) -> Floats:
    """The information in at most ``k`` of the arms of each round, chosen greedily, (T + 1,).

    Entry t is the information after t rounds [nika2022oclok, eq. 4]. Rounds are processed in order, and
    every choice is the arm of largest posterior variance. This is locally greedy over a partition
    matroid, which reaches at least half of the maximum (fisher1978analysis): γ_{kt} is at most twice
    entry t.

    Args:
        kernel: The kernel.
        arrivals: The contexts of every round, (n, d) each.
        k: Most arms that are chosen in a round.
        noise_variance: λ: variance of the noise of one observation.
    """
    _check_kernel(kernel)
    noise = as_positive(noise_variance, "noise_variance")
    most = as_count(k, "k")
    factor = GrowingCholesky()
    chosen = np.empty((0, 0))  # rows of all chosen arms so far
    gains = [0.0]
    for step, arrived in enumerate(arrivals, start=1):
        rows = as_features(arrived, f"the arms of round {step}")
        size = len(chosen)
        L = np.zeros((len(rows), size))
        if size:
            K = kernel(rows, chosen)
            prior = np.ascontiguousarray(K, dtype=np.float64)
            L = factor.solve_rows(prior)
        count = min(most, len(rows))
        choice = _choose_greedily(kernel, rows, L, count, noise)
        gain = gains[-1]
        for information in choice.information:
            gain += information
        gains.append(gain)
        picks = choice.picks
        picked = choice.L[picks]  # (p, size + p)
        corner = np.tril(picked[:, size:])
        factor.append(picked[:, :size], corner)
        new_rows = rows[picks]
        chosen = np.vstack([chosen, new_rows]) if size else new_rows
    return np.array(gains)


class _RoundChoice(NamedTuple):
    """Arms chosen in one round."""

    picks: list[int]
    information: list[float]  # of each pick, in nats
    L: Floats  # (n, size + p), solved rows of all arms of the round


def _choose_greedily(
    kernel: Covariance, rows: Floats, L: Floats, count: int, noise: float
) -> _RoundChoice:
    """Choose ``count`` different arms, each where the posterior variance is largest."""
    prior_variances = np.array(kernel.diag(rows))
    variances = prior_variances - np.einsum("ij,ij->i", L, L)
    picks: list[int] = []
    information: list[float] = []
    for _ in range(count):
        best = int(np.argmax(variances))
        variance = max(0.0, float(variances[best]))
        information.append(0.5 * math.log1p(variance / noise))
        root = math.sqrt(noise + variance)
        prior = _prior_column(kernel, rows, best)
        column = (prior - L @ L[best]) / root
        variances -= column**2
        variances[best] = -np.inf  # once a round
        column[best] = root  # with its noise: the diagonal of the factor
        L = np.column_stack([L, column])
        picks.append(best)
    return _RoundChoice(picks, information, L)


@register("gain", "greedy")
@dataclass(frozen=True, kw_only=True, eq=False)
class GreedyGrowth:
    """γ_t of given candidates, by :func:`greedy_information_gain`, up to a horizon.

    It is divided by 1 − 1/e, which makes it an upper bound on γ_t, as confidence bands need it. The
    first call computes all values.

    Args:
        kernel: The kernel.
        candidates: The arms to choose from, one row each.
        noise_variance: λ: variance of the noise of one observation.
        horizon: Number of rounds T.
    """

    kernel: Covariance
    candidates: Any
    noise_variance: float
    horizon: int

    def __post_init__(self) -> None:
        _check_kernel(self.kernel)
        candidates = as_features(self.candidates, "candidates")
        noise_variance = as_positive(self.noise_variance, "noise_variance")
        object.__setattr__(self, "candidates", candidates)
        object.__setattr__(self, "noise_variance", noise_variance)
        object.__setattr__(self, "horizon", as_count(self.horizon, "horizon"))

    @cached_property
    def _values(self) -> list[float]:
        greedy = greedy_information_gain(
            self.kernel, self.candidates, self.horizon, self.noise_variance
        )
        values: list[float] = greedy.upper_bounds.tolist()
        return values

    def __call__(self, t: int) -> float:
        """An upper bound on γ_t, in nats.

        Args:
            t: Number of observations, at most the horizon.
        """
        if not 0 <= t <= self.horizon:
            raise InputError(
                f"t is {t}; this growth covers 0 … {self.horizon} observations: raise horizon"
            )
        return self._values[t]
