"""The journal: where events are stored, and how they become durable.

A :class:`Journal` is a database with these tables:

==============  ============================================  =====================================
``bandits``     id, tenant, name, created                     one row per bandit
``events``      bandit, seq, key, kind, time, body            append-only; (bandit, seq) and
                                                              (bandit, key) are unique
``blobs``       hash, bytes                                   offers, each stored once
``snapshots``   bandit, seq, bytes                            disposable: they only make restarts and
                                                              explanations fast
``tokens``      hash, tenant, name, scopes, created           who may use a service
``processes``   id, address, seen                             who serves; in PostgreSQL only
==============  ============================================  =====================================

Because (bandit, seq) is the primary key, an owner that lost its bandit to another process cannot append:
the database refuses its next event. Because (bandit, key) is unique, a repeated request never counts
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from superarm.core.errors import ConflictError, StateError, SuperarmError

from .events import Event

SCHEMA = 3
"""The version of the tables."""
UPGRADED = (
    "a later version of superarm has upgraded the storage; upgrade this service too"
)
"""The public reason for refused writes once the storage has a later schema."""


class StorageError(SuperarmError, OSError):
    """The storage cannot be read or written at the moment; the message states the reason.

    Args:
        message: What is wrong, where, and what to do.
        public_reason: The reason in words that anybody may see: they name no file and no address.
    """

    def __init__(self, message: str, *, public_reason: str = "") -> None:
        super().__init__(message)
        self.public_reason = public_reason


class StaleOwnerError(SuperarmError, RuntimeError):
    """Another process has appended to this bandit: the memory of this process is out of date."""


class BanditRow(NamedTuple):
    """A bandit as the storage lists it."""

    id: int
    tenant: str
    name: str
    created: float  # seconds since 1970


class TokenRow(NamedTuple):
    """A token of a service's user. Only the user has the token itself."""

    hash: str
    tenant: str
    name: str
    scopes: str  # words separated by spaces
    created: float  # seconds since 1970


class ProcessRow(NamedTuple):
    """A process that serves the bandits of a storage."""

    id: str
    address: str
    """Where other processes reach it."""
    seen: float  # seconds since 1970, by the clock of the database


class Snapshot(NamedTuple):
    """What a bandit had learned when it had folded the event ``seq``."""

    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """Events of one bandit that are stored together, with the blobs to which they refer.

    A snapshot goes the same way, after the events that it contains: so it is never ahead of them. Storing
    one removes :func:`surplus ones <superarm.live.snapshot_thinning.surplus_snapshots>`.
    """

    bandit: int
    events: Sequence[Event]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    snapshot: Snapshot | None = None


class Journal(Protocol):
    """Storage of events, durable when a method returns."""

    @property
    def url(self) -> str:
        """The URL of the storage, without a password."""

    def create(self, tenant: str, name: str, first: Event) -> BanditRow:
        """Add a bandit with its first event.

        Args:
            tenant: Whose bandit it is.
            name: Its name, unique for the tenant.
            first: The event ``created``.

        Raises:
            ConflictError: The tenant already has a bandit of this name.
        """

    def find(self, tenant: str, name: str) -> BanditRow | None:
        """A bandit by name; ``None`` if there is none.

        Args:
            tenant: Whose bandit it is.
            name: Its name.
        """

    def bandits(self, tenant: str) -> list[BanditRow]:
        """All bandits of a tenant, by name.

        Args:
            tenant: Whose bandits.
        """

    def newest(self, most: int) -> list[BanditRow]:
        """The bandits of all tenants that were created last.

        Args:
            most: How many, at most.
        """

    def find_decision(self, tenant: str, key: str) -> list[BanditRow]:
        """The bandits that have a decision with this key, by name.

        Args:
            tenant: Whose bandits.
            key: The key of the event ``decided``.
        """

    def add_token(self, token: TokenRow) -> None:
        """Store a token.

        Args:
            token: The token, hashed.

        Raises:
            ConflictError: The tenant already has a token of this name.
        """

    def find_token(self, token_hash: str) -> TokenRow | None:
        """A token by its hash; ``None`` if there is none.

        Args:
            token_hash: The hash.
        """

    def tokens(self) -> list[TokenRow]:
        """All tokens, by tenant and name."""

    def remove_token(self, tenant: str, name: str) -> bool:
        """Remove a token; returns whether there was one.

        Args:
            tenant: Whose token it is.
            name: Its name.
        """

    def append(self, appends: Sequence[Append]) -> None:
        """Store events of one or several bandits in one transaction: all of them or none.

        The transaction reads the schema first and fails if a later version has upgraded the storage since
        it was opened.

        Args:
            appends: The events; those of one bandit in order.

        Raises:
            StaleOwnerError: An event has a number or key that is in the journal already, or there is
                no such bandit.
            StorageError: The storage cannot be written, or a later version has upgraded it. Where the
                connection to it was lost, the events may be stored nevertheless: read them again before
                you repeat them.
        """

    def events(self, bandit: int, after: int = 0) -> Iterator[Event]:
        """The events of a bandit in order.

        Args:
            bandit: The id of the bandit.
            after: The number of the event to start after.
        """

    def last_seq(self, bandit: int) -> int:
        """The number of a bandit's last event.

        Args:
            bandit: The id of the bandit.
        """

    def event(self, bandit: int, key: str) -> Event | None:
        """The event with a key; ``None`` if there is none.

        Args:
            bandit: The id of the bandit.
            key: The key.
        """

    def blob(self, name: str) -> bytes:
        """A blob by its hash.

        Args:
            name: Its hash.
        """

    def snapshot(self, bandit: int, last: int | None = None) -> Snapshot | None:
        """The latest snapshot of a bandit; ``None`` if there is none.

        Args:
            bandit: The id of the bandit.
            last: The number of the last event that it may contain; ``None``: any.
        """

    def check(self) -> list[str]:
        """Look for damage; returns one sentence for each problem."""

    def require_schema(self) -> None:
        """Read the schema, which a later version may have changed since the storage was opened.

        Raises:
            StateError: It is later than this version's.
            StorageError: The storage does not answer.
        """

    def backup(self, path: str | Path) -> None:
        """Copy the journal to a file, as it is now.

        Args:
            path: The new file.

        Raises:
            ConflictError: The file already exists.
            InputError: This storage has its own tool for backups.
            StorageError: The file cannot be written.
        """

    def close(self) -> None:
        """Release the storage."""


@runtime_checkable
class Membership(Protocol):
    """Who serves the bandits of a storage that several processes share."""

    def heartbeat(self, process: str, address: str) -> None:
        """Record that a process is alive now, and remove those that stopped long ago.

        Args:
            process: Its id.
            address: Where other processes reach it.

        Raises:
            StorageError: The storage does not answer, or a later version has upgraded it: this process
                can then write nothing, and others must own its bandits.
        """

    def leave(self, process: str) -> None:
        """Remove a process that stops.

        Args:
            process: Its id.
        """

    def processes(self, max_age_seconds: float) -> list[ProcessRow]:
        """The processes that were alive lately, by id.

        Args:
            max_age_seconds: How long ago, at most, by the clock of the database.
        """


def check_numbers(appends: Sequence[Append], last_seq: Callable[[int], int]) -> None:
    """Refuse events that do not follow those in the journal.

    The primary key refuses numbers that are taken. This refuses a gap, too.

    Args:
        appends: The events to store; those of one bandit in order.
        last_seq: The number of a bandit's last event in the journal.
    """
    last_seqs: dict[int, int] = {}  # by bandit, these events included
    for append in appends:
        bandit = append.bandit
        for event in append.events:
            if bandit not in last_seqs:
                last_seqs[bandit] = last_seq(bandit)
            if event.seq != last_seqs[bandit] + 1:
                raise stale_owner()
            last_seqs[bandit] = event.seq


# --- messages that every journal needs -----------------------------------------------------


def too_new(where: str, schema: int) -> StateError:
    """The error for a storage that a later version of superarm wrote.

    Args:
        where: The storage.
        schema: Its schema.
    """
    return StateError(
        f"{where} has schema {schema}, but this version of superarm reads up to schema {SCHEMA}; "
        "upgrade superarm"
    )


def upgraded_since(where: str, schema: int) -> StorageError:
    """The error for writing to a storage that a later version of superarm has upgraded meanwhile.

    Args:
        where: The storage.
        schema: Its schema.
    """
    return StorageError(
        f"{where} cannot be written: a later version of superarm has upgraded it to schema {schema}, and "
        f"this version writes schema {SCHEMA}; upgrade superarm and restart",
        public_reason=UPGRADED,
    )


def outdated(where: str, url: str, schema: int) -> StateError:
    """The error for a storage that an earlier version of superarm wrote.

    Args:
        where: The storage.
        url: Its URL, for the advice.
        schema: Its schema.
    """
    return StateError(
        f"{where} has schema {schema}, but this version of superarm needs schema {SCHEMA}; make a "
        f"backup, then run `superarm storage upgrade {url}`"
    )


def bandit_exists(name: str) -> ConflictError:
    """The error for a second bandit of the same name, with another spec.

    Args:
        name: The name.
    """
    return ConflictError(
        f"there is already a bandit named {name!r}, created with another spec; choose another name, or "
        "load that bandit (load_bandit, or load_if_exists=True)"
    )


def stale_owner() -> StaleOwnerError:
    """The error for events that do not follow those in the journal."""
    return StaleOwnerError(
        "this bandit's journal has events that this process did not write; load it again"
    )


def token_exists(token: TokenRow) -> ConflictError:
    """The error for a second token of the same name.

    Args:
        token: The second one.
    """
    return ConflictError(
        f"there is already a token named {token.name!r}; remove it, or choose another name"
    )
