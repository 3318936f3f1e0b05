"""What happens when the disk fails, threads compete or the process is killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock
from typing import Any

import httpx
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
from postgres_cluster import Cluster
from served_process import ServedProcess

from superarm.client import Client
from superarm.core import Decision, Offer
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.events import Kind
from superarm.live.fold import Fold
from superarm.live.journal import Append, StorageError


@pytest.fixture
def bandit(url: str) -> Iterator[Bandit]:
    with Storage(url) as storage:
        yield create_bandit("menu", spec=menu_policy(), storage=storage)


def test_a_failed_commit_is_not_acknowledged_and_leaves_no_trace(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = bandit.ask(MENU)
    before = bandit.predict(MENU)

    def fail(appends: Sequence[Append]) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bandit.storage.journal, "append", fail)
        for _ in range(2):
            with pytest.raises(StorageError, match="the disk is full"):
                bandit.tell(answer, {answer.arms[0]: 1.0})
            with pytest.raises(StorageError, match="the disk is full"):
                bandit.ask(MENU)
    np.testing.assert_array_equal(bandit.predict(MENU).mean, before.mean)
    assert bandit.pending == [answer.id]
    assert bandit.tell(answer, {answer.arms[0]: 1.0})
    assert bandit.verify().same


# --- repetitions while the first is being stored -------------------------------------------


class HeldJournal:
    """A journal whose next appends wait, and then succeed or fail."""

    def __init__(self, bandit: Bandit) -> None:
        self.release = Event()
        self.failure: StorageError | None = None
        self._append = bandit.storage.journal.append
        bandit.storage.journal.append = self.append  # type: ignore[method-assign]

    def append(self, appends: Sequence[Append]) -> None:
        assert self.release.wait(timeout=30)
        if self.failure is not None:
            raise self.failure
        self._append(appends)


def test_a_repetition_is_acknowledged_when_the_first_is_durable(bandit: Bandit) -> None:
    held = HeldJournal(bandit)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(bandit.ask, MENU, decision_id="x")
        second = threads.submit(bandit.ask, MENU, decision_id="x")
        finished, _ = wait([first, second], timeout=0.3)
        assert not finished
        held.release.set()
        assert first.result(30).arms == second.result(30).arms
    assert bandit.pending == ["x"]


def test_a_decision_that_rests_on_what_was_not_stored_fails(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ask fails while the second decides, with the first among the pending ones."""
    held = HeldJournal(bandit)
    held.failure = StorageError("the disk is full")
    decide = Fold.decide
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(bandit.ask, MENU, decision_id="x")
        while bandit.pending != ["x"]:
            pass

        def decide_late(fold: Fold, offer: Offer) -> Decision:
            assert list(fold.open) == ["x"]
            held.release.set()
            assert isinstance(first.exception(30), StorageError)
            held.failure = None
            return decide(fold, offer)

        monkeypatch.setattr(Fold, "decide", decide_late)
        with pytest.raises(StorageError, match="disk is full"):
            bandit.ask(MENU, decision_id="y")
    monkeypatch.undo()
    assert bandit.pending == []
    assert bandit.ask(MENU, decision_id="y").id == "y"
    assert bandit.verify().same


def test_a_repetition_succeeds_whatever_the_disk_does(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is durable, and a repetition stores nothing."""
    answer = bandit.ask(MENU, decision_id="x")

    def fail(appends: Sequence[Append]) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bandit.storage.journal, "append", fail)
        assert bandit.ask(MENU, decision_id="x") == answer
        with pytest.raises(StorageError, match="disk is full"):
            bandit.ask(MENU, decision_id="y")
        assert bandit.ask(MENU, decision_id="x") == answer
    assert bandit.ask(MENU, decision_id="x") == answer


def test_an_interrupted_request_leaves_no_gap(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between learning and storing: memory was ahead of the journal."""
    answer = bandit.ask(MENU, decision_id="x")

    def interrupt(event: object, blobs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bandit._journal, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bandit.tell(answer, {answer.arms[0]: 1.0})
    assert bandit.tell(answer, {answer.arms[0]: 1.0})
    assert [event.seq for event in bandit.events()] == [1, 2, 3]
    assert bandit.verify().same


def test_a_request_that_cannot_be_queued_leaves_no_trace(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was learned in memory, and then the queue refused it."""
    answer = bandit.ask(MENU)
    before = bandit.predict(MENU)

    def refuse(append: Append) -> None:
        raise StorageError("the storage is closed")

    with monkeypatch.context() as patch:
        patch.setattr(bandit.storage.commits, "submit", refuse)
        with pytest.raises(StorageError, match="closed"):
            bandit.tell(answer, {answer.arms[0]: 1.0})
    np.testing.assert_array_equal(bandit.predict(MENU).mean, before.mean)
    assert bandit.pending == [answer.id]
    assert bandit.tell(answer, {answer.arms[0]: 1.0})
    assert bandit.verify().same


def test_reading_the_journal_waits_for_what_is_queued(bandit: Bandit) -> None:
    answer = bandit.ask(MENU)
    held = HeldJournal(bandit)
    with ThreadPoolExecutor(2) as threads:
        telling = threads.submit(bandit.tell, answer, {answer.arms[0]: 1.0})
        while bandit.storage.commits.waiting() or bandit._current.read().seq < 3:
            pass
        bandit.forget()  # memory holds the reward, the journal does not yet
        reading = threads.submit(bandit.predict, MENU)
        finished, _ = wait([reading], timeout=0.3)
        assert not finished
        held.release.set()
        assert telling.result(30)
        mean = reading.result(30).mean
    np.testing.assert_array_equal(mean, bandit.predict(MENU).mean)
    assert bandit.verify().same


def test_nobody_hears_of_a_decision_that_may_still_fail(bandit: Bandit) -> None:
    held = HeldJournal(bandit)
    with ThreadPoolExecutor(2) as threads:
        asking = threads.submit(bandit.ask, MENU, decision_id="x")
        while bandit.pending != ["x"]:
            pass
        reading = threads.submit(bandit.decision, "x")
        finished, _ = wait([reading], timeout=0.3)
        assert not finished
        held.release.set()
        assert reading.result(30).answer == asking.result(30)


@pytest.mark.parametrize("verb", ["respecify", "refit"])
def test_a_new_policy_learns_what_is_queued(verb: str, bandit: Bandit) -> None:
    """It reads the rewards so far from the journal, which does not have the last one yet."""
    twin = create_bandit("twin", spec=menu_policy(), storage=bandit.storage)
    for each in (bandit, twin):
        for number in range(3):
            answer = each.ask(MENU, decision_id=f"d{number}")
            each.tell(answer, {answer.arms[0]: float(number)})
        each.ask(MENU, decision_id="x")
    arm = bandit.decision("x").answer.arms[0]
    change: dict[str, Callable[[Bandit], object]] = {
        "respecify": lambda each: each.respecify(menu_policy()),
        "refit": Bandit.refit,
    }
    assert twin.tell("x", {arm: 1.0})
    change[verb](twin)
    held = HeldJournal(bandit)
    with ThreadPoolExecutor(2) as threads:
        telling = threads.submit(bandit.tell, "x", {arm: 1.0})
        while bandit.pending:
            pass
        changing = threads.submit(change[verb], bandit)
        finished, _ = wait([changing], timeout=0.3)
        assert not finished
        held.release.set()
        assert telling.result(30)
        changing.result(30)
    np.testing.assert_array_equal(bandit.predict(MENU).mean, twin.predict(MENU).mean)


def test_explanations_do_not_displace_the_arms_of_an_ask(bandit: Bandit) -> None:
    """Each decision has arms of its own, more than are cached."""
    for number in range(20):
        arms = {name: [row[0] + number, row[1]] for name, row in MENU.items()}
        bandit.ask(arms, decision_id=f"d{number}")
    stopping = Event()

    def explain() -> None:
        while not stopping.is_set():
            bandit.explain("d19")

    with ThreadPoolExecutor(2) as threads:
        explaining = [threads.submit(explain) for _ in range(2)]
        for number in range(20):
            arms = {name: [row[0], row[1] + number] for name, row in MENU.items()}
            bandit.ask(arms, decision_id=f"e{number}")
        stopping.set()
        for one in explaining:
            one.result(60)
    assert len(bandit.pending) == 40


def test_a_snapshot_that_is_not_stored_fails_nothing_else(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is not ahead of the journal, so later events need not wait for it to be read."""

    def fail(appends: Sequence[Append]) -> None:
        raise StorageError("the disk is full")

    bandit.ask(MENU, decision_id="x")
    with monkeypatch.context() as patch:
        patch.setattr(bandit.storage.journal, "append", fail)
        with pytest.raises(StorageError, match="disk is full"):
            bandit.save_snapshot()
    assert bandit.ask(MENU, decision_id="y").id == "y"
    assert bandit.needs_snapshot()
    bandit.save_snapshot()
    assert not bandit.needs_snapshot()


def test_a_repetition_fails_if_the_first_is_not_stored(bandit: Bandit) -> None:
    held = HeldJournal(bandit)
    held.failure = StorageError("the disk is full")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(bandit.ask, MENU, decision_id="x")
        second = threads.submit(bandit.ask, MENU, decision_id="x")
        held.release.set()
        for asked in (first, second):
            with pytest.raises(StorageError, match="disk is full"):
                asked.result(30)
    assert bandit.pending == []
    held.failure = None
    assert bandit.ask(MENU, decision_id="x").id == "x"


def test_threads_share_a_bandit(bandit: Bandit) -> None:
    def loop(client: int) -> int:
        for number in range(10):
            answer = bandit.ask(MENU, decision_id=f"{client}-{number}")
            assert bandit.tell(answer, {answer.arms[0]: client / 10.0})
        return client

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(loop, range(8))) == list(range(8))
    assert bandit.pending == []
    replay = bandit.verify()
    assert replay.decisions == 80
    assert replay.same


def test_the_same_request_from_many_threads_counts_once(bandit: Bandit) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: bandit.ask(MENU, decision_id="one"), range(16))
        )
        new = list(
            pool.map(lambda _: bandit.tell("one", {answers[0].arms[0]: 1.0}), range(16))
        )
    assert all(answer == answers[0] for answer in answers)
    assert new.count(True) == 1
    events = list(bandit.storage.journal.events(1))
    assert [event.kind for event in events] == [
        Kind.CREATED,
        Kind.DECIDED,
        Kind.OBSERVED,
    ]


CLIENTS = textwrap.dedent(
    """
    import sys, threading, time
    sys.path[:0] = sys.argv[3:]
    from superarm.live import Storage, load_bandit
    from superarm.live.journal import StaleOwnerError

    menu = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
    life = sys.argv[2]
    bandit = load_bandit("menu", storage=Storage(sys.argv[1]))
    lock = threading.Lock()

    def acknowledge(*words):
        with lock:
            print(*words, flush=True)

    def insist(request):
        while True:
            try:
                return request()
            except StaleOwnerError:
                # PostgreSQL still committed what the killed process had sent.
                time.sleep(0.01)

    def loop(client):
        number = 0
        while True:
            number += 1
            name = f"{life}-{client}-{number}"
            answer = insist(lambda: bandit.ask(menu, decision_id=name))
            acknowledge("ask", name, answer.arms[0])
            reward = (client * 7 + number) % 11 / 10
            insist(lambda: bandit.tell(answer, {answer.arms[0]: reward}))
            acknowledge("tell", name, reward)

    for client in range(CLIENTS):
        threading.Thread(target=loop, args=(client,)).start()
    """
)


def kill_repeatedly(url: str, kills: int, clients: int) -> Acknowledged:
    """Kill a process under load; return what it had acknowledged."""
    with Storage(url) as storage:
        create_bandit("menu", spec=menu_policy(), storage=storage)
    acknowledged = Acknowledged()
    source = str(Path(__file__).parents[2] / "src")
    for life in range(kills):
        script = CLIENTS.replace("CLIENTS", str(clients))
        command = [sys.executable, "-c", script, url, str(life), source]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # It is at work: all clients have come round several times.
            first = "".join(process.stdout.readline() for _ in range(4 * clients))
            process.kill()
            # The last line may be torn; a line that ends was printed after the commit.
            rest = process.stdout.read()
        for line in (first + rest).splitlines(keepends=True):
            if line.endswith("\n"):
                kind, decision, value = line.split()
                if kind == "ask":
                    acknowledged.add_ask(decision, value)
                else:
                    acknowledged.add_tell(decision, float(value), is_new=True)
    return acknowledged


def kill_and_check(
    url: str, wait_for_database: Callable[[], None], kills: int, clients: int
) -> None:
    acknowledged = kill_repeatedly(url, kills, clients)
    assert acknowledged.count() >= kills * 4 * clients
    wait_for_database()
    with Storage(url) as storage:
        record_menu(
            "kill -9 of a process with a bandit",
            load_bandit("menu", storage=storage),
            acknowledged,
            clients=clients,
            faults=kills,
        )


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(
    url: str, wait_for_database: Callable[[], None]
) -> None:
    kill_and_check(url, wait_for_database, kills=2, clients=8)


@pytest.mark.slow
@pytest.mark.full
def test_twenty_kills_lose_nothing(
    url: str, wait_for_database: Callable[[], None]
) -> None:
    kill_and_check(url, wait_for_database, kills=20, clients=32)


# --- a database that restarts --------------------------------------------------------------

RESTARTS = [
    pytest.param(2, 8, id="twice"),
    pytest.param(10, 32, id="ten times", marks=pytest.mark.full),
]
"""How often the server restarts, and how many clients there are."""


def restart_under_load(
    cluster: Cluster, clients: InsistentClients, restarts: int, more: int
) -> None:
    """Crash the server again and again while clients ask and tell."""
    for _ in range(restarts):
        clients.wait_for_acknowledgements(more)
        cluster.restart()
    clients.wait_for_acknowledgements(more)


@pytest.mark.parametrize(("restarts", "count"), RESTARTS)
def test_a_bandit_outlives_restarts_of_postgres(
    cluster: Cluster, postgres_url: str, restarts: int, count: int
) -> None:
    with Storage(postgres_url) as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        with InsistentClients([bandit] * count) as clients:
            restart_under_load(cluster, clients, restarts, more=4 * count)
        assert {type(failure) for failure in clients.failures} == {StorageError}
        check_journal(bandit, clients.acknowledged)
    with Storage(postgres_url) as storage:
        record_menu(
            "restart of the database under a bandit",
            load_bandit("menu", storage=storage),
            clients.acknowledged,
            clients=count,
            faults=restarts,
        )


class Answers:
    """Every error that a service answered.

    As a service answers 503 with a problem when its database is away, so must nothing else reach clients.
    """

    def __init__(self) -> None:
        self.errors: Counter[int] = Counter()
        self._lock = Lock()

    def check(self, response: httpx.Response) -> None:
        """Count an error, which must be a problem."""
        if not response.is_error:
            return
        response.read()
        problem = response.json()
        assert response.headers["content-type"] == "application/problem+json"
        assert problem["status"] == response.status_code
        assert problem["detail"]
        with self._lock:
            self.errors[response.status_code] += 1


@pytest.mark.parametrize(("restarts", "count"), RESTARTS)
def test_a_service_outlives_restarts_of_postgres(
    cluster: Cluster, postgres_url: str, restarts: int, count: int
) -> None:
    answers = Answers()
    with ExitStack() as stack:
        service = stack.enter_context(ServedProcess(postgres_url))
        service.wait_until_ready()
        connections = [
            stack.enter_context(Client(service.address, retries=0, timeout=120.0))
            for _ in range(count)
        ]
        connections[0].create_bandit("menu", spec=menu_policy())
        bandits = [connection.load_bandit("menu") for connection in connections]
        for connection in connections:
            http: Any = connection._http
            http.event_hooks = {"response": [answers.check]}
        with InsistentClients(bandits) as clients:
            restart_under_load(cluster, clients, restarts, more=4 * count)
        assert {type(failure) for failure in clients.failures} == {StorageError}
        assert set(answers.errors) == {503}
        assert answers.errors[503] == len(clients.failures)
        assert service.process.poll() is None  # it recovered by itself
        service.stop()
    with Storage(postgres_url) as storage:
        record_menu(
            "restart of the database under the service",
            load_bandit("menu", storage=storage),
            clients.acknowledged,
            clients=count,
            faults=restarts,
        )
