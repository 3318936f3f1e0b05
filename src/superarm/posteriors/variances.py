"""Prior and posterior variances, validated, and the rounding errors to expect.

Notation

============  ======================================================================
``N, X``      observations, and their arms
``s``         the largest prior variance
``λ``         the smallest noise variance
``ε``         the machine precision
``A``         K + D, (N, N), with Cholesky factor L; ``c`` a small constant
``b, a``      k(X, x) of an arm x, and A⁻¹b
``r, z``      rewards minus the prior mean, and L⁻¹r
``v``         the posterior variance of x, k(x, x) − bᵀA⁻¹b
============  ======================================================================

Variances: rounding in A, b and the solve amounts to changing A by at most c·N·ε·s in norm, which moves
v by at most c·N·ε·s (1 + ‖a‖)². Since ‖a‖² = bᵀA⁻²b ≤ s/λ, that is c·N·ε·s (1 + √(s/λ))²: about 1e-8 s
for a thousand observations and noise of 1e-4 s, with c = 4. In practice it is far less, also with less
noise.

Means: the same change moves a mean bᵀA⁻¹r by at most c·N·ε·s·‖a‖·‖A⁻¹r‖. At an observed arm ‖a‖ is at
most 1, because no eigenvalue of A⁻¹K is larger. ‖A⁻¹r‖ is at most ‖z‖/√λ; ‖z‖² is N where rewards
scatter as the noise predicts, and Δ²/λ where they differ by Δ at equal arms. So ε·s·‖z‖/√λ estimates
the error of a mean: compared with 60 digits it is right within a factor of 10, for noise from 1e-6 s to
1e-12 s. :func:`check_means` warns. At an arm far from all observed ones ‖a‖ may be larger, and the
error with it, thousands of times for noise of 1e-12 s. But v is at least λ‖a‖², so in standard
deviations of that arm the error is still at most about ε·s·‖z‖/λ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from superarm.core import Covariance, Floats, errors
from superarm.core.inputs import LARGEST
from superarm.core.linalg import PSD_ERROR_LIMIT, PSD_ERROR_SILENT
from superarm.kernels import Kernel

EPSILON = float(np.finfo(np.float64).eps)
# Rounding may bring a posterior variance so far below 0, relative to the largest prior variance.
_EXPECTED_ROUNDING = 1e-8
# Means with a larger error, relative to their scale, cause a warning.
_LARGEST_MEAN_ERROR = 1e-6
SURE_NOISE = 1e-7
"""Noise, relative to the largest prior variance, from which on means need no check: less than 1e-6 is
lost unless rewards differ a million times more than noise and prior allow."""


def prior_variance(kernel: Covariance, arms: Floats) -> Floats:
    """k(x, x) of every arm, (n,), a new array, validated: a foreign kernel may return anything.

    Args:
        kernel: The kernel.
        arms: Feature rows, (n, d).
    """
    constant = constant_variance(kernel)
    if constant is not None:
        return np.full(len(arms), constant)
    variance = np.array(kernel.diag(arms), dtype=np.float64)
    if variance.shape != (len(arms),):
        raise errors.ShapeError(
            f"the kernel's diag gives shape {variance.shape} for {len(arms)} arms; "
            "it must give one prior variance per arm"
        )
    lowest = variance.min(initial=0.0)
    highest = variance.max(initial=0.0)
    if lowest >= 0.0 and highest <= LARGEST:  # both are false for NaN
        return variance
    _check_prior_variance(variance)
    return np.maximum(variance, 0.0, out=variance)


def _check_prior_variance(variance: Floats) -> None:
    """Refuse prior variances that are not finite, too large, or more negative than by rounding."""

    finite = np.isfinite(variance)
    if not finite.all():
        arm = int(finite.argmin())
        raise errors.NotFiniteError(
            f"the kernel's prior variance of arm {arm} must be finite, got {variance[arm]:g}"
        )
    sizes = np.abs(variance)
    largest = float(sizes.max())
    if largest > LARGEST:
        arm = int(sizes.argmax())
        raise errors.InputError(
            f"the kernel's prior variance of arm {arm} must be at most {LARGEST:g}, so that its "
            f"square fits a float, got {variance[arm]:g}; choose other units"
        )
    if variance.min() < -PSD_ERROR_SILENT * largest:
        arm = int(variance.argmin())
        raise errors.NotPositiveDefiniteError(
            f"the kernel's prior variance of arm {arm} must not be negative, got "
            f"{variance[arm]:g}; check the kernel's diag"
        )


def constant_variance(kernel: Covariance) -> float | None:
    """k(x, x) of one of our own kernels if it is the same for all arms, else ``None``.

    Args:
        kernel: The kernel.
    """
    return kernel.constant_variance if isinstance(kernel, Kernel) else None


def largest_variance(kernel: Covariance, arms: Floats) -> float:
    """The largest k(x, x) of some arms; 0 for none.

    Args:
        kernel: The kernel.
        arms: Feature rows, (n, d).
    """
    constant = constant_variance(kernel)
    if constant is not None:
        return constant
    variances = prior_variance(kernel, arms)
    return float(np.max(variances, initial=0.0))


def check_posterior_variance(variance: Floats, scale: float) -> None:
    """Warn of posterior variances below 0 by more than rounding, and refuse worse ones.

    Args:
        variance: Posterior variances, (n,).
        scale: The largest prior variance.
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
    if value < -_EXPECTED_ROUNDING * scale:
        errors.warn(f"{message}; it is set to 0", errors.PrecisionWarning)


def mean_error(misfit: float, noise: float, scale: float) -> float:
    """ε·s·‖z‖/√λ, an estimate of the largest error of a mean at observed arms.

    Args:
        misfit: ‖z‖².
        noise: The smallest noise variance λ.
        scale: The largest prior variance s.
    """
    return EPSILON * scale * float(np.sqrt(misfit / noise))


def check_means(misfit: float, noise: float, scale: float, largest_mean: float) -> bool:
    """Warn if means have lost their digits; returns whether it did.

    Args:
        misfit: ‖z‖².
        noise: The smallest noise variance λ.
        scale: The largest prior variance s.
        largest_mean: The largest size of a mean.
    """
    prior_std = float(np.sqrt(scale))
    size = max(prior_std, largest_mean)
    error = mean_error(misfit, noise, scale) / size
    if not error > _LARGEST_MEAN_ERROR:
        return False
    sufficient_noise = noise * error / _LARGEST_MEAN_ERROR
    errors.warn(
        f"means may be wrong by about {error:.0e} of their size: nearly equal arms have rewards that a "
        f"noise_variance of {noise:.3g} does not explain; use at least {sufficient_noise:.1g}",
        errors.PrecisionWarning,
    )
    return True


def standard_deviation(variance: Floats, scale: Callable[[], float]) -> Floats:
    """√variance, in place; negative values, which rounding may cause, become 0.

    Args:
        variance: Posterior variances, (n,); overwritten.
        scale: Returns the largest prior variance; called only if a variance is negative.
    """
    if len(variance):
        where = variance.argmin()  # of the smallest, or of the first NaN
        if not variance.item(where) >= 0.0:
            check_posterior_variance(variance, scale())
            np.maximum(variance, 0.0, out=variance)
    return np.sqrt(variance, out=variance)
