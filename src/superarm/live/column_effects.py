"""The column of the features that changed the mean of an arm most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from superarm.core import Arms, Offer
from superarm.core.capabilities import Forecaster
from superarm.core.errors import InputError

from .fold import Fold


class ColumnEffect(NamedTuple):
    """How much the mean of an arm falls if a column is replaced by its average."""

    column: str
    change: float


_NO_EFFECT = ColumnEffect("", 0.0)


def strongest_columns(
    fold: Fold, offer: Offer, positions: list[int]
) -> dict[int, ColumnEffect]:
    """The column that changes the mean most when replaced by its average over the offer, by position.

    A column whose average the policy refuses is left out, such as the number of a road.

    Args:
        fold: The bandit just before a decision.
        offer: The offer of the decision.
        positions: The arms in question.
    """
    policy = fold.policy
    if not isinstance(policy, Forecaster):
        return {}
    features = offer.arms.features
    average = features.mean(axis=0)
    means = policy.beliefs(offer).mean
    effects: dict[int, ColumnEffect] = {}
    for column, name in enumerate(_column_names(fold, features.shape[1])):
        without_column = _with_constant(offer, column, average[column])
        try:
            averaged_means = policy.beliefs(without_column).mean
        except InputError:
            continue  # an average that no arm has: of fixed arms, roads or groups
        for position in positions:
            change = float(means[position] - averaged_means[position])
            strongest = effects.get(position, _NO_EFFECT)
            if abs(change) > abs(strongest.change):
                effects[position] = ColumnEffect(name, change)
    return effects


def _with_constant(offer: Offer, column: int, value: float) -> Offer:
    """The same offer, with one value in a column of all arms."""
    features = offer.arms.features.copy()
    features[:, column] = value
    return replace(offer, arms=Arms(ids=offer.arms.ids, features=features))


def _column_names(fold: Fold, width: int) -> Sequence[str]:
    encoding = fold.spec.encoding
    if encoding is not None:
        return encoding.names
    return [f"column {number}" for number in range(width)]
