"""Observations: arms, rewards and noise variances, as records and in buffers that grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, State
from superarm.core.errors import StateError
from superarm.core.linalg import shallow_copy, with_room

_FIRST_CAPACITY = 256  # rows


class Observations(NamedTuple):
    """Observed arms with their rewards and noise."""

    arms: NDArray[Any]  # (N, d), or row numbers (N,)
    rewards: Floats  # (N,)
    noise: Floats  # (N,) variances

    def part(self, rows: Any) -> Observations:
        """Some of the observations.

        Args:
            rows: Row numbers, a slice, or a mask (N,).
        """
        return Observations(
            arms=self.arms[rows],
            rewards=self.rewards[rows],
            noise=self.noise[rows],
        )

    def after(self, earlier: Observations | None) -> Observations:
        """The earlier observations followed by these; a copy.

        Args:
            earlier: Earlier observations, if any.
        """
        parts = [self]
        if earlier is not None and len(earlier.rewards):
            parts = [earlier, self]
        return Observations(
            arms=np.concatenate([part.arms for part in parts]),
            rewards=np.concatenate([part.rewards for part in parts]),
            noise=np.concatenate([part.noise for part in parts]),
        )

    @classmethod
    def from_state(cls, state: State, keys: NDArray[Any]) -> Observations:
        """The observations of a saved state, validated.

        Args:
            state: The state.
            keys: Its arms, already validated.
        """
        count = len(keys)
        rewards = state.vector("rewards", count)
        noise = state.vector("noise", count)
        if not (noise > 0.0).all():
            raise StateError("this state is damaged: its observations are impossible")
        return cls(keys, rewards, noise)


class ObservationBuffer:
    """Observed arms, rewards and noise in buffers that double.

    Args:
        columns: Arms, rewards and noise variances to begin with; default: none.
    """

    def __init__(self, *columns: NDArray[Any]) -> None:
        self._buffers = Observations(
            arms=np.empty((0, 0)),
            rewards=np.empty(0),
            noise=np.empty(0),
        )
        self._size = 0
        if columns:
            self.append(*columns)

    def __len__(self) -> int:
        return self._size

    @property
    def columns(self) -> int:
        """Feature columns of the arms; 0 before the first."""
        return int(self._buffers.arms.shape[1]) if self._size else 0

    @property
    def arms(self) -> Floats:
        """Observed arms, (N, d), without a copy: do not write into it."""
        return self._buffers.arms[: self._size]

    def view(self) -> Observations:
        """All observations, without a copy; read-only."""
        size = self._size
        # Before the first observation the buffer may already be wide: then show no columns.
        arms = self._buffers.arms[:size, : self.columns]
        rewards = self._buffers.rewards[:size]
        noise = self._buffers.noise[:size]
        arms.flags.writeable = False
        rewards.flags.writeable = False
        noise.flags.writeable = False
        return Observations(arms, rewards, noise)

    def reserve(self, arms: Floats) -> None:
        """Make room for as many rows as these, so that appending them cannot fail.

        Args:
            arms: The arms to append, (m, d).
        """
        size = self._size
        if not size:
            # The first rows determine the width.
            self._buffers = Observations(
                arms=np.empty((_FIRST_CAPACITY, arms.shape[1])),
                rewards=np.empty(_FIRST_CAPACITY),
                noise=np.empty(_FIRST_CAPACITY),
            )
        new_size = size + len(arms)
        buffers = self._buffers
        if new_size > len(buffers.arms):
            self._buffers = Observations(
                arms=with_room(buffers.arms, size, new_size),
                rewards=with_room(buffers.rewards, size, new_size),
                noise=with_room(buffers.noise, size, new_size),
            )

    def extended(
        self, arms: Floats, rewards: Floats, noise: Floats
    ) -> ObservationBuffer:
        """A copy with more rows, to replace this one: both write into the same buffers.

        Args:
            arms: Feature rows, (m, d).
            rewards: Rewards, (m,).
            noise: Noise variances, (m,).
        """
        other = shallow_copy(self)
        other.append(arms, rewards, noise)
        return other

    def extended_by_one(
        self, arm: Sequence[float], reward: float, noise: float
    ) -> ObservationBuffer:
        """:meth:`extended` by one row, without arrays of one number.

        Args:
            arm: Features, (d,).
            reward: The reward.
            noise: Its noise variance.
        """
        size = self._size
        arms, rewards, variances = self._buffers
        if not size or size >= len(arms):
            new_arms = np.array([arm])
            return self.extended(new_arms, np.array([reward]), np.array([noise]))
        arms[size] = arm
        rewards[size] = reward
        variances[size] = noise
        other = shallow_copy(self)
        other._size = size + 1
        return other

    def append(self, arms: Floats, rewards: Floats, noise: Floats) -> None:
        """Add rows in place.

        Args:
            arms: Feature rows, (m, d).
            rewards: Rewards, (m,).
            noise: Noise variances, (m,).
        """
        self.reserve(arms)
        new_size = self._size + len(rewards)
        new_rows = slice(self._size, new_size)
        self._buffers.arms[new_rows] = arms
        self._buffers.rewards[new_rows] = rewards
        self._buffers.noise[new_rows] = noise
        self._size = new_size
