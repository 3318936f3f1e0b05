"""The journal in a SQLite file, and the thread that writes it."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from superarm.core.errors import ConflictError, FileError, StateError
from superarm.kernels import SquaredExponential
from superarm.live import Storage, create_bandit, load_bandit
from superarm.live.events import Event, Kind
from superarm.live.group_commit import GroupCommit
from superarm.live.journal import SCHEMA, Append, StaleOwnerError, StorageError
from superarm.live.sqlite_journal import SQLiteJournal
from superarm.live.storage import open_storage
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import Greedy


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SQLiteJournal]:
    opened = SQLiteJournal(tmp_path / "bandits.db")
    yield opened
    opened.close()


def event(seq: int, **changes: Any) -> Event:
    parts = {"key": f"key/{seq}", "kind": Kind.NAMED, "time": 0.0, "body": {"seq": seq}}
    return Event(seq=seq, **{**parts, **changes})


def bandit_of(journal: SQLiteJournal, name: str = "menu", tenant: str = "") -> int:
    return journal.create(tenant, name, event(1, kind=Kind.CREATED)).id


def change(path: Path, statement: str) -> None:
    """Change a file without the journal."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


# --- events --------------------------------------------------------------------------------


def test_events_are_read_page_by_page(
    journal: SQLiteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superarm.live.sql_journal._PAGE", 3)
    bandit = bandit_of(journal)
    journal.append([Append(bandit, [event(seq) for seq in range(2, 8)])])
    assert [item.seq for item in journal.events(bandit)] == [1, 2, 3, 4, 5, 6, 7]
    assert [item.seq for item in journal.events(bandit, after=4)] == [5, 6, 7]
    assert [item.body for item in journal.events(bandit, after=6)] == [{"seq": 7}]


def test_a_missing_event_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "bandits.db"
    journal = SQLiteJournal(path)
    bandit = bandit_of(journal)
    journal.append([Append(bandit, [event(2), event(3)])])
    journal.close()
    change(path, "DELETE FROM events WHERE seq = 2")
    journal = SQLiteJournal(path)
    with pytest.raises(StateError, match="event 2 of bandit 1 is missing"):
        list(journal.events(bandit))
    journal.close()


def test_an_event_that_is_there_already_means_another_owner(
    journal: SQLiteJournal,
) -> None:
    bandit = bandit_of(journal)
    journal.append([Append(bandit, [event(2)])])
    repeated_number = [event(2, key="other")]
    repeated_key = [event(3), event(4, key="key/2")]
    for repeated in (repeated_number, repeated_key):
        with pytest.raises(StaleOwnerError):
            journal.append([Append(bandit, repeated)])
    assert [item.seq for item in journal.events(bandit)] == [1, 2]  # all or none


def test_bandits_are_listed_by_name_and_tenant(journal: SQLiteJournal) -> None:
    for name in ("tea", "mocha"):
        bandit_of(journal, name)
    bandit_of(journal, "latte", tenant="cafe")
    assert [row.name for row in journal.bandits("")] == ["mocha", "tea"]
    assert [row.name for row in journal.bandits("cafe")] == ["latte"]
    assert journal.find("cafe", "tea") is None


# --- files ---------------------------------------------------------------------------------


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    change(path, "CREATE TABLE photos (name TEXT)")
    with pytest.raises(FileError, match="another program"):
        SQLiteJournal(path)


def test_a_journal_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bandits.db"
    SQLiteJournal(path).close()
    change(path, f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(StateError, match="upgrade superarm"):
        SQLiteJournal(path)


def test_a_storage_is_opened_once_and_again_after_it_was_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bandits.db'}"
    first = open_storage(url)
    assert open_storage(url) is first
    first.close()
    second = open_storage(url)
    assert second is not first
    assert second.journal.bandits("") == []
    second.close()


# --- the writer ----------------------------------------------------------------------------


class Gate:
    """A journal whose first append waits, so that others queue behind it."""

    def __init__(self, journal: SQLiteJournal) -> None:
        self._journal = journal
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def append(self, appends: Sequence[Append]) -> None:
        if not self.entered.is_set():
            self.entered.set()
            assert self.go_on.wait(60.0)
        self._journal.append(appends)


def test_a_stale_bandit_does_not_fail_the_others(journal: SQLiteJournal) -> None:
    """All three are queued together, so that they are in one transaction."""
    stale = bandit_of(journal, "stale")
    sound = bandit_of(journal, "sound")
    gate: Any = Gate(journal)
    commits = GroupCommit(gate)
    first = commits.submit(Append(sound, [event(2)]))
    assert gate.entered.wait(60.0)
    futures = {
        "sound": commits.submit(Append(sound, [event(3)])),
        "stale": commits.submit(Append(stale, [event(1)])),
        "last": commits.submit(Append(sound, [event(4)])),
    }
    gate.go_on.set()
    for future in (first, futures["sound"], futures["last"]):
        assert future.result(60.0) is None
    with pytest.raises(StaleOwnerError):
        futures["stale"].result(60.0)
    with pytest.raises(StaleOwnerError):  # until it is read anew
        commits.submit(Append(stale, [event(2)])).result(60.0)
    commits.reset(stale)
    assert commits.submit(Append(stale, [event(2)])).result(60.0) is None
    commits.close()
    assert [item.seq for item in journal.events(sound)] == [1, 2, 3, 4]
    assert [item.seq for item in journal.events(stale)] == [1, 2]


def test_closing_stores_what_is_queued(journal: SQLiteJournal) -> None:
    bandit = bandit_of(journal)
    gate: Any = Gate(journal)
    commits = GroupCommit(gate)
    first = commits.submit(Append(bandit, [event(2)]))
    assert gate.entered.wait(60.0)
    queued = commits.submit(Append(bandit, [event(3)]))
    closing = threading.Thread(target=commits.close)
    closing.start()
    gate.go_on.set()
    closing.join(60.0)
    assert first.result(60.0) is None
    assert queued.result(60.0) is None
    assert [item.seq for item in journal.events(bandit)] == [1, 2, 3]


def test_whatever_a_driver_raises_reaches_those_who_wait(
    journal: SQLiteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    bandit = bandit_of(journal)
    commits = GroupCommit(journal)

    def fail(appends: Sequence[Append]) -> None:
        raise RuntimeError("no such host")

    monkeypatch.setattr(journal, "append", fail)
    with pytest.raises(StorageError, match="no such host"):
        commits.submit(Append(bandit, [event(2)])).result(60.0)
    commits.close()


def test_a_closed_storage_accepts_nothing(tmp_path: Path) -> None:
    policy = IndexPolicy(
        posterior=StreamingGP(SquaredExponential(), noise_variance=0.01),
        rule=Greedy(),
        oracle=TopK(k=1),
    )
    storage = Storage(f"sqlite:///{tmp_path / 'bandits.db'}")
    bandit = create_bandit("menu", spec=policy, storage=storage)
    bandit.predict([[0.5]])
    storage.close()
    storage.close()  # closing twice does no harm
    with pytest.raises(StorageError, match="closed"):
        storage.commits.submit(Append(1, []))


def test_a_relative_url_means_the_file_in_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    first = open_storage("sqlite:///bandits.db")
    assert open_storage(f"sqlite:///{tmp_path}/bandits.db") is first
    monkeypatch.chdir(tmp_path / "other")
    second = open_storage("sqlite:///bandits.db")
    assert second is not first
    assert open_storage("sqlite:///../bandits.db") is first
    first.close()
    second.close()


def test_a_file_is_one_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "bandits.db")
    with (
        Storage(f"sqlite:///{tmp_path / 'bandits.db'}"),
        pytest.raises(ConflictError, match="another process uses"),
    ):
        Storage(f"sqlite:///{tmp_path / 'link.db'}")


def test_a_storage_that_nobody_uses_releases_its_file(tmp_path: Path) -> None:
    """Nobody closes it, and there is one thread fewer afterwards."""
    url = f"sqlite:///{tmp_path / 'bandits.db'}"
    policy = IndexPolicy(
        posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
        rule=Greedy(),
        oracle=TopK(k=1),
    )
    create_bandit("menu", spec=policy, storage=url)
    gc.collect()
    assert load_bandit("menu", storage=url).pending == []
    gc.collect()
    Storage(url).close()
