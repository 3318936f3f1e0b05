"""Everything that was observed on roads: sums of arms, trip by trip.

=============  =======================================================================
``N``, ``M``   arms observed, rewards (each of one arm or the sum of several)
``keys``       rows of :class:`RoadGP`, (N, 9)
``of``         the reward that each arm belongs to, (N,), rising
``trip``       the trip that each reward belongs to, (M,), rising: they share noise
``noise``      variance that each reward has by itself where it was stated, else 0, (M,)
``alone``      whether a reward shares no noise with others of its trip, (M,)
=============  =======================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.linalg import with_room


class Trips(NamedTuple):
    """Some trips, or all: see above."""

    keys: Floats
    of: Ints
    rewards: Floats
    trip: Ints
    noise: Floats
    alone: Bools

    @classmethod
    def of_one(
        cls,
        keys: Floats,
        of: Ints | None = None,
        rewards: Floats | None = None,
        noise: Floats | None = None,
    ) -> Trips:
        """One trip, or arms of which nothing was observed; with ``noise`` stated they share none."""
        sums = np.arange(len(keys)) if of is None else of
        count = int(sums.max(initial=-1)) + 1
        values = np.zeros(count) if rewards is None else rewards
        stated = np.zeros(count) if noise is None else noise
        alone = np.full(count, noise is not None)
        return cls(keys, sums, values, np.zeros(count, dtype=np.intp), stated, alone)

    @property
    def number(self) -> int:
        """How many trips."""
        return int(self.trip[-1]) + 1 if len(self.trip) else 0

    def summed(self, values: Floats) -> Floats:
        """Σ over the arms of each reward: (N,) or (N, p) become (M,) or (M, p)."""
        if len(self.of) == len(self.rewards):
            return values
        total = np.zeros((len(self.rewards), *values.shape[1:]))
        np.add.at(total, self.of, values)
        return total

    def between(self, first: int, stop: int) -> Trips:
        """Trips ``first`` … ``stop`` − 1."""
        begin, end = np.searchsorted(self.trip, [first, stop])
        arms = slice(*np.searchsorted(self.of, [begin, end]))
        rows = slice(begin, end)
        of = self.of[arms] - begin
        rest = (self.rewards[rows], self.trip[rows] - first, self.noise[rows], self.alone[rows])
        return Trips(self.keys[arms], of, *rest)

    def without(self, rewards: Bools) -> Trips:
        """All but these rewards, (M,)."""
        kept, arms = ~rewards, ~rewards[self.of]
        of = (np.cumsum(kept) - 1)[self.of[arms]]
        rest: Any = (each[kept] for each in self[2:])
        return Trips(self.keys[arms], of, *rest)

    def sound(self) -> bool:
        """Whether every arm belongs to a reward, every reward to a trip, and noise is a variance."""
        shapes = {each.shape for each in (self.trip, self.noise, self.alone)}
        return bool(
            shapes == {self.rewards.shape}
            and self.of.shape == (len(self.keys),)
            and _counts(self.of)
            and _counts(self.trip)
            and int(self.of.max(initial=-1)) == len(self.rewards) - 1
            and (self.noise >= 0.0).all()
        )

    def last(self, most: int) -> Trips:
        """The latest whole trips with at most so many rewards; at least one trip."""
        at = max(0, len(self.trip) - most)
        first = int(self.trip[at])
        if at and self.trip[at - 1] == first:  # not whole
            first = min(first + 1, self.number - 1)
        return self.between(first, self.number)


def _counts(numbers: Ints) -> bool:
    """Whether they are 0, …, 0, 1, …, 1, 2, …"""
    return bool(np.isin(np.diff(numbers, prepend=0), (0, 1)).all() and not numbers[:1].any())


class Log:
    """All trips, in buffers that double."""

    def __init__(self, columns: int) -> None:
        kinds = (np.empty((0, columns)), np.empty(0, np.intp), np.empty(0), np.empty(0, np.intp))
        self._buffers = Trips(*kinds, np.empty(0), np.empty(0, np.bool_))
        self._arms = self._rewards = 0

    def view(self) -> Trips:
        """All of it, without a copy."""
        arms, rewards = slice(self._arms), slice(self._rewards)
        keys, of, *others = self._buffers
        rest: Any = (each[rewards] for each in others)
        return Trips(keys[arms], of[arms], *rest)

    def copy(self) -> Log:
        other = Log(0)
        copies: Any = (each.copy() for each in self.view())
        other._buffers = Trips(*copies)
        other._arms, other._rewards = self._arms, self._rewards
        return other

    def append(self, trips: Trips) -> None:
        known = self.view()
        shifted = trips._replace(of=trips.of + self._rewards, trip=trips.trip + known.number)
        arms, rewards = self._arms + len(trips.of), self._rewards + len(trips.rewards)
        sizes = ((self._arms, arms), (self._arms, arms), *[(self._rewards, rewards)] * 4)
        grown: list[Any] = []
        for buffer, new, (size, total) in zip(self._buffers, shifted, sizes, strict=True):
            room = with_room(buffer, size, total)
            room[size:total] = new
            grown.append(room)
        self._buffers, self._arms, self._rewards = Trips(*grown), arms, rewards
