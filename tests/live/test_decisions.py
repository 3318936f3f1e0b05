"""The status of a decision: the bandit, an export and a report derive it alike."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, create_bandit
from superarm.live.decisions import Status, decision_status
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
