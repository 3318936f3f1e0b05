"""Theorem 1 of ramesh2022movement with every constant: regret where moving has a cost.

======================  ================================================================
``rounds``              T = N_ep H, a number or an array: N_ep episodes of H rounds
``episodes``            N = N_ep, a number or an array
``episode``             H, the rounds of an episode
``noise_variance``      λ of the posterior
======================  ================================================================

:mod:`superarm.lab.theory.tree_descent` has the constants of eqs. 12 and 13.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.inputs import as_count, as_number, as_positive, require_choice
from superarm.rules.base import as_probability

from .arguments import as_rounds, evaluate

Form = Literal["derived", "printed"]
_EVENTS = 3  # Lemma 1, eq. 50 and eq. 31: each may fail with probability δ/3
_DOUBLING = 1.593624  # a with a/(1 − exp(−a)) = 2, rounded down


def stale_variance_bound(
    episodes: Any,
    gamma: Gamma,
    *,
    episode: int,
    noise_variance: float,
    form: Form = "derived",
) -> Floats:
    """ΣΣσ²_m(x_{h,m}) ≤ exp(2γ_{H−1}) · 2γ_{NH}/ln(1 + 1/λ): eqs. 51 to 56, for k ≤ 1.

    σ_m is what is known when episode m begins, σ_{h,m} when its round h does. By eqs. 51 and 52
    σ_m ≤ exp(γ_{H−1})σ_{h,m}, so variances have the factor exp(2γ_{H−1}). With x ≤ 1 it holds that
    x ≤ ln(1 + x/λ)/ln(1 + 1/λ), and ½Σln(1 + σ²_{h,m}/λ) ≤ γ_{NH}. Eq. 56 as printed,
    2 exp(γ_H)γ_{NH}, is no bound: ten observations of one arm with λ = 1 have 10 on the left and 7.95
    on the right.

    Args:
        episodes: N.
        gamma: t ↦ γ_t for this λ.
        episode: H.
        noise_variance: λ.
        form: "printed" for eq. 56 as it stands.
    """
    N = as_rounds(episodes)
    H = as_count(episode, "episode")
    noise = as_positive(noise_variance, "noise_variance")
    require_choice(form, "form", ("derived", "printed"))
    gained = evaluate(gamma, N * H)
    if form == "printed":
        staleness = _exp(gamma(H))
        return np.asarray(2.0 * staleness * gained)
    staleness = _exp(2.0 * gamma(H - 1))
    per_observation = math.log1p(1.0 / noise)
    return np.asarray(staleness * 2.0 * gained / per_observation)


def _exp(power: float) -> float:
    """e to this power; infinite where it is larger than any float."""
    return math.exp(power) if power < 700.0 else math.inf


def conditional_mean_bound(
    observed: Any, *, episode: int, delta: float, form: Form = "printed"
) -> Floats:
    """Σ E[Δ_m | F_{m−1}] ≤ 2ΣΔ_m + 4H ln(1/δ) + 8H ln(4H) + 1 for 0 ≤ Δ_m ≤ H: eq. 50.

    It holds with probability 1 − δ for all numbers of episodes at once, and even with 1.26H ln(1/δ) in
    place of the last three terms: E exp(−aΔ/H) ≤ exp(−(1 − exp(−a)) E[Δ]/H), with a/(1 − exp(−a)) = 2.

    Args:
        observed: ΣΔ_m.
        episode: H.
        delta: δ, the probability of failing.
        form: "printed" for eq. 50, "derived" for the smaller bound.
    """
    H = as_count(episode, "episode")
    chance = as_probability(delta, "delta")
    require_choice(form, "form", ("derived", "printed"))
    log_chance = math.log(1.0 / chance)
    if form == "derived":
        constant = H * log_chance / -math.expm1(-_DOUBLING)
    else:
        of_chance = 4.0 * H * log_chance
        of_length = 8.0 * H * math.log(4.0 * H)
        constant = of_chance + of_length + 1.0
    sums = np.asarray(observed, dtype=np.float64)
    return np.asarray(2.0 * sums + constant)


def episode_concentration(
    episodes: Any,
    *,
    episode: int,
    norm_bound: float,
    diameter: float,
    delta: float,
    form: Form = "derived",
) -> Floats:
    """By how much costs of N episodes exceed their conditional means: H(B + ψ)√(N ln(1/δ)/2).

    With probability 1 − δ, by Hoeffding and Azuma, as an episode costs 0 to H(B + ψ). Eq. 31 as
    printed, 4H(B + ψ) ln(4π²N²(ln N + 1)/(3δ)), grows like ln N alone. No such bound exists:
    of fair coins that cost 0 or H(B + ψ), with δ = 0.1, it fails with probability 0.22 at N = 100,000;
    of Algorithm 1 with two actions whose costs are known, with 0.20 at N = 1,000,000.

    Args:
        episodes: N.
        episode: H.
        norm_bound: B, so that 0 ≤ f ≤ B.
        diameter: ψ, the largest distance.
        delta: δ, the probability of failing.
        form: "printed" for eq. 31 as it stands.
    """
    N = as_rounds(episodes)
    H = as_count(episode, "episode")
    B = as_positive(norm_bound, "norm_bound")
    psi = as_number(diameter, "diameter", 0.0)
    largest = H * (B + psi)  # cost of an episode
    chance = as_probability(delta, "delta")
    require_choice(form, "form", ("derived", "printed"))
    if form == "printed":
        events = 4.0 * math.pi**2 * N**2
        inside = events / (3.0 * chance) * (np.log(N) + 1.0)
        return np.asarray(4.0 * largest * np.log(inside))
    deviation = np.sqrt(N * math.log(1.0 / chance) / 2.0)
    return np.asarray(largest * deviation)


def learning_error_bound(
    episodes: Any,
    gamma: Gamma,
    *,
    episode: int,
    norm_bound: float,
    noise_bound: float,
    noise_variance: float,
    delta: float = 0.1,
    form: Form = "derived",
) -> Floats:
    """2β_N √(NH (2V + 4H ln(1/δ') + 8H ln(4H) + 1)): eqs. 57 to 63, with δ' = δ/3 and k ≤ 1.

    V is :func:`stale_variance_bound` and β_N the width of Lemma 1 when episode N begins, with δ'. It
    bounds ΣΣ2β_m⟨σ_m, l(z_{h,m})⟩. Eq. 62 as printed multiplies 2V alone by NH, which does not follow
    from eq. 50; "printed" takes eq. 62 literally, with eq. 56 as printed.

    Args:
        episodes: N.
        gamma: t ↦ γ_t for this λ.
        episode: H.
        norm_bound: B.
        noise_bound: σ, the noise is σ-sub-Gaussian.
        noise_variance: λ.
        delta: δ of Theorem 1.
        form: "printed" for eqs. 56 and 62 as they stand.
    """
    N = as_rounds(episodes)
    H = as_count(episode, "episode")
    norm = as_positive(norm_bound, "norm_bound")
    noise = as_positive(noise_bound, "noise_bound")
    chance = as_probability(delta, "delta") / _EVENTS
    V = stale_variance_bound(
        N, gamma, episode=H, noise_variance=noise_variance, form=form
    )
    information = evaluate(gamma, (N - 1.0) * H)
    deviation = np.sqrt(2.0 * math.log(1.0 / chance) + 2.0 * information)
    beta = norm + noise / math.sqrt(noise_variance) * deviation  # Lemma 1
    constant = conditional_mean_bound(0.0, episode=H, delta=chance)
    eq_62 = 2.0 * N * H * V + constant
    derived = N * H * (2.0 * V + constant)
    squares = eq_62 if form == "printed" else derived
    return np.asarray(2.0 * beta * np.sqrt(squares))


def regret_bound_gp_md(
    episodes: Any,
    gamma: Gamma,
    *,
    episode: int,
    norm_bound: float,
    noise_bound: float,
    noise_variance: float,
    diameter: float,
    delta: float = 0.1,
    form: Form = "derived",
) -> Floats:
    """Theorem 1 with every constant: R^{α,β} after N episodes, where α and β are such that eqs. 38 and
    39 hold.

    The learning error (eqs. 57 to 63) and what costs exceed their conditional means by (eq. 31), with
    probability 1 − δ. α and β are not part of it: see :mod:`superarm.lab.theory.tree_descent`.

    Args:
        episodes: N.
        gamma: t ↦ γ_t for this λ.
        episode: H.
        norm_bound: B.
        noise_bound: σ, the noise is σ-sub-Gaussian.
        noise_variance: λ.
        diameter: ψ, the largest distance.
        delta: δ, the probability of failing.
        form: "printed" for the steps of the proof as they stand.
    """
    error = learning_error_bound(
        episodes,
        gamma,
        episode=episode,
        norm_bound=norm_bound,
        noise_bound=noise_bound,
        noise_variance=noise_variance,
        delta=delta,
        form=form,
    )
    excess = episode_concentration(
        episodes,
        episode=episode,
        norm_bound=norm_bound,
        diameter=diameter,
        delta=delta / _EVENTS,
        form=form,
    )
    return np.asarray(error + excess)


def movement_rate(rounds: Any, gamma: Gamma, *, delta: float = 0.1) -> Floats:
    """The order of Theorem 1 in T rounds, √(2γ_T + 2 ln(1/δ)) · √(T γ_T): for comparing growth alone.

    Eq. 70 with H as a constant, and all constants left out.

    Args:
        rounds: T, one or several.
        gamma: t ↦ γ_t.
        delta: δ, the probability of failing.
    """
    T = as_rounds(rounds)
    gain = evaluate(gamma, T)
    log_chance = math.log(as_probability(delta, "delta"))
    exponent = 2.0 * gain - 2.0 * log_chance
    beta = np.sqrt(exponent)
    explored = np.sqrt(T * gain)
    return np.asarray(beta * explored)
