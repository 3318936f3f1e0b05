"""Tasks arrive, workers near them are offered, five are sent.

Simulation I of Contextual Combinatorial Bandits with Changing Action Sets via Gaussian Processes
(2022). An arm is a worker-task pair with context x = (distance/√½, easiness of the task, battery), all
in [0, 1]; its expected outcome is f(x) = exp(−x₁²/(2·0.4²))·√(x₂x₃). New arms come each round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Offer, Rng
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_noise_std, require_choice
from superarm.core.registry import register
from superarm.core.streams import Streams, stream
from superarm.lab.datasets import load_tokyo_checkins
from superarm.models.worlds import store
from superarm.oracles import TopK
from superarm.rewards import LogSum

from .changing import ChangingArms, most_arrivals
from .sources import from_source

REACH_SQUARED = 0.5
"""The square of how far a worker may be from the task, in a city of side 1."""
DISTANCE_SCALE = 0.4
_CENTRES = 12  # of the synthetic city
_PLACES = 8000  # of the synthetic city

_COUNTING = {
    "in reach": "the number of workers in reach of the task is Poisson; they are drawn from the "
    "places in reach",
    "in the city": "the number of workers in the whole city is Poisson; those out of reach are "
    "then dropped",
}


def expected_outcome(contexts: Floats) -> Floats:
    """f(x) = A·g(x₁)·√(x₂x₃) with A·g(x) = exp(−x²/(2·0.4²)), (n,).

    Args:
        contexts: Distance, easiness and battery, (n, 3).
    """
    distance, easiness, battery = contexts.T
    nearness = np.exp(distance**2 / (-2.0 * DISTANCE_SCALE**2))
    outcomes: Floats = nearness * np.sqrt(easiness * battery)
    return outcomes


@register("problem", "crowdsourcing")
@dataclass(frozen=True, kw_only=True, eq=False)
class Crowdsourcing(ChangingArms):
    """Semi-synthetic crowdsourcing; the reward of a group is ln(1 + Σ outcomes).

    Args:
        workers: Mean of the Poisson number of workers.
        k: Number of workers that a task needs.
        noise_std: Standard deviation of the noise.
        counting: Which workers the Poisson number counts: those "in reach" or those "in the city".
        source: Real data, synthetic data of the same shape, or auto: real where available.
    """

    workers: int = 100
    k: int = 5
    noise_std: float = 0.1
    counting: str = "in reach"
    source: str = "auto"
    _places: Floats = field(init=False, repr=False)
    _streams: Streams = field(init=False, repr=False)

    def __post_init__(self) -> None:
        as_count(self.horizon, "horizon")
        as_count(self.k, "k")
        as_count(self.workers, "workers", 1, 100_000)
        require_choice(self.counting, "counting", tuple(_COUNTING))
        store(
            self,
            noise_std=as_noise_std(self.noise_std),
            _streams=Streams(self.seed, "offer"),
        )
        if self.workers <= self.k:
            raise InputError(
                f"workers is {self.workers} and k is {self.k}; on average more workers must come "
                "than a task needs"
            )
        places = from_source(self.source, _tokyo, _synthetic_city)
        most_arms = most_arrivals(self.workers)
        model = self._unit_model(TopK(k=self.k), most_arms, reward=LogSum())
        interpretations = {
            "data": places.origin,
            "workers": f"{_COUNTING[self.counting]}; redrawn until more than k = {self.k} "
            f"and at most M = {most_arms} workers are on offer",
            "task": "place and easiness uniform; redrawn where no known place is in reach",
            "reward": "ln(1 + Σ outcomes), natural logarithm; a noisy sum below 0 counts as 0",
            "value": "ln(1 + Σ f): regret is measured on expected outcomes",
        }
        store(
            self,
            model=model,
            interpretations=interpretations,
            _places=places.positions,
        )

    def offer(self, step: int) -> Offer:
        rng = self._streams.at(step)
        squares = self._arrivals(rng)
        count = len(squares)
        contexts = np.empty((count, 3))
        distances = np.sqrt(squares / REACH_SQUARED)
        # A square just under ½ may round to a distance just over 1.
        contexts[:, 0] = np.minimum(distances, 1.0)
        contexts[:, 1] = rng.random()  # the task's easiness
        contexts[:, 2] = rng.random(count)  # the workers' batteries
        # Ids are never used again in another round.
        first = step * most_arrivals(self.workers)
        arms = Arms(ids=range(first, first + count), features=contexts)
        return Offer(step=step, arms=arms)

    def _arrivals(self, rng: Rng) -> Floats:
        """Squared distances of the workers to a new task."""
        while True:
            offsets = self._places - rng.random(2)
            squares: Floats = np.einsum("ij,ij->i", offsets, offsets)
            count = int(rng.poisson(self.workers))
            if self.counting == "in reach":
                near = np.flatnonzero(squares < REACH_SQUARED)
                if len(near) == 0:
                    continue
                numbers = rng.integers(len(near), size=count)
                workers = near[numbers]
            else:
                workers = rng.integers(len(squares), size=count, dtype=np.intp)
                workers = workers[squares[workers] < REACH_SQUARED]
            if self.k < len(workers) <= most_arrivals(self.workers):
                return squares[workers]

    def means(self, offer: Offer) -> Floats:
        return expected_outcome(offer.arms.features)


class _Places(NamedTuple):
    """Where workers may be."""

    positions: Floats  # (n, 2), in the unit square
    origin: str


def _tokyo() -> _Places:
    positions = _to_unit_square(load_tokyo_checkins())
    origin = f"{len(positions)} Tokyo check-ins, longitude and latitude each scaled to [0, 1]"
    return _Places(positions, origin)


@cache
def _synthetic_city() -> _Places:
    """Twelve centres of different weight near the middle: the same city for every seed."""
    rng = stream(0, "made-city", 0)
    centres = rng.normal(0.5, 0.18, size=(_CENTRES, 2))
    spreads = rng.uniform(0.03, 0.12, size=_CENTRES)
    weights = rng.dirichlet(np.ones(_CENTRES))
    centre = rng.choice(_CENTRES, size=_PLACES, p=weights)  # of each place
    normals = rng.standard_normal((_PLACES, 2))
    offsets = spreads[centre, None] * normals
    positions = _to_unit_square(centres[centre] + offsets)
    origin = f"{_PLACES} places around twelve centres, synthetic data"
    return _Places(positions, origin)


def _to_unit_square(positions: Floats) -> Floats:
    low = positions.min(axis=0)
    high = positions.max(axis=0)
    size = np.where(high > low, high - low, 1.0)
    scaled: Floats = (positions - low) / size
    return scaled
