"""The process that opened a storage. Its threads and connections do not survive a fork."""

from __future__ import annotations

import os

from .journal import StorageError


class OwnProcess:
    """The process that created this object."""

    def __init__(self) -> None:
        self._id = os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether this process is that one, and not a fork of it."""
        return os.getpid() == self._id

    def require(self) -> None:
        """Refuse a fork, which would wait for threads that it does not have."""
        if not self.is_current:
            raise StorageError(
                "the storage was opened before this process was forked; open it again in each process"
            )
