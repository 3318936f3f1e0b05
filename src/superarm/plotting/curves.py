"""Curves of a run: regret, its growth, time per round, and totals against what was swept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from superarm.errors import InputError
from superarm.results.bounds import Bound
from superarm.results.curves import (
    PALETTE,
    growth_exponent,
    made_data,
    mean_stderr,
    metric_text,
    policy_styles,
    readable_seconds,
    regret_curve,
    seconds_curve,
    setting_text,
    significant,
    sweeps,
)
from superarm.simulation.trace import Run

from .look import End, band, blank, draw, finish, look, name_axes, plain_text, run_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_regret(
    run: Run,
    setting_index: int = 0,
    bounds: Mapping[str, Bound] | None = None,
    log: bool = False,
) -> Figure:
    """Mean cumulative regret ± 1 standard error; ``bounds`` by policy are drawn dashed."""
    with look():
        figure, axes = run_figure(run, setting_index, band(run))
        ends: list[End] = []
        for policy, style in policy_styles(run.policies).items():
            curve = regret_curve(run, policy, setting_index)
            text = f"{plain_text(policy)}  {significant(curve.mean[-1])}"
            ends.append(draw(axes, curve, style, text, log=log))
        for policy, bound in (bounds or {}).items():
            # Zero has no place on a log axis: left in, it draws an upright line where the bound starts.
            values = np.where(bound.values > 0.0, bound.values, np.nan) if log else bound.values
            last = float(values[-1])
            colour = PALETTE[policy_styles(run.policies)[policy].colour]
            axes.plot(bound.rounds, values, color=colour, linestyle=(0, (1.5, 2)), linewidth=1.3)
            ends.append(End(last, f"{plain_text(bound.label)}  {significant(last)}", colour))
        axes.set_xlim(min(1, run.rounds - 1), run.rounds)
        if log and any(end.value > 0.0 for end in ends):
            axes.set_yscale("log")
        else:
            lowest = min([0.0, *(end.value for end in ends if np.isfinite(end.value))])
            axes.set_ylim(bottom=lowest)
        axes.set(xlabel="round t", ylabel="cumulative regret" + " (log)" * log)
        finish(axes, ends)
    return figure


def plot_growth(run: Run, setting_index: int = 0) -> Figure:
    """Mean cumulative regret on log–log axes; the label holds the slope over the last half."""
    with look():
        figure, axes = run_figure(run, setting_index, "exponents fitted over the last half")
        ends: list[End] = []
        for policy, style in policy_styles(run.policies).items():
            curve = regret_curve(run, policy, setting_index, log=True)
            slope = growth_exponent(run, policy, setting_index)
            text = rf"  $\propto\,t^{{\,{slope:.2f}}}$" if np.isfinite(slope) else "  no growth"
            ends.append(draw(axes, curve, style, plain_text(policy) + text, log=True))
        axes.set_xlim(1, max(run.rounds, 2))
        axes.set(xlabel="round t (log)", ylabel="cumulative regret (log)", xscale="log")
        axes.set_yscale("log" if any(end.value > 0.0 for end in ends) else "linear")
        finish(axes, ends)
    return figure


def plot_seconds(run: Run, setting_index: int = 0) -> Figure:
    """Running median of the time per round, over all seeds; the labels are medians over all rounds."""
    with look():
        figure, axes = run_figure(run, setting_index, "running median over rounds and seeds")
        ends: list[End] = []
        for policy, style in policy_styles(run.policies).items():
            curve = seconds_curve(run, policy, setting_index)
            median = float(np.median(run.seconds(policy, setting_index)))
            text = f"{plain_text(policy)}  {readable_seconds(median)}"
            ends.append(draw(axes, curve, style, text, log=True))
        axes.set_xlim(0, run.rounds)
        axes.set(xlabel="round t", ylabel="time per round (log)", yscale="log")
        finish(axes, ends, readable_seconds)
    return figure


def plot_sweep(run: Run, metric: str = "regret", key: str | None = None) -> Figure:
    """A metric's total at the last round against a swept number, one panel per other setting."""
    panels = sweeps(run, key)
    if not panels:
        raise InputError(
            f"this run sweeps no number{f' called {key!r}' if key else ''}; nothing to plot"
        )
    with look():
        figure = blank(8, 4.6 * len(panels))
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(len(panels), 1, place + 1)
            made = "synthetic data" if made_data(run, panel.settings[0]) else ""
            parts = (run.experiment, setting_text(panel.fixed), band(run), made)
            name_axes(axes, run.title, " · ".join(part for part in parts if part))
            ends: list[End] = []
            order = np.argsort(panel.values)
            x = np.asarray(panel.values, dtype=np.float64)[order]
            for policy, style in policy_styles(run.policies).items():
                totals = [run.cumulative(policy, panel.settings[i], metric)[:, -1] for i in order]
                mean, stderr = mean_stderr(np.stack(totals, axis=1))
                colour = PALETTE[style.colour]
                axes.errorbar(x, mean, stderr, color=colour, marker="o", markersize=4.5, capsize=2)
                ends.append(End(mean[-1], f"{plain_text(policy)}  {significant(mean[-1])}", colour))
            if x[0] > 0 and x[-1] / x[0] >= 20:
                axes.set_xscale("log")
            axes.set(xlabel=plain_text(panel.key), ylabel=plain_text(f"total {metric_text(metric)}"))
            axes.margins(x=0.03)
            finish(axes, ends)
    return figure
