"""All verbs at once, by many threads: nothing is lost, doubled or answered twice differently."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from insistent_clients import MENU

from superarm.core.errors import ConflictError, NotFoundError, SuperarmError
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.answers import Tell
from superarm.live.bandit_journal import BanditJournal
from superarm.live.current_fold import CurrentFold
from superarm.live.events import Kind
from superarm.live.journal import StorageError
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import SparseVariational, StreamingGP
from superarm.rules import UCB, Fixed

KERNEL = SquaredExponential(lengthscale=0.3)
THREADS = 6
ROUNDS = 40  # of each thread
RECENT = 20  # decisions that threads compete for


def policy(posterior: type[Any], width: float) -> IndexPolicy:
    return IndexPolicy(
        posterior=posterior(KERNEL, noise_variance=0.01),
        rule=UCB(schedule=Fixed(value=width)),
        oracle=TopK(k=2),
    )


class Racers:
    """Threads that use the same bandit, and what they were promised.

    Args:
        bandits: The same bandit in one or several storages.
        posterior: The class of its posterior.
        folder: Where exports go.
    """

    def __init__(
        self, bandits: list[Bandit], posterior: type[Any], folder: Path
    ) -> None:
        self._bandits = bandits
        self._posterior = posterior
        self._folder = folder
        self._lock = Lock()
        self.answers: dict[str, list[Any]] = {}
        self.rewards = Counter[tuple[str, Any]]()  # how often each was new
        self.abandoned = Counter[str]()  # how often each awaited rewards until then
        self.refusals: list[SuperarmError] = []

    def run(self) -> None:
        """Let all threads use all verbs."""
        with ThreadPoolExecutor(THREADS) as threads:
            for done in threads.map(self._work, range(THREADS)):
                assert done == ROUNDS

    def _work(self, number: int) -> int:
        rng = random.Random(number)
        verbs = [*self._common_verbs(rng), *self._rare_verbs(rng)]
        weights = [8] * 4 + [1] * (len(verbs) - 4)
        for place in range(ROUNDS):
            bandit = rng.choice(self._bandits)
            self._ask(bandit, f"d{number}-{place}")
            (verb,) = rng.choices(verbs, weights)
            try:
                verb(bandit)
            except (ConflictError, NotFoundError) as refusal:
                self.refusals.append(refusal)
        return ROUNDS

    def _common_verbs(self, rng: random.Random) -> Iterator[Callable[[Bandit], object]]:
        yield lambda bandit: self._tell(bandit, *self._recent(rng))
        yield lambda bandit: self._tell_many(bandit, rng)
        yield lambda bandit: self._abandon(bandit, self._recent(rng)[0])
        yield lambda bandit: self._ask(bandit, self._recent(rng)[0])

    def _rare_verbs(self, rng: random.Random) -> Iterator[Callable[[Bandit], object]]:
        yield lambda bandit: bandit.shadow(policy(self._posterior, 1.0))
        yield lambda bandit: bandit.shadow(None)
        yield lambda bandit: bandit.shadow_report()
        yield lambda bandit: bandit.switch()
        yield lambda bandit: bandit.respecify(policy(self._posterior, 2.0))
        yield lambda bandit: bandit.export(self._folder / f"{rng.random()}")
        yield lambda bandit: bandit.explain(self._recent(rng)[0])
        yield lambda bandit: bandit.forget()
        yield lambda bandit: bandit.save_snapshot()
        yield lambda bandit: bandit.name_arms(MENU)
        yield lambda bandit: bandit.pending
        yield lambda bandit: bandit.predict(MENU)

    def _recent(self, rng: random.Random) -> tuple[str, list[Any]]:
        with self._lock:
            return rng.choice(list(self.answers.items())[-RECENT:])

    def _ask(self, bandit: Bandit, decision_id: str) -> None:
        answer = bandit.ask(MENU, decision_id=decision_id)
        with self._lock:
            assert self.answers.setdefault(decision_id, answer.arms) == answer.arms

    def _tell(self, bandit: Bandit, decision_id: str, arms: list[Any]) -> None:
        is_new = bandit.tell(decision_id, {arms[0]: 0.5})
        with self._lock:
            self.rewards[decision_id, arms[0]] += is_new

    def _tell_many(self, bandit: Bandit, rng: random.Random) -> None:
        chosen = [self._recent(rng) for _ in range(3)]
        tells = [
            Tell(decision=decision_id, rewards={arms[1]: 0.2})
            for decision_id, arms in chosen
        ]
        outcomes = bandit.tell_many(tells)
        with self._lock:
            for (decision_id, arms), outcome in zip(chosen, outcomes, strict=True):
                if isinstance(outcome, bool):
                    self.rewards[decision_id, arms[1]] += outcome
                else:
                    assert isinstance(outcome, ConflictError)

    def _abandon(self, bandit: Bandit, decision_id: str) -> None:
        awaited = bandit.abandon(decision_id)
        with self._lock:
            self.abandoned[decision_id] += awaited


@pytest.mark.slow
@pytest.mark.parametrize("posterior", [StreamingGP, SparseVariational])
def test_verbs_that_race_lose_and_double_nothing(
    url: str, posterior: type[Any], tmp_path: Path
) -> None:
    """On PostgreSQL two storages compete for the bandit. One posterior needs the order of decisions."""
    is_file = url.startswith("sqlite:")
    with ExitStack() as stack:
        count = 1 if is_file else 2
        storages = [stack.enter_context(Storage(url)) for _ in range(count)]
        create_bandit("menu", spec=policy(posterior, 2.0), storage=storages[0])
        bandits = [load_bandit("menu", storage=storage) for storage in storages]
        racers = Racers(bandits, posterior, tmp_path)
        racers.run()
        events = list(bandits[0].events())
        decided = [event.body["id"] for event in events if event.kind is Kind.DECIDED]
        assert sorted(decided) == sorted(racers.answers)
        assert max(racers.rewards.values()) == 1
        assert max(racers.abandoned.values()) <= 1
        observed = sum(event.kind is Kind.OBSERVED for event in events)
        assert observed == racers.rewards.total()
        abandoned = sum(event.kind is Kind.ABANDONED for event in events)
        assert abandoned == racers.abandoned.total()
        assert storages[0].journal.check() == []
        pending = set(bandits[0].pending)
    with Storage(url) as storage:
        reloaded = load_bandit("menu", storage=storage)
        assert set(reloaded.pending) == pending
        replay = reloaded.verify()
        assert replay.same, replay.differences


def test_a_call_right_after_a_failed_write_reads_the_journal_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for an event may call again before the callbacks of its failure ran."""
    storage = Storage(f"sqlite:///{tmp_path / 'bandits.db'}")
    bandit = create_bandit("menu", spec=policy(StreamingGP, 1.0), storage=storage)
    menu = {"mocha": [0.1], "latte": [0.6], "tea": [0.9]}
    answer = bandit.ask(menu)
    rewards = dict.fromkeys(answer.arms, 0.5)
    monkeypatch.setattr(CurrentFold, "_drop_if_failed", lambda *_: None)
    monkeypatch.setattr(BanditJournal, "_finish_append", lambda *_: None)

    def fail(_: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(storage.journal, "append", fail)
        with pytest.raises(StorageError, match="the disk is full"):
            bandit.tell(answer.id, rewards=rewards)
    assert bandit.tell(answer.id, rewards=rewards)  # new: the first was never stored
    storage.close()
    again = load_bandit("menu", storage=f"sqlite:///{tmp_path / 'bandits.db'}")
    assert list(again.pending) == []
