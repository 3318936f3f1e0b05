"""The process that owns an SQLite file, and whether the file is still the one that it opened."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from superarm.core.errors import ConflictError
from superarm.core.files import open_locked

from .journal import StorageError

_REPLACED = "the file of the storage was removed or replaced"
_OTHER_OWNER = "another process uses the file of the storage"


class _OpenedFile(NamedTuple):
    """A file that is open, and its path."""

    path: str  # as text: this is checked twice in a commit
    status: os.stat_result

    def is_in_place(self) -> bool:
        """Whether the path still leads to this file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return os.path.samestat(found, self.status)


class FileOwner:
    """Owns a file, so that no other process opens it. The lock ends with the process.

    Args:
        path: The file, which may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = path.with_name(f".{path.name}.lock")
        self._lock = self._acquire()
        self._opened_lock = self._opened_as_lock()
        self._opened: list[_OpenedFile] = []

    def _acquire(self) -> BinaryIO:
        try:
            return open_locked(self._lock_path, wait=False)
        except BlockingIOError:
            raise ConflictError(
                f"another process uses {self._path}, which only one process can open; stop it, or "
                "share the file through `superarm serve` and superarm.client"
            ) from None
        except OSError as error:
            reason = error.strerror
            message = f"{self._path} cannot be opened: {reason}"
            raise StorageError(message) from None

    def remember_file(self) -> None:
        """Remember which file is open now, and its log, which has the latest commits."""
        log = self._path.with_name(f"{self._path.name}-wal")
        for path in (self._path, log):
            with suppress(FileNotFoundError):  # some file systems have no such logs
                self._opened.append(_OpenedFile(str(path), path.stat()))

    def require_file(self) -> None:
        """Refuse to use a file that is no longer at its path: a restart would not find what is written.

        If somebody removed the lock, as programs do that tidy up, this takes it again.

        Raises:
            StorageError: The file was removed or replaced, or another process has opened it.
        """
        if self._lock.closed:
            return  # so is the connection, which refuses
        for opened in self._opened:
            if not opened.is_in_place():
                raise StorageError(
                    f"{opened.path} was removed, moved or replaced while it was open, so superarm writes "
                    "nothing more; put the right file in its place, then restart",
                    public_reason=_REPLACED,
                )
        if not self._opened_lock.is_in_place():
            self._take_lock_again()

    def _opened_as_lock(self) -> _OpenedFile:
        return _OpenedFile(str(self._lock_path), os.fstat(self._lock.fileno()))

    def _take_lock_again(self) -> None:
        try:
            lock = self._acquire()
        except ConflictError as error:
            raise StorageError(
                f"the lock of {self._path} was removed, and another process has opened the file; stop "
                "one of them",
                public_reason=_OTHER_OWNER,
            ) from error
        self._lock.close()
        self._lock = lock
        self._opened_lock = self._opened_as_lock()

    def close(self) -> None:
        """Let another process open the file."""
        self._lock.close()
