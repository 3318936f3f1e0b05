"""Storage by URL, and the bandits in it."""

from __future__ import annotations

import time as clock
from threading import Lock

from superarm.core.errors import InputError
from superarm.core.inputs import require_type

from .bandit import Bandit
from .events import Event, Kind
from .group_commit import GroupCommit
from .journal import Journal
from .spec import BanditSpec
from .sqlite_journal import SQLiteJournal

_SQLITE = "sqlite:///"
_NOBODY = ""
"""The tenant of bandits that a program uses without a service."""


class Storage:
    """A journal that is open, with its writer.

    Args:
        url: Where the journal is: ``sqlite:///FILE``.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.journal = _open_journal(url)
        self.commits = GroupCommit(self.journal)
        self._lock = Lock()
        self._bandits: dict[tuple[str, str], Bandit] = {}

    def create(self, name: str, spec: BanditSpec, tenant: str = _NOBODY) -> Bandit:
        """A new bandit.

        Args:
            name: Its name.
            spec: What it is made of.
            tenant: Whose it is.
        """
        spec.build_policy()  # raises before anything is stored
        first = Event(
            seq=1,
            key="created",
            kind=Kind.CREATED,
            time=clock.time(),
            body={"spec": spec.as_json()},
        )
        self.journal.create(tenant, name, first)
        return self.load(name, tenant)

    def load(self, name: str, tenant: str = _NOBODY) -> Bandit:
        """A bandit by name.

        Args:
            name: Its name.
            tenant: Whose it is.
        """
        with self._lock:
            bandit = self._bandits.get((tenant, name))
            if bandit is not None:
                return bandit
            row = self.journal.find(tenant, name)
            if row is None:
                raise InputError(f"{self.url} has no bandit {name!r}")
            bandit = Bandit(row, self.journal, self.commits)
            self._bandits[tenant, name] = bandit
            return bandit

    def close(self) -> None:
        """Store what is queued, and close the journal."""
        self.commits.close()
        self.journal.close()


def _open_journal(url: str) -> Journal:
    require_type(url, str, "storage", ", such as 'sqlite:///bandits.db'")
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        return SQLiteJournal(url.removeprefix(_SQLITE))
    raise InputError(f"storage is {url!r}; give a URL such as 'sqlite:///bandits.db'")
