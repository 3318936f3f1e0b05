"""The look that all figures share: style, titles, labels at line ends, and saving."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from superarm.errors import require_extra
from superarm.results.curves import (
    PALETTE,
    Curve,
    PolicyStyle,
    made_data,
    setting_text,
    significant,
    spread_labels,
    ticks,
)
from superarm.simulation.files import atomic_write
from superarm.simulation.trace import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
INK, MUTED, GRID = "#1f2328", "#59636e", "#d8dee4"
_STYLE: dict[str, Any] = {
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "lines.linewidth": 1.9,
    "svg.hashsalt": "superarm",
}


class End(NamedTuple):
    """Where a curve ends, what is written there, and how the curve looks."""

    value: float
    text: str
    colour: str
    dash: int = 0


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


@contextmanager
def look() -> Iterator[None]:
    # On top of matplotlib's defaults, not of the user's, so that a figure looks the same everywhere.
    require_extra("matplotlib", "plot")
    with require_extra("matplotlib.style", "plot").context(["default", _STYLE]):
        yield


def blank(width: float, height: float) -> Figure:
    # Figure itself, not pyplot: no global state, no window, and the Agg canvas on saving.
    figure: Figure = require_extra("matplotlib.figure", "plot").Figure(
        figsize=(width, height), layout="constrained"
    )
    return figure


def named_figure(title: str, caption: str = "") -> tuple[Figure, Axes]:
    figure = blank(8, 4.9)
    axes = figure.add_subplot()
    name_axes(axes, title, caption)
    return figure, axes


def name_axes(axes: Axes, title: str, caption: str) -> None:
    """A bold title, and below it in grey what is shown."""
    lines = "\n".join(textwrap.wrap(title, 70)) or " "
    axes.set_title(plain_text(lines), pad=26 if caption else 12)
    told = axes.text(0, 1.03, plain_text(caption), transform=axes.transAxes)
    told.set(color=MUTED, fontsize=10.5)


def run_figure(run: Run, setting_index: int, what: str) -> tuple[Figure, Axes]:
    made = "synthetic data" if made_data(run, setting_index) else ""
    parts = (run.experiment, setting_text(run.settings[setting_index]), what, made)
    return named_figure(run.title, " · ".join(part for part in parts if part))


def draw(axes: Axes, curve: Curve, style: PolicyStyle, text: str, *, log: bool) -> End:
    """One policy's curve with its band; what a log axis cannot show is left out."""
    mean = np.where(curve.mean > 0.0, curve.mean, np.nan) if log else curve.mean
    colour, low, high = PALETTE[style.colour], mean - curve.stderr, mean + curve.stderr
    if log:
        low = np.maximum(low, mean / 10.0)
    if not style.thin:  # the bands of baselines would lie over everything else
        axes.fill_between(curve.rounds, low, high, color=colour, alpha=0.18, linewidth=0)
    (line,) = axes.plot(curve.rounds, mean, color=colour, linestyle=DASHES[style.dash])
    if style.thin:
        line.set(linewidth=1.1, zorder=1.9)
    return End(float(mean[-1]), text, colour, style.dash)


def band(run: Run) -> str:
    return f"mean ± 1 standard error over {len(run.seeds)} seeds" if len(run.seeds) > 1 else "one seed"


def plain_text(text: str) -> str:
    """Text in which a dollar sign does not start a formula."""
    return text.replace("$", r"\$")


def finish(
    axes: Axes,
    ends: Sequence[End],
    y_text: Callable[[float], str] = significant,
    *,
    gap: float = 0.062,
    steps: int = 8,
) -> None:
    """Few ticks at round numbers; labels at the line ends, with leaders and without overlaps.

    ``gap`` is the height of a label in heights of the axes, ``steps`` how many ticks there may be.
    """
    axes.set_ylim(axes.get_ylim())
    for axis, limits, write in (
        (axes.xaxis, axes.get_xlim(), significant),
        (axes.yaxis, axes.get_ylim(), y_text),
    ):
        values = ticks(*limits, log=axis.get_scale() == "log")
        values = values[:: max(1, -(-len(values) // steps))]
        axis.set_ticks(values, labels=[write(value) for value in values])
        axis.set_ticks([], minor=True)
    finite = [end for end in ends if np.isfinite(end.value)]
    to_axes = axes.transData + axes.transAxes.inverted()
    wishes = [float(to_axes.transform((axes.get_xlim()[1], end.value))[1]) for end in finite]
    places = spread_labels(wishes, gap, 0.0, 1.0)
    transforms = require_extra("matplotlib.transforms", "plot")
    # Inches right of the axes, whatever their width will be; heights of the axes upwards.
    aside = axes.figure.dpi_scale_trans + transforms.ScaledTranslation(1.0, 0.0, axes.transAxes)
    beside = transforms.blended_transform_factory(aside, axes.transAxes)
    # Where there are dashes, leaders are long enough to show them.
    stop = 0.24 if all(end.dash == 0 for end in finite) else 0.42
    for end, wish, place in zip(finite, wishes, places, strict=True):
        (leader,) = axes.plot([0.03, 0.13], [wish, place], transform=beside)
        (stub,) = axes.plot([0.13, stop], [place, place], transform=beside)
        for line in (leader, stub):
            line.set(color=end.colour, clip_on=False, linewidth=1.6)
        stub.set(linestyle=DASHES[end.dash])
        axes.text(stop + 0.06, place, end.text, transform=beside, va="center", fontsize=10.5)
