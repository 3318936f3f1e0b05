"""Several reports joined in one page, with all their claims in one table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from superarm.results.curves import counted
from superarm.results.pictures import Picture
from superarm.states import atomic_write

from .pages import banner, claim_count, claims_table, figure, page, section
from .writing import Report


def write_index(
    reports: Sequence[Report],
    path: Path | str,
    title: str = "Experiments",
    pictures: Sequence[Picture] = (),
) -> Path:
    """Write a gallery of reports, with all their claims in one table and pictures over all."""
    path = Path(path)
    links = [quote(Path(os.path.relpath(report.path, path.parent)).as_posix()) for report in reports]
    cards = "".join(
        f'<li class="card">{report.thumbnail}<h3><a href="{link}">{escape(report.title)}</a></h3>'
        f'<p class="meta"><code>{escape(report.experiment)}</code>'
        f"{claim_count(report.claims, ' · ')}</p>{banner(report.warning)}"
        f"<p>{escape(report.headline)}</p></li>"
        for report, link in zip(reports, links, strict=True)
    )
    rows = [
        (f'<a href="{link}">{escape(report.experiment)}</a>', claim)
        for report, link in zip(reports, links, strict=True)
        for claim in report.claims
    ]
    every = [claim for _, claim in rows]
    count = f"{counted(len(reports), 'experiment')}{claim_count(every, '; ')}."
    body = (
        f'<header><h1>{escape(title)}</h1><p class="lead">{count}</p></header><main>'
        + section("Together", *map(figure, pictures))
        + section("Reports", f'<ul class="cards">{cards}</ul>')
        + section("Claims", claims_table(every, [link for link, _ in rows]))
        + "</main>"
    )
    atomic_write(path, page(title, body).encode())
    return path
