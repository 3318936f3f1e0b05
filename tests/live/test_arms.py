"""Rewards by arm id, as users and clients over HTTP send them."""

from __future__ import annotations

from typing import Any

import pytest

from superarm.core import Arms, Feedback, Offer
from superarm.core.errors import InputError, UnknownArmError
from superarm.live.arms import feedback_by_id

ARMS = Arms(ids=["tea", 7, -3, "12"], features=[[0.0], [1.0], [2.0], [3.0]])
OFFER = Offer(step=1, arms=ARMS)


@pytest.mark.parametrize(
    ("rewards", "meant"),
    [
        ({"tea": 1.0, 7: 2.0}, {"tea": 1.0, 7: 2.0}),
        ({"7": 2.0, "-3": 1.0}, {7: 2.0, -3: 1.0}),
        ({"tea": 1.0, "7": 2.0}, {"tea": 1.0, 7: 2.0}),
        ({"12": 4.0}, {"12": 4.0}),
    ],
)
@pytest.mark.parametrize("noise", [None, 0.5])
def test_numbers_may_be_text(
    rewards: dict[Any, float], meant: dict[Any, float], noise: float | None
) -> None:
    by_text = None if noise is None else dict.fromkeys(rewards, noise)
    by_id = None if noise is None else dict.fromkeys(meant, noise)
    feedback = feedback_by_id(OFFER, rewards, by_text)
    expected = Feedback.by_id(OFFER, meant, by_id)
    assert feedback.positions.tolist() == expected.positions.tolist()
    assert feedback.rewards.tolist() == expected.rewards.tolist()
    assert (feedback.noise_variance is None) == (noise is None)


@pytest.mark.parametrize("arm", ["coffee", "8", 8, None])
def test_unknown_ids_are_refused(arm: Any) -> None:
    with pytest.raises(UnknownArmError, match="is not on offer"):
        feedback_by_id(OFFER, {arm: 1.0}, None)


@pytest.mark.parametrize(
    ("rewards", "noise"), [(3.0, None), ([1.0], None), ({"7": 1.0}, 3.0)]
)
def test_what_is_no_mapping_is_refused(rewards: Any, noise: Any) -> None:
    with pytest.raises(InputError, match=r"must be|mapping|dict"):
        feedback_by_id(OFFER, rewards, noise)


def test_arms_contain_their_ids() -> None:
    assert all(arm in ARMS for arm in ARMS.ids)
    assert "7" not in ARMS
    assert 12 not in ARMS
