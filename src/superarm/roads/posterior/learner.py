"""What a fleet has learned from its trips, and how it learns more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from superarm.core import State
from superarm.core.errors import (
    JitterWarning,
    NotPositiveDefiniteError,
    PrecisionWarning,
    warn,
)
from superarm.roads.energy.scales import RoadScales

from .engine_protocol import Engine
from .fit_schedule import is_time_to_fit
from .fitting import fit_scales
from .forecast_intervals import ForecastIntervals
from .forms import EngineFactory, form_of
from .judging import TripJudge
from .outliers import Outlier
from .trips import Trips

# Trips after which all is computed anew, which clears rounding.
_TRIPS_BETWEEN_REBUILDS = 64
# Share of a half-life after which all is computed anew, so that weights are off by less than 5 %.
_AGEING_STEP = 1 / 16
_EVALUATIONS = 30  # likelihoods of one fit
_FLAGGED = 20  # outliers that are remembered


class RoadLearner:
    """An engine with the scales that fit its trips, and a record of its forecasts.

    Args:
        engines: Makes engines.
        judge: Compares trips with their forecasts.
        scales: The scales before anything is learned, and the centre of the prior of later ones.
        refit: After how many trips scales are fitted; 0 never fits them.
        most: How many of the latest rewards scales are fitted to.
    """

    def __init__(
        self,
        engines: EngineFactory,
        judge: TripJudge,
        scales: RoadScales,
        *,
        refit: int,
        most: int,
    ) -> None:
        self._engines = engines
        self._judge = judge
        self._scales = scales
        self._refit = refit
        self._most = most
        self.engine: Engine = engines.new(scales)
        self.intervals = ForecastIntervals()
        self.flagged: tuple[Outlier, ...] = ()
        """The latest outliers."""
        self.outlying = 0
        """Outliers so far."""
        self.fits = 0
        """How often scales were fitted."""
        self._since_rebuild = 0  # trips
        # Whether the latest trip may call for a fit or a rebuild.
        self._maintenance_due = False
        # A warning that is raised before the next trip is learned.
        self._delayed_warning: str | None = None

    @property
    def trips(self) -> int:
        """Trips learned from."""
        return self.engine.log.view().number

    # --- learning ----------------------------------------------------------------------------

    def learn(self, trip: Trips, hour: float | None) -> float:
        """Learn one trip and judge its forecast; returns the information gained, nats.

        Args:
            trip: The trip.
            hour: When it began; ``None`` where that does not matter.
        """
        self._raise_delayed_warning()
        is_first = self.trips == 0
        engine = self._engines.ready_for(self.engine, trip)
        judged = self._judge.judge(engine, trip, may_flag=not is_first)
        has_rewards = len(judged.trip.rewards) > 0
        gained = 0.0
        if has_rewards:
            gained = engine.absorb(judged.trip, judged.expected)
            if engine is not self.engine:
                # It was computed anew before this trip.
                self.engine = engine
                self._since_rebuild = 0
        # From here on nothing can fail: what was forecast is judged, whether it was learned or refused.
        self.intervals.judge(
            judged.trip_score, judged.road_scores, hour, self._judge.highest_score
        )
        self._flag(judged.outliers)
        if has_rewards:
            self._since_rebuild += 1
            self._maintenance_due = True
        return gained

    def learn_together(self, trips: Trips) -> float:
        """Learn many trips at once and fit the scales; returns the information gained, nats.

        Args:
            trips: The trips, each judged by what is known before the first of them.
        """
        judged = self._judge.judge_log(self.engine, trips)
        information_before = self.engine.information
        self.engine = self._engines.with_all(self.engine, judged.trips)
        self._flag(judged.outliers)
        # Earlier trips age meanwhile, which may lose more than these trips bring.
        gained = max(0.0, self.engine.information - information_before)
        self._since_rebuild = 0
        if self._refit:
            self.fit()
        return gained

    def _raise_delayed_warning(self) -> None:
        """Warn of what failed after an earlier trip had been learned, when nothing could fail."""
        message = self._delayed_warning
        if message is not None:
            self._delayed_warning = None
            warn(message, PrecisionWarning)

    def _flag(self, outliers: tuple[Outlier, ...]) -> None:
        """Count outliers and remember the latest."""
        flagged = (*self.flagged, *outliers)
        self.flagged = flagged[-_FLAGGED:]
        self.outlying += len(outliers)

    # --- maintenance -------------------------------------------------------------------------

    def maintain(self) -> None:
        """Fit the scales if the latest trip makes it time, or clear rounding.

        If that fails, all stays as it is, and the next trip warns.
        """
        if not self._maintenance_due:
            return
        self._maintenance_due = False
        try:
            if is_time_to_fit(self.trips, self._refit, form_of(self.engine)):
                self.fit()
            elif self._since_rebuild >= self._trips_between_rebuilds():
                self._rebuild(self.engine.scales)
        except (
            NotPositiveDefiniteError,
            JitterWarning,
            PrecisionWarning,
        ) as error:
            # Users may turn warnings into errors.
            message = f"scales and rounding stay as they are: {error}"
            self._delayed_warning = message[:300]

    def _trips_between_rebuilds(self) -> int:
        half_life = self._engines.half_life
        if half_life is None:
            return _TRIPS_BETWEEN_REBUILDS
        ageing = max(1, int(half_life * _AGEING_STEP))
        if form_of(self.engine) == "sparse":
            return ageing  # rounding does not accumulate, and each takes time
        return min(ageing, _TRIPS_BETWEEN_REBUILDS)

    def fit(self) -> None:
        """Fit the scales to the latest trips."""
        log = self.engine.log.view()
        latest = log.latest(self._most)
        scales = fit_scales(self.engine, latest, self._scales, _EVALUATIONS)
        self._rebuild(scales)
        self.fits += 1

    def _rebuild(self, scales: RoadScales) -> None:
        """Compute everything anew under these scales."""
        self.engine = self._engines.rebuilt(self.engine, scales)
        self._since_rebuild = 0

    # --- state -------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was learned, as arrays for a state, without the log."""
        return {
            "fitted": self.engine.scales.as_vector(),
            **self.intervals.arrays(),
            **self.engine.arrays(),
        }

    def scalars(self) -> Mapping[str, Any]:
        """The numbers of a state."""
        return {
            "fits": self.fits,
            "outlying": self.outlying,
            "since": self._since_rebuild,
            "information": self.engine.information,
        }

    def remember(
        self, state: State, scales: RoadScales, trips: Trips, *, is_alike: bool
    ) -> None:
        """Restore what a state contains.

        Args:
            state: The saved state.
            scales: Its fitted scales.
            trips: Its log.
            is_alike: Whether the state is of a posterior with the same parameters. Under others, such
                as another kernel, all is computed anew.
        """
        self.fits = state.count("fits", 0)
        self.outlying = state.count("outlying", 0)
        self._since_rebuild = state.count("since", 0)
        if not is_alike:
            self.engine = self._engines.from_trips(scales, trips)
            self._since_rebuild = 0
        elif len(trips.rewards):
            self.engine = self._engines.remembered(state, scales, trips)
            self.engine.information = state.number("information", 0.0)
        else:
            self.engine = self._engines.new(scales)
        self.intervals.remember(state)
