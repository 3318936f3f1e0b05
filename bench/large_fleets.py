"""Logs of large fleets, and what they cost to learn; ``python -m bench.learning --growing`` prints it.

Trips are the first roads of fastest routes from junctions drawn at random to places drawn at random; each
road costs what the model expects, plus what a draw of the prior adds to it. Every number of visited roads
comes from more places to start at, so that roads are driven on about as often in every row.
"""

from __future__ import annotations

import json
import resource
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import PrecisionWarning
from superarm.core.states import save_state
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.networks import LineGraph, generate_city
from superarm.roads.posterior import RoadGP, Trips, terms_of
from superarm.roads.posterior.forms import FormChoice
from superarm.roads.posterior.noise import TripNoise
from superarm.roads.posterior.sparse_engine import SparseRoadEngine
from superarm.roads.problems.fleet_model import near_kernel, road_rows, road_sizes
from superarm.roads.rows import Column, edges_of

_ROUTES_PER_START = 8
_MORE = 32  # trips that are learned one by one, and as many as their totals
_ROUTES = 8
_SCALES = RoadScales()
Row = dict[str, float]


class Size(NamedTuple):
    """A row of the table."""

    edges: int
    visited: int
    trips: int
    vehicles: int


VISITED = (
    Size(100_000, 100, 250, 4),
    Size(100_000, 1_000, 2_500, 25),
    Size(100_000, 10_000, 25_000, 100),
    Size(100_000, 20_000, 50_000, 200),
)
"""More and more visited roads."""
EDGES = (
    Size(1_000, 300, 750, 10),
    Size(10_000, 300, 750, 10),
    Size(100_000, 300, 750, 10),
    Size(300_000, 300, 750, 10),
    Size(1_000_000, 300, 750, 10),
    Size(2_000_000, 300, 750, 10),
)
"""Larger and larger networks."""
# Edges from which exponents are fitted: smaller networks cost little beyond what any log costs.
_LEAST_EDGES = 50_000.0
SIZES = VISITED + EDGES
COLUMNS = (
    *("edges", "visited", "trips", "vehicles", "log, s", "trip, ms", "total, ms"),
    *(
        "route, ms",
        "draw, s",
        "variances, s",
        "off, %",
        "fit, s",
        "state, MB",
        "memory, MB",
    ),
)
_NOT_COSTS = ("edges", "visited", "trips", "vehicles", "off, %")


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
            if np.count_nonzero(is_visited) >= visited:
                break  # so that rows of other networks have about as many roads
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
    return driven_log(graph, routes(graph, size.visited, longest, rng), size, rng)


def driven_log(graph: LineGraph, chosen: Sequence[Ints], size: Size, rng: Rng) -> Trips:
    """A log of trips over routes that are drawn from some, edge by edge.

    Args:
        graph: The roads.
        chosen: The routes.
        size: How many trips and vehicles.
        rng: Draws the routes, the truth and the noise.
    """
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


def _milliseconds(calls: list[Callable[[], object]]) -> Floats:
    """Milliseconds of a processor that each call takes."""
    times = []
    for call in calls:
        begin = process_time()
        call()
        times.append(1000.0 * (process_time() - begin))
    return np.array(times)


def measure(size: Size, form: FormChoice) -> Row:
    """One row of the table."""
    rng = np.random.default_rng(0)
    graph = generate_city(edges=size.edges, seed=1).line_graph()
    trips = generated_log(graph, size._replace(trips=size.trips + 2 * _MORE), rng)
    gp = RoadGP(near_kernel(graph), road_sizes(graph), refit=0, form=form)
    begin = process_time()
    gp.observe_trips(trips.between(0, size.trips))
    learned = process_time() - begin

    edge_by_edge = [trips.one(size.trips + number) for number in range(_MORE)]
    totals = [
        trips.one(size.trips + _MORE + number).totals() for number in range(_MORE)
    ]
    # Means of many trips share solves: what counts is the average.
    trip = _milliseconds([lambda t=t: gp._take(t) for t in edge_by_edge]).mean()  # type: ignore[misc]
    total = _milliseconds([lambda t=t: gp._take(t) for t in totals]).mean()  # type: ignore[misc]
    keys = edge_by_edge[0].keys
    gp.total(keys)  # solves for the means that later ones share
    route = np.median(
        _milliseconds([lambda t=t: gp.total(t.keys) for t in edge_by_edge[:_ROUTES]])  # type: ignore[misc]
    )
    (draw,) = _milliseconds([lambda: gp._engine.draw(keys, rng)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        (variances,) = _milliseconds([gp._engine.variances])
    off = 0.0
    if isinstance(gp._engine, SparseRoadEngine):
        off = 100.0 * gp._engine.variance_error
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        save_state(gp.state(), path)
        state = path.stat().st_size / 1e6
    (fit,) = _milliseconds([gp.fit])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    values = (
        *(len(graph), len(gp.visited), size.trips, size.vehicles, learned, trip, total),
        *(route, draw / 1e3, variances / 1e3, off, fit / 1e3, state, memory),
    )
    return dict(zip(COLUMNS, map(float, values), strict=True))


def print_growth(rows: Mapping[Size, Row]) -> None:
    """The table, and by which powers costs grow in each sweep of which there are rows.

    Args:
        rows: Rows by size, those of one sweep after another.
    """
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for sweep, grows, least in (
        (VISITED, "visited", 0.0),
        (EDGES, "edges", _LEAST_EDGES),
    ):
        of_sweep = [rows[size] for size in sweep if size in rows]
        for row in of_sweep:
            print("| " + " | ".join(f"{row[name]:,.4g}" for name in COLUMNS) + " |")
        fitted = [row for row in of_sweep if row[grows] >= least]
        if len(fitted) > 1:
            _print_exponents(fitted, grows)


def _print_exponents(rows: Sequence[Row], grows: str) -> None:
    """The power of one column by which each cost grows, fitted to all of these rows."""
    logarithms = np.log([row[grows] for row in rows])
    cells = [f"*exponents in {grows}*"]
    for name in COLUMNS[1:]:
        if name in _NOT_COSTS:
            cells.append("")
        else:
            costs = np.log([row[name] for row in rows])
            power = np.polyfit(logarithms, costs, 1)[0]
            cells.append(f"*{power:.2f}*")
    print("| " + " | ".join(cells) + " |")


def stored_rows(path: Path) -> dict[Size, Row]:
    """The rows of a file by size, in the order of ``SIZES``; none if it does not exist."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {size: stored[_key(size)] for size in SIZES if _key(size) in stored}


def store_row(path: Path, size: Size, row: Row) -> None:
    """Add a row to a file, or replace it."""
    stored = {}
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
    stored[_key(size)] = row
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def _key(size: Size) -> str:
    return " ".join(map(str, size))
