"""Summaries of observations at a few inducing points [titsias2009variational].

Notation

=========  =======================================================================
``N, s``   observations, inducing points; ``m`` arms to predict
``X, Z``   observed arms (N, d) and inducing points (s, d)
``D``      noise variances of the observations
``L``      chol(k(Z, Z) + jitter), (s, s)
``A``      L⁻¹ k(Z, X) D^{-½}, (s, N);  ``M`` chol(I + A Aᵀ)
``P, R``   L⁻¹ k(Z, x) and M⁻¹ P, (s, m)
=========  =======================================================================

mean = Rᵀ M⁻¹ A D^{-½}(y − prior mean), covariance = k(x, x′) − PᵀP + RᵀR: the best Gaussian that
depends on the data only through the rewards at Z. With Z = X and no jitter it is the exact posterior.
Kernel values lose what is orthogonal to Z: |k − PᵀP| is at most its largest value on the diagonal.
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

# Observations whose joint covariance is computed at once, and arms whose means are.
BLOCK = 1024
# Observations whose rows of A are in memory at once: s × _ROWS numbers.
_ROWS = 4096
_CANDIDATES_PER_POINT = 5
# Relative to the largest variance: points with less conditional variance add only rounding.
_LEAST_VARIANCE = 1e-9


class SolvedRows(NamedTuple):
    """The rows from which means and covariances of m arms are computed."""

    prior_rows: Floats  # P, (s, m)
    rows: Floats  # R, (s, m)


class PointSummary:
    """The sums A Aᵀ and A D^{-½}(y − prior mean), to which observations can be added.

    Args:
        kernel: The kernel.
        points: The inducing points Z, (s, d).
        jitter: Added to the diagonal of their covariance.
        measures_lost: Whether to compute ``lost``, the largest variance of an observed arm that
            the points do not explain; otherwise it stays 0.
    """

    def __init__(
        self,
        kernel: Covariance,
        points: Floats,
        jitter: float = 0.0,
        *,
        measures_lost: bool = True,
    ) -> None:
        self.kernel = kernel
        self.points = points
        self._measures_lost = measures_lost
        prior = np.array(kernel(points), dtype=np.float64)
        add_to_diagonal(prior, jitter)
        factor = cholesky(prior, "the covariance of the inducing points")  # L
        # Inverses of small triangles: multiplying many rows takes a quarter of the time of solving.
        self._prior_inverse = _inverse(factor)  # L⁻¹
        self.precision = np.eye(len(points))  # I + A Aᵀ
        self.weighted_residual = np.zeros(len(points))  # A D^{-½}(y − prior mean)
        self.lost = 0.0
        self._factor_inverse = self.precision  # M⁻¹
        self.weights = self.weighted_residual  # M⁻¹ A D^{-½}(y − prior mean)

    def add(self, arms: Floats, residual: Floats, noise: Floats) -> None:
        """Add observations.

        Args:
            arms: Feature rows, (m, d).
            residual: Rewards minus the prior mean, (m,).
            noise: Noise variances, (m,).
        """
        weight = 1.0 / np.sqrt(noise)  # D^{-½}
        precision = self.precision.copy()
        weighted_residual = self.weighted_residual.copy()
        lost = self.lost
        for begin in range(0, len(arms), _ROWS):
            block = slice(begin, begin + _ROWS)
            block_arms = arms[block]
            block_weight = weight[block]
            rows = self._prior_rows(block_arms)
            if self._measures_lost:
                block_lost = self._largest_lost(block_arms, rows)
                lost = max(lost, block_lost)
            rows *= block_weight  # A
            with blas_threads_for(len(rows) * rows.size):
                precision += rows @ rows.T
            whitened_residual = block_weight * residual[block]
            weighted_residual += rows @ whitened_residual
        self.resume(precision, weighted_residual, lost)

    def _largest_lost(self, arms: Floats, rows: Floats) -> float:
        """The largest variance of these arms that the points do not explain."""
        explained = np.einsum("ij,ij->j", rows, rows)
        level = constant_variance(self.kernel)
        if level is not None:
            return level - float(explained.min())
        lost = prior_variance(self.kernel, arms) - explained
        return float(lost.max())

    def resume(self, precision: Floats, weighted_residual: Floats, lost: float) -> None:
        """Set the sums, as those of a saved state.

        Args:
            precision: I + A Aᵀ, (s, s).
            weighted_residual: A D^{-½}(y − prior mean), (s,).
            lost: The largest variance of an observed arm that the points do not explain.
        """
        factor = cholesky(precision, "the information about the inducing points")  # M
        factor_inverse = _inverse(factor)
        self.precision = precision
        self.weighted_residual = weighted_residual
        self.lost = lost
        self._factor_inverse = factor_inverse
        self.weights = factor_inverse @ weighted_residual

    def solve(self, keys: Floats) -> SolvedRows:
        """Solve for some arms.

        Args:
            keys: Feature rows, (m, d).
        """
        prior_rows = self._prior_rows(keys)
        rows = self._factor_inverse @ prior_rows
        return SolvedRows(prior_rows, rows)

    def _prior_rows(self, keys: Floats) -> Floats:
        """P = L⁻¹ k(Z, x), (s, m)."""
        cross = np.asarray(self.kernel(self.points, keys), dtype=np.float64)
        # Our kernels return a new array, which may be overwritten.
        overwrite = isinstance(self.kernel, Kernel)
        with blas_threads_for(len(cross) * cross.size / 2):
            # Transposed, because BLAS reads C-ordered arrays as their transposes: Pᵀ = k(x, Z) L⁻ᵀ.
            rows = _dtrmm()(
                1.0,
                self._prior_inverse.T,
                cross.T,
                side=1,
                lower=0,
                overwrite_b=overwrite,
            )
            return np.asarray(rows.T)


@functools.cache
def _dtrmm() -> Any:
    """BLAS' triangular matrix product, imported on first use."""
    from scipy.linalg.blas import dtrmm

    return dtrmm


def _inverse(L: Floats) -> Floats:
    identity = np.eye(len(L))
    return np.ascontiguousarray(solve_lower(L, identity))


def spread_points(kernel: Covariance, arms: Floats, most: int) -> Ints:
    """Rows of ``arms`` to be inducing points, chosen by a pivoted Cholesky factorisation.

    Each point is the candidate with the largest variance given the points before it. Candidates are
    evenly spaced in ``arms``, five per point. Fewer than ``most`` are returned if they explain
    everything.

    Args:
        kernel: The kernel.
        arms: Feature rows, (n, d).
        most: The largest number of points.
    """
    arm_count = len(arms)
    candidate_count = min(_CANDIDATES_PER_POINT * most, arm_count)
    spacing = np.linspace(0, arm_count - 1, candidate_count)
    candidates = np.unique(spacing.astype(np.intp))
    rows = arms[candidates]
    size = min(most, len(candidates))
    variance = prior_variance(kernel, rows)  # of each candidate, given the points
    threshold = _LEAST_VARIANCE * float(variance.max())
    factor = np.empty((size, len(rows)))
    chosen: list[int] = []
    while len(chosen) < size and variance.max() > threshold:
        best = int(variance.argmax())
        best_row = rows[best : best + 1]
        covariance = np.asarray(kernel(best_row, rows))[0]
        step = len(chosen)
        explained = factor[:step, best] @ factor[:step]
        column = (covariance - explained) / np.sqrt(variance[best])
        factor[step] = column
        variance = np.maximum(variance - column**2, 0.0)
        variance[best] = 0.0
        chosen.append(best)
    return candidates[chosen]
