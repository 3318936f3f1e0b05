"""The energy of six routes: with rectified costs, with potentials, the fastest and the shortest.

The routes and their energy (eq. 8) are those of *Bayesian Analysis of Combinatorial Gaussian Process
Bandits* (2025). The road networks must be there: see ``superarm data list``. With ``--sumo`` Monaco's
routes are also driven in SUMO, on empty roads: what the battery gives, less what is stored in motion.
Run: ``python examples/route_energies.py [--sumo]``.
"""

import sys

import numpy as np

from superarm.core.data_files import find
from superarm.core.normal import rectified_mean
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.problems.road_models import ROUTES, load_roads

KINDS = ("rectified", "potential", "fastest", "shortest")


def routes_between(graph: LineGraph, start: str, goal: str) -> dict[str, list[int]]:
    """The four routes, as edge numbers."""
    vehicle = Vehicle()
    energies = vehicle.energy(graph.length, graph.speed, graph.rise)
    costs = {
        "rectified": rectified_mean(energies, 0.1 * energies.std()),
        "potential": energies - vehicle.potential(graph.rise),
        "fastest": graph.travel_time,
        "shortest": graph.length,
    }
    oracle = ShortestPath(successors=graph.successors)
    trip = Trip(start=graph.number(start), goal=graph.number(goal))
    nobody = np.random.default_rng(0)
    return {
        kind: oracle.select(-costs[kind], trip, nobody).positions.tolist()
        for kind in KINDS
    }


def main(sumo: bool) -> None:
    print(f"{'Wh':14}" + "".join(f"{kind:>12}" for kind in KINDS))
    for name, (network, start, goal) in ROUTES.items():
        graph = load_roads(network).graph
        energies = Vehicle().energy(graph.length, graph.speed, graph.rise)
        found = routes_between(graph, start, goal)
        print(
            f"{name:14}"
            + "".join(f"{energies[found[kind]].sum():12.1f}" for kind in KINDS)
        )
        if sumo and network == "monaco":
            from superarm.roads.sumo import Driver

            with Driver(find("monaco-roads", ending=".net.xml.xz")) as driver:
                driven = [
                    driver.drive([graph.ids[edge] for edge in found[kind]])
                    for kind in KINDS
                ]
            spent = [
                drive.energies(Vehicle()) - drive.stored(Vehicle()) for drive in driven
            ]
            print(
                f"{'  in SUMO':14}"
                + "".join(f"{energies.sum():12.1f}" for energies in spent)
            )


if __name__ == "__main__":
    main("--sumo" in sys.argv[1:])
