"""Pictures as matplotlib figures: charts with labels at line ends, lines of dots, maps."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from superarm.core import Ints
from superarm.core.errors import require_extra
from superarm.lab.results.axes import spread_labels
from superarm.lab.results.maps import in_window, length_text, middle, round_length
from superarm.lab.results.pictures import Chart, Map, Picture, Series
from superarm.lab.results.styles import PolicyStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
_INK, _MUTED, _GRID, _ROAD = "#1f2328", "#59636e", "#d8dee4", "#aab3bc"
_STYLE: dict[str, Any] = {
    "text.color": _INK,
    **dict.fromkeys(
        ("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _MUTED
    ),
    **dict.fromkeys(
        ("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), _GRID
    ),
    **dict.fromkeys(
        ("axes.spines.top", "axes.spines.right", "axes.spines.left"), False
    ),
    **{
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
    },
    **{
        "axes.grid": True,
        "grid.linewidth": 0.7,
        "ytick.major.size": 0,
        "lines.linewidth": 1.9,
    },
    "svg.hashsalt": "superarm",
}
_LABEL = 0.27  # inches from one label to the next


@contextmanager
def look() -> Iterator[None]:
    # On top of matplotlib's defaults, not of the user's, so that a figure looks the same everywhere.
    with require_extra("matplotlib.style", "plot").context(["default", _STYLE]):
        yield


def draw_picture(picture: Picture, title: str, origin: Sequence[str] = ()) -> Figure:
    """A title, the panels in a grid, and below them what they show; ``origin`` says whose."""
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    sizes = [_size(panel, single=len(picture.panels) == 1) for panel in picture.panels]
    width, height = (
        columns * max(wide for wide, _ in sizes),
        max(high for _, high in sizes),
    )
    told = " · ".join(
        part for part in (*origin, picture.heading, picture.caption) if part
    )
    with look():
        # Figure itself, not pyplot: no global state, no window, and the Agg canvas on saving.
        figure: Figure = require_extra("matplotlib.figure", "plot").Figure(
            figsize=(width, rows * height + 1.1), layout="constrained"
        )
        letters = int(11 * width)
        heading = plain_text("\n".join(textwrap.wrap(title, letters)) or " ")
        figure.suptitle(heading, x=0.01, ha="left", fontsize=13, fontweight="bold")
        caption = plain_text("\n".join(textwrap.wrap(told, int(1.3 * letters))))
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=9.5, color=_MUTED)
        for place, panel in enumerate(picture.panels):
            axes = figure.add_subplot(rows, columns, place + 1)
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


def _size(panel: Chart | Map, *, single: bool) -> tuple[float, float]:
    """Inches across and down."""
    if isinstance(panel, Chart):
        labels = sum(bool(each.label) for each in panel.series)
        return (8.0, max(4.0, 1.2 + _LABEL * labels)) if single else (5.4, 3.5)
    width = 8.0 if single else 4.6
    return width, width / panel.window.aspect + 0.5


def plain_text(text: str) -> str:
    """Text in which a dollar sign does not start a formula."""
    return text.replace("$", r"\$")


def _stroke(style: PolicyStyle, x: Any = (), y: Any = (), **more: Any) -> Any:
    """A line that looks as its policy does."""
    look = {"color": style.hex, "linestyle": _DASHES[style.dash]}
    look["linewidth"] = 1.1 if style.thin else 1.9
    return require_extra("matplotlib.lines", "plot").Line2D(x, y, **{**look, **more})


def _draw_chart(axes: Axes, chart: Chart, height: float) -> None:
    axes.set_title(plain_text(chart.title))
    axes.set(
        xscale="log" if chart.log_x else "linear",
        yscale="log" if chart.log_y else "linear",
    )
    axes.set(xlim=chart.x_range(), ylim=chart.y_range())
    axes.set(xlabel=plain_text(chart.x_label), ylabel=plain_text(chart.y_label))
    for axis, ticks in ((axes.xaxis, chart.x_ticks()), (axes.yaxis, chart.y_ticks())):
        axis.set_ticks([*ticks], labels=[*ticks.values()])
        axis.set_ticks([], minor=True)
    for text, place in chart.marks.items():
        axes.axvline(place, color=_MUTED, linewidth=1.0, linestyle=_DASHES[2], zorder=1)
        at: Any = axes.get_xaxis_transform()  # data across, heights of the axes upwards
        across, _ = (axes.transData + axes.transAxes.inverted()).transform(
            (place, axes.get_ylim()[1])
        )
        late = across > 0.5  # else it would run into the labels
        beside = (-4 if late else 4, -2)
        told = axes.annotate(
            plain_text(text), (place, 1.0), beside, at, "offset points"
        )
        told.set(va="top", ha="right" if late else "left", color=_MUTED, fontsize=10)
    ends: list[tuple[Series, float]] = []
    for each, shape in zip(chart.series, chart.shapes(), strict=True):
        if (
            each.half is not None and not each.style.thin
        ):  # bands of baselines would lie over all
            axes.fill_between(
                shape.x, shape.low, shape.high, color=each.style.hex, alpha=0.18, lw=0
            )
        dots: dict[str, Any] = (
            {"marker": "o", "markersize": 4.5} if chart.markers else {}
        )
        if each.marked:
            dots = {
                "marker": "o",
                "markersize": 7.0,
                "markevery": [*each.marked],
                "clip_on": False,
            }
        axes.add_line(_stroke(each.style, shape.x, shape.y, **dots))
        for number, note in each.notes:
            point = (float(shape.x[number]), float(shape.y[number]))
            written = axes.annotate(
                note, point, (0, 6), textcoords="offset points", color=_MUTED
            )
            written.set(ha="center", fontsize=9)
        if each.label and len(shape.y):
            ends.append((each, float(shape.y[-1])))
    _label_ends(axes, ends, _LABEL / (height - 1.0))


def _label_ends(axes: Axes, ends: Sequence[tuple[Series, float]], gap: float) -> None:
    """Labels at the line ends, with leaders and without overlaps, ``gap`` heights of the axes apart."""
    to_axes = axes.transData + axes.transAxes.inverted()
    wishes = [float(to_axes.transform((axes.get_xlim()[1], end))[1]) for _, end in ends]
    transforms = require_extra("matplotlib.transforms", "plot")
    # Inches right of the axes, whatever their width will be; heights of the axes upwards.
    aside = axes.figure.dpi_scale_trans + transforms.ScaledTranslation(
        1.0, 0.0, axes.transAxes
    )
    beside = transforms.blended_transform_factory(aside, axes.transAxes)
    # Where there are dashes, leaders are long enough to show them.
    stop = 0.42 if any(series.style.dash for series, _ in ends) else 0.24
    places = spread_labels(wishes, gap, 0.0, 1.0)
    for (series, _), wish, place in zip(ends, wishes, places, strict=True):
        leader = (PolicyStyle(series.style.colour), (0.03, 0.13), (wish, place))
        for stroke in (leader, (series.style, (0.13, stop), [place] * 2)):
            axes.add_artist(
                _stroke(*stroke, transform=beside, clip_on=False, linewidth=1.6)
            )
        text = plain_text(series.label)
        axes.text(stop + 0.06, place, text, transform=beside, va="center", fontsize=10)


def _draw_map(axes: Axes, shown: Map) -> None:
    """Roads in grey, wider where the speed limit is higher; equal scales, and a bar for the scale."""
    roads, window = shown.roads, shown.window
    right, top = window.left + window.width, window.bottom + window.height
    axes.set(xlim=(window.left, right), ylim=(window.bottom, top), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(plain_text(f"{shown.title}  ·  {shown.note}"), fontsize=10.5)

    def draw(edges: Ints, **given: Any) -> None:
        courses = [roads.course(edge) for edge in edges.tolist()]
        lines = require_extra("matplotlib.collections", "plot").LineCollection(
            courses, **given
        )
        lines.set_in_layout(
            False
        )  # inside its axes; to measure thousands of roads takes seconds
        axes.add_collection(lines)

    seen = in_window(roads, window)
    share = roads.speed[seen] / max(float(roads.speed.max()), 1e-9)
    # Pixels, also in an SVG: thousands of roads that nobody needs to take apart.
    draw(seen, color=_ROAD, linewidth=0.35 + 0.9 * share**2, rasterized=True, zorder=1)
    for place, layer in enumerate(shown.layers):
        many = len(layer.edges) > 500
        given = {
            "color": layer.colour,
            "linewidth": 0.8 * layer.width,
            "capstyle": "round",
        }
        draw(layer.edges, **given, zorder=2 + 0.01 * place, rasterized=many)
    for start, goal, colour in shown.ends:
        for edge, marker in ((start, "o"), (goal, "s")):
            x, y = middle(roads.course(edge))
            spot = axes.scatter([x], [y], marker=marker, s=52, zorder=5)
            spot.set(facecolor="white", edgecolor=colour, linewidth=2.0)
            spot.set_gid("start" if marker == "o" else "goal")
    length = round_length(window.width / 4.0)
    x, y = right - 0.02 * window.width, window.bottom + 0.03 * window.height
    axes.plot(
        [x - length, x],
        [y, y],
        color=_INK,
        linewidth=2,
        solid_capstyle="butt",
        zorder=6,
    )
    told = axes.annotate(
        length_text(length), (x - length / 2, y), (0, 3), textcoords="offset points"
    )
    told.set(ha="center", va="bottom", fontsize=8.5, color=_INK, zorder=6)
