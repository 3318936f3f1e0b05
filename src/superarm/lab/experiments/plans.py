"""Plans: an experiment with its settings, seeds and policies, ready to run cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from superarm import __version__
from superarm.core.capabilities import OWN_METRICS
from superarm.core.errors import SpecError
from superarm.core.inputs import as_count
from superarm.core.plugins import imported
from superarm.core.registry import suggestion
from superarm.core.threads import pin_blas_threads
from superarm.lab.problems.sources import settle_source
from superarm.lab.simulation import cell_name
from superarm.lab.simulation.files import (
    FOLDERS_OF_ANY,
    FOLDERS_OF_AUDITED,
    stateless_cells,
)
from superarm.lab.simulation.run_spec import MOST_CELLS

from .facts import Facts, errors_about, rehearse
from .overrides import expand_settings
from .spec import Experiment
from .warm_starts import Start, find_starts

Settings = list[dict[str, Any]]
# Beyond these no run fits into memory or on a disk.
_MOST_ROUNDS = 10**9
_MOST_SEEDS = 10**6
_LARGEST_SEED = 2**63


class Task(NamedTuple):
    """One seed in one setting, for the policies whose cells are missing."""

    plan: Plan
    """Without its facts and reruns: as much as a worker needs."""
    experiment: Experiment
    """In the setting."""
    setting_index: int
    seed: int
    policies: tuple[str, ...]
    imports: tuple[str, ...]
    """Modules and files that the user's own process has imported."""
    shown: bool
    """Whether the setting's roads, truth and tree are written with it."""

    @property
    def work(self) -> int:
        """Rounds to play."""
        return self.plan.rounds * len(self.policies)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment with everything fixed that a command may override.

    Args:
        experiment: before any setting is applied.
        policies: names of the policies that play.
        rounds: how many rounds are played.
        seeds: how many seeds there are.
        first_seed: the first of them.
        settings: what each setting replaces.
        fixed: parameters that were replaced, the same in all settings.
        variants: the experiment in each setting.
        facts: about each setting.
        out: the directory of the run.
        starts: the states that policies begin with.
        first: the number of the first round: after those that the states have seen.
        reruns: policies run again for each shorter horizon, as runs below ``out``.
    """

    experiment: Experiment
    policies: Sequence[str]
    rounds: int
    seeds: int
    first_seed: int
    settings: Sequence[Mapping[str, Any]]
    fixed: Mapping[str, Any]
    variants: Sequence[Experiment]
    facts: Sequence[Facts]
    out: Path
    starts: Mapping[str, Start] = field(default_factory=dict)
    first: int = 1
    reruns: Sequence[Plan] = ()

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
        """Apply overrides and check them down to the parts they build; nothing is run or written.

        Args:
            experiment: what to run.
            out: the directory of the run.
            rounds: how many rounds, where not those of the experiment.
            seeds: how many seeds, where not those of the experiment.
            first_seed: the first of them.
            overrides: values of parameters; a list is a sweep.
            states: files of states that policies begin with, as ``FILE`` or ``POLICY=FILE``.
        """
        out = Path(out)
        # Caches keep what is made from here on, as workers would make it.
        pin_blas_threads()
        # Not every experiment was read from a file: some are put together by hand.
        experiment = Experiment.from_mapping(experiment.as_json(), experiment.id)
        swept = {**experiment.sweep, **(overrides or {})}
        fixed, settings = expand_settings(swept)
        fixed_experiment = experiment.with_setting(fixed)
        base, settings, variants = _settle_sources(fixed_experiment, settings)
        rounds = base.rounds if rounds is None else rounds
        seeds = base.seeds if seeds is None else seeds
        with errors_about(base.id):
            rounds = as_count(rounds, "rounds", 1, _MOST_ROUNDS)
            seeds = as_count(seeds, "seeds", 1, _MOST_SEEDS)
            as_count(first_seed, "seed", 0, _LARGEST_SEED)
        _check_size(len(settings), seeds, len(base.policies))
        starts, first = find_starts(variants[0], states, seed=first_seed, rounds=rounds)
        facts_about = partial(rehearse, seed=first_seed, first=first, starts=starts)
        facts = [
            facts_about(variant, variant.policies, rounds=rounds)
            for variant in variants
        ]
        plan = cls(
            experiment=base,
            policies=tuple(base.policies),
            rounds=rounds,
            seeds=seeds,
            first_seed=first_seed,
            settings=settings,
            fixed=fixed,
            variants=variants,
            facts=facts,
            out=out,
            starts=starts,
            first=first,
        )
        plan._check_metrics()
        reruns = plan._shorter_plans(facts_about)
        return replace(plan, reruns=reruns)

    def _shorter_plans(self, facts_about: Callable[..., Facts]) -> list[Plan]:
        """Plans for the shorter horizons, of the policies that are run again for them.

        Args:
            facts_about: rehearses policies in a variant of the experiment, for some rounds.
        """
        base = self.experiment
        rerun = base.rerun or base.policies
        policies = tuple(name for name in base.policies if name in rerun)
        if not policies:
            return []
        plans = []
        for horizon in base.horizons:
            if horizon >= self.rounds:
                continue
            facts = [
                facts_about(variant, policies, rounds=horizon)
                for variant in self.variants
            ]
            shorter = replace(
                self,
                policies=policies,
                rounds=horizon,
                facts=facts,
                out=self.out / "horizons" / str(horizon),
            )
            plans.append(shorter)
        return plans

    def _check_metrics(self) -> None:
        """Refuse a metric that no setting has, where every problem states which it has."""
        known = {name for facts in self.facts for name in facts.metrics}
        if any(facts.metrics.keys() <= OWN_METRICS.keys() for facts in self.facts):
            return
        experiment = self.experiment
        metrics_by_part = [
            (f"derived {row['name']!r}", row.get("metric", "regret"))
            for row in experiment.derived
        ]
        metrics_by_part += [
            ("[chart]: curves", curve.get("metric", "regret"))
            for curve in experiment.chart.get("curves", ())
        ]
        for part, metric in metrics_by_part:
            if metric not in known:
                advice = suggestion(metric, known, "there are")
                raise SpecError(
                    f"{experiment.id}: {part}: nothing measures {metric!r}; {advice}"
                )

    @property
    def horizon(self) -> int:
        """The number of the last round."""
        return self.first - 1 + self.rounds

    # --- what is missing -------------------------------------------------------------------

    def tasks(self) -> list[Task]:
        """What is not on disk yet: shorter horizons first, then seed by seed."""
        tasks = []
        for plan in self.reruns:
            tasks += plan.tasks()
        # Workers may run in other directories, so they need absolute paths.
        out = self.out.absolute()
        worker_plan = replace(self, out=out, reruns=(), facts=(), variants=())
        imports = tuple(imported())
        for index, variant in enumerate(self.variants):
            lacks_pictures = not self._has_pictures(index)
            for seed in range(self.first_seed, self.first_seed + self.seeds):
                missing = tuple(
                    name for name in self.policies if not self._has(name, index, seed)
                )
                task = Task(
                    plan=worker_plan,
                    experiment=variant,
                    setting_index=index,
                    seed=seed,
                    policies=missing,
                    imports=imports,
                    shown=lacks_pictures and seed == self.first_seed,
                )
                if task.policies or task.shown:
                    tasks.append(task)
        return tasks

    def _has_pictures(self, setting_index: int) -> bool:
        """Whether all is on disk that pictures of a setting are drawn from."""
        chart = self.experiment.chart
        folders = []
        if self.facts[setting_index].mapped:
            folders.append("maps")
        if chart.get("truth"):
            folders.append("truths")
        if chart.get("tree"):
            folders.append("trees")
        file = f"s{setting_index}.npz"
        return all((self.out / folder / file).is_file() for folder in folders)

    def _has(self, policy: str, setting_index: int, seed: int) -> bool:
        """Whether all files of a cell are on disk."""
        cell = cell_name(policy, setting_index, seed)
        folders: Sequence[str] = FOLDERS_OF_ANY
        if policy in self.facts[setting_index].audited:
            folders = FOLDERS_OF_AUDITED
        if cell in stateless_cells(self.out):
            folders = [folder for folder in folders if folder != "states"]
        return all((self.out / folder / f"{cell}.npz").is_file() for folder in folders)

    # --- run.json --------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The content of ``run.json``."""
        experiment = self.experiment
        plain = experiment.as_json()
        audited = {name for facts in self.facts for name in facts.audited}
        description = {
            "experiment": experiment.id,
            "title": experiment.title,
            "paper": experiment.paper,
            "figure": ", ".join(experiment.figure),
            "rounds": self.rounds,
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "policies": list(self.policies),
            "settings": [dict(setting) for setting in self.settings],
            "horizons": [plan.rounds for plan in self.reruns],
            "derived": [dict(row) for row in experiment.derived],
            "chart": dict(experiment.chart),
            "overrides": dict(self.fixed),
            "parameters": {
                "problem": plain["problem"],
                "policies": plain["policies"],
                "feedback": plain["feedback"],
            },
            "settled": [facts.interpretations for facts in self.facts],
            "metrics": [_metrics_as_json(facts) for facts in self.facts],
            "audited": [name for name in self.policies if name in audited],
            "noise_variance": [facts.noise_variance for facts in self.facts],
        }
        shared_data = [facts.shared_data for facts in self.facts]
        if any(shared_data):
            description["shared_data"] = shared_data
        independent_seeds = [facts.independent_seeds for facts in self.facts]
        if any(independent_seeds):
            description["independent_seeds"] = independent_seeds
        if self.starts:
            description["states"] = {
                name: start.as_json() for name, start in self.starts.items()
            }
        description["imports"] = imported()
        description["version"] = __version__
        return description


def _metrics_as_json(facts: Facts) -> dict[str, Any]:
    return {name: metric._asdict() for name, metric in facts.metrics.items()}


def _check_size(settings: int, seeds: int, policies: int) -> None:
    """Refuse a run with more cells than a run can read."""
    cells = settings * seeds * policies
    if cells > MOST_CELLS:
        raise SpecError(
            f"a run may have at most {MOST_CELLS:,} cells, got {cells:,} ({settings:,} "
            f"settings × {seeds:,} seeds × {policies} policies); split it into several "
            "runs"
        )


class _SettledSources(NamedTuple):
    """An experiment whose data sources are named, and its settings."""

    base: Experiment
    settings: Settings
    variants: list[Experiment]
    """The experiment in each setting."""


def _settle_sources(base: Experiment, settings: Settings) -> _SettledSources:
    """Replace "auto" data by what is available here, so that every worker uses the same."""
    if not any("problem.name" in setting for setting in settings):
        base = replace(base, problem=settle_source(base.problem))
    settled_settings: Settings = []
    variants = []
    for setting in settings:
        variant = base.with_setting(setting)
        settled = _settle_setting(setting, variant, [*settings, *settled_settings])
        if settled != setting:
            variant = base.with_setting(settled)
        settled_settings.append(settled)
        variants.append(variant)
    return _SettledSources(base, settled_settings, variants)


def _settle_setting(
    setting: Mapping[str, Any], variant: Experiment, others: Settings
) -> dict[str, Any]:
    """A setting with the data that its problem found."""
    problem = variant.problem
    settled_problem = settle_source(problem)
    settled = dict(setting)
    for key in ("source", "edition"):
        if settled_problem.get(key) == problem.get(key):
            continue
        value = settled_problem[key]
        setting_key = key if key in setting else f"problem.{key}"
        settled[setting_key] = value
        if settled in others:
            raise SpecError(
                f"{key} 'auto' is {value!r} here, which the sweep already has; "
                "remove one of them"
            )
    return settled
