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
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints

from .features import EPSILON, Box, FeatureMap, pairs_fit, truncate

# A smaller tolerance would only keep the rounding errors of K_GG's eigenvalues.
_LEAST_BUDGET = 1e-14
_MOST_NODES = 1024
_ROUNDING = 6.0  # rounding allowance in units of d g ε, twice what is measured
_FINE = 8  # points per node of the grid on which suprema are taken


class _Factor(NamedTuple):
    """The features of one dimension."""

    weights: Floats  # (r, g), φ = weights @ T
    suprema: Floats  # (r,)


class _Pairing(NamedTuple):
    """Products of the features of the dimensions so far with those of the next one."""

    previous: Ints  # (r,), rows of the product so far
    following: Ints  # (r,), rows of the next factor


class _Combination(NamedTuple):
    """The features of all dimensions together."""

    pairings: list[_Pairing]  # d − 1
    suprema: Floats  # (r,)
    dropped: float  # sum of all dropped suprema


def gaussian_features(
    box: Box, lengthscales: Floats, variance: float
) -> FeatureMap | None:
    """Features of variance · Π_j exp(−(x_j − y_j)² / (2 l_j²)).

    In one dimension the kernel is interpolated in both arguments at g Chebyshev nodes,
    k(x, y) ≈ ℓ(x)ᵀ K_GG ℓ(y), and K_GG = U Λ Uᵀ gives φ(x) = ℓ(x)ᵀ U Λ^½. Since ℓ(x) = T(x)ᵀ M with
    a constant M, a point costs one recurrence and one product, and nothing is divided by a small
    number. In d dimensions the features are products, truncated.

    The error is proven: g comes from the Bernstein-ellipse bound of Chebyshev interpolation
    (:func:`_interpolation_error`), the suprema from the values at 8 g Chebyshev nodes, which bound a
    polynomial of degree < g everywhere up to 1/cos(π/16) (Ehlich and Zeller, 1964). Rounding comes on
    top; it grows like g ε in each dimension.
    """
    lower, upper, tolerance, max_rank = box
    dimensions = len(lower)
    budget = max(tolerance / variance, _LEAST_BUDGET)
    widths = upper - lower
    reaches = (widths / (2.0 * lengthscales)).tolist()
    # A truncated product differs by at most the sum of the factors' errors (each ≤ 1 + error).
    share = 0.1 * budget / dimensions
    count = _node_count(max(reaches), share, max_rank)
    if count is None:
        return None
    interpolation = sum(_interpolation_error(reach, count) for reach in reaches)
    factors, dropped = _truncated_factors(reaches, count, share)
    product = _combine(factors, budget, interpolation, dropped, share, max_rank)
    if product is None:
        return None
    weights = [factor.weights for factor in factors]
    weights[0] *= math.sqrt(variance)
    margin = 1.0 + 10.0 * budget
    proven = (product.dropped + interpolation) * margin
    rounding = _ROUNDING * EPSILON * dimensions * count
    centre = 0.5 * (lower + upper)[:, None]
    inverse = _inverse_half_widths(lower, upper)[:, None]
    pairings = product.pairings
    return FeatureMap(
        suprema=product.suprema * variance,
        largest=variance * (1.0 + budget),
        error=variance * (proven + rounding),
        lower=lower.copy(),
        upper=upper.copy(),
        evaluate=partial(_product, centre, inverse, count, weights, pairings),
    )


def _truncated_factors(
    reaches: list[float], count: int, share: float
) -> tuple[list[_Factor], float]:
    """The features of every dimension, and the sum of the suprema that were dropped."""
    nodes = _Nodes(count)
    factors: list[_Factor] = []
    dropped = 0.0
    for reach in reaches:
        weights, suprema = nodes.factor(reach)
        positions, lost = truncate(suprema, share)
        dropped += lost
        factor = _Factor(weights[positions], suprema[positions])
        factors.append(factor)
    return factors, dropped


def _combine(
    factors: list[_Factor],
    budget: float,
    interpolation: float,
    dropped: float,
    share: float,
    max_rank: int,
) -> _Combination | None:
    """Products of the factors, truncated after each; ``None`` if there are too many.

    Args:
        factors: The features of every dimension.
        budget: Largest error of all steps together.
        interpolation: Error of the interpolation.
        dropped: Error of truncating the factors.
        share: Largest error of one truncation; the last one may use the remaining budget.
        max_rank: Largest number of products.
    """
    last = len(factors) - 1
    pairings: list[_Pairing] = []
    suprema = factors[0].suprema
    for j in range(1, len(factors)):
        following = factors[j].suprema
        pairs = np.multiply.outer(suprema, following).ravel()
        if not pairs_fit(len(pairs), max_rank):
            return None
        allowed = share
        if j == last:
            allowed = budget - dropped - interpolation
        positions, lost = truncate(pairs, max(allowed, 0.0))
        dropped += lost
        if len(positions) > max_rank:
            return None
        positions = np.sort(positions)  # neighbours then share their left factor
        previous_rows, following_rows = np.divmod(positions, len(following))
        pairings.append(_Pairing(previous_rows, following_rows))
        suprema = pairs[positions]
    return _Combination(pairings, suprema, dropped)


class _Nodes:
    """Chebyshev nodes on [−1, 1] and what the factors of all dimensions share.

    Args:
        count: g: how many nodes there are.
    """

    def __init__(self, count: int) -> None:
        angles = _node_angles(count)
        self._nodes = np.cos(angles)
        # (g, g), ℓ(x) = transformᵀ T(x); from the angles, since T_k of a rounded node near ±1
        # loses k² ε.
        degrees = np.arange(count)
        multiples = np.multiply.outer(degrees, angles)
        self._transform = np.cos(multiples) * (2.0 / count)
        self._transform[0] *= 0.5
        fine_angles = _node_angles(_FINE * count)
        fine_nodes = np.cos(fine_angles)
        self._polynomials = _chebyshev(fine_nodes, count)  # (g, 8 g)
        half_angle = math.pi / (2.0 * _FINE)
        self._margin = 1.0 / math.cos(half_angle) ** 2

    def factor(self, reach: float) -> _Factor:
        """All features of exp(−c²(s − t)²/2) on [−1, 1]², c the ``reach``."""
        differences = np.subtract.outer(self._nodes, self._nodes)
        distances = reach * differences
        K = np.exp(-0.5 * distances**2)  # K_GG
        eigenvalues, vectors = np.linalg.eigh(K)
        # Only rounding makes an eigenvalue negative.
        eigenvalues = np.maximum(eigenvalues, 0.0)
        roots = vectors * np.sqrt(eigenvalues)
        weights = (self._transform @ roots).T  # (g, g), φ = weights @ T
        features = weights @ self._polynomials  # (g, 8 g)
        largest = np.square(features).max(axis=1)
        return _Factor(weights, self._margin * largest)


def _node_angles(count: int) -> Floats:
    """The angles whose cosines are Chebyshev nodes, (count,)."""
    halves = np.arange(count) + 0.5
    return np.asarray(np.pi * halves / count)


def _inverse_half_widths(lower: Floats, upper: Floats) -> Floats:
    """One over half the widths of a box, (d,); 0 in a column that does not vary.

    Such a column is at the centre of any interval.
    """
    varies = upper > lower
    widths = upper - lower
    divisors = np.where(varies, widths, 1.0)
    return np.where(varies, 2.0 / divisors, 0.0)


def _product(
    centre: Floats,  # (d, 1)
    inverse: Floats,  # (d, 1), one over the half-widths
    count: int,
    weights: list[Floats],  # d times (r_j, g)
    pairings: list[_Pairing],  # d − 1
    columns: Floats,  # (d, n)
) -> Floats:
    points = columns - centre
    points *= inverse
    T = _chebyshev(points, count)  # (g, d, n)
    rows = weights[0] @ T[:, 0]
    for j, pairing in enumerate(pairings, start=1):
        factor = weights[j] @ T[:, j]  # (r_j, n)
        rows = rows.take(pairing.previous, axis=0)
        rows *= factor.take(pairing.following, axis=0)
    return rows


class _Ellipses(NamedTuple):
    """Bernstein ellipses of parameter ρ, from very thin to huge."""

    squares: Floats  # b², b the half-axis (ρ − 1/ρ)/2
    logarithms: Floats  # ln ρ
    constants: Floats  # ln 4 − ln(ρ − 1)


@functools.cache
def _ellipses() -> _Ellipses:
    rho = 1.0 + np.geomspace(1e-2, 1e4, 400)
    half_axis = 0.5 * (rho - 1.0 / rho)
    constants = math.log(4.0) - np.log(rho - 1.0)
    return _Ellipses(
        squares=half_axis**2,
        logarithms=np.log(rho),
        constants=constants,
    )


def _interpolation_error(reach: float, count: int) -> float:
    """Bound on |k − ℓᵀ K_GG ℓ| for exp(−c²(s − t)²/2) on [−1, 1]² at ``count`` nodes.

    On the Bernstein ellipse of parameter ρ the imaginary part is at most b = (ρ − 1/ρ)/2, so that
    |k| ≤ exp(c² b²/2), and interpolation of degree g − 1 errs by at most 4 exp(c² b²/2) ρ^{1−g}/(ρ − 1)
    (Trefethen, Approximation Theory and Approximation Practice, theorem 8.2). The second argument
    costs the Lebesgue constant, ≤ 1 + (2/π) log g.
    """
    if reach == 0.0:
        return 0.0
    squares, logarithms, constants = _ellipses()
    growth = (0.5 * reach * reach) * squares
    decay = (count - 1) * logarithms
    log_bounds = constants + growth - decay
    smallest = float(log_bounds.min())
    bound = math.exp(min(smallest, 700.0))  # exp(710) overflows
    lebesgue = 2.0 / math.pi * math.log(count)  # its constant, less 1
    return bound * (2.0 + lebesgue)


def _node_count(reach: float, tolerance: float, limit: int) -> int | None:
    """The fewest Chebyshev nodes whose error is below ``tolerance``."""
    low = 1
    high = 4
    while _interpolation_error(reach, high) > tolerance:
        low = high
        high = 2 * high
        if low > 4 * limit or low > _MOST_NODES:
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

    T_k(cos θ) = cos kθ is the real part of z^k with z = e^{iθ}. Since |z| = 1, doubling the degree,
    z^{m+k} = z^m z^k, loses only k ε; the shorter T_{m+k} = 2 T_m T_k − T_{m−k} would lose k² ε.
    """
    shape = (max(count, 2), *points.shape)
    powers = np.empty(shape, dtype=np.complex128)  # z^k
    powers[0] = 1.0
    z = powers[1]
    z.real = points
    # (1 − t)(1 + t) keeps the relative precision of sin² θ at the ends.
    squared_sine = (1.0 - points) * (1.0 + points)
    squared_sine = np.maximum(squared_sine, 0.0)
    np.sqrt(squared_sine, out=z.imag)
    degree = 1
    last = count - 1
    while degree < last:
        size = min(degree, last - degree)
        following = degree + 1
        low_powers = powers[1 : size + 1]
        next_powers = powers[following : following + size]
        np.multiply(low_powers, powers[degree], out=next_powers)
        degree += size
    polynomials = powers[:count].real
    return np.ascontiguousarray(polynomials)
