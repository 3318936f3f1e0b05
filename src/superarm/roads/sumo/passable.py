"""What passenger cars can do on the network that libsumo has loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError, UnknownArmError


class SumoRoads:
    """Edges, lanes and turns, asked for where they are needed and then remembered."""

    def __init__(self, sumo: Any, name: str) -> None:
        self._sumo = sumo
        self._name = name
        self.edges = frozenset(
            edge for edge in sumo.edge.getIDList() if not edge.startswith(":")
        )
        self._lock: dict[str, frozenset[str]] = {}

    def check_route(self, route: Sequence[str]) -> None:
        """Refuse a route that cannot be driven."""
        for edge in route:
            self.check_edge(edge)
            if not self._lanes(edge):
                raise InputError(
                    f"edge {edge!r} of {self._name} is closed to passenger cars"
                )
        for before, after in pairwise(route):
            if after not in self._successors(before):
                raise InputError(
                    f"no turn of {self._name} leads passenger cars from edge {before!r} to {after!r}; "
                    f"from {before!r} they can go on to {sorted(self._successors(before))}"
                )

    def check_edge(self, edge: str) -> None:
        if edge not in self.edges:
            raise UnknownArmError(f"{self._name} has no edge {edge!r}")

    def lengths(self, edges: Sequence[str]) -> Floats:
        """Metres, (k,)."""
        return np.array([self._sumo.lane.getLength(f"{edge}_0") for edge in edges])

    def limits(self, edges: Sequence[str]) -> Floats:
        """Speed limits, m/s, (k,)."""
        return np.array([self._sumo.lane.getMaxSpeed(f"{edge}_0") for edge in edges])

    def lane_metres(self, edges: Sequence[str]) -> Floats:
        """Metres of lanes that passenger cars may use, (k,); 0 for an edge without a way out."""
        count = [
            len(self._lanes(edge)) if self._successors(edge) else 0 for edge in edges
        ]
        return np.array(count) * self.lengths(edges)

    def _lanes(self, edge: str) -> list[str]:
        lanes = [
            f"{edge}_{number}" for number in range(self._sumo.edge.getLaneNumber(edge))
        ]
        return [lane for lane in lanes if self._open(lane)]

    def _open(self, lane: str) -> bool:
        if allowed := self._sumo.lane.getAllowed(lane):
            return "passenger" in allowed
        return "passenger" not in self._sumo.lane.getDisallowed(lane)

    def _successors(self, edge: str) -> frozenset[str]:
        if edge not in self._lock:
            lane = self._sumo.lane
            targets = [
                link[0] for name in self._lanes(edge) for link in lane.getLinks(name)
            ]
            self._lock[edge] = frozenset(
                lane.getEdgeID(name) for name in targets if self._open(name)
            )
        return self._lock[edge]
