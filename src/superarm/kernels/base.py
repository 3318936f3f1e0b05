"""The protocols of covariance functions, and the base class of our own kernels.

Notation

==================  ====================================================================
``X``, ``Y``        (n, d) and (m, d) float64 arrays, one row per arm; ids and times are columns
``K``               (n, m), ``K[i, j]`` = k(``X[i]``, ``Y[j]``)
``theta``           (p,), natural logarithms of the free hyper-parameters
``bounds``          (p, 2), natural logarithms of their bounds
``gradient``        (n, n, p), ∂K / ∂theta
``weights``         (n, m), factor of each entry of K in a sum that is differentiated by ``X``
==================  ====================================================================

Posteriors need only :class:`Covariance`, which scikit-learn's kernels satisfy as they are. Fitting
also needs ``theta`` and gradients: :class:`TunableCovariance`. Both kinds of kernels satisfy it, so
sums and products may mix ours with theirs.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    cast,
    overload,
    runtime_checkable,
)

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import as_count, as_positive, as_rows, as_vector

from .algebra import add, multiply
from .features import Box, FeatureMap
from .state_space import StateSpace

Bounds = tuple[float, float] | Literal["fixed"]
"""Range of a free hyper-parameter on its natural scale, or ``"fixed"``."""

DEFAULT_BOUNDS: tuple[float, float] = (1e-5, 1e5)

FIXED: Literal["fixed"] = "fixed"
"""Bounds of a hyper-parameter that is not fitted."""


Gradients = Mapping[str, Sequence[Floats]]
"""∂K/∂log of each hyper-parameter by its name: one (n, n) array per number in it."""


class CovarianceGradient(NamedTuple):
    """A covariance matrix and its derivative."""

    covariance: Floats  # (n, n)
    gradient: Floats  # (n, n, p), with respect to ``theta``


@runtime_checkable
class TunableCovariance(Protocol):
    """A covariance whose hyper-parameters can be fitted, as scikit-learn's kernels can."""

    @property
    def theta(self) -> Floats:
        """Natural logarithms of the free hyper-parameters, (p,)."""
        ...

    @property
    def bounds(self) -> Floats:
        """Natural logarithms of the bounds of ``theta``, (p, 2)."""
        ...

    def clone_with_theta(self, theta: Any) -> Any:
        """The same covariance with other free hyper-parameters.

        Args:
            theta: Their natural logarithms, (p,).
        """
        ...

    def diag(self, X: Any) -> Floats:
        """The prior variance of every row, (n,).

        Args:
            X: One row per arm, (n, d).
        """
        ...

    # Overloads as in ``Kernel``: type checkers refuse those for one signature with a bool.
    @overload
    def __call__(
        self, X: Any, Y: Any = None, eval_gradient: Literal[False] = False
    ) -> Any: ...
    @overload
    def __call__(
        self, X: Any, Y: None = None, *, eval_gradient: Literal[True]
    ) -> Any: ...
    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """The covariance matrix, and its gradient where ``eval_gradient`` is set.

        Args:
            X: One row per arm, (n, d).
            Y: Other arms, (m, d); the same as ``X`` by default.
            eval_gradient: Whether to return (K, gradient) instead of K.
        """
        ...


class Kernel(ABC):
    """A covariance function k(x, y), immutable, with hyper-parameters and their gradients.

    A kernel is a frozen dataclass. It names its hyper-parameters in ``hyperparameters`` and has a field
    ``<name>_bounds`` for each. ``theta`` holds the logarithms of the free ones, in this order. A
    hyper-parameter is not free if it is ``"fixed"``, or exactly 0 (an absent bias or drift).

    To write a kernel, implement :meth:`_covariance` and :meth:`_diagonal`, and :meth:`_gradients` if
    it has hyper-parameters. :meth:`_input_gradient` is optional. These methods receive checked arrays
    that contain only the kernel's ``columns``. Write sums and products with ``+`` and ``*``; a number
    times a kernel is a :class:`~superarm.kernels.Scale` whose factor is fixed.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ()

    # With it, numpy's numbers leave ``number * kernel`` to ``Kernel.__rmul__``.
    __array_ufunc__: ClassVar[None] = None

    columns: tuple[int, ...] | None = None
    """The columns of ``X`` that the kernel uses; ``None`` means all of them."""

    # --- evaluation ----------------------------------------------------------------------

    @overload
    def __call__(
        self, X: Any, Y: Any = None, eval_gradient: Literal[False] = False
    ) -> Floats: ...
    @overload
    def __call__(
        self, X: Any, Y: None = None, *, eval_gradient: Literal[True]
    ) -> CovarianceGradient: ...
    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """The (n, m) covariance between the rows of ``X`` and those of ``Y``.

        Args:
            X: One row per arm, (n, d).
            Y: Other arms, (m, d); the same as ``X`` by default.
            eval_gradient: Whether to return the (n, n, p) derivative with respect to ``theta`` as
                well. It is defined only without ``Y``.
        """
        rows = self._select(X, "X")
        if eval_gradient:
            if Y is not None:
                raise InputError("eval_gradient works on K(X, X) only; leave Y out")
            return self._with_gradient(rows)
        if Y is None:
            return self._covariance(rows, None)
        others = self._select(Y, "Y")
        width = rows.shape[1]
        other_width = others.shape[1]
        if width != other_width:
            message = f"X has {width} columns but Y has {other_width}"
            raise ShapeError(f"{message}; both must describe arms in the same way")
        return self._covariance(rows, others)

    def diag(self, X: Any) -> Floats:
        """The prior variance k(x, x) of every row, (n,), without building the matrix.

        Args:
            X: One row per arm, (n, d).
        """
        rows = self._select(X, "X")
        return self._diagonal(rows)

    @property
    def constant_variance(self) -> float | None:
        """k(x, x) if it is known to be the same for every x, else ``None``."""
        return None

    def input_gradient(
        self, X: Any, Y: Any, weights: Any, columns: Sequence[int]
    ) -> Floats | None:
        """Σ_j weights[i, j] · ∂k(X[i], Y[j])/∂X[i] in some columns of ``X``, (n, c).

        It takes one pass over K, whatever the number of columns. Where k has a kink, at equal rows,
        the derivative is that of its central difference, 0.

        Args:
            X: Rows that move, (n, d).
            Y: Rows that stay, (m, d).
            weights: One number for every entry of K, (n, m).
            columns: Columns of ``X`` in which its rows move, counted from 0.

        Returns:
            ``None`` where the kernel has no derivative in one of these columns, such as a column
            of ids.
        """
        rows = self._select(X, "X")
        others = self._select(Y, "Y")
        entry_weights = np.asarray(weights, dtype=np.float64)
        _check_shapes(rows, others, entry_weights)
        moving = [as_count(column, "columns", 0) for column in columns]
        if self.columns is not None:
            return self._used_input_gradient(rows, others, entry_weights, moving)
        width = rows.shape[1]
        if max(moving, default=-1) >= width:
            message = f"columns is {moving}, but X has {width} columns"
            raise ShapeError(f"{message}; columns are counted from 0")
        return self._input_gradient(rows, others, entry_weights, moving)

    def _used_input_gradient(
        self, rows: Floats, others: Floats, weights: Floats, moving: list[int]
    ) -> Floats | None:
        """The gradient in the columns ``moving`` of ``X``, 0 in those that the kernel ignores."""
        used_columns = self.columns or ()
        places: list[int] = []  # in ``moving``
        positions: list[int] = []  # in ``used_columns``
        for place, column in enumerate(moving):
            if column in used_columns:
                places.append(place)
                positions.append(used_columns.index(column))
        gradient = np.zeros((len(rows), len(moving)))
        if not places:
            return gradient
        derivative = self._input_gradient(rows, others, weights, positions)
        if derivative is None:
            return None
        gradient[:, places] = derivative
        return gradient

    def _ignores(self, columns: Collection[int]) -> bool:
        """Whether the kernel is known to use none of these columns."""
        return self.columns is not None and not set(columns) & set(self.columns)

    @abstractmethod
    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        """K, (n, m); without ``Y`` it is symmetric and its diagonal is exact."""

    @abstractmethod
    def _diagonal(self, X: Floats) -> Floats:
        """The diagonal of K, (n,)."""

    def _gradients(self, X: Floats, K: Floats) -> Gradients:
        """∂K/∂log of each free hyper-parameter, one (n, n) array per number in it."""
        kind = type(self).__name__
        raise TypeError(f"{kind} names hyper-parameters but no gradients")

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        """Σ_j weights[i, j] · ∂k(X[i], Y[j])/∂X[i], (n, c), or ``None`` if it is not known.

        ``columns`` are counted within the columns that the kernel uses.
        """
        return None

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        K = self._covariance(X, None)
        free = self._free()
        if not free:
            n = len(X)
            nothing = np.empty((n, n, 0))
            return CovarianceGradient(K, nothing)
        gradients = self._gradients(X, K)
        layers: list[Floats] = []  # p times (n, n)
        for name in free:
            layers.extend(gradients[name])
        gradient = np.stack(layers, axis=2)
        return CovarianceGradient(K, gradient)

    def _select(self, X: Any, name: str) -> Floats:
        """The columns of ``X`` that the kernel uses, checked."""
        columns = self.columns
        if columns is None and _is_plain(X):
            plain: Floats = X  # as posteriors pass them
            return plain
        kind = type(self).__name__
        array = as_rows(X, name, kind)
        if columns is None:
            return array
        listed = list(columns)
        width = array.shape[1]
        if max(listed) >= width:
            message = f"{name} has {width} columns"
            message += f", but {kind} uses columns {listed}"
            raise ShapeError(f"{message}; columns are counted from 0")
        return array[:, listed]

    # --- hyper-parameters ----------------------------------------------------------------

    def _free(self) -> list[str]:
        """Names of the hyper-parameters that are fitted."""
        return [name for name in self.hyperparameters if self._is_free(name)]

    def _is_free(self, name: str) -> bool:
        if self._bounds_of(name) == FIXED:
            return False
        # 0 means that it is absent: its logarithm would be −∞.
        value = self._value_of(name)
        return bool(np.all(value))

    def _value_of(self, name: str) -> Any:
        return getattr(self, name)

    def _bounds_of(self, name: str) -> Bounds:
        bounds: Bounds = getattr(self, f"{name}_bounds")
        return bounds

    @property
    def theta(self) -> Floats:
        """Natural logarithms of the free hyper-parameters, (p,)."""
        values = []
        for name in self._free():
            value = self._value_of(name)
            values.append(np.atleast_1d(value))
        if not values:
            return np.empty(0)
        joined = np.concatenate(values)
        logarithms: Floats = np.log(joined)
        return logarithms

    @property
    def bounds(self) -> Floats:
        """Natural logarithms of the bounds of ``theta``, (p, 2)."""
        rows: list[Bounds] = []
        for name in self._free():
            value = self._value_of(name)
            bounds = self._bounds_of(name)
            # A hyper-parameter with one number per column has the same bounds for all of them.
            rows.extend([bounds] * np.size(value))
        numbers = np.array(rows, dtype=np.float64)
        table = numbers.reshape(-1, 2)  # also where there are none
        return np.log(table)

    def clone_with_theta(self, theta: Any) -> Self:
        """The same kernel with other values of its free hyper-parameters.

        Args:
            theta: Their natural logarithms, (p,).
        """
        size = len(self.theta)
        logarithms = as_vector(theta, "theta", size)
        changes = self._changes(logarithms)
        record = cast(Any, self)
        clone = dataclasses.replace(record, **changes)
        return cast(Self, clone)

    def _changes(self, theta: Floats) -> dict[str, Any]:
        """Values of the fields that ``theta`` changes; the kernel's own part of it comes first."""
        numbers = np.exp(theta).tolist()
        values = iter(numbers)
        changes: dict[str, Any] = {}
        for name in self._free():
            old = self._value_of(name)
            if isinstance(old, tuple):
                count = len(old)
                changes[name] = tuple(islice(values, count))
            else:
                changes[name] = next(values)
        return changes

    # --- other forms ---------------------------------------------------------------------

    def features(
        self, lower: Any, upper: Any, tolerance: float = 1e-13, max_rank: int = 2000
    ) -> FeatureMap | None:
        """A finite-rank form k(x, y) ≈ Φ(x)·Φ(y) on the box [``lower``, ``upper``].

        Args:
            lower: Lower ends of the box, one per column, (d,). Columns that the kernel does not use
                may have infinite ends.
            upper: Upper ends of the box, (d,).
            tolerance: Largest error before rounding; ``FeatureMap.error`` includes rounding.
            max_rank: Largest number of features.

        Returns:
            ``None`` if the kernel has no such form, or needs more than ``max_rank`` features.
        """
        low = np.array(lower, dtype=np.float64)
        high = np.array(upper, dtype=np.float64)
        if low.ndim != 1 or low.shape != high.shape:
            message = f"lower has shape {low.shape} and upper {high.shape}"
            raise ShapeError(f"{message}; give one number per column each")
        corners = np.stack([low, high])
        used_corners = self._select(corners, "the box")
        used_low, used_high = used_corners
        is_finite = np.isfinite(used_corners).all()
        if not is_finite or (used_low > used_high).any():
            raise InputError(
                "every column that the kernel uses needs finite bounds, lower ≤ upper"
            )
        error = as_positive(tolerance, "tolerance")
        box = Box(used_low, used_high, tolerance=error, max_rank=max_rank)
        form = self._features(box)
        if form is None or form.rank > max_rank:
            return None
        if self.columns is None:
            return form
        return form.on_columns(self.columns, low, high)

    def _features(self, box: Box) -> FeatureMap | None:
        return None

    def forgetting(self, column: int) -> float | None:
        """The rate at which the kernel forgets along a column of times.

        It is the largest known ε for which the kernel is (1 − ε)^{|s − t|/2} times a kernel of
        s − t only: 0 if it is a kernel of s − t itself, or does not use the column.

        Args:
            column: The column of ``X`` that contains times.

        Returns:
            ``None`` where no such ε is known, as for a linear trend.
        """
        if self.columns is None or column in self.columns:
            return None
        return 0.0

    def state_space(self, tolerance: float = 1e-12) -> StateSpace:
        """This kernel of time as a state that moves; see :mod:`superarm.kernels.state_space`.

        Args:
            tolerance: Largest error of a kernel value, relative to its variance.
        """
        error = as_positive(tolerance, "tolerance")
        form = self._state_space(error)
        if form is None:
            raise InputError(
                f"{self!r:.80} cannot be followed through time; use Temporal, Periodic, Constant, "
                "Matern with nu = 0.5 or 1.5 and one lengthscale, or sums and products of these"
            )
        return form

    def _state_space(self, tolerance: float) -> StateSpace | None:
        return None

    def as_sklearn(self) -> Any:
        """This kernel as a ``sklearn.gaussian_process.kernels.Kernel``.

        ``GaussianProcessRegressor`` can clone, pickle and optimise it. Its attribute ``kernel`` is
        the kernel with the fitted hyper-parameters.
        """
        from .scikit_learn import wrapper_class

        wrapper = wrapper_class()
        return wrapper(self)

    def __add__(self, other: object) -> Kernel:
        return cast(Kernel, add(self, other))

    def __radd__(self, other: object) -> Kernel:
        return cast(Kernel, add(other, self))

    def __mul__(self, other: object) -> Kernel:
        return cast(Kernel, multiply(self, other))

    def __rmul__(self, other: object) -> Kernel:
        return cast(Kernel, multiply(other, self))


def _is_plain(X: Any) -> bool:
    """Whether this is an array of rows that needs no check."""
    if type(X) is not np.ndarray:
        return False
    return X.dtype == np.float64 and X.ndim == 2


def _check_shapes(rows: Floats, others: Floats, weights: Floats) -> None:
    """Refuse anything but (n, d), (m, d) and (n, m)."""
    same_width = rows.shape[1] == others.shape[1]
    entries = (len(rows), len(others))
    if same_width and weights.shape == entries:
        return
    raise ShapeError(
        "X, Y and weights must have shapes (n, d), (m, d) and (n, m), "
        f"got {rows.shape}, {others.shape} and {weights.shape}"
    )


def as_covariance(kernel: Any, name: str) -> Covariance:
    """``kernel``, checked: a name or a spec is not a kernel.

    Args:
        kernel: What should be a kernel.
        name: Name of the parameter, for the error message.
    """
    if isinstance(kernel, type) or not isinstance(kernel, Covariance):
        raise InputError(
            f"{name} is {kernel!r:.60}, which is not a kernel: it needs k(X, Y) and k.diag(X), as "
            'SquaredExponential(lengthscale=0.2) has; build("kernel", spec) makes one from a spec'
        )
    return kernel
