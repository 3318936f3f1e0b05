"""Trips compared with their forecasts before they are learned, and their outliers treated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats
from superarm.roads.energy.scales import Outliers

from .engine_protocol import Engine
from .forecasts import ExpectedRewards
from .outliers import Outlier, list_outliers, outlier_scores, treat_outliers
from .trips import Trips

_FARTHEST = 2.0  # times the outlier limit: the largest score that is remembered


class JudgedTrip(NamedTuple):
    """A trip, what was forecast for it, and how far it is from that."""

    trip: Trips  # as it is learned: its outliers weighed down, or left out
    expected: ExpectedRewards  # of the rewards that are learned
    outliers: tuple[Outlier, ...]
    trip_score: float  # |total − mean| / std
    road_scores: Floats  # of each reward, |reward − mean| / std, (M,)


class JudgedLog(NamedTuple):
    """Many trips as they are learned."""

    trips: Trips
    outliers: tuple[Outlier, ...]


@dataclass(frozen=True, kw_only=True)
class TripJudge:
    """Compares trips with their forecasts.

    Args:
        outliers: What becomes of outliers: "keep", "weigh" or "refuse".
        limit: How many standard deviations an outlier is away from what the others of its trip
            suggest, at least.
    """

    outliers: Outliers
    limit: float

    @property
    def highest_score(self) -> float:
        """The largest score that intervals are calibrated with.

        A slip of the meter is a miss, but does not show how wide intervals must be.
        """
        return np.inf if self.outliers == "keep" else _FARTHEST * self.limit

    def judge(self, engine: Engine, trip: Trips, *, may_flag: bool) -> JudgedTrip:
        """Compare one trip with its forecast.

        Args:
            engine: What is known before the trip.
            trip: The trip.
            may_flag: Whether rewards may be outliers; those of the very first trip are none.
        """
        expected = engine.judge(trip)
        residual = trip.rewards - expected.mean
        covariance = expected.total_cov
        reward_std = np.sqrt(np.diagonal(covariance))
        trip_std = np.sqrt(covariance.sum())
        scores = outlier_scores(residual, covariance, self.limit)
        learned = trip
        outliers: tuple[Outlier, ...] = ()
        if may_flag and scores.any():
            outliers = list_outliers(trip, scores, self.limit)
            learned = self._treat(engine, trip, scores)
            noise = engine.noise.covariance(learned)
            expected = expected.only(self._is_learned(scores), noise)
        return JudgedTrip(
            trip=learned,
            expected=expected,
            outliers=outliers,
            trip_score=abs(residual.sum()) / trip_std,
            road_scores=np.abs(residual) / reward_std,
        )

    def judge_log(self, engine: Engine, trips: Trips) -> JudgedLog:
        """Compare many trips with what is known before the first of them.

        Args:
            engine: What is known.
            trips: The trips.
        """
        learned: list[Trips] = []
        outliers: list[Outlier] = []
        forecasts = engine.judge_all(trips)
        for trip, expected in zip(trips.each(), forecasts, strict=True):
            residual = trip.rewards - expected.mean
            scores = outlier_scores(residual, expected.total_cov, self.limit)
            treated = trip
            if scores.any():
                outliers += list_outliers(trip, scores, self.limit)
                treated = self._treat(engine, trip, scores)
            learned.append(treated)
        return JudgedLog(Trips.joined(learned), tuple(outliers))

    def _treat(self, engine: Engine, trip: Trips, scores: Floats) -> Trips:
        return treat_outliers(trip, scores, self.limit, self.outliers, engine.noise)

    def _is_learned(self, scores: Floats) -> Bools:
        """Which rewards are learned, (M,): with "refuse", all but outliers."""
        if self.outliers == "refuse":
            return scores <= self.limit
        return np.ones(len(scores), dtype=np.bool_)
