"""Independent Gaussian arms: the baseline that shares nothing between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Offer, State
from superarm.errors import InputError, ShapeError
from superarm.inputs import as_features, as_vector, require_scale
from superarm.registry import Described, describe, register
from superarm.states import check_spec

from .base import GaussianPosterior
from .fixed import FixedArms, as_rows, as_weights, mean_parameter, prior_mean_at
from .turns import whole


@register("posterior", "independent")
class IndependentGaussian(GaussianPosterior, Described):
    """One conjugate Gaussian per arm, known noise; arms are named by row numbers 0 … n−1.

    Offers name their arms by row number too, or by their features where ``arms`` are given.

    After observations of weight Σ 1/σ² and weighted mean ȳ, an arm with prior N(m, v) has
    precision 1/v + Σ 1/σ² and mean (m/v + Σ y/σ²) / precision.

    >>> arms = IndependentGaussian(prior_variance=[1.0, 1.0], noise_variance=1.0)
    >>> arms.observe([0], [2.0])
    >>> arms.predict([0, 1]).mean.tolist()
    [1.0, 0.0]
    """

    kind = "independent-gaussian"
    schema = 2

    def __init__(
        self, prior_variance: Any, noise_variance: float, mean: Any = 0.0, *, arms: Any = None
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        variance = as_vector(prior_variance, "prior_variance")
        if len(variance) == 0 or not (variance > 0.0).all():
            raise InputError("prior_variance must hold one number above 0 for each arm")
        require_scale(variance, "prior_variance")
        self.prior_variance = variance.copy()
        n = len(variance)
        self._weight = np.zeros(n)
        self._weighted_rewards = np.zeros(n)
        self._fixed: FixedArms | None = None
        if arms is not None:
            features = as_features(arms, "arms")
            if len(features) != n:
                raise ShapeError(f"arms has {len(features)} rows, but there are {n} prior variances")
            self._fixed = FixedArms(features.copy())
        features_of = None if self._fixed is None else self._fixed.features
        self.prior_mean = prior_mean_at(mean, features_of, n)
        self._mean = mean_parameter(mean, self.prior_mean)

    def keys(self, offer: Offer) -> Ints:
        if self._fixed is not None:
            return self._fixed.locate(offer.arms).keys
        return self._as_keys(np.asarray(offer.arms.ids))

    def _as_keys(self, arms: Any) -> Ints:
        return as_rows(arms, len(self.prior_variance))

    def _variance(self) -> Floats:
        return 1.0 / (1.0 / self.prior_variance + self._weight)

    def _moments(self, keys: Ints) -> tuple[Floats, Floats]:
        variance = self._variance()
        mean = variance * (self.prior_mean / self.prior_variance + self._weighted_rewards)
        return mean[keys], variance[keys]

    def _covariance(self, keys: Ints) -> Floats:
        return self._cross(keys, np.arange(len(keys)))

    def _cross(self, keys: Ints, at: Ints) -> Floats:
        # The same arm asked twice is one latent reward, not two independent ones.
        return np.where(keys[at, None] == keys, self._variance()[keys], 0.0)

    def _draw(self, keys: Ints, rng: np.random.Generator, size: int) -> Floats:
        drawn = rng.standard_normal((size, len(self.prior_variance))) * np.sqrt(self._variance())
        return drawn[:, keys]

    def _absorb(
        self, keys: Ints, rewards: Floats, noise: Floats, rng: np.random.Generator | None
    ) -> float:
        n = len(self.prior_variance)
        gained = np.bincount(keys, 1.0 / noise, n)
        before = self._variance()
        self._weight += gained
        self._weighted_rewards += np.bincount(keys, rewards / noise, n)
        return 0.5 * float(np.log1p(before * gained).sum())

    def _incumbent(self, sign: float) -> float:
        seen = np.flatnonzero(self._weight)
        return float(np.max(sign * self._moments(seen)[0]))

    def _prior_scale(self, keys: Ints) -> float:
        return float(np.max(self.prior_variance))

    def parameters(self) -> Mapping[str, Any]:
        return {
            "prior_variance": self.prior_variance,
            "noise_variance": self.noise_variance,
            "mean": self._mean,
            "arms": None if self._fixed is None else self._fixed.features,
        }

    @whole
    def state(self) -> State:
        return State(
            kind=self.kind,
            schema=self.schema,
            scalars={"count": self.count, "information_gain": self.information_gain},
            arrays={
                "weight": self._weight.copy(),
                "weighted_rewards": self._weighted_rewards.copy(),
            },
            spec=describe(self),
        )

    @classmethod
    def from_state(cls, state: State) -> IndependentGaussian:
        """The posterior that ``state`` was taken from."""
        cls._check_state(state, cls.kind)
        posterior = cls._made(state)
        n = len(posterior.prior_variance)
        posterior._weight[:] = as_weights(state.array("weight"), n)
        weighted = as_vector(state.array("weighted_rewards"), "weighted_rewards", n)
        posterior._weighted_rewards[:] = weighted
        return posterior._restore_counts(state)

    def restored(self, state: State) -> IndependentGaussian:
        self._check_state(state, self.kind)
        check_spec(state, self)
        return type(self).from_state(state)
