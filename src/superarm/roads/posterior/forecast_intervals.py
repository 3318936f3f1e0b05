"""How wide intervals of trips and of single roads must be for their nominal coverage."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, State

from .coverage import IntervalCalibration, TrackRecord

_TRIP_SCORES = 200  # scores of trips from which widths are taken
_ROAD_SCORES = 4000  # the same of roads
_TRIPS = "trips"  # names in a state
_ROADS = "roads"


class IntervalWidths(NamedTuple):
    """Half-widths of the central intervals of ``LEVELS``, in standard deviations."""

    roads: Floats  # (levels,)
    trips: Floats  # (levels,)


class ForecastIntervals:
    """The calibration of intervals of trips, and of single roads."""

    def __init__(self) -> None:
        self._trips = IntervalCalibration(_TRIP_SCORES)
        self._roads = IntervalCalibration(_ROAD_SCORES)

    @property
    def track_record(self) -> TrackRecord:
        """How often the 95 % interval of the latest trips contained their energy."""
        return self._trips.track_record

    @property
    def latest_roads_inside(self) -> Floats:
        """Which share of the roads of the latest trip each interval contained, (levels,)."""
        return self._roads.latest_inside

    def widths(self, hour: float | None) -> IntervalWidths:
        """The widths at an hour.

        Args:
            hour: The hour of what is forecast; ``None`` where it does not matter.
        """
        return IntervalWidths(self._roads.widths(hour), self._trips.widths(hour))

    def judge(
        self,
        trip_score: float,
        road_scores: Floats,
        hour: float | None,
        highest_score: float,
    ) -> None:
        """Learn how far a trip was from its forecast.

        Args:
            trip_score: Of its total, in standard deviations.
            road_scores: Of each reward, (M,).
            hour: When it began; ``None`` where that does not matter.
            highest_score: Larger scores count as this one.
        """
        trip_scores = np.array([trip_score])
        self._trips.judge(np.minimum(trip_scores, highest_score), hour)
        if len(road_scores) > 1:
            self._roads.judge(np.minimum(road_scores, highest_score), hour)

    def arrays(self) -> dict[str, Floats]:
        """Scores, levels and records for a state."""
        return {**self._trips.arrays(_TRIPS), **self._roads.arrays(_ROADS)}

    def remember(self, state: State) -> None:
        """Restore what :meth:`arrays` saved.

        Args:
            state: The saved state.
        """
        self._trips.remember(state, _TRIPS)
        self._roads.remember(state, _ROADS)
