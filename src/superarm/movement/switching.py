"""Known costs of an arm that depend on the previous action.

The previous action is what the oracle chose in the round before: for :class:`~superarm.oracles.TopK`
the positions of its arms, which name the same arms in every round where the arm set is fixed.
Where arms change, write a cost of your own that reads what your action holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from superarm.core import Floats, Ints, Offer
from superarm.errors import InputError, UnknownArmError
from superarm.inputs import as_positions, as_positive
from superarm.registry import register


@register("switching", "distance")
@dataclass(frozen=True, kw_only=True)
class Distance:
    """``scale`` × the Euclidean distance to the nearest arm of the previous action.

    It is measured over all feature columns, or over ``columns`` alone.
    """

    scale: float = 1.0
    columns: Sequence[int] | None = None
    fixed_arms = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", as_positive(self.scale, "scale"))
        if self.columns is not None:
            columns = as_positions(self.columns, "columns")
            if len(columns) == 0 or columns.min() < 0:
                raise InputError(f"columns is {self.columns!r}; name feature columns, from 0 on")
            object.__setattr__(self, "columns", tuple(columns.tolist()))

    def costs(self, offer: Offer) -> Floats:
        places = offer.arms.features
        if self.columns is not None:
            if max(self.columns) >= (d := places.shape[1]):
                raise InputError(f"columns is {list(self.columns)}, but arms have {d} feature columns")
            places = places[:, list(self.columns)]
        before = previous_positions(offer)
        if not len(before):
            return np.zeros(len(places))
        offsets = places[:, None, :] - places[before][None, :, :]
        nearest: Floats = np.sqrt(np.square(offsets).sum(axis=2)).min(axis=1)
        return self.scale * nearest


@register("switching", "switch")
@dataclass(frozen=True, kw_only=True)
class Switch:
    """``cost`` for every arm that was not part of the previous action."""

    cost: float = 1.0
    fixed_arms = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", as_positive(self.cost, "cost"))

    def costs(self, offer: Offer) -> Floats:
        before = previous_positions(offer)
        if not len(before):
            return np.zeros(len(offer.arms))
        costs = np.full(len(offer.arms), self.cost)
        costs[before] = 0.0
        return costs


def previous_positions(offer: Offer) -> Ints:
    """The arms of the previous action among those on offer; none where nothing was done."""
    if offer.previous_action is None:
        return np.empty(0, dtype=np.intp)
    positions = as_positions(offer.previous_action, "the previous action")
    if len(positions) and not (positions.min() >= 0 and positions.max() < len(offer.arms)):
        raise UnknownArmError(
            f"the previous action names arms {positions.tolist()[:9]}, but the offer has arms 0 to "
            f"{len(offer.arms) - 1}; where arms change from round to round, write a cost of your own"
        )
    return positions
