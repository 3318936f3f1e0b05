"""Faults of a storage that begin and end: no root, no mount, no mode bits.

What SQLite and PostgreSQL raise is theirs: nothing of superarm is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tampering import tamper

from superarm.live import Storage

_FULL_POSTGRES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device'
        USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse();
ALTER TABLE events ENABLE ALWAYS TRIGGER refuse;
"""
_NOT_FULL_POSTGRES = "DROP TRIGGER refuse ON events; DROP FUNCTION refuse();"


@contextmanager
def full_disk(storage: Storage) -> Iterator[None]:
    """The database cannot grow until the block ends.

    Args:
        storage: The storage.
    """
    if not storage.url.startswith("sqlite:"):
        tamper(storage.url, _FULL_POSTGRES)
        try:
            yield
        finally:
            tamper(storage.url, _NOT_FULL_POSTGRES)
        return
    pages = _pragma(storage, "page_count")
    most = _pragma(storage, "max_page_count")
    _pragma(storage, f"max_page_count = {pages}")
    try:
        yield
    finally:
        _pragma(storage, f"max_page_count = {most}")


@contextmanager
def read_only(storage: Storage) -> Iterator[None]:
    """The database cannot be written until the block ends.

    Args:
        storage: The storage.
    """
    if not storage.url.startswith("sqlite:"):
        _set_postgres_read_only(storage.url, "on")
        try:
            yield
        finally:
            _set_postgres_read_only(storage.url, "off")
        return
    _pragma(storage, "query_only = ON")
    try:
        yield
    finally:
        _pragma(storage, "query_only = OFF")


def _pragma(storage: Storage, statement: str) -> Any:
    """Run a PRAGMA in the connection that writes."""
    journal: Any = storage.journal
    with journal._writing:
        row = journal._writer.execute(f"PRAGMA {statement}").fetchone()
    return None if row is None else row[0]


def _set_postgres_read_only(url: str, value: str) -> None:
    """For all sessions, those that are open included, as on a standby that takes over."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        query = f"ALTER SYSTEM SET default_transaction_read_only = {value}"
        connection.execute(query.encode())
        connection.execute("SELECT pg_reload_conf()")
