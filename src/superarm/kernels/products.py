"""The product of kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

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

T = TypeVar("T")


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
            others = _without(covariances, i)
            factor = _product(others, part.covariance.shape)
            gradient = factor[:, :, None] * part.gradient
            gradients.append(gradient)
        K = np.prod(covariances, axis=0)
        joined = np.concatenate(gradients, axis=2)
        return CovarianceGradient(K, joined)

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        # ∂Πk = Σ_i (Π_{j≠i} k_j) ∂k_i: for part i, the other parts are weights.
        moving: list[int] = []
        for i, part in enumerate(self.kernels):
            if ignores(part, columns):
                continue
            if not isinstance(part, Kernel):
                return None
            moving.append(i)
        values = self._factors_of_derivatives(X, Y, moving)
        total = np.zeros((len(X), len(columns)))
        for i in moving:
            part_weights = weights
            for j, covariance in values.items():
                if j != i:
                    part_weights = part_weights * covariance
            part = self.kernels[i]
            gradient = input_gradient_of(part, X, Y, part_weights, columns)
            if gradient is None:
                return None
            total += gradient
        return total

    def _factors_of_derivatives(
        self, X: Floats, Y: Floats, moving: list[int]
    ) -> dict[int, Floats]:
        """K(X, Y) of the parts that multiply a moving part's derivative, by their numbers."""
        values = {}
        for j, part in enumerate(self.kernels):
            others_move = set(moving) - {j}
            if others_move:
                covariance = part(X, Y)
                values[j] = np.asarray(covariance)
        return values

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
            others = _without(sizes, i)
            factor = float(np.prod(others))
            tolerances.append(share / max(1.0, factor))
        forms = features_of_all(self.kernels, box, tolerances)
        if forms is None:
            return None
        product = forms[0]
        for i in range(1, count):
            form = forms[i]
            pairs = product.rank * form.rank
            if not pairs_fit(pairs, box.max_rank):
                return None
            later = sizes[i + 1 :]
            factor = float(np.prod(later))
            budget = share / max(1.0, factor)
            product = product_features(product, form, budget)
        return product

    def _state_space(self, tolerance: float) -> StateSpace | None:
        share = tolerance / (2.0 * len(self.kernels))
        parts = state_spaces_of(self.kernels, share)
        if parts is None:
            return None
        return reduce(multiply_states, parts)


def _without(items: list[T], position: int) -> list[T]:
    """All items but one."""
    before = items[:position]
    after = items[position + 1 :]
    return before + after


def _product(matrices: list[Floats], shape: tuple[int, ...]) -> Floats:
    """The product of matrices entry by entry, 1 where there is none."""
    if not matrices:
        return np.ones(shape)
    return np.asarray(np.prod(matrices, axis=0))
