"""The log of everything that was observed on roads: sums of arms, trip by trip.

=============  =======================================================================
``N``, ``M``   arms observed, rewards (each of one arm or the sum of several)
``keys``       feature rows, (N, 9); see :class:`~superarm.roads.rows.Column`
``of``         the reward that each arm belongs to, (N,), rising
``trip``       the trip that each reward belongs to, (M,), rising: they share noise
``noise``      variance that each reward has by itself where it was stated, else 0, (M,)
``alone``      whether a reward shares no noise with others of its trip, (M,)
``borders``    Q places where what is stored in motion crosses from one reward to the next
=============  =======================================================================

*Borders.* A battery pays for motion on one stretch of road and gets it back on another. With s_q the
Wh that are stored in motion at border q, a reward holds + s_q of the border where it ends and − s_q of
the one where it begins. Rewards come here less the mean of s_q; the remainder, of variance v_q, is noise
that one reward pays and its neighbour gets. So R, the noise of a trip's rewards, gains v_q at
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

_TOTALS = 4  # one in so many rewards that scales are fitted to is the total of an earlier trip


class Borders(NamedTuple):
    """Where motion crosses from reward to reward, in the order of the road."""

    before: Ints  # the reward that ends there, −1 where none was observed, (Q,)
    after: Ints  # the one that begins there, the next of the same trip; or −1, (Q,)
    size: Floats  # Wh expected in motion: what ``RoadScales.motion`` multiplies, (Q,)
    variance: Floats  # Wh² that are known beside it, (Q,)

    @classmethod
    def none(cls) -> Borders:
        """No borders."""
        return cls(
            before=np.empty(0, np.intp),
            after=np.empty(0, np.intp),
            size=np.empty(0),
            variance=np.empty(0),
        )

    def __bool__(self) -> bool:
        return len(self.size) > 0

    @property
    def last(self) -> Ints:
        """The later reward of each, rising, (Q,)."""
        return np.maximum(self.before, self.after)

    @property
    def sides(self) -> tuple[tuple[Ints, float], tuple[Ints, float]]:
        """The rewards on both sides, and the sign with which what crosses counts there."""
        return (self.before, 1.0), (self.after, -1.0)

    @property
    def is_inner(self) -> Bools:
        """Whether rewards were observed on both sides, (Q,)."""
        return (self.before >= 0) & (self.after >= 0)

    def take(self, where: slice | Bools) -> Borders:
        """Some of the borders."""
        return Borders(
            self.before[where],
            self.after[where],
            self.size[where],
            self.variance[where],
        )

    def shifted(self, by: int) -> Borders:
        """The same borders with rewards numbered from ``by`` on."""
        return self._replace(
            before=np.where(self.before < 0, -1, self.before + by),
            after=np.where(self.after < 0, -1, self.after + by),
        )

    def of_rewards(self, numbers: Ints) -> Borders:
        """The borders of some rewards.

        Args:
            numbers: What each reward becomes, or −1 where it is left out, (M,).
        """
        padded = np.append(numbers, -1)  # where −1 points to
        before = padded[self.before]
        after = padded[self.after]
        has_reward = (before >= 0) | (after >= 0)
        return self._replace(before=before, after=after).take(has_reward)

    def is_consistent(self, trip: Ints) -> bool:
        """Whether they lie between neighbours of one trip, in order, and have variances.

        Args:
            trip: The trip of each reward, (M,).
        """
        shape = self.before.shape
        if not shape == self.after.shape == self.size.shape == self.variance.shape:
            return False
        first = min(self.before.min(initial=0), self.after.min(initial=0))
        if first < -1 or self.last.min(initial=0) < 0:
            return False
        if self.last.max(initial=-1) >= len(trip) or (np.diff(self.last) < 0).any():
            return False
        before = self.before[self.is_inner]
        after = self.after[self.is_inner]
        are_neighbours = (after == before + 1).all() and (
            trip[after] == trip[before]
        ).all()
        are_positive = (self.size >= 0.0).all() and (self.variance >= 0.0).all()
        return bool(are_neighbours and are_positive)


class Trips(NamedTuple):
    """Some trips, or all; the module's docstring describes the fields."""

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
        """One trip, or arms of which nothing was observed.

        Args:
            keys: Feature rows, (N, 9).
            of: The reward that each arm belongs to, (N,); by default each arm has its own.
            rewards: What was observed, (M,); by default 0.
            noise: Variance of each reward, (M,); with it, rewards share no noise.
            borders: Where motion crosses; by default nowhere.
        """
        sums = np.arange(len(keys)) if of is None else of
        count = int(sums.max(initial=-1)) + 1
        return cls(
            keys=keys,
            of=sums,
            rewards=np.zeros(count) if rewards is None else rewards,
            trip=np.zeros(count, dtype=np.intp),
            noise=np.zeros(count) if noise is None else noise,
            alone=np.full(count, noise is not None),
            borders=borders or Borders.none(),
        )

    @classmethod
    def joined(cls, trips: Sequence[Trips]) -> Trips:
        """All trips of several logs, one after another."""
        log = Log(trips[0].keys.shape[1])
        for part in trips:
            log.append(part)
        return log.view()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields by name, for a state."""
        arrays = self._asdict()
        borders: Borders = arrays.pop("borders")
        for name, values in borders._asdict().items():
            arrays[f"border_{name}"] = values
        return arrays

    @property
    def number(self) -> int:
        """How many trips there are."""
        return int(self.trip[-1]) + 1 if len(self.trip) else 0

    # --- sums --------------------------------------------------------------------------------

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
        for side, sign in self.borders.sides:
            observed = side >= 0
            np.add.at(total, side[observed], sign * values[observed])
        return total

    def across(self, variances: Floats) -> Floats:
        """The covariance of what borders of these variances add to rewards, (M, M)."""
        signs = np.zeros((len(self.rewards), len(variances)))
        for side, sign in self.borders.sides:
            observed = np.flatnonzero(side >= 0)
            signs[side[observed], observed] += sign
        return np.asarray((signs * variances) @ signs.T)

    # --- some of the trips -------------------------------------------------------------------

    def between(self, first: int, stop: int) -> Trips:
        """Trips ``first`` … ``stop`` − 1."""
        begin, end = np.searchsorted(self.trip, [first, stop])
        rows = slice(begin, end)
        arms = slice(*np.searchsorted(self.of, [begin, end]))
        borders = slice(*np.searchsorted(self.borders.last, [begin, end]))
        return Trips(
            keys=self.keys[arms],
            of=self.of[arms] - begin,
            rewards=self.rewards[rows],
            trip=self.trip[rows] - first,
            noise=self.noise[rows],
            alone=self.alone[rows],
            borders=self.borders.take(borders).shifted(-int(begin)),
        )

    def without(self, rewards: Bools) -> Trips:
        """All but these rewards, (M,)."""
        remaining = ~rewards
        arms = ~rewards[self.of]
        numbers = np.where(remaining, np.cumsum(remaining) - 1, -1)
        return Trips(
            keys=self.keys[arms],
            of=numbers[self.of[arms]],
            rewards=self.rewards[remaining],
            trip=self.trip[remaining],
            noise=self.noise[remaining],
            alone=self.alone[remaining],
            borders=self.borders.of_rewards(numbers),
        )

    def latest(self, most: int) -> Trips:
        """At most so many rewards, of the latest trips: some as they are, many before them as totals.

        Edge by edge, few trips are many rewards. They tell the noise of edges, but hardly what a
        vehicle does on every trip from what one day does: that takes many trips.
        """
        if len(self.rewards) <= most:
            return self
        most_totals = most // _TOTALS
        in_full = self.last(most - most_totals)
        before = self.number - in_full.number
        totals = self.between(max(0, before - most_totals), before).totals()
        return Trips.joined([totals, in_full]) if totals.number else in_full

    def last(self, most: int) -> Trips:
        """The latest complete trips with at most so many rewards; at least one trip."""
        reward = max(0, len(self.trip) - most)
        first = int(self.trip[reward])
        is_incomplete = reward > 0 and self.trip[reward - 1] == first
        if is_incomplete:
            first = min(first + 1, self.number - 1)
        return self.between(first, self.number)

    # --- fewer rewards -----------------------------------------------------------------------

    def in_sections(self, section: Ints) -> Trips:
        """Sums of rewards that follow one another.

        Motion that crosses from one to the next within a section cancels out.

        Args:
            section: The section that each reward is part of, (M,), rising.
        """
        _, first = np.unique(section, return_index=True)
        count = len(first)
        borders = self.borders.of_rewards(section)
        is_within = borders.before == borders.after
        return Trips(
            keys=self.keys,
            of=section[self.of],
            rewards=np.bincount(section, self.rewards, count).astype(np.float64),
            trip=self.trip[first],
            noise=np.bincount(section, self.noise, count).astype(np.float64),
            alone=self.alone[first],
            borders=borders.take(~is_within),
        )

    def totals(self) -> Trips:
        """Each trip as one reward: the sum of those whose noise was not stated, as an outlier's is.

        Trips of several rewards, all with stated noise, are left out.
        """
        has_several = np.bincount(self.trip, minlength=self.number) > 1
        is_stated = self.noise != 0.0
        summed = self.without(is_stated & has_several[self.trip])
        _, trip = np.unique(summed.trip, return_inverse=True)
        return summed._replace(trip=trip).in_sections(trip)

    # --- checks ------------------------------------------------------------------------------

    def is_consistent(self) -> bool:
        """Whether every arm belongs to a reward, every reward to a trip, and noise is a variance."""
        shape = self.rewards.shape
        return bool(
            self.trip.shape == self.noise.shape == self.alone.shape == shape
            and self.of.shape == (len(self.keys),)
            and _counts_up(self.of)
            and _counts_up(self.trip)
            and int(self.of.max(initial=-1)) == len(self.rewards) - 1
            and (self.noise >= 0.0).all()
            and self.borders.is_consistent(self.trip)
        )


def _counts_up(numbers: Ints) -> bool:
    """Whether they are 0, …, 0, 1, …, 1, 2, …"""
    steps = np.diff(numbers, prepend=0)
    return bool(np.isin(steps, (0, 1)).all() and not numbers[:1].any())


class Log:
    """All trips, in buffers that double.

    Args:
        columns: How many columns a key has.
    """

    def __init__(self, columns: int) -> None:
        self._buffers = Trips(
            keys=np.empty((0, columns)),
            of=np.empty(0, np.intp),
            rewards=np.empty(0),
            trip=np.empty(0, np.intp),
            noise=np.empty(0),
            alone=np.empty(0, np.bool_),
        )
        self._arms = 0
        self._rewards = 0
        self._borders = 0

    def view(self) -> Trips:
        """All trips, without a copy."""
        arms = slice(self._arms)
        rewards = slice(self._rewards)
        buffers = self._buffers
        return Trips(
            keys=buffers.keys[arms],
            of=buffers.of[arms],
            rewards=buffers.rewards[rewards],
            trip=buffers.trip[rewards],
            noise=buffers.noise[rewards],
            alone=buffers.alone[rewards],
            borders=buffers.borders.take(slice(self._borders)),
        )

    def copy(self) -> Log:
        """A log that can grow by itself."""
        trips = self.view()
        borders = trips.borders
        other = Log(0)
        other._buffers = Trips(
            keys=trips.keys.copy(),
            of=trips.of.copy(),
            rewards=trips.rewards.copy(),
            trip=trips.trip.copy(),
            noise=trips.noise.copy(),
            alone=trips.alone.copy(),
            borders=Borders(
                before=borders.before.copy(),
                after=borders.after.copy(),
                size=borders.size.copy(),
                variance=borders.variance.copy(),
            ),
        )
        other._arms = self._arms
        other._rewards = self._rewards
        other._borders = self._borders
        return other

    def append(self, trips: Trips) -> None:
        """Add trips behind those of the log."""
        buffers = self._buffers
        arms = _Growth(self._arms, len(trips.of))
        rewards = _Growth(self._rewards, len(trips.rewards))
        borders = _Growth(self._borders, len(trips.borders.size))
        new_borders = trips.borders.shifted(self._rewards)
        trip = trips.trip + self.view().number
        self._buffers = Trips(
            keys=arms.extend(buffers.keys, trips.keys),
            of=arms.extend(buffers.of, trips.of + self._rewards),
            rewards=rewards.extend(buffers.rewards, trips.rewards),
            trip=rewards.extend(buffers.trip, trip),
            noise=rewards.extend(buffers.noise, trips.noise),
            alone=rewards.extend(buffers.alone, trips.alone),
            borders=Borders(
                before=borders.extend(buffers.borders.before, new_borders.before),
                after=borders.extend(buffers.borders.after, new_borders.after),
                size=borders.extend(buffers.borders.size, new_borders.size),
                variance=borders.extend(buffers.borders.variance, new_borders.variance),
            ),
        )
        self._arms = arms.total
        self._rewards = rewards.total
        self._borders = borders.total


class _Growth(NamedTuple):
    """By how many rows a buffer grows."""

    size: int  # rows in use
    added: int

    @property
    def total(self) -> int:
        return self.size + self.added

    def extend(self, buffer: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """A buffer with room for all rows, the new ones filled in."""
        extended = with_room(buffer, self.size, self.total)
        extended[self.size : self.total] = rows
        return extended
