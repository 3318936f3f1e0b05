"""``python -m bench.driven FILE.net.xml … [--trips 200]``: lengths and durations beside SUMO's.

Trips between edges drawn at random, each by the fastest route (travel times and ``turn_seconds``), are
driven in SUMO on empty roads, where signals run the programs of the network. A row says of what is
forecast for a route, over what was driven: the ratio of sums, and the 5 %, 50 % and 95 % quantiles of the
routes' errors, in percent, and the share of routes within 2 %.

- *edges alone*: what edges add up to, without turns;
- *turns*: Σ length + Σ turn_length, Σ travel_time + Σ turn_seconds;
- *profile*: ``drive_time``, the mean over departures; *departure*: for the moment of departure.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from superarm.core import Floats
from superarm.core.streams import stream
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import drive_time
from superarm.roads.energy.junctions import UTURN_SECONDS
from superarm.roads.networks import LineGraph, read_sumo
from superarm.roads.sumo import Driver

COLUMNS = (
    "driven_m",
    "driven_s",
    "edges_m",
    "edges_s",
    "turns_m",
    "turns_s",
    "profile",
    "departure",
    "signals",
)


def measured(
    graph: LineGraph, driver: Driver, trips: int, seed: int
) -> Iterator[tuple[float, ...]]:
    """One row of ``COLUMNS`` for each trip that arrived."""
    rng, oracle = stream(seed, "bench", 0), ShortestPath(successors=graph.turn_graph)
    for _ in range(trips):
        start, goal = (
            int(edge) for edge in rng.choice(len(graph), size=2, replace=False)
        )
        trip = Trip(start=start, goal=goal, turn_costs=graph.turn_seconds)
        route = oracle.select(-graph.travel_time, trip, rng).positions
        turns = graph.turn_numbers(route)
        drive = driver.drive([graph.ids[edge] for edge in route])
        if not drive.arrived:
            print(
                f"  a trip from {graph.ids[start]} to {graph.ids[goal]} did not arrive"
            )
            continue
        metres, seconds = graph.length[route].sum(), graph.travel_time[route].sum()
        # What a U-turn costs beside its junction is stated, not driven.
        added = (graph.turn_seconds - UTURN_SECONDS * graph.is_uturn)[turns].sum()
        yield (
            *(drive.metres, drive.duration, metres, seconds),
            *(metres + graph.turn_length[turns].sum(), seconds + added),
            *(drive_time(graph, route), drive_time(graph, route, driver.step)),
            int(np.count_nonzero(graph.turn_stop[turns])),
        )


def row(name: str, forecast: Floats, driven: Floats) -> str:
    errors = 100.0 * (forecast / driven - 1.0)
    low, middle, high = np.quantile(errors, [0.05, 0.5, 0.95])
    near = 100.0 * np.mean(np.abs(errors) <= 2.0)
    shown = f"{low:+.2f} | {middle:+.2f} | {high:+.2f} | {near:.0f}"
    return (
        f"| {name} | {len(forecast)} | {forecast.sum() / driven.sum():.4f} | {shown} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.driven")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--trips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for path in options.networks:
        graph = read_sumo(path).line_graph(uturns="dead-ends")
        print(
            f"\n**{graph.network.name}**: {len(graph)} edges, {len(graph.signals)} turns with signals\n"
        )
        with Driver(path) as driver:
            found = np.array(list(measured(graph, driver, options.trips, options.seed)))
        table = dict(zip(COLUMNS, found.T, strict=True))
        print("| forecast | routes | ratio | 5 % | 50 % | 95 % | within 2 %, % |")
        print("|---|---|---|---|---|---|---|")
        for name in ("edges_m", "turns_m"):
            print(row(name, table[name], table["driven_m"]))
        free = table["signals"] == 0
        for name in ("edges_s", "turns_s", "profile", "departure"):
            print(row(name, table[name], table["driven_s"]))
            if free.any():
                print(
                    row(
                        f"{name}, no signals",
                        table[name][free],
                        table["driven_s"][free],
                    )
                )


if __name__ == "__main__":
    main()
