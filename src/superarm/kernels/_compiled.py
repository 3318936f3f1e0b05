"""Compiled solves with a sparse lower triangle, unit diagonal left out (extra ``fast``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.compiling import compiled

_SHORTS = "i4[::1]"
_LONGS = "i8[::1]"
_VECTOR = "f8[::1]"


def _solve_lower_and_upper(
    starts: Any, rows: Any, values: Any, inverse_pivots: Floats, x: Floats
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


def _solve_block(
    starts: Any, rows: Any, values: Any, inverse_pivots: Floats, X: Floats
) -> None:
    """(L D Lᵀ)⁻¹ X in place: L is read once for all columns of X.

    Args:
        starts: Where the entries of each column begin, (n + 1,).
        rows: Their rows.
        values: Their values.
        inverse_pivots: Diagonal of D⁻¹, (n,).
        X: The right-hand sides, (n, k).
    """
    n, columns = X.shape
    for j in range(n):
        for p in range(starts[j], starts[j + 1]):
            row = rows[p]
            value = values[p]
            for k in range(columns):
                X[row, k] -= value * X[j, k]
    for j in range(n - 1, -1, -1):
        for k in range(columns):
            X[j, k] *= inverse_pivots[j]
        for p in range(starts[j], starts[j + 1]):
            row = rows[p]
            value = values[p]
            for k in range(columns):
                X[j, k] -= value * X[row, k]


def _solve_among(
    starts: Any,
    rows: Any,
    values: Any,
    inverse_pivots: Floats,
    reach: Any,
    x: Floats,
) -> None:
    """The same for some rows, of which L reaches no others.

    Args:
        starts: Where the entries of each column begin, (n + 1,).
        rows: Their rows.
        values: Their values.
        inverse_pivots: Diagonal of D⁻¹, (n,).
        reach: The rows, rising, (r,).
        x: The right-hand side, (n,), of which only these rows are read and written.
    """
    for i in range(len(reach)):
        j = reach[i]
        value = x[j]
        for p in range(starts[j], starts[j + 1]):
            x[rows[p]] -= values[p] * value
    for i in range(len(reach) - 1, -1, -1):
        j = reach[i]
        total = x[j] * inverse_pivots[j]
        for p in range(starts[j], starts[j + 1]):
            total -= values[p] * x[rows[p]]
        x[j] = total


# Of entries in double and in single precision. Places are unsigned: others might count from the end,
# which is checked at every access.
_SINGLES = "f4[::1]"
_STARTS = "u8[::1]"
_ROWS = "u4[::1]"
solve_lower_and_upper = compiled(
    f"void({_STARTS}, {_ROWS}, {_VECTOR}, {_VECTOR}, {_VECTOR})"
)(_solve_lower_and_upper)
solve_single = compiled(f"void({_STARTS}, {_ROWS}, {_SINGLES}, {_VECTOR}, {_VECTOR})")(
    _solve_lower_and_upper
)
solve_block = compiled(f"void({_STARTS}, {_ROWS}, {_VECTOR}, {_VECTOR}, f8[:, ::1])")(
    _solve_block
)
solve_block_single = compiled(
    f"void({_STARTS}, {_ROWS}, {_SINGLES}, {_VECTOR}, f8[:, ::1])"
)(_solve_block)
solve_among = compiled(
    f"void({_STARTS}, {_ROWS}, {_VECTOR}, {_VECTOR}, {_STARTS}, {_VECTOR})"
)(_solve_among)
solve_among_single = compiled(
    f"void({_STARTS}, {_ROWS}, {_SINGLES}, {_VECTOR}, {_STARTS}, {_VECTOR})"
)(_solve_among)


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


def _solve_lower_part(
    starts: Any, rows: Any, values: Any, reach: Any, place: Any, Y: Floats
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


solve_lower_part = compiled(
    f"void({_LONGS}, {_SHORTS}, {_VECTOR}, {_LONGS}, {_LONGS}, f8[:, ::1])"
)(_solve_lower_part)
solve_lower_part_single = compiled(
    f"void({_LONGS}, {_SHORTS}, {_SINGLES}, {_LONGS}, {_LONGS}, f8[:, ::1])"
)(_solve_lower_part)


# --- elimination by fronts -------------------------------------------------------------------


@compiled(f"void({_LONGS}, {_SHORTS}, {_LONGS}, {_LONGS}, {_LONGS}, {_LONGS})")
def find_tree(
    indptr: Any, indices: Any, order: Any, place: Any, parents: Any, reach: Any
) -> None:
    """The elimination tree of a symmetric matrix, and how many rows each column of its factor has.

    Args:
        indptr: Where the entries of each column of the matrix begin, (n + 1,).
        indices: Their rows.
        order: The old number of every new one, (n,).
        place: The new number of every old one, (n,).
        parents: Receives the first row below the diagonal of each column of the factor, or n, (n,).
        reach: Receives how many such rows there are, (n,).
    """
    n = len(order)
    above = np.full(n, -1, dtype=np.int64)  # shortcuts to the highest known ancestor
    mark = np.full(n, -1, dtype=np.int64)
    for j in range(n):
        parents[j] = n
        reach[j] = 0
        first = indptr[order[j]]
        stop = indptr[order[j] + 1]
        for p in range(first, stop):
            i = place[indices[p]]
            while i != -1 and i < j:
                following = above[i]
                above[i] = j
                if following == -1:
                    parents[i] = j
                i = following
        # Row j of the factor: the paths in the tree from its entries up to j.
        mark[j] = j
        for p in range(first, stop):
            i = place[indices[p]]
            while i < j and mark[i] != j:
                mark[i] = j
                reach[i] += 1
                i = parents[i]


@compiled(
    f"void({_LONGS}, {_SHORTS}, {_LONGS}, {_LONGS}, {_LONGS}, {_LONGS}, {_LONGS}, {_LONGS})"
)
def fill_front_rows(
    indptr: Any,
    indices: Any,
    order: Any,
    place: Any,
    starts: Any,
    parents: Any,
    row_starts: Any,
    rows: Any,
) -> None:
    """The rows that each front reaches, ascending.

    Args:
        indptr: Where the entries of each column of the matrix begin, (n + 1,).
        indices: Their rows.
        order: The old number of every new one, (n,).
        place: The new number of every old one, (n,).
        starts: The first column of each front, and n, (fronts + 1,).
        parents: The front above each, negative at a root, (fronts,).
        row_starts: Where the rows of each front begin, (fronts + 1,).
        rows: Receives the rows.
    """
    n = len(order)
    count = len(parents)
    mark = np.full(n, -1, dtype=np.int64)
    first_child = np.full(count, -1, dtype=np.int64)
    next_child = np.full(count, -1, dtype=np.int64)
    for front in range(count):
        stop = starts[front + 1]
        end = row_starts[front]
        for j in range(starts[front], stop):
            for p in range(indptr[order[j]], indptr[order[j] + 1]):
                i = place[indices[p]]
                if i >= stop and mark[i] != front:
                    mark[i] = front
                    rows[end] = i
                    end += 1
        child = first_child[front]
        while child != -1:
            for p in range(row_starts[child], row_starts[child + 1]):
                i = rows[p]
                if i >= stop and mark[i] != front:
                    mark[i] = front
                    rows[end] = i
                    end += 1
            child = next_child[child]
        rows[row_starts[front] : end].sort()
        above = parents[front]
        if above >= 0:
            next_child[front] = first_child[above]
            first_child[above] = front


_BLOCK = "f8[:, ::1]"


@compiled(
    f"void({_LONGS}, {_SHORTS}, {_VECTOR}, f8, {_VECTOR}, {_LONGS}, {_LONGS}, i8, i8, {_LONGS}, "
    f"{_LONGS}, {_BLOCK}, {_BLOCK})"
)
def assemble_front(
    indptr: Any,
    indices: Any,
    data: Floats,
    scale: float,
    shift: Floats,
    order: Any,
    place: Any,
    start: int,
    stop: int,
    rows: Any,
    position: Any,
    own: Floats,
    below: Floats,
) -> None:
    """The lower triangle of a front's columns of scale · A + shift.

    Blocks are stored by columns: ``below[b, a]`` is the entry of column b in row a.

    Args:
        indptr: Where the entries of each column of A begin, (n + 1,).
        indices: Their rows.
        data: Their values.
        scale: What multiplies them.
        shift: Added to the diagonal, (n,).
        order: The old number of every new one, (n,).
        place: The new number of every old one, (n,).
        start: The first column of the front.
        stop: The column behind its last.
        rows: The later rows that it reaches, (r,).
        position: Receives the place of each of them in ``rows``, (n,).
        own: Receives the block of the columns, (c, c).
        below: Receives that of the later rows, (c, r).
    """
    for i in range(len(rows)):
        position[rows[i]] = i
    for j in range(start, stop):
        node = order[j]
        for p in range(indptr[node], indptr[node + 1]):
            i = place[indices[p]]
            if i >= stop:
                below[j - start, position[i]] += scale * data[p]
            elif i >= j:
                own[j - start, i - start] += scale * data[p]
        own[j - start, j - start] += shift[node]


@compiled(f"void({_LONGS}, {_BLOCK}, i8, i8, {_LONGS}, {_BLOCK}, {_BLOCK}, {_BLOCK})")
def add_update(
    rows: Any,
    update: Floats,
    start: int,
    stop: int,
    position: Any,
    own: Floats,
    below: Floats,
    rest: Floats,
) -> None:
    """Add what eliminating a child left to the lower triangle of its parent's front.

    Args:
        rows: The rows of the child, ascending, (u,).
        update: Its lower triangle, (u, u).
        start: The first column of the parent.
        stop: The column behind its last.
        position: The place of each later row among those of the parent, (n,).
        own: The block of the parent's columns, (c, c).
        below: That of its later rows, (c, r).
        rest: That of these rows among each other, (r, r).
    """
    count = len(rows)
    inner = 0  # rows that are columns of the parent
    while inner < count and rows[inner] < stop:
        inner += 1
    for b in range(inner):
        column = rows[b] - start
        for a in range(b, inner):
            own[column, rows[a] - start] += update[b, a]
        for a in range(inner, count):
            below[column, position[rows[a]]] += update[b, a]
    for b in range(inner, count):
        column = position[rows[b]]
        for a in range(b, count):
            rest[column, position[rows[a]]] += update[b, a]


@compiled(
    f"i8({_BLOCK}, {_BLOCK}, i8, {_LONGS}, {_VECTOR}, {_SHORTS}, {_VECTOR}, i8, {_LONGS}, {_VECTOR})"
)
def keep_large(
    own: Floats,
    below: Floats,
    start: int,
    rows: Any,
    least: Floats,
    kept_rows: Any,
    kept_values: Floats,
    count: int,
    counts: Any,
    pivots: Floats,
) -> int:
    """Append the large entries of a front's columns of C = L √D; returns the new number of entries.

    Args:
        own: The block of the columns, its lower triangle, (c, c).
        below: That of the later rows, (c, r).
        start: The first column.
        rows: The later rows, (r,).
        least: The least size of entries in each row of C, (n,).
        kept_rows: Receives the rows of entries of L.
        kept_values: Receives their values.
        count: How many entries there are already.
        counts: Receives how many each column has, (n,).
        pivots: Receives D, (n,).
    """
    width = own.shape[1]
    for b in range(width):
        root = own[b, b]
        pivots[start + b] = root * root
        before = count
        for a in range(b + 1, width):
            value = own[b, a]
            if value != 0.0 and abs(value) >= least[start + a]:
                kept_rows[count] = start + a
                kept_values[count] = value / root
                count += 1
        for a in range(len(rows)):
            value = below[b, a]
            if value != 0.0 and abs(value) >= least[rows[a]]:
                kept_rows[count] = rows[a]
                kept_values[count] = value / root
                count += 1
        counts[start + b] = count - before
    return count
