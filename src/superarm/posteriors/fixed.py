"""What posteriors share that call arms by their row numbers in a fixed set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Ints
from superarm.errors import InputError, ShapeError, StateError, UnknownArmError
from superarm.inputs import SMALLEST, as_vector, refuse_masked, require_size
from superarm.registry import has_spec


def as_rows(arms: Any, n: int) -> Ints:
    """``arms`` as row numbers below ``n``, or an error that says what is wrong."""
    refuse_masked(arms, "arms")
    try:
        rows = np.asarray(arms)
    except ValueError:
        raise ShapeError("arms must be a list of row numbers, not lists of different lengths") from None
    if rows.ndim != 1:
        raise ShapeError(f"arms has shape {rows.shape}; it must be a list of row numbers")
    if len(rows) == 0:
        return rows.astype(np.intp)
    if rows.dtype.kind not in "iu":
        raise UnknownArmError(f"arms must be integer row numbers below {n}, not {rows.dtype} values")
    if rows.min() < 0 or rows.max() >= n:
        bad = rows[(rows < 0) | (rows >= n)][0]
        raise UnknownArmError(f"there is no arm {bad}: row numbers run from 0 to {n - 1}")
    return rows.astype(np.intp, copy=False)


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
        self._last: KnownOffer | None = None  # most problems offer the same object every round

    def locate(self, arms: Arms) -> KnownOffer:
        """Row numbers of the offered arms."""
        known = self._last  # read once: another thread may be asking about other arms
        if known is None or known.arms is not arms:
            whole = np.array_equal(arms.features, self.features)
            keys = self.everything if whole else self._find(arms)
            keys.flags.writeable = False  # kept for later rounds
            known = self._last = KnownOffer(arms, keys, whole)
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
        found = [self._rows.get(features.tobytes(), -1) for features in arms.features + 0.0]
        if -1 in found:
            unknown = arms.ids[found.index(-1)]
            raise UnknownArmError(
                f"arm {unknown!r} is not in the fixed arm set of {n} arms this posterior was made for: "
                "none of them has its features"
            )
        return np.array(found, dtype=np.intp)


def as_weights(values: Any, n: int) -> Floats:
    """Σ 1/noise of every arm from a state: 0, or as large as noise lets it be."""
    weight = as_vector(values, "weight", n)
    bad = (weight != 0.0) & (weight < SMALLEST)
    if bad.any():
        raise StateError(
            f"this state is damaged: it holds the weight {weight[bad][0]:g}, which no noise gives"
        )
    return weight


def prior_mean_at(mean: Any, features: Floats | None, n: int) -> Floats:
    """One number for all fixed arms, one for each, or a function of their features, as a vector."""
    if callable(mean):
        if features is None:
            raise InputError("a mean that is a function needs the features of the arms: arms=…")
        mean = mean(features)
    return per_arm(mean, "mean", n)


def mean_parameter(given: Any, values: Floats) -> Any:
    """The prior mean as a parameter: a part that has a spec, one number, or one for each arm."""
    if has_spec(given):
        return given
    return float(values[0]) if (values == values[0]).all() else values


def per_arm(values: Any, name: str, n: int) -> Floats:
    """One number for all arms, or one for each, as a new vector."""
    spread = np.broadcast_to(values, n, subok=True) if np.ndim(values) == 0 else values
    vector = as_vector(spread, name, n).copy()
    require_size(vector, name)
    return vector
