"""Trips that were observed on roads: sums of arms, trip by trip.

=================  =======================================================================
``N``, ``M``       arms observed, rewards (each of one arm or the sum of several)
``keys``           feature rows, (N, 9), with hours (N, 10); see :class:`~superarm.roads.rows.Column`
``reward_of_arm``  the reward that each arm belongs to, (N,), rising
``rewards``        what was observed, (M,)
``trip``           the trip that each reward belongs to, (M,), rising: they share noise
``noise``          variance that each reward has by itself where it was stated, else 0, (M,)
``unshared``       whether a reward shares no noise with others of its trip, (M,)
``borders``        Q places where what is stored in motion crosses from one reward to the next
``age``            how old each reward counts as, in half-lives, (M,); ``None`` where none has aged
=================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.roads.rows import Column, terms_of, vehicles_of

from .borders import Borders

_TOTALS = 4  # one in so many rewards that scales are fitted to is the total of an earlier trip


class Drivers(NamedTuple):
    """The vehicles of some trips."""

    vehicles: Ints  # their numbers, each once, sorted, (V,)
    of_arm: Ints  # the place of each arm's vehicle among them, (N,)


class _End(NamedTuple):
    """Where a trip begins: its first reward, arm and border, or those behind the last."""

    reward: int
    arm: int
    border: int


class Trips(NamedTuple):
    """Some trips, or all; the module's docstring describes the fields."""

    keys: Floats
    reward_of_arm: Ints
    rewards: Floats
    trip: Ints
    noise: Floats
    unshared: Bools
    borders: Borders = Borders.none()
    age: Floats | None = None

    @classmethod
    def of_one(
        cls,
        keys: Floats,
        reward_of_arm: Ints | None = None,
        rewards: Floats | None = None,
        noise: Floats | None = None,
        borders: Borders | None = None,
    ) -> Trips:
        """One trip, or arms of which nothing was observed.

        Args:
            keys: Feature rows, (N, 9) or (N, 10).
            reward_of_arm: The reward that each arm belongs to, (N,); by default each has its own.
            rewards: What was observed, (M,); by default 0.
            noise: Variance of each reward, (M,); with it, rewards share no noise.
            borders: Where motion crosses; by default nowhere.
        """
        if reward_of_arm is None:
            reward_of_arm = np.arange(len(keys))
        count = int(reward_of_arm.max(initial=-1)) + 1
        return cls(
            keys=keys,
            reward_of_arm=reward_of_arm,
            rewards=np.zeros(count) if rewards is None else rewards,
            trip=np.zeros(count, dtype=np.intp),
            noise=np.zeros(count) if noise is None else noise,
            unshared=np.full(count, noise is not None),
            borders=borders or Borders.none(),
        )

    @classmethod
    def joined(cls, trips: Sequence[Trips]) -> Trips:
        """All trips of several logs, one after another."""
        from .log import Log

        columns = trips[0].keys.shape[1]
        log = Log(columns)
        for part in trips:
            log.append(part)
        return log.view()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields but ages, by the names that they have in a state."""
        borders = self.borders
        return {
            "keys": self.keys,
            "of": self.reward_of_arm,
            "rewards": self.rewards,
            "trip": self.trip,
            "noise": self.noise,
            "alone": self.unshared,
            "border_before": borders.before,
            "border_after": borders.after,
            "border_size": borders.size,
            "border_variance": borders.variance,
        }

    @property
    def number(self) -> int:
        """One more than the last trip's number: how many trips there are, unless numbers have gaps.

        :meth:`without` may leave gaps; :meth:`chosen` and :meth:`totals` number anew.
        """
        if not len(self.trip):
            return 0
        last = int(self.trip[-1])
        return last + 1

    @property
    def terms(self) -> Floats:
        """The terms of each reward, (M, 5)."""
        of_arms = terms_of(self.keys)
        return self.summed(of_arms)

    @property
    def drivers(self) -> Drivers:
        """The vehicles, and which of them drove each arm."""
        vehicle_of_arm = vehicles_of(self.keys)
        vehicles, of_arm = np.unique(vehicle_of_arm, return_inverse=True)
        return Drivers(vehicles, of_arm)

    # --- sums --------------------------------------------------------------------------------

    def summed(self, values: Floats) -> Floats:
        """Σ over the arms of each reward: (N,) or (N, p) become (M,) or (M, p)."""
        rewards = len(self.rewards)
        if len(self.reward_of_arm) == rewards:
            return values
        columns = values.shape[1:]
        total = np.zeros((rewards, *columns))
        np.add.at(total, self.reward_of_arm, values)
        return total

    def summed_of(self, values: Floats, arms: Ints) -> Floats:
        """The same where only some arms count: (a, p) becomes (M, p).

        Args:
            values: Of these arms, (a, p).
            arms: Their numbers, (a,).
        """
        total = np.zeros((len(self.rewards), values.shape[1]))
        np.add.at(total, self.reward_of_arm[arms], values)
        return total

    def crossing(self, values: Floats) -> Floats:
        """What borders add to rewards: + where one ends, − where one begins; (Q,) becomes (M,)."""
        total = np.zeros(len(self.rewards))
        for side in self.borders.sides:
            observed = side.rewards >= 0
            rewards = side.rewards[observed]
            crossing = side.sign * values[observed]
            np.add.at(total, rewards, crossing)
        return total

    def across(self, variances: Floats) -> Floats:
        """The covariance of what borders of these variances add to rewards, (M, M)."""
        signs = np.zeros((len(self.rewards), len(variances)))
        for side in self.borders.sides:
            borders = np.flatnonzero(side.rewards >= 0)
            rewards = side.rewards[borders]
            signs[rewards, borders] += side.sign
        weighted = signs * variances
        return np.asarray(weighted @ signs.T)

    # --- some of the trips -------------------------------------------------------------------

    def driven_by(self, vehicle: int) -> Ints:
        """The trip of each arm that this vehicle drove, rising, with repetitions.

        Args:
            vehicle: Number of the vehicle.
        """
        is_driven = self.keys[:, Column.VEHICLE] == vehicle
        rewards = self.reward_of_arm[is_driven]
        driven: Ints = self.trip[rewards]
        return driven

    def latest_holds_motion(self, vehicle: int | None = None) -> bool | None:
        """Whether the latest trip with several rewards has kinetic energy; ``None`` without one.

        Args:
            vehicle: Number of a vehicle; by default trips of all vehicles count.
        """
        reward_counts = np.bincount(self.trip, minlength=self.number)
        is_relevant = reward_counts > 1
        if vehicle is not None:
            numbers = np.arange(self.number)
            is_relevant &= np.isin(numbers, self.driven_by(vehicle))
        relevant = np.flatnonzero(is_relevant)
        if not len(relevant):
            return None
        latest = int(relevant[-1])
        trips_with_motion = self.trip[self.borders.last]
        return latest in trips_with_motion

    def one(self, number: int) -> Trips:
        """One of the trips; for all of them, :meth:`each` is faster."""
        return self.between(number, number + 1)

    def each(self) -> Iterator[Trips]:
        """All trips, one by one; one without rewards for each number that is missing."""
        numbers = np.arange(self.number + 1)
        ends = self._ends(numbers)
        for number, (first, stop) in enumerate(pairwise(ends)):
            yield self._slice(number, first, stop)

    def between(self, first: int, stop: int) -> Trips:
        """Trips ``first`` … ``stop`` − 1."""
        first_end, stop_end = self._ends(np.array([first, stop]))
        return self._slice(first, first_end, stop_end)

    def _ends(self, numbers: Ints) -> list[_End]:
        """Where trips of these numbers begin, rising."""
        rewards = np.searchsorted(self.trip, numbers)
        arms = np.searchsorted(self.reward_of_arm, rewards)
        borders = np.searchsorted(self.borders.last, rewards)
        columns = (rewards.tolist(), arms.tolist(), borders.tolist())
        return list(map(_End, *columns))

    def _slice(self, first_trip: int, first: _End, stop: _End) -> Trips:
        """What lies between two ends, with trips numbered from ``first_trip`` on."""
        rewards = slice(first.reward, stop.reward)
        arms = slice(first.arm, stop.arm)
        borders = self.borders.take(slice(first.border, stop.border))
        return Trips(
            keys=self.keys[arms],
            reward_of_arm=self.reward_of_arm[arms] - first.reward,
            rewards=self.rewards[rewards],
            trip=self.trip[rewards] - first_trip,
            noise=self.noise[rewards],
            unshared=self.unshared[rewards],
            borders=borders.shifted(-first.reward),
            age=None if self.age is None else self.age[rewards],
        )

    def without(self, rewards: Bools) -> Trips:
        """All but these rewards, (M,).

        Trips keep their numbers. One of which no reward remains leaves a gap, so that ``number`` then
        counts numbers, not trips.
        """
        remaining = ~rewards
        arms = remaining[self.reward_of_arm]
        new_numbers = np.cumsum(remaining) - 1
        numbers = np.where(remaining, new_numbers, -1)
        return Trips(
            keys=self.keys[arms],
            reward_of_arm=numbers[self.reward_of_arm[arms]],
            rewards=self.rewards[remaining],
            trip=self.trip[remaining],
            noise=self.noise[remaining],
            unshared=self.unshared[remaining],
            borders=self.borders.of_rewards(numbers),
            age=None if self.age is None else self.age[remaining],
        )

    def chosen(self, trips: Bools) -> Trips:
        """Some of the trips, numbered anew.

        Args:
            trips: Which of them, (t,).
        """
        remaining = self.without(~trips[self.trip])
        new_numbers = np.cumsum(trips) - 1
        return remaining._replace(trip=new_numbers[remaining.trip])

    def latest(self, most: int) -> Trips:
        """About so many rewards, of the latest trips: some as they are, many before them as totals.

        At most a quarter of ``most`` are totals. The others are those of complete trips, at least of the
        latest: there are more than ``most`` only if it alone has more than three quarters of them.

        Edge by edge, few trips are many rewards. They show the noise of edges, but hardly distinguish
        what a vehicle does on every trip from what one day does: that takes many trips.

        Args:
            most: How many rewards.
        """
        if len(self.rewards) <= most:
            return self
        most_totals = most // _TOTALS
        in_full = self.last(most - most_totals)
        stop = self.number - in_full.number
        first = max(0, stop - most_totals)
        totals = self.between(first, stop).totals()
        if not totals.number:
            return in_full
        return Trips.joined([totals, in_full])

    def last(self, most: int) -> Trips:
        """The latest complete trips with at most so many rewards; at least one trip, if there is one.

        Args:
            most: How many rewards.
        """
        if not len(self.trip):
            return self
        # At least the last reward, whose trip may have more than ``most``.
        first_reward = max(0, len(self.trip) - max(most, 1))
        first = int(self.trip[first_reward])
        last = self.number - 1
        if first_reward > 0:
            trip_before = self.trip[first_reward - 1]
            if trip_before == first:  # it is incomplete
                first = min(first + 1, last)
        return self.between(first, last + 1)

    # --- fewer rewards -----------------------------------------------------------------------

    def in_sections(self, section: Ints) -> Trips:
        """Sums of rewards that follow one another.

        Motion that crosses from one to the next within a section cancels out. The rewards of a section
        must belong to one trip, and either all have a stated noise or none: the sum has the trip of the
        first, its ``unshared`` and its age, and as its noise the sum of what was stated.

        Args:
            section: The section that each reward is part of, (M,): 0, …, 0, 1, …, 1, 2, … without gaps.
        """
        _, first = np.unique(section, return_index=True)
        count = len(first)
        rewards = np.bincount(section, self.rewards, count)
        noise = np.bincount(section, self.noise, count)
        borders = self.borders.of_rewards(section)
        is_within = borders.before == borders.after
        return Trips(
            keys=self.keys,
            reward_of_arm=section[self.reward_of_arm],
            rewards=rewards.astype(np.float64),
            trip=self.trip[first],
            noise=noise.astype(np.float64),
            unshared=self.unshared[first],
            borders=borders.take(~is_within),
            age=None if self.age is None else self.age[first],
        )

    def totals(self) -> Trips:
        """Each trip as one reward: the sum of those whose noise was not stated, as an outlier's is.

        Trips of several rewards, all with stated noise, are left out.
        """
        rewards_of_trip = np.bincount(self.trip, minlength=self.number)
        has_several = rewards_of_trip > 1
        is_stated = self.noise != 0.0
        left_out = is_stated & has_several[self.trip]
        summed = self.without(left_out)
        # Trips are numbered anew, as some may be left out.
        _, trip = np.unique(summed.trip, return_inverse=True)
        renumbered = summed._replace(trip=trip)
        return renumbered.in_sections(trip)

    # --- checks ------------------------------------------------------------------------------

    def is_consistent(self) -> bool:
        """Whether every arm belongs to a reward, every reward to a trip, and noise is a variance."""
        return bool(
            self._has_right_shapes()
            and _counts_up(self.reward_of_arm)
            and _counts_up(self.trip)
            and self._last_reward() == len(self.rewards) - 1
            and (self.noise >= 0.0).all()
            and self.borders.is_consistent(self.trip)
        )

    def _has_right_shapes(self) -> bool:
        of_rewards = (self.trip, self.noise, self.unshared)
        shape = self.rewards.shape
        if any(values.shape != shape for values in of_rewards):
            return False
        return self.reward_of_arm.shape == (len(self.keys),)

    def _last_reward(self) -> int:
        """The number of the last reward that has an arm; −1 if there is none."""
        return int(self.reward_of_arm.max(initial=-1))


def _counts_up(numbers: Ints) -> bool:
    """Whether they are 0, …, 0, 1, …, 1, 2, …"""
    begins_at_zero = not numbers[:1].any()
    steps = np.diff(numbers, prepend=0)
    is_step = np.isin(steps, (0, 1))
    return bool(is_step.all() and begins_at_zero)
