"""The charts of a run's page, as figures of inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from superarm.errors import StateError
from superarm.results.bounds import RegretBounds
from superarm.results.curves import (
    Average,
    PolicyStyle,
    learners_height,
    mean_stderr,
    metric_text,
    policy_styles,
    readable_seconds,
    regret_curve,
    seconds_curve,
    setting_text,
    significant,
    sweeps,
    timed_in_blocks,
)
from superarm.simulation.trace import Run

from .pages import legend, swatch
from .svg import Line, svg_lines

_MANY_SETTINGS = 4
_BOUND_DASH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row of the key table."""

    policy: str
    regret: Average
    exponent: float
    seconds: float | None
    others: tuple[Average, ...]
    """Totals of the run's other metrics."""


def _points(run: Run) -> int:
    """Fewer points per curve when there are many charts: the page stays small."""
    return 200 if len(run.settings) <= _MANY_SETTINGS else 80


def regret_chart(run: Run, index: int, points: int, thumbnail: bool = False) -> tuple[str, list[Line]]:
    lines = []
    for policy, style in policy_styles(run.policies).items():
        curve = regret_curve(run, policy, index, points=points)
        label = f"{policy}  {significant(float(curve.mean[-1]))}"
        lines.append(Line(label=label, x=curve.rounds, y=curve.mean, stderr=curve.stderr, style=style))
    chart = svg_lines(
        lines,
        description=f"Mean cumulative regret after {run.rounds} rounds: {_spoken(lines)}",
        x_label="round",
        y_label="cumulative regret",
        thumbnail=thumbnail,
        width=320 if thumbnail else 760,
        height=170 if thumbnail else 400,
        ceiling=learners_height(run, index),
    )
    return chart, lines


def regret_figures(run: Run) -> Iterable[str]:
    band = (
        f"Mean ± 1 standard error over {len(run.seeds)} seeds." if len(run.seeds) > 1 else "One seed."
    )
    if any(style.thin for style in policy_styles(run.policies).values()):
        band += " Thin lines are baselines."
    for index in range(len(run.settings)):
        cut = learners_height(run, index) is not None
        told = band + " One that leaves through the top goes on growing." * cut
        yield _figure(run, index, *regret_chart(run, index, _points(run)), told)


def growth_figures(
    run: Run, tables: Sequence[Sequence[Result]], bounds: RegretBounds | None
) -> Iterable[str]:
    styles = policy_styles(run.policies)
    caption = "The exponent is the slope over the last half of the rounds."
    for index, rows in enumerate(tables[:_MANY_SETTINGS]):
        lines = []
        for row in rows:
            curve = regret_curve(run, row.policy, index, points=_points(run), log=True)
            exponent = row.exponent if math.isfinite(row.exponent) else None
            style = styles[row.policy]
            lines.append(
                Line(label=row.policy, x=curve.rounds, y=curve.mean, style=style, exponent=exponent)
            )
        told = caption
        if bounds is not None and bounds.drawn and index == 0:
            told += " Dotted: what theory bounds it by; see the table."
            for policy, bound in bounds.drawn.items():
                style = PolicyStyle(styles[policy].colour, _BOUND_DASH)
                lines.append(Line(label=bound.label, x=bound.rounds, y=bound.values, style=style))
        chart = svg_lines(
            lines,
            description="Cumulative regret on logarithmic axes; growth exponents: "
            + ", ".join(f"{row.policy} {significant(row.exponent)}" for row in rows),
            x_label="round (log scale)",
            y_label="cumulative regret (log scale)",
            log_x=True,
            log_y=True,
        )
        yield _figure(run, index, chart, lines, told)
    if bounds is not None:
        yield _bound_table(run, bounds)


def _bound_table(run: Run, bounds: RegretBounds) -> str:
    """For each policy, the bound after the last round and what it rests on, or why there is none."""
    styles = policy_styles(run.policies)
    body = ""
    for policy in run.policies:
        bound = bounds.drawn.get(policy)
        value = significant(float(bound.values[-1])) if bound else "–"
        told = bound.assumes if bound else bounds.missing[policy]
        body += (
            f'<tr><th scope="row">{swatch(styles[policy])}{escape(policy)}</th>'
            f'<td class="number">{value}</td><td>{escape(told)}.</td></tr>'
        )
    setting = setting_text(run.settings[0])
    caption = f"Bounds from theory{f', for {setting}' if setting else ''}"
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>'
        f'<th scope="col">policy</th><th scope="col" class="number">after {run.rounds:,} rounds</th>'
        f'<th scope="col">what it rests on, or why there is none</th></tr></thead><tbody>{body}</tbody>'
        "</table></div>" + (f'<p class="meta">{escape(bounds.note)}</p>' if bounds.note else "")
    )


def seconds_figures(run: Run) -> Iterable[str]:
    """Labelled with the medians of the table; no chart where most rounds were not timed singly."""
    for index in range(min(len(run.settings), _MANY_SETTINGS)):
        lines = []
        for policy, style in policy_styles(run.policies).items():
            try:
                curve = seconds_curve(run, policy, index)
            except StateError:
                yield "<p>No timings lie beside this run.</p>"
                return
            if timed_in_blocks(run, policy, index):
                yield (
                    "<p>Rounds were played many at a time, and timed so; the table of results has "
                    "the median time per round.</p>"
                )
                return
            label = f"{policy}  {readable_seconds(float(np.median(run.seconds(policy, index))))}"
            lines.append(Line(label=label, x=curve.rounds, y=curve.mean, style=style))
        chart = svg_lines(
            lines,
            description=f"Running median of the time per round; over all rounds: {_spoken(lines)}",
            x_label="round",
            y_label="time per round (log scale)",
            log_y=True,
            seconds=True,
        )
        caption = (
            "Running median over rounds and seeds: decide and learn. The labels are medians over all "
            "rounds, as in the table."
        )
        yield _figure(run, index, chart, lines, caption)


def sweep_figures(run: Run) -> Iterable[str]:
    for panel in sweeps(run):
        order = np.argsort(panel.values)
        x = np.asarray(panel.values, dtype=np.float64)[order]
        for metric in run.metrics:
            lines = []
            for policy, style in policy_styles(run.policies).items():
                totals = [run.cumulative(policy, panel.settings[i], metric)[:, -1] for i in order]
                mean, stderr = mean_stderr(np.stack(totals, axis=1))
                label = f"{policy}  {significant(float(mean[-1]))}"
                lines.append(Line(label=label, x=x, y=mean, stderr=stderr, style=style, markers=True))
            chart = svg_lines(
                lines,
                description=f"Total {metric_text(metric)} at {panel.key} = {x[-1]:g}: {_spoken(lines)}",
                x_label=panel.key,
                y_label=f"{metric_text(metric)}, total over {run.rounds:,} rounds",
                log_x=bool(x[0] > 0 and x[-1] / x[0] >= 20),
            )
            caption = escape(setting_text(panel.fixed))
            yield f"<figure>{chart}{legend(lines)}<figcaption>{caption}</figcaption></figure>"


def _figure(run: Run, index: int, chart: str, lines: Sequence[Line], caption: str) -> str:
    setting = setting_text(run.settings[index])
    title = f"<h3>{escape(setting)}</h3>" if setting else ""
    return f"{title}<figure>{chart}{legend(lines)}<figcaption>{escape(caption)}</figcaption></figure>"


def _spoken(lines: Sequence[Line]) -> str:
    return ", ".join(" ".join(line.label.split()) for line in lines)
