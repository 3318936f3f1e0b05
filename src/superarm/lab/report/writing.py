"""A run's page: what it says first, and the order of its sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from math import nan
from pathlib import Path
from typing import Any

from superarm.core import Floats
from superarm.core.capabilities import Metric
from superarm.core.errors import StateError
from superarm.core.states import atomic_write
from superarm.lab.results.averages import Average, Band, average
from superarm.lab.results.bounds import RateTable, RegretBounds
from superarm.lab.results.charts import regret_chart, run_charts
from superarm.lab.results.curves import growth_exponent
from superarm.lab.results.formats import (
    count_text,
    plus_minus,
    power_text,
    readable_seconds,
    setting_text,
    significant,
)
from superarm.lab.results.settings import (
    parameters_of,
    sharing_of,
    sweeps,
    synthetic_data,
)
from superarm.lab.results.totals import outcomes
from superarm.lab.results.verdicts import LEAST_SEEDS, within_noise
from superarm.lab.simulation.run import Run

from .calibration import calibration_parts
from .pages import (
    Claim,
    banner,
    claim_count,
    claims_table,
    figure,
    page,
    policy_table,
    section,
    table,
)
from .roads import road_sections
from .settings import reproduce_section, settings_section
from .svg import THUMBNAIL, svg_chart

_MOST_IN_HEADLINE = (
    4  # policies that are named where seeds do not separate more of them
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """What a gallery needs to know about a written report."""

    path: Path
    experiment: str
    paper: str
    title: str
    headline: str
    claims: tuple[Claim, ...]
    statements: tuple[Claim, ...] = ()  # of theory, where they were judged
    thumbnail: str  # a small chart as SVG
    warning: str = (
        ""  # what must be seen beside the headline: that the data are synthetic
    )


def write_report(
    run: Run,
    claims: Sequence[Claim],
    path: Path | str,
    notes: Sequence[str] = (),
    bounds: RegretBounds | None = None,
    picture: str = "",
    *,
    command: Sequence[str] | None = None,
    full_size: tuple[int, int] | None = None,
    further: Sequence[Mapping[str, Any]] = (),
    not_judged: Sequence[Claim] = (),
    statements: Sequence[Claim] = (),
    band: Band | None = None,
) -> Report:
    """Write the page; ``notes`` are paragraphs of plain text below the introduction.

    ``bounds`` are drawn over the regret and told in a table. ``picture`` is SVG of our own making,
    shown first. ``command`` holds the first words of the command line that makes this run again,
    ``full_size`` the experiment's own rounds and seeds, ``further`` the rows of the summary that are no
    totals of the run, ``not_judged`` the claims that it says nothing of, ``statements`` what theory
    says of the run, judged, and ``band`` what surrounds means.
    """
    path = Path(path)
    rankings = [_ranked(run, index) for index in range(len(run.settings))]
    headline = _first_asked(run) + _headline(run, rankings) + _smaller(run, full_size)
    origin = synthetic_data(run)
    warning = f"Synthetic data: {origin}." if origin else ""
    charts = {
        about: [*map(figure, group)]
        for about, group in run_charts(run, bounds, band).items()
    }
    others = [*charts["derived"], _further_table(run, further)] if further else []
    panels = sweeps(run)
    body = "".join(
        (
            _header(run, headline, claims, warning),
            "<main>",
            *(f"<p>{escape(str(note))}</p>" for note in notes if note),
            f'<figure class="wide">{picture}</figure>' if picture else "",
            section("The truth", *charts["truth"]),
            section("A tree over the actions", *charts["tree"]),
            section("Over the rounds", *charts["totals"]),
            section(f"Sweep over {panels[0].key}", *charts["sweep"]) if panels else "",
            section(
                "Result",
                *(_result_table(run, i, each) for i, each in enumerate(rankings)),
            ),
            section("Further results", *others),
            section("Claims", claims_table(claims, not_judged=not_judged)),
            *road_sections(
                run
            ),  # first what trips took: rectified regret charges for hills
            section("Did the forecasts hold?", *calibration_parts(run)),
            section("How wide the bounds are", *charts["widths"]),
            section("Regret", *charts["regret"], *charts["horizons"]),
            section(
                "How regret grows",
                *charts["growth"],
                *(_bound_tables(run, bounds) if bounds else ()),
            ),
            section(
                "Statements of theory, checked on this run",
                claims_table(statements, noun="statement"),
            ),
            section(
                "Time per round",
                *charts["seconds"] or ["<p>This run has no timings.</p>"],
            ),
            settings_section(run),
            reproduce_section(run, command),
            "</main>",
        )
    )
    atomic_write(path, page(run.title, body).encode())
    return Report(
        path=path,
        experiment=run.experiment,
        paper=str(run.spec.get("paper") or ""),
        title=run.title,
        headline=headline,
        claims=tuple(claims),
        statements=tuple(statements),
        thumbnail=svg_chart(regret_chart(run, 0, points=80), THUMBNAIL),
        warning=warning,
    )


def _ranked(run: Run, index: int) -> dict[str, Average]:
    """Every policy's regret, the least first."""
    found = {
        policy: average(run.cumulative(policy, index)[:, -1]) for policy in run.policies
    }
    return dict(sorted(found.items(), key=lambda row: row[1].mean))


def _headline(run: Run, rankings: Sequence[Mapping[str, Average]]) -> str:
    """One sentence: who is best, and by how much; whoever knows the truth is no rival."""
    rankings = [_rivals(run, ranking) for ranking in rankings]
    if not rankings[0]:
        return ""
    if len(rankings) > 1:
        wins = [next(iter(ranking)) for ranking in rankings]
        most = max(map(wins.count, wins))
        best = [policy for policy in run.policies if wins.count(policy) == most]
        each = " each" if len(best) > 1 else ""
        ties = sum(
            _tied(run, index, ranking) > 1 for index, ranking in enumerate(rankings)
        )
        told = f"{' and '.join(best)}, in {most} of {len(rankings)} settings{each}"
        if len(run.seeds) < LEAST_SEEDS:
            return f"{_too_few(run)} Lowest mean regret: {told}."
        unclear = (
            f"; in {ties} of them the seeds do not separate the best" if ties else ""
        )
        return f"Lowest regret: {told}{unclear}."
    unit = run.metric("regret", 0).unit
    parts = [
        f"{policy}, {plus_minus(*each)} {unit}".rstrip()
        for policy, each in rankings[0].items()
    ]
    if len(run.seeds) < LEAST_SEEDS:
        return f"{_too_few(run)} Mean regret: {'; '.join(parts)}."
    ties = _tied(run, 0, rankings[0])
    if ties > 1:
        seeds = count_text(len(run.seeds), "seed")
        shown = parts[: min(ties, _MOST_IN_HEADLINE)]
        more = (
            f"; and {count_text(ties - len(shown), 'other')}"
            if ties > len(shown)
            else ""
        )
        return (
            f"Lowest mean regret, not separated by {seeds}: {'; '.join(shown)}{more}."
        )
    return f"Lowest regret: {'; next '.join(parts[:2])}."


def _too_few(run: Run) -> str:
    seeds = count_text(len(run.seeds), "seed")
    return f"{seeds} cannot rank policies; {LEAST_SEEDS} or more can."


def _rivals(run: Run, ranking: Mapping[str, Average]) -> dict[str, Average]:
    known = (
        "benchmark",
        "genie",
        "minc-known",
        "md-known",
        "offline",
    )  # who know the truth
    parts = {
        policy: parameters_of(run, policy, 0).get("policy", policy)
        for policy in ranking
    }
    return {
        policy: each for policy, each in ranking.items() if parts[policy] not in known
    }


def _tied(run: Run, index: int, ranking: Iterable[str]) -> int:
    """How many are best: the first, and the next ones as long as chance may explain the difference."""
    best, *others = (run.cumulative(policy, index)[:, -1] for policy in ranking)
    sharing = sharing_of(run, [index])

    def may_be_chance(other: Floats) -> bool:
        scale = abs(float(other.mean()))
        return within_noise(
            other - best, comparisons=len(others), scale=scale, sharing=sharing
        )

    return 1 + len(list(takewhile(may_be_chance, others)))


def _first_asked(run: Run) -> str:
    """Who is best by what people ask for first, where that is not regret."""
    text = ""
    for name in run.metrics if len(run.settings) == 1 else ():
        metric = run.metric(name, 0)
        if metric.headline and metric.better:
            means = {
                each: float(outcomes(run, each, 0, name).mean())
                for each in run.policies
            }
            choose, word = (
                (min, "Lowest") if metric.better == "down" else (max, "Highest")
            )
            best = choose(means, key=lambda policy: means[policy])
            told = f"{best}, {significant(means[best])} {metric.unit}".rstrip()
            how = "sum" if metric.kind == "total" else "mean"
            text += f"{word} {metric.label}, {how} of all {run.rounds:,}: {told}. "
    return text


def _smaller(run: Run, full_size: tuple[int, int] | None) -> str:
    """How much smaller than the experiment a run is."""
    if full_size is None:
        return ""
    sizes = (
        (run.rounds, full_size[0], "round"),
        (len(run.seeds), full_size[1], "seed"),
    )
    parts = [
        f"{now:,} of {count_text(full, noun)}"
        for now, full, noun in sizes
        if now < full
    ]
    return f" Smaller than the full experiment: {', '.join(parts)}." if parts else ""


def _header(run: Run, headline: str, claims: Sequence[Claim], warning: str) -> str:
    figure = run.spec.get("figure")
    named = (str(run.spec.get("paper") or ""), f"Figure {figure}" if figure else "")
    origin = [run.experiment, *filter(None, named)]
    size = f"{len(run.policies)} polic{'ies' if len(run.policies) > 1 else 'y'}, "
    size += f"{count_text(run.rounds, 'round')}, {count_text(len(run.seeds), 'seed')}"
    size += f", {len(run.settings)} settings" * (len(run.settings) > 1)
    return (
        f'<header><h1>{escape(run.title)}</h1><p class="meta">'
        + " · ".join(escape(str(part)) for part in origin)
        + f'</p>{banner(warning)}<p class="lead">{escape(headline)} {size}'
        + f"{claim_count(claims, '; ')}.</p></header>"
    )


def _result_table(run: Run, index: int, ranking: Mapping[str, Average]) -> str:
    best = next(iter((_rivals(run, ranking) or ranking).values())).mean
    regret, *others = (
        run.metric(metric, index).text for metric in run.metrics_at(index)
    )
    titles = [regret, "relative to best", "growth", "time per round", *others]
    rows = []
    for policy, total in ranking.items():
        try:
            seconds = readable_seconds(run.seconds_per_round(policy, index))
        except (
            StateError
        ):  # timings are no part of a trace; a run may have been copied without them
            seconds = "–"
        ratio = f"{significant(total.mean / best)}×" if best > 0.0 else "–"
        growth = power_text(growth_exponent(run, policy, index))
        rest = (
            average(outcomes(run, policy, index, metric))
            for metric in run.metrics_at(index)[1:]
        )
        cells = [
            plus_minus(*total),
            ratio,
            growth,
            seconds,
            *(plus_minus(*each) for each in rest),
        ]
        rows.append((policy, cells))
    return policy_table(
        run, titles, rows, setting_text(run.settings[index]), style="best"
    )


def _further_table(run: Run, rows: Sequence[Mapping[str, Any]]) -> str:
    """One row for each policy and setting, one column for each number."""
    names = list(dict.fromkeys(str(row["metric"]) for row in rows))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row["policy"] not in run.policies:
            continue  # the file may have been edited
        mean = nan if row["mean"] is None else float(row["mean"])
        value = (
            significant(mean)
            if row["stderr"] is None
            else plus_minus(mean, float(row["stderr"]))
        )
        found.setdefault((row["policy"], setting_text(row["setting"])), {})[
            str(row["metric"])
        ] = value
    settings = any(setting for _, setting in found)
    cells = [
        (
            policy,
            [*(told.get(name, "–") for name in names), *[escape(setting)] * settings],
        )
        for (policy, setting), told in found.items()
    ]
    units = {str(row["metric"]): str(row.get("unit") or "") for row in rows}
    titles = [Metric(name.replace("_", " "), units[name]).text for name in names]
    return policy_table(
        run, [*titles, *["setting"] * settings], cells, "", numbers=len(names)
    )


def _bound_tables(run: Run, bounds: RegretBounds) -> list[str]:
    tables = [_bound_table(run, bounds)]
    if bounds.rates is not None:
        tables.append(_rate_table(run, bounds.rates))
    return tables


def _rate_table(run: Run, rates: RateTable) -> str:
    """Orders of regret side by side, and how the run's regret grew."""
    at_end = f"T = {run.rounds:,}"
    titles = [
        "algorithm",
        f"Table 1, {at_end}",
        f"Corollary 1, {at_end}",
        "order grows like",
        "this run grows like",
        "order",
        "kernel or paper",
    ]
    rows = []
    for rate in rates.rows:
        corollary = "–" if rate.corollary is None else significant(rate.corollary)
        measured = "–" if rate.measured is None else power_text(rate.measured)
        numbers = [
            significant(rate.value),
            corollary,
            power_text(rate.exponent),
            measured,
        ]
        rows.append(
            (escape(rate.algorithm), [*numbers, escape(rate.order), escape(rate.work)])
        )
    setting = setting_text(run.settings[0])
    caption = f"Table 1: orders of the regret{f', for {setting}' if setting else ''}"
    note = f'<p class="meta">{escape(rates.note)}</p>'
    return table(titles, rows, caption=caption, numbers=4) + note


def _bound_table(run: Run, bounds: RegretBounds) -> str:
    """For each policy, the bound after the last round and what it is based on, or why there is none."""
    titles = (
        f"after {run.rounds:,} rounds",
        "what it is based on, or why there is none",
    )
    rows = []
    for policy in run.policies:
        bound = bounds.drawn.get(policy)
        value = significant(float(bound.values[-1])) if bound else "–"
        rows.append(
            (
                policy,
                [
                    value,
                    f"{escape(bound.assumes if bound else bounds.missing[policy])}.",
                ],
            )
        )
    setting = setting_text(run.settings[0])
    caption = f"Bounds from theory{f', for {setting}' if setting else ''}"
    note = f'<p class="meta">{escape(bounds.note)}</p>' if bounds.note else ""
    return policy_table(run, titles, rows, caption, numbers=1) + note
