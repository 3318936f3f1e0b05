"""Pictures as inline SVG, written by hand: neither matplotlib nor a script is needed.

They take their ink from ``currentColor`` and their colours from the page's custom properties
``--c0`` …, with the palette as a fallback: one picture serves light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.road_map import RoadMap
from superarm.lab.results.axes import spread_labels
from superarm.lab.results.maps import in_window, length_text, middle, round_length
from superarm.lab.results.pictures import Chart, Map, Series, Window
from superarm.lab.results.styles import PolicyStyle

DASHES = ("none", "9 3", "3 3")  # as in ``plotting``
_MAP_WIDTH = 420
_LETTER = 7.0  # the width of a letter, on average
_HALVES = 2  # half units that paths of roads are written in: whole numbers are short


class PlotArea(NamedTuple):
    """How large a chart is drawn, and whether with names and numbers."""

    width: int
    height: int
    bare: bool = False


LARGE, SMALL, THUMBNAIL = (
    PlotArea(640, 360),
    PlotArea(440, 290),
    PlotArea(320, 170, bare=True),
)


def svg_chart(chart: Chart, frame: PlotArea = LARGE) -> str:
    """Curves with bands, ticks and labels at the line ends."""
    width, height, bare = frame
    lengths = [len(each.label) for each in chart.series]
    # Where there are dashes, leaders are long enough to show them.
    stub = 24.0 if any(each.style.dash for each in chart.series) else 8.0
    labels = 28.0 + stub + _LETTER * max(lengths, default=0)
    right = width - (8.0 if bare else min(0.45 * width, labels))
    numbers = max(map(len, chart.y_ticks().values()), default=0)
    beside = max(58.0, 14.0 + _LETTER * numbers)
    margins = (beside, 48.0 if chart.title else 32.0, height - 46.0)
    left, top, bottom = (8.0, 8.0, height - 8.0) if bare else margins
    x_axis = _Axis(*chart.x_range(), chart.log_x, left, right)
    y_axis = _Axis(*chart.y_range(), chart.log_y, bottom, top)
    # On a narrow screen the labels are cut off: a list below says the same.
    crop = "" if frame is not LARGE else f' style="--crop:{width / (right + 22):.3f}"'
    parts = [svg_open(width, height, chart.description, crop)]
    if not bare:
        parts += _axes(chart, x_axis, y_axis, height)
    parts.append(_rule(f"M{left:g} {bottom:g}H{right:g}", 0.4))
    ends: list[tuple[Series, float]] = []
    for each, shape in zip(chart.series, chart.shapes(), strict=True):
        x, y, low, high = (
            axis.place(part)
            for axis, part in zip((x_axis, *[y_axis] * 3), shape, strict=True)
        )
        colour = colour_of(each.style)
        if (
            each.half is not None and not each.style.thin
        ):  # bands of baselines would lie over all
            band = _path(
                np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
            )
            parts.append(f'<path d="{band}Z" style="fill:{colour}" opacity=".17"/>')
        parts.append(
            f'<path d="{_path(x, y)}" fill="none" style="stroke:{colour}" '
            f'stroke-width="{1.1 if each.style.thin else 2}" stroke-linejoin="round" '
            f'stroke-dasharray="{DASHES[each.style.dash]}"/>'
        )
        if dotted := range(len(x)) if chart.markers else each.marked:
            size = 3.2 if chart.markers else 4.5
            dots = (
                f'<circle cx="{x[at]:.1f}" cy="{y[at]:.1f}" r="{size}"/>'
                for at in dotted
            )
            parts.append(f'<g style="fill:{colour}">{"".join(dots)}</g>')
        for at, note in each.notes:
            parts.append(_text(float(x[at]), float(y[at]) - 8, note, "middle"))
        if each.label:
            ends.append((each, float(y[-1]) if len(y) else bottom))
    if not bare:
        places = spread_labels([end for _, end in ends], 17.0, top, bottom)
        for (each, end), place in zip(ends, places, strict=True):
            parts.append(_end_label(each, right, end, place, stub))
    return "".join(parts) + "</svg>"


def _axes(chart: Chart, x_axis: _Axis, y_axis: _Axis, height: int) -> Iterable[str]:
    left, right, bottom, top = x_axis.start, x_axis.stop, y_axis.start, y_axis.stop
    if chart.title:
        yield f'<text x="4" y="15" font-weight="600">{escape(chart.title)}</text>'
    for value, told in chart.y_ticks().items():
        y = float(y_axis.place(value))
        yield _rule(f"M{left:g} {y:.1f}H{right:g}", 0.14)
        yield _text(left - 8, y + 4, told, "end")
    for value, told in chart.x_ticks().items():
        x = float(x_axis.place(value))
        yield _rule(f"M{x:.1f} {bottom:g}v5", 0.4)
        yield _text(x, bottom + 20, told, "middle")
    for told, value in chart.marks.items():
        x = float(x_axis.place(value))
        yield _rule(f"M{x:.1f} {bottom:g}V{top:g}", 0.55)
        late = x > (left + right) / 2.0  # else it would run into the labels
        yield _text(
            x - 4 if late else x + 4, top + 10, told, "end" if late else "start"
        )
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
    low: float
    high: float
    log: bool
    start: float
    stop: float

    def place(self, value: Any) -> Any:
        scaled = (value - self.low) / (self.high - self.low)
        if self.log:
            scaled = np.log(value / self.low) / np.log(self.high / self.low)
        return self.start + scaled * (self.stop - self.start)


# --- maps --------------------------------------------------------------------------------


class Plane:
    """From metres to places in a drawing, y downwards, and roads to paths in parts of a unit."""

    def __init__(self, window: Window, width: float, units: int) -> None:
        self._window, self._units = window, units
        self.scale = width / window.width
        self.width, self.height = width, window.height * self.scale

    def place(self, points: Floats) -> Floats:
        left, bottom, _, height = self._window
        return (
            np.stack([points[:, 0] - left, bottom + height - points[:, 1]], axis=1)
            * self.scale
        )

    def path(self, courses: Iterable[Floats]) -> str:
        """Courses as one path, without what is too short to be seen or drawn already."""
        drawn: set[frozenset[tuple[int, int]]] = set()
        parts = []
        for course in courses:
            points = np.rint(self._units * self.place(course)).astype(int)
            moved = np.concatenate(
                [[True], np.any(np.diff(points, axis=0) != 0, axis=1)]
            )
            corners = [(int(x), int(y)) for x, y in points[moved]]
            if len(corners) > 1 and frozenset(corners) not in drawn:
                drawn.add(frozenset(corners))
                steps = " ".join(
                    f"{x - a} {y - b}" for (a, b), (x, y) in pairwise(corners)
                )
                parts.append(f"M{corners[0][0]} {corners[0][1]}l{steps}")
        return "".join(parts).replace(" -", "-") or "M0 0"


def svg_maps(maps: Iterable[Map], base: str) -> list[str]:
    """Maps of the same roads; the grey ones of the first are used again by the others."""
    drawn: dict[tuple[RoadMap, Window], str] = {}
    pictures = []
    for each in maps:
        grey = (each.roads, each.window)
        again, name = grey in drawn, drawn.setdefault(grey, f"{base}-{len(drawn)}")
        pictures.append(_svg_map(each, name, again=again))
    return pictures


def _svg_map(shown: Map, base: str, *, again: bool) -> str:
    plane = Plane(shown.window, _MAP_WIDTH, _HALVES)
    head, height = 30, round(plane.height)
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

    if again:
        parts.append(f'<use href="#{base}"/>')
    else:
        grey = path(in_window(shown.roads, shown.window))
        parts.append(
            f'<g id="{base}"><path d="{grey}" stroke="currentColor" opacity=".3"/></g>'
        )
    for layer in shown.layers:
        look = f'stroke="{layer.colour}" stroke-width="{_HALVES * layer.width:.1f}"'
        parts.append(f'<path d="{path(layer.edges)}" {look} stroke-linejoin="round"/>')
    for start, goal, colour in shown.ends:
        look = f'fill="#fff" stroke="{colour}" stroke-width="5"'
        ends = [middle(shown.roads.course(edge)) for edge in (start, goal)]
        (a, b), (x, y) = _HALVES * plane.place(np.array(ends))
        parts.append(f'<circle cx="{a:.0f}" cy="{b:.0f}" r="9" {look}/>')
        parts.append(
            f'<rect x="{x - 8:.0f}" y="{y - 8:.0f}" width="16" height="16" {look}/>'
        )
    length = round_length(shown.window.width / 4.0)
    right, y, wide = _MAP_WIDTH - 6, height + head - 6, length * plane.scale
    bar = f'<path d="M{right - wide:.1f} {y}H{right}" stroke="currentColor" stroke-width="2"/>'
    place = (
        f'x="{right - wide / 2:.1f}" y="{y - 5}" text-anchor="middle" font-size="17"'
    )
    return (
        "".join(parts) + f"</svg>{bar}<text {place}>{length_text(length)}</text></svg>"
    )


# --- parts -------------------------------------------------------------------------------


def svg_open(width: int, height: int, description: str, more: str = "") -> str:
    """The opening tag; ``description`` is the alternative text."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(description)}" font-size="13" fill="currentColor"{more}>'
    )


def colour_of(style: PolicyStyle) -> str:
    """What the page calls it, or else what it is."""
    return (
        f"var(--c{style.colour},{style.hex})"
        if isinstance(style.colour, int)
        else style.hex
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} opacity=".75">{escape(text)}</text>'


def _rule(path: str, opacity: float) -> str:
    return f'<path d="{path}" stroke="currentColor" opacity="{opacity}"/>'


def _path(x: Floats, y: Floats) -> str:
    return (
        "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
        if len(x)
        else "M0 0"
    )
