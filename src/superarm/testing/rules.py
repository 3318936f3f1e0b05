"""The contracts of index rules and of the schedules under them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Rule, Schedule

from .helpers import FixedBelief, frozen, generator, untouched


class ScheduleContract(ABC):
    """What every schedule promises: a plain, finite, non-negative width in every round."""

    @abstractmethod
    def make_schedule(self) -> Schedule: ...

    def test_widths_are_finite_and_not_negative(self) -> None:
        schedule = self.make_schedule()
        steps = [
            *range(1, 1001),
            *(int(10**power) for power in np.linspace(3.0, 6.0, 200)),
        ]
        for gamma in (lambda t: 0.0, lambda t: math.log1p(t) ** 3):
            for step in steps:
                width = schedule.width(step, gamma)
                assert isinstance(width, float), (
                    f"the width is a {type(width).__name__}"
                )
                assert 0.0 <= width < math.inf, f"the width in round {step} is {width}"

    def test_widths_depend_on_the_round_alone(self) -> None:
        schedule, steps = self.make_schedule(), (1, 2, 77, 10_000)
        forward = [schedule.width(step, lambda t: 1.0) for step in steps]
        assert forward[::-1] == [
            schedule.width(step, lambda t: 1.0) for step in reversed(steps)
        ]


class RuleContract(ABC):
    """What every index rule promises."""

    @abstractmethod
    def make_rule(self) -> Rule: ...

    def _beliefs(self) -> list[FixedBelief]:
        mean = np.array([0.3, -1.0, 0.9, 0.0])
        root = np.tril(np.linspace(0.1, 1.0, 16).reshape(4, 4))
        cov = root @ root.T
        partly_known = cov.copy()
        partly_known[1] = partly_known[:, 1] = 0.0
        scaled = (
            FixedBelief(
                frozen(scale * mean), frozen(scale**2 * cov), incumbent=scale * 0.25
            )
            for scale in (1.0, 1e-6, 1e6)
        )
        others = ((mean, partly_known), (mean, 0.0 * cov), (mean[:1], cov[:1, :1]))
        return [
            *scaled,
            *(FixedBelief(frozen(at), frozen(about)) for at, about in others),
        ]

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
            np.testing.assert_array_equal(
                first, rule.desirability(belief, 3, generator(5))
            )

    def test_the_deterministic_flag_is_true(self) -> None:
        rule, belief, rng = self.make_rule(), self._beliefs()[0], generator()
        first = rule.desirability(belief, 3, rng)
        assert untouched(rng) == rule.deterministic, (
            "deterministic must say whether rng is used"
        )
        if rule.deterministic:
            np.testing.assert_array_equal(
                first, rule.desirability(belief, 3, generator(1))
            )
