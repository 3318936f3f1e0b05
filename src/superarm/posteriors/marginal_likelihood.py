"""The log marginal likelihood of observations and its derivatives.

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
``space * Temporal(column=…)`` these are bogunovic2016time, eqs. 24 and 25.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.errors import InputError, NotPositiveDefiniteError, ShapeError
from superarm.core.inputs import as_features, as_positive, as_vector
from superarm.core.threads import blas_threads_for
from superarm.kernels.base import TunableCovariance


class Likelihood(NamedTuple):
    """The log marginal likelihood and its derivatives."""

    value: float
    theta: Floats  # (p,)
    log_noise_variance: float


def log_marginal_likelihood(
    kernel: Covariance,
    X: Any,
    y: Any,
    *,
    noise_variance: float,
    mean: float = 0.0,
    groups: Any = None,
) -> float:
    """log p(y | X) of a Gaussian process with constant mean and Gaussian noise, in nats.

    Args:
        kernel: The kernel.
        X: Features, (n, d).
        y: Rewards, (n,).
        noise_variance: Variance of the noise of one observation.
        mean: The constant prior mean.
        groups: Labels, (n,): observations with different labels, such as days, are independent.
    """
    rows = as_features(X, "X")
    noise = as_positive(noise_variance, "noise_variance")
    residual = as_vector(y, "y", len(rows)) - mean
    blocks = as_blocks(groups, len(rows))
    factors = factorise_blocks(kernel, rows, noise, blocks)
    total = 0.0
    for factor, members in zip(factors, blocks, strict=True):
        block_residual = residual[members]
        alpha = _solve(factor, block_residual)
        total += _value(factor, alpha, block_residual)
    return total


def likelihood(
    kernel: TunableCovariance,
    X: Floats,
    y: Floats,
    *,
    noise: float,
    mean: float | None,
    blocks: Sequence[Ints] | None = None,
) -> Likelihood:
    """The log marginal likelihood and its derivatives.

    Args:
        kernel: The kernel.
        X: Features, (n, d).
        y: Rewards, (n,).
        noise: The noise variance.
        mean: The constant prior mean; ``None`` takes its best value.
        blocks: Rows of independent groups of observations; default: one group.
    """
    if blocks is None:
        blocks = as_blocks(None, len(y))
    covariances = []
    gradients = []
    for members in blocks:
        K, gradient = kernel(X[members], eval_gradient=True)
        covariances.append(K)
        gradients.append(gradient)
    factors = [_factorise(K, noise, kernel) for K in covariances]
    rewards = [y[members] for members in blocks]
    level = best_mean(factors, rewards) if mean is None else mean
    parts = []
    for block, factor in enumerate(factors):
        residual = rewards[block] - level
        part = _block_likelihood(factor, gradients[block], residual, noise)
        parts.append(part)
    return Likelihood(
        value=sum(part.value for part in parts),
        theta=np.asarray(sum(part.theta for part in parts)),
        log_noise_variance=sum(part.log_noise_variance for part in parts),
    )


def _block_likelihood(
    factor: Floats, gradient: Floats, residual: Floats, noise: float
) -> Likelihood:
    alpha = _solve(factor, residual)
    # ½ tr((αα' − C⁻¹) ∂C): all derivatives share the bracket, and both its factors are symmetric.
    bracket = np.outer(alpha, alpha) - _inverse(factor)
    traces = np.einsum("ij,ijp->p", bracket, gradient)
    trace = float(np.trace(bracket))
    return Likelihood(
        value=_value(factor, alpha, residual),
        theta=0.5 * traces,
        log_noise_variance=0.5 * noise * trace,
    )


def as_blocks(groups: Any, count: int) -> list[Ints]:
    """The rows of each group; all rows if there are no groups.

    Args:
        groups: Labels, (count,), or ``None``.
        count: The number of observations.
    """
    if groups is None:
        return [np.arange(count)]
    try:
        labels = np.asarray(groups)
    except ValueError:  # rows of different lengths
        labels = np.asarray(None)
    are_labels = labels.dtype.kind in "biufUS"
    if not are_labels or (labels.dtype.kind == "f" and np.isnan(labels).any()):
        raise InputError(
            "groups must be labels, numbers or words, and none may be missing"
        )
    if labels.shape != (count,):
        raise ShapeError(
            f"groups has shape {labels.shape}; give one label for each of {count} rewards"
        )
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _value(factor: Floats, alpha: Floats, residual: Floats) -> float:
    """log p(y), equation 2.30."""
    fit = -0.5 * float(residual @ alpha)
    complexity = float(np.log(np.diagonal(factor)).sum())
    constant = 0.5 * len(residual) * math.log(2.0 * math.pi)
    return fit - complexity - constant


def best_mean(factors: Sequence[Floats], rewards: Sequence[Floats]) -> float:
    """The most likely constant mean, 1ᵀC⁻¹y / 1ᵀC⁻¹1, over all blocks.

    Args:
        factors: Cholesky factors L of the blocks.
        rewards: Rewards of the blocks.
    """
    weighted_sum = 0.0
    total_weight = 0.0
    for factor, block_rewards in zip(factors, rewards, strict=True):
        ones = np.ones(len(factor))
        weights = _solve(factor, ones)  # C⁻¹1
        weighted_sum += float(weights @ block_rewards)
        total_weight += float(weights.sum())
    return weighted_sum / total_weight


def factorise_blocks(
    kernel: Covariance, X: Floats, noise: float, blocks: Sequence[Ints]
) -> list[Floats]:
    """The Cholesky factors L of the blocks.

    Args:
        kernel: The kernel.
        X: Features, (n, d).
        noise: The noise variance.
        blocks: Rows of independent groups of observations.
    """
    factors = []
    for members in blocks:
        K = kernel(X[members])
        factors.append(_factorise(K, noise, kernel))
    return factors


def _factorise(K: Floats, noise: float, kernel: object) -> Floats:
    from scipy.linalg import LinAlgError, cholesky

    C = np.array(K, dtype=np.float64)
    C[np.diag_indices_from(C)] += noise
    if not np.isfinite(C).all():
        raise NotPositiveDefiniteError(f"{kernel!r} gives entries that are not finite")
    try:
        with blas_threads_for(len(C) ** 3 / 6):
            factor = cholesky(C, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        raise NotPositiveDefiniteError(
            f"K + noise_variance·I has no Cholesky factor for {kernel!r}; "
            f"raise noise_variance (now {noise:g})"
        ) from None
    return np.asarray(factor)


def _solve(factor: Floats, values: Floats) -> Floats:
    """C⁻¹ values."""
    from scipy.linalg import cho_solve

    is_lower = True
    with blas_threads_for(len(factor) * values.size):
        solution = cho_solve((factor, is_lower), values, check_finite=False)
    return np.asarray(solution)


def _inverse(factor: Floats) -> Floats:
    """C⁻¹ from the Cholesky factor of C: a third of the work of solving for the identity."""
    from scipy.linalg.lapack import dpotri

    with blas_threads_for(len(factor) ** 3 / 3):
        inverse, failed = dpotri(factor, lower=1)
    if failed:
        raise NotPositiveDefiniteError(
            "K + noise_variance·I is singular; raise noise_variance"
        )
    lower: Floats = np.tril(inverse)
    return lower + np.tril(lower, -1).T
