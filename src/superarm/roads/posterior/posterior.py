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
reached (:mod:`.hours`), and rows have a tenth column for it. Either form works with hours and without.

So roads are shared by all vehicles, and vehicles differ in five numbers. All standard deviations are
in :class:`RoadScales`, and are fitted to the latest trips as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import LearnsSums, Resumable, SelfCalibrating
from superarm.core.errors import InputError
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
from superarm.roads.rows import ANY_HOUR, COLUMNS, HOURLY_COLUMNS, Column

from .belief import RoadBelief
from .coverage import TrackRecord
from .engine_protocol import Engine
from .forms import EngineFactory, FormChoice, FormName, form_of, functions_of
from .judging import TripJudge
from .keys import CheckedRows, check_rows
from .learner import RoadLearner
from .names import VehicleNames
from .outliers import Outlier
from .saved_logs import log_arrays, saved_scales, saved_trips
from .sparse_engine import TOLERANCE
from .trip_arrays import trips_from_arrays
from .trips import Trips

_JUDGED = 100  # trips of a log that are forecast one by one
_TOLERANCES = (1e-9, 0.1)
_LEAST_NOISE = 1e-20
"""The smallest variance of a reward's noise that may be stated, in Wh²: with less, rounding makes the
equations of the model singular."""


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
            dense and becomes sparse above 6000 visited roads, when all is computed anew; with hours,
            where a road has 1 + 2·harmonics functions, above as many functions.
        tolerance: In the sparse form, by what share of a standard deviation means may be off, and
            standard deviations by what share of themselves. The property ``tolerance`` is 0 while the
            form is dense.
        half_life: Roads change: after so many later trips a trip counts half, after twice as many a
            quarter. By default trips count for ever. Ages advance in steps of a sixteenth of it, when
            all is computed anew, or more often.
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
        half_life: float | None = None,
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
        require_choice(form, "form", get_args(FormChoice))
        tolerance = as_number(tolerance, "tolerance", *_TOLERANCES)
        if half_life is not None:
            half_life = as_number(half_life, "half_life", 1.0)
        self.half_life = half_life
        self._engines = EngineFactory(
            kernel=self.kernel,
            sizes=self.sizes,
            functions=functions_of(self.scales),
            choice=form,
            tolerance=tolerance,
            half_life=half_life,
        )
        self._learner = RoadLearner(
            self._engines,
            TripJudge(outliers=outliers, limit=self.outlier_limit),
            self.scales,
            refit=self.refit,
            most=self.most,
        )
        self.durations = self._new_durations()
        """The seconds that roads take at each hour; ``None`` in a model without hours."""
        self._checked_rows = CheckedRows()

    def parameters(self) -> Mapping[str, Any]:
        return {
            **super().parameters(),
            "form": self._engines.choice,
            "tolerance": self._engines.tolerance,
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
            form=self._engines.choice,
            tolerance=self._engines.tolerance,
            half_life=self.half_life,
        )

    # --- what it is now --------------------------------------------------------------------

    @property
    def _engine(self) -> Engine:
        return self._learner.engine

    @property
    def fitted(self) -> RoadScales:
        """The scales as they are now."""
        return self._engine.scales

    @property
    def form(self) -> FormName:
        """The form that is in use: "dense" or "sparse"."""
        return form_of(self._engine)

    @property
    def tolerance(self) -> float:
        """By what share of a standard deviation answers may be off; 0 in the dense form."""
        return self._engines.tolerance if self.form == "sparse" else 0.0

    @property
    def same_bits(self) -> bool:
        """False in the sparse form, and once variances of all roads are computed: states lack both."""
        return self.form == "dense" and not self._engine.has_variances

    @property
    def trips(self) -> int:
        """Trips learned from."""
        return self._learner.trips

    @property
    def fits(self) -> int:
        """How often scales were fitted."""
        return self._learner.fits

    @property
    def outlying(self) -> int:
        """Outliers so far."""
        return self._learner.outlying

    @property
    def flagged(self) -> tuple[Outlier, ...]:
        """The latest outliers."""
        return self._learner.flagged

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
        return self._learner.intervals.track_record

    def widths(self, keys: Any = None) -> tuple[Floats, Floats]:
        hour = None if keys is None else self._hour_of(keys)
        return self._learner.intervals.widths(hour)

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
        untaught = self._engines.new(self.fitted)
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
        self.information_gain += self._learner.learn_together(trips)
        self.count += len(trips.rewards)
        self.version += 1
        self._take_fitted_noise()

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
        """Learn one trip; returns the information gained, nats."""
        return self._learner.learn(trip, self._hour_of(trip.keys))

    def _after_observing(self) -> None:
        # Once the trip is in and counted: an interrupted fit loses nothing of it.
        self._learner.maintain()
        self._take_fitted_noise()

    @one_blas_thread
    def fit(self) -> None:
        """Fit the scales to the latest trips now."""
        with self._lock:
            if self.trips:
                self._learner.fit()
                self._take_fitted_noise()
                self.version += 1

    def _take_fitted_noise(self) -> None:
        scales = self.fitted
        self.noise_variance = scales.noise**2
        self.noise_std = scales.noise

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        trips = self._engine.log.view()
        arrays = {**log_arrays(trips, self.form), **self._learner.arrays()}
        scalars = {
            **self._learner.scalars(),
            "vehicle_names": self.vehicle_names.as_json(),
        }
        parts = {}
        if self.durations is not None:
            # Its parameters follow from those of this posterior.
            parts["durations"] = replace(self.durations.state(), spec=None)
        return Memory(arrays, scalars, parts)

    def _remember(self, state: State) -> None:
        is_alike = contradiction(self, state.spec) is None
        if self.durations is not None:
            spec = describe(self.durations) if is_alike else None
            durations = replace(state.part("durations"), spec=spec)
            self.durations._with_state(durations)
        trips = saved_trips(state, len(self.kernel), self._columns)
        scales = saved_scales(state, self.scales)
        # Older states have the numbers of vehicles, but not their names.
        names = state.scalars.get("vehicle_names", {})
        self.vehicle_names = VehicleNames.from_json(names)
        self._learner.remember(state, scales, trips, is_alike=is_alike)
        self._take_fitted_noise()


def _require_noise(stated: Floats | None) -> None:
    """Refuse noise variances, in Wh², that are too small for floats."""
    if stated is not None and stated.min(initial=_LEAST_NOISE) < _LEAST_NOISE:
        raise InputError(
            f"noise_variance must be at least {_LEAST_NOISE:g} Wh², got {stated.min():g}"
        )
