"""Group commit: one transaction for everything that is waiting to be stored.

A disk confirms about a hundred writes a second, whatever their size. So threads do not write: they
queue their events and wait. One writer thread takes all that is queued, stores it in one transaction,
and wakes everybody whose events are now durable.

If a transaction fails, nobody in it is acknowledged. The events were already applied to their bandits
in memory, so these are marked as failed: everything of them that is queued fails too, until their owner
has read them from the journal again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Condition, Thread

from superarm.core.errors import SuperarmError

from .journal import Append, Journal, StaleOwnerError, StorageError, stale_owner
from .own_process import OwnProcess

_MOST_TOGETHER = 4096
"""Appends in one transaction, at most: a larger one delays those who wait first."""


class _QueuedAppend:
    """An append, and the future that its caller waits for."""

    __slots__ = ("append", "durable")

    def __init__(self, append: Append) -> None:
        self.append = append
        self.durable: Future[None] = Future()


class GroupCommit:
    """Stores the events of all bandits of a journal.

    Args:
        journal: Where the events go.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.process = OwnProcess()
        """The process whose thread stores the events."""
        self._queue: deque[_QueuedAppend] = deque()
        self._changed = Condition()
        self._failed: dict[int, SuperarmError] = {}  # by bandit, until it is reset
        self._closing = False
        self.count = 0
        """Transactions so far."""
        self.appended = 0
        """Appends that they stored."""
        self._writer = Thread(target=self._write, name="superarm-journal", daemon=True)
        self._writer.start()

    def submit(self, append: Append) -> Future[None]:
        """Queue events; the future is done when they are durable.

        Events of one bandit must be submitted in order.

        Args:
            append: The events.
        """
        self.process.require()
        queued = _QueuedAppend(append)
        with self._changed:
            if self._closing:
                raise StorageError("the storage is closed")
            failure = self._failed.get(append.bandit)
            if failure is not None:
                queued.durable.set_exception(failure)
                return queued.durable
            self._queue.append(queued)
            self._changed.notify()
        return queued.durable

    def waiting(self) -> int:
        """Appends that wait for a transaction."""
        return len(self._queue)

    def has_failed(self, bandit: int) -> bool:
        """Whether an event of a bandit could not be stored since it was last loaded.

        It is true before anybody who waits for the event hears of the failure.

        Args:
            bandit: The id of the bandit.
        """
        return bandit in self._failed

    def reset(self, bandit: int) -> None:
        """Accept events of a bandit again, once it has been reloaded from the journal.

        Args:
            bandit: The id of the bandit.
        """
        with self._changed:
            self._failed.pop(bandit, None)

    def close(self) -> None:
        """Store what is queued, and stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._writer.join()

    def _write(self) -> None:
        while True:
            group = self._next_group()
            if not group:
                return
            self._store(group)
            # Otherwise bandits that nobody uses stay in memory until the next commit.
            del group

    def _next_group(self) -> list[_QueuedAppend]:
        """Wait for appends and take them; empty once everything is stored and the queue closed."""
        with self._changed:
            while not self._queue and not self._closing:
                self._changed.wait()
            count = min(len(self._queue), _MOST_TOGETHER)
            return [self._queue.popleft() for _ in range(count)]

    def _store(self, group: Sequence[_QueuedAppend]) -> None:
        if not any(_has_content(queued.append) for queued in group):
            # Barriers alone: what they wait for is durable, so a full disk is no obstacle.
            _acknowledge(group)
            return
        try:
            self._journal.append([queued.append for queued in group])
        except StaleOwnerError:
            # One bandit has another owner by now: the others must not suffer.
            self._store_by_bandit(group)
        except SuperarmError as error:
            self._fail(group, error)
        except Exception as error:  # whatever a database driver may raise
            self._fail(group, StorageError(f"the journal cannot be written: {error}"))
        else:
            self.count += 1
            self.appended += len(group)
            _acknowledge(group)

    def _store_by_bandit(self, group: Sequence[_QueuedAppend]) -> None:
        by_bandit: dict[int, list[_QueuedAppend]] = {}
        for queued in group:
            by_bandit.setdefault(queued.append.bandit, []).append(queued)
        if len(by_bandit) == 1:
            self._fail(group, stale_owner())
            return
        for part in by_bandit.values():
            self._store(part)

    def _fail(self, group: Sequence[_QueuedAppend], error: SuperarmError) -> None:
        # Without events, memory is not ahead of the journal: the next request may succeed.
        failed_bandits = {
            queued.append.bandit for queued in group if queued.append.events
        }
        with self._changed:
            for bandit in failed_bandits:
                self._failed[bandit] = error
            still_queued = [
                queued
                for queued in self._queue
                if queued.append.bandit in failed_bandits
            ]
            for queued in still_queued:
                self._queue.remove(queued)
        for queued in [*group, *still_queued]:
            queued.durable.set_exception(error)


def _acknowledge(group: Sequence[_QueuedAppend]) -> None:
    for queued in group:
        queued.durable.set_result(None)


def _has_content(append: Append) -> bool:
    """Whether there is anything to store."""
    return bool(append.events) or bool(append.blobs) or append.snapshot is not None
