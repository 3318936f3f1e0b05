"""Base classes of kernels that are built from other kernels.

The parts may be any :class:`~superarm.core.Covariance`, scikit-learn's kernels included. Write
``ours + theirs``, ours first: scikit-learn's own ``+`` treats any other object on its right as a
number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError

from .base import Kernel, TunableCovariance, as_covariance
from .constant import Constant
from .parts import bounds_of, forgetting_of, ignores, theta_of, writable_covariance


class Composite(Kernel):
    """A kernel whose ``theta`` lists its own hyper-parameters, then those of its parts."""

    @property
    @abstractmethod
    def _parts(self) -> tuple[Covariance, ...]: ...

    def _ignores(self, columns: Collection[int]) -> bool:
        if self.columns is not None:
            return super()._ignores(columns)
        return all(ignores(part, columns) for part in self._parts)

    @abstractmethod
    def _with_parts(self, parts: tuple[Covariance, ...]) -> dict[str, Any]:
        """The fields of the same kernel with other parts."""

    @property
    def theta(self) -> Floats:
        own_theta = super().theta
        part_thetas = [theta_of(part) for part in self._parts]
        return np.concatenate([own_theta, *part_thetas])

    @property
    def bounds(self) -> Floats:
        own_bounds = super().bounds
        part_bounds = [bounds_of(part) for part in self._parts]
        return np.concatenate([own_bounds, *part_bounds])

    def _changes(self, theta: Floats) -> dict[str, Any]:
        parts: list[Covariance] = []
        start = len(super().theta)
        for part in self._parts:
            stop = start + len(theta_of(part))
            if isinstance(part, TunableCovariance):
                tunable: Any = part
                clone = tunable.clone_with_theta(theta[start:stop])
                parts.append(clone)
            else:
                parts.append(part)
            start = stop
        changes = super()._changes(theta)
        changes.update(self._with_parts(tuple(parts)))
        return changes


@dataclass(frozen=True, kw_only=True)
class Wrapper(Composite):
    """Another kernel, modified.

    Args:
        kernel: The kernel to modify.
    """

    kernel: Covariance

    def __post_init__(self) -> None:
        as_covariance(self.kernel, f"{type(self).__name__}.kernel")

    @property
    def _parts(self) -> tuple[Covariance, ...]:
        return (self.kernel,)

    def _with_parts(self, parts: tuple[Covariance, ...]) -> dict[str, Any]:
        (kernel,) = parts
        return {"kernel": kernel}

    def forgetting(self, column: int) -> float | None:
        return forgetting_of(self.kernel, column)


@dataclass(frozen=True, kw_only=True)
class Combination(Composite):
    """Several kernels, joined by an operation.

    Args:
        kernels: The kernels to combine.
    """

    _join: ClassVar[np.ufunc]

    kernels: tuple[Covariance, ...]

    def __post_init__(self) -> None:
        label = f"{type(self).__name__}.kernels"
        kernels: Any = self.kernels
        if not isinstance(kernels, list | tuple):
            raise InputError(f"{label} is {kernels!r:.60}; give a list of kernels")
        if not kernels:
            raise InputError(f"{label} is empty; give at least one kernel")
        object.__setattr__(self, "kernels", tuple(kernels))
        for i, part in enumerate(self.kernels):
            as_covariance(part, f"{label}[{i}]")

    @property
    def _parts(self) -> tuple[Covariance, ...]:
        return self.kernels

    def _with_parts(self, parts: tuple[Covariance, ...]) -> dict[str, Any]:
        return {"kernels": parts}

    def forgetting(self, column: int) -> float | None:
        rates = []
        for part in self.kernels:
            rate = forgetting_of(part, column)
            if rate is None:
                return None
            rates.append(rate)
        return self._join_rates(rates)

    @abstractmethod
    def _join_rates(self, rates: list[float]) -> float:
        """The forgetting of the combination, from that of every part."""

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        first, *others = self.kernels
        K = writable_covariance(first, X, Y)
        for part in others:
            # A constant needs no matrix of its own.
            if isinstance(part, Constant):
                self._join(K, part.variance, out=K)
                continue
            part_covariance = part(X, Y)
            self._join(K, part_covariance, out=K)
        return K

    def _diagonal(self, X: Floats) -> Floats:
        diagonals = [part.diag(X) for part in self.kernels]
        return np.asarray(self._join.reduce(diagonals))
