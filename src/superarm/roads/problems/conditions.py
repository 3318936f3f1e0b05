"""Conditions that change from trip to trip: congestion, temperature and load; and rush hours.

Each is a column of the arms' features that is known before a trip, and changes what the trip
costs in a way that the traveller does not know. Arms whose features change are no fixed set.

=================  ==================================================================
``congestion``     0 … 1 for each edge: a daily wave, stronger on fast roads
``temperature``    °C, the same everywhere: heating and cooling draw power
``load``           kg beyond the vehicle's own mass
=================  ==================================================================

Rush hours are not announced: the energies of the fixed arms themselves change with the hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.streams import Streams
from superarm.kernels import PriorRoot
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph

CONDITIONS = ("congestion", "temperature", "load")
TRIPS_PER_DAY = 24
_SLOWEST = 0.4  # of the speed limit, where congestion is 1
_STOP_EVERY = 200.0  # metres, where congestion is 1
_COMFORT = 20.0  # °C
_WATTS_PER_DEGREE = 100.0
_MEAN_TEMPERATURE = 10.0  # °C
_TEMPERATURE_STD = 8.0
_MOST_LOAD = 400.0  # kg
_CONGESTION_SCALE = 0.3  # such that its feature has about unit scale
_AT_REST = {"congestion": 0.0, "temperature": _COMFORT, "load": 0.0}
_HOURS_PER_DAY = 24.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Conditions:
    """The conditions of every round of one seed.

    Args:
        names: Which conditions change; the others are at rest.
        graph: The roads.
        vehicle: The vehicle that drives, without load.
        seed: Which random world.
    """

    names: Sequence[str]
    graph: LineGraph
    vehicle: Vehicle
    seed: int
    _streams: Streams = field(init=False, repr=False)

    def __post_init__(self) -> None:
        unknown = [name for name in self.names if name not in CONDITIONS]
        if unknown or len(set(self.names)) != len(self.names):
            raise InputError(
                f"conditions is {list(self.names)}; choose from {list(CONDITIONS)}, each once"
            )
        object.__setattr__(self, "_streams", Streams(self.seed, "conditions"))

    def at(self, step: int) -> dict[str, Floats]:
        """The conditions of a round, (n,) each; those that are not named are at rest.

        Args:
            step: Number of the round, from 1.
        """
        rng = self._streams.at(step)
        n = len(self.graph)
        day_angle = 2.0 * np.pi * step / TRIPS_PER_DAY
        wave = 0.5 - 0.5 * np.cos(day_angle)
        fast = self.graph.speed / self.graph.speed.max()
        # All are drawn in this order, named or not.
        chance = 0.1 * rng.standard_normal(n)
        congestion = np.clip(wave * fast + chance, 0.0, 1.0)
        temperature = rng.normal(_MEAN_TEMPERATURE, _TEMPERATURE_STD)
        load = rng.uniform(0.0, _MOST_LOAD)
        values = {
            "congestion": congestion,
            "temperature": np.full(n, temperature),
            "load": np.full(n, load),
        }
        for name, value in _AT_REST.items():
            if name not in self.names:
                values[name] = np.full(n, value)
        return values

    def columns(self, step: int) -> Floats:
        """The named conditions as features of about unit scale, (n, c).

        Args:
            step: Number of the round, from 1.
        """
        now = self.at(step)
        degrees = now["temperature"] - _MEAN_TEMPERATURE
        scaled = {
            "congestion": now["congestion"] / _CONGESTION_SCALE,
            "temperature": degrees / _TEMPERATURE_STD,
            "load": now["load"] / _MOST_LOAD,
        }
        return np.stack([scaled[name] for name in self.names], axis=1)

    def extra(self, step: int) -> Floats:
        """Wh that the conditions of a round add to the energy at rest, (n,).

        Args:
            step: Number of the round, from 1.
        """
        now = self.at(step)
        graph = self.graph
        length = graph.length
        congestion = now["congestion"]
        load = float(now["load"][0])
        slowdown = (1.0 - _SLOWEST) * congestion
        speed = graph.speed * (1.0 - slowdown)
        laden = replace(self.vehicle, mass=self.vehicle.mass + load)
        moving = laden.energy(length, speed, graph.rise)
        # Stopping and starting again loses what recuperation does not bring back.
        loss = 1.0 / laden.propulsion_efficiency - laden.recuperation_efficiency
        stops = congestion * length / _STOP_EVERY
        kinetic = 0.5 * laden.mass * np.square(graph.speed) * loss * stops  # J
        degrees = np.abs(now["temperature"] - _COMFORT)
        watts = _WATTS_PER_DEGREE * degrees
        climate = watts * length / speed  # J
        at_rest = self.vehicle.energy(length, graph.speed, graph.rise)
        extra: Floats = moving + (kinetic + climate) / 3600.0 - at_rest
        return extra


@dataclass(frozen=True, kw_only=True, eq=False)
class RushHours:
    """What rush hours add to the energies of every road, trip by trip.

    r(hour) · (fast + u_t): r has a peak at 8 and one at 17 o'clock, fast roads suffer most, and u_t is
    a draw of the roads' own prior that drifts, u_{t+1} = √(1 − ε) u_t + √ε g_{t+1}.

    Args:
        root: A root of the roads' prior covariance.
        fast: Speed limits as shares of the largest, times the prior's standard deviation, (n,).
        epsilon: ε: how fast the pattern drifts, 0 to 1.
        seed: Which random world.
    """

    root: PriorRoot
    fast: Floats
    epsilon: float
    seed: int
    _drifts: list[Floats] = field(init=False, repr=False, default_factory=list)  # u_t

    @staticmethod
    def rush(step: int) -> float:
        """r, at the hour of a trip: the first is at 0 o'clock.

        Args:
            step: Number of the trip, from 1.
        """
        trip_of_day = (step - 1) % TRIPS_PER_DAY
        hour = _HOURS_PER_DAY * trip_of_day / TRIPS_PER_DAY
        # Bells of 1.5 and 2 hours.
        from_morning = (hour - 8) / 1.5
        from_evening = (hour - 17) / 2
        morning = np.exp(-0.5 * from_morning**2)
        evening = np.exp(-0.5 * from_evening**2)
        return float(morning + evening)

    def extra(self, step: int) -> Floats:
        """Wh that rush hours add on a trip, (n,).

        Args:
            step: Number of the trip, from 1.
        """
        streams = Streams(self.seed, "rush-hours")
        while len(self._drifts) < step:
            next_step = len(self._drifts) + 1
            rng = streams.at(next_step)
            normals = rng.standard_normal((1, self.root.normals))
            draw = self.root.times(normals)[0]
            self._append_drift(draw)
        pattern = self.fast + self._drifts[step - 1]
        return self.rush(step) * pattern

    def _append_drift(self, draw: Floats) -> None:
        """u_{t+1} from u_t and a draw of the prior."""
        if not self._drifts:
            self._drifts.append(draw)
            return
        remaining = np.sqrt(1.0 - self.epsilon) * self._drifts[-1]
        new = np.sqrt(self.epsilon) * draw
        self._drifts.append(remaining + new)
