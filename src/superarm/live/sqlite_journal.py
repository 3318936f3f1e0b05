"""A journal in one SQLite file.

The file is in WAL mode with ``synchronous=FULL``: a commit returns when the disk has confirmed it.
Exactly one connection in exactly one process uses the file. A second process is refused, because
releases of SQLite before 3.51.3 can corrupt a WAL that two connections write, and because a bandit has
one owner.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, BinaryIO

from superarm.core.errors import ConflictError, FileError, StateError
from superarm.core.files import open_locked, require_regular

from .events import Event, Kind, decode_body, encode_body
from .journal import (
    SCHEMA,
    Append,
    BanditRow,
    Snapshot,
    StaleOwnerError,
    StorageError,
)

_APPLICATION = 0x5375416D  # "SuAm": marks a file as ours
_PAGE = 1000  # events read at a time
_TABLES = """
CREATE TABLE bandits (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (tenant, name)
) STRICT;
CREATE TABLE events (
    bandit INTEGER NOT NULL REFERENCES bandits (id),
    seq INTEGER NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    time REAL NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (bandit, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX event_keys ON events (bandit, key);
CREATE TABLE blobs (
    hash TEXT PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE snapshots (
    bandit INTEGER PRIMARY KEY REFERENCES bandits (id),
    seq INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
"""


class SQLiteJournal:
    """A journal in a file of its own; see :class:`~superarm.live.journal.Journal`.

    Args:
        path: The file; it is created if it does not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = RLock()  # one thread uses the connection at a time
        self._owner = _own(self.path)
        try:
            self._connection = _connect(self.path)
        except BaseException:
            self._owner.close()
            raise

    def close(self) -> None:
        """Close the file, which another process may then open."""
        with self._lock:
            self._connection.close()
            self._owner.close()

    # --- bandits ---------------------------------------------------------------------------

    def create(self, tenant: str, name: str, first: Event) -> BanditRow:
        """Add a bandit with its first event.

        Args:
            tenant: Whose bandit it is.
            name: Its name, unique for the tenant.
            first: The event ``created``.
        """
        with self._transaction() as connection:
            try:
                cursor = connection.execute(
                    "INSERT INTO bandits (tenant, name, created) VALUES (?, ?, ?)",
                    (tenant, name, first.time),
                )
            except sqlite3.IntegrityError:
                raise ConflictError(
                    f"there is already a bandit named {name!r}; load it, or choose another name"
                ) from None
            number = cursor.lastrowid
            assert number is not None
            _insert_events(connection, Append(number, [first]))
        return BanditRow(number, tenant, name, first.time)

    def find(self, tenant: str, name: str) -> BanditRow | None:
        """A bandit by name; ``None`` if there is none.

        Args:
            tenant: Whose bandit it is.
            name: Its name.
        """
        query = "SELECT id, tenant, name, created FROM bandits WHERE tenant = ? AND name = ?"
        row = self._first_row(query, (tenant, name))
        return None if row is None else BanditRow(*row)

    def bandits(self, tenant: str) -> list[BanditRow]:
        """All bandits of a tenant, by name.

        Args:
            tenant: Whose bandits.
        """
        query = "SELECT id, tenant, name, created FROM bandits WHERE tenant = ? ORDER BY name"
        return [BanditRow(*row) for row in self._rows(query, (tenant,))]

    # --- events ----------------------------------------------------------------------------

    def append(self, appends: Sequence[Append]) -> None:
        """Store events in one transaction: all of them or none.

        Args:
            appends: The events; those of one bandit in order.
        """
        with self._transaction() as connection:
            for append in appends:
                _insert_blobs(connection, append)
                _insert_events(connection, append)
                _insert_snapshot(connection, append)

    def events(self, bandit: int, after: int = 0) -> Iterator[Event]:
        """The events of a bandit in order.

        Args:
            bandit: The id of the bandit.
            after: The number of the event to start after.
        """
        query = (
            "SELECT seq, key, kind, time, body FROM events "
            "WHERE bandit = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        last = after
        while True:
            # A page at a time, so that others can write in between.
            page = self._rows(query, (bandit, last, _PAGE))
            for row in page:
                event = self._event(row)
                if event.seq != last + 1:
                    raise StateError(
                        f"{self.path} is damaged: event {last + 1} of bandit {bandit} is missing; "
                        "restore a backup"
                    )
                last = event.seq
                yield event
            if len(page) < _PAGE:
                return

    def event(self, bandit: int, key: str) -> Event | None:
        """The event with a key; ``None`` if there is none.

        Args:
            bandit: The id of the bandit.
            key: The key.
        """
        query = (
            "SELECT seq, key, kind, time, body FROM events WHERE bandit = ? AND key = ?"
        )
        row = self._first_row(query, (bandit, key))
        return None if row is None else self._event(row)

    def _event(self, row: tuple[Any, ...]) -> Event:
        seq, key, kind, time, body = row
        where = f"{self.path}: event {seq}"
        return Event(
            seq=seq,
            key=key,
            kind=Kind(kind),
            time=time,
            body=decode_body(body, where),
        )

    # --- blobs and snapshots ---------------------------------------------------------------

    def blob(self, name: str) -> bytes:
        """A blob by its hash.

        Args:
            name: Its hash.
        """
        row = self._first_row("SELECT bytes FROM blobs WHERE hash = ?", (name,))
        if row is None:
            raise StateError(
                f"{self.path} is damaged: blob {name[:12]}… is missing; restore a backup"
            )
        data: bytes = row[0]
        return data

    def snapshot(self, bandit: int) -> Snapshot | None:
        """The last snapshot of a bandit; ``None`` if there is none.

        Args:
            bandit: The id of the bandit.
        """
        query = "SELECT seq, bytes FROM snapshots WHERE bandit = ?"
        row = self._first_row(query, (bandit,))
        return None if row is None else Snapshot(*row)

    # --- the connection --------------------------------------------------------------------

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._lock, _explained(self.path):
            return self._connection.execute(query, values).fetchall()

    def _first_row(self, query: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        rows = self._rows(query, values)
        return rows[0] if rows else None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explained(self.path):
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _insert_events(connection: sqlite3.Connection, append: Append) -> None:
    rows = []
    for event in append.events:
        body = encode_body(event.body)
        row = (append.bandit, event.seq, event.key, event.kind, event.time, body)
        rows.append(row)
    try:
        connection.executemany(
            "INSERT INTO events (bandit, seq, key, kind, time, body) VALUES (?, ?, ?, ?, ?, ?)",
            rows,
        )
    except sqlite3.IntegrityError:
        raise StaleOwnerError(
            "this bandit's journal has events that this process did not write; load it again"
        ) from None


def _insert_blobs(connection: sqlite3.Connection, append: Append) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO blobs (hash, bytes) VALUES (?, ?)",
        list(append.blobs.items()),
    )


def _insert_snapshot(connection: sqlite3.Connection, append: Append) -> None:
    snapshot = append.snapshot
    if snapshot is None:
        return
    connection.execute(
        "INSERT OR REPLACE INTO snapshots (bandit, seq, bytes) VALUES (?, ?, ?)",
        (append.bandit, snapshot.seq, snapshot.data),
    )


# --- opening a file ------------------------------------------------------------------------


def _own(path: Path) -> BinaryIO:
    """Lock the file for this process; the lock ends when the returned file is closed."""
    lock_path = path.with_name(f".{path.name}.lock")
    try:
        return open_locked(lock_path, wait=False)
    except BlockingIOError:
        raise ConflictError(
            f"another process uses {path}, which only one process can open; stop the other, or "
            "name another file"
        ) from None
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror}") from None


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file, and create the tables in a new one."""
    if path.exists():
        require_regular(path)
    with _explained(path):
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    schema = _pragma(connection, "user_version")
    application = _pragma(connection, "application_id")
    is_new = not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    if not is_new and application != _APPLICATION:
        raise FileError(f"{path} is a database of another program; name another file")
    if schema > SCHEMA:
        raise StateError(
            f"{path} has schema {schema}, but this version of superarm reads schema {SCHEMA}; "
            "upgrade superarm"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    if is_new:
        connection.executescript(
            f"BEGIN; {_TABLES} PRAGMA application_id = {_APPLICATION}; "
            f"PRAGMA user_version = {SCHEMA}; COMMIT;"
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        damaged = "malformed" in str(error) or "not a database" in str(error)
        if damaged:
            raise StateError(
                f"{path} is damaged or not a database ({error}); restore a backup"
            ) from error
        raise StorageError(
            f"{path} cannot be used at the moment: {error}; check disk space and permissions"
        ) from error
