"""The contracts of index rules and of their schedules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Rule, Schedule

from .helpers import FixedBelief, frozen, generator, untouched


class ScheduleContract(ABC):
    """The promises of every schedule: a plain, finite, non-negative width in every round."""

    @abstractmethod
    def make_schedule(self) -> Schedule:
        """The schedule to test."""

    def test_widths_are_finite_and_not_negative(self) -> None:
        schedule = self.make_schedule()
        early_steps = range(1, 1001)
        late_steps = [int(10**power) for power in np.linspace(3.0, 6.0, 200)]
        steps = [*early_steps, *late_steps]
        for gamma in (lambda t: 0.0, lambda t: math.log1p(t) ** 3):
            for step in steps:
                width = schedule.width(step, gamma)
                assert isinstance(width, float), (
                    f"the width is a {type(width).__name__}"
                )
                assert 0.0 <= width < math.inf, f"the width in round {step} is {width}"

    def test_widths_depend_on_the_round_alone(self) -> None:
        schedule = self.make_schedule()
        steps = (1, 2, 77, 10_000)
        forward = [schedule.width(step, lambda t: 1.0) for step in steps]
        backward = [schedule.width(step, lambda t: 1.0) for step in reversed(steps)]
        assert backward == forward[::-1]


class RuleContract(ABC):
    """The promises of every index rule."""

    @abstractmethod
    def make_rule(self) -> Rule:
        """The rule to test."""

    def _beliefs(self) -> list[FixedBelief]:
        mean = np.array([0.3, -1.0, 0.9, 0.0])
        root = np.tril(np.linspace(0.1, 1.0, 16).reshape(4, 4))
        cov = root @ root.T
        beliefs = []
        for scale in (1.0, 1e-6, 1e6):
            belief = FixedBelief(
                frozen(scale * mean), frozen(scale**2 * cov), incumbent=scale * 0.25
            )
            beliefs.append(belief)
        one_known = cov.copy()
        one_known[1] = 0.0
        one_known[:, 1] = 0.0
        all_known = 0.0 * cov
        beliefs.append(FixedBelief(frozen(mean), frozen(one_known)))
        beliefs.append(FixedBelief(frozen(mean), frozen(all_known)))
        beliefs.append(FixedBelief(frozen(mean[:1]), frozen(cov[:1, :1])))
        return beliefs

    def test_one_finite_fresh_number_per_arm(self) -> None:
        rule = self.make_rule()
        for belief in self._beliefs():
            for step in (1, 2, 1_000_000):
                index = rule.desirability(belief, step, generator())
                assert index.shape == belief.mean.shape
                assert index.dtype == np.float64
                assert np.isfinite(index).all(), f"round {step}: {index}"
                before = belief.mean.copy()
                index[:] = -np.inf  # the caller may mark arms that are not available
                np.testing.assert_array_equal(belief.mean, before)

    def test_the_same_generator_gives_the_same_scores(self) -> None:
        rule = self.make_rule()
        for belief in self._beliefs():
            first = rule.desirability(belief, 3, generator(5))
            second = rule.desirability(belief, 3, generator(5))
            np.testing.assert_array_equal(first, second)

    def test_the_deterministic_flag_is_true(self) -> None:
        rule = self.make_rule()
        belief = self._beliefs()[0]
        rng = generator()
        first = rule.desirability(belief, 3, rng)
        assert untouched(rng) == rule.deterministic, (
            "deterministic must say whether rng is used"
        )
        if rule.deterministic:
            second = rule.desirability(belief, 3, generator(1))
            np.testing.assert_array_equal(first, second)
