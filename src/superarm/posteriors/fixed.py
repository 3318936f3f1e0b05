"""The base class of posteriors over a fixed arm set, whose keys are row numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Ints, Offer, Rng, State
from superarm.core.errors import InputError, StateError, UnknownArmError
from superarm.core.inputs import (
    SMALLEST,
    as_levels,
    as_positions,
    require_size,
    require_type,
)
from superarm.core.registry import has_spec

from .base import GaussianPosterior, Memory

# Places in the totals of a fixed posterior, after two numbers for each arm.
INFORMATION = -2
COUNT = -1

Totals = Floats | list[float]


class FixedPosterior(GaussianPosterior):
    """A posterior over arms 0 … n−1 that stores only Σ 1/noise and Σ reward/noise of each.

    Observations of one arm merge into one of their weighted mean. This is exact, and nothing grows
    with the number of rounds. Offers name their arms by row number, or by their ``features``.

    All sums lie in ``_totals`` (2n + 2): Σ 1/noise of every arm, Σ reward/noise of every arm, the
    information gain and the count. As an array, one compiled call can change them all; as a list,
    Python changes single numbers five times faster.

    Args:
        n: The number of arms.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number, one per arm, or a function of the features.
        features: The features of the arms, (n, d), if they have some.
    """

    _totals: Totals

    def __init__(
        self, n: int, noise_variance: float, mean: Any, features: Floats | None
    ) -> None:
        self._totals = np.zeros(2 * n + 2)
        # Observations in the state that it was restored from: an integer of any size.
        self._restored_count = 0
        super().__init__(noise_variance=noise_variance)
        self._fixed = None if features is None else FixedArms(features)
        if callable(mean) and features is None:
            raise InputError(
                "a mean that is a function needs the features of the arms: arms=…"
            )
        values = mean(features) if callable(mean) else mean
        self.prior_mean = as_levels(values, "mean", n)
        require_size(self.prior_mean, "mean")
        first_mean = self.prior_mean[0].item()
        is_constant = (self.prior_mean == first_mean).all()
        self.mean: Any = first_mean if is_constant else self.prior_mean
        """The prior mean as a parameter: a part that has a spec, one number, or one for each arm."""
        if has_spec(mean):
            self.mean = mean

    @property
    def _weight(self) -> Floats:
        """Σ 1/noise of every arm's observations, (n,); do not write into it."""
        n = len(self._totals) // 2 - 1
        return np.asarray(self._totals[:n])

    @property
    def _weighted_rewards(self) -> Floats:
        """Σ reward/noise of every arm's observations, (n,); do not write into it."""
        n = len(self._totals) // 2 - 1
        return np.asarray(self._totals[n:INFORMATION])

    @property
    def count(self) -> int:
        """Observations so far."""
        return self._restored_count + int(self._totals[COUNT])

    @count.setter
    def count(self, value: int) -> None:
        self._restored_count = value
        self._totals[COUNT] = 0.0

    @property
    def information_gain(self) -> float:
        """Realised information gain, nats."""
        return float(self._totals[INFORMATION])

    @information_gain.setter
    def information_gain(self, value: float) -> None:
        self._totals[INFORMATION] = value

    @property
    def version(self) -> int:
        """Rises with every observation; those restored from a state do not count."""
        return int(self._totals[COUNT])

    @version.setter
    def version(self, value: int) -> None:
        """Do nothing: the totals count the observations."""

    @property
    def visited(self) -> Ints:
        """Row numbers of the arms observed so far."""
        return np.flatnonzero(self._weight)

    def keys(self, offer: Offer) -> Ints:
        require_type(offer, Offer, "offer")
        if self._fixed is not None:
            return self._fixed.locate(offer.arms).keys
        return self._as_keys(np.asarray(offer.arms.ids))

    def _as_keys(self, arms: Any) -> Ints:
        return as_rows(arms, len(self.prior_mean))

    def _added_totals(self, keys: Ints, rewards: Floats, noise: Floats) -> Floats:
        """What these observations add to the totals, with an information gain of 0."""
        n = len(self.prior_mean)
        weight = np.bincount(keys, 1.0 / noise, n)
        weighted_rewards = np.bincount(keys, rewards / noise, n)
        added = np.zeros(2 * n + 2)
        added[:n] = weight
        added[n:INFORMATION] = weighted_rewards
        added[COUNT] = len(keys)
        return added

    def _take_in(
        self, keys: Ints, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        # Only this: the totals that it changes include the count and the information gain.
        self._absorb(keys, rewards, noise, rng)

    def _incumbent(self, sign: float) -> float:
        means, _ = self._moments(self.visited)
        if sign > 0.0:
            return float(means.max())
        return float(-means.min())

    def _memory(self) -> Memory:
        arrays = {"weight": self._weight, "weighted_rewards": self._weighted_rewards}
        return Memory(arrays)

    def _remember(self, state: State) -> None:
        n = len(self.prior_mean)
        weight = state.vector("weight", n)
        impossible = (weight != 0.0) & (weight < SMALLEST)
        if impossible.any():
            raise StateError(
                f"this state is damaged: it holds the weight {weight[impossible][0]:g}, "
                "which no noise gives"
            )
        weighted_rewards = state.vector("weighted_rewards", n)
        self._totals[:n] = weight.tolist()
        self._totals[n:INFORMATION] = weighted_rewards.tolist()


def as_rows(arms: Any, n: int) -> Ints:
    """Validate arms as row numbers below ``n``.

    Args:
        arms: Whole numbers, (m,).
        n: The number of arms.
    """
    rows = as_positions(arms, "arms")
    if not len(rows):
        return rows
    # Read as unsigned integers, negative numbers are large: one pass finds both errors.
    unsigned = rows.view(np.uintp)
    largest = unsigned.item(
        unsigned.argmax()
    )  # numpy's ``max`` takes several times as long
    if largest >= n:
        unknown = rows[(rows < 0) | (rows >= n)][0]
        raise UnknownArmError(
            f"there is no arm {unknown}: row numbers run from 0 to {n - 1}"
        )
    return rows


class LocatedArms(NamedTuple):
    """An offer's arms, located in a fixed set."""

    arms: Arms
    keys: Ints  # row numbers, (m,)
    is_complete: bool  # whether these are all arms, in the order of the set


class FixedArms:
    """A fixed arm set that recognises its arms in offers, whatever ids they have.

    The complete set in its own order is recognised first, then ids that are row numbers with the
    right features. Otherwise arms are looked up by their features, the first of equals.

    Args:
        features: The features of the arms, (n, d).
    """

    def __init__(self, features: Floats) -> None:
        self.features = features
        self.all_rows: Ints = np.arange(len(features))
        """All row numbers, (n,)."""
        self.complete_arms: Arms | None = None
        """The arms of the last offer, if they are the complete set in its own order."""
        # The last offer's arms: most problems offer the same object every round.
        self.last: LocatedArms | None = None
        self._rows_by_features: dict[bytes, int] | None = None  # built on first use

    def locate(self, arms: Arms) -> LocatedArms:
        """The row numbers of the offered arms.

        Args:
            arms: Arms of this set.
        """
        located = self.last  # read once: another thread may replace it
        if located is None or located.arms is not arms:
            is_complete = np.array_equal(arms.features, self.features)
            keys = self.all_rows if is_complete else self._find(arms)
            keys.flags.writeable = False  # reused in later rounds
            located = LocatedArms(arms, keys, is_complete)
            self.last = located
            self.complete_arms = arms if is_complete else None
        return located

    def _find(self, arms: Arms) -> Ints:
        """Row numbers of the arms by their ids or else by their features, (m,)."""
        n = len(self.features)
        if all(type(arm) is int and 0 <= arm < n for arm in arms.ids):
            row_numbers = np.array(arms.ids, dtype=np.intp)
            features_of_ids = self.features[row_numbers]
            if np.array_equal(features_of_ids, arms.features):
                return row_numbers
        if self._rows_by_features is None:
            self._rows_by_features = self._index_features()
        rows = np.empty(len(arms.ids), dtype=np.intp)
        for position, features in enumerate(_without_negative_zero(arms.features)):
            row = self._rows_by_features.get(features.tobytes())
            if row is None:
                raise UnknownArmError(
                    f"arm {arms.ids[position]!r} is not in the fixed arm set of {n} arms that "
                    "this posterior covers: none of them has its features"
                )
            rows[position] = row
        return rows

    def _index_features(self) -> dict[bytes, int]:
        """The row number of each arm by its features, the first of equals."""
        rows: dict[bytes, int] = {}
        for row, features in enumerate(_without_negative_zero(self.features)):
            rows.setdefault(features.tobytes(), row)
        return rows


def _without_negative_zero(features: Floats) -> Floats:
    """A copy with 0.0 in place of −0.0, so that equal features have equal bytes."""
    return features + 0.0
