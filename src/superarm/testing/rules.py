"""The contracts of index rules and of their schedules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Rule, Schedule
from superarm.core.capabilities import NeverPositive

from .helpers import (
    FixedBelief,
    assert_equal,
    frozen,
    generator,
    untouched,
)


class ScheduleContract(ABC):
    """The promises of every schedule: a plain, finite, non-negative width in every round."""

    @abstractmethod
    def make_schedule(self) -> Schedule:
        """The schedule to test."""

    def test_widths_are_finite_and_not_negative(self) -> None:
        schedule = self.make_schedule()
        early_steps = range(1, 1001)
        powers = np.linspace(3.0, 6.0, 200)
        late_steps = [int(10**power) for power in powers]
        for step in (*early_steps, *late_steps):
            width = schedule.width(step, _no_gain)
            _assert_width(width, step)
            width = schedule.width(step, _growing_gain)
            _assert_width(width, step)

    def test_widths_depend_on_the_round_alone(self) -> None:
        schedule = self.make_schedule()
        steps = [1, 2, 77, 10_000]
        forward = [schedule.width(step, _constant_gain) for step in steps]
        steps.reverse()
        backward = [schedule.width(step, _constant_gain) for step in steps]
        backward.reverse()
        assert backward == forward


def _no_gain(step: int) -> float:
    return 0.0


def _constant_gain(step: int) -> float:
    return 1.0


def _growing_gain(step: int) -> float:
    return math.log1p(step) ** 3


def _assert_width(width: float, step: int) -> None:
    kind = type(width).__name__
    assert isinstance(width, float), f"the width is a {kind}"
    assert 0.0 <= width < math.inf, f"the width in round {step} is {width}"


class RuleContract(ABC):
    """The promises of every index rule."""

    @abstractmethod
    def make_rule(self) -> Rule:
        """The rule to test."""

    def _beliefs(self) -> list[FixedBelief]:
        mean = np.array([0.3, -1.0, 0.9, 0.0])
        entries = np.linspace(0.1, 1.0, 16)
        root = np.tril(entries.reshape(4, 4))
        cov = root @ root.T
        one_known = cov.copy()
        one_known[1] = 0.0
        one_known[:, 1] = 0.0
        all_known = np.zeros((4, 4))
        first_mean = mean[:1]
        first_cov = cov[:1, :1]

        beliefs = []
        for scale in (1.0, 1e-6, 1e6):
            belief = FixedBelief(
                mean=frozen(scale * mean),
                cov=frozen(scale**2 * cov),
                incumbent=scale * 0.25,
            )
            beliefs.append(belief)
        beliefs.append(FixedBelief(frozen(mean), frozen(one_known)))
        beliefs.append(FixedBelief(frozen(mean), frozen(all_known)))
        beliefs.append(FixedBelief(frozen(first_mean), frozen(first_cov)))
        return beliefs

    def test_one_finite_fresh_number_per_arm(self) -> None:
        rule = self.make_rule()
        for belief in self._beliefs():
            for step in (1, 2, 1_000_000):
                index = rule.desirability(belief, step, generator())
                assert index.shape == belief.mean.shape
                assert index.dtype == np.float64
                finite = np.isfinite(index)
                assert finite.all(), f"round {step}: {index}"
                before = belief.mean.copy()
                index[:] = -np.inf  # the caller may mark arms that are not available
                assert_equal(belief.mean, before)

    def test_costs_are_never_positive(self) -> None:
        rule = self.make_rule()
        if not isinstance(rule, NeverPositive):
            return
        for belief in self._beliefs():
            index = rule.desirability(belief, 3, generator())
            assert (index <= 0.0).all(), f"derived from NeverPositive: {index}"

    def test_the_same_generator_gives_the_same_scores(self) -> None:
        rule = self.make_rule()
        for belief in self._beliefs():
            first = rule.desirability(belief, 3, generator(5))
            second = rule.desirability(belief, 3, generator(5))
            assert_equal(first, second)

    def test_the_deterministic_flag_is_true(self) -> None:
        rule = self.make_rule()
        belief = self._beliefs()[0]
        rng = generator()
        first = rule.desirability(belief, 3, rng)
        message = "deterministic must say whether rng is used"
        assert untouched(rng) == rule.deterministic, message
        if rule.deterministic:
            second = rule.desirability(belief, 3, generator(1))
            assert_equal(first, second)
