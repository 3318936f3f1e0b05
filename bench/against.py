"""This checkout beside an earlier commit: are benchmarks as fast, and experiments the same?

::

    python -m bench.against COMMIT SUITE…                # small sizes, twelve pairs
    python -m bench.against COMMIT SUITE… --full         # the sizes of bench/README.md
    python -m bench.against COMMIT --experiments         # every shipped experiment, first seed
    python -m bench.against COMMIT --experiments ID…     # some of them

COMMIT is checked out into a temporary worktree. Each side runs its own suites on its own package, in
fresh processes that take turns; only the times of *ours* count, all by the clock of the processor
(``processor_clock.py``). ``paired.py`` has the statistics.

The tables are Markdown. The exit code is 1 if a suite is slower, or an experiment gives other numbers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from . import against_experiments
from .paired import LEAST_PAIRS, Comparison, Overall, overall
from .sides import ROOT, Side, worktree

SUITES = (
    *("streaming", "finite", "hand", "drift"),
    *("combinatorial", "movement", "network", "startup"),
)
"""Suites that compare what one process computes."""


# --- benchmarks --------------------------------------------------------------------------


def times_of(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The time of ours in every case of a suite, seconds.

    Args:
        rows: The rows that ``--json`` printed. A case has one for each of its peers, often with the
            same time of ours: the first row counts.
    """
    times: dict[str, float] = {}
    for row in rows:
        times.setdefault(row["case"], row["ours_s"])
    return times


def measure(side: Side, suite: str, options: Sequence[str]) -> dict[str, float]:
    """Run a suite once in a fresh process.

    Args:
        side: The checkout.
        suite: The suite's name.
        options: Further options of ``python -m bench``.
    """
    done = side.run(["bench", suite, "--json", *options])
    if done.returncode:
        raise SystemExit(f"{suite} fails in {side.root}:\n{done.stderr.strip()}")
    return times_of(json.loads(done.stdout)["rows"])


def compare_suite(
    old: Side, new: Side, suite: str, pairs: int, options: Sequence[str]
) -> list[Comparison]:
    """The cases that both sides have, measured in alternating pairs.

    Args:
        old: The earlier commit.
        new: This checkout.
        suite: The suite's name.
        pairs: How many pairs.
        options: Further options of ``python -m bench``.
    """
    # One more run of each compiles modules and loops, and is not counted.
    for side in (old, new):
        measure(side, suite, options)
    olds: list[dict[str, float]] = []
    news: list[dict[str, float]] = []
    turn = [(old, olds), (new, news)]
    for _ in range(pairs):
        for side, times in turn:
            times.append(measure(side, suite, options))
        turn.reverse()  # neither side always comes after the other
    cases = [case for case in olds[0] if case in news[0]]
    if not cases:
        raise SystemExit(f"{suite} has no case that both sides measure")
    unmatched = sorted(olds[0].keys() ^ news[0].keys())
    if unmatched:
        print(f"{suite}: on one side only: {', '.join(unmatched)}", file=sys.stderr)
    return [
        Comparison(
            case=case,
            old=[times[case] for times in olds],
            new=[times[case] for times in news],
        )
        for case in cases
    ]


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    if seconds < 1.0:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s"


def table(suite: str, cases: Sequence[Comparison], together: Overall) -> str:
    """A table in Markdown.

    Args:
        suite: The suite's name.
        cases: Its cases.
        together: All of them.
    """
    lines = [
        f"| {suite} | old | new | new over old | 95 % | verdict |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for case in cases:
        lower, upper = case.interval
        old = _time(statistics.median(case.old))
        new = _time(statistics.median(case.new))
        lines.append(
            f"| {case.case} | {old} | {new} | {case.ratio:.3f} | {lower:.3f} to {upper:.3f} "
            f"| {case.interval.verdict} |"
        )
    lower, upper = together.interval
    lines.append(
        f"| *all {len(cases)} cases* | | | *{together.ratio:.3f}* | *{lower:.3f} to {upper:.3f}* "
        f"| *{together.interval.verdict}* |"
    )
    return "\n".join(lines)


def compare_suites(
    old: Side, new: Side, suites: Sequence[str], pairs: int, options: Sequence[str]
) -> bool:
    """Print a table for every suite; returns whether none is slower.

    Args:
        old: The earlier commit.
        new: This checkout.
        suites: Names of suites.
        pairs: How many pairs of each.
        options: Further options of ``python -m bench``.
    """
    is_as_fast = True
    for suite in suites:
        cases = compare_suite(old, new, suite, pairs, options)
        together = overall(cases)
        print(table(suite, cases, together), end="\n\n", flush=True)
        if together.interval.verdict == "slower":
            is_as_fast = False
    return is_as_fast


# --- command line ------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.against",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument(
        "names", nargs="*", help=f"suites ({', '.join(SUITES)}), or experiments"
    )
    parser.add_argument(
        "--experiments", action="store_true", help="compare experiments, not times"
    )
    parser.add_argument("--pairs", type=int, default=12, help="pairs of runs")
    parser.add_argument("--full", action="store_true", help="full sizes, for hours")
    parser.add_argument(
        "--rounds", type=int, help="rounds of every experiment; default: few"
    )
    # Names may follow an option.
    options = parser.parse_intermixed_args(arguments)
    if options.pairs < LEAST_PAIRS:
        parser.error(f"--pairs must be at least {LEAST_PAIRS}")
    if not options.experiments:
        unknown = [name for name in options.names if name not in SUITES]
        if unknown or not options.names:
            parser.error(f"suites are: {', '.join(SUITES)}")
    new = Side(ROOT)
    with worktree(options.commit) as old:
        if options.experiments:
            agrees = against_experiments.compare_experiments(
                old, new, options.names, options.rounds
            )
        else:
            sizes = [] if options.full else ["--quick"]
            agrees = compare_suites(old, new, options.names, options.pairs, sizes)
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
