"""Clients that repeat what fails until it succeeds, and proofs of what a journal then contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Any, NamedTuple, Self

import numpy as np

from superarm.core import Decision, Feedback
from superarm.core.errors import SuperarmError
from superarm.core.serialization import from_json
from superarm.kernels import SquaredExponential
from superarm.live import Bandit
from superarm.live.events import Kind
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
_KERNEL = SquaredExponential(lengthscale=0.3)
_NOISE_VARIANCE = 0.01
_PATIENCE_SECONDS = 120.0


def menu_policy() -> IndexPolicy:
    """The policy of the bandit ``menu``, whose posterior :func:`check_journal` computes."""
    return IndexPolicy(
        posterior=StreamingGP(_KERNEL, noise_variance=_NOISE_VARIANCE),
        rule=UCB(schedule=Fixed(value=2.0)),
        oracle=TopK(k=1),
    )


class Acknowledged:
    """Decisions with their arm, and rewards, that clients know to be durable."""

    def __init__(self) -> None:
        self.asks: dict[str, str] = {}
        self.tells: dict[str, float] = {}
        self.repeats = 0
        """Tells that were stored, though their first acknowledgement never arrived."""
        self._lock = Lock()

    def add_ask(self, decision: str, arm: str) -> None:
        """Note a decision.

        Args:
            decision: Its id.
            arm: The arm that it chose.
        """
        with self._lock:
            self.asks[decision] = arm

    def add_tell(self, decision: str, reward: float, *, is_new: bool) -> None:
        """Note a reward.

        Args:
            decision: The id of its decision.
            reward: The reward.
            is_new: Whether the bandit did not have it before.
        """
        with self._lock:
            self.tells[decision] = reward
            if not is_new:
                self.repeats += 1

    def count(self) -> int:
        """Acknowledgements so far."""
        return len(self.asks) + len(self.tells)


class InsistentClients:
    """Threads that ask and tell until the block ends.

    Args:
        bandits: What each thread uses: a bandit, or one of a service.
        prefix: The first part of their decisions' ids.
    """

    def __init__(self, bandits: Sequence[Any], prefix: str = "d") -> None:
        self.acknowledged = Acknowledged()
        self.failures: list[SuperarmError] = []
        """What was raised; each request was then repeated."""
        self._prefix = prefix
        self._lock = Lock()
        self._stopping = Event()
        self._defects: list[BaseException] = []
        self._threads = [
            Thread(target=self._run, args=(number, bandit))
            for number, bandit in enumerate(bandits)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self._defects, self._defects

    def wait_for_acknowledgements(self, more: int) -> None:
        """Wait until requests have succeeded.

        Args:
            more: How many, from now on.
        """
        enough = self.acknowledged.count() + more
        self._wait(lambda: self.acknowledged.count() >= enough)

    def wait_for_failures(self, more: int) -> None:
        """Wait until requests have failed.

        Args:
            more: How many, from now on.
        """
        enough = len(self.failures) + more
        self._wait(lambda: len(self.failures) >= enough)

    def _wait(self, is_reached: Callable[[], bool]) -> None:
        end = monotonic() + _PATIENCE_SECONDS
        while not is_reached():
            assert not self._defects, self._defects
            assert monotonic() < end, self.failures[-1:]
            sleep(0.005)

    def _run(self, client: int, bandit: Any) -> None:
        try:
            self._loop(client, bandit)
        except BaseException as error:
            self._defects.append(error)

    def _loop(self, client: int, bandit: Any) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            name = f"{self._prefix}-{client}-{number}"
            answer = self._insist(lambda: bandit.ask(MENU, decision_id=name))  # noqa: B023
            if answer is None:
                return
            arm = str(answer.arms[0])
            self.acknowledged.add_ask(name, arm)
            reward = (7 * client + number) % 11 / 10
            is_new = self._insist(lambda: bandit.tell(name, {arm: reward}))  # noqa: B023
            if is_new is None:
                return
            self.acknowledged.add_tell(name, reward, is_new=is_new)

    def _insist(self, request: Callable[[], Any]) -> Any:
        """Repeat a request until it succeeds; ``None`` if the block ends before."""
        while True:
            try:
                return request()
            except SuperarmError as error:
                with self._lock:
                    self.failures.append(error)
                if self._stopping.is_set():
                    return None
                sleep(0.005)


class JournalCounts(NamedTuple):
    """What a journal has of what clients know to be durable."""

    acknowledged: int
    """Decisions and rewards that clients know to be durable."""
    lost: int
    """How many of them are missing, or have another arm or reward."""
    doubled: int
    """Events of a decision or reward beyond its first."""


class _Contents(NamedTuple):
    asks: dict[str, str]
    tells: dict[str, float]
    times: Counter[str]


def _contents(bandit: Bandit) -> _Contents:
    arms = list(MENU)
    contents = _Contents({}, {}, Counter())
    for event in bandit.events():
        if event.kind is Kind.DECIDED:
            decision: Decision = from_json(event.body["decision"])
            contents.asks[event.body["id"]] = arms[decision.positions[0]]
            contents.times[f"ask {event.body['id']}"] += 1
        elif event.kind is Kind.OBSERVED:
            feedback: Feedback = from_json(event.body["feedback"])
            contents.tells[event.body["decision"]] = float(feedback.rewards[0])
            contents.times[f"tell {event.body['decision']}"] += 1
    return contents


def count_journal(bandit: Bandit, acknowledged: Acknowledged) -> JournalCounts:
    """Count what is lost or doubled.

    Args:
        bandit: The bandit ``menu``.
        acknowledged: What clients know to be durable.
    """
    asks, tells, times = _contents(bandit)
    lost_asks = acknowledged.asks.items() - asks.items()
    lost_tells = acknowledged.tells.items() - tells.items()
    return JournalCounts(
        acknowledged=acknowledged.count(),
        lost=len(lost_asks) + len(lost_tells),
        doubled=times.total() - len(times),
    )


def check_journal(bandit: Bandit, acknowledged: Acknowledged) -> None:
    """Nothing is lost or counted twice, and memory equals what the log implies.

    Args:
        bandit: The bandit ``menu``, in the state to check.
        acknowledged: What clients know to be durable.
    """
    assert bandit.storage.journal.check() == []
    numbers = [event.seq for event in bandit.events()]
    assert numbers == list(range(1, len(numbers) + 1))
    counts = count_journal(bandit, acknowledged)
    assert counts.lost == 0
    assert counts.doubled == 0
    asks, tells, _ = _contents(bandit)
    assert set(bandit.pending) == set(asks) - set(tells)
    assert bandit.verify().same
    _check_posterior(bandit, [(asks[name], tells[name]) for name in tells])


def _check_posterior(bandit: Bandit, rewarded: list[tuple[str, float]]) -> None:
    """The posterior equals one that is fitted to all rewards at once."""
    inputs = np.array([MENU[arm] for arm, _ in rewarded]).reshape(-1, 2)
    rewards = np.array([reward for _, reward in rewarded])
    menu = np.array(list(MENU.values()))
    # Rasmussen and Williams (2006), equations 2.25 and 2.26.
    covariance = _KERNEL(inputs, inputs) + _NOISE_VARIANCE * np.eye(len(inputs))
    cross = _KERNEL(menu, inputs)
    mean = cross @ np.linalg.solve(covariance, rewards)
    variance = 1.0 - (cross * np.linalg.solve(covariance, cross.T).T).sum(axis=1)
    forecast = bandit.predict(MENU)
    assert forecast.std is not None
    np.testing.assert_allclose(forecast.mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(forecast.std**2, variance, rtol=0, atol=1e-9)
