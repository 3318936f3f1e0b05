"""Storage by URL: an open journal, with its writer."""

from __future__ import annotations

import os
from threading import Lock
from typing import Self
from weakref import WeakValueDictionary, finalize

from superarm.core.errors import InputError, require_extra
from superarm.core.inputs import require_type

from .group_commit import GroupCommit
from .journal import Journal
from .sqlite_journal import SQLiteJournal

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


class Storage:
    """An open journal, with its writer.

    Args:
        url: The URL of the journal: ``sqlite:///FILE`` or
            ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``.
        upgrade: Whether to upgrade a storage of an earlier version; otherwise it is refused.
    """

    def __init__(self, url: str, *, upgrade: bool = False) -> None:
        self.url = url
        self.journal = _open_journal(url, upgrade)
        self.commits = GroupCommit(self.journal)
        self.closed = False
        # If nobody calls ``close``, the file is released once nobody uses the storage.
        self._finalizer = finalize(self, _release, self.commits, self.journal)

    def close(self) -> None:
        """Store what is queued, and close the journal."""
        self.closed = True
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _release(commits: GroupCommit, journal: Journal) -> None:
    if not commits.process.is_current:
        return  # the connections belong to the process that opened them
    commits.close()
    journal.close()


# By process, because a fork has a copy of this, and by URL.
_storages: WeakValueDictionary[tuple[int, str], Storage] = WeakValueDictionary()
_storages_lock = Lock()


def open_storage(storage: str | Storage) -> Storage:
    """An open storage; one that this process has opened by the same URL is reused.

    Args:
        storage: A URL such as ``"sqlite:///bandits.db"``, or an open storage.
    """
    if isinstance(storage, Storage):
        return storage
    require_type(storage, str, "storage", ", such as 'sqlite:///bandits.db'")
    key = (os.getpid(), _key_of(storage))
    with _storages_lock:
        opened = _storages.get(key)
        if opened is None or opened.closed:
            opened = Storage(storage)
            _storages[key] = opened
        return opened


def _key_of(url: str) -> str:
    """What two URLs of one storage have in common: a file is the same from any folder."""
    if url.startswith(_SQLITE):
        return _SQLITE + os.path.realpath(url.removeprefix(_SQLITE))
    return url


def _open_journal(url: str, upgrade: bool) -> Journal:
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        return SQLiteJournal(url.removeprefix(_SQLITE), upgrade=upgrade)
    if url.startswith(_POSTGRES):
        require_extra("psycopg", "postgres")
        from .postgres_journal import PostgresJournal

        return PostgresJournal(url, upgrade=upgrade)
    scheme = url.partition(":")[0]  # the rest may contain a password
    advice = ""
    if scheme in ("http", "https"):
        advice = "; pass the storage of that service, or use superarm.client"
    raise InputError(
        "storage must be a URL such as 'sqlite:///bandits.db' or "
        f"'postgresql://user@host/database', got {scheme!r:.60}…{advice}"
    )
