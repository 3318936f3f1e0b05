"""Bayesian regret of combinatorial GP bandits: sandberg2025bayesian, section 3.

======================  ================================================================
``rounds``              T, a number or an array: bounds are drawn over a regret curve
``gamma``               a callable N ↦ γ_N, evaluated at N = T·K; it belongs to ``noise_variance``
``arms``                |A|, the arms that can be offered at all, or a ``CompactSet`` of them
``budget``              K, the most arms a decision may hold
``noise_variance``      ς²
``largest_eigenvalue``  λ*_K, of the posterior covariance of any K arms after any history;
                        :func:`~superarm.lab.theory.prior_eigenvalue_bound` bounds it
``largest_variance``    v = max k(a, a)
``omega``, ``xi``       ω and ξ of GP-BUCB
======================  ================================================================

What the bounds are about: the *Bayesian* regret BR(T) = E Σ f(a*_t) − f(a_t), so f is drawn from
the very prior of the posterior, the noise is Gaussian with the variance it assumes, rewards add
up, each chosen arm is seen, the oracle is exact, and the expectation is over f, noise and samples:
a single run may lie above. Regret is unrectified (a sum of f itself, not of E[max(0, ·)]) and
Thompson samples are joint.

The paper takes k ≤ 1. For v ≠ 1 write f = √v·g: g has the kernel k/v ≤ 1 and the noise variance
ς²/v, the same information gain (it depends on K/ς²), the same decisions (a width multiplies
standard deviations) and λ*/v in place of λ*. So √v times the bound for g keeps √(C_K T K β_T γ)
as it is, in the units of f, and multiplies every constant term by √v.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_count,
    as_number,
    as_positive,
    as_vector,
    require_choice,
)

from .arguments import as_rounds, evaluate
from .compact_sets import CompactSet, confidence_parameter, log_ceiling

BayesianAlgorithm = Literal["gp-ucb", "gp-bucb", "gp-ts"]


def bayesian_regret_bound(
    rounds: Any,
    gamma: Gamma,
    *,
    algorithm: BayesianAlgorithm,
    arms: int | CompactSet,
    budget: int,
    noise_variance: float,
    largest_eigenvalue: float,
    omega: float | None = None,
    xi: float | None = None,
    largest_variance: float = 1.0,
) -> Floats:
    """Theorems 3.2 and 3.6: a constant + c·√(C_K T K β_T γ_{TK}), with C_K = 2(λ*_K + ς²).

    ==========  =====================  ===  =================================================
    GP-UCB      π²/6                   c=1  β_t = 2 ln(|A|t²/√(2π))
    GP-BUCB     C_ω·ξ/(ξ−ω)            c=1  β_t = 2 erf⁻¹(1−2η_t)², η_t = √(2π)^ω/(2|A|^ω t^ξ)
    GP-TS       π²/3                   c=2  β_t of GP-UCB, in the analysis only
    ==========  =====================  ===  =================================================

    The theorem asks for ξ > ω > 1 of GP-BUCB. For ω > 1 and ξ ≤ ω the constant is replaced by
    the growing term of Lemma 3.1 (:func:`bucb_exploration_term`); for ω ≤ 1 the bound is
    infinite, as for the paper's own experiments. A β_t below 0 (one or two arms, first round)
    counts as 0, which the proofs allow: there |A|/√(2π) is at most t⁻² already.

    On a compact set (Theorem 3.6) |A| is τ_T^d and π²/3 is added, for the discretisation. That needs
    the derivative bound of eq. 5 and Lipschitz mean and kernel (Matérn from ν = 2 on, squared
    exponential), a box, finitely many arms offered per round. The proof counts a grid point once
    (eq. 109), though several arms of one decision may share it. Counted K times it costs what is
    printed as long as K ≤ 1 + β_1, as E(X − √β)₊ ≤ φ(√β)/(1 + β) for a standard normal X, where
    eq. 21 has φ(√β); for a larger K its π²/6 becomes K/(1 + β_1)·π²/6.

    Args:
        rounds: T, one or several.
        gamma: N ↦ γ_N.
        algorithm: "gp-ucb", "gp-bucb" or "gp-ts".
        arms: |A|, or a compact set of arms.
        budget: K, the most arms that a decision holds.
        noise_variance: ς².
        largest_eigenvalue: λ*_K.
        omega: ω of GP-BUCB.
        xi: ξ of GP-BUCB.
        largest_variance: v = max k(a, a).

    >>> bound = bayesian_regret_bound(
    ...     100, lambda count: 10.0, algorithm="gp-ucb", arms=50, budget=3, noise_variance=0.1,
    ...     largest_eigenvalue=2.0)
    >>> round(float(bound), 2)
    556.2
    """
    require_choice(algorithm, "algorithm", get_args(BayesianAlgorithm))
    _check_bucb_parameters(algorithm, omega, xi)
    T = as_rounds(rounds)
    K = as_count(budget, "budget")
    scale = math.sqrt(as_positive(largest_variance, "largest_variance"))
    if isinstance(arms, CompactSet):
        s = arms.log_size(
            T,
            budget=K,
            noise_variance=noise_variance,
            omega=omega,
            xi=xi,
            largest_variance=largest_variance,
        )
        log_points = arms.dimension * log_ceiling(s)
        discretisation = math.pi**2 / 3.0
    else:
        log_points = np.asarray(math.log(as_count(arms, "arms")))
        discretisation = 0.0
    beta = confidence_parameter(T, log_points, omega, xi)
    C = variance_constant(largest_eigenvalue, noise_variance)
    information = evaluate(gamma, T * K)
    explored = np.sqrt(C * T * K * beta * information)
    missed: Any = math.pi**2 / 6.0
    if omega is not None and xi is not None:
        missed = bucb_exploration_term(T, omega, xi)
    elif algorithm == "gp-ts":
        missed = math.pi**2 / 3.0
        explored = 2.0 * explored
    return np.asarray(scale * (missed + discretisation) + explored)


def _check_bucb_parameters(
    algorithm: BayesianAlgorithm, omega: float | None, xi: float | None
) -> None:
    """GP-BUCB has both ω and ξ, the other algorithms neither."""
    if algorithm == "gp-bucb":
        if omega is None or xi is None:
            raise InputError("gp-bucb needs both omega and xi")
    elif omega is not None or xi is not None:
        raise InputError(
            f"omega and xi belong to gp-bucb; leave them out for {algorithm}"
        )


def bayesian_regret_bound_of_widths(
    widths: Any,
    gamma: Gamma,
    *,
    arms: int,
    budget: int,
    noise_variance: float,
    largest_eigenvalue: float,
    largest_variance: float = 1.0,
    rectified: bool = False,
) -> Floats:
    """A bound for *any* widths w_1, …, w_T ≥ 0, at every T up to their number: ours.

    BR(T) ≤ √v |A| Σ_t h(w_t) + √(C_K K Σ_t w_t² γ_{TK}), (T,), with h(w) = φ(w) − wΦ(−w).

    The proof of Theorem 3.2 with nothing rounded up: given the past, f(a) − U_t(a) is
    N(−wσ, σ²), whose positive part has mean σh(w) ≤ √v h(w); sum over all arms (eqs 17–20), and
    leave Σβ_t in eq. 37 as it stands. It covers index policies that the theorem does not:
    GP-BUCB with ω = ξ = 1, ½β_t, a fixed width.

    It covers GP-TS with joint samples too, for whatever widths: given the past, a_t and f are
    independent, so E[U_t(a_t) − f(a_t)] = E[w_tσ(a_t)] exactly, where Lemma A.5 has twice that.

    ``rectified`` regret is Σ r(f(a_t)) − r(f(a*_t)) over costs f, where r(x) = E[max(0, N(x, s²))]
    has one fixed s, and decisions minimise the sum of r over the index or the sample (Algorithm 2).
    r is increasing and 1-Lipschitz. So with the lower index L_t,

        r(f(a_t)) − r(f(a*)) ≤ (f − L_t)₊(a_t) + [r(L_t(a_t)) − r(L_t(a*))] + (L_t − f)₊(a*),

    summed over the arms of each. The bracket is at most 0 for an index policy, and 0 on average
    for joint samples, as (a_t, sample) and (a*, f) have one distribution. The last part is as
    above; the first has mean σ(w + h(w)), since E[(Z + w)₊] = w + h(w). Hence w_t + h(w_t) takes the
    place of w_t under the root, which hardly widens it: h(2) = 0.008.

    Args:
        widths: w_1, …, w_T, (T,).
        gamma: N ↦ γ_N.
        arms: |A|.
        budget: K, the most arms that a decision holds.
        noise_variance: ς².
        largest_eigenvalue: λ*_K.
        largest_variance: v = max k(a, a).
        rectified: whether regret is that of rectified costs.
    """
    from scipy.special import ndtr

    w = as_vector(widths, "widths")
    if (w < 0.0).any():
        raise InputError(
            "widths has negative entries; a width multiplies a standard deviation"
        )
    root_two_pi = math.sqrt(2.0 * math.pi)
    density = np.exp(-0.5 * w**2) / root_two_pi  # φ(w)
    # φ(w) − wΦ(−w) cancels for large w, where rounding may not turn it negative
    missed = np.maximum(0.0, density - w * ndtr(-w))
    scale = math.sqrt(as_positive(largest_variance, "largest_variance"))
    constant = variance_constant(largest_eigenvalue, noise_variance)
    K = as_count(budget, "budget")
    rounds = np.arange(1.0, len(w) + 1.0)
    information = evaluate(gamma, K * rounds)
    explored_widths = w + missed if rectified else w
    squares = np.cumsum(explored_widths**2)
    missed_total: Floats = scale * as_count(arms, "arms") * np.cumsum(missed)
    return missed_total + np.sqrt(constant * K * squares * information)


def bucb_constant(omega: float) -> float:
    """C_ω = (√π·ω/√(2e(ω−1)))^{1/ω} = ϑ^{−1/ω}: Lemma 3.1; infinite for ω ≤ 1.

    With ϑ = √(2e/π)·√(ω−1)/ω, erfc(u) ≥ ϑ exp(−ωu²) for all u ≥ 0 (chang2011chernoff, Theorem 2;
    Lemma A.13); it is nearly tight for ω near 1 and loose for large ω. With the √(πω) that Theorem 3.6
    prints for √π·ω, the inequality is false. For ω ≤ 1 no ϑ > 0 will do.

    Args:
        omega: ω.
    """
    value = as_positive(omega, "omega")
    if value <= 1.0:
        return math.inf
    # ϑ² = (2e/π)(ω − 1)/ω²
    log_factor = math.log(2.0 / math.pi) + 1.0
    log_squares = log_factor + math.log(value - 1.0)
    log_theta = 0.5 * log_squares - math.log(value)
    return math.exp(-log_theta / value)


def bucb_exploration_term(rounds: Any, omega: float, xi: float) -> Floats:
    """C_ω·Σ t^{−ξ/ω} bounded: Lemma 3.1, what GP-BUCB loses where its index was too low.

    C_ω times ω/(ω−ξ)·T^{1−ξ/ω} if ξ < ω, 1 + ln T if ξ = ω, ξ/(ξ−ω) if ξ > ω. Infinite for ω ≤ 1.

    Args:
        rounds: T, one or several.
        omega: ω.
        xi: ξ.
    """
    T = as_rounds(rounds)
    constant = bucb_constant(omega)
    ratio = as_positive(xi, "xi") / omega
    if math.isinf(constant):
        return np.full(T.shape, math.inf)
    if ratio < 1.0:
        power = 1.0 - ratio
        return constant / power * T**power
    if ratio == 1.0:
        return constant * (1.0 + np.log(T))
    limit = constant * xi / (xi - omega)
    return np.full(T.shape, limit)


# --- Lemma A.12 ---------------------------------------------------------------------------


def variance_constant(largest_eigenvalue: float, noise_variance: float) -> float:
    """C_K = 2(λ*_K + ς²): Theorem 3.2.

    Args:
        largest_eigenvalue: λ*_K.
        noise_variance: ς².
    """
    as_number(largest_eigenvalue, "largest_eigenvalue", least=0.0)
    noise = as_positive(noise_variance, "noise_variance")
    return 2.0 * (largest_eigenvalue + noise)


def variance_sum_bound(
    information_gain: Any, *, largest_eigenvalue: float, noise_variance: float
) -> Floats:
    """Σ_t Σ_{a∈a_t} σ²_{t−1}(a) ≤ 2(λ* + ς²)·I: Lemma A.12, before I ≤ γ_{TK}.

    It holds on every run, whatever was chosen and observed, with I the information gain of what
    was chosen and λ* the largest eigenvalue of the chosen arms' covariances *on that run*; the
    supremum λ*_K over all histories is at least as large.

    Args:
        information_gain: I, one or several.
        largest_eigenvalue: λ*.
        noise_variance: ς².
    """
    gain = np.asarray(information_gain, dtype=np.float64)
    constant = variance_constant(largest_eigenvalue, noise_variance)
    return np.asarray(constant * gain)
