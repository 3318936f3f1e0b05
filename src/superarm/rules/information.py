"""Information gain: realised, maximal within a factor, and its growth for common kernels.

======================  ================================================================
``λ``                   ``noise_variance``
``I(A)``                ½ ln det(I + K_A/λ), what observing the points A tells about f, in nats
``γ_t``                 max I(A) over all A with t points (points may repeat)
======================  ================================================================

srinivas2010gaussian, section 2; chowdhury2017kernelized, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.errors import InputError, NotPositiveDefiniteError
from superarm.core.inputs import as_count, as_features, as_positive, require_choice
from superarm.core.linalg import GrowingCholesky
from superarm.core.registry import register
from superarm.core.threads import one_blas_thread

from .base import Checked

GREEDY_SHARE = 1.0 - math.exp(
    -1.0
)  # of the maximum, which the greedy choice reaches at least


def information_gain(kernel: Covariance, X: Any, noise_variance: float) -> float:
    """½ ln det(I + K/λ), of one observation at each row of ``X``: chowdhury2017kernelized, eq. 10."""
    rows = as_features(X, "X")
    noise = as_positive(noise_variance, "noise_variance")
    if len(rows) == 0:
        return 0.0
    sign, logarithm = np.linalg.slogdet(np.eye(len(rows)) + kernel(rows) / noise)
    if sign <= 0.0:
        told = "I + K/noise_variance is not positive definite"
        raise NotPositiveDefiniteError(
            f"{told}: the kernel is not positive semi-definite"
        )
    return 0.5 * float(logarithm)


class GreedyGain(NamedTuple):
    """A greedy run of :func:`greedy_information_gain`."""

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
    candidates (srinivas2010gaussian, section 2, after nemhauser1978analysis). O(count · m²) for m
    candidates, of which the posterior covariance is kept (chowdhury2017kernelized, eq. 20); fewer
    choices than candidates keep one solved row each, cov = K − WᵀW, in O(count² · m).
    """
    if not isinstance(kernel, Covariance):
        raise InputError(
            f"kernel is {kernel!r:.80}; it must be a kernel, such as SquaredExponential()"
        )
    rows = as_features(candidates, "candidates")
    noise = as_positive(noise_variance, "noise_variance")
    as_count(count, "count", least=0)
    if count > 0 and len(rows) == 0:
        raise InputError("candidates has no rows; give at least one")
    positions = np.empty(count, dtype=np.intp)
    gains = np.zeros(count + 1)
    if count == 0:
        return GreedyGain(positions, gains)
    whole = count >= len(rows)
    cov = np.array(kernel(rows)) if whole else np.empty((0, 0))
    W = np.empty((0 if whole else count, len(rows)))
    variances = cov.diagonal() if whole else np.array(kernel.diag(rows))
    for step in range(count):
        best = int(np.argmax(variances))
        variance = max(0.0, float(variances[best]))
        positions[step] = best
        gains[step + 1] = gains[step] + 0.5 * math.log1p(variance / noise)
        if whole:
            column = cov[:, best].copy()
            cov -= np.outer(
                column, column / (noise + variance)
            )  # and so variances, a view of it
        else:
            column = (
                kernel(rows, rows[best : best + 1])[:, 0] - W[:step, best] @ W[:step]
            )
            W[step] = column / math.sqrt(noise + variance)
            variances -= W[step] ** 2
    return GreedyGain(positions, gains)


@one_blas_thread
def arriving_information_gain(
    kernel: Covariance, arrivals: Iterable[Any], k: int, noise_variance: float
) -> Floats:
    """The information in at most ``k`` of the arms of each round, chosen greedily, (T + 1,).

    ``arrivals`` are the contexts of every round, (n, d) each. Entry t is the information after t rounds
    [nika2022oclok, eq. 4]. Rounds are taken in their order, and every choice is the arm of largest
    posterior variance. That is locally greedy over a partition matroid, which reaches at least half of
    the maximum (fisher1978analysis): γ_{kt} is at most twice entry t.
    """
    noise, count = as_positive(noise_variance, "noise_variance"), as_count(k, "k")
    factor, chosen, gains = GrowingCholesky(), np.empty((0, 0)), [0.0]
    for step, arrived in enumerate(arrivals, start=1):
        rows = as_features(arrived, f"the arms of round {step}")
        gains.append(gains[-1])
        W = np.zeros((len(rows), len(chosen)))
        if len(chosen):
            W = factor.solve_rows(
                np.ascontiguousarray(kernel(rows, chosen), dtype=np.float64)
            )
        variances = np.array(kernel.diag(rows)) - np.einsum("ij,ij->i", W, W)
        picks: list[int] = []
        for _ in range(min(count, len(rows))):
            best = int(np.argmax(variances))
            root = math.sqrt(noise + max(0.0, float(variances[best])))
            gains[-1] += math.log(root / math.sqrt(noise))
            column = (kernel(rows, rows[best : best + 1])[:, 0] - W @ W[best]) / root
            variances -= column**2
            variances[best] = -np.inf  # once a round
            column[best] = root  # its own noise included: the diagonal of the factor
            W = np.column_stack([W, column])
            picks.append(best)
        size = len(chosen)
        factor.append(W[picks, :size], np.tril(W[picks, size:]))
        chosen = np.vstack([chosen, rows[picks]]) if size else rows[picks]
    return np.array(gains)


# --- growth of γ_t, for schedules ---------------------------------------------------------
# The constants hidden in the O(·) are taken as 1, and γ_0 = 0.


@register("gain", "squared-exponential")
@dataclass(frozen=True, kw_only=True)
class SquaredExponentialGain(Checked):
    """(ln t)^{d+1}. srinivas2010gaussian, Theorem 5.

    Args:
        dimension: Number of features.
    """

    dimension: int

    def __call__(self, t: int) -> float:
        return math.log(t) ** (self.dimension + 1) if t > 1 else 0.0


@register("gain", "matern")
@dataclass(frozen=True, kw_only=True)
class MaternGain:
    """``srinivas``: t^{d(d+1)/(2ν+d(d+1))} ln t; ``vakili``: t^{d/(2ν+d)} (ln t)^{2ν/(2ν+d)}.

    srinivas2010gaussian, Theorem 5; vakili2021information, as quoted by sandberg2025bayesian,
    section 2.3, the sharper one.

    Args:
        nu: Smoothness: 0.5, 1.5 and 2.5 are the usual values.
        dimension: Number of features.
        rate: Whose growth rate is used for the Matérn kernel.
    """

    nu: float
    dimension: int
    rate: Literal["srinivas", "vakili"] = "srinivas"

    def __post_init__(self) -> None:
        as_positive(self.nu, "nu")
        as_count(self.dimension, "dimension")
        require_choice(self.rate, "rate", ("srinivas", "vakili"))

    def __call__(self, t: int) -> float:
        if t <= 1:
            return 0.0
        logarithm = math.log(t)
        d = self.dimension
        if self.rate == "srinivas":
            exponent: float = d * (d + 1) / (2.0 * self.nu + d * (d + 1))
            return math.exp(exponent * logarithm) * logarithm
        total = 2.0 * self.nu + d
        return math.exp(d / total * logarithm) * math.exp(
            2.0 * self.nu / total * math.log(logarithm)
        )


@register("gain", "linear")
@dataclass(frozen=True, kw_only=True)
class LinearGain(Checked):
    """d ln t. srinivas2010gaussian, Theorem 5.

    Args:
        dimension: Number of features.
    """

    dimension: int

    def __call__(self, t: int) -> float:
        return self.dimension * math.log(t) if t > 1 else 0.0


@register("gain", "constant")
@dataclass(frozen=True, kw_only=True)
class ConstantGain(Checked):
    """The same value for every t, also for t = 0: a constant found by cross-validation.

    chowdhury2017kernelized, section 6, takes 1 for the sensor data.

    Args:
        value: The constant.
    """

    value: float = 1.0

    def __call__(self, t: int) -> float:
        return self.value


@register("gain", "greedy")
@dataclass(frozen=True, kw_only=True, eq=False)
class GreedyGrowth:
    """γ_t of these very candidates, by :func:`greedy_information_gain`, up to a horizon.

    Divided by 1 − 1/e: an upper bound on γ_t, as confidence bands need it. Computed once, on the
    first call.

    Args:
        kernel: The kernel.
        candidates: The arms among which information is gathered, one row each.
        noise_variance: Variance of the noise of one observation.
        horizon: Number of rounds T.
    """

    kernel: Covariance
    candidates: Any
    noise_variance: float
    horizon: int

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "candidates", as_features(self.candidates, "candidates")
        )
        as_positive(self.noise_variance, "noise_variance")
        as_count(self.horizon, "horizon")

    @cached_property
    def _values(self) -> list[float]:
        found = greedy_information_gain(
            self.kernel, self.candidates, self.horizon, self.noise_variance
        )
        values: list[float] = found.upper_bounds.tolist()
        return values

    def __call__(self, t: int) -> float:
        if not 0 <= t <= self.horizon:
            raise InputError(
                f"t is {t}; this growth was asked for 0 … {self.horizon} observations"
            )
        return self._values[t]
