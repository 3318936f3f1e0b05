"""The forgetting kernel of drifting rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.registry import register

from .base import FIXED, Bounds, Gradients
from .checks import set_positive
from .single_column import SingleColumn
from .state_space import StateSpace, exponential_decay


@register("kernel", "temporal")
@dataclass(frozen=True, kw_only=True)
class Temporal(SingleColumn):
    """k(x, y) = (1 − ε)^{|s − t|/2} for the times s, t in one column; 0 ≤ ε < 1.

    The forgetting factor of time-varying GP bandits. ``theta`` contains log ε, and the bounds keep ε
    below 1. ε = 0 means no drift and is not fitted: start a fit from a small positive value.

    Args:
        epsilon: ε: forgetting per unit of time; 0 means no drift.
        column: The column of ``X`` that contains times.
        epsilon_bounds: Limits between which ``epsilon`` is fitted, or "fixed".
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("epsilon",)

    epsilon: float = 0.01
    column: int = 0
    epsilon_bounds: Bounds = (1e-5, 0.99)

    def __post_init__(self) -> None:
        set_positive(self, "epsilon", or_zero=True)
        if self.epsilon >= 1.0:
            raise InputError(f"Temporal.epsilon must be below 1, got {self.epsilon}")
        bounds = self.epsilon_bounds
        if bounds != FIXED and max(bounds) >= 1.0:
            raise InputError(f"Temporal.epsilon_bounds must be below 1, got {bounds}")
        super().__post_init__()

    def forgetting(self, column: int) -> float:
        return self.epsilon if column == self.column else 0.0

    @property
    def _log_factor(self) -> float:
        """½ ln(1 − ε), the logarithm of k per unit of time."""
        factor: float = 0.5 * np.log1p(-self.epsilon)
        return factor

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        times = X[:, 0]
        other_times = times if Y is None else Y[:, 0]
        K = np.subtract.outer(times, other_times)
        np.abs(K, out=K)
        K *= self._log_factor
        return np.exp(K, out=K)

    def _diagonal(self, X: Floats) -> Floats:
        return np.ones(len(X))

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        # ∂K/∂log ε = −½ ε/(1 − ε) |s − t| K
        times = X[:, 0]
        elapsed = np.subtract.outer(times, times)
        np.abs(elapsed, out=elapsed)
        factor = -0.5 * self.epsilon / (1.0 - self.epsilon)
        along_epsilon = K * elapsed * factor
        return {"epsilon": [along_epsilon]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        times = X[:, 0]
        other_times = Y[:, 0]
        elapsed = np.subtract.outer(times, other_times)
        # The sign is 0 at equal times, where k has a kink.
        slope = np.sign(elapsed)
        slope *= self._covariance(X, Y)
        slope *= weights
        sums = slope.sum(axis=1)
        gradient = self._log_factor * sums
        count = len(columns)
        return np.repeat(gradient[:, None], count, axis=1)

    def _state_space(self, tolerance: float) -> StateSpace | None:
        rate = -float(self._log_factor)
        return exponential_decay(rate)
