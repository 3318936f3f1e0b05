"""``python -m bench.waves``: what hours cost a large fleet, by the number of waves of its day.

A city of 20,000 edges and a log of 500 trips at all hours, learned in the sparse form, each row in a
process of its own. Times are seconds of a processor. *log*: all trips at once; *trip*: one more, of 32
one after another; *route*: the interval of a route; *draw*: a joint draw; *fit*: one fit of the scales
and what follows from it; *memory*: what the process takes at most beyond the city and the log.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from superarm.core.states import save_state
from superarm.roads.energy import HourlyScales, RoadScales
from superarm.roads.networks import generate_city
from superarm.roads.posterior import RoadGP, Trips
from superarm.roads.problems.fleet_model import near_kernel, road_sizes
from superarm.roads.rows import with_hours

from .large_fleets import Size, generated_log

COLUMNS = (
    *("harmonics", "functions", "log, s", "trip, ms", "route, ms"),
    *("draw, s", "fit, s", "state, MB", "memory, MB"),
)
_MORE = 32  # trips that are learned one by one
_ROUTES = 8


def at_all_hours(trips: Trips) -> Trips:
    """The same trips, each at an hour between six and twenty-two."""
    rng = np.random.default_rng(1)
    begins = rng.uniform(6.0, 22.0, trips.number)
    trip_of_arm = trips.trip[trips.reward_of_arm]
    return trips._replace(keys=with_hours(trips.keys, begins[trip_of_arm]))


def row(harmonics: int, size: Size) -> list[float]:
    """A row of the table, the numbers of ``COLUMNS``.

    Args:
        harmonics: How many waves the day has; 0 for a fleet without hours.
        size: The city and its log.
    """
    graph = generate_city(edges=size.edges, seed=1).line_graph()
    rng = np.random.default_rng(0)
    trips = generated_log(graph, size._replace(trips=size.trips + _MORE), rng)
    scales = RoadScales()
    if harmonics:
        trips = at_all_hours(trips)
        scales = HourlyScales(harmonics=harmonics)
    more = [trips.one(size.trips + number) for number in range(_MORE)]
    kernel = near_kernel(graph)
    gp = RoadGP(kernel, road_sizes(graph), scales=scales, refit=0, form="sparse")
    before = _memory()

    begin = process_time()
    gp.observe_trips(trips.between(0, size.trips))
    log = process_time() - begin
    begin = process_time()
    for trip in more:
        gp.observe_trips(trip)
    learned = (process_time() - begin) / _MORE
    gp.total(more[0].keys)  # solves for the means that later ones share
    begin = process_time()
    for trip in more[:_ROUTES]:
        gp.total(trip.keys)
    route = (process_time() - begin) / _ROUTES
    begin = process_time()
    gp.sample(more[0].keys, rng)
    draw = process_time() - begin
    begin = process_time()
    gp.fit()
    fit = process_time() - begin
    memory = _memory() - before
    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.npz")
        save_state(gp.state(), path)
        state = os.path.getsize(path) / 1e6
    functions = 1 + 2 * harmonics
    return [
        *(harmonics, functions, log, 1e3 * learned, 1e3 * route),
        *(draw, fit, state, memory),
    ]


def _memory() -> float:
    """The most memory that this process has taken, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.waves")
    parser.add_argument("--harmonics", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--edges", type=int, default=20_000)
    parser.add_argument("--trips", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="one row as numbers")
    options = parser.parse_args()
    size = Size(options.edges, options.edges // 3, options.trips, 20)
    if options.json:
        (harmonics,) = options.harmonics
        print(json.dumps(row(harmonics, size)))
        return
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for harmonics in options.harmonics:
        command = [sys.executable, "-m", "bench.waves", "--json"]
        command += ["--harmonics", str(harmonics), "--edges", str(options.edges)]
        command += ["--trips", str(options.trips)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True)
        cells = [f"{value:,.3g}" for value in json.loads(printed.stdout)]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
