"""Runs an experiment: cells over settings, seeds and policies, resumed where they are missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm import __version__
from superarm.capabilities import OWN_METRICS, AdditiveProblem, Forecaster, Measured
from superarm.errors import (
    ConflictError,
    InputError,
    MissingDataError,
    MissingExtraError,
    SpecError,
    SuperarmError,
)
from superarm.parts import import_parts, imported
from superarm.problems.base import Mapped, World
from superarm.problems.sources import settle_source
from superarm.results.curves import seconds_per_round
from superarm.simulation import Run, Trace, cell_name, simulate, spread
from superarm.simulation.files import (
    FOLDERS_OF_ANY,
    FOLDERS_OF_AUDITED,
    LOCK,
    atomic_write,
    is_temporary,
    json_bytes,
    remove_temporaries,
    run_lock,
)
from superarm.simulation.trace import read_spec, write_cells, write_map, write_spec, write_trace
from superarm.threads import pin_blas_threads

from .claims import judge, judge_variances, outcome_of
from .spec import Experiment, expand_settings

_MOST = {"rounds": 10**9, "seeds": 10**6, "seed": 2**63}
"""Beyond these no run fits into memory or on a disk."""


class Task(NamedTuple):
    """One seed in one setting, for the policies that are still missing: plain data."""

    experiment: str  # JSON
    setting: dict[str, Any]
    setting_index: int
    seed: int
    rounds: int
    policies: tuple[str, ...]
    out: str
    imports: tuple[str, ...]

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
    fixed: Mapping[str, Any]
    """Parameters that were replaced, the same in all settings."""
    audited: Sequence[str]
    """Policies whose forecasts and states are kept beside their traces."""
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
        """Overrides applied and checked down to the parts they build; nothing is run or written."""
        pin_blas_threads()  # caches keep what is made from here on, as workers would make it
        fixed, settings = expand_settings({**experiment.sweep, **(overrides or {})})
        base = experiment.with_setting(fixed)
        base, settings = _settle_sources(base, settings)
        variants = [base.with_setting(setting) for setting in settings]
        chosen_rounds = base.rounds if rounds is None else rounds
        chosen_seeds = base.seeds if seeds is None else seeds
        if chosen_rounds < 1 or chosen_seeds < 1 or first_seed < 0:
            raise InputError("rounds and seeds must be at least 1, and the seed not below 0")
        sizes = {"rounds": chosen_rounds, "seeds": chosen_seeds, "seed": first_seed}
        for name, size in sizes.items():
            if size > _MOST[name]:
                raise SpecError(f"{name} is too large; it can be at most {_MOST[name]}")
        audited: tuple[str, ...] = ()
        for variant in variants:
            audited = _rehearse(variant, seed=first_seed, horizon=chosen_rounds)
        return cls(
            experiment=base,
            rounds=chosen_rounds,
            seeds=chosen_seeds,
            first_seed=first_seed,
            settings=settings,
            fixed=fixed,
            audited=audited,
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
                    if not _is_done(self.out, cell_name(policy, index, seed), policy in self.audited)
                )
                if missing:
                    where = (str(self.out), tuple(imported()))
                    tasks.append(
                        Task(variant, dict(setting), index, seed, self.rounds, missing, *where)
                    )
        return tasks

    def describe(self) -> dict[str, Any]:
        """What ``run.json`` holds."""
        worlds = [
            self.experiment.with_setting(setting).build_problem(
                seed=self.first_seed, horizon=self.rounds
            )
            for setting in self.settings
        ]
        world = worlds[0]
        plain = self.experiment.as_json()
        return {
            "experiment": self.experiment.id,
            "title": self.experiment.title,
            "paper": self.experiment.paper,
            "figure": ", ".join(self.experiment.figures),
            "rounds": self.rounds,
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "policies": list(self.experiment.policies),
            "settings": [dict(setting) for setting in self.settings],
            "overrides": dict(self.fixed),
            "parameters": {key: plain[key] for key in ("problem", "policies", "feedback")},
            "settled": {**_promised(world), **world.settled, **self.experiment.feedback_told()},
            "metrics": {
                name: metric._asdict()
                for each in (
                    OWN_METRICS,
                    *(each.measures for each in worlds if isinstance(each, Measured)),
                )
                for name, metric in each.items()
            },
            "audited": list(self.audited),
            "noise_variance": [float(each.model.noise_variance) for each in worlds],
            "version": __version__,
        }


def _promised(world: World) -> dict[str, str]:
    """Why regret may be below zero, where the benchmark's oracle is not exact."""
    if "regret" in world.settled:  # the problem says it itself
        return {}
    alpha = world.best(world.offer(1)).guarantee.alpha
    if alpha == 1.0:
        return {}
    return {
        "regret": f"against the oracle under the truth, which promises {alpha:.3g} of the optimum: "
        "below zero where a policy found something better; alpha_regret, where the optimum is known, "
        "is against that share of it"
    }


def _settle_sources(
    base: Experiment, settings: list[dict[str, Any]]
) -> tuple[Experiment, list[dict[str, Any]]]:
    """Data that are "auto" named as what is at hand here, so that every worker uses the same."""
    if not any("problem.name" in setting for setting in settings):
        base = replace(base, problem=settle_source(base.problem))
    settled: list[dict[str, Any]] = []
    for setting in settings:
        before = base.with_setting(setting).problem
        after = settle_source(before)
        if after != before:
            key = "source" if "source" in setting else "problem.source"
            named = {**setting, key: after["source"]}
            if named in settings or named in settled:
                raise SpecError(f"source 'auto' is {after['source']!r} here, which is swept already")
            settled.append(named)
        else:
            settled.append(setting)
    return base, settled


def _rehearse(experiment: Experiment, *, seed: int, horizon: int) -> tuple[str, ...]:
    """Build everything and decide once, so that a bad value is a usage error and costs no time.

    Returns the policies that the runner will audit.
    """
    audited = []
    with _blaming("feedback"):
        experiment.build_lateness()
    with _blaming(f"problem {experiment.problem['name']!r}"):
        world = experiment.build_problem(seed=seed, horizon=horizon)
        offer = world.offer(1)
    for name in experiment.policies:
        with _blaming(f"policy {name!r}"):
            policy = experiment.build_policy(name, world)
            policy.decide(offer, np.random.default_rng(seed))
        if isinstance(world, AdditiveProblem) and isinstance(policy, Forecaster):
            audited.append(name)
    return tuple(audited)


@contextmanager
def _blaming(part: str) -> Iterator[None]:
    """What a part refuses came from a spec. Missing data or extras did not, nor did slips in code."""
    try:
        yield
    except (MissingDataError, MissingExtraError):
        raise
    except (SuperarmError, ValueError, ArithmeticError) as error:
        told = str(error).removeprefix(f"{part}: ")
        raise SpecError(f"{part}: {told}") from error


def play(task: Task) -> str:
    """Run one task and write its cells; each appears whole or not at all."""
    for source in task.imports:  # what the user's own process has imported
        import_parts(source)
    experiment = Experiment.from_mapping(json.loads(task.experiment), "task")
    world = experiment.build_problem(seed=task.seed, horizon=task.rounds)
    policies = {name: experiment.build_policy(name, world) for name in task.policies}
    trajectories = simulate(
        world, policies, rounds=task.rounds, seed=task.seed, lateness=experiment.build_lateness()
    )
    for name, trajectory in trajectories.items():
        trace = Trace(
            policy=name,
            setting=task.setting,
            setting_index=task.setting_index,
            seed=task.seed,
            series=trajectory.series,
            choices=trajectory.choices,
            propensities=trajectory.propensities,
            seconds=trajectory.seconds,
            audit=trajectory.audit,
            state=trajectory.state,
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
    with _claimed(plan, resume):
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
        _write_maps(plan)
        spread(play, tasks, jobs=jobs, executor=executor, finished=finished)
        write_cells(plan.out)
        summary = summarise(Run.load(plan.out), plan.experiment)
        atomic_write(plan.out / "summary.json", json_bytes({**summary, "out": plan.out.name}))
    return {**summary, "out": str(plan.out)}


def _write_maps(plan: Plan) -> None:
    """The roads of every setting whose arms are roads: a report draws on them."""
    for index, setting in enumerate(plan.settings):
        variant = plan.experiment.with_setting(setting)
        world = variant.build_problem(seed=plan.first_seed, horizon=plan.rounds)
        if isinstance(world, Mapped):
            write_map(plan.out, index, world.road_map())


def summarise(run: Run, experiment: Experiment) -> dict[str, Any]:
    """Rows and claims, as the command line's JSON has them."""
    rows = []
    for index, setting in enumerate(run.settings):
        for policy in run.policies:
            seconds = seconds_per_round(run, policy, index)
            for metric in run.metrics:
                outcome = outcome_of(run, policy, index, metric)
                rows.append(
                    {
                        "policy": policy,
                        "setting": dict(setting),
                        "metric": row_name(metric),
                        "mean": outcome.mean,
                        "stderr": outcome.stderr,
                        "seconds_per_round": seconds,
                    }
                )
    return {
        "experiment": run.experiment,
        "rounds": run.rounds,
        "seeds": len(run.seeds),
        "metrics": {row_name(metric): run.metric(metric)._asdict() for metric in run.metrics},
        "rows": rows,
        "claims": [
            verdict.as_json() for verdict in (*judge(run, experiment.claims), *judge_variances(run))
        ],
    }


def row_name(metric: str) -> str:
    """What a metric's total is called in rows: running totals of regret and reward say so."""
    return f"cumulative_{metric}" if metric in ("regret", "reward") else metric


def _is_done(out: Path, cell: str, audited: bool) -> bool:
    folders = FOLDERS_OF_AUDITED if audited else FOLDERS_OF_ANY
    return all((out / folder / f"{cell}.npz").is_file() for folder in folders)


@contextmanager
def _claimed(plan: Plan, resume: bool) -> Iterator[None]:
    """The directory is ours while the block runs, or we say why it cannot be."""
    out, description = plan.out, plan.describe()
    there = out.exists()
    if there and not out.is_dir():
        raise ConflictError(f"{out} is a file; choose another --out")
    entries = {path.name for path in out.iterdir()} - {LOCK} if there else set()
    if entries and not resume:
        raise ConflictError(f"{out} is not empty; use --resume to go on there, or choose another --out")
    if "run.json" in entries:
        before, now = read_spec(out), json.loads(json_bytes(description))
        changed = sorted(key for key in now if before.get(key) != now[key])
        if changed:
            raise ConflictError(
                f"{out} holds another run: {', '.join(changed)} differ; choose another --out"
            )
        with run_lock(out):
            remove_temporaries(out)
            yield
        return
    if not all(is_temporary(name, ("run.json",)) for name in entries):
        raise ConflictError(f"{out} holds files but no run.json: it is not a run; choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=there)
    except FileExistsError:
        raise ConflictError(f"{out} has just been taken by another run; choose another --out") from None
    with run_lock(out):
        if (out / "run.json").exists():
            raise ConflictError(f"{out} has just been taken by another run; choose another --out")
        remove_temporaries(out)
        write_spec(out, description)
        yield
