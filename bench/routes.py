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
from collections.abc import Callable, Sequence
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
_ORIGIN = np.array([3e5, 5.4e6])  # easting and northing of the city's corner, metres
_UTM_ZONE = 32
_BESIDE = 1e-5  # degrees from the junction where an edge begins
_FIRST_TRIPS = 5
_CHARGE = 60_000.0  # Wh


def timed(ask: Callable[[int], object], count: int) -> str:
    """Median and maximum, in milliseconds.

    Args:
        ask: Asks for the route of a trip, by its number.
        count: How many trips.
    """
    times = []
    for number in range(count):
        begin = process_time()
        ask(number)
        times.append(1e3 * (process_time() - begin))
    return f"{np.median(times):.1f} ({max(times):.0f})"


def placed_city(edges: int) -> RoadNetwork:
    """A generated city on Earth.

    Args:
        edges: How many it has, about.
    """
    city = generate_city(edges=edges, seed=1)
    eastings_and_northings = city.junctions[:, :2] + _ORIGIN
    return replace(city, lon_lat=from_utm(eastings_and_northings, _UTM_ZONE))


def row(city: RoadNetwork, backend: Backend, trips: int) -> list[str]:
    """The cells of ``COLUMNS``.

    Args:
        city: The roads.
        backend: Of the router.
        trips: How many routes are timed.
    """
    begin = process_time()
    router = Router(city, backend=backend)
    seconds_to_make = process_time() - begin
    graph = router.graph
    rng = stream(0, "bench", 0)
    pairs = rng.integers(len(graph), size=(trips, 2)).tolist()
    ids = [(graph.ids[start], graph.ids[goal]) for start, goal in pairs]
    assert city.lon_lat is not None
    ends = city.lon_lat[city.tail[graph.edges]][:, ::-1] + _BESIDE
    places = [(tuple(ends[start]), tuple(ends[goal])) for start, goal in pairs]
    router.route(*ids[0])
    router.route(*places[0])
    first = timed(lambda trip: router.route(*ids[trip]), min(trips, _FIRST_TRIPS))
    begin = process_time()
    router.prepare()
    seconds_to_prepare = process_time() - begin
    return [
        f"{len(graph):,}",
        backend,
        f"{seconds_to_make:.2f}",
        f"{seconds_to_prepare:.2f}",
        first,
        timed(lambda trip: router.route(*ids[trip]), trips),
        timed(lambda trip: router.route(*places[trip]), trips),
        timed(lambda trip: router.route(*ids[trip], charge=_CHARGE), trips),
        timed(lambda trip: router.route(*ids[trip]).as_json(), trips),
    ]


def print_row(cells: Sequence[str]) -> None:
    """Print a row of the table.

    Args:
        cells: Those of ``COLUMNS``.
    """
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.routes")
    parser.add_argument(
        "--edges", type=int, nargs="+", default=[6_000, 33_000, 100_000]
    )
    parser.add_argument("--trips", type=int, default=100)
    parser.add_argument(
        "--backends", nargs="+", default=["numpy", "numba"], choices=["numpy", "numba"]
    )
    arguments = parser.parse_args()
    print_row(COLUMNS)
    print("|" + "---|" * len(COLUMNS))
    for edges in arguments.edges:
        city = placed_city(edges)
        for backend in arguments.backends:
            print_row(row(city, backend, arguments.trips))


if __name__ == "__main__":
    main()
