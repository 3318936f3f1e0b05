"""A sparse Cholesky factor, front by front, without the entries that hardly count.

Notation

=============  =====================================================================
``A``          (n, n), sparse, symmetric and positive definite; P A Pᵀ = L D Lᵀ
``C``          L √D, the Cholesky factor
front          a few columns eliminated together, and the rows their factor reaches
=============  =====================================================================

A front is a small dense matrix: its columns of A and what its children left. Eliminating its columns
leaves an update for its parent. The factor is exact; small entries are dropped when a front is
eliminated, so that the complete factor never exists.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints
from superarm.core.errors import NotPositiveDefiniteError

from .elimination import NO_FRONT, Elimination, node_places

_CHUNK = 1_000_000  # entries that are stored together


class ThinFactor(NamedTuple):
    """Large entries of L below the diagonal, column by column, and D."""

    starts: NDArray[np.int64]  # where the entries of each column begin, (n + 1,)
    rows: NDArray[np.int32]
    values: NDArray[Any]  # in single or double precision
    pivots: Floats  # diagonal of D, (n,)


class _Update(NamedTuple):
    """What eliminating a front adds to its parent."""

    rows: Ints  # (r,)
    matrix: Any  # its lower triangle, (r, r), by columns


def eliminate(
    matrix: Any,
    plan: Elimination,
    drop: float,
    scale: float,
    shift: Floats,
    dtype: type[np.floating[Any]] = np.float64,
) -> ThinFactor:
    """The factor of scale · ``matrix`` + diag(shift), of which small entries are dropped.

    An entry counts as small where |Cᵢⱼ| < drop · √Aᵢᵢ.

    Args:
        matrix: Sparse and symmetric, by columns, (n, n).
        plan: The elimination of its pattern.
        drop: How small entries must be to be dropped; 0 keeps all.
        scale: What multiplies the matrix.
        shift: What is added to its diagonal, (n,).
        dtype: The precision in which entries are stored; all are computed in double precision.
    """
    from scipy.linalg.blas import dsyrk, dtrsm
    from scipy.linalg.lapack import dpotrf

    from ._compiled import add_update, assemble_front, keep_large

    n = matrix.shape[0]
    order = plan.order.astype(np.int64)
    place = node_places(order)
    indptr = matrix.indptr.astype(np.int64)
    indices = matrix.indices.astype(np.int32, copy=False)
    diagonal = scale * matrix.diagonal() + shift
    least = drop * np.sqrt(np.maximum(diagonal, 0.0))[order]
    position = np.empty(n, dtype=np.int64)
    counts = np.zeros(n, dtype=np.int64)
    pivots = np.zeros(n)
    entries = _Entries(dtype)
    waiting: dict[int, list[_Update]] = {}  # by the number of the parent's front
    for number, front in enumerate(plan.fronts):
        start, stop, rows, parent = front
        width = stop - start
        # By columns: LAPACK gets their transposes.
        own = np.zeros((width, width))
        below = np.zeros((width, len(rows)))
        rest = np.zeros((len(rows), len(rows)))
        assemble_front(
            indptr,
            indices,
            matrix.data,
            scale,
            shift,
            order,
            place,
            start,
            stop,
            rows,
            position,
            own,
            below,
        )
        for update in waiting.pop(number, ()):
            add_update(*update, start, stop, position, own, below, rest)
        _, failed = dpotrf(own.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            pivot = float(own[failed - 1, failed - 1])
            raise NotPositiveDefiniteError(
                f"a sparse matrix has a pivot of {pivot:.3g}; it must be positive definite"
            )
        if len(rows):
            dtrsm(1.0, own.T, below.T, side=1, lower=1, trans_a=1, overwrite_b=1)
            if parent != NO_FRONT:
                dsyrk(-1.0, below.T, beta=1.0, c=rest.T, lower=1, overwrite_c=1)
                waiting.setdefault(parent, []).append(_Update(rows, rest))
        entries.reserve(width * (width + len(rows)))
        entries.count = keep_large(
            own,
            below,
            start,
            rows,
            least,
            entries.rows,
            entries.values,
            entries.count,
            counts,
            pivots,
        )
    if not np.isfinite(pivots).all():  # NaN may pass LAPACK
        raise NotPositiveDefiniteError(
            "a sparse matrix holds NaN or infinity, or its factor overflows; it must be positive definite"
        )
    starts = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return ThinFactor(starts, *entries.joined(), pivots)


class _Entries:
    """Rows and values of entries, collected in chunks: no array is ever copied to grow.

    Args:
        dtype: The precision of full chunks.
    """

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        self._dtype = dtype
        self._full_rows: list[NDArray[np.int32]] = []
        self._full_values: list[NDArray[Any]] = []
        self._start(_CHUNK)

    def _start(self, size: int) -> None:
        self.rows = np.empty(size, dtype=np.int32)
        self.values = np.empty(size)
        self.count = 0

    def reserve(self, more: int) -> None:
        """Make room for more entries in the current chunk."""
        if self.count + more <= len(self.rows):
            return
        self._store()
        self._start(max(_CHUNK, more))

    def _store(self) -> None:
        self._full_rows.append(self.rows[: self.count].copy())
        self._full_values.append(self.values[: self.count].astype(self._dtype))

    def joined(self) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """All rows and all values."""
        self._store()
        rows = np.concatenate(self._full_rows)
        self._full_rows = []
        values = np.concatenate(self._full_values)
        self._full_values = []
        return rows, values
