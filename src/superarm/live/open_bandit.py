"""The journal of a bandit in the layout of the Open Bandit Dataset [saito2021open].

=====================  ============================================================================
``all``                one row per chosen arm whose reward is known: ``timestamp``, ``item_id``,
                       ``position``, ``click``, ``propensity_score``, ``user_feature_0`` …
``item_context``       one row per arm: ``item_id``, ``item_feature_0`` …
``items``              one row per arm: ``item_id``, ``arm``, its own id
=====================  ============================================================================

The first column has no name and counts the rows, as in that data set. ``click`` is the reward of the arm,
whatever its scale. ``position`` counts the chosen arms from 1. ``propensity_score`` is the probability of the
whole super arm as a set: where several arms are chosen, the ``pscore`` of a slate, not of one item.

A column of features that is the same for all arms of every offer belongs to the user, any other to the items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats
from superarm.core.errors import InputError

from .arms import ArmId
from .bandit_journal import BanditJournal
from .outcomes import Outcome, Outcomes
from .tables import Column, Export, Format, Type, numbers, open_tables

_REWARD_COLUMNS = (
    Column("", Type.INTEGER),
    Column("timestamp", Type.TEXT),
    Column("item_id", Type.INTEGER),
    Column("position", Type.INTEGER),
    Column("click", Type.NUMBER),
    Column("propensity_score", Type.NUMBER),
)
_CONTEXT_COLUMNS = (Column("", Type.INTEGER), Column("item_id", Type.INTEGER))
_NAME_COLUMNS = (Column("item_id", Type.INTEGER), Column("arm", Type.TEXT))


class _Row(NamedTuple):
    """A chosen arm whose reward is known."""

    time: float
    item: int
    position: int
    reward: float
    propensity: float
    context: list[float]


@dataclass(slots=True)
class _Items:
    """All arms that were ever on offer, numbered as they appeared."""

    with_features: bool
    numbers: dict[ArmId, int] = field(default_factory=dict)
    features: list[Floats] = field(default_factory=list)
    is_users: Bools | None = None
    """Which columns are the same for all arms of every offer."""
    changing: dict[int, Bools] = field(default_factory=dict)
    """By item: which of its features have changed."""

    def add(self, outcome: Outcome) -> None:
        """Note the arms of an offer.

        Args:
            outcome: The decision.
        """
        arms = outcome.record.offer.arms
        features = arms.features
        is_same = (features == features[0]).all(axis=0)
        if self.is_users is None:
            self.is_users = is_same
        elif len(self.is_users) == len(is_same):
            self.is_users = self.is_users & is_same
        elif self.with_features:
            raise InputError(
                f"some offers have {len(self.is_users)} features and others {len(is_same)}; export without "
                "features"
            )
        ids: Any = arms.ids
        for arm, row in zip(ids, features, strict=True):
            number = self.numbers.get(arm)
            if number is None:
                self.numbers[arm] = len(self.features)
                self.features.append(row.copy())  # a view would keep the whole offer
            elif self.with_features:
                has_changed = row != self.features[number]
                if has_changed.any():
                    earlier = self.changing.get(number, False)
                    self.changing[number] = has_changed | earlier

    @property
    def user_columns(self) -> list[int]:
        """Columns that belong to the user."""
        if self.is_users is None or not self.with_features:
            return []
        return np.flatnonzero(self.is_users).tolist()

    @property
    def item_columns(self) -> list[int]:
        """Columns that belong to the items."""
        if self.is_users is None or not self.with_features:
            return []
        return np.flatnonzero(~self.is_users).tolist()

    def check(self) -> None:
        """Refuse items whose own features change: the layout has one row per item."""
        columns = self.item_columns
        for arm, number in self.numbers.items():
            changed = self.changing.get(number)
            if changed is not None and changed[columns].any():
                raise InputError(
                    f"the features of arm {arm!r} change from offer to offer, but Open Bandit has one "
                    "row per item; export without features, or as flat tables"
                )


def export_open_bandit(
    journal: BanditJournal,
    last: int,
    folder: Path,
    file_format: Format,
    *,
    features: bool,
) -> Export:
    """Write the journal in the layout of the Open Bandit Dataset.

    Args:
        journal: The journal.
        last: The number of the last event to export.
        folder: Where the files go.
        file_format: Their format.
        features: Whether to write features of users and items.
    """
    items = _items(journal, last, with_features=features)
    user_columns = _numbered("user_feature", len(items.user_columns))
    item_columns = _numbered("item_feature", len(items.item_columns))
    with open_tables(folder, file_format) as tables:
        rewards = tables.open("all", [*_REWARD_COLUMNS, *user_columns])
        contexts = tables.open("item_context", [*_CONTEXT_COLUMNS, *item_columns])
        names = tables.open("items", _NAME_COLUMNS)
        for row in _rows(journal, last, items):
            timestamp = datetime.fromtimestamp(row.time, UTC).isoformat(" ")
            values = [row.item, row.position, row.reward, row.propensity]
            rewards.write([rewards.rows, timestamp, *values, *row.context])
        for arm, item in items.numbers.items():
            item_features = items.features[item][items.item_columns].tolist()
            contexts.write([item, item, *item_features])
            names.write([item, str(arm)])
    return tables.summary()


def _numbered(name: str, count: int) -> list[Column]:
    """Columns ``name_0``, ``name_1``, …"""
    return numbers(f"{name}_{number}" for number in range(count))


def _items(journal: BanditJournal, last: int, *, with_features: bool) -> _Items:
    """All arms of the journal. Decisions of unknown propensity are refused."""
    items = _Items(with_features)
    for outcome in Outcomes(journal, last):
        propensity = outcome.record.decision.propensity
        if not propensity:
            raise InputError(
                f"the propensity of decision {outcome.record.id!r} is unknown, but the Open Bandit layout "
                "needs it; export as flat tables, or use a bandit whose policy always has known "
                "propensities, such as 'exploring'"
            )
        items.add(outcome)
    items.check()
    return items


def _rows(journal: BanditJournal, last: int, items: _Items) -> Iterator[_Row]:
    for outcome in Outcomes(journal, last):
        record = outcome.record
        ids: Any = record.decision.ids(record.offer)
        context = record.offer.arms.features[0][items.user_columns].tolist()
        for place, position in enumerate(record.decision.positions.tolist()):
            known = outcome.rewards.get(position)
            if known is None:
                continue
            assert record.decision.propensity is not None  # checked for all items
            yield _Row(
                time=record.time,
                item=items.numbers[ids[place]],
                position=place + 1,
                reward=known.reward,
                propensity=record.decision.propensity,
                context=context,
            )
