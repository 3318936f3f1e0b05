"""Draws from a prior over many arms: one root of its covariance for all who draw from it."""

from __future__ import annotations

import weakref

import numpy as np

from superarm.core import Floats
from superarm.errors import InputError
from superarm.linalg import psd_root
from superarm.threads import blas_threads_for

from .base import Covariance, Kernel

LARGEST_DRAW = 16_000  # most arms of a joint draw: it needs a root of the whole prior, n² numbers
_MOST_KEPT = 2  # roots: that of the truth and that of the model, where they differ


class PriorRoot:
    """The lower Cholesky factor of the prior covariance over all arms, made in one n × n array."""

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        from scipy.linalg.lapack import dpotrf

        n = len(arms)
        matrix = np.empty((n, n))
        for start in range(0, n, 64):  # its lower triangle is all that is needed
            stop = min(start + 64, n)
            matrix[start:stop, :stop] = kernel(arms[start:stop], arms[:stop])
        np.fill_diagonal(matrix, kernel.diag(arms))
        # Read by LAPACK it is the transpose, and its upper triangle our lower one.
        with blas_threads_for(n**3 / 6):
            self._upper, failed = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=0)
        self._singular: Floats | None = None
        if failed or not np.isfinite(self._upper.trace()):
            # Singular in floating point: its rank is cut, instead of adding jitter.
            del matrix, self._upper
            prior = np.asarray(kernel(arms))
            self._singular = psd_root(prior, "the prior covariance of the arms").root

    def times(self, normals: Floats) -> Floats:
        """Draws about zero, (m, n), from standard normals (m, n); a singular prior takes fewer."""
        from scipy.linalg.blas import dtrmm, dtrmv

        if self._singular is not None:
            return normals[:, : self._singular.shape[1]] @ self._singular.T
        if len(normals) == 1:
            return np.asarray(dtrmv(self._upper, normals[0], lower=0, trans=1))[None]
        columns = np.ascontiguousarray(normals).T
        return np.asarray(dtrmm(1.0, self._upper, columns, lower=0, trans_a=1).T)


_known: list[tuple[weakref.ref[Kernel], Floats, PriorRoot]] = []  # the one used last stands last


def prior_root(kernel: Covariance, arms: Floats, otherwise: str) -> PriorRoot:
    """The root for these arms; ``otherwise`` says what to do where there are too many.

    Every seed of an experiment asks for the same n² numbers, its truth and its learners alike. They
    are kept no longer than the kernel itself, and not more than two of them.
    """
    n = len(arms)
    if n > LARGEST_DRAW:
        told = f"a joint draw of {n} arms needs a root of their prior covariance, {8e-9 * n * n:.0f} GB"
        raise InputError(f"{told}; it is made for up to {LARGEST_DRAW} arms: {otherwise}")
    if not isinstance(kernel, Kernel):  # others, such as scikit-learn's, may change
        return PriorRoot(kernel, arms)
    for own, known, root in _known.copy():
        if own() is kernel and np.array_equal(known, arms):
            _forget(own)
            _known.append((own, known, root))
            return root
    del _known[: len(_known) - _MOST_KEPT + 1]  # before another is made: they are large
    root = PriorRoot(kernel, arms)
    _known.append((weakref.ref(kernel, _forget), arms, root))
    return root


def _forget(kernel: weakref.ref[Kernel]) -> None:
    _known[:] = [known for known in _known if known[0] is not kernel]
