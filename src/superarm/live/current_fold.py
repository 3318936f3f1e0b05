"""The fold of a bandit as it is now, and the way of new events into its journal."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import RLock

from superarm.core import Feedback
from superarm.core.errors import SuperarmError

from .bandit_journal import BanditJournal
from .codec import EncodedArms
from .decisions import DecisionRecord, no_decision
from .event_keys import decided_key
from .events import Event
from .fold import Fold
from .journal import stale_owner
from .snapshot_thinning import EVENTS_PER_SNAPSHOT
from .snapshots import load_fold, take_snapshot


class CurrentFold:
    """What a bandit has learned so far. It is a cache of the journal.

    An event is first applied in memory and then stored. If it cannot be stored, memory is ahead of the
    journal: the fold is dropped, and the next call reads the journal.

    Args:
        journal: The events of the bandit.
        is_shared: Whether other processes may append to the journal.
    """

    def __init__(self, journal: BanditJournal, *, is_shared: bool) -> None:
        self.lock = RLock()
        """Guards the fold: hold it to apply events."""
        self._journal = journal
        self._is_shared = is_shared
        self._fold: Fold | None = None  # None: must be read from the journal
        self._snapshot_seq = 0  # the last event in a snapshot that was queued
        self._saved_seq = 0  # the last event in a snapshot that is stored

    @contextmanager
    def locked(self) -> Iterator[Fold]:
        """Hold the lock, with a fold that is up to date."""
        with self.lock:
            yield self.read()

    def read(self) -> Fold:
        """The fold, read from the journal if necessary. The caller holds the lock."""
        # Whoever waited for a failed event may call again before its fold is dropped.
        if self._journal.has_failed():
            self._fold = None
        if self._fold is not None and self._is_behind(self._fold):
            self._fold = None
        if self._fold is None:
            self._journal.drain()  # what is queued belongs to what is learned
            self._journal.reset()  # also what failed just now
            self._fold = load_fold(self._journal)
            self._snapshot_seq = self._fold.seq
            self._saved_seq = self._fold.restored_seq
        return self._fold

    def _is_behind(self, fold: Fold) -> bool:
        """Whether another process has appended to this bandit."""
        return self._is_shared and self._journal.last_seq() > fold.seq

    def drop(self) -> None:
        """Forget the fold; the next call reads the journal."""
        with self.lock:
            self._fold = None

    # --- what is recorded already ----------------------------------------------------------

    def find_event(self, fold: Fold, key: str) -> Event | None:
        """The event with a key; ``None`` if there is none.

        Args:
            fold: The fold that the caller has locked.
            key: The key.

        Raises:
            StaleOwnerError: Another process recorded the event, and the fold does not contain it.
        """
        event = self._journal.event(key)
        if event is not None and event.seq > fold.seq:
            self._fold = None
            raise stale_owner()
        return event

    def decision(self, fold: Fold, decision_id: str) -> DecisionRecord:
        """A decision of any age.

        Args:
            fold: The fold that the caller has locked.
            decision_id: Its id.

        Raises:
            NotFoundError: There is no such decision.
        """
        recent = fold.reader.recent_decision(decision_id)
        if recent is not None:
            return recent
        event = self.find_event(fold, decided_key(decision_id))
        if event is None:
            raise no_decision(decision_id)
        return fold.reader.decision(event)

    # --- new events ------------------------------------------------------------------------

    def record(
        self,
        fold: Fold,
        event: Event,
        arms: EncodedArms | None = None,
        feedback: Feedback | None = None,
    ) -> Future[None]:
        """Apply an event and queue it; the future is done when it is durable.

        Args:
            fold: The fold that the event was made with. Another one may have replaced it in the
                meantime, because the journal could not be written. Then the event fails as well.
            event: The next event.
            arms: The arms to which it refers, if any.
            feedback: The rewards in its body, if any, so that nobody decodes them.
        """
        blobs = {}
        if arms is not None:
            self._journal.cache_arms(arms.hash, arms.arms)
            blobs[arms.hash] = arms.data
        try:
            fold.apply(event, feedback)
            durable = self._journal.append(event, blobs)
        except SuperarmError:
            # A policy that learns at once refuses rewards as a whole; others may learn some.
            if fold.seq == event.seq or not fold.policy.exchangeable:
                self._fold = None
            raise
        except BaseException:
            self._fold = None  # memory may be ahead of the journal
            raise
        durable.add_done_callback(lambda done: self._drop_if_failed(done, fold))
        if fold.seq - self._snapshot_seq >= EVENTS_PER_SNAPSHOT:
            self._queue_snapshot(fold)
        return durable

    def _drop_if_failed(self, finished: Future[None], fold: Fold) -> None:
        # Without the lock: its holder may wait for the thread that calls this.
        if finished.exception() is not None and self._fold is fold:
            self._fold = None

    def save_snapshot(self) -> None:
        """Store a snapshot, so that the next start is fast."""
        with self.locked() as fold:
            seq = fold.seq
            durable = self._queue_snapshot(fold)
        durable.result()
        with self.lock:
            self._saved_seq = max(self._saved_seq, seq)

    def needs_snapshot(self) -> bool:
        """Whether events are in memory that no stored snapshot contains."""
        with self.lock:
            return self._fold is not None and self._fold.seq > self._saved_seq

    def _queue_snapshot(self, fold: Fold) -> Future[None]:
        durable = self._journal.save_snapshot(take_snapshot(fold))
        self._snapshot_seq = fold.seq
        return durable
