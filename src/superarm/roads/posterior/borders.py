"""Borders, where what is stored in motion crosses from one reward to the next.

A battery pays for motion on one stretch of road and gets it back on another. With s_q the Wh that are
stored in motion at border q, a reward holds + s_q of the border where it ends and − s_q of the one
where it begins. Rewards come here less the mean of s_q; the remainder, of variance v_q, is noise that
one reward pays and its neighbour gets. So R, the noise of a trip's rewards, gains v_q at (i, i) and
(i + 1, i + 1), and − v_q at (i, i + 1), for a border between rewards i and i + 1: it becomes
tridiagonal, and the sum of a trip's rewards has nothing of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints


class BorderSide(NamedTuple):
    """The rewards on one side of all borders."""

    rewards: Ints  # −1 where none was observed, (Q,)
    sign: float  # with which what crosses counts there


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
    def sides(self) -> tuple[BorderSide, BorderSide]:
        """Both sides: rewards that end at the borders, and rewards that begin there."""
        ending = BorderSide(self.before, 1.0)
        beginning = BorderSide(self.after, -1.0)
        return ending, beginning

    @property
    def is_inner(self) -> Bools:
        """Whether rewards were observed on both sides, (Q,)."""
        has_before = self.before >= 0
        has_after = self.after >= 0
        return has_before & has_after

    # --- other borders -----------------------------------------------------------------------

    def take(self, where: slice | Bools) -> Borders:
        """Some of the borders."""
        return Borders(
            self.before[where],
            self.after[where],
            self.size[where],
            self.variance[where],
        )

    def copy(self) -> Borders:
        """The same borders in arrays of their own."""
        return Borders(
            before=self.before.copy(),
            after=self.after.copy(),
            size=self.size.copy(),
            variance=self.variance.copy(),
        )

    def shifted(self, by: int) -> Borders:
        """The same borders with rewards numbered from ``by`` on."""
        return self._replace(
            before=_shift(self.before, by),
            after=_shift(self.after, by),
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
        renumbered = self._replace(before=before, after=after)
        return renumbered.take(has_reward)

    # --- checks ------------------------------------------------------------------------------

    def is_consistent(self, trip: Ints) -> bool:
        """Whether they lie between neighbours of one trip, in order, and have variances.

        Args:
            trip: The trip of each reward, (M,).
        """
        return (
            self._has_one_length()
            and self._has_rewards(len(trip))
            and self._joins_neighbours(trip)
            and self._has_sizes()
        )

    def _has_one_length(self) -> bool:
        shapes = {values.shape for values in self}
        return len(shapes) == 1

    def _has_rewards(self, count: int) -> bool:
        """Whether each border has one of ``count`` rewards, or two, in the order of the road."""
        lowest_before = self.before.min(initial=0)
        lowest_after = self.after.min(initial=0)
        if min(lowest_before, lowest_after) < -1:
            return False
        last = self.last
        is_known = last.min(initial=0) >= 0
        is_below_count = last.max(initial=-1) < count
        steps = np.diff(last)
        is_rising = (steps >= 0).all()
        return bool(is_known and is_below_count and is_rising)

    def _joins_neighbours(self, trip: Ints) -> bool:
        is_inner = self.is_inner
        before = self.before[is_inner]
        after = self.after[is_inner]
        are_neighbours = after == before + 1
        share_trip = trip[after] == trip[before]
        return bool((are_neighbours & share_trip).all())

    def _has_sizes(self) -> bool:
        has_size = self.size >= 0.0
        has_variance = self.variance >= 0.0
        return bool((has_size & has_variance).all())


def _shift(rewards: Ints, by: int) -> Ints:
    """Numbers of rewards from ``by`` on; −1 stays −1."""
    is_missing = rewards < 0
    return np.where(is_missing, -1, rewards + by)
