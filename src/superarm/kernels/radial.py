"""The base class of kernels of a scaled distance.

Notation

==========  =============================================================================
``q``       (n, m) scaled squared distances Σ_j (x_j − y_j)²/l_j²
``l``       lengthscale: one number, or one per column (automatic relevance determination)
``f``       profile, f(0) = 1; the kernel is variance·f(q)
==========  =============================================================================

∂K/∂log l_j = −2 variance·f'(q)·(x_j − y_j)²/l_j² and ∂K/∂x_j = 2 variance·f'(q)·(x_j − y_j)/l_j², so
each kernel states only f and f'.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from superarm.core import Floats

from .base import Gradients
from .distances import scaled_squared_distances
from .stationary import Stationary

_BLOCK = 16384  # entries of K per block, 128 kB: they stay in the cache


def _rows_per_block(width: int) -> int:
    rows = _BLOCK // max(1, width)
    return max(1, rows)


def exp_half(q: Floats) -> Floats:
    """exp(−q/2), the profile of the squared exponential; overwrites ``q``."""
    q *= -0.5
    return np.exp(q, out=q)


@dataclass(frozen=True, kw_only=True)
class Radial(Stationary):
    """variance·f(q)."""

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = scaled_squared_distances(X, Y, self.lengthscale)
        if K.size <= _BLOCK:
            profile = self._profile(K)
            if self.variance != 1.0:
                profile *= self.variance
            return profile
        # In blocks that stay in the cache together with their temporaries: several times faster.
        step = _rows_per_block(K.shape[1])
        for start in range(0, len(K), step):
            block = K[start : start + step]
            profile = self._profile(block)
            np.multiply(profile, self.variance, out=block)
        return K

    @abstractmethod
    def _profile(self, q: Floats) -> Floats:
        """f(q), with f(0) = 1 exactly; may overwrite ``q``."""

    @abstractmethod
    def _slope(self, q: Floats) -> Floats:
        """f'(q); 0 where it is infinite, at q = 0, since the product q·f'(q) is 0 there."""

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        q = scaled_squared_distances(X, None, self.lengthscale)
        factor = self._slope(q)
        factor *= -2.0 * self.variance
        along_lengthscale = []
        if not isinstance(self.lengthscale, tuple):
            along_lengthscale.append(factor * q)
            return {"lengthscale": along_lengthscale, "variance": [K]}
        for x, scale in zip(X.T, self.lengthscale, strict=True):
            differences = np.subtract.outer(x, x)
            differences /= scale
            gradient = factor * np.square(differences)
            along_lengthscale.append(gradient)
        return {"lengthscale": along_lengthscale, "variance": [K]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        q = scaled_squared_distances(X, Y, self.lengthscale)
        n, width = X.shape
        scales = np.broadcast_to(self.lengthscale, width)
        gradient = np.empty((n, len(columns)))
        step = _rows_per_block(len(Y))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            weighted = self._slope(q[rows])
            weighted *= weights[rows]
            for place, column in enumerate(columns):
                x = X[rows, column]
                y = Y[:, column]
                differences = np.subtract.outer(x, y)
                sums = np.einsum("ij,ij->i", weighted, differences)
                factor = 2.0 * self.variance / scales[column] ** 2
                gradient[rows, place] = factor * sums
        return gradient
