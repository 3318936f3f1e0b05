"""Inner loops of the root form in numpy, and where to find their compiled twins.

Notation as in ``root.py``. With D = diag(1/weight) over the pending arms V::

    columns = base − base_V (base_VV + D)⁻¹ base,   so   base_Vᵀ (base_VV + D)⁻¹ = columnsᵀ D⁻¹
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from superarm.compiling import Backend, is_compiled
from superarm.core import Floats, Ints

PENDING = 32  # arms: enough for a policy that has settled, and for BLAS to fold them in well


class Loops(NamedTuple):
    """One backend: numpy, or compiled."""

    add: Callable[..., None]
    observe: Callable[..., float]
    draw: Callable[..., Floats]
    play: Callable[..., tuple[float, int]] | None  # whole rounds against a table: compiled only


def loops_of(backend: Backend) -> Loops:
    """Those of a backend."""
    if not is_compiled(backend):
        return Loops(add_numpy, observe_numpy, draw_numpy, None)
    from . import _compiled

    return Loops(_compiled.add, _compiled.observe, _compiled.draw, _compiled.play)


def add_numpy(
    root: Floats, base: Floats, columns: Floats, weight: Floats, pending: Ints,
    slot: Ints, count: int, row: int,
) -> None:  # fmt: skip
    """Make an arm pending: its covariance column when R was up to date, and now."""
    fresh = root.dot(root[row])
    base[count] = fresh
    columns[count] = fresh
    if count:
        known = base[:count]
        observed = known[:, pending[:count]]
        observed.flat[:: count + 1] += 1.0 / weight[:count]
        # Not by columns × weight, which is the same: its rounding grows from arm to arm.
        columns[count] -= np.linalg.solve(observed, known[:, row]).dot(known)
    pending[count] = row
    slot[row] = count
    weight[count] = 0.0


def observe_numpy(
    columns: Floats, weight: Floats, pending: Ints, place: int, count: int,
    moments: Floats, row: int, reward: float, noise: float,
) -> float:  # fmt: skip
    """Condition on one observation of a pending arm, in place; returns the information gained.

    ``place`` is where the arm stands among the pending; ``moments`` are means and variances, (2, n).
    With c the arm's column and s = c_row + noise: mean += c (y − m)/s, variance −= c²/s and
    every pending column loses c_V c/s [chowdhury2017kernelized, eqs 19–21].
    """
    # BLAS works in place, which saves the temporaries: they would cost more than the sums.
    daxpy, dger = _blas()
    mean = moments[0]
    column = columns[place].copy()
    total = column.item(row) + noise
    daxpy(column, mean, a=(reward - mean.item(row)) / total)
    if count > PENDING:  # all arms, in their own order: columns are P, with the variances in it
        dger(-1.0 / total, column, column, a=columns.T, overwrite_a=1)
    else:
        variance = moments[1]
        daxpy(column * column, variance, a=-1.0 / total)
        np.maximum(variance, 0.0, out=variance)
        dger(-1.0 / total, column, column[pending[:count]], a=columns[:count].T, overwrite_a=1)
    weight[place] += 1.0 / noise
    return 0.5 * math.log(total / noise)


@functools.cache
def _blas() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from scipy.linalg.blas import daxpy, dger

    return daxpy, dger


def draw_numpy(
    root: Floats, normals: Floats, columns: Floats, weight: Floats, pending: Ints, count: int
) -> Floats:
    """Joint draws (m, n) from normals (m, r + …): u of N(0, R Rᵀ), corrected by what is pending.

    u − columnsᵀ D⁻¹ (u_V + ε) with ε of the pending observations' noise D.
    """
    rank = root.shape[1]
    drawn = np.empty((len(normals), len(root)))
    for place, numbers in enumerate(normals):
        # Copied, so that a row lies in memory as a single draw does: some BLAS round by alignment.
        path = root.dot(numbers[:rank].copy())
        if count:
            held = weight[:count]
            pull = path[pending[:count]]
            pull *= held
            pull += numbers[rank : rank + count] * np.sqrt(held)
            path -= pull.dot(columns[:count])
        drawn[place] = path
    return drawn
