"""The charts of a run: regret and its growth, time per round, totals and horizons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from superarm.core import Floats
from superarm.core.errors import StateError
from superarm.lab.simulation.run import Run

from .averages import Band, band_text
from .bounds import Bound, RegretBounds
from .chart_parts import (
    POINTS,
    mean_curve,
    regret_text,
    sentence,
    setting_panel,
    setting_picture,
    thin_note,
    total_curve,
)
from .curves import (
    growth_exponent,
    growth_of,
    regret_curve,
    seconds_curve,
    spaced_rounds,
    totals_at,
)
from .formats import power_text, readable_seconds, setting_text
from .maps import networks_picture
from .pictures import Chart, Picture, Series
from .roads import METHODS, compares_schedules, trip_name, trip_settings
from .settings import Sweep, matches, sweeps
from .styles import PolicyStyle, policy_styles
from .sweep_charts import schedules_picture, sweep_curves, sweep_totals
from .tree_charts import tree_pictures
from .truth_charts import truth_pictures

_MANY_SETTINGS = 4
_FINE = 500  # points of a running mean, which shows where a policy starts anew
# Ratio of totals from which their axis is logarithmic: on a linear one some would lie on it.
_FAR_APART = 10.0
# Exponent of t from which the time of a round grows; below it is noise.
_LEAST_GROWTH = 0.1
# Points of a chart of times, and how many rounds each averages where there are enough.
_LEAST_TIMES = 10
_MOST_TIMES = 120
_ROUNDS_A_TIME = 5
_DASHED = 1
_DOTTED = 2


def run_charts(
    run: Run, bounds: RegretBounds | None = None, band: Band | None = None
) -> dict[str, list[Picture]]:
    """All charts of a run, by their subject.

    Args:
        run: The run.
        bounds: Bounds from theory to draw over the regret.
        band: The kind of band; by default that of the experiment.
    """
    band = band or run.chart.band
    panels = sweeps(run)
    has_schedules = bool(trip_settings(run)) and compares_schedules(run)
    return {
        "truth": truth_pictures(run),
        "tree": tree_pictures(run),
        "totals": _totals(run, band),
        "derived": _derived_pictures(run, panels, band),
        "horizons": [_horizons(run, band)] if run.horizons else [],
        "sweep": [sweep_totals(run, panels, band)] if panels else [],
        "widths": [schedules_picture(run, band)] if has_schedules else [],
        "regret": _regret_pictures(run, panels, band),
        "growth": _growth_pictures(run, bounds),
        "seconds": _seconds_pictures(run),
    }


def _is_large_sweep(run: Run, panels: Sequence[Sweep]) -> bool:
    """Whether there are too many settings for a picture of each."""
    return bool(panels) and len(run.settings) > _MANY_SETTINGS


def _derived_pictures(run: Run, panels: Sequence[Sweep], band: Band) -> list[Picture]:
    # The sweep shows means of many settings.
    skip_means = _is_large_sweep(run, panels)
    pictures = []
    for row in run.derived:
        is_mean = "versus" not in row
        if not (is_mean and skip_means):
            pictures.append(_derived(run, row, band))
    return pictures


def _regret_pictures(run: Run, panels: Sequence[Sweep], band: Band) -> list[Picture]:
    if _is_large_sweep(run, panels):
        picture = sweep_curves(run, panels, band)
        return [picture]
    indices = range(len(run.settings))
    return [_regret(run, index, band) for index in indices]


def _growth_pictures(run: Run, bounds: RegretBounds | None) -> list[Picture]:
    pictures = []
    for index in _first_settings(run):
        pictures.append(_growth(run, index, bounds))
        bounds = None  # they are those of the first setting
    return pictures


def _seconds_pictures(run: Run) -> list[Picture]:
    pictures = []
    for index in _first_settings(run):
        picture = _seconds(run, index)
        if picture is not None:
            pictures.append(picture)
    return pictures


def _first_settings(run: Run) -> range:
    return range(min(len(run.settings), _MANY_SETTINGS))


def group_pictures(runs: Sequence[Run]) -> list[Picture]:
    """Pictures over several runs: on roads the networks, and the methods on every trip.

    Args:
        runs: The runs.
    """
    # A trip's route is best taken from a run that made no other trip.
    on_roads = [run for run in runs if trip_settings(run)]
    on_roads.sort(key=lambda run: len(run.settings))
    pictures = []
    networks = networks_picture(on_roads)
    if networks:
        pictures.append(networks)
    single_trips = [
        run
        for run in on_roads
        if len(run.settings) == 1 and set(METHODS) & set(run.policies)
    ]
    if single_trips:
        pictures.append(_methods(single_trips))
    return pictures


def _methods(runs: Sequence[Run]) -> Picture:
    panels = []
    for run in runs:
        title = trip_name(run, 0)
        panels.append(regret_chart(run, 0, policies=METHODS, title=title))
    caption = sentence(band_text(runs[0], "stderr"))
    return Picture(name="methods", panels=tuple(panels), caption=caption, columns=3)


def regret_chart(
    run: Run,
    setting_index: int,
    band: Band = "stderr",
    policies: Sequence[str] = (),
    title: str = "",
    points: int = POINTS,
) -> Chart:
    """Cumulative regret; where it differs much, on a logarithmic axis.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
        band: The kind of band.
        policies: Policies to draw; by default, and where the run has none of them, all.
        title: Words above the chart.
        points: The largest number of points of a curve.
    """
    drawn = [policy for policy in run.policies if policy in policies] or run.policies
    series = [
        total_curve(run, policy, setting_index, band, points=points) for policy in drawn
    ]
    log = _are_far_apart([float(curve.y[-1]) for curve in series])
    label = regret_text(run, setting_index)
    return Chart(
        series=tuple(series),
        title=title,
        y_label=f"{label}, log scale" if log else label,
        log_y=log,
        totals=True,
    )


def _are_far_apart(ends: Sequence[float]) -> bool:
    """Whether last totals need a logarithmic axis, and none is negative.

    Regret is negative where a policy is better than what it is compared with.
    """
    positive = [end for end in ends if end > 0.0]
    none_negative = all(end >= 0.0 for end in ends)
    if len(positive) < 2 or not none_negative:
        return False
    return max(positive) > _FAR_APART * min(positive)


def _regret(run: Run, index: int, band: Band) -> Picture:
    chart = regret_chart(run, index, band)
    caption = sentence(band_text(run, band))
    caption += thin_note([chart])
    return setting_picture(run, index, "regret", chart, caption)


def _growth(run: Run, index: int, bounds: RegretBounds | None) -> Picture:
    series = []
    for policy, style in policy_styles(run.policies).items():
        curve = regret_curve(run, policy, index, points=POINTS)
        label = f"{policy}  {power_text(growth_exponent(run, policy, index))}"
        series.append(Series(label, curve.rounds, curve.mean, style))
    caption = "The exponent is the slope over the last half of the rounds."
    if bounds is not None and bounds.drawn:
        caption += " Dotted: bounds from theory."
        series += _theory_series(run, bounds.drawn, _DOTTED)
    if bounds is not None and bounds.orders:
        caption += " Dashed: orders from theory, scaled to end where the regret does."
        series += _theory_series(run, bounds.orders, _DASHED)
    chart = Chart(
        series=tuple(series),
        x_label="round, log scale",
        y_label=f"{regret_text(run, index)}, log scale",
        log_x=True,
        log_y=True,
    )
    return setting_picture(run, index, "growth", chart, caption)


def _theory_series(run: Run, curves: Mapping[str, Bound], dash: int) -> list[Series]:
    """A curve for each policy, in its colour."""
    styles = policy_styles(run.policies)
    series = []
    for policy, curve in curves.items():
        colour = styles[policy].colour
        style = PolicyStyle(colour, dash)
        series.append(Series(curve.label, curve.rounds, curve.values, style))
    return series


def _totals(run: Run, band: Band) -> list[Picture]:
    """Running totals of the metrics in the experiment's chart options, a panel for each."""
    charts = []
    for curve, (index, setting) in product(run.chart.curves, enumerate(run.settings)):
        metric = curve["metric"]
        where = curve.get("where", {})
        if not matches(run, setting, where) or metric not in run.metrics_at(index):
            continue
        series = [
            total_curve(run, policy, index, band, metric=metric)
            for policy in run.policies
        ]
        label = run.metric(metric, index).text
        charts.append(setting_panel(run, index, series, label))
    if not charts:
        return []
    caption = f"Running totals; {band_text(run, band)}.{thin_note(charts)}"
    return [Picture(name="totals", panels=tuple(charts), caption=caption, columns=2)]


def _derived(run: Run, row: Mapping[str, str], band: Band) -> Picture:
    """A row of the summary round by round, a panel for every setting.

    It is a running total over that of another policy, or over the number of rounds.
    """
    name = row["name"]
    metric = row["metric"]
    versus = row.get("versus")
    charts = []
    for index in range(len(run.settings)):
        if versus:
            chart = _ratio_panel(run, index, metric, versus, band)
        else:
            chart = _mean_panel(run, index, metric, name, band)
        charts.append(chart)
    caption = sentence(band_text(run, band))
    if versus:
        caption += _ratio_warning(run, metric, versus)
    columns = 3 if len(charts) in (3, 5, 6) else 2
    return Picture(name=name, panels=tuple(charts), caption=caption, columns=columns)


def _ratio_panel(run: Run, index: int, metric: str, versus: str, band: Band) -> Chart:
    rounds = spaced_rounds(run.rounds, POINTS)
    reference = totals_at(run, versus, index, rounds, metric)
    reference = np.where(reference == 0.0, np.nan, reference)
    styles = policy_styles(run.policies)
    series = []
    for policy, style in styles.items():
        if policy == versus:
            continue
        totals = totals_at(run, policy, index, rounds, metric)
        ratios = totals / reference
        series.append(mean_curve(policy, style, rounds, ratios, band))
    name = run.metric(metric, index).label
    label = f"{name}, relative to {versus}"
    return setting_panel(run, index, series, label, from_zero=False)


def _mean_panel(run: Run, index: int, metric: str, name: str, band: Band) -> Chart:
    rounds = spaced_rounds(run.rounds, _FINE)
    counts = rounds[None].astype(np.float64)
    styles = policy_styles(run.policies)
    series = []
    for policy, style in styles.items():
        totals = totals_at(run, policy, index, rounds, metric)
        means = totals / counts
        series.append(mean_curve(policy, style, rounds, means, band))
    label = name.replace("_", " ")
    description = run.metric(metric, index)._replace(label=label)
    return setting_panel(run, index, series, description.text, from_zero=True)


def _ratio_warning(run: Run, metric: str, versus: str) -> str:
    """A sentence about settings in which a ratio means nothing; empty if there are none."""
    settings = []
    for index, setting in enumerate(run.settings):
        last_totals = run.cumulative(versus, index, metric)[:, -1]
        if last_totals.min() <= 0.0:
            settings.append(setting_text(setting))
    if not settings:
        return ""
    where = f" ({'; '.join(settings)})" if any(settings) else ""
    return (
        f" Where the total of {versus} is not above 0 in every seed{where}, a ratio to it "
        "means nothing: see the regret instead."
    )


def _horizons(run: Run, band: Band) -> Picture:
    """Regret after T rounds against T, also of policies that were run again for every T."""
    parts = {horizon: run.at_horizon(horizon) for horizon in run.horizons}
    rerun = parts[run.horizons[0]].policies
    charts = []
    for index in range(len(run.settings)):
        series = []
        for policy, style in policy_styles(run.policies).items():
            used = parts if policy in rerun else dict.fromkeys(parts, run)
            totals = _totals_at_lengths({**used, run.rounds: run}, policy, index)
            lengths = np.array([*run.horizons, run.rounds])
            series.append(mean_curve(policy, style, lengths, totals, band))
        chart = setting_panel(
            run,
            index,
            series,
            f"{regret_text(run, index)} after T rounds",
            x_label="number of rounds T",
            markers=True,
        )
        charts.append(chart)
    caption = (
        f"Policies run again for every T, which they must know in advance: {', '.join(rerun)}; "
        f"{band_text(run, band)}."
    )
    return Picture(name="horizons", panels=tuple(charts), caption=caption, columns=2)


def _totals_at_lengths(runs: Mapping[int, Run], policy: str, index: int) -> Floats:
    """Regret after so many rounds of each run, by their number, (seeds, runs)."""
    totals = [run.cumulative(policy, index)[:, T - 1] for T, run in runs.items()]
    return np.stack(totals, axis=1)


def _seconds(run: Run, index: int) -> Picture | None:
    """The time of a round; ``None`` where rounds were not timed."""
    # Several rounds a point: one is timed too inexactly to be seen among others.
    points = min(_MOST_TIMES, max(_LEAST_TIMES, run.rounds // _ROUNDS_A_TIME))
    series = []
    for policy, style in policy_styles(run.policies).items():
        try:
            curve = seconds_curve(run, policy, index, points)
            growth = growth_of(seconds_curve(run, policy, index))
        except StateError:  # a run may have been copied without its timings
            return None
        label = f"{policy}  {readable_seconds(run.seconds_per_round(policy, index))}"
        if growth >= _LEAST_GROWTH:
            label += f", {power_text(growth)}"
        series.append(Series(label, curve.rounds, curve.mean, style))
    chart = Chart(
        series=tuple(series),
        y_label="time per round, log scale",
        log_y=True,
        seconds=True,
    )
    caption = (
        "Time to decide and learn, averaged over blocks of rounds and over seeds; labels give the "
        "overall mean and, where it grows, how the time of a round grows over the last half of the run."
    )
    return setting_picture(run, index, "seconds", chart, caption)
