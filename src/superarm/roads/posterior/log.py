"""The log of everything that was observed on roads, which copies share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core.growing_rows import GrowingRows

from .borders import Borders
from .trips import Trips


class Log:
    """All trips, in rows that grow.

    Args:
        columns: How many columns a key has.
    """

    def __init__(self, columns: int) -> None:
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
        other = Log(0)
        other._fields = list(self._fields)
        return other

    def append(self, trips: Trips) -> None:
        """Add trips behind those of the log."""
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
