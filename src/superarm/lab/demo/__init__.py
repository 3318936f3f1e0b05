"""``superarm demo``: watch a car learn its way through a city, then compare it with others.

Works on the core install and offline. It draws in the terminal while it learns, and writes
a run that ``superarm report`` understands, with an animated picture.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from superarm.core.errors import ConflictError, StateError
from superarm.core.states import atomic_write
from superarm.lab.experiments import Plan, execute, load_experiment
from superarm.lab.report import write_report
from superarm.lab.simulation import Run
from superarm.lab.simulation.executors import available_cores
from superarm.lab.simulation.files import FOLDERS_OF_CELLS, is_temporary, read_json
from superarm.lab.simulation.run_spec import write_spec

from .learning import describe_city, learn, make_world
from .picture import animated_svg
from .result import Outcome, print_outcome
from .terminal import display

__all__ = ["ROUNDS", "run_demo"]

EXPERIMENT = "demo/city"
ROUNDS = 50
"""Trips by default: the experiment's own length."""
_FILES = (
    "run.json",
    "cells.jsonl",
    "summary.json",
    "report.html",
    "learning.svg",
    "figures",
)
_OURS = frozenset((*FOLDERS_OF_CELLS, "maps", *_FILES))
_WORTH_PROCESSES = 40  # number of rounds that makes other processes worth starting


def run_demo(
    *,
    out: Path,
    rounds: int = ROUNDS,
    seed: int = 0,
    quiet: bool = False,
    silent: bool = False,
    delay: float = 0.05,
) -> dict[str, Any]:
    """Learn, draw, compare and report; returns what ``--json`` prints.

    Args:
        out: The folder of the run; an earlier demo in it is replaced.
        rounds: The number of trips.
        seed: The first seed, which the animation shows.
        quiet: Print the result alone.
        silent: Print nothing.
        delay: Seconds to wait after each frame in the terminal.
    """
    _require_room(out)
    console = Console(quiet=quiet or silent)
    results = Console(quiet=silent)
    experiment = load_experiment(EXPERIMENT)
    problem = make_world(experiment, rounds=rounds, seed=seed)
    city = describe_city(problem)
    console.print(
        "An electric car makes the same trip every day. It learns how much energy each\n"
        "road takes. Each measurement also improves its forecasts for similar roads.\n"
        f"The animation shows seed {seed} of {experiment.seeds}; every seed has its own road energies.\n",
        highlight=False,
    )
    with display(console, city, rounds, delay) as show:
        frames = learn(experiment, problem, rounds=rounds, seed=seed, show=show)
    _make_room(out)
    plan = Plan.make(experiment, out=out, rounds=rounds, first_seed=seed)
    picture = animated_svg(city, frames, seed, experiment.seeds)
    write_spec(out, plan.describe())
    # Early, since the next demo recognises this one by it.
    atomic_write(out / "learning.svg", picture.encode())
    jobs = available_cores() if rounds >= _WORTH_PROCESSES else 1
    others = f"{len(experiment.policies) - 1} other policies"
    words = f"Now comparing it with {others} over {experiment.seeds} seeds …"
    with _progress(console, words) as progress:
        summary = execute(plan, resume=True, jobs=jobs, progress=progress)
    run = Run.load(out)
    outcome = Outcome.from_run(run)
    notes = (
        outcome.conclusion(),
        f"{outcome.seeds_text()} The animation: first the roads, from low (green) to high (brown), "
        "those tried in orange, today's trip in blue; then the energy of each trip and its forecast, "
        "next to routes chosen without learning.",
    )
    page = out / "report.html"
    write_report(
        run,
        summary["claims"],
        page,
        notes,
        picture=picture,
        command=("superarm", "run", EXPERIMENT),
        full_size=(experiment.rounds, experiment.seeds),
    )
    print_outcome(results, outcome)
    where = f"\nThe report, with the animation: {page}"
    # A terminal cannot follow a path that is broken over lines.
    results.print(where, markup=False, soft_wrap=True)
    return {**summary, "trips": outcome.as_json(), "conclusion": outcome.conclusion()}


@contextmanager
def _progress(
    console: Console, words: str
) -> Iterator[Callable[[int, int], None] | None]:
    """Print a line; in a terminal, with the share that is done."""
    if not console.is_terminal or console.is_dumb_terminal:
        console.print(f"\n{words}", highlight=False)
        yield None
        return
    console.print()
    with console.status(words) as status:

        def update(done: int, total: int) -> None:
            status.update(f"{words} {done / max(total, 1):.0%}")

        yield update
    console.print(words, highlight=False)


def _require_room(out: Path) -> None:
    """Refuse a folder with anything but an earlier demo."""
    if out.exists() and not out.is_dir():
        raise ConflictError(f"{out} is a file; choose another --out")
    entries = {path.name for path in out.iterdir()} if out.exists() else set()
    if not entries:
        return
    foreign = {name for name in entries - _OURS if not is_temporary(name, _OURS)}
    try:
        experiment = read_json(out / "run.json")["experiment"]
    except (StateError, KeyError, TypeError):
        experiment = None
    # Runs of the same experiment may have cost hours. Only demos have the picture.
    if foreign or "learning.svg" not in entries or experiment != EXPERIMENT:
        raise ConflictError(
            f"{out} contains files that are not from a demo; choose another --out"
        )


def _make_room(out: Path) -> None:
    """Remove an earlier demo; late, so that an interrupted demo leaves it intact."""
    _require_room(out)
    if not out.exists():
        return
    for path in list(out.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
