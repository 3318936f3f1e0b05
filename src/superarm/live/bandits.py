"""Bandits by name: create one, load one."""

from __future__ import annotations

import time as clock
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from superarm.core.errors import ConflictError, NotFoundError

from .bandit import Bandit
from .codec import encode_body
from .events import Event, Kind
from .names import require_name
from .spec import BanditSpec
from .storage import Storage, open_storage

NOBODY = ""
"""The tenant of bandits that a program uses without a service."""

# One object for one bandit: two would number their events alike.
_bandits: WeakKeyDictionary[Storage, WeakValueDictionary[int, Bandit]] = (
    WeakKeyDictionary()
)
_bandits_lock = Lock()


def create_bandit(
    name: str,
    *,
    spec: Any,
    storage: str | Storage,
    load_if_exists: bool = False,
    tenant: str = NOBODY,
) -> Bandit:
    """Create a bandit, or load one that was created with the same spec.

    Args:
        name: Its name.
        spec: Its spec: a policy, a policy's spec by registry names, or a
            :class:`BanditSpec`.
        storage: The storage of its journal: a URL such as ``"sqlite:///bandits.db"``, or an open storage.
        load_if_exists: Whether to load an existing bandit of this name, whatever its spec.
        tenant: Whose bandit it is.
    """
    require_name(name, "the name of a bandit")
    opened = open_storage(storage)
    if load_if_exists and opened.journal.find(tenant, name) is not None:
        return load_bandit(name, storage=opened, tenant=tenant)
    complete = BanditSpec.from_user(spec)
    complete.build_policy()  # raises before anything is stored
    body = {"spec": complete.as_json()}
    first = Event(seq=1, key="created", kind=Kind.CREATED, time=clock.time(), body=body)
    try:
        opened.journal.create(tenant, name, first)
    except ConflictError:
        if not _was_created_with(opened, tenant, name, first):
            raise
    return load_bandit(name, storage=opened, tenant=tenant)


def _was_created_with(storage: Storage, tenant: str, name: str, first: Event) -> bool:
    """Whether a bandit began with this event: then the same program runs again."""
    row = storage.journal.find(tenant, name)
    if row is None:
        return False
    created = storage.journal.event(row.id, first.key)
    if created is None:
        return False
    return encode_body(created.body) == encode_body(first.body)


def load_bandit(name: str, *, storage: str | Storage, tenant: str = NOBODY) -> Bandit:
    """Load a bandit by name, with all its durable events.

    Args:
        name: Its name.
        storage: The storage of its journal: a URL such as ``"sqlite:///bandits.db"``, or an open storage.
        tenant: Whose bandit it is.
    """
    opened = open_storage(storage)
    row = opened.journal.find(tenant, name)
    if row is None:
        raise NotFoundError(
            f"{opened.journal.url} has no bandit {name!r}; check the name, or create it with "
            "create_bandit or `superarm bandits create`"
        )
    with _bandits_lock:
        bandits = _bandits.setdefault(opened, WeakValueDictionary())
        bandit = bandits.get(row.id)
        if bandit is None:
            bandit = Bandit(row, opened)
            bandits[row.id] = bandit
        return bandit
