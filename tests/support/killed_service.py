"""A service in a process of its own that is killed under load, and the clients that use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

from insistent_clients import MENU, Acknowledged
from served_process import ServedProcess

from superarm.client import Client, RemoteBandit
from superarm.core.errors import SuperarmError

_PATIENCE_SECONDS = 120.0


@contextmanager
def clients(
    url: str, life: int, count: int, acknowledged: Acknowledged
) -> Iterator[None]:
    """Clients that ask and tell until the block ends; what fails they leave unfinished.

    Args:
        url: Where the service is.
        life: How many times it was killed before: part of the decisions' ids.
        count: How many clients there are.
        acknowledged: Where they note what the service acknowledged.
    """
    stopping = Event()

    def loop(client: int) -> None:
        with Client(url, retries=0, timeout=_PATIENCE_SECONDS) as connection:
            bandit = RemoteBandit(connection, "menu")
            number = 0
            while not stopping.is_set():
                number += 1
                name = f"{life}-{client}-{number}"
                try:
                    _ask_and_tell(bandit, name, acknowledged)
                except SuperarmError:
                    return  # the service was killed

    threads = [Thread(target=loop, args=(client,)) for client in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _ask_and_tell(bandit: RemoteBandit, name: str, acknowledged: Acknowledged) -> None:
    answer = bandit.ask(MENU, decision_id=name)
    acknowledged.add_ask(name, str(answer.arms[0]))
    reward = reward_of(name)
    is_new = bandit.tell(answer, {answer.arms[0]: reward})
    acknowledged.add_tell(name, reward, is_new=is_new)


def reward_of(decision: str) -> float:
    """The reward that a client tells for a decision.

    Args:
        decision: Its id.
    """
    life, client, number = map(int, decision.split("-"))
    return (life * 3 + client * 7 + number) % 11 / 10


def kill_under_load(storage: str, spec: Any, kills: int, count: int) -> Acknowledged:
    """Kill a service again and again while clients use it; what it acknowledged.

    Args:
        storage: The URL of the storage.
        spec: The policy of the bandit ``menu``.
        kills: How many times.
        count: How many clients there are.
    """
    acknowledged = Acknowledged()
    for life in range(kills):
        with ServedProcess(storage) as service:
            service.wait_until_ready()
            with Client(service.address) as client:
                client.create_bandit("menu", spec=spec, load_if_exists=True)
            with clients(service.address, life, count, acknowledged):
                enough = acknowledged.count() + 4 * count
                end = monotonic() + _PATIENCE_SECONDS
                while acknowledged.count() < enough:
                    assert monotonic() < end, "the service does not answer"
                    sleep(0.005)
                service.kill()
    return acknowledged


def repeat_unfinished(storage: str, acknowledged: Acknowledged) -> int:
    """Repeat what was asked but not told, as clients do that were cut off; how many there were.

    Args:
        storage: The URL of the storage.
        acknowledged: What was acknowledged before.
    """
    unfinished = sorted(set(acknowledged.asks) - set(acknowledged.tells))
    with ServedProcess(storage) as service:
        service.wait_until_ready()
        with Client(service.address, timeout=_PATIENCE_SECONDS) as client:
            bandit = client.load_bandit("menu")
            for name in unfinished:
                answer = bandit.ask(MENU, decision_id=name)
                assert answer.arms == [acknowledged.asks[name]]
                _ask_and_tell(bandit, name, acknowledged)
    return len(unfinished)
