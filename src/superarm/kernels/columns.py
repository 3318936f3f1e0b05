"""A kernel of some columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from superarm.core import Floats
from superarm.core.registry import register

from .base import CovarianceGradient
from .checks import set_columns
from .composite import Wrapper
from .features import Box, FeatureMap
from .parts import (
    covariance_gradient,
    features_of,
    forgetting_of,
    input_gradient_of,
    writable_covariance,
)


@register("kernel", "columns")
@dataclass(frozen=True, kw_only=True)
class Columns(Wrapper):
    """A kernel (ours or any other) that uses only some columns of ``X``, in this order.

    Args:
        kernel: The kernel.
        columns: The columns that the kernel uses, counted from 0.
    """

    # Required: without ``field()``, the attribute of Kernel would become its default.
    columns: tuple[int, ...] = field()

    def __post_init__(self) -> None:
        super().__post_init__()
        set_columns(self)

    def forgetting(self, column: int) -> float | None:
        if column not in self.columns:
            return 0.0
        position = self.columns.index(column)
        return forgetting_of(self.kernel, position)

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        return writable_covariance(self.kernel, X, Y)

    def _diagonal(self, X: Floats) -> Floats:
        return self.kernel.diag(X)

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        return covariance_gradient(self.kernel, X)

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        return input_gradient_of(self.kernel, X, Y, weights, columns)

    def _features(self, box: Box) -> FeatureMap | None:
        return features_of(self.kernel, box, box.tolerance)
