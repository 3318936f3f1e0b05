"""What ``reproduce`` does: the experiments of one paper or of all, and one page over them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from superarm.core.errors import ConflictError, StateError, SuperarmError
from superarm.core.files import read_text
from superarm.core.registry import require_kind
from superarm.core.states import atomic_write
from superarm.lab.experiments import Experiment
from superarm.lab.experiments.plans import Plan
from superarm.lab.report import Report, write_index
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
    can_draw,
    print_claims,
    print_count,
    print_forecasts,
    size_text,
    write_outputs,
)
from .targets import ALL, experiments_of

_PAGE = "index.html"
_TIMES = "times.json"
_MOST_TIMES = 2**20  # bytes
_MOST_SECONDS = 1e12  # of one experiment


def reproduce(target: str, request: Request, band: Band | None) -> dict[str, Any]:
    """Experiments one after another, with figures; the page over all is there from the first one on."""
    directory = request.directory(f"reproduce-{target}")
    experiments = experiments_of(target)
    _check_directory(directory, resume=request.resume)
    if len(experiments) > 1 and not request.quiet:
        say(
            f"superarm: checking {count_text(len(experiments), 'experiment')}", err=True
        )
    plans = [_plan(request, experiment, directory) for experiment in experiments]
    directory.mkdir(parents=True, exist_ok=True)
    with run_lock(directory):
        return _reproduce(target, request, band, directory, experiments, plans)


def _check_directory(directory: Path, *, resume: bool) -> None:
    """Refuse what would stop the command later, before anything is built."""
    if directory.exists() and not directory.is_dir():
        raise ConflictError(f"{directory} is a file; choose another --out")
    entries = (
        {path.name for path in directory.iterdir()} - {LOCK}
        if directory.exists()
        else set()
    )
    if entries and not resume:
        raise ConflictError(
            f"{directory} is not empty; continue it with --resume, or choose another --out"
        )
    _times(directory)


def _plan(request: Request, experiment: Experiment, directory: Path) -> Plan:
    try:
        return request.plan(
            experiment, directory / experiment.id.replace("/", "-"), Place()
        )
    except SuperarmError as error:
        error.add_note(experiment.id)
        raise


def _reproduce(
    target: str,
    request: Request,
    band: Band | None,
    directory: Path,
    experiments: list[Experiment],
    plans: list[Plan],
) -> dict[str, Any]:
    title = _title(target, experiments)
    # What an earlier attempt wrote about these stays until they have all been read again.
    covered = len(list(takewhile(_is_reported, plans)))
    summaries: list[dict[str, Any]] = []
    reports: list[Report] = []
    with process_pool(request.workers) as pool:
        for place, (plan, experiment) in enumerate(
            zip(plans, experiments, strict=True)
        ):
            label = f"{place + 1}/{len(plans)} {experiment.id}"
            with _timed(directory, experiment.id):
                summary = request.execute(
                    plan, pool if request.workers > 1 else None, label
                )
                if not request.quiet:
                    say(
                        f"superarm: {label}: judging claims and drawing figures",
                        err=True,
                    )
                report, _ = write_outputs(
                    plan.out,
                    experiment,
                    experiment.id,
                    quiet=request.quiet,
                    figures=True,
                    bound=True,
                    band=band,
                )
            summaries.append({**summary, "statements": [*report.statements]})
            reports.append(report)
            missing = [later.id for later in experiments[place + 1 :]]
            if len(reports) >= covered or not (directory / _PAGE).exists():
                _write_page(directory, title, reports, missing=missing)
    pictures = group_pictures([Run.load(plan.out) for plan in plans])
    if can_draw(quiet=True):  # if not, every report has said so
        from superarm.lab.plotting import save_pictures

        origin = ["synthetic data"] * any(report.warning for report in reports)
        save_pictures(pictures, f"superarm: {target}", directory / "figures", origin)
    _write_page(directory, title, reports, pictures=pictures)
    seconds = sum(
        _times(directory).get(experiment.id, 0.0) for experiment in experiments
    )
    return {
        "reproduce": target,
        "seconds": seconds,
        "runs": summaries,
        "out": str(directory),
    }


def _is_reported(plan: Plan) -> bool:
    """Whether an earlier attempt has finished the experiment at this size."""
    try:
        summary = read_json(plan.out / "summary.json")
    except StateError:
        return False
    size = (plan.rounds, plan.seeds)
    return (
        isinstance(summary, dict)
        and (summary.get("rounds"), summary.get("seeds")) == size
    )


def _title(target: str, experiments: list[Experiment]) -> str:
    papers = {experiment.paper for experiment in experiments}
    if target == ALL:
        return f"superarm: all {len(papers)} papers"
    return f"superarm: {target}, {experiments[0].paper}"


def _write_page(
    directory: Path,
    title: str,
    reports: list[Report],
    *,
    missing: list[str] | None = None,
    pictures: list[Picture] | None = None,
) -> None:
    write_index(
        reports,
        directory / _PAGE,
        title=title,
        pictures=pictures or (),
        seconds=_times(directory),
        missing=missing or (),
    )


# --- how long it took ----------------------------------------------------------------------


@contextmanager
def _timed(directory: Path, experiment: str) -> Iterator[None]:
    """Add the time of the block to the experiment's, also if it is interrupted."""
    started = time.perf_counter()
    try:
        yield
    finally:
        if directory.is_dir():
            times = _times(directory)
            times[experiment] = (
                times.get(experiment, 0.0) + time.perf_counter() - started
            )
            atomic_write(directory / _TIMES, json_bytes(times))


def _times(directory: Path) -> dict[str, float]:
    """Seconds by experiment, earlier attempts included."""
    path = directory / _TIMES
    if not path.exists():
        return {}
    advice = f"{path} is damaged; delete it to restart the timing"
    try:
        found = json.loads(read_text(path, most=_MOST_TIMES))
        require_kind(found, Mapping[str, float], _TIMES)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{advice}: {error}") from None
    if not all(0.0 <= seconds < _MOST_SECONDS for seconds in found.values()):
        raise StateError(f"{advice}: a time is negative, or too large")
    return {name: float(seconds) for name, seconds in found.items()}


# --- in a terminal -------------------------------------------------------------------------


def print_reproduction(summary: dict[str, Any]) -> None:
    from .visible import make_console

    console = make_console()
    for run in summary["runs"]:
        console.print(f"[bold]{run['experiment']}[/bold]  {size_text(run)}")
        print_claims(console, run["claims"])
        print_claims(console, run["statements"])
        print_forecasts(console, Path(run["out"]))
    claims = [claim for run in summary["runs"] for claim in run["claims"]]
    not_judged = [claim for run in summary["runs"] for claim in run["not_judged"]]
    statements = [
        statement for run in summary["runs"] for statement in run["statements"]
    ]
    print_count(console, claims, not_judged)
    print_count(console, statements, [], noun="statement of theory")
    page = Path(summary["out"]) / _PAGE
    duration = readable_duration(summary["seconds"])
    console.print(f"Took {duration}. All figures: {page}", markup=False, soft_wrap=True)
