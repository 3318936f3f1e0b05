"""Compiled products with the information of trips (extra ``fast``)."""

from __future__ import annotations

from typing import Any

from superarm.core import Floats
from superarm.core.compiling import compiled

_SHORTS = "i4[::1]"
_LONGS = "i8[::1]"
_VECTOR = "f8[::1]"
_MATRIX = "f8[:, ::1]"
_ARRAYS = (
    f"{_SHORTS}, {_SHORTS}, {_MATRIX}, {_LONGS}, {_LONGS}, {_VECTOR}, {_VECTOR}, "
    f"u1[::1], {_VECTOR}, f8[:, :, ::1]"
)
_SIGNATURE = (
    f"void({_ARRAYS}, {_VECTOR}, {_VECTOR}, {_MATRIX}, {_VECTOR}, {_MATRIX}, {_MATRIX})"
)


@compiled(
    f"void({_MATRIX}, {_VECTOR}, {_VECTOR}, i8, i8, i8)",
)
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


@compiled(_SIGNATURE)
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
) -> None:
    """Add Xᵀ R⁻¹ X times values to two arrays.

    Args:
        edges: As in ``ProductArrays``, with all that follow it there.
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
        work: For the longest trip: X v, T⁻¹ X v and F of each reward, (rewards, 8).
    """
    trips = len(reward_stops)
    first = 0  # reward
    arm = 0
    for t in range(trips):
        count = reward_stops[t] - first
        first_arm = arm
        for r in range(count):
            value = 0.0
            for k in range(6):
                work[r, 2 + k] = 0.0
            for a in range(arm, arm_stops[first + r]):
                value += terms[a, 4] * roads[edges[a]]
                v = drivers[a]
                for k in range(5):
                    value += terms[a, k] * vehicles[v, k]
                    work[r, 2 + k] += terms[a, k]
            arm = arm_stops[first + r]
            for k in range(5):
                work[r, 2 + k] *= trip_scales[k]
            work[r, 7] = motion[first + r]
            if not has_shared[first + r]:
                for k in range(6):
                    work[r, 2 + k] = 0.0
            work[r, 0] = value
            work[r, 1] = value
        _solve_own(work, pivots, lower, first, count, 1)
        p0 = p1 = p2 = p3 = p4 = p5 = 0.0
        for r in range(count):
            u = work[r, 1]
            p0 += work[r, 2] * u
            p1 += work[r, 3] * u
            p2 += work[r, 4] * u
            p3 += work[r, 5] * u
            p4 += work[r, 6] * u
            p5 += work[r, 7] * u
        M = inner[t]
        c0 = M[0, 0] * p0 + M[0, 1] * p1 + M[0, 2] * p2 + M[0, 3] * p3 + M[0, 4] * p4 + M[0, 5] * p5
        c1 = M[1, 0] * p0 + M[1, 1] * p1 + M[1, 2] * p2 + M[1, 3] * p3 + M[1, 4] * p4 + M[1, 5] * p5
        c2 = M[2, 0] * p0 + M[2, 1] * p1 + M[2, 2] * p2 + M[2, 3] * p3 + M[2, 4] * p4 + M[2, 5] * p5
        c3 = M[3, 0] * p0 + M[3, 1] * p1 + M[3, 2] * p2 + M[3, 3] * p3 + M[3, 4] * p4 + M[3, 5] * p5
        c4 = M[4, 0] * p0 + M[4, 1] * p1 + M[4, 2] * p2 + M[4, 3] * p3 + M[4, 4] * p4 + M[4, 5] * p5
        c5 = M[5, 0] * p0 + M[5, 1] * p1 + M[5, 2] * p2 + M[5, 3] * p3 + M[5, 4] * p4 + M[5, 5] * p5
        for r in range(count):
            explained = (
                work[r, 2] * c0 + work[r, 3] * c1 + work[r, 4] * c2
                + work[r, 5] * c3 + work[r, 6] * c4 + work[r, 7] * c5
            )
            work[r, 0] -= explained
        _solve_own(work, pivots, lower, first, count, 0)
        arm = first_arm
        for r in range(count):
            u = work[r, 0]
            for a in range(arm, arm_stops[first + r]):
                out_roads[edges[a]] += terms[a, 4] * u
                v = drivers[a]
                for k in range(5):
                    out_vehicles[v, k] += terms[a, k] * u
            arm = arm_stops[first + r]
        first = reward_stops[t]
