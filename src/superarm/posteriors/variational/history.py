"""The history of a sparse variational posterior, and batches of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.linalg import with_room
from superarm.posteriors.observations import ObservationBuffer


class History(ObservationBuffer):
    """Everything observed, with the arm of each row; arms are numbered in order of appearance.

    Args:
        discrete_columns: Columns that identify an arm; without any, every different row is an arm.
    """

    def __init__(self, discrete_columns: tuple[int, ...]) -> None:
        super().__init__()
        self._discrete = discrete_columns
        self._numbers: dict[bytes, int] = {}  # of arms, by their identifying columns
        self._arm_of = np.empty(0, dtype=np.intp)  # arm of each row, (capacity,)

    def append(self, arms: Floats, rewards: Floats, noise: Floats) -> None:
        first = len(self)
        super().append(arms, rewards, noise)
        self._arm_of = with_room(self._arm_of, first, len(self))
        identifiers = arms
        if self._discrete:
            identifiers = arms[:, list(self._discrete)]
        identifiers = identifiers + 0.0  # −0.0 becomes 0.0, which has other bytes
        numbers = self._numbers
        for row, identifier in enumerate(identifiers, start=first):
            next_number = len(numbers)
            key = identifier.tobytes()
            self._arm_of[row] = numbers.setdefault(key, next_number)

    def truncate(self, size: int) -> None:
        """Forget all but the first ``size`` observations.

        Args:
            size: How many observations remain.
        """
        arm_count = int(self._arm_of[:size].max(initial=-1)) + 1
        self._numbers = {
            identifier: number
            for identifier, number in self._numbers.items()
            if number < arm_count
        }
        self._size = size

    def most_visited(self, count: int) -> Ints:
        """The ``count`` most visited arms, ascending; of equals those that appeared first.

        Args:
            count: How many arms, at most.
        """
        observed_arms = self._arm_of[: len(self)]
        visits = np.bincount(observed_arms)
        by_visits = np.argsort(-visits, kind="stable")
        most_visited = by_visits[:count]
        return np.sort(most_visited)

    def latest_rows(self, arms: Ints) -> Floats:
        """The rows in which these arms were last observed, (m, d).

        Args:
            arms: Numbers of arms, (m,).
        """
        count = len(self)
        observed_arms = self._arm_of[:count]
        last_row = np.zeros(len(self._numbers), dtype=np.intp)
        # Of repeated indices the last assignment wins.
        last_row[observed_arms] = np.arange(count)
        rows = last_row[arms]
        return self.view().arms[rows]


class Batch(NamedTuple):
    """Some of the observations, representing all of them."""

    rows: Floats  # (B, d)
    residual: Floats  # (B,) rewards minus the prior mean
    noise: Floats  # (B,) variances
    scale: float  # N / B
    repeats: int = 0  # observations merged into rows of others: there are B + repeats
    scatter: float = 0.0  # Σ (y − ȳ)²/d within rows that were merged

    def merged(self) -> Batch:
        """The batch with observations of equal rows merged into their weighted mean.

        Steps on it are the same, because they depend only on Σ 1/d and Σ y/d of each row; the bound
        is not, because it has a term for every observation.
        """
        rows, row_of = np.unique(self.rows, axis=0, return_inverse=True)
        row_of = row_of.reshape(-1)  # some versions of numpy return a column
        precision = np.bincount(row_of, 1.0 / self.noise)
        noise = 1.0 / precision
        weighted_sum = np.bincount(row_of, self.residual / self.noise)
        residual = weighted_sum * noise
        deviations = self.residual - residual[row_of]
        squares = np.square(deviations) / self.noise
        scatter = float(squares.sum())
        merged_count = len(self.rows) - len(rows)
        return Batch(
            rows=rows,
            residual=residual,
            noise=noise,
            scale=self.scale,
            repeats=self.repeats + merged_count,
            scatter=self.scatter + scatter,
        )
