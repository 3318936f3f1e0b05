"""What problems have in common.

Build a problem with ``registry.build("problem", spec, seed=…, horizon=…)``. Its truth comes from the
stream (seed, "truth", 0) and its offers from (seed, "offer", step). The simulator draws noise from
(seed, "noise", step) and passes it to :meth:`~superarm.core.Problem.feedback`.
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

NO_METRICS: Mapping[str, float] = MappingProxyType({})
"""The metrics of a round without any; one object, because there are many rounds."""


@runtime_checkable
class World(Problem, Protocol):
    """A problem with a model for learners and a known truth."""

    @property
    def model(self) -> Model:
        """The learner's knowledge before the first round."""
        ...

    @property
    def interpretations(self) -> Mapping[str, str]:
        """How ambiguous passages of the paper were read, by topic: text for a report."""
        ...

    def means(self, offer: Offer) -> Floats:
        """True expected reward of every arm on offer, (n,), which the benchmark policy uses.

        Args:
            offer: The offer of a round.
        """
        ...


def store(record: object, **values: object) -> None:
    """Set fields of a frozen dataclass, in its ``__post_init__``.

    Args:
        record: The dataclass.
        values: Values by the names of the fields.
    """
    for name, value in values.items():
        object.__setattr__(record, name, value)


class GaussianNoise(ABC):
    """A problem whose rewards are their expected values with Gaussian noise."""

    noise_std: float

    @abstractmethod
    def means(self, offer: Offer) -> Floats:
        """Expected outcome of every arm on offer, (n,).

        Args:
            offer: The offer of a round.
        """

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        draws = rng.standard_normal(len(offer.arms))
        draws *= self.noise_std
        return draws

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        positions = decision.positions
        expected = self.means(offer)[positions]
        rewards = expected + noise[positions]
        return Feedback(positions=positions, rewards=rewards)


class HasScores(ABC):
    """A world whose benchmark applies the oracle to other numbers than the true means."""

    @abstractmethod
    def scores(self, offer: Offer) -> Floats:
        """The benchmark's desirabilities, (n,).

        Args:
            offer: The offer of a round.
        """


class SharedData(ABC):
    """A world whose seeds draw from the same records, so that their totals are correlated."""

    @property
    @abstractmethod
    def shared_data(self) -> float:
        """The average share of a seed's records that another seed uses, too; below 1.

        For seeds with separate but similar records, the correlation between two seeds.
        """

    @property
    def independent_seeds(self) -> float:
        """The most independent seeds that all seeds are worth; ∞ where seeds draw their records.

        Where each seed uses one of many consecutive records, the number of independent records whose
        mean is equally uncertain.
        """
        return math.inf


class HasRoadMap(ABC):
    """A world whose arms are roads on a map."""

    @abstractmethod
    def road_map(self) -> RoadMap:
        """The roads and the ends of the trip, for drawing."""


class MovementWorld(ABC):
    """A world in which going from one action to the next has a cost."""

    @abstractmethod
    def cheapest_path(self, step: int) -> tuple[OfflinePath, int]:
        """The cheapest path through the span of a round, and the round's position in it.

        Args:
            step: The round, from 1.
        """


@runtime_checkable
class RouteWorld(World, Protocol):
    """A world of one trip, repeated on the same roads."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of one road's measured energy, in Wh."""
        ...

    @property
    def energies(self) -> Floats:
        """True expected energy of every road in Wh, (n,)."""
        ...

    @property
    def known_costs(self) -> Mapping[str, Floats]:
        """Known costs of every road, (n,) each: "energy", "travel_time" and "length"."""
        ...

    def scores(self, offer: Offer) -> Floats:
        """The benchmark's desirabilities, (n,).

        Args:
            offer: The offer of a round.
        """
        ...

    def cheapest(self, costs: Floats, trip: Any = None) -> list[int]:
        """The route of least cost; empty where there is none.

        Args:
            costs: The cost of every road, (n,); a road of infinite cost is closed.
            trip: The ends of another trip than the world's own.
        """
        ...

    def road_map(self) -> RoadMap:
        """The roads and the ends of the trip, for drawing."""
        ...
