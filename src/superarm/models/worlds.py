"""What problems share.

A problem is built by ``registry.build("problem", spec, seed=…, horizon=…)``. Its truth comes
from the stream (seed, "truth", 0) and its offers from (seed, "offer", step); noise is drawn by
whoever runs it, from (seed, "noise", step), and handed to
:meth:`~superarm.core.Problem.feedback`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from superarm.core import Decision, Feedback, Floats, Offer, Problem, Rng
from superarm.core.road_map import RoadMap
from superarm.movement import OfflinePath

from .model import Model

NO_METRICS: Mapping[str, float] = MappingProxyType({})  # one for all: rounds are many


@runtime_checkable
class World(Problem, Protocol):
    """A problem that also says what a learner is told and what the truth is."""

    @property
    def model(self) -> Model: ...
    @property
    def interpretations(self) -> Mapping[str, str]:
        """Which reading of the paper was used, by topic: text for a report."""
        ...

    def means(self, offer: Offer) -> Floats:
        """True expected reward of every arm on offer, (n,): what the benchmark policy sees."""
        ...


def store(record: object, **values: object) -> None:
    """Set the fields of a frozen dataclass, as they were checked or built."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


class GaussianNoise(ABC):
    """A problem whose rewards are their expected values with Gaussian noise."""

    noise_std: float

    @abstractmethod
    def means(self, offer: Offer) -> Floats:
        """Expected outcome of every arm on offer, (n,)."""

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        draws = rng.standard_normal(len(offer.arms))
        draws *= self.noise_std
        return draws

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        positions = decision.positions
        return Feedback(
            positions=positions, rewards=self.means(offer)[positions] + noise[positions]
        )


class HasScores(ABC):
    """A world whose benchmark is the oracle on other numbers than the true means."""

    @abstractmethod
    def scores(self, offer: Offer) -> Floats:
        """The benchmark's desirabilities, (n,)."""


class SharedData(ABC):
    """A world whose seeds draw from the same records, so that their totals are correlated."""

    @property
    @abstractmethod
    def shared_data(self) -> float:
        """The share of a seed's records that any other seed uses, too, on average; below 1.

        Of seeds with records of their own that are alike, the correlation of those of two seeds.
        """

    @property
    def independent_seeds(self) -> float:
        """How many independent seeds all of them are worth at most; ∞ where seeds draw their records.

        Where each seed takes one of many records that follow each other, the number of independent
        records that have a mean as uncertain.
        """
        return math.inf


class HasRoadMap(ABC):
    """A world whose arms are roads on a map."""

    @abstractmethod
    def road_map(self) -> RoadMap: ...


class MovementWorld(ABC):
    """A world in which going from one action to the next has a cost."""

    @abstractmethod
    def way(self, step: int) -> tuple[OfflinePath, int]:
        """The cheapest way through the span of round ``step``, and the round's place in it."""


@runtime_checkable
class RouteWorld(World, Protocol):
    """A world of one trip, made again and again on the same roads."""

    @property
    def noise_std(self) -> float: ...
    @property
    def energies(self) -> Floats:
        """True expected energy of every road in Wh, (n,)."""
        ...

    @property
    def known_costs(self) -> Mapping[str, Floats]:
        """What a traveller knows of every road, (n,) each: "energy", "travel_time", "length"."""
        ...

    def scores(self, offer: Offer) -> Floats:
        """The benchmark's desirabilities, (n,)."""
        ...

    def cheapest(self, costs: Floats, trip: Any = None) -> list[int]:
        """The route of least cost, empty where there is none; roads of infinite cost are closed."""
        ...

    def road_map(self) -> RoadMap:
        """The roads and the ends of the trip, to draw on."""
        ...
