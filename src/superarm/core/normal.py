"""Expectations under a normal distribution that several layers need."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Floats

_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
_SLOPE = math.sqrt(math.pi)


def rectified_mean(mean: Floats, std: float | Floats) -> Floats:
    """E[max(0, X)] for X ~ N(mean, std²), (n,), with all its digits in both tails.

    Far below zero μ̃Φ(μ̃/s) + sφ(μ̃/s) cancels; there, with w = −μ̃/(s√2), it is
    s·φ(μ̃/s)·(1 − √π·w·erfcx(w)), of which only the bracket cancels, and that from w ≈ 1e4 on:
    by then the value has long underflowed to 0.

    >>> rectified_mean(np.array([-1.0, 0.0, 2.0]), 1.0).round(4).tolist()
    [0.0833, 0.3989, 2.0085]
    """
    from scipy.special import erfcx

    spread = np.broadcast_to(np.asarray(std, dtype=np.float64), mean.shape)
    result = np.maximum(mean, 0.0)
    known = spread > 0.0
    s, m = spread[known], mean[known]
    with np.errstate(over="ignore", under="ignore"):
        w = np.minimum(np.abs(m) / s * _ROOT_HALF, 40.0)  # e^(−w²) is 0 from w = 28 on
        # For m > 0 the value is m plus that for −m, since E[max(0, X)] − E[max(0, −X)] = m.
        tail = s * _DENSITY * np.exp(-w * w) * (1.0 - _SLOPE * w * erfcx(w))
    result[known] += np.maximum(tail, 0.0)
    return result
