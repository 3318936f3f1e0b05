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
from typing import Any, Literal

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import LARGEST, as_count, as_number, as_positive, as_vector
from superarm.rules.base import as_probability

ANTI_CONCENTRATION = 1.0 / (4.0 * math.e * math.sqrt(math.pi))
"""p of chowdhury2017kernelized, Lemma 8: a draw exceeds f(x) at least this often."""


# --- chowdhury2017kernelized --------------------------------------------------------------


def self_normalised_norm(noise: Any, K: Any, eta: float) -> float:
    """‖ε‖ in the norm of ((K + ηI)⁻¹ + I)⁻¹ = (K + ηI)(K + (1+η)I)⁻¹: Theorem 1, left of eq. 6.

    ``noise`` is (t,), ``K`` the (t, t) kernel matrix of the points played. Not squared.
    """
    matrix, vector = _noise_and_kernel(noise, K, eta)
    identity = np.eye(len(vector))
    solved = np.linalg.solve(matrix + (1.0 + eta) * identity, vector)
    # (K + ηI)(K + (1+η)I)⁻¹ ε = ε − (K + (1+η)I)⁻¹ ε
    return math.sqrt(max(0.0, float(vector @ (vector - solved))))


def self_normalised_bound(
    K: Any, eta: float, noise_bound: float, delta: float
) -> float:
    """R√(2 ln(√det((1+η)I + K)/δ)): Theorem 1, right of eq. 6, not squared.

    With probability 1 − δ no prefix of the noise exceeds it, for any predictable choice of
    points; η = 0 needs K positive definite.
    """
    matrix, _ = _noise_and_kernel(np.zeros(len(K)), K, eta)
    _check(noise_bound=noise_bound, delta=delta)
    _, logarithm = np.linalg.slogdet(matrix + (1.0 + eta) * np.eye(len(matrix)))
    return noise_bound * math.sqrt(max(0.0, float(logarithm) - 2.0 * math.log(delta)))


def theory_noise_variance(horizon: int) -> float:
    """λ = 1 + 2/T, with which Theorems 2–4 run the posterior."""
    return 1.0 + 2.0 / as_count(horizon, "horizon")


def confidence_width(
    rounds: Any, gamma: Gamma, norm_bound: float, noise_bound: float, delta: float
) -> Floats:
    """β_t = B + R√(2(γ_{t−1} + 1 + ln(1/δ))): Theorem 2.

    |μ_{t−1}(x) − f(x)| ≤ β_t σ_{t−1}(x) for all x and t at once with probability 1 − δ, if the
    posterior has noise variance λ = 1 + 2/T and γ belongs to that λ.
    """
    _check(norm_bound=norm_bound, noise_bound=noise_bound, delta=delta)
    information = evaluate(gamma, as_rounds(rounds) - 1.0)
    return norm_bound + noise_bound * np.sqrt(
        2.0 * (information + 1.0 - math.log(delta))
    )


def realised_information(stds: Any, noise_variance: float) -> float:
    """½ Σ ln(1 + σ²_{s−1}(x_s)/λ): eq. 11, gained point by point; at most γ_t: Lemma 3."""
    deviations = as_vector(stds, "stds")
    return 0.5 * float(
        np.log1p(deviations**2 / as_positive(noise_variance, "noise_variance")).sum()
    )


def std_sum_bound(rounds: Any, gamma: Gamma) -> Floats:
    """Σ σ_{t−1}(x_t) ≤ √(4(T+2)γ_T): Lemma 4; for every prefix of a run with λ = 1 + 2/T."""
    T = as_rounds(rounds)
    return np.sqrt(4.0 * (T + 2.0) * evaluate(gamma, T))


def regret_bound_igp_ucb(
    rounds: Any, gamma: Gamma, norm_bound: float, noise_bound: float, delta: float
) -> Floats:
    """R_T ≤ 2β_T√(4(T+2)γ_T) with probability 1 − δ: Theorem 3, constants of appendix D.

    Assumes IGP-UCB run with λ = 1 + 2/T and an exact maximisation of the index. Valid at every
    round up to that T at once, so the whole curve is a band.
    """
    width = confidence_width(rounds, gamma, norm_bound, noise_bound, delta)
    return 2.0 * width * std_sum_bound(rounds, gamma)


def discretisation_size(
    rounds: Any, norm_bound: float, lipschitz: float, side: float, dimension: int
) -> Floats:
    """|D_t| = (B L r d t²)^d, at least 1: section 4.2, for a domain in [0, r]^d.

    Then |f(x) − f([x]_t)| ≤ 1/t² for every x and its nearest point [x]_t of D_t.
    """
    return np.exp(
        _log_discretisation(as_rounds(rounds), norm_bound, lipschitz, side, dimension)
    )


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
    _check(norm_bound=norm_bound, noise_bound=noise_bound, delta=delta)
    T = as_rounds(rounds)
    scale = confidence_width(T, gamma, norm_bound, noise_bound, delta / 2.0)
    points = _log_discretisation(T, norm_bound, lipschitz, side, dimension)
    return np.asarray(scale * (1.0 + np.sqrt(4.0 * np.log(T) + 2.0 * points)))


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
    """
    T = as_rounds(rounds)
    sizes: dict[str, Any] = {
        "lipschitz": lipschitz,
        "side": side,
        "dimension": dimension,
    }
    c = saturation_width(T, gamma, norm_bound, noise_bound, delta, **sizes)
    exploration = 11.0 * c / ANTI_CONCENTRATION * std_sum_bound(T, gamma)
    constant = (
        2.0 * norm_bound * np.minimum(T, 4.0)
        + (2.0 * norm_bound + 1.0) * math.pi**2 / 6.0
    )
    azuma = (4.0 * norm_bound + 11.0) * c / ANTI_CONCENTRATION
    return exploration + constant + azuma * np.sqrt(2.0 * T * math.log(2.0 / delta))


# --- srinivas2010gaussian -----------------------------------------------------------------


def regret_bound_gp_ucb(
    rounds: Any, gamma: Gamma, norm_bound: float, noise_variance: float, delta: float
) -> Floats:
    """R_T ≤ √(C₁ T β_T γ_T), C₁ = 8/ln(1 + σ⁻²), β_T = 2B² + 300γ_T ln³(T/δ): Theorem 3.

    Holds for all T at once with probability 1 − δ if σ bounds every single noise term and the
    posterior's noise variance is σ². γ_T as printed there; chowdhury2017kernelized quotes γ_{T−1}.
    """
    _check(norm_bound=norm_bound, delta=delta)
    noise = as_positive(noise_variance, "noise_variance")
    T = as_rounds(rounds)
    information = evaluate(gamma, T)
    beta = 2.0 * norm_bound**2 + 300.0 * information * np.log(T / delta) ** 3
    return np.asarray(np.sqrt(8.0 / math.log1p(1.0 / noise) * T * beta * information))


# --- nika2022oclok ------------------------------------------------------------------------


def regret_bound_oclok_ucb(
    rounds: Any,
    gamma: Gamma,
    *,
    most_arms: int,
    budget: int,
    noise_variance: float,
    largest_eigenvalue: float,
    lipschitz: float = 1.0,
    delta: float = 0.05,
) -> Floats:
    """α-regret ≤ √(C(K) K β_T T γ_{KT}), C(K) = 8B²(λ*(K) + σ²): Theorem 1.

    K is the ``budget``, B the ``lipschitz`` constant of the super arm's reward in the arms'
    means (not a norm), λ* the largest eigenvalue of the chosen arms' posterior covariances (at
    most that of the prior, at most K if k ≤ 1), β_T = 2 ln(Mπ²T²/(3δ)). Needs f drawn from
    the model's GP, a monotone reward and a deterministic α-approximate oracle.
    """
    _check(delta=delta, lipschitz=lipschitz, largest_eigenvalue=largest_eigenvalue)
    noise = as_positive(noise_variance, "noise_variance")
    T = as_rounds(rounds)
    beta = 2.0 * np.log(most_arms * math.pi**2 * T**2 / (3.0 * delta))
    constant = 8.0 * lipschitz**2 * (largest_eigenvalue + noise)
    return np.sqrt(constant * budget * beta * T * evaluate(gamma, budget * T))


def rate_oclok(
    rounds: Any,
    kernel: Literal["linear", "squared-exponential", "matern"],
    *,
    dimension: int,
    budget: int,
    largest_eigenvalue: float,
    nu: float = math.inf,
) -> Floats:
    """√(λ* K T g): Corollary 1, an order up to logarithms, not a bound.

    g is D for a linear kernel, ln^D T for the squared exponential, T^{D/(D+2ν)} for Matérn's, ν > 1.
    """
    T = as_rounds(rounds)
    as_count(dimension, "dimension")
    as_count(budget, "budget")
    as_number(largest_eigenvalue, "largest_eigenvalue", least=0.0)
    if kernel == "linear":
        growth: Any = dimension
    elif kernel == "squared-exponential":
        growth = np.log(T) ** dimension
    elif nu > 1.0:
        growth = T ** (dimension / (dimension + 2.0 * nu))
    else:
        raise InputError(f"nu is {nu}; the corollary needs nu > 1")
    return np.asarray(np.sqrt(largest_eigenvalue * budget * T * growth))


def rates_side_by_side(
    rounds: Any,
    *,
    dimension: int,
    budget: int,
    largest_eigenvalue: float,
    nu: float = 2.5,
    holder: float = 1.0,
    optimality_dimension: float | None = None,
    as_printed: bool = False,
) -> dict[str, Floats]:
    """How the regret of each algorithm in Table 1 of nika2022oclok grows, up to logarithms.

    Lipschitz means are Hölder with exponent 1. ACC-UCB's optimality dimension is at most D, and its
    exponent is approached from above. The rates of O'CLOK-UCB are Corollary 1's, unless they are asked
    for as printed in the table, which has a further √D for the squared exponential, and λ* in place of
    √(λ* K) for the Matérn kernel.
    """
    T, D = as_rounds(rounds), as_count(dimension, "dimension")
    near = D if optimality_dimension is None else optimality_dimension
    near = as_number(near, "optimality_dimension", 0.0, D)
    budget, holder = as_count(budget, "budget"), as_positive(holder, "holder")
    ours: dict[str, Any] = {
        "dimension": D,
        "budget": budget,
        "largest_eigenvalue": largest_eigenvalue,
    }
    further_factor = math.sqrt(D) if as_printed else 1.0
    matern_factor = math.sqrt(largest_eigenvalue / budget) if as_printed else 1.0
    return {
        "CUCB": np.sqrt(budget * T),
        "CC-MAB": np.asarray(budget * T ** ((D + 2.0 * holder) / (D + 3.0 * holder))),
        "ACC-UCB": np.asarray(budget * T ** ((near + 1.0) / (near + 2.0))),
        "O'CLOK-UCB, linear": rate_oclok(T, "linear", **ours),
        "O'CLOK-UCB, squared exponential": further_factor
        * rate_oclok(T, "squared-exponential", **ours),
        "O'CLOK-UCB, Matérn": matern_factor * rate_oclok(T, "matern", nu=nu, **ours),
    }


# --- checks -------------------------------------------------------------------------------


def as_rounds(rounds: Any, name: str = "rounds") -> Floats:
    """T, one or several."""
    values = as_vector(np.ravel(rounds), name).reshape(np.shape(rounds))
    if values.size and not 1.0 <= values.min() <= values.max() <= LARGEST:
        raise InputError(f"{name} must lie between 1 and {LARGEST:g}")
    return values


def evaluate(gamma: Gamma, counts: Floats) -> Floats:
    """γ at whole numbers of observations."""
    values = np.array([gamma(int(count)) for count in counts.ravel()], dtype=np.float64)
    return values.reshape(counts.shape)


def _log_discretisation(
    T: Floats, norm_bound: float, lipschitz: float, side: float, dimension: int
) -> Floats:
    as_count(dimension, "dimension")
    per_axis = as_positive(norm_bound, "norm_bound") * as_positive(
        lipschitz, "lipschitz"
    )
    per_axis *= as_positive(side, "side") * dimension
    return np.asarray(np.maximum(0.0, dimension * np.log(per_axis * T**2)))


def _noise_and_kernel(noise: Any, K: Any, eta: float) -> tuple[Floats, Floats]:
    vector = as_vector(noise, "noise")
    matrix = np.asarray(K, dtype=np.float64)
    if matrix.shape != (len(vector), len(vector)):
        told = f"{len(vector)} noise terms need a square of that size"
        raise ShapeError(f"K has shape {matrix.shape}; {told}")
    as_number(eta, "eta", least=0.0)
    return matrix, vector


def _check(*, delta: float, **nonnegative: float) -> None:
    as_probability(delta, "delta")
    for name, value in nonnegative.items():
        as_number(value, name, least=0.0)
