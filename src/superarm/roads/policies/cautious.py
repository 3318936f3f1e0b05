"""A policy that deviates from the model's route only when another is confidently better."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from superarm.core import (
    Decision,
    Direction,
    Floats,
    Ints,
    Offer,
    Oracle,
    Posterior,
    Rng,
    Rule,
)
from superarm.core.errors import InputError
from superarm.core.inputs import as_number
from superarm.core.registry import register
from superarm.oracles import ShortestPath, Trip
from superarm.policies.answers import select
from superarm.policies.index import MOST_PENDING, IndexPolicy
from superarm.policies.scores import Expected


class _Saving(NamedTuple):
    """What one route saves over another, Wh."""

    mean: float
    std: float


@register("policy", "cautious")
class CautiousPolicy(IndexPolicy):
    """Takes the route that a fleet's energy model expects to be cheapest, unless the learned one is
    cheaper by ``caution`` standard deviations.

    What one route saves over another depends only on the roads that differ: roads that both share
    cancel, and with them most of what is unknown of the vehicle. The day's weather and payload, and
    noise, are not counted. A caution of 0 takes whatever seems better.

    Args:
        posterior: The posterior, which learns from rewards.
        rule: The rule.
        oracle: The oracle, which finds the cheapest route: a shortest path.
        direction: Costs are minimised.
        caution: How many standard deviations above 0 the saving must be to deviate from the
            informed route.
        most_pending: Most pending arms that count, those chosen last.
    """

    kind = "cautious-policy"

    def __init__(
        self,
        *,
        posterior: Posterior,
        rule: Rule,
        oracle: Oracle,
        direction: Direction = "minimize",
        caution: float = 1.0,
        most_pending: int = MOST_PENDING,
    ) -> None:
        super().__init__(
            posterior=posterior,
            rule=rule,
            oracle=oracle,
            direction=direction,
            most_pending=most_pending,
        )
        self.caution = as_number(caution, "caution", 0.0)
        if not isinstance(oracle, ShortestPath) or direction != "minimize":
            raise InputError(
                "a cautious policy compares routes: it needs the oracle 'shortest-path'"
            )

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        chosen = super().decide(offer, rng)
        expected = Expected().desirability(offer, rng)
        action, informed, guarantee = select(self.oracle, expected, offer, rng)
        if np.array_equal(informed, chosen.positions):
            return chosen
        mean, std = self._saving(offer, informed, chosen.positions)
        if mean > self.caution * std:
            return chosen
        posterior = self.posterior
        keys = posterior.keys(offer)[informed]
        prediction = posterior.predict(keys, return_cov=True)
        variance = np.maximum(np.diagonal(prediction.cov), 0.0)
        return replace(
            chosen,
            action=action,
            positions=informed,
            mean=prediction.mean,
            std=np.sqrt(variance),
            desirability=None,
            guarantee=guarantee,
            carry=self._ledger.carry(informed, posterior, offer),
        )

    def _saving(self, offer: Offer, old: Ints, new: Ints) -> _Saving:
        """What the new route is expected to save."""
        # Roads of both routes cancel.
        only_old = np.setdiff1d(old, new)
        only_new = np.setdiff1d(new, old)
        roads = np.concatenate([only_old, only_new])
        # Energy of the old route is saved, that of the new one is spent.
        counts = [len(only_old), len(only_new)]
        sign = np.repeat([1.0, -1.0], counts)
        offered_keys = self.posterior.keys(offer)
        mean, cov = self.posterior.predict(offered_keys[roads], return_cov=True)
        saved = float(sign @ mean)
        trip = offer.structure
        if isinstance(trip, Trip) and trip.turn_costs is not None:
            saved += self._saved_on_turns(trip.turn_costs, old, new)
        variance = sign @ cov @ sign
        std = np.sqrt(max(variance, 0.0))  # rounding may leave it below 0
        return _Saving(saved, float(std))

    def _saved_on_turns(self, turn_costs: Floats, old: Ints, new: Ints) -> float:
        """What the turns of the new route cost less, Wh."""
        old_cost = self._turn_costs(turn_costs, old)
        new_cost = self._turn_costs(turn_costs, new)
        return old_cost - new_cost

    def _turn_costs(self, turn_costs: Floats, route: Ints) -> float:
        """What the turns of a route add, Wh."""
        assert isinstance(self.oracle, ShortestPath)
        turns = self.oracle.turns_along(route)
        return float(turn_costs[turns].sum())
