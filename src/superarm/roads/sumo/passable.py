"""What passenger cars can do on the network that libsumo has loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError, UnknownArmError


class SumoRoads:
    """Edges, lanes and turns, looked up where they are needed and then remembered.

    Args:
        sumo: The module ``libsumo``, which has loaded the network.
        name: What errors call the network.
    """

    def __init__(self, sumo: Any, name: str) -> None:
        self._sumo = sumo
        self._name = name
        self.edges = frozenset(
            edge for edge in sumo.edge.getIDList() if not edge.startswith(":")
        )
        self._known_successors: dict[str, frozenset[str]] = {}

    def check_route(self, route: Sequence[str]) -> None:
        """Raise an error unless passenger cars can drive a route.

        Args:
            route: Ids of edges.
        """
        for edge in route:
            self.check_edge(edge)
            if not self._lanes(edge):
                raise InputError(
                    f"edge {edge!r} of {self._name} is closed to passenger cars"
                )
        for before, after in pairwise(route):
            successors = self._successors(before)
            if after not in successors:
                raise InputError(
                    f"no turn of {self._name} leads passenger cars from edge {before!r} to {after!r}; "
                    f"from {before!r} they can go on to {sorted(successors)}"
                )

    def check_edge(self, edge: str) -> None:
        """Raise an error unless the network has this edge."""
        if edge not in self.edges:
            raise UnknownArmError(f"{self._name} has no edge {edge!r}")

    def lengths(self, edges: Sequence[str]) -> Floats:
        """Return the lengths of edges, metres, (k,)."""
        return np.array([self._sumo.lane.getLength(f"{edge}_0") for edge in edges])

    def limits(self, edges: Sequence[str]) -> Floats:
        """Return the speed limits of edges, m/s, (k,)."""
        return np.array([self._sumo.lane.getMaxSpeed(f"{edge}_0") for edge in edges])

    def lane_metres(self, edges: Sequence[str]) -> Floats:
        """Return metres of lanes that passenger cars may use, (k,); 0 for an edge without a way out."""
        counts = []
        for edge in edges:
            count = 0
            if self._successors(edge):
                count = len(self._lanes(edge))
            counts.append(count)
        return np.array(counts) * self.lengths(edges)

    def _lanes(self, edge: str) -> list[str]:
        """Return the lanes of an edge that passenger cars may use."""
        count = self._sumo.edge.getLaneNumber(edge)
        lanes = [f"{edge}_{number}" for number in range(count)]
        return [lane for lane in lanes if self._is_open(lane)]

    def _is_open(self, lane: str) -> bool:
        allowed = self._sumo.lane.getAllowed(lane)
        if allowed:
            return "passenger" in allowed
        return "passenger" not in self._sumo.lane.getDisallowed(lane)

    def _successors(self, edge: str) -> frozenset[str]:
        """Return the edges into which passenger cars may turn."""
        if edge not in self._known_successors:
            successors = self._look_up_successors(edge)
            self._known_successors[edge] = frozenset(successors)
        return self._known_successors[edge]

    def _look_up_successors(self, edge: str) -> set[str]:
        lanes = self._sumo.lane
        successors = set()
        for lane in self._lanes(edge):
            for target, *_ in lanes.getLinks(lane):
                if self._is_open(target):
                    successor = lanes.getEdgeID(target)
                    successors.add(successor)
        return successors
