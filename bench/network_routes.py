"""Routes on a line graph, and sequences of them that visit as many edges as asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.networks import LineGraph

LENGTH = 70
"""Edges of a route, about."""


class Roads:
    """Shortest paths on a line graph."""

    def __init__(self, graph: LineGraph) -> None:
        self.graph = graph
        self._lock = graph.successors.copy()
        self._entered = self._lock.indices

    def route(self, weights: Floats, start: int, goal: int) -> Ints:
        predecessors = self._search(weights, start)[1]
        edges = [goal]
        while edges[-1] != start:
            edges.append(int(predecessors[edges[-1]]))
        return np.array(edges[::-1])

    def _search(self, weights: Floats, start: int) -> Any:
        from scipy.sparse import csgraph

        self._lock.data = weights[self._entered]
        search: Any = csgraph.dijkstra
        return search(self._lock, indices=start, return_predecessors=True)

    def perturbed(self, rng: np.random.Generator) -> Floats:
        """Travel times, each off by about a third."""
        times: Floats = self.graph.travel_time
        return times * np.exp(0.3 * rng.standard_normal(len(times)))

    def far_stops(self, rng: np.random.Generator) -> tuple[int, int, int]:
        """An edge, one with about ``LENGTH`` edges on the way there, and one to go on to."""
        start, further = (int(edge) for edge in rng.integers(len(self.graph), size=2))
        distances, predecessors = self._search(self.graph.travel_time, start)
        length = np.ones(len(self.graph), dtype=np.intp)
        for edge in np.argsort(distances)[1:]:
            length[edge] = length[predecessors[edge]] + 1
        return start, int(np.argmin(np.abs(length - LENGTH))), further

    def trip(self, weights: Floats, stops: tuple[int, int, int]) -> Ints:
        """The route by all stops, every edge once, at most ``LENGTH`` of them."""
        start, goal, further = stops
        there = self.route(weights, start, goal)
        if len(there) < LENGTH:
            there = np.concatenate([there, self.route(weights, goal, further)])
        order = np.sort(np.unique(there, return_index=True)[1])
        return there[order][:LENGTH]


def paths_that_visit(
    roads: Roads, visited: int, known: set[int], seed: int
) -> list[Ints]:
    """Different paths, each with something new, until ``visited`` edges are ``known`` in all.

    Trips by the same stops under perturbed travel times; then by others. The last path is cut
    where it has shown enough.
    """
    rng = np.random.default_rng(seed)
    pool: list[Ints] = []
    stops, idle = roads.far_stops(rng), 0
    while len(known) < visited:
        path = roads.trip(roads.perturbed(rng), stops)
        new = np.array([edge not in known for edge in path.tolist()])
        if new.sum() < min(2, visited - len(known)):
            idle += 1
            if idle > 20:
                stops, idle = roads.far_stops(rng), 0
            continue
        path = path[np.cumsum(new) <= visited - len(known)]
        known.update(path.tolist())
        pool.append(path)
    return pool


def spread_over(pool: list[Ints], rounds: int, seed: int) -> list[Ints]:
    """Every path of the pool for the first time at even distances, old ones in between."""
    rng = np.random.default_rng(seed)
    due = np.linspace(0, rounds - 1, len(pool)).astype(int)
    sequence, shown = [], 0
    for t in range(rounds):
        if shown < len(pool) and t >= due[shown]:
            sequence.append(pool[shown])
            shown += 1
        else:
            sequence.append(pool[int(rng.integers(shown))])
    return sequence
