"""The journal of a bandit in the layout of the Open Bandit Dataset [saito2021open].

=====================  ============================================================================
``all``                one row a chosen arm whose reward is known: ``timestamp``, ``item_id``,
                       ``position``, ``click``, ``propensity_score``, ``user_feature_0`` …
``item_context``       one row an arm: ``item_id``, ``item_feature_0`` …
``items``              one row an arm: ``item_id``, ``arm``, its own id
=====================  ============================================================================

The first column has no name and counts the rows, as in that data set. ``click`` is the reward of the arm,
whatever its scale. ``position`` counts the chosen arms from 1. ``propensity_score`` is the probability of the
whole super arm as a set: where several arms are chosen, the ``pscore`` of a slate, not of one item.

Write to a folder ``random/all``, and ``OpenBanditDataset(behavior_policy="random", campaign="all",
data_path=…)`` of the Open Bandit Pipeline reads it.

A column of features that is the same for all arms of every offer belongs to the user, any other to the items.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats
from superarm.core.errors import InputError

from .arms import ArmId
from .export import Export
from .log import Log
from .records import Outcome, Outcomes
from .tables import Column, Format, Type, numbers, table_file


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
        arms = outcome.asked.offer.arms
        features = arms.features
        is_same = (features == features[0]).all(axis=0)
        if self.is_users is None:
            self.is_users = is_same
        elif len(self.is_users) == len(is_same):
            self.is_users = self.is_users & is_same
        elif self.with_features:
            raise InputError(
                f"offers have {len(self.is_users)} features and {len(is_same)} features; the layout "
                "cannot hold both: export with features=False"
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
        """Refuse items whose own features change: the layout has one row an item."""
        columns = self.item_columns
        for arm, number in self.numbers.items():
            changed = self.changing.get(number)
            if changed is not None and changed[columns].any():
                raise InputError(
                    f"the features of arm {arm!r} change from offer to offer, and the layout of Open "
                    "Bandit has one row an item: export with features=False, or as flat tables"
                )


def export_open_bandit(
    log: Log, last: int, folder: Path, file_format: Format, *, features: bool
) -> Export:
    """Write the journal in the layout of the Open Bandit Dataset.

    Args:
        log: The journal.
        last: The number of the last event to export.
        folder: Where the files go.
        file_format: Their format.
        features: Whether to write features of users and items.
    """
    items = _items(log, last, with_features=features)
    log_columns = [
        Column("", Type.INTEGER),
        Column("timestamp", Type.TEXT),
        Column("item_id", Type.INTEGER),
        Column("position", Type.INTEGER),
        Column("click", Type.NUMBER),
        Column("propensity_score", Type.NUMBER),
    ]
    user_count = len(items.user_columns)
    log_columns += numbers(f"user_feature_{number}" for number in range(user_count))
    context_columns = [Column("", Type.INTEGER), Column("item_id", Type.INTEGER)]
    item_count = len(items.item_columns)
    context_columns += numbers(f"item_feature_{number}" for number in range(item_count))
    names_columns = [Column("item_id", Type.INTEGER), Column("arm", Type.TEXT)]
    with ExitStack() as files:

        def table(name: str, columns: list[Column]) -> Any:
            return files.enter_context(table_file(folder, name, columns, file_format))

        log_table = table("all", log_columns)
        context_table = table("item_context", context_columns)
        names_table = table("items", names_columns)
        for row in _rows(log, last, items):
            timestamp = datetime.fromtimestamp(row.time, UTC).isoformat(" ")
            values = [row.item, row.position, row.reward, row.propensity]
            log_table.write([log_table.rows, timestamp, *values, *row.context])
        for arm, item in items.numbers.items():
            item_features = items.features[item][items.item_columns].tolist()
            context_table.write([item, item, *item_features])
            names_table.write([item, str(arm)])
    tables = {"all": log_table, "item_context": context_table, "items": names_table}
    return Export(
        files={name: str(folder / f"{name}.{file_format}") for name in tables},
        rows={name: writer.rows for name, writer in tables.items()},
    )


def bandit_feedback(log: Log, last: int, *, features: bool) -> dict[str, Any]:
    """The same in memory, as the ``BanditFeedback`` of the Open Bandit Pipeline.

    Args:
        log: The journal.
        last: The number of the last event.
        features: Whether to include features of users and items.
    """
    items = _items(log, last, with_features=features)
    rows = list(_rows(log, last, items))
    context = np.array([row.context for row in rows], dtype=np.float64)
    item_rows = [row[items.item_columns] for row in items.features]
    return {
        "n_rounds": len(rows),
        "n_actions": len(items.numbers),
        "action": np.array([row.item for row in rows], dtype=np.intp),
        "position": np.array([row.position - 1 for row in rows], dtype=np.intp),
        "reward": np.array([row.reward for row in rows]),
        "pscore": np.array([row.propensity for row in rows]),
        "context": context.reshape(len(rows), len(items.user_columns)),
        "action_context": np.array(item_rows).reshape(
            len(items.numbers), len(items.item_columns)
        ),
    }


def _items(log: Log, last: int, *, with_features: bool) -> _Items:
    """All arms of the journal. Decisions of unknown propensity are refused."""
    items = _Items(with_features)
    for outcome in Outcomes(log, last):
        propensity = outcome.asked.decision.propensity
        if not propensity:
            raise InputError(
                f"the propensity of decision {outcome.asked.id!r} is unknown, and the layout of Open "
                "Bandit needs it: export as flat tables, and let a policy act that knows its "
                "propensities, such as 'exploring'"
            )
        items.add(outcome)
    items.check()
    return items


def _rows(log: Log, last: int, items: _Items) -> Iterator[_Row]:
    for outcome in Outcomes(log, last):
        asked = outcome.asked
        ids: Any = asked.decision.ids(asked.offer)
        context = asked.offer.arms.features[0][items.user_columns].tolist()
        for place, position in enumerate(asked.decision.positions.tolist()):
            known = outcome.rewards.get(position)
            if known is None:
                continue
            assert asked.decision.propensity is not None  # checked for all items
            yield _Row(
                time=asked.time,
                item=items.numbers[ids[place]],
                position=place + 1,
                reward=known.reward,
                propensity=asked.decision.propensity,
                context=context,
            )
