"""Parts that the charts of a run share: curves with bands, panels, and words of captions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from superarm.core import Floats, Ints
from superarm.lab.simulation.run import Run

from .averages import Band, mean_band
from .curves import spaced_rounds, totals_at
from .formats import setting_text, significant
from .pictures import Chart, Picture, Series
from .styles import PolicyStyle, policy_styles

POINTS = 200
"""Points of a curve."""


def regret_text(run: Run, setting_index: int) -> str:
    """What a chart calls regret.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
    """
    return run.metric("regret", setting_index).text


def total_curve(
    run: Run,
    policy: str,
    setting_index: int,
    band: Band,
    *,
    metric: str = "regret",
    points: int = POINTS,
) -> Series:
    """Running totals of a policy, labelled with its name and the last total.

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        band: The kind of band.
        metric: The metric's name.
        points: The largest number of points.
    """
    style = policy_styles(run.policies)[policy]
    rounds = spaced_rounds(run.rounds, points)
    totals = totals_at(run, policy, setting_index, rounds, metric)
    return mean_curve(policy, style, rounds, totals, band)


def mean_curve(
    policy: str, style: PolicyStyle, x: Floats | Ints, values: Floats, band: Band
) -> Series:
    """Means over seeds, labelled with the policy's name and the last mean.

    Args:
        policy: The policy's name.
        style: The look of the curve.
        x: Places along the x-axis, (n,).
        values: (seeds, n).
        band: The kind of band.
    """
    mean, half = mean_band(values, band)
    label = f"{policy}  {significant(float(mean[-1]))}"
    return Series(label, x, mean, style, half)


def setting_panel(
    run: Run, setting_index: int, series: Iterable[Series], label: str, **look: Any
) -> Chart:
    """The curves of one setting, which is the panel's title.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
        series: The curves.
        label: Words along the y-axis.
        **look: Further arguments of :class:`Chart`.
    """
    title = setting_text(run.settings[setting_index])
    return Chart(series=tuple(series), title=title, y_label=label, **look)


def setting_picture(
    run: Run, setting_index: int, name: str, chart: Chart, caption: str
) -> Picture:
    """A picture of one chart of one setting.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
        name: The name of its files; of several settings, their number is added.
        chart: The chart.
        caption: Words below it.
    """
    suffix = f"-{setting_index}" if len(run.settings) > 1 else ""
    heading = setting_text(run.settings[setting_index])
    return Picture(
        name=name + suffix, panels=(chart,), heading=heading, caption=caption
    )


def thin_note(charts: Sequence[Chart]) -> str:
    """A sentence about thin lines; empty where there are none.

    Args:
        charts: The charts of a picture.
    """
    for chart in charts:
        if any(series.style.thin for series in chart.series):
            return " Thin lines are baselines, or do not depend on the swept number; they have no bands."
    return ""


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop.

    Args:
        text: Words.
    """
    return text[:1].upper() + text[1:] + "."
