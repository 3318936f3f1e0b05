"""Which snapshots of a bandit are worth their bytes: a few, spread evenly over its events.

The latest snapshot serves the next start. Earlier ones serve explanations of old decisions, which fold
the events since the nearest snapshot before the decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

EVENTS_PER_SNAPSHOT = 1000
"""Events after which a snapshot is stored: a start folds no more than about these. Earlier snapshots are
at least as far apart, so that a bandit that is often evicted has few."""
MOST_SNAPSHOTS = 64
"""Earlier snapshots of a bandit, at most. Explaining one of n decisions then folds up to about n/32."""
MOST_BYTES = 32 * 2**20
"""Bytes of the earlier snapshots of a bandit, at most; the latest one is stored whatever its size."""


class StoredSnapshot(NamedTuple):
    """A snapshot in a journal, without its data."""

    seq: int
    size: int  # bytes


def surplus_snapshots(stored: Iterable[StoredSnapshot]) -> list[int]:
    """The snapshots to remove, as numbers of their events in order.

    The latest one stays. Of the others, those stay that are far enough from the one before. If they are too
    many or too large, the one goes first whose neighbors are closest to each other.

    Args:
        stored: All snapshots of a bandit, in any order.
    """
    in_order = sorted(stored)
    if not in_order:
        return []
    *earlier, latest = in_order
    surplus = []
    spread: list[StoredSnapshot] = []
    last_seq = 0
    for snapshot in earlier:
        if snapshot.seq - last_seq < EVENTS_PER_SNAPSHOT:
            surplus.append(snapshot.seq)
        else:
            spread.append(snapshot)
            last_seq = snapshot.seq
    while _is_too_much(spread):
        surplus.append(spread.pop(_most_dispensable(spread, latest.seq)).seq)
    return sorted(surplus)


def _is_too_much(snapshots: list[StoredSnapshot]) -> bool:
    total_bytes = sum(snapshot.size for snapshot in snapshots)
    return len(snapshots) > MOST_SNAPSHOTS or total_bytes > MOST_BYTES


def _most_dispensable(snapshots: list[StoredSnapshot], latest: int) -> int:
    """The place of the snapshot without which the fewest events lie between two others."""
    seqs = [0, *(snapshot.seq for snapshot in snapshots), latest]
    gaps = [
        following - previous
        for previous, following in zip(seqs[:-2], seqs[2:], strict=True)
    ]
    return gaps.index(min(gaps))  # the earliest of several
