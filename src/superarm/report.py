"""A run as one self-contained HTML page: no script, nothing loaded, no matplotlib needed.

:func:`write_report` returns a :class:`Report`; :func:`write_index` joins several in a gallery::

    reports = [write_report(Run.load(d), claims, d / "report.html") for d in directories]
    write_index(reports, root / "index.html")

Everything that comes from a run is escaped: names and notes are text, never markup.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ._curves import (
    Bound,
    PolicyStyle,
    growth_exponent,
    mean_stderr,
    plus_minus,
    policy_styles,
    readable_seconds,
    regret_curve,
    seconds_curve,
    setting_text,
    significant,
    sweeps,
)
from ._report_template import Line, fact_table, page, readable_value, section, svg_heatmap, svg_lines
from .errors import StateError
from .simulation.trace import Run, atomic_write

__all__ = ["Line", "Report", "svg_heatmap", "svg_lines", "write_index", "write_report"]

Claim = Mapping[str, Any]
"""``{"text": …, "holds": true|false, "evidence": …}``"""

_MANY_SETTINGS = 4
_BOUND_STYLE = PolicyStyle(7, 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """What a gallery needs to know about a written report."""

    path: Path
    experiment: str
    title: str
    headline: str
    claims: tuple[Claim, ...]
    thumbnail: str
    """A small chart as SVG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """One row of the key table."""

    policy: str
    regret: float
    stderr: float
    exponent: float
    seconds: float | None
    others: tuple[tuple[float, float], ...]


def write_report(
    run: Run,
    claims: Sequence[Claim],
    path: Path | str,
    notes: str | Sequence[str] = (),
    bound: Bound | None = None,
    picture: str = "",
) -> Report:
    """Write the page; ``notes`` are paragraphs of plain text below the introduction.

    A ``bound`` is drawn over the regret on logarithmic axes. ``picture`` is SVG of our own
    making, shown first as it is.
    """
    path = Path(path)
    tables = [_results(run, index) for index in range(len(run.settings))]
    headline = _headline(run, tables)
    panels = sweeps(run)
    paragraphs = [run.spec.get("description"), *([notes] if isinstance(notes, str) else notes)]
    body = "".join(
        (
            _header(run, headline, claims),
            "<main>",
            *(f"<p>{escape(str(note))}</p>" for note in paragraphs if note),
            f"<figure>{picture}</figure>" if picture else "",
            section(f"Sweep over {panels[0].key}", *_sweep_figures(run)) if panels else "",
            section("Result", *(_result_table(run, i, rows) for i, rows in enumerate(tables))),
            section("Claims", _claims_table(claims)) if claims else "",
            section("Regret", *_regret_figures(run)),
            section("How regret grows", *_growth_figures(run, tables, bound)),
            section("Time per round", *_seconds_figures(run)),
            _settings_section(run),
            _reproduce_section(run),
            "</main>",
        )
    )
    atomic_write(path, page(run.title, body).encode())
    return Report(
        path=path,
        experiment=run.experiment,
        title=run.title,
        headline=headline,
        claims=tuple(claims),
        thumbnail=_regret_chart(run, 0, points=80, thumbnail=True),
    )


def write_index(
    reports: Sequence[Report], path: Path | str, title: str = "Experiments", notes: str = ""
) -> Path:
    """Write a gallery of reports, with all their claims in one table."""
    path = Path(path)
    links = [quote(Path(os.path.relpath(report.path, path.parent)).as_posix()) for report in reports]
    cards = "".join(
        f'<li class="card">{report.thumbnail}<h3><a href="{link}">{escape(report.title)}</a></h3>'
        f'<p class="meta"><code>{escape(report.experiment)}</code>'
        f"{_claim_count(report.claims, ' · ')}</p>"
        f"<p>{escape(report.headline)}</p></li>"
        for report, link in zip(reports, links, strict=True)
    )
    rows = [
        (f'<a href="{link}">{escape(report.experiment)}</a>', claim)
        for report, link in zip(reports, links, strict=True)
        for claim in report.claims
    ]
    every = [claim for _, claim in rows]
    count = f"{len(reports)} experiment{'s' * (len(reports) != 1)}{_claim_count(every, '; ')}."
    body = (
        f'<header><h1>{escape(title)}</h1><p class="lead">{count}</p></header><main>'
        + (f"<p>{escape(notes)}</p>" if notes else "")
        + section("Reports", f'<ul class="cards">{cards}</ul>')
        + (section("Claims", _claims_table(every, [link for link, _ in rows])) if rows else "")
        + "</main>"
    )
    atomic_write(path, page(title, body).encode())
    return path


# --- what the page says ------------------------------------------------------------------


def _results(run: Run, index: int) -> list[_Result]:
    rows = []
    for policy in run.policies:
        mean, stderr = mean_stderr(run.cumulative(policy, index)[:, -1])
        others = [mean_stderr(run.cumulative(policy, index, each)[:, -1]) for each in run.metrics[1:]]
        try:
            seconds = float(np.median(run.seconds(policy, index)))
        except StateError:  # timings are no part of a trace; a run may have been copied without them
            seconds = None
        rows.append(
            _Result(
                policy=policy,
                regret=float(mean),
                stderr=float(stderr),
                exponent=growth_exponent(run, policy, index),
                seconds=seconds,
                others=tuple((float(a), float(b)) for a, b in others),
            )
        )
    return rows


def _headline(run: Run, tables: Sequence[Sequence[_Result]]) -> str:
    """One sentence: who is best, and by how much."""
    if len(tables) > 1:
        wins = [min(rows, key=lambda row: row.regret).policy for rows in tables]
        best = max(run.policies, key=wins.count)
        return f"Lowest regret: {best}, in {wins.count(best)} of {len(tables)} settings."
    ranked = sorted(tables[0], key=lambda row: row.regret)
    text = f"Lowest regret: {ranked[0].policy}, {_plus_minus(run, ranked[0].regret, ranked[0].stderr)}"
    if len(ranked) > 1:
        text += f"; next {ranked[1].policy}, {_plus_minus(run, ranked[1].regret, ranked[1].stderr)}"
    return text + "."


def _header(run: Run, headline: str, claims: Sequence[Claim]) -> str:
    named = [f"{word} {run.spec[word]}" for word in ("paper", "figure") if run.spec.get(word)]
    origin = [run.experiment, *named]
    size = (
        f"{len(run.policies)} polic{'ies' if len(run.policies) > 1 else 'y'}, {run.rounds:,} rounds, "
        f"{len(run.seeds)} seed{'s' * (len(run.seeds) > 1)}"
    )
    if len(run.settings) > 1:
        size += f", {len(run.settings)} settings"
    return (
        f'<header><h1>{escape(run.title)}</h1><p class="meta">'
        + " · ".join(escape(str(part)) for part in origin)
        + f'</p><p class="lead">{escape(headline)} {size}{_claim_count(claims, "; ")}.</p></header>'
    )


def _result_table(run: Run, index: int, rows: Sequence[_Result]) -> str:
    styles = policy_styles(run.policies)
    best = min(row.regret for row in rows)
    titles = ["cumulative regret", "relative to best", "growth", "time per round", *run.metrics[1:]]
    head = '<th scope="col">policy</th>' + "".join(
        f'<th scope="col" class="number">{escape(title)}</th>' for title in titles
    )
    body = ""
    for row in sorted(rows, key=lambda row: row.regret):
        relative = f"{significant(row.regret / best)}×" if best > 0.0 else "–"
        growth = f"t<sup>{row.exponent:.2f}</sup>" if math.isfinite(row.exponent) else "–"
        cells = (
            escape(_plus_minus(run, row.regret, row.stderr)),
            relative,
            growth,
            "–" if row.seconds is None else escape(readable_seconds(row.seconds)),
            *(escape(_plus_minus(run, *pair)) for pair in row.others),
        )
        swatch = f'<span class="swatch" style="background:var(--c{styles[row.policy].colour})"></span>'
        body += (
            f"<tr{' class=best' if row.regret == best else ''}>"
            f'<th scope="row">{swatch}{escape(row.policy)}</th>'
            + "".join(f'<td class="number">{cell}</td>' for cell in cells)
            + "</tr>"
        )
    setting = setting_text(run.settings[index])
    caption = f"<caption>{escape(setting)}</caption>" if setting else ""
    return (
        f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _claims_table(claims: Sequence[Claim], origins: Sequence[str] | None = None) -> str:
    """``origins`` are ready-made HTML, one per claim."""
    body = ""
    for place, claim in enumerate(claims):
        verdict = "✓ holds" if claim["holds"] else "✗ does not hold"
        origin = f"<td>{origins[place]}</td>" if origins else ""
        body += (
            f'<tr>{origin}<td>{escape(str(claim["text"]))}</td><td class="verdict">{verdict}</td>'
            f"<td>{escape(readable_value(claim.get('evidence', '')))}</td></tr>"
        )
    titles = ("experiment",) * bool(origins) + ("claim", "here", "evidence")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _claim_count(claims: Sequence[Claim], separator: str) -> str:
    if not claims:
        return ""
    return f"{separator}{sum(bool(claim['holds']) for claim in claims)} of {len(claims)} claims hold"


def _settings_section(run: Run) -> str:
    facts = {
        "rounds": run.rounds,
        "seeds": f"{run.seeds[0]} … {run.seeds[-1]}" if len(run.seeds) > 1 else run.seeds[0],
        "superarm": run.spec.get("version"),
    }
    parts = [fact_table("", {**facts, **run.spec.get("parameters", {})})]
    if settled := run.spec.get("settled"):
        parts.append(fact_table("How the paper was read where it leaves a choice", settled))
    return section("Settings", *parts)


# --- charts ------------------------------------------------------------------------------


def _points(run: Run) -> int:
    """Fewer points per curve when there are many charts: the page stays small."""
    return 200 if len(run.settings) <= _MANY_SETTINGS else 80


def _regret_chart(run: Run, index: int, points: int, thumbnail: bool = False) -> str:
    lines = []
    for policy, style in policy_styles(run.policies).items():
        curve = regret_curve(run, policy, index, points=points)
        label = f"{policy}  {significant(float(curve.mean[-1]))}"
        lines.append(Line(label=label, x=curve.rounds, y=curve.mean, stderr=curve.stderr, style=style))
    return svg_lines(
        lines,
        description=f"Mean cumulative regret after {run.rounds} rounds: {_spoken(lines)}",
        x_label="round",
        y_label="cumulative regret",
        thumbnail=thumbnail,
        width=320 if thumbnail else 760,
        height=170 if thumbnail else 400,
    )


def _regret_figures(run: Run) -> Iterable[str]:
    band = (
        f"Mean ± 1 standard error over {len(run.seeds)} seeds." if len(run.seeds) > 1 else "One seed."
    )
    for index in range(len(run.settings)):
        yield _figure(run, index, _regret_chart(run, index, _points(run)), band)


def _growth_figures(
    run: Run, tables: Sequence[Sequence[_Result]], bound: Bound | None
) -> Iterable[str]:
    styles = policy_styles(run.policies)
    caption = "The exponent is the slope over the last half of the rounds."
    if bound is not None:
        caption += f" {bound.label}: {bound.assumes}."
    for index, rows in enumerate(tables[:_MANY_SETTINGS]):
        lines = []
        for row in rows:
            curve = regret_curve(run, row.policy, index, points=_points(run), log=True)
            exponent = row.exponent if math.isfinite(row.exponent) else None
            style = styles[row.policy]
            lines.append(
                Line(label=row.policy, x=curve.rounds, y=curve.mean, style=style, exponent=exponent)
            )
        if bound is not None and index == 0:
            lines.append(Line(label=bound.label, x=bound.rounds, y=bound.values, style=_BOUND_STYLE))
        chart = svg_lines(
            lines,
            description="Cumulative regret on logarithmic axes; growth exponents: "
            + ", ".join(f"{row.policy} {significant(row.exponent)}" for row in rows),
            x_label="round (log scale)",
            y_label="cumulative regret (log scale)",
            log_x=True,
            log_y=True,
        )
        yield _figure(run, index, chart, caption)


def _seconds_figures(run: Run) -> Iterable[str]:
    for index in range(min(len(run.settings), _MANY_SETTINGS)):
        lines = []
        for policy, style in policy_styles(run.policies).items():
            try:
                curve = seconds_curve(run, policy, index)
            except StateError:
                yield "<p>No timings lie beside this run.</p>"
                return
            label = f"{policy}  {readable_seconds(float(curve.mean[-1]))}"
            lines.append(Line(label=label, x=curve.rounds, y=curve.mean, style=style))
        chart = svg_lines(
            lines,
            description=f"Median time per round at the end: {_spoken(lines)}",
            x_label="round",
            y_label="time per round (log scale)",
            log_y=True,
            seconds=True,
        )
        yield _figure(run, index, chart, "Running median over rounds and seeds: decide and learn.")


def _sweep_figures(run: Run) -> Iterable[str]:
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
                description=f"Total {metric} at {panel.key} = {x[-1]:g}: {_spoken(lines)}",
                x_label=panel.key,
                y_label=f"{metric}, total over {run.rounds:,} rounds",
                log_x=bool(x[0] > 0 and x[-1] / x[0] >= 20),
            )
            caption = escape(setting_text(panel.fixed))
            yield f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


def _figure(run: Run, index: int, chart: str, caption: str) -> str:
    setting = setting_text(run.settings[index])
    title = f"<h3>{escape(setting)}</h3>" if setting else ""
    return f"{title}<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


# --- small parts -------------------------------------------------------------------------


def _spoken(lines: Sequence[Line]) -> str:
    return ", ".join(" ".join(line.label.split()) for line in lines)


def _plus_minus(run: Run, mean: float, stderr: float) -> str:
    return plus_minus(mean, stderr) if len(run.seeds) > 1 else significant(mean)


def _reproduce_section(run: Run) -> str:
    """The command line that makes this run again; list values sweep."""
    words = ["superarm", "run", run.experiment, "--rounds", str(run.rounds)]
    words += ["--seed", str(run.seeds[0]), "--seeds", str(len(run.seeds))]
    words += ["--policies", ",".join(run.policies)]
    for key, value in run.spec.get("overrides", {}).items():
        words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    swept: dict[str, list[Any]] = {}
    for setting in run.settings:
        for key, value in setting.items():
            values = swept.setdefault(key, [])
            if value not in values:
                values.append(value)
    for key, values in swept.items():
        words += ["--set", f"{key}={json.dumps(values, ensure_ascii=False)}"]
    command = shlex.join([*words, "--out", "OUT"])
    promise = "<p>The same seeds give the same traces, byte for byte; timings differ.</p>"
    return section("Reproduce", promise, f"<pre><code>{escape(command)}</code></pre>")
