"""What problems share if their arms change every round and their truth is a function of contexts.

A round's arms come from the stream (seed, "offer", step), so that the rounds of a short run are the
first rounds of a long one.
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
from superarm.kernels.drawing import DenseRoot
from superarm.models import Model
from superarm.models.worlds import GaussianNoise

_MOST_FEATURES = 2000
_NEGLIGIBLE = (
    1e-14  # of the largest eigenvalue of a covariance: below it there is only rounding
)
_LEFT_ALONE = np.random.default_rng(0)


def most_arrivals(mean: int) -> int:
    """M: five standard deviations of a Poisson number above its mean, 150 for 100."""
    return ceil(mean + 5.0 * sqrt(mean))


def arrivals(rng: Rng, mean: int, more_than: int) -> int:
    """A Poisson number, drawn again until it is above ``more_than`` and at most M."""
    while True:
        count = int(rng.poisson(mean))
        if more_than < count <= most_arrivals(mean):
            return count


def draws_of(kernel: Kernel, points: Floats) -> Callable[[Floats], Floats]:
    """From n standard normals to a draw of the Gaussian process at n points in the unit cube, (n,).

    A smooth kernel has few features Φ that matter, (n, r). Its covariance is A = ΦΦᵀ = Q S² Qᵀ, and its
    symmetric root A^½ = Q S Qᵀ is unique and continuous in A: signs, order and number of the features,
    which depend on how the processor rounds, cancel. Any other kernel needs the Cholesky factor of the
    n × n covariance, which is unique as well and takes seconds for thousands of points.
    """
    columns, most = points.shape[1], min(_MOST_FEATURES, len(points))
    features = kernel.features(
        np.zeros(columns), np.ones(columns), 1e-13, max_rank=most
    )
    if features is None:
        root = DenseRoot(kernel, points)
        return lambda normals: root.times(normals[None])[0]
    Phi = features(points)
    values, vectors = np.linalg.eigh(Phi.T @ Phi)  # S², and V with Φ V = Q S
    matters = values > _NEGLIGIBLE * values.max()
    S = np.sqrt(values[matters])
    Q = Phi @ (vectors[:, matters] / S)
    return lambda normals: Q @ (S * (Q.T @ normals))


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangingArms(GaussianNoise, HasMetrics):
    """Rewards with Gaussian noise; a super arm is worth what the model's reward says.

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

    def _told(self, oracle: Oracle, most_arms: int, **more: Any) -> Model:
        """What the learner is told of contexts in [0, 1]³: a kernel of scale 1, and the noise."""
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
        return self._worth(
            offer, self.means(offer)[decision.positions], decision.positions
        )

    def best(self, offer: Offer) -> Best:
        means = self.means(offer)
        oracle, rng = self.model.oracle, _LEFT_ALONE
        if not oracle.deterministic:  # then it gets a stream of its own in every round
            rng = Streams(self.seed, "benchmark").at(offer.step)
        _, chosen, guarantee = oracle.select(means, offer.structure, rng)
        return Best(self._worth(offer, means[chosen], chosen), guarantee)

    @property
    def measures(self) -> Mapping[str, Metric]:
        return {"reward": Metric("cumulative reward", better="up")}

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        return {"reward": self._worth(offer, feedback.rewards, feedback.positions)}

    def _worth(self, offer: Offer, outcomes: Floats, positions: Ints) -> float:
        return self.model.reward.worth(outcomes, positions, offer.structure)
