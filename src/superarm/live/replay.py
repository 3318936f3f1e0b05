"""Replay: fold a bandit's journal from its first event, and decide everything again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from superarm.core import Floats

from .bandit_journal import BanditJournal
from .events import Event, Kind
from .fold import Fold

TOLERANCE = 1e-9
"""Differences of means and standard deviations, relative to the largest, that count as rounding:
another CPU or BLAS adds in another order."""


@dataclass(slots=True)
class Replay:
    """What a replay found."""

    events: int = 0
    decisions: int = 0
    differences: list[str] = field(default_factory=list)
    """One sentence for each decision that differs."""

    @property
    def same(self) -> bool:
        """Whether every decision is as recorded."""
        return not self.differences


def verify(
    journal: BanditJournal,
    report: Callable[[Replay], None] | None = None,
    *,
    repeat_decisions: bool = True,
) -> Replay:
    """Fold all events without a snapshot, repeat every decision, and compare.

    Args:
        journal: The journal of a bandit.
        report: Called after every event, to show progress.
        repeat_decisions: Whether to repeat decisions; otherwise the events are only folded.
    """
    fold = Fold(journal)
    replay = Replay()
    for event in journal.events():
        if event.kind is Kind.DECIDED:
            replay.decisions += 1
            if repeat_decisions:
                replay.differences += _differences(fold, event)
        fold.apply(event)
        replay.events += 1
        if report is not None:
            report(replay)
    return replay


def _differences(fold: Fold, event: Event) -> Iterator[str]:
    """How the decision of an event differs from what is decided now; at most one sentence."""
    record = fold.reader.decision(event)
    recorded = record.decision
    repeated = fold.decide(record.offer)
    where = f"event {event.seq}, decision {record.id!r}"
    pending = event.body.get("pending")  # not in events of the first version
    if pending is not None and pending != fold.pending_digest():
        yield f"{where}: different decisions were pending"
    elif recorded.positions.tolist() != repeated.positions.tolist():
        before = recorded.ids(record.offer)
        now = repeated.ids(record.offer)
        yield f"{where}: recorded {before}, now {now}"
    elif not _agree(recorded.mean, repeated.mean):
        yield f"{where}: mean was {recorded.mean}, now {repeated.mean}"
    elif not _agree(recorded.std, repeated.std):
        yield f"{where}: std was {recorded.std}, now {repeated.std}"


def _agree(before: Floats | None, now: Floats | None) -> bool:
    if before is None or now is None:
        return before is now
    size = float(np.abs(before).max(initial=0.0))
    return bool(np.allclose(before, now, rtol=TOLERANCE, atol=TOLERANCE * size))
