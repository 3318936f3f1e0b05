"""Departures of a fleet: when trips begin, and what an offer contains for each vehicle."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

import numpy as np

from superarm.core import Arms, Floats
from superarm.core.inputs import read_only
from superarm.core.streams import stream
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph

from .fleet_model import road_rows

# Of the vehicles' arms that are cached: 110 vehicles on 100,000 edges.
_MOST_BYTES = 1 << 30


@lru_cache(maxsize=16)
def departure_times(seed: int, headway: float, count: int) -> Floats:
    """When the first ``count`` trips depart, seconds: more of them begin with the same.

    Args:
        seed: Which random world.
        headway: Seconds between departures, on average.
        count: How many trips.
    """
    rng = stream(seed, "headways", 0)
    headways = rng.exponential(headway, count)
    return read_only(np.cumsum(headways))


class Departure(NamedTuple):
    """The part of an offer that depends on the vehicle alone."""

    arms: Arms
    turn_costs: Floats  # Wh, (c,)

    @property
    def bytes(self) -> int:
        """How much memory its arrays take."""
        return self.arms.features.nbytes + self.turn_costs.nbytes


_Key = tuple[LineGraph, Vehicle, int]


class DepartureCache:
    """The vehicles that departed last, as many as fit into memory.

    Args:
        most_bytes: How much memory they may take.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._departures: OrderedDict[_Key, Departure] = OrderedDict()
        self._lock = Lock()

    def get(self, graph: LineGraph, vehicle: Vehicle, number: int) -> Departure:
        """The departure of a vehicle, computed where it is not cached.

        Args:
            graph: The roads.
            vehicle: The vehicle as it is described.
            number: The number of the vehicle.
        """
        key = (graph, vehicle, number)
        with self._lock:
            if key not in self._departures:
                return self._add(key)
            self._departures.move_to_end(key)
            return self._departures[key]

    def _add(self, key: _Key) -> Departure:
        departure = _compute_departure(*key)
        self._departures[key] = departure
        self._bytes += departure.bytes
        while self._bytes > self._most_bytes and len(self._departures) > 1:
            _, oldest = self._departures.popitem(last=False)
            self._bytes -= oldest.bytes
        return departure


def _compute_departure(graph: LineGraph, vehicle: Vehicle, number: int) -> Departure:
    rows = road_rows(graph, vehicle, number)
    turn_costs = vehicle.turn_energy(graph)
    arms = Arms(ids=graph.ids, features=rows)
    return Departure(arms, read_only(turn_costs))


DEPARTURES = DepartureCache(_MOST_BYTES)
"""Shared by all problems of a process."""
