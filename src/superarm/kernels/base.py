"""What a covariance function is: the protocol that posteriors need, and our own base class.

Notation

==================  ====================================================================
``X``, ``Y``        (n, d) and (m, d) float64 arrays, one row per arm; ids and times are columns
``K``               (n, m), ``K[i, j]`` = k(``X[i]``, ``Y[j]``)
``theta``           (p,), natural logarithms of the free hyper-parameters
``bounds``          (p, 2), natural logarithms of their bounds
``gradient``        (n, n, p), ∂K / ∂theta
``weights``         (n, m), what each entry of K counts in a sum that is differentiated by ``X``
==================  ====================================================================

Posteriors ask for :class:`Covariance` alone, which the kernels of scikit-learn satisfy as
they are. Fitting also needs ``theta`` and gradients: :class:`TunableCovariance`, which again
both sides satisfy, so that sums and products may mix ours with theirs.
"""

from __future__ import annotations

import dataclasses
import functools
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
from superarm.core.errors import InputError, MissingExtraError, ShapeError
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


class CovarianceGradient(NamedTuple):
    """A covariance matrix and its derivative."""

    covariance: Floats  # (n, n)
    gradient: Floats  # (n, n, p), with respect to ``theta``


@runtime_checkable
class TunableCovariance(Protocol):
    """A covariance whose hyper-parameters can be fitted, as scikit-learn's kernels can."""

    @property
    def theta(self) -> Floats: ...
    @property
    def bounds(self) -> Floats: ...
    def clone_with_theta(self, theta: Any) -> Any: ...
    def diag(self, X: Any) -> Floats: ...
    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any: ...


class Kernel(ABC):
    """A covariance function k(x, y), immutable, with hyper-parameters and their gradients.

    A kernel is a frozen dataclass. It names its hyper-parameters in ``hyperparameters`` and has a field
    ``<name>_bounds`` for each. ``theta`` holds the logarithms of those that are free, in the order
    named; one that is ``"fixed"``, or exactly 0 (a bias or a drift that is absent), is not part of it.

    To write a kernel, implement :meth:`_covariance` and :meth:`_diagonal`, and
    :meth:`_gradients` if it has hyper-parameters. :meth:`_input_gradient` is optional. They receive
    checked arrays that hold only the kernel's own ``columns``. Sums and products are written with
    ``+`` and ``*``; a number times a kernel is a :class:`~superarm.kernels.Scale` whose factor is
    fixed.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ()
    __array_ufunc__: ClassVar[None] = (
        None  # numpy's numbers leave ``number * kernel`` to us
    )

    columns: tuple[int, ...] | None = None
    """The columns of ``X`` that the kernel sees; ``None`` is all of them."""

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
        """The (n, m) covariance between rows of ``X`` and of ``Y`` (of ``X`` itself if omitted).

        With ``eval_gradient`` also the (n, n, p) derivative with respect to ``theta``, which
        is defined only without ``Y``.
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
            told = f"X has {rows.shape[1]} columns but Y has {others.shape[1]}"
            raise ShapeError(f"{told}; both must describe arms in the same way")
        return self._covariance(rows, others)

    def diag(self, X: Any) -> Floats:
        """The prior variance k(x, x) of every row, (n,), without building the matrix."""
        return self._diagonal(self._select(X, "X"))

    @property
    def constant_variance(self) -> float | None:
        """k(x, x) where it is known to be the same for every x; ``None`` where it is not."""
        return None

    def input_gradient(
        self, X: Any, Y: Any, weights: Any, columns: Sequence[int]
    ) -> Floats | None:
        """Σ_j weights[i, j] · ∂k(X[i], Y[j])/∂X[i] in some columns of ``X``, (n, c).

        One pass over K whatever the number of columns. Where k has a kink, at equal rows, the
        derivative is that of its central difference, 0.

        Args:
            X: rows that move, (n, d).
            Y: rows that stay, (m, d).
            weights: one number for every entry of K, (n, m).
            columns: columns of ``X`` in which they move, counted from 0.

        Returns:
            ``None`` where the kernel knows no derivative in one of these columns: a column that
            holds ids has none.
        """
        rows = self._select(X, "X")
        others = self._select(Y, "Y")
        sums = np.asarray(weights, dtype=np.float64)
        if rows.shape[1] != others.shape[1] or sums.shape != (len(rows), len(others)):
            message = (
                f"X has shape {rows.shape}, Y {others.shape} and weights {sums.shape}"
            )
            raise ShapeError(f"{message}; they must be (n, d), (m, d) and (n, m)")
        moving = [as_count(column, "columns", 0) for column in columns]
        if self.columns is None:
            if max(moving, default=-1) >= rows.shape[1]:
                message = f"columns is {moving}, but X has {rows.shape[1]} columns"
                raise ShapeError(f"{message}; columns are counted from 0")
            return self._input_gradient(rows, others, sums, moving)
        gradient = np.zeros(
            (len(rows), len(moving))
        )  # 0 in columns that the kernel does not see
        seen = [place for place, column in enumerate(moving) if column in self.columns]
        if seen:
            own = [self.columns.index(moving[place]) for place in seen]
            found = self._input_gradient(rows, others, sums, own)
            if found is None:
                return None
            gradient[:, seen] = found
        return gradient

    @abstractmethod
    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        """(n, m); with ``Y`` = ``None`` symmetric with an exact diagonal."""

    @abstractmethod
    def _diagonal(self, X: Floats) -> Floats:
        """(n,)"""

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        """∂K/∂log of each free hyper-parameter, one (n, n) array per number in it."""
        raise TypeError(
            f"{type(self).__name__} names hyper-parameters but no gradients"
        )

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats | None:
        """Σ_j weights[i, j] · ∂k(X[i], Y[j])/∂X[i] in these of the kernel's own columns, (n, c).

        ``None`` where it is not known, which is the default.
        """
        return None

    def _with_gradient(self, X: Floats) -> CovarianceGradient:
        K = self._covariance(X, None)
        free = self._free()
        if not free:
            return CovarianceGradient(K, np.empty((len(X), len(X), 0)))
        parts = self._gradients(X, K)
        return CovarianceGradient(
            K, np.stack([part for name in free for part in parts[name]], axis=2)
        )

    def _select(self, X: Any, name: str) -> Floats:
        columns = self.columns
        if (
            columns is None
            and type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
        ):
            plain: Floats = X  # as posteriors pass them
            return plain
        kind = type(self).__name__
        array = as_rows(X, name, kind)
        if columns is None:
            return array
        if max(columns) >= array.shape[1]:
            told = f"{name} has {array.shape[1]} columns, but {kind} looks at columns {list(columns)}"
            raise ShapeError(f"{told}; columns are counted from 0")
        return array[:, list(columns)]

    # --- hyper-parameters ----------------------------------------------------------------

    def _free(self) -> list[str]:
        free = (
            name
            for name in self.hyperparameters
            if getattr(self, f"{name}_bounds") != "fixed"
        )
        return [name for name in free if np.all(getattr(self, name))]

    @property
    def theta(self) -> Floats:
        """Logarithms of the free hyper-parameters, (p,)."""
        values = [np.atleast_1d(getattr(self, name)) for name in self._free()]
        return np.log(np.concatenate(values)) if values else np.empty(0)

    @property
    def bounds(self) -> Floats:
        """Logarithms of the bounds of ``theta``, (p, 2)."""
        sizes = {name: np.size(getattr(self, name)) for name in self._free()}
        rows = [
            getattr(self, f"{name}_bounds")
            for name in sizes
            for _ in range(sizes[name])
        ]
        return np.log(np.array(rows, dtype=np.float64).reshape(-1, 2))

    def clone_with_theta(self, theta: Any) -> Self:
        """The same kernel with other values of its free hyper-parameters."""
        values = as_vector(theta, "theta", len(self.theta))
        return cast(Self, dataclasses.replace(cast(Any, self), **self._changes(values)))

    def _changes(self, theta: Floats) -> dict[str, Any]:
        """The kernel's own free hyper-parameters, from the logarithms at the head of ``theta``."""
        values, changes = iter(np.exp(theta).tolist()), {}
        for name in self._free():
            old = getattr(self, name)
            changes[name] = (
                tuple(islice(values, len(old)))
                if isinstance(old, tuple)
                else next(values)
            )
        return changes

    # --- facts and relatives -------------------------------------------------------------

    def features(
        self, lower: Any, upper: Any, tolerance: float = 1e-13, max_rank: int = 2000
    ) -> FeatureMap | None:
        """A finite-rank form k(x, y) ≈ Φ(x)·Φ(y) on the box [``lower``, ``upper``].

        ``tolerance`` bounds the error before rounding; ``FeatureMap.error`` adds what rounding
        may do. ``None`` if the kernel has no such form or it needs more than ``max_rank``
        features. Columns that the kernel does not look at may have infinite bounds.
        """
        low, high = np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
        if low.ndim != 1 or low.shape != high.shape:
            told = f"lower has shape {low.shape} and upper {high.shape}"
            raise ShapeError(f"{told}; give one number per column each")
        rows = self._select(np.stack([low, high]), "the box")
        if not np.isfinite(rows).all() or (rows[0] > rows[1]).any():
            raise InputError(
                "every column the kernel looks at needs finite bounds, lower ≤ upper"
            )
        form = self._features(
            Box(rows[0], rows[1], as_positive(tolerance, "tolerance"), max_rank)
        )
        if form is None or form.rank > max_rank:
            return None
        return (
            form if self.columns is None else form.on_columns(self.columns, low, high)
        )

    def _features(self, box: Box) -> FeatureMap | None:
        return None

    def forgetting(self, column: int) -> float | None:
        """How fast the kernel forgets along a column of times: the largest known ε for which it is
        (1 − ε)^{|s − t|/2} times a kernel that depends on s − t alone.

        0 where it is such a kernel itself, or does not look at the column; ``None`` where neither is
        known, as for a linear trend.
        """
        return None if self.columns is None or column in self.columns else 0.0

    def state_space(self, tolerance: float = 1e-12) -> StateSpace:
        """This kernel of time alone as a state that moves; see :mod:`superarm.kernels.state_space`.

        ``tolerance`` bounds the error of a kernel value, relative to its variance.
        """
        found = self._state_space(as_positive(tolerance, "tolerance"))
        if found is None:
            raise InputError(
                f"{self!r:.80} cannot be followed through time; use Temporal, Periodic, Constant, "
                "Matern with nu = 0.5 or 1.5 and one lengthscale, or sums and products of these"
            )
        return found

    def _state_space(self, tolerance: float) -> StateSpace | None:
        return None

    def as_sklearn(self) -> Any:
        """This kernel as a ``sklearn.gaussian_process.kernels.Kernel``.

        It can be cloned, pickled and optimised by ``GaussianProcessRegressor``; the kernel with
        the fitted hyper-parameters is its attribute ``kernel``.
        """
        return _sklearn_wrapper()(self)

    def __add__(self, other: object) -> Kernel:
        return cast(Kernel, _sum(self, other))

    def __radd__(self, other: object) -> Kernel:
        return cast(Kernel, _sum(other, self))

    def __mul__(self, other: object) -> Kernel:
        return cast(Kernel, _product(self, other))

    def __rmul__(self, other: object) -> Kernel:
        return cast(Kernel, _product(other, self))


def _sum(left: object, right: object) -> Any:
    from .composite import Sum

    return _joined(left, right, Sum)


def _product(left: object, right: object) -> Any:
    from .composite import Product, Scale

    for kernel, factor in ((left, right), (right, left)):
        if isinstance(factor, int | float | np.number) and isinstance(
            kernel, Covariance
        ):
            return Scale(kernel=kernel, factor=float(factor), factor_bounds="fixed")
    return _joined(left, right, Product)


def _joined(left: object, right: object, kind: type[Any]) -> Any:
    """Sums of sums and products of products are flat."""
    if not (isinstance(left, Covariance) and isinstance(right, Covariance)):
        return NotImplemented
    parts = [
        part.kernels if isinstance(part, kind) else (part,) for part in (left, right)
    ]
    return kind(kernels=(*parts[0], *parts[1]))


# --- checks of fields, shared by the kernels ---------------------------------------------


def as_covariance(kernel: Any, name: str) -> Covariance:
    """``kernel`` if it is one; a name or a spec is not."""
    if isinstance(kernel, type) or not isinstance(kernel, Covariance):
        raise InputError(
            f"{name} is {kernel!r:.60}, which is not a kernel: it needs k(X, Y) and k.diag(X), as "
            'SquaredExponential(lengthscale=0.2) has; build("kernel", spec) makes one from a spec'
        )
    return kernel


def set_positive(
    kernel: Kernel, *names: str, per_column: Sequence[str] = (), or_zero: bool = False
) -> None:
    """Check hyper-parameters and their bounds: one number each, or a list where ``per_column``."""
    for name in names:
        value = getattr(kernel, name)
        label = f"{type(kernel).__name__}.{name}"
        if or_zero and as_number(value, label, 0.0) == 0.0:
            checked: Any = 0.0
        elif name in per_column and is_listed(value):
            if len(value) == 0:
                raise ShapeError(f"{label} is empty; give a number, or one per column")
            checked = tuple(
                as_scale(item, f"{label}[{i}]") for i, item in enumerate(value)
            )
        else:
            checked = as_scale(value, label)
        object.__setattr__(kernel, name, checked)
        set_bounds(kernel, f"{name}_bounds")


def set_bounds(kernel: Kernel, name: str) -> None:
    """Check a field of bounds: 0 < lower ≤ upper, or ``"fixed"``."""
    value = getattr(kernel, name)
    label = f"{type(kernel).__name__}.{name}"
    if isinstance(value, str) and value == "fixed":
        return
    if not is_listed(value) or len(value) != 2:
        raise InputError(f"{label} is {value!r:.60}; give (lower, upper) or 'fixed'")
    low, high = as_scale(value[0], f"{label}[0]"), as_scale(value[1], f"{label}[1]")
    if low > high:
        raise InputError(f"{label} is ({low:g}, {high:g}); the lower one comes first")
    object.__setattr__(kernel, name, (low, high))


def set_columns(kernel: Kernel) -> None:
    """Check a field of column numbers."""
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


# --- the way to scikit-learn -------------------------------------------------------------


@functools.cache
def _sklearn_wrapper() -> Any:
    """The wrapper class, made when first needed because it derives from scikit-learn's."""
    try:
        from sklearn.gaussian_process import kernels
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        told = "scikit-learn is not installed; run: pip install scikit-learn"
        raise MissingExtraError(told) from error

    class SuperarmKernel(kernels.Kernel):  # type: ignore[misc]
        """One of our kernels under scikit-learn's interface."""

        def __init__(self, kernel: Kernel) -> None:
            self.kernel: Any = (
                kernel  # kept as it is: sklearn.base.clone compares identities
            )

        def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
            return self.kernel(X, Y, eval_gradient=eval_gradient)

        def diag(self, X: Any) -> Any:
            return self.kernel.diag(X)

        def is_stationary(self) -> bool:
            return False  # not known to be: nothing in scikit-learn depends on it

        @property
        def theta(self) -> Any:
            return self.kernel.theta

        @theta.setter
        def theta(self, theta: Floats) -> None:
            self.kernel = self.kernel.clone_with_theta(theta)

        @property
        def bounds(self) -> Any:
            return self.kernel.bounds

        @property
        def hyperparameters(self) -> list[Any]:
            rows = enumerate(map(tuple, np.exp(self.kernel.bounds)))
            return [
                kernels.Hyperparameter(f"theta[{i}]", "numeric", row) for i, row in rows
            ]

        def __repr__(self) -> str:
            return f"{self.kernel!r}.as_sklearn()"

        def __reduce__(self) -> Any:
            return Kernel.as_sklearn, (
                self.kernel,
            )  # the class itself cannot be found by name

    return SuperarmKernel
