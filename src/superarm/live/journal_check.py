"""Looking for damage in the tables of a journal.

Others may append in the meantime: whatever an event refers to is read after the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from superarm.core.errors import StateError

from .codec import decode_body, digest
from .events import Kind

_EVENTS = 1000  # read at a time
_BLOBS = 16  # read at a time; each may have megabytes
_KINDS = frozenset(Kind)


class Rows(Protocol):
    """Runs a query, with ``?`` in the place of values, and returns its rows."""

    def __call__(
        self, query: str, values: tuple[Any, ...] = ()
    ) -> list[tuple[Any, ...]]: ...


def find_problems(rows: Rows) -> list[str]:
    """Compare the tables with each other; one sentence for each problem.

    Args:
        rows: Runs a query.
    """
    return [
        *_gaps(rows),
        *_events_without_bandit(rows),
        *_bandits_without_events(rows),
        *_damaged_events(rows),
        *_damaged_blobs(rows),
        *_early_snapshots(rows),
    ]


def _gaps(rows: Rows) -> Iterator[str]:
    query = (
        "SELECT bandit, seq, previous FROM (SELECT bandit, seq, "
        "coalesce(lag(seq) OVER (PARTITION BY bandit ORDER BY seq), 0) AS previous "
        "FROM events) AS numbered WHERE seq <> previous + 1 ORDER BY bandit, seq"
    )
    for bandit, seq, previous in rows(query):
        yield f"bandit {bandit}: event {seq} follows event {previous}"


def _events_without_bandit(rows: Rows) -> Iterator[str]:
    query = (
        "SELECT bandit, count(*) FROM events WHERE bandit NOT IN (SELECT id FROM bandits) "
        "GROUP BY bandit ORDER BY bandit"
    )
    for bandit, count in rows(query):
        yield f"bandit {bandit}: has {count} events, but is not listed"


def _bandits_without_events(rows: Rows) -> Iterator[str]:
    query = (
        "SELECT id, name FROM bandits WHERE NOT EXISTS "
        "(SELECT 1 FROM events WHERE bandit = bandits.id) ORDER BY id"
    )
    for bandit, name in rows(query):
        yield f"bandit {bandit}: {name!r} has no events"


def _early_snapshots(rows: Rows) -> Iterator[str]:
    query = (
        "SELECT bandit, seq, last FROM (SELECT bandit, seq, "
        "coalesce((SELECT max(seq) FROM events WHERE events.bandit = snapshots.bandit), 0) "
        "AS last FROM snapshots) AS compared WHERE seq > last ORDER BY bandit"
    )
    for bandit, seq, last in rows(query):
        yield f"bandit {bandit}: its snapshot is of event {seq}, but its last event is {last}"


# --- events and what they refer to ---------------------------------------------------------


def _damaged_events(rows: Rows) -> Iterator[str]:
    query = (
        "SELECT bandit, seq, kind, body FROM events WHERE (bandit, seq) > (?, ?) "
        "ORDER BY bandit, seq LIMIT ?"
    )
    last_bandit = -1
    last_seq = -1
    while True:
        page = rows(query, (last_bandit, last_seq, _EVENTS))
        known_blobs: set[str] = set()
        for bandit, seq, kind, body in page:
            where = f"bandit {bandit}: event {seq}"
            if kind not in _KINDS:
                yield f"{where} has the unknown kind {kind!r}"
                continue
            try:
                arms = decode_body(body, where).get("arms")
            except StateError as error:
                yield str(error)
                continue
            if arms is None:
                continue
            blob = str(arms)
            if blob in known_blobs:
                continue
            if rows("SELECT 1 FROM blobs WHERE hash = ?", (blob,)):
                known_blobs.add(blob)
            else:
                yield f"{where} refers to blob {blob[:12]}…, which is missing"
        if len(page) < _EVENTS:
            return
        last_bandit, last_seq = page[-1][:2]


def _damaged_blobs(rows: Rows) -> Iterator[str]:
    query = "SELECT hash, bytes FROM blobs WHERE hash > ? ORDER BY hash LIMIT ?"
    last = ""
    while True:
        page = rows(query, (last, _BLOBS))
        for name, data in page:
            if digest(data) != name:
                yield f"blob {name[:12]}… is damaged: its hash is {digest(data)[:12]}…"
            last = name
        if len(page) < _BLOBS:
            return
