"""Kernels of the difference x − y: squared exponential, Matérn, rational quadratic, periodic.

Notation

==========  =============================================================================
``q``       (n, m) scaled squared distances Σ_j (x_j − y_j)²/l_j²
``r``       √q
``l``       lengthscale: one number, or one per column (automatic relevance determination)
==========  =============================================================================

The first three are variance·f(q). With f known, ∂K/∂log l_j = −2 variance·f'(q)·(x_j − y_j)²/l_j² and
∂K/∂x_j = 2 variance·f'(q)·(x_j − y_j)/l_j², so that each states only f and f'.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import as_positive
from superarm.core.registry import register

from .base import DEFAULT_BOUNDS, Bounds, Kernel, set_columns, set_positive
from .chebyshev import gaussian_features
from .features import Box, FeatureMap
from .state_space import StateSpace, decaying, matern_three_halves, periodic

Lengthscale = float | tuple[float, ...]

_NEAR = 256.0  # largest q for :func:`_near_exponent`: its error, about ε·q, then stays below 1e-13
_FAR = 1e200
_FEW_TERMS = (
    2**19
)  # n·m·d up to which differences cost no more than :func:`_near_exponent`
_LARGEST_NU = 300.0
_BLOCK = 16384  # entries of K worked on at a time: 128 kB


@dataclass(frozen=True, kw_only=True)
class _Stationary(Kernel):
    """What the stationary kernels share: variance, lengthscales and columns.

    Args:
        lengthscale: One number, or one for each column.
        variance: Prior variance of the function values.
        lengthscale_bounds: Limits between which ``lengthscale`` is fitted, or "fixed".
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        columns: The columns of ``X`` to look at; ``None`` is all of them.
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
        if (
            self.columns is None and self._by_column
        ):  # else it was checked when the kernel was made
            self._check_width(rows.shape[1], name)
        return rows

    @functools.cached_property
    def _by_column(self) -> bool:
        """Whether a hyper-parameter has one number for each column."""
        return any(
            isinstance(getattr(self, name), tuple) for name in self.hyperparameters
        )

    @property
    def constant_variance(self) -> float:
        return self.variance

    def _diagonal(self, X: Floats) -> Floats:
        return np.full(len(X), self.variance)

    def _check_width(self, width: int, name: str) -> None:
        for parameter in self.hyperparameters:
            value = getattr(self, parameter)
            if isinstance(value, tuple) and len(value) != width:
                raise ShapeError(
                    f"{type(self).__name__}.{parameter} has {len(value)} entries but {name} has "
                    f"{width} columns; give a single number, or one for each column"
                )


@dataclass(frozen=True, kw_only=True)
class _Radial(_Stationary):
    """variance·f(q)."""

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = scaled_squared_distances(X, Y, self.lengthscale)
        if K.size <= _BLOCK:
            profile = self._profile(K)
            if self.variance != 1.0:
                profile *= self.variance
            return profile
        # By blocks that stay in the cache, with their temporaries: several times faster.
        step = max(1, _BLOCK // max(1, K.shape[1]))
        for start in range(0, len(K), step):
            block = K[start : start + step]
            np.multiply(self._profile(block), self.variance, out=block)
        return K

    @abstractmethod
    def _profile(self, q: Floats) -> Floats:
        """f(q), with f(0) = 1 exactly; may overwrite ``q``."""

    @abstractmethod
    def _slope(self, q: Floats) -> Floats:
        """f'(q); where it is infinite, at q = 0, the product q·f'(q) is 0 and so is returned."""

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        q = scaled_squared_distances(X, None, self.lengthscale)
        factor = self._slope(q)
        factor *= -2.0 * self.variance
        if isinstance(self.lengthscale, tuple):
            columns = zip(X.T, self.lengthscale, strict=True)
            along = [
                factor * np.square(np.subtract.outer(x, x) / scale)
                for x, scale in columns
            ]
        else:
            along = [factor * q]
        return {"lengthscale": along, "variance": [K]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        q = scaled_squared_distances(X, Y, self.lengthscale)
        scales = np.broadcast_to(self.lengthscale, X.shape[1])
        gradient = np.empty((len(X), len(columns)))
        step = max(1, _BLOCK // max(1, q.shape[1]))  # by blocks that stay in the cache
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            weighted = self._slope(q[rows])
            weighted *= weights[rows]
            for place, column in enumerate(columns):
                apart = np.subtract.outer(X[rows, column], Y[:, column])
                along = np.einsum("ij,ij->i", weighted, apart)
                gradient[rows, place] = (
                    2.0 * self.variance / scales[column] ** 2
                ) * along
        return gradient


@register("kernel", "squared-exponential")
@dataclass(frozen=True, kw_only=True)
class SquaredExponential(_Radial):
    """k(x, y) = variance · exp(−q/2), q = Σ_j (x_j − y_j)²/l_j².

    The only stationary kernel here with a finite-rank form, see :meth:`features`.

    >>> SquaredExponential(lengthscale=0.5)([[0.0], [0.5]]).round(4).tolist()
    [[1.0, 0.6065], [0.6065, 1.0]]
    """

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        if isinstance(self.lengthscale, tuple):
            exponent = None if Y is None else _near_exponent(X, Y, self.lengthscale)
        elif Y is None or X.size * len(Y) <= _FEW_TERMS:
            exponent = _scaled_distances(
                X, X if Y is None else Y, -0.5 / self.lengthscale**2
            )
        else:
            exponent = _near_exponent(X, Y, self.lengthscale)
        if exponent is None:
            return super()._covariance(X, Y)
        np.exp(exponent, out=exponent)
        if self.variance != 1.0:
            exponent *= self.variance
        return exponent

    def _profile(self, q: Floats) -> Floats:
        return _exp_half(q)

    def _slope(self, q: Floats) -> Floats:
        return -0.5 * _exp_half(q.copy())

    def _features(self, box: Box) -> FeatureMap | None:
        scales = np.broadcast_to(self.lengthscale, box.lower.shape)
        return gaussian_features(box, scales, self.variance)


@register("kernel", "matern")
@dataclass(frozen=True, kw_only=True)
class Matern(_Radial):
    """k(x, y) = variance · 2^{1−ν}/Γ(ν) · z^ν K_ν(z), z = √(2ν q).

    ν = ½, 3/2, 5/2 have closed forms: e^{−z}, (1 + z) e^{−z}, (1 + z + z²/3) e^{−z}. ν = ∞ is the
    squared exponential (JSON may say ``"inf"``). ν is never fitted.

    Args:
        nu: Smoothness: 0.5, 1.5 and 2.5 are the usual values.
    """

    nu: float = 2.5

    def __post_init__(self) -> None:
        nu = math.inf if str(self.nu) == "inf" else as_positive(self.nu, "Matern.nu")
        if _LARGEST_NU < nu < math.inf:
            told = "the Bessel function overflows and the kernel is all but squared exponential"
            raise InputError(
                f"Matern.nu is {nu:g}; above {_LARGEST_NU:g} {told}: use nu=inf"
            )
        object.__setattr__(self, "nu", nu)
        super().__post_init__()

    def _profile(self, q: Floats) -> Floats:
        if self.nu == math.inf:
            return _exp_half(q)
        q *= 2.0 * self.nu
        return _matern(np.sqrt(q, out=q), self.nu)

    def _state_space(self, tolerance: float) -> StateSpace | None:
        if isinstance(self.lengthscale, tuple):
            return None
        if self.nu == 0.5:
            return decaying(1.0 / self.lengthscale, self.variance)
        return (
            matern_three_halves(self.lengthscale, self.variance)
            if self.nu == 1.5
            else None
        )

    def _slope(self, q: Floats) -> Floats:
        # d/dz z^ν K_ν(z) = −z^ν K_{ν−1}(z) gives f'(q) = −ν 2^{1−ν}/Γ(ν) z^{ν−1} K_{ν−1}(z).
        nu = self.nu
        if nu == math.inf:
            return -0.5 * _exp_half(q.copy())
        z = np.sqrt(2.0 * nu * q)
        if nu == 0.5:
            with np.errstate(divide="ignore"):
                slope = -0.5 * np.exp(-z) / z
        elif nu > 1.0:
            return (-0.5 * nu / (nu - 1.0)) * _matern(z, nu - 1.0)
        else:
            from scipy.special import gammaln, kve

            with np.errstate(divide="ignore", invalid="ignore"):
                constant = math.log(nu) + (1.0 - nu) * math.log(2.0) - gammaln(nu)
                # K_{ν−1} = K_{1−ν}, and kve carries e^{z} so that the far tail does not underflow.
                logarithm = (
                    constant + (nu - 1.0) * np.log(z) + np.log(kve(1.0 - nu, z)) - z
                )
                slope = -np.exp(logarithm)
        slope[q == 0.0] = 0.0
        return slope


@register("kernel", "rational-quadratic")
@dataclass(frozen=True, kw_only=True)
class RationalQuadratic(_Radial):
    """k(x, y) = variance · (1 + q/(2α))^{−α}: a mixture of squared exponentials over lengthscales.

    Args:
        alpha: How fast similarity falls off at large distances; large values approach the squared
            exponential.
        alpha_bounds: Limits between which ``alpha`` is fitted, or "fixed".
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("alpha", "lengthscale", "variance")

    alpha: float = 1.0
    alpha_bounds: Bounds = DEFAULT_BOUNDS

    def _profile(self, q: Floats) -> Floats:
        q *= 0.5 / self.alpha
        np.log1p(q, out=q)
        q *= -self.alpha
        return np.exp(q, out=q)

    def _slope(self, q: Floats) -> Floats:
        return -0.5 * np.exp((-self.alpha - 1.0) * np.log1p(q * (0.5 / self.alpha)))

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        u = scaled_squared_distances(X, None, self.lengthscale) * (0.5 / self.alpha)
        along_alpha = self.alpha * K * (u / (1.0 + u) - np.log1p(u))
        return {**super()._gradients(X, K), "alpha": [along_alpha]}


@register("kernel", "periodic")
@dataclass(frozen=True, kw_only=True)
class Periodic(_Stationary):
    """k(x, y) = variance · exp(−2 Σ_j sin²(π (x_j − y_j)/p_j) / l_j²).

    In several columns this is the product of one periodic kernel per column.

    Args:
        period: One number, or one for each column.
        period_bounds: Limits between which ``period`` is fitted, or "fixed".
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("period", "lengthscale", "variance")

    period: Lengthscale = 1.0
    period_bounds: Bounds = DEFAULT_BOUNDS

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        Z = X if Y is None else Y
        exponent = np.zeros((len(X), len(Z)))
        for j, (period, scale) in enumerate(self._per_column(X.shape[1])):
            sine = np.sin(np.pi * _phase(X[:, j], Z[:, j], period))
            exponent -= np.square(sine) * (2.0 / scale**2)
        K = np.exp(exponent, out=exponent)
        K *= self.variance
        return K

    def _gradients(self, X: Floats, K: Floats) -> Mapping[str, Sequence[Floats]]:
        along_period: list[Floats] = []
        along_scale: list[Floats] = []
        for j, (period, scale) in enumerate(self._per_column(X.shape[1])):
            phase = _phase(X[:, j], X[:, j], period)
            cycles = np.subtract.outer(X[:, j], X[:, j]) / period
            along_period.append(
                K * np.sin(2.0 * np.pi * phase) * cycles * (2.0 * np.pi / scale**2)
            )
            along_scale.append(K * np.square(np.sin(np.pi * phase)) * (4.0 / scale**2))
        gathered = {"period": along_period, "lengthscale": along_scale}
        for name, parts in gathered.items():
            if not isinstance(
                getattr(self, name), tuple
            ):  # shared by all columns: of all of them
                gathered[name] = [np.sum(parts, axis=0) if parts else np.zeros_like(K)]
        return {**gathered, "variance": [K]}

    def _input_gradient(
        self, X: Floats, Y: Floats, weights: Floats, columns: list[int]
    ) -> Floats:
        # d/dx of −2 sin²(π x/p)/l² is −2π/(p l²) sin(2π x/p).
        weighted = self._covariance(X, Y)
        weighted *= weights
        per_column = list(self._per_column(X.shape[1]))
        gradient = np.empty((len(X), len(columns)))
        for place, column in enumerate(columns):
            period, scale = per_column[column]
            sine = np.sin(2.0 * np.pi * _phase(X[:, column], Y[:, column], period))
            along = np.einsum("ij,ij->i", weighted, sine)
            gradient[:, place] = (-2.0 * np.pi / (period * scale**2)) * along
        return gradient

    def _state_space(self, tolerance: float) -> StateSpace | None:
        if isinstance(self.period, tuple) or isinstance(self.lengthscale, tuple):
            return None
        return periodic(self.period, self.lengthscale, self.variance, tolerance)

    def _per_column(self, width: int) -> Iterator[tuple[float, float]]:
        return zip(
            *(np.broadcast_to(v, width) for v in (self.period, self.lengthscale)),
            strict=True,
        )


# --- distances ---------------------------------------------------------------------------


def _scaled_distances(X: Floats, Y: Floats, factor: float) -> Floats:
    """``factor`` · |x − y|², (n, m), from differences: precise at every offset and scale."""
    q = _cdist()(X, Y, "sqeuclidean")
    q *= factor
    return q


@functools.cache
def _cdist() -> Callable[..., Floats]:
    """Loaded on first use."""
    from scipy.spatial.distance import cdist

    made: Callable[..., Floats] = cdist
    return made


def scaled_squared_distances(
    X: Floats, Y: Floats | None, lengthscale: Lengthscale
) -> Floats:
    """Σ_j (x_j − y_j)²/l_j², (n, m), from differences: precise at every offset and scale.

    Without ``Y`` the result is symmetric with zeros on the diagonal.
    """
    # cdist takes one pass over the output; the same in numpy takes 3 d and twice the time.
    cdist = _cdist()
    other = X if Y is None else Y
    if isinstance(lengthscale, tuple):
        weights = 1.0 / np.square(np.array(lengthscale))
        return _bounded(cdist(X, other, "sqeuclidean", w=weights))
    q = cdist(X, other, "sqeuclidean")
    if lengthscale != 1.0:
        q *= 1.0 / lengthscale**2
    return _bounded(q)


def _bounded(q: Floats) -> Floats:
    """Infinite distances cut to large ones: a profile may multiply them by a zero."""
    if q.size and not q.max() < _FAR:
        np.minimum(q, _FAR, out=q)
    return q


def _near_exponent(X: Floats, Y: Floats, lengthscale: Lengthscale) -> Floats | None:
    """−q/2 as one matrix product, or ``None`` where that would lose precision.

    −q/2 = x·y − |x|²/2 − |y|²/2 on centred and scaled rows: with two more rows for the squares
    the whole of it is one product. Cancellation costs about ε·(|x|² + |y|²), hence the limit.
    Unlike a distance the result is never rooted, so that a rounding of +ε does no harm.
    """
    width = X.shape[1]
    if len(X) == 0 or len(Y) == 0 or width == 0:
        return None
    left = np.empty((width + 2, len(X)))
    right = np.empty((width + 2, len(Y)))
    x, y = left[:width], right[:width]
    x[...] = X.T
    y[...] = Y.T
    centre = x.mean(axis=1, keepdims=True)
    inverse = 1.0 / np.array(lengthscale).reshape(-1, 1)
    x -= centre
    x *= inverse
    y -= centre
    y *= inverse
    np.einsum("ij,ij->j", x, x, out=left[width])
    np.einsum("ij,ij->j", y, y, out=right[width + 1])
    if not left[width].max() + right[width + 1].max() <= _NEAR:
        return None
    left[width] *= -0.5
    right[width + 1] *= -0.5
    left[width + 1] = 1.0
    right[width] = 1.0
    return left.T @ right


def _exp_half(q: Floats) -> Floats:
    q *= -0.5
    return np.exp(q, out=q)


def _matern(z: Floats, nu: float) -> Floats:
    """2^{1−ν}/Γ(ν) · z^ν K_ν(z), 1 at z = 0; may overwrite ``z``."""
    if nu in (0.5, 1.5, 2.5):
        decay = np.negative(z)
        np.exp(decay, out=decay)
        if nu == 0.5:
            return decay
        if nu == 1.5:
            z += 1.0
            z *= decay
            return z
        polynomial = z * (1.0 / 3.0)
        polynomial += 1.0
        polynomial *= z
        polynomial += 1.0
        polynomial *= decay
        return polynomial
    from scipy.special import gammaln, kve

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bessel = kve(nu, z)  # e^z K_ν(z), which keeps the far tail
        # In logarithms z^ν and K_ν cannot overflow apart.
        constant = (1.0 - nu) * math.log(2.0) - gammaln(nu)
        value = np.exp(constant + nu * np.log(z) + np.log(bessel) - z)
    overflowed = np.isposinf(bessel)
    value[overflowed] = _matern_near_zero(z[overflowed], nu)
    value[z > 2000.0 + 10.0 * nu] = (
        0.0  # below the smallest double, and kve gives up out there
    )
    return np.minimum(value, 1.0, out=value)


def _matern_near_zero(z: Floats, nu: float) -> Floats:
    """Σ_{k<ν} (−z²/4)^k / (k! (ν − 1) … (ν − k)): the part of z^ν K_ν(z) that is regular at 0.

    Used where K_ν overflows; the rest, of order z^{2ν}, is then far below the last digit.
    """
    term, value = np.ones_like(z), np.ones_like(z)
    for k in range(1, min(40, math.ceil(nu))):
        term *= z * z * (-0.25 / (k * (nu - k)))
        value += term
    return value


def _phase(x: Floats, y: Floats, period: float) -> Floats:
    """(x − y)/period less whole periods, in [−½, ½]: sines stay precise after many periods."""
    cycles = np.subtract.outer(x, y)
    cycles /= period
    cycles -= np.rint(cycles)
    return cycles
