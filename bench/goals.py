"""``python -m bench.goals FILE.net.xml … [--pairs 300] [--drives 100]``: routes between coordinates.

Places are drawn beside roads: an edge by its length, a point along it, 10 m of noise. First it is
counted how many routes between two places pass their goal before they end, or pass their start again
after they left it: on any edge that leads between the same two junctions, in either direction, and is
at most 15 m farther away. Then routes are driven in SUMO on empty roads, from the start's metre of the
first edge to the goal's metre of the last. A row compares what is predicted of the routes with what was
driven: the ratio of sums, the 5 %, 50 % and 95 % quantiles of the routes' errors, in percent, and the
share of routes within 2 %. Beside the *parts* stand routes between the same edges, then driven *whole*.

What is stored in motion counts on neither side: a car begins as fast as it may, passes its goal without
braking, and what is in its motion at either end is taken out of the energy that it drew.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bench.driven import row
from superarm.core import Floats, Rng
from superarm.core.streams import stream
from superarm.roads.energy import drive_time
from superarm.roads.networks import LineGraph, read_network
from superarm.roads.networks.places import Places
from superarm.roads.routing import Router
from superarm.roads.routing.answers import RouteAnswer, course_in_degrees
from superarm.roads.sumo import Driver

_BESIDE, _NEAR = (
    10.0,
    15.0,
)  # metres: of places from their roads; how much farther their street may be
_METRES_A_DEGREE = 111_000.0
_HEADS = "| predicted | routes | ratio | 5 % | 50 % | 95 % | within 2 %, % |\n|---|---|---|---|---|---|---|"


class Street(NamedTuple):
    """Where a place lies on the edges of its street, in both directions: share by edge."""

    shares: dict[int, float]

    @classmethod
    def of(cls, places: Places, place: tuple[float, float]) -> Street:
        graph = places.graph
        network, nearest = graph.network, places.find(place).edges[0]
        tail, head = network.tail[graph.edges], network.head[graph.edges]
        same = (tail == tail[nearest]) & (head == head[nearest])
        same |= (tail == head[nearest]) & (head == tail[nearest])
        point = complex(places._to_plane([place[::-1]])[0])
        found = {
            int(edge): _projected(places, int(edge), point)
            for edge in np.flatnonzero(same)
        }
        least = min(away for _, away in found.values())
        return cls(
            {
                edge: share
                for edge, (share, away) in found.items()
                if away <= least + _NEAR
            }
        )


def _projected(places: Places, edge: int, point: complex) -> tuple[float, float]:
    """How much of an edge lies before its place nearest to a point, and how far away that is."""
    course = places._course(edge)
    share = places._shares([edge], point)[0]
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(course)))])
    at = share * along[-1]
    on_edge = np.interp(at, along, course.real) + 1j * np.interp(at, along, course.imag)
    return share, float(abs(on_edge - point))


def passes_goal(answer: RouteAnswer, goal: Street) -> bool:
    """Whether the place is passed before the route ends."""
    edges = answer.best.edges.tolist()
    begin = [
        answer.positions[0] / answer.graph.length[edges[0]],
        *[0.0] * (len(edges) - 1),
    ]
    before = any(
        goal.shares.get(edge, -1.0) >= at
        for edge, at in zip(edges[:-1], begin, strict=False)
    )
    end = answer.positions[1] / answer.graph.length[edges[-1]]
    return before or begin[-1] <= goal.shares.get(edges[-1], 2.0) < end - 1e-6


def passes_start(answer: RouteAnswer, start: Street) -> bool:
    """Whether the place is passed again after it was left."""
    edges = answer.best.edges.tolist()
    end = [
        *[1.0] * (len(edges) - 1),
        answer.positions[1] / answer.graph.length[edges[-1]],
    ]
    return any(
        start.shares.get(edge, 2.0) <= at
        for edge, at in zip(edges[1:], end[1:], strict=True)
    )


def drawn_places(graph: LineGraph, count: int, rng: Rng) -> list[tuple[float, float]]:
    """Latitudes and longitudes."""
    network, lon_lat = graph.network, graph.network.on_earth("choose a network in UTM")
    edges = rng.choice(len(graph), size=count, p=graph.length / graph.length.sum())
    found = []
    for edge, share in zip(
        graph.edges[edges].tolist(), rng.random(count).tolist(), strict=True
    ):
        longitude, latitude = course_in_degrees(network, lon_lat, edge, share, share)[0]
        north, east = _BESIDE * rng.standard_normal(2) / _METRES_A_DEGREE
        found.append(
            (latitude + north, longitude + east / np.cos(np.radians(latitude)))
        )
    return found


COLUMNS = ("told_m", "told_s", "told_wh", "driven_m", "driven_s", "driven_wh")


def driven(
    router: Router, driver: Driver, answers: list[RouteAnswer], full_edges: bool
) -> Iterator[Floats]:
    """One row of ``COLUMNS`` for each route that arrived."""
    vehicle = router.source.vehicle
    for found in answers:
        answer = router.route(found.ids()[0], found.ids()[-1]) if full_edges else found
        best = answer.best
        drive = driver.drive(answer.ids(), between=answer.positions)
        if not drive.arrived:
            print(
                f"  a trip from {answer.ids()[0]} to {answer.ids()[-1]} did not arrive"
            )
            continue
        energy = drive.energies(vehicle, best.rises) - drive.stored(vehicle)
        seconds = drive_time(router.graph, best.edges, driver.step, shares=best.shares)
        forecast = (best.length, seconds, best.energy)
        yield np.array([*forecast, drive.metres, drive.duration, energy.sum()])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.goals")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--drives", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for path in options.networks:
        router = Router(read_network(path))
        graph = router.graph
        points = drawn_places(
            graph, 2 * options.pairs, stream(options.seed, "bench", 0)
        )
        pairs = list(zip(points[::2], points[1::2], strict=True))
        answers = [router.route(*pair) for pair in pairs]
        streets = [
            [Street.of(router.places, place) for place in pair] for pair in pairs
        ]
        at_goal = sum(
            passes_goal(answer, each[1])
            for answer, each in zip(answers, streets, strict=True)
        )
        at_start = sum(
            passes_start(answer, each[0])
            for answer, each in zip(answers, streets, strict=True)
        )
        print(
            f"\n**{graph.network.name}**: {len(graph)} edges; of {len(pairs)} routes between places "
            f"{at_goal} pass their goal, {at_start} pass their start again\n"
        )
        if not options.drives:
            continue
        print(_HEADS)
        with Driver(path) as driver:
            for name, full_edges in (("parts", False), ("whole", True)):
                rows = np.array(
                    list(driven(router, driver, answers[: options.drives], full_edges))
                )
                table = dict(zip(COLUMNS, rows.T, strict=True))
                for unit in ("m", "s", "wh"):
                    print(
                        row(
                            f"{name}, {unit}",
                            table[f"told_{unit}"],
                            table[f"driven_{unit}"],
                        )
                    )


if __name__ == "__main__":
    main()
