"""Scores that do not learn: one number for every arm, larger is better."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from superarm.core import Floats, Ints, Offer, Oracle, Rng
from superarm.core.errors import InputError
from superarm.core.inputs import as_generator, as_vector, read_only
from superarm.core.registry import register
from superarm.models.worlds import HasScores, MovementWorld, World
from superarm.movement.switching import previous_positions
from superarm.oracles import TopK, Trip


@runtime_checkable
class Score(Protocol):
    """Desirabilities that no feedback changes."""

    @property
    def deterministic(self) -> bool:
        """Whether ``desirability`` leaves ``rng`` alone."""

    def desirability(self, offer: Offer, rng: Rng) -> Floats: ...
    def propensity(self, offer: Offer, positions: Ints, oracle: Oracle) -> float | None:
        """Probability that the oracle selects these arms, where it is known."""


@register("score", "uniform")
@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Chance: every arm is as good as another.

    Args:
        costs: Whether desirabilities are drawn from [−1, 0), for oracles that take costs, instead
            of [0, 1).
    """

    costs: bool = False
    deterministic = False

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        drawn = as_generator(rng).random(len(offer.arms))
        return drawn - 1.0 if self.costs else drawn

    def propensity(self, offer: Offer, positions: Ints, oracle: Oracle) -> float | None:
        """Every set of k arms is as likely as another; for routes it is not known."""
        if type(oracle) is not TopK:
            return None
        available = (
            len(offer.arms) if offer.available is None else int(offer.available.sum())
        )
        return 1 / math.comb(
            available, len(positions)
        )  # of integers: it may be 0, but fits


class _Certain:
    """A score that is not left to chance."""

    deterministic = True

    def propensity(self, offer: Offer, positions: Ints, oracle: Oracle) -> float | None:
        return 1.0 if oracle.deterministic else None


@register("score", "known-costs")
@dataclass(frozen=True, kw_only=True, eq=False)
class KnownCosts(_Certain):
    """Minus what each arm on offer is known to cost.

    Args:
        costs: (n,), what each arm on offer costs.
        turn_costs: (c,), what turns cost in the same unit; ``None``: what the offer says of them.
    """

    costs: Floats
    turn_costs: Floats | None = None

    def __post_init__(self) -> None:
        for name in ("costs", "turn_costs"):
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, read_only(as_vector(values, name)))

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        return np.negative(self.costs)

    def priced(self, offer: Offer) -> Offer:
        """The offer with turns at these costs."""
        if self.turn_costs is None or not isinstance(offer.structure, Trip):
            return offer
        return replace(
            offer, structure=replace(offer.structure, turn_costs=self.turn_costs)
        )


@register("score", "expected")
@dataclass(frozen=True, kw_only=True)
class Expected(_Certain):
    """Minus what a column of the features says that each arm costs, cut off at zero.

    Args:
        column: The column of the features to look at.
    """

    column: int = 1

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        return np.minimum(-offer.arms.features[:, self.column], 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth(_Certain):
    """The true means, or what the world's own benchmark uses. It cannot be loaded from a file."""

    problem: World

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        if isinstance(self.problem, HasScores):
            return self.problem.scores(offer)
        means = self.problem.means(offer)
        return means if self.problem.direction == "maximize" else -means


@register("score", "stay")
@dataclass(frozen=True, kw_only=True)
class Stay(_Certain):
    """Prefers the arms of the previous action to all others."""

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        desirability = np.full(len(offer.arms), -1.0)
        desirability[previous_positions(offer)] = 0.0
        return desirability


@dataclass(frozen=True, kw_only=True, eq=False)
class Planned(_Certain):
    """The action of the cheapest way, known beforehand. It has no spec, like ``Truth``."""

    problem: MovementWorld

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        way, place = self.problem.way(offer.step)
        return np.where(np.arange(len(offer.arms)) == way.actions[place], 0.0, -1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class LastTruth(_Certain):
    """The true means of the round before; in round 1 the prior mean. It has no spec, like ``Truth``."""

    problem: World

    def __post_init__(self) -> None:
        if self.problem.model.arms is None:
            told = "the genie needs fixed arms, but the arms of this problem change every round"
            raise InputError(told)

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        if offer.step > 1:
            return Truth(problem=self.problem).desirability(
                self.problem.offer(offer.step - 1), rng
            )
        mean, arms = self.problem.model.mean, offer.arms.features
        values = np.broadcast_to(mean(arms) if callable(mean) else mean, len(arms))
        return values if self.problem.direction == "maximize" else -values
