"""Whether forecasts held of late, and how wide intervals must be so that they do.

A score is |reward − mean| / standard deviation. The width of an interval is a quantile of the latest
scores (conformal prediction), among which ``_SUPPOSED`` of a normal, ``_WIDER`` than the model's, count
from the start. Trips are not exchangeable: roads become known, traffic changes. So the level at
which the quantile is taken is corrected after every trip, by ``_STEP`` of how far the share of misses
was off (Gibbs and Candès, Adaptive Conformal Inference Under Distribution Shift, 2021): over T trips
that share differs from the one promised by at most (1 + 1/step)/T, as long as no score is beyond the
widest interval there is (at ``_HIGHEST``) or within the narrowest: the level then stays between −step
and 1 + step by itself. Where scores are, it is kept there: what no level could have changed is not made
up for long afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import LEVELS, Floats, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_features, as_vector

_SUPPOSED = 20.0  # how many scores the normal counts for
_NORMAL = 200  # scores that stand for those of a normal
_WIDER = 1.2  # this and the step were chosen on Monaco, Luxembourg and a generated city
_STEP = 0.05
_RECENT = 100  # trips by which forecasts are judged
_HIGHEST = 0.9995


class TrackRecord(NamedTuple):
    """How often the 95 % interval held of the latest trips."""

    trips: int
    inside: float  # share of them

    @property
    def holds(self) -> bool:
        """Whether the share is at most three standard errors below 95 %."""
        level = LEVELS[-1]
        return self.inside >= level - 3.0 * float(
            np.sqrt(level * (1.0 - level) / max(self.trips, 1))
        )


class IntervalCalibration:
    """Of one kind of forecast: of trips, or of single roads."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._scores = np.empty(0)
        self._levels = np.array(LEVELS)
        self._inside = np.empty((0, len(LEVELS)))  # shares, trip by trip

    def widths(self) -> Floats:
        """Half-widths of the central intervals of ``LEVELS``, in standard deviations, (3,)."""
        from scipy.special import ndtri

        grid = (np.arange(_NORMAL) + 0.5) / _NORMAL
        supposed = np.asarray(
            _WIDER * ndtri(0.5 + 0.5 * grid)
        )  # quantiles of |N(0, _WIDER²)|
        scores = np.concatenate([self._scores, supposed])
        weights = np.concatenate(
            [np.ones(len(self._scores)), np.full(_NORMAL, _SUPPOSED / _NORMAL)]
        )
        order = np.argsort(scores)
        below = np.cumsum(weights[order]) / (
            weights.sum() + 1.0
        )  # the score to come is one of them
        at = np.searchsorted(below, np.clip(self._levels, 0.0, _HIGHEST))
        widths: Floats = scores[order][np.minimum(at, len(order) - 1)]
        return widths

    def judge(self, scores: Floats) -> None:
        """Take note of a trip's scores, of which there is one or more."""
        inside = (scores[:, None] <= self.widths()).mean(axis=0)
        moved = self._levels + _STEP * (np.array(LEVELS) - inside)
        self._levels = np.clip(moved, -_STEP, 1.0 + _STEP)
        self._inside = np.vstack([self._inside, inside])[-_RECENT:]
        self._scores = np.concatenate([self._scores, scores])[-self._kept :]

    @property
    def held(self) -> TrackRecord:
        """Of the latest trips."""
        trips = len(self._inside)
        return TrackRecord(trips, float(self._inside[:, -1].mean()) if trips else 1.0)

    def arrays(self, name: str) -> dict[str, Floats]:
        held = {"scores": self._scores, "levels": self._levels, "inside": self._inside}
        return {f"{name}_{key}": value for key, value in held.items()}

    def remember(self, state: State, name: str) -> None:
        """Take in what :meth:`arrays` gave."""
        scores = as_vector(state.array(f"{name}_scores"), "scores")
        levels = as_vector(state.array(f"{name}_levels"), "levels", len(LEVELS))
        inside = as_features(state.array(f"{name}_inside"), "inside", len(LEVELS))
        shares = inside.min(initial=0.0) >= 0.0 and inside.max(initial=0.0) <= 1.0
        sizes = (
            min(len(inside), self._kept) <= len(scores) <= self._kept
            and len(inside) <= _RECENT
        )
        if not sizes or not shares or scores.min(initial=0.0) < 0.0:
            raise StateError(
                "this state is damaged: its record of forecasts is impossible"
            )
        self._scores, self._levels, self._inside = (
            scores.copy(),
            levels.copy(),
            inside.copy(),
        )
