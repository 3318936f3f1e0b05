"""Trips that are drawn from a fleet's own model, where SUMO does not drive them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.streams import Streams, stream
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.models import FleetModel
from superarm.roads.networks import LineGraph
from superarm.roads.rows import Column, NoiseColumn, noise_parts

from .fleet_model import road_rows

Value = TypeVar("Value")

_SCALES = RoadScales()
"""Of the worlds that are drawn: those of a fleet's own model."""
_DAY_NUMBERS = 1 << 17
"""Numbers of the days that stay in memory, about: simulations draw a block of rounds before they play it."""


class TripCost(NamedTuple):
    """What a trip cost."""

    energies: Floats  # Wh of each edge, less what is stored in motion, (k,)
    seconds: float
    arrived: bool


class _DrawnDay(NamedTuple):
    """What roads and turns cost in one round."""

    energies: Floats  # Wh of each road, (n,)
    turn_energies: Floats  # Wh that each turn adds, (c,)


class DrawnTrips:
    """Trips of the fleet's own model: roads, the vehicle of the day, and noise of each road.

    Args:
        seed: Which random world.
        graph: The roads.
        model: The fleet's model.
    """

    def __init__(self, seed: int, graph: LineGraph, model: FleetModel) -> None:
        self._seed = seed
        self._graph = graph
        self._model = model
        self._days: dict[int, _DrawnDay] = {}  # of the latest rounds

    def cost(self, step: int, vehicle: Vehicle, edges: Ints) -> TripCost:
        """What a route costs in a round.

        Args:
            step: Number of the round, from 1.
            vehicle: The vehicle as it is on that day.
            edges: The route, (k,).
        """
        graph = self._graph

        def draw_day(step: int) -> _DrawnDay:
            return self._draw_day(step, vehicle)

        most_days = max(1, _DAY_NUMBERS // len(graph))
        day = cached_round(self._days, step, draw_day, most_days)
        turns = graph.turn_numbers(edges)
        energies = day.energies[edges]
        energies[:-1] += day.turn_energies[turns]
        road_seconds = graph.travel_time[edges].sum()
        turn_seconds = graph.turn_seconds[turns].sum()
        seconds = float(road_seconds + turn_seconds)
        return TripCost(energies, seconds, arrived=True)

    @cached_property
    def roads(self) -> Floats:
        """f of the fleet's own model, (n,)."""
        rng = stream(self._seed, "truth", 2)
        n = len(self._graph)
        near_normals = rng.standard_normal(n)
        near = self._model.kernel.root_times(near_normals)
        own_normals = rng.standard_normal(n)
        share_std = _SCALES.share * self._model.sizes
        own_std = np.hypot(_SCALES.own, share_std)
        return _SCALES.near * near + own_std * own_normals + 1.0

    def _draw_day(self, step: int, vehicle: Vehicle) -> _DrawnDay:
        graph = self._graph
        rows = road_rows(graph, vehicle, 0)
        expected = rows[:, Column.EXPECTED]
        stored = vehicle.potential(graph.rise)
        of_roads = rows[:, Column.MASS_RATIO] * self.roads
        noise = self._draw_noise(step, rows)
        energies = expected + stored + of_roads + noise
        return _DrawnDay(energies, vehicle.turn_energy(graph))

    def _draw_noise(self, step: int, rows: Floats) -> Floats:
        """Wh of chance on each road, (n,)."""
        # Terms describe the vehicle of the day exactly, so no noise is a share of sizes.
        scales = _SCALES.noise_scales[: NoiseColumn.SIZE]
        parts = noise_parts(rows)[:, : NoiseColumn.SIZE]
        std = np.sqrt(parts @ np.square(scales))
        rng = Streams(self._seed, "noise-of-roads").at(step)
        noise = rng.standard_normal(len(rows))
        noise *= std
        return noise


def cached_round(
    cache: dict[int, Value], step: int, compute: Callable[[int], Value], most: int
) -> Value:
    """The value of a round; the cache holds those of the latest rounds.

    Args:
        cache: Values by the number of their round, in the order in which they were computed.
        step: Number of the round, from 1.
        compute: Computes the value of a round.
        most: Values in the cache, at most.
    """
    value = cache.get(step)
    if value is None:
        value = compute(step)
        cache[step] = value
        if len(cache) > most:
            oldest = next(iter(cache))
            cache.pop(oldest, None)  # unless another thread did
    return value
