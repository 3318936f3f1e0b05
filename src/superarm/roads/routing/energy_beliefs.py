"""Energies of all edges for one vehicle, and how certain they are.

An :class:`EnergySource` returns :class:`EdgeEnergies` for any time of departure. Routers do not depend
on how they were learned: a new kind of belief is a new source.

An edge may be driven in part, a share α of it. What a road costs beyond the model is taken to be spread
evenly along it, and the noise of a drive to be independent along it: the mean and the standard
deviation of the belief are multiplied by α, and so is the variance of the noise. Signals behind an edge
add noise where they are passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import NamedTuple, Protocol

import numpy as np

from superarm.core import AT_95, Floats, Ints
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import IntervalCalibration, TrackRecord
from superarm.roads.problems.fleet_model import road_rows, road_sizes
from superarm.roads.rows import (
    Column,
    NoiseColumn,
    edges_of,
    noise_parts,
    scale_energies,
    terms_of,
)

from .search import RoutePath

_LEAST_SHARE = 1e-6  # of an edge: less of it is left out
When = datetime | time
"""A time of departure: of a day, or of any day."""


class PartialRows(NamedTuple):
    """Feature rows of edges that are driven in part."""

    rows: Floats  # (k, 9), with hours (k, 10)
    noise: Floats  # what the variance of their noise is made of, (k, 4)


class RouteParts(NamedTuple):
    """The edges of a route, or of its first stretch, and how much of each is driven."""

    edges: Ints  # (k,)
    shares: Floats  # α, 0 to 1, (k,)
    passed: Floats  # 1 where the junction behind the edge is passed, else 0, (k,)

    @classmethod
    def of(cls, path: RoutePath) -> RouteParts:
        """All of a route.

        A route that ends with a whole edge passes the junction behind it.

        Args:
            path: The route.
        """
        last_share = path.shares[-1]
        passed = np.ones(len(path.edges))
        passed[-1] = last_share >= 1.0
        return cls(path.edges, path.shares, passed)

    def first(self, count: int) -> RouteParts:
        """The first edges.

        Args:
            count: How many.
        """
        return RouteParts(self.edges[:count], self.shares[:count], self.passed[:count])

    def rows(self, rows: Floats) -> PartialRows:
        """The rows of these parts; parts next to nothing are left out.

        Args:
            rows: Those of whole edges, which ``edges`` are places in, (n, 9) or (n, 10); see
                ``road_rows``.
        """
        is_driven = self.shares > _LEAST_SHARE
        edges = self.edges[is_driven]
        shares = self.shares[is_driven]
        passed = self.passed[is_driven]
        partial = rows[edges]
        partial[:, Column.STOPS] *= passed
        noise = noise_parts(partial) * shares[:, None]
        noise[:, NoiseColumn.STOPS] = partial[:, Column.STOPS]
        scale_energies(partial, shares)
        return PartialRows(partial, noise)


class RouteForecast(NamedTuple):
    """What a route takes at the hours along it."""

    means: Floats  # expected energy of what is driven of each edge, Wh, (k,)
    seconds: float | None  # expected, turns included; None where they were not learned
    seconds_spread: float | None  # half-width of their 95 % interval


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeEnergies:
    """The energies of all edges, for one vehicle at one time.

    Args:
        mean: Expected energy of each edge, Wh, (n,).
        turn_costs: What each turn adds, Wh, (c,): 0 where it is learned with the edges.
        noise_std: Standard deviation of the noise of one edge on one trip, Wh.
        spread: Half-width of the 95 % interval of what parts of edges cost together on one trip, Wh.
        observations: How many energies of edges or trips were measured.
        along: What a route takes at the hours along it; ``None`` where energies have no hour.
    """

    mean: Floats
    turn_costs: Floats
    noise_std: float
    spread: Callable[[RouteParts], float]
    observations: int = 0
    along: Callable[[RouteParts], RouteForecast] | None = None


class EnergySource(Protocol):
    """Energies of all edges for one vehicle at any time."""

    vehicle: Vehicle
    timed: bool
    """Whether the time of departure makes a difference."""
    record: TrackRecord | None
    """The coverage of forecasts of this kind, where it is known."""
    trips: int | None
    """Trips of this vehicle that were learned; ``None`` where vehicles are not distinguished."""

    def energies(self, depart: When | None) -> EdgeEnergies:
        """The energies at a time of departure.

        Args:
            depart: The time; ``None`` for any.
        """
        ...


class ModelEnergies:
    """Energies by the energy model: a fleet's prior, without the kernel, which takes long to build.

    Args:
        graph: The roads.
        vehicle: The vehicle.
    """

    timed = False
    record: TrackRecord | None = None
    trips: int | None = None

    def __init__(self, graph: LineGraph, vehicle: Vehicle) -> None:
        self.vehicle = vehicle
        self._graph = graph

    def energies(self, depart: When | None) -> EdgeEnergies:
        graph = self._graph
        vehicle = self.vehicle
        scales = RoadScales()
        recuperating = replace(vehicle, recuperation="multiply")
        rows = road_rows(graph, recuperating, 0)
        sizes = road_sizes(graph)
        widths = IntervalCalibration(1).widths()  # as before the first trip
        width = float(widths[AT_95])

        def spread(parts: RouteParts) -> float:
            partial, noise = parts.rows(rows)
            sizes_driven = sizes[edges_of(partial)]
            terms = terms_of(partial)
            variance = scales.trip_variance(terms, noise, sizes_driven)
            return width * float(np.sqrt(variance))

        return EdgeEnergies(
            mean=vehicle.energy(graph.length, graph.speed, graph.rise),
            turn_costs=vehicle.turn_energy(graph),
            noise_std=scales.noise,
            spread=spread,
        )
