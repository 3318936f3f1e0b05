"""``python -m bench.wronglogs [NETWORK …] [--trips 100] [--logs 60]``: faulty logs, and their diagnoses.

Each network (``city``, or one that SUMO drives on, such as ``monaco``) is driven once by four vehicles.
Logs are drawn from these trips, and each is made wrong in every way below. A row is one way; a cell is
the share of logs, in percent, of which every wrong trip was refused, and + the share with a warning.
The first row is logs that are right, five times as many: its numbers are false alarms, where any trip
that is refused counts.

*readings*: ``rest`` has what is stored in motion taken out, ``raw`` is what a battery reads edge by
edge, ``total`` is one energy a trip. *described*: whether ``learn`` was given the vehicles.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from superarm.core import Floats, Rng
from superarm.core.errors import InputError
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import LoggedTrip, TripSection, check_log, fleet_policy
from superarm.roads.fleets.metering import ExaminedTrip, examine_trip
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP
from superarm.roads.problems import Fleet

VEHICLES = 4
READINGS = ("rest", "raw", "total")
_RIGHT_LOGS = 5  # times as many as wrong ones
_SLOWEST = 0.2  # speed between two edges, as a share of the lower limit
_SECONDS_AN_HOUR = 3600.0

Log = list[LoggedTrip]
Value = TypeVar("Value")


class LogSize(NamedTuple):
    """How large a log is."""

    vehicles: int
    trips: int  # of each vehicle


SIZES = {"1 × 2": LogSize(1, 2), "4 × 3": LogSize(4, 3)}


# --- trips ---------------------------------------------------------------------------------


class City(NamedTuple):
    """A network and its trips."""

    name: str
    graph: LineGraph
    posterior: RoadGP
    fleet: dict[str, Vehicle]
    trips: Mapping[str, Log]  # by reading

    def trips_by_vehicle(self, reading: str) -> dict[str, Log]:
        """The trips of each vehicle, in the order in which they were driven.

        Args:
            reading: One of ``READINGS``.
        """
        trips: dict[str, Log] = defaultdict(list)
        for trip in self.trips[reading]:
            trips[trip.vehicle].append(trip)
        return trips


def drive(network: str, trips: int, seed: int, *, edges: int = 1500) -> City:
    """Drive trips on a network, and read their energies in every way.

    Args:
        network: ``city``, or a network that SUMO drives on.
        trips: How many.
        seed: Of the network, the vehicles and the trips.
        edges: How many a generated city has.
    """
    options: dict[str, Any] = {"network": network}
    if network == "city":
        options = {"edges": edges}
    fleet = Fleet(seed=seed, horizon=trips, vehicles=VEHICLES, **options)
    graph = fleet.graph
    rng = np.random.default_rng(seed)
    logs: dict[str, Log] = {reading: [] for reading in READINGS}
    for step in range(1, trips + 1):
        route = fleet.informed_route(fleet.offer(step))
        rest = fleet.energies(step, route)
        raw = rest + _into_motion(fleet, step, route, rng)
        ids = tuple(graph.ids[edge] for edge in route)
        name = str(step)
        vehicle = _vehicle_name(fleet.journey(step).vehicle)
        total = TripSection(ids, float(raw.sum()))
        sections = {
            "rest": _by_edge(ids, rest),
            "raw": _by_edge(ids, raw),
            "total": (total,),
        }
        for reading in READINGS:
            trip = LoggedTrip(name=name, vehicle=vehicle, sections=sections[reading])
            logs[reading].append(trip)
    posterior = fleet_policy(graph).posterior
    assert isinstance(posterior, RoadGP)
    vehicles = {
        _vehicle_name(number): vehicle for number, vehicle in enumerate(fleet.fleet)
    }
    return City(network, graph, posterior, vehicles, logs)


def _vehicle_name(number: int) -> str:
    return f"van-{number}"


def _by_edge(ids: tuple[str, ...], energies: Floats) -> tuple[TripSection, ...]:
    """A section for each edge."""
    return tuple(
        TripSection((edge,), energy)
        for edge, energy in zip(ids, energies.tolist(), strict=True)
    )


def _into_motion(fleet: Fleet, step: int, route: tuple[int, ...], rng: Rng) -> Floats:
    """Wh that each edge puts into motion: driven in SUMO, or between speeds drawn at borders."""
    journey = fleet.journey(step)
    vehicle = journey.own
    graph = fleet.graph
    if fleet._drive is not None:
        ids = tuple(graph.ids[edge] for edge in route)
        return fleet._drive(ids, moment=journey.moment).stored(vehicle)
    limits = graph.speed[list(route)]
    lower_limits = np.minimum(limits[1:], limits[:-1])
    shares = rng.uniform(_SLOWEST, 1.0, len(lower_limits))
    speeds = np.concatenate([[0.0], lower_limits * shares, [0.0]])
    in_motion = 0.5 * vehicle.mass * speeds**2  # joules
    stored = vehicle.recuperation_efficiency * np.diff(in_motion)
    watt_hours: Floats = stored / _SECONDS_AN_HOUR
    return watt_hours


# --- ways to be wrong ----------------------------------------------------------------------


class FaultyLog(NamedTuple):
    """A log with faults."""

    trips: Log
    vehicles: set[str]  # whose trips are wrong


Way = Callable[[LineGraph, Log], FaultyLog]


def _changed(
    log: Log,
    change: Callable[[LoggedTrip], LoggedTrip],
    *,
    one_vehicle: bool = False,
) -> FaultyLog:
    """Change the trips of all vehicles, or of the first one only."""
    vehicles = {trip.vehicle for trip in log}
    if one_vehicle:
        vehicles = {log[0].vehicle}
    trips = [change(trip) if trip.vehicle in vehicles else trip for trip in log]
    return FaultyLog(trips, vehicles)


def right(graph: LineGraph, log: Log) -> FaultyLog:
    """The log as it is.

    Args:
        graph: The roads.
        log: The trips.
    """
    return _changed(log, lambda trip: trip)


def scaled(
    graph: LineGraph, log: Log, *, factor: float, one_vehicle: bool = False
) -> FaultyLog:
    """All energies in another unit.

    Args:
        graph: The roads.
        log: The trips.
        factor: By which energies are multiplied.
        one_vehicle: Whether those of the first vehicle only.
    """

    def change(trip: LoggedTrip) -> LoggedTrip:
        sections = tuple(
            section._replace(energy=factor * section.energy)
            for section in trip.sections
        )
        return replace(trip, sections=sections)

    return _changed(log, change, one_vehicle=one_vehicle)


def shifted(
    graph: LineGraph, log: Log, *, rows: int, one_vehicle: bool = False
) -> FaultyLog:
    """Energies some rows late; the first or last row has that of the trip's other end.

    Args:
        graph: The roads.
        log: The trips.
        rows: How many rows late; early if negative.
        one_vehicle: Whether those of the first vehicle only.
    """

    def change(trip: LoggedTrip) -> LoggedTrip:
        energies = np.roll([section.energy for section in trip.sections], rows)
        sections = tuple(
            section._replace(energy=energy)
            for section, energy in zip(trip.sections, energies.tolist(), strict=True)
        )
        return replace(trip, sections=sections)

    return _changed(log, change, one_vehicle=one_vehicle)


class _Ends(NamedTuple):
    """The junctions of an edge."""

    tail: int
    head: int


def _opposites(graph: LineGraph) -> dict[str, str]:
    """The edge in the other direction of each edge that has one."""
    tails = graph.network.tail[graph.edges].tolist()
    heads = graph.network.head[graph.edges].tolist()
    edge_between = {
        _Ends(tail, head): edge
        for tail, head, edge in zip(tails, heads, graph.ids, strict=True)
    }
    opposites = {}
    for ends, edge in edge_between.items():
        opposite_ends = _Ends(ends.head, ends.tail)
        if opposite_ends in edge_between:
            opposites[edge] = edge_between[opposite_ends]
    return opposites


def _reversed(trip: LoggedTrip) -> LoggedTrip:
    """A trip with its rows from goal to start."""
    sections = tuple(
        section._replace(edges=section.edges[::-1]) for section in trip.sections[::-1]
    )
    return replace(trip, sections=sections)


def opposite(graph: LineGraph, log: Log, *, backwards: bool) -> FaultyLog:
    """Every edge that has one as its other direction.

    Args:
        graph: The roads.
        log: The trips.
        backwards: Whether rows lead from goal to start too, as if driven back.
    """
    opposites = _opposites(graph)

    def change(trip: LoggedTrip) -> LoggedTrip:
        if backwards:
            trip = _reversed(trip)
        sections = tuple(
            section._replace(
                edges=tuple(opposites.get(edge, edge) for edge in section.edges)
            )
            for section in trip.sections
        )
        return replace(trip, sections=sections)

    return _changed(log, change)


def from_goal_to_start(graph: LineGraph, log: Log) -> FaultyLog:
    """Rows in the order from goal to start.

    Args:
        graph: The roads.
        log: The trips.
    """
    return _changed(log, _reversed)


def halves(graph: LineGraph, log: Log) -> FaultyLog:
    """Each trip's first half, and the second half of the next.

    Args:
        graph: The roads.
        log: The trips.
    """
    following = [*log[1:], log[0]]
    next_trips = dict(zip(log, following, strict=True))

    def change(trip: LoggedTrip) -> LoggedTrip:
        sections = _halves_of_sections(trip.sections, next_trips[trip].sections)
        return replace(trip, sections=sections)

    return _changed(log, change)


def _halves_of_sections(
    first: tuple[TripSection, ...], second: tuple[TripSection, ...]
) -> tuple[TripSection, ...]:
    if len(first) > 1:
        return _first_half(first) + _second_half(second)
    # One energy a trip: half of the edges, and the mean of both energies.
    (start,) = first
    (end,) = second
    edges = _first_half(start.edges) + _second_half(end.edges)
    energy = 0.5 * (start.energy + end.energy)
    return (TripSection(edges, energy),)


def _first_half(values: tuple[Value, ...]) -> tuple[Value, ...]:
    return values[: len(values) // 2]


def _second_half(values: tuple[Value, ...]) -> tuple[Value, ...]:
    return values[len(values) // 2 :]


WAYS: dict[str, Way] = {
    "right": right,
    "all in kWh": partial(scaled, factor=1e-3),
    "one vehicle in kWh": partial(scaled, factor=1e-3, one_vehicle=True),
    "all in joules": partial(scaled, factor=_SECONDS_AN_HOUR),
    "sign flipped": partial(scaled, factor=-1.0),
    "all × 3": partial(scaled, factor=3.0),
    "all × 0.3": partial(scaled, factor=0.3),
    "one vehicle × 3": partial(scaled, factor=3.0, one_vehicle=True),
    "one edge late": partial(shifted, rows=1),
    "one edge early": partial(shifted, rows=-1),
    "one vehicle an edge late": partial(shifted, rows=1, one_vehicle=True),
    "edges of the other direction": partial(opposite, backwards=False),
    "trips in the other direction": partial(opposite, backwards=True),
    "rows from goal to start": from_goal_to_start,
    "halves of two trips": halves,
}
WAYS_BY_EDGE = {"one edge late", "one edge early", "one vehicle an edge late"}
"""Ways in which a log with one energy a trip cannot be wrong."""


# --- verdicts ------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What ``learn`` would do with a log."""

    all_refused: bool  # every trip of the wrong vehicles
    any_refused: bool  # any trip
    warned: bool


class Examiner:
    """Compares trips with their forecasts, and caches the results: trips are drawn often.

    Args:
        city: Where they were driven.
        described: Whether the vehicles' descriptions are known.
    """

    def __init__(self, city: City, described: bool) -> None:
        self._city = city
        self._described = described
        self._examined: dict[LoggedTrip, ExaminedTrip | None] = {}

    def examine(self, trip: LoggedTrip) -> ExaminedTrip | None:
        """A trip with its forecast; ``None`` if it is refused by itself.

        Args:
            trip: The trip.
        """
        if trip not in self._examined:
            self._examined[trip] = self._examine(trip)
        return self._examined[trip]

    def _examine(self, trip: LoggedTrip) -> ExaminedTrip | None:
        city = self._city
        vehicle = city.fleet[trip.vehicle] if self._described else Vehicle()
        try:
            return examine_trip(
                city.graph, city.posterior, trip, vehicle, 0, self._described
            )
        except InputError:
            return None

    def verdict(self, log: FaultyLog) -> Verdict:
        """What ``learn`` would do with a log, without learning it.

        Args:
            log: The log.
        """
        refused: set[LoggedTrip] = set()
        examined: list[ExaminedTrip] = []
        for trip in log.trips:
            examined_trip = self.examine(trip)
            if examined_trip is None:
                refused.add(trip)
            else:
                examined.append(examined_trip)

        findings = check_log((trip.trip.vehicle, trip.energies) for trip in examined)
        warned = bool(refused)
        for examined_trip in examined:
            vehicle = examined_trip.trip.vehicle
            if vehicle not in log.vehicles:
                continue
            finding = findings.vehicles.get(vehicle)
            if examined_trip.jump or finding is not None:
                warned = True
            if finding is not None and finding.refused:
                refused.add(examined_trip.trip)
        wrong = {trip for trip in log.trips if trip.vehicle in log.vehicles}
        return Verdict(wrong <= refused, bool(refused), warned)


# --- tables --------------------------------------------------------------------------------


def draw_log(trips_by_vehicle: Mapping[str, Log], size: LogSize, rng: Rng) -> Log:
    """Draw vehicles, and trips of each.

    Args:
        trips_by_vehicle: All trips.
        size: How many of each.
        rng: Random numbers.
    """
    vehicles = rng.choice(sorted(trips_by_vehicle), size.vehicles, replace=False)
    log: Log = []
    for vehicle in vehicles.tolist():
        trips = trips_by_vehicle[vehicle]
        count = min(size.trips, len(trips))
        chosen = rng.choice(len(trips), count, replace=False)
        log += [trips[index] for index in chosen]
    return log


def cell(
    city: City, reading: str, examiner: Examiner, way: Way, size: LogSize, logs: int
) -> str:
    """Percentages of logs that are refused, and of others with a warning.

    Args:
        city: Its trips are drawn.
        reading: One of ``READINGS``.
        examiner: Of these trips.
        way: How logs are wrong.
        size: Of each log.
        logs: How many.
    """
    rng = np.random.default_rng(1)
    trips_by_vehicle = city.trips_by_vehicle(reading)
    verdicts = []
    for _ in range(logs):
        log = draw_log(trips_by_vehicle, size, rng)
        verdicts.append(examiner.verdict(way(city.graph, log)))
    if way is right:
        # Of a log that is right, one trip that is refused is a false alarm.
        refused = np.array([verdict.any_refused for verdict in verdicts])
    else:
        refused = np.array([verdict.all_refused for verdict in verdicts])
    warned = np.array([verdict.warned for verdict in verdicts])
    refused_share = 100.0 * np.mean(refused)
    warned_share = 100.0 * np.mean(warned & ~refused)
    return f"{refused_share:.1f} + {warned_share:.1f}"


def print_table(city: City, reading: str, described: bool, logs: int) -> None:
    """Print a row for each way, and a column for each size.

    Args:
        city: Its trips are drawn.
        reading: One of ``READINGS``.
        described: Whether the vehicles' descriptions are known.
        logs: How many wrong logs a cell is about.
    """
    description = "described" if described else "not described"
    print(f"\n**{city.name}**, {reading}, vehicles {description}\n")
    print(f"| log | {' | '.join(SIZES)} |")
    print(f"|---|{'---|' * len(SIZES)}", flush=True)
    examiner = Examiner(city, described)
    for name, way in WAYS.items():
        if reading == "total" and name in WAYS_BY_EDGE:
            continue
        count = _RIGHT_LOGS * logs if way is right else logs
        cells = [
            cell(city, reading, examiner, way, size, count) for size in SIZES.values()
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wronglogs")
    parser.add_argument("networks", nargs="*", default=["city"])
    parser.add_argument("--trips", type=int, default=100)
    parser.add_argument("--logs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readings", nargs="+", default=list(READINGS))
    arguments = parser.parse_args()
    for network in arguments.networks:
        city = drive(network, arguments.trips, arguments.seed)
        for reading in arguments.readings:
            for described in (True, False):
                print_table(city, reading, described, arguments.logs)


if __name__ == "__main__":
    main()
