"""The journal of a bandit as tables, in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from superarm.core.errors import SpecError
from superarm.live.export import Layout
from superarm.live.tables import Export, Format

from .bandits import is_service, load_stored_bandit, open_storage

ExportFormat = Literal["csv", "parquet", "open-bandit"]


def export_journal(
    url: str,
    tenant: str,
    name: str,
    folder: Path,
    export_format: ExportFormat,
    features: bool,
) -> Export:
    """Write the journal of a bandit as tables.

    Args:
        url: The storage.
        tenant: Whose bandit it is.
        name: The bandit.
        folder: Where the files go.
        export_format: ``"csv"`` or ``"parquet"`` for flat tables; ``"open-bandit"`` for CSV in the
            layout of the Open Bandit Dataset.
        features: Whether to also write the features of arms.
    """
    if is_service(url):
        raise SpecError(
            f"{url} is a service; pass its storage: "
            "--storage sqlite:///FILE (after the service has stopped) or postgresql://…"
        )
    file_format: Format = "parquet" if export_format == "parquet" else "csv"
    layout: Layout = "open-bandit" if export_format == "open-bandit" else "flat"
    with open_storage(url) as storage:
        bandit = load_stored_bandit(name, storage, tenant)
        return bandit.export(
            folder,
            file_format=file_format,
            layout=layout,
            features=features,
        )
