"""The product of kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .base import CovarianceGradient, Kernel
from .composite import Combination
from .features import Box, FeatureMap, pairs_fit, product_features
from .parts import (
    covariance_gradient,
    features_of_all,
    ignores,
    input_gradient_of,
    state_spaces_of,
)
from .state_space import StateSpace, multiply_states


@register("kernel", "product")
@dataclass(frozen=True, kw_only=True)
class Product(Combination):
    """k(x, y) = Π_i k_i(x, y); also written ``k1 * k2``.

    Args:
        kernels: The kernels to multiply.
    """

    _join = np.multiply

    def _join_rates(self, rates: list[float]) -> float:
        return 1.0 - math.prod(1.0 - rate for rate in rates)

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        parts = [covariance_gradient(part, X) for part in self.kernels]
        covariances = [part.covariance for part in parts]
        gradients: list[Floats] = []
        for i, part in enumerate(parts):
            # Multiplying the others, not dividing K by this part: it may be 0.
            others = covariances[:i] + covariances[i + 1 :]
            factor = _product(others, part.covariance.shape)
            gradients.append(factor[:, :, None] * part.gradient)
        K = np.prod(covariances, axis=0)
        return CovarianceGradient(K, np.concatenate(gradients, axis=2))

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        # ∂Πk = Σ_i (Π_{j≠i} k_j) ∂k_i: for part i, the other parts are weights.
        indices = range(len(self.kernels))
        moving = [i for i in indices if not ignores(self.kernels[i], columns)]
        if not all(isinstance(self.kernels[i], Kernel) for i in moving):
            return None
        # A part's values are factors of the derivatives of all others that move.
        needed = [j for j in indices if set(moving) - {j}]
        values = {j: np.asarray(self.kernels[j](X, Y)) for j in needed}
        total = np.zeros((len(X), len(columns)))
        for i in moving:
            part_weights = weights
            for j in needed:
                if j != i:
                    part_weights = part_weights * values[j]
            gradient = input_gradient_of(self.kernels[i], X, Y, part_weights, columns)
            if gradient is None:
                return None
            total += gradient
        return total

    def _features(self, box: Box) -> FeatureMap | None:
        count = len(self.kernels)
        share = box.tolerance / (2.0 * count)
        forms = features_of_all(self.kernels, box, [share] * count)
        if forms is None:
            return None
        # A part's error is multiplied by the size of the others: ask once more, for less error.
        sizes = [form.largest for form in forms]
        tolerances = []
        for i in range(count):
            others = float(np.prod(sizes[:i] + sizes[i + 1 :]))
            tolerances.append(share / max(1.0, others))
        forms = features_of_all(self.kernels, box, tolerances)
        if forms is None:
            return None
        product = forms[0]
        for i, form in enumerate(forms[1:], start=1):
            if not pairs_fit(product.rank * form.rank, box.max_rank):
                return None
            later = max(1.0, float(np.prod(sizes[i + 1 :])))
            product = product_features(product, form, share / later)
        return product

    def _state_space(self, tolerance: float) -> StateSpace | None:
        share = tolerance / (2.0 * len(self.kernels))
        parts = state_spaces_of(self.kernels, share)
        return None if parts is None else reduce(multiply_states, parts)


def _product(matrices: list[Floats], shape: tuple[int, ...]) -> Floats:
    """The product of matrices entry by entry, 1 where there is none."""
    return np.asarray(np.prod(matrices, axis=0)) if matrices else np.ones(shape)
