"""The contract of policies."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from superarm.core import Decision, Feedback, Offer, Policy, State
from superarm.core.errors import ConflictError, InfeasibleError, InputError, SpecError
from superarm.core.registry import build, spec_of
from superarm.core.serialization import from_json, to_json
from superarm.core.states import state_to_bytes

from .helpers import (
    assert_close,
    copies_of,
    generator,
    raises,
    refused,
    restored,
    scribble,
    unchanged,
    untouched,
)


class PolicyContract(ABC):
    """The promises of every policy."""

    learns = True  # false for a policy that ignores feedback

    @abstractmethod
    def make_policy(self) -> Policy:
        """The policy to test."""

    @abstractmethod
    def make_offer(self, step: int) -> Offer:
        """An offer of more arms than the policy chooses.

        Args:
            step: The round, from 1.
        """

    def _feedback(self, decision: Decision, part: slice = slice(None)) -> Feedback:
        positions = decision.positions[part]
        rewards = generator(decision.step).standard_normal(len(positions))
        return Feedback(positions=positions, rewards=rewards)

    def _play(self, policy: Policy, step: int) -> tuple[Offer, Decision]:
        offer = self.make_offer(step)
        decision = policy.decide(offer, generator(step))
        policy.commit(decision)
        return offer, decision

    def _play_and_learn(self, policy: Policy, step: int) -> None:
        offer, decision = self._play(policy, step)
        policy.learn(offer, decision, self._feedback(decision), generator(step))

    def _trained_policy(self, rounds: int = 4) -> Policy:
        policy = self.make_policy()
        for step in range(1, rounds + 1):
            self._play_and_learn(policy, step)
        return policy

    def _next_decision(self, policy: Policy) -> Decision:
        return policy.decide(self.make_offer(9), generator())

    def _assert_alike(self, policy: Policy, other: Policy, what: str) -> None:
        expected = self._next_decision(policy)
        actual = self._next_decision(other)
        np.testing.assert_array_equal(
            actual.positions, expected.positions, f"{what}: it decides otherwise"
        )
        _assert_same_means(actual, expected, f"{what}: it believes otherwise")

    # --- deciding --------------------------------------------------------------------------

    def test_deciding_changes_nothing(self) -> None:
        policy = self._trained_policy()
        assert isinstance(policy, Policy)
        with unchanged(policy, "decide()"):
            first = policy.decide(self.make_offer(5), generator(5))
            policy.decide(self.make_offer(6), generator(6))
            repeated = policy.decide(self.make_offer(5), generator(5))
        np.testing.assert_array_equal(first.positions, repeated.positions)
        assert first.version == repeated.version

    def test_the_deterministic_flag_is_true(self) -> None:
        for policy in (self.make_policy(), self._trained_policy()):
            if not policy.deterministic:
                continue
            offer = self.make_offer(5)
            rng = generator()
            first = policy.decide(offer, rng)
            assert untouched(rng), (
                "a deterministic policy must leave its generator alone"
            )
            other = policy.decide(offer, generator(1))
            np.testing.assert_array_equal(first.positions, other.positions)

    def test_chosen_arms_are_on_offer_and_named_once(self) -> None:
        for policy in (self.make_policy(), self._trained_policy()):
            for step in range(5, 10):
                offer = self.make_offer(step)
                decision = policy.decide(offer, generator(step))
                assert decision.step == step
                self._check_decision(decision, len(offer.arms))

    def _check_decision(self, decision: Decision, n: int) -> None:
        positions = decision.positions
        assert ((positions >= 0) & (positions < n)).all()
        assert len(np.unique(positions)) == len(positions)
        for numbers in (decision.mean, decision.std, decision.desirability):
            if numbers is not None:
                assert numbers.shape == positions.shape
                assert np.isfinite(numbers).all()

    def test_arms_that_are_not_available_are_left_alone(self) -> None:
        policy = self._trained_policy()
        offer = self.make_offer(5)
        if offer.available is not None:
            return
        chosen = policy.decide(offer, generator(5)).positions
        available = np.ones(len(offer.arms), dtype=np.bool_)
        available[chosen[0]] = False
        fewer = replace(offer, available=available)
        try:
            decision = policy.decide(fewer, generator(5))
        except InfeasibleError:
            return  # a structure may have no way around that arm
        assert available[decision.positions].all(), (
            "an arm that is not available was chosen"
        )

    def test_what_is_carried_counts_once_it_is_committed(self) -> None:
        policy = self._trained_policy()
        before = state_to_bytes(policy.state())
        decision = policy.decide(self.make_offer(5), generator(5))
        if decision.carry is None:
            return
        assert isinstance(decision.carry, State), "what is carried must be a State"
        other = self.make_policy().restored(restored(policy.state()))
        policy.commit(decision)
        other.commit(replace(decision, carry=restored(decision.carry)))
        assert state_to_bytes(policy.state()) != before, (
            "commit() must adopt what is carried"
        )
        assert state_to_bytes(other.state()) == state_to_bytes(policy.state())

    def test_what_it_hands_out_cannot_change_it(self) -> None:
        """Arrays of decisions, taken or not, and of states are copies or read-only."""
        policy = self._trained_policy()
        offer, decision = self._play(policy, 5)
        duplicate = replace(decision)
        before = state_to_bytes(policy.state())
        scribble(policy.decide(self.make_offer(6), generator(6)))
        scribble(decision)
        scribble(policy.state())
        assert state_to_bytes(policy.state()) == before, (
            "what was handed out changes the policy"
        )
        np.testing.assert_array_equal(decision.positions, duplicate.positions)
        policy.learn(offer, decision, self._feedback(decision), generator(5))

    def test_copies_go_their_own_way(self) -> None:
        policy = self._trained_policy()
        for step, (what, duplicate) in enumerate(copies_of(policy), start=5):
            original_bytes = state_to_bytes(policy.state())
            assert state_to_bytes(duplicate.state()) == original_bytes, what
            with unchanged(policy, f"teaching beside {what}"):
                self._play_and_learn(duplicate, step)
            with unchanged(duplicate, f"teaching beside {what}"):
                self._play_and_learn(policy, step)

    # --- learning --------------------------------------------------------------------------

    def test_feedback_may_be_partial_empty_and_late(self) -> None:
        policy = self._trained_policy()
        early_offer, early = self._play(policy, 5)
        offer, decision = self._play(policy, 6)
        late = replace(
            self._feedback(early), noise_variance=np.full(len(early.positions), 0.5)
        )

        def learn_late() -> None:
            before = state_to_bytes(policy.state())
            policy.learn(early_offer, early, late, generator(5))
            assert (state_to_bytes(policy.state()) != before) == self.learns

        if not policy.exchangeable:
            learn_late()
        for part in (slice(1), slice(0)):
            policy.learn(offer, decision, self._feedback(decision, part), generator(6))
        if policy.exchangeable:
            learn_late()
        else:
            self._play_and_learn(policy, 7)
            remaining = self._feedback(decision, slice(1, None))
            with refused(policy, ConflictError, "feedback of an earlier decision"):
                policy.learn(offer, decision, remaining, generator(6))
        self._play(policy, 8)

    def test_feedback_may_come_in_any_order_if_it_says_so(self) -> None:
        late = self._trained_policy()
        prompt = self._trained_policy()
        if not late.exchangeable:
            return  # it refuses what comes out of order: see above
        played = []
        for step in range(5, 9):
            offer, decision = self._play(prompt, step)
            late.commit(decision)
            played.append((offer, decision, self._feedback(decision)))
        for offer, decision, feedback in played:
            prompt.learn(offer, decision, feedback, generator())
        for index in generator(3).permutation(len(played)).tolist():
            offer, decision, feedback = played[index]
            late.learn(offer, decision, feedback, generator())
        expected = self._next_decision(prompt)
        actual = self._next_decision(late)
        # A policy that draws may choose differently.
        if np.array_equal(expected.positions, actual.positions):
            _assert_same_means(actual, expected, "another order of feedback")

    def test_senseless_feedback_is_refused_and_changes_nothing(self) -> None:
        if not self.learns:
            return
        policy: Any = self._trained_policy()
        offer, decision = self._play(policy, 5)
        other_offer, other = self._play(policy, 6)
        feedback = self._feedback(decision)
        first = decision.positions[:1]
        n = len(offer.arms)
        not_chosen = np.setdiff1d(np.arange(n), decision.positions)[:1]
        # Positions, rewards and the variance of their noise.
        numbers: dict[str, tuple[Any, Any, Any]] = {
            "a NaN reward": (first, np.array([np.nan]), None),
            "an infinite reward": (first, np.array([np.inf]), None),
            "two rewards for one arm": (first, np.zeros(2), None),
            "a position beyond the offer": (np.array([n]), np.zeros(1), None),
            "a negative position": (np.array([-1]), np.zeros(1), None),
            "an arm that was never chosen": (not_chosen, np.zeros(1), None),
            "zero noise": (first, np.zeros(1), np.zeros(1)),
            "NaN noise": (first, np.zeros(1), np.array([np.nan])),
        }
        for what, (positions, rewards, noise) in numbers.items():
            # Refused when it is created, or when it is learned from.
            with refused(policy, InputError, what):
                senseless = Feedback(
                    positions=positions, rewards=rewards, noise_variance=noise
                )
                policy.learn(offer, decision, senseless, generator())
        records: dict[str, tuple[Any, Any, Any]] = {
            "another offer's decision": (offer, other, self._feedback(other)),
            "another decision's offer": (other_offer, decision, feedback),
            "no decision": (offer, None, feedback),
            "no feedback": (offer, decision, None),
        }
        for what, arguments in records.items():
            with refused(policy, InputError, what):
                policy.learn(*arguments, generator())
        self._play(policy, 7)

    def test_every_reward_is_learned_once(self) -> None:
        if not self.learns:
            return
        policy = self._trained_policy()
        offer, decision = self._play(policy, 5)
        policy.learn(offer, decision, self._feedback(decision, slice(1)), generator(5))
        for part in (slice(1), slice(None)):
            with refused(policy, ConflictError, "a reward learned twice"):
                policy.learn(
                    offer, decision, self._feedback(decision, part), generator(5)
                )
        policy.learn(
            offer, decision, self._feedback(decision, slice(1, None)), generator(5)
        )
        with raises(ConflictError, "a reward learned twice after all were seen"):
            policy.learn(offer, decision, self._feedback(decision), generator(5))

    # --- state -----------------------------------------------------------------------------

    def test_it_can_be_restored_from_bytes(self) -> None:
        policy = self._trained_policy()
        resumed = self.make_policy().restored(restored(policy.state()))
        self._assert_alike(policy, resumed, "restored")
        assert state_to_bytes(resumed.state()) == state_to_bytes(policy.state())

    def test_a_policy_that_has_a_spec_is_data(self) -> None:
        policy = self.make_policy()
        try:
            plain = to_json(spec_of(policy))
        except SpecError:
            return  # some part of it has no spec
        text = json.dumps(plain, allow_nan=False)
        spec = from_json(json.loads(text))
        rebuilt: Policy = build("policy", spec)
        for step in range(1, 4):
            self._play_and_learn(policy, step)
            self._play_and_learn(rebuilt, step)
            self._assert_alike(policy, rebuilt, "built from its spec")


def _assert_same_means(actual: Decision, expected: Decision, what: str) -> None:
    if actual.mean is not None and expected.mean is not None:
        assert_close(actual.mean, expected.mean, 1e-7, what)
