"""The polynomial kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats
from superarm.core.inputs import as_count
from superarm.core.registry import register

from .base import Gradients
from .features import Box, FeatureMap, monomial_features
from .inner_product import InnerProduct


@register("kernel", "polynomial")
@dataclass(frozen=True, kw_only=True)
class Polynomial(InnerProduct):
    """k(x, y) = variance · (x·y + bias)^degree, bias ≥ 0; a bias of 0 is absent and not fitted.

    Args:
        degree: The power.
        variance: Multiplies the power.
        bias: Added to the inner product.
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        bias_bounds: Limits between which ``bias`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.
    """

    degree: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", as_count(self.degree, "Polynomial.degree"))
        super().__post_init__()

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        other = X if Y is None else Y
        K = X @ other.T
        K += self.bias
        K **= self.degree
        K *= self.variance
        return K

    def _diagonal(self, X: Floats) -> Floats:
        inner = np.einsum("ij,ij->i", X, X) + self.bias
        powers = np.asarray(inner**self.degree)
        return self.variance * powers

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        inner = X @ X.T
        inner += self.bias
        factor = self.variance * self.degree * self.bias
        exponent = self.degree - 1
        along_bias = factor * inner**exponent
        return {"variance": [K], "bias": [along_bias]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        slope = X @ Y.T
        slope += self.bias
        slope **= self.degree - 1
        slope *= weights
        factor = self.variance * self.degree
        return factor * (slope @ Y[:, columns])

    def _features(self, box: Box) -> FeatureMap | None:
        return monomial_features(box, self.degree, self.variance, self.bias)
