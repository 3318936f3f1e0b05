"""``python -m bench.telemetry FOLDER NAME=NETWORK …``: a fleet that learns from what its meters read.

Each city and seed is one file in FOLDER. Files that exist are not made again, so an interrupted run
resumes. ``python -m bench.telemetry FOLDER`` alone prints the tables of the stored files.

Trips are driven in SUMO, one vehicle of twenty at a time, by the routes of the energy model with the
vehicle's description. A fleet learns from them in five ways:

- *net*: energies of edges from which what is stored in motion was taken out;
- *raw edges*: the battery's own readings of edges; ``learn`` must recognise that they are raw;
- *raw, as net*: the same readings taken for net, as all readings were before motion was modelled;
- *raw totals*: the same readings, added up over each trip;
- *model*: nothing is learned.

Before each trip its net energy is forecast. *Error*: root mean square of the forecasts from the 21st
trip on, Wh; *raw edges − raw totals*: the mean over seeds, with its standard error. *Coverage*: shares
of these trips, and of the readings of their edges, inside the intervals of ``LEVELS``, forecast
beforehand.

With ``--rest``, trips start and stop at rest: the first speed is paid for on the first edge, and the
last one won back on the last. Otherwise they are cut from longer drives, as SUMO drives them.

With ``--uninformed``, vehicles are not described: the energy model takes all of them for the same.
Otherwise the fleet has each vehicle's mass, drag, rolling resistance and auxiliaries.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import AT_95, Floats, Ints, levels_text
from superarm.policies import IndexPolicy
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import (
    LoggedTrip,
    TripSection,
    fleet_policy,
    learn_trips,
    vehicle_number,
)
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP
from superarm.roads.problems import Fleet
from superarm.roads.problems.fleet import road_rows

FIRST = 20  # trips after which forecasts are judged
NET = "net"
RAW_EDGES = "raw edges"
RAW_AS_NET = "raw, as net"
RAW_TOTALS = "raw totals"
MODEL = "model"
WAYS = (NET, RAW_EDGES, RAW_AS_NET, RAW_TOTALS, MODEL)


# --- what is metered and learned -----------------------------------------------------------


class MeteredTrip(NamedTuple):
    """A trip, and what was metered on it."""

    route: Ints  # (k,)
    vehicle: Vehicle  # as the fleet describes it
    vehicle_name: str
    raw: Floats  # Wh of each edge by the battery, (k,)
    net: Floats  # less what is stored in motion, (k,)


def metered_trip(fleet: Fleet, step: int, *, rest: bool) -> MeteredTrip | None:
    """Drive the trip of a round; ``None`` if it does not arrive.

    Args:
        fleet: The fleet.
        step: The round.
        rest: Whether the trip starts and stops at rest.
    """
    journey = fleet.journey(step)
    graph = fleet.graph
    route = np.array(fleet.informed_route(fleet.offer(step)))
    assert fleet._drive is not None
    ids = tuple(graph.ids[edge] for edge in route)
    drive = fleet._drive(ids, moment=journey.moment)
    if not drive.arrived:
        return None
    own = journey.own
    raw = drive.energies(own, graph.rise[route])
    net = raw - drive.stored(own)
    if rest:
        first_speed_and_last = drive.speeds[[0, -1]]
        begin, end = own.motion(first_speed_and_last)
        paid = begin / (own.recuperation_efficiency * own.propulsion_efficiency)
        raw[0] += paid
        raw[-1] -= end
        net[0] += paid - begin
    vehicle = fleet._described(journey.vehicle)
    return MeteredTrip(route, vehicle, f"van-{journey.vehicle}", raw, net)


def logged_trip(graph: LineGraph, trip: MeteredTrip, step: int, way: str) -> LoggedTrip:
    """The trip as a log has it.

    Args:
        graph: The roads.
        trip: The trip.
        step: Its round.
        way: One of ``WAYS``.
    """
    ids = tuple(graph.ids[edge] for edge in trip.route)
    if way == RAW_TOTALS:
        sections = [TripSection(ids, float(trip.raw.sum()))]
    else:
        energies = trip.net if way == NET else trip.raw
        sections = [
            TripSection((edge,), energy)
            for edge, energy in zip(ids, energies.tolist(), strict=True)
        ]
    return LoggedTrip(
        name=str(step), vehicle=trip.vehicle_name, sections=tuple(sections)
    )


@dataclass(frozen=True, kw_only=True)
class JudgedTrip:
    """How far off the forecast of a trip was.

    Args:
        error: What the trip needed less its forecast, Wh.
        trip: Whether it lies inside each interval of ``LEVELS``.
        width: Of the 95 % interval, Wh.
        edges: Shares of its readings inside each interval; ``None`` where edges are not read.
    """

    error: float
    trip: list[bool]
    width: float
    edges: list[float] | None = None


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """What one fleet did in one seed.

    Args:
        ways: The trips of each way.
        recognised: How many logs were recognised as net or raw, by way.
        doubted: How many logs looked wrong, by way. None is wrong.
        trips: How many trips arrived.
        edges: How many edges the network has.
    """

    ways: dict[str, list[JudgedTrip]]
    recognised: dict[str, int]
    doubted: dict[str, int]
    trips: int
    edges: int

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SeedResult:
        """Read a stored result.

        Args:
            values: What :meth:`as_json` returned.
        """
        ways = {
            way: [JudgedTrip(**trip) for trip in trips]
            for way, trips in values["ways"].items()
        }
        return cls(**{**values, "ways": ways})

    def as_json(self) -> dict[str, Any]:
        """The fields that have a value."""
        values = asdict(self)
        for trips in values["ways"].values():
            for trip in trips:
                if trip["edges"] is None:
                    del trip["edges"]
        return values


def judge_forecast(
    gp: RoadGP, graph: LineGraph, trip: MeteredTrip, known: Floats
) -> JudgedTrip:
    """Forecast the energy of a whole trip, and compare it with the metered one.

    Args:
        gp: What the fleet has learned.
        graph: The roads.
        trip: The trip.
        known: Wh of each edge that are stored in height, and that turns add, (k,).
    """
    number = vehicle_number(trip.vehicle_name)
    rows = road_rows(graph, trip.vehicle, number, trip.route)
    mean, std = gp.total(rows)
    _, widths = gp.widths()
    error = float((trip.net - known).sum()) - mean
    return JudgedTrip(
        error=error,
        trip=(abs(error) <= std * widths).tolist(),
        width=2.0 * std * float(widths[AT_95]),
    )


def one_seed(fleet: Fleet, rounds: int, *, rest: bool) -> SeedResult:
    """Drive trips, and forecast and learn each in every way.

    Args:
        fleet: The fleet, with its seed.
        rounds: How many trips.
        rest: Whether trips start and stop at rest.
    """
    graph = fleet.graph
    policies: dict[str, IndexPolicy] = {way: fleet_policy(graph) for way in WAYS}
    judged: dict[str, list[JudgedTrip]] = {way: [] for way in WAYS}
    recognised = {NET: 0, RAW_EDGES: 0}
    doubted = dict.fromkeys(WAYS, 0)
    trips = 0
    for step in range(1, rounds + 1):
        trip = metered_trip(fleet, step, rest=rest)
        if trip is None:
            continue
        trips += 1
        known = _known_energies(graph, trip)
        vehicles = {trip.vehicle_name: trip.vehicle} if fleet.informed else None
        for way in WAYS:
            gp = policies[way].posterior
            assert isinstance(gp, RoadGP)
            row = judge_forecast(gp, graph, trip, known)
            if way == MODEL:
                judged[way].append(row)
                continue
            lesson = learn_trips(
                graph,
                [logged_trip(graph, trip, step, way)],
                policy=policies[way],
                vehicles=vehicles,
                energy="net" if way == RAW_AS_NET else "auto",
                accept_unlikely=True,  # which counts as a doubt
            )
            doubted[way] += bool(lesson.warnings)
            if way in recognised:
                is_raw = lesson.raw == 1
                recognised[way] += is_raw == (way == RAW_EDGES)
            if way != RAW_TOTALS:
                # Its readings are judged before they are learned.
                inside = gp._learner.intervals.latest_roads_inside
                row = replace(row, edges=inside.tolist())
            judged[way].append(row)
    return SeedResult(
        ways=judged,
        recognised=recognised,
        doubted=doubted,
        trips=trips,
        edges=len(graph),
    )


def _known_energies(graph: LineGraph, trip: MeteredTrip) -> Floats:
    """Wh of each edge that are stored in height, and that turns add, (k,)."""
    known = trip.vehicle.potential(graph.rise[trip.route])
    turns = graph.turn_numbers(trip.route)
    known[:-1] += trip.vehicle.turn_energy(graph, turns)
    return known


# --- tables --------------------------------------------------------------------------------


def stored_seeds(folder: Path) -> dict[str, list[SeedResult]]:
    """Read the seeds of each city.

    Args:
        folder: Has a file for each city and seed.
    """
    cities: dict[str, list[SeedResult]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        city = path.stem.rsplit("-", 1)[0]
        values = json.loads(path.read_text())
        cities[city].append(SeedResult.from_json(values))
    return cities


def print_tables(folder: Path) -> None:
    """Print errors and coverage.

    Args:
        folder: Has the stored files.
    """
    cities = stored_seeds(folder)
    _print_head(
        "error, Wh",
        *WAYS,
        "raw edges − raw totals",
        "seeds",
        "trips",
        "raw recognised",
    )
    for city, seeds in cities.items():
        _print_errors(city, seeds)
    print()
    _print_head(
        "city",
        "learned from",
        f"trips in {levels_text()}",
        f"edges in {levels_text()}",
        "95 % width, Wh",
        "looked wrong, %",
    )
    for city, seeds in cities.items():
        for way in WAYS:
            _print_coverage(city, seeds, way)


def _print_head(*names: str) -> None:
    _print_row(*names)
    print(f"|{'---|' * len(names)}")


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def _print_errors(city: str, seeds: Sequence[SeedResult]) -> None:
    errors = [f"{_error(seeds, way):.0f}" for way in WAYS]
    judged = sum(seed.trips - FIRST for seed in seeds)
    recognised = sum(sum(seed.recognised.values()) for seed in seeds)
    logs = sum(len(seed.recognised) * seed.trips for seed in seeds)
    _print_row(
        city,
        *errors,
        _difference(seeds),
        str(len(seeds)),
        str(judged),
        f"{100.0 * recognised / logs:.1f} %",
    )


def _print_coverage(city: str, seeds: Sequence[SeedResult], way: str) -> None:
    trips = _judged_trips(seeds, way)
    edges = ""
    if trips[0].edges is not None:
        edges = _mean_percents([trip.edges for trip in trips])
    width = np.mean([trip.width for trip in trips])
    doubted = sum(seed.doubted[way] for seed in seeds)
    logs = sum(seed.trips for seed in seeds)
    _print_row(
        city,
        way,
        _mean_percents([trip.trip for trip in trips]),
        edges,
        f"{width:.0f}",
        f"{100.0 * doubted / logs:.1f}",
    )


def _judged_trips(seeds: Sequence[SeedResult], way: str) -> list[JudgedTrip]:
    return [trip for seed in seeds for trip in seed.ways[way][FIRST:]]


def _error(seeds: Sequence[SeedResult], way: str) -> float:
    """The root mean square of the forecasts' errors, Wh."""
    errors = [trip.error for trip in _judged_trips(seeds, way)]
    return float(np.sqrt(np.mean(np.square(errors))))


def _difference(seeds: Sequence[SeedResult]) -> str:
    """By how much raw edges are worse than raw totals, seed by seed: the mean and its error."""
    differences = [
        _error([seed], RAW_EDGES) - _error([seed], RAW_TOTALS) for seed in seeds
    ]
    mean = f"{np.mean(differences):+.0f}"
    if len(seeds) < 2:
        return mean
    standard_error = np.std(differences, ddof=1) / np.sqrt(len(seeds))
    return f"{mean} ± {standard_error:.0f}"


def _mean_percents(rows: Sequence[Any]) -> str:
    return ", ".join(f"{100.0 * share:.1f}" for share in np.mean(rows, axis=0))


# --- command line --------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else None
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("cities", nargs="*", metavar="NAME=NETWORK")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--traffic", type=float, default=0.0)
    parser.add_argument(
        "--rest", action="store_true", help="trips start and stop at rest"
    )
    parser.add_argument(
        "--uninformed", action="store_true", help="vehicles are not described"
    )
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for city in arguments.cities:
            name, _, network = city.partition("=")
            kind = ""
            if arguments.uninformed:
                kind += ", not described"
            if arguments.rest:
                kind += ", at rest"
            path = folder / f"{name}{kind}-{seed}.json"
            if path.exists():
                continue
            cache = str(folder / f"{name}-{arguments.traffic:g}.sqlite")
            fleet = Fleet(
                seed=seed,
                horizon=arguments.rounds,
                network=network,
                informed=not arguments.uninformed,
                traffic=arguments.traffic,
                cache=cache,
            )
            result = one_seed(fleet, arguments.rounds, rest=arguments.rest)
            path.write_text(json.dumps(result.as_json()))
            print(path.name, flush=True)
    print_tables(folder)


if __name__ == "__main__":
    main()
