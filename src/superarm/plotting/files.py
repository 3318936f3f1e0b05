"""All figures that apply to a run, as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from superarm.results.bounds import RegretBounds
from superarm.results.curves import sweeps
from superarm.results.roads import (
    METHODS,
    calibrations,
    compares_schedules,
    main_policies,
    trip_settings,
)
from superarm.simulation.trace import Run

from .curves import plot_growth, plot_regret, plot_seconds, plot_sweep
from .look import save_figure
from .maps import plot_exploration, plot_network, plot_networks
from .navigation import (
    plot_calibration,
    plot_methods,
    plot_schedules,
    plot_sweep_curves,
    plot_sweep_totals,
    plot_trips,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MANY_SETTINGS = 4


def save_run_figures(run: Run, directory: Path | str, bounds: RegretBounds | None = None) -> list[Path]:
    """Every figure of a run, as PNG and SVG; ``bounds`` are drawn over the regret on a log scale."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for name, figure in _figures(run, bounds):
        files += save_figure(figure, directory / name)
    return files


def _figures(run: Run, bounds: RegretBounds | None) -> Iterator[tuple[str, Figure]]:
    """Names and figures, one alive at a time."""
    trips = trip_settings(run)
    many = bool(trips) and len(run.settings) > _MANY_SETTINGS
    for index in range(len(run.settings)):
        suffix = f"-{index}" if len(run.settings) > 1 else ""
        if not many:  # the sweep's own figures show the curves of all settings together
            yield f"regret{suffix}", plot_methods(run, index) if trips else plot_regret(run, index)
            yield f"growth{suffix}", plot_growth(run, index)
        if not many or index in trips:
            yield f"seconds{suffix}", plot_seconds(run, index)
        if index in trips:
            yield from _map_figures(run, index, suffix)
    if bounds is not None and bounds.drawn:
        yield "bound", plot_regret(run, 0, bounds=bounds.drawn, log=True)
    if trips and compares_schedules(run):
        yield "betas", plot_schedules(run)
    if trips and calibrations(run):
        yield "calibration", plot_calibration(run)
    panels = sweeps(run)
    if panels:
        key = panels[0].key
        name = key.replace(".", "-")
        yield f"sweep-{name}", plot_sweep_totals(run, key) if trips else plot_sweep(run, key=key)
        if trips:
            yield f"curves-{name}", plot_sweep_curves(run, key)


def _map_figures(run: Run, index: int, suffix: str) -> Iterator[tuple[str, Figure]]:
    yield f"network{suffix}", plot_network(run, index)
    main = main_policies(run)
    others = [policy for policy in run.policies if policy not in main]
    yield f"exploration{suffix}", plot_exploration(run, index, main)
    if others:
        yield f"exploration-others{suffix}", plot_exploration(run, index, others)


def save_group_figures(runs: Sequence[Run], directory: Path | str) -> dict[str, Path]:
    """Figures over several runs, as PNG and SVG; the PNG files by what they show.

    Runs on roads have their networks in one figure (Fig. 1) and the methods of all trips in
    another (Fig. 2); other runs have none.
    """
    # A trip's route is best taken from a run that made no other trip.
    mapped = sorted((run for run in runs if trip_settings(run)), key=lambda run: len(run.settings))
    if not mapped:
        return {}
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    told = "Networks with the routes of least regret that were found"
    files = {told: save_figure(plot_networks(mapped), directory / "networks")[0]}
    single = [run for run in mapped if len(run.settings) == 1 and set(METHODS) & set(run.policies)]
    if single:
        figure = plot_trips(single)
        told = "Cumulative regret on every route, mean ± 1 standard error"
        files[told] = save_figure(figure, directory / "methods")[0]
    return files
