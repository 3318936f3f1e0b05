"""Rewards that drift, as information and regret: bogunovic2016time, section 4 and appendices C to F.

======================  ================================================================
``rounds``              T, a number or an array: bounds are drawn over a regret curve
``epsilon``             ε, f_{t+1} = √(1 − ε) f_t + √ε g_{t+1}
``noise_variance``      σ²
``K̃``                   K ∘ D, D_ij = (1 − ε)^{|i−j|/2}: the covariance of f_1(x_1), …, f_T(x_T)
``γ_N``, ``γ̃_T``         max ½ ln det(I + K/σ²) over N points, of K̃ over one in each of T rounds
``block``               N of R-GP-UCB, or Ñ, of which only the analysis knows
``arms``                |D|, or a ``SmoothDomain`` where they are not finitely many
``β_T``                 the squared width of the confidence intervals
======================  ================================================================

All of it assumes k(x, x) ≤ 1, one arm a round, f_1 and all g_t drawn from the learner's own process,
Gaussian noise, and a known ε. Where a printed step does not follow, what its proof does give is the
default; docs/papers.md lists these places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from superarm.core import Covariance, Floats, Gamma, Schedule
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_count,
    as_features,
    as_number,
    as_positive,
    as_scale,
    require_choice,
)
from superarm.core.threads import one_blas_thread
from superarm.kernels import Matern, SquaredExponential
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.rules.base import as_probability
from superarm.rules.schedules import ResettingGPUCB, SrinivasFinite, TimeVaryingGPUCB

from .high_probability import as_rounds, evaluate

DriftForm = Literal["split", "printed"]
DriftAlgorithm = Literal["tv-gp-ucb", "r-gp-ucb", "split"]
_POWERS = {"r-gp-ucb": 4.0, "tv-gp-ucb": 3.0, "split": 2.0}


# --- γ̃ ------------------------------------------------------------------------------------


@one_blas_thread
def drifting_information_gain(
    kernel: Covariance, arms: Any, rounds: int, noise_variance: float, epsilon: float
) -> Floats:
    """Ĩ of one arm in each round, chosen greedily, (T + 1,): eqs 14 and 15 from below.

    That of the arm of largest posterior variance, round by round, reaches at least half of γ̃_t. It is
    :func:`~superarm.rules.information.arriving_information_gain` for the same arms at times 1, 2, …,
    in O(T² n): the covariance is K − W Wᵀ, and a round leaves √(1 − ε) of each column.
    """
    rows, noise = as_features(arms, "arms"), as_scale(noise_variance, "noise_variance")
    if len(rows) == 0:
        raise InputError("arms has no rows; give at least one arm")
    count, keep = (
        as_count(rounds, "rounds", 0, 10**9),
        math.sqrt(1.0 - _as_drift(epsilon)),
    )
    W, left, lost = np.empty((count, len(rows))), np.ones(count), np.zeros(len(rows))
    variances, gains = (
        np.asarray(kernel.diag(rows), dtype=np.float64),
        np.zeros(count + 1),
    )
    for step in range(count):
        left[:step] *= keep
        lost *= keep**2
        best = int(np.argmax(variances - lost))
        variance = max(0.0, float(variances[best] - lost[best]))
        column = (
            kernel(rows[best : best + 1], rows)[0]
            - (left[:step] ** 2 * W[:step, best]) @ W[:step]
        )
        W[step] = column / math.sqrt(noise + variance)
        lost += W[step] ** 2
        gains[step + 1] = gains[step] + 0.5 * math.log1p(variance / noise)
    return gains


def drift_excess(
    counts: Any, epsilon: float, noise_variance: float, form: DriftForm = "split"
) -> Floats:
    """By how much γ̃_N can exceed γ_N, for N = ``counts``; both forms are 0 for ε = 0.

    - ``split``, ours: (N/2) ln(1 + (1 − c)/σ²). With φ = √(1 − ε), D − c11ᵀ is positive
      semi-definite for c = 1/1ᵀD⁻¹1 = (1 + φ)/(2 + (N − 2)(1 − φ)), and so is R = K ∘ (D − c11ᵀ), whose
      diagonal is at most 1 − c. As K̃ = cK + R, det(I + K̃/σ²) ≤ det(I + K/σ²)·det(I + R/σ²), and
      Hadamard bounds the last. 1 − c ≤ (N − 1)ε/2, about half of that for small ε.
    - ``printed``: N³ε, eq. 60, which is no bound: eq. 56 leaves out ½ and σ⁻².
    """
    require_choice(form, "form", get_args(DriftForm))
    N, drift = as_rounds(counts, "counts"), _as_drift(epsilon)
    noise, keep = as_scale(noise_variance, "noise_variance"), math.sqrt(1.0 - drift)
    if form == "printed":
        return np.asarray(N**3 * drift)
    step = drift / (1.0 + keep)  # 1 − φ
    change = (N - 1.0) * step / (2.0 + (N - 2.0) * step)
    return np.asarray(0.5 * N * np.log1p(change / noise))


@dataclass(frozen=True, kw_only=True, eq=False)
class DriftingGrowth:
    """γ̃_T from above by eqs 46 to 48, for T up to ``horizon``: a ``gamma`` for regret bounds.

    That of ⌊T/Ñ⌋ blocks and of the rounds left over, at the best Ñ; printed: (T/Ñ + 1)(γ_Ñ + Ñ³ε).
    ``gamma`` is the static γ, such as :class:`~superarm.lab.theory.ArmSetGrowth`; ``form`` as in
    :func:`drift_excess`.
    """

    gamma: Gamma
    epsilon: float
    noise_variance: float
    horizon: int
    form: DriftForm = "split"

    def __post_init__(self) -> None:
        as_count(self.horizon, "horizon", 1, 10**9)
        drift_excess(1.0, self.epsilon, self.noise_variance, self.form)

    def __call__(self, t: int) -> float:
        as_count(t, "t", 0, self.horizon)
        N = np.arange(1, t + 1)
        if self.form == "printed":
            totals = (t / N + 1.0) * self._blocks[N]
        else:
            totals = t // N * self._blocks[N] + self._blocks[t % N]
        return float(totals.min()) if t else 0.0

    @cached_property
    def _blocks(self) -> Floats:
        """What γ̃ of 0, 1, …, horizon rounds can be at most, (horizon + 1,)."""
        N = np.arange(1.0, self.horizon + 1.0)
        most = evaluate(self.gamma, N) + drift_excess(
            N, self.epsilon, self.noise_variance, self.form
        )
        return np.concatenate([[0.0], most])


# --- regret -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SmoothDomain:
    """Arms in [0, r]^d, r the ``side``, and constants of eqs 9 to 11 for draws of the kernel.

    For every L > 0: P(sup |f| > L) ≤ a₀ exp(−(L/b₀)²), P(sup |∂f/∂x_j| > L) ≤ a₁ exp(−(L/b₁)²), and
    P(sup |∂²f/∂x_i∂x_j| > L) ≤ a₂ exp(−(L/b₂)²). Only Theorem 4.1 needs a₂ and b₂, which are ``None``
    where they are not known.
    """

    dimension: int
    side: float
    a0: float
    b0: float
    a1: float
    b1: float
    a2: float | None = None
    b2: float | None = None

    def __post_init__(self) -> None:
        as_count(self.dimension, "dimension")
        for name in ("side", "a0", "b0", "a1", "b1"):
            as_positive(getattr(self, name), name)
        if (self.a2 is None) != (self.b2 is None):
            raise InputError("a2 and b2 belong together; give both or neither")
        if self.a2 is not None and self.b2 is not None:
            as_positive(self.a2, "a2")
            as_positive(self.b2, "b2")

    @classmethod
    def of_kernel(
        cls, kernel: Covariance, dimension: int, side: float = 1.0
    ) -> SmoothDomain:
        """Constants that hold for a squared exponential or a Matérn kernel with ν > 2: ours.

        Let X be f or one of its derivatives, s² its variance and m = E sup X. Borell's inequality gives
        P(sup |X| > L) ≤ 2 exp(−(L − m)²/(2s²)), which is at most a exp(−(L/b)²) with a = 2e^{m/s} and
        b² = s(m + 2s), as (L − m)² ≥ 2s/(m + 2s)·L² − 2ms for every L. If E(X_x − X_y)² is at most
        Σ c_i²(x_i − y_i)², then m is at most that of Σ c_i z_i x_i with normal z, r Σ c_i/√(2π), by the
        inequality of Sudakov and Fernique. For a stationary f the second spectral moments are such
        c_i², for a slope the fourth ones, and for a second derivative the sixth ones.

        Matérn kernels have sixth spectral moments for ν > 3 (the paper asks for ν > 4). For ν = 5/2,
        E(X_x − X_y)² ≤ Σ c_i²|x_i − y_i|, and Brownian motions take the place of lines: m is at most
        √(2r/π) Σ c_i. For other ν up to 3, a₂ and b₂ are ``None``.
        """
        d = as_count(dimension, "dimension")
        length = as_positive(side, "side")
        slope = lipschitz_of_kernel(kernel)  # s of a slope
        std = math.sqrt(float(kernel.diag(np.zeros((1, d)))[0]))
        nu = kernel.nu if isinstance(kernel, Matern) else math.inf
        if nu <= 2.0:
            raise InputError(
                f"nu is {nu:g}; slopes of a Matérn kernel's draws are smooth for nu > 2"
            )
        heavy = 1.0 if math.isinf(nu) else math.sqrt((nu - 1.0) / (nu - 2.0))
        mixed = slope**2 / std * heavy  # √E ω_i²ω_j²; √3 times that for i = j
        reach = length / math.sqrt(2.0 * math.pi)
        values = _tail(reach * d * slope, std)
        slopes = _tail(reach * (math.sqrt(3.0) + d - 1.0) * mixed, slope)
        bends = _curvature_tails(slope, std, nu, d, length)
        return cls(
            dimension=d,
            side=side,
            a0=values.a,
            b0=values.b,
            a1=slopes.a,
            b1=slopes.b,
            a2=max(tail.a for tail in bends) if bends else None,
            b2=max(tail.b for tail in bends) if bends else None,
        )


class _Tail(NamedTuple):
    """P(sup |X| > L) ≤ a exp(−(L/b)²)."""

    a: float
    b: float


def _tail(m: float, s: float) -> _Tail:
    """Of a process with variance s² and E sup X ≤ m, by Borell's inequality."""
    return _Tail(2.0 * math.exp(m / s), math.sqrt(s * (m + 2.0 * s)))


def _curvature_tails(
    slope: float, std: float, nu: float, d: int, side: float
) -> list[_Tail]:
    """Of ∂²f/∂x_i², and of ∂²f/∂x_i∂x_j where d > 1; none where ν gives none.

    Spectral moments are those of a multivariate t distribution with 2ν degrees of freedom, or of a
    normal one: E ω_i⁴ is 3 and E ω_i⁶ is 15 times the moment of as many different coordinates.
    """
    if nu == 2.5:
        return _rough_tails(slope, std, d, side)
    if nu <= 3.0:
        return []
    fourth = 1.0
    sixth = 1.0
    if math.isfinite(nu):
        fourth = (nu - 1.0) / (nu - 2.0)
        sixth = (nu - 1.0) ** 2 / ((nu - 2.0) * (nu - 3.0))
    mixed = slope**2 / std * math.sqrt(fourth)  # √E ω_i²ω_j²
    steep = slope**3 / std**2 * math.sqrt(sixth)  # √E ω_i²ω_j²ω_k²
    reach = side / math.sqrt(2.0 * math.pi)
    straight_sum = math.sqrt(15.0) + (d - 1.0) * math.sqrt(3.0)  # Σ c_k of ∂²f/∂x_i²
    tails = [_tail(reach * straight_sum * steep, math.sqrt(3.0) * mixed)]
    if d > 1:
        crossed_sum = 2.0 * math.sqrt(3.0) + (d - 2.0)  # Σ c_k of ∂²f/∂x_i∂x_j
        tails.append(_tail(reach * crossed_sum * steep, mixed))
    return tails


def _rough_tails(slope: float, std: float, d: int, side: float) -> list[_Tail]:
    """Of a Matérn kernel with ν = 5/2, with a = √5/l and ρ = ‖x − y‖.

    ∂⁴k/∂x_i²∂x_j² is v(a⁴/3)e^{−aρ}(1 − a(h_i² + h_j²)/ρ + a h_i²h_j²(1 + aρ)/ρ³), h = x − y, and for
    i = j it is v(a⁴/3)e^{−aρ}(3 − 6a h_i²/ρ + a h_i⁴(1 + aρ)/ρ³). The last terms are not below 0,
    1 − e^{−aρ} ≤ aρ ≤ aΣ|h_k| and h_i²/ρ ≤ |h_i|. So E(X_x − X_y)², twice the difference from h = 0, is
    at most v(2a⁵/3)(Σ|h_k| + |h_i| + |h_j|), and v(2a⁵)(Σ|h_k| + 2|h_i|) for i = j.
    """
    rate = math.sqrt(3.0) * slope / std  # a: slope² is v a²/3
    unit = std * math.sqrt(2.0 * rate**5)
    reach = math.sqrt(2.0 * side / math.pi)
    straight_sum = math.sqrt(3.0) + (d - 1.0)
    tails = [_tail(reach * straight_sum * unit, std * rate**2)]
    if d > 1:
        crossed_sum = (2.0 * math.sqrt(2.0) + (d - 2.0)) / math.sqrt(3.0)
        tails.append(_tail(reach * crossed_sum * unit, std * rate**2 / math.sqrt(3.0)))
    return tails


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
    """
    T = as_rounds(rounds)
    return _explored(
        T,
        arms,
        noise_variance,
        _widths(T, arms, delta, resets=False),
        evaluate(gamma, T),
    )


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
    """
    precision = 1.0 / as_scale(noise_variance, "noise_variance")
    drifted = as_rounds(block, "block") ** 3 * _as_drift(epsilon)
    mean = (precision + precision**2) * drifted * largest_reward
    return Mismatch(mean, np.sqrt((3.0 * precision + precision**2) * drifted))


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
    """
    T, N = as_rounds(rounds), as_count(block, "block", 1, 10**9)
    width = _widths(T, arms, delta, resets=True)
    noise = as_scale(noise_variance, "noise_variance")
    reward = math.sqrt(1.0 + noise) * width
    if isinstance(arms, SmoothDomain):
        events = 2.0 * (1.0 + arms.a0) * math.pi**2 / (3.0 * delta)
        spread = arms.b0 + (2.0 if printed else math.sqrt(2.0 * noise))
        reward = spread * np.sqrt(np.log(events * T**2))
    if printed:
        times, rows, information = 1.0, np.asarray(N), (T / N + 1.0) * gamma(N)
    else:
        times, rows = 2.0, np.minimum(N, T)
        information = T // N * (gamma(N) if (T >= N).any() else 0.0) + evaluate(
            gamma, T % N
        )
    off = mismatch_bounds(rows, epsilon, noise_variance, reward)
    explored = _explored(T, arms, noise_variance, width, information)
    return np.asarray(explored + times * T * (off.mean + width * off.std))


def _widths(
    T: Floats, arms: int | SmoothDomain, delta: float, *, resets: bool
) -> Floats:
    """√β_T at every T."""
    schedule: Schedule
    if isinstance(arms, SmoothDomain):
        kind, d, r = (
            ResettingGPUCB if resets else TimeVaryingGPUCB,
            arms.dimension,
            arms.side,
        )
        schedule = kind(dimension=d, side=r, a=arms.a1, b=arms.b1, delta=delta)
    else:
        share = as_probability(delta, "delta") / (2.0 if resets else 1.0)
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
    c1 = 8.0 / math.log1p(1.0 / as_scale(noise_variance, "noise_variance"))
    return np.sqrt(c1 * T * width**2 * information) + 2.0 * isinstance(
        arms, SmoothDomain
    )


def _as_drift(epsilon: float) -> float:
    return as_number(epsilon, "epsilon", 0.0, 1.0)


# --- no algorithm is better -----------------------------------------------------------------


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

    Of a genie who knows f_{t−1}, and so of everybody. In every round but the first,

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
    drift = _as_drift(epsilon)
    domain = SmoothDomain.of_kernel(kernel, dimension, side)
    if domain.a2 is None or domain.b2 is None:
        raise InputError(
            f"Theorem 4.1 needs a2 and b2 of eq. 11, which are known for Matérn kernels with nu > 3 or "
            f"nu = 2.5, got {kernel}"
        )
    d = domain.dimension
    slope = lipschitz_of_kernel(kernel)
    distance = side / 50.0 if margin is None else _as_margin(margin, side)
    proven = interior_probability(
        kernel, d, side, distance
    )  # checks the lengthscale, too
    inside = proven if interior is None else as_number(interior, "interior", 0.0, 1.0)
    pairs = d * (d + 1) / 2.0
    # From where eq. 11 says something, to where its tail is nothing beside P(A₄).
    smallest = math.sqrt(math.log(max(math.e, pairs * domain.a2)))
    largest = smallest + math.sqrt(-math.log(max(inside, 1e-300)) + 5.0)
    curvatures = domain.b2 * np.linspace(smallest, largest, _CURVATURES)
    bent = (
        pairs * domain.a2 * np.exp(-((curvatures / domain.b2) ** 2))
    )  # P(A₁ᶜ) and P(A₂ᶜ) at most
    if drift > 0.0:
        steepest = (
            2.0 * curvatures * math.sqrt(d) * distance / math.sqrt(drift)
        )  # eq. 92
        steep = d * 2.0 * _beyond(steepest / slope)
    else:
        steep = np.zeros_like(curvatures)
    likely = np.maximum(0.0, inside - bent)  # P(A₁ ∩ A₄)
    outside = np.minimum(1.0, bent + steep)
    squares = slope**2 * np.maximum(
        0.0, d - np.sqrt(d * (d + 2.0) * outside)
    )  # E‖∇g‖² 1 of A₂ ∩ A₃
    found = drift / (4.0 * curvatures * d) * likely * squares
    best = int(np.argmax(found))
    per_round = float(found[best])
    values = np.asarray((T - 1.0) * per_round)
    return LowerBound(values, per_round, float(curvatures[best]), distance, inside)


_CURVATURES = 400  # values of L that are tried


def interior_probability(
    kernel: Covariance, dimension: int, side: float, margin: float
) -> float:
    """P(A₄) from below: how probable it is that the best arm of f is at least η from the boundary.

    Appendix F says that it is above 0; this number is ours. Given f(c) = u√v in the middle c, f is
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
    if (
        isinstance(kernel, SquaredExponential | Matern)
        and np.ndim(kernel.lengthscale) > 0
    ):
        raise InputError(
            "kernel has a lengthscale for each coordinate; give it a single one"
        )
    origin = np.zeros((1, d))
    shifted = np.zeros((1, d))
    shifted[0, 0] = length / 2.0 - distance
    variance = float(kernel.diag(origin)[0])
    most = float(kernel(origin, shifted)[0, 0]) / variance  # ρ₀
    mean = length * d * slope / math.sqrt(2.0 * math.pi * variance)  # m
    # The integrand is 0 below `first`. Above, it rises from 0 to 1: sums over cells of u, each with its
    # smallest value, stay below the integral.
    first = mean / (1.0 - most)
    cells = first + np.linspace(0.0, 12.0, _CELLS + 1)
    lowest = -np.expm1(-0.5 * ((1.0 - most) * (cells[:-1] - first)) ** 2)
    weights = _beyond(cells[:-1]) - _beyond(cells[1:])
    return float(lowest @ weights)


_CELLS = 4_000


def _beyond(x: Floats) -> Floats:
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


# --- rates --------------------------------------------------------------------------------


def rate_genie(rounds: Any, epsilon: float) -> Floats:
    """Tε: Theorem 4.1, an order that no algorithm's mean regret is below, not a bound.

    Not even that of a genie who knows f_{t−1} and plays its best arm. :func:`regret_lower_bound` has
    constants. On a grid the order stays, also where the best arm moves by less than the distance of
    two: it then moves in few rounds, but by a whole step.
    """
    return np.asarray(as_rounds(rounds) * _as_drift(epsilon))


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
    :func:`drift_excess`: T ε^{1/4} where the paper has T ε^{1/6}.
    """
    require_choice(algorithm, "algorithm", get_args(DriftAlgorithm))
    if not nu > 2.0:
        raise InputError(f"nu is {nu}; the corollary needs nu > 2")
    corners = as_count(dimension, "dimension", 1, 10**6) * (dimension + 1.0)
    T, p, c = as_rounds(rounds), _POWERS[algorithm], corners / (2.0 * nu + corners)
    drifted = T * _as_drift(epsilon) ** (0.5 * (1.0 - c) / (p - c))
    return np.asarray(np.maximum(T ** (0.5 * (1.0 + c)), drifted))
