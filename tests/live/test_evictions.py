"""Bandits that a service drops from memory, because others are used more, answer as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from weakref import WeakSet

import httpx
import pytest
from insistent_clients import MENU, menu_policy
from running_service import running_service, wait_until_ready

from superarm.client import Client
from superarm.live import Storage, create_bandit, load_bandit
from superarm.live.events import Event, Kind
from superarm.live.fold import Fold
from superarm.live.journal import Snapshot
from superarm.live.service import Limits, Settings
from superarm.live.service.hub import Hub

NAMES = [f"menu{number}" for number in range(5)]


@pytest.fixture
def address(storage: Storage) -> Iterator[str]:
    """A service that has two of five bandits in memory."""
    for name in NAMES:
        create_bandit(name, spec=menu_policy(), storage=storage)
    settings = Settings(limits=Limits(bandits=2))
    with running_service(storage, settings) as url:
        yield url


def in_memory(address: str) -> float:
    text = httpx.get(f"{address}/metrics").text
    (line,) = (
        line
        for line in text.splitlines()
        if line.startswith("superarm_bandits_in_memory ")
    )
    return float(line.split()[1])


def snapshot_of(storage: Storage, name: str) -> Snapshot | None:
    row = storage.journal.find("", name)
    assert row is not None
    return storage.journal.snapshot(row.id)


@pytest.mark.slow
def test_an_evicted_bandit_answers_as_one_that_never_was(
    address: str, tmp_path: Path
) -> None:
    with (
        Client(address) as client,
        Storage(f"sqlite:///{tmp_path / 'twin.db'}") as twins,
    ):
        for number in range(30):
            name = NAMES[number * number % 5]  # in no regular order
            served = client.load_bandit(name)
            twin = create_bandit(
                name, spec=menu_policy(), storage=twins, load_if_exists=True
            )
            answer = served.ask(MENU, decision_id=f"d{number}")
            expected = twin.ask(MENU, decision_id=f"d{number}")
            assert answer.arms == expected.arms
            assert answer.mean == pytest.approx(expected.mean, abs=1e-9)
            assert answer.std == pytest.approx(expected.std, abs=1e-9)
            if number % 3:
                reward = {answer.arms[0]: number / 10}
                assert served.tell(answer.id, reward)
                assert twin.tell(answer.id, reward)
            assert in_memory(address) <= 2


@pytest.mark.slow
def test_many_clients_of_evicted_bandits_lose_nothing(
    address: str, storage: Storage
) -> None:
    def use(client: int) -> None:
        with Client(address) as connection:
            for number in range(10):
                bandit = connection.load_bandit(NAMES[(client + number) % 5])
                answer = bandit.ask(MENU, decision_id=f"{client}-{number}")
                assert bandit.tell(answer.id, {answer.arms[0]: number / 10})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    decisions = 0
    for name in NAMES:
        bandit = load_bandit(name, storage=storage)
        replay = bandit.verify()
        assert replay.same
        assert bandit.pending == []
        decisions += replay.decisions
    assert decisions == 80


def test_only_a_bandit_that_learned_is_stored_when_it_is_evicted(
    storage: Storage,
) -> None:
    for name in NAMES:
        create_bandit(name, spec=menu_policy(), storage=storage)
    hub = Hub(storage, Limits(bandits=1))
    hub.bandit("", "menu0").ask(MENU)
    hub.bandit("", "menu1")  # evicts it
    first = snapshot_of(storage, "menu0")
    assert first is not None
    assert first.seq == 2
    hub.bandit("", "menu2")  # evicts one that nobody has read
    assert snapshot_of(storage, "menu1") is None
    commits = storage.commits.count
    hub.bandit("", "menu0").predict(MENU)
    hub.bandit("", "menu1")
    assert storage.commits.count == commits
    assert snapshot_of(storage, "menu0") == first


def folds() -> WeakSet[Fold]:
    """What all bandits of this process have learned."""
    return WeakSet(item for item in gc.get_objects() if type(item) is Fold)


def test_nothing_of_an_evicted_bandit_stays_in_memory(storage: Storage) -> None:
    for name in NAMES[:2]:
        create_bandit(name, spec=menu_policy(), storage=storage)
    others = folds()
    hub = Hub(storage, Limits(bandits=1))
    hub.bandit("", "menu0").ask(MENU)
    learned = folds() - others
    assert len(learned) == 1
    hub.bandit("", "menu1")  # evicts it
    assert hub.count() == 1
    end = monotonic() + 60.0
    while learned:  # until the writer has released what it stored last
        assert monotonic() < end
        sleep(0.01)
        gc.collect()


def test_a_damaged_bandit_does_not_keep_the_others_from_being_ready(
    storage: Storage,
) -> None:
    for name in NAMES:
        create_bandit(name, spec=menu_policy(), storage=storage)
    without_spec = Event(seq=1, key="created", kind=Kind.CREATED, time=0.0, body={})
    storage.journal.create("", "damaged", without_spec)
    with (
        running_service(storage) as address,
        httpx.Client(base_url=address, timeout=60.0) as http,
    ):
        wait_until_ready(http)
        assert in_memory(address) == 6
        for name in NAMES:
            answer = http.post(f"/v1/bandits/{name}/decisions", json={"arms": MENU})
            assert answer.status_code == 201
        damaged = http.post("/v1/bandits/damaged/decisions", json={"arms": MENU})
        assert damaged.status_code == 500
