"""The contract of beliefs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Belief

from .helpers import assert_close, assert_moments, conditioned, generator


class BeliefContract(ABC):
    """The promises of every belief."""

    tolerance = 1e-9  # rounding allowed, relative to the largest variance
    draws = 4000  # for the test of moments

    @abstractmethod
    def make_belief(self) -> Belief:
        """A belief about at least three arms."""

    def _tolerance(self, belief: Belief) -> float:
        return self.tolerance * float(np.max(np.diagonal(belief.cov)))

    def test_the_parts_belong_together(self) -> None:
        belief = self.make_belief()
        assert isinstance(belief, Belief)
        n = len(belief.mean)
        assert belief.std.shape == (n,)
        assert belief.cov.shape == (n, n)
        assert (belief.std >= 0.0).all()
        assert belief.noise_std > 0.0
        tolerance = self._tolerance(belief)
        assert_close(belief.std**2, np.diagonal(belief.cov), tolerance, "std² and cov")
        assert_close(belief.cov, belief.cov.T, tolerance, "cov must be symmetric")

    def test_draws_have_the_stated_moments(self) -> None:
        belief = self.make_belief()
        rng = generator(11)
        draws = np.array([belief.sample(rng) for _ in range(self.draws)])
        assert_moments(draws, belief.mean, belief.cov, "sample()")

    def test_conditioning_follows_the_formula(self) -> None:
        belief = self.make_belief()
        tolerance = self._tolerance(belief)
        positions = np.array([2, 0])
        expected = conditioned(belief.cov, positions, belief.noise_std**2)
        variance = np.diagonal(expected)

        at_once = belief.condition(positions)
        assert_close(at_once.mean, belief.mean, 0.0, "condition() keeps the mean")
        assert_close(at_once.cov, expected, tolerance, "condition()")
        assert_close(at_once.std**2, variance, tolerance, "condition()'s std")
        assert at_once.incumbent == belief.incumbent
        assert at_once.information_gain == belief.information_gain

        stepwise = belief.condition(positions[:1]).condition(positions[1:])
        assert_close(stepwise.cov, expected, tolerance, "condition() in two steps")

    def test_negation_turns_the_mean_alone(self) -> None:
        belief = self.make_belief()
        tolerance = self._tolerance(belief)
        self._assert_negated(belief, belief.negated(), tolerance)
        positions = np.array([1])
        conditional = belief.condition(positions)
        negated_first = belief.negated().condition(positions)
        self._assert_negated(conditional, negated_first, tolerance)
        self._assert_negated(conditional, conditional.negated(), tolerance)

    def _assert_negated(
        self, belief: Belief, negated: Belief, tolerance: float
    ) -> None:
        np.testing.assert_array_equal(negated.mean, -belief.mean)
        np.testing.assert_array_equal(negated.negated().mean, belief.mean)
        assert_close(negated.std, belief.std, tolerance, "the negated std")
        assert_close(negated.cov, belief.cov, tolerance, "the negated cov")
        assert negated.noise_std == belief.noise_std
        assert negated.information_gain == belief.information_gain
        assert negated.negated().incumbent == belief.incumbent
        # The best of minus the reward cannot be better than minus the worst.
        assert negated.incumbent >= -belief.incumbent - tolerance

    def test_asking_changes_nothing(self) -> None:
        belief = self.make_belief()
        mean = belief.mean.copy()
        std = belief.std.copy()
        cov = belief.cov.copy()
        belief.condition(np.array([0, 1])).sample(generator())
        self._assert_same_draws(belief)
        self._assert_same_draws(belief.negated())
        self._assert_same_draws(belief.condition(np.array([0])))
        np.testing.assert_array_equal(belief.mean, mean)
        np.testing.assert_array_equal(belief.std, std)
        np.testing.assert_array_equal(belief.cov, cov)

    def _assert_same_draws(self, belief: Belief) -> None:
        draw = belief.sample(generator(3))
        expected = draw.copy()
        draw[:] = np.nan  # a draw belongs to the caller
        np.testing.assert_array_equal(belief.sample(generator(3)), expected)
