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

    The value of a super arm is what its arms' expected rewards are worth. A round takes about
    a microsecond, because runs have 30,000 of them per policy and seed.

    Args:
        arms: The arms.
        truth: Expected reward of every arm, (n,).
        noise_std: Standard deviation of the noise.
        model: The learner's model.
        structure: The structure of every round's offer, for the oracle.
        optimum: The value of the best feasible super arm, where it is known and the oracle is
            not exact.
        interpretations: How unclear points of the paper are read.
        shared_data: The share of its data that a seed has in common with another one; 0 where
            seeds draw their own.
        independent_seeds: How many independent seeds all of them are worth at most; ∞ where
            seeds draw their own data.
    """

    arms: Arms
    truth: Floats
    noise_std: float
    model: Model
    structure: object = None
    optimum: float | None = None
    interpretations: Mapping[str, str] = field(default_factory=dict)
    shared_data: float = 0.0
    independent_seeds: float = inf
    _best: Best = field(init=False, repr=False)

    def __post_init__(self) -> None:
        truth = as_vector(self.truth, "truth", length=len(self.arms))
        truth = read_only(truth)
        as_number(self.noise_std, "noise_std", 0.0)
        shared_data = as_number(self.shared_data, "shared_data")
        if not 0.0 <= shared_data < 1.0:
            raise InputError(
                f"shared_data must be at least 0 and below 1, got {self.shared_data!r}"
            )
        object.__setattr__(self, "truth", truth)
        object.__setattr__(self, "_best", self._find_best(truth))

    def _find_best(self, truth: Floats) -> Best:
        """The oracle's choice under the truth, which is the same in every round.

        For an exact oracle it is the best feasible super arm.
        """
        model = self.model
        structure = self.structure
        sign = 1.0 if model.direction == "maximize" else -1.0
        rng = np.random.default_rng(0)
        selection = model.oracle.select(sign * truth, structure, rng)
        positions = selection.positions
        worth = model.reward.worth(truth[positions], positions, structure)
        return Best(worth, selection.guarantee, self.optimum)

    @property
    def direction(self) -> Direction:
        return self.model.direction

    def offer(self, step: int) -> Offer:
        return Offer(step=step, arms=self.arms, structure=self.structure)

    def means(self, offer: Offer) -> Floats:
        return self.truth

    def value(self, offer: Offer, decision: Decision) -> float:
        positions = decision.positions
        reward = self.model.reward
        # The usual case, nine times as fast.
        if len(positions) == 1 and type(reward) is Sum:
            return self.truth.item(positions[0])
        return reward.worth(self.truth[positions], positions, offer.structure)

    def table(self, noise: Floats) -> Floats | None:
        """Rewards of all arms in many rounds, (T, n).

        ``None`` for a subclass: a table may not show its changes of offers, rewards and
        metrics. A subclass whose rounds still differ by noise alone overrides this method.

        Args:
            noise: (T, n).
        """
        plain = type(self) is FiniteProblem and type(self.model.reward) is Sum
        if not plain or self.optimum is not None:
            return None
        return self.truth + noise

    def values(self, positions: Ints) -> Floats:
        """Values of single arms, (T,).

        Args:
            positions: (T,).
        """
        return self.truth[positions]

    def best(self, offer: Offer) -> Best:
        return self._best

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        return NO_METRICS


def gaussian_draw(K: Floats, rng: Rng) -> Floats:
    """Draw from N(0, K), (n,), also where K is numerically singular.

    Unlike U √Λ, the symmetric root U √max(Λ, 0) Uᵀ is unique and continuous in K: signs and
    order of eigenvectors cancel. So the same seed gives the same function under another
    LAPACK, up to about the root of the machine's precision.

    Args:
        K: The covariance, (n, n).
        rng: The generator.
    """
    eigenvalues, U = np.linalg.eigh(K)
    roots = np.sqrt(np.maximum(eigenvalues, 0.0))
    normals = rng.standard_normal(len(K))
    draw: Floats = U @ (roots * (U.T @ normals))
    return draw


def representer(K: Floats, ridge: float, values: Floats) -> Floats:
    """α = (K + ridge·I)⁻¹ values: weights of the smooth K α near ``values``.

    Args:
        K: The kernel matrix, (n, n).
        ridge: What is added to its diagonal.
        values: (n,), or columns (n, m).
    """
    regularised = K + ridge * np.eye(len(K))
    return np.asarray(np.linalg.solve(regularised, values), dtype=np.float64)


def hilbert_norm(K: Floats, alpha: Floats) -> Floats:
    """√(αᵀKα), the norm of K α in the kernel's Hilbert space.

    Args:
        K: The kernel matrix, (n, n).
        alpha: (n,), or columns (n, m), each of which has a norm.
    """
    squares = np.einsum("i...,i...->...", alpha, K @ alpha)
    norms: Floats = np.sqrt(np.maximum(squares, 0.0))
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
    """A problem of one arm a round, whose learner knows B, R, γ and λ.

    Args:
        arms: The arms.
        truth: Expected reward of every arm, (n,).
        kernel: The learner's kernel.
        norm_bound: B.
        noise_variance: R².
        gain: The spec of the information gain γ.
        regularisation: "noise", λ = R², or "theory", λ = 1 + 2/T.
        horizon: Number of rounds T.
        interpretations: How unclear points of the paper are read.
        mean: The learner's prior mean.
        shared_data: The share of its data that a seed has in common with another one.
        independent_seeds: How many independent seeds all of them are worth at most.
    """
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
