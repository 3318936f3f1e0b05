"""The contract of problems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from superarm.core import Decision, Offer, Problem, Rng
from superarm.core.errors import InputError
from superarm.models import World
from superarm.policies import random

from .helpers import frozen, generator, raises


class ProblemContract(ABC):
    """What every problem promises.

    Override :meth:`choose` for a problem without a ``model`` whose oracle finds super arms.
    """

    steps = (1, 2, 3, 1023, 1024)
    connected = False  # whether a round may beat ``best``, because rounds hang together by movement

    @abstractmethod
    def make_problem(self, seed: int) -> Problem: ...

    def choose(self, problem: Problem, offer: Offer, rng: Rng) -> Decision:
        """Any feasible super arm, another one each time."""
        assert isinstance(problem, World), "override choose(): the problem has no model"
        return random(problem.model).decide(offer, rng)

    def test_offers_depend_on_seed_and_step_alone(self) -> None:
        first, again = self.make_problem(3), self.make_problem(3)
        forward = {step: first.offer(step) for step in self.steps}
        for step in [*reversed(self.steps), 2]:
            offer, known = again.offer(step), forward[step]
            assert offer.step == step
            assert offer.time == known.time
            assert offer.arms.ids == known.arms.ids
            np.testing.assert_array_equal(offer.arms.features, known.arms.features)
            np.testing.assert_array_equal(offer.available, known.available)

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
        problem, rng = self.make_problem(3), generator(1)
        for step in self.steps[:3]:
            offer = problem.offer(step)
            noise = frozen(problem.noise(offer, generator(step)))
            decision = self.choose(problem, offer, rng)
            seen = problem.feedback(offer, decision, noise)
            assert set(seen.positions.tolist()) <= set(decision.positions.tolist())
            turned = replace(decision, positions=decision.positions[::-1])
            elsewhere = generator(99).standard_normal(len(noise))
            elsewhere[decision.positions] = noise[decision.positions]
            for given in ((turned, noise), (decision, elsewhere)):
                again = problem.feedback(offer, *given)
                rewards = dict(
                    zip(again.positions.tolist(), again.rewards.tolist(), strict=True)
                )
                assert [
                    rewards[arm] for arm in seen.positions.tolist()
                ] == seen.rewards.tolist()

    def test_nothing_beats_the_best(self) -> None:
        problem, rng = self.make_problem(3), generator(2)
        assert problem.direction in ("maximize", "minimize")
        sign = 1.0 if problem.direction == "maximize" else -1.0
        for step in self.steps[:3]:
            offer = problem.offer(step)
            best = problem.best(offer)
            limit = best.value if best.optimum is None else best.optimum
            exact = not self.connected and (
                best.guarantee.alpha == 1.0 or best.optimum is not None
            )
            for _ in range(20):
                decision = self.choose(problem, offer, rng)
                value = problem.value(offer, decision)
                assert isinstance(value, float)
                if exact:
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
        seen = problem.feedback(offer, decision, problem.noise(offer, generator()))
        for name, number in problem.metrics(offer, decision, seen).items():
            assert isinstance(name, str)
            assert np.isfinite(number)
