"""Other vehicles on the road: seeded trips between places, weighted by how much road they have.

SUMO's own generators draw from random numbers that a saved state does not restore. So whatever is
random about the background traffic is drawn here: when a car departs, between which edges, and how
fast its driver likes to go. The cars themselves drive without chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InfeasibleError
from superarm.core.inputs import as_count, as_positive
from superarm.core.streams import stream

# Pairs of places that are drawn for one car before giving up.
_TRIES = 200
# Speed factors of drivers.
_SLOWEST = 0.7
_FASTEST = 1.3


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """How much background traffic there is, and at which moments of it a trip may begin.

    The traffic runs for ``warm_up`` seconds, then its state is saved ``moments`` times, ``spacing``
    seconds apart. Trips that begin at the same moment meet the same cars at the same places.

    Args:
        vehicles_per_hour: Cars that depart in an hour on average.
        edges: Edges between which cars travel; by default all that cars may use.
        warm_up: Seconds before the first moment.
        moments: Number of moments.
        spacing: Seconds between moments.
        action_step: Seconds after which the other drivers decide anew: half the work of deciding every
            step.
    """

    vehicles_per_hour: float
    edges: tuple[str, ...] | None = None
    warm_up: float = 600.0
    moments: int = 8
    spacing: float = 60.0
    action_step: float = 1.0

    def __post_init__(self) -> None:
        numbers = {
            "vehicles_per_hour": self.vehicles_per_hour,
            "warm_up": self.warm_up,
            "spacing": self.spacing,
            "action_step": self.action_step,
        }
        for name, value in numbers.items():
            object.__setattr__(self, name, as_positive(value, name))
        as_count(self.moments, "moments")
        if self.edges is not None:
            object.__setattr__(self, "edges", tuple(self.edges))

    def time_of(self, moment: int) -> float:
        """Return the simulated seconds at which a moment's state is saved.

        Args:
            moment: Its number, from 0.
        """
        return self.warm_up + moment * self.spacing


class Departure(NamedTuple):
    """One car of the background traffic."""

    time: float
    route: tuple[str, ...]
    speed_factor: float  # its speed where the road is free, as a multiple of the limit


class Departures:
    """Cars in the order in which they depart, without end; the same for the same seed.

    Args:
        traffic: How many cars depart.
        places: Ids of edges between which they travel.
        weights: How often a place is drawn, relatively, one for each.
        find_route: Returns the edges of the fastest way between two places.
        seed: Of the random numbers.
    """

    def __init__(
        self,
        traffic: Traffic,
        *,
        places: Sequence[str],
        weights: Floats,
        find_route: Callable[[str, str], Sequence[str]],
        seed: int,
    ) -> None:
        self._mean_pause = 3600.0 / traffic.vehicles_per_hour
        self._places = places
        self._cumulative_weights = np.cumsum(weights) / np.sum(weights)
        self._find_route = find_route
        self._rng = stream(seed, "traffic", 0)
        self._drawn: list[Departure] = []

    def __getitem__(self, number: int) -> Departure:
        while number >= len(self._drawn):
            self._draw()
        return self._drawn[number]

    def until(self, time: float) -> None:
        """Draw the cars that depart up to a time, so that they are known when they are needed.

        Args:
            time: Simulated seconds.
        """
        while not self._drawn or self._drawn[-1].time <= time:
            self._draw()

    def _draw(self) -> None:
        """Draw the next car."""
        previous = 0.0
        if self._drawn:
            previous = self._drawn[-1].time
        # The order of the draws is part of what a seed means.
        pause = float(self._rng.exponential(self._mean_pause))
        draw = self._rng.normal(1.0, 0.1)
        factor = float(np.clip(draw, _SLOWEST, _FASTEST))
        route = self._draw_route()
        self._drawn.append(Departure(previous + pause, route, factor))

    def _draw_route(self) -> tuple[str, ...]:
        """Draw the fastest way between two places; draw again where there is none."""
        for _ in range(_TRIES):
            draws = self._rng.random(2)
            first, last = np.searchsorted(self._cumulative_weights, draws, side="right")
            if first == last:
                continue
            route = self._find_route(self._places[first], self._places[last])
            if len(route) > 1:
                return tuple(route)
        raise InfeasibleError(
            f"in {_TRIES} tries no road connected two places drawn for the background traffic; "
            "name edges that are connected"
        )
