"""Compiled inner loops (extra ``[fast]``); each equals its numpy twin to rounding.

Compilation happens when this module is first imported and is cached beside it, so that no
round ever pays for it.
"""

from __future__ import annotations

from math import log, sqrt

from superarm.core import Floats
from superarm.errors import require_extra

_numba = require_extra("numba", "fast")

# Sums may be reordered, so that they vectorise; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract"}


def _observe_one(
    root: Floats, mean: Floats, variance: Floats, row: int, reward: float, noise: float
) -> float:
    """Twin of ``finite_engines.observe_one_numpy``, in one pass over the root."""
    n, r = root.shape
    observed = root[row].copy()
    total = noise
    for j in range(r):
        total += observed[j] * observed[j]
    innovation = (reward - mean[row]) / total
    shrink = 1.0 / (sqrt(total) * (sqrt(total) + sqrt(noise)))
    for i in range(n):
        cross = 0.0
        for j in range(r):
            cross += root[i, j] * observed[j]
        mean[i] += cross * innovation
        left = variance[i] - cross * cross / total
        variance[i] = left if left > 0.0 else 0.0
        step = cross * shrink
        for j in range(r):
            root[i, j] -= step * observed[j]
    return 0.5 * log(total / noise)


observe_one = _numba.njit(
    "f8(f8[:, ::1], f8[::1], f8[::1], i8, f8, f8)", cache=True, fastmath=_FAST, error_model="numpy"
)(_observe_one)
