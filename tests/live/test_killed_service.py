"""``kill -9`` of the service while clients ask and tell over HTTP."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from insistent_clients import MENU, menu_policy
from killed_service import (
    Acknowledged,
    kill_under_load,
    repeat_unfinished,
    reward_of,
)
from postgres_cluster import Cluster

from superarm.core import Arms, Feedback
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.event_reader import EventReader
from superarm.live.events import Kind


@pytest.fixture
def settle(url: str, request: pytest.FixtureRequest) -> Callable[[], None]:
    """Waits until the database has finished what killed processes had sent."""
    if url.startswith("sqlite:"):
        return lambda: None
    running: Cluster = request.getfixturevalue("cluster")
    return running.wait_until_unused


class Journalled:
    """What a journal contains, read without the bandit's memory.

    Args:
        bandit: The bandit.
    """

    def __init__(self, bandit: Bandit) -> None:
        reader = EventReader(bandit._journal)
        self.asks: Counter[tuple[str, str]] = Counter()
        self.tells: Counter[tuple[str, float]] = Counter()
        for event in bandit.events():
            if event.kind is Kind.DECIDED:
                record = reader.decision(event)
                arm = str(record.decision.ids(record.offer)[0])
                self.asks[record.id, arm] += 1
            elif event.kind is Kind.OBSERVED:
                observation = reader.observation(event)
                feedback: Feedback = observation.feedback
                self.tells[event.body["decision"], float(feedback.rewards[0])] += 1

    def lost(self, acknowledged: Acknowledged) -> int:
        """Acknowledged decisions and rewards that are missing."""
        asks = set(acknowledged.asks.items()) - set(self.asks)
        tells = set(acknowledged.tells.items()) - set(self.tells)
        return len(asks) + len(tells)

    def doubled(self) -> int:
        """Decisions and rewards that are there more than once, or in two versions."""
        total = self.asks.total() + self.tells.total()
        decided = {decision for decision, _ in self.asks}
        rewarded = {decision for decision, _ in self.tells}
        return total - len(decided) - len(rewarded)


def check_journal(url: str, acknowledged: Acknowledged) -> None:
    """Nothing is lost or doubled; the bandit equals its log."""
    with Storage(url) as storage:
        assert storage.journal.check() == []
        bandit = load_bandit("menu", storage=storage)
        journalled = Journalled(bandit)
        assert journalled.lost(acknowledged) == 0
        assert journalled.doubled() == 0
        for decision, reward in journalled.tells:
            assert reward == reward_of(decision)
        assert bandit.verify().same
        check_posterior(bandit)


def check_posterior(bandit: Bandit) -> None:
    """The posterior equals one that is fitted to the rewards of the log at once."""
    pairs = []
    reader = EventReader(bandit._journal)
    for event in bandit.events():
        if event.kind is Kind.OBSERVED:
            observation = reader.observation(event)
            features = observation.offer.arms.features[observation.feedback.positions]
            pairs.append((features[0], observation.feedback.rewards[0]))
    inputs = np.array([features for features, _ in pairs])
    rewards = np.array([reward for _, reward in pairs])
    kernel = SquaredExponential(lengthscale=0.3)
    menu = np.array(list(MENU.values()))
    # Rasmussen and Williams (2006), equations 2.25 and 2.26.
    covariance = kernel(inputs, inputs) + 0.01 * np.eye(len(inputs))
    cross = kernel(menu, inputs)
    mean = cross @ np.linalg.solve(covariance, rewards)
    variance = 1.0 - (cross * np.linalg.solve(covariance, cross.T).T).sum(axis=1)
    forecast = bandit.predict(MENU)
    np.testing.assert_allclose(forecast.mean, mean, rtol=0, atol=1e-9)
    assert forecast.std is not None
    np.testing.assert_allclose(forecast.std**2, variance, rtol=0, atol=1e-9)


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
    check_journal(url, acknowledged)
    repeated = repeat_unfinished(url, acknowledged)
    settle()
    check_journal(url, acknowledged)
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
