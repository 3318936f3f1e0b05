"""Roots of the prior covariance over many arms."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.linalg import psd_root
from superarm.core.threads import blas_threads_for

_BLOCK = 64  # rows of the covariance that are computed together


class PriorRoot(ABC):
    """A root of the prior covariance over n arms: it turns standard normals into draws."""

    normals: int
    """How many standard normals a draw takes."""
    tolerance: float = 0.0
    """Largest error of a covariance, relative to the largest variance."""

    @abstractmethod
    def times(self, normals: Floats) -> Floats:
        """Draws with mean zero, (m, n).

        Args:
            normals: Standard normals, (m, ``self.normals``).
        """


class DenseRoot(PriorRoot):
    """The lower Cholesky factor of the prior covariance, computed in one n × n array.

    Args:
        kernel: The prior covariance.
        arms: One row per arm, (n, d).
    """

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        from scipy.linalg.lapack import dpotrf

        n = len(arms)
        self.normals = n
        self._singular: Floats | None = None
        matrix = _lower_triangle(kernel, arms)
        # LAPACK reads it as the transpose, so our lower triangle is its upper one.
        operations = n**3 / 6
        with blas_threads_for(operations):
            self._upper, failed = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=0)
        is_finite = np.isfinite(self._upper.trace())
        if failed or not is_finite:
            # Singular in floating point: cut its rank instead of adding jitter.
            del matrix, self._upper
            prior = np.asarray(kernel(arms))
            truncated = psd_root(prior, "the prior covariance of the arms")
            self._singular = truncated.root

    def times(self, normals: Floats) -> Floats:
        """Draws with mean zero, (m, n); a singular prior does not use all normals.

        Args:
            normals: Standard normals, (m, n).
        """
        from scipy.linalg.blas import dtrmm, dtrmv

        if self._singular is not None:
            rank = self._singular.shape[1]
            used = normals[:, :rank]
            return used @ self._singular.T
        upper = self._upper
        if len(normals) == 1:
            draw = dtrmv(upper, normals[0], lower=0, trans=1)
            return np.asarray(draw)[None]
        columns = np.ascontiguousarray(normals).T
        draws = dtrmm(1.0, upper, columns, lower=0, trans_a=1)
        return np.asarray(draws.T)


def _lower_triangle(kernel: Covariance, arms: Floats) -> Floats:
    """The lower triangle of K, and parts of the upper one; the rest is not set, (n, n)."""
    n = len(arms)
    matrix = np.empty((n, n))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        rows = arms[start:stop]
        columns = arms[:stop]
        matrix[start:stop, :stop] = kernel(rows, columns)
    np.fill_diagonal(matrix, kernel.diag(arms))
    return matrix
