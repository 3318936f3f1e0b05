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
from collections.abc import Mapping, Sequence
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
from superarm.core.inputs import (
    as_count,
    as_number,
    as_positive,
    as_rows,
    as_scale,
    as_vector,
    is_listed,
)

from .features import Box, FeatureMap
from .state_space import StateSpace

Bounds = tuple[float, float] | Literal["fixed"]
"""Range of a free hyper-parameter on its natural scale, or ``"fixed"``."""

DEFAULT_BOUNDS: tuple[float, float] = (1e-5, 1e5)

FIXED: Literal["fixed"] = "fixed"
"""Bounds of a hyper-parameter that is not fitted."""


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
        if rows.shape[1] != others.shape[1]:
            message = f"X has {rows.shape[1]} columns but Y has {others.shape[1]}"
            raise ShapeError(f"{message}; both must describe arms in the same way")
        return self._covariance(rows, others)

    def diag(self, X: Any) -> Floats:
        """The prior variance k(x, x) of every row, (n,), without building the matrix.

        Args:
            X: One row per arm, (n, d).
        """
        return self._diagonal(self._select(X, "X"))

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
        same_width = rows.shape[1] == others.shape[1]
        if not same_width or entry_weights.shape != (len(rows), len(others)):
            shapes = f"Y {others.shape} and weights {entry_weights.shape}"
            message = f"X has shape {rows.shape}, {shapes}"
            raise ShapeError(f"{message}; they must be (n, d), (m, d) and (n, m)")
        moving = [as_count(column, "columns", 0) for column in columns]
        if self.columns is None:
            if max(moving, default=-1) >= rows.shape[1]:
                message = f"columns is {moving}, but X has {rows.shape[1]} columns"
                raise ShapeError(f"{message}; columns are counted from 0")
            return self._input_gradient(rows, others, entry_weights, moving)
        # The gradient is 0 in columns that the kernel does not use.
        gradient = np.zeros((len(rows), len(moving)))
        used = [place for place, column in enumerate(moving) if column in self.columns]
        if used:
            positions = [self.columns.index(moving[place]) for place in used]
            derivative = self._input_gradient(rows, others, entry_weights, positions)
            if derivative is None:
                return None
            gradient[:, used] = derivative
        return gradient

    @abstractmethod
    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        """K, (n, m); without ``Y`` it is symmetric and its diagonal is exact."""

    @abstractmethod
    def _diagonal(self, X: Floats) -> Floats:
        """The diagonal of K, (n,)."""

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        """∂K/∂log of each free hyper-parameter, one (n, n) array per number in it."""
        raise TypeError(
            f"{type(self).__name__} names hyper-parameters but no gradients"
        )

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
            return CovarianceGradient(K, np.empty((len(X), len(X), 0)))
        gradients = self._gradients(X, K)
        layers: list[Floats] = []  # p times (n, n)
        for name in free:
            layers.extend(gradients[name])
        return CovarianceGradient(K, np.stack(layers, axis=2))

    def _select(self, X: Any, name: str) -> Floats:
        """The columns of ``X`` that the kernel uses, checked."""
        columns = self.columns
        is_plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2
        if columns is None and is_plain:
            plain: Floats = X  # as posteriors pass them
            return plain
        kind = type(self).__name__
        array = as_rows(X, name, kind)
        if columns is None:
            return array
        if max(columns) >= array.shape[1]:
            message = f"{name} has {array.shape[1]} columns"
            message += f", but {kind} looks at columns {list(columns)}"
            raise ShapeError(f"{message}; columns are counted from 0")
        return array[:, list(columns)]

    # --- hyper-parameters ----------------------------------------------------------------

    def _free(self) -> list[str]:
        """Names of the hyper-parameters that are fitted."""
        return [name for name in self.hyperparameters if self._is_free(name)]

    def _is_free(self, name: str) -> bool:
        if self._bounds_of(name) == FIXED:
            return False
        # 0 means that it is absent: its logarithm would be −∞.
        return bool(np.all(self._value_of(name)))

    def _value_of(self, name: str) -> Any:
        return getattr(self, name)

    def _bounds_of(self, name: str) -> Bounds:
        bounds: Bounds = getattr(self, f"{name}_bounds")
        return bounds

    @property
    def theta(self) -> Floats:
        """Natural logarithms of the free hyper-parameters, (p,)."""
        values = [np.atleast_1d(self._value_of(name)) for name in self._free()]
        if not values:
            return np.empty(0)
        logarithms: Floats = np.log(np.concatenate(values))
        return logarithms

    @property
    def bounds(self) -> Floats:
        """Natural logarithms of the bounds of ``theta``, (p, 2)."""
        rows: list[Bounds] = []
        for name in self._free():
            # A hyper-parameter with one number per column has the same bounds for all of them.
            size = np.size(self._value_of(name))
            rows.extend([self._bounds_of(name)] * size)
        return np.log(np.array(rows, dtype=np.float64).reshape(-1, 2))

    def clone_with_theta(self, theta: Any) -> Self:
        """The same kernel with other values of its free hyper-parameters.

        Args:
            theta: Their natural logarithms, (p,).
        """
        logarithms = as_vector(theta, "theta", len(self.theta))
        changes = self._changes(logarithms)
        return cast(Self, dataclasses.replace(cast(Any, self), **changes))

    def _changes(self, theta: Floats) -> dict[str, Any]:
        """Values of the fields that ``theta`` changes; the kernel's own part of it comes first."""
        values = iter(np.exp(theta).tolist())
        changes: dict[str, Any] = {}
        for name in self._free():
            old = self._value_of(name)
            if isinstance(old, tuple):
                changes[name] = tuple(islice(values, len(old)))
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
        corners = self._select(np.stack([low, high]), "the box")
        if not np.isfinite(corners).all() or (corners[0] > corners[1]).any():
            raise InputError(
                "every column the kernel looks at needs finite bounds, lower ≤ upper"
            )
        error = as_positive(tolerance, "tolerance")
        box = Box(corners[0], corners[1], tolerance=error, max_rank=max_rank)
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
        form = self._state_space(as_positive(tolerance, "tolerance"))
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

        return wrapper_class()(self)

    def __add__(self, other: object) -> Kernel:
        return cast(Kernel, _sum(self, other))

    def __radd__(self, other: object) -> Kernel:
        return cast(Kernel, _sum(other, self))

    def __mul__(self, other: object) -> Kernel:
        return cast(Kernel, _product(self, other))

    def __rmul__(self, other: object) -> Kernel:
        return cast(Kernel, _product(other, self))


def _sum(left: object, right: object) -> Any:
    from .sums import Sum

    return _join(left, right, Sum)


def _product(left: object, right: object) -> Any:
    from .products import Product

    if _is_number(right) and isinstance(left, Covariance):
        return _scale(left, right)
    if _is_number(left) and isinstance(right, Covariance):
        return _scale(right, left)
    return _join(left, right, Product)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number)


def _scale(kernel: Covariance, factor: Any) -> Any:
    from .scaling import Scale

    return Scale(kernel=kernel, factor=float(factor), factor_bounds=FIXED)


def _join(left: object, right: object, kind: type[Any]) -> Any:
    """A sum or product of two kernels; sums of sums and products of products are flat."""
    if not (isinstance(left, Covariance) and isinstance(right, Covariance)):
        return NotImplemented
    left_parts = left.kernels if isinstance(left, kind) else (left,)
    right_parts = right.kernels if isinstance(right, kind) else (right,)
    return kind(kernels=(*left_parts, *right_parts))


# --- checks of fields, shared by the kernels ---------------------------------------------


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


def set_positive(
    kernel: Kernel, *names: str, per_column: Sequence[str] = (), or_zero: bool = False
) -> None:
    """Check hyper-parameters and their bounds.

    Args:
        kernel: The kernel, in its ``__post_init__``.
        *names: Names of its hyper-parameters.
        per_column: Those that may have one number per column.
        or_zero: Whether 0 is allowed.
    """
    for name in names:
        value = getattr(kernel, name)
        label = f"{type(kernel).__name__}.{name}"
        if or_zero and as_number(value, label, 0.0) == 0.0:
            checked: Any = 0.0
        elif name in per_column and is_listed(value):
            checked = _as_scales(value, label)
        else:
            checked = as_scale(value, label)
        object.__setattr__(kernel, name, checked)
        set_bounds(kernel, f"{name}_bounds")


def _as_scales(values: Any, label: str) -> tuple[float, ...]:
    if len(values) == 0:
        raise ShapeError(f"{label} is empty; give a number, or one per column")
    return tuple(as_scale(value, f"{label}[{i}]") for i, value in enumerate(values))


def set_bounds(kernel: Kernel, name: str) -> None:
    """Check a field of bounds: 0 < lower ≤ upper, or ``"fixed"``.

    Args:
        kernel: The kernel, in its ``__post_init__``.
        name: Name of the field.
    """
    value = getattr(kernel, name)
    label = f"{type(kernel).__name__}.{name}"
    if isinstance(value, str) and value == FIXED:
        return
    if not is_listed(value) or len(value) != 2:
        raise InputError(f"{label} is {value!r:.60}; give (lower, upper) or 'fixed'")
    lower = as_scale(value[0], f"{label}[0]")
    upper = as_scale(value[1], f"{label}[1]")
    if lower > upper:
        raise InputError(
            f"{label} is ({lower:g}, {upper:g}); the lower one comes first"
        )
    object.__setattr__(kernel, name, (lower, upper))


def set_columns(kernel: Kernel) -> None:
    """Check the field ``columns``.

    Args:
        kernel: The kernel, in its ``__post_init__``.
    """
    value: Any = kernel.columns
    if value is None:
        return
    label = f"{type(kernel).__name__}.columns"
    columns = tuple(value) if is_listed(value) else (value,)
    if not columns:
        raise InputError(f"{label} is empty; name at least one column")
    checked = tuple(as_count(column, label, 0) for column in columns)
    if len(set(checked)) != len(checked):
        raise InputError(f"{label} names a column twice: {list(checked)}")
    object.__setattr__(kernel, "columns", checked)
