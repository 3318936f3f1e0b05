"""``python -m bench.routes [--edges 6000 …] [--trips 100]``: how long a ``Router`` takes to answer.

Generated cities placed on Earth, trips between edges drawn at random. *made*: the router, from a
network in memory; *prepared*: its landmarks, for routes and for both that they are compared with; then
milliseconds a route, median and maximum: by edge ids, between places (without the first look-up, which
sorts the roads by place), with a battery, and with the fastest and the shortest route beside it
(``as_json``). *first*: one of the first routes, for which there are no landmarks yet. All are seconds
of one processor, which other work on the machine disturbs less than the clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from time import process_time

import numpy as np

from superarm.core.compiling import Backend
from superarm.core.streams import stream
from superarm.roads.networks import RoadNetwork, generate_city
from superarm.roads.networks.geography import from_utm
from superarm.roads.routing import Router

COLUMNS = (
    "edges",
    "search",
    "made, s",
    "prepared, s",
    "first",
    "by id",
    "by place",
    "battery",
    "compared",
)


def timed(asked: Callable[[int], object], count: int) -> str:
    """Median and maximum, in milliseconds."""
    times = []
    for number in range(count):
        begin = process_time()
        asked(number)
        times.append(1e3 * (process_time() - begin))
    return f"{np.median(times):.1f} ({max(times):.0f})"


def placed_city(edges: int) -> RoadNetwork:
    city = generate_city(edges=edges, seed=1)
    return replace(
        city, lon_lat=from_utm(city.junctions[:, :2] + np.array([3e5, 5.4e6]), 32)
    )


def row(city: RoadNetwork, backend: Backend, trips: int) -> list[str]:
    begin = process_time()
    router = Router(city, backend=backend)
    made = process_time() - begin
    graph, rng = router.graph, stream(0, "bench", 0)
    pairs = rng.integers(len(graph), size=(trips, 2)).tolist()
    ids = [(graph.ids[start], graph.ids[goal]) for start, goal in pairs]
    ends = city.lon_lat[city.tail[graph.edges]][:, ::-1] + 1e-5  # type: ignore[index]
    places = [(tuple(ends[start]), tuple(ends[goal])) for start, goal in pairs]
    router.route(*ids[0])
    router.route(*places[0])
    first = timed(lambda at: router.route(*ids[at]), min(trips, 5))
    begin = process_time()
    router.prepare()
    prepared = process_time() - begin
    return [
        *(f"{len(graph):,}", backend, f"{made:.2f}", f"{prepared:.2f}", first),
        timed(lambda at: router.route(*ids[at]), trips),
        timed(lambda at: router.route(*places[at]), trips),
        timed(lambda at: router.route(*ids[at], charge=60_000.0), trips),
        timed(lambda at: router.route(*ids[at]).as_json(), trips),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.routes")
    parser.add_argument(
        "--edges", type=int, nargs="+", default=[6_000, 33_000, 100_000]
    )
    parser.add_argument("--trips", type=int, default=100)
    parser.add_argument(
        "--backends", nargs="+", default=["numpy", "numba"], choices=["numpy", "numba"]
    )
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for edges in options.edges:
        city = placed_city(edges)
        for backend in options.backends:
            print(
                "| " + " | ".join(row(city, backend, options.trips)) + " |", flush=True
            )


if __name__ == "__main__":
    main()
