"""The status of a decision: the bandit, an export and a report derive it alike."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from superarm.core import Decision, Guarantee, Offer
from superarm.core.serialization import from_json
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, create_bandit
from superarm.live.decisions import Status, decision_status
from superarm.live.events import Kind
from superarm.live.runtime import runtime
from superarm.oracles import TopK
from superarm.policies import Exploring, IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import Greedy

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}


def policy() -> Exploring:
    learner = IndexPolicy(
        posterior=StreamingGP(SquaredExponential(lengthscale=0.3), 0.01),
        rule=Greedy(),
        oracle=TopK(k=2),
    )
    return Exploring(policy=learner, epsilon=0.5)


@pytest.fixture
def bandit(tmp_path: Path) -> Iterator[Bandit]:
    with Storage(f"sqlite:///{tmp_path / 'bandits.db'}") as storage:
        yield create_bandit("menu", spec=policy(), storage=storage)


def play(bandit: Bandit) -> dict[str, Status]:
    """One decision of each kind; returns the status that each should have."""
    bandit.ask(MENU, decision_id="pending")
    bandit.ask(MENU, decision_id="deferred", deferred=True)
    bandit.ask(MENU, decision_id="activated", deferred=True)
    bandit.activate("activated")
    early = bandit.ask(MENU, decision_id="rewarded before activation", deferred=True)
    bandit.tell(early, {early.arms[0]: 1.0})
    partial = bandit.ask(MENU, decision_id="partial")
    bandit.tell(partial, {partial.arms[1]: 0.5})
    rewarded = bandit.ask(MENU, decision_id="rewarded")
    bandit.tell(rewarded, dict.fromkeys(rewarded.arms, 0.5))
    abandoned = bandit.ask(MENU, decision_id="abandoned")
    bandit.tell(abandoned, {abandoned.arms[0]: 0.5})
    bandit.abandon(abandoned)
    late = bandit.ask(MENU, decision_id="rewarded after it was abandoned")
    bandit.abandon(late)
    bandit.tell(late, dict.fromkeys(late.arms, 0.5))
    return {
        "pending": Status.PENDING,
        "deferred": Status.DEFERRED,
        "activated": Status.PENDING,
        "rewarded before activation": Status.PARTIAL,
        "partial": Status.PARTIAL,
        "rewarded": Status.REWARDED,
        "abandoned": Status.ABANDONED,
        "rewarded after it was abandoned": Status.ABANDONED,
    }


def test_the_bandit_and_its_export_agree(bandit: Bandit, tmp_path: Path) -> None:
    expected = play(bandit)
    assert {name: bandit.decision(name).status for name in expected} == expected
    bandit.forget()  # from the journal, too
    assert {name: bandit.decision(name).status for name in expected} == expected
    path = bandit.export(tmp_path / "out").files["decisions"]
    with open(path, encoding="utf-8", newline="") as file:
        exported = {row["decision"]: row["status"] for row in csv.DictReader(file)}
    assert exported == expected


def test_a_report_counts_late_rewards_and_deferred_decisions(bandit: Bandit) -> None:
    """Late rewards count in the estimates; a deferred decision awaits all of its rewards."""
    bandit.shadow(policy())
    play(bandit)
    report = bandit.shadow_report()
    assert report.decisions == 8
    assert report.rewarded == 2
    assert report.partial == 2
    assert report.pending == 3
    assert report.abandoned == 1


def test_abandonment_comes_first() -> None:
    status = decision_status(
        is_abandoned=True, is_open=True, has_rewards=True, is_deferred=True
    )
    assert status is Status.ABANDONED


def test_a_decided_event_has_its_inputs_and_what_was_decided(bandit: Bandit) -> None:
    first = bandit.ask(MENU)
    bandit.tell(first, dict.fromkeys(first.arms, 0.5))
    before = bandit.predict(MENU)
    assert before.std is not None
    answer = bandit.ask(MENU, decision_id="lunch", time=3.0)
    event = list(bandit.events())[-1]
    assert event.kind is Kind.DECIDED
    body = event.body
    assert body["id"] == "lunch"
    # What it was decided from.
    offered = bandit._journal.arms(body["arms"])
    assert dict(zip(offered.ids, offered.features.tolist(), strict=True)) == MENU
    assert body["time"] == 3.0
    assert body["structure"] is None
    assert body["after"] == event.seq - 1
    assert body["stream"] == [0, "ask", 2]
    assert body["runtime"] == runtime()
    assert np.__version__ in body["runtime"]
    # What was decided.
    decision: Decision = from_json(body["decision"])
    assert decision.ids(Offer(step=2, arms=offered)) == answer.arms
    assert decision.step == 2
    chosen = list(decision.positions)
    np.testing.assert_array_equal(decision.mean, before.mean[chosen])
    np.testing.assert_allclose(decision.std, before.std[chosen], rtol=1e-12)
    np.testing.assert_array_equal(decision.desirability, decision.mean)  # it is greedy
    # Three pairs, of which a random round chooses each alike: ε/3, and 1 − ε more for the greedy one.
    greedy = set(np.argsort(before.mean)[-2:])
    expected = 0.5 / 3 + (0.5 if set(chosen) == greedy else 0.0)
    assert decision.propensity == pytest.approx(expected)
    assert decision.guarantee == Guarantee(alpha=1.0, probability=1.0)


def test_the_hash_of_an_offer_depends_on_its_content_alone(bandit: Bandit) -> None:
    for menu in (MENU, dict(MENU), {**MENU, "tea": [0.9, 0.2]}):
        bandit.ask(menu)
    hashes = [event.body["arms"] for event in bandit.events() if "arms" in event.body]
    assert hashes[0] == hashes[1] != hashes[2]
    assert re.fullmatch("[0-9a-f]{64}", hashes[0])
