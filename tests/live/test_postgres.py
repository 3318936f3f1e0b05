"""Journals in PostgreSQL: tables, connections that are lost, and several processes."""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from time import monotonic, sleep
from typing import Any

import pytest
from lossy_proxy import Loss, LossyProxy
from postgres_cluster import Cluster
from tampering import tamper

from superarm.core.errors import InputError, MissingExtraError, StateError
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.answers import Tell
from superarm.live.codec import digest
from superarm.live.current_fold import CurrentFold
from superarm.live.events import Event, Kind
from superarm.live.journal import (
    SCHEMA,
    Append,
    Membership,
    ProcessRow,
    StorageError,
)
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

FILES = Path(__file__).parent / "files"
MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
SPEC = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=1),
)


@pytest.fixture
def journal(postgres_url: str) -> Iterator[Any]:
    opened = open_journal(postgres_url)
    yield opened
    opened.close()


def open_journal(url: str, **options: Any) -> Any:
    from superarm.live.postgres_journal import PostgresJournal

    return PostgresJournal(url, **options)


def created() -> Event:
    return Event(seq=1, key="created", kind=Kind.CREATED, time=1.0, body={})


def observed(seq: int) -> Event:
    return Event(seq=seq, key=f"o{seq}", kind=Kind.OBSERVED, time=1.0, body={})


# --- the URL -------------------------------------------------------------------------------


def test_without_psycopg_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"psycopg is not installed; run: pip"):
        Storage("postgresql://localhost/bandits")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:se/cret@host/bandits",
        "postgresql://me:secret@host:port/bandits",
        "postgresql://me:secret%zz@host/bandits",
        "postgresql://me:secret@host/bandits?unknown=1",
    ],
)
def test_a_url_that_is_not_valid_is_refused_without_its_password(url: str) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(InputError, match="not a valid PostgreSQL URL") as raised:
        Storage(url)
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    "options", ["", "?password=secret", "?sslmode=disable&sslpassword=secret"]
)
def test_messages_do_not_contain_the_password(options: str) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(StorageError, match=r"me:\*\*\*@") as raised:
        Storage(f"postgresql://me:secret@127.0.0.1:1/bandits{options}")
    assert "secret" not in str(raised.value)


def test_an_unknown_bandit_does_not_print_the_password(postgres_url: str) -> None:
    url = postgres_url.replace("postgres@", "postgres:secret@", 1)
    with (
        Storage(url) as storage,
        pytest.raises(InputError, match="has no bandit 'menu'") as raised,
    ):
        load_bandit("menu", storage=storage)
    assert "secret" not in str(raised.value)


# --- tables --------------------------------------------------------------------------------


def test_processes_that_start_at_once_create_the_tables_once(postgres_url: str) -> None:
    together = Barrier(6)

    def start(number: int) -> int:
        together.wait()
        journal = open_journal(postgres_url)
        bandit: int = journal.create("", f"bandit {number}", created()).id
        journal.close()
        return bandit

    with ThreadPoolExecutor(6) as pool:
        bandits = list(pool.map(start, range(6)))
    assert sorted(bandits) == [1, 2, 3, 4, 5, 6]


def set_schema(url: str, schema: int) -> None:
    tamper(url, f"UPDATE superarm_schema SET version = {schema}")


def test_a_later_schema_is_refused(postgres_url: str) -> None:
    open_journal(postgres_url).close()
    set_schema(postgres_url, SCHEMA + 1)
    with pytest.raises(StateError, match="upgrade superarm"):
        open_journal(postgres_url, upgrade=True)


def test_an_earlier_schema_is_refused_with_advice(
    postgres_url: str,
) -> None:
    open_journal(postgres_url).close()
    set_schema(postgres_url, 1)
    with pytest.raises(StateError) as raised:
        open_journal(postgres_url)
    assert f"superarm storage upgrade {postgres_url}" in str(raised.value)
    with pytest.raises(StateError, match="never had schema 1"):
        open_journal(postgres_url, upgrade=True)


def test_an_upgrade_of_schema_2_keeps_everything(postgres_url: str) -> None:
    """Its tables, with the rows of a file that version 2 wrote."""
    import psycopg

    from superarm.live.postgres_schema import STEPS

    tamper(postgres_url, STEPS[2])
    tamper(postgres_url, "INSERT INTO superarm_schema VALUES (2)")
    source = f"file:{FILES / 'schema2.db'}?mode=ro&immutable=1"
    with (
        closing(sqlite3.connect(source, uri=True)) as file,
        psycopg.connect(postgres_url) as connection,
    ):
        for table in ("bandits", "events", "blobs", "snapshots", "tokens"):
            with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in file.execute(f"SELECT * FROM {table}"):
                    copy.write_row(row)
    with pytest.raises(StateError, match="superarm storage upgrade"):
        Storage(postgres_url)
    Storage(postgres_url, upgrade=True).close()
    with Storage(postgres_url) as storage:
        assert storage.journal.check() == []
        for bandit, name in enumerate(("menu", "drawn", "changed"), start=1):
            snapshot = storage.journal.snapshot(bandit)
            assert snapshot is not None
            loaded = load_bandit(name, storage=storage)
            assert loaded.verify().same
            assert loaded.pending[-1] == "shared"
            loaded.save_snapshot()
            latest = storage.journal.snapshot(bandit)
            assert latest is not None
            assert latest.seq == loaded.seq > snapshot.seq
        (token,) = storage.journal.tokens()
        assert token.name == "laptop"


def test_an_upgrade_runs_the_steps_that_are_missing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions later; processes that upgrade at once do it once."""
    old = open_journal(postgres_url)
    row = old.create("", "menu", created())
    old.close()
    from superarm.live.postgres_schema import STEPS

    later = {
        SCHEMA + 1: "ALTER TABLE bandits ADD COLUMN colour text",
        SCHEMA
        + 2: "UPDATE bandits SET colour = 'red'; CREATE TABLE colours (name text)",
    }
    for module in ("journal", "postgres_journal"):
        monkeypatch.setattr(f"superarm.live.{module}.SCHEMA", SCHEMA + 2)
    monkeypatch.setattr("superarm.live.postgres_journal.STEPS", {**STEPS, **later})
    with pytest.raises(StateError, match="superarm storage upgrade"):
        open_journal(postgres_url)
    with ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(open_journal, postgres_url, upgrade=True) for _ in range(4)
        ]
        for future in futures:
            future.result().close()
    journal = open_journal(postgres_url)
    assert journal.bandits("") == [row]
    assert journal._rows("SELECT colour FROM bandits") == [("red",)]
    journal.close()


def test_an_upgrade_that_fails_changes_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_journal(postgres_url).close()
    from superarm.live.postgres_schema import STEPS

    later = {SCHEMA + 1: "CREATE TABLE colours (name text); SELECT 1 / 0"}
    with monkeypatch.context() as patch:
        for module in ("journal", "postgres_journal"):
            patch.setattr(f"superarm.live.{module}.SCHEMA", SCHEMA + 1)
        patch.setattr("superarm.live.postgres_journal.STEPS", {**STEPS, **later})
        with pytest.raises(InputError, match="division by zero"):
            open_journal(postgres_url, upgrade=True)
    journal = open_journal(postgres_url)
    assert journal._rows("SELECT to_regclass('colours')") == [(None,)]
    journal.close()


def test_an_upgrade_waits_for_transactions_that_have_read_the_schema(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer shares the schema until its commit; an upgrade needs it for itself."""
    import psycopg

    journal = open_journal(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        exclusive = b"LOCK TABLE superarm_schema IN ACCESS EXCLUSIVE MODE NOWAIT"
        with (
            journal._transaction(),
            pytest.raises(psycopg.errors.LockNotAvailable),
            other.transaction(),
        ):
            other.execute(exclusive)
        with other.transaction():
            other.execute(exclusive)
    journal.close()
    from superarm.live.postgres_schema import STEPS

    holds_lock = (
        "SELECT 1 / count(*) FROM pg_locks WHERE relation = 'superarm_schema'::regclass "
        "AND pid = pg_backend_pid() AND mode = 'AccessExclusiveLock'"
    )
    for module in ("journal", "postgres_journal"):
        monkeypatch.setattr(f"superarm.live.{module}.SCHEMA", SCHEMA + 1)
    steps = {**STEPS, SCHEMA + 1: holds_lock}
    monkeypatch.setattr("superarm.live.postgres_journal.STEPS", steps)
    open_journal(postgres_url, upgrade=True).close()  # would divide by zero


def test_tables_of_another_program_are_left_alone(
    postgres_url: str,
) -> None:
    tamper(postgres_url, "CREATE TABLE events (what text)")
    with pytest.raises(InputError, match=r'another program \(relation "events"'):
        open_journal(postgres_url)
    tamper(postgres_url, "DROP TABLE events")
    open_journal(postgres_url).close()


def test_tables_that_are_gone_are_damage(postgres_url: str) -> None:
    journal = open_journal(postgres_url)
    tamper(postgres_url, "DROP TABLE tokens")
    with pytest.raises(StateError, match=r"damaged \(relation \"tokens\" does not"):
        journal.tokens()
    assert journal.bandits("") == []  # the connection still works
    journal.close()
    tamper(postgres_url, "DELETE FROM superarm_schema")
    with pytest.raises(StateError, match="must have one row, but has 0"):
        open_journal(postgres_url)


def test_another_encoding_is_refused(cluster: Cluster) -> None:
    create = "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0"
    cluster.execute(cluster.url(), create)
    latin = cluster.url().replace("/postgres?", "/latin?")
    with pytest.raises(InputError, match="encoding LATIN1"):
        open_journal(latin)


def test_text_that_postgres_cannot_hold_is_refused(journal: Any) -> None:
    with pytest.raises(InputError, match="NUL"):
        journal.create("", "menu\0", created())
    assert journal.bandits("") == []


# --- connections that are lost -------------------------------------------------------------


def end_connections(cluster: Cluster) -> None:
    cluster.execute(
        cluster.url(),
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'superarm'",
    )


def test_after_a_lost_connection_the_next_call_connects_anew(
    cluster: Cluster, journal: Any
) -> None:
    row = journal.create("", "menu", created())
    assert journal.bandits("") == [row]  # both kinds of connection are open now
    end_connections(cluster)
    with pytest.raises(StorageError, match="cannot be used at the moment"):
        journal.bandits("")
    journal.append([Append(row.id, [observed(2)])])
    end_connections(cluster)
    with pytest.raises(StorageError, match="cannot be used at the moment"):
        journal.append([Append(row.id, [observed(3)])])
    assert [event.seq for event in journal.events(row.id)] == [1, 2]
    journal.append([Append(row.id, [observed(3)])])


def test_a_server_that_is_down_is_named_and_comes_back(
    cluster: Cluster, journal: Any
) -> None:
    row = journal.create("", "menu", created())
    cluster.stop()
    try:
        for _ in range(2):
            with pytest.raises(StorageError, match="check that PostgreSQL runs"):
                journal.bandits("")
            with pytest.raises(StorageError, match="check that PostgreSQL runs"):
                journal.append([Append(row.id, [observed(2)])])
    finally:
        cluster.start()
    assert journal.bandits("") == [row]
    journal.append([Append(row.id, [observed(2)])])


@pytest.fixture
def proxy(cluster: Cluster, tmp_path_factory: Any) -> Iterator[LossyProxy]:
    folder = tmp_path_factory.mktemp("p")
    with LossyProxy(folder, cluster.socket) as running:
        yield running


@pytest.fixture
def bandit(cluster: Cluster, proxy: LossyProxy) -> Iterator[Bandit]:
    """A bandit whose connections lead through the proxy."""
    url = cluster.url(cluster.create_namespace(), folder=proxy.folder)
    with Storage(url) as storage:
        yield create_bandit("menu", spec=SPEC, storage=storage)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
def test_a_commit_whose_outcome_is_unknown_counts_once(
    bandit: Bandit, proxy: LossyProxy, loss: Loss
) -> None:
    proxy.lose_next_commit(loss)
    with pytest.raises(StorageError):
        bandit.ask(MENU, decision_id="a")
    was_stored = loss is Loss.ANSWER
    assert bandit.pending == (["a"] if was_stored else [])
    answer = bandit.ask(MENU, decision_id="a")
    assert bandit.pending == ["a"]
    rewards = {answer.arms[0]: 0.7}
    proxy.lose_next_commit(loss)
    with pytest.raises(StorageError):
        bandit.tell(answer, rewards)
    assert bandit.tell(answer, rewards) is not was_stored
    assert not bandit.tell(answer, rewards)
    assert len(list(bandit.storage.journal.events(1))) == 3
    mean = bandit.predict({"it": MENU[str(answer.arms[0])]}).mean[0]
    assert mean == pytest.approx(0.7 / 1.01)  # k/(k + noise) with k = 1: one reward
    assert bandit.verify().same


def test_a_commit_that_arrives_late_counts_once(
    cluster: Cluster, bandit: Bandit, proxy: LossyProxy
) -> None:
    """The client reads the journal before the server commits, and repeats the request."""
    answer = bandit.ask(MENU, decision_id="a")
    rewards = {answer.arms[0]: 0.7}
    proxy.lose_next_commit(Loss.LATE)
    with pytest.raises(StorageError):
        bandit.tell(answer, rewards)
    assert bandit.pending == ["a"]
    with ThreadPoolExecutor(1) as pool:
        repeated = pool.submit(bandit.tell, answer, rewards)
        wait_for_a_waiting_transaction(cluster)
        proxy.release.set()
        assert repeated.result(30) is False  # it is in the journal by now
    assert bandit.tell(answer, rewards) is False
    assert bandit.pending == []
    assert len(list(bandit.storage.journal.events(1))) == 3
    assert bandit.verify().same


def test_a_transaction_that_its_client_left_ends(
    cluster: Cluster, proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is gone, and the server does not know."""
    timeout = "idle_in_transaction_session_timeout"
    monkeypatch.setitem(session_settings(), timeout, "1s")
    url = cluster.url(cluster.create_namespace(), folder=proxy.folder)
    with Storage(url) as storage:
        bandit = create_bandit("menu", spec=SPEC, storage=storage)
        proxy.lose_next_commit(Loss.LATE)
        with pytest.raises(StorageError):
            bandit.ask(MENU, decision_id="a")
        assert bandit.pending == []
        bandit.ask(MENU, decision_id="a")  # waits until the server gives up the first
        assert bandit.pending == ["a"]
        assert bandit.verify().same


def test_nobody_waits_for_ever_for_another_transaction(
    cluster: Cluster, proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session_settings(), "lock_timeout", "200ms")
    url = cluster.url(cluster.create_namespace(), folder=proxy.folder)
    with Storage(url) as storage:
        bandit = create_bandit("menu", spec=SPEC, storage=storage)
        proxy.lose_next_commit(Loss.LATE)
        with pytest.raises(StorageError):
            bandit.ask(MENU, decision_id="a")
        with pytest.raises(StorageError, match="lock timeout"):
            bandit.ask(MENU, decision_id="b")
        assert bandit.pending == []


def test_commits_wait_for_the_disk_however_the_server_is_configured(
    cluster: Cluster, postgres_url: str
) -> None:
    cluster.execute(cluster.url(), "ALTER ROLE postgres SET synchronous_commit = off")
    try:
        journal = open_journal(postgres_url)
        query = "SHOW synchronous_commit"
        assert journal._rows(query) == [("on",)]
        with journal._connections.writing() as connection:
            assert connection.execute(query).fetchall() == [("on",)]
        journal.close()
    finally:
        reset = "ALTER ROLE postgres RESET synchronous_commit"
        cluster.execute(cluster.url(), reset)


def session_settings() -> dict[str, str]:
    from superarm.live.postgres_connections import _SESSION

    return _SESSION


def wait_for_a_waiting_transaction(cluster: Cluster) -> None:
    """Wait until a transaction waits for another one to end."""
    import psycopg

    query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    end = monotonic() + 30.0
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        while not connection.execute(query).fetchall():
            assert monotonic() < end
            sleep(0.01)


# --- several processes ---------------------------------------------------------------------


def test_two_owners_are_fenced(postgres_url: str) -> None:
    """Whoever is behind fails to append, reads the other's events, and continues after them."""
    with Storage(postgres_url) as one, Storage(postgres_url) as two:
        first = create_bandit("menu", spec=SPEC, storage=one)
        second = load_bandit("menu", storage=two)
        assert first.pending == []
        assert second.pending == []
        first.ask(MENU, decision_id="a")
        answer = second.ask(MENU, decision_id="b")
        assert second.pending == ["a", "b"]
        assert first.ask(MENU, decision_id="b") == answer  # it is in the journal
        first.ask(MENU, decision_id="c")
        assert first.pending == ["a", "b", "c"]
        assert first.tell("b", {answer.arms[0]: 0.5})
        assert not second.tell("b", {answer.arms[0]: 0.5})
        second.abandon("a")
        assert second.pending == ["c"]
        assert first.pending == ["c"]  # who only reads, reads the other's events, too
        assert len(list(one.journal.events(1))) == 6
        assert first.verify().same


def test_a_request_that_another_process_recorded_is_read_before_it_is_answered(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process stored it just after this one had seen that it was up to date."""
    monkeypatch.setattr(CurrentFold, "_is_behind", lambda *_: False)
    with Storage(postgres_url) as one, Storage(postgres_url) as two:
        first = create_bandit("menu", spec=SPEC, storage=one)
        assert first.pending == []
        answer = load_bandit("menu", storage=two).ask(MENU, decision_id="x")
        assert first.ask(MENU, decision_id="x") == answer
        assert first.pending == ["x"]


def test_a_batch_is_told_again_after_the_events_of_another_process(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CurrentFold, "_is_behind", lambda *_: False)
    with Storage(postgres_url) as one, Storage(postgres_url) as two:
        first = create_bandit("menu", spec=SPEC, storage=one)
        answers = [first.ask(MENU, decision_id=name) for name in "ab"]
        load_bandit("menu", storage=two).ask(MENU, decision_id="c")
        tells = [
            Tell(decision=answer.id, rewards={answer.arms[0]: 0.5})
            for answer in answers
        ]
        assert first.tell_many(tells) == [True, True]
        assert first.pending == ["c"]


def test_many_threads_of_two_owners_lose_nothing(postgres_url: str) -> None:
    with Storage(postgres_url) as one, Storage(postgres_url) as two:
        owners = [
            create_bandit("menu", spec=SPEC, storage=one),
            load_bandit("menu", storage=two),
        ]

        def play(number: int) -> None:
            bandit = owners[number % 2]
            answer = bandit.ask(MENU, decision_id=f"d{number}")
            assert bandit.tell(answer, dict.fromkeys(answer.arms, 0.5))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(play, range(12)))
        kinds = Counter(event.kind for event in one.journal.events(1))
        assert kinds == {Kind.CREATED: 1, Kind.DECIDED: 12, Kind.OBSERVED: 12}
        assert owners[0].verify().same


def test_processes_that_store_the_same_blobs_do_not_block_each_other(
    postgres_url: str,
) -> None:
    """In opposite orders, which would end in a deadlock if they were inserted as they come."""
    journals = [open_journal(postgres_url) for _ in range(2)]
    bandits = [
        journal.create("", f"bandit {number}", created()).id
        for number, journal in enumerate(journals)
    ]
    together = Barrier(2)

    def store(number: int) -> None:
        for seq in range(2, 12):
            contents = [f"{seq} {place}".encode() for place in range(200)]
            if number == 1:
                contents.reverse()
            stored = {digest(content): content for content in contents}
            together.wait(60)
            append = Append(bandits[number], [observed(seq)], stored)
            journals[number].append([append])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(store, range(2)))
    assert journals[0].check() == []
    for journal in journals:
        journal.close()


def test_members_are_those_seen_lately(postgres_url: str) -> None:
    opened = open_journal(postgres_url)
    journal: Membership = opened
    assert journal.processes(10.0) == []
    journal.heartbeat("b", "10.0.0.2:8000")
    journal.heartbeat("a", "10.0.0.1:8000")
    rows = journal.processes(60.0)
    assert [(row.id, row.address) for row in rows] == [
        ("a", "10.0.0.1:8000"),
        ("b", "10.0.0.2:8000"),
    ]
    tamper(
        postgres_url,
        "UPDATE processes SET seen = '2020-01-01 00:00:00.5+00' WHERE id = 'a'",
    )
    assert [row.id for row in journal.processes(60.0)] == ["b"]
    old = ProcessRow("a", "10.0.0.1:8000", 1577836800.5)
    assert journal.processes(1e9)[0] == old  # as long as nobody's heart beats
    journal.heartbeat("a", "10.0.0.3:8000")
    assert [row.address for row in journal.processes(60.0)] == [
        "10.0.0.3:8000",
        "10.0.0.2:8000",
    ]
    journal.leave("b")
    journal.leave("b")  # twice changes nothing
    assert [row.id for row in journal.processes(60.0)] == ["a"]
    opened.close()


def test_a_heartbeat_removes_processes_that_stopped_an_hour_ago(
    postgres_url: str,
) -> None:
    opened = open_journal(postgres_url)
    journal: Membership = opened
    for process in ("killed", "asleep", "alive"):
        journal.heartbeat(process, "10.0.0.1:8000")
    for process, seconds in (("killed", 3601), ("asleep", 3540)):
        tamper(
            postgres_url,
            f"UPDATE processes SET seen = clock_timestamp() - interval '{seconds} seconds' "
            f"WHERE id = '{process}'",
        )
    assert len(journal.processes(1e9)) == 3
    journal.heartbeat("alive", "10.0.0.1:8000")
    assert [row.id for row in journal.processes(1e9)] == ["alive", "asleep"]
    journal.heartbeat("killed", "10.0.0.1:8000")  # it was only suspended: it is back
    assert len(journal.processes(60.0)) == 2
    opened.close()
