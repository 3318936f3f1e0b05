"""Steps uphill on the evidence lower bound: of q, of the inducing points and of the noise.

Notation as in ``distribution.py``, and

============  =====================================================================
``D, s``      noise variances of the batch; s = N/B, its scale
``ρ``         the learning rate of the natural gradient
``m, S``      mean and covariance of q(v): (I + P)⁻¹h and (I + P)⁻¹
``c``         factor of all noise variances, 1 where the noise is known: ς_t² = c·ς²
============  =====================================================================
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.linalg import solve_lower, solve_lower_in_place
from superarm.core.threads import blas_threads_for
from superarm.kernels import Kernel

from .distribution import VariationalDistribution, WhitenedBatch
from .history import Batch

# Cube root of the machine precision, where central differences are most accurate.
_RELATIVE_STEP = 6e-6
_LEAST_RELATIVE_STEP = 1e-9  # of the largest value, so that adding a step changes it


def natural_step(
    q: VariationalDistribution, A: Floats, batch: Batch, rate: float
) -> VariationalDistribution:
    """θ ← (1 − ρ)θ + ρθ̂: the natural gradient step of a conjugate model (Hensman et al. 2013, eq. 12).

    θ̂ = (s·A D⁻¹Aᵀ, s·A D⁻¹y) is the optimum for this batch, so that ρ = 1 with all observations
    is Titsias' (2009) closed form in one step.

    Args:
        q: The current distribution.
        A: Whitened covariances of the batch, (M, B).
        batch: The observations.
        rate: ρ, 0 to 1.
    """
    weighted = A / np.sqrt(batch.noise)
    with blas_threads_for(len(weighted) * weighted.size):
        precision = weighted @ weighted.T  # A D⁻¹Aᵀ
    precision *= rate * batch.scale
    precision += (1.0 - rate) * q.precision
    weighted_residual = batch.residual / batch.noise
    batch_shift = A @ weighted_residual  # A D⁻¹y
    shift = (1.0 - rate) * q.shift
    shift += (rate * batch.scale) * batch_shift
    return replace(q, precision=precision, shift=shift)


def noise_ratio(
    q: VariationalDistribution, A: Floats, batch: Batch, prior: Floats
) -> float:
    """The factor of the batch's noise variances that maximises the bound at this q.

    Of the bound (Hensman et al. 2013, eq. 4) only the expected log likelihood depends on a common
    factor c of the noise variances::

        −½ Σ ln(2π c d) − Σ ((y − m)² + v)/(2 c d),   m = Aᵀ mean of q,   v = k − ‖A‖² + ‖R⁻¹A‖²

    Its derivative in c is N/(2c²)·(ĉ − c) with ĉ the mean of ((y − m)² + v)/d: the value returned.
    The Fisher information of N Gaussian observations in c is N/(2c²), so that the natural gradient is
    ĉ − c.

    Args:
        q: The current distribution.
        A: Whitened covariances of the batch, (M, B).
        batch: The observations.
        prior: Prior variances of its rows, (B,).
    """
    mean = A.T @ q.mean
    solved = solve_lower(q.root, A)  # R⁻¹A
    explained = np.square(A).sum(axis=0)  # ‖A‖²
    uncertain = np.square(solved).sum(axis=0)  # ‖R⁻¹A‖²
    variance = prior - explained + uncertain
    variance = np.maximum(0.0, variance)
    deviation = batch.residual - mean
    squares = np.square(deviation) + variance
    ratios = squares / batch.noise  # ((y − m)² + v)/d
    total = batch.scatter + float(ratios.sum())
    count = len(batch.rows) + batch.repeats
    return total / count


def point_gradient(
    q: VariationalDistribution,
    kernel: Covariance,
    whitened: WhitenedBatch,
    batch: Batch,
    moving: Ints,
) -> Floats:
    """∂ELBO/∂Z in the moving columns at fixed q(v), (M, c).

    Exact through the whitening, by matrix calculus::

        Ā = s·(m rᵀ + A − S A) D⁻¹,   ∂/∂k(Z, X) = L⁻ᵀĀ,   ∂/∂k(Z, Z) = −sym(L⁻ᵀ Φ(ĀAᵀ) L⁻¹)

    with r = y − Aᵀm and Φ the lower triangle with half its diagonal (reverse-mode Cholesky).

    Args:
        q: The current distribution.
        kernel: The kernel.
        whitened: Whitened covariances of the batch.
        batch: The observations.
        moving: Columns of the points that may move, (c,).
    """
    A = whitened.A
    A_bar = _whitened_gradient(q, A, batch)
    lower = _lower_product(A_bar, A)
    np.fill_diagonal(lower, 0.5 * np.diagonal(lower))  # Φ
    half = solve_lower_in_place(q.factor, lower, transposed=True)  # L⁻ᵀ Φ
    of_points = solve_lower_in_place(q.factor, half.T, transposed=True)  # L⁻ᵀ Φᵀ L⁻¹
    of_rows = solve_lower_in_place(q.factor, A_bar, transposed=True)  # L⁻ᵀĀ
    size = len(q.points)
    elsewhere = whitened.point_of < 0
    weights = np.empty((size, size + int(elsewhere.sum())))
    point_weights = weights[:, :size]
    # Twice the symmetric part, because z is in both arguments of k(z, z′).
    np.add(of_points, of_points.T, out=point_weights)
    np.negative(point_weights, out=point_weights)
    # Rows of the batch that are inducing points have the same derivatives as these.
    point_weights[:, whitened.point_of[~elsewhere]] += of_rows[:, ~elsewhere]
    weights[:, size:] = of_rows[:, elsewhere]
    others = np.vstack([q.points, batch.rows[elsewhere]])
    return _kernel_gradient(kernel, q.points, others, weights, moving)


# Rows of a product computed together: what lies above the diagonal is not computed.
_PRODUCT_ROWS = 128


def _lower_product(left: Floats, right: Floats) -> Floats:
    """The lower triangle of left·rightᵀ, 0 above the diagonal, (M, M)."""
    size = len(left)
    product = np.zeros((size, size))
    with blas_threads_for(size * left.size / 2):
        for start in range(0, size, _PRODUCT_ROWS):
            end = min(start + _PRODUCT_ROWS, size)
            np.matmul(left[start:end], right[:end].T, out=product[start:end, :end])
            corner = product[start:end, start:end]
            corner[...] = np.tril(corner)
    return product


def _whitened_gradient(q: VariationalDistribution, A: Floats, batch: Batch) -> Floats:
    """Ā = ∂ELBO/∂A = s·(m rᵀ + A − S A) D⁻¹, (M, B)."""
    half_solved = solve_lower_in_place(q.root, A.copy())
    gradient = solve_lower_in_place(q.root, half_solved, transposed=True)  # S A
    np.subtract(A, gradient, out=gradient)
    expected = A.T @ q.mean
    residual = batch.residual - expected  # r
    gradient += np.outer(q.mean, residual)
    gradient *= batch.scale / batch.noise
    return gradient


def _kernel_gradient(
    kernel: Covariance, points: Floats, others: Floats, weights: Floats, moving: Ints
) -> Floats:
    """Σ_x weights·∂k(z, x)/∂z in the moving columns, (M, c).

    The kernel's own derivative if it has one, else central differences: two kernel evaluations per
    column, because a kernel need not have derivatives in its inputs.
    """
    if isinstance(kernel, Kernel):
        gradient = kernel.input_gradient(points, others, weights, moving.tolist())
        if gradient is not None:
            return gradient
    columns = []
    for column in moving:
        slope = _central_slope(kernel, points, others, column)
        columns.append(np.einsum("mn,mn->m", weights, slope))
    return np.column_stack(columns)


def _central_slope(
    kernel: Covariance, points: Floats, others: Floats, column: int
) -> Floats:
    """∂k(z, x)/∂z in one column, (M, n), by central differences."""
    values = others[:, column]
    largest = float(np.abs(values).max())
    spread = float(np.ptp(values)) or max(1.0, largest)
    step = max(_RELATIVE_STEP * spread, _LEAST_RELATIVE_STEP * largest)
    above = points.copy()
    above[:, column] += step
    below = points.copy()
    below[:, column] -= step
    values_above = np.asarray(kernel(above, others))
    slope = values_above - kernel(below, others)
    rounded_steps = above[:, column] - below[:, column]
    slope /= rounded_steps[:, None]
    return slope
