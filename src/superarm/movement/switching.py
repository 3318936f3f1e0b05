"""Known costs of an arm that depend on the previous action.

The previous action is what the oracle chose in the round before: for slates, matchings and routes the
positions of its arms, which name the same arms in every round if the arm set is fixed. Where arms
change, or an action is something else, as that of :class:`~superarm.oracles.GreedyCoverage`, write your
own switching cost that reads your actions.

The cost of moving to a super arm is the sum over its arms. So any oracle that finds the super arm of
largest total desirability also finds the best one after these costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from superarm.core import Floats, Ints, Offer
from superarm.core.errors import InputError, ShapeError, UnknownArmError
from superarm.core.inputs import (
    as_number,
    as_positions,
    as_positive,
    as_vector,
    read_only,
)
from superarm.core.registry import register


@register("switching", "distance")
@dataclass(frozen=True, kw_only=True)
class Distance:
    """``scale`` × the Euclidean distance to the nearest arm of the previous action.

    Args:
        scale: Multiplies the distance.
        columns: The feature columns that contain coordinates; all of them by default.
    """

    scale: float = 1.0
    columns: Sequence[int] | None = None
    fixed_arms = True

    def __post_init__(self) -> None:
        scale = as_positive(self.scale, "scale")
        object.__setattr__(self, "scale", scale)
        if self.columns is None:
            return
        columns = as_positions(self.columns, "columns")
        if len(columns) == 0 or columns.min() < 0:
            raise InputError(
                f"columns is {self.columns!r}; name feature columns, from 0 on"
            )
        object.__setattr__(self, "columns", tuple(columns.tolist()))

    def costs(self, offer: Offer) -> Floats:
        points = self._points(offer)
        previous = previous_positions(offer)
        if not len(previous):
            return np.zeros(len(points))
        previous_points = points[previous]  # (m, d)
        offsets = points[:, None] - previous_points[None]  # (n, m, d)
        squares = np.square(offsets).sum(axis=2)
        distances = np.sqrt(squares)
        nearest: Floats = distances.min(axis=1)
        return self.scale * nearest

    def _points(self, offer: Offer) -> Floats:
        """The coordinates of the arms, (n, d)."""
        features = offer.arms.features
        if self.columns is None:
            return features
        columns = list(self.columns)
        width = features.shape[1]
        if max(columns) >= width:
            raise InputError(
                f"columns is {columns}, but arms have {width} feature columns"
            )
        return features[:, columns]


@register("switching", "switch")
@dataclass(frozen=True, kw_only=True, eq=False)
class Switch:
    """``cost`` × weight for every arm that was not part of the previous action.

    From a super arm S to S′ this charges w(S′ ∖ S), the weight of the newly entered arms: leaving is
    free, and no detour is cheaper. If all super arms weigh the same, as slates of k arms do, this is
    half of w(S △ S′), a metric. If they do not, as with routes, the sum over many rounds differs from
    the metric's by half the difference between the weights of the last super arm and the first.

    Args:
        cost: Cost per unit of weight, 0 or more.
        weights: Weight of each arm, (n,), such as the length of a road; 1 by default.

    >>> from superarm.core import Arms
    >>> offer = Offer(step=2, arms=Arms.numbered(np.zeros((4, 1))), previous_action=(0, 3))
    >>> Switch(cost=2.0, weights=[1.0, 1.0, 5.0, 1.0]).costs(offer)
    array([ 0.,  2., 10.,  0.])
    """

    cost: float = 1.0
    weights: Floats | None = None
    fixed_arms = True

    def __post_init__(self) -> None:
        cost = as_number(self.cost, "cost", 0.0)
        object.__setattr__(self, "cost", cost)
        if self.weights is None:
            return
        weights = as_vector(self.weights, "weights")
        if (weights < 0.0).any():
            raise InputError(f"an arm weighs {weights.min():g}; weights are 0 or more")
        object.__setattr__(self, "weights", read_only(weights))

    def costs(self, offer: Offer) -> Floats:
        n = len(offer.arms)
        weights = self.weights
        if weights is None:
            weights = np.ones(n)
        if len(weights) != n:
            raise ShapeError(
                f"{n} arms are on offer, but there are {len(weights)} weights"
            )
        if offer.previous_action is None:
            return np.zeros(n)
        # After an empty super arm, all arms are newly entered.
        costs: Floats = self.cost * weights
        previous = previous_positions(offer)
        costs[previous] = 0.0
        return costs


def previous_positions(offer: Offer) -> Ints:
    """Positions of the arms of the previous action; none if there is none.

    Args:
        offer: The offer of this round.
    """
    if offer.previous_action is None:
        return np.empty(0, dtype=np.intp)
    positions = as_positions(offer.previous_action, "the previous action")
    n = len(offer.arms)
    is_unknown = (positions < 0) | (positions >= n)
    if is_unknown.any():
        raise UnknownArmError(
            f"the previous action names arms {positions.tolist()[:9]}, but the offer has arms 0 to "
            f"{n - 1}; where arms change from round to round, write a cost of your own"
        )
    return positions
