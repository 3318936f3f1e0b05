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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.arrays import repeated
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

from .junctions import ACCELERATION, BRAKING, JunctionSpeeds, junction_speeds

if TYPE_CHECKING:
    from superarm.roads.networks.line_graph import LineGraph

_JOULES_PER_WH = 3600.0
# The least value of a parameter that something is divided by.
_LEAST = 1e-3
# The largest value of any parameter: beyond it numbers overflow.
_LARGEST = 1e9
Recuperation = Literal["multiply", "divide"]


@register("vehicle", "electric")
@dataclass(frozen=True, kw_only=True)
class Vehicle:
    """An electric vehicle and its surroundings.

    The defaults are Table 2 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025).

    Args:
        mass: Mass with load, kg.
        rolling_resistance: Coefficient of rolling resistance.
        front_area: Front area, m².
        air_drag: Drag coefficient.
        propulsion_efficiency: Efficiency η⁺ when energy is spent, 0 to 1.
        recuperation_efficiency: Efficiency η⁻ when energy is recovered, 0 to 1.
        auxiliary_power: Power for heating and the like, W, drawn for as long as the drive takes.
        gravity: Gravitational acceleration, m/s².
        air_density: Density of air, kg/m³.
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
        self._require_divisor("mass", self.mass, _LARGEST)
        self._require_divisor("gravity", self.gravity, _LARGEST)
        self._require_divisor("propulsion_efficiency", self.propulsion_efficiency, 1.0)
        self._require_divisor(
            "recuperation_efficiency", self.recuperation_efficiency, 1.0
        )
        as_number(self.rolling_resistance, "rolling_resistance", 0.0, _LARGEST)
        as_number(self.front_area, "front_area", 0.0, _LARGEST)
        as_number(self.air_drag, "air_drag", 0.0, _LARGEST)
        as_number(self.auxiliary_power, "auxiliary_power", 0.0, _LARGEST)
        as_number(self.air_density, "air_density", 0.0, _LARGEST)
        require_choice(self.recuperation, "recuperation", ("multiply", "divide"))

    def _require_divisor(self, name: str, value: float, most: float) -> None:
        number = as_number(as_positive(value, name), name, _LEAST, most)
        object.__setattr__(self, name, number)

    @property
    def _lost_share(self) -> float:
        """The share 1/η⁺ − η⁻ of energy that is lost by spending it and winning it back."""
        spent = 1.0 / self.propulsion_efficiency
        lost = spent - self.recuperation_efficiency
        return max(lost, 0.0)

    @property
    def _drag_per_square(self) -> float:
        """Newtons of air drag for each (m/s)²."""
        return 0.5 * self.air_drag * self.front_area * self.air_density

    def energy(self, length: Any, speed: Any, rise: Any) -> Floats:
        """Return the energy of a drive at constant speed, Wh.

        It is negative where more is won back than spent.

        Args:
            length: Metres.
            speed: m/s.
            rise: Metres of height.
        """
        length = np.asarray(length, dtype=np.float64)
        rise = np.asarray(rise, dtype=np.float64)
        sin_slope = rise / length
        cos_square = np.maximum(0.0, 1.0 - sin_slope**2)
        weight = self.mass * self.gravity
        rolling = weight * self.rolling_resistance * np.sqrt(cos_square)
        drag = self._drag_per_square * np.square(speed)
        resistance = rolling + drag
        work = weight * rise + length * resistance  # G of eq. 8
        spent = work / self.propulsion_efficiency
        if self.recuperation == "multiply":
            returned = work * self.recuperation_efficiency
        else:
            returned = work / self.recuperation_efficiency
        drawn = np.where(work >= 0.0, spent, returned)
        auxiliary = self.auxiliary_power * length / speed
        energy: Floats = (drawn + auxiliary) / _JOULES_PER_WH
        return energy

    def turn_energy(self, graph: LineGraph, turns: Ints | None = None) -> Floats:
        """Return Wh that each turn of a graph adds to the energy of its edges, (c,), never negative.

        For driving through the junction, and for accelerating again: what is in motion counts as
        stored with η⁻, so that of ½mΔv² the share 1/η⁺ − η⁻ is lost. A U-turn is a stop. Air drag
        that is saved by being slower than the edges allow is taken off, as far as there is something.

        Args:
            graph: The roads.
            turns: Places in ``graph.turns``; by default all of them.
        """
        rows = slice(None) if turns is None else turns
        turn_length = graph.turn_length[rows]
        speeds = junction_speeds(graph, turns)
        stop = graph.turn_stop[rows]
        is_uturn = graph.is_uturn[rows]
        stop_or_uturn = np.maximum(stop, is_uturn)
        # v² that is left when accelerating begins, and that is regained.
        slow_square = (1.0 - stop_or_uturn) * speeds.slow**2
        regained = np.maximum(speeds.after**2 - slow_square, 0.0)
        motion = 0.5 * self._lost_share * self.mass * regained

        through_per_metre = self.energy(1.0, speeds.leave, 0.0)
        through = through_per_metre * turn_length
        through_seconds = turn_length / speeds.leave
        extra_seconds = graph.turn_seconds[rows] - through_seconds
        auxiliary = self.auxiliary_power * extra_seconds
        saved = self._drag_per_square * _drag_saved(graph, rows, speeds)

        joules = motion + auxiliary - saved
        energy = through + joules / _JOULES_PER_WH
        return np.asarray(np.maximum(energy, 0.0))

    def terms(self, graph: LineGraph, edges: Ints | None = None) -> Floats:
        """Return Wh of each edge for rolling, for 1 kW while driving, for drag and climbing, (n, 4).

        Where a vehicle differs from its parameters on all roads alike, it differs by a multiple of
        these.

        Args:
            graph: The roads.
            edges: Numbers of edges; by default all of them.
        """
        rows = slice(None) if edges is None else edges
        length = graph.length[rows]
        speed = graph.speed[rows]
        weight = self.mass * self.gravity
        drag = self._drag_per_square * np.square(speed)
        columns = [
            weight * self.rolling_resistance * length,
            1000.0 * graph.travel_time[rows],
            drag * length,
            weight * graph.rise[rows],
        ]
        joules = np.stack(columns, axis=1)
        return joules / _JOULES_PER_WH

    def stop_variance(self, graph: LineGraph, edges: Ints | None = None) -> Floats:
        """Return Wh² by which signals behind each edge make drives differ, (n,); 0 without signals.

        With a probability p a car must stop, and then waits up to r seconds, all waits alike: of stopping
        and accelerating again the share 1/η⁺ − η⁻ of ½mv² is lost, and auxiliaries are drawn.

        Args:
            graph: The roads.
            edges: Numbers of edges; by default all of them.
        """
        turns, row = _turns_behind(graph, edges)
        variance = self._stop_variance_of_turns(graph, turns)
        # The mean over the turns behind each edge.
        rows = len(graph)
        if edges is not None:
            rows = len(edges)
        total: Any = np.bincount(row, variance, rows)
        turns_behind = np.bincount(row, minlength=rows)
        count = turns_behind.astype(np.float64)
        return _divide(total, count)

    def _stop_variance_of_turns(self, graph: LineGraph, turns: Ints) -> Floats:
        """Return Var(I·(stop + power·U)), Wh²: I stopping with probability p, U uniform up to red."""
        p = np.clip(graph.turn_stop[turns], 0.0, 1.0)
        wait = graph.turn_wait[turns]
        # Seconds of red, of which a car that stops waits half on average.
        red = _divide(2.0 * wait, p)
        first_edge = graph.turns[turns, 0]
        speed_square = np.square(graph.speed[first_edge])
        stop = 0.5 * self._lost_share * self.mass * speed_square
        power = self.auxiliary_power
        mean = stop + power * (0.5 * red)
        uniform_variance = (power * red) ** 2 / 12.0
        mean_square = mean**2 + uniform_variance
        joules_square = p * mean_square - (p * mean) ** 2
        return np.asarray(joules_square / _JOULES_PER_WH**2)

    def motion(self, speed: Any) -> Floats:
        """Return Wh that braking gives back: η⁻·½·m·v²/3600.

        Args:
            speed: m/s.
        """
        v = np.asarray(speed, dtype=np.float64)
        per_square = 0.5 * self.mass * self.recuperation_efficiency / _JOULES_PER_WH
        return per_square * np.square(v)

    def potential(self, height: Any) -> Floats:
        """Return Wh that driving down gives back: h = m·g·z·η⁻/3600.

        Args:
            height: Metres.
        """
        if self.recuperation != "multiply":
            raise InputError(
                "recuperation 'divide' returns more energy than was spent, so no potential makes "
                "all costs positive; use recuperation 'multiply' or routing 'rectified'"
            )
        z = np.asarray(height, dtype=np.float64)
        weight = self.mass * self.gravity
        per_metre = weight * self.recuperation_efficiency / _JOULES_PER_WH
        return per_metre * z


def _drag_saved(
    graph: LineGraph,
    turns: slice | Ints,
    speeds: JunctionSpeeds,
) -> Floats:
    """Return metres times (m/s)² below the limits² of the edges before and after each turn."""
    edges = graph.turns[turns]
    limit_before, limit_after = graph.speed[edges].T
    before = _slower(limit_before, speeds.before, speeds.slow, BRAKING)
    after = _slower(limit_after, speeds.after, speeds.leave, ACCELERATION)
    return before + after


def _slower(limit: Floats, fast: Floats, slow: Floats, acceleration: float) -> Floats:
    """Return metres times (m/s)² below the limit² while speed changes at this rate, m/s²."""
    fast_square = fast**2
    slow_square = slow**2
    metres = 0.5 * (fast_square - slow_square) / acceleration
    # v² is linear in the place.
    mean_square = 0.5 * (fast_square + slow_square)
    return (limit**2 - mean_square) * metres


def _divide(dividend: Floats, divisor: Floats) -> Floats:
    """Return quotients; 0 where the divisor is 0."""
    zeros = np.zeros(len(divisor))
    return np.divide(dividend, divisor, out=zeros, where=divisor > 0.0)


class _TurnsBehind(NamedTuple):
    turns: Ints  # places in the turns of a graph, (t,)
    row: Ints  # the edge that each turn is behind, among those in question, (t,)


def _turns_behind(graph: LineGraph, edges: Ints | None) -> _TurnsBehind:
    """Return the turns behind some edges; by default all."""
    first_edge = graph.turns[:, 0]
    if edges is None:
        all_turns = np.arange(len(first_edge))
        return _TurnsBehind(all_turns, first_edge)
    begin = np.searchsorted(first_edge, edges)
    end = np.searchsorted(first_edge, edges, side="right")
    row, number = repeated(end - begin)
    turns = begin[row] + number
    return _TurnsBehind(turns, row)


@register("mean", "road-energy")
@dataclass(frozen=True, kw_only=True, eq=False)
class RoadEnergy:
    """The energy of every road as a prior mean: column 0 of the features is the road's number.

    Args:
        vehicle: The vehicle that drives.
        length: Length of each road, metres, (n,).
        speed: Speed on each road, m/s, (n,).
        rise: Height gained along each road, metres, (n,).
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
            raise InputError(f"vehicle must be a Vehicle, got {vehicle!r}")
        count = len(self.length)
        length = as_vector(self.length, "length", count)
        _require_positive(length, "length")
        speed = as_vector(self.speed, "speed", count)
        _require_positive(speed, "speed")
        rise = as_vector(self.rise, "rise", count)
        object.__setattr__(self, "length", read_only(length))
        object.__setattr__(self, "speed", read_only(speed))
        object.__setattr__(self, "rise", read_only(rise))
        values = self.vehicle.energy(self.length, self.speed, self.rise)
        object.__setattr__(self, "values", read_only(values))

    def __call__(self, rows: Floats) -> Floats:
        roads = as_numbers(rows[:, 0], len(self.values), "roads", 0)
        return self.values[roads]


def _require_positive(values: Floats, name: str) -> None:
    if not (values > 0.0).all():
        raise InputError(f"{name} must be above 0 for every road")
