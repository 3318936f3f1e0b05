"""What a saved state holds of the visited form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError

from .expected_rows import ExpectedRows


class SavedVisited(NamedTuple):
    """The values of a saved state."""

    mean: Floats  # (n,)
    variance: Floats  # (n,)
    probe: Floats  # (2,)
    visited: Ints  # V, (v,)
    batch_sizes: list[int]
    H: Floats  # (v, v)
    expected: ExpectedRows
    updates: int
    refresh_at: int
    interval: int
    capacity: int

    @classmethod
    def read(cls, state: State, weight: Floats) -> SavedVisited:
        """The values in a state, validated.

        Args:
            state: A state of the visited form.
            weight: Σ 1/noise of every arm's observations, (n,).
        """
        n = len(weight)
        mean = state.vector("mean", n)
        variance = state.vector("variance", n)
        probe = state.vector("probe", 2)
        visited = state.positions("visited")
        size = len(visited)
        batch_sizes = state.positions("came").tolist()
        H = state.matrix("precision", size)
        updates = state.count("updates", 0)
        refresh_at = state.count("refresh_at", 0)
        interval = state.count("interval", 0)
        most_capacity = max(64, size + 128)
        capacity = state.count("capacity", size, most_capacity)
        has_visited = np.array_equal(np.sort(visited), np.flatnonzero(weight))
        has_batches = sum(batch_sizes) == size and min(batch_sizes, default=1) > 0
        has_moments = len(H) == size and variance.min() >= 0.0
        if not (has_visited and has_batches and has_moments):
            raise StateError(
                "this state is damaged: it holds impossible values for the visited form"
            )
        return cls(
            mean=mean.copy(),
            variance=variance.copy(),
            probe=probe,
            visited=visited.copy(),
            batch_sizes=batch_sizes,
            H=H,
            expected=_expected_rows(state, n),
            updates=updates,
            refresh_at=refresh_at,
            interval=interval,
            capacity=capacity,
        )


def _expected_rows(state: State, n: int) -> ExpectedRows:
    """The rows of expected rewards, validated; none in a state of an earlier version."""
    if "expected" not in state.arrays:
        return ExpectedRows.none(n)
    arms = state.positions("expected")
    rows = state.matrix("expected_rows", n)
    is_distinct = len(np.unique(arms)) == len(arms)
    if len(rows) != len(arms) or not is_distinct or arms.max(initial=-1) >= n:
        raise StateError(
            "this state is damaged: it holds impossible rows of expected rewards"
        )
    return ExpectedRows.of(arms, rows)
