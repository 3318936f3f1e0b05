"""Decision sets are checked and never offer closed arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Offer
from superarm.core.errors import ShapeError
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import Greedy


@dataclass(frozen=True, kw_only=True)
class Keeps:
    mask: Any

    def allowed_arms(self, offer: Offer) -> Any:
        return self.mask


def policy(mask: Any) -> IndexPolicy:
    return IndexPolicy(
        posterior=StreamingGP(SquaredExponential(), 0.1),
        rule=Greedy(),
        oracle=TopK(k=1),
        decision_set=Keeps(mask=mask),
    )


def test_a_closed_arm_stays_closed() -> None:
    arms = Arms.numbered(np.arange(3.0)[:, None])
    offer = Offer(step=1, arms=arms, available=np.array([False, False, True]))
    decided = policy(np.array([True, False, True])).decide(
        offer, np.random.default_rng(0)
    )
    assert decided.positions.tolist() == [2]


@pytest.mark.parametrize("mask", [np.array([True]), np.ones(3), [True, False]])
def test_a_mask_of_another_shape_or_kind_is_refused(mask: Any) -> None:
    offer = Offer(step=1, arms=Arms.numbered(np.arange(3.0)[:, None]))
    with pytest.raises(ShapeError, match="each of the 3 arms"):
        policy(mask).decide(offer, np.random.default_rng(0))


def test_an_offer_takes_numpys_own_booleans() -> None:
    offer = Offer(step=1, arms=Arms.numbered(np.zeros((1, 1))), begins=np.True_)  # type: ignore[arg-type]
    assert offer.begins is True
