"""Which snapshots of a bandit a journal keeps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from superarm.live.snapshot_thinning import (
    EVENTS_PER_SNAPSHOT,
    MOST_BYTES,
    MOST_SNAPSHOTS,
    StoredSnapshot,
    surplus_snapshots,
)


def thinned(seqs: list[int], size: int) -> list[StoredSnapshot]:
    """What is left of snapshots that are stored one after another."""
    stored: list[StoredSnapshot] = []
    for seq in seqs:
        stored.append(StoredSnapshot(seq, size))
        surplus = surplus_snapshots(stored)
        assert seq not in surplus  # the latest one stays, whatever its size
        stored = [snapshot for snapshot in stored if snapshot.seq not in surplus]
    return stored


def widest_gap(stored: list[StoredSnapshot]) -> int:
    """The most events that somebody folds to reach an event before the latest snapshot."""
    seqs = [0, *(snapshot.seq for snapshot in stored)]
    return max(following - previous for previous, following in pairwise(seqs))


def test_without_snapshots_none_is_surplus() -> None:
    assert surplus_snapshots([]) == []


@pytest.mark.parametrize("size", [100, MOST_BYTES // 16])
@pytest.mark.parametrize("number", [1, 16, 17, 64, 65, 66, 100, 129, 500, 1000])
def test_snapshots_are_spread_evenly(number: int, size: int) -> None:
    regular = range(EVENTS_PER_SNAPSHOT, number * 1000 + 1, EVENTS_PER_SNAPSHOT)
    stored = thinned(list(regular), size)
    most = min(MOST_SNAPSHOTS, MOST_BYTES // size)
    assert min(number, most // 2) <= len(stored) <= most + 1
    assert stored[-1].seq == regular[-1]
    # Two neighbors are merged only where no closer ones are: gaps differ by at most a factor of two.
    assert widest_gap(stored) <= max(1000, 2 * regular[-1] / most + 1000)


def test_snapshots_of_a_bandit_that_is_often_evicted_are_far_apart() -> None:
    stored = thinned(list(range(7, 20_000, 7)), 100)
    assert len(stored) <= 21
    assert widest_gap(stored) < EVENTS_PER_SNAPSHOT + 7
    assert len(thinned([10, 20, 900], 100)) == 1


def test_a_snapshot_larger_than_all_others_may_be_is_the_only_one() -> None:
    stored = thinned([1000, 2000, 3000], MOST_BYTES + 1)
    assert [snapshot.seq for snapshot in stored] == [3000]
