"""The base class of kernels that depend on the difference x − y only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from superarm.core import Floats
from superarm.core.caching import cached_property
from superarm.core.errors import ShapeError

from .base import DEFAULT_BOUNDS, Bounds, Kernel
from .checks import set_columns, set_positive
from .distances import Lengthscale


@dataclass(frozen=True, kw_only=True)
class Stationary(Kernel):
    """A kernel of x − y, with a variance, lengthscales and columns.

    Args:
        lengthscale: Distance over which the function changes: one number, or one per column.
        variance: Prior variance of the function values.
        lengthscale_bounds: Limits between which ``lengthscale`` is fitted, or "fixed".
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")

    lengthscale: Lengthscale = 1.0
    variance: float = 1.0
    lengthscale_bounds: Bounds = DEFAULT_BOUNDS
    variance_bounds: Bounds = DEFAULT_BOUNDS
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_positive(self, *self.hyperparameters, per_column=("lengthscale", "period"))
        set_columns(self)
        if self.columns is not None:
            self._check_width(len(self.columns), "columns")

    def forgetting(self, column: int) -> float:
        return 0.0

    def _select(self, X: Any, name: str) -> Floats:
        rows = super()._select(X, name)
        # With ``columns``, the width was checked when the kernel was created.
        if self.columns is None and self._by_column:
            self._check_width(rows.shape[1], name)
        return rows

    @cached_property
    def _by_column(self) -> bool:
        """Whether a hyper-parameter has one number for each column."""
        values = [self._value_of(name) for name in self.hyperparameters]
        return any(isinstance(value, tuple) for value in values)

    @property
    def constant_variance(self) -> float:
        return self.variance

    def _diagonal(self, X: Floats) -> Floats:
        return np.full(len(X), self.variance)

    def _check_width(self, width: int, name: str) -> None:
        for parameter in self.hyperparameters:
            value = self._value_of(parameter)
            if isinstance(value, tuple) and len(value) != width:
                raise ShapeError(
                    f"{type(self).__name__}.{parameter} has {len(value)} entries but {name} has "
                    f"{width} columns; give a single number, or one for each column"
                )
