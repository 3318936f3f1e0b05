"""What posteriors share that call arms by their row numbers in a fixed set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Ints, Offer, Rng, State
from superarm.core.errors import InputError, StateError, UnknownArmError
from superarm.core.inputs import (
    SMALLEST,
    as_levels,
    as_positions,
    as_vector,
    require_size,
    require_type,
)
from superarm.core.registry import has_spec

from .base import GaussianPosterior, Memory

INFORMATION, COUNT = -2, -1
"""Places in the totals of a fixed posterior, behind two numbers for each arm."""

Totals = Floats | list[float]


class FixedPosterior(GaussianPosterior):
    """A posterior over arms 0 … n−1, of which it keeps Σ 1/noise and Σ reward/noise.

    Observations of one arm merge into one of their weighted mean: exact, and nothing grows with
    the number of rounds. Offers name their arms by row number, or by their ``features``.

    All sums lie in ``_totals`` (2n + 2): Σ 1/noise of every arm, Σ reward/noise of every arm, then what
    the constants above name. As an array, one compiled call can change them all; as a list, Python
    changes single numbers five times faster.
    """

    _totals: Totals

    def __init__(
        self, n: int, noise_variance: float, mean: Any, features: Floats | None
    ) -> None:
        self._totals = np.zeros(2 * n + 2)
        self._restored_count = (
            0  # observations in the state it was restored from, a number of any size
        )
        super().__init__(noise_variance=noise_variance)
        self._fixed = None if features is None else FixedArms(features)
        if callable(mean) and features is None:
            raise InputError(
                "a mean that is a function needs the features of the arms: arms=…"
            )
        values = mean(features) if callable(mean) else mean
        self.prior_mean = as_levels(values, "mean", n)
        require_size(self.prior_mean, "mean")
        level = self.prior_mean[0].item()
        short = level if (self.prior_mean == level).all() else self.prior_mean
        self.mean: Any = mean if has_spec(mean) else short
        """The prior mean as a parameter: a part that has a spec, one number, or one for each arm."""

    @property
    def _weight(self) -> Floats:
        """Σ 1/noise of every arm's observations, (n,), to be read."""
        return np.asarray(self._totals[: len(self._totals) // 2 - 1])

    @property
    def _weighted_rewards(self) -> Floats:
        """Σ reward/noise of every arm's observations, (n,), to be read."""
        return np.asarray(self._totals[len(self._totals) // 2 - 1 : INFORMATION])

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
        """It rises with every change, that is with every observation; restored ones are no change."""
        return int(self._totals[COUNT])

    @version.setter
    def version(self, value: int) -> None:
        """The totals count."""

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

    def _merged(self, keys: Ints, rewards: Floats, noise: Floats) -> Floats:
        """What these observations add to the totals, but for the information gained."""
        n = len(self.prior_mean)
        added = np.zeros(2 * n + 2)
        added[:n] = np.bincount(keys, 1.0 / noise, n)
        added[n:INFORMATION] = np.bincount(keys, rewards / noise, n)
        added[COUNT] = len(keys)
        return added

    def _take_in(
        self, keys: Ints, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        self._absorb(
            keys, rewards, noise, rng
        )  # which adds to the totals, and these count

    def _incumbent(self, sign: float) -> float:
        means, _ = self._moments(self.visited)
        return float(means.max() if sign > 0.0 else -means.min())

    def _memory(self) -> Memory:
        return Memory(
            {"weight": self._weight, "weighted_rewards": self._weighted_rewards}
        )

    def _remember(self, state: State) -> None:
        n = len(self.prior_mean)
        weight = as_vector(state.array("weight"), "weight", n)
        bad = (weight != 0.0) & (weight < SMALLEST)
        if bad.any():
            told = f"it holds the weight {weight[bad][0]:g}, which no noise gives"
            raise StateError(f"this state is damaged: {told}")
        weighted_rewards = as_vector(
            state.array("weighted_rewards"), "weighted_rewards", n
        )
        self._totals[:n] = weight.tolist()
        self._totals[n:INFORMATION] = weighted_rewards.tolist()


def as_rows(arms: Any, n: int) -> Ints:
    """``arms`` as row numbers below ``n``, or an error that says what is wrong."""
    rows = as_positions(arms, "arms")
    if (
        len(rows) and rows.view(np.uintp).max() >= n
    ):  # read so, what is below 0 is large: one pass
        bad = rows[(rows < 0) | (rows >= n)][0]
        raise UnknownArmError(
            f"there is no arm {bad}: row numbers run from 0 to {n - 1}"
        )
    return rows


class KnownOffer(NamedTuple):
    """An offer's arms, found among fixed ones."""

    arms: Arms
    keys: Ints
    whole: bool  # every arm, in the order of the set


class FixedArms:
    """A fixed arm set, recognised in offers whatever ids the user gives its arms.

    The whole set in its own order is taken as it is. Otherwise ids that are row numbers with the
    right features are; otherwise arms are found by their features, the first of equals.
    """

    def __init__(self, features: Floats) -> None:
        self.features = features
        self.everything: Ints = np.arange(len(features))
        self._rows: dict[bytes, int] | None = None
        self.whole: Arms | None = (
            None  # an offer's arms that are the whole set in its own order
        )
        self.last: KnownOffer | None = (
            None  # most problems offer the same object every round
        )

    def locate(self, arms: Arms) -> KnownOffer:
        """Row numbers of the offered arms."""
        known = self.last  # read once: another thread may be asking about other arms
        if known is None or known.arms is not arms:
            whole = np.array_equal(arms.features, self.features)
            keys = self.everything if whole else self._find(arms)
            keys.flags.writeable = False  # kept for later rounds
            known = self.last = KnownOffer(arms, keys, whole)
            self.whole = arms if whole else None
        return known

    def _find(self, arms: Arms) -> Ints:
        n = len(self.features)
        if all(type(arm) is int and 0 <= arm < n for arm in arms.ids):
            numbered = np.array(arms.ids, dtype=np.intp)
            if np.array_equal(self.features[numbered], arms.features):
                return numbered
        if self._rows is None:
            rows: dict[bytes, int] = {}
            for row, features in enumerate(self.features + 0.0):  # −0.0 becomes 0.0
                rows.setdefault(features.tobytes(), row)
            self._rows = rows  # whole: another thread may be looking
        found = [
            self._rows.get(features.tobytes(), -1) for features in arms.features + 0.0
        ]
        if -1 in found:
            unknown = arms.ids[found.index(-1)]
            told = f"arm {unknown!r} is not in the fixed arm set of {n} arms that this posterior knows"
            raise UnknownArmError(f"{told}: none of them has its features")
        return np.array(found, dtype=np.intp)
