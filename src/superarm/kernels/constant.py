"""The constant kernel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .base import DEFAULT_BOUNDS, Bounds, Gradients, Kernel
from .checks import set_positive
from .features import Box, FeatureMap, monomial_features
from .state_space import StateSpace, exponential_decay


@register("kernel", "constant")
@dataclass(frozen=True, kw_only=True)
class Constant(Kernel):
    """k(x, y) = variance: a level shared by all arms.

    Args:
        variance: Prior variance of the level.
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("variance",)

    variance: float = 1.0
    variance_bounds: Bounds = DEFAULT_BOUNDS

    def __post_init__(self) -> None:
        set_positive(self, "variance")

    def forgetting(self, column: int) -> float:
        return 0.0

    def _ignores(self, columns: Collection[int]) -> bool:
        return True

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        other = X if Y is None else Y
        return np.full((len(X), len(other)), self.variance)

    def _diagonal(self, X: Floats) -> Floats:
        return np.full(len(X), self.variance)

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        return {"variance": [K]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        return np.zeros((len(X), len(columns)))

    def _features(self, box: Box) -> FeatureMap | None:
        # (x·y)⁰, the monomial of degree 0.
        return monomial_features(box, 0, self.variance, 0.0)

    def _state_space(self, tolerance: float) -> StateSpace | None:
        return exponential_decay(0.0, self.variance)
