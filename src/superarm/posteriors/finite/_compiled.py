"""Compiled inner loops (extra ``[fast]``): twins of ``loops.py``, and whole rounds at once.

Compilation happens when this module is first imported and is cached beside it, so that no
round ever pays for it.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from superarm.compiling import compiled
from superarm.core import Floats, Ints

# Long sums are left to BLAS: compiled ones are neither fused nor reordered.
_TIE = 2.0**-40  # that of ``oracles/ties.py``: posteriors import no oracle
_MATRIX, _VECTOR, _ROWS = "f8[:, ::1]", "f8[::1]", "i8[::1]"


@compiled(f"void({_MATRIX}, {_MATRIX}, {_MATRIX}, {_VECTOR}, {_ROWS}, {_ROWS}, i8, i8)")
def add(
    root: Floats, base: Floats, columns: Floats, weight: Floats, pending: Ints,
    slot: Ints, count: int, row: int,
) -> None:  # fmt: skip
    """Twin of ``loops.add_numpy``."""
    n = len(root)
    base[count] = np.dot(root, root[row])
    columns[count] = base[count]
    # Cholesky of base_VV + D, then two triangular solves, in place.
    L = np.empty((count, count))
    x = np.empty(count)
    for i in range(count):
        for j in range(i + 1):
            value = base[i, pending[j]]
            if i == j:
                value += 1.0 / weight[i]
            for k in range(j):
                value -= L[i, k] * L[j, k]
            L[i, j] = sqrt(value) if i == j else value / L[j, j]
        value = base[i, row]
        for k in range(i):
            value -= L[i, k] * x[k]
        x[i] = value / L[i, i]
    for i in range(count - 1, -1, -1):
        value = x[i]
        for k in range(i + 1, count):
            value -= L[k, i] * x[k]
        x[i] = value / L[i, i]
    for j in range(count):
        for i in range(n):
            columns[count, i] -= x[j] * base[j, i]
    pending[count] = row
    slot[row] = count
    weight[count] = 0.0


@compiled(f"f8({_MATRIX}, {_VECTOR}, {_ROWS}, i8, i8, {_MATRIX}, i8, f8, f8)")
def observe(
    columns: Floats, weight: Floats, pending: Ints, place: int, count: int,
    moments: Floats, row: int, reward: float, noise: float,
) -> float:  # fmt: skip
    """Twin of ``loops.observe_numpy``."""
    n = columns.shape[1]
    column = columns[place].copy()
    total = column[row] + noise
    innovation = (reward - moments[0, row]) / total
    for i in range(n):
        moments[0, i] += column[i] * innovation
        left = moments[1, i] - column[i] * column[i] / total
        moments[1, i] = left if left > 0.0 else 0.0
    for j in range(count):
        share = column[pending[j]] / total
        for i in range(n):
            columns[j, i] -= share * column[i]
    weight[place] += 1.0 / noise
    return 0.5 * log(total / noise)


@compiled(f"{_MATRIX}({_MATRIX}, {_MATRIX}, {_MATRIX}, {_VECTOR}, {_ROWS}, i8)")
def draw(
    root: Floats, normals: Floats, columns: Floats, weight: Floats, pending: Ints, count: int
) -> Floats:
    """Twin of ``loops.draw_numpy``."""
    n, rank = root.shape
    drawn = np.empty((len(normals), n))
    pull = np.empty(count)
    for m in range(len(normals)):
        drawn[m] = np.dot(root, normals[m, :rank].copy())
        for j in range(count):
            pull[j] = drawn[m, pending[j]] * weight[j] + normals[m, rank + j] * sqrt(weight[j])
        for j in range(count):
            for i in range(n):
                drawn[m, i] -= pull[j] * columns[j, i]
    return drawn


@compiled(f"i8({_VECTOR}, {_VECTOR}, f8, {_VECTOR})")
def _best(mean: Floats, deviation: Floats, width: float, index: Floats) -> int:
    """The first arm of largest mean + width·deviation: what ``TopK(k=1)`` makes of a rule's index.

    Ties within rounding count, as in ``oracles/ties.py``.
    """
    for i in range(len(mean)):  # by itself, so that it vectorises
        index[i] = deviation[i] * width + mean[i]
    best, highest = 0, -np.inf
    for i in range(len(mean)):
        if index[i] > highest:
            best, highest = i, index[i]
    least = highest - _TIE * abs(highest)
    for i in range(best):
        if index[i] >= least:
            return i
    return best


@compiled(
    f"Tuple((f8, i8))({_MATRIX}, {_MATRIX}, {_MATRIX}, {_VECTOR}, {_ROWS}, {_ROWS}, {_ROWS}, i8, "
    f"{_MATRIX}, {_VECTOR}, {_VECTOR}, {_MATRIX}, {_VECTOR}, {_MATRIX}, f8, {_ROWS}, i8)"
)
def play(
    root: Floats, base: Floats, columns: Floats, weight: Floats, pending: Ints, slot: Ints,
    counts: Ints, room: int, moments: Floats, total_weight: Floats, total_rewards: Floats,
    rewards: Floats, widths: Floats, normals: Floats, noise: float, choices: Ints, step: int,
) -> tuple[float, int]:  # fmt: skip
    """Rounds from ``step`` on, until the table ends or the pending arms must be folded in.

    At most ``room`` arms may be pending. ``counts`` holds how many are and how many observations
    are left until the next fold. Returns the information gained and the first round not finished.
    If there are observations left before a fold was due, that round's arm is chosen already but
    found no room.
    """
    mean, variance = moments[0], moments[1]
    information, deviation, index = 0.0, np.empty_like(mean), np.empty_like(mean)
    while step < len(rewards) and counts[1] > 0:
        if len(normals):
            drawn = draw(root, normals[step : step + 1], columns, weight, pending, counts[0])
            for i in range(len(mean)):
                deviation[i] = (mean[i] + drawn[0, i]) - mean[i]  # as ``Thompson`` has it
        else:
            for i in range(len(mean)):
                deviation[i] = sqrt(variance[i])
        row = _best(mean, deviation, widths[step], index)
        choices[step] = row
        if slot[row] < 0:
            if counts[0] >= room:
                break  # chosen, but not yet observed
            add(root, base, columns, weight, pending, slot, counts[0], row)
            counts[0] += 1
        reward = rewards[step, row]
        information += observe(
            columns, weight, pending, slot[row], counts[0], moments, row, reward, noise
        )
        total_weight[row] += 1.0 / noise
        total_rewards[row] += reward / noise
        counts[1] -= 1
        step += 1
    return information, step
