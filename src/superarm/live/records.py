"""Decisions of a journal with the rewards of each, one after another."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from superarm.core import Feedback
from superarm.core.serialization import from_json

from .answers import Status
from .events import Event, Kind
from .fold import Asked, Fold
from .log import Log

_TABLES = """
CREATE TABLE rewards (
    decision TEXT, position INTEGER, reward REAL, noise REAL, observed_at REAL,
    PRIMARY KEY (decision, position)
) WITHOUT ROWID;
CREATE TABLE abandoned (decision TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE activated (decision TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class KnownReward(NamedTuple):
    """The reward of a chosen arm."""

    reward: float
    noise_variance: float | None
    observed_at: float
    """When it was recorded, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, and the rewards known so far."""

    asked: Asked
    offer_hash: str
    """The hash of the arms on offer."""
    rewards: dict[int, KnownReward]
    """Rewards by position in the offer."""
    status: Status

    @property
    def reward(self) -> float | None:
        """The sum of all rewards; ``None`` while some are missing."""
        if len(self.rewards) < len(self.asked.decision.positions):
            return None
        return sum(item.reward for item in self.rewards.values())


class Outcomes:
    """The decisions of a journal, in their order.

    Rewards may come long after a decision. So they are first collected in a temporary database, which is
    on disk if it is large: memory does not grow with the journal.

    Args:
        log: The journal.
        last: The number of the last event to read; what comes later is left out.
    """

    def __init__(self, log: Log, last: int) -> None:
        self._log = log
        self._last = last
        self._reader = Fold(log)  # it only decodes events

    def events(self) -> Iterator[Event]:
        """The events up to the last."""
        for event in self._log.events():
            if event.seq > self._last:
                return
            yield event

    def __iter__(self) -> Iterator[Outcome]:
        with closing(sqlite3.connect("")) as database:
            database.executescript(_TABLES)
            for event in self.events():
                self._collect(database, event)
            for event in self.events():
                if event.kind is Kind.DECIDED:
                    yield self._outcome(database, event)

    def _collect(self, database: sqlite3.Connection, event: Event) -> None:
        if event.kind is Kind.ABANDONED:
            database.execute(
                "INSERT OR IGNORE INTO abandoned VALUES (?)", (event.body["decision"],)
            )
        if event.kind is Kind.ACTIVATED:
            database.execute(
                "INSERT OR IGNORE INTO activated VALUES (?)", (event.body["decision"],)
            )
        if event.kind is not Kind.OBSERVED:
            return
        feedback: Feedback = from_json(event.body["feedback"])
        decision = event.body["decision"]
        for place, position in enumerate(feedback.positions.tolist()):
            noise = None
            if feedback.noise_variance is not None:
                noise = float(feedback.noise_variance[place])
            reward = float(feedback.rewards[place])
            # Of a reward that may be recorded twice, the first counts.
            database.execute(
                "INSERT OR IGNORE INTO rewards VALUES (?, ?, ?, ?, ?)",
                (decision, position, reward, noise, event.time),
            )

    def _outcome(self, database: sqlite3.Connection, event: Event) -> Outcome:
        asked = self._reader.asked(event)
        rows = database.execute(
            "SELECT position, reward, noise, observed_at FROM rewards WHERE decision = ?",
            (asked.id,),
        )
        rewards = {}
        for position, reward, noise, observed_at in rows:
            rewards[position] = KnownReward(reward, noise, observed_at)
        abandoned = database.execute(
            "SELECT 1 FROM abandoned WHERE decision = ?", (asked.id,)
        ).fetchone()
        if abandoned:
            status = Status.ABANDONED
        elif len(rewards) == len(asked.decision.positions):
            status = Status.REWARDED
        elif rewards:
            status = Status.PARTIAL
        else:
            activated = database.execute(
                "SELECT 1 FROM activated WHERE decision = ?", (asked.id,)
            ).fetchone()
            is_deferred = event.body.get("deferred", False) and not activated
            status = Status.DEFERRED if is_deferred else Status.PENDING
        return Outcome(asked, event.body["arms"], rewards, status)
