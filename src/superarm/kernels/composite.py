"""Kernels made of kernels: sums, products, scalings and choices of columns.

The parts may be any :class:`~superarm.core.Covariance`, scikit-learn's kernels included.
Write ``ours + theirs``, ours first: scikit-learn's own ``+`` treats any other object on its
right as a number.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, cast

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError
from superarm.core.registry import register

from .base import (
    DEFAULT_BOUNDS,
    Bounds,
    CovarianceGradient,
    Kernel,
    TunableCovariance,
    as_covariance,
    set_columns,
    set_positive,
)
from .features import Box, FeatureMap, product_features, sum_features
from .state_space import StateSpace, added, multiplied


class _Composite(Kernel):
    """Hyper-parameters of the parts, one after the other, after the kernel's own."""

    @property
    @abstractmethod
    def _parts(self) -> tuple[Covariance, ...]: ...

    @property
    def theta(self) -> Floats:
        return np.concatenate([super().theta, *(_theta(part) for part in self._parts)])

    @property
    def bounds(self) -> Floats:
        return np.concatenate(
            [super().bounds, *(_bounds(part) for part in self._parts)]
        )

    def _changes(self, theta: Floats) -> dict[str, Any]:
        parts, rest = [], theta[len(super().theta) :]
        for part in self._parts:
            own, rest = np.split(rest, [len(_theta(part))])
            tuned = isinstance(part, TunableCovariance)
            parts.append(cast(Any, part).clone_with_theta(own) if tuned else part)
        return {**super()._changes(theta), **self._with_parts(tuple(parts))}

    @abstractmethod
    def _with_parts(self, parts: tuple[Covariance, ...]) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class _OfOne(_Composite):
    """Another kernel, changed.

    Args:
        kernel: The kernel.
    """

    kernel: Covariance

    def __post_init__(self) -> None:
        as_covariance(self.kernel, f"{type(self).__name__}.kernel")

    @property
    def _parts(self) -> tuple[Covariance, ...]:
        return (self.kernel,)

    def _with_parts(self, parts: tuple[Covariance, ...]) -> dict[str, Any]:
        return {"kernel": parts[0]}

    def forgetting(self, column: int) -> float | None:
        return _forgetting(self.kernel, column)


@dataclass(frozen=True, kw_only=True)
class _OfSeveral(_Composite):
    """Kernels of equal standing, joined by an operation.

    Args:
        kernels: The kernels to combine.
    """

    _join: ClassVar[np.ufunc]

    kernels: tuple[Covariance, ...]

    def __post_init__(self) -> None:
        given: Any = self.kernels
        if not isinstance(given, list | tuple):
            raise InputError(
                f"{type(self).__name__}.kernels is {given!r:.60}; give a list of kernels"
            )
        object.__setattr__(self, "kernels", tuple(given))
        if not self.kernels:
            raise InputError(
                f"{type(self).__name__}.kernels is empty; give at least one kernel"
            )
        for at, part in enumerate(self.kernels):
            as_covariance(part, f"{type(self).__name__}.kernels[{at}]")

    @property
    def _parts(self) -> tuple[Covariance, ...]:
        return self.kernels

    def _with_parts(self, parts: tuple[Covariance, ...]) -> dict[str, Any]:
        return {"kernels": parts}

    def forgetting(self, column: int) -> float | None:
        rates = [
            rate
            for part in self.kernels
            if (rate := _forgetting(part, column)) is not None
        ]
        if len(rates) < len(self.kernels):
            return None
        return (
            min(rates)
            if self._join is np.add
            else 1.0 - math.prod(1.0 - rate for rate in rates)
        )

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = _fresh(self.kernels[0], X, Y)
        for part in self.kernels[1:]:
            self._join(K, part(X, Y), out=K)
        return K

    def _diagonal(self, X: Floats) -> Floats:
        return np.asarray(self._join.reduce([part.diag(X) for part in self.kernels]))


@register("kernel", "sum")
@dataclass(frozen=True, kw_only=True)
class Sum(_OfSeveral):
    """k(x, y) = Σ_i k_i(x, y); also written ``k1 + k2``."""

    _join = np.add

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        parts = [_evaluate(part, X) for part in self.kernels]
        K = np.sum([part.covariance for part in parts], axis=0)
        return CovarianceGradient(
            K, np.concatenate([part.gradient for part in parts], axis=2)
        )

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        total = np.zeros((len(X), len(columns)))
        for part in self.kernels:
            if _ignores(part, columns):
                continue
            gradient = _input_gradient(part, X, Y, weights, columns)
            if gradient is None:
                return None
            total += gradient
        return total

    def _features(self, box: Box) -> FeatureMap | None:
        share = box.tolerance / len(self.kernels)
        forms = _forms(self.kernels, box, [share] * len(self.kernels))
        return None if forms is None else sum_features(forms)

    def _state_space(self, tolerance: float) -> StateSpace | None:
        parts = _state_spaces(self.kernels, tolerance)
        return None if parts is None else added(parts)


@register("kernel", "product")
@dataclass(frozen=True, kw_only=True)
class Product(_OfSeveral):
    """k(x, y) = Π_i k_i(x, y); also written ``k1 * k2``."""

    _join = np.multiply

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        parts = [_evaluate(part, X) for part in self.kernels]
        pieces: list[Floats] = []
        for i, part in enumerate(parts):
            # Without dividing K by this part: parts may be 0.
            others = [other.covariance for j, other in enumerate(parts) if j != i]
            rest = np.prod(others, axis=0) if others else np.ones_like(part.covariance)
            pieces.append(rest[:, :, None] * part.gradient)
        K = np.prod([part.covariance for part in parts], axis=0)
        return CovarianceGradient(K, np.concatenate(pieces, axis=2))

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        # ∂Πk = Σ_i (Π_{j≠i} k_j) ∂k_i: to part i, the other parts are weights.
        moving = [
            i for i, part in enumerate(self.kernels) if not _ignores(part, columns)
        ]
        if not all(isinstance(self.kernels[i], Kernel) for i in moving):
            return None
        needed = [j for j in range(len(self.kernels)) if set(moving) - {j}]
        values = {j: np.asarray(self.kernels[j](X, Y)) for j in needed}
        total = np.zeros((len(X), len(columns)))
        for i in moving:
            scaled = weights
            for j in needed:
                if j != i:
                    scaled = scaled * values[j]
            gradient = _input_gradient(self.kernels[i], X, Y, scaled, columns)
            if gradient is None:
                return None
            total += gradient
        return total

    def _features(self, box: Box) -> FeatureMap | None:
        share = box.tolerance / (2.0 * len(self.kernels))
        forms = _forms(self.kernels, box, [share] * len(self.kernels))
        if forms is None:
            return None
        # A part's error is multiplied by the size of the others: ask again for that much less.
        sizes = [form.largest for form in forms]
        others = [float(np.prod(sizes[:i] + sizes[i + 1 :])) for i in range(len(sizes))]
        forms = _forms(self.kernels, box, [share / max(1.0, size) for size in others])
        if forms is None:
            return None
        product = forms[0]
        for i, form in enumerate(forms[1:], start=1):
            later = max(1.0, float(np.prod(sizes[i + 1 :])))
            if product.rank * form.rank > 100 * box.most + 10_000:
                return None
            product = product_features(product, form, share / later)
        return product

    def _state_space(self, tolerance: float) -> StateSpace | None:
        parts = _state_spaces(self.kernels, tolerance / (2.0 * len(self.kernels)))
        return None if parts is None else reduce(multiplied, parts)


@register("kernel", "scale")
@dataclass(frozen=True, kw_only=True)
class Scale(_OfOne):
    """factor · k(x, y); also written ``2.0 * k``, where the factor is then fixed.

    Args:
        factor: What the kernel is multiplied by.
        factor_bounds: Limits between which ``factor`` is fitted, or "fixed".
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("factor",)

    factor: float = 1.0
    factor_bounds: Bounds = DEFAULT_BOUNDS

    def __post_init__(self) -> None:
        super().__post_init__()
        set_positive(self, "factor")

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = _fresh(self.kernel, X, Y)
        K *= self.factor
        return K

    def _diagonal(self, X: Floats) -> Floats:
        return self.factor * self.kernel.diag(X)

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        inner = _evaluate(self.kernel, X)
        K = self.factor * inner.covariance
        own = [K[:, :, None]] if self._free() else []
        return CovarianceGradient(
            K, np.concatenate([*own, self.factor * inner.gradient], axis=2)
        )

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        gradient = _input_gradient(self.kernel, X, Y, weights, columns)
        return None if gradient is None else self.factor * gradient

    def _features(self, box: Box) -> FeatureMap | None:
        form = _form(self.kernel, box, box.tolerance / self.factor)
        return None if form is None else form.scaled(self.factor)

    def _state_space(self, tolerance: float) -> StateSpace | None:
        parts = _state_spaces((self.kernel,), tolerance)
        return None if parts is None else parts[0].scaled(self.factor)


@register("kernel", "columns")
@dataclass(frozen=True, kw_only=True)
class Columns(_OfOne):
    """A kernel (ours or any other) that sees only some columns of ``X``, in this order.

    Args:
        columns: The columns that the kernel sees.
    """

    columns: tuple[int, ...] = (
        field()
    )  # required: without a field, Kernel's own would be the default

    def __post_init__(self) -> None:
        super().__post_init__()
        set_columns(self)

    def forgetting(self, column: int) -> float | None:
        if column not in self.columns:
            return 0.0
        return _forgetting(self.kernel, self.columns.index(column))

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        return _fresh(self.kernel, X, Y)

    def _diagonal(self, X: Floats) -> Floats:
        return self.kernel.diag(X)

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        return _evaluate(self.kernel, X)

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        return _input_gradient(self.kernel, X, Y, weights, columns)

    def _features(self, box: Box) -> FeatureMap | None:
        return _form(self.kernel, box, box.tolerance)


# --- what a part may or may not have -----------------------------------------------------


def _theta(kernel: Covariance) -> Floats:
    return kernel.theta if isinstance(kernel, TunableCovariance) else np.empty(0)


def _bounds(kernel: Covariance) -> Floats:
    bounds = kernel.bounds if isinstance(kernel, TunableCovariance) else np.empty(0)
    return np.reshape(bounds, (-1, 2))


def _evaluate(kernel: Covariance, X: Floats) -> CovarianceGradient:
    if isinstance(kernel, TunableCovariance):
        return CovarianceGradient(*kernel(X, eval_gradient=True))
    return CovarianceGradient(kernel(X), np.empty((len(X), len(X), 0)))


def _fresh(kernel: Covariance, X: Floats, Y: Floats | None) -> Floats:
    """A matrix that may be overwritten: a foreign kernel may hand out one that it keeps."""
    K = kernel(X, Y)
    return K if isinstance(kernel, Kernel) else np.array(K, dtype=np.float64)


def _input_gradient(
    kernel: Covariance, X: Floats, Y: Floats, weights: Floats, columns: list[int]
) -> Floats | None:
    """That of one of our own kernels; a foreign one states no derivative."""
    if not isinstance(kernel, Kernel):
        return None
    return kernel.input_gradient(X, Y, weights, columns)


def _ignores(kernel: Covariance, columns: list[int]) -> bool:
    """Whether the kernel is known to see none of these columns."""
    if not isinstance(kernel, Kernel) or kernel.columns is None:
        return False
    return not set(columns) & set(kernel.columns)


def _forgetting(kernel: Covariance, column: int) -> float | None:
    return kernel.forgetting(column) if isinstance(kernel, Kernel) else None


def _form(kernel: Covariance, box: Box, tolerance: float) -> FeatureMap | None:
    if not isinstance(kernel, Kernel):
        return None
    return kernel.features(box.lower, box.upper, tolerance, box.most)


def _forms(
    kernels: Sequence[Covariance], box: Box, tolerances: Sequence[float]
) -> list[FeatureMap] | None:
    """The finite-rank forms of all kernels, or ``None`` if one has none."""
    forms = []
    for kernel, tolerance in zip(kernels, tolerances, strict=True):
        if (form := _form(kernel, box, tolerance)) is None:
            return None
        forms.append(form)
    return forms


def _state_spaces(
    kernels: Sequence[Covariance], tolerance: float
) -> list[StateSpace] | None:
    """Those of all kernels, or ``None`` if one has none."""
    found = [
        part._state_space(tolerance) if isinstance(part, Kernel) else None
        for part in kernels
    ]
    return None if None in found else cast(list[StateSpace], found)
