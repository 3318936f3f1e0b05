"""Figures of runs on roads that are no maps: methods (Fig. 2), widths (3), lengthscales (4, 5), and
whether intervals hold what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from superarm.errors import InputError
from superarm.results.curves import (
    PALETTE,
    PolicyStyle,
    Sweep,
    learners_height,
    made_data,
    mean_stderr,
    policy_styles,
    regret_curve,
    significant,
    sweeps,
    thinned,
)
from superarm.results.roads import METHODS, Calibration, Coverage, calibrations, schedule_of, trip_name
from superarm.simulation.audit import LEVELS
from superarm.simulation.trace import Run

from .look import DASHES, INK, MUTED, End, band, blank, draw, finish, look, name_axes, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY_TICKS = 8
_REGRET = "cumulative regret (Wh)"


# --- regret of many methods --------------------------------------------------------------


def plot_methods(run: Run, setting_index: int = 0) -> Figure:
    """Mean cumulative regret ± 1 standard error, on a linear and on a logarithmic axis: Fig. 2.

    A colour is a rule, a dash pattern the posterior behind it; thin lines are baselines. Those that
    leave the linear panel, whose height the learners set, are read off the logarithmic one.
    """
    styles = policy_styles(run.policies)
    with look():
        figure = blank(13, max(4.9, 1.9 + 0.29 * len(run.policies)))
        linear, logarithmic = figure.subplots(1, 2, width_ratios=(1.0, 0.95))
        made = ["synthetic data"] if made_data(run, setting_index) else []
        name_axes(linear, run.title, " · ".join([band(run), *_code(run), *made]))
        linear.texts[-1].set_in_layout(False)  # it may run on above the other panel
        ends: list[End] = []
        for policy, style in styles.items():
            curve = regret_curve(run, policy, setting_index)
            text = f"{plain_text(policy)}  {significant(curve.mean[-1])}"
            draw(linear, curve, style, text, log=False)
            ends.append(draw(logarithmic, curve, style, text, log=True))
        for axes in (linear, logarithmic):
            axes.set_xlim(min(1, run.rounds - 1), run.rounds)
            axes.set_xlabel("round t")
        linear.set_ylim(0.0, learners_height(run, setting_index))
        linear.set_ylabel(_REGRET)
        if any(end.value > 0.0 for end in ends):
            logarithmic.set_yscale("log")
        logarithmic.set_ylabel(_REGRET + ", log")
        finish(linear, [])
        finish(logarithmic, ends)
    return figure


def plot_trips(runs: Sequence[Run]) -> Figure:
    """The six methods on every trip, a panel each, on linear axes: Fig. 2 as the paper has it."""
    columns = 2 if len(runs) in (2, 4) else min(3, len(runs))
    rows = -(-len(runs) // columns)
    with look():
        figure = blank(6.0 * columns, 3.7 * rows + 0.3)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.ravel()[len(runs) :]:
            axes.set_axis_off()
        for axes, run in zip(grid.ravel(), runs, strict=False):
            ends: list[End] = []
            methods = [policy for policy in METHODS if policy in run.policies] or run.policies
            for policy in methods:
                style = policy_styles(run.policies)[policy]
                ends.append(draw(axes, regret_curve(run, policy), style, plain_text(policy), log=False))
            made = " · synthetic data" if made_data(run) else ""
            name_axes(axes, trip_name(run, 0), f"{band(run)}{made}")
            axes.set(xlabel="round t", ylabel=_REGRET)
            axes.set_xlim(min(1, run.rounds - 1), run.rounds)
            axes.set_ylim(bottom=0.0)
            finish(axes, ends, gap=0.085)
    return figure


def _code(run: Run) -> list[str]:
    """What the looks of the lines mean."""
    words = {"gp-": "solid: Gaussian process", "bi-": "dashed: independent edges"}
    told = [text for start, text in words.items() if any(p.startswith(start) for p in run.policies)]
    thin = any(style.thin for style in policy_styles(run.policies).values())
    return [*(told if len(told) > 1 else []), *(["thin: baselines"] if thin else [])]


# --- widths ------------------------------------------------------------------------------


def plot_schedules(run: Run) -> Figure:
    """A row per setting: regret of GP-UCB, regret of GP-BUCB, and β_t of every policy: Fig. 3."""
    styles = policy_styles(run.policies)
    kinds = {policy: schedule_of(run, policy, 0) for policy in run.policies}
    if not any(kinds.values()):
        raise InputError(f"no policy of {run.experiment} has a confidence width; nothing to draw")
    count = len(run.settings)
    with look():
        figure = blank(13, 3.0 * count + 0.5)
        grid = figure.subplots(count, 3, squeeze=False)
        rounds = thinned(run.rounds)
        for index, (ucb, bucb, widths) in enumerate(grid):
            roads = run.road_map(index)
            if roads is None:
                raise InputError(
                    f"setting {index} of {run.experiment} has no road map to count edges of"
                )
            highest = 0.0
            drawn: dict[str, list[End]] = {"ucb": [], "bucb": [], "width": []}
            for policy, style in styles.items():
                schedule = schedule_of(run, policy, index)
                if schedule is None:
                    continue
                curve = regret_curve(run, policy, index)
                highest = max(highest, float(curve.mean[-1] + curve.stderr[-1]))
                axes = ucb if schedule.kind == "ucb" else bucb
                end = draw(axes, curve, style, plain_text(schedule.text), log=False)
                drawn[schedule.kind].append(end)
                beta = schedule.beta(rounds, len(roads))
                widths.plot(rounds, beta, color=end.colour, linestyle=DASHES[style.dash])
                name = {"ucb": "UCB ", "bucb": "BUCB "}[schedule.kind]
                drawn["width"].append(
                    End(float(beta[-1]), name + schedule.text, end.colour, style.dash)
                )
            for axes, what in ((ucb, "ucb"), (bucb, "bucb"), (widths, "width")):
                axes.set_xlim(min(1, run.rounds - 1), run.rounds)
                axes.set_ylim(0.0, (1.05 * highest or 1.0) if what != "width" else None)
                axes.set_xlabel("round t" if index == count - 1 else "")
                finish(axes, drawn[what], gap=0.1)
            ucb.set_ylabel(_REGRET)
            names = ("GP-UCB", "GP-BUCB", r"$\beta_t$") if index == 0 else (" ", " ", " ")
            for axes, name in zip((ucb, bucb, widths), names, strict=True):
                axes.set_title(name, fontsize=12, loc="center", pad=26 if index == 0 else 4)
            told = f"{trip_name(run, index)}, {len(roads):,} edges" + (
                f" · {band(run)}" if index == 0 else ""
            )
            caption = ucb.text(0, 1.03, plain_text(told), transform=ucb.transAxes, color=MUTED)
            caption.set(fontsize=10, in_layout=False)  # it may run on above the other panels
    return figure


# --- what was swept ----------------------------------------------------------------------


def plot_sweep_curves(run: Run, key: str | None = None) -> Figure:
    """Regret over time by the value of a swept number, a row per trip, a column per policy: Fig. 4."""
    panels = _panels(run, key)
    numbers = sorted({value for panel in panels for value in panel.values})
    with look():
        colour = _shades(numbers)
        rows, columns = len(panels), len(run.policies)
        figure = blank(3.3 * columns + 1.2, 2.6 * rows + 0.7)
        grid = figure.subplots(rows, columns, squeeze=False)
        for row, panel in zip(grid, panels, strict=True):
            for axes, policy in zip(row, run.policies, strict=True):
                for value, index in sorted(zip(panel.values, panel.settings, strict=True)):
                    curve = regret_curve(run, policy, index)
                    low, high = curve.mean - curve.stderr, curve.mean + curve.stderr
                    axes.fill_between(curve.rounds, low, high, color=colour[value], alpha=0.15, lw=0)
                    axes.plot(curve.rounds, curve.mean, color=colour[value], label=f"{value:g}")
                axes.set_xlim(min(1, run.rounds - 1), run.rounds)
                axes.set_ylim(bottom=0.0)
                finish(axes, [], steps=4)
                if axes in grid[0]:
                    axes.set_title(plain_text(policy), fontsize=12, pad=8)
                if axes in grid[-1]:
                    axes.set_xlabel("round t")
            row[0].set_ylabel(plain_text(f"{trip_name(run, panel.settings[0])}\n{_REGRET}"))
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.suptitle(plain_text(run.title), x=0.01, ha="left", fontsize=13, fontweight="bold")
        title = plain_text(f"{panels[0].key},\n{band(run)}".replace(" over", "\nover"))
        figure.legend(handles, labels, title=title, loc="outside right center", frameon=False)
    return figure


def plot_sweep_totals(run: Run, key: str | None = None) -> Figure:
    """Regret at the last round against a swept number, a panel per trip: Fig. 5."""
    panels = _panels(run, key)
    styles = policy_styles(run.policies)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with look():
        figure = blank(6.4 * columns, 3.7 * rows + 0.3)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.ravel()[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.ravel(), panels, strict=False):
            order = np.argsort(panel.values)
            x = np.asarray(panel.values, dtype=np.float64)[order]
            ends: list[End] = []
            for policy, style in styles.items():
                totals = [run.cumulative(policy, panel.settings[i])[:, -1] for i in order]
                mean, stderr = mean_stderr(np.stack(totals, axis=1))
                colour = PALETTE[style.colour]
                bars = axes.errorbar(
                    x, mean, stderr, color=colour, marker="o", markersize=4.5, capsize=2.5
                )
                bars.lines[0].set(linestyle=DASHES[style.dash])
                ends.append(End(float(mean[-1]), plain_text(policy), colour, style.dash))
            told = f"regret after {run.rounds:,} rounds · {band(run)}"
            name_axes(axes, trip_name(run, panel.settings[0]), told)
            axes.set(xlabel=plain_text(panel.key), ylabel=_REGRET)
            if x[0] > 0 and x[-1] / x[0] >= 20:
                axes.set_xscale("log")
            axes.set_ylim(bottom=0.0)
            axes.margins(x=0.03)
            finish(axes, ends, gap=0.08)
            if len(x) <= _MANY_TICKS:
                axes.set_xticks(x, labels=[f"{value:g}" for value in x])
    return figure


def _panels(run: Run, key: str | None) -> list[Sweep]:
    panels = sweeps(run, key)
    if not panels:
        raise InputError(
            f"this run sweeps no number{f' called {key!r}' if key else ''}; nothing to plot"
        )
    return panels


def _shades(numbers: list[float]) -> dict[float, Any]:
    """Colours from dark to light as numbers grow; the palest end of the map is left out."""
    from matplotlib import colormaps

    places = np.linspace(0.0, 0.88, len(numbers))
    return {number: colormaps["viridis"](place) for number, place in zip(numbers, places, strict=True)}


# --- calibration -------------------------------------------------------------------------


def plot_calibration(run: Run) -> Figure:
    """Share of edges, and of trips, inside their 50, 90 and 95 % intervals, ± 2 standard errors."""
    rows = calibrations(run)
    if not rows:
        raise InputError(f"no forecasts were recorded in {run.experiment}; nothing to draw")
    styles = policy_styles(run.policies)
    with look():
        figure = blank(11, 1.9 + 0.42 * len(rows))
        edges, trips = figure.subplots(1, 2, sharex=True, sharey=True)
        lowest = [0.45]
        for axes, what in ((edges, "edges"), (trips, "trips")):
            name_axes(
                axes, f"Energy of {what}", "share inside 50, 90 and 95 % intervals, ± 2 std. errors"
            )
            shares: list[float] = []
            for level in LEVELS:
                axes.axvline(level, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
            for place, row in enumerate(rows):
                shares += _draw_coverage(axes, place, row, what, styles[row.policy])
            axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel="observed share (%)")
            axes.grid(False)
            lowest.append(min(shares))
            axes.set_yticks(range(len(rows)), labels=[plain_text(row.policy) for row in rows])
            axes.tick_params(axis="y", labelcolor=INK)
        marks = [
            mark for mark in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95) if mark > min(lowest)
        ]
        trips.set_xlim(min(lowest) - 0.02, 1.01)
        trips.set_xticks(marks, labels=[f"{100 * mark:.0f}" for mark in marks])
    return figure


def _draw_coverage(
    axes: Axes, place: int, row: Calibration, what: str, style: PolicyStyle
) -> list[float]:
    """One policy's points; returns where they reach."""
    levels: tuple[Coverage, ...] = row.edges if what == "edges" else row.trips
    x = [level.observed for level in levels]
    reach = [2.0 * level.stderr for level in levels]
    # A little apart, so that the bars of neighbouring levels do not merge.
    y = [place - 0.16, place, place + 0.16]
    axes.errorbar(x, y, xerr=reach, fmt="o", markersize=5, color=PALETTE[style.colour])
    return [share - error for share, error in zip(x, reach, strict=True)]
