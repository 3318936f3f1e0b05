"""The contracts of rewards of super arms, and of what it costs to go on from the previous action."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Offer, Reward, SwitchingCost

from .helpers import frozen, generator


class RewardContract(ABC):
    """What every reward of super arms promises.

    Override :meth:`structure` if offers carry one.
    """

    n = 6  # arms on offer, with outcomes drawn from [0, 1]
    rounds = 200

    @abstractmethod
    def make_reward(self) -> Reward: ...

    def structure(self) -> object:
        return None

    def test_it_is_a_reward(self) -> None:
        reward = self.make_reward()
        assert isinstance(reward, Reward)
        assert 0.0 < reward.lipschitz < np.inf

    def test_it_is_monotone_lipschitz_and_blind_to_order(self) -> None:
        reward, structure, rng = self.make_reward(), self.structure(), generator(1)
        for _ in range(self.rounds):
            chosen = rng.permutation(self.n)[: rng.integers(1, self.n + 1)]
            low = frozen(rng.random(len(chosen)))
            high = frozen(low + rng.random(len(chosen)) * (1.0 - low))
            worth = reward.worth(low, chosen, structure)
            assert isinstance(worth, float)
            more = reward.worth(high, chosen, structure)
            rounding = 1e-12 * (1.0 + abs(worth))
            assert more >= worth - rounding, (
                "outcomes that are larger must not be worth less"
            )
            assert more - worth <= reward.lipschitz * (high - low).sum() + rounding, (
                "B is too small"
            )
            turned = reward.worth(low[::-1], chosen[::-1], structure)
            assert abs(turned - worth) <= rounding, "the order of arms must not matter"


class SwitchingCostContract(ABC):
    """What every switching cost promises.

    ``make_offer`` has a previous action that names arms by their positions.
    """

    @abstractmethod
    def make_cost(self) -> SwitchingCost: ...

    @abstractmethod
    def make_offer(self) -> Offer: ...

    def test_costs_are_known_and_not_negative(self) -> None:
        cost, offer = self.make_cost(), self.make_offer()
        assert isinstance(cost, SwitchingCost)
        costs = cost.costs(offer)
        assert costs.shape == (len(offer.arms),)
        assert np.isfinite(costs).all()
        assert (costs >= 0.0).all()
        np.testing.assert_array_equal(cost.costs(offer), costs)
        before = np.asarray(offer.previous_action)
        assert costs[before].max() <= costs.min(), (
            "staying must not cost more than going elsewhere"
        )

    def test_a_first_action_costs_nothing(self) -> None:
        offer = self.make_offer()
        first = Offer(step=offer.step, arms=offer.arms)
        np.testing.assert_array_equal(
            self.make_cost().costs(first), np.zeros(len(offer.arms))
        )
