"""Executing a plan: claim its directory, play what is missing, summarise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from superarm.core.errors import ConflictError
from superarm.core.states import atomic_write
from superarm.lab.simulation import Run, spread
from superarm.lab.simulation.files import (
    EARLIER,
    LOCK,
    is_temporary,
    json_bytes,
    remove_temporaries,
    run_lock,
    set_aside,
)
from superarm.lab.simulation.run import write_cells
from superarm.lab.simulation.run_spec import read_spec, write_spec

from .agreement import agree
from .plans import Plan, Task
from .playing import play
from .summaries import summarise
from .warm_starts import RestartReason

_CHANGEABLE = {"imports", "schema", "title"}
"""Keys of ``run.json`` that may differ: where parts come from, and what the run is called."""
_DEPENDENT_ON_ROUNDS = {"rounds", "horizons", "settled", "metrics", "noise_variance"}
"""Keys of ``run.json`` that may differ where a run is made longer."""
_DERIVED = {"settled", "noise_variance"}
"""Keys of ``run.json`` that are computed: their last digits depend on the processor."""


def execute(
    plan: Plan,
    *,
    resume: bool = False,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    notify: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run what is missing and write ``summary.json``; returns the object the command prints.

    Args:
        plan: what to run.
        resume: whether the directory may hold part of this run, or a shorter one.
        jobs: how many processes play tasks.
        executor: plays tasks in place of local processes.
        progress: called as ``progress(done, total)``, in rounds.
        notify: called with a sentence if nothing is left to run, and for each policy that restarts
            where a run is made longer.
    """
    with _claim_directory(plan, resume):
        tasks = plan.tasks()
        reasons = _play_tasks(tasks, jobs, executor, progress)
        if notify is not None:
            if not tasks:
                notify(f"{plan.out}: nothing left to run")
            for policy, why in sorted(reasons):
                notify(f"{policy} restarted from round 1: {why}")
        for part in (plan, *plan.reruns):
            remove_temporaries(part.out)  # of workers that were killed
        run = Run.load(plan.out)
        write_cells(run)
        summary = summarise(run, plan.experiment)
        content = json_bytes({**summary, "out": plan.out.name})
        atomic_write(plan.out / "summary.json", content)
        for part in (plan, *plan.reruns):
            rmtree(part.out / EARLIER, ignore_errors=True)
    return {**summary, "out": str(plan.out)}


def _play_tasks(
    tasks: list[Task],
    jobs: int,
    executor: Executor | None,
    progress: Callable[[int, int], None] | None,
) -> set[RestartReason]:
    """Play all tasks; returns which policies had to start again."""
    reasons: set[RestartReason] = set()
    total = sum(task.work for task in tasks)
    done = 0

    def report() -> None:
        if progress is not None:
            progress(done, total)

    def finish(task: Task, task_reasons: list[RestartReason]) -> None:
        nonlocal done
        done += task.work
        reasons.update(task_reasons)
        report()

    report()
    spread(play, tasks, jobs=jobs, executor=executor, finished=finish)
    return reasons


# --- the directory of a run ----------------------------------------------------------------


@contextmanager
def _claim_directory(plan: Plan, resume: bool) -> Iterator[None]:
    """Hold the directory's lock while the block runs, or raise why it cannot be had."""
    out = plan.out
    existed = out.exists()
    has_begun = _check_directory(plan, resume)
    taken = ConflictError(
        f"{out} has just been claimed by another run; choose another --out"
    )
    try:
        out.mkdir(parents=True, exist_ok=existed)
    except FileExistsError:
        raise taken from None
    with run_lock(out):
        if not has_begun and (out / "run.json").exists():
            raise taken
        # The plan's own run.json comes first: with it the run has begun.
        for part in (plan, *plan.reruns):
            _prepare(part)
        yield


def _check_directory(plan: Plan, resume: bool) -> bool:
    """Whether the directory holds this run already; raises if it holds anything else."""
    out = plan.out
    entries = _entries(out)
    if entries and not resume:
        raise ConflictError(
            f"{out} is not empty; continue it with --resume, or choose another --out"
        )
    if "run.json" in entries:
        for part in (plan, *plan.reruns):
            _check_same(part)
        return True
    if not all(is_temporary(name, ("run.json",)) for name in entries):
        raise ConflictError(
            f"{out} is not empty and contains no run; choose another --out"
        )
    return False


def _entries(out: Path) -> set[str]:
    """Names in a directory that may not exist, without the lock."""
    if not out.exists():
        return set()
    if not out.is_dir():
        raise ConflictError(f"{out} is a file; choose another --out")
    return {path.name for path in out.iterdir()} - {LOCK}


def _prepare(plan: Plan) -> None:
    """Remove what an interrupted run left, move a shorter run aside, and write ``run.json``."""
    remove_temporaries(plan.out)
    if not (plan.out / "run.json").exists():
        write_spec(plan.out, plan.describe())
    elif read_spec(plan.out)["rounds"] < plan.rounds:
        set_aside(plan.out)
        write_spec(plan.out, plan.describe())


def _check_same(plan: Plan) -> None:
    """Refuse to continue a run that is neither this plan nor a shorter one."""
    if not (plan.out / "run.json").exists():
        return
    before = read_spec(plan.out)
    now = json.loads(json_bytes(plan.describe()))
    compared = {*now, *before} - _CHANGEABLE
    if before["rounds"] < now["rounds"]:
        compared -= _DEPENDENT_ON_ROUNDS
    changed = [
        key
        for key in sorted(compared)
        if not _is_same(key, before.get(key), now.get(key))
    ]
    if changed:
        raise ConflictError(
            f"{plan.out} contains a different run ({_differ_text(changed)}); choose another --out"
        )


def _differ_text(keys: Sequence[str]) -> str:
    """``rounds differ``, ``overrides and parameters differ``."""
    *others, last = keys
    if others:
        return f"{', '.join(others)} and {last} differ"
    return f"{last} differ{'' if last.endswith('s') else 's'}"


def _is_same(key: str, before: Any, now: Any) -> bool:
    """Whether a value of ``run.json`` is the same, but for rounding where it is computed."""
    if before == now:
        return True
    return key in _DERIVED and agree(before, now)
