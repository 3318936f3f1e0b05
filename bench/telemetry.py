"""``python -m bench.telemetry FOLDER NAME=NETWORK …``: a fleet that learns from what its meters read.

Each city and seed is one file in FOLDER. Files that exist are kept, so that an interrupted run resumes.
``python -m bench.telemetry FOLDER`` alone prints the tables of what is there.

Trips are driven in SUMO, one vehicle of twenty at a time, by the routes of the energy model that knows
the vehicle. A fleet learns from them in five ways:

- *net*: energies of edges from which what is stored in motion was taken out;
- *raw edges*: the battery's own readings of edges; the log itself must tell that they are raw;
- *raw, as net*: the same readings taken for net, as all readings were before motion was modelled;
- *raw totals*: the same readings, added up over each trip;
- *model*: nothing is learned.

Before each trip its net energy is forecast. *Error*: root mean square of the forecasts from the 21st
trip on, Wh; *raw edges − raw totals*: the mean over seeds, with its standard error. *Coverage*: shares
of these trips, and of the readings of their edges, inside the intervals of ``LEVELS`` that were given
before.

With ``--rest``, trips start and stop at rest: the first speed is paid for on the first edge, and the
last one won back on the last. Otherwise they are cut from longer drives, as SUMO drives them.

With ``--uninformed``, vehicles are not described: the energy model takes all of them for the same.
Otherwise the fleet has each vehicle's mass, drag, rolling resistance and auxiliaries.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import AT_95, Floats, Ints, levels_text
from superarm.policies import IndexPolicy
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import (
    Energy,
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
WAYS = ("net", "raw edges", "raw, as net", "raw totals", "model")


class Metered(NamedTuple):
    """A trip, and what was metered on it."""

    route: Ints  # (k,)
    described: Vehicle  # as the fleet describes it
    name: str
    raw: Floats  # Wh of each edge by the battery, (k,)
    net: Floats  # less what is stored in motion, (k,)


def metered(fleet: Fleet, step: int, *, rest: bool) -> Metered | None:
    """The trip of a round; nothing if it did not arrive."""
    journey, graph = fleet.journey(step), fleet.graph
    route = np.array(fleet.informed_route(fleet.offer(step)))
    assert fleet._drive is not None
    drive = fleet._drive(
        tuple(graph.ids[edge] for edge in route), moment=journey.moment
    )
    if not drive.arrived:
        return None
    own = journey.own
    raw = drive.energies(own, graph.rise[route])
    net = raw - drive.stored(own)
    if rest:
        speeds = drive.speeds[[0, -1]]
        begin, end = own.motion(speeds)
        paid = begin / (own.recuperation_efficiency * own.propulsion_efficiency)
        raw[0] += paid
        raw[-1] -= end
        net[0] += paid - begin
    described = fleet._described(journey.vehicle)
    return Metered(route, described, f"van-{journey.vehicle}", raw, net)


def logged(graph: LineGraph, trip: Metered, step: int, way: str) -> LoggedTrip:
    """The trip as a log has it."""
    ids = [graph.ids[edge] for edge in trip.route]
    if way == "raw totals":
        sections = [TripSection(tuple(ids), float(trip.raw.sum()))]
    else:
        energies = trip.net if way == "net" else trip.raw
        sections = [
            TripSection((name,), float(wh))
            for name, wh in zip(ids, energies, strict=True)
        ]
    return LoggedTrip(name=str(step), vehicle=trip.name, sections=tuple(sections))


def forecast(
    gp: RoadGP, graph: LineGraph, trip: Metered, known: Floats
) -> dict[str, Any]:
    """Of a whole trip: how far off it is, and whether it lies inside each interval."""
    keys = road_rows(graph, trip.described, vehicle_number(trip.name), trip.route)
    of_trips = gp.widths()[1]
    mean, std = gp.total(keys)
    error = float((trip.net - known).sum()) - mean
    found: dict[str, Any] = {
        "error": error,
        "trip": (abs(error) <= std * of_trips).tolist(),
        "width": 2.0 * std * float(of_trips[AT_95]),
    }
    return found


def one_seed(fleet: Fleet, rounds: int, *, rest: bool) -> dict[str, Any]:
    graph = fleet.graph
    policies: dict[str, IndexPolicy] = {way: fleet_policy(graph) for way in WAYS}
    found: dict[str, list[Any]] = {way: [] for way in WAYS}
    recognised = {"net": 0, "raw edges": 0}
    doubted = dict.fromkeys(WAYS, 0)  # trips that look wrong, of which none is
    trips = 0
    for step in range(1, rounds + 1):
        trip = metered(fleet, step, rest=rest)
        if trip is None:
            continue
        trips += 1
        turns = trip.described.turn_energy(graph, graph.turn_numbers(trip.route))
        known = trip.described.potential(graph.rise[trip.route])
        known[:-1] += turns
        for way in WAYS:
            gp = policies[way].posterior
            assert isinstance(gp, RoadGP)
            row = forecast(gp, graph, trip, known)
            if way != "model":
                energy: Energy = "net" if way == "raw, as net" else "auto"
                lesson = learn_trips(
                    graph,
                    [logged(graph, trip, step, way)],
                    policy=policies[way],
                    vehicles={trip.name: trip.described} if fleet.informed else None,
                    energy=energy,
                    accept_unlikely=True,  # which counts as a doubt
                )
                doubted[way] += bool(lesson.warnings)
                if way in recognised:
                    recognised[way] += (lesson.raw == 1) == (way == "raw edges")
                if (
                    way != "raw totals"
                ):  # the share of its readings inside, judged before they were learned
                    row["edges"] = gp._learner.intervals.latest_roads_inside.tolist()
            found[way].append(row)
    return {
        "ways": found,
        "recognised": recognised,
        "doubted": doubted,
        "trips": trips,
        "edges": len(graph),
    }


def print_tables(folder: Path) -> None:
    cities: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*.json")):
        cities.setdefault(path.stem.rsplit("-", 1)[0], []).append(
            json.loads(path.read_text())
        )
    heads = ("raw edges − raw totals", "seeds", "trips", "raw recognised")
    print(f"| error, Wh | {' | '.join((*WAYS, *heads))} |")
    print(f"|{'---|' * (1 + len(WAYS) + len(heads))}")
    for city, seeds in cities.items():
        errors = [f"{_error(seeds, way):.0f}" for way in WAYS]
        trips = sum(seed["trips"] - FIRST for seed in seeds)
        right = sum(sum(seed["recognised"].values()) for seed in seeds)
        share = 100.0 * right / sum(2 * seed["trips"] for seed in seeds)
        cells = (*errors, _paired(seeds), str(len(seeds)), str(trips), f"{share:.1f} %")
        print(f"| {city} | {' | '.join(cells)} |")
    heads = (
        f"trips in {levels_text()}",
        f"edges in {levels_text()}",
        "95 % width, Wh",
        "looked wrong, %",
    )
    print(f"\n| city | learned from | {' | '.join(heads)} |\n|{'---|' * 6}")
    for city, seeds in cities.items():
        for way in WAYS:
            rows = _after(seeds, way)
            width = float(np.mean([row["width"] for row in rows]))
            of_trips = _shares([row["trip"] for row in rows])
            of_edges = (
                _shares([row["edges"] for row in rows]) if "edges" in rows[0] else ""
            )
            doubts = sum(seed["doubted"][way] for seed in seeds)
            share = 100.0 * doubts / sum(seed["trips"] for seed in seeds)
            print(
                f"| {city} | {way} | {of_trips} | {of_edges} | {width:.0f} | {share:.1f} |"
            )


def _after(seeds: Sequence[Mapping[str, Any]], way: str) -> list[Any]:
    return [row for seed in seeds for row in seed["ways"][way][FIRST:]]


def _error(seeds: Sequence[Mapping[str, Any]], way: str) -> float:
    return float(np.sqrt(np.mean([row["error"] ** 2 for row in _after(seeds, way)])))


def _paired(seeds: Sequence[Mapping[str, Any]]) -> str:
    """By how much raw edges are worse than raw totals, seed by seed: the mean and its error."""
    differences = [
        _error([seed], "raw edges") - _error([seed], "raw totals") for seed in seeds
    ]
    mean = f"{np.mean(differences):+.0f}"
    if len(seeds) < 2:
        return mean
    return f"{mean} ± {np.std(differences, ddof=1) / np.sqrt(len(seeds)):.0f}"


def _shares(rows: list[Any]) -> str:
    return ", ".join(f"{100.0 * share:.1f}" for share in np.mean(rows, axis=0))


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
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seeds):
        for city in asked.cities:
            name, _, network = city.partition("=")
            kind = (", not described" if asked.uninformed else "") + (
                ", at rest" if asked.rest else ""
            )
            path = asked.folder / f"{name}{kind}-{seed}.json"
            if path.exists():
                continue
            cache = str(asked.folder / f"{name}-{asked.traffic:g}.sqlite")
            fleet = Fleet(
                seed=seed,
                horizon=asked.rounds,
                network=network,
                informed=not asked.uninformed,
                traffic=asked.traffic,
                cache=cache,
            )
            path.write_text(json.dumps(one_seed(fleet, asked.rounds, rest=asked.rest)))
            print(path.name, flush=True)
    print_tables(asked.folder)


if __name__ == "__main__":
    main()
