"""A run's page: its headline, its tables and the order of its sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import nan
from pathlib import Path
from typing import Any

from superarm.core.capabilities import Metric
from superarm.core.errors import StateError
from superarm.core.states import atomic_write
from superarm.lab.results.averages import Average, Band, average
from superarm.lab.results.bounds import RateTable, RegretBounds
from superarm.lab.results.charts import regret_chart, run_charts
from superarm.lab.results.curves import growth_exponent
from superarm.lab.results.formats import (
    count_text,
    mean_text,
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

# Policies that are named where seeds do not separate more of them.
_MOST_IN_HEADLINE = 4
_TOO_FEW = f"Ranking policies needs at least {LEAST_SEEDS} seeds."
_KNOW_THE_TRUTH = ("benchmark", "genie", "minc-known", "md-known", "offline")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """A written report, for a gallery.

    Args:
        path: The page.
        experiment: The experiment's id.
        paper: The paper's title.
        title: The page's title.
        headline: The result in a sentence.
        claims: The judged claims.
        statements: Statements of theory, where they were judged.
        thumbnail: A small chart as SVG.
        warning: A sentence to show beside the headline: that the data are synthetic.
    """

    path: Path
    experiment: str
    paper: str
    title: str
    headline: str
    claims: tuple[Claim, ...]
    statements: tuple[Claim, ...] = ()
    thumbnail: str
    warning: str = ""


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
    """Write the page of a run.

    Args:
        run: The run.
        claims: The judged claims.
        path: The page.
        notes: Paragraphs of plain text below the introduction.
        bounds: Bounds from theory, drawn over the regret and listed in a table.
        picture: SVG to show first; it is not escaped.
        command: The first words of the command line that repeats this run.
        full_size: The experiment's own rounds and seeds.
        further: Rows of the summary that are no totals of the run.
        not_judged: Claims that the run cannot judge.
        statements: Judged statements of theory.
        band: The kind of band around means; by default that of the experiment.
    """
    path = Path(path)
    rankings = [_rank_by_regret(run, index) for index in range(len(run.settings))]
    headline = _best_by_metrics(run) + _headline(run, rankings)
    headline += _size_note(run, full_size)
    origin = synthetic_data(run)
    warning = f"Synthetic data: {origin}." if origin else ""
    charts = {}
    for subject, pictures in run_charts(run, bounds, band).items():
        charts[subject] = [figure(chart) for chart in pictures]
    others = [*charts["derived"], _further_table(run, further)] if further else []
    panels = sweeps(run)
    sweep_title = f"Sweep over {panels[0].key}" if panels else ""
    bound_tables = _bound_tables(run, bounds) if bounds else []
    seconds = charts["seconds"] or ["<p>This run has no timings.</p>"]
    parts = [_header(run, headline, claims, warning), "<main>"]
    parts += [f"<p>{escape(str(note))}</p>" for note in notes if note]
    if picture:
        parts.append(f'<figure class="wide">{picture}</figure>')
    parts += [
        section("The truth", *charts["truth"]),
        section("A tree over the actions", *charts["tree"]),
        section("Over the rounds", *charts["totals"]),
        section(sweep_title, *charts["sweep"]),
        section("Result", *_result_tables(run, rankings)),
        section("Further results", *others),
        section("Claims", claims_table(claims, not_judged=not_judged)),
        # Energies come before regret, which charges for hills when rectified.
        *road_sections(run),
        section("Did the forecasts hold?", *calibration_parts(run)),
        section("How wide the bounds are", *charts["widths"]),
        section("Regret", *charts["regret"], *charts["horizons"]),
        section("How regret grows", *charts["growth"], *bound_tables),
        section(
            "Statements of theory, checked on this run",
            claims_table(statements, noun="statement"),
        ),
        section("Time per round", *seconds),
        settings_section(run),
        reproduce_section(run, command),
        "</main>",
    ]
    body = "".join(parts)
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


def _rank_by_regret(run: Run, index: int) -> dict[str, Average]:
    """Every policy's regret, the least first."""
    regrets = {}
    for policy in run.policies:
        totals = run.cumulative(policy, index)[:, -1]
        regrets[policy] = average(totals)
    ranking = sorted(regrets, key=lambda policy: regrets[policy].mean)
    return {policy: regrets[policy] for policy in ranking}


def _headline(run: Run, rankings: Sequence[Mapping[str, Average]]) -> str:
    """One sentence: the best policies, and their lead; those that know the truth are no rivals."""
    rankings = [_rivals(run, ranking) for ranking in rankings]
    if not rankings[0]:
        return ""
    if len(rankings) > 1:
        return _headline_of_many(run, rankings)
    return _headline_of_one(run, rankings[0])


def _headline_of_many(run: Run, rankings: Sequence[Mapping[str, Average]]) -> str:
    """The policies that are best in most settings."""
    winners = [next(iter(ranking)) for ranking in rankings]
    most = max(winners.count(winner) for winner in winners)
    best = [policy for policy in run.policies if winners.count(policy) == most]
    text = f"{' and '.join(best)}, in {most} of {len(rankings)} settings"
    if len(best) > 1:
        text += " each"
    if len(run.seeds) < LEAST_SEEDS:
        return f"{_TOO_FEW} Lowest mean regret: {text}."
    ties = 0
    for index, ranking in enumerate(rankings):
        if _count_best(run, index, ranking) > 1:
            ties += 1
    if ties:
        text += f"; in {ties} of them the seeds do not separate the best"
    return f"Lowest regret: {text}."


def _headline_of_one(run: Run, ranking: Mapping[str, Average]) -> str:
    """The policies that are best in the only setting."""
    unit = run.metric("regret", 0).unit
    texts = []
    for policy, regret in ranking.items():
        texts.append(f"{policy}, {plus_minus(*regret)} {unit}".rstrip())
    if len(run.seeds) < LEAST_SEEDS:
        return f"{_TOO_FEW} Mean regret: {'; '.join(texts)}."
    ties = _count_best(run, 0, ranking)
    if ties <= 1:
        return f"Lowest regret: {'; next '.join(texts[:2])}."
    seeds = count_text(len(run.seeds), "seed")
    shown = texts[: min(ties, _MOST_IN_HEADLINE)]
    if ties > len(shown):
        shown.append(f"and {count_text(ties - len(shown), 'other')}")
    return (
        f"Lowest mean regret: {'; '.join(shown)}. In a comparison of all {len(ranking)} policies, "
        f"{seeds} do not separate these."
    )


def _rivals(run: Run, ranking: Mapping[str, Average]) -> dict[str, Average]:
    """The ranking without policies that know the truth."""
    rivals = {}
    for policy, regret in ranking.items():
        part = parameters_of(run, policy, 0).get("policy", policy)
        if part not in _KNOW_THE_TRUTH:
            rivals[policy] = regret
    return rivals


def _count_best(run: Run, index: int, ranking: Iterable[str]) -> int:
    """The number of best policies: the first, and the next while chance may explain the lead."""
    totals = [run.cumulative(policy, index)[:, -1] for policy in ranking]
    best = totals[0]
    others = totals[1:]
    sharing = sharing_of(run, [index])
    tied = 1
    for total in others:
        may_be_chance = within_noise(
            total - best,
            comparisons=len(others),
            scale=abs(float(total.mean())),
            sharing=sharing,
        )
        if not may_be_chance:
            break
        tied += 1
    return tied


def _best_by_metrics(run: Run) -> str:
    """The best policy by metrics that people ask for before regret."""
    if len(run.settings) > 1:
        return ""
    text = ""
    for name in run.metrics:
        metric = run.metric(name, 0)
        if not metric.headline or not metric.better:
            continue
        means = {
            policy: float(outcomes(run, policy, 0, name).mean())
            for policy in run.policies
        }
        if metric.better == "down":
            word = "Lowest"
            best = min(means, key=means.__getitem__)
        else:
            word = "Highest"
            best = max(means, key=means.__getitem__)
        value = f"{best}, {significant(means[best])} {metric.unit}".rstrip()
        how = "sum" if metric.kind == "total" else "mean"
        text += f"{word} {metric.label}, {how} of all {run.rounds:,}: {value}. "
    return text


def _size_note(run: Run, full_size: tuple[int, int] | None) -> str:
    """A sentence on how much smaller than the experiment a run is."""
    if full_size is None:
        return ""
    rounds, seeds = full_size
    parts = []
    if run.rounds < rounds:
        parts.append(f"{run.rounds:,} of {count_text(rounds, 'round')}")
    if len(run.seeds) < seeds:
        parts.append(f"{len(run.seeds):,} of {count_text(seeds, 'seed')}")
    return f" Smaller than the full experiment: {', '.join(parts)}." if parts else ""


def _header(run: Run, headline: str, claims: Sequence[Claim], warning: str) -> str:
    origin = [run.experiment]
    paper = run.spec.get("paper")
    if paper:
        origin.append(str(paper))
    figure_number = run.spec.get("figure")
    if figure_number:
        origin.append(f"Figure {figure_number}")
    noun = "policies" if len(run.policies) > 1 else "policy"
    size = f"{len(run.policies)} {noun}, "
    size += f"{count_text(run.rounds, 'round')}, {count_text(len(run.seeds), 'seed')}"
    if len(run.settings) > 1:
        size += f", {len(run.settings)} settings"
    return (
        f'<header><h1>{escape(run.title)}</h1><p class="meta">'
        + " · ".join(escape(str(part)) for part in origin)
        + f'</p>{banner(warning)}<p class="lead">{escape(headline)} {size}'
        + f"{claim_count(claims, '; ')}.</p></header>"
    )


def _result_tables(run: Run, rankings: Sequence[Mapping[str, Average]]) -> list[str]:
    """A table for every setting."""
    tables = []
    for index, ranking in enumerate(rankings):
        tables.append(_result_table(run, index, ranking))
    return tables


def _result_table(run: Run, index: int, ranking: Mapping[str, Average]) -> str:
    compared = _rivals(run, ranking) or ranking
    best = next(iter(compared.values())).mean
    other_metrics = run.metrics_at(index)[1:]
    titles = [
        run.metric("regret", index).text,
        "relative to best",
        "growth",
        "time per round",
    ]
    titles += [run.metric(metric, index).text for metric in other_metrics]
    rows = []
    for policy, regret in ranking.items():
        try:
            seconds = readable_seconds(run.seconds_per_round(policy, index))
        except StateError:  # a run may have been copied without its timings
            seconds = "–"
        cells = [
            plus_minus(*regret),
            f"{significant(regret.mean / best)}×" if best > 0.0 else "–",
            power_text(growth_exponent(run, policy, index)),
            seconds,
        ]
        cells += [
            mean_text(outcomes(run, policy, index, metric)) for metric in other_metrics
        ]
        rows.append((policy, cells))
    return policy_table(
        run, titles, rows, setting_text(run.settings[index]), style="best"
    )


def _further_table(run: Run, rows: Sequence[Mapping[str, Any]]) -> str:
    """One row for each policy and setting, one column for each number."""
    units = {str(row["metric"]): str(row.get("unit") or "") for row in rows}
    values: dict[tuple[str, str], dict[str, str]] = {}  # by policy and setting
    for row in rows:
        policy = row["policy"]
        if policy not in run.policies:
            continue  # the file may have been edited
        setting = setting_text(row["setting"])
        numbers = values.setdefault((policy, setting), {})
        numbers[str(row["metric"])] = _row_text(row)
    titles = []
    for name, unit in units.items():
        label = name.replace("_", " ")
        titles.append(Metric(label, unit).text)
    has_settings = any(setting for _, setting in values)
    if has_settings:
        titles.append("setting")
    table_rows = []
    for (policy, setting), numbers in values.items():
        cells = [numbers.get(name, "–") for name in units]
        if has_settings:
            cells.append(escape(setting))
        table_rows.append((policy, cells))
    return policy_table(run, titles, table_rows, "", numbers=len(units))


def _row_text(row: Mapping[str, Any]) -> str:
    """The mean of a row of the summary, with its standard error if it has one."""
    mean = row["mean"]
    stderr = row["stderr"]
    mean = nan if mean is None else float(mean)
    if stderr is None:
        return significant(mean)
    return plus_minus(mean, float(stderr))


def _bound_tables(run: Run, bounds: RegretBounds) -> list[str]:
    tables = [_bound_table(run, bounds)]
    if bounds.rates is not None:
        tables.append(_rate_table(run, bounds.rates))
    return tables


def _rate_table(run: Run, rates: RateTable) -> str:
    """Orders of regret side by side, and how the run's regret grew."""
    at_end = f"T = {run.rounds:,}"
    number_titles = [f"Table 1, {at_end}"]
    has_corollary = any(rate.corollary is not None for rate in rates.rows)
    if has_corollary:
        number_titles.append(f"Corollary 1, {at_end}")
    number_titles.append("order grows like")
    number_titles.append("this run grows like")
    titles = ["algorithm", *number_titles, "order", "kernel or paper"]
    rows = []
    for rate in rates.rows:
        numbers = [significant(rate.value)]
        if has_corollary:
            corollary = "–" if rate.corollary is None else significant(rate.corollary)
            numbers.append(corollary)
        numbers.append(power_text(rate.exponent))
        measured = "–" if rate.measured is None else power_text(rate.measured)
        numbers.append(measured)
        cells = [*numbers, escape(rate.order), escape(rate.work)]
        rows.append((escape(rate.algorithm), cells))
    setting = setting_text(run.settings[0])
    caption = f"Table 1: orders of the regret{f', for {setting}' if setting else ''}"
    note = f'<p class="meta">{escape(rates.note)}</p>'
    return table(titles, rows, caption=caption, numbers=len(number_titles)) + note


def _bound_table(run: Run, bounds: RegretBounds) -> str:
    """For each policy, the bound after the last round and its basis, or why there is none."""
    titles = (
        f"after {run.rounds:,} rounds",
        "what it is based on, or why there is none",
    )
    rows = []
    for policy in run.policies:
        bound = bounds.drawn.get(policy)
        if bound:
            value = significant(float(bound.values[-1]))
            reason = bound.assumes
        else:
            value = "–"
            reason = bounds.missing[policy]
        rows.append((policy, [value, f"{escape(reason)}."]))
    setting = setting_text(run.settings[0])
    caption = f"Bounds from theory{f', for {setting}' if setting else ''}"
    note = f'<p class="meta">{escape(bounds.note)}</p>' if bounds.note else ""
    return policy_table(run, titles, rows, caption, numbers=1) + note
