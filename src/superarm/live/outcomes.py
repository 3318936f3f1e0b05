"""Decisions of a journal with the rewards of each, one after another."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .bandit_journal import BanditJournal
from .decisions import DecisionRecord, Status, decision_status, value_at
from .event_reader import EventReader, feedback_of
from .events import Event, Kind

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

    record: DecisionRecord
    offer_hash: str
    """The hash of the arms on offer."""
    rewards: dict[int, KnownReward]
    """Rewards by position in the offer."""
    status: Status

    @property
    def reward(self) -> float | None:
        """The sum of all rewards; ``None`` while some are missing."""
        if len(self.rewards) < len(self.record.decision.positions):
            return None
        return sum(item.reward for item in self.rewards.values())


class Outcomes:
    """The decisions of a journal, in their order.

    Rewards may come long after a decision. So they are first collected in a temporary database, which is
    on disk if it is large: memory does not grow with the journal.

    Args:
        journal: The journal.
        last: The number of the last event to read; what comes later is left out.
    """

    def __init__(self, journal: BanditJournal, last: int) -> None:
        self._journal = journal
        self._last = last
        self._reader = EventReader(journal)

    def __iter__(self) -> Iterator[Outcome]:
        with closing(sqlite3.connect("")) as database:
            database.executescript(_TABLES)
            for event in self._journal.events(last=self._last):
                self._collect(database, event)
            for event in self._journal.events(last=self._last):
                if event.kind is Kind.DECIDED:
                    yield self._outcome(database, event)

    def _collect(self, database: sqlite3.Connection, event: Event) -> None:
        match event.kind:
            case Kind.ABANDONED:
                _insert(database, "abandoned", event.body["decision"])
            case Kind.ACTIVATED:
                _insert(database, "activated", event.body["decision"])
            case Kind.OBSERVED:
                _insert_rewards(database, event)

    def _outcome(self, database: sqlite3.Connection, event: Event) -> Outcome:
        record = self._reader.decision(event)
        rewards = _rewards(database, record.id)
        is_deferred = event.body.get("deferred", False)
        status = decision_status(
            is_abandoned=_is_in(database, "abandoned", record.id),
            is_open=len(rewards) < len(record.decision.positions),
            has_rewards=bool(rewards),
            is_deferred=is_deferred and not _is_in(database, "activated", record.id),
        )
        return Outcome(record, event.body["arms"], rewards, status)


# --- the temporary database ----------------------------------------------------------------

_DecisionTable = Literal["abandoned", "activated"]


def _insert(
    database: sqlite3.Connection, table: _DecisionTable, decision_id: str
) -> None:
    database.execute(f"INSERT OR IGNORE INTO {table} VALUES (?)", (decision_id,))


def _is_in(
    database: sqlite3.Connection, table: _DecisionTable, decision_id: str
) -> bool:
    query = f"SELECT 1 FROM {table} WHERE decision = ?"
    return database.execute(query, (decision_id,)).fetchone() is not None


def _insert_rewards(database: sqlite3.Connection, event: Event) -> None:
    feedback = feedback_of(event)
    for place, position in enumerate(feedback.positions.tolist()):
        noise = value_at(feedback.noise_variance, place)
        reward = float(feedback.rewards[place])
        # Of a reward that may be recorded twice, the first counts.
        database.execute(
            "INSERT OR IGNORE INTO rewards VALUES (?, ?, ?, ?, ?)",
            (event.body["decision"], position, reward, noise, event.time),
        )


def _rewards(database: sqlite3.Connection, decision_id: str) -> dict[int, KnownReward]:
    """Rewards of a decision, by position in the offer."""
    rows = database.execute(
        "SELECT position, reward, noise, observed_at FROM rewards WHERE decision = ?",
        (decision_id,),
    )
    rewards = {}
    for position, reward, noise, observed_at in rows:
        rewards[position] = KnownReward(reward, noise, observed_at)
    return rewards
