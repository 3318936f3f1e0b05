"""Compiled solves with a sparse lower triangle, unit diagonal left out (extra ``fast``)."""

from __future__ import annotations

from typing import Any

from superarm.core import Floats
from superarm.core.compiling import compiled

_SHORTS = "i4[::1]"
_LONGS = "i8[::1]"
_VECTOR = "f8[::1]"


@compiled(f"void({_LONGS}, {_SHORTS}, {_VECTOR}, {_VECTOR}, {_VECTOR})")
def solve_lower_and_upper(
    starts: Any, rows: Any, values: Floats, inverse_pivots: Floats, x: Floats
) -> None:
    """(L D Lᵀ)⁻¹ x in place.

    Args:
        starts: Where the entries of each column begin, (n + 1,).
        rows: Their rows.
        values: Their values.
        inverse_pivots: Diagonal of D⁻¹, (n,).
        x: The right-hand side, (n,).
    """
    n = len(x)
    for j in range(n):
        value = x[j]
        if value != 0.0:
            for p in range(starts[j], starts[j + 1]):
                x[rows[p]] -= values[p] * value
    for j in range(n - 1, -1, -1):
        total = x[j] * inverse_pivots[j]
        for p in range(starts[j], starts[j + 1]):
            total -= values[p] * x[rows[p]]
        x[j] = total


@compiled(f"void({_LONGS}, {_SHORTS}, u1[::1])")
def mark_reach(starts: Any, rows: Any, is_reached: Any) -> None:
    """Mark all rows that a solve with L fills, given those that are not 0.

    Args:
        starts: Where the entries of each column begin, (n + 1,).
        rows: Their rows.
        is_reached: Which rows are not 0, (n,).
    """
    for j in range(len(is_reached)):
        if is_reached[j]:
            for p in range(starts[j], starts[j + 1]):
                is_reached[rows[p]] = 1


@compiled(f"void({_LONGS}, {_SHORTS}, {_VECTOR}, {_LONGS}, {_LONGS}, f8[:, ::1])")
def solve_lower_part(
    starts: Any, rows: Any, values: Floats, reach: Any, place: Any, Y: Floats
) -> None:
    """L⁻¹ Y in place, for the rows that are not 0.

    Args:
        starts: Where the entries of each column begin, (n + 1,).
        rows: Their rows.
        values: Their values.
        reach: The rows that are not 0, rising, (r,).
        place: The place of each of them in ``reach``, (n,).
        Y: These rows, (r, k).
    """
    columns = Y.shape[1]
    for i in range(len(reach)):
        j = reach[i]
        for p in range(starts[j], starts[j + 1]):
            row = place[rows[p]]
            value = values[p]
            for k in range(columns):
                Y[row, k] -= value * Y[i, k]
