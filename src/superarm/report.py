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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ._curves import (
    Bound,
    counted,
    growth_exponent,
    made_data,
    mean_stderr,
    metric_text,
    paired_difference,
    plus_minus,
    policy_styles,
    readable_seconds,
    setting_text,
    significant,
    sweeps,
    within_noise,
)
from ._report_charts import (
    Result,
    growth_figures,
    regret_chart,
    regret_figures,
    seconds_figures,
    sweep_figures,
)
from ._report_pages import (
    Claim,
    claim_count,
    claims_table,
    fact_table,
    inline_picture,
    option_table,
    page,
    readable_value,
    section,
    swatch,
)
from ._report_roads import road_sections
from ._report_template import Line, svg_heatmap, svg_lines
from .errors import StateError
from .simulation.files import atomic_write
from .simulation.trace import Run

__all__ = ["Line", "Report", "svg_heatmap", "svg_lines", "write_index", "write_report"]


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
    warning: str = ""
    """What must be seen beside the headline: that the data are made."""


def write_report(
    run: Run,
    claims: Sequence[Claim],
    path: Path | str,
    notes: str | Sequence[str] = (),
    bound: Bound | None = None,
    picture: str = "",
    *,
    command: Sequence[str] | None = None,
    full_size: tuple[int, int] | None = None,
) -> Report:
    """Write the page; ``notes`` are paragraphs of plain text below the introduction.

    A ``bound`` is drawn over the regret on logarithmic axes. ``picture`` is SVG of our own
    making, shown first as it is. ``command`` holds the first words of the command line that makes
    this run again (``superarm run ID``), ``full_size`` the experiment's own rounds and seeds.
    """
    path = Path(path)
    tables = [_results(run, index) for index in range(len(run.settings))]
    headline = _headline(run, tables) + _reduced(run, full_size)
    origin = made_data(run)
    warning = f"Made data, not real ones: {origin}." if origin else ""
    panels = sweeps(run)
    paragraphs = [run.spec.get("description"), *([notes] if isinstance(notes, str) else notes)]
    body = "".join(
        (
            _header(run, headline, claims, warning),
            "<main>",
            *(f"<p>{escape(str(note))}</p>" for note in paragraphs if note),
            f"<figure>{picture}</figure>" if picture else "",
            section(f"Sweep over {panels[0].key}", *sweep_figures(run)) if panels else "",
            section("Result", *(_result_table(run, i, rows) for i, rows in enumerate(tables))),
            section("Claims", claims_table(claims)) if claims else "",
            section("Regret", *regret_figures(run)),
            section("How regret grows", *growth_figures(run, tables, bound)),
            *road_sections(run),
            section("Time per round", *seconds_figures(run)),
            _settings_section(run),
            _reproduce_section(run, command),
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
        thumbnail=regret_chart(run, 0, points=80, thumbnail=True)[0],
        warning=warning,
    )


def write_index(
    reports: Sequence[Report],
    path: Path | str,
    title: str = "Experiments",
    notes: str = "",
    pictures: Mapping[str, Path] | None = None,
) -> Path:
    """Write a gallery of reports, with all their claims in one table.

    ``pictures`` are PNG files by what they show; they become part of the page.
    """
    path = Path(path)
    shown = "".join(inline_picture(told, picture) for told, picture in (pictures or {}).items())
    links = [quote(Path(os.path.relpath(report.path, path.parent)).as_posix()) for report in reports]
    cards = "".join(
        f'<li class="card">{report.thumbnail}<h3><a href="{link}">{escape(report.title)}</a></h3>'
        f'<p class="meta"><code>{escape(report.experiment)}</code>'
        f"{claim_count(report.claims, ' · ')}</p>{_banner(report.warning)}"
        f"<p>{escape(report.headline)}</p></li>"
        for report, link in zip(reports, links, strict=True)
    )
    rows = [
        (f'<a href="{link}">{escape(report.experiment)}</a>', claim)
        for report, link in zip(reports, links, strict=True)
        for claim in report.claims
    ]
    every = [claim for _, claim in rows]
    count = f"{len(reports)} experiment{'s' * (len(reports) != 1)}{claim_count(every, '; ')}."
    body = (
        f'<header><h1>{escape(title)}</h1><p class="lead">{count}</p></header><main>'
        + (f"<p>{escape(notes)}</p>" if notes else "")
        + (section("Together", shown) if shown else "")
        + section("Reports", f'<ul class="cards">{cards}</ul>')
        + (section("Claims", claims_table(every, [link for link, _ in rows])) if rows else "")
        + "</main>"
    )
    atomic_write(path, page(title, body).encode())
    return path


# --- what the page says ------------------------------------------------------------------


def _results(run: Run, index: int) -> list[Result]:
    rows = []
    for policy in run.policies:
        mean, stderr = mean_stderr(run.cumulative(policy, index)[:, -1])
        others = [mean_stderr(run.cumulative(policy, index, each)[:, -1]) for each in run.metrics[1:]]
        try:
            seconds = float(np.median(run.seconds(policy, index)))
        except StateError:  # timings are no part of a trace; a run may have been copied without them
            seconds = None
        rows.append(
            Result(
                policy=policy,
                regret=float(mean),
                stderr=float(stderr),
                exponent=growth_exponent(run, policy, index),
                seconds=seconds,
                others=tuple((float(a), float(b)) for a, b in others),
            )
        )
    return rows


def _headline(run: Run, tables: Sequence[Sequence[Result]]) -> str:
    """One sentence: who is best, and by how much."""
    if len(tables) > 1:
        wins = [min(rows, key=lambda row: row.regret).policy for rows in tables]
        most = max(map(wins.count, wins))
        best = [policy for policy in run.policies if wins.count(policy) == most]
        each = " each" if len(best) > 1 else ""
        ties = sum(len(_tied(run, index, rows)) > 1 for index, rows in enumerate(tables))
        tied = f"; tied within noise in {ties}" if ties else ""
        return f"Lowest regret: {' and '.join(best)}, in {most} of {len(tables)} settings{each}{tied}."
    ranked = sorted(tables[0], key=lambda row: row.regret)
    tied_rows = _tied(run, 0, ranked)
    if len(tied_rows) > 1:
        parts = [f"{row.policy}, {_plus_minus(run, row.regret, row.stderr)}" for row in tied_rows]
        return f"Lowest regret: tied within noise: {'; '.join(parts)}."
    text = f"Lowest regret: {ranked[0].policy}, {_plus_minus(run, ranked[0].regret, ranked[0].stderr)}"
    if len(ranked) > 1:
        text += f"; next {ranked[1].policy}, {_plus_minus(run, ranked[1].regret, ranked[1].stderr)}"
    return text + "."


def _tied(run: Run, index: int, rows: Sequence[Result]) -> list[Result]:
    """The best, and the next ones as long as they are less than two standard errors above it."""
    ranked = sorted(rows, key=lambda row: row.regret)
    best = run.cumulative(ranked[0].policy, index)[:, -1]

    def near(row: Result) -> bool:
        return within_noise(*paired_difference(run.cumulative(row.policy, index)[:, -1], best))

    return [ranked[0], *takewhile(near, ranked[1:])]


def _reduced(run: Run, full_size: tuple[int, int] | None) -> str:
    """How much smaller than the experiment a run is."""
    if full_size is None:
        return ""
    sizes = ((run.rounds, full_size[0], "round"), (len(run.seeds), full_size[1], "seed"))
    parts = [f"{now:,} of {counted(full, noun)}" for now, full, noun in sizes if now < full]
    return f" Reduced: {', '.join(parts)}." if parts else ""


def _banner(warning: str) -> str:
    return f'<p class="banner">{escape(warning)}</p>' if warning else ""


def _header(run: Run, headline: str, claims: Sequence[Claim], warning: str) -> str:
    named = [f"{word} {run.spec[word]}" for word in ("paper", "figure") if run.spec.get(word)]
    origin = [run.experiment, *named]
    size = (
        f"{len(run.policies)} polic{'ies' if len(run.policies) > 1 else 'y'}, "
        f"{counted(run.rounds, 'round')}, {counted(len(run.seeds), 'seed')}"
    )
    if len(run.settings) > 1:
        size += f", {len(run.settings)} settings"
    return (
        f'<header><h1>{escape(run.title)}</h1><p class="meta">'
        + " · ".join(escape(str(part)) for part in origin)
        + f'</p>{_banner(warning)}<p class="lead">{escape(headline)} {size}'
        + f"{claim_count(claims, '; ')}.</p></header>"
    )


def _result_table(run: Run, index: int, rows: Sequence[Result]) -> str:
    styles = policy_styles(run.policies)
    best = min(row.regret for row in rows)
    titles = ["cumulative regret", "relative to best", "growth", "time per round"]
    titles += map(metric_text, run.metrics[1:])
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
        body += (
            f"<tr{' class=best' if row.regret == best else ''}>"
            f'<th scope="row">{swatch(styles[row.policy])}{escape(row.policy)}</th>'
            + "".join(f'<td class="number">{cell}</td>' for cell in cells)
            + "</tr>"
        )
    setting = setting_text(run.settings[index])
    caption = f"<caption>{escape(setting)}</caption>" if setting else ""
    return (
        f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _swept(run: Run) -> dict[str, list[Any]]:
    """Every swept key with its values in order."""
    swept: dict[str, list[Any]] = {}
    for setting in run.settings:
        for key, value in setting.items():
            values = swept.setdefault(key, [])
            if value not in values:
                values.append(value)
    return swept


def _settings_section(run: Run) -> str:
    """What was run: sizes, what was swept, the problem's parameters, the policies' options."""
    swept = {
        key: "swept: " + ", ".join(map(readable_value, values)) for key, values in _swept(run).items()
    }
    parameters = dict(run.spec.get("parameters") or {})
    problem, policies = parameters.pop("problem", {}), parameters.pop("policies", {})
    if not isinstance(problem, Mapping) or not isinstance(policies, Mapping):
        parameters |= {"problem": problem, "policies": policies}
        problem, policies = {}, {}
    problem = {
        key: swept.get(f"problem.{key}", swept.get(key, value)) for key, value in problem.items()
    }
    options = {
        name: {
            key: swept.get(f"{name}.{key}", value if key in problem else swept.get(key, value))
            for key, value in given.items()
        }
        for name, given in policies.items()
        if name in run.policies and isinstance(given, Mapping)
    }
    for key, text in swept.items():  # also what stands nowhere, being a default
        owner, _, option = key.rpartition(".")
        if owner == "problem":
            problem = {**problem, option: text}
        elif owner in options:
            options[owner][option] = text
        elif owner or not any(key in given for given in (problem, *options.values())):
            parameters[key] = text
    facts = {
        "rounds": run.rounds,
        "seeds": f"{run.seeds[0]} … {run.seeds[-1]}" if len(run.seeds) > 1 else run.seeds[0],
        "superarm": run.spec.get("version"),
    }
    parts = [fact_table("", {**facts, **parameters})]
    if problem:
        parts.append(fact_table("Problem", problem))
    if any(options.values()):
        parts.append(option_table("Policies", "name", options))
    if settled := run.spec.get("settled"):
        paper = bool(run.spec.get("paper"))
        title = "How the paper was read where it leaves a choice" if paper else "How it was set up"
        parts.append(fact_table(title, settled))
    return section("Settings", *parts)


# --- small parts -------------------------------------------------------------------------


def _plus_minus(run: Run, mean: float, stderr: float) -> str:
    return plus_minus(mean, stderr) if len(run.seeds) > 1 else significant(mean)


_PLACE = {"problem.network": "--net", "problem.start": "--from", "problem.goal": "--to"}


def _reproduce_section(run: Run, command: Sequence[str] | None) -> str:
    """The command line that makes this run again; list values sweep."""
    if command is None:
        told = "<p>This run was made from Python; no command line makes it again.</p>"
        return section("Reproduce", told)
    words = [*command, "--rounds", str(run.rounds)]
    words += ["--seed", str(run.seeds[0]), "--seeds", str(len(run.seeds))]
    words += ["--policies", ",".join(run.policies)]
    for key, value in run.spec.get("overrides", {}).items():
        if key in _PLACE and isinstance(value, str):
            words += [_PLACE[key], value]
        elif value is not None:  # null is what --net leaves of a named route
            words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    for key, values in _swept(run).items():
        words += ["--set", f"{key}={json.dumps(values, ensure_ascii=False)}"]
    line = shlex.join([*words, "--out", "OUT"])
    promise = "The same seeds give the same traces, byte for byte; timings differ."
    if "FILE.toml" in command:
        promise += f" FILE.toml stands for the file that describes {run.experiment}."
    return section("Reproduce", f"<p>{escape(promise)}</p>", f"<pre><code>{escape(line)}</code></pre>")
