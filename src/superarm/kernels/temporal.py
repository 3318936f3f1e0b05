"""Kernels over time: how what is learned at one time carries to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats
from superarm.errors import InputError
from superarm.inputs import as_count
from superarm.registry import register

from .base import Bounds, Kernel, set_positive
from .state_space import StateSpace, decaying


@register("kernel", "temporal")
@dataclass(frozen=True, kw_only=True)
class Temporal(Kernel):
    """k(x, y) = (1 − ε)^{|s − t|/2} for the times s, t in one column; 0 ≤ ε < 1.

    The forgetting factor of time-varying GP bandits. ``theta`` holds log ε, like every other
    hyper-parameter, and the bounds keep ε below 1. ε = 0 is no drift and is not fitted: start a
    fit from a small positive value.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("epsilon",)

    epsilon: float = 0.01
    column: int = 0
    epsilon_bounds: Bounds = (1e-5, 0.99)

    def __post_init__(self) -> None:
        set_positive(self, "epsilon", or_zero=True)
        for name in ("epsilon", "epsilon_bounds"):
            value = getattr(self, name)
            if value != "fixed" and np.max(value) >= 1.0:
                raise InputError(f"Temporal.{name} is {value}; it must lie below 1")
        object.__setattr__(self, "column", as_count(self.column, f"{type(self).__name__}.column", 0))

    @property
    def columns(self) -> tuple[int, ...]:  # type: ignore[override]  # kernels are frozen
        return (self.column,)

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = np.subtract.outer(X[:, 0], (X if Y is None else Y)[:, 0])
        np.abs(K, out=K)
        K *= 0.5 * np.log1p(-self.epsilon)
        return np.exp(K, out=K)

    def _diagonal(self, X: Floats) -> Floats:
        return np.ones(len(X))

    def _state_space(self, tolerance: float) -> StateSpace | None:
        return decaying(-0.5 * float(np.log1p(-self.epsilon)))

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        apart = np.abs(np.subtract.outer(X[:, 0], X[:, 0]))
        return {"epsilon": [K * apart * (-0.5 * self.epsilon / (1.0 - self.epsilon))]}
