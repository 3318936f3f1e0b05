"""Inner loops of the root form in numpy, and where to find their compiled twins.

Notation as in ``root.py``. With D = diag(1/weight) over the pending arms V::

    columns = base − base_V (base_VV + D)⁻¹ base,   so   base_Vᵀ (base_VV + D)⁻¹ = columnsᵀ D⁻¹

All loops take the same arrays, for n arms of which at most c may be pending:

==================  ==========================================================================
``columns``         (c, n)
``moments``         (2, n): rows MEAN and VARIANCE
``totals``          (2n + 2,): those of :class:`~superarm.posteriors.fixed.FixedPosterior`
``pending_weight``  (c,)
``places``          (2, n): row PENDING_ARMS holds V; row PLACE_OF the place of an arm in V, or −1
``counts``          (2,): PENDING_COUNT, and UNTIL_FOLD: observations until the next fold
==================  ==========================================================================

For numpy, ``totals`` and ``counts`` are lists, in which Python changes a number in a fifth of the
time.

An update is complete even if Ctrl-C interrupts it. CPython handles signals and lets other threads run
when a function begins, when a call returns and when a loop starts over: not within compiled code, and
not between statements that call nothing. So the compiled loops change everything in one call. Those in
numpy first compute all that may fail. Calls that then change arrays in place are followed by the
others in ``finally``, and the last one only by assignments. An update of several arms is undone if
that fails.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.compiling import Backend, entry_point, is_compiled
from superarm.posteriors.fixed import COUNT, INFORMATION

# Most pending arms: enough for a policy that plays a few, and for BLAS to fold them in well.
PENDING = 32

# Rows of ``moments``.
MEAN = 0
VARIANCE = 1
# Rows of ``places``.
PENDING_ARMS = 0
PLACE_OF = 1
# Entries of ``counts``.
PENDING_COUNT = 0
UNTIL_FOLD = 1


class Loops(NamedTuple):
    """One backend: numpy, or compiled."""

    add: Callable[..., None]
    learn: Callable[..., int]
    learn_some: Callable[..., None]
    draw: Callable[..., Floats]
    play: Callable[..., int] | None  # whole rounds against a table: compiled only


def loops_of(backend: Backend) -> Loops:
    """The loops of a backend.

    Args:
        backend: The backend.
    """
    if not is_compiled(backend):
        return Loops(add_numpy, learn_numpy, learn_some_numpy, draw_numpy, None)
    from . import _compiled

    learn = entry_point(_compiled.learn)  # its arguments are the engine's own
    return Loops(
        _compiled.add, learn, _compiled.learn_some, _compiled.draw, _compiled.play
    )


def add_numpy(
    root: Floats, base: Floats, columns: Floats, pending_weight: Floats, places: Ints,
    count: int, place: int, row: int,
) -> None:  # fmt: skip
    """Write an arm's covariance column, when R was up to date and now, to a free place.

    The arm becomes pending once it is learned. ``count`` arms are pending already.
    """
    pending = places[PENDING_ARMS]
    column = root.dot(root[row])
    base[place] = column
    columns[place] = column
    if count:
        rows = base[:count]  # (v, n)
        observed = rows[:, pending[:count]]  # base_VV + D
        observed.flat[:: count + 1] += 1.0 / pending_weight[:count]
        # Not by columns × weight, which is the same: its rounding grows from arm to arm.
        columns[place] -= np.linalg.solve(observed, rows[:, row]).dot(rows)
    pending[place] = row
    pending_weight[place] = 0.0


def learn_numpy(
    columns: Floats, moments: Floats, totals: list[float], pending_weight: Floats, places: Ints,
    counts: list[int], place: int, row: int, reward: float, noise: float,
) -> int:  # fmt: skip
    """Condition on one observation of an arm with a column; returns observations until a fold.

    ``place`` is the place of the arm among the pending, now or from now on. With c the arm's
    column and s = c_row + noise: mean += c (y − m)/s, variance −= c²/s and every pending column
    loses c_V c/s [chowdhury2017kernelized, eqs 19–21].
    """
    # BLAS works in place, which saves the temporaries: they would cost more than the sums.
    # Arguments are positional, because scipy takes twice as long to read names: n and a for daxpy;
    # steps, a and overwrite flags for dger.
    daxpy, dger = _blas()
    mean = moments[MEAN]
    n = len(mean)
    column = columns[place].copy()  # c
    total = column.item(row) + noise  # s
    step = (reward - mean.item(row)) / total
    information = 0.5 * math.log(total / noise)
    precision = 1.0 / noise
    downdate = -1.0 / total
    size = counts[PENDING_COUNT]
    if place >= size:  # the arm becomes pending
        size = place + 1
    # All arms are pending, in their own order: columns are P, with the variances in it.
    all_pending = size > PENDING
    if all_pending:
        observed = column
        updated = columns.T
    else:
        squares = column * column
        variance = daxpy(squares, moments[VARIANCE].copy(), n, downdate)
        np.maximum(variance, 0.0, out=variance)
        observed = column[places[PENDING_ARMS, :size]]  # c_V
        updated = columns[:size].T
    try:  # from here on nothing can fail, and interrupts wait
        daxpy(column, mean, n, step)
    finally:
        try:
            dger(downdate, column, observed, 1, 1, updated, 1, 1, 1)
        finally:
            if not all_pending:
                moments[VARIANCE] = variance
                places[PLACE_OF, row] = place
                counts[PENDING_COUNT] = size
            counts[UNTIL_FOLD] -= 1
            pending_weight[place] += precision
            totals[row] += precision
            totals[n + row] += reward / noise
            totals[INFORMATION] += information
            totals[COUNT] += 1.0
    return counts[UNTIL_FOLD]


def learn_some_numpy(
    columns: Floats, moments: Floats, totals: list[float], pending_weight: Floats, places: Ints,
    counts: list[int], slots: Ints, rows: Ints, rewards: Floats, noise: Floats, added: Floats,
) -> None:  # fmt: skip
    """Condition on several distinct arms with columns, one observation of each.

    ``slots`` are their places among the pending; ``added`` is what the totals gain, without the
    information.
    """
    n = columns.shape[1]
    last_slot = max(slots.tolist())
    size = max(counts[PENDING_COUNT], 1 + last_slot)
    sums = totals.copy()
    columns_before = columns[:size].copy()
    moments_before = moments.copy()
    weight_before = pending_weight.copy()
    places_before = places.copy()
    counts_before = counts.copy()
    try:
        # All of these columns lose what each observation explains.
        counts[PENDING_COUNT] = size
        for i, slot in enumerate(slots.tolist()):
            row = rows.item(i)
            learn_numpy(
                columns, moments, sums, pending_weight, places, counts,
                slot, row, rewards.item(i), noise.item(i),
            )  # fmt: skip
            sums[row] = totals[row] + added.item(row)
            sums[n + row] = totals[n + row] + added.item(n + row)
        added[INFORMATION] = sums[INFORMATION] - totals[INFORMATION]
        sums[COUNT] = totals[COUNT] + added.item(COUNT)
        totals[:] = sums  # no call follows, and so no interrupt
    except BaseException:
        columns[:size] = columns_before
        moments[:] = moments_before
        pending_weight[:] = weight_before
        places[:] = places_before
        counts[:] = counts_before
        raise


@functools.cache
def _blas() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from scipy.linalg.blas import daxpy, dger

    return daxpy, dger


def draw_numpy(
    root: Floats,
    normals: Floats,
    columns: Floats,
    weight: Floats,
    pending: Ints,
    count: int,
) -> Floats:
    """Joint draws (m, n) from normals (m, r + …): u of N(0, R Rᵀ), corrected by what is pending.

    u − columnsᵀ D⁻¹ (u_V + ε) with ε of the pending observations' noise D.
    """
    rank = root.shape[1]
    draws = np.empty((len(normals), len(root)))
    for place, numbers in enumerate(normals):
        # Copied, so that a row lies in memory as a single draw does: some BLAS round by alignment.
        path = root.dot(numbers[:rank].copy())  # u
        if count:
            precision = weight[:count]  # D⁻¹
            noise = numbers[rank : rank + count]  # ε, standardised
            correction = path[pending[:count]]
            correction *= precision
            correction += noise * np.sqrt(precision)
            path -= correction.dot(columns[:count])
        draws[place] = path
    return draws
