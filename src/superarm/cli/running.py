"""The commands ``run`` and ``report``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from concurrent.futures import Executor
from itertools import count, groupby
from pathlib import Path
from typing import Any, NamedTuple

import click

from superarm.core.capabilities import Metric
from superarm.core.errors import SpecError, StateError
from superarm.lab.experiments import (
    Experiment,
    experiment_ids,
    load_experiment,
    parse_overrides,
)
from superarm.lab.experiments.execution import execute
from superarm.lab.experiments.plans import Plan
from superarm.lab.experiments.statements import judge_statements
from superarm.lab.experiments.summaries import row_name
from superarm.lab.experiments.theorems import regret_bounds
from superarm.lab.report import Report, save_run_figures, write_report
from superarm.lab.report.pages import VERDICTS, claim_count, silent_text
from superarm.lab.results.averages import Band
from superarm.lab.results.calibration import forecast_warnings
from superarm.lab.results.formats import (
    count_text,
    plus_minus,
    readable_seconds,
    setting_text,
    significant,
)
from superarm.lab.results.settings import synthetic_data
from superarm.lab.results.verdicts import LEAST_SEEDS
from superarm.lab.simulation import Run, cell_name
from superarm.lab.simulation.executors import available_cores
from superarm.lab.simulation.run_spec import read_spec
from superarm.roads.problems.road_loading import ROUTES

from .clusters import cell_executor
from .common import progress_bar, say, shown
from .places import Place
from .targets import targets


class Request(NamedTuple):
    """The options of ``run`` and ``reproduce``, besides the experiment."""

    out: Path | None
    overrides: tuple[str, ...]
    policies: str | None
    rounds: int | None
    seeds: int | None
    seed: int
    jobs: int | None
    resume: bool
    quiet: bool
    states: tuple[str, ...] = ()

    @property
    def workers(self) -> int:
        """The number of processes."""
        return self.jobs or available_cores()

    def directory(self, name: str) -> Path:
        """Where results go: ``--out``, or a new directory.

        Args:
            name: The experiment, which a new directory is named after.
        """
        if self.resume and self.out is None:
            raise click.UsageError(
                "--resume needs --out: the directory of the run to continue"
            )
        return self.out or _new_directory(name)

    def plan(self, experiment: Experiment, out: Path, place: Place) -> Plan:
        """The experiment with all options applied; nothing runs yet.

        Args:
            experiment: The experiment.
            out: Where results will go.
            place: Where a problem on roads takes place.
        """
        overrides = parse_overrides(self.overrides)
        experiment, placing = place.applied(experiment, overrides)
        if self.policies is not None:
            experiment = experiment.with_policies(self._chosen_policies(experiment))
        return Plan.make(
            experiment,
            out=out,
            rounds=self.rounds,
            seeds=self.seeds,
            first_seed=self.seed,
            overrides={**overrides, **placing},
            states=self.states,
        )

    def _chosen_policies(self, experiment: Experiment) -> list[str]:
        words = (self.policies or "").split(",")
        chosen = [word.strip() for word in words if word.strip()]
        available = {*experiment.policies, *experiment.on_request}
        for name in chosen:
            if " " in name and name not in available:
                raise SpecError(
                    f"separate policies with commas: --policies {','.join(name.split())}"
                )
        return chosen

    def execute(
        self, plan: Plan, pool: Executor | None, label: str = ""
    ) -> dict[str, Any]:
        """Run what is missing, with a progress bar.

        Args:
            plan: The experiment with all options applied.
            pool: Where cells run; ``None`` for processes of its own.
            label: The label of the bar; by default the experiment's name.
        """
        with progress_bar(label or plan.experiment.id, self.quiet) as bar:
            return execute(
                plan,
                resume=self.resume,
                jobs=self.workers,
                executor=pool,
                progress=bar,
                notify=None if self.quiet else _say_progress,
            )


def _say_progress(text: str) -> None:
    say(f"superarm: {text}", err=True)


def run_one(
    name: str,
    request: Request,
    place: Place,
    executor: str,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Run one experiment and write its report; returns its summary.

    Args:
        name: The id of an experiment, or its file.
        request: The options.
        place: Where a problem on roads takes place.
        executor: Where cells run: "local" or "dask".
        scheduler: The address of a Dask scheduler.
    """
    directory = request.directory(name)
    is_experiment = name.endswith(".toml") or name in experiment_ids()
    if not is_experiment and any(name in words for words in targets().values()):
        raise click.UsageError(
            f"{name!r} is a paper or one of its figures; "
            f"`superarm reproduce {name}` runs it"
        )
    experiment = load_experiment(name)
    plan = request.plan(experiment, directory, place)
    with cell_executor(
        executor, request.workers, scheduler, quiet=request.quiet
    ) as pool:
        summary = request.execute(plan, pool)
    write_outputs(
        plan.out, experiment, name, quiet=request.quiet, figures=False, bound=False
    )
    return summary


def report(
    directory: Path, *, quiet: bool, bound: bool, band: Band | None
) -> tuple[Report, list[Path]]:
    """Write the report and the figures of an earlier run.

    Args:
        directory: The run.
        quiet: Whether to print no progress.
        bound: Whether to draw theoretical bounds.
        band: What bands show; by default the experiment's choice.
    """
    if not directory.exists():
        raise StateError(f"{directory}: folder not found")
    if directory.is_file():
        raise StateError(f"{directory} is a file; pass the run's folder")
    runs_inside = sorted(path.parent for path in directory.glob("*/run.json"))
    if runs_inside and not (directory / "run.json").exists():
        names = ", ".join(str(path) for path in runs_inside)
        raise StateError(
            f"{directory} is not a run but contains runs; pass one of them: {names}"
        )
    name = Run.load(directory).experiment
    experiment = None
    if name in experiment_ids():
        experiment = load_experiment(name)
    else:
        name = "FILE.toml"  # a run does not record its file
    return write_outputs(
        directory,
        experiment,
        name,
        quiet=quiet,
        figures=True,
        bound=bound,
        band=band,
    )


def write_outputs(
    directory: Path,
    experiment: Experiment | None = None,
    name: str = "FILE.toml",
    *,
    quiet: bool,
    figures: bool,
    bound: bool,
    band: Band | None = None,
) -> tuple[Report, list[Path]]:
    """Write the report and, on request, the figures.

    Args:
        directory: The run.
        experiment: The experiment, where it is known.
        name: What to pass to ``superarm run``, for the report.
        quiet: Whether to print no progress.
        figures: Whether to write figure files.
        bound: Whether to draw theoretical bounds and judge statements of theory.
        band: What bands show; by default the experiment's choice.
    """
    run = Run.load(directory)
    claims = run.summary["claims"]
    if unknown := {claim["verdict"] for claim in claims} - {*VERDICTS}:
        summary_path = directory / "summary.json"
        raise StateError(
            f"{summary_path} has unknown verdicts {sorted(unknown)}; run again with --resume"
        )
    bounds = regret_bounds(run) if bound else None
    verdicts = judge_statements(run) if bound else ()
    if bounds is not None and not bounds.drawn and not quiet:
        say(
            f"superarm: there is no bound for {run.experiment}; the report gives the reason",
            err=True,
        )
    _warn_of_synthetic_data(run)
    page = write_report(
        run,
        claims,
        directory / "report.html",
        bounds=bounds,
        statements=[verdict.as_json() for verdict in verdicts],
        not_judged=run.summary["not_judged"],
        further=_further_rows(run),
        command=("superarm", "run", name),
        full_size=(experiment.rounds, experiment.seeds) if experiment else None,
        band=band,
    )
    if not figures:
        return page, []
    return page, save_run_figures(run, directory / "figures", bounds, band)


def _warn_of_synthetic_data(run: Run) -> None:
    """Warn that data are synthetic, even where progress is not wanted."""
    description = synthetic_data(run)
    if not description:
        return
    advice = "; `superarm data list` shows where to get the real data"
    if description.startswith("a generated city"):  # which replaces no data set
        advice = ""
    say(f"superarm: synthetic data: {description}{advice}", err=True)


def _further_rows(run: Run) -> list[dict[str, Any]]:
    """Rows of the summary that are not totals of a metric."""
    totals: set[str] = set()
    for setting in range(len(run.settings)):
        totals.update(row_name(metric) for metric in run.metrics_at(setting))
    return [row for row in run.summary["rows"] if row["metric"] not in totals]


def print_summary(summary: dict[str, Any]) -> None:
    """Print the totals, claims and warnings of a run.

    Args:
        summary: The summary of the run, as ``summary.json`` contains it.
    """
    from .visible import make_console

    _print_totals(summary)
    console = make_console()
    if summary["seeds"] < LEAST_SEEDS:
        message = f"Ranking policies needs at least {LEAST_SEEDS} seeds."
        console.print(message, style="yellow", highlight=False)
    print_claims(console, summary["claims"])
    print_count(console, summary["claims"], summary["not_judged"])
    out = Path(summary["out"])
    print_forecasts(console, out)
    say(_next_step(out) + f"Report: {out / 'report.html'}")


def _print_totals(summary: dict[str, Any]) -> None:
    """Print a table with a row for each policy and setting, and a column for each metric."""
    from .visible import print_table

    rows = summary["rows"]
    metrics = {name: Metric(**fields) for name, fields in summary["metrics"].items()}
    headlines_first = sorted(metrics, key=lambda name: not metrics[name].headline)
    has_settings = any(row["setting"] for row in rows)
    heads = ["policy", "setting"] if has_settings else ["policy"]
    first_number = len(heads)
    heads += [metrics[name].text for name in headlines_first]
    heads.append("time per round")
    lines = []
    for (policy, setting), group in groupby(rows, key=_cell_of_row):
        rows_by_metric = {row["metric"]: row for row in group}
        cells = [policy, setting_text(setting)] if has_settings else [policy]
        for name in headlines_first:
            metric = metrics[name]
            rounds = summary["rounds"] if metric.kind == "per round" else 1
            cells.append(_total_text(rows_by_metric.get(name), metric, rounds))
        first_row = next(iter(rows_by_metric.values()))
        cells.append(readable_seconds(first_row["seconds_per_round"]))
        lines.append(cells)
    title = f"{summary['experiment']}: {size_text(summary)}"
    print_table(heads, lines, title=title, right=first_number)


def _cell_of_row(row: Mapping[str, Any]) -> tuple[str, Any]:
    return row["policy"], row["setting"]


def _total_text(row: dict[str, Any] | None, metric: Metric, rounds: int) -> str:
    """A total per round, with its unit where the column's head does not name it."""
    if row is None:
        return ""
    mean = row["mean"] / rounds
    stderr = row["stderr"]
    text = significant(mean) if stderr is None else plus_minus(mean, stderr / rounds)
    return text if metric.unit else f"{text} {row['unit']}".rstrip()


def _next_step(out: Path) -> str:
    """The trip, and the command that uses what was learned on it."""
    spec = read_spec(out)
    trip = None if len(spec["settings"]) > 1 else spec["settled"][0].get("route")
    if trip is None:
        return ""
    learners = spec.get("audited")
    if not learners:
        return f"Trip: {shown(trip)}.\n"
    learner = "gp-ts" if "gp-ts" in learners else learners[0]
    state = out / "states" / f"{cell_name(learner, 0, spec['first_seed'])}.npz"
    words = ["superarm", "route", *_road_options(spec["parameters"]["problem"])]
    ends = re.fullmatch(r"from edge (\S+) to edge (\S+)", trip)
    start, goal = ("EDGE", "EDGE") if ends is None else ends.groups()
    words += ["--from", start, "--to", goal, "--state", str(state)]
    command = shlex.join(words)
    return (
        f"Trip: {shown(trip)}. To use what {learner} has learned:\n  {shown(command)}\n"
    )


def _road_options(problem: Mapping[str, Any]) -> list[str]:
    """The options of ``superarm route`` that load the roads of a problem."""
    route = ROUTES.get(str(problem.get("route")))
    network = problem.get("network", "NETWORK") if route is None else route.network
    options = ["--net", str(network)]
    if "elevation" in problem:
        options += ["--elevation", str(problem["elevation"])]
    if problem.get("flat"):
        options.append("--flat")
    for key in ("edges", "city_seed"):
        if key in problem:
            options += ["--set", f"{key}={problem[key]}"]
    return options


def print_claims(console: Any, claims: list[dict[str, Any]]) -> None:
    """Print each claim with its verdict and evidence.

    Args:
        console: A console of rich.
        claims: Claims as ``summary.json`` contains them.
    """
    colours = {"holds": "green", "does not hold": "red", "undecided": "yellow"}
    for claim in claims:
        verdict = claim["verdict"]
        symbol = VERDICTS[verdict]
        console.print(f"  [{colours[verdict]}]{symbol} {verdict}[/]: ", end="")
        text = shown(f"{claim['text']}. {claim['evidence']}")
        console.print(text, markup=False, soft_wrap=True)


def print_forecasts(console: Any, out: Path) -> None:
    """Print warnings about a run's forecasts.

    Args:
        console: A console of rich.
        out: The run.
    """
    for line in forecast_warnings(Run.load(out)):
        console.print(
            line, style="yellow", markup=False, highlight=False, soft_wrap=True
        )


def print_count(
    console: Any,
    claims: list[dict[str, Any]],
    not_judged: list[dict[str, Any]],
    noun: str = "claim",
) -> None:
    """Print how many claims hold, do not hold and are undecided, and which were not judged.

    Args:
        console: A console of rich.
        claims: Claims as ``summary.json`` contains them.
        not_judged: Claims that this run cannot judge.
        noun: What to call a claim.
    """
    count = claim_count(claims, "", noun)
    if any(claim["verdict"] == "undecided" for claim in claims):
        count += "; try more --seeds"
    if count:
        console.print(f"{count}.", highlight=False, soft_wrap=True)
    if not_judged:
        console.print(
            shown(silent_text(not_judged)),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def size_text(summary: dict[str, Any]) -> str:
    """The size of a run, such as "50 rounds, 3 seeds".

    Args:
        summary: The summary of the run.
    """
    rounds = count_text(summary["rounds"], "round")
    seeds = count_text(summary["seeds"], "seed")
    return f"{rounds}, {seeds}"


def _new_directory(name: str) -> Path:
    """``runs/<name>-001`` and so on: the first that does not exist."""
    stem = Path(name).stem if name.endswith(".toml") else name.replace("/", "-")
    stem = stem.strip("-.") or "run"
    numbered = (Path("runs") / f"{stem}-{number:03d}" for number in count(1))
    return next(path for path in numbered if not path.exists())
