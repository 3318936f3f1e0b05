"""The Matérn kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_positive
from superarm.core.registry import register

from .radial import Radial, exp_half
from .state_space import StateSpace, exponential_decay, matern_three_halves

_LOG_TWO = math.log(2.0)
_LARGEST_NU = 300.0
_MOST_TERMS = 40  # of the series near 0


@register("kernel", "matern")
@dataclass(frozen=True, kw_only=True)
class Matern(Radial):
    """k(x, y) = variance · 2^{1−ν}/Γ(ν) · z^ν K_ν(z), z = √(2ν q), q = Σ_j (x_j − y_j)²/l_j².

    ν = ½, 3/2, 5/2 have closed forms: e^{−z}, (1 + z) e^{−z}, (1 + z + z²/3) e^{−z}. ν = ∞ is the
    squared exponential (in JSON, write ``"inf"``). ν is never fitted.

    Args:
        nu: Smoothness ν; 0.5, 1.5 and 2.5 are the usual values.
        lengthscale: l: distance over which the function changes; one number, or one per column.
        variance: Prior variance of the function values.
        lengthscale_bounds: Limits between which ``lengthscale`` is fitted, or "fixed".
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.
    """

    nu: float = 2.5

    def __post_init__(self) -> None:
        nu = math.inf
        if str(self.nu) != "inf":  # a text in JSON; an array would not compare
            nu = as_positive(self.nu, "Matern.nu")
        if _LARGEST_NU < nu < math.inf:
            raise InputError(
                f"Matern.nu is {nu:g}; above {_LARGEST_NU:g} the Bessel function overflows and "
                "the kernel is all but squared exponential: use nu=inf"
            )
        object.__setattr__(self, "nu", nu)
        super().__post_init__()

    def _profile(self, q: Floats) -> Floats:
        if self.nu == math.inf:
            return exp_half(q)
        q *= 2.0 * self.nu
        z = np.sqrt(q, out=q)
        return _matern(z, self.nu)

    def _slope(self, q: Floats) -> Floats:
        # d/dz z^ν K_ν(z) = −z^ν K_{ν−1}(z) gives f'(q) = −ν 2^{1−ν}/Γ(ν) z^{ν−1} K_{ν−1}(z).
        nu = self.nu
        if nu == math.inf:
            return -0.5 * exp_half(q.copy())
        z = np.sqrt(2.0 * nu * q)
        if nu > 1.0:
            factor = -0.5 * nu / (nu - 1.0)
            return factor * _matern(z, nu - 1.0)
        slope = _rough_slope(z, nu)
        slope[q == 0.0] = 0.0
        return slope

    def _state_space(self, tolerance: float) -> StateSpace | None:
        if isinstance(self.lengthscale, tuple):
            return None
        if self.nu == 0.5:
            return exponential_decay(1.0 / self.lengthscale, self.variance)
        if self.nu == 1.5:
            return matern_three_halves(self.lengthscale, self.variance)
        return None


def _rough_slope(z: Floats, nu: float) -> Floats:
    """f' for ν ≤ 1; not finite at z = 0."""
    if nu == 0.5:
        decay = np.exp(-z)
        with np.errstate(divide="ignore"):
            return np.asarray(-0.5 * decay / z)
    from scipy.special import gammaln, kve

    order = 1.0 - nu  # K_{ν−1} = K_{1−ν}
    log_gamma = gammaln(nu)
    constant = math.log(nu) + order * _LOG_TWO - log_gamma
    with np.errstate(divide="ignore", invalid="ignore"):
        # kve includes e^{z}, so that the far tail does not underflow.
        bessel = kve(order, z)
        log_bessel = np.log(bessel)
        log_power = (nu - 1.0) * np.log(z)
        logarithm = constant + log_power + log_bessel - z
        slope = -np.exp(logarithm)
    return np.asarray(slope)


def _matern(z: Floats, nu: float) -> Floats:
    """2^{1−ν}/Γ(ν) · z^ν K_ν(z), 1 at z = 0; may overwrite ``z``."""
    if nu in (0.5, 1.5, 2.5):
        return _closed_form(z, nu)
    from scipy.special import gammaln, kve

    log_gamma = gammaln(nu)
    constant = (1.0 - nu) * _LOG_TWO - log_gamma
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bessel = kve(nu, z)  # e^z K_ν(z), which keeps the far tail
        # In logarithms, z^ν and K_ν cannot overflow separately.
        log_power = nu * np.log(z)
        log_bessel = np.log(bessel)
        logarithm = constant + log_power + log_bessel - z
        value = np.exp(logarithm)
    overflowed = np.isposinf(bessel)
    value[overflowed] = _matern_near_zero(z[overflowed], nu)
    # Below the smallest double, and kve fails that far out.
    vanishes = z > 2000.0 + 10.0 * nu
    value[vanishes] = 0.0
    return np.minimum(value, 1.0, out=value)


def _closed_form(z: Floats, nu: float) -> Floats:
    """2^{1−ν}/Γ(ν) · z^ν K_ν(z) for ν = ½, 3/2 or 5/2; may overwrite ``z``."""
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


def _matern_near_zero(z: Floats, nu: float) -> Floats:
    """Σ_{k<ν} (−z²/4)^k / (k! (ν − 1) … (ν − k)): the part of z^ν K_ν(z) that is regular at 0.

    Used where K_ν overflows; the other part, of order z^{2ν}, is then far below the last digit.
    """
    term = np.ones_like(z)
    value = np.ones_like(z)
    count = min(_MOST_TERMS, math.ceil(nu))
    for k in range(1, count):
        factor = -0.25 / (k * (nu - k))
        term *= z * z * factor
        value += term
    return value
