"""Runs an experiment: cells over settings, seeds and policies, resumed where they are missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from superarm import __version__
from superarm.errors import ConflictError, InputError
from superarm.simulation import Run, Trace, cell_name, simulate, spread
from superarm.simulation.trace import atomic_write, json_bytes, write_cells, write_spec, write_trace

from .claims import judge, outcome_of
from .spec import Experiment, expand_settings


class Task(NamedTuple):
    """One seed in one setting, for the policies that are still missing: plain data."""

    experiment: str  # JSON
    setting: dict[str, Any]
    setting_index: int
    seed: int
    rounds: int
    policies: tuple[str, ...]
    out: str

    @property
    def work(self) -> int:
        """Rounds to play."""
        return self.rounds * len(self.policies)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment with everything settled that a command may override."""

    experiment: Experiment
    rounds: int
    seeds: int
    first_seed: int
    settings: Sequence[Mapping[str, Any]]
    out: Path

    @classmethod
    def make(
        cls,
        experiment: Experiment,
        *,
        out: Path,
        rounds: int | None = None,
        seeds: int | None = None,
        first_seed: int = 0,
        overrides: Mapping[str, Any] | None = None,
    ) -> Plan:
        """Overrides applied and checked; nothing is run or written."""
        fixed, settings = expand_settings(overrides or {})
        base = experiment.with_setting(fixed)
        for setting in settings:
            base.with_setting(setting)
        chosen_rounds = base.rounds if rounds is None else rounds
        chosen_seeds = base.seeds if seeds is None else seeds
        if chosen_rounds < 1 or chosen_seeds < 1 or first_seed < 0:
            raise InputError("rounds and seeds must be at least 1, and the seed not below 0")
        return cls(
            experiment=base,
            rounds=chosen_rounds,
            seeds=chosen_seeds,
            first_seed=first_seed,
            settings=settings,
            out=out,
        )

    def tasks(self) -> list[Task]:
        """What is not on disk yet, seed by seed."""
        tasks = []
        for index, setting in enumerate(self.settings):
            variant = json.dumps(self.experiment.with_setting(setting).as_json())
            for seed in range(self.first_seed, self.first_seed + self.seeds):
                missing = tuple(
                    policy
                    for policy in self.experiment.policies
                    if not (self.out / "cells" / f"{cell_name(policy, index, seed)}.npz").exists()
                )
                if missing:
                    task = Task(
                        variant, dict(setting), index, seed, self.rounds, missing, str(self.out)
                    )
                    tasks.append(task)
        return tasks

    def describe(self) -> dict[str, Any]:
        """What ``run.json`` holds."""
        world = self.experiment.with_setting(self.settings[0]).build_problem(
            seed=self.first_seed, horizon=self.rounds
        )
        plain = self.experiment.as_json()
        return {
            "experiment": self.experiment.id,
            "title": self.experiment.title,
            "paper": self.experiment.paper,
            "figure": self.experiment.figure,
            "rounds": self.rounds,
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "policies": list(self.experiment.policies),
            "settings": [dict(setting) for setting in self.settings],
            "parameters": {"problem": plain["problem"], "policies": plain["policies"]},
            "settled": dict(world.settled),
            "version": __version__,
        }


def play(task: Task) -> str:
    """Run one task and write its cells; each appears whole or not at all."""
    experiment = Experiment.from_mapping(json.loads(task.experiment), "task")
    world = experiment.build_problem(seed=task.seed, horizon=task.rounds)
    policies = {name: experiment.build_policy(name, world) for name in task.policies}
    trajectories = simulate(world, policies, rounds=task.rounds, seed=task.seed)
    for name, trajectory in trajectories.items():
        trace = Trace(
            policy=name,
            setting=task.setting,
            setting_index=task.setting_index,
            seed=task.seed,
            series=trajectory.series,
            choices=trajectory.choices,
            seconds=trajectory.seconds,
        )
        write_trace(task.out, trace)
    return ", ".join(task.policies)


def execute(
    plan: Plan,
    *,
    resume: bool = False,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Run what is missing and write ``summary.json``; returns the object the command prints.

    ``progress(done, total)`` counts rounds.
    """
    _claim_directory(plan, resume)
    tasks = plan.tasks()
    total = sum(task.work for task in tasks)
    done = 0

    def finished(task: Task, _: str) -> None:
        nonlocal done
        done += task.work
        if progress is not None:
            progress(done, total)

    if progress is not None:
        progress(0, total)
    spread(play, tasks, jobs=jobs, executor=executor, finished=finished)
    write_cells(plan.out)
    summary = summarise(Run.load(plan.out), plan.experiment)
    atomic_write(plan.out / "summary.json", json_bytes({**summary, "out": plan.out.name}))
    return {**summary, "out": str(plan.out)}


def summarise(run: Run, experiment: Experiment) -> dict[str, Any]:
    """Rows and claims, as the command line's JSON has them."""
    rows = []
    for index, setting in enumerate(run.settings):
        for policy in run.policies:
            seconds = float(run.seconds(policy, index).mean(dtype=float))
            for metric in run.metrics:
                outcome = outcome_of(run, policy, index, metric)
                rows.append(
                    {
                        "policy": policy,
                        "setting": dict(setting),
                        "metric": f"cumulative_{metric}",
                        "mean": outcome.mean,
                        "stderr": outcome.stderr,
                        "seconds_per_round": seconds,
                    }
                )
    return {
        "experiment": run.experiment,
        "rounds": run.rounds,
        "seeds": len(run.seeds),
        "rows": rows,
        "claims": [verdict.as_json() for verdict in judge(run, experiment.claims)],
    }


def _claim_directory(plan: Plan, resume: bool) -> None:
    """Make the directory ours, or say why it cannot be."""
    out = plan.out
    if out.exists() and not out.is_dir():
        raise ConflictError(f"{out} is a file; choose another --out")
    occupied = out.is_dir() and any(out.iterdir())
    if occupied and not resume:
        raise ConflictError(f"{out} is not empty; use --resume to go on there, or choose another --out")
    description = plan.describe()
    path = out / "run.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        now = json.loads(json_bytes(description))
        changed = sorted(key for key in now if before.get(key) != now[key])
        if changed:
            raise ConflictError(
                f"{out} holds another run: {', '.join(changed)} differ; choose another --out"
            )
        return
    if occupied:
        raise ConflictError(f"{out} holds files but no run.json: it is not a run; choose another --out")
    write_spec(out, description)
