"""Scores that do not learn: one number for every arm, larger is better."""

from __future__ import annotations

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

from .answers import count_super_arms


@runtime_checkable
class Score(Protocol):
    """Desirabilities that no feedback changes."""

    @property
    def deterministic(self) -> bool:
        """Whether ``desirability`` draws no random numbers."""

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        """One number per arm on offer, (n,); larger is better.

        Args:
            offer: The arms on offer.
            rng: Where random numbers are drawn.
        """

    def propensity(self, offer: Offer, positions: Ints, oracle: Oracle) -> float | None:
        """Probability that the oracle selects these arms; ``None`` where it is not known.

        Args:
            offer: The arms on offer.
            positions: Positions of the selected arms, (k,).
            oracle: The oracle.
        """


@register("score", "uniform")
@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Chance: every arm is equally likely to be the best.

    Args:
        costs: Whether desirabilities are drawn from [−1, 0), for oracles that take costs, instead
            of [0, 1).
    """

    costs: bool = False
    deterministic = False

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        uniform = as_generator(rng).random(len(offer.arms))
        return uniform - 1.0 if self.costs else uniform

    def propensity(self, offer: Offer, positions: Ints, oracle: Oracle) -> float | None:
        """Probability of these arms: every set of k is equally likely. ``None`` for routes.

        Args:
            offer: The arms on offer.
            positions: Positions of the selected arms, (k,).
            oracle: The oracle.
        """
        if type(oracle) is not TopK:
            return None
        # The quotient may be 0.
        return 1 / count_super_arms(offer, len(positions))


class _Certain:
    """A score without chance."""

    deterministic = True

    def propensity(self, offer: Offer, positions: Ints, oracle: Oracle) -> float | None:
        return 1.0 if oracle.deterministic else None


@register("score", "known-costs")
@dataclass(frozen=True, kw_only=True, eq=False)
class KnownCosts(_Certain):
    """Minus the known cost of each arm on offer.

    Args:
        costs: The cost of each arm on offer, (n,).
        turn_costs: The costs of turns in the same unit, (c,); ``None``: those of the offer.
    """

    costs: Floats
    turn_costs: Floats | None = None

    def __post_init__(self) -> None:
        costs = read_only(as_vector(self.costs, "costs"))
        object.__setattr__(self, "costs", costs)
        if self.turn_costs is not None:
            turn_costs = read_only(as_vector(self.turn_costs, "turn_costs"))
            object.__setattr__(self, "turn_costs", turn_costs)

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        return np.negative(self.costs)

    def priced(self, offer: Offer) -> Offer:
        """The offer with turns at these costs.

        Args:
            offer: The arms on offer.
        """
        trip = offer.structure
        if self.turn_costs is None or not isinstance(trip, Trip):
            return offer
        priced_trip = replace(trip, turn_costs=self.turn_costs)
        return replace(offer, structure=priced_trip)


@register("score", "expected")
@dataclass(frozen=True, kw_only=True)
class Expected(_Certain):
    """Minus the cost that a column of the features expects of each arm, at most 0.

    Args:
        column: The column of the features that contains expected costs.
    """

    column: int = 1

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        costs = offer.arms.features[:, self.column]
        return np.minimum(-costs, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth(_Certain):
    """The true means, or the scores of the world's own benchmark. It cannot be loaded from a file.

    Args:
        problem: The world whose truth is used.
    """

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
        previous = previous_positions(offer)
        desirability[previous] = 0.0
        return desirability


@register("score", "first")
@dataclass(frozen=True, kw_only=True)
class First(_Certain):
    """Prefers arms in the order of the offer, the first to all others."""

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        return -np.arange(len(offer.arms), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Planned(_Certain):
    """The action of the cheapest path, planned in advance. It has no spec, like ``Truth``.

    Args:
        problem: The world whose truth is used.
    """

    problem: MovementWorld

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        path, position = self.problem.cheapest_path(offer.step)
        planned_action = path.actions[position]
        actions = np.arange(len(offer.arms))
        is_planned = actions == planned_action
        return np.where(is_planned, 0.0, -1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class LastTruth(_Certain):
    """The true means of the previous round; in round 1 the prior mean. It has no spec, like ``Truth``.

    Args:
        problem: The world whose truth is used.
    """

    problem: World

    def __post_init__(self) -> None:
        if self.problem.model.arms is None:
            raise InputError(
                "the genie needs fixed arms, but the arms of this problem change every round"
            )

    def desirability(self, offer: Offer, rng: Rng) -> Floats:
        problem = self.problem
        if offer.step > 1:
            previous_offer = problem.offer(offer.step - 1)
            truth = Truth(problem=problem)
            return truth.desirability(previous_offer, rng)
        mean = problem.model.mean
        arms = offer.arms.features
        prior_mean = mean(arms) if callable(mean) else mean
        values = np.broadcast_to(prior_mean, len(arms))
        return values if problem.direction == "maximize" else -values
