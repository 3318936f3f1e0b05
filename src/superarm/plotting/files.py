"""All pictures that apply to a run, as files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from superarm.results.bounds import RegretBounds
from superarm.results.charts import regret_chart, run_charts
from superarm.results.curves import Band, band_text, made_data
from superarm.results.maps import doubt_pictures, networks_picture, visit_pictures
from superarm.results.pictures import Picture
from superarm.results.roads import METHODS, calibration_picture, trip_name, trip_settings
from superarm.simulation.files import atomic_write
from superarm.simulation.trace import Run

from .figures import draw_picture, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: Figure, path_without_suffix: Path | str) -> tuple[Path, Path]:
    """Write PNG (150 dpi) and SVG beside each other; equal figures give equal bytes."""
    base = Path(path_without_suffix)
    paths = base.with_name(base.name + ".png"), base.with_name(base.name + ".svg")
    with look():
        for path, metadata in zip(paths, ({"Software": None}, {"Date": None}), strict=True):
            buffer = io.BytesIO()
            figure.savefig(
                buffer, format=path.suffix[1:], dpi=150, facecolor="white", metadata=metadata
            )
            atomic_write(path, buffer.getvalue())
    return paths


def save_run_figures(
    run: Run, directory: Path | str, bounds: RegretBounds | None = None, band: Band = "stderr"
) -> list[Path]:
    """Every picture of a run, as PNG and SVG."""
    pictures = [picture for group in run_charts(run, bounds, band).values() for picture in group]
    pictures += visit_pictures(run, run.policies) + doubt_pictures(run)
    pictures += filter(None, (networks_picture([run]), calibration_picture(run)))
    origin = [run.experiment, *(["synthetic data"] if made_data(run) else [])]
    files: list[Path] = []
    for picture in pictures:
        files += save_figure(draw_picture(picture, run.title, origin), Path(directory) / picture.name)
    return files


def save_group_figures(
    runs: Sequence[Run], directory: Path | str, band: Band = "stderr"
) -> dict[str, Path]:
    """Pictures over several runs, as PNG and SVG; the PNG files by what they show.

    Runs on roads have their networks in one, and the methods of all trips in another; other runs
    have none.
    """
    # A trip's route is best taken from a run that made no other trip.
    mapped = sorted((run for run in runs if trip_settings(run)), key=lambda run: len(run.settings))
    networks = networks_picture(mapped)
    if networks is None:
        return {}
    found = {"Networks with the routes of least regret that were found": networks}
    single = [run for run in mapped if len(run.settings) == 1 and set(METHODS) & set(run.policies)]
    if single:
        panels = tuple(regret_chart(run, 0, band, METHODS, title=trip_name(run, 0)) for run in single)
        told = f"Cumulative regret on every route, {band_text(single[0], band)}"
        found[told] = Picture(name="methods", panels=panels, caption="", columns=3)
    synthetic = ["synthetic data"] if any(made_data(run) for run in mapped) else []
    return {
        told: save_figure(draw_picture(picture, told, synthetic), Path(directory) / picture.name)[0]
        for told, picture in found.items()
    }
