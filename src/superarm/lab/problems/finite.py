"""A fixed arm set whose rewards do not change: that of On Kernelized Multi-armed Bandits (2017).

============  ==========================================================
``K``         the kernel matrix of all arms, (n, n)
``truth``     f, the expected reward of every arm, (n,)
``R``         standard deviation of the noise; ``R²`` its variance
``B``         (a bound on) f's norm in the kernel's Hilbert space
============  ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any

import numpy as np

from superarm.core import (
    Arms,
    Best,
    Covariance,
    Decision,
    Direction,
    Feedback,
    Floats,
    Ints,
    Offer,
    Rng,
)
from superarm.core.capabilities import TableProblem
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_count,
    as_number,
    as_vector,
    read_only,
    require_choice,
)
from superarm.models import Model
from superarm.models.worlds import NO_METRICS, GaussianNoise, SharedData
from superarm.oracles import TopK
from superarm.rewards import Sum


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class FiniteProblem(GaussianNoise, TableProblem, SharedData):
    """The same arms in every round, fixed expected rewards, Gaussian noise.

    The value of a super arm is what its arms' expected rewards are worth. Rounds are kept to about
    a microsecond each, because runs have 30,000 of them per policy and seed.
    """

    arms: Arms
    truth: Floats  # expected reward of every arm, (n,)
    noise_std: float
    model: Model
    structure: object = None  # what the oracle is told in every round
    optimum: float | None = None
    """The value of the best feasible super arm, where it is known and the oracle is not exact."""
    interpretations: Mapping[str, str] = field(default_factory=dict)
    shared_data: float = 0.0
    """How much of its data a seed has in common with another one; 0 where seeds draw their own."""
    independent_seeds: float = inf
    """How many independent seeds all of them are worth at most; ∞ where seeds draw their own data."""
    _best: Best = field(init=False, repr=False)

    def __post_init__(self) -> None:
        truth = read_only(as_vector(self.truth, "truth", length=len(self.arms)))
        as_number(self.noise_std, "noise_std", 0.0)
        if not 0.0 <= as_number(self.shared_data, "shared_data") < 1.0:
            raise InputError(
                f"shared_data must be at least 0 and below 1, got {self.shared_data!r}"
            )
        object.__setattr__(self, "truth", truth)
        # The benchmark is the oracle's choice under the truth, the best feasible super arm for
        # an exact oracle. It is the same in every round, so it is worked out once.
        sign = 1.0 if self.model.direction == "maximize" else -1.0
        rng, told = np.random.default_rng(0), self.structure
        chosen = self.model.oracle.select(sign * truth, told, rng)
        worth = self.model.reward.worth(truth[chosen.positions], chosen.positions, told)
        object.__setattr__(self, "_best", Best(worth, chosen.guarantee, self.optimum))

    @property
    def direction(self) -> Direction:
        return self.model.direction

    def offer(self, step: int) -> Offer:
        return Offer(step=step, arms=self.arms, structure=self.structure)

    def means(self, offer: Offer) -> Floats:
        return self.truth

    def value(self, offer: Offer, decision: Decision) -> float:
        positions, reward = decision.positions, self.model.reward
        if (
            len(positions) == 1 and type(reward) is Sum
        ):  # the usual case, nine times as fast
            return self.truth.item(positions[0])
        return reward.worth(self.truth[positions], positions, offer.structure)

    def table(self, noise: Floats) -> Floats | None:
        """Rewards of all arms in many rounds, (T, n).

        ``None`` for a subclass: what it changes (offers, rewards, metrics) a table may not show.
        One whose rounds still differ by noise alone declares it by overriding this method.
        """
        plain = type(self) is FiniteProblem and type(self.model.reward) is Sum
        return self.truth + noise if plain and self.optimum is None else None

    def values(self, positions: Ints) -> Floats:
        """Values of single arms, (T,)."""
        return self.truth[positions]

    def best(self, offer: Offer) -> Best:
        return self._best

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        return NO_METRICS


def gaussian_draw(K: Floats, rng: Rng) -> Floats:
    """One draw of N(0, K), (n,), also where K is numerically singular and has no Cholesky factor.

    Unlike U √Λ, the symmetric root U √max(Λ, 0) Uᵀ is unique and continuous in K: signs and order of
    eigenvectors cancel. So the same seed gives the same function under another LAPACK, up to about
    the root of the machine's precision.
    """
    eigenvalues, U = np.linalg.eigh(K)
    draw: Floats = U @ (
        np.sqrt(np.maximum(eigenvalues, 0.0)) * (U.T @ rng.standard_normal(len(K)))
    )
    return draw


def representer(K: Floats, ridge: float, values: Floats) -> Floats:
    """α = (K + ridge·I)⁻¹ values: weights of the smooth K α near ``values``, (n,) or columns (n, m)."""
    return np.asarray(
        np.linalg.solve(K + ridge * np.eye(len(K)), values), dtype=np.float64
    )


def hilbert_norm(K: Floats, alpha: Floats) -> Floats:
    """√(αᵀKα), the norm of K α in the kernel's Hilbert space; one number per column of α."""
    norms: Floats = np.sqrt(
        np.maximum(np.einsum("i...,i...->...", alpha, K @ alpha), 0.0)
    )
    return norms


def kernelized_problem(
    *,
    arms: Arms,
    truth: Floats,
    kernel: Covariance,
    norm_bound: float,
    noise_variance: float,
    gain: Mapping[str, Any],
    regularisation: str,
    horizon: int,
    interpretations: Mapping[str, str],
    mean: float | Floats = 0.0,
    shared_data: float = 0.0,
    independent_seeds: float = inf,
) -> FiniteProblem:
    """One arm a round, and a learner that is told B, R, γ and λ: "noise" is R², "theory" 1 + 2/T."""
    as_count(horizon, "horizon")
    require_choice(regularisation, "regularisation", ("noise", "theory"))
    theory = regularisation == "theory"
    noise_std = sqrt(noise_variance)
    return FiniteProblem(
        arms=arms,
        truth=truth,
        noise_std=noise_std,
        model=Model(
            kernel=kernel,
            noise_variance=1.0 + 2.0 / horizon if theory else noise_variance,
            oracle=TopK(k=1),
            horizon=horizon,
            mean=mean,
            arms=arms.features,
            norm_bound=norm_bound,
            noise_bound=noise_std,
            gain=gain,
            most_arms=len(arms),
        ),
        shared_data=shared_data,
        independent_seeds=independent_seeds,
        interpretations={
            **interpretations,
            "regularisation": "λ = 1 + 2/T" if theory else "λ = R²",
        },
    )
