"""The contract of policies."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Feedback, Offer, Policy, State
from superarm.core.errors import ConflictError, InfeasibleError, InputError, SpecError
from superarm.core.registry import build, spec_of
from superarm.core.serialization import from_json, to_json

from .helpers import (
    assert_close,
    assert_equal,
    assert_finite,
    copies_of,
    generator,
    raises,
    refused,
    restored,
    scribble,
    state_bytes,
    unchanged,
    untouched,
)


class Round(NamedTuple):
    """A round that was played."""

    offer: Offer
    decision: Decision
    feedback: Feedback  # on every arm chosen


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

    def _decide(self, policy: Policy, step: int) -> Decision:
        offer = self.make_offer(step)
        return policy.decide(offer, generator(step))

    def _play(self, policy: Policy, step: int) -> Round:
        offer = self.make_offer(step)
        decision = policy.decide(offer, generator(step))
        policy.commit(decision)
        feedback = self._feedback(decision)
        return Round(offer, decision, feedback)

    def _learn(self, policy: Policy, played: Round, part: slice = slice(None)) -> None:
        """Learn from a part of a round's feedback."""
        decision = played.decision
        feedback = self._feedback(decision, part)
        rng = generator(decision.step)
        policy.learn(played.offer, decision, feedback, rng)

    def _play_and_learn(self, policy: Policy, step: int) -> None:
        played = self._play(policy, step)
        self._learn(policy, played)

    def _trained_policy(self, rounds: int = 4) -> Policy:
        policy = self.make_policy()
        for step in range(1, rounds + 1):
            self._play_and_learn(policy, step)
        return policy

    def _new_and_trained(self) -> Iterator[Policy]:
        yield self.make_policy()
        yield self._trained_policy()

    def _next_decision(self, policy: Policy) -> Decision:
        offer = self.make_offer(9)
        return policy.decide(offer, generator())

    def _resumed(self, policy: Policy) -> Policy:
        """A policy restored from the bytes of another's state."""
        state = restored(policy.state())
        return self.make_policy().restored(state)

    def _assert_alike(self, policy: Policy, other: Policy, what: str) -> None:
        expected = self._next_decision(policy)
        actual = self._next_decision(other)
        otherwise = f"{what}: it decides otherwise"
        assert_equal(actual.positions, expected.positions, otherwise)
        _assert_same_means(actual, expected, f"{what}: it believes otherwise")

    # --- deciding --------------------------------------------------------------------------

    def test_deciding_changes_nothing(self) -> None:
        policy = self._trained_policy()
        assert isinstance(policy, Policy)
        with unchanged(policy, "decide()"):
            first = self._decide(policy, 5)
            self._decide(policy, 6)
            repeated = self._decide(policy, 5)
        assert_equal(first.positions, repeated.positions)
        assert first.version == repeated.version

    def test_the_deterministic_flag_is_true(self) -> None:
        message = "a deterministic policy must leave its generator alone"
        for policy in self._new_and_trained():
            if not policy.deterministic:
                continue
            offer = self.make_offer(5)
            rng = generator()
            first = policy.decide(offer, rng)
            assert untouched(rng), message
            other = policy.decide(offer, generator(1))
            assert_equal(first.positions, other.positions)

    def test_chosen_arms_are_on_offer_and_named_once(self) -> None:
        for policy in self._new_and_trained():
            for step in range(5, 10):
                offer = self.make_offer(step)
                decision = policy.decide(offer, generator(step))
                assert decision.step == step
                self._check_decision(decision, len(offer.arms))

    def _check_decision(self, decision: Decision, n: int) -> None:
        positions = decision.positions
        on_offer = (positions >= 0) & (positions < n)
        assert on_offer.all()
        different = np.unique(positions)
        assert len(different) == len(positions)
        columns = (decision.mean, decision.std, decision.desirability)
        for numbers in columns:
            if numbers is None:
                continue
            assert numbers.shape == positions.shape
            assert_finite(numbers)

    def test_arms_that_are_not_available_are_left_alone(self) -> None:
        policy = self._trained_policy()
        offer = self.make_offer(5)
        if offer.available is not None:
            return
        first = policy.decide(offer, generator(5))
        barred = first.positions[0]
        available = np.ones(len(offer.arms), dtype=np.bool_)
        available[barred] = False
        fewer = replace(offer, available=available)
        try:
            decision = policy.decide(fewer, generator(5))
        except InfeasibleError:
            return  # a structure may have no way around that arm
        allowed = available[decision.positions]
        assert allowed.all(), "an arm that is not available was chosen"

    def test_what_is_carried_counts_once_it_is_committed(self) -> None:
        policy = self._trained_policy()
        before = state_bytes(policy)
        decision = self._decide(policy, 5)
        carry = decision.carry
        if carry is None:
            return
        assert isinstance(carry, State), "what is carried must be a State"
        other = self._resumed(policy)
        policy.commit(decision)
        after = state_bytes(policy)
        assert after != before, "commit() must adopt what is carried"

        same_decision = replace(decision, carry=restored(carry))
        other.commit(same_decision)
        assert state_bytes(other) == after

    def test_what_it_hands_out_cannot_change_it(self) -> None:
        """Arrays of decisions, taken or not, and of states are copies or read-only."""
        policy = self._trained_policy()
        played = self._play(policy, 5)
        decision = played.decision
        duplicate = replace(decision)
        before = state_bytes(policy)
        not_taken = self._decide(policy, 6)
        scribble(not_taken)
        scribble(decision)
        state = policy.state()
        scribble(state)
        after = state_bytes(policy)
        assert after == before, "what was handed out changes the policy"
        assert_equal(decision.positions, duplicate.positions)
        self._learn(policy, played)

    def test_copies_go_their_own_way(self) -> None:
        policy = self._trained_policy()
        for step, (name, duplicate) in enumerate(copies_of(policy), start=5):
            expected = state_bytes(policy)
            actual = state_bytes(duplicate)
            assert actual == expected, name
            what = f"teaching beside {name}"
            with unchanged(policy, what):
                self._play_and_learn(duplicate, step)
            with unchanged(duplicate, what):
                self._play_and_learn(policy, step)

    # --- learning --------------------------------------------------------------------------

    def test_feedback_may_be_partial_empty_and_late(self) -> None:
        first_arm = slice(1)
        no_arm = slice(0)
        other_arms = slice(1, None)
        policy = self._trained_policy()
        early = self._play(policy, 5)
        played = self._play(policy, 6)
        if policy.exchangeable:
            self._learn(policy, played, first_arm)
            self._learn(policy, played, no_arm)
            self._check_late(policy, early)
        else:
            self._check_late(policy, early)
            self._learn(policy, played, first_arm)
            self._learn(policy, played, no_arm)
            self._play_and_learn(policy, 7)
            with refused(policy, ConflictError, "feedback of an earlier decision"):
                self._learn(policy, played, other_arms)
        self._play(policy, 8)

    def _check_late(self, policy: Policy, played: Round) -> None:
        """Learn from a round before the last, whose noise is known."""
        offer, decision, feedback = played
        count = len(decision.positions)
        noise_variance = np.full(count, 0.5)
        late = replace(feedback, noise_variance=noise_variance)
        before = state_bytes(policy)
        policy.learn(offer, decision, late, generator(5))
        after = state_bytes(policy)
        changed = after != before
        assert changed == self.learns

    def test_feedback_may_come_in_any_order_if_it_says_so(self) -> None:
        late = self._trained_policy()
        prompt = self._trained_policy()
        if not late.exchangeable:
            return  # it refuses what comes out of order: see above
        rounds = []
        for step in range(5, 9):
            played = self._play(prompt, step)
            late.commit(played.decision)
            rounds.append(played)
        for played in rounds:
            prompt.learn(*played, generator())
        order = generator(3).permutation(len(rounds))
        for index in order.tolist():
            offer, decision, feedback = rounds[index]
            late.learn(offer, decision, feedback, generator())

        expected = self._next_decision(prompt)
        actual = self._next_decision(late)
        # A policy that draws may choose differently.
        if np.array_equal(expected.positions, actual.positions):
            _assert_same_means(actual, expected, "another order of feedback")

    def test_senseless_feedback_is_refused_and_changes_nothing(self) -> None:
        if not self.learns:
            return
        policy = self._trained_policy()
        played = self._play(policy, 5)
        other = self._play(policy, 6)
        self._check_senseless_numbers(policy, played)
        self._check_senseless_records(policy, played, other)
        self._play(policy, 7)

    def _check_senseless_numbers(self, policy: Policy, played: Round) -> None:
        offer, decision, _ = played
        chosen = decision.positions
        n = len(offer.arms)
        first = chosen[:1]
        others = np.setdiff1d(np.arange(n), chosen)
        not_chosen = others[:1]
        beyond = np.array([n])
        negative = np.array([-1])

        def refuse(what: str, positions: Any, rewards: Any, noise: Any = None) -> None:
            # Refused when it is created, or when it is learned from.
            with refused(policy, InputError, what):
                senseless = Feedback(
                    positions=positions,
                    rewards=rewards,
                    noise_variance=noise,
                )
                policy.learn(offer, decision, senseless, generator())

        zero = np.zeros(1)
        nan = np.array([np.nan])
        infinite = np.array([np.inf])
        refuse("a NaN reward", first, nan)
        refuse("an infinite reward", first, infinite)
        refuse("two rewards for one arm", first, np.zeros(2))
        refuse("a position beyond the offer", beyond, zero)
        refuse("a negative position", negative, zero)
        refuse("an arm that was never chosen", not_chosen, zero)
        refuse("zero noise", first, zero, noise=zero)
        refuse("NaN noise", first, zero, noise=nan)

    def _check_senseless_records(
        self,
        policy: Any,
        played: Round,
        other: Round,
    ) -> None:
        offer, decision, feedback = played
        rng = generator()
        with refused(policy, InputError, "another offer's decision"):
            policy.learn(offer, other.decision, other.feedback, rng)
        with refused(policy, InputError, "another decision's offer"):
            policy.learn(other.offer, decision, feedback, rng)
        with refused(policy, InputError, "no decision"):
            policy.learn(offer, None, feedback, rng)
        with refused(policy, InputError, "no feedback"):
            policy.learn(offer, decision, None, rng)

    def test_every_reward_is_learned_once(self) -> None:
        if not self.learns:
            return
        first_arm = slice(1)
        other_arms = slice(1, None)
        policy = self._trained_policy()
        played = self._play(policy, 5)
        self._learn(policy, played, first_arm)
        with refused(policy, ConflictError, "a reward learned twice"):
            self._learn(policy, played, first_arm)
        with refused(policy, ConflictError, "a reward learned twice, with others"):
            self._learn(policy, played)
        self._learn(policy, played, other_arms)
        with raises(ConflictError, "a reward learned twice after all were seen"):
            self._learn(policy, played)

    # --- state -----------------------------------------------------------------------------

    def test_it_can_be_restored_from_bytes(self) -> None:
        policy = self._trained_policy()
        resumed = self._resumed(policy)
        self._assert_alike(policy, resumed, "restored")
        assert state_bytes(resumed) == state_bytes(policy)

    def test_a_policy_that_has_a_spec_is_data(self) -> None:
        policy = self.make_policy()
        try:
            spec = spec_of(policy)
            plain = to_json(spec)
        except SpecError:
            return  # some part of it has no spec
        text = json.dumps(plain, allow_nan=False)
        parsed = json.loads(text)
        spec = from_json(parsed)
        rebuilt: Policy = build("policy", spec)
        for step in range(1, 4):
            self._play_and_learn(policy, step)
            self._play_and_learn(rebuilt, step)
            self._assert_alike(policy, rebuilt, "built from its spec")


def _assert_same_means(actual: Decision, expected: Decision, what: str) -> None:
    if actual.mean is None or expected.mean is None:
        return
    assert_close(actual.mean, expected.mean, 1e-7, what)
