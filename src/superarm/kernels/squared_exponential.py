"""The squared exponential kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .chebyshev import gaussian_features
from .distances import near_exponent, scaled_distances
from .features import Box, FeatureMap
from .radial import Radial, exp_half

# n·m·d up to which differences cost no more than :func:`near_exponent`.
_FEW_TERMS = 2**19


@register("kernel", "squared-exponential")
@dataclass(frozen=True, kw_only=True)
class SquaredExponential(Radial):
    """k(x, y) = variance · exp(−q/2), q = Σ_j (x_j − y_j)²/l_j².

    It is the only stationary kernel with a finite-rank form, see :meth:`features`.

    Args:
        lengthscale: l: distance over which the function changes; one number, or one per column.
        variance: Prior variance of the function values.
        lengthscale_bounds: Limits between which ``lengthscale`` is fitted, or "fixed".
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.

    >>> SquaredExponential(lengthscale=0.5)([[0.0], [0.5]]).round(4).tolist()
    [[1.0, 0.6065], [0.6065, 1.0]]
    """

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = self._exponent(X, Y)
        if K is None:
            return super()._covariance(X, Y)
        np.exp(K, out=K)
        if self.variance != 1.0:
            K *= self.variance
        return K

    def _exponent(self, X: Floats, Y: Floats | None) -> Floats | None:
        """−q/2 by the faster of two ways, or ``None`` where neither is precise."""
        if isinstance(self.lengthscale, tuple):
            if Y is None:
                return None
            return near_exponent(X, Y, self.lengthscale)
        factor = -0.5 / self.lengthscale**2
        if Y is None:
            return scaled_distances(X, X, factor)
        if X.size * len(Y) <= _FEW_TERMS:
            return scaled_distances(X, Y, factor)
        return near_exponent(X, Y, self.lengthscale)

    def _profile(self, q: Floats) -> Floats:
        return exp_half(q)

    def _slope(self, q: Floats) -> Floats:
        return -0.5 * exp_half(q.copy())

    def _features(self, box: Box) -> FeatureMap | None:
        scales = np.broadcast_to(self.lengthscale, box.lower.shape)
        return gaussian_features(box, scales, self.variance)
