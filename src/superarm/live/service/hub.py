"""The bandits of a service: those in use are in memory, the others in the journal."""

from __future__ import annotations

import time as clock
from collections import OrderedDict
from contextlib import suppress
from http import HTTPStatus
from threading import Lock, Thread
from typing import Any

from superarm.core.errors import ConflictError, NotFoundError, SuperarmError
from superarm.live.bandit import Bandit
from superarm.live.bandits import create_bandit, load_bandit
from superarm.live.decisions import no_decision
from superarm.live.event_keys import decided_key
from superarm.live.journal import BanditRow
from superarm.live.storage import Storage

from .problems import Refusal
from .settings import Limits

_RETRY_SECONDS = 1.0
_MOST_SECONDS_TO_LOAD = 10.0
"""A bandit delays the start of all others by no more: its policy may take minutes to build."""
_Key = tuple[str, str]  # tenant and name


class Hub:
    """Finds bandits, and keeps the last used ones in memory.

    Args:
        storage: Where their journals are.
        limits: The most bandits in memory, and of a tenant.
    """

    def __init__(self, storage: Storage, limits: Limits) -> None:
        self.storage = storage
        self._most = limits.bandits
        self._most_per_tenant = limits.bandits_per_tenant
        self._lock = Lock()
        self._creating = Lock()  # whoever holds it counts a tenant's bandits
        self._bandits: OrderedDict[_Key, Bandit] = OrderedDict()  # used last at the end
        self._loading: set[_Key] = set()  # whose journals the start replays now
        self._stopping = False
        self._starting = Thread(target=self._start, name="superarm-start", daemon=True)
        self.ready = False
        """Whether the journals have been replayed, except those of tenants with a bandit that takes long."""

    def start(self) -> None:
        """Begin to replay the journals of all bandits that fit in memory."""
        self._starting.start()

    def stop(self) -> None:
        """Store a snapshot of every bandit in memory, so that the next start is fast."""
        self._stopping = True
        self._starting.join(_MOST_SECONDS_TO_LOAD)
        with self._lock:
            bandits = dict(self._bandits)
        for key, bandit in bandits.items():
            self._snapshot(key, bandit)

    def count(self) -> int:
        """Bandits in memory."""
        return len(self._bandits)

    def create(self, tenant: str, name: str, spec: Any) -> Bandit:
        """A new bandit.

        Args:
            tenant: Whose bandit it is.
            name: Its name.
            spec: Its spec.
        """
        with self._creating:
            if self.storage.journal.find(tenant, name) is None:
                self._require_room(tenant)
            create_bandit(name, spec=spec, storage=self.storage, tenant=tenant)
        return self.bandit(tenant, name)

    def _require_room(self, tenant: str) -> None:
        """Refuse a bandit of a tenant that has too many."""
        if len(self.storage.journal.bandits(tenant)) >= self._most_per_tenant:
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                f"this tenant has reached the limit of {self._most_per_tenant} bandits; use an existing one",
            )

    def bandit(self, tenant: str, name: str) -> Bandit:
        """A bandit by name.

        Args:
            tenant: Whose bandit it is.
            name: Its name.
        """
        key = (tenant, name)
        with self._lock:
            bandit = self._bandits.get(key)
            if bandit is not None:
                self._bandits.move_to_end(key)
                return bandit
        bandit = self._load(tenant, name)
        evicted: tuple[_Key, Bandit] | None = None
        with self._lock:
            self._bandits[key] = bandit
            if len(self._bandits) > self._most:
                evicted = self._bandits.popitem(last=False)
        if evicted is not None:
            self._snapshot(*evicted)
        return bandit

    def _snapshot(self, key: _Key, bandit: Bandit) -> None:
        """Store a snapshot, which only saves time: the events contain all of it."""
        if key in self._loading:
            return  # it holds its lock, perhaps for minutes, and has nothing new
        with suppress(SuperarmError):
            if bandit.needs_snapshot():
                bandit.save_snapshot()

    def drop(self, tenant: str, name: str) -> None:
        """Drop a bandit from memory, because another process owns it now.

        Args:
            tenant: Whose bandit it is.
            name: Its name.
        """
        with self._lock:
            bandit = self._bandits.pop((tenant, name), None)
        if bandit is not None:
            bandit.forget()

    def _load(self, tenant: str, name: str) -> Bandit:
        try:
            return load_bandit(name, storage=self.storage, tenant=tenant)
        except NotFoundError:
            # The URL of the storage is nobody's business.
            raise NotFoundError(f"there is no bandit {name!r}") from None

    def with_decision(
        self, tenant: str, decision_id: str, name: str | None = None
    ) -> Bandit:
        """The bandit that took a decision.

        Args:
            tenant: Whose bandit it is.
            decision_id: The id of the decision.
            name: The name of the bandit, where it is known.
        """
        if name is not None:
            return self.bandit(tenant, name)
        rows = self.storage.journal.find_decision(tenant, decided_key(decision_id))
        if not rows:
            raise no_decision(decision_id)
        if len(rows) > 1:
            names = ", ".join(row.name for row in rows[:5])
            raise ConflictError(
                f"several bandits have a decision {decision_id!r}: {names}; add ?bandit=NAME"
            )
        return self.bandit(tenant, rows[0].name)

    def _start(self) -> None:
        slow_tenants: set[str] = set()
        postponed: list[BanditRow] = []
        for row in self._newest():
            if self._stopping:
                return
            if row.tenant in slow_tenants:
                postponed.append(row)
                continue
            loading = Thread(target=self._load_now, args=(row,), daemon=True)
            loading.start()
            loading.join(_MOST_SECONDS_TO_LOAD)
            if loading.is_alive():
                # Requests for this bandit wait for it; those for others do not.
                slow_tenants.add(row.tenant)
        self.ready = True
        for row in postponed:
            if self._stopping:
                return
            self._load_now(row)

    def _load_now(self, row: BanditRow) -> None:
        key = (row.tenant, row.name)
        self._loading.add(key)
        # Whoever asks for a bandit that cannot be read gets the reason. Whatever it is, it must
        # not keep the other bandits from being ready.
        with suppress(Exception):
            self.bandit(row.tenant, row.name).load()
        self._loading.discard(key)

    def _newest(self) -> list[BanditRow]:
        """The bandits to load first, as soon as the storage answers."""
        while not self._stopping:
            try:
                return self.storage.journal.newest(self._most)
            except SuperarmError:
                clock.sleep(_RETRY_SECONDS)
        return []
