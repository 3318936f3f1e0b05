"""The log of everything that was observed on roads, which copies share.

Roads change. With a half-life h, what a trip taught counts less with every later trip: the covariance of
its noise is multiplied by 2^age, where ``age`` is the number of later trips over h. So its information
falls to half, a quarter, …, and a road's mean follows its latest drives.

Ages are those of the last time that everything was computed anew; trips since then have age 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats
from superarm.core.growing_rows import GrowingRows

from .borders import Borders
from .trips import Trips


class Log:
    """All trips, in rows that grow.

    Args:
        columns: How many columns a key has.
        half_life: Later trips after which a trip counts half; ``None``: trips do not age.
    """

    def __init__(self, columns: int, half_life: float | None = None) -> None:
        self.half_life = half_life
        # How many trips there were when ages were counted last.
        self._trips_when_dated = 0
        none = Trips(
            keys=np.empty((0, columns)),
            reward_of_arm=np.empty(0, np.intp),
            rewards=np.empty(0),
            trip=np.empty(0, np.intp),
            noise=np.empty(0),
            unshared=np.empty(0, np.bool_),
        )
        self._fields = [GrowingRows(rows) for rows in _fields_of(none)]

    def view(self) -> Trips:
        """All trips, without a copy."""
        keys, reward_of_arm, rewards, trip, noise, unshared, *borders = [
            field.rows for field in self._fields
        ]
        return Trips(
            keys=keys,
            reward_of_arm=reward_of_arm,
            rewards=rewards,
            trip=trip,
            noise=noise,
            unshared=unshared,
            borders=Borders(*borders),
        )

    def copy(self) -> Log:
        """A log that can grow by itself; both share the trips that they have in common."""
        other = Log(0, self.half_life)
        other._trips_when_dated = self._trips_when_dated
        other._fields = list(self._fields)
        return other

    # --- ages --------------------------------------------------------------------------------

    def dated(self, trips: int | None = None) -> Log:
        """This log with ages counted anew.

        Args:
            trips: How many trips there are by then; by default those of the log.
        """
        other = self.copy()
        other._trips_when_dated = self.view().number if trips is None else trips
        return other

    def as_learned(self) -> Trips:
        """All trips, with their ages."""
        trips = self.view()
        if self.half_life is None:
            return trips
        return trips._replace(age=self._ages(trips, self.half_life))

    def _ages(self, trips: Trips, half_life: float) -> Floats:
        """The age of each reward in half-lives, (M,)."""
        newest = self._trips_when_dated - 1
        later_trips = np.maximum(newest - trips.trip, 0)
        return later_trips / half_life

    # --- growth ------------------------------------------------------------------------------

    def append(self, trips: Trips) -> None:
        """Add trips behind those of the log.

        Args:
            trips: The trips, numbered from 0.
        """
        known = self.view()
        # Rewards and trips are numbered on from those of the log.
        rewards_before = len(known.rewards)
        renumbered = trips._replace(
            reward_of_arm=trips.reward_of_arm + rewards_before,
            trip=trips.trip + known.number,
            borders=trips.borders.shifted(rewards_before),
        )
        self._fields = [
            field.extended(rows)
            for field, rows in zip(self._fields, _fields_of(renumbered), strict=True)
        ]


def _fields_of(trips: Trips) -> list[NDArray[Any]]:
    """All arrays of trips, those of their borders last."""
    return [
        trips.keys,
        trips.reward_of_arm,
        trips.rewards,
        trips.trip,
        trips.noise,
        trips.unshared,
        *trips.borders,
    ]
