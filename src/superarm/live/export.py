"""The journal of a bandit as flat tables.

==============  ==================================================================================
``decisions``   one row a decision: its offer, action, propensity, status and reward
``choices``     one row a chosen arm: place, mean, standard deviation, desirability, reward
``history``     one row a reward that no decision led to
``arms``        one row an arm of an offer, with its features; only if they are wanted
==============  ==================================================================================

Ids of arms are text, whole numbers too. Times are seconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from superarm.core import Arms, Feedback, Floats
from superarm.core.display import Displayable
from superarm.core.errors import InputError
from superarm.core.serialization import from_json, to_json

from .events import Event, Kind
from .log import Log
from .records import Outcome, Outcomes
from .tables import Column, Format, TableWriter, Type, numbers, table_file

DECISIONS = (
    Column("decision", Type.TEXT),
    Column("time", Type.NUMBER),
    Column("step", Type.INTEGER),
    Column("offer", Type.TEXT),
    Column("offer_time", Type.NUMBER),
    Column("arms_on_offer", Type.INTEGER),
    Column("arms_chosen", Type.INTEGER),
    Column("action", Type.TEXT),
    Column("propensity", Type.NUMBER),
    Column("status", Type.TEXT),
    Column("arms_rewarded", Type.INTEGER),
    Column("reward", Type.NUMBER),
)
"""``offer`` is the hash of the arms on offer, ``offer_time`` the physical time that was given, ``action``
is JSON, and ``reward`` the sum over all arms, missing while one of theirs is."""
CHOICES = (
    Column("decision", Type.TEXT),
    Column("place", Type.INTEGER),
    Column("arm", Type.TEXT),
    Column("position", Type.INTEGER),
    Column("mean", Type.NUMBER),
    Column("std", Type.NUMBER),
    Column("desirability", Type.NUMBER),
    Column("reward", Type.NUMBER),
    Column("noise_variance", Type.NUMBER),
    Column("observed_at", Type.NUMBER),
)
"""``place`` counts the chosen arms from 0, ``position`` the arms on offer."""
HISTORY = (
    Column("event", Type.INTEGER),
    Column("time", Type.NUMBER),
    Column("step", Type.INTEGER),
    Column("offer", Type.TEXT),
    Column("offer_time", Type.NUMBER),
    Column("arm", Type.TEXT),
    Column("reward", Type.NUMBER),
    Column("noise_variance", Type.NUMBER),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Displayable):
    """What was written."""

    files: dict[str, str]
    """Paths by table."""
    rows: dict[str, int]
    """Rows by table."""


def export_tables(
    log: Log,
    last: int,
    folder: Path,
    file_format: Format,
    feature_names: Sequence[str] | None,
) -> Export:
    """Write the journal of a bandit as flat tables.

    Args:
        log: The journal.
        last: The number of the last event to export.
        folder: Where the files go.
        file_format: Their format.
        feature_names: Names of the features, for a table of arms; ``None``: without that table.
    """
    columns = {"decisions": DECISIONS, "choices": CHOICES, "history": HISTORY}
    with ExitStack() as files:
        tables = {}
        for name, table_columns in columns.items():
            table = table_file(folder, name, table_columns, file_format)
            tables[name] = files.enter_context(table)
        arms = None
        if feature_names is not None:
            arms_columns = [Column("offer", Type.TEXT), Column("arm", Type.TEXT)]
            arms_columns += numbers(f"feature_{name}" for name in feature_names)
            table = table_file(folder, "arms", arms_columns, file_format)
            tables["arms"] = files.enter_context(table)
            arms = _ArmsTable(tables["arms"])
        outcomes = Outcomes(log, last)
        for outcome in outcomes:
            _write_decision(tables["decisions"], outcome)
            _write_choices(tables["choices"], outcome)
            if arms is not None:
                arms.write(outcome.offer_hash, outcome.asked.offer.arms)
        for event in outcomes.events():
            if event.kind is Kind.HISTORY:
                offered = log.arms(event.body["arms"])
                _write_history(tables["history"], event, offered)
                if arms is not None:
                    arms.write(event.body["arms"], offered)
    return Export(
        files={name: str(folder / f"{name}.{file_format}") for name in tables},
        rows={name: table.rows for name, table in tables.items()},
    )


def numbered_features(log: Log, last: int) -> list[str]:
    """Names for the features of a bandit without an encoding: ``0``, ``1``, …

    Args:
        log: The journal.
        last: The number of the last event to read.
    """
    for event in log.events():
        if event.seq > last:
            break
        if event.kind in (Kind.DECIDED, Kind.HISTORY):
            width = log.arms(event.body["arms"]).features.shape[1]
            return [str(number) for number in range(width)]
    return []


# --- rows ----------------------------------------------------------------------------------


def _write_decision(table: TableWriter, outcome: Outcome) -> None:
    asked = outcome.asked
    decision = asked.decision
    table.write(
        [
            asked.id,
            asked.time,
            decision.step,
            outcome.offer_hash,
            asked.offer.time,
            len(asked.offer.arms),
            len(decision.positions),
            json.dumps(to_json(asked.action), sort_keys=True),
            decision.propensity,
            str(outcome.status),
            len(outcome.rewards),
            outcome.reward,
        ]
    )


def _write_choices(table: TableWriter, outcome: Outcome) -> None:
    decision = outcome.asked.decision
    ids = decision.ids(outcome.asked.offer)
    for place, position in enumerate(decision.positions.tolist()):
        known = outcome.rewards.get(position)
        table.write(
            [
                outcome.asked.id,
                place,
                str(ids[place]),
                position,
                _at(decision.mean, place),
                _at(decision.std, place),
                _at(decision.desirability, place),
                None if known is None else known.reward,
                None if known is None else known.noise_variance,
                None if known is None else known.observed_at,
            ]
        )


def _at(values: Floats | None, place: int) -> float | None:
    return None if values is None else float(values[place])


def _write_history(table: TableWriter, event: Event, arms: Arms) -> None:
    body = event.body
    feedback: Feedback = from_json(body["feedback"])
    for place, position in enumerate(feedback.positions.tolist()):
        table.write(
            [
                event.seq,
                event.time,
                body["step"],
                body["arms"],
                body["time"],
                str(arms.ids[position]),
                float(feedback.rewards[place]),
                _at(feedback.noise_variance, place),
            ]
        )


class _ArmsTable:
    """The arms of offers, each offer once."""

    def __init__(self, table: TableWriter) -> None:
        self._table = table
        self._written: set[bytes] = set()  # hashes; 16 bytes of them are enough

    def write(self, offer_hash: str, arms: Arms) -> None:
        short_hash = bytes.fromhex(offer_hash)[:16]
        if short_hash in self._written:
            return
        self._written.add(short_hash)
        width = len(self._table.columns) - 2
        if arms.features.shape[1] != width:
            raise InputError(
                f"offers have {width} features and {arms.features.shape[1]} features; one table cannot "
                "hold both: export without features"
            )
        for arm, row in zip(arms.ids, arms.features.tolist(), strict=True):
            self._table.write([offer_hash, str(arm), *row])
