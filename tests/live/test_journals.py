"""The contract of journals, over SQLite and PostgreSQL."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from tampering import tamper

from superarm.core.errors import ConflictError, FileError, InputError, StateError
from superarm.live.codec import digest
from superarm.live.events import Event, Kind
from superarm.live.journal import (
    Append,
    BanditRow,
    Journal,
    Snapshot,
    StaleOwnerError,
    StorageError,
    TokenRow,
)
from superarm.live.sqlite_journal import SQLiteJournal
from superarm.live.storage import Storage

ARMS = b"some arms"
OTHER_ARMS = b"other arms"


def open_journal(url: str) -> Journal:
    if url.startswith("sqlite"):
        return SQLiteJournal(url.removeprefix("sqlite:///"))
    from superarm.live.postgres_journal import PostgresJournal

    return PostgresJournal(url)


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    opened = open_journal(url)
    yield opened
    opened.close()


def first(time: float = 1.5) -> Event:
    body = {"spec": "ä €"}
    return Event(seq=1, key="created", kind=Kind.CREATED, time=time, body=body)


def decided(seq: int, name: str, arms: bytes = ARMS) -> Event:
    key = f"decision/{name}"
    body = {"arms": digest(arms), "id": name}
    return Event(seq=seq, key=key, kind=Kind.DECIDED, time=seq + 0.1, body=body)


def observed(seq: int, key: str) -> Event:
    body = {"reward": 0.1 + 0.2}
    return Event(seq=seq, key=key, kind=Kind.OBSERVED, time=seq + 0.2, body=body)


def blobs(*contents: bytes) -> dict[str, bytes]:
    return {digest(content): content for content in contents}


# --- bandits -------------------------------------------------------------------------------


def test_a_bandit_is_created_with_its_first_event(journal: Journal) -> None:
    time = 1_700_000_000.123456
    row = journal.create("", "menu", first(time))
    assert row == BanditRow(row.id, "", "menu", time)
    assert journal.find("", "menu") == row
    assert list(journal.events(row.id)) == [first(time)]
    assert journal.event(row.id, "created") == first(time)


def test_names_are_unique_for_a_tenant(journal: Journal) -> None:
    row = journal.create("", "menu", first())
    with pytest.raises(ConflictError, match="already a bandit named 'menu'"):
        journal.create("", "menu", first())
    other = journal.create("another", "menu", first())
    assert journal.find("", "menu") == row
    assert journal.find("another", "menu") == other
    assert journal.find("another", "Menu") is None
    assert list(journal.events(row.id)) == [first()]


def test_bandits_are_listed_by_the_bytes_of_their_names(journal: Journal) -> None:
    names = ["b", "B", "ä", "a b", "€"]
    for name in names:
        journal.create("one", name, first())
    journal.create("two", "c", first())
    listed = [row.name for row in journal.bandits("one")]
    assert listed == sorted(names, key=str.encode)
    assert journal.bandits("nobody") == []


def test_decisions_are_found_by_key_among_all_bandits_of_a_tenant(
    journal: Journal,
) -> None:
    menu = journal.create("", "menu", first())
    drinks = journal.create("", "drinks", first())
    foreign = journal.create("another", "menu", first())
    for row in (menu, drinks, foreign):
        journal.append([Append(row.id, [decided(2, "d")], blobs(ARMS))])
    journal.append([Append(menu.id, [observed(3, "decision/x")])])
    assert journal.find_decision("", "decision/d") == [drinks, menu]
    assert journal.find_decision("another", "decision/d") == [foreign]
    assert journal.find_decision("", "decision/x") == []  # no decision
    assert journal.find_decision("", "decision/D") == []


# --- tokens --------------------------------------------------------------------------------


def test_tokens_are_added_found_listed_and_removed(journal: Journal) -> None:
    laptop = TokenRow("hash1", "one", "laptop", "ask tell", 1.25)
    server = TokenRow("hash2", "one", "Server", "read", 2.5)
    foreign = TokenRow("hash3", "another", "laptop", "admin", 3.5)
    for token in (laptop, server, foreign):
        journal.add_token(token)
    assert journal.find_token("hash1") == laptop
    assert journal.find_token("hash") is None
    assert journal.tokens() == [foreign, server, laptop]
    with pytest.raises(ConflictError, match="already a token named 'laptop'"):
        journal.add_token(TokenRow("hash4", "one", "laptop", "read", 4.5))
    with pytest.raises(ConflictError):
        journal.add_token(TokenRow("hash1", "one", "phone", "read", 4.5))
    assert journal.remove_token("one", "laptop")
    assert not journal.remove_token("one", "laptop")
    assert journal.tokens() == [foreign, server]


# --- events --------------------------------------------------------------------------------


def test_events_come_back_as_they_were_stored(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    tricky = "tab\there, new\nline, back\\slash, \\N, quote', €, 𝛼"
    body = {"text": tricky + "\0", "numbers": [0.1, 1e-308, 2**53], "none": None}
    event = Event(seq=2, key=tricky, kind=Kind.HISTORY, time=1 / 3, body=body)
    journal.append([Append(bandit, [event])])
    assert list(journal.events(bandit)) == [first(), event]
    assert journal.event(bandit, tricky) == event
    assert journal.event(bandit, "nothing") is None
    assert journal.event(bandit + 1, tricky) is None


def test_events_are_read_in_order_after_a_number(journal: Journal) -> None:
    """More of them than one page has."""
    bandit = journal.create("", "menu", first()).id
    other = journal.create("", "other", first()).id
    events = [observed(seq, f"o{seq}") for seq in range(2, 2502)]
    journal.append([Append(bandit, events), Append(other, [observed(2, "o")])])
    assert [event.seq for event in journal.events(bandit)] == list(range(1, 2502))
    assert list(journal.events(bandit, after=2499)) == events[-2:]
    assert list(journal.events(bandit, after=2501)) == []
    assert list(journal.events(bandit + other)) == []


def test_reading_continues_while_others_append(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    journal.append(
        [Append(bandit, [observed(seq, f"o{seq}") for seq in range(2, 1501)])]
    )
    reading = journal.events(bandit)
    assert next(reading).seq == 1
    journal.append([Append(bandit, [observed(1501, "last")])])
    assert [event.seq for event in reading] == list(range(2, 1502))


@pytest.mark.parametrize(
    "stale",
    [
        observed(2, "another key"),
        observed(3, "o2"),
        observed(1, "created"),
    ],
)
def test_a_number_or_key_that_is_used_is_refused(
    journal: Journal, stale: Event
) -> None:
    bandit = journal.create("", "menu", first()).id
    other = journal.create("", "other", first()).id
    journal.append([Append(bandit, [observed(2, "o2")])])
    appends = [
        Append(other, [observed(2, "o2")], blobs(ARMS)),
        Append(bandit, [stale]),
    ]
    with pytest.raises(StaleOwnerError, match="load it again"):
        journal.append(appends)
    # All or nothing: neither the other bandit's event nor its blob is stored.
    assert list(journal.events(bandit)) == [first(), observed(2, "o2")]
    assert list(journal.events(other)) == [first()]
    with pytest.raises(StateError, match="missing"):
        journal.blob(digest(ARMS))
    journal.append(appends[:1])
    assert list(journal.events(other)) == [first(), observed(2, "o2")]


@pytest.mark.parametrize(
    "append",
    [Append(77, [observed(1, "o")]), Append(77, [], snapshot=Snapshot(1, b""))],
)
def test_a_bandit_that_does_not_exist_has_no_events(
    journal: Journal, append: Append
) -> None:
    with pytest.raises(StaleOwnerError):
        journal.append([append])
    assert list(journal.events(77)) == []
    assert journal.snapshot(77) is None


def test_an_event_that_json_cannot_hold_stores_nothing(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    body = {"reward": math.nan}
    event = Event(seq=3, key="o3", kind=Kind.OBSERVED, time=1.0, body=body)
    with pytest.raises(ValueError, match="JSON compliant"):
        journal.append([Append(bandit, [observed(2, "o2"), event])])
    assert list(journal.events(bandit)) == [first()]
    journal.append([Append(bandit, [observed(2, "o2")])])


def test_nothing_may_be_appended(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    journal.append([])
    journal.append([Append(bandit, [])])
    assert list(journal.events(bandit)) == [first()]


def test_threads_read_and_write_at_the_same_time(journal: Journal) -> None:
    rows = [journal.create("", f"bandit {number}", first()) for number in range(8)]

    def work(row: BanditRow) -> list[int]:
        for seq in range(2, 22):
            arms = f"arms {seq}".encode()  # the same for all
            event = decided(seq, f"d{seq}", arms)
            journal.append([Append(row.id, [event], blobs(arms))])
            assert journal.event(row.id, event.key) == event
        return [event.seq for event in journal.events(row.id)]

    with ThreadPoolExecutor(8) as pool:
        for numbers in pool.map(work, rows):
            assert numbers == list(range(1, 22))
    assert journal.check() == []


# --- blobs and snapshots -------------------------------------------------------------------


def test_a_blob_is_stored_once(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    every_byte = bytes(range(256))
    journal.append([Append(bandit, [decided(2, "a", every_byte)], blobs(every_byte))])
    appends = [
        Append(bandit, [decided(3, "b", every_byte)], blobs(every_byte, ARMS)),
        Append(bandit, [decided(4, "c")], blobs(ARMS)),
    ]
    journal.append(appends)
    assert journal.blob(digest(every_byte)) == every_byte
    assert journal.blob(digest(ARMS)) == ARMS
    with pytest.raises(StateError, match=f"blob {digest(b'no')[:12]}… is missing"):
        journal.blob(digest(b"no"))


def test_the_last_snapshot_counts(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    other = journal.create("", "other", first()).id
    assert journal.snapshot(bandit) is None
    journal.append([Append(bandit, [], snapshot=Snapshot(1, b"\0one"))])
    assert journal.snapshot(bandit) == Snapshot(1, b"\0one")
    appends = [
        Append(bandit, [observed(2, "o2")], snapshot=Snapshot(2, b"two")),
        Append(other, [], snapshot=Snapshot(1, b"other")),
        Append(bandit, [observed(3, "o3")], snapshot=Snapshot(3, b"three")),
    ]
    journal.append(appends)
    assert journal.snapshot(bandit) == Snapshot(3, b"three")
    assert journal.snapshot(other) == Snapshot(1, b"other")
    journal.append([Append(bandit, [], snapshot=Snapshot(3, b"anew"))])
    assert journal.snapshot(bandit) == Snapshot(3, b"anew")


def test_earlier_snapshots_are_stored_as_long_as_they_are_far_apart(
    journal: Journal,
) -> None:
    bandit = journal.create("", "menu", first()).id
    other = journal.create("", "other", first()).id
    journal.append([Append(other, [], snapshot=Snapshot(1, b"other"))])
    seqs = [1, 1000, 1900, 2000, 2500]
    snapshots = [Snapshot(seq, b"%d" % seq) for seq in seqs]
    for (before, last), snapshot in zip(pairwise(seqs), snapshots[1:], strict=True):
        events = [observed(seq, f"o{seq}") for seq in range(before + 1, last + 1)]
        journal.append([Append(bandit, events, snapshot=snapshot)])
    found = {last: journal.snapshot(bandit, last) for last in (999, 1000, 1999, 2400)}
    # That of 1900 was too close to that of 1000 once it was no longer the latest.
    assert found == {
        999: None,
        1000: snapshots[1],
        1999: snapshots[1],
        2400: snapshots[3],
    }
    assert journal.snapshot(bandit) == snapshots[4]
    assert journal.snapshot(other, 1) == Snapshot(1, b"other")
    assert journal.check() == []


# --- opening and closing -------------------------------------------------------------------


def test_everything_is_there_after_a_restart(url: str) -> None:
    journal = open_journal(url)
    row = journal.create("", "menu", first())
    append = Append(row.id, [decided(2, "d")], blobs(ARMS), Snapshot(2, b"two"))
    journal.append([append])
    token = TokenRow("hash1", "one", "laptop", "ask tell", 1.25)
    journal.add_token(token)
    journal.close()
    again = open_journal(url)
    assert again.bandits("") == [row]
    assert list(again.events(row.id)) == [first(), decided(2, "d")]
    assert again.blob(digest(ARMS)) == ARMS
    assert again.snapshot(row.id) == Snapshot(2, b"two")
    assert again.tokens() == [token]
    again.close()


def test_a_closed_journal_is_refused(url: str) -> None:
    journal = open_journal(url)
    row = journal.create("", "menu", first())
    journal.close()
    journal.close()
    with pytest.raises(StorageError, match="closed"):
        journal.find("", "menu")
    with pytest.raises(StorageError, match="closed"):
        journal.append([Append(row.id, [observed(2, "o2")])])


def test_a_url_is_needed() -> None:
    with pytest.raises(InputError, match="'postgresql://user@host/database'"):
        Storage("bandits.db")
    with pytest.raises(InputError) as raised:
        Storage("mysql://me:secret@host/bandits")
    assert "secret" not in str(raised.value)


# --- damage --------------------------------------------------------------------------------


def fill(journal: Journal) -> int:
    """A journal with one bandit, three decisions over two sets of arms, and a snapshot."""
    bandit = journal.create("", "menu", first()).id
    events = [decided(2, "a"), decided(3, "b", OTHER_ARMS), decided(4, "c")]
    stored = blobs(ARMS, OTHER_ARMS)
    journal.append([Append(bandit, events, stored, Snapshot(4, b"four"))])
    return bandit


def test_a_sound_journal_passes_its_check(journal: Journal) -> None:
    assert journal.check() == []
    fill(journal)
    assert journal.check() == []


@pytest.mark.parametrize(
    ("statements", "problems"),
    [
        (
            "DELETE FROM events WHERE seq IN (2, 3)",
            ["bandit 1: event 4 follows event 1"],
        ),
        ("DELETE FROM events WHERE seq = 1", ["bandit 1: event 2 follows event 0"]),
        (
            "UPDATE events SET kind = 'guessed' WHERE seq = 3",
            ["bandit 1: event 3 has the unknown kind 'guessed'"],
        ),
        (
            "UPDATE events SET body = '{\"arms\"' WHERE seq = 3",
            ["bandit 1: event 3 is damaged: Expecting ':' delimiter"],
        ),
        (
            f"DELETE FROM blobs WHERE hash = '{digest(ARMS)}'",
            [
                f"bandit 1: event 2 refers to blob {digest(ARMS)[:12]}…, which is missing",
                f"bandit 1: event 4 refers to blob {digest(ARMS)[:12]}…, which is missing",
            ],
        ),
        (
            f"UPDATE blobs SET bytes = (SELECT bytes FROM snapshots) "
            f"WHERE hash = '{digest(ARMS)}'",
            [
                f"blob {digest(ARMS)[:12]}… is damaged: its hash is "
                f"{digest(b'four')[:12]}…"
            ],
        ),
        (
            "UPDATE snapshots SET seq = 5",
            ["bandit 1: its snapshot is of event 5, but its last event is 4"],
        ),
        (
            "DELETE FROM events; DELETE FROM snapshots",
            ["bandit 1: 'menu' has no events"],
        ),
    ],
)
def test_a_check_names_the_damage(
    journal: Journal, url: str, statements: str, problems: list[str]
) -> None:
    fill(journal)
    tamper(url, statements)
    found = journal.check()
    assert len(found) == len(problems)
    for problem, beginning in zip(found, problems, strict=True):
        assert problem.startswith(beginning)


def test_a_check_finds_events_without_a_bandit(journal: Journal, url: str) -> None:
    fill(journal)
    tamper(url, "DELETE FROM bandits")
    found = journal.check()
    assert "bandit 1: has 4 events, but is not listed" in found


def test_many_events_and_blobs_are_checked(journal: Journal, url: str) -> None:
    """More of them than one page has."""
    bandit = journal.create("", "menu", first()).id
    events = []
    stored = {}
    for seq in range(2, 1102):
        arms = f"arms {seq % 50}".encode()
        stored |= blobs(arms)
        events.append(decided(seq, f"d{seq}", arms))
    journal.append([Append(bandit, events, stored)])
    assert journal.check() == []
    last = max(stored)
    tamper(url, f"UPDATE blobs SET hash = 'x{last[1:]}' WHERE hash = '{last}'")
    missing = sum(event.body["arms"] == last for event in events)
    assert len(journal.check()) == missing + 1


def test_a_missing_event_is_noticed_when_events_are_read(
    journal: Journal, url: str
) -> None:
    bandit = fill(journal)
    tamper(url, "DELETE FROM events WHERE seq = 3")
    with pytest.raises(StateError, match="event 3 of bandit 1 is missing"):
        list(journal.events(bandit))


def test_sqlite_finds_damaged_pages(tmp_path: Path) -> None:
    path = tmp_path / "bandits.db"
    journal = SQLiteJournal(path)
    bandit = journal.create("", "menu", first()).id
    events = [observed(seq, f"o{seq}") for seq in range(2, 1000)]
    journal.append([Append(bandit, events)])
    journal.close()
    content = bytearray(path.read_bytes())
    page_size = int.from_bytes(content[16:18], "big")
    # Every page but the first, which has the schema, and the last few.
    for start in range(8 * page_size, len(content) - page_size, page_size):
        content[start : start + 64] = b"\xff" * 64
    path.write_bytes(content)
    journal = SQLiteJournal(path)
    problems = journal.check()
    assert problems
    assert str(path) in problems[0]
    journal.close()


# --- backups -------------------------------------------------------------------------------


def test_a_backup_of_sqlite_is_a_journal(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "bandits.db")
    bandit = fill(journal)
    target = tmp_path / "copies" / "monday.db"
    with pytest.raises(InputError, match="is not a folder"):
        journal.backup(target)
    target.parent.mkdir()
    journal.backup(target)
    journal.append([Append(bandit, [observed(5, "later")])])
    with pytest.raises(ConflictError, match="already exists"):
        journal.backup(target)
    with pytest.raises(ConflictError, match="already exists"):
        journal.backup(journal.path)
    assert [path.name for path in target.parent.iterdir()] == ["monday.db"]
    copy = SQLiteJournal(target)
    assert copy.check() == []
    assert list(copy.events(bandit)) == list(journal.events(bandit))[:4]
    assert copy.snapshot(bandit) == Snapshot(4, b"four")
    assert copy.blob(digest(ARMS)) == ARMS
    copy.close()
    journal.close()


def test_a_backup_waits_for_a_transaction(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "bandits.db")
    fill(journal)
    with ThreadPoolExecutor(1) as threads:
        with journal._transaction():
            copying = threads.submit(journal.backup, tmp_path / "copy.db")
            with pytest.raises(TimeoutError):
                copying.result(0.2)
        copying.result(60)
    journal.close()


def test_commits_wait_for_the_disk_and_readers_never_write(tmp_path: Path) -> None:
    """No test can cut the power: so the settings on which durability rests are compared."""
    journal = SQLiteJournal(tmp_path / "bandits.db")

    def setting(connection: sqlite3.Connection, name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    full = 2
    assert setting(journal._writer, "synchronous") == full
    assert setting(journal._writer, "journal_mode") == "wal"
    assert setting(journal._reader, "query_only") == 1
    assert setting(journal._reader, "wal_autocheckpoint") == 0
    journal.close()


def test_a_backup_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SQLiteJournal(tmp_path / "bandits.db")
    fill(journal)
    target = tmp_path / "copies" / "monday.db"
    target.parent.mkdir()

    def fail(descriptor: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("superarm.live.sqlite_journal.os.fsync", fail)
    with pytest.raises(StorageError, match=r"monday.db cannot be .*the disk is full"):
        journal.backup(target)
    assert list(target.parent.iterdir()) == []
    journal.close()


def test_postgres_has_its_own_backups(postgres_url: str, tmp_path: Path) -> None:
    journal = open_journal(postgres_url)
    target = tmp_path / "monday.dump"
    with pytest.raises(InputError) as raised:
        journal.backup(target)
    assert f"pg_dump --format=custom --file={target} " in str(raised.value)
    assert str(raised.value).endswith(postgres_url)
    journal.close()


# --- files that are no journals ------------------------------------------------------------


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    tamper(f"sqlite:///{path}", "CREATE TABLE events (what TEXT)")
    before = path.read_bytes()
    with pytest.raises(FileError, match="database of another program"):
        SQLiteJournal(path, upgrade=True)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    text = "not a database " * 1000
    path.write_text(text)
    with pytest.raises(StateError, match="damaged or not a database"):
        SQLiteJournal(path)
    assert path.read_text() == text
    with pytest.raises(FileError, match="is a folder"):
        SQLiteJournal(tmp_path)
    with pytest.raises(StorageError, match="cannot be opened"):
        SQLiteJournal(tmp_path / "missing" / "bandits.db")


def test_a_gap_is_refused(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    with pytest.raises(StaleOwnerError):
        journal.append([Append(bandit, [observed(3, "o3")])])
    journal.append(
        [Append(bandit, [observed(2, "o2")]), Append(bandit, [observed(3, "o3")])]
    )
    assert journal.last_seq(bandit) == 3


def test_a_snapshot_never_goes_back(journal: Journal) -> None:
    bandit = journal.create("", "menu", first()).id
    journal.append([Append(bandit, [observed(2, "o2")])])
    journal.append([Append(bandit, [], snapshot=Snapshot(2, b"new"))])
    journal.append([Append(bandit, [], snapshot=Snapshot(1, b"old"))])
    assert journal.snapshot(bandit) == Snapshot(2, b"new")
