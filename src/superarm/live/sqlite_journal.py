"""A journal in one SQLite file.

The file is in WAL mode with ``synchronous=FULL``: a commit returns when the disk has confirmed it.
Exactly one process uses the file, and exactly one of its connections writes and checkpoints. A second
process is refused, because releases of SQLite before 3.51.3 can corrupt a WAL that two connections
write, and because a bandit has one owner. Another connection only reads, so that nobody who reads
waits for the disk.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from superarm.core.errors import ConflictError, FileError, InputError, StateError
from superarm.core.files import require_regular

from .codec import encode_body
from .events import Event
from .journal import (
    SCHEMA,
    Append,
    BanditRow,
    StorageError,
    TokenRow,
    bandit_exists,
    check_numbers,
    outdated,
    stale_owner,
    token_exists,
    too_new,
    upgraded_since,
)
from .snapshot_thinning import StoredSnapshot, surplus_snapshots
from .sql_journal import LAST_SEQ, SNAPSHOT_SIZES, SQLJournal
from .sqlite_log import check_log
from .sqlite_owner import FileOwner
from .sqlite_schema import STEPS

_APPLICATION = 0x5375416D  # "SuAm": marks a file as ours


class SQLiteJournal(SQLJournal):
    """A journal in a file of its own, which one process uses.

    Args:
        path: The file; it is created if it does not exist.
        upgrade: Whether to upgrade a file of an earlier version; otherwise it is refused.
    """

    _SCHEMA_QUERY = "PRAGMA user_version"

    def __init__(self, path: str | Path, *, upgrade: bool = False) -> None:
        self.path = Path(path)
        self._writing = Lock()  # one thread uses a connection at a time
        self._reading = Lock()
        super().__init__(url=f"sqlite:///{path}", where=str(path))
        file = Path(os.path.realpath(path))  # also through a link
        self._owner = FileOwner(file)
        try:
            check_log(file)
            self._writer = _connect(self.path, upgrade)
            self._reader = _connect_reader(self.path)
            self._owner.remember_file()
        except BaseException:
            self._owner.close()
            raise

    def close(self) -> None:
        """Close the file, which another process may then open."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()  # the last to close: it alone checkpoints
            self._owner.close()

    # --- bandits ---------------------------------------------------------------------------

    def create(self, tenant: str, name: str, first: Event) -> BanditRow:
        with self._transaction() as connection:
            try:
                cursor = connection.execute(
                    "INSERT INTO bandits (tenant, name, created) VALUES (?, ?, ?)",
                    (tenant, name, first.time),
                )
            except sqlite3.IntegrityError:
                raise bandit_exists(name) from None
            bandit = cursor.lastrowid
            assert bandit is not None
            _insert_events(connection, Append(bandit, [first]))
        return BanditRow(bandit, tenant, name, first.time)

    # --- tokens ----------------------------------------------------------------------------

    def add_token(self, token: TokenRow) -> None:
        with self._transaction() as connection:
            try:
                connection.execute(
                    "INSERT INTO tokens (hash, tenant, name, scopes, created) "
                    "VALUES (?, ?, ?, ?, ?)",
                    token,
                )
            except sqlite3.IntegrityError:
                raise token_exists(token) from None

    def remove_token(self, tenant: str, name: str) -> bool:
        with self._transaction() as connection:
            cursor = connection.execute(
                "DELETE FROM tokens WHERE tenant = ? AND name = ?", (tenant, name)
            )
        return cursor.rowcount > 0

    # --- events ----------------------------------------------------------------------------

    def append(self, appends: Sequence[Append]) -> None:
        with self._transaction() as connection:

            def last_seq(bandit: int) -> int:
                row = connection.execute(LAST_SEQ, (bandit,)).fetchone()
                last: int = row[0]
                return last

            check_numbers(appends, last_seq)
            try:
                for append in appends:
                    _insert_blobs(connection, append)
                    _insert_events(connection, append)
                    _insert_snapshot(connection, append)
            except sqlite3.IntegrityError:
                raise stale_owner() from None

    # --- damage and backups ----------------------------------------------------------------

    def require_schema(self) -> None:
        self._owner.require_file()
        super().require_schema()

    def check(self) -> list[str]:
        try:
            file_problems = self._file_problems()
            return [*file_problems, *super().check()]
        except StateError as error:  # so damaged that it cannot be read
            return [str(error)]

    def _file_problems(self) -> list[str]:
        """Damage that SQLite itself finds."""
        problems = []
        for (message,) in self._rows("PRAGMA integrity_check"):
            if message != "ok":
                problems.append(f"{self.path}: {message}")
        for table, _, parent, _ in self._rows("PRAGMA foreign_key_check"):
            problems.append(
                f"{self.path}: a row of {table} refers to a missing row of {parent}"
            )
        return problems

    def backup(self, path: str | Path) -> None:
        """Copy the journal to a file, as it is now. Writers wait until it is copied.

        The file appears when it is complete and on disk.

        Args:
            path: The new file.
        """
        target = Path(path)
        if os.path.lexists(target):
            raise ConflictError(f"{target} already exists; choose another file")
        if not target.parent.is_dir():
            raise InputError(f"{target.parent} is not a folder; create it first")
        partial = target.with_name(f".{target.name}.{uuid4().hex}.partial")
        try:
            with self._writing:
                self._writer.execute("VACUUM INTO ?", (str(partial),))
            _flush_file(partial)
            partial.rename(target)
            _flush_folder(target.parent)
        except (sqlite3.DatabaseError, OSError) as error:
            raise StorageError(
                f"the backup {target} cannot be written: {error}"
            ) from error
        finally:
            partial.unlink(missing_ok=True)

    # --- the connection --------------------------------------------------------------------

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        self._process.require()
        with self._reading, _explained(self.path):
            return self._reader.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._process.require()
        with self._writing, _explained(self.path):
            self._owner.require_file()
            connection = self._writer
            connection.execute("BEGIN IMMEDIATE")
            try:
                schema = _pragma(connection, "user_version")
                if schema > SCHEMA:
                    raise upgraded_since(self._where, schema)
                yield connection
                connection.execute("COMMIT")
                self._owner.require_file()  # in the meantime nobody took it away
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
    connection.executemany(
        "INSERT INTO events (bandit, seq, key, kind, time, body) VALUES (?, ?, ?, ?, ?, ?)",
        rows,
    )


def _insert_blobs(connection: sqlite3.Connection, append: Append) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO blobs (hash, bytes) VALUES (?, ?)",
        list(append.blobs.items()),
    )


def _insert_snapshot(connection: sqlite3.Connection, append: Append) -> None:
    snapshot = append.snapshot
    if snapshot is None:
        return
    bandit = append.bandit
    connection.execute(
        "INSERT INTO snapshots (bandit, seq, bytes) VALUES (?, ?, ?) "
        "ON CONFLICT (bandit, seq) DO UPDATE SET bytes = excluded.bytes",
        (bandit, snapshot.seq, snapshot.data),
    )
    sizes = connection.execute(SNAPSHOT_SIZES, (bandit,))
    surplus = surplus_snapshots(StoredSnapshot(*row) for row in sizes)
    connection.executemany(
        "DELETE FROM snapshots WHERE bandit = ? AND seq = ?",
        [(bandit, seq) for seq in surplus],
    )


def _flush_file(path: Path) -> None:
    """Wait until a file is on disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Wait until the names of a folder's files are on disk."""
    if sys.platform == "win32":  # which cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- opening a file ------------------------------------------------------------------------


def _connect(path: Path, upgrade: bool) -> sqlite3.Connection:
    """Open the file, and create the tables in a new one."""
    if path.exists():
        require_regular(path)
    with _explained(path):
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, path, upgrade)
        except BaseException:
            connection.close()
            raise
    return connection


def _connect_reader(path: Path) -> sqlite3.Connection:
    """Another connection to a file that is open, which never writes."""
    with _explained(path):
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, upgrade: bool) -> None:
    is_new = not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    schema = 0 if is_new else _schema_of(connection, path)
    if not is_new and schema < SCHEMA and not upgrade:
        raise outdated(str(path), f"sqlite:///{path}", schema)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    if schema < SCHEMA:
        steps = " ".join(STEPS[schema:])
        connection.executescript(
            f"BEGIN; {steps} PRAGMA application_id = {_APPLICATION}; "
            f"PRAGMA user_version = {SCHEMA}; COMMIT;"
        )


def _schema_of(connection: sqlite3.Connection, path: Path) -> int:
    """The schema of a file that has tables."""
    if _pragma(connection, "application_id") != _APPLICATION:
        raise FileError(f"{path} is a database of another program; choose another file")
    schema = _pragma(connection, "user_version")
    if schema > SCHEMA:
        raise too_new(str(path), schema)
    return schema


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
            f"{path} cannot be used at the moment: {error}; check disk space and permissions",
            public_reason=str(error),
        ) from error
