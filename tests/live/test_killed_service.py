"""``kill -9`` of the service while clients ask and tell over HTTP."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from insistent_clients import MENU, Acknowledged, check_journal, menu_policy
from killed_service import kill_under_load, repeat_unfinished, reward_of
from postgres_cluster import Cluster

from superarm.core import Arms
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.event_reader import EventReader, feedback_of
from superarm.live.events import Kind


@pytest.fixture
def settle(url: str, request: pytest.FixtureRequest) -> Callable[[], None]:
    """Waits until the database has finished what killed processes had sent."""
    if url.startswith("sqlite:"):
        return lambda: None
    running: Cluster = request.getfixturevalue("cluster")
    return running.wait_until_unused


def check_stored(url: str, acknowledged: Acknowledged) -> None:
    """Nothing is lost, doubled or changed; the bandit equals its log."""
    with Storage(url) as storage:
        bandit = load_bandit("menu", storage=storage)
        check_journal(bandit, acknowledged)
        for event in bandit.events():
            if event.kind is Kind.OBSERVED:
                (reward,) = feedback_of(event).rewards.tolist()
                assert reward == reward_of(event.body["decision"])


def check_twin(url: str) -> None:
    """A bandit that was never killed decides alike when it gets the same requests in the same order."""
    with Storage(url) as storage:
        compare_with_twin(load_bandit("menu", storage=storage))


def compare_with_twin(bandit: Bandit) -> None:
    reader = EventReader(bandit._journal)
    with (
        tempfile.TemporaryDirectory() as folder,
        Storage(f"sqlite:///{Path(folder) / 'twin.db'}") as storage,
    ):
        twin = create_bandit("twin", spec=menu_policy(), storage=storage)
        for event in bandit.events():
            if event.kind is Kind.DECIDED:
                record = reader.decision(event)
                answer = twin.ask(record.offer.arms, decision_id=record.id)
                assert answer.arms == record.decision.ids(record.offer)
            elif event.kind is Kind.OBSERVED:
                observation = reader.observation(event)
                arms: Arms = observation.offer.arms
                arm = arms.ids[observation.feedback.positions[0]]
                twin.tell(
                    observation.decision_id, {arm: observation.feedback.rewards[0]}
                )
        assert twin.pending == bandit.pending
        np.testing.assert_allclose(
            twin.predict(MENU).mean, bandit.predict(MENU).mean, rtol=0, atol=1e-9
        )


def kill_and_check(
    url: str, settle: Callable[[], None], kills: int, clients: int
) -> None:
    acknowledged = kill_under_load(url, menu_policy(), kills, clients)
    before = acknowledged.count()
    assert before >= kills * 4 * clients
    settle()
    check_stored(url, acknowledged)
    repeated = repeat_unfinished(url, acknowledged)
    settle()
    check_stored(url, acknowledged)
    check_twin(url)
    assert set(acknowledged.asks) == set(acknowledged.tells)
    print(
        f"{clients} clients, {kills} kills, {before} acknowledged, 0 lost, 0 doubled, "
        f"{repeated} repeated, of which {acknowledged.repeats} were stored already"
    )


@pytest.mark.slow
def test_a_killed_service_loses_nothing(url: str, settle: Callable[[], None]) -> None:
    kill_and_check(url, settle, kills=2, clients=8)


@pytest.mark.slow
@pytest.mark.full
def test_a_service_killed_twenty_times_loses_nothing(
    url: str, settle: Callable[[], None]
) -> None:
    kill_and_check(url, settle, kills=20, clients=32)
