"""``python -m bench.learning [--edges 6000 …] [--trips 300]``: how long a fleet takes to learn.

Generated cities, twenty vehicles between 25 pairs of roads. *log*: seconds for all trips at once,
without refitting; *fit*: one fit of the scales and what follows from it; *trip*: milliseconds for one
more, edge by edge, and *total*: for one more of which the whole energy is known (medians and maxima);
*state*: its megabytes, and the seconds to write it and to read it again; *route*: milliseconds of a
route by it, with its interval, after the first. *visited*: roads driven on, with whose number all of
this grows.

``--vehicles 1 1000``: instead, the same trips are driven by one vehicle, or by a thousand in turn.
*trip*: milliseconds of a processor for one more, edge by edge, of a vehicle that was driven before and
of one that was not.

``--form sparse`` (or ``dense``) chooses the form of ``RoadGP``. ``--growing`` prints the table of
``bench.large_fleets`` instead: what logs cost with ever more visited roads and on ever larger networks,
and by which power each column grows. ``--rows 2`` measures its second row, ``--rows 3-4`` the third and
fourth; ``--stored bench/results/fleets.json`` adds them to that file and prints all of it, ``--rows 0``
without measuring any.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import get_args

import numpy as np

from superarm.core.states import load
from superarm.roads.fleets import LoggedTrip, TripSection, learn_trips
from superarm.roads.posterior import RoadGP
from superarm.roads.posterior.forms import FormChoice
from superarm.roads.problems import Fleet
from superarm.roads.routing import Router

from .large_fleets import SIZES, measure, print_growth, store_row, stored_rows
from .routes import timed

COLUMNS = (
    *("edges", "visited", "log, s", "fit, s", "trip, ms", "total, ms"),
    *("state, MB", "write, s", "read, s", "route, ms"),
)

OF_VEHICLES = (
    "edges",
    "visited",
    "trips",
    "vehicles",
    "trip, ms",
    "of a new vehicle, ms",
)


def logged(fleet: Fleet, step: int, *, total_only: bool = False) -> LoggedTrip:
    offer = fleet.offer(step)
    route = fleet.informed_route(offer)
    energies = fleet.energies(step, route)
    ids = [fleet.graph.ids[edge] for edge in route]
    each = tuple(
        TripSection((name,), energy) for name, energy in zip(ids, energies, strict=True)
    )
    sections = (TripSection(tuple(ids), sum(energies)),) if total_only else each
    return LoggedTrip(
        name=str(step), vehicle=str(fleet.journey(step).vehicle), sections=sections
    )


def row(edges: int, trips: int, form: FormChoice) -> list[str]:
    more = 20
    fleet = Fleet(
        seed=0, horizon=trips + 2 * more, edges=edges, trips=25, most_metres=6000.0
    )
    graph = fleet.graph
    log = [logged(fleet, step) for step in range(1, trips + 1)]
    begin = perf_counter()
    policy = learn_trips(graph, log, refit=0, form=form).policy
    learned = perf_counter() - begin
    gp = policy.posterior
    assert isinstance(gp, RoadGP)
    begin = perf_counter()
    gp.fit()
    fit = perf_counter() - begin
    single = [logged(fleet, trips + at + 1) for at in range(more)]
    totals = [
        logged(fleet, trips + more + at + 1, total_only=True) for at in range(more)
    ]
    by_edge = timed(lambda at: learn_trips(graph, [single[at]], policy=policy), more)
    by_trip = timed(lambda at: learn_trips(graph, [totals[at]], policy=policy), more)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        begin = perf_counter()
        policy.save(path)
        written = perf_counter() - begin
        megabytes = path.stat().st_size / 1e6
        begin = perf_counter()
        load(path)
        read = perf_counter() - begin
        router = Router(graph.network, state=path)
    routes = [fleet.informed_route(fleet.offer(step)) for step in range(1, 21)]
    pairs = [(graph.ids[route[0]], graph.ids[route[-1]]) for route in routes]
    router.prepare(compared=False)
    routed = timed(lambda at: router.route(*pairs[at]), len(pairs))
    visited = len(gp.visited)
    return [
        *(
            f"{len(graph):,}",
            f"{visited:,}",
            f"{learned:.1f}",
            f"{fit:.1f}",
            by_edge,
            by_trip,
        ),
        *(f"{megabytes:.0f}", f"{written:.2f}", f"{read:.2f}", routed),
    ]


def row_of_vehicles(edges: int, trips: int, vehicles: int) -> list[str]:
    """What one more trip costs once this many vehicles were driven, in turn, over the same roads."""
    more = 20
    fleet = Fleet(
        seed=0, horizon=trips + 2 * more, edges=edges, trips=25, most_metres=6000.0
    )

    def driven_by(step: int, vehicle: int) -> LoggedTrip:
        return replace(logged(fleet, step), vehicle=str(vehicle))

    graph = fleet.graph
    log = [driven_by(step, step % vehicles) for step in range(1, trips + 1)]
    policy = learn_trips(graph, log, refit=0).policy
    gp = policy.posterior
    assert isinstance(gp, RoadGP)
    known = [driven_by(trips + at + 1, at % vehicles) for at in range(more)]
    new = [driven_by(trips + more + at + 1, vehicles + at) for at in range(more)]
    medians = []
    for trips_to_come in (known, new):
        milliseconds = []
        for trip in trips_to_come:
            begin = process_time()
            learn_trips(graph, [trip], policy=policy)
            milliseconds.append(1000.0 * (process_time() - begin))
        medians.append(f"{np.median(milliseconds):.1f} ({max(milliseconds):.0f})")
    return [
        f"{len(graph):,}",
        f"{len(gp.visited):,}",
        f"{trips:,}",
        f"{vehicles:,}",
        *medians,
    ]


def growing(chosen: str, form: FormChoice, stored: Path | None) -> None:
    """Measure rows of the table of growth, and print it.

    Args:
        chosen: Which rows: "3", "2-4", or "0" for none.
        form: The form of ``RoadGP``.
        stored: A file with rows measured before.
    """
    first, _, last = chosen.rpartition("-")
    sizes = SIZES[int(first or last) - 1 : int(last)] if chosen != "0" else ()
    rows = {}
    for size in sizes:
        row = measure(size, form)
        rows[size] = row
        if stored is not None:
            store_row(stored, size, row)
    print_growth(rows if stored is None else stored_rows(stored))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.learning")
    parser.add_argument(
        "--edges", type=int, nargs="+", default=[6_000, 33_000, 100_000]
    )
    parser.add_argument("--trips", type=int, default=300)
    parser.add_argument(
        "--vehicles", type=int, nargs="+", help="trips of so many vehicles instead"
    )
    parser.add_argument("--form", choices=get_args(FormChoice), default="auto")
    parser.add_argument("--growing", action="store_true", help="larger and larger logs")
    parser.add_argument("--rows", default=f"1-{len(SIZES)}", help="rows of --growing")
    parser.add_argument(
        "--stored",
        type=Path,
        help="add the rows of --growing to this file; print all of it",
    )
    options = parser.parse_args()
    if options.growing:
        growing(options.rows, options.form, options.stored)
        return
    if options.vehicles:
        print("| " + " | ".join(OF_VEHICLES) + " |")
        print("|" + "---|" * len(OF_VEHICLES))
        for edges in options.edges:
            for vehicles in options.vehicles:
                cells = row_of_vehicles(edges, max(options.trips, vehicles), vehicles)
                print("| " + " | ".join(cells) + " |", flush=True)
        return
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for edges in options.edges:
        print(
            "| " + " | ".join(row(edges, options.trips, options.form)) + " |",
            flush=True,
        )


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
