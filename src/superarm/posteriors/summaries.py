"""What observations say through the rewards at a few inducing points [titsias2009variational].

Notation

=========  =======================================================================
``N, s``   observations, inducing points; ``m`` arms asked about
``X, Z``   observed arms (N, d) and inducing points (s, d)
``D``      noise variances of the observations
``L``      chol(k(Z, Z) + jitter), (s, s)
``A``      L⁻¹ k(Z, X) D^{-½}, (s, N);  ``M`` chol(I + A Aᵀ)
``P, R``   L⁻¹ k(Z, x) and M⁻¹ P, (s, m)
=========  =======================================================================

mean = Rᵀ M⁻¹ A D^{-½}(y − prior mean), covariance = k(x, x′) − PᵀP + RᵀR: the best Gaussian that knows
the data through the rewards at Z alone. With Z = X and no jitter it is the exact posterior. Kernel
values lose what is orthogonal to Z: |k − PᵀP| is at most its largest value on the diagonal.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.linalg import add_to_diagonal, cholesky, solve_lower
from superarm.core.threads import blas_threads_for
from superarm.kernels import Kernel

from .variances import constant_variance, prior_variance

BLOCK = 1024  # observations whose joint covariance is made at once, and means asked for at once
_ROWS = 4096  # observations whose rows are held at once: s × _ROWS numbers
_CANDIDATES_PER_POINT = 5
_LEAST_LEFT = 1e-9  # of the largest variance: points with less, given those before, add only rounding


class Asked(NamedTuple):
    prior_rows: Floats  # P
    rows: Floats  # R


class PointSummary:
    """A A ᵀ and A D^{-½}(y − prior mean), to which more observations can be added."""

    def __init__(
        self,
        kernel: Covariance,
        points: Floats,
        jitter: float = 0.0,
        *,
        measures_lost: bool = True,
    ) -> None:
        self.kernel, self.points = kernel, points
        self._measures_lost = measures_lost
        prior = np.array(kernel(points), dtype=np.float64)
        add_to_diagonal(prior, jitter)
        # Inverses of small triangles: a product with many rows takes a quarter of what solving takes.
        self._prior_inverse = _inverse(
            cholesky(prior, "the covariance of the inducing points")
        )
        self.precision = np.eye(len(points))  # I + A Aᵀ
        self.told = np.zeros(len(points))  # A D^{-½}(y − prior mean)
        # Largest variance of an observed arm that the points do not explain; 0 if it is not measured.
        self.lost = 0.0
        self._factor_inverse = self.precision
        self.weights = self.told

    def add(self, arms: Floats, residual: Floats, noise: Floats) -> None:
        """Take observations in; ``residual`` is without the prior mean."""
        weight = 1.0 / np.sqrt(noise)
        precision, told, lost = self.precision.copy(), self.told.copy(), self.lost
        for begin in range(0, len(arms), _ROWS):
            block = slice(begin, begin + _ROWS)
            rows = self._prior_rows(arms[block])
            if self._measures_lost:
                lost = max(lost, self._largest_lost(arms[block], rows))
            rows *= weight[block]
            with blas_threads_for(len(rows) * rows.size):
                precision += rows @ rows.T
            told += rows @ (weight[block] * residual[block])
        self.resume(precision, told, lost)

    def _largest_lost(self, arms: Floats, rows: Floats) -> float:
        """The largest variance of these arms that the points do not explain."""
        explained = np.einsum("ij,ij->j", rows, rows)
        level = constant_variance(self.kernel)
        if level is not None:
            return level - float(explained.min())
        return float((prior_variance(self.kernel, arms) - explained).max())

    def resume(self, precision: Floats, told: Floats, lost: float) -> None:
        """Go on from these sums."""
        inverse = _inverse(
            cholesky(precision, "the information about the inducing points")
        )
        self.precision, self.told, self.lost = precision, told, lost
        self._factor_inverse, self.weights = inverse, inverse @ told

    def ask(self, keys: Floats) -> Asked:
        prior_rows = self._prior_rows(keys)
        return Asked(prior_rows, self._factor_inverse @ prior_rows)

    def _prior_rows(self, keys: Floats) -> Floats:
        cross = np.asarray(self.kernel(self.points, keys), dtype=np.float64)
        own = isinstance(
            self.kernel, Kernel
        )  # then it is a new array, and may be overwritten
        with blas_threads_for(len(cross) * cross.size / 2):
            # On the transposes, which is how BLAS reads C-ordered arrays.
            rows = _dtrmm()(
                1.0, self._prior_inverse.T, cross.T, side=1, lower=0, overwrite_b=own
            )
            return np.asarray(rows.T)


@functools.cache
def _dtrmm() -> Any:
    """Loaded on first use."""
    from scipy.linalg.blas import dtrmm

    return dtrmm


def _inverse(L: Floats) -> Floats:
    return np.ascontiguousarray(solve_lower(L, np.eye(len(L))))


def spread_points(kernel: Covariance, arms: Floats, most: int) -> Ints:
    """Rows of ``arms``, each the one that those before it say least about: a pivoted Cholesky.

    Candidates are evenly spaced in ``arms``, five for each point wanted. Fewer than ``most`` come
    back where they explain everything.
    """
    count = min(_CANDIDATES_PER_POINT * most, len(arms))
    candidates = np.unique(np.linspace(0, len(arms) - 1, count).astype(np.intp))
    rows, most = arms[candidates], min(most, len(candidates))
    left = prior_variance(kernel, rows).copy()
    enough = _LEAST_LEFT * float(left.max())
    factor = np.empty((most, len(rows)))
    chosen: list[int] = []
    while len(chosen) < most and left.max() > enough:
        best, step = int(left.argmax()), len(chosen)
        column = np.asarray(kernel(rows[best : best + 1], rows))[0]
        factor[step] = (column - factor[:step, best] @ factor[:step]) / np.sqrt(
            left[best]
        )
        left = np.maximum(left - factor[step] ** 2, 0.0)
        left[best] = 0.0
        chosen.append(best)
    return candidates[chosen]
