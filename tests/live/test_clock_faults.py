"""A clock that jumps back and forth: order is by number, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pytest
from fault_table import record_menu
from insistent_clients import (
    MENU,
    Acknowledged,
    InsistentClients,
    check_journal,
    menu_policy,
)
from running_service import running_service

from superarm.client import Client
from superarm.core.registry import spec_of
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.events import Kind
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import SparseVariational
from superarm.rules import UCB, Fixed

DAY = 86_400.0
YEAR = 365 * DAY
JUMPS = [0.0, -YEAR, DAY, -10 * YEAR, 10 * YEAR, -60.0, -60 * YEAR, 100 * YEAR]


class Clock:
    """The clock of the machine, which can be set."""

    def __init__(self) -> None:
        self._true_time = time.time
        self.shift = 0.0  # seconds

    def time(self) -> float:
        return self._true_time() + self.shift


@pytest.fixture
def machine_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock.time)
    return clock


def reversals(bandit: Bandit) -> int:
    """How often an event is older than the one before, by the clock."""
    times = [event.time for event in bandit.events()]
    return int(np.sum(np.diff(times) < 0))


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with Storage(url) as opened:
        yield opened


def test_events_keep_their_order_whatever_the_clock_says(
    storage: Storage, machine_clock: Clock
) -> None:
    bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
    acknowledged = Acknowledged()
    for number, jump in enumerate(JUMPS):
        answer = bandit.ask(MENU, decision_id=f"d{number}")
        acknowledged.asks[answer.id] = str(answer.arms[0])
        machine_clock.shift += jump
        if number % 3:
            bandit.tell(answer, {answer.arms[0]: number / 10})
            acknowledged.tells[answer.id] = number / 10
    assert bandit.pending == ["d0", "d3", "d6"]  # the oldest by number first
    assert reversals(bandit) == 0
    check_journal(bandit, acknowledged)
    bandit.forget()  # and read from the journal
    assert bandit.pending == ["d0", "d3", "d6"]
    check_journal(bandit, acknowledged)


def jump_repeatedly(
    clients: InsistentClients, clock: Clock, jumps: Sequence[float], count: int
) -> None:
    for jump in jumps:
        clients.wait_for_acknowledgements(2 * count)
        clock.shift += jump
    clients.wait_for_acknowledgements(2 * count)


@pytest.mark.slow
def test_a_service_outlives_jumps_of_the_clock(
    storage: Storage, machine_clock: Clock
) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(running_service(storage))
        connections = [stack.enter_context(Client(address)) for _ in range(4)]
        connections[0].create_bandit("menu", spec=menu_policy())
        bandits = [connection.load_bandit("menu") for connection in connections]
        with InsistentClients(bandits) as clients:
            jump_repeatedly(clients, machine_clock, JUMPS, len(bandits))
        assert clients.failures == []
        bandit = load_bandit("menu", storage=storage)
        assert reversals(bandit) == 0
        check_journal(bandit, clients.acknowledged)
    storage.close()
    with Storage(storage.url) as reopened:
        record_menu(
            "jump of the clock",
            load_bandit("menu", storage=reopened),
            clients.acknowledged,
            clients=len(bandits),
            faults=len(JUMPS),
        )


@pytest.mark.slow
@pytest.mark.full
def test_a_bandit_outlives_two_hundred_jumps_of_the_clock(
    storage: Storage, machine_clock: Clock
) -> None:
    bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
    jumps = np.random.default_rng(0).normal(scale=YEAR, size=200).tolist()
    with InsistentClients([bandit] * 8) as clients:
        jump_repeatedly(clients, machine_clock, jumps, 8)
    assert clients.failures == []
    record_menu(
        "jump of the clock",
        bandit,
        clients.acknowledged,
        clients=8,
        faults=len(jumps),
    )


def ordered_policy() -> IndexPolicy:
    """A policy that learns in decision order."""
    return IndexPolicy(
        posterior=SparseVariational(
            SquaredExponential(lengthscale=0.3), noise_variance=0.01
        ),
        rule=UCB(schedule=Fixed(value=2.0)),
        oracle=TopK(k=1),
    )


@pytest.mark.parametrize("make_policy", [menu_policy, ordered_policy])
def test_decisions_of_an_age_limit_replay_after_jumps(
    make_policy: Callable[[], IndexPolicy], storage: Storage, machine_clock: Clock
) -> None:
    """Jumps may abandon decisions early or late; whatever was acknowledged stays, and replays."""
    spec = BanditSpec(policy=spec_of(make_policy()), max_age=3600.0)
    bandit = create_bandit("aged", spec=spec, storage=storage)
    learned = {}
    for number, jump in enumerate(JUMPS):
        answer = bandit.ask(MENU, decision_id=f"d{number}")
        if number % 2:
            bandit.tell(answer, {answer.arms[0]: number / 10})
            learned[answer.id] = number / 10
        machine_clock.shift += jump
    events = list(bandit.events())
    observed = [
        event.body["decision"] for event in events if event.kind is Kind.OBSERVED
    ]
    assert observed == list(learned)
    before = bandit.predict(MENU)
    bandit.forget()
    np.testing.assert_allclose(bandit.predict(MENU).mean, before.mean, atol=1e-9)
    assert bandit.verify().same
