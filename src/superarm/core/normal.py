"""Expectations under a normal distribution that several layers need."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Floats

_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI = math.sqrt(math.pi)
_LARGEST_W = 40.0  # e^(−w²) is 0 from w = 28 on


def rectified_mean(mean: Floats, std: float | Floats) -> Floats:
    """E[max(0, X)] for X ~ N(mean, std²), (n,), with all its digits in both tails.

    Far below zero μ̃Φ(μ̃/s) + sφ(μ̃/s) cancels; there, with w = −μ̃/(s√2), it is
    s·φ(μ̃/s)·(1 − √π·w·erfcx(w)), of which only the bracket cancels, and that from w ≈ 1e4 on:
    by then the value has long underflowed to 0.

    Args:
        mean: The means, (n,).
        std: One standard deviation for all, or one for each, (n,); 0 or more.

    >>> rectified_mean(np.array([-1.0, 0.0, 2.0]), 1.0).round(4).tolist()
    [0.0833, 0.3989, 2.0085]
    """
    from scipy.special import erfcx

    stds = np.broadcast_to(np.asarray(std, dtype=np.float64), mean.shape)
    result = np.maximum(mean, 0.0)
    is_random = stds > 0.0
    s = stds[is_random]
    distance = np.abs(mean[is_random])
    with np.errstate(over="ignore", under="ignore"):
        w = np.minimum(distance / s * _ROOT_HALF, _LARGEST_W)
        bracket = 1.0 - _ROOT_PI * w * erfcx(w)
        # For a mean m > 0 the value is m plus that for −m, since E[max(0, X)] − E[max(0, −X)] = m.
        tail = s * _DENSITY * np.exp(-w * w) * bracket
    result[is_random] += np.maximum(tail, 0.0)
    return result
