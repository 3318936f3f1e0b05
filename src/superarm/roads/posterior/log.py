"""The log of everything that was observed on roads, in buffers that grow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core.linalg import with_room

from .borders import Borders
from .trips import Trips


class Log:
    """All trips, in buffers that double.

    Args:
        columns: How many columns a key has.
    """

    def __init__(self, columns: int) -> None:
        self._buffers = Trips(
            keys=np.empty((0, columns)),
            reward_of_arm=np.empty(0, np.intp),
            rewards=np.empty(0),
            trip=np.empty(0, np.intp),
            noise=np.empty(0),
            unshared=np.empty(0, np.bool_),
        )
        self._arms = 0
        self._rewards = 0
        self._borders = 0

    def view(self) -> Trips:
        """All trips, without a copy."""
        arms = slice(self._arms)
        rewards = slice(self._rewards)
        borders = slice(self._borders)
        buffers = self._buffers
        return Trips(
            keys=buffers.keys[arms],
            reward_of_arm=buffers.reward_of_arm[arms],
            rewards=buffers.rewards[rewards],
            trip=buffers.trip[rewards],
            noise=buffers.noise[rewards],
            unshared=buffers.unshared[rewards],
            borders=buffers.borders.take(borders),
        )

    def copy(self) -> Log:
        """A log that can grow by itself."""
        trips = self.view()
        other = Log(0)
        other._buffers = Trips(
            keys=trips.keys.copy(),
            reward_of_arm=trips.reward_of_arm.copy(),
            rewards=trips.rewards.copy(),
            trip=trips.trip.copy(),
            noise=trips.noise.copy(),
            unshared=trips.unshared.copy(),
            borders=trips.borders.copy(),
        )
        other._arms = self._arms
        other._rewards = self._rewards
        other._borders = self._borders
        return other

    def append(self, trips: Trips) -> None:
        """Add trips behind those of the log."""
        buffers = self._buffers
        arms = _Growth(self._arms, len(trips.keys))
        rewards = _Growth(self._rewards, len(trips.rewards))
        borders = _Growth(self._borders, len(trips.borders.size))
        # Rewards and trips are numbered on from those of the log.
        trips_before = self.view().number
        rewards_before = self._rewards
        trip = trips.trip + trips_before
        reward_of_arm = trips.reward_of_arm + rewards_before
        new_borders = trips.borders.shifted(rewards_before)
        self._buffers = Trips(
            keys=arms.extend(buffers.keys, trips.keys),
            reward_of_arm=arms.extend(buffers.reward_of_arm, reward_of_arm),
            rewards=rewards.extend(buffers.rewards, trips.rewards),
            trip=rewards.extend(buffers.trip, trip),
            noise=rewards.extend(buffers.noise, trips.noise),
            unshared=rewards.extend(buffers.unshared, trips.unshared),
            borders=_extend_borders(borders, buffers.borders, new_borders),
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
        size = self.size
        total = self.total
        extended = with_room(buffer, size, total)
        extended[size:total] = rows
        return extended


def _extend_borders(growth: _Growth, buffers: Borders, new: Borders) -> Borders:
    return Borders(
        before=growth.extend(buffers.before, new.before),
        after=growth.extend(buffers.after, new.after),
        size=growth.extend(buffers.size, new.size),
        variance=growth.extend(buffers.variance, new.variance),
    )
