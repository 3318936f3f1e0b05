"""Replay: fold a bandit's journal from its first event, and decide everything again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from superarm.core import Floats

from .events import Event, Kind
from .fold import Fold
from .log import Log

TOLERANCE = 1e-9
"""Differences of means and standard deviations, relative to the largest, that count as rounding:
another CPU or BLAS adds in another order."""


@dataclass(slots=True)
class Replay:
    """What a replay found."""

    events: int = 0
    decisions: int = 0
    differences: list[str] = field(default_factory=list)
    """Decisions that came out differently, in words."""

    @property
    def same(self) -> bool:
        """Whether every decision came out as it was recorded."""
        return not self.differences


def verify(
    log: Log, report: Callable[[Replay], None] | None = None, decide: bool = True
) -> Replay:
    """Fold all events without a snapshot; decide at every recorded decision, and compare.

    Args:
        log: The journal of a bandit.
        report: Called after every event, to show progress.
        decide: Whether to decide again; otherwise the events are only folded.
    """
    fold = Fold(log)
    replay = Replay()
    for event in log.events():
        if event.kind is Kind.DECIDED:
            replay.decisions += 1
            difference = _difference(fold, event) if decide else None
            if difference is not None:
                replay.differences.append(difference)
        fold.apply(event)
        replay.events += 1
        if report is not None:
            report(replay)
    return replay


def _difference(fold: Fold, event: Event) -> str | None:
    """How the decision of an event differs from what is decided now; ``None``: it does not."""
    asked = fold.asked(event)
    recorded = asked.decision
    decided = fold.decide(asked.offer)
    where = f"event {event.seq}, decision {asked.id!r}"
    pending = event.body.get("pending")  # not in events of the first version
    if pending is not None and pending != fold.pending_digest():
        return f"{where}: other decisions awaited rewards than now"
    if recorded.positions.tolist() != decided.positions.tolist():
        return (
            f"{where}: recorded {recorded.ids(asked.offer)}, "
            f"now {decided.ids(asked.offer)}"
        )
    for name in ("mean", "std"):
        before: Floats | None = getattr(recorded, name)
        now: Floats | None = getattr(decided, name)
        if not _agree(before, now):
            return f"{where}: {name} was {before}, now {now}"
    return None


def _agree(before: Floats | None, now: Floats | None) -> bool:
    if before is None or now is None:
        return before is now
    size = float(np.abs(before).max(initial=0.0))
    return bool(np.allclose(before, now, rtol=TOLERANCE, atol=TOLERANCE * size))
