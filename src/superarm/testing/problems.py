"""The contract of problems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from superarm.core import Decision, Feedback, Offer, Problem, Rng
from superarm.core.errors import InputError
from superarm.models import World
from superarm.policies import random

from .helpers import assert_equal, assert_finite, frozen, generator, raises


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
        policy = random(problem.model)
        return policy.decide(offer, rng)

    def test_offers_depend_on_seed_and_step_alone(self) -> None:
        problem = self.make_problem(3)
        expected_offers = {step: problem.offer(step) for step in self.steps}
        same_problem = self.make_problem(3)
        other_order = [*reversed(self.steps), 2]
        for step in other_order:
            offer = same_problem.offer(step)
            expected = expected_offers[step]
            arms = offer.arms
            expected_arms = expected.arms
            assert offer.step == step
            assert offer.time == expected.time
            assert arms.ids == expected_arms.ids
            assert_equal(arms.features, expected_arms.features)
            # No mask at all means that every arm is available.
            np.testing.assert_array_equal(offer.available, expected.available)

    def test_rounds_count_from_one(self) -> None:
        problem = self.make_problem(3)
        for step in (0, -1):
            with raises(InputError, f"step {step}"):
                problem.offer(step)

    def test_noise_is_drawn_for_every_arm(self) -> None:
        problem = self.make_problem(3)
        offer = problem.offer(1)
        noise = problem.noise(offer, generator(7))
        n = len(offer.arms)
        assert noise.shape == (n,)
        assert_finite(noise)
        repeated = problem.noise(offer, generator(7))
        assert_equal(noise, repeated)

    def test_a_reward_uses_its_own_arms_noise(self) -> None:
        problem = self.make_problem(3)
        rng = generator(1)
        for step in self.steps[:3]:
            offer = problem.offer(step)
            drawn = problem.noise(offer, generator(step))
            noise = frozen(drawn)
            decision = self.choose(problem, offer, rng)
            chosen = decision.positions
            feedback = problem.feedback(offer, decision, noise)
            observed = set(feedback.positions.tolist())
            possible = set(chosen.tolist())
            assert observed <= possible

            # The order of the arms does not matter.
            reordered = replace(decision, positions=chosen[::-1])
            same_feedback = problem.feedback(offer, reordered, noise)
            _assert_same_rewards(same_feedback, feedback)

            # Nor does the noise of other arms.
            other_rng = generator(99)
            other_noise = other_rng.standard_normal(len(noise))
            other_noise[chosen] = noise[chosen]
            same_feedback = problem.feedback(offer, decision, other_noise)
            _assert_same_rewards(same_feedback, feedback)

    def test_nothing_beats_the_best(self) -> None:
        problem = self.make_problem(3)
        rng = generator(2)
        assert problem.direction in ("maximize", "minimize")
        sign = 1.0 if problem.direction == "maximize" else -1.0
        for step in self.steps[:3]:
            offer = problem.offer(step)
            best = problem.best(offer)
            limit = best.optimum
            if limit is None:
                limit = best.value
            is_optimum = best.optimum is not None or best.guarantee.alpha == 1.0
            for _ in range(20):
                decision = self.choose(problem, offer, rng)
                value = problem.value(offer, decision)
                assert isinstance(value, float)
                repeated = problem.value(offer, decision)
                assert value == repeated, "value() must be noiseless"
                if not is_optimum or self.connected:
                    continue
                regret = sign * (limit - value)
                assert regret >= 0.0, f"value {value} beats the best, {limit}"

    def test_metrics_are_finite_numbers(self) -> None:
        problem = self.make_problem(3)
        offer = problem.offer(1)
        decision = self.choose(problem, offer, generator())
        noise = problem.noise(offer, generator())
        feedback = problem.feedback(offer, decision, noise)
        metrics = problem.metrics(offer, decision, feedback)
        for name, number in metrics.items():
            assert isinstance(name, str)
            assert_finite(number)


def _assert_same_rewards(actual: Feedback, expected: Feedback) -> None:
    """Assert that each arm has its expected reward, whatever the order."""
    rewards = _rewards_by_arm(actual)
    expected_rewards = _rewards_by_arm(expected)
    for arm, reward in expected_rewards.items():
        assert rewards[arm] == reward


def _rewards_by_arm(feedback: Feedback) -> dict[int, float]:
    arms = feedback.positions.tolist()
    rewards = feedback.rewards.tolist()
    return dict(zip(arms, rewards, strict=True))
