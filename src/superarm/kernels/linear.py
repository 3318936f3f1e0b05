"""The linear kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .base import Gradients
from .features import Box, FeatureMap, monomial_features
from .inner_product import InnerProduct


@register("kernel", "linear")
@dataclass(frozen=True, kw_only=True)
class Linear(InnerProduct):
    """k(x, y) = variance · x·y + bias, bias ≥ 0; a bias of 0 is absent and not fitted.

    Args:
        variance: Prior variance of the weights of the features.
        bias: Prior variance of an added constant.
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        bias_bounds: Limits between which ``bias`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.
    """

    bias: float = 0.0

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        other = X if Y is None else Y
        K = X @ other.T
        K *= self.variance
        K += self.bias
        return K

    def _diagonal(self, X: Floats) -> Floats:
        squares: Floats = np.einsum("ij,ij->i", X, X)
        return self.variance * squares + self.bias

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        along_variance = K - self.bias
        along_bias = np.full_like(K, self.bias)
        return {"variance": [along_variance], "bias": [along_bias]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        sums = weights @ Y[:, columns]
        return self.variance * sums

    def _features(self, box: Box) -> FeatureMap | None:
        relative_bias = self.bias / self.variance
        return monomial_features(box, 1, self.variance, relative_bias)
