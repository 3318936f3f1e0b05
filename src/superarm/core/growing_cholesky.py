"""A Cholesky factor that grows, solved without a copy of it.

``L`` is lower triangular, and ``L @ L.T`` is the matrix; ``W`` are solved rows, one per right-hand
side: ``L @ W.T = B.T``, (m, n).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from .arrays import Floats
from .linalg import shallow_copy, threads_for


class GrowingCholesky:
    """A Cholesky factor to which rows are appended; the buffer doubles when it is full.

    Row ``i`` of the factor lies in row ``i`` of a C-ordered buffer. Read by BLAS that is the
    transpose, upper triangular with the buffer's width as leading dimension, so a solve needs
    no copy of the factor (``scipy.linalg.blas.dtrsm`` would copy the slice on every call).

    Args:
        capacity: The rows of the first buffer.
    """

    def __init__(self, capacity: int = 256) -> None:
        self._buffer = np.zeros((capacity, capacity))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def factor(self) -> Floats:
        """The factor, (n, n); a view that must not be changed."""
        return self._buffer[: self._size, : self._size]

    def solve_rows(self, B: Floats) -> Floats:
        """``W`` with ``L Wᵀ = Bᵀ``, in place of ``B``.

        Args:
            B: Right-hand sides, one per row, (m, n); C-contiguous.
        """
        rows, size = B.shape
        if not B.size:
            return B
        plain = B.flags.c_contiguous and B.dtype == np.float64 and B.flags.writeable
        if not plain or size != self._size:
            raise ValueError(
                "B must be writeable C-contiguous float64, as wide as the factor"
            )
        buffer = self._buffer
        # An array of its own for each call: several threads may solve.
        sizes = (ctypes.c_int * 3)(size, rows, len(buffer))
        width = ctypes.addressof(sizes)
        height = width + _INT
        leading = width + 2 * _INT
        with threads_for(size * B.size / 2):
            _dtrsm()(
                *_FROM_THE_LEFT_TRANSPOSED, width, height, _ADDRESS_OF_ONE,
                _address(buffer), leading, _address(B), width,
            )  # fmt: skip
        return B

    def extended(self, W: Floats, corner: Floats) -> GrowingCholesky:
        """This factor with more rows, to replace it: both share the buffer that it writes into.

        Args:
            W: Solved off-diagonal rows, (k, n).
            corner: Lower factor of the new rows, (k, k).
        """
        longer = shallow_copy(self)
        longer.append(W, corner)
        return longer

    def append(self, W: Floats, corner: Floats) -> None:
        """Append the rows ``[W, corner]``.

        Args:
            W: Solved off-diagonal rows, (k, n).
            corner: Lower factor of the new rows, (k, k).
        """
        old_size = self._size
        new_size = old_size + len(corner)
        if new_size > len(self._buffer):
            capacity = max(2 * len(self._buffer), new_size)
            buffer = np.zeros((capacity, capacity))
            buffer[:old_size, :old_size] = self.factor
            self._buffer = buffer
        self._buffer[old_size:new_size, :old_size] = W
        self._buffer[old_size:new_size, old_size:new_size] = corner
        self._size = new_size


# Constant arguments of ``dtrsm``, by address: side L, triangle U, transposed T, diagonal N; a factor 1.
_LETTERS = ctypes.create_string_buffer(b"LUTN")
_FIRST_LETTER = ctypes.addressof(_LETTERS)
_FROM_THE_LEFT_TRANSPOSED = tuple(_FIRST_LETTER + place for place in range(4))
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
    get_name.argtypes = [ctypes.py_object]
    get_name.restype = ctypes.c_char_p
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    get_pointer.restype = ctypes.c_void_p
    pointer = get_pointer(capsule, get_name(capsule))
    argument_types = [ctypes.c_void_p] * 11
    routine: Callable[..., None] = ctypes.CFUNCTYPE(None, *argument_types)(pointer)
    return routine
