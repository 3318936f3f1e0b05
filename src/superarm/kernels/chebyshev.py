"""The finite-rank form of the squared exponential: interpolation at Chebyshev nodes.

Notation

=============  =========================================================================
``g``          Chebyshev nodes in one dimension
``T``          (g, d, n) Chebyshev polynomials T_0 … T_{g−1} of every column
``reach``      (d,), half the width of the box in lengthscales
=============  =========================================================================
"""

from __future__ import annotations

import functools
import math
from functools import partial

import numpy as np

from superarm.core import Floats, Ints

from .features import EPSILON, Box, FeatureMap, truncate


def gaussian_features(
    box: Box, lengthscales: Floats, variance: float
) -> FeatureMap | None:
    """Features of variance · Π_j exp(−(x_j − y_j)² / (2 l_j²)).

    In one dimension the kernel is interpolated in both arguments at g Chebyshev nodes,
    k(x, y) ≈ ℓ(x)ᵀ K_GG ℓ(y), and K_GG = U Λ Uᵀ gives φ(x) = ℓ(x)ᵀ U Λ^½. Since
    ℓ(x) = T(x)ᵀ M with a constant M, a point costs one recurrence and one product, and nothing
    is divided by a small number. In d dimensions the features are products, truncated.

    The error is proven: g comes from the Bernstein-ellipse bound of Chebyshev interpolation
    (:func:`_interpolation_error`), the suprema from the values at 8 g Chebyshev nodes, which
    bound a polynomial of degree < g everywhere up to 1/cos(π/16) (Ehlich and Zeller, 1964).
    Rounding comes on top; it grows like g ε in each dimension, and 6 d g ε is allowed for it,
    twice what is measured.
    """
    lower, upper, tolerance, max_rank = box
    dimensions = len(lower)
    # A tolerance below the rounding of K_GG's eigenvalues would only keep noise.
    budget = max(tolerance / variance, 1e-14)
    reach = (upper - lower) / (2.0 * lengthscales)  # half-widths in lengthscales
    # A truncated product differs by at most the sum of the factors' errors (each ≤ 1 + error).
    share = 0.1 * budget / dimensions
    count = _node_count(float(reach.max()), share, max_rank)
    if count is None:
        return None
    interpolation = sum(_interpolation_error(float(c), count) for c in reach)
    angles = np.pi * (np.arange(count) + 0.5) / count
    nodes = np.cos(angles)
    grid = np.cos(np.pi * (np.arange(8 * count) + 0.5) / (8 * count))
    # (g, g), ℓ(x) = transformᵀ T(x); from the angles, since T_k of a rounded node near ±1 loses k² ε.
    transform = np.cos(np.multiply.outer(np.arange(count), angles)) * (2.0 / count)
    transform[0] *= 0.5
    polynomials = _chebyshev(grid, count)
    margin = 1.0 / math.cos(math.pi / 16.0) ** 2
    weights: list[Floats] = []
    suprema: list[Floats] = []
    dropped = 0.0
    for c in reach:
        values, vectors = np.linalg.eigh(
            np.exp(-0.5 * (c * np.subtract.outer(nodes, nodes)) ** 2)
        )
        weight = (
            transform @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        ).T  # (g, g), φ = weight @ T
        sup = margin * np.square(weight @ polynomials).max(axis=1)
        keep, lost = truncate(sup, share)
        dropped += lost
        weights.append(weight[keep])
        suprema.append(sup[keep])
    steps: list[tuple[Ints, Ints]] = []
    combined = suprema[0]
    for j in range(1, dimensions):
        pairs = np.multiply.outer(combined, suprema[j]).ravel()
        if len(pairs) > 100 * max_rank + 10_000:
            return None
        allowed = budget - dropped - interpolation if j == dimensions - 1 else share
        keep, lost = truncate(pairs, max(allowed, 0.0))
        dropped += lost
        if len(keep) > max_rank:
            return None
        keep = np.sort(keep)  # neighbours then share their left factor
        steps.append(np.divmod(keep, len(suprema[j])))
        combined = pairs[keep]
    weights[0] *= math.sqrt(variance)
    proven = (dropped + interpolation) * (1.0 + 10.0 * budget)
    varies = upper > lower  # a column that does not sits at the centre of any interval
    inverse = np.where(varies, 2.0 / np.where(varies, upper - lower, 1.0), 0.0)
    centre = 0.5 * (lower + upper)
    return FeatureMap(
        suprema=combined * variance,
        largest=variance * (1.0 + budget),
        error=variance * (proven + 6.0 * EPSILON * dimensions * count),
        lower=lower.copy(),
        upper=upper.copy(),
        evaluate=partial(
            _product, centre[:, None], inverse[:, None], count, weights, steps
        ),
    )


def _product(
    centre: Floats,  # (d, 1)
    inverse: Floats,  # (d, 1), one over the half-widths
    count: int,
    weights: list[Floats],  # d times (r_j, g)
    steps: list[
        tuple[Ints, Ints]
    ],  # rows of the product so far, rows of the next factor
    columns: Floats,
) -> Floats:
    points = columns - centre
    points *= inverse
    T = _chebyshev(points, count)  # (g, d, n)
    rows = weights[0] @ T[:, 0]
    for j, (left, right) in enumerate(steps, start=1):
        rows = rows.take(left, axis=0)
        rows *= (weights[j] @ T[:, j]).take(right, axis=0)
    return rows


def _interpolation_error(reach: float, count: int) -> float:
    """Bound on |k − ℓᵀ K_GG ℓ| for exp(−c²(s − t)²/2) on [−1, 1]² at ``count`` nodes.

    On the Bernstein ellipse of parameter ρ the imaginary part is at most b = (ρ − 1/ρ)/2, so
    that |k| ≤ exp(c² b²/2), and interpolation of degree g − 1 errs by at most
    4 exp(c² b²/2) ρ^{1−g}/(ρ − 1) (Trefethen, Approximation Theory and Approximation Practice,
    theorem 8.2). The second argument costs the Lebesgue constant, ≤ 1 + (2/π) log g.
    """
    if reach == 0.0:
        return 0.0
    squares, logarithms, constants = _ellipses()
    logarithm = constants + (0.5 * reach * reach) * squares - (count - 1) * logarithms
    return math.exp(min(float(logarithm.min()), 700.0)) * (
        2.0 + 2.0 / math.pi * math.log(count)
    )


@functools.cache
def _ellipses() -> tuple[Floats, Floats, Floats]:
    """b², log ρ and log 4 − log(ρ − 1) of Bernstein ellipses from hardly any to huge."""
    rho = 1.0 + np.geomspace(1e-2, 1e4, 400)
    half_axis = 0.5 * (rho - 1.0 / rho)
    return half_axis**2, np.log(rho), math.log(4.0) - np.log(rho - 1.0)


def _node_count(reach: float, tolerance: float, limit: int) -> int | None:
    """The fewest Chebyshev nodes whose error is below ``tolerance``."""
    low, high = 1, 4
    while _interpolation_error(reach, high) > tolerance:
        low, high = high, 2 * high
        if low > 4 * limit or low > 1024:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if _interpolation_error(reach, middle) > tolerance:
            low = middle
        else:
            high = middle
    return high


def _chebyshev(points: Floats, count: int) -> Floats:
    """T_0 … T_{count−1} at ``points`` in [−1, 1], (count, *points.shape).

    T_k(cos θ) = cos kθ is the real part of z^k with z = e^{iθ}. Since |z| = 1, doubling the
    degree, z^{m+k} = z^m z^k, loses only k ε; the shorter T_{m+k} = 2 T_m T_k − T_{m−k} would
    lose k² ε.
    """
    z = np.empty((max(count, 2), *points.shape), dtype=np.complex128)
    z[0] = 1.0
    z[1].real = points
    # (1 − t)(1 + t) keeps the relative precision of sin² θ at the ends.
    np.sqrt(np.maximum((1.0 - points) * (1.0 + points), 0.0), out=z[1].imag)
    degree = 1
    while degree < count - 1:
        size = min(degree, count - 1 - degree)
        np.multiply(z[1 : size + 1], z[degree], out=z[degree + 1 : degree + 1 + size])
        degree += size
    return np.ascontiguousarray(z[:count].real)
