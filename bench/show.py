"""Results for people: plain text, or a table to paste into ``README.md``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import hours_table
from .measure import Results, Row, Target, machine

HEADER = (
    "case",
    "ours",
    "peer",
    "peer's time",
    "faster",
    "by CPU time",
    "largest difference",
)


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    Args:
        seconds: The time.
    """
    if seconds >= 1.0:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds / 1e-3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def plain(results: Results) -> str:
    """All results as text: a line for each row, then everything else.

    Args:
        results: Of one suite.
    """
    rows = [HEADER, *(_cells(row) for row in results.rows)]
    columns = zip(*rows, strict=True)
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, "", *_notes(results)])


def _cells(row: Row) -> tuple[str, ...]:
    """The cells of ``HEADER``."""
    difference = ""
    if row.max_abs_diff is not None:
        difference = f"{row.max_abs_diff:.0e}"
    return (
        row.case,
        duration(row.ours_s),
        row.peer,
        duration(row.peer_s),
        f"{row.ratio:.2f}×",
        _cpu_ratio(row),
        difference,
    )


def _cpu_ratio(row: Row) -> str:
    """How many times less processor time ours takes, if it was measured."""
    if row.ours_cpu_s is None or row.peer_cpu_s is None:
        return ""
    return f"{row.peer_cpu_s / row.ours_cpu_s:.2f}×"


def _notes(results: Results) -> list[str]:
    lines = [f"growth of {name}: {value:.2f}" for name, value in results.growth.items()]
    for name, value in results.limits.items():
        limit = duration(value) if name.endswith("_s") else f"{value:.3g}"
        lines.append(f"limit {name}: {limit}")
    lines += [f"{name}: {value}" for name, value in results.facts.items()]
    for target in results.targets:
        verdict = "met" if target.holds else "MISSED"
        lines.append(f"{verdict}: {_measured(target)}")
    lines += [f"skipped: {reason}" for reason in results.skipped]
    lines.append(_place())
    return lines


def _measured(target: Target) -> str:
    return f"{target.text}, measured {target.value:.3g}"


def _place() -> str:
    """The processor and the versions."""
    place = machine()
    packages = place["versions"].items()
    versions = ", ".join(f"{package} {version}" for package, version in packages)
    return f"on {place['cpu']}, one thread; {versions}"


def markdown(results: Results) -> str:
    """One row for each case, a column for each peer with its time over ours; the rest is JSON.

    Args:
        results: Of one suite.
    """
    if results.suite == "hours":
        return hours_table.markdown(results.facts)
    rows = [row for row in results.rows if not row.peer.startswith("our own")]
    peers = list(dict.fromkeys(row.peer for row in rows))
    has_differences = any(row.max_abs_diff is not None for row in rows)
    header = ["case", "ours", *peers]
    if has_differences:
        header.append("largest difference")
    lines = [f"| {' | '.join(header)} |", f"|---{'|---:' * (len(header) - 1)}|"]
    for case in dict.fromkeys(row.case for row in rows):
        row_of_peer = {row.peer: row for row in rows if row.case == case}
        first_row = next(iter(row_of_peer.values()))
        cells = [case, duration(first_row.ours_s)]
        for peer in peers:
            cell = ""
            if peer in row_of_peer:
                cell = _peer_cell(row_of_peer[peer])
            cells.append(cell)
        if has_differences:
            cells.append(_largest_difference(row_of_peer.values()))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _targets_met(results.targets)])


def _peer_cell(row: Row) -> str:
    """A peer's time, and how many times ours it is: by the wall, and by the processor."""
    ratio = f"{row.ratio:.1f}×" if row.ratio >= 10.0 else f"{row.ratio:.2f}×"
    cpu_ratio = _cpu_ratio(row)
    if cpu_ratio:
        ratio += f", CPU {cpu_ratio}"
    return f"{duration(row.peer_s)} ({ratio})"


def _largest_difference(rows: Iterable[Row]) -> str:
    differences = [row.max_abs_diff for row in rows if row.max_abs_diff is not None]
    return f"{max(differences):.0e}" if differences else ""


def _targets_met(targets: Sequence[Target]) -> str:
    missed = [_measured(target) for target in targets if not target.holds]
    met = len(targets) - len(missed)
    sentence = f"{met} of {len(targets)} targets are met"
    if missed:
        sentence += f"; missed: {'; '.join(missed)}"
    return f"{sentence}."
