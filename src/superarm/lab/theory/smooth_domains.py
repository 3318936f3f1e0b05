"""Boxes of arms, and how smooth functions on them are: eqs 9 to 11 of bogunovic2016time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from superarm.core import Covariance
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_positive
from superarm.kernels import Matern
from superarm.kernels.lipschitz import lipschitz_of_kernel


@dataclass(frozen=True, kw_only=True)
class SmoothDomain:
    """Arms in [0, r]^d, r the ``side``, and constants of eqs 9 to 11 for draws of the kernel.

    For every L > 0: P(sup |f| > L) ≤ a₀ exp(−(L/b₀)²), P(sup |∂f/∂x_j| > L) ≤ a₁ exp(−(L/b₁)²), and
    P(sup |∂²f/∂x_i∂x_j| > L) ≤ a₂ exp(−(L/b₂)²). Only Theorem 4.1 needs a₂ and b₂, which are ``None``
    where they are not known.

    Args:
        dimension: d.
        side: r.
        a0: a₀ of eq. 9.
        b0: b₀ of eq. 9.
        a1: a₁ of eq. 10.
        b1: b₁ of eq. 10.
        a2: a₂ of eq. 11.
        b2: b₂ of eq. 11.
    """

    dimension: int
    side: float
    a0: float
    b0: float
    a1: float
    b1: float
    a2: float | None = None
    b2: float | None = None

    def __post_init__(self) -> None:
        as_count(self.dimension, "dimension")
        as_positive(self.side, "side")
        as_positive(self.a0, "a0")
        as_positive(self.b0, "b0")
        as_positive(self.a1, "a1")
        as_positive(self.b1, "b1")
        if (self.a2 is None) != (self.b2 is None):
            raise InputError("a2 and b2 belong together; give both or neither")
        if self.a2 is not None and self.b2 is not None:
            as_positive(self.a2, "a2")
            as_positive(self.b2, "b2")

    @classmethod
    def of_kernel(
        cls, kernel: Covariance, dimension: int, side: float = 1.0
    ) -> SmoothDomain:
        """Constants that hold for a squared exponential or a Matérn kernel with ν > 2: ours.

        Let X be f or one of its derivatives, s² its variance and m = E sup X. Borell's inequality gives
        P(sup |X| > L) ≤ 2 exp(−(L − m)²/(2s²)), which is at most a exp(−(L/b)²) with a = 2e^{m/s} and
        b² = s(m + 2s), as (L − m)² ≥ 2s/(m + 2s)·L² − 2ms for every L. If E(X_x − X_y)² is at most
        Σ c_i²(x_i − y_i)², then m is at most that of Σ c_i z_i x_i with normal z, r Σ c_i/√(2π), by the
        inequality of Sudakov and Fernique. For a stationary f the second spectral moments are such
        c_i², for a slope the fourth ones, and for a second derivative the sixth ones.

        Matérn kernels have sixth spectral moments for ν > 3 (the paper asks for ν > 4). For ν = 5/2,
        E(X_x − X_y)² ≤ Σ c_i²|x_i − y_i|, and Brownian motions take the place of lines: m is at most
        √(2r/π) Σ c_i. For other ν up to 3, a₂ and b₂ are ``None``.

        Args:
            kernel: with one lengthscale.
            dimension: d.
            side: r.
        """
        d = as_count(dimension, "dimension")
        length = as_positive(side, "side")
        slope = lipschitz_of_kernel(kernel)  # s of a slope
        origin = np.zeros((1, d))
        variance = float(kernel.diag(origin)[0])
        std = math.sqrt(variance)
        nu = kernel.nu if isinstance(kernel, Matern) else math.inf
        if nu <= 2.0:
            raise InputError(
                f"nu is {nu:g}; slopes of a Matérn kernel's draws are smooth for nu > 2"
            )
        heaviness = 1.0
        if math.isfinite(nu):
            heaviness = math.sqrt((nu - 1.0) / (nu - 2.0))
        mixed = slope**2 / std * heaviness  # √E ω_i²ω_j²; √3 times that for i = j
        reach = length / math.sqrt(2.0 * math.pi)
        mean_of_values = reach * d * slope
        of_values = _tail(mean_of_values, std)
        slope_sum = math.sqrt(3.0) + d - 1.0
        mean_of_slopes = reach * slope_sum * mixed
        of_slopes = _tail(mean_of_slopes, slope)
        of_curvatures = _curvature_tails(slope, std, nu, d, length)
        return cls(
            dimension=d,
            side=side,
            a0=of_values.a,
            b0=of_values.b,
            a1=of_slopes.a,
            b1=of_slopes.b,
            a2=max((tail.a for tail in of_curvatures), default=None),
            b2=max((tail.b for tail in of_curvatures), default=None),
        )


class _Tail(NamedTuple):
    """P(sup |X| > L) ≤ a exp(−(L/b)²)."""

    a: float
    b: float


def _tail(m: float, s: float) -> _Tail:
    """The tail of a process with variance s² and E sup X ≤ m, by Borell's inequality."""
    a = 2.0 * math.exp(m / s)
    b_squared = s * (m + 2.0 * s)
    b = math.sqrt(b_squared)
    return _Tail(a, b)


def _curvature_tails(
    slope: float, std: float, nu: float, d: int, side: float
) -> list[_Tail]:
    """Of ∂²f/∂x_i², and of ∂²f/∂x_i∂x_j where d > 1; none where ν gives none.

    Spectral moments are those of a multivariate t distribution with 2ν degrees of freedom, or of a
    normal one: E ω_i⁴ is 3 and E ω_i⁶ is 15 times the moment of as many different coordinates.
    """
    if nu == 2.5:
        return _rough_tails(slope, std, d, side)
    if nu <= 3.0:
        return []
    fourth = 1.0
    sixth = 1.0
    if math.isfinite(nu):
        fourth = (nu - 1.0) / (nu - 2.0)
        sixth = (nu - 1.0) ** 2 / ((nu - 2.0) * (nu - 3.0))
    mixed = slope**2 / std * math.sqrt(fourth)  # √E ω_i²ω_j²
    steep = slope**3 / std**2 * math.sqrt(sixth)  # √E ω_i²ω_j²ω_k²
    reach = side / math.sqrt(2.0 * math.pi)
    root_3 = math.sqrt(3.0)
    straight_sum = math.sqrt(15.0) + (d - 1.0) * root_3  # Σ c_k of ∂²f/∂x_i²
    straight_mean = reach * straight_sum * steep
    straight_std = root_3 * mixed
    tails = [_tail(straight_mean, straight_std)]
    if d > 1:
        crossed_sum = 2.0 * root_3 + (d - 2.0)  # Σ c_k of ∂²f/∂x_i∂x_j
        crossed_mean = reach * crossed_sum * steep
        tails.append(_tail(crossed_mean, mixed))
    return tails


def _rough_tails(slope: float, std: float, d: int, side: float) -> list[_Tail]:
    """Of a Matérn kernel with ν = 5/2, with a = √5/l and ρ = ‖x − y‖.

    ∂⁴k/∂x_i²∂x_j² is v(a⁴/3)e^{−aρ}(1 − a(h_i² + h_j²)/ρ + a h_i²h_j²(1 + aρ)/ρ³), h = x − y, and for
    i = j it is v(a⁴/3)e^{−aρ}(3 − 6a h_i²/ρ + a h_i⁴(1 + aρ)/ρ³). The last terms are not below 0,
    1 − e^{−aρ} ≤ aρ ≤ aΣ|h_k| and h_i²/ρ ≤ |h_i|. So E(X_x − X_y)², twice the difference from h = 0, is
    at most v(2a⁵/3)(Σ|h_k| + |h_i| + |h_j|), and v(2a⁵)(Σ|h_k| + 2|h_i|) for i = j.
    """
    root_3 = math.sqrt(3.0)
    rate = root_3 * slope / std  # a: slope² is v a²/3
    unit = std * math.sqrt(2.0 * rate**5)
    reach = math.sqrt(2.0 * side / math.pi)
    straight_sum = root_3 + (d - 1.0)
    straight_mean = reach * straight_sum * unit
    straight_std = std * rate**2
    tails = [_tail(straight_mean, straight_std)]
    if d > 1:
        crossed_sum = (2.0 * math.sqrt(2.0) + (d - 2.0)) / root_3
        crossed_mean = reach * crossed_sum * unit
        crossed_std = straight_std / root_3
        tails.append(_tail(crossed_mean, crossed_std))
    return tails
