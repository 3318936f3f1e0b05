"""What a fleet knows of its roads: feature rows, and the model before the first trip."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.inputs import read_only
from superarm.kernels import GraphMatern
from superarm.kernels.graph_powers import LEAST_ORDERED
from superarm.oracles import ShortestPath
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.models import FleetModel
from superarm.roads.networks import LineGraph
from superarm.roads.rows import (
    DISCRETE_COLUMNS,
    Column,
    build_rows,
    edges_of,
    term_sizes,
)

from .road_models import TABLE_2

_DRAWS = 10  # from which the variance of the kernel is estimated


def road_rows(
    graph: LineGraph, vehicle: Vehicle, number: int, edges: Ints | None = None
) -> Floats:
    """Feature rows of the roads as this vehicle meets them, (n, 9): the keys of ``RoadGP``.

    Args:
        graph: The roads.
        vehicle: The vehicle as it is described.
        number: The number of the vehicle.
        edges: Numbers of the roads; by default all of them.
    """
    chosen = slice(None) if edges is None else edges
    numbers = np.arange(len(graph), dtype=np.float64)
    length = graph.length[chosen]
    speed = graph.speed[chosen]
    rise = graph.rise[chosen]
    energies = vehicle.energy(length, speed, rise)
    rows = build_rows(
        edges=numbers[chosen],
        expected=energies - vehicle.potential(rise),
        terms=vehicle.terms(graph, edges),
        mass_ratio=vehicle.mass / TABLE_2.mass,
        stops=vehicle.stop_variance(graph, edges),
        vehicle=number,
    )
    return read_only(rows)


def duration_rows(graph: LineGraph, rows: Floats) -> Floats:
    """Rows of the same roads whose reward is the seconds that they take, (k, 9) or (k, 10).

    Turns add ``graph.turn_seconds``, which the rows do not contain.

    Args:
        graph: The roads.
        rows: Rows of energies, with or without hours, (k, 9) or (k, 10).
    """
    seconds = graph.travel_time[edges_of(rows)]
    durations = rows.copy()
    for column in (Column.ROLLING, Column.DRAG, Column.CLIMB):
        durations[:, column] = 0.0
    durations[:, Column.EXPECTED] = seconds
    durations[:, Column.TIME] = seconds
    durations[:, Column.MASS_RATIO] = 1.0
    return durations


def road_sizes(graph: LineGraph) -> Floats:
    """Wh that each road moves, (n,): for rolling, drag and height.

    Args:
        graph: The roads.
    """
    return term_sizes(TABLE_2.terms(graph))


@lru_cache(maxsize=4)
def near_kernel(graph: LineGraph) -> GraphMatern:
    """k_G with a variance of 1 on average, estimated from ten draws to a few per cent.

    Args:
        graph: The roads.
    """
    turn_graph = graph.turn_graph
    if len(turn_graph) >= LEAST_ORDERED:
        _ = graph.elimination_order  # stored beside the network, for the next time
    raw = GraphMatern(
        turn_graph, nu=2, kappa=1.0, normalisation="raw", cache_megabytes=256.0
    )
    rng = np.random.default_rng(0)
    normals = rng.standard_normal((len(graph), _DRAWS))
    draws = raw.root_times(normals)
    mean_square = float(np.square(draws).mean())
    return replace(raw, variance=1.0 / mean_square)


def fleet_model(graph: LineGraph, *, horizon: int = 1, **options: Any) -> FleetModel:
    """What a fleet knows of its roads before the first trip.

    Args:
        graph: The roads.
        horizon: Number of rounds T.
        options: ``scales``, ``refit``, ``outliers`` and ``half_life`` of
            :class:`~superarm.roads.models.FleetModel`.
    """
    scales = options.get("scales") or RoadScales()
    rows = road_rows(graph, TABLE_2, 0)
    return FleetModel(
        kernel=near_kernel(graph),
        sizes=road_sizes(graph),
        noise_variance=scales.noise**2,
        oracle=ShortestPath(successors=graph.turn_graph),
        horizon=horizon,
        energies=rows[:, Column.EXPECTED],
        direction="minimize",
        most_arms=len(graph),
        costs={"length": graph.length, "travel_time": graph.travel_time},
        turn_costs={
            "length": graph.turn_length,
            "travel_time": graph.turn_seconds,
            "energy": TABLE_2.turn_energy(graph),
        },
        discrete_columns=DISCRETE_COLUMNS,
        **options,
    )
