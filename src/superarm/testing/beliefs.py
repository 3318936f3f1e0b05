"""The contract of beliefs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Belief

from .helpers import assert_close, assert_equal, assert_moments, conditioned, generator


class BeliefContract(ABC):
    """The promises of every belief."""

    tolerance = 1e-9  # rounding allowed, relative to the largest variance
    draws = 4000  # for the test of moments

    @abstractmethod
    def make_belief(self) -> Belief:
        """A belief about at least three arms."""

    def _tolerance(self, belief: Belief) -> float:
        variance = np.diagonal(belief.cov)
        scale = float(variance.max())
        return self.tolerance * scale

    def test_the_parts_belong_together(self) -> None:
        belief = self.make_belief()
        assert isinstance(belief, Belief)
        std = belief.std
        cov = belief.cov
        n = len(belief.mean)
        assert std.shape == (n,)
        assert cov.shape == (n, n)
        assert std.min() >= 0.0
        assert belief.noise_std > 0.0
        tolerance = self._tolerance(belief)
        variance = np.diagonal(cov)
        assert_close(std**2, variance, tolerance, "std² and cov")
        assert_close(cov, cov.T, tolerance, "cov must be symmetric")

    def test_draws_have_the_stated_moments(self) -> None:
        belief = self.make_belief()
        rng = generator(11)
        samples = [belief.sample(rng) for _ in range(self.draws)]
        draws = np.array(samples)
        assert_moments(draws, belief.mean, belief.cov, "sample()")

    def test_conditioning_follows_the_formula(self) -> None:
        belief = self.make_belief()
        tolerance = self._tolerance(belief)
        positions = np.array([2, 0])
        noise_variance = belief.noise_std**2
        expected = conditioned(belief.cov, positions, noise_variance)
        expected_variance = np.diagonal(expected)

        at_once = belief.condition(positions)
        variance = at_once.std**2
        assert_close(at_once.mean, belief.mean, 0.0, "condition() keeps the mean")
        assert_close(at_once.cov, expected, tolerance, "condition()")
        assert_close(variance, expected_variance, tolerance, "condition()'s std")
        assert at_once.incumbent == belief.incumbent
        assert at_once.information_gain == belief.information_gain

        first_step = belief.condition(positions[:1])
        second_step = first_step.condition(positions[1:])
        assert_close(second_step.cov, expected, tolerance, "condition() in two steps")

    def test_negation_turns_the_mean_alone(self) -> None:
        belief = self.make_belief()
        tolerance = self._tolerance(belief)
        negated = belief.negated()
        self._assert_negated(belief, negated, tolerance)

        position = np.array([1])
        conditional = belief.condition(position)
        negated_first = negated.condition(position)
        negated_last = conditional.negated()
        self._assert_negated(conditional, negated_first, tolerance)
        self._assert_negated(conditional, negated_last, tolerance)

    def _assert_negated(
        self,
        belief: Belief,
        negated: Belief,
        tolerance: float,
    ) -> None:
        twice = negated.negated()
        assert_equal(negated.mean, -belief.mean)
        assert_equal(twice.mean, belief.mean)
        assert_close(negated.std, belief.std, tolerance, "the negated std")
        assert_close(negated.cov, belief.cov, tolerance, "the negated cov")
        assert negated.noise_std == belief.noise_std
        assert negated.information_gain == belief.information_gain
        assert twice.incumbent == belief.incumbent
        # The best of minus the reward cannot be better than minus the worst.
        least = -belief.incumbent - tolerance
        assert negated.incumbent >= least

    def test_asking_changes_nothing(self) -> None:
        belief = self.make_belief()
        mean = belief.mean.copy()
        std = belief.std.copy()
        cov = belief.cov.copy()
        positions = np.array([0, 1])
        conditional = belief.condition(positions)
        conditional.sample(generator())
        self._assert_same_draws(belief)
        negated = belief.negated()
        self._assert_same_draws(negated)
        conditional = belief.condition(positions[:1])
        self._assert_same_draws(conditional)
        assert_equal(belief.mean, mean)
        assert_equal(belief.std, std)
        assert_equal(belief.cov, cov)

    def _assert_same_draws(self, belief: Belief) -> None:
        draw = belief.sample(generator(3))
        expected = draw.copy()
        draw[:] = np.nan  # a draw belongs to the caller
        repeated = belief.sample(generator(3))
        assert_equal(repeated, expected)
