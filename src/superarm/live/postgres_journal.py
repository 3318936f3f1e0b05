"""A journal in PostgreSQL, which several processes may share.

One connection writes, a few others read. A commit returns when the server's disk has confirmed it. After
a lost connection the next call reconnects. If it was lost during a commit, it is unknown whether the
events are stored: the caller reads them again, and unique keys prevent double counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from psycopg import IntegrityError, sql
from psycopg.errors import DuplicateTable, UniqueViolation

from superarm.core.errors import InputError, StateError

from .codec import encode_body
from .events import Event
from .journal import (
    SCHEMA,
    Append,
    BanditRow,
    Membership,
    ProcessRow,
    Snapshot,
    TokenRow,
    bandit_exists,
    check_numbers,
    outdated,
    stale_owner,
    token_exists,
    too_new,
    upgraded_since,
)
from .postgres_connections import (
    Connection,
    Connections,
    parse_url,
    without_password,
)
from .postgres_schema import STEPS
from .snapshot_thinning import StoredSnapshot, surplus_snapshots
from .sql_journal import LAST_SEQ, SNAPSHOT_SIZES, SQLJournal

_READERS = 4
"""Connections that read, at most."""
_FORGET_SECONDS = 3600.0
"""After this time without a heartbeat, the row of a killed process is removed. Others took over its bandits
within seconds, so this only bounds the table."""
# "SuAm": the advisory lock for creating or upgrading tables.
_CREATING = 0x5375416D


class PostgresJournal(SQLJournal, Membership):
    """A journal in a database, which several processes may share.

    Args:
        url: The database: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``. Tables are created if it
            has none.
        upgrade: Whether to upgrade tables of an earlier version; otherwise they are refused.
    """

    _SCHEMA_QUERY = "SELECT version FROM superarm_schema"

    def __init__(self, url: str, *, upgrade: bool = False) -> None:
        parameters = parse_url(url)
        shown = without_password(url)
        super().__init__(url=shown, where=shown)
        self._connections = Connections(parameters, shown, _READERS)
        try:
            with self._connections.writing() as connection:
                _prepare(connection, shown, upgrade)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    # --- bandits ---------------------------------------------------------------------------

    def create(self, tenant: str, name: str, first: Event) -> BanditRow:
        query = b"INSERT INTO bandits (tenant, name, created) VALUES (%s, %s, %s) RETURNING id"
        with self._transaction() as connection:
            try:
                row = connection.execute(query, (tenant, name, first.time)).fetchone()
            except UniqueViolation:
                raise bandit_exists(name) from None
            assert row is not None
            bandit: int = row[0]
            _copy_events(connection, [Append(bandit, [first])])
        return BanditRow(bandit, tenant, name, first.time)

    # --- tokens ----------------------------------------------------------------------------

    def add_token(self, token: TokenRow) -> None:
        query = (
            b"INSERT INTO tokens (hash, tenant, name, scopes, created) "
            b"VALUES (%s, %s, %s, %s, %s)"
        )
        with self._transaction() as connection:
            try:
                connection.execute(query, token)
            except UniqueViolation:
                raise token_exists(token) from None

    def remove_token(self, tenant: str, name: str) -> bool:
        query = b"DELETE FROM tokens WHERE tenant = %s AND name = %s"
        with self._transaction() as connection:
            return connection.execute(query, (tenant, name)).rowcount > 0

    # --- events ----------------------------------------------------------------------------

    def append(self, appends: Sequence[Append]) -> None:
        # Every process inserts in the same order of tables and rows. So two of them that insert the
        # same rows wait for each other in one direction only, and never for ever.
        with self._transaction() as connection:

            def last_seq(bandit: int) -> int:
                cursor = connection.execute(_translated(LAST_SEQ), (bandit,))
                row = cursor.fetchone()
                assert row is not None  # an aggregate has one row
                last: int = row[0]
                return last

            check_numbers(appends, last_seq)
            _insert_blobs(connection, appends)
            try:
                _copy_events(connection, appends)
                _insert_snapshots(connection, appends)
            except IntegrityError:
                raise stale_owner() from None

    # --- processes -------------------------------------------------------------------------

    def heartbeat(self, process: str, address: str) -> None:
        query = (
            b"INSERT INTO processes (id, address, seen) VALUES (%s, %s, clock_timestamp()) "
            b"ON CONFLICT (id) DO UPDATE SET address = excluded.address, seen = excluded.seen"
        )
        # Skip rows that another process is removing, so that heartbeats never wait.
        cleaning = (
            b"DELETE FROM processes WHERE id IN (SELECT id FROM processes "
            b"WHERE seen < clock_timestamp() - make_interval(secs => %s) FOR UPDATE SKIP LOCKED)"
        )
        # Not with the writer's connection: a large commit must not delay it.
        with self._connections.reading() as connection:
            self._require_writable(connection)
            connection.execute(query, (process, address))
            connection.execute(cleaning, (_FORGET_SECONDS,))

    def leave(self, process: str) -> None:
        with self._connections.reading() as connection:
            connection.execute(b"DELETE FROM processes WHERE id = %s", (process,))

    def processes(self, max_age_seconds: float) -> list[ProcessRow]:
        query = (
            "SELECT id, address, extract(epoch FROM seen)::double precision FROM processes "
            "WHERE seen >= clock_timestamp() - make_interval(secs => ?) ORDER BY id"
        )
        return [ProcessRow(*row) for row in self._rows(query, (max_age_seconds,))]

    # --- backups ---------------------------------------------------------------------------

    def backup(self, path: str | Path) -> None:
        """Refuse, because PostgreSQL has its own tool.

        Args:
            path: The new file.
        """
        raise InputError(
            f"superarm cannot back up PostgreSQL; run: pg_dump --format=custom "
            f"--file={path} {self.url}"
        )

    # --- connections -----------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """A transaction that writes, if the tables are still those of this version."""
        with self._connections.writing() as connection, connection.transaction():
            # Reading the schema also locks it until the end: an upgrade waits for this transaction.
            self._require_writable(connection)
            yield connection

    def _require_writable(self, connection: Connection) -> None:
        schema = _schema_row(connection, self._where)
        if schema > SCHEMA:
            raise upgraded_since(self._where, schema)

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._connections.reading() as connection:
            return connection.execute(_translated(query), values).fetchall()


@lru_cache
def _translated(query: str) -> bytes:
    """A query with the marks for values that psycopg expects."""
    return query.replace("?", "%s").encode()


# --- writing -------------------------------------------------------------------------------


def _insert_blobs(connection: Connection, appends: Sequence[Append]) -> None:
    blobs: dict[str, bytes] = {}
    for append in appends:
        blobs.update(append.blobs)
    if not blobs:
        return
    with connection.cursor() as cursor:
        cursor.executemany(
            b"INSERT INTO blobs (hash, bytes) VALUES (%s, %b) ON CONFLICT DO NOTHING",
            sorted(blobs.items()),
        )


def _copy_events(connection: Connection, appends: Sequence[Append]) -> None:
    in_order = sorted(appends, key=lambda append: append.bandit)  # stable
    if not any(append.events for append in in_order):
        return
    query = b"COPY events (bandit, seq, key, kind, time, body) FROM STDIN"
    # In groups of 100, COPY needs half the CPU time of INSERT in a pipeline, here and in the server.
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for append in in_order:
            for event in append.events:
                body = encode_body(event.body)
                kind = event.kind.value
                copy.write_row(
                    (append.bandit, event.seq, event.key, kind, event.time, body)
                )


def _insert_snapshots(connection: Connection, appends: Sequence[Append]) -> None:
    in_order = sorted(appends, key=lambda append: append.bandit)  # stable
    for append in in_order:
        if append.snapshot is not None:
            _insert_snapshot(connection, append.bandit, append.snapshot)


def _insert_snapshot(connection: Connection, bandit: int, snapshot: Snapshot) -> None:
    # One process at a time changes the snapshots of a bandit, so that none waits for another's rows.
    # Appends of events do not wait for this lock.
    connection.execute(
        b"SELECT 1 FROM bandits WHERE id = %s FOR NO KEY UPDATE", (bandit,)
    )
    connection.execute(
        b"INSERT INTO snapshots (bandit, seq, bytes) VALUES (%s, %s, %b) "
        b"ON CONFLICT (bandit, seq) DO UPDATE SET bytes = excluded.bytes",
        (bandit, snapshot.seq, snapshot.data),
    )
    sizes = connection.execute(_translated(SNAPSHOT_SIZES), (bandit,))
    surplus = surplus_snapshots(StoredSnapshot(*row) for row in sizes)
    if surplus:
        connection.execute(
            b"DELETE FROM snapshots WHERE bandit = %s AND seq = ANY (%s)",
            (bandit, surplus),
        )


# --- tables --------------------------------------------------------------------------------


def _prepare(connection: Connection, where: str, upgrade: bool) -> None:
    """Check the tables; create them in a new database."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InputError(
            f"{where} has the encoding {encoding}, which cannot store all text; create a database "
            "with the encoding UTF8"
        )
    if _is_current(connection, where, upgrade):
        return
    with connection.transaction():
        connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
        if not _is_current(connection, where, upgrade):  # another process was faster
            _create_tables(connection, where)


def _is_current(connection: Connection, where: str, upgrade: bool) -> bool:
    schema = _schema_of(connection, where)
    if schema is None:
        return False
    if schema > SCHEMA:
        raise too_new(where, schema)
    if schema < SCHEMA and not upgrade:
        raise outdated(where, where, schema)
    return schema == SCHEMA


def _schema_of(connection: Connection, where: str) -> int | None:
    """The schema of a database; ``None`` if it has no tables of ours."""
    # Not to_regclass, which may answer from a cache of before the lock was granted.
    query = (
        b"SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = 'superarm_schema' "
        b"AND schemaname = ANY (current_schemas(false))"
    )
    if not connection.execute(query).fetchall():
        return None
    return _schema_row(connection, where)


def _schema_row(connection: Connection, where: str) -> int:
    """The schema of a database that has tables of ours."""
    versions = connection.execute(b"SELECT version FROM superarm_schema").fetchall()
    if len(versions) != 1:
        raise StateError(
            f"{where} is damaged: superarm_schema must have one row, but has {len(versions)}; "
            "restore a backup"
        )
    schema: int = versions[0][0]
    return schema


def _create_tables(connection: Connection, where: str) -> None:
    """Create the tables of today, or bring those of an earlier schema up to date."""
    schema = _schema_of(connection, where)
    is_new = schema is None
    if not is_new:
        # Waits for transactions that have read the schema; later ones read the new one, and refuse.
        connection.execute(b"LOCK TABLE superarm_schema IN ACCESS EXCLUSIVE MODE")
    first_schema = min(STEPS)
    if schema is None:
        schema = first_schema - 1
    elif schema < first_schema:
        raise StateError(
            f"{where} is damaged: PostgreSQL never had schema {schema}; restore a backup"
        )
    for version in range(schema + 1, SCHEMA + 1):
        try:
            connection.execute(STEPS[version].encode())
        except DuplicateTable as error:
            raise InputError(
                f"{where} has tables of another program ({error.diag.message_primary}); use "
                "another database"
            ) from error
    if is_new:
        query = sql.SQL("INSERT INTO superarm_schema (version) VALUES ({})")
    else:
        query = sql.SQL("UPDATE superarm_schema SET version = {}")
    connection.execute(query.format(sql.Literal(SCHEMA)))
