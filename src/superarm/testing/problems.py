"""The contract of problems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from superarm.core import Decision, Feedback, Offer, Problem, Rng
from superarm.core.errors import InputError
from superarm.models import World
from superarm.policies import random

from .helpers import frozen, generator, raises


class ProblemContract(ABC):
    """The promises of every problem.

    Override :meth:`choose` for a problem without a ``model`` whose oracle finds super arms.
    """

    steps = (1, 2, 3, 1023, 1024)
    # Whether a round may beat ``best``, because movement connects it with other rounds.
    connected = False

    @abstractmethod
    def make_problem(self, seed: int) -> Problem:
        """The problem to test.

        Args:
            seed: Its seed.
        """

    def choose(self, problem: Problem, offer: Offer, rng: Rng) -> Decision:
        """Any feasible super arm, drawn at random.

        Args:
            problem: The problem.
            offer: The offer of a round.
            rng: The generator to draw from.
        """
        assert isinstance(problem, World), "override choose(): the problem has no model"
        return random(problem.model).decide(offer, rng)

    def test_offers_depend_on_seed_and_step_alone(self) -> None:
        problem = self.make_problem(3)
        expected_offers = {step: problem.offer(step) for step in self.steps}
        same_problem = self.make_problem(3)
        for step in [*reversed(self.steps), 2]:
            offer = same_problem.offer(step)
            expected = expected_offers[step]
            assert offer.step == step
            assert offer.time == expected.time
            assert offer.arms.ids == expected.arms.ids
            np.testing.assert_array_equal(offer.arms.features, expected.arms.features)
            np.testing.assert_array_equal(offer.available, expected.available)

    def test_rounds_count_from_one(self) -> None:
        for step in (0, -1):
            with raises(InputError, f"step {step}"):
                self.make_problem(3).offer(step)

    def test_noise_is_drawn_for_every_arm(self) -> None:
        problem = self.make_problem(3)
        offer = problem.offer(1)
        noise = problem.noise(offer, generator(7))
        assert noise.shape == (len(offer.arms),)
        assert np.isfinite(noise).all()
        np.testing.assert_array_equal(noise, problem.noise(offer, generator(7)))

    def test_a_reward_uses_its_own_arms_noise(self) -> None:
        problem = self.make_problem(3)
        rng = generator(1)
        for step in self.steps[:3]:
            offer = problem.offer(step)
            noise = frozen(problem.noise(offer, generator(step)))
            decision = self.choose(problem, offer, rng)
            feedback = problem.feedback(offer, decision, noise)
            assert set(feedback.positions.tolist()) <= set(decision.positions.tolist())

            # The order of the arms does not matter.
            reordered = replace(decision, positions=decision.positions[::-1])
            _assert_same_rewards(problem.feedback(offer, reordered, noise), feedback)

            # Nor does the noise of other arms.
            other_noise = generator(99).standard_normal(len(noise))
            other_noise[decision.positions] = noise[decision.positions]
            _assert_same_rewards(
                problem.feedback(offer, decision, other_noise), feedback
            )

    def test_nothing_beats_the_best(self) -> None:
        problem = self.make_problem(3)
        rng = generator(2)
        assert problem.direction in ("maximize", "minimize")
        sign = 1.0 if problem.direction == "maximize" else -1.0
        for step in self.steps[:3]:
            offer = problem.offer(step)
            best = problem.best(offer)
            is_optimum = best.guarantee.alpha == 1.0 or best.optimum is not None
            limit = best.value if best.optimum is None else best.optimum
            for _ in range(20):
                decision = self.choose(problem, offer, rng)
                value = problem.value(offer, decision)
                assert isinstance(value, float)
                if is_optimum and not self.connected:
                    assert sign * (limit - value) >= 0.0, (
                        f"value {value} beats the best, {limit}"
                    )
                assert value == problem.value(offer, decision), (
                    "value() must be noiseless"
                )

    def test_metrics_are_finite_numbers(self) -> None:
        problem = self.make_problem(3)
        offer = problem.offer(1)
        decision = self.choose(problem, offer, generator())
        noise = problem.noise(offer, generator())
        feedback = problem.feedback(offer, decision, noise)
        metrics = problem.metrics(offer, decision, feedback)
        for name, number in metrics.items():
            assert isinstance(name, str)
            assert np.isfinite(number)


def _assert_same_rewards(actual: Feedback, expected: Feedback) -> None:
    """Assert that each arm has its expected reward, whatever the order."""
    rewards = dict(zip(actual.positions.tolist(), actual.rewards.tolist(), strict=True))
    in_order = [rewards[arm] for arm in expected.positions.tolist()]
    assert in_order == expected.rewards.tolist()
