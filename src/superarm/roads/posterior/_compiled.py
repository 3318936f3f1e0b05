"""Compiled products with the information of trips (extra ``fast``).

The workspace of a trip has a row for each reward: X v, T⁻¹ X v, and the six columns of F.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.compiling import compiled

_SHORTS = "i4[::1]"
_LONGS = "i8[::1]"
_VECTOR = "f8[::1]"
_MATRIX = "f8[:, ::1]"
_TERMS = 5
_SHARED = 6
_FIRST_SHARED = 2  # column of the workspace


@compiled(f"void({_MATRIX}, {_VECTOR}, {_VECTOR}, i8, i8, i8)")
def _solve_own(
    work: Floats, pivots: Floats, lower: Floats, first: int, count: int, column: int
) -> None:
    """T⁻¹ times a column of the workspace, in place: L, then D, then Lᵀ."""
    for r in range(1, count):
        work[r, column] -= lower[first + r] * work[r - 1, column]
    for r in range(count):
        work[r, column] /= pivots[first + r]
    for r in range(count - 2, -1, -1):
        work[r, column] -= lower[first + r + 1] * work[r + 1, column]


@compiled(
    f"void({_SHORTS}, {_SHORTS}, {_MATRIX}, i8, i8, {_VECTOR}, {_MATRIX}, {_VECTOR}, {_MATRIX}, i8)"
)
def _sum_reward(
    edges: Any,
    drivers: Any,
    terms: Floats,
    begin: int,
    end: int,
    roads: Floats,
    vehicles: Floats,
    trip_scales: Floats,
    work: Floats,
    r: int,
) -> None:
    """X v and F of one reward, the sum of arms ``begin`` … ``end`` − 1."""
    value = 0.0
    for k in range(_SHARED):
        work[r, _FIRST_SHARED + k] = 0.0
    for a in range(begin, end):
        value += terms[a, _TERMS - 1] * roads[edges[a]]
        v = drivers[a]
        for k in range(_TERMS):
            value += terms[a, k] * vehicles[v, k]
            work[r, _FIRST_SHARED + k] += trip_scales[k] * terms[a, k]
    work[r, 0] = value
    work[r, 1] = value


@compiled(f"void({_MATRIX}, f8[:, :, ::1], i8, i8, {_VECTOR})")
def _subtract_shared(
    work: Floats, inner: Floats, t: int, count: int, projected: Floats
) -> None:
    """X v − F (I + Fᵀ T⁻¹ F)⁻¹ Fᵀ T⁻¹ X v, in the first column of the workspace."""
    for k in range(_SHARED):
        total = 0.0
        for r in range(count):
            total += work[r, _FIRST_SHARED + k] * work[r, 1]
        projected[k] = total
    for k in range(_SHARED):
        c = 0.0
        for other in range(_SHARED):
            c += inner[t, k, other] * projected[other]
        for r in range(count):
            work[r, 0] -= work[r, _FIRST_SHARED + k] * c


@compiled(
    f"void({_SHORTS}, {_SHORTS}, {_MATRIX}, {_LONGS}, {_LONGS}, {_VECTOR}, {_VECTOR}, {_VECTOR}, {_VECTOR}, "
    f"f8[:, :, ::1], {_VECTOR}, {_VECTOR}, {_MATRIX}, {_VECTOR}, {_MATRIX}, {_MATRIX}, {_VECTOR})"
)
def add_information(
    edges: Any,
    drivers: Any,
    terms: Floats,
    arm_stops: Any,
    reward_stops: Any,
    pivots: Floats,
    lower: Floats,
    share: Floats,
    motion: Floats,
    inner: Floats,
    trip_scales: Floats,
    roads: Floats,
    vehicles: Floats,
    out_roads: Floats,
    out_vehicles: Floats,
    work: Floats,
    projected: Floats,
) -> None:
    """Add Xᵀ R⁻¹ X times values to two arrays.

    Args:
        edges: As in ``ProductArrays``, as is all that follows, up to ``inner``.
        drivers: The same.
        terms: The same.
        arm_stops: The same.
        reward_stops: The same.
        pivots: The same.
        lower: The same.
        share: The same.
        motion: The same.
        inner: The same.
        trip_scales: Standard deviations of a trip's terms, (5,).
        roads: Values of roads, (n,).
        vehicles: Values of vehicles, (V, 5).
        out_roads: Receives those of roads, (n,).
        out_vehicles: Receives those of vehicles, (V, 5).
        work: The workspace, for the longest trip, (rewards, 8).
        projected: Room for what rewards of a trip share, (6,).
    """
    first = 0  # reward of the trip
    first_arm = 0
    for t in range(len(reward_stops)):
        count = reward_stops[t] - first
        begin = first_arm
        for r in range(count):
            end = arm_stops[first + r]
            _sum_reward(
                edges,
                drivers,
                terms,
                begin,
                end,
                roads,
                vehicles,
                trip_scales,
                work,
                r,
            )
            for k in range(_TERMS):
                work[r, _FIRST_SHARED + k] *= share[first + r]
            work[r, _FIRST_SHARED + _TERMS] = motion[first + r]
            begin = end
        _solve_own(work, pivots, lower, first, count, 1)
        _subtract_shared(work, inner, t, count, projected)
        _solve_own(work, pivots, lower, first, count, 0)
        begin = first_arm
        for r in range(count):
            weighted = work[r, 0]
            end = arm_stops[first + r]
            for a in range(begin, end):
                out_roads[edges[a]] += terms[a, _TERMS - 1] * weighted
                v = drivers[a]
                for k in range(_TERMS):
                    out_vehicles[v, k] += terms[a, k] * weighted
            begin = end
        first_arm = begin
        first = reward_stops[t]


@compiled(
    f"void({_SHORTS}, {_MATRIX}, {_LONGS}, {_SHORTS}, f8[:, :, ::1], f8[:, :, ::1], {_VECTOR}, {_MATRIX}, "
    f"{_VECTOR}, {_MATRIX})"
)
def add_plain_information(
    edges: Any,
    psi: Floats,
    stops: Any,
    drivers: Any,
    information: Floats,
    shrinkage: Floats,
    roads: Floats,
    vehicles: Floats,
    out_roads: Floats,
    out_vehicles: Floats,
) -> None:
    """Add the information of plain trips times values, but for m² W f, to two arrays.

    Args:
        edges: As in ``PlainArrays``, as is all that follows, up to ``shrinkage``.
        psi: The same.
        stops: The same.
        drivers: The same.
        information: The same.
        shrinkage: The same.
        roads: Values of roads, (n,).
        vehicles: Values of vehicles, (V, 5).
        out_roads: Receives those of roads, (n,).
        out_vehicles: Receives those of vehicles, (V, 5).
    """
    p = np.empty(_TERMS)
    explained = np.empty(_TERMS)
    v = np.empty(_TERMS)
    first = 0
    for t in range(len(stops)):
        stop = stops[t]
        driver = drivers[t]
        # Five sums in registers: an array would be written back for every arm.
        p0 = 0.0
        p1 = 0.0
        p2 = 0.0
        p3 = 0.0
        p4 = 0.0
        for a in range(first, stop):
            value = roads[edges[a]]
            p0 += psi[a, 0] * value
            p1 += psi[a, 1] * value
            p2 += psi[a, 2] * value
            p3 += psi[a, 3] * value
            p4 += psi[a, 4] * value
        p[0] = p0
        p[1] = p1
        p[2] = p2
        p[3] = p3
        p[4] = p4
        for k in range(_TERMS):
            total = p[k]
            for other in range(_TERMS):
                total += information[t, k, other] * vehicles[driver, other]
            explained[k] = total
        for k in range(_TERMS):
            total = vehicles[driver, k]
            for other in range(_TERMS):
                total -= shrinkage[t, k, other] * explained[other]
            v[k] = total
        for k in range(_TERMS):
            total = p[k]
            for other in range(_TERMS):
                total += information[t, k, other] * v[other]
            out_vehicles[driver, k] += total
        v0 = v[0]
        v1 = v[1]
        v2 = v[2]
        v3 = v[3]
        v4 = v[4]
        for a in range(first, stop):
            weighted = psi[a, 0] * v0 + psi[a, 1] * v1 + psi[a, 2] * v2
            out_roads[edges[a]] += weighted + psi[a, 3] * v3 + psi[a, 4] * v4
        first = stop
