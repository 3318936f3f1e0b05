"""``python -m bench.driven FILE.net.xml … [--trips 200]``: lengths and durations beside SUMO's.

Trips between edges drawn at random, each by the fastest route (travel times and ``turn_seconds``), are
driven in SUMO on empty roads, where signals run the programs of the network. A row compares one forecast
of the routes with what was driven: the ratio of sums, the 5 %, 50 % and 95 % quantiles of the routes'
errors, in percent, and the share of routes within 2 %.

- *edges*: the sum over edges, without turns;
- *turns*: Σ length + Σ turn_length, Σ travel_time + Σ turn_seconds;
- *profile*: ``drive_time``, the mean over departures; *departure*: for the moment of departure.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.streams import stream
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import drive_time
from superarm.roads.energy.junctions import UTURN_SECONDS
from superarm.roads.networks import LineGraph, read_sumo
from superarm.roads.sumo import Driver

_NEAR = 2.0  # %, the error of a good forecast


class DrivenTrip(NamedTuple):
    """A trip that arrived, with its forecasts by name."""

    metres: float
    seconds: float
    metre_forecasts: Mapping[str, float]
    second_forecasts: Mapping[str, float]
    signals: int  # turns of the route at which it may have to stop


def driven_trips(
    graph: LineGraph, driver: Driver, trips: int, seed: int
) -> Iterator[DrivenTrip]:
    """Drive random trips, and forecast each in every way.

    Args:
        graph: The roads.
        driver: Drives on them.
        trips: How many; those that do not arrive are left out.
        seed: Of starts and goals.
    """
    rng = stream(seed, "bench", 0)
    oracle = ShortestPath(successors=graph.turn_graph)
    for _ in range(trips):
        start, goal = rng.choice(len(graph), size=2, replace=False).tolist()
        trip = Trip(start=start, goal=goal, turn_costs=graph.turn_seconds)
        route = oracle.select(-graph.travel_time, trip, rng).positions
        drive = driver.drive([graph.ids[edge] for edge in route])
        if not drive.arrived:
            print(
                f"  a trip from {graph.ids[start]} to {graph.ids[goal]} did not arrive"
            )
            continue
        turns = graph.turn_numbers(route)
        metres = graph.length[route].sum()
        seconds = graph.travel_time[route].sum()
        turn_metres = graph.turn_length[turns].sum()
        # The cost of a U-turn beside its junction is an assumption; SUMO does not drive it.
        turn_seconds = graph.turn_seconds - UTURN_SECONDS * graph.is_uturn
        yield DrivenTrip(
            metres=drive.metres,
            seconds=drive.duration,
            metre_forecasts={"edges_m": metres, "turns_m": metres + turn_metres},
            second_forecasts={
                "edges_s": seconds,
                "turns_s": seconds + turn_seconds[turns].sum(),
                "profile": drive_time(graph, route),
                "departure": drive_time(graph, route, driver.step),
            },
            signals=int(np.count_nonzero(graph.turn_stop[turns])),
        )


def print_head(first: str) -> None:
    """Print the head of a table of :func:`table_row`.

    Args:
        first: What the first column has.
    """
    print(f"| {first} | routes | ratio | 5 % | 50 % | 95 % | within 2 %, % |")
    print("|---|---|---|---|---|---|---|")


def table_row(name: str, forecast: Floats, driven: Floats) -> str:
    """A row of the table: how well forecasts agree with what was driven.

    Args:
        name: Of the row.
        forecast: Of each route, (t,).
        driven: What each took, (t,).
    """
    ratio = forecast.sum() / driven.sum()
    errors = 100.0 * (forecast / driven - 1.0)
    low, middle, high = np.quantile(errors, [0.05, 0.5, 0.95])
    near = 100.0 * np.mean(np.abs(errors) <= _NEAR)
    cells = (
        name,
        str(len(forecast)),
        f"{ratio:.4f}",
        f"{low:+.2f}",
        f"{middle:+.2f}",
        f"{high:+.2f}",
        f"{near:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def print_table(trips: Sequence[DrivenTrip]) -> None:
    """Print how well each forecast agrees with SUMO.

    Args:
        trips: All that arrived.
    """
    print_head("forecast")
    metres = np.array([trip.metres for trip in trips])
    for name in trips[0].metre_forecasts:
        forecast = np.array([trip.metre_forecasts[name] for trip in trips])
        print(table_row(name, forecast, metres))
    seconds = np.array([trip.seconds for trip in trips])
    no_signals = np.array([trip.signals == 0 for trip in trips])
    for name in trips[0].second_forecasts:
        forecast = np.array([trip.second_forecasts[name] for trip in trips])
        print(table_row(name, forecast, seconds))
        if no_signals.any():
            label = f"{name}, no signals"
            print(table_row(label, forecast[no_signals], seconds[no_signals]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.driven")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--trips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in arguments.networks:
        graph = read_sumo(path).line_graph(uturns="dead-ends")
        edges = f"{len(graph)} edges"
        signals = f"{len(graph.signals)} turns with signals"
        print(f"\n**{graph.network.name}**: {edges}, {signals}\n")
        with Driver(path) as driver:
            trips = list(driven_trips(graph, driver, arguments.trips, arguments.seed))
        print_table(trips)


if __name__ == "__main__":
    main()
