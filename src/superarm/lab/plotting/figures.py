"""Pictures as matplotlib figures: charts with labels at line ends, lines of dots, maps."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from superarm.core import Ints
from superarm.core.errors import require_extra
from superarm.core.road_map import RoadMap
from superarm.lab.results.axes import spread_labels
from superarm.lab.results.maps import in_window, length_text, middle, round_length
from superarm.lab.results.pictures import Chart, Map, Picture, Series, Shape, Window
from superarm.lab.results.styles import PolicyStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
_INK = "#1f2328"
_MUTED = "#59636e"
_GRID = "#d8dee4"
_ROAD = "#aab3bc"
_STYLE: dict[str, Any] = {
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "axes.edgecolor": _GRID,
    "grid.color": _GRID,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.linewidth": 0.7,
    "ytick.major.size": 0,
    "lines.linewidth": 1.9,
    "svg.hashsalt": "superarm",
}
_LABEL = 0.27  # inches from one label to the next
_MANY_EDGES = 500  # from which a layer of a map is pixels


class _End(NamedTuple):
    """The last point of a curve that gets a label."""

    series: Series
    y: float


@contextmanager
def look() -> Iterator[None]:
    """Use the look of our figures, the same for every user."""
    # On top of matplotlib's defaults, not of the user's.
    with require_extra("matplotlib.style", "plot").context(["default", _STYLE]):
        yield


def draw_picture(picture: Picture, title: str, origin: Sequence[str] = ()) -> Figure:
    """Draw a title, the panels in a grid, and a caption below them.

    Args:
        picture: The picture.
        title: The title.
        origin: Words before the caption: whose results these are.
    """
    count = len(picture.panels)
    columns = min(picture.columns, count)
    rows = -(-count // columns)  # rounded up
    sizes = [_size(panel, single=count == 1) for panel in picture.panels]
    width = columns * max(panel_width for panel_width, _ in sizes)
    height = max(panel_height for _, panel_height in sizes)
    parts = [*origin, picture.heading, picture.caption]
    caption = " · ".join(part for part in parts if part)
    letters = int(11 * width)  # of a line of the title
    with look():
        # Figure itself, not pyplot: no global state, no window, and the Agg canvas on saving.
        figure: Figure = require_extra("matplotlib.figure", "plot").Figure(
            figsize=(width, rows * height + 1.1), layout="constrained"
        )
        title = _wrap(title, letters) or " "
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        caption = _wrap(caption, int(1.3 * letters))
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=9.5, color=_MUTED)
        for number, panel in enumerate(picture.panels, start=1):
            axes = figure.add_subplot(rows, columns, number)
            if isinstance(panel, Chart):
                _draw_chart(axes, panel, height)
            else:
                _draw_map(axes, panel)
        if picture.key:
            handles = [
                _stroke(PolicyStyle(colour), label=text) for colour, text in picture.key
            ]
            figure.legend(handles=handles, loc="outside right center", frameon=False)
    return figure


def _wrap(text: str, letters: int) -> str:
    return plain_text("\n".join(textwrap.wrap(text, letters)))


def _size(panel: Chart | Map, *, single: bool) -> tuple[float, float]:
    """Width and height in inches."""
    if isinstance(panel, Chart):
        if not single:
            return 5.4, 3.5
        labels = sum(bool(series.label) for series in panel.series)
        return 8.0, max(4.0, 1.2 + _LABEL * labels)
    width = 8.0 if single else 4.6
    return width, width / panel.window.aspect + 0.5


def plain_text(text: str) -> str:
    """Escape dollar signs, which would start a formula.

    Args:
        text: The text.
    """
    return text.replace("$", r"\$")


def _stroke(style: PolicyStyle, x: Any = (), y: Any = (), **options: Any) -> Any:
    """A line in the style of a policy."""
    look = {
        "color": style.hex,
        "linestyle": _DASHES[style.dash],
        "linewidth": 1.1 if style.thin else 1.9,
        **options,
    }
    return require_extra("matplotlib.lines", "plot").Line2D(x, y, **look)


def _draw_chart(axes: Axes, chart: Chart, height: float) -> None:
    axes.set_title(plain_text(chart.title))
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    axes.set(xlim=chart.x_range(), ylim=chart.y_range())
    axes.set(xlabel=plain_text(chart.x_label), ylabel=plain_text(chart.y_label))
    _set_ticks(axes.xaxis, chart.x_ticks())
    _set_ticks(axes.yaxis, chart.y_ticks())
    for label, x in chart.marks.items():
        _draw_mark(axes, label, x)
    ends = []
    for series, shape in zip(chart.series, chart.shapes(), strict=True):
        _draw_series(axes, series, shape, markers=chart.markers)
        if series.label and len(shape.y):
            ends.append(_End(series, float(shape.y[-1])))
    _label_ends(axes, ends, _LABEL / (height - 1.0))


def _set_ticks(axis: Any, ticks: Mapping[float, str]) -> None:
    axis.set_ticks([*ticks], labels=[*ticks.values()])
    axis.set_ticks([], minor=True)


def _draw_mark(axes: Axes, label: str, x: float) -> None:
    """A vertical line with its label."""
    axes.axvline(x, color=_MUTED, linewidth=1.0, linestyle=_DASHES[2], zorder=1)
    to_axes = axes.transData + axes.transAxes.inverted()
    across, _ = to_axes.transform((x, axes.get_ylim()[1]))
    # On the right half it would run into the labels of curves.
    on_the_right = across > 0.5
    offset = (-4 if on_the_right else 4, -2)
    # Data across, heights of the axes upwards.
    coordinates: Any = axes.get_xaxis_transform()
    text = axes.annotate(
        plain_text(label), (x, 1.0), offset, coordinates, "offset points"
    )
    side = "right" if on_the_right else "left"
    text.set(va="top", ha=side, color=_MUTED, fontsize=10)


def _draw_series(axes: Axes, series: Series, shape: Shape, *, markers: bool) -> None:
    colour = series.style.hex
    # Bands of baselines would lie over all.
    if series.half is not None and not series.style.thin:
        axes.fill_between(
            shape.x, shape.low, shape.high, color=colour, alpha=0.18, lw=0
        )
    dots: dict[str, Any] = {}
    if series.marked:
        dots = {"marker": "o", "markersize": 7.0, "clip_on": False}
        dots["markevery"] = [*series.marked]
    elif markers:
        dots = {"marker": "o", "markersize": 4.5}
    axes.add_line(_stroke(series.style, shape.x, shape.y, **dots))
    for number, note in series.notes:
        point = (float(shape.x[number]), float(shape.y[number]))
        text = axes.annotate(
            note, point, (0, 6), textcoords="offset points", color=_MUTED
        )
        text.set(ha="center", fontsize=9)


def _label_ends(axes: Axes, ends: Sequence[_End], gap: float) -> None:
    """Write labels at the ends of curves, with leaders and without overlaps.

    ``gap`` is the distance between labels, in heights of the axes.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    right = axes.get_xlim()[1]
    wishes = []
    for end in ends:
        _, height = to_axes.transform((right, end.y))
        wishes.append(float(height))
    transforms = require_extra("matplotlib.transforms", "plot")
    # Inches right of the axes, whatever their width will be; heights of the axes upwards.
    right_edge = transforms.ScaledTranslation(1.0, 0.0, axes.transAxes)
    across = axes.figure.dpi_scale_trans + right_edge
    beside = transforms.blended_transform_factory(across, axes.transAxes)
    look: dict[str, Any] = {"transform": beside, "clip_on": False, "linewidth": 1.6}
    # Where there are dashes, strokes are long enough to show them.
    stop = 0.42 if any(end.series.style.dash for end in ends) else 0.24
    heights = spread_labels(wishes, gap, 0.0, 1.0)
    for end, wish, height in zip(ends, wishes, heights, strict=True):
        style = end.series.style
        solid = PolicyStyle(style.colour)
        leader = _stroke(solid, (0.03, 0.13), (wish, height), **look)
        sample = _stroke(style, (0.13, stop), (height, height), **look)
        axes.add_artist(leader)
        axes.add_artist(sample)
        label = plain_text(end.series.label)
        axes.text(
            stop + 0.06, height, label, transform=beside, va="center", fontsize=10
        )


def _draw_map(axes: Axes, shown: Map) -> None:
    """Roads in grey, wider where the speed limit is higher, to scale."""
    window = shown.window
    right = window.left + window.width
    top = window.bottom + window.height
    axes.set(xlim=(window.left, right), ylim=(window.bottom, top), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(plain_text(f"{shown.title}  ·  {shown.note}"), fontsize=10.5)
    roads = shown.roads
    visible = in_window(roads, window)
    share = roads.speed[visible] / max(float(roads.speed.max()), 1e-9)
    widths = 0.35 + 0.9 * share**2
    # Pixels, also in an SVG: thousands of roads that nobody needs to take apart.
    _draw_edges(
        axes, roads, visible, color=_ROAD, linewidth=widths, rasterized=True, zorder=1
    )
    for number, layer in enumerate(shown.layers):
        _draw_edges(
            axes,
            roads,
            layer.edges,
            color=layer.colour,
            linewidth=0.8 * layer.width,
            capstyle="round",
            zorder=2 + 0.01 * number,
            rasterized=len(layer.edges) > _MANY_EDGES,
        )
    for ends in shown.ends:
        _draw_end(axes, roads, ends.start, "o", "start", ends.colour)
        _draw_end(axes, roads, ends.goal, "s", "goal", ends.colour)
    _draw_scale(axes, window)


def _draw_edges(axes: Axes, roads: RoadMap, edges: Ints, **options: Any) -> None:
    courses = [roads.course(edge) for edge in edges.tolist()]
    collections = require_extra("matplotlib.collections", "plot")
    lines = collections.LineCollection(courses, **options)
    # They lie inside their axes; measuring thousands of roads takes seconds.
    lines.set_in_layout(False)
    axes.add_collection(lines)


def _draw_end(
    axes: Axes, roads: RoadMap, edge: int, marker: str, name: str, colour: str
) -> None:
    """The first or the last edge of a trip."""
    x, y = middle(roads.course(edge))
    spot = axes.scatter([x], [y], marker=marker, s=52, zorder=5)
    spot.set(facecolor="white", edgecolor=colour, linewidth=2.0)
    spot.set_gid(name)


def _draw_scale(axes: Axes, window: Window) -> None:
    """A bar in the lower right corner, with its length."""
    length = round_length(window.width / 4.0)
    right = window.left + window.width - 0.02 * window.width
    y = window.bottom + 0.03 * window.height
    ends = [right - length, right]
    axes.plot(ends, [y, y], color=_INK, linewidth=2, solid_capstyle="butt", zorder=6)
    centre = (right - length / 2, y)
    text = axes.annotate(
        length_text(length), centre, (0, 3), textcoords="offset points"
    )
    text.set(ha="center", va="bottom", fontsize=8.5, color=_INK, zorder=6)
