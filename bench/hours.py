"""Rush hours: fleets that learn a profile over the day, beside fleets that ignore the hour, in SUMO.

A day has three levels of demand (:data:`LEVEL_OF_HOUR`). In each of two cities, a few vehicles drive
between the same places all day, by the fastest route on empty roads. Two fleets learn the same log, one
with hours and one without, and then forecast trips of other moments of the same traffic: the energy of
each, and how long it takes. Nothing is timed here; ``bench/hours_picture.py`` draws a road's profile.

With SUPERARM_BENCH_DRIVES, a folder, drives are cached there: they take most of the time.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import time
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import AT_95, Bools, Floats, Ints
from superarm.core.streams import stream
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import DurationScales, RoadScales, Vehicle
from superarm.roads.fleets import Lesson, LoggedTrip, TripSection, learn_trips
from superarm.roads.fleets.metering import examine_trip
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP, Trips
from superarm.roads.problems.fleet_model import (
    duration_rows,
    near_kernel,
    road_rows,
    road_sizes,
)
from superarm.roads.problems.fleet_vehicles import draw_fleet
from superarm.roads.problems.road_loading import load_roads
from superarm.roads.problems.sumo import network_file
from superarm.roads.routing.energy_beliefs import RouteParts
from superarm.roads.routing.learned_energies import FleetEnergies, read_learned
from superarm.roads.rows import COLUMNS
from superarm.roads.sumo import Drive, Driver, Traffic

from .measure import Results


class Level(IntEnum):
    """Levels of demand."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name.lower()


def _levels_of_day() -> Iterator[Level]:
    """Rush hours from 7 to 9 and from 16 to 19; little traffic from 22 to 6."""
    for hour in range(24):
        if 7 <= hour < 9 or 16 <= hour < 19:
            yield Level.HIGH
        elif hour < 6 or hour >= 22:
            yield Level.LOW
        else:
            yield Level.MEDIUM


LEVEL_OF_HOUR = tuple(_levels_of_day())
_HOURS_A_BAND = 3
_MOMENTS = 12  # of each level that can be used, a minute apart
_WARM_UP = 900.0  # s
_VEHICLES = 8
PER_HOUR = 12  # trips of the log, and as many that are forecast
_PLACES = 7
_ROUTES = 8
_LEAST_SECONDS = 90.0  # of a trip on empty roads
_LOAD = 200.0  # kg, at most
_LEAST_LOGGED_SECONDS = 0.1
_SECONDS_AN_HOUR = 3600.0


def half_moments() -> tuple[range, range]:
    """The moments of the trips that are learned, and of those that are forecast."""
    learned = range(3)
    forecast = range(3, 6)
    return learned, forecast


class City(NamedTuple):
    """A city, and how many cars an hour depart in its middle at each level."""

    name: str
    reach: float  # metres around the middle between which trips and traffic go
    per_hour: Mapping[Level, float]


CITIES = (
    City(
        name="monaco",
        reach=700.0,
        per_hour={Level.LOW: 150.0, Level.MEDIUM: 800.0, Level.HIGH: 1500.0},
    ),
    City(
        name="luxembourg",
        reach=1200.0,
        per_hour={Level.LOW: 300.0, Level.MEDIUM: 2000.0, Level.HIGH: 4000.0},
    ),
)


class DrivenTrip(NamedTuple):
    """A trip that arrived."""

    route: Ints
    hour: float
    vehicle: int
    energies: Floats  # Wh of each edge, without what is stored in motion
    seconds: Floats


class _DriveKey(NamedTuple):
    """What a drive depends on."""

    level: Level
    route: int
    moment: int


class _PlannedTrip(NamedTuple):
    """A trip before it is driven."""

    hour: float
    route: int
    moment: int
    vehicle: int
    load: float  # kg more than usual

    @property
    def drive_key(self) -> _DriveKey:
        """What its drive depends on."""
        level = LEVEL_OF_HOUR[int(self.hour)]
        return _DriveKey(level, self.route, self.moment)


class Forecast(NamedTuple):
    """A fleet's forecast of a trip, with half-widths of 95 % intervals."""

    energy: float
    energy_spread: float
    seconds: float
    seconds_spread: float


class World:
    """A city, its traffic and the trips of a fleet.

    Args:
        city: Which city.
        seed: Of places, vehicles and traffic.
    """

    def __init__(self, city: City, seed: int = 0) -> None:
        self.city = city
        self.seed = seed
        roads = load_roads(city.name, uturns="dead-ends", junctions=True)
        self.graph: LineGraph = roads.graph
        self.fleet = draw_fleet(seed, _VEHICLES, variety=0.2, payload=_LOAD)
        self._near = self._edges_near()
        self.routes = self._draw_routes()
        self._drivers = {level: self._driver(level) for level in Level}

    def _edges_near(self) -> Ints:
        network = self.graph.network
        ends = network.head[self.graph.edges]
        x, y = network.junctions[ends, :2].T
        distance = np.hypot(x - np.median(x), y - np.median(y))
        return np.flatnonzero(distance < self.city.reach)

    def _draw_routes(self) -> list[Ints]:
        """The fastest routes between some places, without those that are too short."""
        graph = self.graph
        rng = stream(self.seed, "places", 0)
        places = rng.choice(self._near, _PLACES, replace=False).tolist()
        oracle = ShortestPath(successors=graph.turn_graph)
        routes = []
        for start, goal in itertools.permutations(places, 2):
            trip = Trip(start=start, goal=goal, turn_costs=graph.turn_seconds)
            route = oracle.select(-graph.travel_time, trip, rng).positions
            if graph.travel_time[route].sum() >= _LEAST_SECONDS:
                routes.append(np.asarray(route))
        every = max(1, len(routes) // _ROUTES)
        return routes[::every][:_ROUTES]

    def _driver(self, level: Level) -> Driver:
        traffic = Traffic(
            vehicles_per_hour=self.city.per_hour[level],
            edges=tuple(self.graph.ids[edge] for edge in self._near),
            moments=_MOMENTS,
            warm_up=_WARM_UP,
        )
        folder = os.environ.get("SUPERARM_BENCH_DRIVES")
        cache = None
        if folder:
            cache = Path(folder) / f"{self.city.name}-{level.label}.sqlite"
        return Driver(
            network_file(self.city.name, heights=True),
            traffic=traffic,
            seed=self.seed,
            cache=cache,
        )

    def close(self) -> None:
        """Close all simulations."""
        for driver in self._drivers.values():
            driver.close()

    def trips(self, role: str, per_hour: int, moments: range) -> list[DrivenTrip]:
        """Drive trips at all hours, in random order; those that do not arrive are left out.

        Args:
            role: Names the stream of random numbers.
            per_hour: How many trips begin in each hour.
            moments: The moments of the traffic at which they may begin.
        """
        planned = self._plan(role, per_hour, moments)
        drives = self._drive({trip.drive_key for trip in planned})
        driven = []
        for trip in planned:
            drive = drives[trip.drive_key]
            if not drive.arrived:
                continue
            usual = self.fleet[trip.vehicle]
            loaded = replace(usual, mass=usual.mass + trip.load)
            driven_trip = DrivenTrip(
                route=self.routes[trip.route],
                hour=trip.hour,
                vehicle=trip.vehicle,
                energies=drive.energies(loaded) - drive.stored(loaded),
                seconds=drive.seconds,
            )
            driven.append(driven_trip)
        return driven

    def _plan(self, role: str, per_hour: int, moments: range) -> list[_PlannedTrip]:
        rng = stream(self.seed, role, 0)
        hours = np.tile(np.arange(24.0), per_hour) + rng.random(24 * per_hour)
        planned = []
        for hour in rng.permutation(hours).tolist():
            trip = _PlannedTrip(
                hour=hour,
                route=int(rng.integers(len(self.routes))),
                moment=int(rng.choice(np.array(moments))),
                vehicle=int(rng.integers(_VEHICLES)),
                load=float(rng.uniform(-0.5, 0.5)) * _LOAD,
            )
            planned.append(trip)
        return planned

    def _drive(self, keys: Iterable[_DriveKey]) -> dict[_DriveKey, Drive]:
        """Drive in SUMO level by level: it holds one simulation at a time."""
        drives: dict[_DriveKey, Drive] = {}
        for key in sorted(keys):
            ids = [self.graph.ids[edge] for edge in self.routes[key.route]]
            driver = self._drivers[key.level]
            drives[key] = driver.drive(ids, moment=key.moment)
        return drives

    def logged(self, number: int, trip: DrivenTrip) -> LoggedTrip:
        """A trip as a log has it, with times.

        Args:
            number: Names the trip.
            trip: The trip.
        """
        ends = np.cumsum(trip.seconds)
        hours = trip.hour + (ends - trip.seconds) / _SECONDS_AN_HOUR
        values = zip(
            trip.route.tolist(),
            trip.energies.tolist(),
            hours.tolist(),
            trip.seconds.tolist(),
            strict=True,
        )
        sections = [
            TripSection(
                (self.graph.ids[edge],),
                energy,
                hour=hour % 24.0,
                seconds=max(seconds, _LEAST_LOGGED_SECONDS),
            )
            for edge, energy, hour, seconds in values
        ]
        return LoggedTrip(
            name=str(number),
            vehicle=vehicle_name(trip.vehicle),
            sections=tuple(sections),
        )

    def vehicles(self) -> dict[str, Vehicle]:
        """The vehicles by name."""
        return {
            vehicle_name(number): vehicle for number, vehicle in enumerate(self.fleet)
        }


def vehicle_name(number: int) -> str:
    """The name of a vehicle in logs.

    Args:
        number: Its place in the fleet.
    """
    return f"van-{number}"


# --- two fleets ----------------------------------------------------------------------------


class _SourceKey(NamedTuple):
    """What the energies of a router depend on."""

    vehicle: int
    hours: bool


class Fleets:
    """A fleet with hours and one without, which have learned the same log.

    Args:
        world: Where.
        log: The trips that they learn.
    """

    def __init__(self, world: World, log: Sequence[LoggedTrip]) -> None:
        self.world = world
        self._lesson_without = self._learn(log, hours=False)
        self._lesson_with = self._learn(log, hours=True)
        self.with_hours = self._lesson_with.posterior
        self._sources: dict[_SourceKey, FleetEnergies] = {}
        self._durations = self._durations_without_hours(log)

    def _learn(self, log: Sequence[LoggedTrip], *, hours: bool) -> Lesson:
        vehicles = self.world.vehicles()
        return learn_trips(
            self.world.graph, log, vehicles=vehicles, energy="net", hours=hours
        )

    def _durations_without_hours(self, log: Sequence[LoggedTrip]) -> RoadGP:
        """How long roads take at any hour: the model with hours, less the hours."""
        graph = self.world.graph
        vehicles = self.world.vehicles()
        names = self.with_hours.vehicle_names
        without_hours = len(RoadScales().as_vector())
        duration_scales = DurationScales().as_vector()
        scales = RoadScales.from_vector(duration_scales[:without_hours])
        durations = RoadGP(near_kernel(graph), road_sizes(graph), scales=scales)
        trips = []
        for trip in log:
            number = names.number(trip.vehicle)
            vehicle = vehicles[trip.vehicle]
            examined = examine_trip(graph, self.with_hours, trip, vehicle, number, True)
            assert examined.durations is not None
            keys = examined.durations.keys[:, :COLUMNS]
            trips.append(examined.durations._replace(keys=keys))
        durations.observe_trips(Trips.joined(trips))
        return durations

    def forecast(self, trip: DrivenTrip, *, hours: bool) -> Forecast:
        """Forecast a trip before it begins.

        Args:
            trip: Of which only the route, the hour and the vehicle are used.
            hours: Whether the fleet has hours.
        """
        source = self._source(_SourceKey(trip.vehicle, hours))
        turns = self.world.graph.turn_numbers(trip.route)
        energies = source.energies(_time_of_day(trip.hour) if hours else None)
        turn_energy = float(energies.turn_costs[turns].sum())
        edges = np.ones(len(trip.route))
        parts = RouteParts(trip.route, edges, edges)
        spread = energies.spread(parts)
        if energies.along is not None:
            along = energies.along(parts)
            assert along.seconds is not None
            assert along.seconds_spread is not None
            energy = float(along.means.sum()) + turn_energy
            return Forecast(energy, spread, along.seconds, along.seconds_spread)

        energy = float(energies.mean[trip.route].sum()) + turn_energy
        turn_seconds = float(self.world.graph.turn_seconds[turns].sum())
        rows = duration_rows(self.world.graph, self._rows(trip))
        mean, std = self._durations.total(rows)
        _, widths = self._durations.widths()
        return Forecast(
            energy=energy,
            energy_spread=spread,
            seconds=turn_seconds + mean,
            seconds_spread=float(widths[AT_95]) * std,
        )

    def _rows(self, trip: DrivenTrip) -> Floats:
        names = self.with_hours.vehicle_names
        number = names.number(vehicle_name(trip.vehicle))
        vehicle = self.world.fleet[trip.vehicle]
        return road_rows(self.world.graph, vehicle, number, trip.route)

    def _source(self, key: _SourceKey) -> FleetEnergies:
        if key not in self._sources:
            self._sources[key] = self._make_source(key)
        return self._sources[key]

    def _make_source(self, key: _SourceKey) -> FleetEnergies:
        lesson = self._lesson_with if key.hours else self._lesson_without
        state = lesson.policy.state()
        vehicle = self.world.fleet[key.vehicle]
        source = read_learned(state, vehicle, vehicle_name(key.vehicle), None)
        assert isinstance(source, FleetEnergies)
        source.on(self.world.graph)
        return source


def _time_of_day(hour: float) -> time:
    hours, minutes = divmod(int(60.0 * hour), 60)
    return time(hours, minutes)


# --- what is measured ----------------------------------------------------------------------


class Quantity(IntEnum):
    """Columns of forecasts."""

    ENERGY = 0  # Wh
    SECONDS = 1


class ForecastErrors(NamedTuple):
    """Forecasts of trips against what they took; one row for each trip."""

    hours: Floats  # (t,)
    errors: Floats  # forecast less what it took, (t, len(Quantity))
    took: Floats  # (t, len(Quantity))
    inside: Floats  # 1 if it is inside the 95 % interval, (t, len(Quantity))

    def summary(self, chosen: Bools) -> dict[str, float]:
        """Errors and coverage of some of the trips.

        Args:
            chosen: Which, (t,).
        """
        errors = self.errors[chosen]
        rmse = np.sqrt(np.mean(np.square(errors), axis=0))
        bias = errors.mean(axis=0)
        mean = self.took[chosen].mean(axis=0)
        inside = self.inside[chosen].mean(axis=0)
        return {
            "trips": int(np.count_nonzero(chosen)),
            "energy_rmse_wh": float(rmse[Quantity.ENERGY]),
            "energy_bias_wh": float(bias[Quantity.ENERGY]),
            "energy_mean_wh": float(mean[Quantity.ENERGY]),
            "energy_inside": float(inside[Quantity.ENERGY]),
            "time_rmse_s": float(rmse[Quantity.SECONDS]),
            "time_bias_s": float(bias[Quantity.SECONDS]),
            "time_mean_s": float(mean[Quantity.SECONDS]),
            "time_inside": float(inside[Quantity.SECONDS]),
        }


def forecast_errors(
    fleets: Fleets, trips: Sequence[DrivenTrip], *, hours: bool
) -> ForecastErrors:
    """Forecast trips with one of the fleets.

    Args:
        fleets: Both.
        trips: Trips that they did not learn.
        hours: Which fleet.
    """
    errors = np.empty((len(trips), len(Quantity)))
    took = np.empty_like(errors)
    spreads = np.empty_like(errors)
    for index, trip in enumerate(trips):
        forecast = fleets.forecast(trip, hours=hours)
        took[index, Quantity.ENERGY] = trip.energies.sum()
        took[index, Quantity.SECONDS] = trip.seconds.sum()
        errors[index, Quantity.ENERGY] = forecast.energy
        errors[index, Quantity.SECONDS] = forecast.seconds
        spreads[index, Quantity.ENERGY] = forecast.energy_spread
        spreads[index, Quantity.SECONDS] = forecast.seconds_spread
    errors -= took
    return ForecastErrors(
        hours=np.array([trip.hour for trip in trips]),
        errors=errors,
        took=took,
        inside=(np.abs(errors) <= spreads).astype(np.float64),
    )


def by_hour(trips: ForecastErrors) -> dict[str, Any]:
    """Summaries of all trips, of those at each level of demand, and of each band of hours.

    Args:
        trips: Their forecasts.
    """
    hours = trips.hours
    levels = np.array(LEVEL_OF_HOUR)[hours.astype(int)]
    summaries: dict[str, Any] = {"all": trips.summary(hours >= 0.0)}
    for level in Level:
        summaries[level.label] = trips.summary(levels == level)
    for first in range(0, 24, _HOURS_A_BAND):
        last = first + _HOURS_A_BAND
        in_band = (hours >= first) & (hours < last)
        summaries[f"{first:02d}–{last:02d}"] = trips.summary(in_band)
    return summaries


class Comparison(NamedTuple):
    """Both fleets of one city, and the errors of their forecasts."""

    fleets: Fleets
    log: list[DrivenTrip]
    facts: dict[str, Any]


def compare(city: City, per_hour: int) -> Comparison:
    """Errors and coverage of both fleets in a city.

    Args:
        city: Which city.
        per_hour: How many trips of each hour are learned, and how many are forecast.
    """
    world = World(city)
    learned_moments, forecast_moments = half_moments()
    log = world.trips("log", per_hour, learned_moments)
    unseen = world.trips("unseen", per_hour, forecast_moments)
    world.close()
    logged = [world.logged(number, trip) for number, trip in enumerate(log)]
    fleets = Fleets(world, logged)
    with_hours = forecast_errors(fleets, unseen, hours=True)
    without = forecast_errors(fleets, unseen, hours=False)
    facts = {
        "trips_learned": len(log),
        "roads_visited": len(fleets.with_hours.visited),
        "cars_an_hour": {level.label: city.per_hour[level] for level in Level},
        "with hours": by_hour(with_hours),
        "without": by_hour(without),
    }
    return Comparison(fleets, log, facts)


def run(*, quick: bool, repeats: int | None) -> Results:
    """Errors and coverage of both fleets in both cities.

    Args:
        quick: Whether to drive a few trips in one city only.
        repeats: Not used: nothing is timed.
    """
    per_hour = 2 if quick else PER_HOUR
    cities = CITIES[:1] if quick else CITIES
    facts = {city.name: compare(city, per_hour).facts for city in cities}
    return Results(suite="hours", rows=[], facts=facts)
