"""All pictures that apply to a run, as files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from superarm.core.files import distinct_file_names
from superarm.core.states import atomic_write
from superarm.lab.results.averages import Band
from superarm.lab.results.bounds import RegretBounds
from superarm.lab.results.calibration import calibration_picture
from superarm.lab.results.charts import run_charts
from superarm.lab.results.maps import doubt_pictures, networks_picture, visit_pictures
from superarm.lab.results.pictures import Picture
from superarm.lab.results.settings import synthetic_data
from superarm.lab.simulation.run import Run

from .figures import draw_picture, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: Figure, path_without_suffix: Path | str) -> tuple[Path, Path]:
    """Write PNG (150 dpi) and SVG beside each other; equal figures give equal bytes."""
    base = Path(path_without_suffix)
    paths = base.with_name(base.name + ".png"), base.with_name(base.name + ".svg")
    with look():
        for path, metadata in zip(
            paths, ({"Software": None}, {"Date": None}), strict=True
        ):
            buffer, kind = io.BytesIO(), path.suffix[1:]
            figure.savefig(
                buffer, format=kind, dpi=150, facecolor="white", metadata=metadata
            )
            atomic_write(path, buffer.getvalue())
    return paths


def save_run_figures(
    run: Run,
    directory: Path | str,
    bounds: RegretBounds | None = None,
    band: Band | None = None,
) -> list[Path]:
    """Every picture of a run, as PNG and SVG."""
    pictures = [
        picture for group in run_charts(run, bounds, band).values() for picture in group
    ]
    pictures += visit_pictures(run, run.policies) + doubt_pictures(run)
    pictures += filter(None, (networks_picture([run]), calibration_picture(run)))
    origin = [run.experiment, *(["synthetic data"] if synthetic_data(run) else [])]
    return save_pictures(pictures, run.title, directory, origin)


def save_pictures(
    pictures: Iterable[Picture],
    title: str,
    directory: Path | str,
    origin: Sequence[str] = (),
) -> list[Path]:
    """Pictures as PNG and SVG, one figure alive at a time.

    Pictures may be named by whoever wrote ``run.json``: their files stay in ``directory`` all the
    same, and no two share one.
    """
    pictures = list(pictures)
    names = distinct_file_names(picture.name for picture in pictures)
    paths: list[Path] = []
    for picture, name in zip(pictures, names, strict=True):
        paths += save_figure(
            draw_picture(picture, title, origin), Path(directory) / name
        )
    return paths
