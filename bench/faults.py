"""The table of faults in ``docs/architecture.md``: ``python -m bench.faults bench/results/faults.jsonl``.

``make full`` writes that file, a line for each fault and storage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_HEADER = (
    "| fault | storage | clients | faults | acknowledged | lost | doubled | same |\n"
    "|---|---|---:|---:|---:|---:|---:|---|"
)


_PROOFS = {
    "twin_same": "as a twin",
    "replay_same": "on replay",
    "events_same": "events",
}
"""What was compared, by the name of its result."""


def table(lines: Iterable[str]) -> str:
    """The table in Markdown: of each fault and storage the last line.

    Args:
        lines: Objects of JSON, as ``make full`` writes them.
    """
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        counts = json.loads(line)
        last[counts["fault"], counts["storage"]] = counts
    rows = [_row(last[key]) for key in sorted(last)]
    return "\n".join([_HEADER, *rows])


def _row(counts: dict[str, Any]) -> str:
    numbers = [
        _number(counts[name])
        for name in ("clients", "faults", "acknowledged", "lost", "doubled")
    ]
    cells = [counts["fault"], counts["storage"], *numbers, _proofs(counts)]
    return f"| {' | '.join(cells)} |"


def _proofs(counts: dict[str, Any]) -> str:
    """What was compared, and where it differs."""
    compared = []
    for name, text in _PROOFS.items():
        if name in counts:
            compared.append(text if counts[name] else f"not {text}")
    return ", ".join(compared)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


if __name__ == "__main__":
    with Path(sys.argv[1]).open(encoding="utf-8") as stored:
        print(table(stored))
