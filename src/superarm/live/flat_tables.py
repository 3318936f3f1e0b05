"""The journal of a bandit as flat tables.

==============  ==================================================================================
``decisions``   one row per decision: its offer, action, propensity, status and reward
``choices``     one row per chosen arm: place, mean, standard deviation, desirability, reward
``history``     one row per reward that did not come from a decision
``arms``        one row per arm of an offer, with its features; only on request
==============  ==================================================================================

Ids of arms are text, whole numbers too. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from superarm.core import Arms
from superarm.core.errors import InputError
from superarm.core.serialization import to_json

from .bandit_journal import BanditJournal
from .codec import readable_json
from .decisions import value_at
from .event_reader import feedback_of
from .events import Event, Kind
from .outcomes import Outcome, Outcomes
from .tables import Column, Export, Format, TableWriter, Type, numbers, open_tables

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
is JSON, and ``reward`` is the sum over all chosen arms, missing until all are rewarded."""
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
ARMS = (Column("offer", Type.TEXT), Column("arm", Type.TEXT))
"""One column for each feature follows."""


def export_flat(
    journal: BanditJournal,
    last: int,
    folder: Path,
    file_format: Format,
    feature_names: Sequence[str] | None,
) -> Export:
    """Write the journal of a bandit as flat tables.

    Args:
        journal: The journal.
        last: The number of the last event to export.
        folder: Where the files go.
        file_format: Their format.
        feature_names: Names of the features, for a table of arms; ``None``: without that table.
    """
    with open_tables(folder, file_format) as tables:
        decisions = tables.open("decisions", DECISIONS)
        choices = tables.open("choices", CHOICES)
        history = tables.open("history", HISTORY)
        arms = None
        if feature_names is not None:
            features = numbers(f"feature_{name}" for name in feature_names)
            arms = _ArmsTable(tables.open("arms", [*ARMS, *features]))
        for outcome in Outcomes(journal, last):
            _write_decision(decisions, outcome)
            _write_choices(choices, outcome)
            if arms is not None:
                arms.write(outcome.offer_hash, outcome.record.offer.arms)
        for event in journal.events(last=last):
            if event.kind is Kind.HISTORY:
                offered = journal.arms(event.body["arms"])
                _write_history(history, event, offered)
                if arms is not None:
                    arms.write(event.body["arms"], offered)
    return tables.summary()


# --- rows ----------------------------------------------------------------------------------


def _write_decision(table: TableWriter, outcome: Outcome) -> None:
    record = outcome.record
    decision = record.decision
    table.write(
        [
            record.id,
            record.time,
            decision.step,
            outcome.offer_hash,
            record.offer.time,
            len(record.offer.arms),
            len(decision.positions),
            readable_json(to_json(record.action)),
            decision.propensity,
            str(outcome.status),
            len(outcome.rewards),
            outcome.reward,
        ]
    )


def _write_choices(table: TableWriter, outcome: Outcome) -> None:
    decision = outcome.record.decision
    ids = decision.ids(outcome.record.offer)
    for place, position in enumerate(decision.positions.tolist()):
        known = outcome.rewards.get(position)
        table.write(
            [
                outcome.record.id,
                place,
                str(ids[place]),
                position,
                value_at(decision.mean, place),
                value_at(decision.std, place),
                value_at(decision.desirability, place),
                None if known is None else known.reward,
                None if known is None else known.noise_variance,
                None if known is None else known.observed_at,
            ]
        )


def _write_history(table: TableWriter, event: Event, arms: Arms) -> None:
    body = event.body
    feedback = feedback_of(event)
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
                value_at(feedback.noise_variance, place),
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
        width = len(self._table.columns) - len(ARMS)
        if arms.features.shape[1] != width:
            raise InputError(
                f"some offers have {width} features and others {arms.features.shape[1]}; export without "
                "features"
            )
        for arm, row in zip(arms.ids, arms.features.tolist(), strict=True):
            self._table.write([offer_hash, str(arm), *row])
