"""A challenger: it follows the journal, outlives restarts, and becomes the policy by one event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from menu_policy import menu_policy

from superarm.core import Feedback
from superarm.core.errors import ConflictError, InputError
from superarm.core.registry import spec_of
from superarm.core.streams import stream
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.challenger import SHADOW, Challenger
from superarm.live.events import Kind
from superarm.oracles import TopK
from superarm.policies import (
    Exp3,
    Exploring,
    IndexPolicy,
    KnownCosts,
    ScorePolicy,
    Uniform,
)
from superarm.posteriors import SparseVariational, StreamingGP
from superarm.rules import Greedy, Thompson

ROWS = np.random.default_rng(0).random((4, 2))
MENU = {name: row.tolist() for name, row in zip("abcd", ROWS, strict=True)}
TRUTH = {"a": 0.1, "b": 0.9, "c": 0.4, "d": 0.6}


def exploring(epsilon: float = 0.5, **changes: Any) -> Exploring:
    return Exploring(policy=menu_policy(**changes), epsilon=epsilon)


def play(bandit: Bandit, rounds: int) -> None:
    for _ in range(rounds):
        answer = bandit.ask(MENU)
        bandit.tell(answer, {arm: TRUTH[str(arm)] for arm in answer.arms})


def reopened(bandit: Bandit) -> Bandit:
    url = bandit.storage.url
    bandit.storage.close()
    return load_bandit(bandit.name, storage=Storage(url))


# --- following -----------------------------------------------------------------------------


def test_a_challenger_decides_as_its_policy_would(storage: Storage) -> None:
    """A twin of the policy, taught the same by hand, chooses the same arms."""
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    play(bandit, 5)
    rule = Greedy()
    bandit.shadow(menu_policy(rule=rule))
    play(bandit, 10)
    report = bandit.shadow_report()
    assert report.since == 12  # created, 5 asks and tells
    assert report.decisions == report.rewarded == 10

    twin = menu_policy(rule=rule)
    agreements = []
    for event in bandit.storage.journal.events(1):
        if event.kind is not Kind.DECIDED:
            continue
        record = bandit._current.read().reader.decision(event)
        offer = record.offer
        if event.seq > report.since:
            own = twin.decide(offer, np.random.default_rng(0))
            same = set(own.positions) == set(record.decision.positions)
            agreements.append(same)
        twin.commit(record.decision)
        ids = record.decision.ids(offer)
        feedback = Feedback.by_id(offer, {arm: TRUTH[str(arm)] for arm in ids})
        twin.learn(offer, record.decision, feedback, np.random.default_rng(0))
    assert report.agreement == np.mean(agreements)


def test_later_reports_follow_only_what_is_new(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    bandit.shadow(menu_policy())
    followed: list[int] = []
    follow = Challenger._follow
    monkeypatch.setattr(
        Challenger,
        "_follow",
        lambda challenger, event: (
            followed.append(event.seq),
            follow(challenger, event),
        ),
    )
    play(bandit, 4)
    bandit.shadow_report()
    assert followed == list(range(1, 11))
    play(bandit, 1)
    incremental = bandit.shadow_report()
    assert followed == list(range(1, 13))
    bandit._challenger = None
    assert bandit.shadow_report() == incremental


def test_a_challenger_outlives_restarts_and_snapshots(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    play(bandit, 2)
    bandit.shadow(menu_policy(rule=Greedy()))
    play(bandit, 6)
    before = bandit.shadow_report(reward_range=(0.0, 2.0))
    bandit = reopened(bandit)
    assert bandit.shadow_report(reward_range=(0.0, 2.0)) == before
    bandit.save_snapshot()
    bandit = reopened(bandit)
    assert bandit.shadow_report(reward_range=(0.0, 2.0)) == before
    bandit.shadow(None)
    bandit.save_snapshot()
    bandit = reopened(bandit)
    with pytest.raises(InputError, match="no challenger"):
        bandit.shadow_report()
    bandit.storage.close()


def test_a_challenger_does_not_change_the_bandit(tmp_path: Path) -> None:
    answers = []
    for name in ("with", "without"):
        with Storage(f"sqlite:///{tmp_path / name}.db") as storage:
            bandit = create_bandit("menu", spec=exploring(), storage=storage)
            if name == "with":
                bandit.shadow(menu_policy(rule=Greedy()))
            arms = []
            for number in range(12):
                answer = bandit.ask(MENU)
                bandit.tell(answer, {arm: TRUTH[str(arm)] for arm in answer.arms})
                arms.append(answer.arms)
                if name == "with" and number % 4 == 0:
                    bandit.shadow_report()
            assert bandit.verify().same
            answers.append(arms)
    assert answers[0] == answers[1]


def test_asks_and_tells_do_not_wait_for_a_report(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    bandit.shadow(menu_policy())
    with bandit._following:  # as a report does while it follows the journal
        play(bandit, 2)
    assert bandit.shadow_report().rewarded == 2


def test_a_new_challenger_starts_anew_and_ending_none_is_nothing(
    storage: Storage,
) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    bandit.shadow(None)
    assert len(list(storage.journal.events(1))) == 1
    bandit.shadow(menu_policy())
    play(bandit, 3)
    assert bandit.shadow_report().decisions == 3
    bandit.shadow(menu_policy(rule=Greedy()))
    assert bandit.shadow_report().decisions == 0
    play(bandit, 2)
    assert bandit.shadow_report().decisions == 2


def test_a_challenger_that_draws_has_a_stream_of_its_own(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=exploring(1.0), storage=storage)
    chance = ScorePolicy(score=Uniform(), oracle=TopK(k=2))
    bandit.shadow(chance)
    play(bandit, 20)
    report = bandit.shadow_report()
    agreements = []
    for event in storage.journal.events(1):
        if event.kind is Kind.DECIDED:
            record = bandit._current.read().reader.decision(event)
            own = chance.decide(record.offer, stream(0, SHADOW, record.offer.step))
            agreements.append(set(own.positions) == set(record.decision.positions))
    assert report.agreement == np.mean(agreements)
    assert 0.0 < np.mean(agreements) < 1.0
    # The same probabilities on both sides: every weight is 1.
    assert report.effective_size == pytest.approx(20.0)
    assert report.inverse_propensity is not None
    assert report.current is not None
    assert report.inverse_propensity.value == pytest.approx(report.current.value)
    assert report.doubly_robust is None


def test_counts_of_missing_rewards(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    early = bandit.ask(MENU)
    bandit.shadow(menu_policy())
    play(bandit, 4)
    bandit.ask(MENU)
    half = bandit.ask(MENU)
    bandit.tell(half, {half.arms[0]: 0.5})
    lost = bandit.ask(MENU)
    bandit.abandon(lost)
    late = bandit.ask(MENU)
    bandit.abandon(late)
    bandit.tell(late, dict.fromkeys(late.arms, 0.25))
    bandit.tell(early, dict.fromkeys(early.arms, 0.25))
    report = bandit.shadow_report()
    assert report.decisions == 8
    assert report.rewarded == 5
    assert report.partial == 1
    assert report.pending == 1
    assert report.abandoned == 1
    assert any("3 decisions" in text for text in report.assumptions)


# --- switching -----------------------------------------------------------------------------


def test_switching_is_one_event_and_ends_the_challenger(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    with pytest.raises(InputError, match="no challenger"):
        bandit.switch()
    play(bandit, 4)
    bandit.shadow(menu_policy(rule=Greedy()))
    play(bandit, 4)
    events = len(list(storage.journal.events(1)))
    bandit.switch()
    kinds = [event.kind for event in storage.journal.events(1)]
    assert kinds[events:] == [Kind.RESPECIFIED]
    assert isinstance(bandit._current.read().policy, IndexPolicy)
    with pytest.raises(InputError, match="no challenger"):
        bandit.shadow_report()
    twin = create_bandit("twin", spec=menu_policy(rule=Greedy()), storage=storage)
    for observation in bandit._current.read().reader.observations():
        ids = observation.offer.arms.ids
        positions = observation.feedback.positions.tolist()
        rewards = observation.feedback.rewards.tolist()
        by_id = {ids[p]: r for p, r in zip(positions, rewards, strict=True)}
        twin.observe(MENU, by_id)
    np.testing.assert_allclose(
        bandit.predict(MENU).mean, twin.predict(MENU).mean, rtol=1e-9
    )
    play(bandit, 2)
    assert bandit.verify().same
    bandit.shadow(exploring())
    bandit.respecify(menu_policy())  # an ordinary change leaves the challenger
    bandit = reopened(bandit)
    assert bandit.shadow_report().decisions == 0
    bandit.storage.close()


def test_a_policy_alone_takes_everything_else_from_the_bandit(storage: Storage) -> None:
    spec = BanditSpec(policy=spec_of(exploring()), seed=7, max_age=60.0)
    bandit = create_bandit("menu", spec=spec, storage=storage)
    for challenger in (menu_policy(), spec_of(menu_policy())):
        bandit.shadow(challenger)
        challenge = bandit._current.read().challenge
        assert challenge is not None
        assert challenge.spec.seed == 7
        assert challenge.spec.max_age == 60.0
    bandit.shadow(BanditSpec(policy=spec_of(menu_policy()), seed=8))
    challenge = bandit._current.read().challenge
    assert challenge is not None
    assert challenge.spec.seed == 8


def test_a_switch_that_fails_leaves_the_bandit_as_it_was(storage: Storage) -> None:
    """Rewards of an abandoned decision came late, which the challenger cannot learn."""
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    posterior = SparseVariational(SquaredExponential(lengthscale=0.3), 0.01)
    bandit.shadow(menu_policy(posterior=posterior))
    answer = bandit.ask(MENU)
    bandit.abandon(answer)
    bandit.tell(answer, dict.fromkeys(answer.arms, 0.5))
    before = bandit.predict(MENU)
    for _ in range(2):
        with pytest.raises(InputError, match="cannot learn event 5"):
            bandit.shadow_report()
        with pytest.raises(ConflictError):
            bandit.switch()
    np.testing.assert_allclose(bandit.predict(MENU).mean, before.mean, rtol=1e-12)
    play(bandit, 2)
    assert bandit.verify().same


# --- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acting", "challenger", "message"),
    [
        (menu_policy(), menu_policy(rule=Greedy()), "is deterministic"),
        (menu_policy(rule=Thompson()), menu_policy(), "propensity is unknown"),
        (exploring(), menu_policy(rule=Thompson()), "unknown probabilities"),
        (exploring(), menu_policy(oracle=TopK(k=3)), "the same oracle"),
    ],
)
def test_no_number_without_support(
    acting: Any, challenger: Any, message: str, storage: Storage
) -> None:
    bandit = create_bandit("menu", spec=acting, storage=storage)
    bandit.shadow(challenger)
    play(bandit, 6)
    report = bandit.shadow_report(reward_range=(0.0, 3.0))
    assert report.refusal is not None
    assert message in report.refusal
    assert report.inverse_propensity is None
    assert report.self_normalised is None
    assert report.doubly_robust is None
    assert report.effective_size is None
    assert report.current is not None  # what was earned is known


def test_policies_that_agree_need_no_chance(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
    bandit.shadow(menu_policy())
    play(bandit, 6)
    report = bandit.shadow_report(reward_range=(0.0, 2.0))
    assert report.agreement == 1.0
    assert report.inverse_propensity == report.current


def test_too_few_rewards_are_refused(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    bandit.shadow(menu_policy())
    report = bandit.shadow_report()
    assert report.agreement is None
    assert report.refusal is not None
    assert "got 0" in report.refusal
    # The worst two arms, which chance chooses in one round of six.
    costs = KnownCosts(costs=np.array([0.0, 9.0, 0.0, 9.0]))
    bandit.shadow(ScorePolicy(score=costs, oracle=TopK(k=2)))
    bandit.respecify(
        Exploring(
            policy=menu_policy(posterior=StreamingGP(SquaredExponential(), 0.01)),
            epsilon=1e-9,
        )
    )
    bandit.observe(MENU, {"b": 5.0, "d": 5.0, "a": -5.0, "c": -5.0})
    play(bandit, 3)
    report = bandit.shadow_report()
    assert report.refusal is not None
    assert "any of the decisions" in report.refusal


def test_invalid_questions_are_refused(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    bandit.shadow(menu_policy())
    play(bandit, 4)
    for level in (0.0, 1.0, 2.0, float("nan")):
        with pytest.raises(InputError, match="level"):
            bandit.shadow_report(level=level)
    with pytest.raises(InputError, match="must be below the second"):
        bandit.shadow_report(reward_range=(1.0, 1.0))
    with pytest.raises(InputError, match="outside the range"):
        bandit.shadow_report(reward_range=(0.0, 0.1))


def test_exp3_evaluates_one_arm_a_round(storage: Storage) -> None:
    """Exp3 acts, an index policy challenges; and the other way round."""
    exp3 = Exp3(arms=ROWS, block=100, low=0.0, high=1.0)
    index = menu_policy(oracle=TopK(k=1))
    for name, acting, challenger in (
        ("exp3", exp3, index),
        ("index", Exploring(policy=index, epsilon=1.0), exp3),
    ):
        bandit = create_bandit(name, spec=acting, storage=storage)
        bandit.shadow(challenger)
        play(bandit, 30)
        report = bandit.shadow_report(reward_range=(0.0, 1.0))
        assert report.refusal is None
        estimate = report.inverse_propensity
        assert estimate is not None
        assert estimate.lower <= estimate.value <= estimate.upper
        bandit.switch()
        play(bandit, 3)
        assert bandit.verify().same


def test_exploring_explains_and_refits(storage: Storage) -> None:
    """What works for an index policy works with random rounds, too."""
    bandit = create_bandit("menu", spec=exploring(), storage=storage)
    play(bandit, 20)
    answer = bandit.ask(MENU)
    explanation = bandit.explain(answer)
    assert len(explanation.arms) == 2
    assert explanation.arms[0].teachers
    bandit.refit()
    assert isinstance(bandit._current.read().policy, Exploring)
    bandit.abandon(answer)
    assert bandit.pending == []
    play(bandit, 2)
    assert bandit.verify().same
