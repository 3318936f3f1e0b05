"""``python -m bench.routes [--edges 6000 …] [--trips 100]``: how long a ``Router`` takes to answer.

Generated cities placed on Earth, trips between edges drawn at random. *made*: the router, from a
network in memory; *first*: the first route, with its landmarks; then milliseconds a route, median and
maximum: by edge ids, between places (without the first look-up, which sorts the roads by place), with
a battery, and with the fastest and the shortest route beside it (``as_json``). *whole*: scipy's search
of the whole graph.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np

from superarm.networks import generate_city
from superarm.networks.geography import from_utm
from superarm.routes import Router
from superarm.routes.search import Search
from superarm.streams import stream

COLUMNS = ("edges", "made, s", "first, s", "by id", "by place", "battery", "compared", "whole")


def timed(asked: Callable[[int], object], count: int) -> str:
    """Median and maximum, in milliseconds."""
    times = []
    for number in range(count):
        begin = perf_counter()
        asked(number)
        times.append(1e3 * (perf_counter() - begin))
    return f"{np.median(times):.1f} ({max(times):.0f})"


def row(edges: int, trips: int) -> list[str]:
    city = generate_city(edges=edges, seed=1)
    city = replace(city, lon_lat=from_utm(city.junctions[:, :2] + np.array([3e5, 5.4e6]), 32))
    begin = perf_counter()
    router = Router(city)
    made = perf_counter() - begin
    graph, rng = router.graph, stream(0, "bench", 0)
    pairs = rng.integers(len(graph), size=(trips, 2)).tolist()
    ids = [(graph.ids[start], graph.ids[goal]) for start, goal in pairs]
    ends = city.lon_lat[city.tail[graph.edges]][:, ::-1] + 1e-5  # type: ignore[index]
    places = [(tuple(ends[start]), tuple(ends[goal])) for start, goal in pairs]
    begin = perf_counter()
    router.route(*ids[0])
    first = perf_counter() - begin
    router.route(*places[0])
    plain = Search(graph, graph.length, graph.turn_length)
    return [
        *(f"{len(graph):,}", f"{made:.2f}", f"{first:.2f}"),
        timed(lambda at: router.route(*ids[at]), trips),
        timed(lambda at: router.route(*places[at]), trips),
        timed(lambda at: router.route(*ids[at], charge=60_000.0), trips),
        timed(lambda at: router.route(*ids[at]).as_json(), min(trips, 20)),
        timed(lambda at: plain.find(*np.array(pairs[at])[:, None]), min(trips, 20)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.routes")
    parser.add_argument("--edges", type=int, nargs="+", default=[6_000, 33_000, 100_000])
    parser.add_argument("--trips", type=int, default=100)
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for edges in options.edges:
        print("| " + " | ".join(row(edges, options.trips)) + " |")


if __name__ == "__main__":
    main()
