"""Known costs that depend on the previous action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm import registry
from superarm.core import Arms, Offer
from superarm.errors import InputError
from superarm.kernels import SquaredExponential
from superarm.movement import Distance, Switch
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP
from superarm.rules import UCB, Fixed
from superarm.testing import SwitchingCostContract

PLACES = Arms.numbered([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0], [0.0, 1.0]])


def after(action: object) -> Offer:
    return Offer(step=2, arms=PLACES, previous_action=action)


class TestDistance(SwitchingCostContract):
    def make_cost(self) -> Distance:
        return Distance(scale=2.0)

    def make_offer(self) -> Offer:
        return after(np.array([1, 3]))


class TestSwitch(SwitchingCostContract):
    def make_cost(self) -> Switch:
        return Switch(cost=0.5)

    def make_offer(self) -> Offer:
        return after([2])


def test_distances_are_euclidean_and_to_the_nearest() -> None:
    np.testing.assert_allclose(Distance(scale=2.0).costs(after([0])), [0.0, 10.0, 6.0, 2.0])
    np.testing.assert_allclose(Distance().costs(after([0, 1])), [0.0, 0.0, 3.0, 1.0])
    np.testing.assert_allclose(Distance(columns=(1,)).costs(after([2])), [0.0, 4.0, 0.0, 1.0])


def test_switching_costs_what_it_says() -> None:
    np.testing.assert_array_equal(Switch(cost=0.5).costs(after([2, 0])), [0.0, 0.5, 0.0, 0.5])


@pytest.mark.parametrize("action", [[4], [-1], ["a"], [[0, 1]], [0.5], [True]])
def test_a_previous_action_that_names_no_arms_is_refused(action: Any) -> None:
    for cost in (Distance(), Switch()):
        with pytest.raises(InputError):
            cost.costs(after(action))


@pytest.mark.parametrize(
    "options", [{"scale": 0.0}, {"scale": "2 m"}, {"columns": [-1]}, {"columns": []}]
)
def test_senseless_distances_are_refused(options: Any) -> None:
    with pytest.raises(InputError):
        Distance(**options)
    with pytest.raises(InputError, match="feature columns"):
        Distance(columns=(2,)).costs(after([0]))


def test_both_have_specs() -> None:
    for cost in (Distance(scale=2.0, columns=(1,)), Switch(cost=3.0)):
        assert registry.build("switching", registry.spec_of(cost)) == cost


def test_a_policy_minds_what_it_costs_to_move() -> None:
    for direction in ("maximize", "minimize"):
        policy = IndexPolicy(
            posterior=FiniteGP(SquaredExponential(), PLACES.features, 0.1),
            rule=UCB(schedule=Fixed(value=1.0)),
            oracle=TopK(k=1),
            direction=direction,
            switching=Distance(scale=0.1),
        )
        chosen = [
            policy.decide(after(action), np.random.default_rng(0)).positions.item()
            for action in (None, [1], [2], [3])
        ]
        assert chosen == [0, 1, 2, 3], "of equals, the nearest"
    with pytest.raises(InputError, match="switching cost is 2"):
        IndexPolicy(
            posterior=policy.posterior,
            rule=policy.rule,
            oracle=policy.oracle,
            switching=2.0,  # type: ignore[arg-type]
        )
