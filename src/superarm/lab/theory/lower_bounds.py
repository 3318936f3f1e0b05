"""What no algorithm can do better, where rewards drift: Theorem 4.1 of bogunovic2016time.

The notation, and all that is assumed, stands in :mod:`superarm.lab.theory.drifting`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, as_positive
from superarm.kernels import Matern, SquaredExponential
from superarm.kernels.lipschitz import lipschitz_of_kernel

from .arguments import as_rounds
from .drift_information import as_drift
from .smooth_domains import SmoothDomain

_CURVATURES = 400  # values of L that are tried
_CELLS = 4_000  # of the integral in P(A₄)


class LowerBound(NamedTuple):
    """Theorem 4.1 as a number, with the constants that it rests on."""

    values: Floats
    """What E R_T is at least, for each T."""
    per_round: float
    """What the mean regret of every round after the first is at least: eqs 101 to 103."""
    curvature: float
    """L of eqs 90 and 91: second derivatives are this large at most."""
    margin: float
    """η of eq. 93: how far the best arm is from the boundary."""
    interior: float
    """P(A₄): how probable that is at least."""


def regret_lower_bound(
    rounds: Any,
    kernel: Covariance,
    *,
    epsilon: float,
    dimension: int,
    side: float = 1.0,
    margin: float | None = None,
    interior: float | None = None,
) -> LowerBound:
    """E R_T ≥ (T − 1)ρ for every algorithm, with ρ of order ε: Theorem 4.1, with all constants (ours).

    It holds for a genie with access to f_{t−1}, and so for everybody. In every round but the first,

        E r_t ≥ ε/(4Ld)·E‖∇g_t(x_t)‖² 1_A
              ≥ ε/(4Ld)·(P(A₄) − P(A₁ᶜ))·s²(d − √(d(d + 2)(P(A₂ᶜ) + P(A₃ᶜ)))).

    The first step is eqs 100 to 102. For the second, f_{t−1} and x_t are independent of g_t, whose
    slopes at x_t are independent normal numbers of variance s² (so that E‖∇g‖⁴ is d(d + 2)s⁴), and the
    inequality of Cauchy and Schwarz takes away what is outside A₂ ∩ A₃. P(A₁ᶜ) and P(A₂ᶜ) are at most
    d(d + 1)/2·a₂ exp(−(L/b₂)²), by eq. 11. A₃ is needed at x_t alone, where its probability is that of
    d normal numbers. The best of many L is taken; each gives a bound.

    Arms are all of [0, r]^d. On a grid the proof ends at eq. 95, as x_t + δv is no arm.

    Args:
        rounds: T, a number or an array.
        kernel: a squared exponential, or a Matérn kernel with ν > 3 or ν = 5/2, with one lengthscale.
        epsilon: ε, by how much the function changes in a round.
        dimension: d.
        side: r.
        margin: η, a fiftieth of the side where left out: steps δ of the proof are far shorter.
        interior: P(A₄) for this margin, from a simulation; where left out, what
            :func:`interior_probability` proves, which is far smaller.
    """
    T = as_rounds(rounds)
    drift = as_drift(epsilon)
    domain = SmoothDomain.of_kernel(kernel, dimension, side)
    if domain.a2 is None or domain.b2 is None:
        raise InputError(
            f"Theorem 4.1 needs a2 and b2 of eq. 11, which are known for Matérn kernels with nu > 3 or "
            f"nu = 2.5, got {kernel}"
        )
    d = domain.dimension
    slope = lipschitz_of_kernel(kernel)
    distance = side / 50.0
    if margin is not None:
        distance = _as_margin(margin, side)
    # It also checks the lengthscale.
    inside = interior_probability(kernel, d, side, distance)
    if interior is not None:
        inside = as_number(interior, "interior", 0.0, 1.0)
    pairs = d * (d + 1) / 2.0
    largest_tail = pairs * domain.a2  # of eq. 11, over the exponential
    scaled = _scaled_curvatures(largest_tail, inside)
    curvatures = domain.b2 * scaled
    # P(A₁ᶜ) and P(A₂ᶜ) at most.
    bent = largest_tail * np.exp(-((curvatures / domain.b2) ** 2))
    steep = np.zeros_like(curvatures)  # P(A₃ᶜ)
    if drift > 0.0:
        # Eq. 92.
        steepest = 2.0 * curvatures * math.sqrt(d) * distance / math.sqrt(drift)
        steep = d * 2.0 * _upper_tail(steepest / slope)
    likely = np.maximum(0.0, inside - bent)  # P(A₁ ∩ A₄)
    outside = np.minimum(1.0, bent + steep)
    lost = np.sqrt(d * (d + 2.0) * outside)
    remaining = np.maximum(0.0, d - lost)
    squares = slope**2 * remaining  # E‖∇g‖² 1 of A₂ ∩ A₃
    bounds = drift / (4.0 * curvatures * d) * likely * squares
    best = int(np.argmax(bounds))
    per_round = float(bounds[best])
    values = (T - 1.0) * per_round
    return LowerBound(
        values=np.asarray(values),
        per_round=per_round,
        curvature=float(curvatures[best]),
        margin=distance,
        interior=inside,
    )


def _scaled_curvatures(largest_tail: float, inside: float) -> Floats:
    """Values of L/b₂, from where eq. 11 is below 1 to where its tail is negligible beside P(A₄)."""
    log_tail = math.log(max(math.e, largest_tail))
    smallest = math.sqrt(log_tail)
    log_inside = math.log(max(inside, 1e-300))
    largest = smallest + math.sqrt(-log_inside + 5.0)
    return np.linspace(smallest, largest, _CURVATURES)


def interior_probability(
    kernel: Covariance, dimension: int, side: float, margin: float
) -> float:
    """P(A₄) from below: how probable it is that the best arm of f is at least η from the boundary.

    Appendix F states that it is above 0; this number is ours. Given f(c) = u√v in the middle c, f is
    ρ(x)u√v + h(x) elsewhere, with the correlation ρ and an h whose increments and variances are not
    larger than those of f. Near the boundary ρ is at most ρ₀, that of a distance of r/2 − η. So no arm
    there is better than c if sup h ≤ (1 − ρ₀)u√v, which by Borell's inequality has probability at least
    1 − exp(−((1 − ρ₀)u − m)²/2), m = E sup f/√v ≤ rds/√(2πv) with the variance s² of a slope. The
    result is the mean of that over a normal u.

    Args:
        kernel: a squared exponential or a Matérn kernel with ν > 1 and one lengthscale.
        dimension: d.
        side: r.
        margin: η, below half of the side.
    """
    d = as_count(dimension, "dimension")
    length = as_positive(side, "side")
    distance = _as_margin(margin, length)
    slope = lipschitz_of_kernel(kernel)
    lengthscale: Any = 1.0
    if isinstance(kernel, SquaredExponential | Matern):
        lengthscale = kernel.lengthscale
    if np.ndim(lengthscale) > 0:
        raise InputError(
            "kernel has a lengthscale for each coordinate; give it a single one"
        )
    origin = np.zeros((1, d))
    shifted = np.zeros((1, d))
    shifted[0, 0] = length / 2.0 - distance
    variance = float(kernel.diag(origin)[0])
    correlation = float(kernel(origin, shifted)[0, 0]) / variance  # ρ₀
    mean = length * d * slope / math.sqrt(2.0 * math.pi * variance)  # m
    # The integrand is 0 below `first`. Above, it rises from 0 to 1: sums over cells of u, each with its
    # smallest value, stay below the integral.
    first = mean / (1.0 - correlation)
    edges = first + np.linspace(0.0, 12.0, _CELLS + 1)
    left_edges = edges[:-1]
    right_edges = edges[1:]
    excess = (1.0 - correlation) * (left_edges - first)
    lowest = -np.expm1(-0.5 * excess**2)
    weights = _upper_tail(left_edges) - _upper_tail(right_edges)
    return float(lowest @ weights)


def _upper_tail(x: Floats) -> Floats:
    """P(z > x) of a standard normal z."""
    from scipy.special import ndtr

    return np.asarray(ndtr(-x))


def _as_margin(margin: float, side: float) -> float:
    distance = as_positive(margin, "margin")
    if not distance < side / 2.0:
        raise InputError(
            f"margin must be below half of the side, {side / 2.0:g}, got {distance:g}"
        )
    return distance
