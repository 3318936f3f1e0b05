"""A posterior that resets at intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Feedback, Offer
from superarm.core.errors import InputError, StateError
from superarm.kernels import Matern
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP, Resetting, StreamingGP
from superarm.rules import UCB, Fixed

ARMS = np.random.default_rng(0).random((6, 2))
KERNEL = Matern(nu=1.5, lengthscale=0.4)
INSIDE: dict[str, Any] = {
    "finite": lambda: FiniteGP(KERNEL, ARMS, 0.1),
    "streaming": lambda: StreamingGP(KERNEL, 0.1),
}


def offer(step: int) -> Offer:
    return Offer(step=step, arms=Arms.numbered(ARMS))


@pytest.mark.parametrize("name", INSIDE)
def test_only_the_rewards_of_its_block_count(name: str) -> None:
    gp, rng = Resetting(INSIDE[name](), block=4), np.random.default_rng(1)
    for step in range(1, 11):
        row, reward = int(rng.integers(6)), float(rng.standard_normal())
        if (step - 1) % 4 == 0:
            reference = INSIDE[name]()
        before = gp.belief(offer(step))
        np.testing.assert_allclose(
            before.mean, reference.belief(offer(step)).mean, atol=1e-12
        )
        np.testing.assert_allclose(
            before.cov, reference.belief(offer(step)).cov, atol=1e-12
        )
        gp.observe(gp.keys(offer(step))[[row]], [reward])
        reference.observe(reference.keys(offer(step))[[row]], [reward])
        assert gp.incumbent == pytest.approx(reference.incumbent)
    assert (gp.count, gp.ignored) == (10, 0)


def test_feedback_from_before_a_reset_is_counted_and_not_used() -> None:
    gp = Resetting(INSIDE["finite"](), block=4)
    policy = IndexPolicy(
        posterior=gp, rule=UCB(schedule=Fixed(value=1.0)), oracle=TopK(k=2)
    )
    rng = np.random.default_rng(0)
    decisions = []
    for step in (3, 4, 5):
        decisions.append((offer(step), policy.decide(offer(step), rng)))
        policy.commit(decisions[-1][1])
    for past_offer, decision in decisions[::-1]:
        rewards = np.full(2, float(past_offer.step))
        policy.learn(
            past_offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng,
        )
    assert (gp.count, gp.ignored) == (6, 4)
    reference = INSIDE["finite"]()
    reference.observe(decisions[2][1].positions, [5.0, 5.0])
    np.testing.assert_allclose(
        gp.belief(offer(6)).mean, reference.belief(offer(6)).mean, atol=1e-12
    )
    restored = gp.restored(gp.state())
    assert restored.ignored == 4
    np.testing.assert_array_equal(
        restored.belief(offer(6)).mean, gp.belief(offer(6)).mean
    )


def test_blocks_are_independent() -> None:
    gp, reference = Resetting(INSIDE["finite"](), block=4), INSIDE["finite"]()
    gp.observe([[0, 1], [2, 1]], [1.0, 2.0])
    reference.observe([0, 2], [1.0, 2.0])
    predicted = gp.predict([[1, 1], [3, 2], [4, 1]], return_cov=True)
    expected = np.zeros((3, 3))
    expected[np.ix_([0, 2], [0, 2])] = reference.predict([1, 4], return_cov=True).cov
    expected[1, 1] = 1.0
    np.testing.assert_allclose(predicted.cov, expected, atol=1e-12)
    np.testing.assert_allclose(
        predicted.mean[[0, 2]], reference.predict([1, 4]).mean, atol=1e-12
    )
    assert predicted.mean[1] == 0.0


def test_bad_keys_and_parts() -> None:
    gp = Resetting(INSIDE["finite"](), block=4)
    for bad in ([0], [[0, -1]], [[0, 0.5]], [[9, 0]], [["a", "b"]]):
        with pytest.raises(InputError):
            gp.observe(bad, [1.0])
    taught = INSIDE["finite"]()
    taught.observe([0], [1.0])
    with pytest.raises(InputError, match="already learned"):
        Resetting(taught, block=4)
    with pytest.raises(InputError, match="block"):
        Resetting(INSIDE["finite"](), block=0)


def test_a_block_that_no_step_is_in_is_damage() -> None:
    gp = Resetting(FiniteGP(KERNEL, ARMS, 0.1), block=4)
    gp.observe([[0, 1]], [1.0])
    state = gp.state()
    with pytest.raises(
        StateError, match=r"current must be .*, got 1000000000000000000"
    ):
        gp.restored(replace(state, scalars={**state.scalars, "current": 10**30}))
