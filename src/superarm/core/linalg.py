"""Cholesky factors that grow and square roots that shrink.

Notation

=========  =====================================================================
``L``      lower triangular, ``L @ L.T`` is the matrix
``root``   any matrix with ``root @ root.T`` the covariance, (n, r)
``W``      solved rows, one per right-hand side: ``L @ W.T = B.T``, (m, n)
=========  =====================================================================
"""

from __future__ import annotations

import ctypes
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

# Jitter tried in turn, relative to the matrix's size; past the last one we refuse.
JITTER_STEPS = (1e-12, 1e-10, 1e-8)
_LIKELY_CAUSES = (
    "Likely causes: (a) the kernel is not positive semi-definite; (b) noise_variance is too small "
    "for repeated or nearly equal arms; (c) arms or rewards differ by too many orders of magnitude."
)


def cholesky(
    matrix: Floats, what: str = "the covariance matrix", scale: float | None = None
) -> Floats:
    """Lower Cholesky factor. Jitter is warned about before it is used, and refused past a limit.

    Jitter is relative to ``scale``, the mean diagonal unless given.
    """
    if not len(matrix):
        return np.zeros((0, 0))
    with threads_for(len(matrix) ** 3 / 6):
        L, failed = _lapack().dpotrf(matrix, lower=1, clean=1)
    # LAPACK may let NaN and infinity through; they reach the diagonal.
    if not failed and math.isfinite(L.trace()):
        return np.asarray(L)
    if not np.isfinite(matrix).all():
        raise NotPositiveDefiniteError(
            f"{what} holds NaN or infinity. {_LIKELY_CAUSES}"
        )
    if scale is None:
        scale = float(np.mean(np.diagonal(matrix)))
    if not (math.isfinite(scale) and scale > 0.0):
        told = f"{what} is of size {scale:.3g}; it must be positive"
        raise NotPositiveDefiniteError(f"{told}. {_LIKELY_CAUSES}")
    for step in JITTER_STEPS:
        told = (
            f"{what} is not numerically positive definite; adding {step:g} x its size"
        )
        added = f"({step * scale:.3g}) to the diagonal"
        warn(f"{told} {added}. A larger noise_variance avoids this.", JitterWarning)
        raised = matrix + step * scale * np.eye(len(matrix))
        L, failed = _lapack().dpotrf(raised, lower=1, clean=1, overwrite_a=1)
        if not failed:
            return np.asarray(L)
    told = f"{what} is not positive definite, even with jitter {JITTER_STEPS[-1]:g} x its size"
    raise NotPositiveDefiniteError(f"{told}. {_LIKELY_CAUSES}")


def solve_lower(L: Floats, B: Floats, *, transposed: bool = False) -> Floats:
    """``L⁻¹ B``, or ``L⁻ᵀ B``, for a small lower triangular ``L``."""
    if not B.size:
        return np.array(B, dtype=np.float64)
    with threads_for(len(L) * B.size / 2):
        solved, singular = _lapack().dtrtrs(L, B, lower=1, trans=int(transposed))
    if singular:
        raise NotPositiveDefiniteError(
            f"a triangular factor has 0 in row {singular - 1}"
        )
    return np.asarray(solved, dtype=np.float64)


def solve_lower_in_place(L: Floats, B: Floats, *, transposed: bool = False) -> Floats:
    """``L⁻¹ B``, or ``L⁻ᵀ B``, in place of ``B``, (n, m) float64 in C or Fortran order.

    Unlike :func:`solve_lower` it makes no copies: use the result, ``B`` is overwritten.
    """
    if not B.size:
        return B
    if B.dtype != np.float64 or not (
        B.flags.writeable and (B.flags.c_contiguous or B.flags.f_contiguous)
    ):
        raise ValueError("B must be writeable float64 in C or Fortran order")
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


_SOLVED_TOGETHER = (
    128  # rows: the rest is a matrix product, twice as fast as the solve of OpenBLAS
)


def _solve_rows_in_place(L: Floats, X: Floats, transposed: bool) -> None:
    """Block substitution in ``X``, in C order. BLAS reads Xᵀ, and solves Xᵀ Lᵀ = Bᵀ or Xᵀ L = Bᵀ."""
    blas = _blas()
    size = len(L)
    starts = range(0, size, _SOLVED_TOGETHER)
    for start in reversed(starts) if transposed else starts:
        end = min(start + _SOLVED_TOGETHER, size)
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


_UNTHREADED = 4096  # multiplications for which OpenBLAS never takes threads: its lowest limit is 9,216
_AS_IT_IS: AbstractContextManager[None] = nullcontext()


def threads_for(multiplications: float) -> AbstractContextManager[None]:
    """``blas_threads_for`` where there may be threads: to ask costs as much as a tiny product."""
    return (
        _AS_IT_IS
        if multiplications < _UNTHREADED
        else blas_threads_for(multiplications)
    )


def add_to_diagonal(matrix: Floats, values: Floats | float) -> None:
    """In place, for a C- or Fortran-contiguous square matrix."""
    matrix.reshape(-1, order="A")[:: len(matrix) + 1] += values


_FEW = 64  # entries up to which Python's own logarithms are faster


def information(L: Floats, noise_variance: Floats) -> float:
    """½ ln det(L Lᵀ) − ½ Σ ln noise: what was learned from rewards with L Lᵀ as covariance, nats."""
    diagonal = L.diagonal()
    if len(diagonal) <= _FEW:
        logarithms = math.fsum(map(math.log, diagonal.tolist()))
        return logarithms - 0.5 * math.fsum(map(math.log, noise_variance.tolist()))
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


PSD_ERROR_SILENT, PSD_ERROR_LIMIT = 1e-12, 1e-6


def psd_root(
    matrix: Floats,
    what: str = "the covariance",
    scale: float | None = None,
    *,
    steady: bool = False,
) -> PsdRoot:
    """A root of a positive *semi*-definite matrix, of its numerical rank, by pivoted Cholesky.

    A smooth kernel on many arms is singular in floating point: a plain Cholesky would need
    jitter, which changes the model. Here the rank is cut instead, at 1e-15, and the largest
    error over all entries is measured and reported. Both are relative to ``scale``, the
    largest diagonal entry unless given: a posterior covariance carries rounding of its prior's
    size, however small it has become itself.

    Arms that are alike tie for the next pivot, and rounding chooses among them. With ``steady`` rows
    and columns are weighted, each differently, while pivots are chosen. Then a matrix that differs
    by 1e-15 has nearly the same root: draws differ by the square root of that, not altogether.
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
            f"{what} has largest variance {scale}; it must be positive"
        )
    n = len(matrix)
    weight = _unlike(n) if steady else np.ones(n)
    with blas_threads_for(n**3 / 6):
        weighted = matrix * weight * weight[:, None]
        factor, pivots, rank, _ = dpstrf(
            weighted, tol=1e-15 * scale, lower=1, overwrite_a=1
        )
        root = np.zeros((n, int(rank)))
        root[pivots - 1] = np.tril(factor)[:, : int(rank)]
        root /= weight[:, None]
        error = float(np.max(np.abs(matrix - root @ root.T))) / scale
    if not error <= PSD_ERROR_LIMIT:
        raise NotPositiveDefiniteError(
            f"{what} is not positive semi-definite: its nearest factorisation is off by {error:.2g} "
            "x its largest diagonal entry. Check that it is symmetric and that the kernel is valid."
        )
    if error > PSD_ERROR_SILENT:
        told = f"{what} is positive semi-definite only up to {error:.2g} x its largest diagonal entry"
        warn(f"{told}; the nearest factorisation found is used", JitterWarning)
    return PsdRoot(np.ascontiguousarray(root), error)


def _unlike(n: int) -> Floats:
    """Weights between ¾ and 1, multiples of the golden ratio modulo 1: no two are near each other."""
    return np.asarray(1.0 + 0.25 * (np.arange(n) * 0.6180339887498949 % 1.0 - 1.0))


class LeadingRoot(NamedTuple):
    """``rows.T @ rows`` is a matrix up to a positive semi-definite rest."""

    rows: Floats  # (r, n)
    rest: Floats  # the rest's diagonal, (n,): no entry of the rest is above the largest of these


@one_blas_thread
def leading_root(
    column: Callable[[int], Floats], diagonal: Floats, most: int, small: float
) -> LeadingRoot:
    """Pivoted Cholesky of a positive semi-definite matrix that is never made: ``most`` columns at most,
    and none once all that is left of the diagonal is ``small``. Pivots are as steady as those of
    :func:`psd_root`."""
    rest, weight = diagonal.copy(), _unlike(len(diagonal))
    rows = np.empty((min(most, len(rest)), len(rest)))
    for rank, row in enumerate(rows):
        if rest.max() <= small:
            return LeadingRoot(rows[:rank].copy(), rest)
        pivot = int(np.argmax(rest * weight))
        row[:] = (column(pivot) - rows[:rank, pivot] @ rows[:rank]) / math.sqrt(
            rest[pivot]
        )
        rest -= np.square(row)
        rest[pivot] = 0.0
        np.maximum(rest, 0.0, out=rest)
    return LeadingRoot(rows, rest)


class RootUpdate(NamedTuple):
    """What observing a few rows of a root does; nothing is changed until it is applied."""

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
    """``buffer`` if it has ``rows`` rows, else one at least twice as long with its first ``used``."""
    if rows <= len(buffer):
        return buffer
    bigger = np.empty(
        (max(2 * len(buffer), rows), *buffer.shape[1:]), dtype=buffer.dtype
    )
    bigger[:used] = buffer[:used]
    return bigger


Part = TypeVar("Part")


def shallow_copy(part: Part) -> Part:
    """A copy that shares all arrays, in a fifth of the time that ``copy.copy`` takes."""
    other = object.__new__(type(part))
    other.__dict__.update(part.__dict__)
    return other


class GrowingCholesky:
    """A Cholesky factor to which rows are appended; the buffer doubles when it is full.

    Row ``i`` of the factor lies in row ``i`` of a C-ordered buffer. Read by BLAS that is the
    transpose, upper triangular with the buffer's width as leading dimension, so a solve needs
    no copy of the factor (``scipy.linalg.blas.dtrsm`` would copy the slice on every call).
    """

    def __init__(self, capacity: int = 256) -> None:
        self._buffer = np.zeros((capacity, capacity))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def factor(self) -> Floats:
        """The factor, (n, n); a view, do not change it."""
        return self._buffer[: self._size, : self._size]

    def solve_rows(self, B: Floats) -> Floats:
        """``W`` with ``L Wᵀ = Bᵀ`` in place of ``B`` (m, n), which must be C-contiguous."""
        rows, size = B.shape
        if not B.size:
            return B
        plain = B.flags.c_contiguous and B.dtype == np.float64 and B.flags.writeable
        if not plain or size != self._size:
            raise ValueError(
                "B must be writeable C-contiguous float64, as wide as the factor"
            )
        buffer = self._buffer
        sizes = (ctypes.c_int * 3)(
            size, rows, len(buffer)
        )  # our own: several threads may solve
        width = ctypes.addressof(sizes)
        height, leading = width + _INT, width + 2 * _INT
        with threads_for(size * B.size / 2):
            _dtrsm()(
                *_FROM_THE_LEFT_TRANSPOSED, width, height, _ADDRESS_OF_ONE,
                _address(buffer), leading, _address(B), width,
            )  # fmt: skip
        return B

    def extended(self, W: Floats, corner: Floats) -> GrowingCholesky:
        """This factor with more rows, to take its place: it writes into room that both share."""
        other = shallow_copy(self)
        other.append(W, corner)
        return other

    def append(self, W: Floats, corner: Floats) -> None:
        """New rows ``[W, corner]``: solved off-diagonal rows (k, n), lower factor (k, k)."""
        size, grown = self._size, self._size + len(corner)
        if grown > len(self._buffer):
            capacity = max(2 * len(self._buffer), grown)
            buffer = np.zeros((capacity, capacity))
            buffer[:size, :size] = self.factor
            self._buffer = buffer
        self._buffer[size:grown, :size] = W
        self._buffer[size:grown, size:grown] = corner
        self._size = grown


# Constant arguments of ``dtrsm``, by address: side L, triangle U, transposed T, diagonal N; a factor 1.
_LETTERS = ctypes.create_string_buffer(b"LUTN")
_FROM_THE_LEFT_TRANSPOSED = tuple(
    ctypes.addressof(_LETTERS) + place for place in range(4)
)
_ONE = ctypes.c_double(1.0)
_ADDRESS_OF_ONE = ctypes.addressof(_ONE)
_INT = ctypes.sizeof(ctypes.c_int)


def _address(array: Floats) -> int:
    """Where an array's numbers lie; faster than ``array.ctypes.data``."""
    address: int = array.__array_interface__["data"][0]
    return address


@functools.cache
def _dtrsm() -> Callable[..., None]:
    """The BLAS routine as SciPy links it, callable with pointers."""
    from scipy.linalg import cython_blas

    capsule = dict(cython_blas.__pyx_capi__)["dtrsm"]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = (
        ctypes.c_void_p,
        [ctypes.py_object, ctypes.c_char_p],
    )
    pointer = get_pointer(capsule, get_name(capsule))
    routine: Callable[..., None] = ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * 11))(
        pointer
    )
    return routine
