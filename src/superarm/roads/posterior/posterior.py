"""What a fleet knows of its roads, and what it must not forget: exact, in Wh.

An arm is a road driven by a vehicle, and its reward the energy it costs (less what is stored in height
and motion). Of a road e, of the terms φ that the energy model gives for it and this vehicle, and of a
trip t::

    reward = expected(e) + each·f(e) + φ(e)·(w + w_vehicle + w_t) + noise

=============  =======================================================================
``expected``   what the energy model says for this vehicle: column 1 of a key
``f``          what roads do to all vehicles: near²·k_G (graph Matérn) + own² + (share·size)² of each
               road, its size the Wh that it moves
``each``       the vehicle's mass as it was told, as a multiple of Table 2's: stops, curves and hills
               that the map has not cost a heavier vehicle more
``φ``          rolling (per metre), time (per second), drag (per v²·metre) and climb (per metre of
               rise), in Wh of the model, and ``each``
``w``          how far the fleet's vehicles differ from the model, w_vehicle each of them,
               w_t the day's weather and payload: noise that the roads of a trip share
``noise``      of each drive over a road by itself: it grows with the time spent there, with what
               signals let expect, and with the Wh that the road moves
=============  =======================================================================

So roads are shared by all vehicles, and vehicles differ in five numbers. All standard deviations are
in :class:`RoadScales`, and are fitted to the latest trips as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, NamedTuple

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
    UnknownArmError,
    warn,
)
from superarm.core.inputs import (
    as_count,
    as_features,
    as_number,
    as_positions,
    as_vector,
    is_listed,
    read_only,
    require_choice,
    require_size,
    require_type,
)
from superarm.core.linalg import cholesky, solve_lower
from superarm.core.locks import exclusive
from superarm.core.registry import contradiction, register
from superarm.core.threads import one_blas_thread
from superarm.kernels import GraphMatern
from superarm.posteriors.base import GaussianPosterior, Memory, as_noise
from superarm.roads.energy.scales import Outliers, RoadScales

from .belief import RoadBelief
from .coverage import IntervalCalibration, TrackRecord
from .engine import COLUMNS, EACH, EDGE, STOPS, VEHICLE, RoadEngine
from .fitting import fit_scales
from .log import Borders, Trips
from .names import MOST_VEHICLES, VehicleNames

_TRIPS_KEPT, _ROADS_KEPT = 200, 4000  # scores from which widths are taken
_REBUILD = 64  # trips after which all is computed anew, which clears rounding
_EVALUATIONS = 30
_FLAGGED = 20  # outliers that are remembered
_LEAST, _MOST = 1e-6, 1e9  # of what keys hold: 1 GWh
_FARTHEST = 2.0  # times the outlier limit: the largest score that is remembered
_JUDGED = 100  # trips of a log that are forecast one by one


class Flagged(NamedTuple):
    """A reward that is far from what was expected of it."""

    edges: Ints  # the roads it is the sum of
    reward: float
    score: float  # in standard deviations


@register("posterior", "roads")
class RoadGP(GaussianPosterior, LearnsSums, SelfCalibrating, Resumable):
    """The exact posterior of a fleet's energies; see the module's text for the model.

    ``kernel`` is k_G, with an even ν, ``sizes`` the roads' sizes, (n,). Keys have nine columns: road,
    expected Wh, the terms rolling, time, drag and climb in Wh, each, the variance that signals let
    expect in Wh², and the vehicle's number. One call of ``observe`` or ``observe_sums`` is one trip;
    what is observed with a ``noise_variance`` of its own shares no noise.

    The scales are fitted anew after 4, 8, 16, … trips up to ``refit``, and then every ``refit`` trips;
    0 keeps them. They are fitted to at most ``most`` rewards: those of the latest trips, and as a
    quarter of them the totals of trips before. Scales and widths of intervals depend on the order in
    which trips come; what is believed under given scales does not. ``outliers``: a reward more than
    ``outlier_limit`` standard deviations away from what it should be, given the others of its trip, is
    learned like all others ("keep"), with noise that grows with the square of how far it is ("weigh"),
    or not at all ("refuse"); ``flagged`` holds the last of them.

    Args:
        kernel: K_G: how alike roads are that are near each other; its ν must be even.
        sizes: Wh that each road moves: for rolling, drag and height.
        scales: How wrong energies may be and how much trips differ, before anything is seen; the
            defaults where left out.
        refit: After how many trips scales are fitted anew; before that after 4, 8, 16, … trips; 0
            keeps them.
        most: How many of the latest rewards scales are fitted to.
        outliers: What becomes of rewards that are far from what was expected: learned like all
            others (keep), with more noise (weigh), or not at all (refuse).
        outlier_limit: From how many standard deviations on a reward is far from what it should be,
            given the others of its trip.
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
    ) -> None:
        require_type(kernel, GraphMatern, "kernel")
        if kernel.nu % 2:
            raise InputError(
                f"the kernel's nu is {kernel.nu:g}; it must be even for sparse draws"
            )
        self.kernel, self.sizes = (
            kernel,
            read_only(as_vector(sizes, "sizes", len(kernel))),
        )
        if not (self.sizes >= 0.0).all():
            raise InputError(
                f"sizes holds {self.sizes.min():g}; a road moves 0 Wh or more"
            )
        self.scales = RoadScales() if scales is None else scales
        require_type(self.scales, RoadScales, "scales")
        super().__init__(noise_variance=self.scales.noise**2)
        self.refit, self.most = as_count(refit, "refit", 0), as_count(most, "most", 1)
        require_choice(outliers, "outliers", ("keep", "weigh", "refuse"))
        self.outliers: Outliers = outliers
        self.outlier_limit = as_number(outlier_limit, "outlier_limit", 2.0)
        self._engine = RoadEngine(kernel, self.sizes, self.scales)
        self.flagged: tuple[Flagged, ...] = ()
        self.vehicle_names = VehicleNames()
        """The vehicles that have names; replaced by :meth:`name_vehicles`."""
        self.fits = self.outlying = 0
        self._since = 0  # trips since all was computed anew
        self._untidy = (
            False  # whether a trip was learned after which nothing was tidied up yet
        )
        self._unsaid: str | None = None  # said before the next trip is learned
        self._of_trips, self._of_roads = (
            IntervalCalibration(_TRIPS_KEPT),
            IntervalCalibration(_ROADS_KEPT),
        )

    # --- what it is now --------------------------------------------------------------------

    @property
    def fitted(self) -> RoadScales:
        """The scales as they are now."""
        return self._engine.scales

    @property
    def same_bits(self) -> bool:
        """Unless variances of all roads were asked for, which a state does not hold."""
        return not self._engine.has_variances

    @property
    def trips(self) -> int:
        """Trips learned from."""
        return self._engine.log.view().number

    def name_vehicles(self, names: Iterable[str]) -> None:
        """Remember the numbers of these names, so that no other name takes them."""
        with self._lock:
            self.vehicle_names = self.vehicle_names.having(names)

    def trips_of(self, vehicle: int) -> int:
        """Trips of this vehicle that were learned from."""
        trips = self._engine.log.view()
        return len(np.unique(trips.trip[trips.of[trips.keys[:, VEHICLE] == vehicle]]))

    def holds_motion(self, vehicle: int | None = None) -> bool | None:
        """Whether the latest readings of roads held what is stored in motion; ``None``: there are none.

        Of one vehicle, or of the whole fleet. Totals of trips say nothing about it.
        """
        trips = self._engine.log.view()
        counts = np.bincount(trips.trip, minlength=trips.number)
        asked = counts > 1
        if vehicle is not None:
            mine = trips.trip[trips.of[trips.keys[:, VEHICLE] == vehicle]]
            asked &= np.isin(np.arange(trips.number), mine)
        if not asked.any():
            return None
        latest = int(np.flatnonzero(asked)[-1])
        return latest in trips.trip[trips.borders.last]

    @property
    def visited(self) -> Ints:
        """The roads that were driven on."""
        return self._engine.visited.copy()

    @property
    def held(self) -> TrackRecord:
        """How often the 95 % interval of whole trips held of late."""
        return self._of_trips.held

    def widths(self, keys: Any = None) -> tuple[Floats, Floats]:
        return self._of_roads.widths(), self._of_trips.widths()

    @exclusive
    def noise_cov(self, keys: NDArray[Any]) -> Floats:
        return self._engine.noise(Trips.of_one(self._as_keys(keys)))

    @one_blas_thread
    @exclusive
    def total(self, keys: Any) -> tuple[float, float]:
        """Mean and standard deviation of what these roads cost together on one trip, noise included."""
        rows = self._as_keys(keys)
        whole_trip = Trips.of_one(rows, np.zeros(len(rows), dtype=np.intp))
        expected = self._engine.expect(whole_trip)
        return float(expected.mean[0]), float(
            np.sqrt((expected.cov + expected.noise)[0, 0])
        )

    @one_blas_thread
    @exclusive
    def log_densities(self, trips: Trips, farthest: float = np.inf) -> Floats:
        """The log density of each trip's rewards before any of them is learned, one for each trip.

        Rewards more than ``farthest`` standard deviations away, given those before them on the trip,
        count as that far away.
        """
        trips = self._as_trips(trips.arrays())
        found = np.empty(trips.number)
        for number in range(trips.number):
            trip = trips.between(number, number + 1)
            expected = self._engine.expect(trip)
            factor = cholesky(
                expected.cov + expected.noise, "the covariance of a trip's rewards"
            )
            z = solve_lower(factor, trip.rewards - expected.mean)
            constant = 0.5 * len(z) * np.log(2.0 * np.pi)
            z = np.clip(z, -farthest, farthest)
            found[number] = (
                -0.5 * float(z @ z)
                - float(np.log(np.diagonal(factor)).sum())
                - constant
            )
        return found

    # --- hooks -----------------------------------------------------------------------------

    def keys(self, offer: Offer) -> Floats:
        require_type(offer, Offer, "offer")
        return self._as_keys(offer.arms.features)

    def _as_keys(self, arms: Any) -> Floats:
        keys = as_features(arms, "arms", COLUMNS)
        for column, most, what in (
            (EDGE, len(self.kernel), "roads"),
            (VEHICLE, MOST_VEHICLES, "vehicles"),
        ):
            values = keys[:, column]
            bad = ~((values >= 0.0) & (values < most) & (values == np.floor(values)))
            if bad.any():
                told = (
                    f"row {int(bad.argmax())}, column {column} holds {values[bad][0]!r}"
                )
                raise UnknownArmError(f"{told}; {what} are numbered 0 … {most - 1}")
        if not ((keys[:, EACH] > 0.0) & (keys[:, STOPS] >= 0.0)).all():
            raise InputError(
                "columns 6 and 7 of arms must hold masses above 0 and variances of 0 or more"
            )
        large = np.abs(keys[:, :VEHICLE]).max(initial=0.0) > _MOST
        if large or keys[:, EACH].min(initial=_MOST) < _LEAST:
            raise InputError(
                f"arms hold numbers beyond {_MOST:g}, or masses below {_LEAST:g}; energies are in Wh, "
                "and masses are multiples of Table 2's"
            )
        return keys

    @exclusive
    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        return self._engine.mean_of(keys), self._engine.variance_of(keys)

    @exclusive
    def _mean(self, keys: Floats) -> Floats:
        return self._engine.mean_of(keys)

    @exclusive
    def _covariance(self, keys: Floats, at: Ints | None = None) -> Floats:
        cov = self._engine.expect(Trips.of_one(keys)).cov
        return cov if at is None else cov[at]

    @exclusive
    def _draw(self, keys: Floats, rng: Rng, size: int) -> Floats:
        drawn = np.empty((size, len(keys)))
        for draw in drawn:
            draw[:] = self._engine.draw(keys, rng)
        return drawn

    @exclusive
    def _incumbent(self, sign: float) -> float:
        means = self._engine.mean_of(self._engine.log.view().keys)
        return float((sign * means).max())

    def _prior_scale(self, keys: Floats) -> float:
        untaught = RoadEngine(self.kernel, self.sizes, self.fitted)
        return float(np.diagonal(untaught.expect(Trips.of_one(keys)).cov).max())

    def belief(self, offer: Offer, pending: NDArray[Any] | None = None) -> Any:
        keys = self.keys(offer)
        none = pending is None or (is_listed(pending) and not len(pending))
        return RoadBelief(self, keys, keys[:0] if none else self._as_keys(pending))

    # --- learning --------------------------------------------------------------------------

    def observe_sums(
        self,
        arms: Any,
        sums: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from rewards (r,) that are sums over arms: arm i belongs to reward ``sums[i]``."""
        order = as_positions(sums, "sums")
        keys = self._as_keys(arms)
        numbers = np.unique(order)
        if order.shape != (len(keys),) or not np.array_equal(
            numbers, np.arange(len(numbers))
        ):
            raise InputError(
                "sums must give each arm the number of its reward: 0, 1, 2, …"
            )
        values = as_vector(rewards, "rewards", int(order.max(initial=-1)) + 1)
        require_size(values, "rewards")
        stated = as_noise(noise_variance, len(values))
        with self._lock:
            if len(keys):
                by_sum = np.argsort(order, kind="stable")
                self._take(Trips.of_one(keys[by_sum], order[by_sum], values, stated))

    def observe_trips(self, trips: Trips) -> None:
        """Learn from many trips at once: what a log holds.

        Each is forecast before it is learned, which shows outliers and how forecasts fare. Of more
        than ``2 · 100``, the last 100 come one after another, and so do the first until 100 trips are
        known; those between are forecast and learned together.
        """
        require_type(trips, Trips, "trips")
        trips = self._as_trips(trips.arrays())
        require_size(trips.rewards, "rewards")
        with self._lock:
            again = copy(
                self
            )  # which takes all of them or fails: then nothing was learned
            first, last = (
                trips.number,
                trips.number,
            )  # those between are learned together
            if trips.number > 2 * _JUDGED:
                first, last = max(0, _JUDGED - self.trips), trips.number - _JUDGED
            for at in range(first):
                again._take(trips.between(at, at + 1))
            if first < last:
                again._take_all(trips.between(first, last))
            for at in range(last, trips.number):
                again._take(trips.between(at, at + 1))
            learned = {
                name: value for name, value in vars(again).items() if name != "_turns"
            }
            self.__dict__.update(learned)

    def _as_trips(self, given: Mapping[str, Any]) -> Trips:
        if missing := {*Trips._fields} - {"borders", *given}:
            raise StateError(f"this state is damaged: it lacks {min(missing)!r}")
        keys = self._as_keys(given["keys"])
        of, trip = (as_positions(given[name], name) for name in ("of", "trip"))
        rewards, noise = (as_vector(given[name], name) for name in ("rewards", "noise"))
        borders = Borders.none()
        if "border_size" in given:  # states from before have none
            before = as_positions(given["border_before"], "border_before")
            after = as_positions(given["border_after"], "border_after")
            size = as_vector(given["border_size"], "border_size")
            variance = as_vector(given["border_variance"], "border_variance")
            borders = Borders(before, after, size, variance)
        trips = Trips(
            keys, of, rewards, trip, noise, np.asarray(given["alone"]), borders
        )
        if trips.alone.dtype != np.bool_ or not trips.sound():
            raise InputError(
                "trips must give each arm a reward and each reward a trip, in order, and borders must "
                "lie between neighbours"
            )
        return trips

    @one_blas_thread
    def _take_all(self, trips: Trips) -> None:
        learned, flagged = self._judged(trips)
        before, self._engine = self._engine, self._engine.with_all(learned)
        self.flagged = (*self.flagged, *flagged)[-_FLAGGED:]
        self.outlying += len(flagged)
        self.information_gain += self._engine.information - before.information
        self.count += len(trips.rewards)
        self.version += 1
        self._since = 0
        if self.refit:
            self._refit()

    def _judged(self, trips: Trips) -> tuple[Trips, list[Flagged]]:
        """Trips as they are learned, and their outliers, by what is known before the first of them."""
        learned: list[Trips] = []
        flagged: list[Flagged] = []
        for at in range(trips.number):
            trip = trips.between(at, at + 1)
            expected = self._engine.expect(trip)
            far = self._far(trip.rewards - expected.mean, expected.cov + expected.noise)
            if far.any():
                flagged += self._flagged(trip, far)
                trip = self._without_outliers(trip, far)
            learned.append(trip)
        return Trips.joined(learned), flagged

    def _absorb(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        own = None if (noise == self.noise_variance).all() else noise
        return self._learn(Trips.of_one(keys, None, rewards, own))

    @one_blas_thread
    def _take(self, trip: Trips) -> None:
        self.information_gain += self._learn(trip)
        self.count += len(trip.rewards)
        self.version += 1
        self._after_observing()

    def _learn(self, trip: Trips) -> float:
        message, self._unsaid = self._unsaid, None
        if (
            message is not None
        ):  # found when a trip had been learned already, and nothing may fail
            warn(message, PrecisionWarning)
        expected = self._engine.expect(trip)
        away = trip.rewards - expected.mean
        covariance = expected.cov + expected.noise
        scores = np.abs(away) / np.sqrt(np.diagonal(covariance))
        far = self._far(away, covariance)
        outlying = far > self.outlier_limit
        learned = expected
        flagged: tuple[Flagged, ...] = ()
        if outlying.any() and self.trips:
            flagged = self._flagged(trip, far)
            trip = self._without_outliers(trip, far)
            kept = (
                ~outlying
                if self.outliers == "refuse"
                else np.ones(len(far), dtype=np.bool_)
            )
            learned = expected.only(kept, self._engine.noise(trip))
        gained = self._engine.absorb(trip, learned) if len(trip.rewards) else 0.0
        # From here on nothing can fail: what was forecast is judged, whether it was learned or refused.
        # What counts as a slip of the meter is a miss, but does not say how wide intervals must be.
        most = np.inf if self.outliers == "keep" else _FARTHEST * self.outlier_limit
        of_trip = np.array([abs(away.sum()) / np.sqrt(covariance.sum())])
        self._of_trips.judge(np.minimum(of_trip, most))
        if len(away) > 1:
            self._of_roads.judge(np.minimum(scores, most))
        self.flagged = (*self.flagged, *flagged)[-_FLAGGED:]
        self.outlying += len(flagged)
        if len(trip.rewards):
            self._since += 1
            self._untidy = True
        return gained

    def _after_observing(self) -> None:
        # Once the trip is in and counted: an interrupted fit loses nothing of it.
        if self._untidy:
            self._untidy = False
            self._tidy()

    def _far(self, away: Floats, covariance: Floats) -> Floats:
        """How far each reward is from what the others of its trip let expect, in its std.

        Worst first: of an outlier its neighbours are not judged by, or it would make outliers of them.
        """
        far, left = np.zeros(len(away)), np.arange(len(away))
        while len(left):
            try:
                inverse = np.linalg.inv(covariance[np.ix_(left, left)])
            except np.linalg.LinAlgError:
                raise NotPositiveDefiniteError(
                    "the covariance of a trip's rewards cannot be inverted; arms differ by too many "
                    "orders of magnitude"
                ) from None
            scores = np.abs(inverse @ away[left]) / np.sqrt(np.diagonal(inverse))
            worst = int(np.argmax(scores))
            if not scores[worst] > self.outlier_limit:
                break
            far[left[worst]] = scores[worst]
            left = np.delete(left, worst)
        return far

    def _flagged(self, trip: Trips, far: Floats) -> tuple[Flagged, ...]:
        edges = trip.keys[:, EDGE].astype(np.intp)
        return tuple(
            Flagged(edges[trip.of == at], float(trip.rewards[at]), float(far[at]))
            for at in np.flatnonzero(far > self.outlier_limit).tolist()
        )

    def _without_outliers(self, trip: Trips, far: Floats) -> Trips:
        limit = self.outlier_limit
        outlying = far > limit
        if self.outliers == "refuse":
            return trip.without(outlying)
        if self.outliers == "keep":
            return trip
        noise = self._engine.own_noise(trip) * (far / limit) ** 2
        if (
            trip.borders
        ):  # a reward that its neighbours' motion cannot explain is one's own slip
            noise += (
                np.diagonal(trip.across(self._engine.border_variance(trip)))
                * (far / limit) ** 2
            )
        return trip._replace(noise=np.where(outlying, noise, trip.noise))

    def _tidy(self) -> None:
        """Fit the scales where it is time, and clear rounding; where that fails, all stays as it is."""
        trips = self.trips
        doubled = trips >= 4 and trips & (trips - 1) == 0
        try:
            if self.refit and (
                doubled if trips < self.refit else trips % self.refit == 0
            ):
                self._refit()
            elif self._since >= _REBUILD:
                self._engine, self._since = self._engine.rebuild(self.fitted), 0
        except (
            NotPositiveDefiniteError,
            JitterWarning,
        ) as error:  # a warning may be made an error
            self._unsaid = f"scales and rounding stay as they are: {error}"[:300]

    @one_blas_thread
    def fit(self) -> None:
        """Fit the scales to the latest trips now."""
        with self._lock:
            if self.trips:
                self._refit()
                self.version += 1

    def _refit(self) -> None:
        latest = self._engine.log.view().latest(self.most)
        scales = fit_scales(self._engine, latest, self.scales, _EVALUATIONS)
        self._engine, self._since, self.fits = (
            self._engine.rebuild(scales),
            0,
            self.fits + 1,
        )
        self.noise_variance, self.noise_std = scales.noise**2, scales.noise

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        arrays = {**self._engine.log.view().arrays(), "fitted": self.fitted.as_vector()}
        arrays |= self._of_trips.arrays("trips") | self._of_roads.arrays("roads")
        arrays |= self._engine.arrays()
        counts = {"fits": self.fits, "outlying": self.outlying, "since": self._since}
        named = {"vehicle_names": self.vehicle_names.as_json()}
        return Memory(
            arrays, {**counts, **named, "information": self._engine.information}
        )

    def _remember(self, state: State) -> None:
        trips = self._as_trips(state.arrays)
        # Older states know vehicles by the numbers of their names alone.
        self.vehicle_names = VehicleNames.from_json(
            state.scalars.get("vehicle_names", {})
        )
        names = ("fits", "outlying", "since")
        self.fits, self.outlying, self._since = (
            as_count(state.scalar(name), name, 0) for name in names
        )
        fitted = as_vector(state.array("fitted"), "fitted")
        if "border_size" in state.arrays and len(fitted) != len(
            self.scales.as_vector()
        ):
            raise StateError(
                f"this state is damaged: it has {len(fitted)} fitted scales"
            )
        scales = RoadScales.of(
            fitted, like=self.scales
        )  # states from before motion have fewer
        self.noise_variance, self.noise_std = scales.noise**2, scales.noise
        self._engine = RoadEngine(self.kernel, self.sizes, scales)
        if contradiction(self, state.spec):  # of another kernel all is computed anew
            self._engine = RoadEngine.of(self.kernel, self.sizes, scales, trips)
        elif len(trips.rewards):
            self._engine.remember(trips, state)
            self._engine.information = as_number(
                state.scalar("information"), "information", 0.0
            )
        for name, coverage in (("trips", self._of_trips), ("roads", self._of_roads)):
            coverage.remember(state, name)
