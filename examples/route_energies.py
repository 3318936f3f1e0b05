"""The energy of six routes: with rectified costs, with potentials, the fastest and the shortest.

The routes and their energy (eq. 8) are those of *Bayesian Analysis of Combinatorial Gaussian Process
Bandits* (2025). The road networks must be there: see ``superarm data list``. With ``--sumo`` Monaco's
routes are also driven in SUMO, on empty roads: what the battery gives, less what is stored in motion.
Run: ``python examples/route_energies.py [--sumo]``.
"""

import sys

import numpy as np

from superarm.core import Floats
from superarm.core.data_files import find
from superarm.core.normal import rectified_mean
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.problems.road_models import ROUTES, load_roads

VEHICLE = Vehicle()
KINDS = ("rectified", "potential", "fastest", "shortest")


def energies_of(graph: LineGraph) -> Floats:
    """Wh of every edge, by eq. 8."""
    return VEHICLE.energy(graph.length, graph.speed, graph.rise)


def routes_between(graph: LineGraph, start: str, goal: str) -> dict[str, list[int]]:
    """The four routes, as edge numbers."""
    energies = energies_of(graph)
    costs = {
        "rectified": rectified_mean(energies, 0.1 * energies.std()),
        "potential": energies - VEHICLE.potential(graph.rise),
        "fastest": graph.travel_time,
        "shortest": graph.length,
    }
    oracle = ShortestPath(successors=graph.successors)
    trip = Trip(start=graph.number(start), goal=graph.number(goal))
    rng = np.random.default_rng(0)  # a shortest path draws nothing from it
    return {
        kind: oracle.select(-costs[kind], trip, rng).positions.tolist()
        for kind in KINDS
    }


def driven_energies(graph: LineGraph, routes: dict[str, list[int]]) -> list[float]:
    """Wh of every route, as driven in SUMO."""
    from superarm.roads.sumo import Driver

    totals = []
    with Driver(find("monaco-roads", ending=".net.xml.xz")) as driver:
        for kind in KINDS:
            edge_ids = [graph.ids[edge] for edge in routes[kind]]
            drive = driver.drive(edge_ids)
            net = drive.energies(VEHICLE) - drive.stored(VEHICLE)
            totals.append(float(net.sum()))
    return totals


def print_row(label: str, totals: list[float]) -> None:
    cells = [f"{total:12.1f}" for total in totals]
    print(f"{label:14}" + "".join(cells))


def main(sumo: bool) -> None:
    print(f"{'Wh':14}" + "".join(f"{kind:>12}" for kind in KINDS))
    for name, (network, start, goal) in ROUTES.items():
        graph = load_roads(network).graph
        energies = energies_of(graph)
        routes = routes_between(graph, start, goal)
        print_row(name, [float(energies[routes[kind]].sum()) for kind in KINDS])
        if sumo and network == "monaco":
            print_row("  in SUMO", driven_energies(graph, routes))


if __name__ == "__main__":
    main("--sumo" in sys.argv[1:])
