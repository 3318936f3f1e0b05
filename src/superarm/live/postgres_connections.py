"""Connections to PostgreSQL: opened when they are needed, and again when they are lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import BoundedSemaphore, Lock
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from superarm.core.errors import InputError, StateError

from .journal import StorageError
from .own_process import OwnProcess

Connection = psycopg.Connection[tuple[Any, ...]]

# What a URL may override. A server that does not answer is noticed within half a minute.
_DEFAULTS = {
    "application_name": "superarm",
    "connect_timeout": 10,  # seconds
    "keepalives_idle": 10,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
}

_SESSION = {
    # A commit returns when the disk has confirmed it, however the server is configured.
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    # The server rolls back what a machine left behind that is gone. Otherwise the next owner of its
    # bandits would wait for hours, until the server notices.
    "idle_in_transaction_session_timeout": "10s",
    "tcp_keepalives_idle": "10s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
    "lock_timeout": "30s",
}
"""Settings of the server for each connection."""


def parse_url(url: str) -> dict[str, Any]:
    """The parameters of a connection.

    Args:
        url: A URL such as ``postgresql://user:password@host:5432/database``.
    """
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        # The reason may contain a part of the password.
        raise _invalid_url() from None
    ports = str(parameters.get("port", "")).split(",")
    if not all(port.isdecimal() or not port for port in ports):
        raise _invalid_url()
    return {**_DEFAULTS, **parameters}


def _invalid_url() -> InputError:
    return InputError(
        "storage is not a valid PostgreSQL URL; write postgresql://USER@HOST:PORT/DATABASE, and "
        "escape special characters of the password: %40 for @, %2F for /"
    )


def without_password(url: str) -> str:
    """A URL as messages may show it.

    Args:
        url: The URL.

    >>> without_password("postgresql://me:secret@host/bandits?sslpassword=secret")
    'postgresql://me:***@host/bandits?sslpassword=***'
    """
    # Up to the last @: a password may contain others by mistake.
    hidden = re.sub(r"^([^:]*://[^:/@?]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", hidden)


class _Pool:
    """Connections that threads take in turn.

    Args:
        most: The most that are open at a time.
    """

    def __init__(self, most: int) -> None:
        self.slots = BoundedSemaphore(most)
        self.idle: list[Connection] = []


class Connections:
    """One connection that writes, and a few others that read.

    Each commits every statement that is not in a transaction.

    Args:
        parameters: What :func:`parse_url` returned.
        where: The storage, for error messages.
        most_readers: The most connections that read at a time.
    """

    def __init__(
        self, parameters: dict[str, Any], where: str, most_readers: int
    ) -> None:
        self._parameters = parameters
        self._where = where
        self._lock = Lock()
        self._writers = _Pool(1)
        self._readers = _Pool(most_readers)
        self._closed = False
        self._process = OwnProcess()

    def writing(self) -> AbstractContextManager[Connection]:
        """The connection that writes, for this thread only."""
        return self._use(self._writers)

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection that reads, for this thread only."""
        return self._use(self._readers)

    @contextmanager
    def _use(self, pool: _Pool) -> Iterator[Connection]:
        self._process.require()
        with pool.slots, explained(self._where):
            connection = self._take(pool)
            try:
                yield connection
            finally:
                self._give_back(connection, pool)

    def _take(self, pool: _Pool) -> Connection:
        with self._lock:
            if self._closed:
                raise StorageError("the storage is closed")
            if pool.idle:
                return pool.idle.pop()
        return self._connect()

    def _connect(self) -> Connection:
        connection = psycopg.connect(**self._parameters, autocommit=True)
        try:
            settings = [f"SET {name} = '{value}'" for name, value in _SESSION.items()]
            connection.execute("; ".join(settings).encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_back(self, connection: Connection, pool: _Pool) -> None:
        lost = connection.closed
        usable = connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            if usable and not self._closed:
                pool.idle.append(connection)
                return
        connection.close()
        if lost:
            # The server may have restarted: then the others are lost too.
            self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
            idle = [*self._writers.idle, *self._readers.idle]
            self._writers.idle.clear()
            self._readers.idle.clear()
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close all connections, those in use when they are returned."""
        with self._lock:
            self._closed = True
        self._drop_idle()


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn errors of PostgreSQL into ours.

    Args:
        where: The storage.
    """
    try:
        yield
    except psycopg.DataError as error:
        raise InputError(
            f"PostgreSQL cannot store this value: {_reason(error)}"
        ) from error
    except (
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.DataCorrupted,
        psycopg.errors.IndexCorrupted,
    ) as error:
        raise StateError(
            f"{where} is damaged ({_reason(error)}); restore a backup"
        ) from error
    except psycopg.Error as error:
        raise StorageError(
            f"{where} cannot be used at the moment: {_reason(error)}; check that PostgreSQL runs "
            "and accepts this user",
            public_reason=_public_reason(error),
        ) from error


def _public_reason(error: psycopg.Error) -> str:
    """The reason without the names of machines and files, which PostgreSQL's words may contain."""
    if isinstance(error, psycopg.errors.DiskFull):
        return "its disk is full"
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return "it is read-only"
    return ""


def _reason(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
