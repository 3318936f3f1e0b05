"""Compiled inner loops (extra ``[fast]``); each equals its numpy twin to rounding.

Compilation happens when this module is first imported and is cached beside it, so that no
round ever pays for it.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np

from superarm.core import Floats, Ints
from superarm.errors import require_extra

_numba = require_extra("numba", "fast")

# Sums may be reordered, so that they vectorise; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract"}


def _pending_step(
    columns: Floats, precision: Floats, weight: Floats, size: int, slot: int,
    mean: Floats, variance: Floats, row: int, reward: float, noise: float,
) -> float:  # fmt: skip
    """Twin of ``finite_engines.pending_step_numpy``."""
    n = columns.shape[1]
    q = np.empty(size)
    if weight[slot] > 0.0:
        for j in range(size):
            q[j] = precision[slot, j] / weight[slot]
    else:
        for j in range(size):
            known = 0.0
            for i in range(size):
                known += precision[j, i] * columns[i, row]
            q[j] = -known
        q[slot] += 1.0
    p = np.zeros(n)
    for j in range(size):
        for i in range(n):
            p[i] += q[j] * columns[j, i]
    total = p[row] + noise
    innovation = (reward - mean[row]) / total
    for i in range(n):
        mean[i] += p[i] * innovation
        left = variance[i] - p[i] * p[i] / total
        variance[i] = left if left > 0.0 else 0.0
    for j in range(size):
        for i in range(size):
            precision[j, i] += q[j] * q[i] / total
    weight[slot] += 1.0 / noise
    return 0.5 * log(total / noise)


def _pending_draw(
    root: Floats, normals: Floats, columns: Floats, precision: Floats, weight: Floats, pending: Ints
) -> Floats:
    """Twin of ``finite_engines.pending_draw_numpy``."""
    n, rank = root.shape
    count = len(pending)
    drawn = np.empty((len(normals), n))
    seen = np.empty(count)
    for m in range(len(normals)):
        for i in range(n):
            value = 0.0
            for j in range(rank):
                value += root[i, j] * normals[m, j]
            drawn[m, i] = value
        for j in range(count):
            seen[j] = drawn[m, pending[j]] + normals[m, rank + j] / sqrt(weight[j])
        for j in range(count):
            pull = 0.0
            for i in range(count):
                pull += precision[j, i] * seen[i]
            for i in range(n):
                drawn[m, i] -= pull * columns[j, i]
    return drawn


def _compile(loop: Any, signature: str) -> Any:
    options = {"fastmath": _FAST, "error_model": "numpy"}
    try:
        return _numba.njit(signature, cache=True, **options)(loop)
    except RuntimeError:  # nowhere to write the cache: compile anew in every process
        return _numba.njit(signature, **options)(loop)


pending_step = _compile(
    _pending_step, "f8(f8[:, ::1], f8[:, ::1], f8[::1], i8, i8, f8[::1], f8[::1], i8, f8, f8)"
)
pending_draw = _compile(
    _pending_draw,
    "f8[:, ::1](f8[:, ::1], f8[:, ::1], f8[:, ::1], f8[:, ::1], f8[::1], i8[::1])",
)
