"""Problems whose arms change every round and whose truth is a function of contexts.

A round's arms come from the stream (seed, "offer", step), so that the rounds of a short run
are the first rounds of a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np

from superarm.core import (
    Best,
    Decision,
    Direction,
    Feedback,
    Floats,
    Ints,
    Offer,
    Oracle,
    Rng,
)
from superarm.core.capabilities import HasMetrics, Metric
from superarm.core.streams import Streams
from superarm.kernels import Kernel, SquaredExponential
from superarm.kernels.roots import DenseRoot
from superarm.models import Model
from superarm.models.worlds import GaussianNoise

_MOST_FEATURES = 2000
# Below this share of a covariance's largest eigenvalue there is only rounding.
_NEGLIGIBLE = 1e-14
_TOLERANCE = 1e-13  # of a kernel's features
_UNUSED_RNG = np.random.default_rng(0)


def most_arrivals(mean: int) -> int:
    """M: five standard deviations of a Poisson number above its mean, 150 for 100.

    Args:
        mean: The mean of the Poisson number.
    """
    return ceil(mean + 5.0 * sqrt(mean))


def arrivals(rng: Rng, mean: int, more_than: int) -> int:
    """Draw a Poisson number, again until it is above ``more_than`` and at most M.

    Args:
        rng: The generator.
        mean: The mean of the Poisson number.
        more_than: A number below the smallest result.
    """
    while True:
        count = int(rng.poisson(mean))
        if more_than < count <= most_arrivals(mean):
            return count


def draws_of(kernel: Kernel, points: Floats) -> Callable[[Floats], Floats]:
    """Return a function from n standard normals to a draw of a Gaussian process, (n,).

    A smooth kernel has few features Φ that matter, (n, r). Its covariance is A = ΦΦᵀ = Q S² Qᵀ,
    and its symmetric root A^½ = Q S Qᵀ is unique and continuous in A: signs, order and number
    of the features, which depend on how the processor rounds, cancel. Any other kernel needs
    the Cholesky factor of the n × n covariance, which is unique as well and takes seconds for
    thousands of points.

    Args:
        kernel: The kernel of the process.
        points: Points in the unit cube, (n, d).
    """
    n, dimension = points.shape
    lower = np.zeros(dimension)
    upper = np.ones(dimension)
    most = min(_MOST_FEATURES, n)
    features = kernel.features(lower, upper, _TOLERANCE, max_rank=most)
    if features is None:
        root = DenseRoot(kernel, points)
        return lambda normals: root.times(normals[None])[0]
    return _draws_of_features(features(points))


def _draws_of_features(Phi: Floats) -> Callable[[Floats], Floats]:
    """Draws with the symmetric root A^½ = Q S Qᵀ of the covariance A = ΦΦᵀ."""
    values, vectors = np.linalg.eigh(Phi.T @ Phi)  # S², and V with Φ V = Q S
    significant = values > _NEGLIGIBLE * values.max()
    S = np.sqrt(values[significant])
    V = vectors[:, significant]
    Q = Phi @ (V / S)
    return lambda normals: Q @ (S * (Q.T @ normals))


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangingArms(GaussianNoise, HasMetrics):
    """Rewards with Gaussian noise; the model's reward is the value of a super arm.

    Regret is measured on expected outcomes, against the model's own oracle under the truth.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
    """

    direction: ClassVar[Direction] = "maximize"
    seed: int
    horizon: int
    model: Model = field(init=False, repr=False)
    interpretations: Mapping[str, str] = field(init=False, repr=False)

    def _unit_model(self, oracle: Oracle, most_arms: int, **more: Any) -> Model:
        """The learner's model of contexts in [0, 1]³: a kernel of scale 1, and the noise."""
        return Model(
            kernel=SquaredExponential(lengthscale=1.0, variance=1.0),
            noise_variance=self.noise_std**2,
            oracle=oracle,
            horizon=self.horizon,
            noise_bound=self.noise_std,
            gain={"name": "squared-exponential", "dimension": 3},
            most_arms=most_arms,
            **more,
        )

    def value(self, offer: Offer, decision: Decision) -> float:
        positions = decision.positions
        means = self.means(offer)
        return self._worth(offer, means[positions], positions)

    def best(self, offer: Offer) -> Best:
        means = self.means(offer)
        oracle = self.model.oracle
        rng = _UNUSED_RNG
        if not oracle.deterministic:  # then it gets a stream of its own in every round
            rng = Streams(self.seed, "benchmark").at(offer.step)
        _, positions, guarantee = oracle.select(means, offer.structure, rng)
        worth = self._worth(offer, means[positions], positions)
        return Best(worth, guarantee)

    @property
    def measures(self) -> Mapping[str, Metric]:
        return {"reward": Metric("cumulative reward", better="up")}

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        return {"reward": self._worth(offer, feedback.rewards, feedback.positions)}

    def _worth(self, offer: Offer, outcomes: Floats, positions: Ints) -> float:
        return self.model.reward.worth(outcomes, positions, offer.structure)
