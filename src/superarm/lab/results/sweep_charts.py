"""Charts of what was swept: totals, curves, and schedules of route policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from superarm.core import Floats, Ints
from superarm.lab.simulation.run import Run
from superarm.rules import BayesianGPUCB

from .averages import Band, band_text
from .chart_parts import POINTS, mean_curve, regret_text, thin_note, total_curve
from .curves import spaced_rounds
from .formats import setting_text
from .pictures import Chart, Picture, Series
from .roads import Schedule, schedule_of, trip_name, trip_settings
from .settings import Sweep
from .styles import PolicyStyle, policy_styles, shade
from .totals import outcomes, per_round

_FEW_POINTS = 80  # of curves in small panels
_WIDE = 20.0  # ratio of swept numbers from which their axis is logarithmic


def sweep_totals(run: Run, panels: Sequence[Sweep], band: Band) -> Picture:
    """Draw totals against a swept number, a panel for every metric and panel of settings.

    Args:
        run: The run.
        panels: The settings along the swept key.
        band: The kind of band.
    """
    charts = []
    for panel in panels:
        charts += [_sweep_chart(run, panel, metric, band) for metric in run.metrics]
    return Picture(
        name=f"sweep-{panels[0].key}".replace(".", "-"),
        panels=tuple(charts),
        caption=f"After {run.rounds:,} rounds; {band_text(run, band)}.{thin_note(charts)}",
        columns=2,
    )


def _sweep_chart(run: Run, panel: Sweep, metric: str, band: Band) -> Chart:
    names_of_means = {}
    for row in run.derived:
        if "versus" not in row:
            names_of_means[row["metric"]] = row["name"]
    description = run.metric(metric, panel.settings[0])
    read = outcomes
    if metric in names_of_means:
        label = names_of_means[metric].replace("_", " ")
        description = description._replace(label=label)
        read = per_round
    x = np.asarray(panel.values, dtype=np.float64)
    series = []
    for policy, style in policy_styles(run.policies).items():
        columns = [read(run, policy, index, metric) for index in panel.settings]
        values = np.stack(columns, axis=1)  # (seeds, settings)
        curve = mean_curve(policy, style, x, values, band)
        # A policy that does not depend on the swept number serves for comparison.
        constant = bool(np.ptp(curve.y) == 0.0)
        look = style._replace(thin=style.thin or constant)
        series.append(curve._replace(style=look))
    log = _is_wide(x)
    marks = run.chart.marks.items()
    return Chart(
        series=tuple(series),
        title=setting_text(panel.fixed),
        x_label=f"{panel.key}, log scale" if log else panel.key,
        y_label=description.text,
        log_x=log,
        markers=True,
        marks={label: mark for label, mark in marks if x[0] <= mark <= x[-1]},
    )


def _is_wide(x: Floats) -> bool:
    """Whether rising numbers span so much that a linear axis would squeeze the first."""
    positive = x[x > 0.0]
    if x[0] < 0.0 or len(positive) < 2:
        return False
    return bool(positive[-1] / positive[0] >= _WIDE)


def sweep_curves(run: Run, panels: Sequence[Sweep], band: Band) -> Picture:
    """Draw regret over time by the value of a swept number, a panel for every policy.

    Args:
        run: The run.
        panels: The settings along the swept key.
        band: The kind of band.
    """
    charts = []
    for panel in panels:
        fixed = setting_text(panel.fixed)
        label = regret_text(run, panel.settings[0])
        for policy in run.policies:
            series = _curves_by_value(run, policy, panel, band)
            title = f"{policy}, {fixed}" if fixed else policy
            charts.append(Chart(series=tuple(series), title=title, y_label=label))
    return Picture(
        name=f"curves-{panels[0].key}".replace(".", "-"),
        panels=tuple(charts),
        caption=f"By {panels[0].key}; {band_text(run, band)}.",
        columns=len(run.policies),
    )


def _curves_by_value(run: Run, policy: str, panel: Sweep, band: Band) -> list[Series]:
    """Regret in each setting of a panel, from light to dark."""
    count = len(panel.settings)
    series = []
    for position, index in enumerate(panel.settings):
        curve = total_curve(run, policy, index, band, points=_FEW_POINTS)
        label = f"{panel.values[position]:g}"
        style = PolicyStyle(shade(position, count))
        series.append(curve._replace(label=label, style=style))
    return series


def schedules_picture(run: Run, band: Band) -> Picture:
    """Draw, for every trip, the regret under each schedule of one kind, and β_t.

    Args:
        run: A run that compares schedules.
        band: The kind of band.
    """
    rounds = spaced_rounds(run.rounds, POINTS)
    charts = []
    for index in trip_settings(run):
        charts += _trip_schedules(run, index, rounds, band)
    caption = (
        f"The index is mean − √β · standard deviation. Regret: {band_text(run, band)}."
    )
    return Picture(name="betas", panels=tuple(charts), caption=caption, columns=3)


def _trip_schedules(run: Run, index: int, rounds: Ints, band: Band) -> list[Chart]:
    roads = run.road_map(index)
    assert roads is not None  # it has a trip
    regrets: dict[str, list[Series]] = {"UCB": [], "BUCB": []}
    betas = []
    for policy, style in policy_styles(run.policies).items():
        schedule = schedule_of(run, policy, index, len(roads))
        assert schedule is not None  # ``compares_schedules``
        kind, text = _schedule_text(schedule)
        curve = total_curve(run, policy, index, band, points=_FEW_POINTS)
        regrets[kind].append(curve._replace(label=text))
        beta = _betas(schedule, rounds)
        betas.append(Series(f"{kind} {text}", rounds, beta, style))
    where = f"{trip_name(run, index)}, {len(roads):,} edges"
    label = regret_text(run, index)
    charts = []
    for kind, curves in regrets.items():
        title = f"GP-{kind}: {where}"
        charts.append(Chart(series=tuple(curves), title=title, y_label=label))
    charts.append(Chart(series=tuple(betas), title=f"β: {where}", y_label="β"))
    return charts


def _betas(schedule: Schedule, rounds: Ints) -> Floats:
    """β of some rounds, (n,)."""
    betas = []
    for step in rounds:
        root = schedule.width(int(step), lambda count: 0.0)
        betas.append(root**2)
    return np.array(betas)


def _schedule_text(schedule: Schedule) -> tuple[str, str]:
    """The kind of a schedule, and its parameters."""
    if isinstance(schedule, BayesianGPUCB):
        return "UCB", "β" if schedule.scale == 1.0 else f"{schedule.scale:g} β"
    return "BUCB", f"ω = {schedule.omega:g}, ξ = {schedule.xi:g}"
