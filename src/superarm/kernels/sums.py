"""The sum of kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .base import CovarianceGradient
from .composite import Combination
from .features import Box, FeatureMap, sum_features
from .parts import (
    covariance_gradient,
    features_of_all,
    ignores,
    input_gradient_of,
    state_spaces_of,
)
from .state_space import StateSpace, add_states


@register("kernel", "sum")
@dataclass(frozen=True, kw_only=True)
class Sum(Combination):
    """k(x, y) = Σ_i k_i(x, y); also written ``k1 + k2``.

    Args:
        kernels: The kernels to add.
    """

    _join = np.add

    def _join_rates(self, rates: list[float]) -> float:
        return min(rates)

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        parts = [covariance_gradient(part, X) for part in self.kernels]
        covariances = [part.covariance for part in parts]
        gradients = [part.gradient for part in parts]
        K = np.sum(covariances, axis=0)
        gradient = np.concatenate(gradients, axis=2)
        return CovarianceGradient(K, gradient)

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        total = np.zeros((len(X), len(columns)))
        for part in self.kernels:
            if ignores(part, columns):
                continue
            gradient = input_gradient_of(part, X, Y, weights, columns)
            if gradient is None:
                return None
            total += gradient
        return total

    def _features(self, box: Box) -> FeatureMap | None:
        count = len(self.kernels)
        share = box.tolerance / count
        forms = features_of_all(self.kernels, box, [share] * count)
        if forms is None:
            return None
        return sum_features(forms)

    def _state_space(self, tolerance: float) -> StateSpace | None:
        parts = state_spaces_of(self.kernels, tolerance)
        if parts is None:
            return None
        return add_states(parts)
