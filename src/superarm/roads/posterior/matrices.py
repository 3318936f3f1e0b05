"""Small helpers for symmetric and triangular matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats


def half_log_det(factor: Floats) -> Any:
    """½ ln det(L Lᵀ) of a Cholesky factor L.

    Args:
        factor: L, (n, n).
    """
    diagonal = np.diagonal(factor)
    return np.log(diagonal).sum()


def triangle_size(size: int) -> int:
    """The number of entries of a triangle, its diagonal included.

    Args:
        size: Rows of the matrix.
    """
    return size * (size + 1) // 2


def from_lower(lower: Floats, size: int) -> Floats:
    """The symmetric matrix with this lower triangle.

    Args:
        lower: The triangle, row by row.
        size: Rows of the matrix.
    """
    matrix = np.zeros((size, size))
    places = np.tril_indices(size)
    matrix[places] = lower
    below_diagonal = np.tril(matrix, -1)
    return matrix + below_diagonal.T


def with_zeros(matrix: Floats, used: int, size: int) -> Floats:
    """A square array with room for ``size`` rows, zeros beyond what is used.

    Args:
        matrix: The array; returned as it is if it has room.
        used: Rows in use.
        size: Rows that are needed.
    """
    if len(matrix) >= size:
        return matrix
    half_more = len(matrix) * 3 // 2
    length = max(size, half_more)
    bigger = np.zeros((length, length))
    bigger[:used, :used] = matrix[:used, :used]
    return bigger
