"""Results for people: plain text, or a table to paste into ``README.md``."""

from __future__ import annotations

from . import hours_table
from .measure import Results, Row, machine

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
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _by_cpu(row: Row) -> str:
    """How many times less processor time ours takes, where it was measured."""
    if row.ours_cpu_s is None or row.peer_cpu_s is None:
        return ""
    return f"{row.peer_cpu_s / row.ours_cpu_s:.2f}×"


def _cells(results: Results) -> list[tuple[str, ...]]:
    return [
        (
            row.case,
            duration(row.ours_s),
            row.peer,
            duration(row.peer_s),
            f"{row.ratio:.2f}×",
            _by_cpu(row),
            "" if row.max_abs_diff is None else f"{row.max_abs_diff:.0e}",
        )
        for row in results.rows
    ]


def _notes(results: Results) -> list[str]:
    lines = [f"growth of {name}: {value:.2f}" for name, value in results.growth.items()]
    lines += [
        f"limit {name}: {duration(value) if name.endswith('_s') else f'{value:.3g}'}"
        for name, value in results.limits.items()
    ]
    lines += [f"{name}: {value}" for name, value in results.facts.items()]
    lines += [
        f"{'met' if target.holds else 'MISSED'}: {target.text}, measured {target.value:.3g}"
        for target in results.targets
    ]
    lines += [f"skipped: {reason}" for reason in results.skipped]
    where = machine()
    versions = ", ".join(
        f"{name} {version}" for name, version in where["versions"].items()
    )
    return [*lines, f"on {where['cpu']}, one thread; {versions}"]


def _beside(row: Row) -> str:
    """A peer's time, and how many times ours it is: by the wall, and by the processor."""
    by_wall = f"{row.ratio:.1f}×" if row.ratio >= 10.0 else f"{row.ratio:.2f}×"
    by_cpu = _by_cpu(row)
    return f"{duration(row.peer_s)} ({by_wall}{f', CPU {by_cpu}' if by_cpu else ''})"


def plain(results: Results) -> str:
    cells = [HEADER, *_cells(results)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    table = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in cells
    ]
    return "\n".join([*(line.rstrip() for line in table), "", *_notes(results)])


def markdown(results: Results) -> str:
    """One row for each case, a column for each peer with its time over ours; the rest is JSON."""
    if results.suite == "hours":
        return hours_table.markdown(results.facts)
    others = [row for row in results.rows if not row.peer.startswith("our own")]
    peers = list(dict.fromkeys(row.peer for row in others))
    compared = any(row.max_abs_diff is not None for row in others)
    header = ["case", "ours", *peers, *(["largest difference"] if compared else [])]
    lines = [f"| {' | '.join(header)} |", f"|---{'|---:' * (len(header) - 1)}|"]
    for case in dict.fromkeys(row.case for row in others):
        rows = {row.peer: row for row in others if row.case == case}
        cells = [case, duration(next(iter(rows.values())).ours_s)]
        cells += [_beside(rows[peer]) if peer in rows else "" for peer in peers]
        if compared:
            differences = [
                row.max_abs_diff
                for row in rows.values()
                if row.max_abs_diff is not None
            ]
            cells.append(f"{max(differences):.0e}" if differences else "")
        lines.append(f"| {' | '.join(cells)} |")
    missed = [
        f"{target.text}, measured {target.value:.3g}"
        for target in results.targets
        if not target.holds
    ]
    met = f"{len(results.targets) - len(missed)} of {len(results.targets)} targets are met"
    return "\n".join(
        [*lines, "", f"{met}{'; missed: ' if missed else ''}{'; '.join(missed)}."]
    )
