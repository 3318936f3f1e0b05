"""What tests of faults count, and the table on the page that comes from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fault_table import FaultCounts

ROOT = Path(__file__).parents[2]
STORED = ROOT / "bench" / "results" / "faults.jsonl"
COUNTS = FaultCounts(
    fault="kill",
    url="sqlite:///bandits.db",
    clients=8,
    faults=2,
    acknowledged=1234,
    lost=0,
    doubled=0,
    twin_same=True,
)


def table(path: Path) -> str:
    """The table of a file."""
    finished = subprocess.run(
        [sys.executable, "-m", "bench.faults", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_counts_become_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "faults.jsonl"
    monkeypatch.setenv("SUPERARM_FAULTS", str(path))
    replace(
        COUNTS, acknowledged=7
    ).record()  # an earlier run, which the next one replaces
    with pytest.raises(AssertionError, match="events_same"):
        replace(COUNTS, twin_same=None, events_same=False).record()
    replace(COUNTS, url="postgresql://host", acknowledged=None).record()
    assert table(path).splitlines()[2:] == [
        "| kill | PostgreSQL | 8 | 2 | – | 0 | 0 | as a twin |",
        "| kill | SQLite | 8 | 2 | 1,234 | 0 | 0 | not events |",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        replace(COUNTS, lost=1),
        replace(COUNTS, doubled=1),
        replace(COUNTS, twin_same=False),
        replace(COUNTS, replay_same=False),
        replace(COUNTS, twin_same=None),
    ],
)
def test_a_loss_is_recorded_and_fails(
    wrong: FaultCounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "faults.jsonl"
    monkeypatch.setenv("SUPERARM_FAULTS", str(path))
    with pytest.raises(AssertionError):
        wrong.record()
    stored = json.loads(path.read_text("utf-8"))
    assert stored["storage"] == "SQLite"
    assert stored["lost"] == wrong.lost
    assert stored["doubled"] == wrong.doubled
    assert stored.get("twin_same") is wrong.twin_same


def test_the_page_has_the_stored_counts() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    shown = page.split("<!-- faults -->")[1].split("<!-- /faults -->")[0].strip()
    assert shown == table(STORED)
