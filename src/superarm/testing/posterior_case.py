"""The posterior under test, its observations, and how results are compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from superarm.core import (
    Arms,
    Floats,
    Ints,
    JointPrediction,
    Offer,
    Posterior,
    State,
)

from .helpers import assert_close, frozen, generator


class Observations(NamedTuple):
    """The observations of the contract."""

    positions: Ints  # (m,)
    rewards: Floats  # (m,)
    noise_variance: Floats  # (m,)


class PosteriorCase(ABC):
    """A posterior to test, with data for it. Contracts inherit from it."""

    tolerance = 1e-9  # rounding allowed, relative to the prior's scale

    @abstractmethod
    def make_posterior(self) -> Posterior:
        """The posterior to test, before any data."""

    @abstractmethod
    def make_arms(self) -> Arms:
        """Six to twenty arms that the posterior accepts."""

    @abstractmethod
    def restore(self, state: State) -> Posterior:
        """A posterior restored from a state.

        Args:
            state: The state of a posterior like the one to test.
        """

    # --- data and helpers of the tests -----------------------------------------------------

    def _data(self) -> Observations:
        rng = generator(1)
        arms = self.make_arms()
        n = len(arms)
        shuffled = rng.permutation(n)
        different_arms = shuffled[: n - 2]
        repeated_arms = rng.integers(0, n - 2, 4)
        positions = np.concatenate([different_arms, repeated_arms])
        positions[-1] = positions[-2]  # the same arm twice in a row

        count = len(positions)
        std = np.sqrt(self._scale())
        rewards = std * rng.standard_normal(count)

        belief = self.make_posterior().belief(self._offer())
        factors = rng.uniform(0.5, 2.0, count)
        variances = factors * belief.noise_std**2
        return Observations(
            positions=positions,
            rewards=frozen(rewards),
            noise_variance=frozen(variances),
        )

    def _scale(self) -> float:
        prior = self._joint(self.make_posterior())
        variance = np.diagonal(prior.cov)
        return float(variance.max())

    def _rounding(self) -> float:
        return self.tolerance * self._scale()

    def _offer(self) -> Offer:
        return Offer(step=1, arms=self.make_arms())

    def _keys(self, posterior: Posterior) -> Any:
        return posterior.keys(self._offer())

    def _first_key(self, posterior: Posterior) -> Any:
        keys = self._keys(posterior)
        return keys[:1]

    def _joint(self, posterior: Posterior) -> JointPrediction:
        keys = self._keys(posterior)
        return posterior.predict(keys, return_cov=True)

    def _variance(self, posterior: Posterior) -> Floats:
        keys = self._keys(posterior)
        std: Any = posterior.predict(keys).std
        return np.asarray(std**2)

    def _observe(self, posterior: Posterior, part: Any = slice(None)) -> Posterior:
        data = self._data()
        positions = data.positions[part]
        all_keys = self._keys(posterior)
        keys = all_keys[positions]
        rewards = data.rewards[part]
        noise_variance = data.noise_variance[part]
        posterior.observe(keys, rewards, noise_variance, rng=generator())
        return posterior

    def _new_and_trained(self) -> Iterator[Posterior]:
        yield self.make_posterior()
        yield self._trained_posterior()

    def _trained_posterior(self) -> Posterior:
        return self._observe(self.make_posterior())

    def _mean_tolerance(self, mean: Floats) -> float:
        std = np.sqrt(self._scale())
        size = std + np.abs(mean).max()
        return float(self.tolerance * size)

    def _assert_mean(self, actual: Floats, expected: Floats, what: str) -> None:
        tolerance = self._mean_tolerance(expected)
        assert_close(actual, expected, tolerance, what)

    def _assert_variance(self, actual: Floats, expected: Floats, what: str) -> None:
        assert_close(actual, expected, self._rounding(), what)

    def _assert_same(self, actual: Posterior, expected: Posterior, what: str) -> None:
        joint = self._joint(actual)
        expected_joint = self._joint(expected)
        self._assert_mean(joint.mean, expected_joint.mean, what)
        self._assert_variance(joint.cov, expected_joint.cov, what)
        assert actual.count == expected.count

        gain = actual.information_gain
        expected_gain = expected.information_gain
        size = 1.0 + abs(expected_gain)
        tolerance = self.tolerance * size
        assert_close(gain, expected_gain, tolerance, f"{what}: information_gain")
