"""The periodic kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.registry import register

from .base import DEFAULT_BOUNDS, Bounds, Gradients
from .distances import Lengthscale
from .state_space import StateSpace, periodic
from .stationary import Stationary


class _Column(NamedTuple):
    period: float
    lengthscale: float


@register("kernel", "periodic")
@dataclass(frozen=True, kw_only=True)
class Periodic(Stationary):
    """k(x, y) = variance · exp(−2 Σ_j sin²(π (x_j − y_j)/p_j) / l_j²).

    With several columns, this is the product of one periodic kernel per column.

    Args:
        period: p: one number, or one per column.
        lengthscale: l, relative to the period; one number, or one per column.
        variance: Prior variance of the function values.
        period_bounds: Limits between which ``period`` is fitted, or "fixed".
        lengthscale_bounds: Limits between which ``lengthscale`` is fitted, or "fixed".
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("period", "lengthscale", "variance")

    period: Lengthscale = 1.0
    period_bounds: Bounds = DEFAULT_BOUNDS

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        other = X if Y is None else Y
        exponent = np.zeros((len(X), len(other)))
        per_column = self._per_column(X.shape[1])
        for j, (period, scale) in enumerate(per_column):
            x = X[:, j]
            y = other[:, j]
            phase = _phase(x, y, period)
            sine = np.sin(np.pi * phase)
            factor = 2.0 / scale**2
            exponent -= np.square(sine) * factor
        K = np.exp(exponent, out=exponent)
        K *= self.variance
        return K

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        along_period: list[Floats] = []  # one (n, n) array per column
        along_scale: list[Floats] = []
        per_column = self._per_column(X.shape[1])
        for j, (period, scale) in enumerate(per_column):
            x = X[:, j]
            squared_scale = scale**2
            phase = _phase(x, x, period)
            cycles = np.subtract.outer(x, x) / period
            # ∂K/∂log p = K · 2π/l² · sin(2π (x − y)/p) · (x − y)/p
            double_sine = np.sin(2.0 * np.pi * phase)
            period_factor = 2.0 * np.pi / squared_scale
            period_gradient = K * double_sine * cycles * period_factor
            along_period.append(period_gradient)
            # ∂K/∂log l = K · 4/l² · sin²(π (x − y)/p)
            sine = np.sin(np.pi * phase)
            scale_factor = 4.0 / squared_scale
            scale_gradient = K * np.square(sine) * scale_factor
            along_scale.append(scale_gradient)
        # A number that all columns share changes K through all of them.
        if not isinstance(self.period, tuple):
            along_period = [_total(along_period, K)]
        if not isinstance(self.lengthscale, tuple):
            along_scale = [_total(along_scale, K)]
        return {"period": along_period, "lengthscale": along_scale, "variance": [K]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        # d/dx of −2 sin²(π x/p)/l² is −2π/(p l²) sin(2π x/p).
        weighted = self._covariance(X, Y)
        weighted *= weights
        per_column = self._per_column(X.shape[1])
        gradient = np.empty((len(X), len(columns)))
        for place, column in enumerate(columns):
            period, scale = per_column[column]
            x = X[:, column]
            y = Y[:, column]
            phase = _phase(x, y, period)
            double_sine = np.sin(2.0 * np.pi * phase)
            sums = np.einsum("ij,ij->i", weighted, double_sine)
            factor = -2.0 * np.pi / (period * scale**2)
            gradient[:, place] = factor * sums
        return gradient

    def _state_space(self, tolerance: float) -> StateSpace | None:
        period = self.period
        lengthscale = self.lengthscale
        if isinstance(period, tuple) or isinstance(lengthscale, tuple):
            return None
        return periodic(period, lengthscale, self.variance, tolerance)

    def _per_column(self, width: int) -> list[_Column]:
        """Period and lengthscale of every column."""
        periods = np.broadcast_to(self.period, width)
        lengthscales = np.broadcast_to(self.lengthscale, width)
        columns = map(_Column, periods, lengthscales)
        return list(columns)


def _phase(x: Floats, y: Floats, period: float) -> Floats:
    """(x − y)/period less full periods, in [−½, ½]: sines stay precise after many periods."""
    cycles = np.subtract.outer(x, y)
    cycles /= period
    cycles -= np.rint(cycles)
    return cycles


def _total(layers: list[Floats], K: Floats) -> Floats:
    """The sum of (n, n) arrays, 0 where there is none."""
    if not layers:
        return np.zeros_like(K)
    return np.asarray(np.sum(layers, axis=0))
