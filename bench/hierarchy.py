"""``python -m bench.hierarchy [--edges 6000 …]``: routes by a contraction hierarchy, up to a country.

Generated cities with random costs. *order*: the nested dissection; *arcs*: in millions; *contract*: all
shortcuts from the order; *customise*: all costs of arcs from those of turns; *open*: the stored topology,
checked, instead of order and contraction; *route*: between two random places, with its path, median and
99th percentile; *matrix*: costs between 100 × 100 random places; *update*: customising what 60 other turns
need; *memory*: the largest of the process. Seconds are those of one processor. Routes are too short for
that: they are timed by the clock, and other work on the machine makes them longer. The last line has the
exponents of growth between the first and the last size. Networks below 10,000 edges are not stored, so
that *open* computes them anew.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from superarm.core.streams import stream
from superarm.roads.networks import LineGraph, generate_city
from superarm.roads.routing import hierarchy as hierarchies
from superarm.roads.routing.search import Ends, Search

COLUMNS = (
    "edges",
    "order, s",
    "arcs, M",
    "contract, s",
    "customise, s",
    "open, s",
    "route, ms",
    "p99, ms",
    "matrix, s",
    "update, s",
    "memory, GB",
)
_UPDATED = 60
_PLACES = 100


def seconds(work: Any) -> tuple[float, Any]:
    """Seconds of the processor, and what the work returned."""
    begin = process_time()
    result = work()
    return process_time() - begin, result


def places(rng: Any, graph: LineGraph, count: int) -> list[Ends]:
    """Random places, each on one edge."""
    edges = rng.integers(len(graph), size=(count, 1))
    shares = rng.random((count, 1))
    return [Ends(*place) for place in zip(edges, shares, strict=True)]


def measured(edges: int, routes: int) -> dict[str, float]:
    """The numbers of one size."""
    rng = stream(0, "bench", edges)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "city.net.xml"
        # Sparse: a cache may be so much larger than its network, whose file is not written here.
        with source.open("wb") as file:
            os.truncate(file.fileno(), 200 * edges)
        city = replace(generate_city(edges=edges, seed=1), source=source)
        graph = city.line_graph()
        order_seconds, _ = seconds(lambda: graph.elimination_order)
        contract_seconds, first = seconds(lambda: hierarchies.hierarchy_of(graph))
        again = replace(city).line_graph()
        open_seconds, _ = seconds(lambda: hierarchies.hierarchy_of(again))
    costs = rng.gamma(2.0, size=len(graph))
    turn_costs = rng.random(len(graph.turns))
    search = Search(graph, costs, turn_costs, form="hierarchy")
    customise_seconds, _ = seconds(search.prepare)
    starts = places(rng, graph, routes)
    goals = places(rng, graph, routes)
    times = []
    for start, goal in zip(starts, goals, strict=True):
        begin = perf_counter()
        search.find(start, goal)
        times.append(1e3 * (perf_counter() - begin))
    many = places(rng, graph, _PLACES)
    matrix_seconds, _ = seconds(lambda: search.least_costs(many, many[::-1]))
    weights = costs[graph.turns[:, 1]] + turn_costs
    metric = hierarchies.customised(first, weights)
    _ = first.tails, first.lower_arcs  # once for all updates
    updated = weights.copy()
    updated[rng.choice(len(weights), _UPDATED, replace=False)] *= 3.0
    update_seconds, _ = seconds(
        lambda: hierarchies.recustomised(first, metric, updated)
    )
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "edges": len(graph),
        "order, s": order_seconds,
        "arcs, M": len(first.heads) / 1e6,
        "contract, s": contract_seconds,
        "customise, s": customise_seconds,
        "open, s": open_seconds,
        "route, ms": float(np.median(times)),
        "p99, ms": float(np.quantile(times, 0.99)),
        "matrix, s": matrix_seconds,
        "update, s": update_seconds,
        "memory, GB": kilobytes / 1e6,
    }


def line(values: list[str]) -> str:
    return "| " + " | ".join(values) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hierarchy")
    parser.add_argument(
        "--edges", type=int, nargs="+", default=[6_000, 33_000, 100_000]
    )
    parser.add_argument("--routes", type=int, default=200)
    options = parser.parse_args()
    measured(1000, 5)  # compiles
    print(line(list(COLUMNS)))
    print("|" + "---:|" * len(COLUMNS))
    rows = []
    for edges in options.edges:
        row = measured(edges, options.routes)
        rows.append(row)
        numbers = [f"{row[column]:.3g}" for column in COLUMNS[1:]]
        print(line([f"{row['edges']:,.0f}", *numbers]), flush=True)
    if len(rows) < 2:
        return
    growth = np.log(rows[-1]["edges"] / rows[0]["edges"])
    exponents = ["exponent"]
    for column in COLUMNS[1:]:
        ratio = max(rows[-1][column], 1e-9) / max(rows[0][column], 1e-9)
        exponents.append(f"{np.log(ratio) / growth:.2f}")
    print(line(exponents))


if __name__ == "__main__":
    main()
