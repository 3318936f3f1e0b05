"""What a bandit learns from its events: snapshots, pending decisions, previous actions, order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from menu_policy import menu_policy

from superarm.core.errors import ConflictError, InputError, StateError
from superarm.core.registry import spec_of
from superarm.kernels import Matern, SquaredExponential, Temporal
from superarm.live import Bandit, BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.fold import Fold
from superarm.movement import Switch
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import DriftingGP, SparseVariational, StreamingGP
from superarm.rules import Greedy, Thompson

KERNEL = SquaredExponential(lengthscale=0.3)
MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}


def policy(**changes: Any) -> IndexPolicy:
    return menu_policy(**{"oracle": TopK(k=1), **changes})


def ordered_policy(**changes: Any) -> IndexPolicy:
    """A policy that learns rewards in the order of decisions."""
    return policy(posterior=SparseVariational(KERNEL, noise_variance=0.01), **changes)


def restarted(bandit: Bandit) -> Bandit:
    """The same bandit from a snapshot, in a new storage."""
    bandit.save_snapshot()
    url = bandit.storage.url
    bandit.storage.close()
    return load_bandit(bandit.name, storage=Storage(url))


def step_of(bandit: Bandit, decision_id: str) -> int:
    record = bandit._current.read().reader.find_decision(decision_id)
    assert record is not None
    return record.decision.step


# --- snapshots -----------------------------------------------------------------------------


def test_rounds_are_counted_on_after_a_snapshot(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(rule=Thompson()), storage=storage)
    for name in ("a", "b"):
        bandit.ask(MENU, decision_id=name)
    bandit = restarted(bandit)
    bandit.ask(MENU, decision_id="c")
    assert [step_of(bandit, name) for name in "abc"] == [1, 2, 3]
    assert bandit.verify().same
    bandit.storage.close()


def test_named_arms_are_in_a_snapshot(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    bandit.name_arms(MENU)
    expected = bandit.predict()
    bandit = restarted(bandit)
    np.testing.assert_array_equal(bandit.predict().mean, expected.mean)
    assert bandit.ask(["tea"]).arms == ["tea"]
    bandit.storage.close()


def test_rewards_that_wait_are_in_a_snapshot(storage: Storage) -> None:
    """As a twin that does not restart: rewards told after it are of the same decisions."""
    means = []
    for name in ("twin", "menu"):  # the last one closes the storage
        bandit = create_bandit(name, spec=ordered_policy(), storage=storage)
        first = bandit.ask(MENU)
        second = bandit.ask(MENU)
        bandit.tell(second, {second.arms[0]: 3.0})
        unaware = bandit.predict(MENU).mean
        if name == "menu":
            bandit = restarted(bandit)
            # A posterior restores its factor up to rounding.
            np.testing.assert_allclose(bandit.predict(MENU).mean, unaware, atol=1e-9)
        bandit.tell(first.id, {first.arms[0]: 1.0})
        means.append(bandit.predict(MENU).mean)
    np.testing.assert_allclose(*means, rtol=1e-9)
    assert means[0].max() > 2.0  # the reward that waited was learned
    bandit.storage.close()


def test_ages_of_decisions_are_in_a_snapshot(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = BanditSpec(policy=spec_of(policy()), max_age=3600.0)
    now = 1_700_000_000.0
    monkeypatch.setattr("superarm.live.ages.clock.time", lambda: now)
    monkeypatch.setattr("superarm.live.ages.clock.monotonic", lambda: now)
    bandit = create_bandit("menu", spec=spec, storage=storage)
    first = bandit.ask(MENU)
    bandit = restarted(bandit)
    now += 3000.0
    second = bandit.ask(MENU)
    assert bandit.pending == [first.id, second.id]
    now += 1000.0
    third = bandit.ask(MENU)
    assert bandit.pending == [second.id, third.id]
    bandit.storage.close()


# --- previous actions ----------------------------------------------------------------------


def staying_policy() -> IndexPolicy:
    """Leaving the previous arm costs more than any arm is worth."""
    return policy(rule=Greedy(), switching=Switch(cost=100.0))


@pytest.mark.parametrize("restart", [False, True])
def test_the_previous_action_is_part_of_the_next_offer(
    storage: Storage, restart: bool
) -> None:
    bandit = create_bandit("menu", spec=staying_policy(), storage=storage)
    first = bandit.ask(MENU)
    others = [arm for arm in MENU if arm not in first.arms]
    bandit.observe(MENU, {others[0]: 5.0})  # the best arm by far, but not worth a move
    if restart:
        bandit = restarted(bandit)
    assert bandit.ask(MENU).arms == first.arms
    assert bandit.verify().same
    bandit.storage.close()


# --- pending decisions ---------------------------------------------------------------------


def test_rewards_that_wait_are_learned_once_by_a_new_policy(storage: Storage) -> None:
    """A new policy learns all rewards so far: those that wait for earlier ones wait again."""
    bandit = create_bandit("menu", spec=ordered_policy(), storage=storage)
    first = bandit.ask(MENU)
    second = bandit.ask(MENU)
    bandit.tell(second, {second.arms[0]: 3.0})
    bandit.respecify(ordered_policy())
    bandit.tell(first, {first.arms[0]: 1.0})
    expected = bandit.predict(MENU).mean
    bandit.forget()
    np.testing.assert_array_equal(bandit.predict(MENU).mean, expected)
    assert bandit.verify().same
    bandit.storage.close()


def test_a_reward_of_one_arm_activates_a_deferred_decision(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(oracle=TopK(k=2)), storage=storage)
    answer = bandit.ask(MENU, deferred=True)
    assert bandit.pending == []
    bandit.tell(answer, {answer.arms[0]: 1.0})
    assert bandit.pending == [answer.id]
    bandit.storage.close()


def test_decisions_record_what_was_pending(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    for name in "abc":
        bandit.ask(MENU, decision_id=name)
    digests = [item.body.get("pending") for item in bandit.events(after=1)]
    assert len(set(digests)) == 3
    assert bandit.verify().same
    monkeypatch.setattr(Fold, "pending_digest", lambda fold: digests[0])
    assert bandit.verify().differences == [
        "event 3, decision 'b': different decisions were pending",
        "event 4, decision 'c': different decisions were pending",
    ]
    bandit.storage.close()


def test_an_abandoned_decision_no_longer_spreads_later_asks(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    first = bandit.ask(MENU)
    second = bandit.ask(MENU)
    assert second.arms != first.arms  # while the first is pending
    bandit.abandon(first)
    bandit.abandon(second)
    assert bandit.ask(MENU).arms == first.arms


def test_named_arms_replace_those_of_before(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    bandit.name_arms(MENU)
    assert bandit.ask().arms[0] in MENU
    bandit.name_arms({"cocoa": [0.5, 0.5]})
    assert bandit.ask().arms == ["cocoa"]


def test_a_decision_of_an_earlier_spec_is_rewarded_under_another(
    storage: Storage,
) -> None:
    """The new posterior has a column more, so that the old keys are none of its arms."""
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    first = bandit.ask(MENU)
    kernel = Matern(columns=(0, 1)) * Temporal(epsilon=0.1, column=2)
    timed = StreamingGP(kernel, noise_variance=0.01, timed=True)
    bandit.respecify(policy(posterior=timed))
    assert bandit.pending == [first.id]
    assert bandit.tell(first, {first.arms[0]: 1.0})
    assert bandit.pending == []
    assert bandit.predict({first.arms[0]: MENU[str(first.arms[0])]}).mean[0] > 0.5


# --- order ---------------------------------------------------------------------------------


def test_events_are_folded_without_gaps(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    bandit.ask(MENU)
    fold = Fold(bandit._journal)
    created, decided = bandit._journal.events()
    fold.apply(created)
    with pytest.raises(StateError, match="event 3 cannot follow event 1"):
        fold.apply(replace(decided, seq=3))
    with pytest.raises(StateError, match="event 1 cannot follow event 1"):
        fold.apply(created)
    fold.apply(decided)
    assert fold.seq == 2


def test_an_arm_is_rewarded_once_also_while_its_reward_waits(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=ordered_policy(), storage=storage)
    first = bandit.ask(MENU)
    second = bandit.ask(MENU)
    two = policy(
        posterior=SparseVariational(KERNEL, noise_variance=0.01), oracle=TopK(k=2)
    )
    bandit.respecify(two)
    third = bandit.ask(MENU)
    arm = third.arms[0]
    bandit.tell(third, {arm: 1.0}, observation_id="a")
    with pytest.raises(ConflictError, match="is already recorded"):
        bandit.tell(third, {arm: 1.0}, observation_id="b")
    for answer in (first, second):
        bandit.tell(answer, {answer.arms[0]: 0.5})
    bandit.tell(third, {third.arms[1]: 0.5})
    assert bandit.pending == []


def test_rewards_that_could_not_be_learned_later_are_refused_now(
    storage: Storage,
) -> None:
    """They would be in the journal, and block all that comes after them."""
    bandit = create_bandit("menu", spec=ordered_policy(), storage=storage)
    first = bandit.ask(MENU)
    second = bandit.ask(MENU)
    for answer in (second, first):  # one must wait, the other could be learned at once
        arm = answer.arms[0]
        with pytest.raises(InputError, match="must be positive"):
            bandit.tell(answer, {arm: 1.0}, noise_variance={arm: -1.0})
    with pytest.raises(InputError, match="must be positive"):
        bandit.observe(MENU, {"tea": 1.0}, noise_variance={"tea": 0.0})
    with pytest.raises(InputError, match="rewards holds 1e"):
        bandit.tell(second, {second.arms[0]: 1e300})
    assert bandit.pending == [first.id, second.id]
    for answer in (second, first):
        assert bandit.tell(answer, {answer.arms[0]: 1.0})
    assert bandit.pending == []
    assert bandit.verify().same


def test_rewards_in_another_order_are_the_same_rewards(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=policy(oracle=TopK(k=2)), storage=storage)
    answer = bandit.ask(MENU)
    one, other = answer.arms
    noise = {one: 0.1, other: 0.2}
    assert bandit.tell(answer, {one: 1.0, other: 2.0}, noise_variance=noise)
    assert not bandit.tell(answer, {other: 2.0, one: 1.0}, noise_variance=noise)
    with pytest.raises(ConflictError):
        bandit.tell(answer, {other: 1.0, one: 2.0}, noise_variance=noise)
    swapped = {one: 0.2, other: 0.1}
    with pytest.raises(ConflictError):
        bandit.tell(answer, {other: 2.0, one: 1.0}, noise_variance=swapped)
    assert bandit.observe(MENU, {"tea": 1.0, "mocha": 2.0}, observation_id="old")
    assert not bandit.observe(MENU, {"mocha": 2.0, "tea": 1.0}, observation_id="old")


def test_history_counts_at_its_own_time(storage: Storage) -> None:
    """Rewards of long ago say little where rewards drift."""
    arms = np.array([*MENU.values()])
    means = {}
    for name, time in (("old", 1.0), ("recent", 99.0)):
        drifting = DriftingGP(KERNEL, arms, 0.01, drift=Temporal(epsilon=0.1))
        bandit = create_bandit(name, spec=policy(posterior=drifting), storage=storage)
        bandit.observe(arms, {0: 1.0}, time=time)
        means[name] = bandit.predict(arms, time=100.0).mean[0]
    # The correlation over a time t is (1 − ε)^{t/2}.
    assert means["recent"] == pytest.approx(0.9**0.5 / 1.01)
    assert means["old"] == pytest.approx(0.9**49.5 / 1.01)


# --- ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\nb", "a\x00", 7, None])
def test_ids_are_short_printable_text(storage: Storage, bad: Any) -> None:
    bandit = create_bandit("menu", spec=policy(), storage=storage)
    answer = bandit.ask(MENU, decision_id="x" * 200)
    with pytest.raises(InputError, match="an id must be"):
        bandit.tell(bad, {answer.arms[0]: 1.0})
    if bad is not None:  # an id of the bandit's own
        with pytest.raises(InputError, match="an id must be"):
            bandit.ask(MENU, decision_id=bad)
    assert bandit.pending == [answer.id]
