"""The journal of one bandit, events included that are queued but not yet durable."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock

from superarm.core import Arms
from superarm.core.errors import SuperarmError

from .codec import arms_from_bytes
from .events import Event
from .group_commit import GroupCommit
from .journal import Append, Journal, Snapshot

_MOST_CACHED = 16
"""Sets of arms in memory: asks and tells often refer to the same ones."""


class BanditJournal:
    """Reads and appends the events of one bandit.

    Args:
        journal: The journal of all bandits.
        commits: Makes events durable.
        bandit: The id of the bandit.
    """

    def __init__(self, journal: Journal, commits: GroupCommit, bandit: int) -> None:
        self._journal = journal
        self._commits = commits
        self._bandit = bandit
        self._lock = Lock()
        self._queued: dict[str, Event] = {}  # by key
        # By hash, used last at the end.
        self._arms: OrderedDict[str, Arms] = OrderedDict()
        self._stored: set[str] = set()  # hashes of cached arms whose blobs are durable

    def events(self, after: int = 0, last: int | None = None) -> Iterator[Event]:
        """The durable events in order.

        Args:
            after: The number of the event to start after.
            last: The number of the last event to read; ``None``: all.
        """
        for event in self._journal.events(self._bandit, after):
            if last is not None and event.seq > last:
                return
            yield event

    def event(self, key: str) -> Event | None:
        """The event with a key, durable or queued; ``None`` if there is none.

        Args:
            key: The key.
        """
        with self._lock:
            queued = self._queued.get(key)
        # An event that became durable in between is found in the journal.
        return queued or self._journal.event(self._bandit, key)

    def arms(self, name: str) -> Arms:
        """The arms in a blob.

        Args:
            name: Its hash.
        """
        with self._lock:
            if name in self._arms:
                self._arms.move_to_end(name)
                return self._arms[name]
        arms = arms_from_bytes(self._journal.blob(name))
        self.cache_arms(name, arms)
        return arms

    def cache_arms(self, name: str, arms: Arms) -> None:
        """Cache arms under the hash of their blob.

        Args:
            name: The hash.
            arms: The arms.
        """
        with self._lock:
            self._arms[name] = arms
            self._arms.move_to_end(name)
            if len(self._arms) > _MOST_CACHED:
                evicted, _ = self._arms.popitem(last=False)
                self._stored.discard(evicted)

    def append(self, event: Event, blobs: Mapping[str, bytes]) -> Future[None]:
        """Queue an event; the future is done when it is durable.

        Args:
            event: The next event of the bandit.
            blobs: What it refers to, by hash.
        """
        with self._lock:
            self._queued[event.key] = event
            new_blobs = {
                name: data for name, data in blobs.items() if name not in self._stored
            }
        durable = self._commits.submit(Append(self._bandit, [event], new_blobs))
        durable.add_done_callback(
            lambda done: self._finish_append(done, event, new_blobs)
        )
        return durable

    def _finish_append(
        self, done: Future[None], event: Event, blobs: Mapping[str, bytes]
    ) -> None:
        """Remove an event from the queue and, if it is durable, remember that its blobs are stored."""
        with self._lock:
            if self._queued.get(event.key) is event:
                del self._queued[event.key]
            if done.exception() is None:
                self._stored |= blobs.keys() & self._arms.keys()

    def last_seq(self) -> int:
        """The number of the last durable event."""
        return self._journal.last_seq(self._bandit)

    def barrier(self) -> Future[None]:
        """A future that is done when every event that is queued now is durable."""
        return self._commits.submit(Append(self._bandit, []))

    def flush(self) -> None:
        """Wait until every queued event is durable."""
        self.barrier().result()

    def drain(self) -> None:
        """Wait until every queued event is durable or has failed."""
        with self._lock:
            has_queued = bool(self._queued)
        if has_queued:
            with suppress(SuperarmError):
                self.flush()

    def has_failed(self) -> bool:
        """Whether an event could not be stored since the last reset."""
        return self._commits.has_failed(self._bandit)

    def reset(self) -> None:
        """Accept events again after a failure. Nothing that was queued is stored any more."""
        with self._lock:
            self._queued.clear()
        self._commits.reset(self._bandit)

    def snapshot(self, last: int | None = None) -> Snapshot | None:
        """The latest snapshot; ``None`` if there is none.

        Args:
            last: The number of the last event that it may contain; ``None``: any.
        """
        return self._journal.snapshot(self._bandit, last)

    def save_snapshot(self, snapshot: Snapshot) -> Future[None]:
        """Queue a snapshot; the future is done when it is durable.

        Args:
            snapshot: The new one.
        """
        return self._commits.submit(Append(self._bandit, [], snapshot=snapshot))
