"""Everything that was observed on roads: sums of arms, trip by trip.

=============  =======================================================================
``N``, ``M``   arms observed, rewards (each of one arm or the sum of several)
``keys``       rows of :class:`RoadGP`, (N, 9)
``of``         the reward that each arm belongs to, (N,), rising
``trip``       the trip that each reward belongs to, (M,), rising: they share noise
``noise``      variance that each reward has by itself where it was stated, else 0, (M,)
``alone``      whether a reward shares no noise with others of its trip, (M,)
``borders``    Q places where what is stored in motion crosses from one reward to the next
=============  =======================================================================

*Borders.* A battery pays for motion on one stretch of road and gets it back on another. With s_q the
Wh that are stored in motion at border q, a reward holds + s_q of the border where it ends and − s_q of
the one where it begins. Rewards come here less the mean of s_q; what is left of it, of variance v_q, is
noise that one reward pays and its neighbour gets. So R, the noise of a trip's rewards, gains v_q at
(i, i) and (i + 1, i + 1), and − v_q at (i, i + 1), for a border between rewards i and i + 1: it becomes
tridiagonal, and the sum of a trip's rewards has nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.linalg import with_room

_TOTALS = 4  # one of so many rewards that scales are fitted to is the total of an earlier trip


class Borders(NamedTuple):
    """Where motion crosses from reward to reward, in the order of the road."""

    before: Ints  # the reward that ends there, −1 where none was observed, (Q,)
    after: Ints  # the one that begins there, the next of the same trip; or −1, (Q,)
    size: Floats  # Wh expected in motion: what ``RoadScales.motion`` multiplies, (Q,)
    variance: Floats  # Wh² that are known beside it, (Q,)

    @classmethod
    def none(cls) -> Borders:
        return cls(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), np.empty(0))

    def __bool__(self) -> bool:
        return len(self.size) > 0

    @property
    def last(self) -> Ints:
        """The later reward of each, rising, (Q,)."""
        return np.maximum(self.before, self.after)

    def take(self, where: slice | Bools) -> Borders:
        """Some of them."""
        return Borders(
            self.before[where],
            self.after[where],
            self.size[where],
            self.variance[where],
        )

    def shifted(self, by: int) -> Borders:
        """With rewards numbered from ``by`` on."""
        before, after = (np.where(each < 0, -1, each + by) for each in self[:2])
        return self._replace(before=before, after=after)

    def of_rewards(self, numbers: Ints) -> Borders:
        """Those of some rewards: reward i becomes ``numbers[i]``, or is left out where that is −1."""
        padded = np.append(numbers, -1)  # where −1 points to
        before, after = padded[self.before], padded[self.after]
        kept = (before >= 0) | (after >= 0)
        return self._replace(before=before, after=after).take(kept)

    def sound(self, trip: Ints) -> bool:
        """Whether they lie between neighbours of one trip, in order, and have variances."""
        whole = (self.before >= 0) & (self.after >= 0)
        return bool(
            len({each.shape for each in self}) == 1
            and self.last.min(initial=0) >= 0
            and min(self.before.min(initial=0), self.after.min(initial=0)) >= -1
            and self.last.max(initial=-1) < len(trip)
            and (np.diff(self.last) >= 0).all()
            and (self.after[whole] == self.before[whole] + 1).all()
            and (trip[self.after[whole]] == trip[self.before[whole]]).all()
            and (self.size >= 0.0).all()
            and (self.variance >= 0.0).all()
        )


class Trips(NamedTuple):
    """Some trips, or all: see above."""

    keys: Floats
    of: Ints
    rewards: Floats
    trip: Ints
    noise: Floats
    alone: Bools
    borders: Borders = Borders.none()

    @classmethod
    def of_one(
        cls,
        keys: Floats,
        of: Ints | None = None,
        rewards: Floats | None = None,
        noise: Floats | None = None,
        borders: Borders | None = None,
    ) -> Trips:
        """One trip, or arms of which nothing was observed; with ``noise`` stated they share none."""
        sums = np.arange(len(keys)) if of is None else of
        count = int(sums.max(initial=-1)) + 1
        values = np.zeros(count) if rewards is None else rewards
        stated = np.zeros(count) if noise is None else noise
        alone = np.full(count, noise is not None)
        trip = np.zeros(count, dtype=np.intp)
        return cls(keys, sums, values, trip, stated, alone, borders or Borders.none())

    @classmethod
    def joined(cls, trips: Sequence[Trips]) -> Trips:
        """All of several logs, one after another."""
        log = Log(trips[0].keys.shape[1])
        for each in trips:
            log.append(each)
        return log.view()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a state."""
        plain = self._asdict()
        borders: Borders = plain.pop("borders")
        return plain | {
            f"border_{name}": values for name, values in borders._asdict().items()
        }

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

    def crossing(self, values: Floats) -> Floats:
        """What borders add to rewards: + where one ends, − where one begins; (Q,) becomes (M,)."""
        total = np.zeros(len(self.rewards))
        for side, sign in ((self.borders.before, 1.0), (self.borders.after, -1.0)):
            seen = side >= 0
            np.add.at(total, side[seen], sign * values[seen])
        return total

    def across(self, variances: Floats) -> Floats:
        """The covariance of what borders of these variances add to rewards, (M, M)."""
        signs = np.zeros((len(self.rewards), len(variances)))
        for side, sign in ((self.borders.before, 1.0), (self.borders.after, -1.0)):
            seen = np.flatnonzero(side >= 0)
            signs[side[seen], seen] += sign
        return np.asarray((signs * variances) @ signs.T)

    def between(self, first: int, stop: int) -> Trips:
        """Trips ``first`` … ``stop`` − 1."""
        begin, end = np.searchsorted(self.trip, [first, stop])
        arms = slice(*np.searchsorted(self.of, [begin, end]))
        rows = slice(begin, end)
        of = self.of[arms] - begin
        rest = (
            self.rewards[rows],
            self.trip[rows] - first,
            self.noise[rows],
            self.alone[rows],
        )
        here = slice(*np.searchsorted(self.borders.last, [begin, end]))
        borders = self.borders.take(here).shifted(-int(begin))
        return Trips(self.keys[arms], of, *rest, borders)

    def without(self, rewards: Bools) -> Trips:
        """All but these rewards, (M,)."""
        kept, arms = ~rewards, ~rewards[self.of]
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        return Trips(
            keys=self.keys[arms],
            of=numbers[self.of[arms]],
            rewards=self.rewards[kept],
            trip=self.trip[kept],
            noise=self.noise[kept],
            alone=self.alone[kept],
            borders=self.borders.of_rewards(numbers),
        )

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
            and self.borders.sound(self.trip)
        )

    def in_sections(self, section: Ints) -> Trips:
        """Sums of rewards that follow one another: reward i is part of ``section[i]``, (M,), rising.

        Motion that crosses from one to the next within a section cancels out.
        """
        _, first = np.unique(section, return_index=True)
        borders = self.borders.of_rewards(section)
        within = borders.before == borders.after
        return Trips(
            keys=self.keys,
            of=section[self.of],
            rewards=np.bincount(section, self.rewards, len(first)).astype(np.float64),
            trip=self.trip[first],
            noise=np.bincount(section, self.noise, len(first)).astype(np.float64),
            alone=self.alone[first],
            borders=borders.take(~within),
        )

    def totals(self) -> Trips:
        """Each trip as one reward: the sum of those whose noise was not stated, as an outlier's is.

        Trips of several rewards, all with stated noise, are left out.
        """
        several = np.bincount(self.trip, minlength=self.number) > 1
        kept = self.without((self.noise != 0.0) & several[self.trip])
        _, trip = np.unique(kept.trip, return_inverse=True)
        return kept._replace(trip=trip).in_sections(trip)

    def latest(self, most: int) -> Trips:
        """At most so many rewards, of the latest trips: some as they are, many before them as totals.

        Edge by edge, few trips are many rewards. They tell the noise of edges, but hardly what a
        vehicle does on every trip from what one day does: that takes many trips.
        """
        if len(self.rewards) <= most:
            return self
        in_full = self.last(most - most // _TOTALS)
        before = self.number - in_full.number
        totals = self.between(max(0, before - most // _TOTALS), before).totals()
        return Trips.joined([totals, in_full]) if totals.number else in_full

    def last(self, most: int) -> Trips:
        """The latest whole trips with at most so many rewards; at least one trip."""
        at = max(0, len(self.trip) - most)
        first = int(self.trip[at])
        if at and self.trip[at - 1] == first:  # not whole
            first = min(first + 1, self.number - 1)
        return self.between(first, self.number)


def _counts(numbers: Ints) -> bool:
    """Whether they are 0, …, 0, 1, …, 1, 2, …"""
    return bool(
        np.isin(np.diff(numbers, prepend=0), (0, 1)).all() and not numbers[:1].any()
    )


class Log:
    """All trips, in buffers that double."""

    def __init__(self, columns: int) -> None:
        kinds = (
            np.empty((0, columns)),
            np.empty(0, np.intp),
            np.empty(0),
            np.empty(0, np.intp),
        )
        self._buffers = Trips(*kinds, np.empty(0), np.empty(0, np.bool_))
        self._arms = self._rewards = self._borders = 0

    def view(self) -> Trips:
        """All of it, without a copy."""
        arms, rewards = slice(self._arms), slice(self._rewards)
        every = self._buffers
        return Trips(
            keys=every.keys[arms],
            of=every.of[arms],
            rewards=every.rewards[rewards],
            trip=every.trip[rewards],
            noise=every.noise[rewards],
            alone=every.alone[rewards],
            borders=every.borders.take(slice(self._borders)),
        )

    def copy(self) -> Log:
        other = Log(0)
        *plain, borders = self.view()
        copies: Any = [each.copy() for each in plain]
        copied: Any = [each.copy() for each in borders]
        other._buffers = Trips(*copies)._replace(borders=Borders(*copied))
        other._arms, other._rewards, other._borders = (
            self._arms,
            self._rewards,
            self._borders,
        )
        return other

    def append(self, trips: Trips) -> None:
        known = self.view()
        shifted = trips._replace(
            of=trips.of + self._rewards, trip=trips.trip + known.number
        )
        arms, rewards = self._arms + len(trips.of), self._rewards + len(trips.rewards)
        borders = self._borders + len(trips.borders.size)
        sizes = (
            (self._arms, arms),
            (self._arms, arms),
            *[(self._rewards, rewards)] * 4,
        )
        grown: list[Any] = []
        for buffer, new, (size, total) in zip(
            self._buffers[:-1], shifted[:-1], sizes, strict=True
        ):
            grown.append(_with(buffer, new, size, total))
        of_borders = zip(
            self._buffers.borders, trips.borders.shifted(self._rewards), strict=True
        )
        crossed: Any = [
            _with(each, new, self._borders, borders) for each, new in of_borders
        ]
        self._buffers = Trips(*grown)._replace(borders=Borders(*crossed))
        self._arms, self._rewards, self._borders = arms, rewards, borders


def _with(
    buffer: NDArray[Any], new: NDArray[Any], size: int, total: int
) -> NDArray[Any]:
    """A buffer with room for ``total`` rows, those from ``size`` on new."""
    room = with_room(buffer, size, total)
    room[size:total] = new
    return room
