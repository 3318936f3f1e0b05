"""Hyper-parameters by maximum marginal likelihood.

Notation

=============  ===========================================================================
``X``, ``y``   (n, d) arms and (n,) rewards
``C``          (n, n), K + noise_variance·I, with the Cholesky factor L
``alpha``      (n,), C⁻¹ (y − mean)
``theta``      (p,), logarithms of the kernel's free hyper-parameters
=============  ===========================================================================

log p(y) = −½ (y − mean)ᵀ alpha − Σ_i log L_ii − (n/2) log 2π, and
∂/∂theta_j = ½ tr((alpha alphaᵀ − C⁻¹) ∂C/∂theta_j) (Rasmussen and Williams, equations 2.30 and 5.9).
Groups of observations, such as days, may be independent: both are then sums over them. With a kernel
``space * Temporal(column=…)`` these are bogunovic2016time, eqs. 24 and 25; for tables in which every
arm was read at every time :func:`~superarm.kernels.fit_drift` is faster.

Works with any :class:`~superarm.kernels.TunableCovariance`: ours and scikit-learn's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.errors import InputError, NotPositiveDefiniteError, ShapeError
from superarm.inputs import as_features, as_positive, as_vector
from superarm.kernels.base import Covariance, TunableCovariance
from superarm.threads import blas_threads_for


class Likelihood(NamedTuple):
    """The log marginal likelihood and its derivatives."""

    value: float
    theta: Floats  # (p,)
    log_noise_variance: float


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What :func:`fit_kernel` found."""

    kernel: Any  # the kernel given, with the best hyper-parameters
    noise_variance: float
    mean: float
    log_marginal_likelihood: float
    converged: bool  # whether the optimizer converged at the best point
    evaluations: int  # likelihoods computed, over all starts
    message: str  # the optimizer's own message for the best start


def log_marginal_likelihood(
    kernel: Covariance, X: Any, y: Any, *, noise_variance: float, mean: float = 0.0, groups: Any = None
) -> float:
    """log p(y | X) of a Gaussian process with constant mean and Gaussian noise, in nats.

    Observations with different labels in ``groups`` (n,) are independent.
    """
    rows, noise = as_features(X, "X"), as_positive(noise_variance, "noise_variance")
    residual, blocks = as_vector(y, "y", len(rows)) - mean, _blocks(groups, len(rows))
    known = zip(_factors(kernel, rows, noise, blocks), [residual[at] for at in blocks], strict=True)
    return sum(_value(factor, _solve(factor, part), part) for factor, part in known)


def fit_kernel(
    kernel: TunableCovariance,
    X: Any,
    y: Any,
    *,
    noise_variance: float,
    rng: Rng,
    mean: float = 0.0,
    fit_noise: bool = True,
    noise_bounds: tuple[float, float] = (1e-8, 1e3),
    fit_mean: bool = False,
    restarts: int = 4,
    groups: Any = None,
    most_evaluations: int = 15_000,
) -> FitResult:
    """The hyper-parameters under which the data are most likely.

    L-BFGS-B with analytic gradients, within ``kernel.bounds`` and ``noise_bounds``, from the values
    given (moved into the bounds) and from ``restarts`` points drawn log-uniformly within the bounds.
    With ``fit_mean`` the mean is not searched for: at every point it takes its best value,
    1ᵀC⁻¹y / 1ᵀC⁻¹1, which leaves the other derivatives as they are. Observations with different labels
    in ``groups`` (n,), such as days, are independent. A start is given up, not converged, with the step
    in which ``most_evaluations`` are reached.

    A trial point whose covariance has no Cholesky factor counts as impossible, likelihood −∞, so that
    the search turns back there. If no start yields a finite likelihood,
    :class:`~superarm.errors.NotPositiveDefiniteError` is raised.
    """
    from scipy.optimize import minimize

    rows = as_features(X, "X")
    rewards, blocks = as_vector(y, "y", len(rows)), _blocks(groups, len(rows))
    noise = as_positive(noise_variance, "noise_variance")
    if len(rows) == 0:
        raise InputError("X is empty; fitting needs at least one observation")
    if not isinstance(kernel, TunableCovariance):
        raise InputError(
            f"{type(kernel).__name__} cannot be fitted: it needs theta, bounds, clone_with_theta "
            "and eval_gradient, as the kernels here and in scikit-learn have"
        )
    size, bounds = len(kernel.theta), np.reshape(kernel.bounds, (-1, 2))
    start = np.array(kernel.theta, dtype=np.float64)
    if fit_noise:
        low, high = (as_positive(value, "noise_bounds") for value in noise_bounds)
        if low > high:
            raise InputError(f"noise_bounds is ({low:g}, {high:g}); the lower one comes first")
        bounds = np.concatenate([bounds, np.log([[low, high]])])
        start = np.append(start, math.log(noise))
    if restarts > 0 and not np.isfinite(bounds).all():
        raise InputError("restarts are drawn within the bounds, so all bounds must be finite")

    def at(point: Floats) -> tuple[TunableCovariance, float]:
        fitted = cast(TunableCovariance, kernel.clone_with_theta(point[:size])) if size else kernel
        return fitted, float(np.exp(point[size])) if fit_noise else noise

    fixed_mean = None if fit_mean else float(mean)
    evaluations = 0

    def loss(point: Floats) -> tuple[float, Floats]:
        nonlocal evaluations
        evaluations += 1
        trial, trial_noise = at(point)
        try:
            found = likelihood(trial, rows, rewards, noise=trial_noise, mean=fixed_mean, blocks=blocks)
        except NotPositiveDefiniteError:
            return math.inf, np.zeros(len(point))
        slope = np.append(found.theta, found.log_noise_variance) if fit_noise else found.theta
        return -found.value, -slope

    best_point, best_loss, converged, message = start, math.inf, True, "there was nothing to fit"
    if len(start) == 0:
        best_loss = loss(start)[0]
    else:
        within, limit = [(a, b) for a, b in bounds.tolist()], cast(Any, {"maxfun": most_evaluations})
        starts = [np.clip(start, bounds[:, 0], bounds[:, 1])]
        starts += [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(restarts)]
        for first in starts:
            if not math.isfinite(loss(first)[0]):
                continue  # L-BFGS-B cannot leave a point whose value is infinite
            result = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=within, options=limit)
            if float(result.fun) < best_loss:
                best_point, best_loss = result.x, float(result.fun)
                converged, message = bool(result.success), str(result.message)
    if not math.isfinite(best_loss):
        advice = f"the lower noise bound (now {noise_bounds[0]:g})" if fit_noise else "noise_variance"
        raise NotPositiveDefiniteError(
            f"K + noise_variance·I could not be factorised at any of {evaluations} trial points of "
            f"{kernel!r}; raise {advice}, or tighten the kernel's bounds"
        )
    fitted, fitted_noise = at(best_point)
    if fit_mean:
        mean = _best_mean(_factors(fitted, rows, fitted_noise, blocks), [rewards[at] for at in blocks])
    return FitResult(
        kernel=fitted,
        noise_variance=fitted_noise,
        mean=float(mean),
        log_marginal_likelihood=-best_loss,
        converged=converged,
        evaluations=evaluations,
        message=message,
    )


def likelihood(
    kernel: TunableCovariance,
    X: Floats,
    y: Floats,
    *,
    noise: float,
    mean: float | None,
    blocks: Sequence[Ints] | None = None,
) -> Likelihood:
    """Value and derivatives; a mean of ``None`` takes its best value. Blocks are independent."""
    parts = _blocks(None, len(y)) if blocks is None else blocks
    known = [kernel(X[at], eval_gradient=True) for at in parts]
    factors = [_factorise(K, noise, kernel) for K, _ in known]
    rewards = [y[at] for at in parts]
    level = _best_mean(factors, rewards) if mean is None else mean
    together = zip(factors, known, rewards, strict=True)
    found = [_likelihood(factor, slopes, y - level, noise) for factor, (_, slopes), y in together]
    return Likelihood(*(sum(each) for each in zip(*found, strict=True)))


def _likelihood(factor: Floats, gradient: Floats, residual: Floats, noise: float) -> Likelihood:
    alpha = _solve(factor, residual)
    # ½ tr((αα' − C⁻¹) ∂C): all derivatives share the bracket, and both its factors are symmetric.
    bracket = np.outer(alpha, alpha) - _solve(factor, np.eye(len(factor)))
    theta = 0.5 * np.einsum("ij,ijp->p", bracket, gradient)
    return Likelihood(_value(factor, alpha, residual), theta, 0.5 * noise * float(np.trace(bracket)))


def _blocks(groups: Any, count: int) -> list[Ints]:
    """The rows of each group; all rows where there are none."""
    if groups is None:
        return [np.arange(count)]
    try:
        labels = np.asarray(groups)
    except ValueError:
        labels = np.asarray(None)
    if labels.dtype.kind not in "biufUS" or (labels.dtype.kind == "f" and np.isnan(labels).any()):
        raise InputError("groups must be labels, numbers or words, and none may be missing")
    if labels.shape != (count,):
        raise ShapeError(f"groups has shape {labels.shape}; give one label for each of {count} rewards")
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _value(factor: Floats, alpha: Floats, residual: Floats) -> float:
    fit = -0.5 * float(residual @ alpha)
    complexity = float(np.log(np.diagonal(factor)).sum())
    return fit - complexity - 0.5 * len(residual) * math.log(2.0 * math.pi)


def _best_mean(factors: Sequence[Floats], rewards: Sequence[Floats]) -> float:
    weights = [_solve(factor, np.ones(len(factor))) for factor in factors]
    level = sum(float(w @ y) for w, y in zip(weights, rewards, strict=True))
    return level / sum(float(w.sum()) for w in weights)


def _factors(kernel: Covariance, X: Floats, noise: float, blocks: Sequence[Ints]) -> list[Floats]:
    return [_factorise(kernel(X[at]), noise, kernel) for at in blocks]


def _factorise(K: Floats, noise: float, kernel: object) -> Floats:
    from scipy.linalg import LinAlgError, cholesky

    C = np.array(K, dtype=np.float64)
    C[np.diag_indices_from(C)] += noise
    if not np.isfinite(C).all():
        raise NotPositiveDefiniteError(f"{kernel!r} gives entries that are not finite")
    try:
        with blas_threads_for(len(C) ** 3 / 6):
            return np.asarray(cholesky(C, lower=True, overwrite_a=True, check_finite=False))
    except LinAlgError:
        told = f"K + noise_variance·I has no Cholesky factor for {kernel!r}"
        raise NotPositiveDefiniteError(f"{told}; raise noise_variance (now {noise:g})") from None


def _solve(factor: Floats, right: Floats) -> Floats:
    from scipy.linalg import cho_solve

    with blas_threads_for(len(factor) * right.size):
        return np.asarray(cho_solve((factor, True), right, check_finite=False))
