"""A policy that leaves the route that it was told for one that is surely better, and only then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from superarm.core import Decision, Direction, Ints, Offer, Oracle, Posterior, Rng, Rule
from superarm.core.errors import InputError
from superarm.core.inputs import as_number
from superarm.core.registry import register
from superarm.oracles import ShortestPath, Trip
from superarm.policies.answers import select
from superarm.policies.index import MOST_PENDING, IndexPolicy
from superarm.policies.scores import Expected


@register("policy", "cautious")
class CautiousPolicy(IndexPolicy):
    """Keeps to the route that a fleet's energy model expects to be cheapest, unless it is ``caution``
    standard deviations sure that the one it would choose costs less.

    What one route saves over another is a matter of the roads that differ alone: roads that both share
    cancel, and with them most of what is not known of the vehicle. What a day's weather and payload may
    change about it, and noise, are not counted. A caution of 0 takes whatever seems better.

    Args:
        posterior: What learns.
        rule: The rule.
        oracle: What finds the best combination.
        direction: Whether rewards are maximised or costs minimised.
        caution: How many standard deviations what a route saves must be above 0, for the informed
            route to be left.
        most_pending: How many chosen arms without feedback are taken into account, at most.
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
        parts = {
            "posterior": posterior,
            "rule": rule,
            "oracle": oracle,
            "direction": direction,
        }
        super().__init__(**parts, most_pending=most_pending)  # type: ignore[arg-type]
        self.caution = as_number(caution, "caution", 0.0)
        if not isinstance(oracle, ShortestPath) or direction != "minimize":
            raise InputError(
                "a cautious policy compares routes: it needs the oracle 'shortest-path'"
            )

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        chosen = super().decide(offer, rng)
        action, told = select(
            self.oracle, Expected().desirability(offer, rng), offer, rng
        )
        if np.array_equal(told, chosen.positions):
            return chosen
        mean, std = self._saving(offer, told, chosen.positions)
        if mean > self.caution * std:
            return chosen
        keys = self.posterior.keys(offer)[told]
        kept = self.posterior.predict(keys, return_cov=True)
        return replace(
            chosen,
            action=action,
            positions=told,
            mean=kept.mean,
            std=np.sqrt(np.maximum(np.diagonal(kept.cov), 0.0)),
            desirability=None,
            carry=self._ledger.carry(told, self.posterior, offer),
        )

    def _saving(self, offer: Offer, old: Ints, new: Ints) -> tuple[float, float]:
        """Mean and standard deviation of what the new route is expected to save."""
        only = np.setdiff1d(old, new), np.setdiff1d(new, old)
        sign = np.repeat([1.0, -1.0], [len(each) for each in only])
        keys = self.posterior.keys(offer)[np.concatenate(only)]
        mean, cov = self.posterior.predict(keys, return_cov=True)
        saved, trip = float(sign @ mean), offer.structure
        assert isinstance(self.oracle, ShortestPath)
        if isinstance(trip, Trip) and trip.turn_costs is not None:
            costs = [
                trip.turn_costs[self.oracle.turns_along(route)].sum()
                for route in (old, new)
            ]
            saved += float(costs[0] - costs[1])
        return saved, float(np.sqrt(max(sign @ cov @ sign, 0.0)))
