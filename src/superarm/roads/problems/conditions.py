"""What changes from trip to trip: congestion, temperature and load; and rush hours.

Each is a column of the arms' features that is known before a trip, and changes what the trip
costs in a way that the traveller does not know. Arms whose features change are no fixed set.

=================  ==================================================================
``congestion``     0 … 1 for each edge: a daily wave, stronger on fast roads
``temperature``    °C, the same everywhere: heating and cooling draw power
``load``           kg beyond the vehicle's own mass
=================  ==================================================================

Rush hours are not told beforehand: the fixed arms' energies themselves change with the hour.
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
_COMFORT, _WATTS_PER_DEGREE = 20.0, 100.0
_MOST_LOAD = 400.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Conditions:
    """The conditions of every round of one seed."""

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
        """The conditions of a round, (n,) each; those that are not named are at rest."""
        rng = self._streams.at(step)
        n = len(self.graph)
        wave = 0.5 - 0.5 * np.cos(2.0 * np.pi * step / TRIPS_PER_DAY)
        fast = self.graph.speed / self.graph.speed.max()
        values = {
            "congestion": np.clip(wave * fast + 0.1 * rng.standard_normal(n), 0.0, 1.0),
            "temperature": np.full(n, rng.normal(10.0, 8.0)),
            "load": np.full(n, rng.uniform(0.0, _MOST_LOAD)),
        }
        rest = {"congestion": 0.0, "temperature": _COMFORT, "load": 0.0}
        return {
            name: values[name] if name in self.names else np.full(n, rest[name])
            for name in rest
        }

    def columns(self, step: int) -> Floats:
        """The named conditions as features of about unit scale, (n, c)."""
        now = self.at(step)
        scaled = {
            "congestion": now["congestion"] / 0.3,
            "temperature": (now["temperature"] - 10.0) / 8.0,
            "load": now["load"] / _MOST_LOAD,
        }
        return np.stack([scaled[name] for name in self.names], axis=1)

    def extra(self, step: int) -> Floats:
        """Wh that the conditions of a round add to the energy at rest, (n,)."""
        now, graph = self.at(step), self.graph
        speed = graph.speed * (1.0 - (1.0 - _SLOWEST) * now["congestion"])
        warm = _WATTS_PER_DEGREE * np.abs(now["temperature"] - _COMFORT)
        laden = replace(self.vehicle, mass=self.vehicle.mass + float(now["load"][0]))
        moving = laden.energy(graph.length, speed, graph.rise)
        # Stopping and starting again loses what recuperation does not bring back.
        loss = 1.0 / laden.propulsion_efficiency - laden.recuperation_efficiency
        stops = now["congestion"] * graph.length / _STOP_EVERY
        kinetic = 0.5 * laden.mass * np.square(graph.speed) * loss * stops
        extra: Floats = (
            moving
            + (kinetic + warm * graph.length / speed) / 3600.0
            - self.vehicle.energy(graph.length, graph.speed, graph.rise)
        )
        return extra


@dataclass(frozen=True, kw_only=True, eq=False)
class RushHours:
    """What rush hours add to the energies of every road, trip by trip.

    r(hour) · (fast + u_t): r has a peak at 8 and one at 17 o'clock, fast roads suffer most, and u_t is
    a draw of the roads' own prior that drifts, u_{t+1} = √(1 − ε) u_t + √ε g_{t+1}.
    """

    root: PriorRoot
    fast: Floats  # speed limits as shares of the largest, times the prior's standard deviation, (n,)
    epsilon: float
    seed: int
    _moods: list[Floats] = field(init=False, repr=False, default_factory=list)

    @staticmethod
    def rush(step: int) -> float:
        """r, at the hour of a trip: the first is at 0 o'clock."""
        hour = 24.0 * ((step - 1) % TRIPS_PER_DAY) / TRIPS_PER_DAY
        return float(
            np.exp(-0.5 * ((hour - 8) / 1.5) ** 2)
            + np.exp(-0.5 * ((hour - 17) / 2) ** 2)
        )

    def extra(self, step: int) -> Floats:
        """Wh, (n,)"""
        moods, streams = self._moods, Streams(self.seed, "rush-hours")
        while len(moods) < step:
            normals = streams.at(len(moods) + 1).standard_normal((1, self.root.normals))
            drawn = self.root.times(normals)[0]
            kept = np.sqrt(1.0 - self.epsilon) * moods[-1] if moods else drawn
            moods.append(kept + np.sqrt(self.epsilon) * drawn if moods else kept)
        return self.rush(step) * (self.fast + moods[step - 1])
