"""Concentration inequalities and regret bounds that hold with high probability, constants included.

====================  ================================================================
``rounds``            T, a number or an array: bounds are drawn over a regret curve
``gamma``             a callable t ↦ γ_t
``norm_bound``        B with ‖f‖_k ≤ B
``noise_bound``       R, the noise is conditionally R-sub-Gaussian
``delta``             the probability with which the statement may fail
====================  ================================================================

All of them assume k(x, x) ≤ 1 unless they say otherwise. A bound is only as valid as ``gamma``:
the growth rates with constant 1 give the shape, :class:`~superarm.rules.information.GreedyGrowth` a
number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.inputs import as_count, as_positive, as_vector
from superarm.rules.base import as_probability

from .arguments import as_rounds, check_bounds, evaluate

# --- chowdhury2017kernelized --------------------------------------------------------------


def gaussian_tail_bound(beta: float) -> float:
    """e^{−β²}/(4√π β): chowdhury2017kernelized, Lemma 7.

    It is a lower bound on P[Z > β] for β ≥ 0.344. For smaller β it is above that probability, and so
    the lemma does not hold as printed, "for any β > 0"; Lemma 8, which takes it at β ≤ 1, does hold,
    because P[Z > β] ≥ P[Z > 1] there.

    Args:
        beta: β, in standard deviations, above 0.
    """
    number = as_positive(beta, "beta")
    square = number**2
    factor = 4.0 * math.sqrt(math.pi) * number
    return math.exp(-square) / factor


ANTI_CONCENTRATION = gaussian_tail_bound(1.0)
"""p = 1/(4e√π) of Lemma 8: a draw of GP-TS exceeds f(x) at least this often."""


def azuma_bound(rounds: Any, delta: float) -> Floats:
    """√(2T ln(1/δ)): Lemma 11, for steps of at most 1.

    A super-martingale with such steps rises by more in T rounds with probability δ at most.

    Args:
        rounds: T, one or several.
        delta: δ, the probability of failing.
    """
    T = as_rounds(rounds)
    log_chance = math.log(1.0 / as_probability(delta, "delta"))
    return np.sqrt(2.0 * T * log_chance)


def self_normalised_bound(
    log_determinants: Any, noise_bound: float, delta: float
) -> Floats:
    """2R² ln(√det((1+η)I + K_t)/δ): Theorem 1, right of eq. 6.

    With probability 1 − δ, ‖ε‖² in the norm of ((K_t + ηI)⁻¹ + I)⁻¹ stays below it in all rounds t, for
    any predictable choice of points; η = 0 needs K_t positive definite.

    Args:
        log_determinants: ln det((1+η)I + K_t), one or several, with the kernel matrix K_t of the
            points played.
        noise_bound: R.
        delta: δ, the probability of failing.
    """
    check_bounds(noise_bound=noise_bound, delta=delta)
    logs = np.asarray(log_determinants, dtype=np.float64)
    exponents = logs - 2.0 * math.log(delta)
    return np.asarray(noise_bound**2 * exponents)


def theory_noise_variance(horizon: int) -> float:
    """λ = 1 + 2/T, with which Theorems 2–4 run the posterior.

    Args:
        horizon: T.
    """
    return 1.0 + 2.0 / as_count(horizon, "horizon")


def confidence_width(
    rounds: Any, gamma: Gamma, norm_bound: float, noise_bound: float, delta: float
) -> Floats:
    """β_t = B + R√(2(γ_{t−1} + 1 + ln(1/δ))): Theorem 2.

    |μ_{t−1}(x) − f(x)| ≤ β_t σ_{t−1}(x) for all x and t at once with probability 1 − δ, if the
    posterior has noise variance λ = 1 + 2/T and γ belongs to that λ.

    Args:
        rounds: t, one or several.
        gamma: t ↦ γ_t.
        norm_bound: B.
        noise_bound: R.
        delta: δ, the probability of failing.
    """
    check_bounds(norm_bound=norm_bound, noise_bound=noise_bound, delta=delta)
    before = as_rounds(rounds) - 1.0
    information = evaluate(gamma, before)
    exponent = information + 1.0 - math.log(delta)
    deviation = np.sqrt(2.0 * exponent)
    return norm_bound + noise_bound * deviation


def realised_information(variances: Any, noise_variance: float) -> Floats:
    """I_0, …, I_T with I_t = ½ Σ ln(1 + σ²_{s−1}(x_s)/λ), (T + 1,): eq. 11; at most γ_t: Lemma 3.

    Args:
        variances: σ²_{s−1}(x_s) of the points played, (T,).
        noise_variance: λ.
    """
    noise = as_positive(noise_variance, "noise_variance")
    ratios = as_vector(variances, "variances") / noise
    gains = 0.5 * np.log1p(ratios)
    return np.append(0.0, np.cumsum(gains))


def std_sum_bound(rounds: Any, gamma: Gamma) -> Floats:
    """Σ σ_{t−1}(x_t) ≤ √(4(T+2)γ_T): Lemma 4; for every prefix of a run with λ = 1 + 2/T.

    Args:
        rounds: T, one or several.
        gamma: t ↦ γ_t.
    """
    T = as_rounds(rounds)
    information = evaluate(gamma, T)
    return np.sqrt(4.0 * (T + 2.0) * information)


def regret_bound_igp_ucb(
    rounds: Any, gamma: Gamma, norm_bound: float, noise_bound: float, delta: float
) -> Floats:
    """R_T ≤ 2β_T√(4(T+2)γ_T) with probability 1 − δ: Theorem 3, constants of appendix D.

    Assumes IGP-UCB run with λ = 1 + 2/T and an exact maximisation of the index. Valid at every
    round up to that T at once, so the whole curve is a band.

    Args:
        rounds: T, one or several.
        gamma: t ↦ γ_t.
        norm_bound: B.
        noise_bound: R.
        delta: δ, the probability of failing.
    """
    width = confidence_width(rounds, gamma, norm_bound, noise_bound, delta)
    std_sum = std_sum_bound(rounds, gamma)
    return 2.0 * width * std_sum


def discretisation_size(
    rounds: Any, norm_bound: float, lipschitz: float, side: float, dimension: int
) -> Floats:
    """|D_t| = (B L r d t²)^d, at least 1: section 4.2, for a domain in [0, r]^d.

    Then |f(x) − f([x]_t)| ≤ 1/t² for every x and its nearest point [x]_t of D_t.

    Args:
        rounds: t, one or several.
        norm_bound: B.
        lipschitz: L of the kernel.
        side: r.
        dimension: d.
    """
    T = as_rounds(rounds)
    log_size = _log_discretisation(T, norm_bound, lipschitz, side, dimension)
    return np.exp(log_size)


def saturation_width(
    rounds: Any,
    gamma: Gamma,
    norm_bound: float,
    noise_bound: float,
    delta: float,
    *,
    lipschitz: float,
    side: float,
    dimension: int,
) -> Floats:
    """c_t = v_t(1 + √(4 ln t + 2d ln(B L r d t²))): Definition 1, with at least one point in D_t.

    v_t = B + R√(2(γ_{t−1} + 1 + ln(2/δ))) is the scale of GP-TS. A point x of D_t is saturated where
    its regret against the best point of D_t exceeds c_t σ_{t−1}(x): Definition 3.

    Args:
        rounds: t, one or several.
        gamma: N ↦ γ_N.
        norm_bound: B.
        noise_bound: R.
        delta: δ of Theorem 4; v_t is taken at δ/2.
        lipschitz: L of the kernel, as :func:`lipschitz_of_kernel` returns it.
        side: r, where the domain is in [0, r]^d.
        dimension: d.
    """
    check_bounds(norm_bound=norm_bound, noise_bound=noise_bound, delta=delta)
    T = as_rounds(rounds)
    scale = confidence_width(T, gamma, norm_bound, noise_bound, delta / 2.0)
    points = _log_discretisation(T, norm_bound, lipschitz, side, dimension)
    deviation = np.sqrt(4.0 * np.log(T) + 2.0 * points)
    return np.asarray(scale * (1.0 + deviation))


def regret_bound_gp_ts(
    rounds: Any,
    gamma: Gamma,
    norm_bound: float,
    noise_bound: float,
    delta: float,
    *,
    lipschitz: float,
    side: float,
    dimension: int,
) -> Floats:
    """Theorem 4 with the constants of Lemma 13.

    R_T ≤ 2B·min(T, 4) + (11 c_T/p) Σσ_{t−1}(x_t) + (2B+1)π²/6 + ((4B+11) c_T/p)√(2T ln(2/δ))
    with probability 1 − δ, where c_T = v_T(1 + √(4 ln T + 2d ln(B L r d T²))) and p = 1/(4e√π).
    Σσ is bounded by Lemma 4. Assumes a compact convex domain in [0, r]^d, λ = 1 + 2/T, and joint
    samples on the discretisation D_t.

    The first term is ours: the proof of Lemma 10 gives no information on rounds 1 to 4 (p − 1/t² < 0
    there), so they count with the most that they can cost. The lemma holds there, too, but by another
    proof (docs/papers.md), so that the term is on the safe side.

    Args:
        rounds: T, one or several.
        gamma: t ↦ γ_t.
        norm_bound: B.
        noise_bound: R.
        delta: δ, the probability of failing.
        lipschitz: L of the kernel.
        side: r, where the domain is in [0, r]^d.
        dimension: d.
    """
    T = as_rounds(rounds)
    c = saturation_width(
        T,
        gamma,
        norm_bound,
        noise_bound,
        delta,
        lipschitz=lipschitz,
        side=side,
        dimension=dimension,
    )
    exploration = 11.0 * c / ANTI_CONCENTRATION * std_sum_bound(T, gamma)
    first_rounds = 2.0 * norm_bound * np.minimum(T, 4.0)
    constant = first_rounds + (2.0 * norm_bound + 1.0) * math.pi**2 / 6.0
    largest_step = (4.0 * norm_bound + 11.0) * c / ANTI_CONCENTRATION
    deviation = largest_step * azuma_bound(T, delta / 2.0)
    return exploration + constant + deviation


# --- srinivas2010gaussian -----------------------------------------------------------------


def regret_bound_gp_ucb(
    rounds: Any, gamma: Gamma, norm_bound: float, noise_variance: float, delta: float
) -> Floats:
    """R_T ≤ √(C₁ T β_T γ_T), C₁ = 8/ln(1 + σ⁻²), β_T = 2B² + 300γ_T ln³(T/δ): Theorem 3.

    Holds for all T at once with probability 1 − δ if σ bounds every single noise term and the
    posterior's noise variance is σ². γ_T as printed there; chowdhury2017kernelized quotes γ_{T−1}.

    Args:
        rounds: T, one or several.
        gamma: t ↦ γ_t.
        norm_bound: B.
        noise_variance: σ².
        delta: δ, the probability of failing.
    """
    check_bounds(norm_bound=norm_bound, delta=delta)
    noise = as_positive(noise_variance, "noise_variance")
    T = as_rounds(rounds)
    information = evaluate(gamma, T)
    logs = np.log(T / delta)
    beta = 2.0 * norm_bound**2 + 300.0 * information * logs**3
    c1 = 8.0 / math.log1p(1.0 / noise)
    squares = c1 * T * beta * information
    return np.asarray(np.sqrt(squares))


# --- helpers ------------------------------------------------------------------------------


def _log_discretisation(
    T: Floats, norm_bound: float, lipschitz: float, side: float, dimension: int
) -> Floats:
    """ln|D_t|, at least 0: section 4.2 of chowdhury2017kernelized."""
    d = as_count(dimension, "dimension")
    B = as_positive(norm_bound, "norm_bound")
    L = as_positive(lipschitz, "lipschitz")
    r = as_positive(side, "side")
    change = B * L
    per_axis = change * (r * d) * T**2
    log_size = d * np.log(per_axis)
    return np.asarray(np.maximum(0.0, log_size))
