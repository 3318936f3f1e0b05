"""Regret of combinatorial bandits with high probability: nika2022oclok.

======================  ================================================================
``rounds``              T, a number or an array: bounds are drawn over a regret curve
``gamma``               a callable N ↦ γ_N
``budget``              K, the most arms that a decision holds
``largest_eigenvalue``  λ*, of the chosen arms' posterior covariances
======================  ================================================================
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, as_positive

from .arguments import as_rounds, check_bounds, evaluate


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

    Args:
        rounds: T, one or several.
        gamma: N ↦ γ_N.
        most_arms: M, the most arms that any round offers.
        budget: K, the most arms that a decision holds.
        noise_variance: σ².
        largest_eigenvalue: λ*.
        lipschitz: B.
        delta: δ, the probability of failing.
    """
    check_bounds(
        delta=delta, lipschitz=lipschitz, largest_eigenvalue=largest_eigenvalue
    )
    noise = as_positive(noise_variance, "noise_variance")
    T = as_rounds(rounds)
    events = most_arms * math.pi**2 * T**2
    beta = 2.0 * np.log(events / (3.0 * delta))
    constant = 8.0 * lipschitz**2 * (largest_eigenvalue + noise)
    information = evaluate(gamma, budget * T)
    return np.sqrt(constant * budget * beta * T * information)


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

    Args:
        rounds: T, one or several.
        kernel: "linear", "squared-exponential" or "matern".
        dimension: D.
        budget: K, the most arms that a decision holds.
        largest_eigenvalue: λ*.
        nu: ν of the Matérn kernel.
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
    exponent is approached from above. The rates of O'CLOK-UCB are Corollary 1's by default. As printed
    in the table they have a further √D for the squared exponential, and λ* in place of √(λ* K) for the
    Matérn kernel.

    Args:
        rounds: T, one or several.
        dimension: D.
        budget: K, the most arms that a decision holds.
        largest_eigenvalue: λ*.
        nu: ν of the Matérn kernel.
        holder: η, the Hölder exponent of CC-MAB.
        optimality_dimension: of ACC-UCB; D by default, its upper limit.
        as_printed: whether the rates of O'CLOK-UCB are those of the table.
    """
    T = as_rounds(rounds)
    D = as_count(dimension, "dimension")
    near = D if optimality_dimension is None else optimality_dimension
    near = as_number(near, "optimality_dimension", 0.0, D)
    K = as_count(budget, "budget")
    eta = as_positive(holder, "holder")
    size: dict[str, Any] = {
        "dimension": D,
        "budget": K,
        "largest_eigenvalue": largest_eigenvalue,
    }
    linear = rate_oclok(T, "linear", **size)
    squared_exponential = rate_oclok(T, "squared-exponential", **size)
    matern = rate_oclok(T, "matern", nu=nu, **size)
    if as_printed:
        squared_exponential = math.sqrt(D) * squared_exponential
        matern = math.sqrt(largest_eigenvalue / K) * matern
    cc_mab_power = (D + 2.0 * eta) / (D + 3.0 * eta)
    acc_ucb_power = (near + 1.0) / (near + 2.0)
    return {
        "CUCB": np.sqrt(K * T),
        "CC-MAB": np.asarray(K * T**cc_mab_power),
        "ACC-UCB": np.asarray(K * T**acc_ucb_power),
        "O'CLOK-UCB, linear": linear,
        "O'CLOK-UCB, squared exponential": squared_exponential,
        "O'CLOK-UCB, Matérn": matern,
    }
