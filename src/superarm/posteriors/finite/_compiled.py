"""Compiled inner loops (extra ``[fast]``): twins of ``loops.py``, and whole rounds at once.

Compilation happens when this module is first imported and is cached beside it, so that no
round ever pays for it.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.compiling import compiled
from superarm.posteriors.fixed import COUNT, INFORMATION

from .loops import (
    MEAN,
    PENDING,
    PENDING_ARMS,
    PENDING_COUNT,
    PLACE_OF,
    UNTIL_FOLD,
    VARIANCE,
)

# BLAS computes long sums: compiled ones are neither fused nor reordered.

# The tolerance of ``oracles/ties.py``: posteriors import no oracle.
_TIE = 2.0**-40

# Types of arguments. C-contiguous arrays of float64 and int64.
_MATRIX = "f8[:, ::1]"
_VECTOR = "f8[::1]"
_ROWS = "i8[::1]"
_PLACES = "i8[:, ::1]"
# The arrays that every update changes: see ``loops.py``.
_UPDATED = f"{_MATRIX}, {_MATRIX}, {_VECTOR}, {_VECTOR}, {_PLACES}, {_ROWS}"


@compiled(f"void({_MATRIX}, {_MATRIX}, {_MATRIX}, {_VECTOR}, {_PLACES}, i8, i8, i8)")
def add(
    root: Floats, base: Floats, columns: Floats, pending_weight: Floats, places: Ints,
    count: int, place: int, row: int,
) -> None:  # fmt: skip
    """Twin of ``loops.add_numpy``."""
    n = len(root)
    pending = places[PENDING_ARMS]
    base[place] = np.dot(root, root[row])
    columns[place] = base[place]
    # Cholesky of base_VV + D, then two triangular solves, in place.
    L = np.empty((count, count))
    x = np.empty(count)
    for i in range(count):
        for j in range(i + 1):
            value = base[i, pending[j]]
            if i == j:
                value += 1.0 / pending_weight[i]
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
            columns[place, i] -= x[j] * base[j, i]
    pending[place] = row
    pending_weight[place] = 0.0


@compiled(f"f8({_MATRIX}, {_MATRIX}, {_VECTOR}, {_PLACES}, {_ROWS}, i8, i8, f8, f8)")
def _condition(
    columns: Floats, moments: Floats, pending_weight: Floats, places: Ints, counts: Ints,
    place: int, row: int, reward: float, noise: float,
) -> float:  # fmt: skip
    """Learn one observation, except for the totals; returns the information gained.

    Where all arms are pending, ``columns`` is P, and only the triangle below its diagonal is kept up
    to date: half the work.
    """
    n = columns.shape[1]
    pending = places[PENDING_ARMS]
    if place >= counts[PENDING_COUNT]:
        counts[PENDING_COUNT] = place + 1
        places[PLACE_OF, row] = place
    column = columns[place].copy()
    all_pending = counts[PENDING_COUNT] > PENDING
    if all_pending:
        for i in range(place + 1, n):
            column[i] = columns[i, place]
    total = column[row] + noise
    mean = moments[MEAN]
    variance = moments[VARIANCE]
    innovation = (reward - mean[row]) / total
    for i in range(n):
        mean[i] += column[i] * innovation
        remaining = variance[i] - column[i] * column[i] / total
        variance[i] = remaining if remaining > 0.0 else 0.0
    for j in range(counts[PENDING_COUNT]):
        share = column[pending[j]] / total
        width = n
        if all_pending:
            # The triangle, up to a multiple of 4 numbers, which vectorise better.
            width = min(n, j + 4 - j % 4)
        for i in range(width):
            columns[j, i] -= share * column[i]
    pending_weight[place] += 1.0 / noise
    counts[UNTIL_FOLD] -= 1
    return 0.5 * log(total / noise)


@compiled(f"i8({_UPDATED}, i8, i8, f8, f8)")
def learn(
    columns: Floats, moments: Floats, totals: Floats, pending_weight: Floats, places: Ints,
    counts: Ints, place: int, row: int, reward: float, noise: float,
) -> int:  # fmt: skip
    """Twin of ``loops.learn_numpy``."""
    totals[INFORMATION] += _condition(
        columns, moments, pending_weight, places, counts, place, row, reward, noise
    )
    totals[row] += 1.0 / noise
    totals[columns.shape[1] + row] += reward / noise
    totals[COUNT] += 1.0
    until_fold: int = counts[UNTIL_FOLD]
    return until_fold


@compiled(f"void({_UPDATED}, {_ROWS}, {_ROWS}, {_VECTOR}, {_VECTOR}, {_VECTOR})")
def learn_some(
    columns: Floats, moments: Floats, totals: Floats, pending_weight: Floats, places: Ints,
    counts: Ints, slots: Ints, rows: Ints, rewards: Floats, noise: Floats, added: Floats,
) -> None:  # fmt: skip
    """Twin of ``loops.learn_some_numpy``, one observation after the other."""
    for i in range(len(rows)):  # all columns lose what each observation explains
        slot = slots[i]
        counts[PENDING_COUNT] = max(counts[PENDING_COUNT], slot + 1)
        places[PLACE_OF, rows[i]] = slot
    for i in range(len(rows)):
        added[INFORMATION] += _condition(
            columns, moments, pending_weight, places, counts,
            slots[i], rows[i], rewards[i], noise[i],
        )  # fmt: skip
    for i in range(len(totals)):
        totals[i] += added[i]


@compiled(f"{_MATRIX}({_MATRIX}, {_MATRIX}, {_MATRIX}, {_VECTOR}, {_ROWS}, i8)")
def draw(
    root: Floats,
    normals: Floats,
    columns: Floats,
    weight: Floats,
    pending: Ints,
    count: int,
) -> Floats:
    """Twin of ``loops.draw_numpy``."""
    n, rank = root.shape
    draws = np.empty((len(normals), n))
    correction = np.empty(count)
    for m in range(len(normals)):
        draws[m] = np.dot(root, normals[m, :rank].copy())
        for j in range(count):
            normal = normals[m, rank + j]
            value = draws[m, pending[j]]
            correction[j] = value * weight[j] + normal * sqrt(weight[j])
        for j in range(count):
            for i in range(n):
                draws[m, i] -= correction[j] * columns[j, i]
    return draws


@compiled(f"i8({_VECTOR}, {_VECTOR}, f8, {_VECTOR})")
def _best(mean: Floats, deviation: Floats, width: float, index: Floats) -> int:
    """The first arm of largest mean + width·deviation, as ``TopK(k=1)`` selects it.

    Ties within rounding count, as in ``oracles/ties.py``.
    """
    for i in range(len(mean)):  # a loop of its own, so that it vectorises
        index[i] = deviation[i] * width + mean[i]
    best = 0
    highest = -np.inf
    for i in range(len(mean)):
        if index[i] > highest:
            best = i
            highest = index[i]
    tie_limit = highest - _TIE * abs(highest)
    for i in range(best):
        if index[i] >= tie_limit:
            return i
    return best


@compiled(
    f"i8({_MATRIX}, {_MATRIX}, {_UPDATED}, i8, {_MATRIX}, {_VECTOR}, {_MATRIX}, f8, {_ROWS}, i8)"
)
def play(
    root: Floats, base: Floats, columns: Floats, moments: Floats, totals: Floats,
    pending_weight: Floats, places: Ints, counts: Ints, room: int, rewards: Floats,
    widths: Floats, normals: Floats, noise: float, choices: Ints, step: int,
) -> int:  # fmt: skip
    """Play rounds from ``step`` on, until the table ends or the pending arms must be folded in.

    At most ``room`` arms may be pending. Returns the first round that is not finished. If no fold is
    due, that round's arm is chosen already, but there was no room for it.
    """
    mean = moments[MEAN]
    variance = moments[VARIANCE]
    pending = places[PENDING_ARMS]
    deviation = np.empty_like(mean)
    index = np.empty_like(mean)
    while step < len(rewards) and counts[UNTIL_FOLD] > 0:
        count = counts[PENDING_COUNT]
        if len(normals):
            numbers = normals[step : step + 1]
            draws = draw(root, numbers, columns, pending_weight, pending, count)
            for i in range(len(mean)):
                # Rounded as ``Thompson`` does it.
                deviation[i] = (mean[i] + draws[0, i]) - mean[i]
        else:
            for i in range(len(mean)):
                deviation[i] = sqrt(variance[i])
        row = _best(mean, deviation, widths[step], index)
        choices[step] = row
        place = places[PLACE_OF, row]
        if place < 0:
            place = count
            if place >= room:
                break  # chosen, but not yet observed
            add(root, base, columns, pending_weight, places, count, place, row)
        reward = rewards[step, row]
        learn(
            columns, moments, totals, pending_weight, places, counts,
            place, row, reward, noise,
        )  # fmt: skip
        step += 1
    return step
