"""Pictures of a posterior over a line or a square."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from superarm.core import Floats
from superarm.errors import InputError
from superarm.results.curves import PALETTE, significant, ticks

from .look import INK, End, blank, finish, look, name_axes, named_figure, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    with look():
        figure, axes = named_figure(title)
        axes.fill_between(x, mean - 2 * std, mean + 2 * std, color=PALETTE[0], alpha=0.16, linewidth=0)
        axes.plot(x, mean, color=PALETTE[0])
        ends: list[End] = [End(float(mean[-1]), "mean ± 2 std", PALETTE[0])]
        if truth is not None:
            truth = np.asarray(truth, dtype=np.float64)
            axes.plot(x, truth, color=INK, linestyle=(0, (4, 3)), linewidth=1.3)
            ends.append(End(float(truth[-1]), "truth", INK))
        seen_x, seen_y = np.asarray(chosen_x, dtype=np.float64), np.asarray(chosen_y, dtype=np.float64)
        axes.scatter(seen_x, seen_y, s=26, color=PALETTE[1], edgecolor="white", zorder=3)
        axes.set_xlim(x[0], x[-1])
        axes.set(xlabel=plain_text(x_label), ylabel=plain_text(y_label))
        finish(axes, ends)
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
    with look():
        figure = blank(12, 5.0 + 0.4 * bool(title))
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.06)
        if title:
            figure.suptitle(plain_text(title), x=0.012, ha="left", fontsize=16, fontweight="bold")
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
    name_axes(axes, panel.title, panel.caption)
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
