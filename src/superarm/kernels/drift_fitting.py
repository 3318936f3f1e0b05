"""How fast rewards drift, by maximum likelihood, where every arm was read at every time.

Notation

=============  ===========================================================================
``K``          (n, n), covariance of the arms at one time: U diag(λ) Uᵀ
``D``          (T, T), (1 − ε)^{|s − t|/2} of the times
``Y``          (b, T, n) readings, less their mean, in b independent blocks, such as days
``z``          (T, b, n), Y U: n independent series a block, of covariance λ_i D + σ²I
=============  ===========================================================================

The readings of a block have the covariance K ⊗ D + σ²I of bogunovic2016time, eq. 24. Each series is
one number that fades and is read with noise, so that its likelihood takes T steps of a Kalman filter:
exact, and n T b operations after one decomposition of K.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import as_features, as_number, as_positive, as_vector

from .structured import Empirical

_STEP = 1e-2  # in ln ε, for the curvature: its error is about 1e-5 of it
_QUANTILE = 1.959963984540054


class DriftFit(NamedTuple):
    """What :func:`fit_drift` found."""

    epsilon: float
    interval: tuple[float, float]
    """95 %, from the curvature in ln ε; the bounds where there is no maximum between them."""
    log_likelihood: float


def drift_log_likelihood(
    covariance: Any,
    readings: Any,
    *,
    epsilon: float,
    noise_variance: float,
    times: Any = None,
) -> float:
    """log p(readings) [bogunovic2016time, eq. 24] of blocks (b, T, n) or one block (T, n), in nats."""
    known = as_number(epsilon, "epsilon", 0.0, 1.0 - 1e-12)
    return _likelihood(covariance, readings, noise_variance, times)(known)


def fit_drift(
    covariance: Any,
    readings: Any,
    *,
    noise_variance: float,
    times: Any = None,
    bounds: tuple[float, float] = (1e-5, 0.99),
) -> DriftFit:
    """The ε under which readings less their mean, (T, n) or in blocks (b, T, n), are most likely.

    ``covariance`` (n, n) is that of the arms at one time; ``times`` (T,), 1, 2, 3, … where it is left
    out, rise. A bounded search on ln ε; blocks are independent, and their likelihoods add up.

    >>> fit = fit_drift([[1.0]], [[0.9], [1.1], [1.0], [0.4]], noise_variance=0.01)
    >>> round(fit.epsilon, 2)
    0.12
    """
    from scipy.optimize import minimize_scalar

    likelihood = _likelihood(covariance, readings, noise_variance, times)
    low, high = (as_positive(bound, "bounds") for bound in bounds)
    if not low < high < 1.0:
        raise InputError(
            f"bounds is ({low:g}, {high:g}); the lower one comes first, both below 1"
        )

    def loss(log_epsilon: float) -> float:
        return -likelihood(math.exp(log_epsilon))

    # The likelihood may have a second, lower top: the search starts about the best of a coarse grid.
    grid = np.linspace(math.log(low), math.log(high), 25)
    place = int(np.argmin([loss(float(point)) for point in grid]))
    around = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    best = float(
        minimize_scalar(
            loss, bounds=around, method="bounded", options={"xatol": 1e-6}
        ).x
    )
    top = loss(best)
    curvature = (loss(best - _STEP) - 2.0 * top + loss(best + _STEP)) / _STEP**2
    inside = grid[0] + _STEP < best < grid[-1] - _STEP and curvature > 0.0
    away = _QUANTILE / math.sqrt(curvature) if inside else math.inf
    interval = (
        max(low, math.exp(best - away)),
        min(high, math.exp(min(best + away, 0.0))),
    )
    return DriftFit(math.exp(best), interval, -top)


def _likelihood(
    covariance: Any, readings: Any, noise_variance: float, times: Any
) -> Callable[[float], float]:
    """The log-likelihood of ε: of a series for each eigenvector of the covariance and each block."""
    K, blocks = (
        Empirical(covariance=as_features(covariance, "covariance")).covariance,
        list(readings),
    )
    single = not blocks or np.ndim(blocks[0]) == 1
    rows = [
        as_features(each, "readings", len(K))
        for each in ([readings] if single else blocks)
    ]
    if len({len(block) for block in rows}) != 1 or not len(rows[0]):
        raise ShapeError(
            "readings must be (T, n) or, in blocks of equal length, (b, T, n)"
        )
    noise, steps = as_positive(noise_variance, "noise_variance"), len(rows[0])
    gaps = np.diff(
        np.arange(steps) if times is None else as_vector(times, "times", steps)
    )
    if (gaps <= 0.0).any():
        raise InputError("times must rise from one to the next")
    eigenvalues, U = np.linalg.eigh(K)
    variance = np.maximum(eigenvalues, 0.0)  # below 0 by rounding alone
    series = np.moveaxis(np.stack(rows) @ U, 1, 0)

    def log_likelihood(epsilon: float) -> float:
        keep = np.append((1.0 - epsilon) ** (gaps / 2.0), 1.0)
        mean, p, total = np.zeros(series.shape[1:]), variance, 0.0
        for z, rho in zip(series, keep.tolist(), strict=True):
            spread, away = p + noise, z - mean
            total += len(z) * float(np.log(spread).sum()) + float(
                (away * away / spread).sum()
            )
            mean = rho * (mean + p / spread * away)
            p = rho * rho * (p * noise / spread) + (1.0 - rho * rho) * variance
        return -0.5 * (total + int(series.size) * math.log(2.0 * math.pi))

    return log_likelihood
