"""What ``run`` and ``report`` do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from itertools import count, groupby
from pathlib import Path
from typing import Any, NamedTuple

import click

from superarm.core.capabilities import Metric
from superarm.core.errors import MissingExtraError, SpecError, StateError, require_extra
from superarm.lab.experiments import (
    Experiment,
    experiment_ids,
    load_experiment,
    parse_overrides,
)
from superarm.lab.experiments.plans import Plan, execute
from superarm.lab.experiments.statements import judge_statements
from superarm.lab.experiments.summaries import row_name
from superarm.lab.experiments.theorems import regret_bounds
from superarm.lab.report import Report, write_report
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

from .common import progress_bar, say, shown
from .places import Place
from .targets import targets


class Request(NamedTuple):
    """What ``run`` and ``reproduce`` are asked for beside the experiment."""

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
        return self.jobs or available_cores()

    def directory(self, name: str) -> Path:
        if self.resume and self.out is None:
            raise click.UsageError(
                "--resume needs --out: the directory of the run to continue"
            )
        return self.out or _fresh_directory(name)

    def plan(self, experiment: Experiment, out: Path, place: Place) -> Plan:
        """The experiment as it is asked for; nothing has run yet."""
        given = parse_overrides(self.overrides)
        experiment, placing = place.applied(experiment, given)
        if self.policies is not None:
            chosen = [name.strip() for name in self.policies.split(",") if name.strip()]
            for name in chosen:
                if " " in name and name not in {
                    **experiment.policies,
                    **experiment.on_request,
                }:
                    raise SpecError(
                        f"separate policies by commas: --policies {','.join(name.split())}"
                    )
            experiment = experiment.with_policies(chosen)
        return Plan.make(
            experiment,
            out=out,
            rounds=self.rounds,
            seeds=self.seeds,
            first_seed=self.seed,
            overrides={**given, **placing},
            states=self.states,
        )

    def execute(
        self, plan: Plan, pool: Executor | None, label: str = ""
    ) -> dict[str, Any]:
        """Run what is missing, with a bar under the experiment's name or another label."""
        with progress_bar(label or plan.experiment.id, self.quiet) as bar:
            return execute(
                plan,
                resume=self.resume,
                jobs=self.workers,
                executor=pool,
                progress=bar,
                told=None
                if self.quiet
                else lambda text: say(f"superarm: {text}", err=True),
            )


def run_one(name: str, request: Request, executor: str, place: Place) -> dict[str, Any]:
    directory = request.directory(name)
    own = name.endswith(".toml") or name in experiment_ids()
    if not own and any(name in names for names in targets().values()):
        advice = f"`superarm reproduce {name}` runs it"
        raise click.UsageError(
            f"{name!r} is a paper's group of experiments or a figure; {advice}"
        )
    experiment = load_experiment(name)
    plan = request.plan(experiment, directory, place)
    with _executor(executor, request.workers) as pool:
        summary = request.execute(plan, pool)
    write_outputs(
        plan.out, experiment, name, quiet=request.quiet, figures=False, bound=False
    )
    return summary


def report(
    directory: Path, *, quiet: bool, bound: bool, band: Band | None
) -> tuple[Report, list[Path]]:
    """What was written about a run that was made earlier."""
    if not directory.exists():
        raise StateError(f"there is no directory {directory}")
    inside = sorted(path.parent for path in directory.glob("*/run.json"))
    if inside and not (directory / "run.json").exists():
        names = ", ".join(str(path) for path in inside)
        raise StateError(
            f"{directory} is not a run but contains some; give one of them: {names}"
        )
    shipped = Run.load(directory).experiment
    known = shipped in experiment_ids()  # a run does not say from which file it is
    origin = (load_experiment(shipped), shipped) if known else ()
    return write_outputs(
        directory, *origin, quiet=quiet, figures=True, bound=bound, band=band
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
    """The report, and the figures where matplotlib is installed; ``name`` is what ``run`` takes."""
    run = Run.load(directory)
    claims = run.summary["claims"]
    if strange := {claim["verdict"] for claim in claims} - {*VERDICTS}:
        where = directory / "summary.json"
        raise StateError(
            f"{where}: unknown verdicts {sorted(strange)}; run again with --resume"
        )
    totals = {
        row_name(name) for at in range(len(run.settings)) for name in run.metrics_at(at)
    }
    bounds = regret_bounds(run) if bound else None
    statements = (
        [verdict.as_json() for verdict in judge_statements(run)] if bound else []
    )
    if bounds is not None and not bounds.drawn and not quiet:
        say(
            f"superarm: no bound could be drawn for {run.experiment}; the report says why",
            err=True,
        )
    if made := synthetic_data(run):  # said to those who want no progress, too
        real = not made.startswith("a generated city")  # which stands for no data set
        advice = "; `superarm data list` says where the real data come from" * real
        say(f"superarm: synthetic data: {made}{advice}", err=True)
    page = write_report(
        run,
        claims,
        directory / "report.html",
        bounds=bounds,
        statements=statements,
        not_judged=run.summary["not_judged"],
        further=[row for row in run.summary["rows"] if row["metric"] not in totals],
        command=("superarm", "run", name),
        full_size=(experiment.rounds, experiment.seeds) if experiment else None,
        band=band,
    )
    if not figures or not can_draw(quiet):
        return page, []
    from superarm.lab.plotting import save_run_figures

    return page, save_run_figures(run, directory / "figures", bounds, band)


def can_draw(quiet: bool) -> bool:
    try:
        require_extra("matplotlib", "plot")
    except MissingExtraError as error:
        if not quiet:
            say(f"superarm: no figure files: {error}", err=True)
        return False
    return True


def print_summary(summary: dict[str, Any]) -> None:
    from .visible import make_console, print_table

    rows, out = summary["rows"], Path(summary["out"])
    metrics = {name: Metric(**told) for name, told in summary["metrics"].items()}
    metrics = dict(sorted(metrics.items(), key=lambda item: not item[1].headline))
    names = ["policy", "setting"] if any(row["setting"] for row in rows) else ["policy"]
    lines = []
    for _, group in groupby(rows, key=lambda row: (row["policy"], row["setting"])):
        members = {row["metric"]: row for row in group}
        first = next(iter(members.values()))
        totals = [
            _told(
                members.get(name),
                metric,
                summary["rounds"] if metric.kind == "per round" else 1,
            )
            for name, metric in metrics.items()
        ]
        who = [first["policy"], setting_text(first["setting"])][: len(names)]
        lines.append([*who, *totals, readable_seconds(first["seconds_per_round"])])
    heads = [*names, *(metric.text for metric in metrics.values()), "time per round"]
    print_table(
        heads,
        lines,
        title=f"{summary['experiment']}: {size_text(summary)}",
        right=len(names),
    )
    console = make_console()
    if summary["seeds"] < LEAST_SEEDS:
        few = f"{count_text(summary['seeds'], 'seed')} cannot rank policies; {LEAST_SEEDS} or more can."
        console.print(few, style="yellow", highlight=False)
    print_claims(console, summary["claims"])
    print_count(console, summary["claims"], summary["not_judged"])
    print_forecasts(console, out)
    say(_next_step(out) + f"Report: {out / 'report.html'}")


def _told(row: dict[str, Any] | None, metric: Metric, among: int) -> str:
    """A total divided among so many rounds, with its unit where that is not the whole column's."""
    if row is None:
        return ""
    mean, stderr = row["mean"] / among, row["stderr"]
    told = significant(mean) if stderr is None else plus_minus(mean, stderr / among)
    return told if metric.unit else f"{told} {row['unit']}".rstrip()


def _next_step(out: Path) -> str:
    """Which trip it was, and how to go on with what was learned."""
    spec = read_spec(out)
    trip = None if len(spec["settings"]) > 1 else spec["settled"][0].get("route")
    if trip is None:
        return ""
    learners = spec.get("audited")
    if not learners:
        return f"Trip: {shown(trip)}.\n"
    learner = "gp-ts" if "gp-ts" in learners else learners[0]
    state = out / "states" / f"{cell_name(learner, 0, spec['first_seed'])}.npz"
    command = f"superarm route --net NETWORK --from EDGE --to EDGE --state {state}"
    return f"Trip: {shown(trip)}. To use what {learner} has learned: {command}\n"


def print_claims(console: Any, claims: list[dict[str, Any]]) -> None:
    colours = {"holds": "green", "does not hold": "red", "undecided": "yellow"}
    for claim in claims:
        word = claim["verdict"]
        console.print(f"  [{colours[word]}]{VERDICTS[word]} {word}[/]: ", end="")
        console.print(
            shown(f"{claim['text']}. {claim['evidence']}"), markup=False, soft_wrap=True
        )


def print_forecasts(console: Any, out: Path) -> None:
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
    """How many claims hold, do not and are undecided, what would decide these, and which were left."""
    count = claim_count(claims, "", noun)
    if any(claim["verdict"] == "undecided" for claim in claims):
        count += " (more --seeds may decide)"
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
    return f"{count_text(summary['rounds'], 'round')}, {count_text(summary['seeds'], 'seed')}"


@contextmanager
def _executor(name: str, jobs: int) -> Iterator[Executor | None]:
    """``dask``: the cluster that ``$DASK_SCHEDULER_ADDRESS`` names, else one on this machine."""
    if name == "local":
        yield None
        return
    distributed = require_extra("distributed", "cluster")
    with ExitStack() as stack:
        cluster = os.environ.get("DASK_SCHEDULER_ADDRESS")
        if not cluster:  # one of our own, heard on loopback alone
            here = {"host": "127.0.0.1", "dashboard_address": None}
            local = distributed.LocalCluster(
                n_workers=jobs, threads_per_worker=1, **here
            )
            cluster = stack.enter_context(local)
        yield stack.enter_context(distributed.Client(cluster)).get_executor()


def _fresh_directory(name: str) -> Path:
    """``runs/<name>-001`` and so on: the first that is not there yet."""
    stem = Path(name).stem if name.endswith(".toml") else name.replace("/", "-")
    numbered = (
        Path("runs") / f"{stem.strip('-.') or 'run'}-{number:03d}"
        for number in count(1)
    )
    return next(path for path in numbered if not path.exists())
