"""Information about rewards that drift: bogunovic2016time, section 4 and appendix C.

======================  ================================================================
``epsilon``             ε, f_{t+1} = √(1 − ε) f_t + √ε g_{t+1}
``noise_variance``      σ²
``K̃``                   K ∘ D, D_ij = (1 − ε)^{|i−j|/2}: the covariance of f_1(x_1), …, f_T(x_T)
``γ_N``, ``γ̃_T``         max ½ ln det(I + K/σ²) over N points, of K̃ over one in each of T rounds
======================  ================================================================

All of it assumes k(x, x) ≤ 1 and one arm a round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from superarm.core import Covariance, Floats, Gamma
from superarm.core.caching import cached_property
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_count,
    as_features,
    as_number,
    as_scale,
    require_choice,
)
from superarm.core.threads import one_blas_thread

from .arguments import as_rounds, evaluate

DriftForm = Literal["split", "printed"]


@one_blas_thread
def drifting_information_gain(
    kernel: Covariance, arms: Any, rounds: int, noise_variance: float, epsilon: float
) -> Floats:
    """Ĩ of one arm in each round, chosen greedily, (T + 1,): eqs 14 and 15 from below.

    That of the arm of largest posterior variance, round by round, reaches at least half of γ̃_t. It is
    :func:`~superarm.rules.information.arriving_information_gain` for the same arms at times 1, 2, …,
    in O(T² n): the covariance is K − W Wᵀ, and a round leaves √(1 − ε) of each column.

    Args:
        kernel: of f_1.
        arms: their features, (n, d).
        rounds: T.
        noise_variance: σ².
        epsilon: ε.
    """
    rows = as_features(arms, "arms")
    noise = as_scale(noise_variance, "noise_variance")
    if len(rows) == 0:
        raise InputError("arms has no rows; give at least one arm")
    count = as_count(rounds, "rounds", 0, 10**9)
    phi = math.sqrt(1.0 - as_drift(epsilon))
    prior_variances = np.asarray(kernel.diag(rows), dtype=np.float64)  # (n,)
    W = np.empty((count, len(rows)))  # a row for each round
    scales = np.ones(count)  # what later rounds leave of each row of W
    reductions = np.zeros(len(rows))  # of the variance of each arm
    gains = np.zeros(count + 1)
    for step in range(count):
        scales[:step] *= phi
        reductions *= phi**2
        variances = prior_variances - reductions
        best = int(np.argmax(variances))
        variance = max(0.0, float(variances[best]))
        best_row = rows[best : best + 1]
        prior_column = kernel(best_row, rows)[0]
        weights = scales[:step] ** 2 * W[:step, best]
        column = prior_column - weights @ W[:step]
        W[step] = column / math.sqrt(noise + variance)
        reductions += W[step] ** 2
        gain = 0.5 * math.log1p(variance / noise)
        gains[step + 1] = gains[step] + gain
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

    Args:
        counts: N, one or several.
        epsilon: ε.
        noise_variance: σ².
        form: "split" or "printed".
    """
    require_choice(form, "form", get_args(DriftForm))
    N = as_rounds(counts, "counts")
    drift = as_drift(epsilon)
    noise = as_scale(noise_variance, "noise_variance")
    if form == "printed":
        return np.asarray(N**3 * drift)
    phi = math.sqrt(1.0 - drift)
    step = drift / (1.0 + phi)  # 1 − φ
    largest = 2.0 + (N - 2.0) * step
    change = (N - 1.0) * step / largest  # 1 − c
    return np.asarray(0.5 * N * np.log1p(change / noise))


@dataclass(frozen=True, kw_only=True, eq=False)
class DriftingGrowth:
    """γ̃_T from above by eqs 46 to 48, for T up to ``horizon``: a ``gamma`` for regret bounds.

    That of ⌊T/Ñ⌋ blocks and of the remaining rounds, at the best Ñ; printed: (T/Ñ + 1)(γ_Ñ + Ñ³ε).

    Args:
        gamma: the static γ, such as :class:`~superarm.lab.theory.ArmSetGrowth`.
        epsilon: ε.
        noise_variance: σ².
        horizon: the largest T.
        form: as in :func:`drift_excess`.
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
        if t == 0:
            return 0.0
        N = np.arange(1, t + 1)
        if self.form == "printed":
            totals = (t / N + 1.0) * self._blocks[N]
        else:
            full_blocks = t // N
            remaining_rounds = t % N
            totals = full_blocks * self._blocks[N] + self._blocks[remaining_rounds]
        return float(totals.min())

    @cached_property
    def _blocks(self) -> Floats:
        """Upper bounds of γ̃ of 0, 1, …, horizon rounds, (horizon + 1,)."""
        N = np.arange(1.0, self.horizon + 1.0)
        static = evaluate(self.gamma, N)
        excess = drift_excess(N, self.epsilon, self.noise_variance, self.form)
        bounds = static + excess
        return np.concatenate([[0.0], bounds])


def as_drift(epsilon: float) -> float:
    """ε, between 0 and 1.

    Args:
        epsilon: by how much the function changes in a round.
    """
    return as_number(epsilon, "epsilon", 0.0, 1.0)
