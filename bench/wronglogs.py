"""``python -m bench.wronglogs [NETWORK …] [--trips 100] [--logs 60]``: wrong logs, and what is said.

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
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from superarm.core.errors import InputError
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import LoggedTrip, TripSection, check_log, fleet_policy
from superarm.roads.fleets.metering import examine_trip
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP
from superarm.roads.problems import Fleet

Rng = np.random.Generator
SIZES = {"1 × 2": (1, 2), "4 × 3": (4, 3)}  # vehicles and trips of each
VEHICLES = 4


class City(NamedTuple):
    """A network and its trips, by vehicle."""

    name: str
    graph: LineGraph
    posterior: RoadGP
    fleet: dict[str, Vehicle]
    trips: dict[str, dict[str, list[LoggedTrip]]]  # by reading, then by vehicle


def drive(network: str, trips: int, seed: int, *, edges: int = 1500) -> City:
    """Trips of a network with every reading; ``edges`` are those of a generated city."""
    options: dict[str, Any] = (
        {"edges": edges} if network == "city" else {"network": network}
    )
    fleet = Fleet(seed=seed, horizon=trips, vehicles=VEHICLES, **options)
    graph, rng = fleet.graph, np.random.default_rng(seed)
    found: dict[str, dict[str, list[LoggedTrip]]] = {"rest": {}, "raw": {}, "total": {}}
    for step in range(1, trips + 1):
        route = fleet.informed_route(fleet.offer(step))
        journey = fleet.journey(step)
        rest = fleet.energies(step, route)
        raw = rest + _into_motion(fleet, step, route, rng)
        ids = [graph.ids[edge] for edge in route]
        who = f"van-{journey.vehicle}"
        for reading, energies in (("rest", rest), ("raw", raw)):
            sections = tuple(
                TripSection((edge,), float(wh))
                for edge, wh in zip(ids, energies, strict=True)
            )
            trip = LoggedTrip(name=str(step), vehicle=who, sections=sections)
            found[reading].setdefault(who, []).append(trip)
        trip_total = (TripSection(tuple(ids), float(raw.sum())),)
        found["total"].setdefault(who, []).append(
            LoggedTrip(name=str(step), vehicle=who, sections=trip_total)
        )
    posterior = fleet_policy(graph).posterior
    assert isinstance(posterior, RoadGP)
    vehicles = {f"van-{number}": vehicle for number, vehicle in enumerate(fleet.fleet)}
    return City(network, graph, posterior, vehicles, found)


def _into_motion(fleet: Fleet, step: int, route: tuple[int, ...], rng: Rng) -> Any:
    """Wh that each edge puts into motion: driven in SUMO, or between speeds drawn at borders."""
    own, graph = fleet.journey(step).own, fleet.graph
    if fleet._drive is not None:
        driven = fleet._drive(
            tuple(graph.ids[edge] for edge in route), moment=fleet.journey(step).moment
        )
        return driven.stored(own)
    limits = graph.speed[list(route)]
    borders = np.minimum(limits[1:], limits[:-1]) * rng.uniform(
        0.2, 1.0, len(route) - 1
    )
    speeds = np.concatenate([[0.0], borders, [0.0]])
    return own.recuperation_efficiency * np.diff(0.5 * own.mass * speeds**2) / 3600.0


# --- ways to be wrong ----------------------------------------------------------------------

Log = list[LoggedTrip]
Way = Callable[[LineGraph, Log, Rng], tuple[Log, set[str]]]


def _all(log: Log) -> set[str]:
    return {trip.vehicle for trip in log}


def right(graph: LineGraph, log: Log, rng: Rng) -> tuple[Log, set[str]]:
    return log, _all(log)


def times(
    graph: LineGraph, log: Log, rng: Rng, *, factor: float, one: bool = False
) -> tuple[Log, set[str]]:
    wrong = {log[0].vehicle} if one else _all(log)

    def scaled(trip: LoggedTrip) -> LoggedTrip:
        sections = tuple(
            TripSection(each.edges, factor * each.energy) for each in trip.sections
        )
        return replace(trip, sections=sections) if trip.vehicle in wrong else trip

    return [scaled(trip) for trip in log], wrong


def shifted(
    graph: LineGraph, log: Log, rng: Rng, *, by: int, one: bool = False
) -> tuple[Log, set[str]]:
    """Energies ``by`` rows later; the first or last row has that of another trip's end."""
    wrong = {log[0].vehicle} if one else _all(log)

    def late(trip: LoggedTrip) -> LoggedTrip:
        energies = np.roll([each.energy for each in trip.sections], by)
        places = zip(trip.sections, energies.tolist(), strict=True)
        sections = tuple(TripSection(each.edges, energy) for each, energy in places)
        return replace(trip, sections=sections) if trip.vehicle in wrong else trip

    return [late(trip) for trip in log], wrong


def _opposites(graph: LineGraph) -> dict[str, str]:
    network = graph.network
    ends = {
        (int(network.tail[edge]), int(network.head[edge])): name
        for edge, name in zip(graph.edges.tolist(), graph.ids, strict=True)
    }
    return {
        name: ends[head, tail]
        for (tail, head), name in ends.items()
        if (head, tail) in ends
    }


def opposite(
    graph: LineGraph, log: Log, rng: Rng, *, order: int
) -> tuple[Log, set[str]]:
    """Every edge that has one as its other direction; ``order`` −1: as if driven from the goal back."""
    other = _opposites(graph)

    def turned(trip: LoggedTrip) -> LoggedTrip:
        sections = tuple(
            TripSection(
                tuple(other.get(edge, edge) for edge in each.edges[::order]),
                each.energy,
            )
            for each in trip.sections[::order]
        )
        return replace(trip, sections=sections)

    return [turned(trip) for trip in log], _all(log)


def upside_down(graph: LineGraph, log: Log, rng: Rng) -> tuple[Log, set[str]]:
    """Rows in the order from goal to start."""
    log = [replace(trip, sections=trip.sections[::-1]) for trip in log]
    return [
        replace(
            t, sections=tuple(TripSection(s.edges[::-1], s.energy) for s in t.sections)
        )
        for t in log
    ], _all(log)


def glued(graph: LineGraph, log: Log, rng: Rng) -> tuple[Log, set[str]]:
    """Each trip's first half, and the second half of the next."""
    made = []
    for trip, other in zip(log, [*log[1:], log[0]], strict=True):
        if len(trip.sections) > 1:
            half, rest = len(trip.sections) // 2, len(other.sections) // 2
            sections = (*trip.sections[:half], *other.sections[rest:])
        else:
            (one,), (two,) = trip.sections, other.sections
            edges = (
                *one.edges[: len(one.edges) // 2],
                *two.edges[len(two.edges) // 2 :],
            )
            sections = (TripSection(edges, 0.5 * (one.energy + two.energy)),)
        made.append(replace(trip, sections=sections))
    return made, _all(log)


WAYS: dict[str, Way] = {
    "right": right,
    "all in kWh": partial(times, factor=1e-3),
    "one vehicle in kWh": partial(times, factor=1e-3, one=True),
    "all in joules": partial(times, factor=3600.0),
    "sign flipped": partial(times, factor=-1.0),
    "all × 3": partial(times, factor=3.0),
    "all × 0.3": partial(times, factor=0.3),
    "one vehicle × 3": partial(times, factor=3.0, one=True),
    "one edge late": partial(shifted, by=1),
    "one edge early": partial(shifted, by=-1),
    "one vehicle an edge late": partial(shifted, by=1, one=True),
    "edges of the other direction": partial(opposite, order=1),
    "trips in the other direction": partial(opposite, order=-1),
    "rows from goal to start": upside_down,
    "halves of two trips": glued,
}
OF_EDGES = {"one edge late", "one edge early", "one vehicle an edge late"}


class Verdict(NamedTuple):
    refused: bool  # every trip of the wrong vehicles
    in_part: bool  # any trip
    warned: bool


_EXAMINED: dict[tuple[str, LoggedTrip, bool], Any] = {}


def examined(city: City, trip: LoggedTrip, described: bool) -> Any:
    """A trip with what is expected of it; ``None``: it is refused by itself. Trips are drawn often."""
    key = (city.name, trip, described)
    if key not in _EXAMINED:
        vehicle = city.fleet[trip.vehicle] if described else Vehicle()
        try:
            _EXAMINED[key] = examine_trip(
                city.graph, city.posterior, trip, vehicle, 0, described
            )
        except InputError:
            _EXAMINED[key] = None
    return _EXAMINED[key]


def verdict(city: City, log: Log, wrong: Iterable[str], described: bool) -> Verdict:
    """What ``learn`` would do with a log, without learning it."""
    refused, names = set(), set(wrong)
    metered = []
    for trip in log:
        found_before = examined(city, trip, described)
        if found_before is None:
            refused.add(trip)
        else:
            metered.append(found_before)
    found = check_log((each.trip.vehicle, each.energies) for each in metered)
    warned = bool(refused) or any(
        each.jump for each in metered if each.trip.vehicle in names
    )
    for each in metered:
        finding = found.vehicles.get(each.trip.vehicle)
        if finding is not None and each.trip.vehicle in names:
            warned = True
            if finding.refused:
                refused.add(each.trip)
    of_wrong = {trip for trip in log if trip.vehicle in names}
    return Verdict(of_wrong <= refused, bool(refused), warned)


def draw(city: City, reading: str, vehicles: int, trips: int, rng: Rng) -> Log:
    by_vehicle = city.trips[reading]
    names = rng.choice(sorted(by_vehicle), vehicles, replace=False).tolist()
    return [
        by_vehicle[name][at]
        for name in names
        for at in rng.choice(
            len(by_vehicle[name]), min(trips, len(by_vehicle[name])), replace=False
        )
    ]


def table(city: City, reading: str, described: bool, logs: int) -> None:
    description = "described" if described else "not described"
    print(f"\n**{city.name}**, {reading}, vehicles {description}\n")
    print(f"| log | {' | '.join(SIZES)} |\n|---|{'---|' * len(SIZES)}", flush=True)
    for name, way in WAYS.items():
        if reading == "total" and name in OF_EDGES:
            continue
        cells = []
        for vehicles, trips in SIZES.values():
            rng = np.random.default_rng(1)
            found = []
            for _ in range(5 * logs if way is right else logs):
                log, wrong = way(
                    city.graph, draw(city, reading, vehicles, trips, rng), rng
                )
                found.append(verdict(city, log, wrong, described))
            # Of a log that is right, one trip that is refused is a false alarm.
            hit = np.array(
                [each.in_part if way is right else each.refused for each in found]
            )
            refused = 100.0 * np.mean(hit)
            more = 100.0 * np.mean(np.array([each.warned for each in found]) & ~hit)
            cells.append(f"{refused:.1f} + {more:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wronglogs")
    parser.add_argument("networks", nargs="*", default=["city"])
    parser.add_argument("--trips", type=int, default=100)
    parser.add_argument("--logs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readings", nargs="+", default=["rest", "raw", "total"])
    asked = parser.parse_args()
    for network in asked.networks:
        city = drive(network, asked.trips, asked.seed)
        for reading in asked.readings:
            for described in (True, False):
                table(city, reading, described, asked.logs)
                _EXAMINED.clear()


if __name__ == "__main__":
    main()
