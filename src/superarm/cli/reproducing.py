"""What ``reproduce`` does: the experiments of one paper or of all, and one page over them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from superarm.errors import ConflictError, StateError
from superarm.experiments import Experiment
from superarm.experiments.plans import Plan
from superarm.files import read_text
from superarm.registry import require_kind
from superarm.report import Report, write_index
from superarm.results.charts import group_pictures
from superarm.results.curves import Band, readable_duration
from superarm.results.pictures import Picture
from superarm.simulation import Run
from superarm.simulation.executors import process_pool
from superarm.simulation.files import json_bytes
from superarm.states import atomic_write

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

_TIMES = "times.json"
_MOST_TIMES = 2**20  # bytes


def reproduce(target: str, request: Request, band: Band | None) -> dict[str, Any]:
    """Experiments one after another, with figures; the page over all is there from the first one on.

    Args:
        target: all, a paper, one of its experiments or one of its figures.
        request: sizes, settings and places, for every experiment.
        band: what is drawn around curves; ``None`` for the band of each experiment.
    """
    directory = request.directory(f"reproduce-{target}")
    experiments = experiments_of(target)
    if not request.resume and directory.is_dir() and any(directory.iterdir()):
        raise ConflictError(
            f"{directory} is not empty; continue it with --resume, or choose another --out"
        )
    outs = [directory / experiment.id.replace("/", "-") for experiment in experiments]
    plans = [
        request.plan(experiment, out, Place())
        for experiment, out in zip(experiments, outs, strict=True)
    ]
    title = _title(target, experiments)
    summaries: list[dict[str, Any]] = []
    reports: list[Report] = []
    with process_pool(request.workers) as pool:
        for place, (plan, experiment) in enumerate(zip(plans, experiments, strict=True)):
            label = f"{place + 1}/{len(plans)} {experiment.id}"
            with _timed(directory, experiment.id):
                summary = request.execute(plan, pool if request.workers > 1 else None, label)
                report = _report(plan, experiment, request, band, label)
            summaries.append({**summary, "statements": [*report.statements]})
            reports.append(report)
            missing = [later.id for later in experiments[place + 1 :]]
            _write_page(directory, title, reports, missing=missing)
    pictures = group_pictures([Run.load(plan.out) for plan in plans])
    _save_pictures(pictures, target, directory, reports)
    _write_page(directory, title, reports, pictures=pictures)
    seconds = sum(_times(directory).get(experiment.id, 0.0) for experiment in experiments)
    return {"reproduce": target, "seconds": seconds, "runs": summaries, "out": str(directory)}


def _report(
    plan: Plan, experiment: Experiment, request: Request, band: Band | None, label: str
) -> Report:
    """Judge a finished run, and write its report and figures."""
    if not request.quiet:
        say(f"superarm: {label}: judging claims and drawing figures", err=True)
    report, _ = write_outputs(
        plan.out,
        experiment,
        experiment.id,
        quiet=request.quiet,
        figures=True,
        bound=True,
        band=band,
    )
    return report


def _save_pictures(
    pictures: list[Picture], target: str, directory: Path, reports: list[Report]
) -> None:
    """Pictures over several runs, as files; none without matplotlib, as every report has said."""
    if not can_draw(quiet=True):
        return
    from superarm.plotting import save_pictures

    origin = ["synthetic data"] if any(report.warning for report in reports) else []
    save_pictures(pictures, f"superarm: {target}", directory / "figures", origin)


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
        directory / "index.html",
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
            times[experiment] = times.get(experiment, 0.0) + time.perf_counter() - started
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
    times = {name: float(seconds) for name, seconds in found.items()}
    if not all(0.0 <= seconds < math.inf for seconds in times.values()):
        raise StateError(f"{advice}: a time is negative or not finite")
    return times


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
    statements = [statement for run in summary["runs"] for statement in run["statements"]]
    print_count(console, claims, not_judged)
    print_count(console, statements, [], noun="statement of theory")
    page = Path(summary["out"]) / "index.html"
    duration = readable_duration(summary["seconds"])
    console.print(f"Took {duration}. All figures: {page}", markup=False, soft_wrap=True)
