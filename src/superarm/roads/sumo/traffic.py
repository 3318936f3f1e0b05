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

_TRIES = 200
_SLOWEST, _FASTEST = 0.7, 1.3


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """How much background traffic there is, and at which moments of it a trip may begin.

    The traffic runs for ``warm_up`` seconds, then its state is kept ``moments`` times, ``spacing``
    seconds apart. Trips that begin at the same moment meet the same cars at the same places.
    """

    vehicles_per_hour: float
    edges: tuple[str, ...] | None = None
    """Edges between which cars travel; ``None``: all that cars may use."""
    warm_up: float = 600.0
    moments: int = 8
    spacing: float = 60.0
    action_step: float = 1.0
    """How often, in seconds, the other drivers decide anew: half the work of deciding every step."""

    def __post_init__(self) -> None:
        for name in ("vehicles_per_hour", "warm_up", "spacing", "action_step"):
            object.__setattr__(self, name, as_positive(getattr(self, name), name))
        as_count(self.moments, "moments")
        if self.edges is not None:
            object.__setattr__(self, "edges", tuple(self.edges))

    def time_of(self, moment: int) -> float:
        """Simulated seconds at which a moment's state is kept."""
        return self.warm_up + moment * self.spacing


class Departure(NamedTuple):
    """One car of the background traffic."""

    time: float
    route: tuple[str, ...]
    speed_factor: float  # its speed where the road is free, as a multiple of the limit


class Departures:
    """Cars in the order in which they depart, without end; the same for the same seed."""

    def __init__(
        self,
        traffic: Traffic,
        *,
        places: Sequence[str],
        weights: Floats,
        find_route: Callable[[str, str], Sequence[str]],
        seed: int,
    ) -> None:
        self._pause = 3600.0 / traffic.vehicles_per_hour
        self._places = places
        self._weights = np.cumsum(weights) / np.sum(weights)
        self._find_route = find_route
        self._rng = stream(seed, "traffic", 0)
        self._known: list[Departure] = []

    def __getitem__(self, number: int) -> Departure:
        while number >= len(self._known):
            before = self._known[-1].time if self._known else 0.0
            time = before + float(self._rng.exponential(self._pause))
            factor = float(np.clip(self._rng.normal(1.0, 0.1), _SLOWEST, _FASTEST))
            self._known.append(Departure(time, self._route(), factor))
        return self._known[number]

    def until(self, time: float) -> None:
        """Find the cars that depart up to a time, so that they are known when asked for."""
        while not self._known or self._known[-1].time <= time:
            self[len(self._known)]

    def _route(self) -> tuple[str, ...]:
        """The fastest way between two places; redrawn where there is none."""
        for _ in range(_TRIES):
            first, last = np.searchsorted(
                self._weights, self._rng.random(2), side="right"
            )
            if first != last:
                route = tuple(self._find_route(self._places[first], self._places[last]))
                if len(route) > 1:
                    return route
        raise InfeasibleError(
            f"in {_TRIES} tries no road connected two places drawn for the background traffic; "
            "name edges that are connected"
        )
