"""What an edge costs an electric vehicle at constant speed.

Eq. 8 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025):

====================  ==============================================================
``G``                 work along an edge, joules: climbing, rolling and air drag
``rise``              Δz of the edge's junctions, metres; sin α = Δz/ℓ, unclipped
``η⁺``, ``η⁻``        efficiency when energy is spent, and when it is won back
``h``                 potential of a place, Wh: m·g·z·η⁻/3600
====================  ==============================================================

``G`` may be negative. Then "multiply" (the default) returns η⁻·G: less comes back than went
in. Eq. 8 read literally divides by η⁻ and returns more than there was: the option "divide".

With "multiply", energy − Δh ≥ 0 for every edge: write G = m·g·Δz + R with R ≥ 0. For G < 0 the
difference is η⁻R; for G ≥ 0 it is R/η⁺ + m·g·Δz(1/η⁺ − η⁻) ≥ η⁻R since 1/η⁺ > η⁻ and G ≥ 0. And Δh adds
up to the same for all routes between two places, so that a shortest path with these *reduced*
costs is a cheapest route: no negative cycles, and Dijkstra's algorithm is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_number,
    as_numbers,
    as_positive,
    as_vector,
    read_only,
    require_choice,
)
from superarm.core.registry import register

from .junctions import ACCELERATION, BRAKING, junction_speeds

if TYPE_CHECKING:
    from superarm.roads.networks.line_graph import LineGraph

_JOULES_PER_WH = 3600.0
_LEAST = 1e-3  # of what is divided by
_LARGEST = 1e9  # of any parameter: beyond it a vehicle is none, and numbers overflow
Recuperation = Literal["multiply", "divide"]


@register("vehicle", "electric")
@dataclass(frozen=True, kw_only=True)
class Vehicle:
    """An electric vehicle and its surroundings.

    The defaults are Table 2 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025).

    Args:
        mass: Kg.
        rolling_resistance: Coefficient of rolling resistance.
        front_area: M².
        air_drag: Drag coefficient of the vehicle.
        propulsion_efficiency: Η⁺.
        recuperation_efficiency: Η⁻.
        auxiliary_power: W, for heating and the like: drawn for as long as the drive takes.
        gravity: M/s².
        air_density: Kg/m³.
        recuperation: Whether recovered energy is multiplied by the efficiency or divided by it, as
            eq. 8 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025) is printed.

    >>> Vehicle().energy(length=1000.0, speed=13.9, rise=0.0).round(1)
    np.float64(80.8)
    """

    mass: float = 1830.0
    rolling_resistance: float = 0.01
    front_area: float = 2.6
    air_drag: float = 0.35
    propulsion_efficiency: float = 0.98
    recuperation_efficiency: float = 0.96
    auxiliary_power: float = 0.0
    gravity: float = 9.82
    air_density: float = 1.2
    recuperation: Recuperation = "multiply"

    def __post_init__(self) -> None:
        for name in (
            "mass",
            "gravity",
            "propulsion_efficiency",
            "recuperation_efficiency",
        ):
            most = 1.0 if name.endswith("efficiency") else _LARGEST
            value = as_positive(getattr(self, name), name)
            object.__setattr__(self, name, as_number(value, name, _LEAST, most))
        for name in (
            "rolling_resistance",
            "front_area",
            "air_drag",
            "auxiliary_power",
            "air_density",
        ):
            as_number(getattr(self, name), name, 0.0, _LARGEST)
        require_choice(self.recuperation, "recuperation", ("multiply", "divide"))

    def energy(self, length: Any, speed: Any, rise: Any) -> Floats:
        """Wh for metres, m/s and metres of height; negative where more is won back than spent."""
        length, rise = (
            np.asarray(length, dtype=np.float64),
            np.asarray(rise, dtype=np.float64),
        )
        level = np.sqrt(np.maximum(0.0, 1.0 - (rise / length) ** 2))  # cos α
        weight = self.mass * self.gravity
        drag = (
            0.5 * self.air_drag * self.front_area * self.air_density * np.square(speed)
        )
        work = weight * rise + length * (
            weight * self.rolling_resistance * level + drag
        )
        back = self.recuperation_efficiency
        returned = work * back if self.recuperation == "multiply" else work / back
        spent = np.where(work >= 0.0, work / self.propulsion_efficiency, returned)
        energy: Floats = (
            spent + self.auxiliary_power * length / speed
        ) / _JOULES_PER_WH
        return energy

    def turn_energy(self, graph: LineGraph, turns: Ints | None = None) -> Floats:
        """Wh that each turn of a graph adds to the energy of its edges, (c,), never negative.

        ``turns`` are places in ``graph.turns``; by default all of them.

        For driving through the junction, and for accelerating again: what is in motion counts as
        stored with η⁻, so that of ½mΔv² the share 1/η⁺ − η⁻ is lost. Who turns back stops. Air drag
        that is spared by being slower than the edges allow is taken off, as far as there is something.
        """
        at = slice(None) if turns is None else turns
        speeds = junction_speeds(graph, turns)
        stops = np.maximum(graph.turn_stop[at], graph.is_uturn[at])
        regained = np.maximum(speeds.after**2 - (1.0 - stops) * speeds.slow**2, 0.0)
        lost = max(1.0 / self.propulsion_efficiency - self.recuperation_efficiency, 0.0)
        through = self.energy(1.0, speeds.leave, 0.0) * graph.turn_length[at]
        longer = graph.turn_seconds[at] - graph.turn_length[at] / speeds.leave
        pairs = (speeds.before, speeds.after), (speeds.slow, speeds.leave)
        fast, slow = (np.stack(each) ** 2 for each in pairs)
        metres = 0.5 * (fast - slow) / np.array([[BRAKING], [ACCELERATION]])
        slower = graph.speed[graph.turns[at]].T ** 2 - 0.5 * (
            fast + slow
        )  # v² is linear in the place
        drag = 0.5 * self.air_drag * self.front_area * self.air_density
        spared = drag * (slower * metres).sum(axis=0)
        energy = (
            0.5 * lost * self.mass * regained + self.auxiliary_power * longer - spared
        )
        return np.asarray(np.maximum(through + energy / _JOULES_PER_WH, 0.0))

    def terms(self, graph: LineGraph, edges: Ints | None = None) -> Floats:
        """Wh of each edge for rolling, for 1 kW while it is driven, for drag and for climbing, (n, 4).

        ``edges`` are numbers of edges; by default all of them.

        What a vehicle does otherwise than it is told to is, on all roads alike, a multiple of these.
        """
        at = slice(None) if edges is None else edges
        length = graph.length[at]
        weight = self.mass * self.gravity
        drag = (
            0.5
            * self.air_drag
            * self.front_area
            * self.air_density
            * np.square(graph.speed[at])
        )
        joules = [
            weight * self.rolling_resistance * length,
            1000.0 * graph.travel_time[at],
        ]
        joules += [drag * length, weight * graph.rise[at]]
        return np.stack(joules, axis=1) / _JOULES_PER_WH

    def stop_variance(self, graph: LineGraph, edges: Ints | None = None) -> Floats:
        """Wh² by which signals behind each edge make drives differ, (n,); 0 where there are none.

        ``edges`` are numbers of edges; by default all of them.

        With a probability p one must stop, and then waits up to r seconds, all waits alike: of stopping
        and accelerating again the share 1/η⁺ − η⁻ of ½mv² is lost, and auxiliaries are drawn.
        """
        if edges is None:
            rows = len(graph)
            turns = np.arange(len(graph.turns))
            behind = graph.turns[:, 0]  # the row that each turn belongs to
        else:
            rows = len(edges)
            first_turn = np.searchsorted(graph.turns[:, 0], edges)
            many = np.searchsorted(graph.turns[:, 0], edges, side="right") - first_turn
            behind = np.repeat(np.arange(rows), many)
            turns = (
                np.arange(len(behind)) + (first_turn - np.cumsum(many) + many)[behind]
            )
        p = np.clip(graph.turn_stop[turns], 0.0, 1.0)
        red = np.divide(
            2.0 * graph.turn_wait[turns], p, out=np.zeros(len(p)), where=p > 0.0
        )
        lost = max(1.0 / self.propulsion_efficiency - self.recuperation_efficiency, 0.0)
        stop = 0.5 * lost * self.mass * np.square(graph.speed[graph.turns[turns, 0]])
        wait, power = 0.5 * red, self.auxiliary_power
        # Var(I·(stop + power·U)), I stopping with probability p, U uniform up to red.
        mean = stop + power * wait
        square = mean**2 + (power * red) ** 2 / 12.0
        variance = (p * square - (p * mean) ** 2) / _JOULES_PER_WH**2
        count = np.bincount(behind, minlength=rows)
        summed = np.bincount(behind, variance, rows)
        return np.divide(summed, count, out=np.zeros(rows), where=count > 0)

    def motion(self, speed: Any) -> Floats:
        """Wh that braking from these speeds (m/s) gives back: η⁻·½·m·v²/3600."""
        per_square = 0.5 * self.mass * self.recuperation_efficiency / _JOULES_PER_WH
        return per_square * np.square(np.asarray(speed, dtype=np.float64))

    def potential(self, height: Any) -> Floats:
        """Wh that driving down from these heights (metres) gives back: h = m·g·z·η⁻/3600."""
        if self.recuperation != "multiply":
            raise InputError(
                "recuperation 'divide' returns more energy than was spent, so no potential makes "
                "all costs positive; use recuperation 'multiply' or routing 'rectified'"
            )
        per_metre = (
            self.mass * self.gravity * self.recuperation_efficiency / _JOULES_PER_WH
        )
        return per_metre * np.asarray(height, dtype=np.float64)


@register("mean", "road-energy")
@dataclass(frozen=True, kw_only=True, eq=False)
class RoadEnergy:
    """The energy of every road as a prior mean: column 0 of the features is the road's number.

    Args:
        vehicle: The vehicle that drives.
        length: Metres, (n,).
        speed: M/s, (n,).
        rise: Metres, (n,).
    """

    vehicle: Vehicle
    length: Floats
    speed: Floats
    rise: Floats
    values: Floats = field(init=False, repr=False)
    """Wh, (n,)."""

    def __post_init__(self) -> None:
        vehicle: object = self.vehicle
        if not isinstance(vehicle, Vehicle):
            raise InputError(f"vehicle is {vehicle!r}; it must be a Vehicle")
        for name in ("length", "speed", "rise"):
            array = read_only(as_vector(getattr(self, name), name, len(self.length)))
            if name != "rise" and not (array > 0.0).all():
                raise InputError(f"{name} must be above 0 for every road")
            object.__setattr__(self, name, array)
        values = self.vehicle.energy(self.length, self.speed, self.rise)
        object.__setattr__(self, "values", read_only(values))

    def __call__(self, rows: Floats) -> Floats:
        return self.values[as_numbers(rows[:, 0], len(self.values), "roads", 0)]
