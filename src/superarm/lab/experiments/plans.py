"""What an experiment runs: cells over settings, seeds and policies, resumed where they are missing."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import numpy as np

from superarm import __version__
from superarm.core import Policy
from superarm.core.capabilities import (
    OWN_METRICS,
    AdditiveProblem,
    Forecaster,
    HasMetrics,
    Metric,
    ReportsSettings,
)
from superarm.core.errors import (
    ConflictError,
    FileError,
    MissingDataError,
    MissingExtraError,
    SpecError,
    SuperarmError,
)
from superarm.core.inputs import as_count
from superarm.core.plugins import import_parts, imported
from superarm.core.registry import family_of, suggestion
from superarm.core.states import atomic_write
from superarm.core.streams import stream
from superarm.core.threads import pin_blas_threads
from superarm.lab.problems.sources import settle_source
from superarm.lab.results.curves import thinned
from superarm.lab.results.formats import setting_text
from superarm.lab.simulation import Run, cell_name, simulate, spread, write_trace
from superarm.lab.simulation.files import (
    EARLIER,
    FOLDERS_OF_ANY,
    FOLDERS_OF_AUDITED,
    LOCK,
    is_temporary,
    json_bytes,
    remove_temporaries,
    run_lock,
    set_aside,
)
from superarm.lab.simulation.illustrations import (
    TreeMasses,
    TruthRecord,
    write_masses,
    write_shown,
)
from superarm.lab.simulation.run import write_cells
from superarm.lab.simulation.run_spec import MOST_CELLS, read_spec, write_spec
from superarm.models.worlds import HasRoadMap, SharedData, World
from superarm.movement import frt_tree
from superarm.policies.movement import TreeWalker
from superarm.rewards import Sum

from .agreement import agree
from .spec import Experiment, expand_settings
from .summaries import summarise
from .warm_starts import Begun, Cell, RestartReason, Start, begun, earlier, find_starts

Settings = list[dict[str, Any]]
_MOST_DRAWN = 500
_OF_ROUNDS = {"rounds", "horizons", "settled", "metrics", "noise_variance"}
"""What of ``run.json`` may be another where a run is made longer."""
_DERIVED = {"settled", "noise_variance"}
"""What of ``run.json`` is computed: its last digits depend on the processor."""


class Task(NamedTuple):
    """One seed in one setting, for the policies that are still missing."""

    plan: Plan
    setting_index: int
    seed: int
    policies: tuple[str, ...]
    imports: tuple[str, ...]
    shown: bool  # whether the setting's roads and its truth are written with it

    @property
    def work(self) -> int:
        return self.plan.rounds * len(self.policies)


class Facts(NamedTuple):
    """What is kept of the world of one setting, which is made once before anything runs."""

    audited: tuple[
        str, ...
    ]  # policies whose forecasts and states are kept beside their traces
    noise_variance: float
    interpretations: Mapping[str, str]
    metrics: Mapping[str, Metric]
    mapped: bool  # whether its arms are roads
    shared_data: float = (
        0.0  # of a seed's records, the share that another seed uses, too
    )
    independent_seeds: float | None = (
        None  # how many all seeds are worth at most, where that is known
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment with everything settled that a command may override."""

    experiment: Experiment
    policies: Sequence[str]
    rounds: int
    seeds: int
    first_seed: int
    settings: Sequence[Mapping[str, Any]]
    fixed: Mapping[str, Any]  # parameters that were replaced, the same in all settings
    facts: Sequence[Facts]  # of each setting
    out: Path
    starts: Mapping[str, Start] = field(
        default_factory=dict
    )  # of the policies that begin with a state
    first: int = (
        1  # the number of the first round: after those that the states have seen
    )
    reruns: Sequence[
        Plan
    ] = ()  # policies run again for each shorter horizon, as runs below ``out``

    @classmethod
    def make(
        cls,
        experiment: Experiment,
        *,
        out: Path | str,
        rounds: int | None = None,
        seeds: int | None = None,
        first_seed: int = 0,
        overrides: Mapping[str, Any] | None = None,
        states: Sequence[str] = (),
    ) -> Plan:
        """Overrides applied and checked down to the parts they build; nothing is run or written.

        ``states`` are files of states with which policies begin, as ``FILE`` or ``POLICY=FILE``.
        """
        out = Path(out)
        pin_blas_threads()  # caches keep what is made from here on, as workers would make it
        fixed, settings = expand_settings({**experiment.sweep, **(overrides or {})})
        base = experiment.with_setting(fixed)
        base, settings = _settle_sources(base, settings)
        variants = [base.with_setting(setting) for setting in settings]
        with _blaming(base.id):  # beyond these no run fits into memory or on a disk
            rounds = as_count(
                base.rounds if rounds is None else rounds, "rounds", 1, 10**9
            )
            seeds = as_count(base.seeds if seeds is None else seeds, "seeds", 1, 10**6)
            as_count(first_seed, "seed", 0, 2**63)
        cells = len(settings) * seeds * len(base.policies)
        if cells > MOST_CELLS:
            raise SpecError(
                f"a run may have at most {MOST_CELLS:,} cells, got {cells:,} ({len(settings):,} "
                f"settings × {seeds:,} seeds × {len(base.policies)} policies); split it into several "
                "runs"
            )
        starts, first = find_starts(variants[0], states, seed=first_seed, rounds=rounds)
        rehearse = partial(_rehearse, seed=first_seed, first=first, starts=starts)
        plan = cls(
            experiment=base,
            policies=tuple(base.policies),
            rounds=rounds,
            seeds=seeds,
            first_seed=first_seed,
            settings=settings,
            fixed=fixed,
            facts=[rehearse(each, each.policies, rounds=rounds) for each in variants],
            out=out,
            starts=starts,
            first=first,
        )
        plan._check_metrics()
        again = tuple(
            name for name in base.policies if name in (base.rerun or base.policies)
        )
        reruns = [
            replace(
                plan,
                policies=again,
                rounds=horizon,
                facts=[rehearse(each, again, rounds=horizon) for each in variants],
                out=out / "horizons" / str(horizon),
            )
            for horizon in base.horizons
            if again and horizon < rounds
        ]
        return replace(plan, reruns=reruns)

    def _check_metrics(self) -> None:
        """Refuse a metric that no setting has, where every problem says which it has."""
        known = {name for facts in self.facts for name in facts.metrics}
        if any(facts.metrics.keys() <= OWN_METRICS.keys() for facts in self.facts):
            return
        base = self.experiment
        wanted = [(f"derived {each['name']!r}", each) for each in base.derived]
        wanted += [("[chart]: curves", each) for each in base.chart.get("curves", ())]
        for part, each in wanted:
            if (metric := each.get("metric", "regret")) not in known:
                told = f"{base.id}: {part}: nothing measures {metric!r}"
                raise SpecError(f"{told}; {suggestion(metric, known, 'there are')}")

    @property
    def horizon(self) -> int:
        """The number of the last round."""
        return self.first - 1 + self.rounds

    def tasks(self) -> list[Task]:
        """What is not on disk yet: shorter horizons first, then seed by seed."""
        tasks = [task for plan in self.reruns for task in plan.tasks()]
        alone = replace(self, reruns=(), facts=())  # as much as a worker needs
        for index, facts in enumerate(self.facts):
            chart = self.experiment.chart
            wanted = {
                "maps": facts.mapped,
                "truths": chart.get("truth"),
                "trees": chart.get("tree"),
            }
            files = [
                self.out / folder / f"s{index}.npz"
                for folder in wanted
                if wanted[folder]
            ]
            hidden = not all(path.is_file() for path in files)
            for seed in range(self.first_seed, self.first_seed + self.seeds):
                missing = tuple(
                    name for name in self.policies if not self._has(name, index, seed)
                )
                shown = hidden and seed == self.first_seed
                task = Task(
                    alone, index, seed, missing, imports=tuple(imported()), shown=shown
                )
                tasks += [task] if missing or task.shown else []
        return tasks

    def _has(self, policy: str, setting_index: int, seed: int) -> bool:
        audited = policy in self.facts[setting_index].audited
        file = f"{cell_name(policy, setting_index, seed)}.npz"
        folders = FOLDERS_OF_AUDITED if audited else FOLDERS_OF_ANY
        return all((self.out / folder / file).is_file() for folder in folders)

    def describe(self) -> dict[str, Any]:
        """What ``run.json`` holds."""
        plain = self.experiment.as_json()
        audited = {name for facts in self.facts for name in facts.audited}
        starts = {name: start.told for name, start in self.starts.items()}
        shared = [facts.shared_data for facts in self.facts]
        independent = [facts.independent_seeds for facts in self.facts]
        return {
            "experiment": self.experiment.id,
            "title": self.experiment.title,
            "paper": self.experiment.paper,
            "figure": ", ".join(self.experiment.figure),
            "rounds": self.rounds,
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "policies": list(self.policies),
            "settings": [dict(setting) for setting in self.settings],
            "horizons": [plan.rounds for plan in self.reruns],
            "derived": [dict(each) for each in self.experiment.derived],
            "chart": dict(self.experiment.chart),
            "overrides": dict(self.fixed),
            "parameters": {
                key: plain[key] for key in ("problem", "policies", "feedback")
            },
            "settled": [facts.interpretations for facts in self.facts],
            "metrics": [
                {name: metric._asdict() for name, metric in facts.metrics.items()}
                for facts in self.facts
            ],
            "audited": [name for name in self.policies if name in audited],
            "noise_variance": [facts.noise_variance for facts in self.facts],
            **({"shared_data": shared} if any(shared) else {}),
            **({"independent_seeds": independent} if any(independent) else {}),
            **({"states": starts} if starts else {}),
            "imports": imported(),
            "version": __version__,
        }


def _rehearse(
    experiment: Experiment,
    policies: Iterable[str],
    *,
    seed: int,
    rounds: int,
    first: int,
    starts: Mapping[str, Start],
) -> Facts:
    """Build everything once, so that a bad value is a usage error and costs no time."""
    with _blaming("feedback"):
        experiment.build_lateness()
    with _blaming(f"problem {experiment.problem['name']!r}"):
        world = experiment.build_problem(seed=seed, horizon=first - 1 + rounds)
        interpretations = {**_settled(world), **experiment.feedback_told()}
        if truth := experiment.chart.get("truth"):
            _check_drawn(world, truth)
    audited = []
    for name in policies:
        with _blaming(f"policy {name!r}"):
            policy = begun(
                experiment.build_policy(name, world), start := starts.get(name)
            )
        if start is not None:
            interpretations[f"{name} begins"] = (
                f"with what {start.file.name} holds; rounds are numbered from {first} on"
            )
        if isinstance(world, AdditiveProblem) and isinstance(policy, Forecaster):
            audited.append(name)
        if isinstance(policy, ReportsSettings) and policy.interpretations:
            interpretations[name] = policy.interpretations
    metrics = {
        **OWN_METRICS,
        **(world.measures if isinstance(world, HasMetrics) else {}),
    }
    noise_variance = float(world.model.noise_variance)
    independent = world.independent_seeds if isinstance(world, SharedData) else math.inf
    return Facts(
        tuple(audited),
        noise_variance,
        interpretations,
        metrics,
        mapped=isinstance(world, HasRoadMap),
        shared_data=world.shared_data if isinstance(world, SharedData) else 0.0,
        independent_seeds=independent if math.isfinite(independent) else None,
    )


def _check_drawn(world: World, truth: str) -> None:
    """Refuse a picture of the truth that nobody could read."""
    arms, columns = world.offer(1).arms.features.shape
    if arms > _MOST_DRAWN:
        raise SpecError(
            f"[chart]: truth draws at most {_MOST_DRAWN} arms; this problem has {arms:,}"
        )
    if truth == "functions" and columns != 1:
        raise SpecError(
            "[chart]: truth = 'functions' needs arms with one feature; use 'series'"
        )


def _settled(world: World) -> dict[str, str]:
    """What the world says of itself, what a super arm is worth where that is more than a sum, and why
    regret may be below zero where the benchmark's oracle is not exact."""
    told: dict[str, str] = {}
    offer, reward = world.offer(1), world.model.reward
    if not isinstance(reward, Sum):
        _, name = family_of(reward) or ("", type(reward).__name__)
        told["reward"] = f"{name} of what its arms yield"
    # A problem that says it itself may have a benchmark that is dear to compute.
    alpha = (
        1.0 if "regret" in world.interpretations else world.best(offer).guarantee.alpha
    )
    if alpha != 1.0:
        told["regret"] = (
            f"against the oracle under the truth, which promises {alpha:.3g} of the optimum: below "
            "zero where a policy found something better; alpha_regret, where the optimum is known, is "
            "against that share of it"
        )
    return {**told, **world.interpretations}


def _settle_sources(
    base: Experiment, settings: Settings
) -> tuple[Experiment, Settings]:
    """Data that are "auto" named as what is at hand here, so that every worker uses the same."""
    if not any("problem.name" in setting for setting in settings):
        base = replace(base, problem=settle_source(base.problem))
    interpretations: Settings = []
    for setting in settings:
        before = base.with_setting(setting).problem
        after = settle_source(before)
        named = dict(setting)
        for key in ("source", "edition"):
            if after.get(key) != before.get(key):
                named[key if key in setting else f"problem.{key}"] = after[key]
                if named in settings or named in interpretations:
                    message = f"{key} 'auto' is {after[key]!r} here, which the sweep already has"
                    raise SpecError(f"{message}; remove one of them")
        interpretations.append(named)
    return base, interpretations


@contextmanager
def _blaming(part: str) -> Iterator[None]:
    """What a part refuses came from a spec. Missing data, bad files or slips in code did not."""
    try:
        yield
    except (FileError, MissingDataError, MissingExtraError):
        raise
    except (SuperarmError, ValueError, ArithmeticError) as error:
        told = str(error).removeprefix(f"{part}: ")
        raise SpecError(f"{part}: {told}") from error


def play(task: Task) -> list[RestartReason]:
    """Run one task and write its cells; each appears whole or not at all."""
    for source in task.imports:  # what the user's own process has imported
        import_parts(source)
    plan, index, seed = task.plan, task.setting_index, task.seed
    experiment = plan.experiment.with_setting(plan.settings[index])
    world = experiment.build_problem(seed=seed, horizon=plan.horizon)
    if task.shown and isinstance(world, HasRoadMap):
        write_shown(plan.out, index, world.road_map())
    if task.shown and experiment.chart.get("truth"):
        steps = thinned(plan.rounds)
        offers = [world.offer(plan.first - 1 + step) for step in steps.tolist()]
        means = np.stack([world.means(offer) for offer in offers])
        write_shown(plan.out, index, TruthRecord(steps, means, offers[0].arms.features))
    again: list[RestartReason] = []
    # Those that have come equally far go on side by side.
    sides: defaultdict[int, dict[str, Begun]] = defaultdict(dict)
    for name in task.policies:
        policy = experiment.build_policy(name, world)
        cell = Cell(plan.out, name, index, seed)
        found = earlier(cell, policy, world, plan.rounds)
        if isinstance(found, RestartReason):
            again.append(found)
        if not isinstance(found, Begun):
            found = Begun(begun(policy, plan.starts.get(name)), None)
        sides[0 if found.trace is None else found.trace.rounds][name] = found
    for side in sides.values():
        try:
            traces = simulate(
                world,
                {name: found.policy for name, found in side.items()},
                rounds=plan.rounds,
                seed=seed,
                lateness=experiment.build_lateness(),
                first=plan.first,
                earlier={
                    name: found.trace
                    for name, found in side.items()
                    if found.trace is not None
                },
            )
        except Exception as error:
            error.add_note(setting_text({"seed": seed, **plan.settings[index]}))
            raise
        if task.shown and experiment.chart.get(
            "tree"
        ):  # first: a task that stops here is run again
            _write_masses(
                plan, index, {name: found.policy for name, found in side.items()}
            )
        for trace in traces.values():
            write_trace(plan.out, replace(trace, setting_index=index))
    if task.shown and experiment.chart.get("tree") and world.model.metric is not None:
        write_shown(
            plan.out, index, frt_tree(world.model.metric, stream(seed, "tree", 0))
        )
    return again


def _write_masses(plan: Plan, index: int, policies: Mapping[str, Policy]) -> None:
    """The tree of the first policy that walks on one, with its probabilities after the last round."""
    for name, policy in policies.items():
        if (
            isinstance(policy, TreeWalker)
            and policy.forest is not None
            and policy.stand is not None
        ):
            tree = policy.forest.trees[policy.stand.tree]
            masses = TreeMasses(tree, policy.stand.q, name)
            write_masses(plan.out, index, plan.policies, masses)
            return


def execute(
    plan: Plan,
    *,
    resume: bool = False,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    told: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run what is missing and write ``summary.json``; returns the object the command prints.

    ``progress(done, total)`` counts rounds. ``told`` hears which policies could not go on where a run
    is made longer, and why: they are run from the start.
    """
    with _claimed(plan, resume):
        tasks = plan.tasks()
        total, done = sum(task.work for task in tasks), 0
        report = progress or (lambda done, total: None)

        again: set[RestartReason] = set()

        def finished(task: Task, found: list[RestartReason]) -> None:
            nonlocal done
            done += task.work
            again.update(found)
            report(done, total)

        report(0, total)
        spread(play, tasks, jobs=jobs, executor=executor, finished=finished)
        if told is not None:
            for policy, why in sorted(again):
                told(f"{policy} was run from the start again: {why}")
        run = Run.load(plan.out)
        write_cells(run)
        summary = summarise(run, plan.experiment)
        atomic_write(
            plan.out / "summary.json", json_bytes({**summary, "out": plan.out.name})
        )
        for each in (plan, *plan.reruns):
            rmtree(each.out / EARLIER, ignore_errors=True)
    return {**summary, "out": str(plan.out)}


@contextmanager
def _claimed(plan: Plan, resume: bool) -> Iterator[None]:
    """The directory is ours while the block runs, or we say why it cannot be."""
    out = plan.out
    there = out.exists()
    if there and not out.is_dir():
        raise ConflictError(f"{out} is a file; choose another --out")
    entries = {path.name for path in out.iterdir()} - {LOCK} if there else set()
    if entries and not resume:
        raise ConflictError(
            f"{out} is not empty; continue it with --resume, or choose another --out"
        )
    begun = "run.json" in entries
    if begun:
        for each in (plan, *plan.reruns):
            _check_same(each)
    elif not all(is_temporary(name, ("run.json",)) for name in entries):
        raise ConflictError(
            f"{out} holds files but no run.json: it is not a run; choose another --out"
        )
    taken = ConflictError(
        f"{out} has just been claimed by another run; choose another --out"
    )
    try:
        out.mkdir(parents=True, exist_ok=there)
    except FileExistsError:
        raise taken from None
    with run_lock(out):
        if not begun and (out / "run.json").exists():
            raise taken
        for each in (
            plan,
            *plan.reruns,
        ):  # its own comes first: with it the run has begun
            remove_temporaries(each.out)
            new = not (each.out / "run.json").exists()
            if not new and read_spec(each.out)["rounds"] < each.rounds:
                set_aside(each.out)
                new = True
            if new:
                write_spec(each.out, each.describe())
        yield


def _check_same(plan: Plan) -> None:
    """What was begun in the directory, if anything, is this plan, or a shorter one."""
    if (plan.out / "run.json").exists():
        before, now = read_spec(plan.out), json.loads(json_bytes(plan.describe()))
        # Where parts come from may change, and the title: what they are called may not.
        known = {*now, *before} - {"imports", "schema", "title"}
        if before["rounds"] < now["rounds"]:
            known -= _OF_ROUNDS
        changed = sorted(
            key
            for key in known
            if before.get(key) != now.get(key)
            and not (key in _DERIVED and agree(before.get(key), now.get(key)))
        )
        if changed:
            raise ConflictError(
                f"{plan.out} holds another run: {', '.join(changed)} differ; choose another --out"
            )
