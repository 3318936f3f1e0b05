"""Cholesky factors, and square roots that shrink.

Notation

=========  =====================================================================
``L``      lower triangular, ``L @ L.T`` is the matrix
``root``   any matrix with ``root @ root.T`` the covariance, (n, r)
``W``      solved rows, one per right-hand side: ``L @ W.T = B.T``, (m, n)
=========  =====================================================================
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats
from .errors import JitterWarning, NotPositiveDefiniteError, warn
from .threads import blas_threads_for, one_blas_thread

# Jitter to try in turn, relative to the matrix's scale; past the last one we refuse.
JITTER_STEPS = (1e-12, 1e-10, 1e-8)
_LIKELY_CAUSES = (
    "Likely causes: (a) the kernel is not positive semi-definite; (b) noise_variance is too small "
    "for repeated or nearly equal arms; (c) arms or rewards differ by too many orders of magnitude."
)
# Arguments of LAPACK, by position: scipy takes 0.3 µs to read their names.
_LOWER = 1
_CLEAN = 1  # with zeros above the diagonal


def cholesky(
    matrix: Floats, what: str = "the covariance matrix", scale: float | None = None
) -> Floats:
    """Lower Cholesky factor. Warns before it adds jitter, and refuses a matrix that needs too much.

    Args:
        matrix: Symmetric, (n, n).
        what: What errors and warnings call it.
        scale: The size that jitter is relative to; by default the mean of the diagonal.
    """
    if not len(matrix):
        return np.zeros((0, 0))
    with threads_for(len(matrix) ** 3 / 6):
        L, failed = _lapack().dpotrf(matrix, _LOWER, _CLEAN)
    # LAPACK may let NaN and infinity through; they reach the diagonal. Python sums the few numbers of
    # most calls in a fifth of the time that ``trace`` takes.
    if not failed and math.isfinite(sum(L.diagonal().tolist())):
        return np.asarray(L)
    if not np.isfinite(matrix).all():
        raise NotPositiveDefiniteError(
            f"{what} holds NaN or infinity. {_LIKELY_CAUSES}"
        )
    if scale is None:
        scale = float(np.mean(np.diagonal(matrix)))
    if not (math.isfinite(scale) and scale > 0.0):
        raise NotPositiveDefiniteError(
            f"the scale of {what} must be positive, got {scale:.3g}. {_LIKELY_CAUSES}"
        )
    return _cholesky_with_jitter(matrix, what, scale)


def _cholesky_with_jitter(matrix: Floats, what: str, scale: float) -> Floats:
    for step in JITTER_STEPS:
        warn(
            f"{what} is not numerically positive definite; adding {step:g} x its size "
            f"({step * scale:.3g}) to the diagonal. A larger noise_variance avoids this.",
            JitterWarning,
        )
        with_jitter = matrix + step * scale * np.eye(len(matrix))
        L, failed = _lapack().dpotrf(with_jitter, lower=1, clean=1, overwrite_a=1)
        if not failed:
            return np.asarray(L)
    raise NotPositiveDefiniteError(
        f"{what} is not positive definite, even with jitter {JITTER_STEPS[-1]:g} x its size. "
        f"{_LIKELY_CAUSES}"
    )


def solve_lower(L: Floats, B: Floats, *, transposed: bool = False) -> Floats:
    """``L⁻¹ B`` for a small lower triangular ``L``.

    Args:
        L: Lower triangular, (n, n).
        B: Right-hand sides, (n, m) or (n,).
        transposed: Whether to return ``L⁻ᵀ B`` instead.
    """
    if not B.size:
        return np.array(B, dtype=np.float64)
    with threads_for(len(L) * B.size / 2):
        solved, singular = _lapack().dtrtrs(L, B, _LOWER, int(transposed))
    if singular:
        raise NotPositiveDefiniteError(
            f"a triangular factor has 0 in row {singular - 1}"
        )
    return np.asarray(solved, dtype=np.float64)


def solve_lower_in_place(L: Floats, B: Floats, *, transposed: bool = False) -> Floats:
    """``L⁻¹ B`` in place of ``B``: unlike :func:`solve_lower` it makes no copies.

    Use the result; ``B`` is overwritten.

    Args:
        L: Lower triangular, (n, n).
        B: Right-hand sides, (n, m) float64 in C or Fortran order.
        transposed: Whether to return ``L⁻ᵀ B`` instead.
    """
    if not B.size:
        return B
    _require_writable_block(B)
    if not L.diagonal().all():
        row = int(np.argmin(L.diagonal() != 0.0))
        raise NotPositiveDefiniteError(f"a triangular factor has 0 in row {row}")
    with threads_for(len(L) * B.size / 2):
        if B.flags.c_contiguous:
            _solve_rows_in_place(L, B, transposed)
            return B
        solved = _blas().dtrsm(
            1.0, L, B, lower=1, trans_a=int(transposed), overwrite_b=1
        )
    return np.asarray(solved)


def multiply_lower_in_place(L: Floats, B: Floats) -> Floats:
    """``L B`` in place of ``B``, in half of the multiplications of ``L @ B``.

    Use the result; ``B`` is overwritten.

    Args:
        L: Lower triangular, (n, n).
        B: (n, m) float64 in C or Fortran order.
    """
    if not B.size:
        return B
    _require_writable_block(B)
    with threads_for(len(L) * B.size / 2):
        if B.flags.c_contiguous:
            _blas().dtrmm(1.0, L, B.T, side=1, lower=1, trans_a=1, overwrite_b=1)
            return B
        product = _blas().dtrmm(1.0, L, B, lower=1, overwrite_b=1)
    return np.asarray(product)


def _require_writable_block(B: Floats) -> None:
    """Refuse an array that BLAS could only overwrite in a copy."""
    contiguous = B.flags.c_contiguous or B.flags.f_contiguous
    if B.dtype != np.float64 or not B.flags.writeable or not contiguous:
        raise ValueError("B must be writeable float64 in C or Fortran order")


# Rows of a block. Outside the blocks, products do the work, twice as fast as OpenBLAS solves.
_BLOCK_ROWS = 128


def _solve_rows_in_place(L: Floats, X: Floats, transposed: bool) -> None:
    """Block substitution in ``X``, in C order. BLAS reads Xᵀ, and solves Xᵀ Lᵀ = Bᵀ or Xᵀ L = Bᵀ."""
    blas = _blas()
    size = len(L)
    starts = range(0, size, _BLOCK_ROWS)
    for start in reversed(starts) if transposed else starts:
        end = min(start + _BLOCK_ROWS, size)
        block = X[start:end].T
        if transposed and end < size:
            blas.dgemm(-1.0, X[end:].T, L[end:, start:end], 1.0, block, overwrite_c=1)
        if not transposed and start > 0:
            blas.dgemm(
                -1.0,
                X[:start].T,
                L[start:end, :start],
                1.0,
                block,
                trans_b=1,
                overwrite_c=1,
            )
        corner = L[start:end, start:end]
        blas.dtrsm(
            1.0,
            corner,
            block,
            side=1,
            lower=1,
            trans_a=int(not transposed),
            overwrite_b=1,
        )


# Multiplications up to which OpenBLAS never uses threads: its lowest limit is 9,216.
_UNTHREADED = 4096
_NO_LIMIT: AbstractContextManager[None] = nullcontext()


def threads_for(multiplications: float) -> AbstractContextManager[None]:
    """``blas_threads_for``, except for tiny products, which take no longer than setting a limit.

    Args:
        multiplications: How many the work inside takes.
    """
    if multiplications < _UNTHREADED:
        return _NO_LIMIT
    return blas_threads_for(multiplications)


def solve_lower_right(L: Floats, B: Floats) -> Floats:
    """``B L⁻¹``, a new array in Fortran order.

    Args:
        L: Lower triangular with a positive diagonal, (n, n).
        B: Float64 in Fortran order, (m, n).
    """
    if not B.size:
        return B.copy()
    with threads_for(len(L) * B.size / 2):
        return np.asarray(_blas().dtrsm(1.0, L, B, side=1, lower=1))


def factor_if_positive(matrix: Floats) -> Floats | None:
    """Lower Cholesky factor, or ``None`` where rounding or the matrix itself forbids one.

    Args:
        matrix: Symmetric and finite, (n, n), in Fortran order.
    """
    if not len(matrix):
        return np.zeros((0, 0))
    with threads_for(len(matrix) ** 3 / 6):
        L, failed = _lapack().dpotrf(matrix, _LOWER, _CLEAN)
    return None if failed else np.asarray(L)


def inverse_of_factored(L: Floats) -> Floats:
    """``(L Lᵀ)⁻¹``, symmetric, (n, n).

    Args:
        L: Lower triangular with a positive diagonal, (n, n).
    """
    if not len(L):
        return np.zeros((0, 0))
    with threads_for(len(L) ** 3 / 3):
        inverse, _ = _lapack().dpotri(L, lower=1)
    lower = np.tril(inverse, -1)
    lower += lower.T
    np.fill_diagonal(lower, inverse.diagonal())
    return np.asarray(lower)


def add_to_diagonal(matrix: Floats, values: Floats | float) -> None:
    """Add to the diagonal in place.

    Args:
        matrix: Square, C- or Fortran-contiguous, (n, n).
        values: One number, or one for each entry, (n,).
    """
    matrix.reshape(-1, order="A")[:: len(matrix) + 1] += values


_FEW = 64  # entries up to which Python's own logarithms are faster


def information(L: Floats, noise_variance: Floats) -> float:
    """Information in rewards with covariance L Lᵀ, in nats: ½ ln det(L Lᵀ) − ½ Σ ln noise.

    Args:
        L: Lower Cholesky factor of the rewards' covariance, noise included, (n, n).
        noise_variance: The variance of each reward's noise, (n,).
    """
    diagonal = L.diagonal()
    if len(diagonal) <= _FEW:
        half_log_determinant = math.fsum(map(math.log, diagonal.tolist()))
        log_noise = math.fsum(map(math.log, noise_variance.tolist()))
        return half_log_determinant - 0.5 * log_noise
    return float(np.log(diagonal).sum() - 0.5 * np.log(noise_variance).sum())


@functools.cache
def _lapack() -> Any:
    """Loaded on first use."""
    from scipy.linalg import lapack

    return lapack


@functools.cache
def _blas() -> Any:
    """Loaded on first use."""
    from scipy.linalg import blas

    return blas


class PsdRoot(NamedTuple):
    """``root @ root.T`` is the matrix up to ``error`` × its scale."""

    root: Floats  # (n, r)
    error: float


PSD_ERROR_SILENT = 1e-12
"""Largest relative error of :func:`psd_root` without a warning."""
PSD_ERROR_LIMIT = 1e-6
"""Largest relative error of :func:`psd_root` that is not refused."""
_RANK_TOLERANCE = 1e-15  # smallest pivot, relative to the scale


def psd_root(
    matrix: Floats,
    what: str = "the covariance",
    scale: float | None = None,
    *,
    steady: bool = False,
) -> PsdRoot:
    """A root of a positive *semi*-definite matrix, of its numerical rank, by pivoted Cholesky.

    A smooth kernel on many arms is singular in floating point: a plain Cholesky would need jitter,
    which changes the model. Here the rank is cut instead, at 1e-15, and the largest error over all
    entries is measured and reported.

    Similar arms tie for the next pivot, and rounding breaks the tie. With ``steady``, each row and
    column gets a weight of its own while pivots are chosen. Then a matrix that differs by 1e-15 has
    nearly the same root: draws differ by the square root of that, not completely.

    Args:
        matrix: Symmetric, (n, n).
        what: What errors and warnings call it.
        scale: The size that errors are relative to; by default the largest diagonal entry. A posterior
            covariance needs its prior's, whose rounding it carries, however small it is itself.
        steady: Whether to weight rows and columns.
    """
    from scipy.linalg.lapack import dpstrf

    if len(matrix) == 0:
        return PsdRoot(np.zeros((0, 0)), 0.0)
    if scale is None:
        scale = float(np.max(np.diagonal(matrix)))
    if scale == 0.0 and not matrix.any():
        return PsdRoot(np.zeros((len(matrix), 0)), 0.0)
    if not math.isfinite(scale) or scale <= 0.0:
        raise NotPositiveDefiniteError(
            f"the largest variance of {what} must be positive, got {scale}"
        )
    n = len(matrix)
    weight = _distinct_weights(n) if steady else np.ones(n)
    with blas_threads_for(n**3 / 6):
        weighted = matrix * weight * weight[:, None]
        tolerance = _RANK_TOLERANCE * scale
        factor, pivots, rank, _ = dpstrf(
            weighted, tol=tolerance, lower=1, overwrite_a=1
        )
        rank = int(rank)
        root = np.zeros((n, rank))
        root[pivots - 1] = np.tril(factor)[:, :rank]
        root /= weight[:, None]
        error = float(np.max(np.abs(matrix - root @ root.T))) / scale
    if not error <= PSD_ERROR_LIMIT:
        raise NotPositiveDefiniteError(
            f"{what} is not positive semi-definite: its nearest factorisation is off by {error:.2g} "
            "x its largest diagonal entry. Check that it is symmetric and that the kernel is valid."
        )
    if error > PSD_ERROR_SILENT:
        warn(
            f"{what} is positive semi-definite only up to {error:.2g} x its largest diagonal entry; "
            "the nearest factorisation found is used",
            JitterWarning,
        )
    return PsdRoot(np.ascontiguousarray(root), error)


_GOLDEN_RATIO = 0.6180339887498949


def _distinct_weights(n: int) -> Floats:
    """Weights between ¾ and 1, multiples of the golden ratio modulo 1: no two are close."""
    fractions = np.arange(n) * _GOLDEN_RATIO % 1.0
    return np.asarray(1.0 + 0.25 * (fractions - 1.0))


class LeadingRoot(NamedTuple):
    """``rows.T @ rows`` is a matrix up to a positive semi-definite remainder."""

    rows: Floats  # (r, n)
    # The remainder's diagonal, (n,): no entry of the remainder exceeds its largest.
    rest: Floats


@one_blas_thread
def leading_root(
    column: Callable[[int], Floats], diagonal: Floats, most: int, small: float
) -> LeadingRoot:
    """Pivoted Cholesky of a positive semi-definite matrix that is never formed.

    Pivots are as steady as those of :func:`psd_root`.

    Args:
        column: Returns a column of the matrix by its number, (n,).
        diagonal: The matrix's diagonal, (n,).
        most: The most columns to use.
        small: Stops once no entry of the remaining diagonal exceeds this.
    """
    remainder = diagonal.copy()
    n = len(remainder)
    weight = _distinct_weights(n)
    rows = np.empty((min(most, n), n))
    for rank, row in enumerate(rows):
        if remainder.max() <= small:
            return LeadingRoot(rows[:rank].copy(), remainder)
        pivot = int(np.argmax(remainder * weight))
        residual = column(pivot) - rows[:rank, pivot] @ rows[:rank]
        row[:] = residual / math.sqrt(remainder[pivot])
        remainder -= np.square(row)
        remainder[pivot] = 0.0
        np.maximum(remainder, 0.0, out=remainder)
    return LeadingRoot(rows, remainder)


class RootUpdate(NamedTuple):
    """The effect of observing a few rows of a root; nothing changes until it is applied."""

    gain: Floats  # (n, k): the mean moves by ``gain @ innovation``
    downdate: Floats  # (n, k): the root becomes ``root - downdate @ rows``
    information: float  # ½ ln det(I + D^{-1/2} P D^{-1/2}), nats
    factor: Floats  # (k, k): lower Cholesky factor of the observed rewards' covariance


def root_update(root: Floats, rows: Floats, noise_variance: Floats) -> RootUpdate:
    """Condition ``root @ root.T`` on noisy observations, in square-root form.

    ``rows`` (k, r) are the observed rows of a matrix with the same columns as ``root`` (n, r),
    so that their covariance is ``A = rows @ rows.T`` and the cross-covariance ``root @ rows.T``.
    With D the noise, ``L = chol(A + D)`` and ``M = L + D^{1/2}`` (Andrews' square-root filter)::

        root⁺ = root − root rowsᵀ L⁻ᵀ M⁻¹ rows

    because Q = L⁻ᵀM⁻¹ satisfies Q + Qᵀ − QAQᵀ = (A + D)⁻¹. The covariance stays positive
    semi-definite by construction, which subtracting from a covariance would not ensure.

    Args:
        root: A root of the covariance, (n, r).
        rows: The observed rows, (k, r).
        noise_variance: The variance of each observation's noise, (k,).
    """
    L = cholesky(
        rows @ rows.T + np.diag(noise_variance), "the covariance of the observed arms"
    )
    cross = root @ rows.T  # (n, k)
    whitened = solve_lower(L, cross.T)  # L⁻¹ crossᵀ, (k, n)
    M = L + np.diag(np.sqrt(noise_variance))
    return RootUpdate(
        gain=solve_lower(L, whitened, transposed=True).T,
        downdate=solve_lower(M, whitened, transposed=True).T,
        information=information(L, noise_variance),
        factor=L,
    )


def with_room(buffer: NDArray[Any], used: int, rows: int) -> NDArray[Any]:
    """The buffer if it has enough rows, else a copy of its used rows in one at least twice as long.

    Args:
        buffer: Any array with rows.
        used: How many of its rows contain something.
        rows: How many rows are needed.
    """
    if rows <= len(buffer):
        return buffer
    capacity = max(2 * len(buffer), rows)
    larger = np.empty((capacity, *buffer.shape[1:]), dtype=buffer.dtype)
    larger[:used] = buffer[:used]
    return larger


Part = TypeVar("Part")


def shallow_copy(part: Part) -> Part:
    """A copy that shares all arrays, in a fifth of the time that ``copy.copy`` takes.

    Args:
        part: An object without slots.
    """
    duplicate = object.__new__(type(part))
    duplicate.__dict__.update(part.__dict__)
    return duplicate
