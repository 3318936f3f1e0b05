"""``python -m bench SUITE [--json | --markdown] [--quick] [--repeats R] [--stored FILE]``.

``python -m bench all`` runs every suite with peers, one after the other: that is ``make bench``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

# Every BLAS reads these when it is loaded, so that they must stand before numpy is imported.
for _name in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB_MAXIMUM", "NUMEXPR", "NUMBA"):
    os.environ[
        f"{_name}_NUM_THREADS" if _name != "VECLIB_MAXIMUM" else f"{_name}_THREADS"
    ] = "1"

SUITES = (
    "hand", "streaming", "finite", "network", "combinatorial", "drift", "movement", "threads", "startup",
    "service", "scale", "hours",
)  # fmt: skip

ALL = "all"
LEFT_OUT = {
    "hand": "its rows are part of finite, drift, combinatorial and streaming",
    "hours": "it has no peers: it compares two fleets in SUMO",
    "scale": "it has no peers: it measures what docs/scale.md computes with",
}
"""Suites that ``all`` leaves out, and why."""


def run_all(options: list[str]) -> int:
    """Run every suite with peers in a process of its own; returns how many failed.

    Args:
        options: Options that every suite gets.
    """
    failed = []
    for suite in SUITES:
        if suite in LEFT_OUT:
            continue
        print(f"bench {suite}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "bench", suite, *options]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(suite)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="superarm beside its peers"
    )
    parser.add_argument("suite", choices=(*SUITES, ALL))
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one line of JSON")
    shape.add_argument(
        "--markdown", action="store_true", help="the table of bench/README.md"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: does it run and agree?"
    )
    parser.add_argument(
        "--repeats", type=int, default=None, help="how often each thing is timed"
    )
    parser.add_argument(
        "--stored", type=Path, help="measure nothing, show what --json printed before"
    )
    options = parser.parse_args(arguments)
    if options.repeats is not None and options.repeats < 1:
        parser.error("--repeats must be at least 1")
    if options.suite == ALL:
        if options.stored is not None:
            parser.error("--stored needs the suite of the file, not all")
        given = sys.argv[1:] if arguments is None else arguments
        return min(run_all([word for word in given if word != ALL]), 1)

    from superarm.core.threads import pin_blas_threads

    from . import show
    from .measure import Results

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # tables have signs that ASCII lacks
    pin_blas_threads()
    if options.stored is not None:
        results = Results.from_json(
            json.loads(options.stored.read_text(encoding="utf-8"))
        )
    else:
        suite = importlib.import_module(f".{options.suite}", __package__)
        results = suite.run(quick=options.quick, repeats=options.repeats)
    if options.json:
        print(json.dumps(results.as_json(), allow_nan=False))
    else:
        print(show.markdown(results) if options.markdown else show.plain(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
