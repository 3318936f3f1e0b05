"""A fleet's belief about its roads and vehicles: exact or to a tolerance, in Wh.

An arm is a road driven by a vehicle, and its reward the energy it costs (less what is stored in height
and motion). Of a road e, of the terms φ that the energy model gives for it and this vehicle, and of a
trip t::

    reward = expected(e) + m·f(e) + φ(e)·(w + w_vehicle + w_t) + noise

=============  =======================================================================
``expected``   the energy model's forecast for this vehicle
``m``          the vehicle's mass as it is described, as a multiple of Table 2's: stops, curves and
               hills that the map does not have cost a heavier vehicle more
``f``          what roads do to all vehicles: near²·k_G (graph Matérn) + own² + (share·size)² of each
               road, its size the Wh that it moves
``φ``          rolling (per metre), time (per second), drag (per v²·metre) and climb (per metre of
               rise), in Wh of the model, and ``m``
``w``          how far the fleet's vehicles differ from the model, w_vehicle each of them,
               w_t the day's weather and payload: noise that the roads of a trip share
``noise``      of each drive over a road by itself: it grows with the time spent there, with what
               signals suggest, and with the Wh that the road moves
=============  =======================================================================

With :class:`~superarm.roads.energy.HourlyScales`, f and w also depend on the hour at which a road is
reached (:mod:`.hours`), and rows have a tenth column for it.

So roads are shared by all vehicles, and vehicles differ in five numbers. All standard deviations are
in :class:`RoadScales`, and are fitted to the latest trips as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import LearnsSums, Resumable, SelfCalibrating
from superarm.core.errors import (
    InputError,
    JitterWarning,
    NotPositiveDefiniteError,
    PrecisionWarning,
    StateError,
    warn,
)
from superarm.core.inputs import (
    as_count,
    as_number,
    as_positions,
    as_vector,
    read_only,
    require_choice,
    require_size,
    require_type,
)
from superarm.core.locks import exclusive
from superarm.core.registry import contradiction, describe, register
from superarm.core.threads import one_blas_thread
from superarm.kernels import GraphMatern
from superarm.posteriors.base import GaussianPosterior, Memory, as_noise, is_empty
from superarm.roads.energy.scales import (
    DurationScales,
    HourlyScales,
    Outliers,
    RoadScales,
)
from superarm.roads.rows import ANY_HOUR, COLUMNS, HOURLY_COLUMNS, Column, edges_of

from .belief import RoadBelief
from .compact_trips import compact_arrays, expanded_arrays, is_compact
from .coverage import IntervalCalibration, TrackRecord
from .engine import RoadEngine
from .engine_protocol import Engine
from .fitting import fit_scales
from .hourly_engine import HourlyEngine
from .keys import CheckedRows, check_rows
from .names import VehicleNames
from .outliers import Outlier, list_outliers, outlier_scores, treat_outliers
from .sparse_engine import TOLERANCE, SparseRoadEngine
from .trip_arrays import trips_from_arrays
from .trips import Trips

_TRIP_SCORES = 200  # scores of trips from which widths are taken
_ROAD_SCORES = 4000  # the same of roads
_REBUILD = 64  # trips after which all is computed anew, which clears rounding
_EVALUATIONS = 30  # likelihoods of one fit
_FLAGGED = 20  # outliers that are remembered
_FARTHEST = 2.0  # times the outlier limit: the largest score that is remembered
_JUDGED = 100  # trips of a log that are forecast one by one
_FIRST_FIT = 4  # trips before the scales are first fitted
_FIT_SHARE = (
    1 / 16
)  # of a log, by which it grows at most before a fit in the sparse form
_TOLERANCES = (1e-9, 0.1)
DENSE_LARGEST = 6000
"""Visited roads up to which the form "auto" is dense."""
_LEAST_NOISE = 1e-20
"""The smallest variance of a reward's noise that may be stated, in Wh²: with less, rounding makes the
equations of the model singular."""
FormName = Literal["dense", "sparse"]
FormChoice = Literal["auto", "dense", "sparse"]


@register("posterior", "roads")
class RoadGP(GaussianPosterior, LearnsSums, SelfCalibrating, Resumable):
    """Posterior of a fleet's road energies, shared by all vehicles: exact, or sparse to a tolerance.

    Keys are feature rows with nine columns (:class:`~superarm.roads.rows.Column`): road, expected Wh,
    the terms rolling, time, drag and climb in Wh, the mass ratio, the variance that signals
    suggest in Wh², and the vehicle's number. One call of ``observe`` or ``observe_sums`` is one trip;
    what is observed with a ``noise_variance`` of its own shares no noise.

    The scales are fitted after 4, 8, 16, … trips up to ``refit``, and then every ``refit`` trips (in the
    sparse form less often once a log has 32 times as many: after it has grown by 3 to 6 %). They
    are fitted to at most ``most`` rewards: those of the latest trips, and as a quarter of them the
    totals of earlier trips; to more only where the latest trip alone has more than the other three
    quarters. Scales and widths of intervals depend on the order of the trips; what is
    believed under fixed scales does not. ``flagged`` holds the latest outliers.

    Args:
        kernel: K_G: how alike roads are that are near each other; its ν must be even.
        sizes: Wh that each road moves, (n,): for rolling, drag and height.
        scales: How wrong energies may be and how much trips differ, before anything is seen; by
            default those of ``RoadScales()``. With ``HourlyScales()`` roads have a profile over the day.
        refit: After how many trips scales are fitted again; before that after 4, 8, 16, … trips; 0
            never fits them.
        most: How many of the latest rewards scales are fitted to.
        outliers: What becomes of outliers: learned like all other rewards (keep), with noise that
            grows with the square of how far they are (weigh), or not at all (refuse).
        outlier_limit: How many standard deviations an outlier is away from what the others of its
            trip suggest, at least.
        form: "dense" is exact; its time grows with the cube of the number of visited roads, its memory
            and states with the square. "sparse" is iterative and grows about linearly. "auto" begins
            dense and becomes sparse above 6000 visited roads, when all is computed anew.
        tolerance: In the sparse form, by what share of a standard deviation means may be off, and
            standard deviations by what share of themselves. The property ``tolerance`` is 0 while the
            form is dense.
    """

    kind = "road-gp"

    def __init__(
        self,
        kernel: GraphMatern,
        sizes: Any,
        *,
        scales: RoadScales | None = None,
        refit: int = 64,
        most: int = 600,
        outliers: Outliers = "weigh",
        outlier_limit: float = 6.0,
        form: FormChoice = "auto",
        tolerance: float = TOLERANCE,
    ) -> None:
        require_type(kernel, GraphMatern, "kernel")
        if kernel.nu % 2:
            raise InputError(
                f"the kernel's nu must be even for sparse draws, got {kernel.nu:g}"
            )
        self.kernel = kernel
        self.sizes = read_only(as_vector(sizes, "sizes", len(kernel)))
        if not (self.sizes >= 0.0).all():
            raise InputError(
                f"sizes holds {self.sizes.min():g}; a road moves 0 Wh or more"
            )
        self.scales = RoadScales() if scales is None else scales
        require_type(self.scales, RoadScales, "scales")
        super().__init__(noise_variance=self.scales.noise**2)
        self.refit = as_count(refit, "refit", 0)
        self.most = as_count(most, "most", 1)
        require_choice(outliers, "outliers", ("keep", "weigh", "refuse"))
        self.outliers: Outliers = outliers
        self.outlier_limit = as_number(outlier_limit, "outlier_limit", 2.0)
        self.vehicle_names = VehicleNames()
        """The vehicles that have names; replaced by :meth:`name_vehicles`."""
        self.flagged: tuple[Outlier, ...] = ()
        self.outlying = 0  # outliers so far
        self.fits = 0
        require_choice(form, "form", get_args(FormChoice))
        self._choice: FormChoice = form
        self._tolerance = as_number(tolerance, "tolerance", *_TOLERANCES)
        if self.has_hours and form == "sparse":
            raise InputError(
                "form 'sparse' has no hours yet; use 'auto' or 'dense' with HourlyScales, or "
                "scales=RoadScales()"
            )
        self.durations = self._new_durations()
        """The seconds that roads take at each hour; ``None`` in a model without hours."""
        self._engine: Engine = self._new_engine(self.scales)
        self._since_rebuild = 0  # trips
        # Whether the latest trip may call for a fit or a rebuild.
        self._maintenance_due = False
        # A warning that is raised before the next trip is learned.
        self._delayed_warning: str | None = None
        self._trip_intervals = IntervalCalibration(_TRIP_SCORES)
        self._road_intervals = IntervalCalibration(_ROAD_SCORES)
        self._checked_rows = CheckedRows()

    def parameters(self) -> Mapping[str, Any]:
        return {
            **super().parameters(),
            "form": self._choice,
            "tolerance": self._tolerance,
        }

    # --- hours -----------------------------------------------------------------------------

    @property
    def has_hours(self) -> bool:
        """Whether what roads cost depends on the hour: rows then have a tenth column."""
        return isinstance(self.scales, HourlyScales)

    def _hour_of(self, keys: Floats) -> float | None:
        """The hour at which a trip begins; ``None`` where it is not known or does not matter."""
        if not self.has_hours or not len(keys):
            return None
        hour = float(keys[0, Column.HOUR])
        return None if hour == ANY_HOUR else hour

    @property
    def _columns(self) -> int:
        return HOURLY_COLUMNS if self.has_hours else COLUMNS

    def _new_durations(self) -> RoadGP | None:
        """A posterior of the seconds that roads take, where this one is of their energies by hour."""
        scales = self.scales
        if not isinstance(scales, HourlyScales) or isinstance(scales, DurationScales):
            return None
        return RoadGP(
            self.kernel,
            self.sizes,
            scales=DurationScales(harmonics=scales.harmonics),
            refit=self.refit,
            most=self.most,
            outliers=self.outliers,
            outlier_limit=self.outlier_limit,
        )

    # --- form ------------------------------------------------------------------------------

    @property
    def form(self) -> FormName:
        """The form that is in use: "dense" or "sparse"."""
        return "sparse" if isinstance(self._engine, SparseRoadEngine) else "dense"

    @property
    def tolerance(self) -> float:
        """By what share of a standard deviation answers may be off; 0 in the dense form."""
        return self._tolerance if self.form == "sparse" else 0.0

    def _form_for(self, visited: int) -> FormName:
        """The form for so many visited roads."""
        if self.has_hours:
            return "dense"
        if self._choice != "auto":
            return self._choice
        return "dense" if visited <= DENSE_LARGEST else "sparse"

    def _new_engine(self, scales: RoadScales, trips: Trips | None = None) -> Engine:
        """An engine that has learned from these trips, or from none."""
        visited = 0
        if trips is not None:
            visited = len(np.unique(edges_of(trips.keys)))
        if self._form_for(visited) == "sparse":
            sparse = SparseRoadEngine(self.kernel, self.sizes, scales, self._tolerance)
            return sparse if trips is None else sparse.with_all(trips)
        dense = self._dense_engine
        if trips is None:
            return dense(self.kernel, self.sizes, scales)
        return dense.from_trips(self.kernel, self.sizes, scales, trips)

    @property
    def _dense_engine(self) -> type[RoadEngine]:
        return HourlyEngine if self.has_hours else RoadEngine

    def _rebuilt(self, scales: RoadScales) -> Engine:
        """The engine computed anew, in the form for as many roads as it has visited."""
        engine = self._engine
        if self.form == "dense" and self._form_for(len(engine.visited)) == "sparse":
            return self._new_engine(scales, engine.log.view())
        return engine.rebuild(scales)

    def _with_all(self, trips: Trips) -> Engine:
        """The engine after many more trips, in the form for as many roads as it then has visited."""
        engine = self._engine
        visited = np.union1d(engine.visited, edges_of(trips.keys))
        if self.form == "dense" and self._form_for(len(visited)) == "sparse":
            log = engine.log.copy()
            log.append(trips)
            return self._new_engine(engine.scales, log.view())
        return engine.with_all(trips)

    # --- what it is now --------------------------------------------------------------------

    @property
    def fitted(self) -> RoadScales:
        """The scales as they are now."""
        return self._engine.scales

    @property
    def same_bits(self) -> bool:
        """False in the sparse form, and once variances of all roads are computed: states lack both."""
        return self.form == "dense" and not self._engine.has_variances

    @property
    def trips(self) -> int:
        """Trips learned from."""
        return self._engine.log.view().number

    def name_vehicles(self, names: Iterable[str]) -> None:
        """Reserve the numbers of these names, so that no other name takes them.

        Args:
            names: Names of vehicles.
        """
        with self._lock:
            self.vehicle_names = self.vehicle_names.having(names)

    def trips_of(self, vehicle: int) -> int:
        """Trips of this vehicle that were learned from.

        Args:
            vehicle: Number of the vehicle.
        """
        trips = self._engine.log.view()
        driven = trips.driven_by(vehicle)
        return len(np.unique(driven))

    def holds_motion(self, vehicle: int | None = None) -> bool | None:
        """Whether the latest readings of roads included kinetic energy; ``None`` if there are none.

        Totals of trips do not count.

        Args:
            vehicle: Number of a vehicle; by default the whole fleet's readings count.
        """
        return self._engine.log.view().latest_holds_motion(vehicle)

    @property
    def visited(self) -> Ints:
        """The roads that were driven on."""
        return self._engine.visited.copy()

    @property
    def track_record(self) -> TrackRecord:
        """How often the 95 % interval of the latest trips contained their energy."""
        return self._trip_intervals.track_record

    def widths(self, keys: Any = None) -> tuple[Floats, Floats]:
        hour = None if keys is None else self._hour_of(keys)
        return self._road_intervals.widths(hour), self._trip_intervals.widths(hour)

    @exclusive
    def noise_cov(self, keys: NDArray[Any]) -> Floats:
        trip = Trips.of_one(self._as_keys(keys))
        return self._engine.noise.covariance(trip)

    @one_blas_thread
    @exclusive
    def total(self, keys: Any) -> tuple[float, float]:
        """Mean and standard deviation of what these roads cost together on one trip, noise included.

        Args:
            keys: Feature rows of the roads, (k, 9).
        """
        rows = self._as_keys(keys)
        count = len(rows)
        one_reward = np.zeros(count, dtype=np.intp)
        trip = Trips.of_one(rows, one_reward)
        expected = self._engine.expect_total(trip)
        mean = float(expected.mean[0])
        variance = expected.total_cov[0, 0]
        std = float(np.sqrt(variance))
        return mean, std

    @one_blas_thread
    @exclusive
    def log_densities(self, trips: Trips, farthest: float = np.inf) -> Floats:
        """The log density of each trip's rewards before any of them is learned, nats.

        Args:
            trips: The trips.
            farthest: Rewards more than this many standard deviations away, given those before them on
                the trip, count as that far away.
        """
        trips = self._as_trips(trips.arrays())
        densities = np.empty(trips.number)
        for number, trip in enumerate(trips.each()):
            expected = self._engine.expect(trip)
            densities[number] = expected.log_density(trip.rewards, farthest)
        return densities

    # --- hooks -----------------------------------------------------------------------------

    def keys(self, offer: Offer) -> Floats:
        require_type(offer, Offer, "offer")
        features = offer.arms.features
        if features in self._checked_rows:
            return features
        rows = self._as_keys(features)
        self._checked_rows.remember(rows)
        return rows

    def _as_keys(self, arms: Any) -> Floats:
        return check_rows(arms, len(self.kernel), self._columns)

    @exclusive
    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        return self._engine.mean_of(keys), self._engine.variance_of(keys)

    @exclusive
    def _mean(self, keys: Floats) -> Floats:
        return self._engine.mean_of(keys)

    @exclusive
    def _covariance(self, keys: Floats, at: Ints | None = None) -> Floats:
        arms = Trips.of_one(keys)
        cov = self._engine.expect(arms).cov
        if at is None:
            return cov
        return cov[at]

    @exclusive
    def _draw(self, keys: Floats, rng: Rng, size: int) -> Floats:
        drawn = np.empty((size, len(keys)))
        for draw in drawn:
            draw[:] = self._engine.draw(keys, rng)
        return drawn

    @exclusive
    def _incumbent(self, sign: float) -> float:
        engine = self._engine
        keys = engine.log.view().keys
        means = engine.mean_of(keys)
        return float((sign * means).max())

    def _prior_scale(self, keys: Floats) -> float:
        untaught = self._new_engine(self.fitted)
        arms = Trips.of_one(keys)
        prior_cov = untaught.expect(arms).cov
        return float(np.diagonal(prior_cov).max())

    def belief(self, offer: Offer, pending: NDArray[Any] | None = None) -> Any:
        keys = self.keys(offer)
        pending_keys = keys[:0] if is_empty(pending) else self._as_keys(pending)
        return RoadBelief(self, keys, pending_keys)

    # --- learning --------------------------------------------------------------------------

    def observe_sums(
        self,
        arms: Any,
        sums: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from rewards that are sums over arms.

        Args:
            arms: Feature rows, (m, 9).
            sums: The reward that each arm belongs to, (m,).
            rewards: What was observed, (r,).
            noise_variance: Variance of each reward; by default the model's own.
            rng: Not used.
        """
        reward_of_arm = as_positions(sums, "sums")
        keys = self._as_keys(arms)
        numbers = np.unique(reward_of_arm)
        count = len(numbers)
        is_gapless = np.array_equal(numbers, np.arange(count))
        if reward_of_arm.shape != (len(keys),) or not is_gapless:
            raise InputError(
                "sums must give each arm the number of its reward: 0, 1, 2, …"
            )
        values = as_vector(rewards, "rewards", count)
        require_size(values, "rewards")
        stated = as_noise(noise_variance, count)
        _require_noise(stated)
        with self._lock:
            if len(keys):
                order = np.argsort(reward_of_arm, kind="stable")
                sorted_keys = keys[order]
                sorted_rewards = reward_of_arm[order]
                trip = Trips.of_one(sorted_keys, sorted_rewards, values, stated)
                self._take(trip)

    def observe_trips(self, trips: Trips) -> None:
        """Learn from many trips at once, such as those of a log.

        Each is forecast before it is learned, which shows outliers and how good forecasts are. Of more
        than ``2 · 100``, the last 100 come one after another, and so do the first until 100 trips are
        known; those between are forecast and learned together.

        Args:
            trips: The trips.
        """
        require_type(trips, Trips, "trips")
        trips = self._as_trips(trips.arrays())
        require_size(trips.rewards, "rewards")
        with self._lock:
            # The copy learns all trips or fails; then nothing was learned.
            learner = copy(self)
            learner._take_log(trips)
            learned = dict(vars(learner))
            learned.pop("_lock")
            self.__dict__.update(learned)

    def _take_log(self, trips: Trips) -> None:
        together_from = trips.number
        together_to = trips.number
        if trips.number > 2 * _JUDGED:
            together_from = max(0, _JUDGED - self.trips)
            together_to = trips.number - _JUDGED
        for trip in trips.between(0, together_from).each():
            self._take(trip)
        if together_from < together_to:
            together = trips.between(together_from, together_to)
            self._take_all(together)
        for trip in trips.between(together_to, trips.number).each():
            self._take(trip)

    def _as_trips(self, arrays: Mapping[str, Any]) -> Trips:
        """Checked trips from their arrays by name."""
        return trips_from_arrays(arrays, len(self.kernel), self._columns)

    @one_blas_thread
    def _take_all(self, trips: Trips) -> None:
        learned, outliers = self._judge(trips)
        information_before = self._engine.information
        self._engine = self._with_all(learned)
        self._flag(outliers)
        self.information_gain += self._engine.information - information_before
        self.count += len(trips.rewards)
        self.version += 1
        self._since_rebuild = 0
        if self.refit:
            self._refit()

    def _judge(self, trips: Trips) -> tuple[Trips, list[Outlier]]:
        """Trips as they are learned, and their outliers, by what is known before the first of them."""
        learned: list[Trips] = []
        outliers: list[Outlier] = []
        judged = self._engine.judge_all(trips)
        for trip, expected in zip(trips.each(), judged, strict=True):
            residual = trip.rewards - expected.mean
            scores = self._outlier_scores(residual, expected.total_cov)
            treated = trip
            if scores.any():
                outliers += list_outliers(trip, scores, self.outlier_limit)
                treated = self._treat_outliers(trip, scores)
            learned.append(treated)
        return Trips.joined(learned), outliers

    def _absorb(
        self,
        keys: Floats,
        rewards: Floats,
        noise: Floats,
        rng: Rng | None,
    ) -> float:
        has_model_noise = (noise == self.noise_variance).all()
        stated = None if has_model_noise else noise
        _require_noise(stated)
        trip = Trips.of_one(keys, rewards=rewards, noise=stated)
        return self._learn(trip)

    @one_blas_thread
    def _take(self, trip: Trips) -> None:
        self.information_gain += self._learn(trip)
        self.count += len(trip.rewards)
        self.version += 1
        self._after_observing()

    def _learn(self, trip: Trips) -> float:
        """Learn one trip and judge its forecast; returns the information gained, nats."""
        self._raise_delayed_warning()
        hour = self._hour_of(trip.keys)
        expected = self._engine.judge(trip)
        residual = trip.rewards - expected.mean
        covariance = expected.total_cov
        reward_std = np.sqrt(np.diagonal(covariance))
        road_scores = np.abs(residual) / reward_std
        outlier_score = self._outlier_scores(residual, covariance)
        is_outlier = outlier_score > self.outlier_limit
        outliers: tuple[Outlier, ...] = ()
        if is_outlier.any() and self.trips:
            outliers = list_outliers(trip, outlier_score, self.outlier_limit)
            trip = self._treat_outliers(trip, outlier_score)
            is_learned = np.ones(len(is_outlier), dtype=np.bool_)
            if self.outliers == "refuse":
                is_learned = ~is_outlier
            noise = self._engine.noise.covariance(trip)
            expected = expected.only(is_learned, noise)
        has_rewards = len(trip.rewards) > 0
        gained = 0.0
        if has_rewards:
            gained = self._engine.absorb(trip, expected)
        # From here on nothing can fail: what was forecast is judged, whether it was learned or refused.
        trip_std = np.sqrt(covariance.sum())
        trip_score = abs(residual.sum()) / trip_std
        self._judge_forecast(trip_score, road_scores, hour)
        self._flag(outliers)
        if has_rewards:
            self._since_rebuild += 1
            self._maintenance_due = True
        return gained

    def _raise_delayed_warning(self) -> None:
        """Warn of what failed after an earlier trip had been learned, when nothing could fail."""
        message = self._delayed_warning
        if message is not None:
            self._delayed_warning = None
            warn(message, PrecisionWarning)

    def _judge_forecast(
        self, trip_score: float, road_scores: Floats, hour: float | None
    ) -> None:
        # A slip of the meter is a miss, but does not show how wide intervals must be.
        most = _FARTHEST * self.outlier_limit
        if self.outliers == "keep":
            most = np.inf
        trip_scores = np.array([trip_score])
        self._trip_intervals.judge(np.minimum(trip_scores, most), hour)
        if len(road_scores) > 1:
            self._road_intervals.judge(np.minimum(road_scores, most), hour)

    def _flag(self, outliers: Iterable[Outlier]) -> None:
        """Count outliers and remember the latest."""
        new_outliers = tuple(outliers)
        flagged = (*self.flagged, *new_outliers)
        self.flagged = flagged[-_FLAGGED:]
        self.outlying += len(new_outliers)

    def _outlier_scores(self, residual: Floats, covariance: Floats) -> Floats:
        return outlier_scores(residual, covariance, self.outlier_limit)

    def _treat_outliers(self, trip: Trips, scores: Floats) -> Trips:
        noise = self._engine.noise
        return treat_outliers(trip, scores, self.outlier_limit, self.outliers, noise)

    # --- maintenance -----------------------------------------------------------------------

    def _after_observing(self) -> None:
        # Once the trip is in and counted: an interrupted fit loses nothing of it.
        if self._maintenance_due:
            self._maintenance_due = False
            self._maintain()

    def _maintain(self) -> None:
        """Fit the scales when it is time, or clear rounding; if that fails, all stays as it is."""
        try:
            if self._is_time_to_fit():
                self._refit()
            elif self._since_rebuild >= _REBUILD:
                self._engine = self._rebuilt(self.fitted)
                self._since_rebuild = 0
        except (
            NotPositiveDefiniteError,
            JitterWarning,
            PrecisionWarning,
        ) as error:
            # Users may turn warnings into errors.
            message = f"scales and rounding stay as they are: {error}"
            self._delayed_warning = message[:300]

    def _is_time_to_fit(self) -> bool:
        if not self.refit:
            return False
        trips = self.trips
        if trips >= self.refit:
            return trips % self._trips_between_fits(trips) == 0
        is_power_of_two = trips & (trips - 1) == 0
        return trips >= _FIRST_FIT and is_power_of_two

    def _trips_between_fits(self, trips: int) -> int:
        """``refit``; in the sparse form doubled as long as that is at most a share of the log.

        Each fit has everything computed anew, in time that grows with the log.
        """
        between = self.refit
        if self.form == "sparse":
            while 2 * between <= _FIT_SHARE * trips:
                between *= 2
        return between

    @one_blas_thread
    def fit(self) -> None:
        """Fit the scales to the latest trips now."""
        with self._lock:
            if self.trips:
                self._refit()
                self.version += 1

    def _refit(self) -> None:
        trips = self._engine.log.view()
        latest = trips.latest(self.most)
        scales = fit_scales(self._engine, latest, self.scales, _EVALUATIONS)
        self._engine = self._rebuilt(scales)
        self._since_rebuild = 0
        self.fits = self.fits + 1
        self._take_noise_of(scales)

    def _take_noise_of(self, scales: RoadScales) -> None:
        self.noise_variance = scales.noise**2
        self.noise_std = scales.noise

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        trips = self._engine.log.view()
        log = compact_arrays(trips) if self.form == "sparse" else trips.arrays()
        arrays = {
            **log,
            "fitted": self.fitted.as_vector(),
            **self._trip_intervals.arrays("trips"),
            **self._road_intervals.arrays("roads"),
            **self._engine.arrays(),
        }
        scalars = {
            "fits": self.fits,
            "outlying": self.outlying,
            "since": self._since_rebuild,
            "vehicle_names": self.vehicle_names.as_json(),
            "information": self._engine.information,
        }
        parts = {}
        if self.durations is not None:
            # Its parameters follow from those of this posterior.
            parts["durations"] = replace(self.durations.state(), spec=None)
        return Memory(arrays, scalars, parts)

    def _remember(self, state: State) -> None:
        if self.durations is not None:
            is_alike = contradiction(self, state.spec) is None
            spec = describe(self.durations) if is_alike else None
            durations = replace(state.part("durations"), spec=spec)
            self.durations._with_state(durations)
        is_short = is_compact(state.arrays)
        log = expanded_arrays(state.arrays) if is_short else state.arrays
        trips = self._as_trips(log)
        # Older states have the numbers of vehicles, but not their names.
        names = state.scalars.get("vehicle_names", {})
        self.vehicle_names = VehicleNames.from_json(names)
        self.fits = state.count("fits", 0)
        self.outlying = state.count("outlying", 0)
        self._since_rebuild = state.count("since", 0)
        scales = self._remembered_scales(state)
        self._take_noise_of(scales)
        if contradiction(self, state.spec):
            # Under another kernel all is computed anew.
            self._engine = self._new_engine(scales, trips)
        elif len(trips.rewards):
            self._engine = self._remembered_engine(state, scales, trips)
            information = state.number("information", 0.0)
            self._engine.information = information
        else:
            self._engine = self._new_engine(scales)
        self._trip_intervals.remember(state, "trips")
        self._road_intervals.remember(state, "roads")

    def _remembered_engine(
        self, state: State, scales: RoadScales, trips: Trips
    ) -> Engine:
        """The engine of a state, in the form in which it was saved."""
        engine: Engine
        if "solution" in state.arrays:
            engine = SparseRoadEngine(self.kernel, self.sizes, scales, self._tolerance)
        else:
            engine = self._dense_engine(self.kernel, self.sizes, scales)
        engine.remember(trips, state)
        return engine

    def _remembered_scales(self, state: State) -> RoadScales:
        fitted = state.vector("fitted")
        # A compact log is from after motion.
        has_motion = "border_size" in state.arrays or is_compact(state.arrays)
        is_complete = len(fitted) == len(self.scales.as_vector())
        if has_motion and not self.has_hours and not is_complete:
            raise StateError(
                f"this state is damaged: it has {len(fitted)} fitted scales"
            )
        # States from before motion have fewer scales; those of hours may get more.
        return type(self.scales).from_vector(fitted, like=self.scales)


def _require_noise(stated: Floats | None) -> None:
    """Refuse noise variances, in Wh², that are too small for floats."""
    if stated is not None and stated.min(initial=_LEAST_NOISE) < _LEAST_NOISE:
        raise InputError(
            f"noise_variance must be at least {_LEAST_NOISE:g} Wh², got {stated.min():g}"
        )
