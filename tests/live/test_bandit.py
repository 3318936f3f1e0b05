"""A bandit in one process: asks, tells, repetitions, conflicts, restarts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from menu_policy import menu_policy
from tampering import tamper

from superarm.core.errors import ConflictError, InputError, UnknownArmError
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.core.tables import Encoding
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.answers import Tell
from superarm.live.codec import encode_body
from superarm.live.event_reader import EventReader
from superarm.live.fold import Fold
from superarm.oracles import TopK
from superarm.posteriors import SparseVariational, StreamingGP
from superarm.rules import UCB, Fixed, Thompson

KERNEL = SquaredExponential(lengthscale=0.3)
MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with Storage(url) as opened:
        yield opened


@pytest.fixture
def bandit(storage: Storage) -> Bandit:
    return create_bandit("menu", spec=menu_policy(), storage=storage)


def reopened(bandit: Bandit) -> Bandit:
    """The same bandit after a restart."""
    url = bandit.storage.url
    bandit.storage.close()
    return load_bandit(bandit.name, storage=Storage(url))


def assert_same_beliefs(one: Bandit, other: Bandit) -> None:
    np.testing.assert_array_equal(one.predict(MENU).mean, other.predict(MENU).mean)
    np.testing.assert_array_equal(one.predict(MENU).std, other.predict(MENU).std)


# --- the loop ------------------------------------------------------------------------------


def test_ask_answers_with_ids_and_tell_teaches(bandit: Bandit) -> None:
    before = bandit.predict({"mocha": MENU["mocha"]})
    answer = bandit.ask(MENU)
    assert len(answer.arms) == 2
    assert set(answer.arms) <= set(MENU)
    assert answer.action == answer.arms
    assert bandit.tell(answer, dict.fromkeys(answer.arms, 1.0))
    after = bandit.predict({"mocha": MENU["mocha"]})
    assert after.std is not None
    assert before.std is not None
    assert after.std[0] < before.std[0]


def test_a_bandit_decides_as_its_policy_does(bandit: Bandit) -> None:
    """The journal adds nothing: the same offers and rewards give the same decisions."""
    from superarm.core import Arms, Feedback, Offer

    twin = menu_policy()
    rng = np.random.default_rng(0)
    for step in range(1, 21):
        arms = Arms.numbered(rng.random((8, 2)))
        offer = Offer(step=step, arms=arms)
        expected = twin.decide(offer, rng)
        twin.commit(expected)
        answer = bandit.ask(arms.features)
        assert answer.arms == expected.ids(offer)
        rewards = {
            arm: float(np.sin(5.0 * arms.features[arm]).sum()) for arm in answer.arms
        }
        bandit.tell(answer, rewards)
        twin.learn(offer, expected, Feedback.by_id(offer, rewards), rng)


def test_pending_decisions_spread_later_asks(storage: Storage) -> None:
    bandit = create_bandit("one", spec=menu_policy(oracle=TopK(k=1)), storage=storage)
    chosen = {bandit.ask(MENU).arms[0] for _ in range(3)}
    assert chosen == set(MENU)


# --- late, partial, repeated ---------------------------------------------------------------


def test_rewards_may_come_in_parts_and_out_of_order(bandit: Bandit) -> None:
    first = bandit.ask(MENU)
    second = bandit.ask(MENU)
    bandit.tell(second, {second.arms[1]: 0.5})
    bandit.tell(first, {first.arms[0]: 1.0})
    assert bandit.pending == [first.id, second.id]
    bandit.tell(second, {second.arms[0]: 0.2})
    assert bandit.pending == [first.id]
    bandit.tell(first, {first.arms[1]: 0.1})
    assert bandit.pending == []


def test_telling_the_same_twice_is_telling_it_once(bandit: Bandit) -> None:
    answer = bandit.ask(MENU)
    rewards = dict.fromkeys(answer.arms, 1.0)
    assert bandit.tell(answer, rewards)
    once = bandit.predict(MENU)
    assert not bandit.tell(answer.id, rewards)
    np.testing.assert_array_equal(bandit.predict(MENU).mean, once.mean)


@pytest.mark.parametrize("observation_id", [None, "delivery-7"])
def test_other_rewards_under_the_same_id_are_a_conflict(
    bandit: Bandit, observation_id: str | None
) -> None:
    answer = bandit.ask(MENU)
    arm = answer.arms[0]
    bandit.tell(answer, {arm: 1.0}, observation_id=observation_id)
    with pytest.raises(ConflictError, match="different rewards"):
        bandit.tell(answer, {arm: 2.0}, observation_id=observation_id)


def test_an_arm_is_rewarded_once_under_whatever_id(bandit: Bandit) -> None:
    answer = bandit.ask(MENU)
    arm = answer.arms[0]
    bandit.tell(answer, {arm: 1.0}, observation_id="a")
    with pytest.raises(
        ConflictError, match=f"reward of arm '{arm}' .* already recorded"
    ):
        bandit.tell(answer, {arm: 1.0}, observation_id="b")


def test_asking_again_with_an_id_returns_the_decision(bandit: Bandit) -> None:
    answer = bandit.ask(MENU, decision_id="monday")
    assert bandit.ask(MENU, decision_id="monday") == answer
    assert bandit.pending == ["monday"]
    with pytest.raises(ConflictError, match="different arms"):
        bandit.ask({"tea": [0.0, 0.0]}, decision_id="monday")
    with pytest.raises(ConflictError, match="different time"):
        bandit.ask(MENU, decision_id="monday", time=3.0)


def test_history_counts_once(bandit: Bandit) -> None:
    assert bandit.observe(MENU, {"tea": 0.7}, observation_id="2025")
    assert not bandit.observe(MENU, {"tea": 0.7}, observation_id="2025")
    with pytest.raises(ConflictError):
        bandit.observe(MENU, {"tea": 0.8}, observation_id="2025")
    mean = bandit.predict({"tea": MENU["tea"]}).mean[0]
    assert mean == pytest.approx(0.7 / 1.01)  # k/(k + noise) with k = 1


def test_an_abandoned_decision_is_not_awaited_but_still_teaches(bandit: Bandit) -> None:
    answer = bandit.ask(MENU)
    assert bandit.abandon(answer)
    assert not bandit.abandon(answer)
    assert bandit.pending == []
    assert bandit.tell(answer, dict.fromkeys(answer.arms, 1.0))


def test_decisions_past_their_age_are_abandoned(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = BanditSpec(policy=spec_of(menu_policy()), max_age=3600.0)
    now = 1_700_000_000.0
    monkeypatch.setattr("superarm.live.ages.clock.time", lambda: now)
    monkeypatch.setattr("superarm.live.ages.clock.monotonic", lambda: now)
    bandit = create_bandit("menu", spec=spec, storage=storage)
    old = bandit.ask(MENU)
    now += 1800.0
    young = bandit.ask(MENU)
    now += 2000.0
    last = bandit.ask(MENU)
    assert bandit.pending == [young.id, last.id]
    assert bandit.tell(old, {old.arms[0]: 1.0})  # it still teaches
    now -= 1e6  # a clock that jumps back makes nothing old
    assert bandit.pending == [young.id, last.id]
    bandit.ask(MENU)
    assert len(bandit.pending) == 3


# --- an order that matters -----------------------------------------------------------------


def test_rewards_wait_where_the_order_of_decisions_matters(storage: Storage) -> None:
    posterior = SparseVariational(KERNEL, noise_variance=0.01)
    bandit = create_bandit(
        "ordered", spec=menu_policy(posterior=posterior), storage=storage
    )
    first = bandit.ask(MENU)
    second = bandit.ask(MENU)
    before = bandit.predict(MENU)
    bandit.tell(second, dict.fromkeys(second.arms, 1.0))
    np.testing.assert_array_equal(bandit.predict(MENU).mean, before.mean)
    bandit.tell(first, {first.arms[0]: 1.0})
    np.testing.assert_array_equal(bandit.predict(MENU).mean, before.mean)
    bandit.tell(first, {first.arms[1]: 1.0})
    assert (bandit.predict(MENU).mean != before.mean).any()
    assert bandit.pending == []


def test_abandoning_releases_the_rewards_that_waited(storage: Storage) -> None:
    posterior = SparseVariational(KERNEL, noise_variance=0.01)
    bandit = create_bandit(
        "ordered", spec=menu_policy(posterior=posterior), storage=storage
    )
    first = bandit.ask(MENU)
    second = bandit.ask(MENU)
    before = bandit.predict(MENU)
    bandit.tell(second, dict.fromkeys(second.arms, 1.0))
    bandit.abandon(first)
    assert (bandit.predict(MENU).mean != before.mean).any()
    with pytest.raises(ConflictError, match="learns in decision order"):
        bandit.tell(first, {first.arms[0]: 1.0})


# --- changes of the bandit itself ------------------------------------------------------------


def test_named_arms_are_referred_to_by_id(bandit: Bandit) -> None:
    with pytest.raises(UnknownArmError, match="no named arms"):
        bandit.ask()
    bandit.name_arms(MENU)
    assert set(bandit.ask().arms) <= set(MENU)
    answer = bandit.ask(["tea", "mocha"])
    assert set(answer.arms) == {"tea", "mocha"}
    with pytest.raises(UnknownArmError, match="'cocoa'"):
        bandit.ask(["cocoa"])
    bandit = reopened(bandit)
    assert set(bandit.ask(["tea", "mocha"]).arms) == {"tea", "mocha"}
    bandit.storage.close()


def test_a_new_spec_learns_all_rewards(bandit: Bandit) -> None:
    answers = [bandit.ask(MENU) for _ in range(3)]
    bandit.tell(answers[0], dict.fromkeys(answers[0].arms, 0.4))
    bandit.tell(answers[2], {answers[2].arms[0]: 0.8})
    kernel = SquaredExponential(lengthscale=0.9)
    posterior = StreamingGP(kernel, noise_variance=0.1)
    bandit.respecify(menu_policy(posterior=posterior))
    expected = StreamingGP(kernel, noise_variance=0.1)
    expected.observe([MENU[str(arm)] for arm in answers[0].arms], [0.4, 0.4])
    expected.observe([MENU[str(answers[2].arms[0])]], [0.8])
    predicted = bandit.predict(MENU)
    wanted = expected.predict([*MENU.values()])
    np.testing.assert_allclose(predicted.mean, wanted.mean, rtol=1e-12)
    assert bandit.pending == [answers[1].id, answers[2].id]
    bandit.tell(answers[1], {answers[1].arms[0]: 0.5})
    assert bandit.verify().same
    again = reopened(bandit)
    assert again.pending == [answers[1].id, answers[2].id]
    assert again.verify().same
    again.storage.close()


def test_refit_raises_the_likelihood_of_the_rewards(bandit: Bandit) -> None:
    with pytest.raises(InputError, match="no rewards are recorded yet"):
        bandit.refit()
    rng = np.random.default_rng(3)
    rows = rng.random((40, 2))
    wave = np.sin(2.0 * rows[:, 0])
    bandit.observe(
        rows, dict(enumerate((wave + 0.01 * rng.standard_normal(40)).tolist()))
    )
    before = np.abs(bandit.predict(rows).mean - wave).max()
    refit = bandit.refit()
    assert refit.spec.policy["posterior"]["kernel"]["lengthscale"] > 0.3
    assert bandit.spec.as_json() == refit.spec.as_json()
    assert np.abs(bandit.predict(rows).mean - wave).max() < before
    answer = bandit.ask(MENU)
    bandit.tell(answer, dict.fromkeys(answer.arms, 0.5))
    assert bandit.verify().same
    mean = bandit.predict(MENU).mean
    again = reopened(bandit)
    np.testing.assert_array_equal(again.predict(MENU).mean, mean)
    again.storage.close()


# --- restarts ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [UCB(schedule=Fixed(value=2.0)), Thompson()])
def test_a_restart_changes_nothing(rule: Any, url: str, tmp_path: Path) -> None:
    bandit = create_bandit("menu", spec=menu_policy(rule=rule), storage=Storage(url))
    twin = create_bandit(
        "menu",
        spec=menu_policy(rule=rule),
        storage=Storage(f"sqlite:///{tmp_path / 'b.db'}"),
    )
    rng = np.random.default_rng(1)
    for round_number in range(12):
        answer = bandit.ask(MENU, decision_id=f"d{round_number}")
        assert twin.ask(MENU, decision_id=f"d{round_number}").arms == answer.arms
        if round_number % 3 != 2:  # some are never told
            rewards = {arm: rng.random() for arm in answer.arms}
            bandit.tell(answer, rewards)
            twin.tell(answer.id, rewards)
        if round_number % 4 == 3:
            bandit = reopened(bandit)
    assert bandit.pending == twin.pending
    assert_same_beliefs(bandit, twin)
    bandit.storage.close()
    twin.storage.close()


def test_rewards_of_before_a_restart_are_learned_after_it(bandit: Bandit) -> None:
    answer = bandit.ask(MENU)
    bandit = reopened(bandit)
    assert bandit.pending == [answer.id]
    assert bandit.tell(answer.id, dict.fromkeys(answer.arms, 1.0))
    assert not bandit.tell(answer.id, dict.fromkeys(answer.arms, 1.0))
    bandit.storage.close()


@pytest.mark.parametrize("rule", [UCB(schedule=Fixed(value=2.0)), Thompson()])
def test_replay_decides_everything_again(rule: Any, storage: Storage) -> None:
    bandit = create_bandit("menu", spec=menu_policy(rule=rule), storage=storage)
    for round_number in range(10):
        answer = bandit.ask(MENU)
        if round_number != 4:
            bandit.tell(answer, {arm: len(arm) / 10.0 for arm in answer.arms})
    replay = bandit.verify()
    assert replay.events == 1 + 10 + 9
    assert replay.decisions == 10
    assert replay.same


def test_replay_names_a_decision_that_was_changed(bandit: Bandit) -> None:
    bandit.ask(MENU, decision_id="d")
    event = bandit.storage.journal.event(1, "decision/d")
    assert event is not None
    record = EventReader(bandit._journal).decision(event)
    (other,) = {0, 1, 2} - set(record.decision.positions.tolist())
    positions = np.array([record.decision.positions[0], other])
    changed = replace(record.decision, positions=positions, carry=None)
    body = dict(event.body)
    body["decision"] = to_json(changed)
    # As a text of SQL, in which quotes are doubled.
    text = encode_body(body).replace("'", "''")
    tamper(bandit.storage.url, f"UPDATE events SET body = '{text}' WHERE seq = 2")
    replay = load_bandit("menu", storage=bandit.storage).verify()
    assert not replay.same
    assert "event 2, decision 'd'" in replay.differences[0]


def test_a_snapshot_saves_the_events_before_it(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superarm.live.current_fold.EVENTS_PER_SNAPSHOT", 5)
    for _ in range(8):
        answer = bandit.ask(MENU)
        bandit.tell(answer, {answer.arms[0]: 0.5})
    assert bandit.storage.journal.snapshot(1) is not None
    before = bandit.predict(MENU)
    pending = bandit.pending
    folded: list[int] = []
    apply = Fold.apply
    monkeypatch.setattr(
        Fold,
        "apply",
        lambda fold, event: (folded.append(event.seq), apply(fold, event)),
    )
    bandit = reopened(bandit)
    # A posterior restores its factor up to rounding.
    np.testing.assert_allclose(bandit.predict(MENU).mean, before.mean, rtol=1e-12)
    assert bandit.pending == pending
    assert folded == [17]  # 1 created, 16 asks and tells; the snapshot is of 16
    bandit.storage.close()


def test_a_damaged_snapshot_is_ignored(bandit: Bandit) -> None:
    answer = bandit.ask(MENU)
    bandit.tell(answer, {answer.arms[0]: 0.5})
    before = bandit.predict(MENU)
    bandit.save_snapshot()
    tamper(bandit.storage.url, "UPDATE snapshots SET bytes = (SELECT bytes FROM blobs)")
    bandit = reopened(bandit)
    np.testing.assert_array_equal(bandit.predict(MENU).mean, before.mean)
    bandit.storage.close()


@pytest.mark.slow
def test_a_pandas_frame_is_asked_like_its_rows(storage: Storage) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rows = [
        {"id": "a", "size": 0.2, "kind": "new"},
        {"id": "b", "size": 0.9, "kind": "old"},
    ]
    frame = pandas.DataFrame(rows)
    encoding = Encoding.of(frame, columns=["size", "kind"])
    spec = BanditSpec(policy=spec_of(menu_policy(oracle=TopK(k=1))), encoding=encoding)
    bandit = create_bandit("frames", spec=spec, storage=storage)
    answer = bandit.ask(frame, decision_id="one")
    assert answer == bandit.ask(rows, decision_id="one")
    assert bandit.tell(answer, {answer.arms[0]: 0.5})
    by_frame = bandit.predict(frame)
    by_rows = bandit.predict(rows)
    assert by_frame.arms == by_rows.arms == ["a", "b"]
    np.testing.assert_array_equal(by_frame.mean, by_rows.mean)


# --- what is refused -----------------------------------------------------------------------


def test_what_is_refused_changes_nothing(bandit: Bandit) -> None:
    answer = bandit.ask(MENU)
    before = bandit.predict(MENU)
    arm = answer.arms[0]
    with pytest.raises(InputError, match="no decision 'x'"):
        bandit.tell("x", {arm: 1.0})
    with pytest.raises(UnknownArmError, match="'cocoa' is not on offer"):
        bandit.tell(answer, {"cocoa": 1.0})
    with pytest.raises(InputError, match="finite"):
        bandit.tell(answer, {arm: float("nan")})
    with pytest.raises(InputError):
        bandit.ask({"mocha": [0.1]})
    with pytest.raises(InputError, match="text or a whole number"):
        bandit.ask({(1, 2): [0.1, 0.2]})
    with pytest.raises(InputError, match="at least one"):
        bandit.ask({})
    np.testing.assert_array_equal(bandit.predict(MENU).mean, before.mean)
    assert bandit.pending == [answer.id]


def test_names_are_unique(bandit: Bandit) -> None:
    storage = bandit.storage
    other = menu_policy(oracle=TopK(k=1))
    with pytest.raises(ConflictError, match="'menu', created with another spec"):
        create_bandit("menu", spec=other, storage=storage)
    again = create_bandit("menu", spec=other, storage=storage, load_if_exists=True)
    assert again is bandit


def test_the_same_program_may_run_again(bandit: Bandit) -> None:
    """It creates a bandit that is there already, even if its spec has changed since."""
    bandit.respecify(menu_policy(oracle=TopK(k=1)))
    again = create_bandit("menu", spec=menu_policy(), storage=bandit.storage)
    assert again is bandit
    assert again.seq == 2


def test_a_bandit_that_is_not_there_is_named(bandit: Bandit) -> None:
    storage = bandit.storage
    with pytest.raises(InputError, match="no bandit 'other'"):
        load_bandit("other", storage=storage)


def test_a_second_owner_of_a_file_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bandits.db'}"
    with (
        Storage(url),
        pytest.raises(ConflictError, match="another process uses"),
    ):
        Storage(url)


@pytest.mark.slow
def test_a_second_process_on_a_file_is_refused_with_advice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bandits.db'}"
    script = "import sys; from superarm.live import Storage; Storage(sys.argv[1])"
    with Storage(url) as storage:
        create_bandit("menu", spec=menu_policy(), storage=storage)
        finished = subprocess.run(
            [sys.executable, "-c", script, url],
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode != 0
        assert "ConflictError: another process uses" in finished.stderr
        assert "superarm serve" in finished.stderr
        assert load_bandit("menu", storage=storage).verify().same


def test_spec_as_json_builds_the_same_bandit(storage: Storage) -> None:
    spec = BanditSpec.from_user(menu_policy())
    assert BanditSpec.from_json(spec.as_json()) == spec


# --- requests that are repeated after a change ---------------------------------------------


def test_an_ask_by_name_can_be_repeated_after_the_arms_changed(
    storage: Storage,
) -> None:
    bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
    bandit.name_arms(MENU)
    every = bandit.ask(decision_id="every")
    some = bandit.ask(["tea", "mocha"], decision_id="some")
    for arms in ({"soup": [0.3, 0.3]}, {"tea": [0.4, 0.4], "mocha": [0.5, 0.5]}):
        bandit.name_arms(arms)
        seq = bandit.seq
        assert bandit.ask(decision_id="every") == every
        assert bandit.ask(list(MENU), decision_id="every") == every
        assert bandit.ask(MENU, decision_id="every") == every
        assert bandit.ask(["tea", "mocha"], decision_id="some") == some
        assert bandit.ask(decision_id="some") == some
        assert bandit.seq == seq
    for other in (["tea"], ["mocha", "tea"], {"tea": [0.4, 0.4], "mocha": [0.5, 0.5]}):
        with pytest.raises(ConflictError, match="different arms"):
            bandit.ask(other, decision_id="some")
    with pytest.raises(ConflictError, match="different time"):
        bandit.ask(decision_id="some", time=3.0)


def test_history_by_name_can_be_repeated_after_the_arms_changed(
    storage: Storage,
) -> None:
    bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
    bandit.name_arms(MENU)
    rewards = {"tea": 1.0}
    assert bandit.observe(["mocha", "tea"], rewards, observation_id="2025")
    bandit.name_arms({"tea": [0.4, 0.4], "mocha": [0.5, 0.5]})
    assert not bandit.observe(["mocha", "tea"], rewards, observation_id="2025")
    assert not bandit.observe(None, rewards, observation_id="2025")
    with pytest.raises(ConflictError, match="different rewards"):
        bandit.observe(None, {"tea": 2.0}, observation_id="2025")


# --- what is no argument -------------------------------------------------------------------

NO_ARGUMENTS: dict[str, Callable[[Bandit], object]] = {
    "arms is a number": lambda bandit: bandit.ask(3.0),
    "arms is an iterator": lambda bandit: bandit.predict(iter([1])),
    "named arms without a length": lambda bandit: bandit.name_arms(object()),
    "deferred is an array": lambda bandit: bandit.ask(MENU, deferred=np.zeros(2)),
    "after is huge": lambda bandit: bandit.events(10**400),
    "after is text": lambda bandit: bandit.events("\ud800"),
    "tells is None": lambda bandit: bandit.tell_many(None),
    "a tell is text": lambda bandit: bandit.tell_many(["first"]),
}


@pytest.mark.parametrize("use", NO_ARGUMENTS.values(), ids=NO_ARGUMENTS)
def test_values_of_other_types_are_refused(
    bandit: Bandit, use: Callable[[Bandit], object]
) -> None:
    with pytest.raises(InputError):
        use(bandit)
    assert bandit.seq == 1


def test_a_tell_without_a_valid_id_does_not_spoil_others(bandit: Bandit) -> None:
    first = bandit.ask(MENU)
    rewards = {first.arms[0]: 0.5}
    names: list[Any] = ["\ud800", {}, None, first.id]
    outcomes = bandit.tell_many(
        [Tell(decision=name, rewards=rewards) for name in names]
    )
    assert outcomes[-1] is True
    assert all(isinstance(outcome, InputError) for outcome in outcomes[:-1])
