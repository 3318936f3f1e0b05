"""Charts of expected rewards as they change."""

from __future__ import annotations

import numpy as np

from superarm.lab.simulation.illustrations import TruthRecord
from superarm.lab.simulation.run import Run

from .chart_parts import setting_panel
from .pictures import Picture, Series
from .styles import PolicyStyle, shade

_TIMES = 5  # rounds in which a function that drifts is drawn


def truth_pictures(run: Run) -> list[Picture]:
    """Draw expected rewards, a panel for every setting; nothing where none were recorded.

    Args:
        run: The run.
    """
    over_arms = run.chart.truth == "functions"
    charts = []
    for index in range(len(run.settings)):
        truth = run.truth(index)
        if truth is None:
            continue
        series = _over_arms(truth) if over_arms else _over_rounds(truth)
        label = run.metric("regret", index)._replace(label="expected reward").text
        x_label = "arm" if over_arms else "round"
        chart = setting_panel(
            run, index, series, label, x_label=x_label, from_zero=False
        )
        charts.append(chart)
    if not charts:
        return []
    if over_arms:
        caption = "A dot marks the best arm of each round."
    else:
        caption = "One line for each arm, and the best of each round."
    caption += f" Seed {run.seeds[0]}."
    return [Picture(name="truth", panels=tuple(charts), caption=caption, columns=2)]


def _over_arms(truth: TruthRecord) -> list[Series]:
    """All arms in a few rounds, from light to dark."""
    last = truth.rounds[-1]
    times = np.rint(np.linspace(0.0, last, _TIMES))
    times = np.maximum(times, 1)
    rows = np.unique(np.searchsorted(truth.rounds, times))
    places = truth.places[:, 0]
    order = np.argsort(places)
    x = places[order]
    series = []
    for position, row in enumerate(rows.tolist()):
        y = truth.values[row, order]
        label = f"t = {truth.rounds[row]}"
        colour = shade(position, len(rows))
        best = int(y.argmax())
        series.append(Series(label, x, y, PolicyStyle(colour), marked=(best,)))
    return series


def _over_rounds(truth: TruthRecord) -> list[Series]:
    """Every arm, lower ones lighter, and the largest of them."""
    rounds = truth.rounds
    means = truth.values.mean(axis=0)  # of each arm
    rising = means.argsort()
    count = len(rising)
    series = []
    for position, arm in enumerate(rising.tolist()):
        colour = shade(position, count)
        style = PolicyStyle(colour, thin=True)
        values = truth.values[:, arm]
        series.append(Series("", rounds, values, style))
    best = truth.values.max(axis=1)
    series.append(Series("best", rounds, best, PolicyStyle(1)))
    return series
