"""Regret where rewards drift: bogunovic2016time, section 4 and appendices D to F.

======================  ================================================================
``rounds``              T, a number or an array: bounds are drawn over a regret curve
``epsilon``             ε, f_{t+1} = √(1 − ε) f_t + √ε g_{t+1}
``noise_variance``      σ²
``K̃``                   K ∘ D, D_ij = (1 − ε)^{|i−j|/2}: the covariance of f_1(x_1), …, f_T(x_T)
``γ_N``, ``γ̃_T``         max ½ ln det(I + K/σ²) over N points, of K̃ over one in each of T rounds
``block``               N of R-GP-UCB, or Ñ, which only the analysis uses
``arms``                |D|, or a ``SmoothDomain`` where they are not finitely many
``β_T``                 the squared width of the confidence intervals
======================  ================================================================

All of it assumes k(x, x) ≤ 1, one arm a round, f_1 and all g_t drawn from the learner's own process,
Gaussian noise, and a known ε. Where a printed step does not follow, what its proof does give is the
default; docs/papers.md lists these places.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from superarm.core import Floats, Gamma, Schedule
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_scale, require_choice
from superarm.rules.base import as_probability
from superarm.rules.schedules import ResettingGPUCB, SrinivasFinite, TimeVaryingGPUCB

from .arguments import as_rounds, evaluate
from .drift_information import as_drift
from .smooth_domains import SmoothDomain

DriftAlgorithm = Literal["tv-gp-ucb", "r-gp-ucb", "split"]
_POWERS = {"r-gp-ucb": 4.0, "tv-gp-ucb": 3.0, "split": 2.0}


def regret_bound_tv_gp_ucb(
    rounds: Any,
    gamma: Gamma,
    *,
    arms: int | SmoothDomain,
    noise_variance: float,
    delta: float,
) -> Floats:
    """R_T ≤ √(C₁ T β_T γ̃_T) + 2 with probability 1 − δ, C₁ = 8/ln(1 + σ⁻²): Theorem 4.3.

    ``gamma`` is γ̃: eq. 20; with a :class:`DriftingGrowth`, eq. 21 at its best Ñ. β_T is eq. 19. With
    finitely many arms nothing is discretised, and eq. 29 for all arms is the one event that is left (it
    contains eq. 28): β_T = 2 ln(|D|π²T²/(6δ)), and no 2. Holds for all T at once if β_t grows with t.

    Args:
        rounds: T, one or several.
        gamma: t ↦ γ̃_t.
        arms: |D|, or a domain that is discretised.
        noise_variance: σ².
        delta: δ, the probability of failing.
    """
    T = as_rounds(rounds)
    widths = _widths(T, arms, delta, resets=False)
    information = evaluate(gamma, T)
    return _explored(T, arms, noise_variance, widths, information)


class Mismatch(NamedTuple):
    """How far a posterior is from the true one, in its mean and in its standard deviation."""

    mean: Any
    std: Any


def mismatch_bounds(
    block: Any, epsilon: float, noise_variance: float, largest_reward: Any
) -> Mismatch:
    """Lemma D.1: how wrong R-GP-UCB can be, which forgets none of the N observations since a reset.

    |μ̃ − μ| ≤ (σ⁻² + σ⁻⁴)N³ε·max|y|, eq. 87, and |σ̃ − σ| ≤ √((3σ⁻² + σ⁻⁴)N³ε), eq. 82; the lemma is
    printed without the root. Eq. 80 follows from A⁻¹ − B⁻¹ = A⁻¹(B − A)B⁻¹; eq. 78 needs V ⪰ 0.

    Args:
        block: N, one or several.
        epsilon: ε.
        noise_variance: σ².
        largest_reward: max|y|.
    """
    precision = 1.0 / as_scale(noise_variance, "noise_variance")
    N = as_rounds(block, "block")
    drifted = N**3 * as_drift(epsilon)
    mean = (precision + precision**2) * drifted * largest_reward
    change_of_variance = (3.0 * precision + precision**2) * drifted
    std = np.sqrt(change_of_variance)
    return Mismatch(mean, std)


def regret_bound_r_gp_ucb(
    rounds: Any,
    gamma: Gamma,
    *,
    block: int,
    epsilon: float,
    arms: int | SmoothDomain,
    noise_variance: float,
    delta: float,
    printed: bool = False,
) -> Floats:
    """R_T ≤ √(C₁ T β_T (⌊T/N⌋γ_N + γ_{T mod N})) + 2 + 2Tψ_T with probability 1 − δ: Theorem 4.2.

    ``gamma`` is the static γ. ψ_T = √β_T Δσ + Δμ, eq. 18, of :func:`mismatch_bounds` with |y| ≤ L̃ =
    (b₀ + √2 σ)√ln(2(1 + a₀)π²T²/(3δ)): eq. 65 by splitting L̃ between f and the noise as b₀ : √2 σ. β_T
    is eq. 16. ``printed`` is eq. 17 as it stands: (T/N + 1)γ_N, ψ_T once although eq. 72 has it twice,
    and 2 + b₀, which is enough for σ² ≤ 2.

    With finitely many arms two events are left, δ/2 each: eq. 63 for all arms, and |f_t(x) + z_t| ≤ L̃
    for all arms. Then β_T = 2 ln(|D|π²T²/(3δ)), L̃ = √((1 + σ²)β_T), and no 2.

    Args:
        rounds: T, one or several.
        gamma: N ↦ γ_N, the static one.
        block: N.
        epsilon: ε.
        arms: |D|, or a domain that is discretised.
        noise_variance: σ².
        delta: δ, the probability of failing.
        printed: whether eq. 17 is taken as it stands.
    """
    T = as_rounds(rounds)
    N = as_count(block, "block", 1, 10**9)
    width = _widths(T, arms, delta, resets=True)
    noise = as_scale(noise_variance, "noise_variance")
    if isinstance(arms, SmoothDomain):
        events = 2.0 * (1.0 + arms.a0) * math.pi**2 / (3.0 * delta)
        noise_share = 2.0 if printed else math.sqrt(2.0 * noise)
        spread = arms.b0 + noise_share
        reward = spread * np.sqrt(np.log(events * T**2))
    else:
        reward = math.sqrt(1.0 + noise) * width
    if printed:
        times = 1.0
        block_rounds = np.asarray(N)
        information = (T / N + 1.0) * gamma(N)
    else:
        times = 2.0
        block_rounds = np.minimum(N, T)
        of_block = gamma(N) if (T >= N).any() else 0.0
        information = T // N * of_block + evaluate(gamma, T % N)
    mismatch = mismatch_bounds(block_rounds, epsilon, noise_variance, reward)
    explored = _explored(T, arms, noise_variance, width, information)
    psi = mismatch.mean + width * mismatch.std  # eq. 18
    return np.asarray(explored + times * T * psi)


def _widths(
    T: Floats, arms: int | SmoothDomain, delta: float, *, resets: bool
) -> Floats:
    """√β_T at every T."""
    schedule: Schedule
    if isinstance(arms, SmoothDomain):
        kind = ResettingGPUCB if resets else TimeVaryingGPUCB
        schedule = kind(
            dimension=arms.dimension,
            side=arms.side,
            a=arms.a1,
            b=arms.b1,
            delta=delta,
        )
    else:
        events = 2.0 if resets else 1.0
        share = as_probability(delta, "delta") / events
        schedule = SrinivasFinite(arms=arms, delta=share)
    return evaluate(lambda t: schedule.width(t, float), T)


def _explored(
    T: Floats,
    arms: int | SmoothDomain,
    noise_variance: float,
    width: Floats,
    information: Floats,
) -> Floats:
    """√(C₁ T β_T γ), and 2 for a domain that is discretised."""
    noise = as_scale(noise_variance, "noise_variance")
    c1 = 8.0 / math.log1p(1.0 / noise)
    discretisation = 2.0 if isinstance(arms, SmoothDomain) else 0.0
    return np.sqrt(c1 * T * width**2 * information) + discretisation


# --- rates --------------------------------------------------------------------------------


def rate_drift(
    rounds: Any,
    epsilon: float,
    algorithm: DriftAlgorithm,
    *,
    dimension: int,
    nu: float = math.inf,
) -> Floats:
    """max(√T^{1+c}, T ε^{(1−c)/(2(p−c))}): Corollary 4.1, an order up to logarithms, not a bound.

    c is d(d+1)/(2ν + d(d+1)) for Matérn kernels, ν > 2, and 0 for the squared exponential, ν = ∞. p is
    4 for R-GP-UCB and 3 for TV-GP-UCB; ``split`` is TV-GP-UCB with p = 2, by our form of
    :func:`~superarm.lab.theory.drift_excess`: T ε^{1/4} where the paper has T ε^{1/6}.

    Args:
        rounds: T, one or several.
        epsilon: ε.
        algorithm: "tv-gp-ucb", "r-gp-ucb" or "split".
        dimension: d.
        nu: ν; infinite for the squared exponential.
    """
    require_choice(algorithm, "algorithm", get_args(DriftAlgorithm))
    if not nu > 2.0:
        raise InputError(f"nu is {nu}; the corollary needs nu > 2")
    d = as_count(dimension, "dimension", 1, 10**6)
    T = as_rounds(rounds)
    corners = d * (d + 1.0)
    c = corners / (2.0 * nu + corners)
    p = _POWERS[algorithm]
    drift_power = 0.5 * (1.0 - c) / (p - c)
    static = T ** (0.5 * (1.0 + c))
    drifted = T * as_drift(epsilon) ** drift_power
    return np.asarray(np.maximum(static, drifted))
