"""Several reports joined in one page, paper by paper, with all their claims."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from superarm.core.states import atomic_write
from superarm.lab.results.formats import count_text, readable_duration
from superarm.lab.results.pictures import Picture

from .pages import (
    VERDICTS,
    Claim,
    banner,
    claim_count,
    claims_table,
    figure,
    page,
    section,
    table,
    verdict_counts,
)
from .writing import Report

_STATEMENT = "statement of theory"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Group:
    """The reports of one paper."""

    paper: str
    reports: Sequence[Report]

    @property
    def claims(self) -> list[Claim]:
        return [claim for report in self.reports for claim in report.claims]

    @property
    def statements(self) -> list[Claim]:
        return [statement for report in self.reports for statement in report.statements]


def write_index(
    reports: Sequence[Report],
    path: Path | str,
    title: str = "Experiments",
    pictures: Sequence[Picture] = (),
    *,
    seconds: Mapping[str, float] | None = None,
    missing: Sequence[str] = (),
) -> Path:
    """Write a page over reports: cards and verdicts, paper by paper.

    Args:
        reports: The reports, one for each run.
        path: The page.
        title: The page's title.
        pictures: Pictures over several runs, shown first.
        seconds: How long each experiment took, by id, where that is known.
        missing: Ids of experiments that have not run yet.
    """
    path = Path(path)
    times = seconds or {}
    papers = dict.fromkeys(report.paper for report in reports)
    groups = [
        _Group(
            paper=paper, reports=[report for report in reports if report.paper == paper]
        )
        for paper in papers
    ]
    claims = [claim for group in groups for claim in group.claims]
    statements = [statement for group in groups for statement in group.statements]
    total = sum(times.get(report.experiment, 0.0) for report in reports)
    lead = count_text(len(reports), "experiment")
    lead += claim_count(claims, "; ") + claim_count(statements, "; ", _STATEMENT)
    lead += f". Took {readable_duration(total)}." if total else "."
    body = (
        f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>'
        f"{banner(_missing_text(missing))}</header><main>"
        + (_summary(groups, times) if len(groups) > 1 else "")
        + section("Together", *map(figure, pictures))
        + "".join(
            _paper_sections(group, path.parent, times, many=len(groups) > 1)
            for group in groups
        )
        + "</main>"
    )
    atomic_write(path, page(title, body).encode())
    return path


def _missing_text(missing: Sequence[str]) -> str:
    if not missing:
        return ""
    return f"Unfinished: {count_text(len(missing), 'experiment')} still to run: {', '.join(missing)}."


def _summary(groups: Sequence[_Group], times: Mapping[str, float]) -> str:
    """Numbers of verdicts by paper: first of claims, then of statements."""
    rows = []
    for group in groups:
        took = sum(times.get(report.experiment, 0.0) for report in group.reports)
        counts = [
            *verdict_counts(group.claims).values(),
            *verdict_counts(group.statements).values(),
        ]
        cells = [
            str(len(group.reports)),
            *map(str, counts),
            readable_duration(took) if took else "–",
        ]
        link = f'<a href="#{_anchor(group)}">{escape(group.paper)}</a>'
        rows.append((link, cells))
    words = [f"{kind} {word}" for kind in ("claims:", "theory:") for word in VERDICTS]
    titles = ["paper", "experiments", *words, "time"]
    return section(
        "Papers", table(titles, rows, numbers=len(titles) - 1, style="papers")
    )


def _anchor(group: _Group) -> str:
    """The experiments of a paper share the part of their ids before the slash."""
    return quote(group.reports[0].experiment.partition("/")[0])


def _paper_sections(
    group: _Group, folder: Path, times: Mapping[str, float], *, many: bool
) -> str:
    cards = "".join(
        _card(report, _link(report, folder), times) for report in group.reports
    )
    heading = group.paper if many and group.paper else "Reports"
    parts = (
        section(heading, f'<ul class="cards">{cards}</ul>')
        + section("Claims", _verdicts(group.reports, folder, "claim"))
        + section("Statements of theory", _verdicts(group.reports, folder, "statement"))
    )
    return f'<div id="{_anchor(group)}">{parts}</div>'


def _link(report: Report, folder: Path) -> str:
    return quote(Path(os.path.relpath(report.path, folder)).as_posix())


def _card(report: Report, link: str, times: Mapping[str, float]) -> str:
    took = times.get(report.experiment)
    facts = claim_count(report.claims, " · ") + claim_count(
        report.statements, " · ", _STATEMENT
    )
    facts += f" · {readable_duration(took)}" if took else ""
    return (
        f'<li class="card">{report.thumbnail}<h3><a href="{link}">{escape(report.title)}</a></h3>'
        f'<p class="meta"><code>{escape(report.experiment)}</code>{escape(facts)}</p>'
        f"{banner(report.warning)}<p>{escape(report.headline)}</p></li>"
    )


def _verdicts(reports: Sequence[Report], folder: Path, noun: str) -> str:
    rows = [
        (f'<a href="{_link(report, folder)}">{escape(report.experiment)}</a>', verdict)
        for report in reports
        for verdict in (report.claims if noun == "claim" else report.statements)
    ]
    return claims_table(
        [verdict for _, verdict in rows], [link for link, _ in rows], noun=noun
    )
