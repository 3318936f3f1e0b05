"""The ledger of feedback: learned steps as ranges, open arms, pending decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core import Arms, Decision, Feedback, Offer, State
from superarm.core.errors import ConflictError, InputError, StateError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.policies.ledger import Ledger, Steps, last_step
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.rules import UCB, Fixed

ARMS = Arms.numbered(np.linspace(0.0, 1.0, 12)[:, None])


def make_policy(k: int = 3, **options: Any) -> IndexPolicy:
    return IndexPolicy(
        posterior=StreamingGP(SquaredExponential(lengthscale=0.2), noise_variance=0.05),
        rule=UCB(schedule=Fixed(value=2.0)),
        oracle=TopK(k=k),
        **options,
    )


def taken(policy: IndexPolicy, step: int) -> tuple[Offer, Decision]:
    offer = Offer(step=step, arms=ARMS)
    decision = policy.decide(offer, np.random.default_rng(step))
    policy.commit(decision)
    return offer, decision


def feedback_of(decision: Decision, count: int | None = None) -> Feedback:
    positions = decision.positions[:count]
    return Feedback(
        positions=positions, rewards=np.sin(5.0 * ARMS.features[positions, 0])
    )


@given(st.lists(st.integers(1, 60), unique=True))
def test_steps_are_a_set(numbers: list[int]) -> None:
    steps, known = Steps(), set()
    for number in numbers:
        assert number not in steps
        steps.add(number)
        known.add(number)
    assert [number for number in range(70) if number in steps] == sorted(known)
    assert steps.last == max(known, default=0)
    starts, stops = steps.as_lists()
    runs = sum(number - 1 not in known for number in known)
    assert len(starts) == len(stops) == runs  # as few ranges as there are runs
    rebuilt = Steps.from_lists([starts, stops])
    assert [number for number in range(70) if number in rebuilt] == sorted(known)


@pytest.mark.parametrize(
    "value", [[[1], [1]], [[3, 2], [4, 3]], [[1, 2], [2, 3]], [[1.0], [2]]]
)
def test_steps_that_do_not_rise_are_refused(value: Any) -> None:
    with pytest.raises(StateError, match="do not rise"):
        Steps.from_lists(value)


def test_a_million_rounds_take_two_numbers() -> None:
    steps = Steps()
    for step in range(1, 1001):
        steps.add(step)
    steps.add(1001, 999_000)
    assert steps.as_lists() == [[1], [1_000_001]]


def test_last_step_is_exact_with_many_open_steps() -> None:
    ledger = Ledger(most_pending=0)
    part = Feedback(positions=np.array([0]), rewards=np.zeros(1))
    for step in (3, 9, 5):
        ledger.note(Decision(step=step, action=None, positions=np.arange(3)), part)
        assert ledger.last == (3 if step == 3 else 9)
    assert Ledger(most_pending=0).restored(ledger.state()).last == 9


def test_partial_feedback_does_not_accumulate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("superarm.policies.ledger._MOST_PARTIAL", 3)
    ledger, part = (
        Ledger(most_pending=0),
        Feedback(positions=np.array([0]), rewards=np.zeros(1)),
    )
    decisions = [
        Decision(step=step, action=None, positions=np.arange(2)) for step in range(1, 9)
    ]
    for decision in decisions:
        ledger.note(decision, part)
    assert [step for step, _ in ledger.state().scalars["heard"]] == [6, 7, 8]
    remaining = Feedback(positions=np.array([1]), rewards=np.zeros(1))
    ledger.check(decisions[-1], remaining)
    with pytest.raises(ConflictError):
        ledger.check(decisions[0], remaining)


def test_chosen_arms_without_feedback_are_pending() -> None:
    policy = make_policy()
    first_offer, first = taken(policy, 1)
    second_offer, second = taken(policy, 2)
    assert set(first.positions.tolist()).isdisjoint(
        second.positions.tolist()
    )  # they spread out
    expected = ARMS.features[np.concatenate([first.positions, second.positions])]
    np.testing.assert_array_equal(policy._ledger.pending(), expected)
    policy.learn(first_offer, first, feedback_of(first, 2), np.random.default_rng(0))
    expected = ARMS.features[np.concatenate([first.positions[2:], second.positions])]
    np.testing.assert_array_equal(policy._ledger.pending(), expected)
    assert policy.awaits
    remaining = Feedback(positions=first.positions[2:], rewards=np.zeros(1))
    policy.learn(first_offer, first, remaining, np.random.default_rng(0))
    policy.learn(second_offer, second, feedback_of(second), np.random.default_rng(0))
    assert not policy.awaits


def test_only_the_arms_chosen_last_are_pending() -> None:
    policy = make_policy(most_pending=4)
    chosen = np.concatenate([taken(policy, step)[1].positions for step in (1, 2, 3)])
    np.testing.assert_array_equal(policy._ledger.pending(), ARMS.features[chosen[-4:]])
    blind = make_policy(most_pending=0)
    one, two = taken(blind, 1)[1], taken(blind, 2)[1]
    np.testing.assert_array_equal(one.positions, two.positions)
    assert one.carry is None
    assert not blind.awaits


def test_learned_decision_is_not_pending() -> None:
    policy = make_policy()
    offer, decision = taken(policy, 1)
    policy.learn(offer, decision, feedback_of(decision, 1), np.random.default_rng(0))
    policy.commit(decision)  # repeated once part of it is learned
    pending = policy._ledger.pending()
    assert pending is not None
    assert len(pending) == 2
    remaining = Feedback(positions=decision.positions[1:], rewards=np.zeros(2))
    policy.learn(offer, decision, remaining, np.random.default_rng(0))
    policy.commit(decision)
    assert not policy.awaits


def test_repeats_are_learned_where_they_are_wanted() -> None:
    policy = make_policy(repeats=True)
    offer, decision = taken(policy, 1)
    for _ in range(3):
        policy.learn(offer, decision, feedback_of(decision), np.random.default_rng(0))
    policy.learn(offer, decision, feedback_of(decision, 1), np.random.default_rng(0))
    assert policy.posterior.count == 10
    assert policy.state().part("ledger").scalars["closed"] == [[1], [2]]
    assert policy.state().part("ledger").scalars["heard"] == []
    policy.restored(policy.state())
    strict = make_policy()
    offer, decision = taken(strict, 1)
    strict.learn(offer, decision, feedback_of(decision), np.random.default_rng(0))
    with pytest.raises(ConflictError, match="give every decision a step of its own"):
        strict.learn(offer, decision, feedback_of(decision), np.random.default_rng(0))
    assert strict.posterior.count == 3


def test_pending_decisions_survive_serialization() -> None:
    policy = make_policy()
    offer, decision = taken(policy, 4)
    policy.learn(offer, decision, feedback_of(decision, 1), np.random.default_rng(0))
    taken(policy, 5)
    restored = make_policy().restored(state_from_bytes(state_to_bytes(policy.state())))
    np.testing.assert_array_equal(restored._ledger.pending(), policy._ledger.pending())
    with pytest.raises(ConflictError, match="learned already"):
        restored.learn(offer, decision, feedback_of(decision), np.random.default_rng(0))
    next_offer = Offer(step=6, arms=ARMS)
    ours, theirs = (
        player.decide(next_offer, np.random.default_rng(0))
        for player in (policy, restored)
    )
    np.testing.assert_array_equal(ours.positions, theirs.positions)


@pytest.mark.parametrize("step", [3, 5])
def test_the_offer_must_be_the_one_decided_on(step: int) -> None:
    policy = make_policy()
    _, decision = taken(policy, 4)
    other = Offer(step=step, arms=ARMS)
    with pytest.raises(InputError, match=f"of step 4, the offer of step {step}"):
        policy.learn(other, decision, feedback_of(decision), np.random.default_rng(0))
    assert policy.posterior.count == 0


def test_partial_feedback_counts_as_the_last_step() -> None:
    policy = make_policy()
    offer, decision = taken(policy, 7)
    policy.learn(offer, decision, feedback_of(decision, 1), np.random.default_rng(0))
    assert policy._ledger.last == 7
    early, first = taken(policy, 3)
    policy.learn(early, first, feedback_of(first), np.random.default_rng(0))
    assert policy._ledger.last == 7


def test_a_carry_of_another_policy_is_refused() -> None:
    policy = make_policy()
    decision = Decision(
        step=1,
        action=(),
        positions=np.array([0]),
        carry=State(kind="altitude", schema=1),
    )
    with pytest.raises(InputError, match="another policy"):
        policy.commit(decision)


@pytest.mark.parametrize(
    "scalars",
    [
        {"closed": [[1], []], "heard": []},
        {"closed": [[], []], "heard": [[1]]},
        {"closed": 3, "heard": []},
        {"closed": [[], []], "heard": [["5", [1]]]},
        {"closed": [[], []], "heard": [[5, "abc"]]},
    ],
)
def test_damaged_ledgers_are_refused(scalars: Any) -> None:
    state = State(kind="ledger", schema=1, scalars=scalars)
    with pytest.raises(StateError):
        Ledger(most_pending=4).restored(state)


@pytest.mark.parametrize(("kind", "schema"), [("ledger", 2), ("diary", 1)])
def test_ledgers_of_another_kind_are_refused(kind: str, schema: int) -> None:
    scalars = {"closed": [[], []], "heard": []}
    with pytest.raises(StateError, match="Ledger reads 'ledger' of schema 1"):
        Ledger(most_pending=4).restored(
            State(kind=kind, schema=schema, scalars=scalars)
        )


def test_a_table_is_noted_as_learned() -> None:
    policy = IndexPolicy(
        posterior=FiniteGP(SquaredExponential(), ARMS.features, 0.1),
        rule=UCB(schedule=Fixed(value=1.0)),
        oracle=TopK(k=1),
    )
    table = np.random.default_rng(0).standard_normal((20, 12))
    played = policy.play_table(Offer(step=5, arms=ARMS), table, np.random.default_rng)
    assert played is not None
    offer = Offer(step=24, arms=ARMS)
    decision = Decision(step=24, action=(), positions=np.array([0]))
    with pytest.raises(ConflictError):
        policy.learn(offer, decision, feedback_of(decision), np.random.default_rng(0))
    assert policy._ledger.last == 24
    for step, free in ((5, False), (24, False), (25, True)):
        second = policy.play_table(
            Offer(step=step, arms=ARMS), table, np.random.default_rng
        )
        assert (second is not None) == free


def test_the_last_round_of_a_state() -> None:
    """Closed, partly learned, or pending; the trips of a log, whose steps are huge, are not rounds."""
    policy = make_policy()
    assert last_step(policy.state()) == 0
    for step in (1, 2, 4):
        offer, decision = taken(policy, step)
        if step < 4:
            policy.learn(
                offer,
                decision,
                feedback_of(decision, 4 - step),
                np.random.default_rng(0),
            )
    assert (policy.last_step, last_step(policy.state())) == (2, 4)
    policy.note_steps([2**50])
    assert (policy.last_step, last_step(policy.state())) == (2**50, 4)
    policy.give_up()
    assert last_step(policy.state()) == 2
    assert not policy.awaits


def test_uncommitted_decisions_are_not_learned() -> None:
    policy = make_policy()
    offer = Offer(step=1, arms=ARMS)
    rng = np.random.default_rng(0)
    decision = policy.decide(offer, rng)
    before = state_to_bytes(policy.state())
    with pytest.raises(
        ConflictError, match=r"step 1 was not committed; call policy\.commit"
    ):
        policy.learn(offer, decision, feedback_of(decision), rng)
    assert state_to_bytes(policy.state()) == before
    policy.commit(decision)
    policy.commit(decision)  # a second time changes nothing
    policy.learn(offer, decision, feedback_of(decision), rng)
    assert policy.posterior.count == 3


def test_feedback_for_another_decision_is_not_learned() -> None:
    policy = make_policy(k=2)
    offer, decision = taken(policy, 1)
    others = np.setdiff1d(np.arange(12), decision.positions)[:2]
    carried = State(
        kind="chosen-arms",
        schema=1,
        arrays={"positions": others, "keys": ARMS.features[others]},
    )
    other = Decision(step=1, action=others, positions=others, carry=carried)
    with pytest.raises(ConflictError, match="pass the decision that was committed"):
        policy.learn(offer, other, feedback_of(other), np.random.default_rng(0))


def test_a_log_needs_no_commit() -> None:
    """Decisions made elsewhere carry nothing."""
    policy = make_policy(k=2)
    offer = Offer(step=5, arms=ARMS)
    driven = Decision(step=5, action=None, positions=np.array([3, 4]))
    policy.learn(offer, driven, feedback_of(driven), np.random.default_rng(0))
    assert policy.posterior.count == 2


def test_commits_are_remembered_after_they_stop_pending() -> None:
    policy = make_policy(k=1, most_pending=2)
    taken_at = [taken(policy, step) for step in (1, 2, 3, 4)]
    restored = policy.restored(state_from_bytes(state_to_bytes(policy.state())))
    for offer, decision in reversed(taken_at):
        restored.learn(offer, decision, feedback_of(decision), np.random.default_rng(0))
    assert restored.posterior.count == 4


def test_states_without_commits_count_every_known_step_as_committed() -> None:
    """So states of version 0.1 learn on."""
    policy = make_policy(k=2)
    offer, decision = taken(policy, 7)
    state = policy.state()
    ledger = state.part("ledger")
    scalars = {
        name: value for name, value in ledger.scalars.items() if name != "committed"
    }
    old = replace(
        state, parts={**state.parts, "ledger": replace(ledger, scalars=scalars)}
    )
    restored = policy.restored(old)
    restored.learn(offer, decision, feedback_of(decision), np.random.default_rng(0))
    assert restored.posterior.count == 2
