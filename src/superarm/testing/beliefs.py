"""The contract of beliefs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Belief

from .helpers import assert_close, assert_moments, conditioned, generator


class BeliefContract(ABC):
    """What every belief promises."""

    tolerance = 1e-9
    draws = 4000

    @abstractmethod
    def make_belief(self) -> Belief:
        """About at least three arms."""

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
        belief, rng = self.make_belief(), generator(11)
        drawn = np.array([belief.sample(rng) for _ in range(self.draws)])
        assert_moments(drawn, belief.mean, belief.cov, "sample()")

    def test_conditioning_follows_the_formula(self) -> None:
        belief, positions = self.make_belief(), np.array([2, 0])
        tolerance = self._tolerance(belief)
        expected = conditioned(belief.cov, positions, belief.noise_std**2)
        both = belief.condition(positions)
        assert_close(both.mean, belief.mean, 0.0, "condition() keeps the mean")
        assert_close(both.cov, expected, tolerance, "condition()")
        assert_close(both.std**2, np.diagonal(expected), tolerance, "condition()'s std")
        twice = belief.condition(positions[:1]).condition(positions[1:])
        assert_close(twice.cov, expected, tolerance, "condition() in two steps")
        assert both.incumbent == belief.incumbent
        assert both.information_gain == belief.information_gain

    def test_negation_turns_the_mean_alone(self) -> None:
        belief, first = self.make_belief(), np.array([1])
        tolerance = self._tolerance(belief)
        for one, other in (
            (belief, belief.negated()),
            (belief.condition(first), belief.negated().condition(first)),
            (belief.condition(first), belief.condition(first).negated()),
        ):
            np.testing.assert_array_equal(other.mean, -one.mean)
            np.testing.assert_array_equal(other.negated().mean, one.mean)
            assert_close(other.std, one.std, tolerance, "the negated std")
            assert_close(other.cov, one.cov, tolerance, "the negated cov")
            assert other.noise_std == one.noise_std
            assert other.information_gain == one.information_gain
            assert other.negated().incumbent == one.incumbent
            # The best of minus the reward cannot be better than minus the worst.
            assert other.incumbent >= -one.incumbent - tolerance

    def test_asking_changes_nothing(self) -> None:
        belief = self.make_belief()
        before = belief.mean.copy(), belief.std.copy(), belief.cov.copy()
        belief.condition(np.array([0, 1])).sample(generator())
        for each in (belief, belief.negated(), belief.condition(np.array([0]))):
            drawn = each.sample(generator(3))
            first = drawn.copy()
            drawn[:] = np.nan  # a draw is the caller's own
            np.testing.assert_array_equal(each.sample(generator(3)), first)
        for now, then in zip(
            (belief.mean, belief.std, belief.cov), before, strict=True
        ):
            np.testing.assert_array_equal(now, then)
