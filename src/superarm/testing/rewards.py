"""The contracts of rewards of super arms and of switching costs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from superarm.core import Offer, Reward, SwitchingCost

from .helpers import assert_equal, assert_finite, frozen, generator


class RewardContract(ABC):
    """The promises of every reward of super arms.

    Override :meth:`structure` if offers have one.
    """

    n = 6  # arms on offer, with outcomes drawn from [0, 1]
    rounds = 200

    @abstractmethod
    def make_reward(self) -> Reward:
        """The reward to test."""

    def structure(self) -> object:
        """The structure of an offer of ``n`` arms."""
        return None

    def test_it_is_a_reward(self) -> None:
        reward = self.make_reward()
        assert isinstance(reward, Reward)
        assert 0.0 < reward.lipschitz < np.inf

    def test_it_is_monotone_lipschitz_and_blind_to_order(self) -> None:
        reward = self.make_reward()
        structure = self.structure()
        rng = generator(1)
        for _ in range(self.rounds):
            order = rng.permutation(self.n)
            count = rng.integers(1, self.n + 1)
            chosen = order[:count]
            low = frozen(rng.random(count))
            rise = rng.random(count) * (1.0 - low)
            high = frozen(low + rise)

            worth = reward.worth(low, chosen, structure)
            assert isinstance(worth, float)
            rounding = 1e-12 * (1.0 + abs(worth))
            higher_worth = reward.worth(high, chosen, structure)
            gain = higher_worth - worth
            distance = (high - low).sum()
            most = reward.lipschitz * distance
            assert gain >= -rounding, "outcomes that are larger must not be worth less"
            assert gain <= most + rounding, "B is too small"

            reversed_low = low[::-1]
            reversed_arms = chosen[::-1]
            reversed_worth = reward.worth(reversed_low, reversed_arms, structure)
            difference = abs(reversed_worth - worth)
            assert difference <= rounding, "the order of arms must not matter"


class SwitchingCostContract(ABC):
    """The promises of every switching cost."""

    @abstractmethod
    def make_cost(self) -> SwitchingCost:
        """The switching cost to test."""

    @abstractmethod
    def make_offer(self) -> Offer:
        """An offer whose previous action names arms by their positions."""

    def test_costs_are_known_and_not_negative(self) -> None:
        cost = self.make_cost()
        assert isinstance(cost, SwitchingCost)
        offer = self.make_offer()
        costs = cost.costs(offer)
        assert costs.shape == (len(offer.arms),)
        assert_finite(costs)
        assert costs.min() >= 0.0
        repeated = cost.costs(offer)
        assert_equal(repeated, costs)
        previous = np.asarray(offer.previous_action)
        staying = costs[previous]
        message = "staying must not cost more than going elsewhere"
        assert staying.max() <= costs.min(), message

    def test_a_first_action_costs_nothing(self) -> None:
        offer = self.make_offer()
        first_offer = Offer(step=offer.step, arms=offer.arms)
        cost = self.make_cost()
        costs = cost.costs(first_offer)
        nothing = np.zeros(len(offer.arms))
        assert_equal(costs, nothing)
