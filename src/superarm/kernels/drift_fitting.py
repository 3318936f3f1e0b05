"""Maximum likelihood for the rate of drift, where every arm was read at every time.

Notation

=============  ===========================================================================
``K``          (n, n), covariance of the arms at one time: U diag(λ) Uᵀ
``D``          (T, T), (1 − ε)^{|s − t|/2} of the times
``Y``          (b, T, n) readings, less their mean, in b independent blocks, such as days
``z``          (T, b, n), Y U: n independent series a block, of covariance λ_i D + σ²I
=============  ===========================================================================

The readings of a block have the covariance K ⊗ D + σ²I of bogunovic2016time, eq. 24. Each series is
one number that fades and is read with noise, so its likelihood takes T steps of a Kalman filter:
exact, and n T b operations after one decomposition of K.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import as_features, as_number, as_positive, as_vector

from .empirical import Empirical

# Step in ln ε for the curvature, whose relative error is then about 1e-5.
_STEP = 1e-2
_QUANTILE = 1.959963984540054  # of the standard normal, at 97.5 %
_GRID = 25  # points of the coarse search


class DriftFit(NamedTuple):
    """The result of :func:`fit_drift`."""

    epsilon: float
    interval: tuple[float, float]
    """95 %, from the curvature in ln ε; the bounds if there is no maximum between them."""
    log_likelihood: float


def drift_log_likelihood(
    covariance: Any,
    readings: Any,
    *,
    epsilon: float,
    noise_variance: float,
    times: Any = None,
) -> float:
    """log p(readings) in nats [bogunovic2016time, eq. 24].

    Args:
        covariance: Covariance of the arms at one time, (n, n).
        readings: Readings less their mean, (T, n), or in independent blocks, (b, T, n).
        epsilon: ε: forgetting per unit of time, from 0 to below 1.
        noise_variance: σ²: variance of the noise of one reading.
        times: Rising times of the readings, (T,); 1, 2, 3, … by default.
    """
    rate = as_number(epsilon, "epsilon", 0.0, 1.0 - 1e-12)
    likelihood = _Likelihood(covariance, readings, noise_variance, times)
    return likelihood(rate)


def fit_drift(
    covariance: Any,
    readings: Any,
    *,
    noise_variance: float,
    times: Any = None,
    bounds: tuple[float, float] = (1e-5, 0.99),
) -> DriftFit:
    """The ε that makes the readings most likely, by a bounded search on ln ε.

    Args:
        covariance: Covariance of the arms at one time, (n, n).
        readings: Readings less their mean, (T, n), or in independent blocks, (b, T, n), whose
            likelihoods add up.
        noise_variance: σ²: variance of the noise of one reading.
        times: Rising times of the readings, (T,); 1, 2, 3, … by default.
        bounds: Smallest and largest ε, both between 0 and 1.

    >>> fit = fit_drift([[1.0]], [[0.9], [1.1], [1.0], [0.4]], noise_variance=0.01)
    >>> round(fit.epsilon, 2)
    0.12
    """
    likelihood = _Likelihood(covariance, readings, noise_variance, times)
    low, high = (as_positive(bound, "bounds") for bound in bounds)
    if not low < high < 1.0:
        raise InputError(
            f"bounds is ({low:g}, {high:g}); the lower one comes first, both below 1"
        )

    def loss(log_epsilon: float) -> float:
        epsilon = math.exp(log_epsilon)
        return -likelihood(epsilon)

    log_low = math.log(low)
    log_high = math.log(high)
    best = _least_point(loss, np.linspace(log_low, log_high, _GRID))
    least = loss(best)
    half_width = math.inf
    if log_low + _STEP < best < log_high - _STEP:
        before = loss(best - _STEP)
        after = loss(best + _STEP)
        curvature = (before - 2.0 * least + after) / _STEP**2
        if curvature > 0.0:
            half_width = _QUANTILE / math.sqrt(curvature)
    lower = max(low, math.exp(best - half_width))
    log_upper = min(best + half_width, 0.0)
    upper = min(high, math.exp(log_upper))
    return DriftFit(
        epsilon=math.exp(best),
        interval=(lower, upper),
        log_likelihood=-least,
    )


def _least_point(loss: Callable[[float], float], grid: Floats) -> float:
    """Where the loss is least: it may have a second minimum, so the best of a grid comes first."""
    from scipy.optimize import minimize_scalar

    losses = [loss(float(point)) for point in grid]
    best = int(np.argmin(losses))
    last = len(grid) - 1
    lower = grid[max(best - 1, 0)]
    upper = grid[min(best + 1, last)]
    options: Any = {"xatol": 1e-6}
    search = minimize_scalar(
        loss, bounds=(lower, upper), method="bounded", options=options
    )
    return float(search.x)


class _Likelihood:
    """The log-likelihood as a function of ε.

    It is that of one series for each eigenvector of the covariance and each block.
    """

    def __init__(
        self, covariance: Any, readings: Any, noise_variance: float, times: Any
    ) -> None:
        table = as_features(covariance, "covariance")
        K = Empirical(covariance=table).covariance
        blocks = _as_blocks(readings, len(K))  # b times (T, n)
        self._noise = as_positive(noise_variance, "noise_variance")
        steps = len(blocks[0])
        if times is None:
            times = range(steps)
        checked_times = as_vector(times, "times", steps)
        self._gaps = np.diff(checked_times)  # (T − 1,)
        if (self._gaps <= 0.0).any():
            raise InputError("times must rise from one to the next")
        eigenvalues, U = np.linalg.eigh(K)
        # Only rounding makes an eigenvalue negative.
        self._variance = np.maximum(eigenvalues, 0.0)  # λ, (n,)
        Y = np.stack(blocks)  # (b, T, n)
        self._series = np.moveaxis(Y @ U, 1, 0)  # z, (T, b, n)

    def __call__(self, epsilon: float) -> float:
        """log p in nats, by a Kalman filter."""
        noise = self._noise
        prior_variance = self._variance
        factors = (1.0 - epsilon) ** (self._gaps / 2.0)
        rhos = np.append(factors, 1.0).tolist()  # nothing follows the last step
        mean = np.zeros(self._series.shape[1:])  # (b, n)
        p = prior_variance  # variance of the state, (n,)
        total = 0.0
        for z, rho in zip(self._series, rhos, strict=True):
            spread = p + noise
            residual = z - mean
            logarithms = np.log(spread)
            log_determinant = len(z) * float(logarithms.sum())
            squares = residual * residual / spread
            total += log_determinant + float(squares.sum())
            # Update by the reading, then fade by ρ until the next one.
            gain = p / spread
            mean = rho * (mean + gain * residual)
            posterior = p * noise / spread
            remaining = rho * rho
            p = remaining * posterior + (1.0 - remaining) * prior_variance
        numbers = int(self._series.size)
        constant = numbers * math.log(2.0 * math.pi)
        return -0.5 * (total + constant)


def _as_blocks(readings: Any, n: int) -> list[Floats]:
    """Readings as blocks of equal length, (T, n) each."""
    rows = list(readings)
    is_single = not rows or np.ndim(rows[0]) == 1
    blocks = [readings] if is_single else rows
    checked = [as_features(block, "readings", n) for block in blocks]
    lengths = {len(block) for block in checked}
    if len(lengths) != 1 or lengths == {0}:
        raise ShapeError(
            "readings must be (T, n) or, in blocks of equal length, (b, T, n)"
        )
    return checked
