"""``kill -9`` of the service while clients ask and tell over HTTP."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_table import record_menu
from insistent_clients import Acknowledged, check_journal, menu_policy
from killed_service import kill_under_load, repeat_unfinished, reward_of

from superarm.live import Storage, load_bandit
from superarm.live.event_reader import feedback_of
from superarm.live.events import Kind


def check_stored(url: str, acknowledged: Acknowledged) -> None:
    """Nothing is lost, doubled or changed; the bandit equals its log."""
    with Storage(url) as storage:
        bandit = load_bandit("menu", storage=storage)
        check_journal(bandit, acknowledged)
        for event in bandit.events():
            if event.kind is Kind.OBSERVED:
                (reward,) = feedback_of(event).rewards.tolist()
                assert reward == reward_of(event.body["decision"])


def kill_and_check(
    url: str, wait_for_database: Callable[[], None], kills: int, clients: int
) -> None:
    acknowledged = kill_under_load(url, menu_policy(), kills, clients)
    assert acknowledged.count() >= kills * 4 * clients
    wait_for_database()
    check_stored(url, acknowledged)
    repeated = repeat_unfinished(url, acknowledged)
    wait_for_database()
    check_stored(url, acknowledged)
    assert set(acknowledged.asks) == set(acknowledged.tells)
    print(f"{repeated} repeated, of which {acknowledged.repeats} were stored already")
    with Storage(url) as storage:
        record_menu(
            "kill -9 of the service",
            load_bandit("menu", storage=storage),
            acknowledged,
            clients=clients,
            faults=kills,
        )


@pytest.mark.slow
def test_a_killed_service_loses_nothing(
    url: str, wait_for_database: Callable[[], None]
) -> None:
    kill_and_check(url, wait_for_database, kills=2, clients=8)


@pytest.mark.slow
@pytest.mark.full
def test_a_service_killed_twenty_times_loses_nothing(
    url: str, wait_for_database: Callable[[], None]
) -> None:
    kill_and_check(url, wait_for_database, kills=20, clients=32)
