"""What a user waits for before anything happens: imports, in fresh processes.

``superarm --help`` must load no submodule of scipy: each costs tens of milliseconds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial

from .measure import Results, Target, at_most, row, seconds, without_gc

PROGRAMS = {
    "python -c pass": "pass",
    "import numpy": "import numpy",
    "import superarm": "import superarm",
    "import superarm.posteriors": "import superarm.posteriors",
    "superarm --help": "import sys, superarm.cli; sys.argv[1:] = ['--help']; superarm.cli.main()",
}
LIMIT_S = 0.3

_LOADED = """
import contextlib, io, json, sys
sys.argv[1:] = ["--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    import superarm.cli
    superarm.cli.main()
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] == "scipy")))
"""


def _fresh(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return done.stdout


def scipy_modules_of_help() -> list[str]:
    """Modules of scipy that ``superarm --help`` loads; there should be none."""
    modules: list[str] = json.loads(_fresh(_LOADED))
    return modules


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    repeats = repeats or (3 if quick else 11)
    times: dict[str, list[float]] = {}
    skipped = []
    for name, program in PROGRAMS.items():
        try:
            _fresh(program)  # writes the bytecode
            times[name] = []
        except RuntimeError as error:
            skipped.append(f"{name}: it fails here ({error})")
    with without_gc():
        for _ in range(repeats):
            for name, taken in times.items():
                taken.append(seconds(partial(_fresh, PROGRAMS[name])))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    rows = [
        row(ours, medians[ours], peer, medians[peer], None)
        for ours in ("import superarm", "import superarm.posteriors", "superarm --help")
        for peer in ("python -c pass", "import numpy")
        if ours in medians
    ]
    targets = [
        at_most(f"{name}, seconds", medians[name], LIMIT_S)
        for name in ("import superarm",)
        if name in medians
    ]
    facts = {}
    if "superarm --help" in medians:
        loaded = scipy_modules_of_help()
        facts["modules of scipy that superarm --help loads"] = loaded
        targets.append(
            Target(
                text="superarm --help loads no scipy",
                value=float(len(loaded)),
                holds=not loaded,
            )
        )
    return Results(
        suite="startup", rows=rows, facts=facts, targets=targets, skipped=skipped
    )
