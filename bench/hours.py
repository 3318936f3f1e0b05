"""Rush hours: fleets that learn a profile over the day, beside fleets that ignore the hour, in SUMO.

A day has three levels of demand (:data:`LEVEL_OF_HOUR`). In each of two cities, a few vehicles drive
between the same places all day, by the fastest route on empty roads. Two fleets learn the same log, one
with hours and one without, and then forecast trips of other moments of the same traffic: the energy of
each, and how long it takes. Nothing is timed here; ``bench/hours_picture.py`` draws a road's profile.

With SUPERARM_BENCH_DRIVES, a folder, drives are cached there: they take most of the time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import AT_95, Floats, Ints
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

LOW, MEDIUM, HIGH = 0, 1, 2
LEVELS = ("low", "medium", "high")
# Rush hours from 7 to 9 and from 16 to 19; little traffic from 22 to 6.
LEVEL_OF_HOUR = (
    *(LOW,) * 6,
    *(MEDIUM,),
    *(HIGH,) * 2,
    *(MEDIUM,) * 7,
    *(HIGH,) * 3,
    *(MEDIUM,) * 3,
    *(LOW,) * 2,
)
BANDS = tuple((first, first + 3) for first in range(0, 24, 3))
_MOMENTS = 12  # of each level that can be used, a minute apart
_WARM_UP = 900.0  # s
_VEHICLES = 8
PER_HOUR = 12  # trips of the log, and as many that are forecast
_PLACES = 7
_ROUTES = 8
_LEAST_SECONDS = 90.0  # of a trip on empty roads
_LOAD = 200.0  # kg, at most


def half_moments() -> tuple[range, range]:
    """The moments of the trips that are learned, and of those that are forecast."""
    return range(3), range(3, 6)


class City(NamedTuple):
    """A city, and how many cars an hour depart in its middle at each level."""

    name: str
    reach: float  # metres around the middle between which trips and traffic go
    per_hour: tuple[float, float, float]


CITIES = (
    City("monaco", 700.0, (150.0, 800.0, 1500.0)),
    City("luxembourg", 1200.0, (300.0, 2000.0, 4000.0)),
)


class Driven(NamedTuple):
    """A trip as it was driven."""

    route: Ints
    hour: float
    vehicle: int
    energies: Floats  # Wh of each edge, without what is stored in motion
    seconds: Floats


class _DriveKey(NamedTuple):
    """What a drive depends on."""

    level: int
    route: int
    moment: int


class _Planned(NamedTuple):
    """A trip before it is driven."""

    hour: float
    route: int
    moment: int
    vehicle: int
    load: float  # kg more than usual

    @property
    def drive(self) -> _DriveKey:
        """The drive that it is."""
        return _DriveKey(LEVEL_OF_HOUR[int(self.hour)], self.route, self.moment)


class Forecast(NamedTuple):
    """What a fleet expects of a trip, with half-widths of 95 % intervals."""

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
        self._drivers = [self._driver(level) for level in range(len(LEVELS))]

    def _edges_near(self) -> Ints:
        network = self.graph.network
        x, y = network.junctions[network.head[self.graph.edges], :2].T
        distance = np.hypot(x - np.median(x), y - np.median(y))
        return np.flatnonzero(distance < self.city.reach)

    def _draw_routes(self) -> list[Ints]:
        """The fastest routes between some places, those too short left out."""
        graph = self.graph
        rng = stream(self.seed, "places", 0)
        places = rng.choice(self._near, _PLACES, replace=False).tolist()
        oracle = ShortestPath(successors=graph.turn_graph)
        routes = []
        for start in places:
            for goal in places:
                if start == goal:
                    continue
                trip = Trip(start=start, goal=goal, turn_costs=graph.turn_seconds)
                route = oracle.select(-graph.travel_time, trip, rng).positions
                if graph.travel_time[route].sum() >= _LEAST_SECONDS:
                    routes.append(np.asarray(route))
        return routes[:: max(1, len(routes) // _ROUTES)][:_ROUTES]

    def _driver(self, level: int) -> Driver:
        traffic = Traffic(
            vehicles_per_hour=self.city.per_hour[level],
            edges=tuple(self.graph.ids[edge] for edge in self._near),
            moments=_MOMENTS,
            warm_up=_WARM_UP,
        )
        folder = os.environ.get("SUPERARM_BENCH_DRIVES")
        cache = None
        if folder:
            cache = Path(folder) / f"{self.city.name}-{LEVELS[level]}.sqlite"
        return Driver(
            network_file(self.city.name, heights=True),
            traffic=traffic,
            seed=self.seed,
            cache=cache,
        )

    def close(self) -> None:
        """Close all simulations."""
        for driver in self._drivers:
            driver.close()

    def trips(self, role: str, per_hour: int, moments: range) -> list[Driven]:
        """Trips at all hours, in random order; those that do not arrive are left out.

        Args:
            role: Names the stream of random numbers.
            per_hour: How many trips begin in each hour.
            moments: The moments of the traffic at which they may begin.
        """
        rng = stream(self.seed, role, 0)
        hours = np.tile(np.arange(24.0), per_hour) + rng.random(24 * per_hour)
        planned = []
        for hour in rng.permutation(hours).tolist():
            trip = _Planned(
                hour=hour,
                route=int(rng.integers(len(self.routes))),
                moment=int(rng.choice(np.array(moments))),
                vehicle=int(rng.integers(_VEHICLES)),
                load=float(rng.uniform(-0.5, 0.5)) * _LOAD,
            )
            planned.append(trip)
        # Level by level: SUMO holds one simulation at a time.
        drives: dict[_DriveKey, Drive] = {}
        for key in sorted({trip.drive for trip in planned}):
            ids = [self.graph.ids[edge] for edge in self.routes[key.route]]
            driver = self._drivers[key.level]
            drives[key] = driver.drive(ids, moment=key.moment)
        driven = []
        for trip in planned:
            drive = drives[trip.drive]
            if not drive.arrived:
                continue
            own = self.fleet[trip.vehicle]
            own = replace(own, mass=own.mass + trip.load)
            energies = drive.energies(own) - drive.stored(own)
            route = self.routes[trip.route]
            driven.append(
                Driven(route, trip.hour, trip.vehicle, energies, drive.seconds)
            )
        return driven

    def logged(self, number: int, trip: Driven) -> LoggedTrip:
        """A trip as a log has it, with times.

        Args:
            number: Names the trip.
            trip: The trip.
        """
        begins = trip.hour + (np.cumsum(trip.seconds) - trip.seconds) / 3600.0
        sections = [
            TripSection(
                (self.graph.ids[edge],),
                energy,
                hour=begin % 24.0,
                seconds=max(seconds, 0.1),
            )
            for edge, energy, begin, seconds in zip(
                trip.route.tolist(),
                trip.energies.tolist(),
                begins.tolist(),
                trip.seconds.tolist(),
                strict=True,
            )
        ]
        return LoggedTrip(
            name=str(number),
            vehicle=vehicle_name(trip.vehicle),
            sections=tuple(sections),
        )

    def vehicles(self) -> dict[str, Vehicle]:
        """The vehicles by name."""
        return {vehicle_name(number): own for number, own in enumerate(self.fleet)}


def vehicle_name(number: int) -> str:
    return f"van-{number}"


# --- two fleets ----------------------------------------------------------------------------


class Fleets:
    """A fleet with hours and one without, which have learned the same log.

    Args:
        world: Where.
        log: What they learn.
    """

    def __init__(self, world: World, log: Sequence[LoggedTrip]) -> None:
        self.world = world
        learned: dict[bool, Lesson] = {}
        for hours in (False, True):
            learned[hours] = learn_trips(
                world.graph, log, vehicles=world.vehicles(), energy="net", hours=hours
            )
        self.with_hours = learned[True].posterior
        self._lessons = learned
        self._sources: dict[tuple[int, bool], FleetEnergies] = {}
        self._durations = self._durations_without_hours(log)

    def _durations_without_hours(self, log: Sequence[LoggedTrip]) -> RoadGP:
        """How long roads take at any hour: the model with hours, less the hours."""
        graph = self.world.graph
        of_day = DurationScales().as_vector()[: len(RoadScales().as_vector())]
        scales = RoadScales.from_vector(of_day)
        durations = RoadGP(near_kernel(graph), road_sizes(graph), scales=scales)
        trips = []
        names = self.with_hours.vehicle_names
        for trip in log:
            number = names.number(trip.vehicle)
            own = self.world.vehicles()[trip.vehicle]
            examined = examine_trip(graph, self.with_hours, trip, own, number, True)
            assert examined.durations is not None
            timed = examined.durations
            trips.append(timed._replace(keys=timed.keys[:, :COLUMNS]))
        durations.observe_trips(Trips.joined(trips))
        return durations

    def forecast(self, trip: Driven, *, hours: bool) -> Forecast:
        """What one of them expects of a trip before it begins.

        Args:
            trip: Of which only the route, the hour and the vehicle are used.
            hours: Whether the fleet has hours.
        """
        source = self._source(trip.vehicle, hours=hours)
        parts = RouteParts(
            trip.route, np.ones(len(trip.route)), np.ones(len(trip.route))
        )
        turns = self.world.graph.turn_numbers(trip.route)
        minutes = int(60.0 * trip.hour)
        when = time(minutes // 60, minutes % 60)
        energies = source.energies(when if hours else None)
        of_turns = float(energies.turn_costs[turns].sum())
        spread = energies.spread(parts)
        if energies.along is not None:
            along = energies.along(parts)
            assert along.seconds is not None
            assert along.seconds_spread is not None
            energy = float(along.means.sum()) + of_turns
            return Forecast(energy, spread, along.seconds, along.seconds_spread)
        energy = float(energies.mean[trip.route].sum()) + of_turns
        seconds = float(self.world.graph.turn_seconds[turns].sum())
        rows = duration_rows(self.world.graph, self._rows(trip))
        mean, std = self._durations.total(rows)
        _, widths = self._durations.widths()
        return Forecast(energy, spread, seconds + mean, float(widths[AT_95]) * std)

    def _rows(self, trip: Driven) -> Floats:
        names = self.with_hours.vehicle_names
        number = names.number(vehicle_name(trip.vehicle))
        own = self.world.fleet[trip.vehicle]
        return road_rows(self.world.graph, own, number, trip.route)

    def _source(self, vehicle: int, *, hours: bool) -> FleetEnergies:
        if (vehicle, hours) in self._sources:
            return self._sources[vehicle, hours]
        state = self._lessons[hours].policy.state()
        own = self.world.fleet[vehicle]
        source = read_learned(state, own, vehicle_name(vehicle), None)
        assert isinstance(source, FleetEnergies)
        source.on(self.world.graph)
        self._sources[vehicle, hours] = source
        return source


# --- what is measured ----------------------------------------------------------------------


class Judged(NamedTuple):
    """Forecasts of trips against what they took; one row for each trip."""

    hours: Floats  # (t,)
    errors: Floats  # forecast less what it took: Wh, s, (t, 2)
    took: Floats  # (t, 2)
    inside: Floats  # 1 where the 95 % interval held it, (t, 2)

    def of(self, chosen: Any) -> dict[str, float]:
        """Errors and coverage of some of the trips.

        Args:
            chosen: Which, (t,).
        """
        energy, seconds = np.sqrt(np.mean(np.square(self.errors[chosen]), axis=0))
        bias = self.errors[chosen].mean(axis=0)
        mean = self.took[chosen].mean(axis=0)
        inside = self.inside[chosen].mean(axis=0)
        return {
            "trips": int(np.count_nonzero(chosen)),
            "energy_rmse_wh": float(energy),
            "energy_bias_wh": float(bias[0]),
            "energy_mean_wh": float(mean[0]),
            "energy_inside": float(inside[0]),
            "time_rmse_s": float(seconds),
            "time_bias_s": float(bias[1]),
            "time_mean_s": float(mean[1]),
            "time_inside": float(inside[1]),
        }


def judge(fleets: Fleets, trips: Sequence[Driven], *, hours: bool) -> Judged:
    """Forecast trips with one of the fleets.

    Args:
        fleets: Both.
        trips: What they did not learn.
        hours: Which fleet.
    """
    errors = []
    inside = []
    took = []
    for trip in trips:
        forecast = fleets.forecast(trip, hours=hours)
        real = np.array([trip.energies.sum(), trip.seconds.sum()])
        error = np.array([forecast.energy, forecast.seconds]) - real
        spread = np.array([forecast.energy_spread, forecast.seconds_spread])
        errors.append(error)
        took.append(real)
        inside.append(np.abs(error) <= spread)
    return Judged(
        np.array([trip.hour for trip in trips]),
        np.array(errors),
        np.array(took),
        np.array(inside, dtype=np.float64),
    )


def by_hour(judged: Judged) -> dict[str, Any]:
    """What was found of all trips, of those at each level of demand, and of each band of hours."""
    levels = np.array(LEVEL_OF_HOUR)[judged.hours.astype(int)]
    found: dict[str, Any] = {"all": judged.of(judged.hours >= 0.0)}
    for level, name in enumerate(LEVELS):
        found[name] = judged.of(levels == level)
    for first, last in BANDS:
        in_band = (judged.hours >= first) & (judged.hours < last)
        found[f"{first:02d}–{last:02d}"] = judged.of(in_band)
    return found


class Comparison(NamedTuple):
    """What was learned and found in one city."""

    fleets: Fleets
    log: list[Driven]
    facts: dict[str, Any]


def compare(city: City, per_hour: int) -> Comparison:
    """Errors and coverage of both fleets in a city.

    Args:
        city: Which city.
        per_hour: How many trips of each hour are learned, and how many are forecast.
    """
    world = World(city)
    learned, others = half_moments()
    log = world.trips("log", per_hour, learned)
    unseen = world.trips("unseen", per_hour, others)
    world.close()
    logged = [world.logged(number, trip) for number, trip in enumerate(log)]
    fleets = Fleets(world, logged)
    facts = {
        "trips_learned": len(log),
        "roads_visited": len(fleets.with_hours.visited),
        "cars_an_hour": dict(zip(LEVELS, city.per_hour, strict=True)),
        "with hours": by_hour(judge(fleets, unseen, hours=True)),
        "without": by_hour(judge(fleets, unseen, hours=False)),
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
