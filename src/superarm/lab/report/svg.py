"""Pictures as inline SVG, written by hand: neither a library nor a script is needed.

They take their ink from ``currentColor`` and their colours from the page's custom properties
``--c0`` …, with the palette as a fallback: one picture serves light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.road_map import RoadMap
from superarm.lab.results.axes import spread_labels
from superarm.lab.results.maps import in_window, length_text, middle, round_length
from superarm.lab.results.pictures import Chart, Map, Series, Shape, Window
from superarm.lab.results.styles import PolicyStyle

DASHES = ("none", "9 3", "3 3")
_MAP_WIDTH = 420
_LETTER = 7.0  # the width of a letter, on average
_HALVES = 2  # half units that paths of roads are written in: whole numbers are short


class PlotArea(NamedTuple):
    """How large a chart is drawn, and whether with names and numbers."""

    width: int
    height: int
    bare: bool = False


LARGE = PlotArea(640, 360)
SMALL = PlotArea(440, 290)
THUMBNAIL = PlotArea(320, 170, bare=True)


def svg_chart(chart: Chart, frame: PlotArea = LARGE) -> str:
    """Draw curves with bands, ticks and labels at the line ends.

    Args:
        chart: The chart.
        frame: Its size.
    """
    width, height, bare = frame
    # Where there are dashes, strokes beside labels are long enough to show them.
    stub = 24.0 if any(series.style.dash for series in chart.series) else 8.0
    x_axis, y_axis = _layout(chart, frame, stub)
    left = x_axis.start
    right = x_axis.stop
    bottom = y_axis.start
    top = y_axis.stop
    # On a narrow screen the labels are cut off: a list below says the same.
    crop = f' style="--crop:{width / (right + 22):.3f}"' if frame is LARGE else ""
    parts = [svg_open(width, height, chart.description, crop)]
    if not bare:
        parts += _axes(chart, x_axis, y_axis, height)
    parts.append(_rule(f"M{left:g} {bottom:g}H{right:g}", 0.4))
    labelled: list[Series] = []
    ends: list[float] = []  # heights of the labelled curves' ends
    for series, shape in zip(chart.series, chart.shapes(), strict=True):
        placed = Shape(
            x=x_axis.place(shape.x),
            y=y_axis.place(shape.y),
            low=y_axis.place(shape.low),
            high=y_axis.place(shape.high),
        )
        parts += _curve(series, placed, markers=chart.markers)
        if series.label:
            labelled.append(series)
            ends.append(float(placed.y[-1]) if len(placed.y) else bottom)
    if not bare:
        heights = spread_labels(ends, 17.0, top, bottom)
        for series, end, y in zip(labelled, ends, heights, strict=True):
            parts.append(_end_label(series, right, end, y, stub))
    return "".join(parts) + "</svg>"


def _layout(chart: Chart, frame: PlotArea, stub: float) -> tuple[_Axis, _Axis]:
    """Both axes, with room for what stands beside them."""
    width, height, bare = frame
    if bare:
        left, right = 8.0, width - 8.0
        top, bottom = 8.0, height - 8.0
    else:
        longest_label = max((len(series.label) for series in chart.series), default=0)
        longest_tick = max((len(tick) for tick in chart.y_ticks().values()), default=0)
        labels = 28.0 + stub + _LETTER * longest_label
        left = max(58.0, 14.0 + _LETTER * longest_tick)
        right = width - min(0.45 * width, labels)
        top = 48.0 if chart.title else 32.0
        bottom = height - 46.0
    x_axis = _Axis(*chart.x_range(), chart.log_x, left, right)
    y_axis = _Axis(*chart.y_range(), chart.log_y, bottom, top)
    return x_axis, y_axis


def _curve(series: Series, placed: Shape, *, markers: bool) -> Iterable[str]:
    """A curve with its band, dots and notes; ``placed`` is its shape in the drawing."""
    style = series.style
    colour = colour_of(style)
    x = placed.x
    y = placed.y
    # Bands of baselines would lie over all.
    if series.half is not None and not style.thin:
        around = np.concatenate([x, x[::-1]])
        band = _path(around, np.concatenate([placed.high, placed.low[::-1]]))
        yield f'<path d="{band}Z" style="fill:{colour}" opacity=".17"/>'
    yield (
        f'<path d="{_path(x, y)}" fill="none" style="stroke:{colour}" '
        f'stroke-width="{1.1 if style.thin else 2}" stroke-linejoin="round" '
        f'stroke-dasharray="{DASHES[style.dash]}"/>'
    )
    points = range(len(x)) if markers else series.marked
    if points:
        size = 3.2 if markers else 4.5
        dots = [
            f'<circle cx="{x[point]:.1f}" cy="{y[point]:.1f}" r="{size}"/>'
            for point in points
        ]
        yield f'<g style="fill:{colour}">{"".join(dots)}</g>'
    for point, note in series.notes:
        yield _text(float(x[point]), float(y[point]) - 8, note, "middle")


def _axes(chart: Chart, x_axis: _Axis, y_axis: _Axis, height: int) -> Iterable[str]:
    left = x_axis.start
    right = x_axis.stop
    bottom = y_axis.start
    top = y_axis.stop
    if chart.title:
        yield f'<text x="4" y="15" font-weight="600">{escape(chart.title)}</text>'
    for value, label in chart.y_ticks().items():
        y = float(y_axis.place(value))
        yield _rule(f"M{left:g} {y:.1f}H{right:g}", 0.14)
        yield _text(left - 8, y + 4, label, "end")
    for value, label in chart.x_ticks().items():
        x = float(x_axis.place(value))
        yield _rule(f"M{x:.1f} {bottom:g}v5", 0.4)
        yield _text(x, bottom + 20, label, "middle")
    for label, value in chart.marks.items():
        x = float(x_axis.place(value))
        yield _rule(f"M{x:.1f} {bottom:g}V{top:g}", 0.55)
        # On the right half it would run into the labels of curves.
        if x > (left + right) / 2.0:
            yield _text(x - 4, top + 10, label, "end")
        else:
            yield _text(x + 4, top + 10, label, "start")
    yield _text((left + right) / 2, height - 6, chart.x_label, "middle")
    yield _text(4, top - 16, chart.y_label, "start")


def _end_label(
    series: Series, right: float, end: float, place: float, stub: float
) -> str:
    look = f'fill="none" style="stroke:{colour_of(series.style)}" stroke-width="2"'
    return (
        f'<path d="M{right + 3:g} {end:.1f}L{right + 13:g} {place:.1f}" {look}/>'
        f'<path d="M{right + 13:g} {place:.1f}h{stub:g}" {look} '
        f'stroke-dasharray="{DASHES[series.style.dash]}"/>'
        f'<text x="{right + 18 + stub:g}" y="{place + 4:.1f}">{escape(series.label)}</text>'
    )


class _Axis(NamedTuple):
    """From values, low to high, to places in a drawing, start to stop."""

    low: float
    high: float
    log: bool
    start: float
    stop: float

    def place(self, value: Any) -> Any:
        """The place of a value, or of many."""
        if self.log:
            scaled = np.log(value / self.low) / np.log(self.high / self.low)
        else:
            scaled = (value - self.low) / (self.high - self.low)
        return self.start + scaled * (self.stop - self.start)


# --- maps --------------------------------------------------------------------------------


class Plane:
    """From metres to places in a drawing, y downwards, and roads to paths.

    Args:
        window: The part of the map that is drawn.
        width: The width of the drawing.
        units: Parts of a unit in which paths are written.
    """

    def __init__(self, window: Window, width: float, units: int) -> None:
        self._window = window
        self._units = units
        self.scale = width / window.width
        self.width = width
        self.height = window.height * self.scale

    def place(self, points: Floats) -> Floats:
        """Places in the drawing, (n, 2).

        Args:
            points: In metres, (n, 2).
        """
        x = points[:, 0] - self._window.left
        y = self._window.bottom + self._window.height - points[:, 1]
        return np.stack([x, y], axis=1) * self.scale

    def path(self, courses: Iterable[Floats]) -> str:
        """Write courses as one path, without any too short to be seen or drawn already.

        Args:
            courses: Points of each course in metres, (q, 2).
        """
        drawn: set[frozenset[tuple[int, int]]] = set()
        parts = []
        for course in courses:
            points = np.rint(self._units * self.place(course)).astype(int)
            steps = np.diff(points, axis=0)
            moved = np.concatenate([[True], np.any(steps != 0, axis=1)])
            corners = [(int(x), int(y)) for x, y in points[moved]]
            if len(corners) > 1 and frozenset(corners) not in drawn:
                drawn.add(frozenset(corners))
                parts.append(_polyline(corners))
        return "".join(parts).replace(" -", "-") or "M0 0"


def _polyline(corners: Sequence[tuple[int, int]]) -> str:
    """A line through corners, each relative to the one before."""
    steps = [f"{x - a} {y - b}" for (a, b), (x, y) in pairwise(corners)]
    first_x, first_y = corners[0]
    return f"M{first_x} {first_y}l{' '.join(steps)}"


def svg_maps(maps: Iterable[Map], base: str) -> list[str]:
    """Draw maps; those of the same roads and window share the grey ones of the first.

    Args:
        maps: The maps.
        base: How the ids of grey roads begin.
    """
    ids: dict[tuple[RoadMap, Window], str] = {}  # of grey roads that are drawn
    pictures = []
    for shown in maps:
        key = (shown.roads, shown.window)
        reuse = key in ids
        if not reuse:
            ids[key] = f"{base}-{len(ids)}"
        pictures.append(_svg_map(shown, ids[key], reuse=reuse))
    return pictures


def _svg_map(shown: Map, base: str, *, reuse: bool) -> str:
    plane = Plane(shown.window, _MAP_WIDTH, _HALVES)
    head = 30  # the height of the title
    height = round(plane.height)
    parts = [
        svg_open(_MAP_WIDTH, height + head, shown.description),
        '<text x="0" y="20" font-size="20">',
        f'<tspan font-weight="600">{escape(shown.title)}</tspan>',
        f'<tspan opacity=".75">  {escape(shown.note)}</tspan></text>',
        f'<svg x="0" y="{head}" width="{_MAP_WIDTH}" height="{height}"',
        f' viewBox="0 0 {_HALVES * _MAP_WIDTH} {_HALVES * height}" fill="none">',
    ]

    def path(edges: Ints) -> str:
        return plane.path(shown.roads.course(edge) for edge in edges.tolist())

    if reuse:
        parts.append(f'<use href="#{base}"/>')
    else:
        grey = path(in_window(shown.roads, shown.window))
        parts.append(
            f'<g id="{base}"><path d="{grey}" stroke="currentColor" opacity=".3"/></g>'
        )
    for layer in shown.layers:
        look = f'stroke="{layer.colour}" stroke-width="{_HALVES * layer.width:.1f}"'
        parts.append(f'<path d="{path(layer.edges)}" {look} stroke-linejoin="round"/>')
    for ends in shown.ends:
        look = f'fill="#fff" stroke="{ends.colour}" stroke-width="5"'
        start = middle(shown.roads.course(ends.start))
        goal = middle(shown.roads.course(ends.goal))
        places = _HALVES * plane.place(np.array([start, goal]))
        (start_x, start_y), (goal_x, goal_y) = places
        disc = f'cx="{start_x:.0f}" cy="{start_y:.0f}" r="9"'
        square = f'x="{goal_x - 8:.0f}" y="{goal_y - 8:.0f}" width="16" height="16"'
        parts.append(f"<circle {disc} {look}/>")
        parts.append(f"<rect {square} {look}/>")
    parts.append("</svg>")
    parts.append(_scale_bar(shown.window, plane, height + head - 6))
    return "".join(parts) + "</svg>"


def _scale_bar(window: Window, plane: Plane, y: int) -> str:
    """A bar on the right, with its length in metres."""
    length = round_length(window.width / 4.0)
    right = _MAP_WIDTH - 6
    width = length * plane.scale
    bar = f'<path d="M{right - width:.1f} {y}H{right}" stroke="currentColor" stroke-width="2"/>'
    place = f'x="{right - width / 2:.1f}" y="{y - 5}"'
    look = 'text-anchor="middle" font-size="17"'
    return f"{bar}<text {place} {look}>{length_text(length)}</text>"


# --- parts -------------------------------------------------------------------------------


def svg_open(width: int, height: int, description: str, more: str = "") -> str:
    """Write the opening tag.

    Args:
        width: The width of the drawing.
        height: Its height.
        description: The alternative text.
        more: Further attributes, after a space.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(description)}" font-size="13" fill="currentColor"{more}>'
    )


def colour_of(style: PolicyStyle) -> str:
    """The colour of a style, as a custom property of the page where it has one.

    Args:
        style: The style.
    """
    if isinstance(style.colour, int):
        return f"var(--c{style.colour},{style.hex})"
    return style.hex


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} opacity=".75">{escape(text)}</text>'


def _rule(path: str, opacity: float) -> str:
    return f'<path d="{path}" stroke="currentColor" opacity="{opacity}"/>'


def _path(x: Floats, y: Floats) -> str:
    if len(x) == 0:
        return "M0 0"
    points = [f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)]
    return "M" + "L".join(points)
