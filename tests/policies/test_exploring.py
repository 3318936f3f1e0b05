"""A policy with random rounds: propensities are exact, and what cannot be counted is refused."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from menu_policy import menu_policy

from superarm.core import Arms, Feedback, Offer
from superarm.core.capabilities import KnownPropensity
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.registry import build, spec_of
from superarm.kernels import SquaredExponential
from superarm.movement import Switch
from superarm.oracles import Knapsack, TopK
from superarm.policies import (
    Exp3,
    Exploring,
    KnownCosts,
    ScorePolicy,
    Uniform,
)
from superarm.posteriors import StreamingGP
from superarm.rules import Thompson

ROWS = np.random.default_rng(0).random((5, 2))
PAIRS = [np.array(pair) for pair in combinations(range(5), 2)]


def offer_of(step: int = 1, available: Any = None) -> Offer:
    return Offer(step=step, arms=Arms.numbered(ROWS), available=available)


@pytest.mark.thorough
def test_frequencies_are_the_propensities() -> None:
    """Of 4,000 draws, each of the 10 pairs is as frequent as its propensity states.

    A frequency has a standard deviation of at most √(p(1 − p)/4000); 4.5 of them are exceeded with
    probability 7e-6, for 10 pairs below 1e-4.
    """
    policy = Exploring(policy=menu_policy(), epsilon=0.4)
    offer = offer_of()
    rng = np.random.default_rng(1)
    draws = 4000
    counts: Counter[tuple[int, ...]] = Counter()
    stated = {}
    for _ in range(draws):
        decision = policy.decide(offer, rng)
        pair = tuple(sorted(decision.positions.tolist()))
        counts[pair] += 1
        stated[pair] = decision.propensity
    assert sum(policy.propensity(offer, pair) for pair in PAIRS) == pytest.approx(1.0)
    for positions in PAIRS:
        pair = tuple(positions.tolist())
        p = policy.propensity(offer, positions)
        assert stated[pair] == p
        deviation = np.sqrt(p * (1.0 - p) / draws)
        assert abs(counts[pair] / draws - p) < 4.5 * deviation
    preferred = menu_policy().decide(offer, rng).positions
    assert policy.propensity(offer, preferred) == pytest.approx(0.4 / 10 + 0.6)
    assert policy.least_propensity(offer, preferred) == pytest.approx(0.4 / 10)


def chance_policies() -> list[KnownPropensity]:
    return [
        Exploring(policy=menu_policy(), epsilon=0.3),
        ScorePolicy(score=Uniform(), oracle=TopK(k=2)),
        ScorePolicy(score=KnownCosts(costs=np.arange(5.0)), oracle=TopK(k=2)),
        Exp3(arms=ROWS, block=50, low=0.0, high=1.0),
    ]


@pytest.mark.parametrize("policy", chance_policies(), ids=lambda it: type(it).__name__)
@pytest.mark.parametrize("barred", [None, 2])
def test_propensities_of_all_super_arms_add_up(
    policy: KnownPropensity, barred: int | None
) -> None:
    """By brute force over all sets of arms."""
    available = None
    if barred is not None:
        available = np.arange(5) != barred
    offer = offer_of(available=available)
    total = 0.0
    inclusion = np.zeros(5)
    for size in range(1, 4):
        for members in combinations(range(5), size):
            positions = np.array(members)
            p = policy.propensity(offer, positions)
            assert p is not None
            assert 0.0 <= policy.least_propensity(offer, positions) <= p
            if barred in members:
                assert p == 0.0
            total += p
            inclusion[positions] += p
    assert total == pytest.approx(1.0)
    np.testing.assert_allclose(policy.inclusion(offer), inclusion, atol=1e-12)


def test_chance_over_routes_has_no_known_propensity() -> None:
    policy = ScorePolicy(score=Uniform(), oracle=Knapsack())
    positions = np.array([0, 1])
    assert policy.propensity(offer_of(), positions) is None
    assert policy.least_propensity(offer_of(), positions) == 0.0
    assert policy.inclusion(offer_of()) is None


def test_a_random_round_is_learned_and_pending_like_any_other() -> None:
    """Always at random: the other policy learns the same as one that is taught directly."""
    policy = Exploring(policy=menu_policy(), epsilon=1.0)
    rng = np.random.default_rng(2)
    twin = StreamingGP(SquaredExponential(lengthscale=0.3), 0.01)
    for step in range(1, 6):
        offer = offer_of(step)
        decision = policy.decide(offer, rng)
        assert decision.mean is not None
        assert decision.propensity == pytest.approx(1 / 10)
        policy.commit(decision)
        assert policy.policy.awaits
        rewards = rng.random(2)
        feedback = Feedback(positions=decision.positions, rewards=rewards)
        policy.learn(offer, decision, feedback, rng)
        twin.observe(ROWS[decision.positions], rewards)
    assert not policy.policy.awaits
    expected = twin.predict(ROWS).mean
    np.testing.assert_allclose(policy.beliefs(offer_of(9)).mean, expected, rtol=1e-9)


def test_one_super_arm_is_certain() -> None:
    policy = Exploring(policy=menu_policy(oracle=TopK(k=5)), epsilon=0.1)
    assert policy.decide(offer_of(), np.random.default_rng(0)).propensity == 1.0
    with pytest.raises(InfeasibleError):
        policy.decide(offer_of(available=np.arange(5) > 0), np.random.default_rng(0))


def test_super_arms_beyond_counting_have_propensity_0_or_that_of_the_policy() -> None:
    """C(1100, 550) is above 10³⁰⁸, so that ε/C is below every float."""
    rows = np.random.default_rng(0).random((1100, 2))
    offer = Offer(step=1, arms=Arms.numbered(rows))
    policy = Exploring(policy=menu_policy(oracle=TopK(k=550)), epsilon=0.5)
    propensities = set()
    for seed in range(20):  # all alike in one of 2¹⁹ cases
        decision = policy.decide(offer, np.random.default_rng(seed))
        propensities.add(decision.propensity)
    assert propensities == {0.0, 0.5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"oracle": Knapsack()}, "Knapsack cannot count"),
        ({"rule": Thompson()}, "Thompson draws at random"),
        ({"switching": Switch(cost=1.0)}, "switching costs"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Exploring(policy=menu_policy(**changes), epsilon=0.1)


def test_epsilon_is_a_probability_above_zero() -> None:
    for epsilon in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="epsilon"):
            Exploring(policy=menu_policy(), epsilon=epsilon)


def test_its_spec_contains_the_other_policy() -> None:
    policy = Exploring(policy=menu_policy(), epsilon=0.25)
    rebuilt = build("policy", spec_of(policy))
    assert isinstance(rebuilt, Exploring)
    assert spec_of(rebuilt) == spec_of(policy)
