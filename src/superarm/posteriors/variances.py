"""Variances, checked: what a kernel says of arms, and what learning leaves of it.

A posterior variance is the prior's less what is explained, v = k(x, x) − bᵀA⁻¹b with A = K + D of N
observations, b = k(X, x) and a = A⁻¹b. Rounding in A, b and the solve is that of a matrix changed
by at most c·N·ε·s in norm, s the largest prior variance, which moves v by at most
c·N·ε·s (1 + ‖a‖)². Since ‖a‖² = bᵀA⁻²b ≤ s/λ, λ the least noise, that is c·N·ε·s (1 + √(s/λ))²:
about 1e-8 s for a thousand observations and noise of 1e-4 s, with c = 4. What is found in practice
is far less, also with less noise.

The same change moves a mean bᵀA⁻¹r, r the rewards without the prior mean, by at most
c·N·ε·s·‖a‖·‖A⁻¹r‖. At an arm that was observed ‖a‖ is at most 1, because no eigenvalue of A⁻¹K is
larger. ‖A⁻¹r‖ is at most ‖z‖/√λ with z = L⁻¹r and L Lᵀ = A: ‖z‖² is N where rewards scatter as the
noise says, and Δ²/λ where they differ by Δ at equal arms. So ε·s·‖z‖/√λ estimates the error of a mean:
against 60 digits it is within a factor of 10 of what is found, for noise from 1e-6 s to 1e-12 s.
:func:`check_means` warns. At an arm beyond all that were observed ‖a‖ may be larger, and the error with
it, thousands of times where noise is 1e-12 s. But v is at least λ‖a‖², so that in standard deviations
of that arm the error is still at most about ε·s·‖z‖/λ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from superarm.core import Covariance, Floats, errors
from superarm.core.inputs import LARGEST
from superarm.core.linalg import PSD_ERROR_LIMIT, PSD_ERROR_SILENT
from superarm.kernels import Kernel

EPSILON = float(np.finfo(np.float64).eps)
_EXPLAINED = 1e-8  # of the largest prior variance: how far below 0 rounding may bring a posterior one


def prior_variance(kernel: Covariance, arms: Floats) -> Floats:
    """k(x, x) of every arm, (n,), a new array, checked: a foreign kernel may return anything."""
    level = constant_variance(kernel)
    if level is not None:
        return np.full(len(arms), level)
    variance = np.array(kernel.diag(arms), dtype=np.float64)
    if variance.shape != (len(arms),):
        shape = f"the kernel's diag gives shape {variance.shape} for {len(arms)} arms"
        raise errors.ShapeError(f"{shape}; it must give one prior variance per arm")
    if (
        variance.min(initial=0.0) >= 0.0 and variance.max(initial=0.0) <= LARGEST
    ):  # no NaN passes
        return variance

    def told(where: Any) -> str:
        return f"the kernel gives arm {where} the prior variance {variance[where]:g}"

    if not (finite := np.isfinite(variance)).all():
        raise errors.NotFiniteError(f"{told(finite.argmin())}; it must be finite")
    if (largest := float(np.abs(variance).max())) > LARGEST:
        advice = f"squares of it must fit a float: choose units in which it is at most {LARGEST:g}"
        raise errors.InputError(f"{told(np.abs(variance).argmax())}; {advice}")
    if variance.min() < -PSD_ERROR_SILENT * largest:
        advice = "it must not be negative: check its diag"
        raise errors.NotPositiveDefiniteError(f"{told(variance.argmin())}; {advice}")
    return np.maximum(variance, 0.0, out=variance)


def constant_variance(kernel: Covariance) -> float | None:
    """k(x, x) where one of our own kernels says that all arms have the same."""
    return kernel.constant_variance if isinstance(kernel, Kernel) else None


def largest_variance(kernel: Covariance, arms: Floats) -> float:
    """The largest k(x, x) of some arms; 0 for none."""
    level = constant_variance(kernel)
    if level is not None:
        return level
    return float(np.max(prior_variance(kernel, arms), initial=0.0))


def check_left(variance: Floats, scale: float) -> None:
    """Warn of, or refuse, posterior variances further below 0 than rounding brings them.

    ``scale`` is the largest prior variance.
    """
    where = int(np.argmin(variance))  # of the first NaN, if there is one
    value = float(variance[where])
    if np.isnan(value):
        raise errors.NotFiniteError(
            f"the variance of arm {where} is NaN: the kernel gives NaN or infinity"
        )
    message = (
        f"the variance of arm {where} is {value:.3g} where the largest prior variance is {scale:.3g}: "
        "the kernel is not positive semi-definite, its diag is not its diagonal, or noise_variance "
        "is too small"
    )
    if value < -PSD_ERROR_LIMIT * scale:
        raise errors.NotPositiveDefiniteError(message)
    if value < -_EXPLAINED * scale:
        errors.warn(f"{message}; it is set to 0", errors.PrecisionWarning)


_FEW_DIGITS = 1e-6
"""Error of means, relative to their scale, from which on it is told."""
SURE_NOISE = 1e-7
"""Noise, in largest prior variances, from which on means are not checked: less than 1e-6 is lost unless
rewards are a million times further from each other than noise and prior allow."""


def mean_error(misfit: float, noise: float, scale: float) -> float:
    """ε·s·‖z‖/√λ, an estimate of the largest error of a mean at arms that were observed.

    ``misfit`` is ‖z‖², ``noise`` the least noise variance λ, ``scale`` the largest prior variance s.
    """
    return EPSILON * scale * float(np.sqrt(misfit / noise))


def check_means(misfit: float, noise: float, scale: float, largest_mean: float) -> bool:
    """Warn where means have lost their digits; says whether it did. Arguments as in ``mean_error``."""
    size = max(float(np.sqrt(scale)), largest_mean)
    error = mean_error(misfit, noise, scale) / size
    if not error > _FEW_DIGITS:
        return False
    enough = noise * error / _FEW_DIGITS
    errors.warn(
        f"means may be wrong by about {error:.0e} of their size: nearly equal arms have rewards that a "
        f"noise_variance of {noise:.3g} does not explain; use at least {enough:.1g}",
        errors.PrecisionWarning,
    )
    return True


def standard_deviation(variance: Floats, scale: Callable[[], float]) -> Floats:
    """√variance in place, with rounding below zero cut off; ``scale``: the largest prior variance."""
    # The smallest, or the first NaN.
    if len(variance) and not variance.item(variance.argmin()) >= 0.0:
        check_left(variance, scale())
        np.maximum(variance, 0.0, out=variance)
    return np.sqrt(variance, out=variance)
