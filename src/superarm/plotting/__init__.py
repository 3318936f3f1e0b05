"""Figures of a run, drawn with matplotlib (the extra ``[plot]``) from traces alone.

Every function returns a :class:`matplotlib.figure.Figure`; :func:`save_figure` writes it. Nothing
touches pyplot or the global settings. The numbers and colours are the report's, so that a policy
looks the same everywhere.
"""

from __future__ import annotations

from .curves import plot_growth, plot_regret, plot_seconds, plot_sweep
from .files import save_group_figures, save_run_figures
from .look import save_figure
from .maps import plot_exploration, plot_network, plot_networks
from .navigation import (
    plot_calibration,
    plot_methods,
    plot_schedules,
    plot_sweep_curves,
    plot_sweep_totals,
    plot_trips,
)
from .posteriors import plot_posterior_1d, plot_posterior_2d

__all__ = [
    "plot_calibration",
    "plot_exploration",
    "plot_growth",
    "plot_methods",
    "plot_network",
    "plot_networks",
    "plot_posterior_1d",
    "plot_posterior_2d",
    "plot_regret",
    "plot_schedules",
    "plot_seconds",
    "plot_sweep",
    "plot_sweep_curves",
    "plot_sweep_totals",
    "plot_trips",
    "save_figure",
    "save_group_figures",
    "save_run_figures",
]
