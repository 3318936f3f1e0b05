"""The diagonal of the inverse of a sparse symmetric matrix, without the inverse.

Notation

=============  =====================================================================
``A``          (n, n), sparse, symmetric (not Hermitian where complex), in elimination order
front          a few columns eliminated together, ``C``, and the rows their factor reaches, ``R``
``F``          dense matrix of a front, in blocks: ``F_CC``, ``F_RC``, ``F_RR``
``pivot``      ``F_CC⁻¹``, (c, c)
``multiplier`` ``F_RC F_CC⁻¹``, (r, c)
``Z``          ``A⁻¹`` on the front
=============  =====================================================================

Multifrontal: eliminating a front's columns leaves the update ``F_RR − multiplier F_RCᵀ`` for its
parent in the elimination tree. On the way back, with ``Z_RR`` from the parent (Takahashi's equations
in blocks)::

    Z_RC = −Z_RR multiplier,   Z_CC = pivot − multiplierᵀ Z_RC

Only entries within fronts are ever computed: about as many as the sparse factor has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Ints

from .elimination import NO_FRONT, Elimination, Front


def inverse_diagonal(matrix: Any, plan: Elimination) -> Any:
    """diag(``matrix``⁻¹), (n,), real or complex like the matrix.

    Args:
        matrix: A sparse symmetric matrix, (n, n).
        plan: The elimination of its pattern.
    """
    from scipy.sparse import csc_array

    order, fronts = plan
    columns = csc_array(matrix)
    A = columns[order][:, order].tocsc()
    factors = _eliminate(A, fronts)
    diagonal = np.empty(len(order), dtype=A.dtype)
    diagonal[order] = _invert(factors, fronts, A.dtype)
    return diagonal


class _FrontFactors(NamedTuple):
    """What the way back needs of a front."""

    pivot: Any  # F_CC⁻¹, (c, c)
    multiplier: Any  # F_RC F_CC⁻¹, (r, c)


class _Update(NamedTuple):
    """What eliminating a front adds to its parent."""

    rows: Ints  # (r,)
    matrix: Any  # F_RR − multiplier F_RCᵀ, (r, r)


def _place(position: Ints, front: Front) -> None:
    """Number the columns and rows of a front from 0, in ``position`` (n,)."""
    start = front.start
    stop = front.stop
    width = stop - start
    size = width + len(front.rows)
    position[start:stop] = np.arange(width)
    position[front.rows] = np.arange(width, size)


def _assemble(A: Any, front: Front, updates: list[_Update], position: Ints) -> Any:
    """F of a front: its entries of A, and the updates of its children."""
    start = front.start
    stop = front.stop
    c = stop - start
    size = c + len(front.rows)
    F = np.zeros((size, size), dtype=A.dtype)
    pointers = A.indptr[start : stop + 1]
    entries = slice(pointers[0], pointers[-1])
    rows = A.indices[entries]
    values = A.data[entries]
    counts = np.diff(pointers)  # entries of each column
    columns = np.repeat(np.arange(c), counts)
    below = rows >= start
    places = position[rows[below]]
    F[places, columns[below]] = values[below]
    for update in updates:
        places = position[update.rows]
        F[places[:, None], places] += update.matrix
    return F


def _eliminate(A: Any, fronts: list[Front]) -> list[_FrontFactors]:
    """Pivot and multiplier of every front, children first."""
    n = A.shape[0]
    position = np.empty(n, dtype=np.intp)
    updates: list[list[_Update]] = [[] for _ in fronts]  # for every front
    factors = []
    for number, front in enumerate(fronts):
        c = front.stop - front.start
        _place(position, front)
        F = _assemble(A, front, updates[number], position)
        updates[number] = []  # to free their memory
        F_CC = F[:c, :c]
        F_RC = F[c:, :c]
        F_RR = F[c:, c:]
        pivot = np.linalg.inv(F_CC)
        multiplier = F_RC @ pivot
        if len(front.rows):
            remainder = F_RR - multiplier @ F_RC.T
            update = _Update(front.rows, remainder)
            updates[front.parent].append(update)
        factors.append(_FrontFactors(pivot, multiplier))
    return factors


def _invert(factors: list[_FrontFactors], fronts: list[Front], dtype: Any) -> Any:
    """The diagonal of A⁻¹, (n,), in elimination order."""
    n = fronts[-1].stop if fronts else 0
    position = np.empty(n, dtype=np.intp)
    diagonal = np.empty(n, dtype=dtype)
    children = _children(fronts)
    # Z_RR of every front, from its parent.
    nothing = np.empty((0, 0), dtype=dtype)
    inherited: list[Any] = [nothing] * len(fronts)
    for number in reversed(range(len(fronts))):
        front = fronts[number]
        pivot, multiplier = factors[number]
        Z_RR = inherited[number]
        inherited[number] = None  # to free its memory
        Z_RC = -(Z_RR @ multiplier)
        Z_CC = pivot - multiplier.T @ Z_RC
        diagonal[front.start : front.stop] = np.diagonal(Z_CC)
        if not children[number]:
            continue
        Z = _join_blocks(Z_CC, Z_RC, Z_RR)
        _place(position, front)
        for child in children[number]:
            rows = fronts[child].rows
            places = position[rows]
            inherited[child] = Z[places[:, None], places]
    return diagonal


def _join_blocks(Z_CC: Any, Z_RC: Any, Z_RR: Any) -> Any:
    """The symmetric matrix of these blocks."""
    c = len(Z_CC)
    size = c + len(Z_RR)
    Z = np.empty((size, size), dtype=Z_CC.dtype)
    Z[:c, :c] = Z_CC
    Z[c:, :c] = Z_RC
    Z[:c, c:] = Z_RC.T
    Z[c:, c:] = Z_RR
    return Z


def _children(fronts: list[Front]) -> list[list[int]]:
    """Numbers of the children of every front."""
    children: list[list[int]] = [[] for _ in fronts]
    for number, front in enumerate(fronts):
        if front.parent != NO_FRONT:
            children[front.parent].append(number)
    return children
