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
    """What every policy promises.

    ``make_offer`` must offer more arms than are chosen. Set ``learns = False`` for a policy
    that ignores feedback.
    """

    learns = True

    @abstractmethod
    def make_policy(self) -> Policy: ...

    @abstractmethod
    def make_offer(self, step: int) -> Offer: ...

    def _feedback(self, decision: Decision, part: slice = slice(None)) -> Feedback:
        positions = decision.positions[part]
        rewards = generator(decision.step).standard_normal(len(positions))
        return Feedback(positions=positions, rewards=rewards)

    def _play(self, policy: Policy, step: int) -> tuple[Offer, Decision]:
        offer = self.make_offer(step)
        decision = policy.decide(offer, generator(step))
        policy.commit(decision)
        return offer, decision

    def _trained(self, rounds: int = 4) -> Policy:
        policy = self.make_policy()
        for step in range(1, rounds + 1):
            offer, decision = self._play(policy, step)
            policy.learn(offer, decision, self._feedback(decision), generator(step))
        return policy

    def _assert_alike(self, ours: Policy, theirs: Policy, what: str) -> None:
        one, other = (
            each.decide(self.make_offer(9), generator()) for each in (ours, theirs)
        )
        np.testing.assert_array_equal(
            other.positions, one.positions, f"{what}: it decides otherwise"
        )
        if one.mean is not None and other.mean is not None:
            assert_close(other.mean, one.mean, 1e-7, f"{what}: it believes otherwise")

    # --- deciding --------------------------------------------------------------------------

    def test_deciding_changes_nothing(self) -> None:
        policy = self._trained()
        assert isinstance(policy, Policy)
        with unchanged(policy, "decide()"):
            first = policy.decide(self.make_offer(5), generator(5))
            policy.decide(self.make_offer(6), generator(6))
            again = policy.decide(self.make_offer(5), generator(5))
        np.testing.assert_array_equal(first.positions, again.positions)
        assert first.version == again.version

    def test_the_deterministic_flag_is_true(self) -> None:
        for policy in (self.make_policy(), self._trained()):
            offer, rng = self.make_offer(5), generator()
            first = policy.decide(offer, rng)
            if policy.deterministic:
                assert untouched(rng), (
                    "a deterministic policy must leave its generator alone"
                )
                other = policy.decide(offer, generator(1))
                np.testing.assert_array_equal(first.positions, other.positions)

    def test_chosen_arms_are_on_offer_and_named_once(self) -> None:
        for policy in (self.make_policy(), self._trained()):
            for step in range(5, 10):
                offer = self.make_offer(step)
                decision = policy.decide(offer, generator(step))
                positions = decision.positions
                assert decision.step == step
                assert ((positions >= 0) & (positions < len(offer.arms))).all()
                assert len(np.unique(positions)) == len(positions)
                for part in (decision.mean, decision.std, decision.desirability):
                    assert part is None or (
                        part.shape == positions.shape and np.isfinite(part).all()
                    )

    def test_arms_that_are_not_available_are_left_alone(self) -> None:
        policy, offer = self._trained(), self.make_offer(5)
        if offer.available is not None:
            return
        chosen = policy.decide(offer, generator(5)).positions
        available = np.ones(len(offer.arms), dtype=np.bool_)
        available[chosen[0]] = False
        try:
            decision = policy.decide(replace(offer, available=available), generator(5))
        except InfeasibleError:
            return  # a structure may have no way around that arm
        assert available[decision.positions].all(), (
            "an arm that is not available was chosen"
        )

    def test_what_is_carried_counts_once_it_is_committed(self) -> None:
        policy = self._trained()
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
        """Arrays of decisions, taken or not, and of states are copies, or cannot be written to."""
        policy = self._trained()
        offer, decision = self._play(policy, 5)
        twin = replace(decision)
        before = state_to_bytes(policy.state())
        scribble(policy.decide(self.make_offer(6), generator(6)))
        scribble(decision)
        scribble(policy.state())
        assert state_to_bytes(policy.state()) == before, (
            "what was handed out changes the policy"
        )
        np.testing.assert_array_equal(decision.positions, twin.positions)
        policy.learn(offer, decision, self._feedback(decision), generator(5))

    def test_copies_go_their_own_way(self) -> None:
        policy = self._trained()
        for step, (what, again) in enumerate(copies_of(policy), start=5):
            assert state_to_bytes(again.state()) == state_to_bytes(policy.state()), what
            for one, other in ((again, policy), (policy, again)):
                with unchanged(other, f"teaching beside {what}"):
                    offer, decision = self._play(one, step)
                    one.learn(
                        offer, decision, self._feedback(decision), generator(step)
                    )

    # --- learning --------------------------------------------------------------------------

    def test_feedback_may_be_partial_empty_and_late(self) -> None:
        policy = self._trained()
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
            early_offer, early = offer, decision
            offer, decision = self._play(policy, 7)
            policy.learn(offer, decision, self._feedback(decision), generator(7))
            with refused(policy, ConflictError, "feedback of an earlier decision"):
                policy.learn(
                    early_offer,
                    early,
                    self._feedback(early, slice(1, None)),
                    generator(6),
                )
        self._play(policy, 8)

    def test_feedback_may_come_in_any_order_if_it_says_so(self) -> None:
        late, prompt = self._trained(), self._trained()
        if not late.exchangeable:
            return  # it refuses what comes out of order: see above
        played = []
        for step in range(5, 9):
            offer, decision = self._play(prompt, step)
            late.commit(decision)
            played.append((offer, decision, self._feedback(decision)))
        for offer, decision, feedback in played:
            prompt.learn(offer, decision, feedback, generator())
        for at in generator(3).permutation(len(played)).tolist():
            offer, decision, feedback = played[at]
            late.learn(offer, decision, feedback, generator())
        ours, theirs = (
            each.decide(self.make_offer(9), generator()) for each in (prompt, late)
        )
        chosen = np.array_equal(ours.positions, theirs.positions)  # draws may differ
        if chosen and ours.mean is not None and theirs.mean is not None:
            assert_close(theirs.mean, ours.mean, 1e-7, "another order of feedback")

    def test_senseless_feedback_is_refused_and_changes_nothing(self) -> None:
        if not self.learns:
            return
        policy: Any = self._trained()
        offer, decision = self._play(policy, 5)
        other_offer, other = self._play(policy, 6)
        first, given, n = (
            decision.positions[:1],
            self._feedback(decision),
            len(offer.arms),
        )
        strange = np.setdiff1d(np.arange(n), decision.positions)[:1]
        numbers: dict[str, tuple[Any, Any, Any]] = {
            "a NaN reward": (first, np.array([np.nan]), None),
            "an infinite reward": (first, np.array([np.inf]), None),
            "two rewards for one arm": (first, np.zeros(2), None),
            "a position beyond the offer": (np.array([n]), np.zeros(1), None),
            "a negative position": (np.array([-1]), np.zeros(1), None),
            "an arm that was never chosen": (strange, np.zeros(1), None),
            "zero noise": (first, np.zeros(1), np.zeros(1)),
            "NaN noise": (first, np.zeros(1), np.array([np.nan])),
        }
        for what, (positions, rewards, noise) in numbers.items():
            with refused(
                policy, InputError, what
            ):  # when it is made, or when it is learned from
                feedback = Feedback(
                    positions=positions, rewards=rewards, noise_variance=noise
                )
                policy.learn(offer, decision, feedback, generator())
        records: dict[str, tuple[Any, Any, Any]] = {
            "another offer's decision": (offer, other, self._feedback(other)),
            "another decision's offer": (other_offer, decision, given),
            "no decision": (offer, None, given),
            "no feedback": (offer, decision, None),
        }
        for what, arguments in records.items():
            with refused(policy, InputError, what):
                policy.learn(*arguments, generator())
        self._play(policy, 7)

    def test_every_reward_is_learned_once(self) -> None:
        if not self.learns:
            return
        policy = self._trained()
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
        policy = self._trained()
        again = self.make_policy().restored(restored(policy.state()))
        self._assert_alike(policy, again, "restored")
        assert state_to_bytes(again.state()) == state_to_bytes(policy.state())

    def test_a_policy_that_has_a_spec_is_data(self) -> None:
        policy = self.make_policy()
        try:
            spec = json.loads(json.dumps(to_json(spec_of(policy)), allow_nan=False))
        except SpecError:
            return  # some part of it has none
        again: Policy = build("policy", from_json(spec))
        for step in range(1, 4):
            for each in (policy, again):
                offer, decision = self._play(each, step)
                each.learn(offer, decision, self._feedback(decision), generator(step))
            self._assert_alike(policy, again, "built from its spec")
