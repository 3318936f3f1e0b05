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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bench.driven import print_head, table_row
from superarm.core import Bools, Floats, Rng
from superarm.core.streams import stream
from superarm.roads.energy import drive_time
from superarm.roads.networks import LineGraph, read_network
from superarm.roads.networks.places import Places
from superarm.roads.routing import Router
from superarm.roads.routing.answers import RouteAnswer, course_in_degrees
from superarm.roads.sumo import Driver

_BESIDE = 10.0  # metres of places from their roads
_NEAR = 15.0  # metres that the other edges of their street may be farther away
_METRES_A_DEGREE = 111_000.0
_ROUNDING = 1e-6


# --- places --------------------------------------------------------------------------------


class Place(NamedTuple):
    """A place in degrees."""

    latitude: float
    longitude: float


class PlacePair(NamedTuple):
    """The ends of a route."""

    start: Place
    goal: Place


def draw_places(graph: LineGraph, count: int, rng: Rng) -> list[Place]:
    """Draw places beside roads.

    Args:
        graph: The roads.
        count: How many.
        rng: Random numbers.
    """
    network = graph.network
    lon_lat = network.on_earth("choose a network in UTM")
    probabilities = graph.length / graph.length.sum()
    numbers = rng.choice(len(graph), size=count, p=probabilities)
    edges = graph.edges[numbers].tolist()
    shares = rng.random(count).tolist()
    places = []
    for edge, share in zip(edges, shares, strict=True):
        course = course_in_degrees(network, lon_lat, edge, share, share)
        longitude, latitude = course[0]
        north, east = _BESIDE * rng.standard_normal(2) / _METRES_A_DEGREE
        eastward = east / np.cos(np.radians(latitude))
        places.append(Place(latitude + north, longitude + eastward))
    return places


class _Projection(NamedTuple):
    """The place on an edge that is nearest to a point."""

    share: float  # of the edge before it
    distance: float  # metres from the point


class Street(NamedTuple):
    """Where a place lies on the edges of its street, in both directions: share by edge."""

    shares: dict[int, float]

    @classmethod
    def near(cls, places: Places, place: Place) -> Street:
        """The street of a place.

        Args:
            places: Of the network.
            place: The place.
        """
        nearest = places.find(place).edges[0]
        point = complex(places._to_plane([(place.longitude, place.latitude)])[0])
        projections = {
            edge: _project(places, edge, point)
            for edge in np.flatnonzero(_same_street(places.graph, nearest)).tolist()
        }
        least = min(projection.distance for projection in projections.values())
        return cls(
            {
                edge: projection.share
                for edge, projection in projections.items()
                if projection.distance <= least + _NEAR
            }
        )


def _same_street(graph: LineGraph, edge: int) -> Bools:
    """Which edges lead between the junctions of an edge, in either direction, (n,)."""
    tail = graph.network.tail[graph.edges]
    head = graph.network.head[graph.edges]
    same_way: Bools = (tail == tail[edge]) & (head == head[edge])
    opposite: Bools = (tail == head[edge]) & (head == tail[edge])
    return same_way | opposite


def _project(places: Places, edge: int, point: complex) -> _Projection:
    course = places._course(edge)
    (share,) = places._shares([edge], point)
    lengths = np.abs(np.diff(course))
    metres = np.concatenate([[0.0], np.cumsum(lengths)])
    nearest = share * metres[-1]
    x = np.interp(nearest, metres, course.real)
    y = np.interp(nearest, metres, course.imag)
    distance = abs(x + 1j * y - point)
    return _Projection(share, float(distance))


# --- what routes pass ----------------------------------------------------------------------


class _Part(NamedTuple):
    """The part of an edge that a route drives, as shares of the edge."""

    edge: int
    begin: float
    end: float


def _parts(answer: RouteAnswer) -> list[_Part]:
    edges = answer.best.edges.tolist()
    lengths = answer.graph.length
    begins = [0.0] * len(edges)
    begins[0] = answer.positions[0] / lengths[edges[0]]
    ends = [1.0] * len(edges)
    ends[-1] = answer.positions[1] / lengths[edges[-1]]
    return [
        _Part(edge, begin, end)
        for edge, begin, end in zip(edges, begins, ends, strict=True)
    ]


def passes_goal(answer: RouteAnswer, goal: Street) -> bool:
    """Whether a route passes its goal before it ends.

    Args:
        answer: The route.
        goal: Where its goal lies.
    """
    *earlier, last = _parts(answer)
    for part in earlier:
        if part.edge in goal.shares and goal.shares[part.edge] >= part.begin:
            return True
    if last.edge not in goal.shares:
        return False
    share = goal.shares[last.edge]
    return last.begin <= share < last.end - _ROUNDING


def passes_start(answer: RouteAnswer, start: Street) -> bool:
    """Whether a route passes its start again after it left.

    Args:
        answer: The route.
        start: Where its start lies.
    """
    _, *later = _parts(answer)
    return any(
        part.edge in start.shares and start.shares[part.edge] <= part.end
        for part in later
    )


# --- drives --------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What a route takes."""

    metres: float
    seconds: float
    energy: float  # Wh


class _Columns(NamedTuple):
    """What routes take, (t,) each."""

    metres: Floats
    seconds: Floats
    energy: Floats  # Wh


class DrivenRoute(NamedTuple):
    """A route that arrived."""

    forecast: Cost
    driven: Cost


def driven_routes(
    router: Router, driver: Driver, answers: Sequence[RouteAnswer], *, whole: bool
) -> Iterator[DrivenRoute]:
    """Drive routes; those that do not arrive are left out.

    Args:
        router: Found them.
        driver: Drives in SUMO.
        answers: The routes.
        whole: Whether to drive between the same edges from end to end.
    """
    vehicle = router.source.vehicle
    for answer in answers:
        route = answer
        if whole:
            route = router.route(answer.ids()[0], answer.ids()[-1])
        ids = route.ids()
        drive = driver.drive(ids, between=route.positions)
        if not drive.arrived:
            print(f"  a trip from {ids[0]} to {ids[-1]} did not arrive")
            continue
        best = route.best
        seconds = drive_time(router.graph, best.edges, driver.step, shares=best.shares)
        energies = drive.energies(vehicle, best.rises) - drive.stored(vehicle)
        yield DrivenRoute(
            forecast=Cost(best.length, seconds, best.energy),
            driven=Cost(drive.metres, drive.duration, float(energies.sum())),
        )


def print_rows(name: str, routes: Sequence[DrivenRoute]) -> None:
    """Print how well forecasts agree with SUMO.

    Args:
        name: Of these routes.
        routes: All that arrived.
    """
    forecast = _columns(route.forecast for route in routes)
    driven = _columns(route.driven for route in routes)
    print(table_row(f"{name}, m", forecast.metres, driven.metres))
    print(table_row(f"{name}, s", forecast.seconds, driven.seconds))
    print(table_row(f"{name}, wh", forecast.energy, driven.energy))


def _columns(costs: Iterable[Cost]) -> _Columns:
    metres, seconds, energy = np.array(list(costs)).T
    return _Columns(metres, seconds, energy)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.goals")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--drives", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in arguments.networks:
        router = Router(read_network(path))
        rng = stream(arguments.seed, "bench", 0)
        places = draw_places(router.graph, 2 * arguments.pairs, rng)
        pairs = [
            PlacePair(start, goal)
            for start, goal in zip(places[::2], places[1::2], strict=True)
        ]
        answers = [router.route(pair.start, pair.goal) for pair in pairs]
        print_passes(router, pairs, answers)
        if arguments.drives:
            print_drives(router, path, answers[: arguments.drives])


def print_passes(
    router: Router, pairs: Sequence[PlacePair], answers: Sequence[RouteAnswer]
) -> None:
    """Print how many routes pass their ends.

    Args:
        router: Found the routes.
        pairs: Their ends.
        answers: The routes.
    """
    pass_goal = 0
    pass_start = 0
    for pair, answer in zip(pairs, answers, strict=True):
        pass_goal += passes_goal(answer, Street.near(router.places, pair.goal))
        pass_start += passes_start(answer, Street.near(router.places, pair.start))
    graph = router.graph
    print(
        f"\n**{graph.network.name}**: {len(graph)} edges; of {len(pairs)} routes between places "
        f"{pass_goal} pass their goal, {pass_start} pass their start again\n"
    )


def print_drives(router: Router, path: str, answers: Sequence[RouteAnswer]) -> None:
    """Print the table of drives.

    Args:
        router: Found the routes.
        path: The network.
        answers: The routes.
    """
    print_head("predicted")
    with Driver(path) as driver:
        parts = list(driven_routes(router, driver, answers, whole=False))
        print_rows("parts", parts)
        whole = list(driven_routes(router, driver, answers, whole=True))
        print_rows("whole", whole)


if __name__ == "__main__":
    main()
