"""The rational quadratic kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .base import DEFAULT_BOUNDS, Bounds, Gradients
from .distances import scaled_squared_distances
from .radial import Radial


@register("kernel", "rational-quadratic")
@dataclass(frozen=True, kw_only=True)
class RationalQuadratic(Radial):
    """k(x, y) = variance · (1 + q/(2α))^{−α}, q = Σ_j (x_j − y_j)²/l_j².

    It is a mixture of squared exponentials over lengthscales.

    Args:
        alpha: α: how fast similarity falls off at large distances; large values approach the
            squared exponential.
        lengthscale: l: distance over which the function changes; one number, or one per column.
        variance: Prior variance of the function values.
        alpha_bounds: Limits between which ``alpha`` is fitted, or "fixed".
        lengthscale_bounds: Limits between which ``lengthscale`` is fitted, or "fixed".
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("alpha", "lengthscale", "variance")

    alpha: float = 1.0
    alpha_bounds: Bounds = DEFAULT_BOUNDS

    def _profile(self, q: Floats) -> Floats:
        q *= 0.5 / self.alpha
        np.log1p(q, out=q)
        q *= -self.alpha
        return np.exp(q, out=q)

    def _slope(self, q: Floats) -> Floats:
        # f'(q) = −½ (1 + q/(2α))^{−α−1}
        u = q * (0.5 / self.alpha)
        exponent = -self.alpha - 1.0
        powers = np.exp(exponent * np.log1p(u))
        return -0.5 * powers

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        # ∂K/∂log α = α K (u/(1 + u) − ln(1 + u)) with u = q/(2α).
        alpha = self.alpha
        q = scaled_squared_distances(X, None, self.lengthscale)
        u = q * (0.5 / alpha)
        slope = u / (1.0 + u) - np.log1p(u)
        along_alpha = alpha * K * slope
        others = super()._gradients(X, K)
        return {**others, "alpha": [along_alpha]}
