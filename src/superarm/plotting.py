"""Figures of a run, drawn with matplotlib (the extra ``[plot]``) from traces alone.

Every function returns a :class:`matplotlib.figure.Figure`; :func:`save_figure` writes it. Nothing
touches pyplot or the global settings. The numbers and colours are the report's, so that a policy
looks the same everywhere.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ._curves import (
    PALETTE,
    Bound,
    Curve,
    PolicyStyle,
    growth_exponent,
    made_data,
    mean_stderr,
    policy_styles,
    readable_seconds,
    regret_curve,
    seconds_curve,
    setting_text,
    significant,
    spread_labels,
    sweeps,
    ticks,
)
from .core import Floats
from .errors import InputError, require_extra
from .simulation.trace import Run, atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
_INK, _MUTED, _GRID = "#1f2328", "#59636e", "#d8dee4"
_STYLE: dict[str, Any] = {
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _GRID,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "ytick.major.size": 0,
    "lines.linewidth": 1.9,
    "svg.hashsalt": "superarm",
}


class _End(NamedTuple):
    """Where a curve ends, and what is written there."""

    value: float
    text: str
    colour: str


# --- figures of runs ---------------------------------------------------------------------


def plot_regret(
    run: Run,
    setting_index: int = 0,
    bound: Bound | None = None,
    log: bool = False,
) -> Figure:
    """Mean cumulative regret ± 1 standard error; a ``bound`` is drawn dashed."""
    with _look():
        figure, axes = _run_figure(run, setting_index, _band(run))
        ends: list[_End] = []
        for policy, style in policy_styles(run.policies).items():
            curve = regret_curve(run, policy, setting_index)
            text = f"{_plain_text(policy)}  {significant(curve.mean[-1])}"
            ends.append(_draw(axes, curve, style, text, log=log))
        if bound is not None:
            # Zero has no place on a log axis: left in, it draws an upright line where the bound starts.
            values = np.where(bound.values > 0.0, bound.values, np.nan) if log else bound.values
            last = float(values[-1])
            axes.plot(bound.rounds, values, color=_INK, linestyle=(0, (4, 3)), linewidth=1.3)
            ends.append(_End(last, f"{_plain_text(bound.label)}  {significant(last)}", _INK))
        axes.set_xlim(min(1, run.rounds - 1), run.rounds)
        if log and any(end.value > 0.0 for end in ends):
            axes.set_yscale("log")
        else:
            lowest = min([0.0, *(end.value for end in ends if np.isfinite(end.value))])
            axes.set_ylim(bottom=lowest)
        axes.set(xlabel="round t", ylabel="cumulative regret" + " (log)" * log)
        _finish(axes, ends)
    return figure


def plot_growth(run: Run, setting_index: int = 0) -> Figure:
    """Mean cumulative regret on log–log axes; the label holds the slope over the last half."""
    with _look():
        figure, axes = _run_figure(run, setting_index, "exponents fitted over the last half")
        ends: list[_End] = []
        for policy, style in policy_styles(run.policies).items():
            curve = regret_curve(run, policy, setting_index, log=True)
            slope = growth_exponent(run, policy, setting_index)
            text = rf"  $\propto\,t^{{\,{slope:.2f}}}$" if np.isfinite(slope) else "  no growth"
            ends.append(_draw(axes, curve, style, _plain_text(policy) + text, log=True))
        axes.set_xlim(1, max(run.rounds, 2))
        axes.set(xlabel="round t (log)", ylabel="cumulative regret (log)", xscale="log")
        axes.set_yscale("log" if any(end.value > 0.0 for end in ends) else "linear")
        _finish(axes, ends)
    return figure


def plot_seconds(run: Run, setting_index: int = 0) -> Figure:
    """Running median of the time per round, over all seeds; the labels are medians over all rounds."""
    with _look():
        figure, axes = _run_figure(run, setting_index, "running median over rounds and seeds")
        ends: list[_End] = []
        for policy, style in policy_styles(run.policies).items():
            curve = seconds_curve(run, policy, setting_index)
            median = float(np.median(run.seconds(policy, setting_index)))
            text = f"{_plain_text(policy)}  {readable_seconds(median)}"
            ends.append(_draw(axes, curve, style, text, log=True))
        axes.set_xlim(0, run.rounds)
        axes.set(xlabel="round t", ylabel="time per round (log)", yscale="log")
        _finish(axes, ends, readable_seconds)
    return figure


def plot_sweep(run: Run, metric: str = "regret", key: str | None = None) -> Figure:
    """A metric's total at the last round against a swept number, one panel per other setting."""
    panels = sweeps(run, key)
    if not panels:
        raise InputError(
            f"this run sweeps no number{f' called {key!r}' if key else ''}; nothing to plot"
        )
    with _look():
        figure = _blank(8, 4.6 * len(panels))
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(len(panels), 1, place + 1)
            made = "made data" if made_data(run, panel.settings[0]) else ""
            parts = (run.experiment, setting_text(panel.fixed), _band(run), made)
            _name(axes, run.title, " · ".join(part for part in parts if part))
            ends: list[_End] = []
            order = np.argsort(panel.values)
            x = np.asarray(panel.values, dtype=np.float64)[order]
            for policy, style in policy_styles(run.policies).items():
                totals = [run.cumulative(policy, panel.settings[i], metric)[:, -1] for i in order]
                mean, stderr = mean_stderr(np.stack(totals, axis=1))
                colour = PALETTE[style.colour]
                axes.errorbar(x, mean, stderr, color=colour, marker="o", markersize=4.5, capsize=2)
                ends.append(_End(mean[-1], f"{_plain_text(policy)}  {significant(mean[-1])}", colour))
            if x[0] > 0 and x[-1] / x[0] >= 20:
                axes.set_xscale("log")
            axes.set(xlabel=_plain_text(panel.key), ylabel=_plain_text(f"total {metric}"))
            axes.margins(x=0.03)
            _finish(axes, ends)
    return figure


# --- figures of a posterior --------------------------------------------------------------


def plot_posterior_1d(
    x: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    truth: ArrayLike | None = None,
    chosen_x: ArrayLike = (),
    chosen_y: ArrayLike = (),
    title: str = "Posterior",
    x_label: str = "x",
    y_label: str = "reward",
) -> Figure:
    """A posterior over a line: mean, ± 2 standard deviations, observations and the truth."""
    x, mean, std = (np.asarray(part, dtype=np.float64) for part in (x, mean, std))
    with _look():
        figure, axes = _figure(title)
        axes.fill_between(x, mean - 2 * std, mean + 2 * std, color=PALETTE[0], alpha=0.16, linewidth=0)
        axes.plot(x, mean, color=PALETTE[0])
        ends: list[_End] = [_End(float(mean[-1]), "mean ± 2 std", PALETTE[0])]
        if truth is not None:
            truth = np.asarray(truth, dtype=np.float64)
            axes.plot(x, truth, color=_INK, linestyle=(0, (4, 3)), linewidth=1.3)
            ends.append(_End(float(truth[-1]), "truth", _INK))
        seen_x, seen_y = np.asarray(chosen_x, dtype=np.float64), np.asarray(chosen_y, dtype=np.float64)
        axes.scatter(seen_x, seen_y, s=26, color=PALETTE[1], edgecolor="white", zorder=3)
        axes.set_xlim(x[0], x[-1])
        axes.set(xlabel=_plain_text(x_label), ylabel=_plain_text(y_label))
        _finish(axes, ends)
    return figure


def plot_posterior_2d(
    grid_x: ArrayLike,
    grid_y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    truth: ArrayLike,
    chosen_xy: ArrayLike = (),
    best_xy: tuple[float, float] | None = None,
    title: str = "",
) -> Figure:
    """Three panels: the truth, what was learned with the samples, and what is still uncertain.

    Surfaces are (len(grid_y), len(grid_x)); ``chosen_xy`` (m, 2), the oldest first.
    """
    x, y, mean, std, truth = (
        np.asarray(part, dtype=np.float64) for part in (grid_x, grid_y, mean, std, truth)
    )
    for name, surface in (("mean", mean), ("std", std), ("truth", truth)):
        if surface.shape != (len(y), len(x)):
            raise InputError(f"{name} has shape {surface.shape}; it must be {(len(y), len(x))}")
    chosen = np.asarray(chosen_xy, dtype=np.float64).reshape(-1, 2)
    value_limits = min(truth.min(), mean.min()), max(truth.max(), mean.max())
    seen = f"after {len(chosen)} observation{'s' * (len(chosen) != 1)}, the newest largest"
    hidden = "hidden from the policy" + "; ★ is the best arm" * (best_xy is not None)
    panels = (
        _Panel("Truth", hidden, truth, value_limits, "reward"),
        _Panel("Posterior mean", seen, mean, value_limits, "reward"),
        _Panel("Posterior uncertainty", "what is left to learn", std, (0.0, std.max()), "std"),
    )
    with _look():
        figure = _blank(12, 5.0 + 0.4 * bool(title))
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.06)
        if title:
            figure.suptitle(_plain_text(title), x=0.012, ha="left", fontsize=16, fontweight="bold")
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(1, 3, place + 1)
            _draw_surface(figure, axes, x, y, panel)
            if place:
                _draw_samples(axes, chosen, faint=place == 2)
            if best_xy is not None:
                star = axes.scatter(*best_xy, marker="*", s=210, color="#ff4d4d", zorder=5)
                star.set(edgecolor="white", linewidth=1.2)
    return figure


class _Panel(NamedTuple):
    title: str
    caption: str
    surface: Floats
    limits: tuple[float, float]
    unit: str


def _draw_surface(figure: Figure, axes: Axes, x: Floats, y: Floats, panel: _Panel) -> None:
    """A surface as an image with contours, and its key below."""
    _name(axes, panel.title, panel.caption)
    image = axes.imshow(panel.surface, origin="lower", aspect="auto", interpolation="bilinear")
    image.set(extent=(x[0], x[-1], y[0], y[-1]), clim=panel.limits)
    image.set_cmap("magma" if panel.unit == "std" else "viridis")
    axes.set_box_aspect(1)
    if np.ptp(panel.surface) > 0.0:
        lines = axes.contour(x, y, panel.surface, levels=9, colors="white", linestyles="solid")
        lines.set(linewidth=0.6, alpha=0.4)
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, location="bottom", pad=0.03, aspect=40)
    marks = ticks(*panel.limits)
    marks = marks[::2] if len(marks) > 5 else marks
    bar.set_ticks(marks, labels=[significant(mark) for mark in marks])
    bar.set_label(panel.unit, fontsize=10)
    bar.ax.tick_params(length=0, labelsize=9.5)
    bar.outline.set_visible(False)


def _draw_samples(axes: Axes, chosen: Floats, *, faint: bool) -> None:
    """Samples, the newer the larger and the more opaque."""
    recency = np.linspace(0.35, 1.0, len(chosen))
    inside, edge = np.ones((len(chosen), 4)), np.zeros((len(chosen), 4))  # RGBA: white in black
    inside[:, 3] = edge[:, 3] = recency * (0.8 if faint else 1.0)
    sizes = 10 + 30 * recency
    x, y = chosen.T
    axes.scatter(x, y, s=sizes, color=inside, edgecolor=edge, linewidth=0.7, zorder=4)


# --- saving and shared drawing -----------------------------------------------------------


def save_run_figures(run: Run, directory: Path | str, bound: Bound | None = None) -> list[Path]:
    """Every figure of a run, as PNG and SVG; ``bound`` is drawn over the regret on a log scale."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for index in range(len(run.settings)):
        suffix = f"-{index}" if len(run.settings) > 1 else ""
        files += save_figure(plot_regret(run, index), directory / f"regret{suffix}")
        files += save_figure(plot_growth(run, index), directory / f"growth{suffix}")
        files += save_figure(plot_seconds(run, index), directory / f"seconds{suffix}")
    if bound is not None:
        files += save_figure(plot_regret(run, 0, bound=bound, log=True), directory / "bound")
    for panel in sweeps(run):
        figure = plot_sweep(run, key=panel.key)
        files += save_figure(figure, directory / f"sweep-{panel.key.replace('.', '-')}")
    return files


def save_figure(figure: Figure, path_without_suffix: Path | str) -> tuple[Path, Path]:
    """Write PNG (150 dpi) and SVG beside each other; equal figures give equal bytes."""
    base = Path(path_without_suffix)
    paths = base.with_name(base.name + ".png"), base.with_name(base.name + ".svg")
    with _look():
        for path, metadata in zip(paths, ({"Software": None}, {"Date": None}), strict=True):
            buffer = io.BytesIO()
            figure.savefig(
                buffer, format=path.suffix[1:], dpi=150, facecolor="white", metadata=metadata
            )
            atomic_write(path, buffer.getvalue())
    return paths


@contextmanager
def _look() -> Iterator[None]:
    # On top of matplotlib's defaults, not of the user's, so that a figure looks the same everywhere.
    require_extra("matplotlib", "plot")
    with require_extra("matplotlib.style", "plot").context(["default", _STYLE]):
        yield


def _blank(width: float, height: float) -> Figure:
    # Figure itself, not pyplot: no global state, no window, and the Agg canvas on saving.
    figure: Figure = require_extra("matplotlib.figure", "plot").Figure(
        figsize=(width, height), layout="constrained"
    )
    return figure


def _figure(title: str, caption: str = "") -> tuple[Figure, Axes]:
    figure = _blank(8, 4.9)
    axes = figure.add_subplot()
    _name(axes, title, caption)
    return figure, axes


def _name(axes: Axes, title: str, caption: str) -> None:
    """A bold title, and below it in grey what is shown."""
    lines = "\n".join(textwrap.wrap(title, 70)) or " "
    axes.set_title(_plain_text(lines), pad=26 if caption else 12)
    axes.text(0, 1.03, _plain_text(caption), transform=axes.transAxes, color=_MUTED, fontsize=10.5)


def _run_figure(run: Run, setting_index: int, what: str) -> tuple[Figure, Axes]:
    made = "made data" if made_data(run, setting_index) else ""
    parts = (run.experiment, setting_text(run.settings[setting_index]), what, made)
    return _figure(run.title, " · ".join(part for part in parts if part))


def _draw(axes: Axes, curve: Curve, style: PolicyStyle, text: str, *, log: bool) -> _End:
    """One policy's curve with its band; what a log axis cannot show is left out."""
    mean = np.where(curve.mean > 0.0, curve.mean, np.nan) if log else curve.mean
    colour, low, high = PALETTE[style.colour], mean - curve.stderr, mean + curve.stderr
    if log:
        low = np.maximum(low, mean / 10.0)
    axes.fill_between(curve.rounds, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(curve.rounds, mean, color=colour, linestyle=_DASHES[style.dash])
    return _End(float(mean[-1]), text, colour)


def _band(run: Run) -> str:
    return f"mean ± 1 standard error over {len(run.seeds)} seeds" if len(run.seeds) > 1 else "one seed"


def _plain_text(text: str) -> str:
    """Text in which a dollar sign does not start a formula."""
    return text.replace("$", r"\$")


def _finish(axes: Axes, ends: Sequence[_End], y_text: Callable[[float], str] = significant) -> None:
    """Few ticks at round numbers; labels at the line ends, with leaders and without overlaps."""
    axes.set_ylim(axes.get_ylim())
    for axis, limits, write in (
        (axes.xaxis, axes.get_xlim(), significant),
        (axes.yaxis, axes.get_ylim(), y_text),
    ):
        values = ticks(*limits, log=axis.get_scale() == "log")
        axis.set_ticks(values, labels=[write(value) for value in values])
        axis.set_ticks([], minor=True)
    finite = [end for end in ends if np.isfinite(end.value)]
    to_axes = axes.transData + axes.transAxes.inverted()
    wishes = [float(to_axes.transform((axes.get_xlim()[1], end.value))[1]) for end in finite]
    places = spread_labels(wishes, 0.062, 0.0, 1.0)
    for end, wish, place in zip(finite, wishes, places, strict=True):
        (leader,) = axes.plot([1.005, 1.025, 1.04], [wish, place, place], transform=axes.transAxes)
        leader.set(color=end.colour, clip_on=False, linewidth=1.6)
        axes.annotate(end.text, (1.05, place), xycoords="axes fraction", va="center", fontsize=10.5)
