"""A kernel times a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .base import DEFAULT_BOUNDS, Bounds, CovarianceGradient
from .checks import set_positive
from .composite import Wrapper
from .features import Box, FeatureMap
from .parts import (
    covariance_gradient,
    features_of,
    input_gradient_of,
    state_spaces_of,
    writable_covariance,
)
from .state_space import StateSpace


@register("kernel", "scale")
@dataclass(frozen=True, kw_only=True)
class Scale(Wrapper):
    """factor · k(x, y); also written ``2.0 * k``, which fixes the factor.

    Args:
        kernel: The kernel to multiply.
        factor: The number that multiplies the kernel.
        factor_bounds: Limits between which ``factor`` is fitted, or "fixed".
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("factor",)

    factor: float = 1.0
    factor_bounds: Bounds = DEFAULT_BOUNDS

    def __post_init__(self) -> None:
        super().__post_init__()
        set_positive(self, "factor")

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = writable_covariance(self.kernel, X, Y)
        K *= self.factor
        return K

    def _diagonal(self, X: Floats) -> Floats:
        return self.factor * self.kernel.diag(X)

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        inner = covariance_gradient(self.kernel, X)
        K = self.factor * inner.covariance
        gradient = self.factor * inner.gradient
        if self._free():
            along_factor = K[:, :, None]  # ∂K/∂log factor
            gradient = np.concatenate([along_factor, gradient], axis=2)
        return CovarianceGradient(K, gradient)

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        gradient = input_gradient_of(self.kernel, X, Y, weights, columns)
        if gradient is None:
            return None
        return self.factor * gradient

    def _features(self, box: Box) -> FeatureMap | None:
        tolerance = box.tolerance / self.factor
        form = features_of(self.kernel, box, tolerance)
        if form is None:
            return None
        return form.scaled(self.factor)

    def _state_space(self, tolerance: float) -> StateSpace | None:
        forms = state_spaces_of([self.kernel], tolerance)
        if forms is None:
            return None
        (form,) = forms
        return form.scaled(self.factor)
