"""Compiled products with the information of trips (extra ``fast``).

The workspace of a trip has a row for each reward: X v, T⁻¹ X v, and the six columns of F.
"""

from __future__ import annotations

from typing import Any

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
    f"void({_SHORTS}, {_SHORTS}, {_MATRIX}, {_LONGS}, {_LONGS}, {_VECTOR}, {_VECTOR}, u1[::1], {_VECTOR}, "
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
    has_shared: Any,
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
        has_shared: The same.
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
            work[r, _FIRST_SHARED + _TERMS] = motion[first + r]
            if not has_shared[first + r]:
                for k in range(_SHARED):
                    work[r, _FIRST_SHARED + k] = 0.0
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
