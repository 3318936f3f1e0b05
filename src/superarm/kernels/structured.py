"""Kernels with structure of their own: inner products, ids and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError, NotPositiveDefiniteError, ShapeError
from superarm.core.inputs import as_count, as_features, as_numbers
from superarm.core.registry import register

from .base import DEFAULT_BOUNDS, Bounds, Kernel, set_columns, set_positive
from .features import Box, FeatureMap, monomial_features, table_features
from .state_space import StateSpace, decaying

# --- inner products ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _InnerProduct(Kernel):
    """A function of x·y, with a variance and a bias ≥ 0; a bias of 0 is absent and not fitted.

    Args:
        variance: Prior variance of the function values.
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        bias_bounds: Limits between which ``bias`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel sees; ``None`` is all of them.
        bias: Added to the inner product.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("variance", "bias")

    variance: float = 1.0
    bias: float = 1.0
    variance_bounds: Bounds = DEFAULT_BOUNDS
    bias_bounds: Bounds = DEFAULT_BOUNDS
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_positive(self, "variance")
        set_positive(self, "bias", or_zero=True)
        set_columns(self)


@register("kernel", "linear")
@dataclass(frozen=True, kw_only=True)
class Linear(_InnerProduct):
    """k(x, y) = variance · x·y + bias, bias ≥ 0; a bias of 0 is absent and not fitted.

    Args:
        bias: Added to the inner product.
    """

    bias: float = 0.0

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = X @ (X if Y is None else Y).T
        K *= self.variance
        K += self.bias
        return K

    def _diagonal(self, X: Floats) -> Floats:
        diagonal: Floats = np.einsum("ij,ij->i", X, X)
        return self.variance * diagonal + self.bias

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        return {"variance": [K - self.bias], "bias": [np.full_like(K, self.bias)]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        return self.variance * (weights @ Y[:, columns])

    def _features(self, box: Box) -> FeatureMap | None:
        return monomial_features(box, 1, self.variance, self.bias / self.variance)


@register("kernel", "polynomial")
@dataclass(frozen=True, kw_only=True)
class Polynomial(_InnerProduct):
    """k(x, y) = variance · (x·y + bias)^degree, bias ≥ 0; a bias of 0 is absent and not fitted.

    Args:
        degree: The power.
    """

    degree: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", as_count(self.degree, "Polynomial.degree"))
        super().__post_init__()

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = X @ (X if Y is None else Y).T
        K += self.bias
        K **= self.degree
        K *= self.variance
        return K

    def _diagonal(self, X: Floats) -> Floats:
        diagonal = np.einsum("ij,ij->i", X, X) + self.bias
        return self.variance * np.asarray(diagonal**self.degree)

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        inner = X @ X.T
        inner += self.bias
        along_bias = (self.variance * self.degree * self.bias) * inner ** (
            self.degree - 1
        )
        return {"variance": [K], "bias": [along_bias]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        slope = X @ Y.T
        slope += self.bias
        slope **= self.degree - 1
        slope *= weights
        return (self.variance * self.degree) * (slope @ Y[:, columns])

    def _features(self, box: Box) -> FeatureMap | None:
        return monomial_features(box, self.degree, self.variance, self.bias)


@register("kernel", "constant")
@dataclass(frozen=True, kw_only=True)
class Constant(Kernel):
    """k(x, y) = variance: a level shared by all arms.

    Args:
        variance: Prior variance of the function values.
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("variance",)

    variance: float = 1.0
    variance_bounds: Bounds = DEFAULT_BOUNDS

    def __post_init__(self) -> None:
        set_positive(self, "variance")

    def forgetting(self, column: int) -> float:
        return 0.0

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        return np.full((len(X), len(X if Y is None else Y)), self.variance)

    def _diagonal(self, X: Floats) -> Floats:
        return np.full(len(X), self.variance)

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        return {"variance": [K]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        return np.zeros((len(X), len(columns)))

    def _features(self, box: Box) -> FeatureMap | None:
        return monomial_features(
            box, 0, self.variance, 0.0
        )  # (x·y)⁰, the monomial of degree 0

    def _state_space(self, tolerance: float) -> StateSpace | None:
        return decaying(0.0, self.variance)


# --- ids and times -----------------------------------------------------------------------


class _OfColumn(Kernel):
    """A kernel that looks at one column."""

    column: int

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "column", as_count(self.column, f"{type(self).__name__}.column", 0)
        )

    @property
    def columns(self) -> tuple[int, ...]:  # type: ignore[override]  # kernels are frozen
        return (self.column,)


@register("kernel", "empirical")
@dataclass(frozen=True, kw_only=True, eq=False)
class Empirical(_OfColumn):
    """k(x, y) = covariance[x_column, y_column]: a given covariance over ids 0 … n−1.

    The matrix must be symmetric and positive semi-definite, both up to 1e-8 of its largest
    entry; it is kept as its symmetric part, read-only. There is nothing to fit.

    Args:
        covariance: The covariance matrix over all ids.
        column: The column of the features to look at.
    """

    covariance: Floats
    column: int = 0

    def __post_init__(self) -> None:
        matrix = as_features(self.covariance, "Empirical.covariance")
        if matrix.shape[0] != matrix.shape[1] or len(matrix) == 0:
            raise ShapeError(
                f"Empirical.covariance has shape {matrix.shape}; it must be square"
            )
        slack = 1e-8 * float(np.abs(matrix).max())
        if (gap := np.abs(matrix - matrix.T)).max() > slack:
            i, j = (int(k) for k in np.unravel_index(int(gap.argmax()), gap.shape))
            told = f"[{i}, {j}] is {matrix[i, j]:g} but [{j}, {i}] is {matrix[j, i]:g}"
            raise InputError(f"Empirical.covariance is not symmetric: {told}")
        matrix = 0.5 * (matrix + matrix.T)
        if (smallest := float(np.linalg.eigvalsh(matrix)[0])) < -slack:
            raise NotPositiveDefiniteError(
                f"Empirical.covariance has the eigenvalue {smallest:.3g}, so it is not a covariance; "
                "project it first (set negative eigenvalues to 0) or use more samples"
            )
        matrix.flags.writeable = False
        object.__setattr__(self, "covariance", matrix)
        super().__post_init__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Empirical) or self.column != other.column:
            return False
        return np.array_equal(self.covariance, other.covariance)

    def __hash__(self) -> int:
        return hash((self.column, self.covariance.tobytes()))

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        rows = self._ids(X)
        return self.covariance[np.ix_(rows, rows if Y is None else self._ids(Y))]

    def _diagonal(self, X: Floats) -> Floats:
        rows = self._ids(X)
        return self.covariance[rows, rows]

    def _ids(self, X: Floats) -> Ints:
        return as_numbers(
            X[:, 0], len(self.covariance), "the ids of this table", self.column
        )

    def _features(self, box: Box) -> FeatureMap | None:
        return table_features(box, self.covariance)


@register("kernel", "temporal")
@dataclass(frozen=True, kw_only=True)
class Temporal(_OfColumn):
    """k(x, y) = (1 − ε)^{|s − t|/2} for the times s, t in one column; 0 ≤ ε < 1.

    The forgetting factor of time-varying GP bandits. ``theta`` holds log ε, like every other
    hyper-parameter, and the bounds keep ε below 1. ε = 0 is no drift and is not fitted: start a
    fit from a small positive value.

    Args:
        epsilon: Forgetting per unit of time; 0 is no drift.
        column: The column of the features to look at.
        epsilon_bounds: Limits between which ``epsilon`` is fitted, or "fixed".
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
        super().__post_init__()

    def forgetting(self, column: int) -> float:
        return self.epsilon if column == self.column else 0.0

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

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        slope = np.sign(
            np.subtract.outer(X[:, 0], Y[:, 0])
        )  # 0 at equal times, where there is a kink
        slope *= self._covariance(X, Y)
        slope *= weights
        along = (0.5 * np.log1p(-self.epsilon)) * slope.sum(axis=1)
        return np.repeat(along[:, None], len(columns), axis=1)
