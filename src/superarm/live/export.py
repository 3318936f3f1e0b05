"""The journal of a bandit as files, in one of two layouts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from superarm.core.tables import Encoding

from .bandit_journal import BanditJournal
from .events import Kind
from .flat_tables import export_flat
from .open_bandit import export_open_bandit
from .tables import Export, Format

Layout = Literal["flat", "open-bandit"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


def export_journal(
    journal: BanditJournal,
    last: int,
    folder: Path,
    *,
    file_format: Format,
    layout: Layout,
    features: bool,
    encoding: Encoding | None,
) -> Export:
    """Write the journal of a bandit as tables, each file completely or not at all.

    Args:
        journal: The journal.
        last: The number of the last event to export.
        folder: Where the files go.
        file_format: Their format.
        layout: Which tables there are, and their columns.
        features: Whether to also write the features of arms.
        encoding: The encoding of arms, which names the features; ``None``: they are numbered.
    """
    if layout == "open-bandit":
        return export_open_bandit(journal, last, folder, file_format, features=features)
    names: Sequence[str] | None = None
    if features and encoding is not None:
        names = encoding.names
    elif features:
        names = _feature_numbers(journal, last)
    return export_flat(journal, last, folder, file_format, names)


def _feature_numbers(journal: BanditJournal, last: int) -> list[str]:
    """Names for the features of a bandit without an encoding: ``0``, ``1``, …"""
    for event in journal.events(last=last):
        if event.kind in (Kind.DECIDED, Kind.HISTORY):
            offered = journal.arms(event.body["arms"])
            width = offered.features.shape[1]
            return [str(number) for number in range(width)]
    return []
