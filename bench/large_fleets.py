"""Logs of large fleets, and what they cost to learn; ``python -m bench.learning --growing`` prints it.

Trips are the first roads of fastest routes from junctions drawn at random to places drawn at random; each
road costs what the model expects, plus what a draw of the prior adds to it. Every number of visited roads
comes from more places to start at, so that roads are driven on about as often in every row.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.states import save_state
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.networks import LineGraph, generate_city
from superarm.roads.posterior import RoadGP, Trips, terms_of
from superarm.roads.posterior.noise import TripNoise
from superarm.roads.posterior.posterior import FormChoice
from superarm.roads.problems.fleet_model import near_kernel, road_rows, road_sizes
from superarm.roads.rows import Column, edges_of

_ROUTES_PER_START = 8
_MORE = 8  # trips that are learned one by one
_SCALES = RoadScales()


class Size(NamedTuple):
    """A row of the table."""

    edges: int
    visited: int
    trips: int
    vehicles: int


SIZES = (
    Size(10_000, 1_000, 2_500, 25),
    Size(20_000, 2_500, 6_000, 50),
    Size(50_000, 7_500, 18_000, 100),
    Size(100_000, 20_000, 50_000, 200),
)
COLUMNS = (
    *("edges", "visited", "trips", "vehicles", "log, s", "one by one, s", "trip, ms"),
    *("total, ms", "route, ms", "draw, ms", "state, MB", "memory, MB"),
)
TIMES = COLUMNS[4:10]


def routes(graph: LineGraph, visited: int, longest: int, rng: Rng) -> list[Ints]:
    """Routes that have about so many roads between them."""
    from scipy.sparse import csr_array

    n = len(graph)
    turns = graph.turn_graph.turns
    seconds = graph.travel_time[turns[:, 1]]
    costs = csr_array((seconds, (turns[:, 0], turns[:, 1])), shape=(n, n))
    found: list[Ints] = []
    is_visited = np.zeros(n, dtype=np.bool_)
    while np.count_nonzero(is_visited) < visited:
        start = int(rng.integers(n))
        before = _predecessors(costs, start)
        for end in rng.integers(n, size=_ROUTES_PER_START).tolist():
            route = [end]
            while before[route[-1]] >= 0:
                route.append(int(before[route[-1]]))
            if route[-1] == start and len(route) >= longest // 2:
                roads = np.array(route[::-1][:longest])
                found.append(roads)
                is_visited[roads] = True
    return found


def _predecessors(costs: Any, start: int) -> Ints:
    """The road before each on the fastest route from one road, negative where there is none, (n,)."""
    from scipy.sparse import csgraph

    search: Any = csgraph.dijkstra
    _, before = search(costs, indices=start, return_predecessors=True)
    return np.asarray(before, dtype=np.intp)


def generated_log(graph: LineGraph, size: Size, rng: Rng, longest: int = 60) -> Trips:
    """A log of trips over random routes, edge by edge."""
    chosen = routes(graph, size.visited, longest, rng)
    rows = road_rows(graph, Vehicle(), 0)
    numbers = rng.integers(len(chosen), size=size.trips)
    lengths = np.array([len(chosen[number]) for number in numbers])
    edges = np.concatenate([chosen[number] for number in numbers])
    trip = np.repeat(np.arange(size.trips), lengths)
    keys = rows[edges]
    keys[:, Column.VEHICLE] = trip % size.vehicles
    count = len(keys)
    unseen = Trips(
        keys=keys,
        reward_of_arm=np.arange(count),
        rewards=np.zeros(count),
        trip=trip,
        noise=np.zeros(count),
        unshared=np.zeros(count, dtype=np.bool_),
    )
    return unseen._replace(rewards=_rewards(graph, unseen, size.vehicles, rng))


def _rewards(graph: LineGraph, trips: Trips, vehicles: int, rng: Rng) -> Floats:
    """Energies of a draw of the prior, with noise, (M,)."""
    keys = trips.keys
    n = len(graph)
    own_variance = _SCALES.own**2 + np.square(_SCALES.share * road_sizes(graph))
    f = _SCALES.near * near_kernel(graph).root_times(rng.standard_normal(n))
    f += np.sqrt(own_variance) * rng.standard_normal(n)
    of_fleet = np.array(_SCALES.fleet) * rng.standard_normal(5)
    of_vehicles = np.array(_SCALES.vehicle) * rng.standard_normal((vehicles, 5))
    driver = keys[:, Column.VEHICLE].astype(np.intp)
    rewards = keys[:, Column.EXPECTED] + keys[:, Column.MASS_RATIO] * f[edges_of(keys)]
    rewards += (terms_of(keys) * (of_fleet + of_vehicles[driver])).sum(axis=1)
    return np.asarray(rewards + TripNoise(_SCALES).draw(trips, rng))


def _median(call: Callable[[int], object], count: int) -> float:
    """Milliseconds of a processor."""
    times = []
    for number in range(count):
        begin = process_time()
        call(number)
        times.append(1000.0 * (process_time() - begin))
    return float(np.median(times))


def measure(size: Size, form: FormChoice) -> list[float]:
    """One row of the table."""
    rng = np.random.default_rng(0)
    graph = generate_city(edges=size.edges, seed=1).line_graph()
    trips = generated_log(graph, size._replace(trips=size.trips + 2 * _MORE), rng)
    gp = RoadGP(near_kernel(graph), road_sizes(graph), refit=0, form=form)
    begin = process_time()
    first = min(100, size.trips // 2)
    gp.observe_trips(trips.between(0, first))
    one_by_one = process_time() - begin
    gp._take_all(trips.between(first, size.trips))
    learned = process_time() - begin

    single = [trips.one(size.trips + number) for number in range(_MORE)]
    totals = [
        trips.one(size.trips + _MORE + number).totals() for number in range(_MORE)
    ]
    # The first also refreshes what the log has changed.
    gp.observe_trips(trips.one(0))
    trip = _median(lambda number: gp._take(single[number]), _MORE)
    total = _median(lambda number: gp._take(totals[number]), _MORE)
    route = _median(lambda number: gp.total(single[number].keys), _MORE)
    draw = _median(lambda number: gp._engine.draw(single[number].keys, rng), 3)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        save_state(gp.state(), path)
        state = path.stat().st_size / 1e6
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    times = [learned, one_by_one, trip, total, route, draw]
    sizes = [len(graph), len(gp.visited), size.trips, size.vehicles]
    return [*map(float, sizes), *times, state, memory]


def print_growth(sizes: list[Size], form: FormChoice) -> None:
    """The table, and by which power of the visited roads each time grows from row to row."""
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    before: list[float] | None = None
    for size in sizes:
        row = measure(size, form)
        print("| " + " | ".join(f"{value:,.4g}" for value in row) + " |", flush=True)
        if before is not None:
            powers = np.log(np.divide(row[4:], before[4:])) / np.log(row[1] / before[1])
            text = " | ".join(f"{power:.2f}" for power in powers)
            print(f"| exponents in visited | | | | {text} |", flush=True)
        before = row
