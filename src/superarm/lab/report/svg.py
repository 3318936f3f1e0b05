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
from superarm.lab.results.pictures import Chart, Map, Series, Shape, TripEnds, Window
from superarm.lab.results.styles import PolicyStyle

DASHES = ("none", "9 3", "3 3")
_MAP_WIDTH = 420
_LETTER = 7.0  # the width of a letter, on average
_TEXT_START = 18.0  # from the end of the x-axis to a label, beside the stroke before it
_MOST_LABELS = 0.5  # share of a chart's width that labels may take
_LEAST_NAME = 4  # letters of a name that is shortened
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
    has_dashes = any(series.style.dash for series in chart.series)
    stub = 24.0 if has_dashes else 8.0
    x_axis, y_axis = _layout(chart, frame, stub)
    left = x_axis.start
    right = x_axis.stop
    bottom = y_axis.start
    crop = ""
    if frame is LARGE:
        # On a narrow screen the labels are cut off: a list below says the same.
        crop = f' style="--crop:{width / (right + 22):.3f}"'
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
            end = placed.y[-1] if len(placed.y) else bottom
            ends.append(float(end))
    if not bare:
        heights = spread_labels(ends, 17.0, y_axis.stop, bottom)
        room = width - right
        for series, end, y in zip(labelled, ends, heights, strict=True):
            parts.append(_end_label(series, right, end, y, stub, room))
    return "".join(parts) + "</svg>"


def _layout(chart: Chart, frame: PlotArea, stub: float) -> tuple[_Axis, _Axis]:
    """Both axes, with room for what stands beside them."""
    width, height, bare = frame
    if bare:
        left, right = 8.0, width - 8.0
        top, bottom = 8.0, height - 8.0
    else:
        labels = [series.label for series in chart.series]
        tick_labels = chart.y_ticks().values()
        label_room = _TEXT_START + stub + 10.0 + _LETTER * _longest(labels)
        left = max(58.0, 14.0 + _LETTER * _longest(tick_labels))
        right = width - min(_MOST_LABELS * width, label_room)
        top = 48.0 if chart.title else 32.0
        bottom = height - 46.0
    x_axis = _Axis(*chart.x_range(), chart.log_x, left, right)
    y_axis = _Axis(*chart.y_range(), chart.log_y, bottom, top)
    return x_axis, y_axis


def _longest(texts: Iterable[str]) -> int:
    """The number of letters of the longest text."""
    return max((len(text) for text in texts), default=0)


def _curve(series: Series, placed: Shape, *, markers: bool) -> Iterable[str]:
    """A curve with its band, dots and notes; ``placed`` is its shape in the drawing."""
    style = series.style
    colour = colour_of(style)
    x = placed.x
    y = placed.y
    # Bands of baselines would lie over all.
    if series.half is not None and not style.thin:
        around_x = np.concatenate([x, x[::-1]])
        around_y = np.concatenate([placed.high, placed.low[::-1]])
        band = _path(around_x, around_y)
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
    middle_x = (left + right) / 2
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
        if x > middle_x:
            yield _text(x - 4, top + 10, label, "end")
        else:
            yield _text(x + 4, top + 10, label, "start")
    yield _text(middle_x, height - 6, chart.x_label, "middle")
    yield _text(4, top - 16, chart.y_label, "start")


def _end_label(
    series: Series, right: float, end: float, place: float, stub: float, room: float
) -> str:
    """A curve's label, with a stroke from the curve's end to it.

    Args:
        series: The curve.
        right: The end of the x-axis.
        end: The height of the curve's end.
        place: The height of the label.
        stub: The length of the stroke's level part.
        room: From the end of the x-axis to that of the drawing.
    """
    look = f'fill="none" style="stroke:{colour_of(series.style)}" stroke-width="2"'
    letters = int((room - _TEXT_START - stub) / _LETTER)
    label = shorten_label(series.label, letters)
    title = ""
    if label != series.label:
        title = f"<title>{escape(series.label)}</title>"
    x = right + _TEXT_START + stub
    return (
        f'<path d="M{right + 3:g} {end:.1f}L{right + 13:g} {place:.1f}" {look}/>'
        f'<path d="M{right + 13:g} {place:.1f}h{stub:g}" {look} '
        f'stroke-dasharray="{DASHES[series.style.dash]}"/>'
        f'<text x="{x:g}" y="{place + 4:.1f}">{title}{escape(label)}</text>'
    )


def shorten_label(label: str, letters: int) -> str:
    """Shorten a curve's label with an ellipsis; a number after two spaces stays if it can.

    Args:
        label: The label.
        letters: The largest number of letters.

    >>> shorten_label("a-policy-with-a-long-name  1,230", 16)
    'a-policy…  1,230'
    >>> shorten_label("a-policy  1,230", 16)
    'a-policy  1,230'
    """
    if len(label) <= letters:
        return label
    name, gap, value = label.rpartition("  ")
    ending = f"…{gap}{value}" if name else "…"
    room = letters - len(ending)
    if room < _LEAST_NAME:
        name = ""
        ending = "…"
        room = letters - 1
    shortened = (name or label)[: max(room, 0)]
    return shortened.rstrip() + ending


class _Axis(NamedTuple):
    """From values, low to high, to places in a drawing, start to stop."""

    low: float
    high: float
    log: bool
    start: float
    stop: float

    def place(self, value: Any) -> Any:
        """The place of a value, or of many."""
        low = self.low
        high = self.high
        if self.log:
            span = np.log(high / low)
            share = np.log(value / low) / span
        else:
            span = high - low
            share = (value - low) / span
        length = self.stop - self.start
        return self.start + share * length


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
        window = self._window
        top = window.bottom + window.height
        x = points[:, 0] - window.left
        y = top - points[:, 1]
        return np.stack([x, y], axis=1) * self.scale

    def path(self, courses: Iterable[Floats]) -> str:
        """Write courses as one path, without any too short to be seen or drawn already.

        Args:
            courses: Points of each course in metres, (q, 2).
        """
        drawn: set[frozenset[tuple[int, int]]] = set()
        parts = []
        for course in courses:
            corners = self._corners(course)
            distinct = frozenset(corners)
            if len(corners) > 1 and distinct not in drawn:
                drawn.add(distinct)
                parts.append(_polyline(corners))
        path = "".join(parts)
        return path.replace(" -", "-") or "M0 0"

    def _corners(self, course: Floats) -> list[tuple[int, int]]:
        """Points of a course in units of paths, without those equal to the one before."""
        places = self._units * self.place(course)
        rounded = np.rint(places).astype(int)
        corners: list[tuple[int, int]] = []
        for x, y in rounded.tolist():
            point = (x, y)
            if not corners or point != corners[-1]:
                corners.append(point)
        return corners


def _polyline(corners: Sequence[tuple[int, int]]) -> str:
    """A line through corners, each relative to the one before."""
    steps = []
    for (x, y), (next_x, next_y) in pairwise(corners):
        steps.append(f"{next_x - x} {next_y - y}")
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
    parts += [_trip_ends(ends, shown.roads, plane) for ends in shown.ends]
    parts.append("</svg>")
    parts.append(_scale_bar(shown.window, plane, height + head - 6))
    return "".join(parts) + "</svg>"


def _trip_ends(ends: TripEnds, roads: RoadMap, plane: Plane) -> str:
    """A disc at the start, a square at the goal."""
    start = middle(roads.course(ends.start))
    goal = middle(roads.course(ends.goal))
    points = np.array([start, goal])
    places = _HALVES * plane.place(points)
    (start_x, start_y), (goal_x, goal_y) = places
    look = f'fill="#fff" stroke="{ends.colour}" stroke-width="5"'
    disc = f'cx="{start_x:.0f}" cy="{start_y:.0f}" r="9"'
    square = f'x="{goal_x - 8:.0f}" y="{goal_y - 8:.0f}" width="16" height="16"'
    return f"<circle {disc} {look}/><rect {square} {look}/>"


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
