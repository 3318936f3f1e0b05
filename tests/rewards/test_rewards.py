"""Rewards of super arms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from superarm.core import Floats, registry
from superarm.core.errors import InputError
from superarm.core.graphs import Pairs
from superarm.lab.theory import regret_bound_oclok_ucb
from superarm.rewards import Coverage, LogSum, Sum, total
from superarm.testing import RewardContract

ALL = np.arange(4)


class TestSum(RewardContract):
    def make_reward(self) -> Sum:
        return Sum()


class TestLogSum(RewardContract):
    def make_reward(self) -> LogSum:
        return LogSum()


class TestCoverage(RewardContract):
    def make_reward(self) -> Coverage:
        return Coverage()

    def structure(self) -> Pairs:
        return Pairs(left=np.arange(6), right=np.array([0, 0, 1, 2, 2, 2]))


def test_worths_by_hand() -> None:
    outcomes = np.array([0.5, 1.0, 0.25, 0.25])
    assert [reward.lipschitz for reward in (Sum(), LogSum(), Coverage())] == [
        1.0,
        1.0,
        1.0,
    ]
    assert Sum().worth(outcomes, ALL, None) == 2.0
    assert LogSum().worth(outcomes, ALL, None) == pytest.approx(math.log(3.0))
    for low in (-2.0, -0.5, -0.4, 0.0):  # a sum below 0 counts as 0
        assert LogSum().worth(np.array([low, low / 2.0]), ALL[:2], None) == 0.0
    targets = Pairs(left=np.arange(4), right=np.array([7, 8, 7, 9]))
    expected = (1.0 - 0.5 * 0.75) + 1.0 + 0.25
    assert Coverage().worth(outcomes, ALL, targets) == pytest.approx(expected)
    # A chance above one is one, below zero none.
    wild = np.array([1.5, -0.5])
    assert Coverage().worth(wild, np.array([0, 2]), targets) == 1.0
    assert Coverage().worth(np.empty(0), np.empty(0, dtype=np.intp), targets) == 0.0


def test_coverage_needs_targets() -> None:
    with pytest.raises(InputError, match="Pairs"):
        Coverage().worth(np.ones(1), ALL[:1], None)
    with pytest.raises(InputError, match="no target"):
        Coverage().worth(
            np.ones(4), ALL, Pairs(left=np.arange(3), right=np.zeros(3, dtype=int))
        )


def test_sums_do_not_depend_on_order() -> None:
    values = np.array([1e16, 1.0, -1e16, 3.0])
    assert total(values) == total(values[::-1])


@pytest.mark.parametrize("name", registry.names("reward"))
def test_rewards_have_specs(name: str) -> None:
    reward = registry.build("reward", name)
    assert registry.build("reward", registry.spec_of(reward)) == reward


def test_bounds_use_the_lipschitz_constant() -> None:
    """Theorem 1 has C(K) = 8B²(λ* + σ²): twice the constant, twice the bound."""

    def bound(lipschitz: float) -> Floats:
        return regret_bound_oclok_ucb(
            np.array([10.0, 100.0]),
            lambda t: 5.0,
            most_arms=20,
            budget=3,
            noise_variance=0.1,
            largest_eigenvalue=3.0,
            lipschitz=lipschitz,
            delta=0.1,
        )

    np.testing.assert_allclose(bound(2.0), 2.0 * bound(1.0))
