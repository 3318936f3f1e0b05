"""Inner loops of the root form in numpy, and where to find their compiled twins.

Notation as in ``root.py``. With D = diag(1/weight) over the pending arms V::

    columns = base − base_V (base_VV + D)⁻¹ base,   so   base_Vᵀ (base_VV + D)⁻¹ = columnsᵀ D⁻¹

All loops take the same arrays, for n arms of which at most c may be pending:

==================  ==========================================================================
``columns``         (c, n)
``moments``         (2, n): means and variances
``totals``          (2n + 2,): those of :class:`~superarm.posteriors.fixed.FixedPosterior`
``pending_weight``  (c,)
``places``          (2, n): the pending arms V, and where an arm stands in V, or −1
``counts``          (2,): how many arms are pending, and observations left until the next fold
==================  ==========================================================================

For numpy ``totals`` and ``counts`` are lists, in which Python changes a number in a fifth of the time.

An update is whole, also where Ctrl-C comes meanwhile. CPython handles signals and lets other threads
run when a function begins, when a call returns and when a loop turns: not within compiled code, and not
between statements that call nothing. So the compiled loops change everything in one call. Those
in numpy compute first all that may fail. The calls that then change arrays in place are followed by the
others in ``finally``, and the last one by assignments alone. Several arms are put back if that fails.
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

PENDING = (
    32  # arms: enough for a policy that has settled, and for BLAS to fold them in well
)


class Loops(NamedTuple):
    """One backend: numpy, or compiled."""

    add: Callable[..., None]
    learn: Callable[..., int]
    learn_some: Callable[..., None]
    draw: Callable[..., Floats]
    play: Callable[..., int] | None  # whole rounds against a table: compiled only


def loops_of(backend: Backend) -> Loops:
    """Those of a backend."""
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
    """An arm's covariance column when R was up to date, and now, written to a place that is free.

    The arm is pending once it is learned. ``count`` arms are.
    """
    pending = places[0]
    fresh = root.dot(root[row])
    base[place] = fresh
    columns[place] = fresh
    if count:
        known = base[:count]
        observed = known[:, pending[:count]]
        observed.flat[:: count + 1] += 1.0 / pending_weight[:count]
        # Not by columns × weight, which is the same: its rounding grows from arm to arm.
        columns[place] -= np.linalg.solve(observed, known[:, row]).dot(known)
    pending[place] = row
    pending_weight[place] = 0.0


def learn_numpy(
    columns: Floats, moments: Floats, totals: list[float], pending_weight: Floats, places: Ints,
    counts: list[int], place: int, row: int, reward: float, noise: float,
) -> int:  # fmt: skip
    """Condition on one observation of an arm with a column; returns how many are left until a fold.

    ``place`` is where the arm stands among the pending, or will stand.
    With c the arm's column and s = c_row + noise: mean += c (y − m)/s, variance −= c²/s and
    every pending column loses c_V c/s [chowdhury2017kernelized, eqs 19–21].
    """
    # BLAS works in place, which saves the temporaries: they would cost more than the sums. Arguments
    # are positional, because scipy takes twice as long to read names: n and a; steps, a, overwrite.
    daxpy, dger = _blas()
    mean = moments[0]
    n = len(mean)
    column = columns[place].copy()
    total = column.item(row) + noise
    step = (reward - mean.item(row)) / total
    gained = 0.5 * math.log(total / noise)
    size = counts[0]
    if place >= size:  # it becomes pending
        size = place + 1
    whole = (
        size > PENDING
    )  # all arms, in their own order: columns are P, with the variances in it
    if whole:
        observed, updated = column, columns.T
    else:
        variance = daxpy(column * column, moments[1].copy(), n, -1.0 / total)
        np.maximum(variance, 0.0, out=variance)
        observed, updated = column[places[0, :size]], columns[:size].T
    try:  # from here on nothing can fail, and interrupts wait
        daxpy(column, mean, n, step)
    finally:
        try:
            dger(-1.0 / total, column, observed, 1, 1, updated, 1, 1, 1)
        finally:
            if not whole:
                moments[1] = variance
                places[1, row] = place
                counts[0] = size
            counts[1] -= 1
            pending_weight[place] += 1.0 / noise
            totals[row] += 1.0 / noise
            totals[n + row] += reward / noise
            totals[INFORMATION] += gained
            totals[COUNT] += 1.0
    return counts[1]


def learn_some_numpy(
    columns: Floats, moments: Floats, totals: list[float], pending_weight: Floats, places: Ints,
    counts: list[int], at: Ints, rows: Ints, rewards: Floats, noise: Floats, added: Floats,
) -> None:  # fmt: skip
    """Condition on several distinct arms with columns, one observation of each.

    ``at`` are their places among the pending, ``added`` what the totals gain but for the information.
    """
    n = columns.shape[1]
    size = max(counts[0], 1 + max(at.tolist()))
    sums = totals.copy()
    columns_before, moments_before = columns[:size].copy(), moments.copy()
    weight_before, places_before, counts_before = (
        pending_weight.copy(),
        places.copy(),
        counts.copy(),
    )
    try:
        counts[0] = size  # all of these columns lose what each observation explains
        for place, row, reward, variance in zip(
            at.tolist(), rows.tolist(), rewards.tolist(), noise.tolist(), strict=True
        ):
            learn_numpy(
                columns,
                moments,
                sums,
                pending_weight,
                places,
                counts,
                place,
                row,
                reward,
                variance,
            )
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
