"""Coverage of recent forecasts, and interval widths that keep it at its nominal level.

A score is |reward − mean| / standard deviation. An interval's half-width is a quantile of the latest
scores (conformal prediction). ``_PRIOR_SCORES`` scores of a normal, ``_WIDER`` than the model's, count
from the start.

Trips are not exchangeable: the model learns roads, and traffic changes. So after every trip, the level
of the quantile moves by ``_STEP`` times the error of the miss rate [Gibbs and Candès, Adaptive
Conformal Inference Under Distribution Shift, 2021]. Over T trips the miss rate then differs from the
nominal one by at most (1 + 1/step)/T, if no score lies beyond the widest interval (at ``_HIGHEST``) or
within the narrowest. Under that condition the level stays between −step and 1 + step. Otherwise it is
clipped to that range, so that scores no level could cover do not distort intervals for long.

Where the hour matters, noise does, too: the model has one noise for all hours, but a jam lasts longer on
one day than on the next. So scores count by how near their hour is to that of the forecast, with a
normal of ``_HOURS_NEAR`` as weight [Tibshirani, Barber, Candès and Ramdas, Conformal Prediction Under
Covariate Shift, 2019].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import AT_95, LEVELS, Floats, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_features, as_vector

_PRIOR_SCORES = 20.0  # how many scores the normal counts for
_LEAST_PRIOR_SCORES = 4.0  # at an hour near which there are few scores
_NORMAL = 200  # quantiles that stand for the normal
_WIDER = 1.2  # this and the step were chosen on Monaco, Luxembourg and a generated city
_STEP = 0.05
_RECENT = 100  # trips by which forecasts are judged
_HIGHEST = 0.9995
_HOURS_NEAR = 1.5  # standard deviation of the weights of scores by their hour
_DAY = 24.0  # hours


class TrackRecord(NamedTuple):
    """How often the 95 % interval of the latest trips contained their energy."""

    trips: int
    inside: float  # share of them

    @property
    def holds(self) -> bool:
        """Whether the share is at most three standard errors below 95 %."""
        level = LEVELS[AT_95]
        trips = max(self.trips, 1)
        variance = level * (1.0 - level) / trips
        standard_error = float(np.sqrt(variance))
        least = level - 3.0 * standard_error
        return self.inside >= least


class IntervalCalibration:
    """Interval widths of one kind of forecast: of trips, or of single roads.

    Args:
        most_scores: How many of the latest scores are remembered.
    """

    def __init__(self, most_scores: int) -> None:
        self._most_scores = most_scores
        self._scores = np.empty(0)
        self._hours = np.empty(0)  # of the scores; NaN where it does not matter
        self._levels = np.array(LEVELS)
        self._inside = np.empty((0, len(LEVELS)))  # shares, (trips, levels)

    def widths(self, hour: float | None = None) -> Floats:
        """Half-widths of the central intervals of ``LEVELS``, in standard deviations, (levels,).

        Args:
            hour: The hour of what is forecast; ``None`` where it does not matter.
        """
        own_scores = self._scores
        own_weights = self._weights(hour)
        prior_weights = np.full(_NORMAL, self._prior_scores(own_weights) / _NORMAL)
        scores = np.concatenate([own_scores, _prior_scores()])
        weights = np.concatenate([own_weights, prior_weights])
        order = np.argsort(scores)
        # The score to come counts as one of them.
        total = weights.sum() + 1.0
        below = np.cumsum(weights[order]) / total
        levels = np.clip(self._levels, 0.0, _HIGHEST)
        last = len(order) - 1
        places = np.searchsorted(below, levels)
        places = np.minimum(places, last)
        sorted_scores = scores[order]
        widths: Floats = sorted_scores[places]
        return widths

    def _weights(self, hour: float | None) -> Floats:
        """How much each score counts at this hour, 0 to 1, (k,)."""
        weights = np.ones(len(self._scores))
        if hour is None:
            return weights
        away = (self._hours - hour + 0.5 * _DAY) % _DAY - 0.5 * _DAY
        by_hour = np.exp(-0.5 * np.square(away / _HOURS_NEAR))
        return np.where(np.isnan(away), weights, by_hour)

    def _prior_scores(self, own_weights: Floats) -> float:
        """How many scores the normal counts for: in proportion to those that count at this hour."""
        if not len(own_weights):
            return _PRIOR_SCORES
        near = float(own_weights.mean())
        return max(near * _PRIOR_SCORES, _LEAST_PRIOR_SCORES)

    def judge(self, scores: Floats, hour: float | None = None) -> None:
        """Update levels and scores with those of a trip.

        Args:
            scores: One or more, (k,).
            hour: When it began; ``None`` where that does not matter.
        """
        is_inside = scores[:, None] <= self.widths(hour)
        inside = is_inside.mean(axis=0)  # shares, (levels,)
        too_few = np.array(LEVELS) - inside
        moved = self._levels + _STEP * too_few
        highest = 1.0 + _STEP
        self._levels = np.clip(moved, -_STEP, highest)
        every_inside = np.vstack([self._inside, inside])
        self._inside = every_inside[-_RECENT:]
        every_score = np.concatenate([self._scores, scores])
        self._scores = every_score[-self._most_scores :]
        hours = np.full(len(scores), np.nan if hour is None else hour)
        every_hour = np.concatenate([self._hours, hours])
        self._hours = every_hour[-self._most_scores :]

    @property
    def track_record(self) -> TrackRecord:
        """The record of the latest trips."""
        inside = self._inside[:, AT_95]
        trips = len(inside)
        share = float(inside.mean()) if trips else 1.0
        return TrackRecord(trips, share)

    @property
    def latest_inside(self) -> Floats:
        """Which share of the latest trip's scores each interval contained, (levels,)."""
        latest: Floats = self._inside[-1]
        return latest

    def arrays(self, name: str) -> dict[str, Floats]:
        """Scores, levels and record for a state, their names prefixed."""
        arrays = {
            f"{name}_scores": self._scores,
            f"{name}_levels": self._levels,
            f"{name}_inside": self._inside,
        }
        has_hour = ~np.isnan(self._hours)
        if has_hour.any():
            # −1 stands for none: states hold finite numbers.
            arrays[f"{name}_hours"] = np.where(has_hour, self._hours, -1.0)
        return arrays

    def remember(self, state: State, name: str) -> None:
        """Restore what :meth:`arrays` saved.

        Args:
            state: The saved state.
            name: The prefix of the arrays' names.
        """
        scores = as_vector(state.array(f"{name}_scores"), "scores")
        levels = as_vector(state.array(f"{name}_levels"), "levels", len(LEVELS))
        inside = as_features(state.array(f"{name}_inside"), "inside", len(LEVELS))
        trips = len(inside)
        least_scores = min(trips, self._most_scores)
        if (
            not least_scores <= len(scores) <= self._most_scores
            or scores.min(initial=0.0) < 0.0
            or trips > _RECENT
            or inside.min(initial=0.0) < 0.0
            or inside.max(initial=0.0) > 1.0
        ):
            raise StateError(
                "this state is damaged: its record of forecasts is impossible"
            )
        hours = np.full(len(scores), np.nan)
        if f"{name}_hours" in state.arrays:
            stored = as_vector(state.array(f"{name}_hours"), "hours", len(scores))
            hours = np.where(stored < 0.0, np.nan, stored)
        self._scores = scores.copy()
        self._hours = hours
        self._levels = levels.copy()
        self._inside = inside.copy()


def _prior_scores() -> Floats:
    """Quantiles of |N(0, _WIDER²)|."""
    from scipy.special import ndtri

    grid = (np.arange(_NORMAL) + 0.5) / _NORMAL
    quantiles = ndtri(0.5 + 0.5 * grid)
    return np.asarray(_WIDER * quantiles)
