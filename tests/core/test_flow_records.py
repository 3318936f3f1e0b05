"""Flow records reject invalid values with advice and never change them silently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm import Arms, Decision, Feedback, Offer
from superarm.core.errors import InputError, UnknownArmError
from superarm.oracles import TopK
from superarm.policies.scores import Uniform

ARMS = Arms.numbered(np.linspace(0.0, 1.0, 4)[:, None])


@pytest.mark.parametrize(
    "time", [10**400, float("nan"), float("inf"), True, "noon", 1j]
)
def test_a_time_is_a_finite_number(time: Any) -> None:
    with pytest.raises(InputError, match="time must be"):
        Offer(step=1, arms=ARMS, time=time)


@pytest.mark.parametrize("step", [0, True, 1.0, "1", None, 10**400])
def test_a_step_counts_rounds(step: Any) -> None:
    with pytest.raises(InputError, match="step must be"):
        Offer(step=step, arms=ARMS)
    with pytest.raises(InputError, match="step must be"):
        Decision(step=step, action=None, positions=np.array([0]))


@pytest.mark.parametrize("begins", [1, "yes", None, np.array([True, False])])
def test_an_episode_begins_or_not(begins: Any) -> None:
    with pytest.raises(InputError, match="begins is"):
        Offer(step=1, arms=ARMS, begins=begins)


@pytest.mark.parametrize(
    "positions",
    [
        [0.0, 1.0],
        [True, False],
        [[0], [1]],
        [0, 0],
        [[0], [1, 2]],
        np.ma.array([0, 1], mask=[0, 1]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([0, 1], dtype=object),
        "ab",
        None,
    ],
)
def test_positions_of_decisions_and_feedback_are_integers(positions: Any) -> None:
    with pytest.raises(InputError, match="positions"):
        Decision(step=1, action=None, positions=positions)
    with pytest.raises(InputError, match="positions"):
        Feedback(positions=positions, rewards=[1.0, 1.0])


def test_a_list_of_positions_will_do() -> None:
    positions: Any = [2, 0]
    decision = Decision(step=np.int64(3), action=None, positions=positions)
    assert decision.positions.tolist() == [2, 0]
    assert type(decision.step) is int


@pytest.mark.parametrize("propensity", [-0.1, 1.5, float("nan"), "1", True])
def test_a_propensity_is_a_probability(propensity: Any) -> None:
    with pytest.raises(InputError, match="propensity"):
        Decision(step=1, action=None, positions=np.array([0]), propensity=propensity)


@pytest.mark.parametrize("carry", [{"kind": "x"}, "x", 3])
def test_a_carry_is_a_state(carry: Any) -> None:
    with pytest.raises(InputError, match="carry"):
        Decision(step=1, action=None, positions=np.array([0]), carry=carry)


def test_propensity_among_very_many_super_arms() -> None:
    many = Offer(
        step=1, arms=Arms.numbered(np.zeros((1200, 1)) + np.arange(1200.0)[:, None])
    )
    assert Uniform().propensity(many, np.arange(600), TopK(k=600)) == 0.0


def test_feedback_by_id_finds_the_positions() -> None:
    offer = Offer(
        step=1, arms=Arms(ids=("mocha", "latte", "lungo"), features=np.zeros((3, 1)))
    )
    feedback = Feedback.by_id(offer, {"lungo": 3.0, "mocha": 1.0})
    assert feedback.positions.tolist() == [2, 0]
    assert feedback.rewards.tolist() == [3.0, 1.0]
    assert feedback.noise_variance is None
    known = Feedback.by_id(
        offer, {"lungo": 3.0, "mocha": 1.0}, {"mocha": 0.1, "lungo": 0.3}
    )
    assert known.noise_variance is not None
    assert known.noise_variance.tolist() == [0.3, 0.1]
    with pytest.raises(UnknownArmError, match="'tea' is not on offer"):
        Feedback.by_id(offer, {"tea": 1.0})
    with pytest.raises(InputError, match="same arm ids"):
        Feedback.by_id(offer, {"mocha": 1.0}, {"latte": 1.0})
    for nonsense in (None, 1.0, [1.0], "mocha"):
        with pytest.raises(InputError, match="rewards"):
            Feedback.by_id(offer, nonsense)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="offer"):
        Feedback.by_id("offer", {"mocha": 1.0})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="hashable"):
        offer.arms.positions([["mocha"]])  # type: ignore[list-item]
