"""A clock that jumps: events stay in order, and no decision is abandoned by mistake."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from superarm.core.registry import spec_of
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.ages import AgeLimit
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
POLICY = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=1),
)
HOUR = 3600.0
YEAR = 365.0 * 24.0 * HOUR


class Clocks:
    """The clock of the machine, and the one that counts seconds since it started.

    Args:
        monkeypatch: Replaces those of the machine.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = 1_700_000_000.0
        self.steady = 1000.0
        monkeypatch.setattr("superarm.live.ages.clock.time", lambda: self.wall)
        monkeypatch.setattr("superarm.live.ages.clock.monotonic", lambda: self.steady)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.fixture
def bandit(clocks: Clocks, tmp_path: Path) -> Iterator[Bandit]:
    """A bandit that abandons decisions after an hour."""
    spec = BanditSpec(policy=spec_of(POLICY), max_age=HOUR)
    with Storage(f"sqlite:///{tmp_path / 'bandits.db'}") as storage:
        yield create_bandit("menu", spec=spec, storage=storage)


def times(bandit: Bandit) -> list[float]:
    return [event.time for event in bandit.events()]


@pytest.mark.parametrize(
    ("max_age", "seconds", "is_jump"),
    [
        (HOUR, 59.0, False),
        (HOUR, 61.0, True),
        (10.0, 4.9, False),  # half of the age
        (10.0, 5.1, True),
        (0.5, 0.9, False),  # how clocks are kept in time
        (0.5, 1.1, True),
    ],
)
def test_what_a_jump_is(
    max_age: float, seconds: float, is_jump: bool, clocks: Clocks
) -> None:
    ages = AgeLimit()
    clocks.wall += seconds
    oldest = ages.oldest(max_age)
    assert oldest == (-math.inf if is_jump else clocks.wall - max_age)
    clocks.wait(max_age)
    assert ages.oldest(max_age) == clocks.wall - max_age


def test_the_time_of_an_event_never_goes_back(bandit: Bandit, clocks: Clocks) -> None:
    first = bandit.ask(MENU)
    clocks.wall -= YEAR
    second = bandit.ask(MENU)
    bandit.tell(first, {first.arms[0]: 1.0})
    assert times(bandit) == sorted(times(bandit))
    assert bandit.decision(second.id).time == bandit.decision(first.id).time
    clocks.wall += YEAR
    clocks.wait(60.0)
    third = bandit.ask(MENU)
    assert bandit.decision(third.id).time == clocks.wall


def test_the_time_of_an_event_never_goes_back_after_a_restart(
    bandit: Bandit, clocks: Clocks
) -> None:
    bandit.ask(MENU)
    bandit.save_snapshot()
    bandit.storage.close()
    clocks.wall -= YEAR
    with Storage(bandit.storage.url) as storage:
        loaded = load_bandit("menu", storage=storage)
        loaded.ask(MENU)
        assert times(loaded) == sorted(times(loaded))
        assert loaded.verify().same


def test_a_jump_back_abandons_nothing(bandit: Bandit, clocks: Clocks) -> None:
    bandit.ask(MENU)
    clocks.wait(HOUR / 2)
    clocks.wall -= YEAR
    bandit.ask(MENU)
    clocks.wait(2 * HOUR)
    bandit.ask(MENU)
    assert len(bandit.pending) == 3


def test_a_jump_forward_delays_abandoning_and_is_logged(
    bandit: Bandit, clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    before = bandit.ask(MENU)
    clocks.wall += YEAR
    after = bandit.ask(MENU)
    assert bandit.pending == [before.id, after.id]
    assert "the clock jumped forward by 31536000 s" in caplog.text
    clocks.wait(HOUR - 1.0)
    last = bandit.ask(MENU)
    assert bandit.pending == [before.id, after.id, last.id]
    clocks.wait(2.0)
    newest = bandit.ask(MENU)
    assert bandit.pending == [last.id, newest.id]
    assert caplog.text.count("jumped") == 1


def test_a_clock_that_is_kept_in_time_does_not_jump(
    bandit: Bandit, clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    old = bandit.ask(MENU)
    clocks.wait(HOUR)
    clocks.wall += 2.0  # as a time server corrects it
    young = bandit.ask(MENU)
    assert bandit.pending == [young.id]
    assert bandit.decision(old.id).status == "abandoned"
    assert caplog.text == ""
