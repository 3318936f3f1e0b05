"""``python -m bench.shortest [--repeats 5]``: Dijkstra's algorithm beside Bellman–Ford on real roads.

Section 4.1 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025) rectifies costs
because Bellman–Ford, which allows negative ones, is "significantly slower" and finds no path where a
negative cycle can be reached. Here are both of SciPy, from the first edge of each route to all others
on the line graph, in turns on the same weights: the rectified energies of the prior. SciPy's
Bellman–Ford relaxes all turns as often as there are edges; *stopping early* is a vectorised one of ours
that stops when nothing changes any more. Bellman–Ford is also timed on the energies as they are,
negative ones included. *Negative cycle* counts truths, of 20 drawn from the prior, in which it finds
one and gives up. *Ours* is superarm's oracle, which stops at the goal. Times are milliseconds of one
processor, medians; their ratios are the result.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.normal import rectified_mean
from superarm.roads.problems.navigation import Navigation
from superarm.roads.problems.road_models import ROUTES

TRUTHS = 20
COLUMNS = (
    "route",
    "edges",
    "Dijkstra",
    "Bellman–Ford",
    "ratio",
    "stopping early",
    "ratio",
    "Bellman–Ford, as they are",
    "ours",
    "negative cycle",
)


class Search:
    """Shortest paths from one edge of a line graph, by SciPy."""

    def __init__(self, world: Navigation) -> None:
        self.start = world.trip.start
        self._lock = world.graph.successors.copy()
        self._entered = self._lock.indices
        listed = self._lock.tocoo()
        self._left = listed.row
        self._reached = listed.col

    def _weighted(self, weights: Floats) -> Any:
        self._lock.data = weights[self._entered]
        return self._lock

    def dijkstra(self, weights: Floats) -> Floats:
        """Distances to all edges."""
        from scipy.sparse import csgraph

        search: Any = csgraph.dijkstra
        return np.asarray(search(self._weighted(weights), indices=self.start))

    def bellman_ford(self, weights: Floats) -> Floats:
        """Distances to all edges; raises ``NegativeCycleError``."""
        from scipy.sparse import csgraph

        search: Any = csgraph.bellman_ford
        return np.asarray(search(self._weighted(weights), indices=self.start))

    def stopping_early(self, weights: Floats) -> Floats:
        """Distances to all edges, for weights without negative cycles."""
        distances = np.full(len(weights), np.inf)
        distances[self.start] = 0.0
        for _ in range(len(weights)):
            through = distances[self._left] + weights[self._reached]
            shorter = distances.copy()
            np.minimum.at(shorter, self._reached, through)
            if np.array_equal(shorter, distances):
                break
            distances = shorter
        return distances

    def has_negative_cycle(self, weights: Floats) -> bool:
        from scipy.sparse.csgraph import NegativeCycleError

        try:
            self.bellman_ford(weights)
        except NegativeCycleError:
            return True
        return False


def milliseconds(searched: Callable[[], object]) -> float:
    """Of one processor."""
    begin = process_time()
    searched()
    return 1e3 * (process_time() - begin)


def row(route: str, repeats: int) -> list[str]:
    world = Navigation(seed=0, horizon=1, route=route)
    search = Search(world)
    energies = np.asarray(world.model.energies)
    weights = rectified_mean(energies, world.noise_std)
    found = search.dijkstra(weights)
    np.testing.assert_allclose(search.bellman_ford(weights), found, rtol=1e-9)
    np.testing.assert_allclose(search.stopping_early(weights), found, rtol=1e-9)
    contenders: dict[str, Callable[[], object]] = {
        "dijkstra": lambda: search.dijkstra(weights),
        "bellman_ford": lambda: search.bellman_ford(weights),
        "stopping": lambda: search.stopping_early(weights),
        "negative": lambda: search.bellman_ford(energies),
        "ours": lambda: world.cheapest(weights),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, searched in contenders.items():
            times[name].append(milliseconds(searched))
    median = {name: statistics.median(taken) for name, taken in times.items()}
    truths = (
        Navigation(seed=seed, horizon=1, route=route).energies for seed in range(TRUTHS)
    )
    cycles = sum(search.has_negative_cycle(np.asarray(truth)) for truth in truths)
    return [
        route,
        f"{len(world.graph):,}",
        f"{median['dijkstra']:.2f}",
        f"{median['bellman_ford']:,.0f}",
        f"{median['bellman_ford'] / median['dijkstra']:,.0f}",
        f"{median['stopping']:,.0f}",
        f"{median['stopping'] / median['dijkstra']:,.0f}",
        f"{median['negative']:,.0f}",
        f"{median['ours']:.2f}",
        f"{cycles} of {TRUTHS}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.shortest", description=__doc__
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="how often each search is timed"
    )
    parser.add_argument(
        "--routes", nargs="+", default=list(ROUTES), choices=list(ROUTES)
    )
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    for route in options.routes:
        print(f"| {' | '.join(row(route, options.repeats))} |", flush=True)


if __name__ == "__main__":
    main()
