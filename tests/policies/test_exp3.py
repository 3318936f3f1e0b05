"""RExp3 against a plain Exp3: restarts, scales, late feedback and rewards."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Feedback, Offer
from superarm.core.errors import ConflictError, InfeasibleError, InputError, StateError
from superarm.core.registry import build
from superarm.core.states import loaded
from superarm.kernels import SquaredExponential
from superarm.models import Model
from superarm.oracles import TopK
from superarm.policies import Exp3, rexp3

FEATURES = np.linspace(0.0, 1.0, 4)[:, None]


def offer(step: int, features: Any = FEATURES, **more: Any) -> Offer:
    return Offer(step=step, arms=Arms.numbered(features), **more)


def model(**changes: Any) -> Model:
    parts: dict[str, Any] = {
        "kernel": SquaredExponential(variance=4.0),
        "noise_variance": 0.1,
    }
    parts |= {"oracle": TopK(k=1), "horizon": 500, "arms": FEATURES}
    return Model(**parts | changes)


def teach(policy: Exp3, round_offer: Offer, decision: Decision, reward: float) -> None:
    feedback = Feedback(positions=decision.positions, rewards=np.array([reward]))
    policy.learn(round_offer, decision, feedback, np.random.default_rng(0))


def played(step: int, arm: int, p: float) -> Decision:
    return Decision(step=step, action=None, positions=np.array([arm]), propensity=p)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_rexp3_matches_a_plain_implementation(block: int, direction: Any) -> None:
    """Weights themselves, one reward at a time [besbes2014stochastic, section 3]."""
    low, high, K = -2.0, 6.0, 4
    policy = Exp3(arms=FEATURES, block=block, low=low, high=high, direction=direction)
    gamma = min(1.0, math.sqrt(K * math.log(K) / ((math.e - 1.0) * block)))
    rng, w = np.random.default_rng(1), [1.0] * K
    for step in range(1, 60):
        if (step - 1) % block == 0:
            w = [1.0] * K
        p = [(1.0 - gamma) * weight / sum(w) + gamma / K for weight in w]
        round_offer = offer(step)
        np.testing.assert_allclose(policy.probabilities(round_offer), p, rtol=1e-12)
        decision = policy.decide(round_offer, np.random.default_rng(step))
        [arm] = decision.positions.tolist()
        assert arm == int(
            np.random.default_rng(step).choice(K, p=policy.probabilities(round_offer))
        )
        assert decision.propensity == pytest.approx(p[arm], rel=1e-12)
        reward = float(rng.normal(arm, 3.0))
        teach(policy, round_offer, decision, reward)
        x = (min(max(reward, low), high) - low) / (high - low)
        x = x if direction == "maximize" else 1.0 - x
        w[arm] *= math.exp(gamma * (x / p[arm]) / K)


def test_blocks_and_scales_by_hand() -> None:
    """(4 ln 4)^{1/3} · 500^{2/3} = 111.4; γ = √(4 ln 4/(1.71828 · 112)); means 0 … 3, deviation 2."""
    policy = rexp3(model(mean=np.arange(4.0)))
    assert policy.block == 112
    assert policy.gamma == pytest.approx(
        math.sqrt(4.0 * math.log(4.0) / (1.718281828 * 112.0))
    )
    assert (policy.low, policy.high) == (-6.0, 9.0)
    assert rexp3(model(), variation=8.0).block == 28  # 111.4/8^{2/3} = 27.8
    custom = rexp3(model(mean=lambda rows: rows[:, 0]), block=9, low=-1.0, high=2.5)
    assert (custom.block, custom.low, custom.high) == (9, -1.0, 2.5)
    assert rexp3(model(mean=lambda rows: rows[:, 0])).high == 7.0
    assert rexp3(model(direction="minimize")).direction == "minimize"
    one = rexp3(model(arms=FEATURES[:1]))
    assert (one.block, one.gamma) == (1, 0.0)  # nothing to explore
    assert (
        one.decide(offer(1, FEATURES[:1]), np.random.default_rng(0)).propensity == 1.0
    )


def test_exp3_rejects_unsupported_problems_with_advice() -> None:
    with pytest.raises(
        InputError, match=r"one arm a round, but the oracle is TopK\(k=2\).*'cc-mab'"
    ):
        rexp3(model(oracle=TopK(k=2)))
    with pytest.raises(InputError, match="needs fixed arms"):
        rexp3(model(arms=None))
    with pytest.raises(InputError, match="low must be below high"):
        rexp3(model(), low=1.0, high=1.0)
    with pytest.raises(InputError, match=r"variation must be .*, got 0"):
        rexp3(model(), variation=0.0)
    for name, value in (
        ("variation", 1e-320),
        ("low", -1e308),
        ("high", 1e308),
        ("block", 10**400),
    ):
        with pytest.raises(InputError, match=f"^{name} (is|must be) "):
            rexp3(model(), **{name: value})
    roads = build("problem", {"name": "navigation", "edges": 300}, seed=0, horizon=5)
    with pytest.raises(InputError, match="one arm a round"):
        rexp3(roads.model)


def test_unavailable_arms_have_no_probability() -> None:
    policy = Exp3(arms=FEATURES, block=50, low=0.0, high=1.0)
    teach(policy, offer(1), played(1, 2, 0.25), 1.0)
    full = policy.probabilities(offer(2))
    available = np.array([True, False, True, True])
    part = policy.probabilities(offer(2, available=available))
    np.testing.assert_allclose(part, np.where(available, full, 0.0) / (1.0 - full[1]))
    rows = policy.probabilities(
        offer(2, FEATURES[[3, 2]])
    )  # some of them, in another order
    np.testing.assert_allclose(rows, full[[3, 2]] / full[[3, 2]].sum())
    chosen = {
        int(
            policy.decide(
                offer(2, available=available), np.random.default_rng(seed)
            ).positions[0]
        )
        for seed in range(100)
    }
    assert chosen == {0, 2, 3}
    with pytest.raises(InfeasibleError):
        policy.decide(
            offer(2, available=np.zeros(4, dtype=bool)), np.random.default_rng(0)
        )


def test_late_feedback_counts_in_its_own_block_and_not_after_the_next() -> None:
    """Any order within a block gives the same weights; outdated feedback is counted."""
    plays = [(1, 0, 0.9), (2, 3, 0.2), (3, 0, 0.4), (4, 2, 1.0)]
    policies = [Exp3(arms=FEATURES, block=4, low=0.0, high=1.0) for _ in range(2)]
    for policy, order in zip(policies, (plays, plays[::-1]), strict=True):
        for step, arm, reward in order:
            teach(policy, offer(step), played(step, arm, 0.25), reward)
    first, second = (policy.probabilities(offer(5 - 1)) for policy in policies)
    np.testing.assert_allclose(first, second, rtol=1e-12)
    late, policy = played(6, 1, 0.25), policies[0]
    np.testing.assert_array_equal(
        policy.probabilities(offer(6)), np.full(4, 0.25)
    )  # a new block
    teach(policy, offer(9), played(9, 1, 0.25), 1.0)
    before = policy.probabilities(offer(10))
    teach(policy, offer(6), late, 1.0)
    assert policy.ignored == 1
    np.testing.assert_array_equal(policy.probabilities(offer(10)), before)
    with pytest.raises(ConflictError, match="learned already"):
        teach(policy, offer(6), late, 1.0)
    np.testing.assert_array_equal(
        policy.probabilities(offer(3)), np.full(4, 0.25)
    )  # it is gone


def test_long_blocks_do_not_overflow() -> None:
    """A reward adds at most γ/(p K) ≤ 1 to a logarithm: 2,000 of them would not fit exp."""
    policy = Exp3(arms=FEATURES, block=2000, low=0.0, high=1.0)
    least = policy.gamma / 4.0
    for step in range(1, 2001):
        teach(policy, offer(step), played(step, 1, least), 1.0)
    p = policy.probabilities(offer(2000))
    np.testing.assert_allclose(p, [least, 1.0 - 3.0 * least, least, least], rtol=1e-12)


@pytest.mark.parametrize(
    "decision",
    [
        replace(played(1, 0, 0.5), propensity=None),
        played(1, 0, 1e-9),
        Decision(step=1, action=None, positions=np.array([0, 1]), propensity=0.5),
    ],
)
def test_decisions_of_other_policies_are_refused(decision: Decision) -> None:
    policy = Exp3(arms=FEATURES, block=50, low=0.0, high=1.0)
    feedback = Feedback(positions=np.array([0]), rewards=np.array([1.0]))
    with pytest.raises(InputError, match="another policy made it"):
        policy.learn(offer(1), decision, feedback, np.random.default_rng(0))
    assert policy.version == 0


@pytest.mark.parametrize(
    "weights",
    [[-1.0, 0, 0, 0], [51.0, 0, 0, 0], [np.nan, 0, 0, 0], [0.0, 0, 0], [[0.0] * 4]],
)
def test_weights_that_no_rewards_give_are_damage(weights: Any) -> None:
    policy = Exp3(arms=FEATURES, block=50, low=0.0, high=1.0)
    teach(policy, offer(1), played(1, 2, 0.25), 1.0)
    state = policy.state()
    np.testing.assert_array_equal(
        loaded(state).probabilities(offer(2)), policy.probabilities(offer(2))
    )
    with pytest.raises(StateError, match="damaged"):
        policy.restored(
            replace(state, arrays={"log_weights": np.array(weights, dtype=float)})
        )
    for name in ("version", "ignored", "number"):
        with pytest.raises(StateError, match="damaged"):
            policy.restored(replace(state, scalars={**state.scalars, name: -1}))


@pytest.mark.slow
def test_two_stationary_arms() -> None:
    """Rewards 0 and 1: in a block of Δ, E[regret] ≤ (e − 1) γ Δ + K ln K/γ ≤ 2.63 √(Δ K ln K).

    Corollary 3.2 of The Nonstochastic Multiarmed Bandit Problem (2002). For K = 2 and Δ = 200 that is
    below 44 of 200; arms at random lose 100. Regret lies in [0, 200], so that by Hoeffding the mean of
    48 runs is above its expectation by 54 with probability exp(−2 · 48 · 0.27²) < 0.001 at most.
    """
    lost = []
    for seed in range(48):
        policy = Exp3(arms=FEATURES[:2], block=200, low=0.0, high=1.0)
        rng, regret = np.random.default_rng(seed), 0
        for step in range(1, 201):
            round_offer = offer(step, FEATURES[:2])
            decision = policy.decide(round_offer, rng)
            reward = float(decision.positions[0])
            teach(policy, round_offer, decision, reward)
            regret += reward == 0.0
        lost.append(regret)
    assert np.mean(lost) < 44 + 54 < 100
