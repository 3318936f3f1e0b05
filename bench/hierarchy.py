"""``python -m bench.hierarchy [--networks country:100000 …] [--json]``: routes by a hierarchy, up to a country.

Networks are generated, ``country:EDGES`` (see :mod:`.country`) or ``city:EDGES``, or real topologies with drawn
lengths and heights, ``luxembourg`` and ``san-francisco``. Costs are what a car needs by the energy model, with
potential routing. Columns:

*order*, *contract*  the nested dissection, and all shortcuts: once for each network, then stored beside it
*arcs*               in millions
*open*               the network, its line graph and its hierarchy from their caches, instead of reading,
                     ordering and contracting
*customise*          all costs of arcs from those of turns: for each metric
*route*              between two random places, with its path: median and 99th percentile
*matrix*             costs between 100 × 100 random places
*update*             customising what 60 other turns need
*difference*         the largest relative difference of a matrix from SciPy's Dijkstra, in units of the
                     rounding that is stated: 4·k·2⁻⁵³, k the edges of the longest route
*memory*             the largest of the process

All times are those of one processor, because other work on the machine makes those of the clock longer. The
last line has exponents of growth, fitted to the countries.

Every network runs in a process of its own, so you can split a long run: ``--json > a.json`` prints one line for
each network, and ``--stored a.json b.json`` shows the table of several files. Networks below 10,000 edges are
not stored, so *open* computes them again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.shortest_paths import shortest_costs
from superarm.core.streams import stream
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city
from superarm.roads.networks.cache import read_cached

from .country import generate_country
from .topologies import TOPOLOGIES, read_topology

COLUMNS = (
    "edges",
    "order, s",
    "contract, s",
    "arcs, M",
    "open, s",
    "customise, s",
    "route, ms",
    "p99, ms",
    "matrix, s",
    "update, s",
    "difference",
    "memory, GB",
)
_NOT_FITTED = ("edges", "difference")
NETWORKS = (
    *("country:1000", "country:10000", "country:100000", "country:1000000"),
    *("country:2000000", "city:100000", "city:1000000", *TOPOLOGIES),
)
_UPDATED = 60
_PLACES = 100
_COMPARED = 4  # starts whose costs are compared
_ROUTES = 300


def seconds(work: Any) -> tuple[float, Any]:
    """Seconds of the processor, and what the work returned."""
    begin = process_time()
    result = work()
    return process_time() - begin, result


def network_named(name: str) -> RoadNetwork:
    kind, _, size = name.partition(":")
    if kind in TOPOLOGIES:
        return read_topology(kind)
    makers: dict[str, Any] = {"city": generate_city, "country": generate_country}
    network: RoadNetwork = makers[kind](edges=int(size), seed=1)
    return network


def costs_of(graph: LineGraph) -> tuple[Floats, Floats]:
    """What a car needs for each edge and for each turn, less what it gains in height; Wh."""
    vehicle = Vehicle()
    mean = vehicle.energy(graph.length, graph.speed, graph.rise)
    potentials = vehicle.potential(1.0) * graph.rise
    return np.maximum(mean - potentials, 0.0), vehicle.turn_energy(graph)


def measured(name: str, routes: int) -> dict[str, Any]:
    """The numbers of one network."""
    from superarm.roads.routing import hierarchy as hierarchies
    from superarm.roads.routing.search import Ends, Search

    rng = stream(0, "bench", 1)
    network = network_named(name)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "roads.net.xml"
        # Sparse: a cache may be so much larger than its network, whose file is not written here.
        with source.open("wb") as file:
            os.truncate(file.fileno(), 200 * len(network.edge_ids))

        def read() -> RoadNetwork:
            return read_cached(
                source, lambda: replace(network), name=name, options={}, enabled=True
            )

        graph = read().line_graph()
        order_seconds, _ = seconds(lambda: graph.elimination_order)
        contract_seconds, first = seconds(lambda: hierarchies.hierarchy_of(graph))
        open_seconds, _ = seconds(lambda: hierarchies.hierarchy_of(read().line_graph()))
    costs, turn_costs = costs_of(graph)
    search = Search(graph, costs, turn_costs, form="hierarchy")
    customise_seconds, _ = seconds(search.prepare)

    def places(count: int) -> list[Ends]:
        edges = rng.integers(len(graph), size=(count, 1))
        shares = rng.random((count, 1))
        return [Ends(*place) for place in zip(edges, shares, strict=True)]

    times = []
    longest = 2
    for start, goal in zip(places(routes), places(routes), strict=True):
        begin = process_time()
        path = search.find(start, goal)
        times.append(1e3 * (process_time() - begin))
        longest = longest if path is None else max(longest, len(path.edges))
    many = places(_PLACES)
    matrix_seconds, matrix = seconds(lambda: search.least_costs(many, many))
    rounding = 4.0 * longest * 2.0**-53
    difference = largest_difference(graph, costs, turn_costs, many, matrix) / rounding
    weights = costs[graph.turns[:, 1]] + turn_costs
    _ = first.lower_up, first.lower_down  # once for all updates
    weights[rng.choice(len(weights), _UPDATED, replace=False)] *= 3.0
    metric = search._hierarchy.metric
    update_seconds, _ = seconds(
        lambda: hierarchies.recustomised(first, metric, weights)
    )
    return {
        "network": name.partition(":")[0],
        "edges": len(graph),
        "order, s": order_seconds,
        "contract, s": contract_seconds,
        "arcs, M": (len(first.up.heads) + len(first.down.heads)) / 1e6,
        "open, s": open_seconds,
        "customise, s": customise_seconds,
        "route, ms": float(np.median(times)),
        "p99, ms": float(np.quantile(times, 0.99)),
        "matrix, s": matrix_seconds,
        "update, s": update_seconds,
        "difference": difference,
        "memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def largest_difference(
    graph: LineGraph,
    costs: Floats,
    turn_costs: Floats,
    places: Sequence[Any],
    matrix: Floats,
) -> float:
    """The largest relative difference of some rows of a matrix from SciPy's costs."""
    from scipy.sparse import csr_array

    first, second = graph.turns.T
    weights = costs[second] + turn_costs
    forward = csr_array((weights, (first, second)), shape=(len(graph), len(graph)))
    largest = 0.0
    for row, start in zip(matrix[:_COMPARED], places, strict=False):
        reached = shortest_costs(forward, int(start.edges[0]))
        reached += (1.0 - start.shares[0]) * costs[start.edges[0]]
        for cost, goal in zip(row, places, strict=True):
            edge = int(goal.edges[0])
            if edge == start.edges[0]:
                continue  # maybe without leaving the edge
            expected = reached[edge] - (1.0 - goal.shares[0]) * costs[edge]
            largest = max(largest, abs(cost - expected) / expected)
    return largest


def exponents(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The exponents of growth with the edges, by least squares of logarithms.

    From 10,000 edges on: below, fixed costs count more.
    """
    fitted = [row for row in rows if row["network"] == "country"]
    fitted = [row for row in fitted if row["edges"] > 9_000]
    if len(fitted) < 2:
        return {}
    edges = np.log([row["edges"] for row in fitted])
    found = {}
    for column in COLUMNS:
        if column not in _NOT_FITTED:
            values = np.log([max(row[column], 1e-6) for row in fitted])
            found[column] = float(np.polyfit(edges, values, 1)[0])
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| network | " + " | ".join(COLUMNS) + " |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for row in rows:
        numbers = [f"{row['edges']:,}"]
        numbers += [f"{row[column]:.2g}" for column in COLUMNS[1:]]
        lines.append(f"| {row['network']} | " + " | ".join(numbers) + " |")
    growth = exponents(rows)
    if growth:
        cells = [f"{growth[name]:.2f}" if name in growth else "" for name in COLUMNS]
        lines.append("| exponent, countries | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def read_rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The rows of files of lines of JSON."""
    rows = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        rows += [json.loads(line) for line in text.splitlines()]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hierarchy")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--routes", type=int, default=_ROUTES)
    parser.add_argument("--json", action="store_true", help="one line for each network")
    parser.add_argument(
        "--stored",
        type=Path,
        nargs="+",
        help="measure nothing, show what --json printed before",
    )
    options = parser.parse_args()
    if options.stored is not None:
        print(table(read_rows(options.stored)))
        return
    rows = []
    if len(options.networks) == 1:
        measured("city:1000", 5)  # compiles
        rows.append(measured(options.networks[0], options.routes))
    else:
        shared = ["--routes", str(options.routes), "--json"]
        for name in options.networks:
            command = [sys.executable, "-m", "bench.hierarchy", "--networks", name]
            done = subprocess.run(
                [*command, *shared], check=True, stdout=subprocess.PIPE, text=True
            )
            rows.append(json.loads(done.stdout))
            print(f"bench.hierarchy: {name}", file=sys.stderr, flush=True)
    if options.json:
        for row in rows:
            print(json.dumps(row, allow_nan=False))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
