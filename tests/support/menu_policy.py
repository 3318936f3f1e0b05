"""The policy that most tests of live bandits have: two of a menu's dishes by their upper bounds."""

from __future__ import annotations

from typing import Any

from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed


def menu_policy(**changes: Any) -> IndexPolicy:
    """A streaming posterior, upper confidence bounds, and the two best arms.

    Args:
        changes: Parts that are others.
    """
    parts: dict[str, Any] = {
        "posterior": StreamingGP(
            SquaredExponential(lengthscale=0.3), noise_variance=0.01
        ),
        "rule": UCB(schedule=Fixed(value=2.0)),
        "oracle": TopK(k=2),
    }
    return IndexPolicy(**{**parts, **changes})
