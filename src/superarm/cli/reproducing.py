"""The command ``reproduce``: the experiments of one paper or of all, and one page about them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from superarm.core.errors import ConflictError, StateError, SuperarmError
from superarm.core.files import read_text
from superarm.core.registry import require_kind
from superarm.core.states import atomic_write
from superarm.lab.experiments import Experiment
from superarm.lab.experiments.plans import Plan
from superarm.lab.report import Report, save_pictures, write_index
from superarm.lab.results.averages import Band
from superarm.lab.results.charts import group_pictures
from superarm.lab.results.formats import count_text, readable_duration
from superarm.lab.results.pictures import Picture
from superarm.lab.simulation import Run
from superarm.lab.simulation.executors import process_pool
from superarm.lab.simulation.files import LOCK, json_bytes, read_json, run_lock

from .common import say
from .places import Place
from .running import (
    Request,
    print_claims,
    print_count,
    print_forecasts,
    size_text,
    write_outputs,
)
from .targets import ALL, experiments_of

_PAGE = "index.html"
_TIMES = "times.json"
_MOST_BYTES = 2**20  # of the file of times
_MOST_SECONDS = 1e12  # of one experiment


def reproduce(target: str, request: Request, band: Band | None) -> dict[str, Any]:
    """Run experiments one after another, with figures, and update one page about all of them.

    Args:
        target: "all", a paper, an experiment or a figure.
        request: The options.
        band: What bands show; by default each experiment's choice.
    """
    directory = request.directory(f"reproduce-{target}")
    experiments = experiments_of(target)
    _check_directory(directory, resume=request.resume)
    if len(experiments) > 1:
        _say_progress(request, f"checking {count_text(len(experiments), 'experiment')}")
    plans = [_plan(request, experiment, directory) for experiment in experiments]
    directory.mkdir(parents=True, exist_ok=True)
    with run_lock(directory):
        reproduction = _Reproduction(
            target=target,
            request=request,
            band=band,
            directory=directory,
            experiments=experiments,
            plans=plans,
        )
        return reproduction.run()


def _say_progress(request: Request, text: str) -> None:
    if not request.quiet:
        say(f"superarm: {text}", err=True)


def _check_directory(directory: Path, *, resume: bool) -> None:
    """Refuse what would stop the command later, before anything is built."""
    if directory.exists() and not directory.is_dir():
        raise ConflictError(f"{directory} is a file; choose another --out")
    if directory.exists() and not resume:
        entries = {path.name for path in directory.iterdir()}
        if entries - {LOCK}:
            raise ConflictError(
                f"{directory} is not empty; continue it with --resume, or choose another --out"
            )
    _read_times(directory)  # raises an error if they are damaged


def _plan(request: Request, experiment: Experiment, directory: Path) -> Plan:
    out = directory / experiment.id.replace("/", "-")
    try:
        return request.plan(experiment, out, Place())
    except SuperarmError as error:
        error.add_note(experiment.id)
        raise


@dataclass(frozen=True, kw_only=True)
class _Reproduction:
    """The experiments of one target, planned in one directory."""

    target: str
    request: Request
    band: Band | None
    directory: Path
    experiments: list[Experiment]
    plans: list[Plan]

    def run(self) -> dict[str, Any]:
        """Run and report all experiments; returns the summary of the command."""
        # The page of an earlier attempt stays until all experiments on it are reported again.
        covered = self._count_reported()
        summaries: list[dict[str, Any]] = []
        reports: list[Report] = []
        with process_pool(self.request.workers) as pool:
            executor = pool if self.request.workers > 1 else None
            for index in range(len(self.plans)):
                summary, report = self._run_experiment(index, executor)
                summaries.append(summary)
                reports.append(report)
                is_last = len(reports) == len(
                    self.plans
                )  # written below, with pictures
                covers_earlier_page = len(reports) >= covered
                has_page = (self.directory / _PAGE).exists()
                if not is_last and (covers_earlier_page or not has_page):
                    self._write_page(reports)
        pictures = group_pictures([Run.load(plan.out) for plan in self.plans])
        self._save_figures(pictures, reports)
        self._write_page(reports, pictures)
        return {
            "reproduce": self.target,
            "seconds": self._total_seconds(),
            "runs": summaries,
            "out": str(self.directory),
        }

    def _count_reported(self) -> int:
        """How many experiments, from the first on, an earlier attempt has finished."""
        return len(list(takewhile(_is_reported, self.plans)))

    def _run_experiment(
        self, index: int, executor: Executor | None
    ) -> tuple[dict[str, Any], Report]:
        plan = self.plans[index]
        experiment = self.experiments[index]
        label = f"{index + 1}/{len(self.plans)} {experiment.id}"
        with _timed(self.directory, experiment.id):
            summary = self.request.execute(plan, executor, label)
            _say_progress(self.request, f"{label}: judging claims and drawing figures")
            report, _ = write_outputs(
                plan.out,
                experiment,
                experiment.id,
                quiet=self.request.quiet,
                figures=True,
                bound=True,
                band=self.band,
            )
        return {**summary, "statements": [*report.statements]}, report

    def _write_page(
        self, reports: list[Report], pictures: Sequence[Picture] = ()
    ) -> None:
        unfinished = self.experiments[len(reports) :]
        write_index(
            reports,
            self.directory / _PAGE,
            title=self._title(),
            pictures=pictures,
            seconds=_read_times(self.directory),
            missing=[experiment.id for experiment in unfinished],
        )

    def _title(self) -> str:
        if self.target == ALL:
            papers = {experiment.paper for experiment in self.experiments}
            return f"superarm: all {len(papers)} papers"
        return f"superarm: {self.target}, {self.experiments[0].paper}"

    def _save_figures(self, pictures: list[Picture], reports: list[Report]) -> None:
        """Save figures of several experiments together."""
        is_synthetic = any(report.warning for report in reports)
        origin = ["synthetic data"] if is_synthetic else []
        title = f"superarm: {self.target}"
        save_pictures(pictures, title, self.directory / "figures", origin)

    def _total_seconds(self) -> float:
        times = _read_times(self.directory)
        return sum(times.get(experiment.id, 0.0) for experiment in self.experiments)


def _is_reported(plan: Plan) -> bool:
    """Whether an earlier attempt has finished the experiment at this size."""
    try:
        summary = read_json(plan.out / "summary.json")
    except StateError:
        return False
    if not isinstance(summary, dict):
        return False
    same_rounds = summary.get("rounds") == plan.rounds
    same_seeds = summary.get("seeds") == plan.seeds
    return same_rounds and same_seeds


# --- how long it took ----------------------------------------------------------------------


@contextmanager
def _timed(directory: Path, experiment: str) -> Iterator[None]:
    """Add the time of the block to the experiment's, even if it is interrupted."""
    started = time.perf_counter()
    try:
        yield
    except BaseException:
        # What stopped the block is the error to report: a full disk often causes both.
        with suppress(SuperarmError, OSError):
            _add_seconds(directory, experiment, time.perf_counter() - started)
        raise
    _add_seconds(directory, experiment, time.perf_counter() - started)


def _add_seconds(directory: Path, experiment: str, seconds: float) -> None:
    if not directory.is_dir():
        return
    times = _read_times(directory)
    times[experiment] = times.get(experiment, 0.0) + seconds
    atomic_write(directory / _TIMES, json_bytes(times))


def _read_times(directory: Path) -> dict[str, float]:
    """Seconds by experiment, earlier attempts included; a damaged file raises an error."""
    path = directory / _TIMES
    if not path.exists():
        return {}
    advice = f"{path} is damaged; delete it to restart the timing"
    try:
        times = json.loads(read_text(path, most=_MOST_BYTES))
        require_kind(times, Mapping[str, float], _TIMES)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{advice}: {error}") from None
    if not all(0.0 <= seconds < _MOST_SECONDS for seconds in times.values()):
        raise StateError(f"{advice}: a time is negative, or too large")
    return {name: float(seconds) for name, seconds in times.items()}


# --- in a terminal -------------------------------------------------------------------------


def print_reproduction(summary: dict[str, Any]) -> None:
    """Print the claims, statements and warnings of every experiment.

    Args:
        summary: What :func:`reproduce` returned.
    """
    from .visible import make_console

    console = make_console()
    claims: list[dict[str, Any]] = []
    not_judged: list[dict[str, Any]] = []
    statements: list[dict[str, Any]] = []
    for run in summary["runs"]:
        console.print(f"[bold]{run['experiment']}[/bold]  {size_text(run)}")
        print_claims(console, run["claims"])
        print_claims(console, run["statements"])
        print_forecasts(console, Path(run["out"]))
        claims += run["claims"]
        not_judged += run["not_judged"]
        statements += run["statements"]
    print_count(console, claims, not_judged)
    print_count(console, statements, [], noun="statement of theory")
    page = Path(summary["out"]) / _PAGE
    duration = readable_duration(summary["seconds"])
    console.print(f"Took {duration}. All figures: {page}", markup=False, soft_wrap=True)
