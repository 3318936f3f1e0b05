"""Pictures as SVG files, drawn as reports draw them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from superarm.core.files import distinct_file_names
from superarm.core.states import atomic_write
from superarm.lab.results.averages import Band
from superarm.lab.results.bounds import RegretBounds
from superarm.lab.results.calibration import calibration_picture
from superarm.lab.results.charts import run_charts
from superarm.lab.results.maps import (
    networks_picture,
    uncertainty_pictures,
    visit_pictures,
)
from superarm.lab.results.pictures import Map, Picture
from superarm.lab.results.settings import synthetic_data
from superarm.lab.simulation.run import Run

from .svg import LARGE, SMALL, svg_chart, svg_maps

_MARGIN = 16
_GAP = 6  # between the heading and the panels
_LINE = 18  # the height of a line of text
_TEXT = 13  # the size of letters
_TITLE = 16  # and that of the title and the heading
# The width of a letter as a share of its size: on average, in the widest of the fonts.
_LETTER = 0.6
_BOLD_LETTER = 0.65
_SWATCH = 24  # from a colour of the key to its meaning
_INK = "#1f2328"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_VIEW_BOX = re.compile(r'viewBox="0 0 (\d+) (\d+)"')
# Text cannot match: its quotation marks are escaped.
_PAGE_COLOUR = re.compile(r'style="(fill|stroke):var\(--c\d+,([^)"]+)\)"')
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_Key = Sequence[tuple[str, str]]  # colours and their meanings


class _Panel(NamedTuple):
    """A chart or map as SVG, with its size."""

    svg: str
    width: int
    height: int


def save_run_figures(
    run: Run,
    directory: Path | str,
    bounds: RegretBounds | None = None,
    band: Band | None = None,
) -> list[Path]:
    """Write every picture of a run as an SVG file, and return the paths.

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
    pictures += uncertainty_pictures(run)
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
    """Write each picture as an SVG file, and return the paths.

    Names of pictures may come from ``run.json``: their files stay in ``directory`` all the
    same, and no two share one.

    Args:
        pictures: The pictures.
        title: The title of all of them.
        directory: The folder of the files.
        origin: Words below each caption: whose results these are.
    """
    pictures = list(pictures)
    names = distinct_file_names(picture.name for picture in pictures)
    paths = []
    for picture, name in zip(pictures, names, strict=True):
        path = Path(directory) / f"{name}.svg"
        atomic_write(path, picture_svg(picture, title, origin).encode())
        paths.append(path)
    return paths


def picture_svg(picture: Picture, title: str = "", origin: Sequence[str] = ()) -> str:
    """Draw a picture as one SVG document on white; equal pictures give equal texts.

    Args:
        picture: The picture, with at least one panel.
        title: Words above the panels.
        origin: Words below the caption: whose results these are.
    """
    panels = _panels(picture)
    columns = min(picture.columns, len(panels))
    cell_width = max(panel.width for panel in panels)
    text_width = columns * (cell_width + _MARGIN) - _MARGIN
    parts = []
    y = _MARGIN
    title_letters = int(text_width / (_BOLD_LETTER * _TITLE))
    for text, weight in ((title, 600), (picture.heading, 400)):
        for line in wrap(text, title_letters):
            y += _LINE
            look = f'font-size="{_TITLE}" font-weight="{weight}"'
            parts.append(_line(_MARGIN, y, line, look))
    y += _GAP
    for first in range(0, len(panels), columns):
        row = panels[first : first + columns]
        for column, panel in enumerate(row):
            x = _MARGIN + column * (cell_width + _MARGIN)
            parts.append(_place_panel(panel, x, y))
        y += max(panel.height for panel in row) + _MARGIN
    for entries in _key_rows(picture.key, text_width):
        y += _LINE
        parts.append(_key_row(entries, y))
    letters = int(text_width / (_LETTER * _TEXT))
    for text in (picture.caption, " · ".join(origin)):
        for line in wrap(text, letters):
            y += _LINE
            parts.append(_line(_MARGIN, y, line, 'opacity=".75"'))
    return _document("".join(parts), text_width + 2 * _MARGIN, y + _MARGIN)


def _panels(picture: Picture) -> list[_Panel]:
    area = LARGE if len(picture.panels) == 1 else SMALL
    maps = [panel for panel in picture.panels if isinstance(panel, Map)]
    drawn_maps = iter(svg_maps(maps, "roads"))
    panels = []
    for panel in picture.panels:
        svg = next(drawn_maps) if isinstance(panel, Map) else svg_chart(panel, area)
        view = _VIEW_BOX.search(svg)
        assert view is not None
        width, height = view.groups()
        panels.append(_Panel(svg, int(width), int(height)))
    return panels


def _place_panel(panel: _Panel, x: int, y: int) -> str:
    place = f'<svg x="{x}" y="{y}" width="{panel.width}" height="{panel.height}" '
    return panel.svg.replace("<svg ", place, 1)


def _line(x: float, bottom: int, text: str, look: str = "") -> str:
    """One line of text; ``bottom`` is below its descenders."""
    return f'<text x="{x:g}" y="{bottom - 4}" {look}>{escape(text)}</text>'


def _key_rows(key: _Key, width: int) -> list[_Key]:
    """As many colours in each row as there is room for."""
    rows: list[list[tuple[str, str]]] = []
    right = float(width)
    for colour, text in key:
        right += _entry_width(text)
        if right > width:
            rows.append([])
            right = _entry_width(text)
        rows[-1].append((colour, text))
    return [*rows]


def _key_row(entries: _Key, bottom: int) -> str:
    parts = []
    x = float(_MARGIN)
    for colour, text in entries:
        place = f'x="{x:g}" y="{bottom - 12}" width="18" height="8"'
        parts.append(f'<rect {place} fill="{escape(colour)}"/>')
        parts.append(_line(x + _SWATCH, bottom, text))
        x += _entry_width(text)
    return "".join(parts)


def _entry_width(text: str) -> float:
    return _SWATCH + _LETTER * _TEXT * len(text) + _MARGIN


def _document(body: str, width: int, height: int) -> str:
    """A whole file: nothing in it depends on a page, and every XML reader takes it."""
    body = _PAGE_COLOUR.sub(r'style="\1:\2"', body)
    body = _NOT_XML.sub("\ufffd", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" color="{_INK}" fill="{_INK}" '
        f'font-family="{_FONT}" font-size="{_TEXT}">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{body}</svg>\n'
    )
