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
    """Write a PNG (150 dpi) and an SVG; equal figures give equal bytes.

    Args:
        figure: The figure.
        path_without_suffix: The path of both files, without their suffix.
    """
    base = Path(path_without_suffix)
    png = base.with_name(base.name + ".png")
    svg = base.with_name(base.name + ".svg")
    with look():
        # Without what changes from one day or version to another.
        atomic_write(png, _encode(figure, "png", {"Software": None}))
        atomic_write(svg, _encode(figure, "svg", {"Date": None}))
    return png, svg


def _encode(figure: Figure, kind: str, metadata: dict[str, str | None]) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, facecolor="white", metadata=metadata)
    return buffer.getvalue()


def save_run_figures(
    run: Run,
    directory: Path | str,
    bounds: RegretBounds | None = None,
    band: Band | None = None,
) -> list[Path]:
    """Write every picture of a run as PNG and SVG, and return the paths.

    Args:
        run: The run.
        directory: The folder of the files.
        bounds: Bounds from theory to draw over the regret.
        band: The kind of band; by default that of the experiment.
    """
    pictures: list[Picture] = []
    for charts in run_charts(run, bounds, band).values():
        pictures += charts
    pictures += visit_pictures(run, run.policies)
    pictures += doubt_pictures(run)
    for picture in (networks_picture([run]), calibration_picture(run)):
        if picture is not None:
            pictures.append(picture)
    origin = [run.experiment]
    if synthetic_data(run):
        origin.append("synthetic data")
    return save_pictures(pictures, run.title, directory, origin)


def save_pictures(
    pictures: Iterable[Picture],
    title: str,
    directory: Path | str,
    origin: Sequence[str] = (),
) -> list[Path]:
    """Write pictures as PNG and SVG, one figure in memory at a time.

    Names of pictures may come from ``run.json``: their files stay in ``directory`` all the
    same, and no two share one.

    Args:
        pictures: The pictures.
        title: The title of all of them.
        directory: The folder of the files.
        origin: Words before each caption: whose results these are.
    """
    pictures = list(pictures)
    names = distinct_file_names(picture.name for picture in pictures)
    paths: list[Path] = []
    for picture, name in zip(pictures, names, strict=True):
        figure = draw_picture(picture, title, origin)
        paths += save_figure(figure, Path(directory) / name)
    return paths
