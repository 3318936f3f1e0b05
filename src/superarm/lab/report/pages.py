"""The look of a report: its style sheet, its sections, tables and figures."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from superarm.lab.results.formats import count_text, significant
from superarm.lab.results.pictures import Chart, Map, Picture
from superarm.lab.results.styles import PALETTE, PolicyStyle, policy_styles
from superarm.lab.simulation.run import Run

from .svg import SMALL, colour_of, svg_chart, svg_maps

Claim = Mapping[str, Any]
"""``{"text": …, "holds": true|false, "verdict": …, "evidence": …}``"""
VERDICTS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}
# page.css has other colours for dark screens.
_COLOURS = "".join(f"--c{i}:{colour};" for i, colour in enumerate(PALETTE))
_SHEET = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
STYLE = f":root{{{_COLOURS}}}\n{_SHEET}"
# Nothing may be loaded and no script may run, whatever slips into a page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, body: str) -> str:
    """Write a whole document.

    Args:
        title: Its title, as text.
        body: Its body, as HTML.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>{body}"
        "<footer><p>Written by superarm.</p></footer></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Write a headed section; nothing without any parts.

    Args:
        title: The heading, as text.
        *parts: Its parts, as HTML.
    """
    if not any(parts):
        return ""
    return f"\n<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def banner(warning: str) -> str:
    """Write a warning that must be seen first; nothing without one.

    Args:
        warning: The warning, as text.
    """
    return f'<p class="banner">{escape(warning)}</p>' if warning else ""


def table(
    titles: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    *,
    caption: str = "",
    numbers: int = 0,
    style: str = "",
) -> str:
    """Write a table.

    Args:
        titles: Titles of the columns, as text; without any there is no head.
        rows: A heading and cells of each row, as HTML.
        caption: Words above it, as text.
        numbers: How many columns after the first are numbers.
        style: A class of the style sheet.
    """

    def kind(column: int) -> str:  # counted from the first cell
        return ' class="number"' if 0 <= column < numbers else ""

    head = ""
    for column, title in enumerate(titles, start=-1):
        head += f'<th scope="col"{kind(column)}>{escape(title)}</th>'
    if head:
        head = f"<thead><tr>{head}</tr></thead>"
    body = ""
    for name, cells in rows:
        body += f'<tr><th scope="row">{name}</th>'
        for column, cell in enumerate(cells):
            body += f"<td{kind(column)}>{cell}</td>"
        body += "</tr>"
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    look = f' class="{style}"' if style else ""
    return f'<div class="scroll"><table{look}>{above}{head}<tbody>{body}</tbody></table></div>'


def policy_table(
    run: Run,
    titles: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    caption: str,
    numbers: int | None = None,
    style: str = "",
) -> str:
    """Write a table of policies, each with a stroke as its line in charts.

    Args:
        run: The run.
        titles: Titles of the columns after that of the policies, as text.
        rows: A policy's name, and its cells as HTML.
        caption: Words above it, as text.
        numbers: How many columns after the first are numbers; by default all.
        style: A class of the style sheet.
    """
    styles = policy_styles(run.policies)
    named = []
    for policy, cells in rows:
        named.append((f"{swatch(styles[policy])}{escape(policy)}", cells))
    return table(
        ["policy", *titles],
        named,
        caption=caption,
        numbers=len(titles) if numbers is None else numbers,
        style=style,
    )


def fact_table(caption: str, facts: Mapping[str, Any]) -> str:
    """Write a table of names and values; nothing without any.

    Args:
        caption: Words above it, as text.
        facts: Values by name; those that are ``None`` are left out.
    """
    rows = []
    for name, value in facts.items():
        if value is not None:
            heading = escape(str(name))
            cell = escape(readable_value(value))
            rows.append((heading, [cell]))
    if not rows:
        return ""
    return table([], rows, caption=caption, style="facts")


def option_table(caption: str, name: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Write a table of rows against every key that one of them has.

    Args:
        caption: Words above it, as text.
        name: The title of the first column.
        rows: Values by key, by the name of the row.
    """
    keys: dict[str, None] = {}  # in the order of their first row
    for options in rows.values():
        keys.update(dict.fromkeys(options))
    table_rows = []
    for row, options in rows.items():
        cells = []
        for key in keys:
            text = "–"
            if key in options:
                text = readable_value(options[key])
            cells.append(escape(text))
        table_rows.append((escape(row), cells))
    titles = [name, *map(str, keys)]
    return table(titles, table_rows, caption=caption)


def claims_table(
    claims: Sequence[Claim],
    origins: Sequence[str] | None = None,
    not_judged: Sequence[Claim] = (),
    noun: str = "claim",
) -> str:
    """Write a table of claims and their verdicts.

    Args:
        claims: The judged claims.
        origins: The experiment of each claim, as HTML.
        not_judged: Claims that the run cannot judge.
        noun: What a claim is called.
    """
    body = ""
    for number, claim in enumerate(claims):
        verdict = f"{VERDICTS[claim['verdict']]} {claim['verdict']}"
        origin = f"<td>{origins[number]}</td>" if origins else ""
        body += (
            f'<tr>{origin}<td>{escape(str(claim["text"]))}</td><td class="verdict">{verdict}</td>'
            f"<td>{escape(readable_value(claim.get('evidence', '')))}</td></tr>"
        )
    titles = [noun, "verdict", "evidence"]
    if origins:
        titles.insert(0, "experiment")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    html = ""
    if claims:
        html += f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    if not_judged:
        html += f'<p class="meta">{escape(silent_text(not_judged))}</p>'
    return html


def verdict_counts(claims: Sequence[Claim]) -> dict[str, int]:
    """Count the claims that hold, do not hold and are undecided.

    Args:
        claims: The judged claims.
    """
    verdicts = [str(claim["verdict"]) for claim in claims]
    return {word: verdicts.count(word) for word in VERDICTS}


def claim_count(claims: Sequence[Claim], separator: str, noun: str = "claim") -> str:
    """Say how many claims hold, do not, and are undecided; nothing without claims.

    Args:
        claims: The judged claims.
        separator: What stands before the words.
        noun: What a claim is called.
    """
    if not claims:
        return ""
    if len(claims) == 1:
        word = str(claims[0]["verdict"]).replace("undecided", "is undecided")
        return f"{separator}{'the' if separator else 'The'} {noun} {word}"
    plural = {"holds": "hold", "does not hold": "do not hold"}
    parts = []
    for word, count in verdict_counts(claims).items():
        if count == 1:
            parts.append(f"1 {word}")
        elif count > 1:
            parts.append(f"{count} {plural.get(word, word)}")
    first, *others = noun.split(" ", 1)  # "3 statements of theory"
    counted = " ".join([count_text(len(claims), first), *others])
    return f"{separator}{counted}: {', '.join(parts)}"


def silent_text(not_judged: Sequence[Claim]) -> str:
    """Say how many claims a run cannot judge, and what it lacks for them.

    Args:
        not_judged: The claims, each with what it needs.
    """
    needs: list[str] = []
    for claim in not_judged:
        needs += [str(need) for need in claim["needs"]]
    distinct = ", ".join(dict.fromkeys(needs))
    who = "they need" if len(not_judged) > 1 else "it needs"
    return f"{count_text(len(not_judged), 'claim')} not judged: {who} {distinct}."


def figure(picture: Picture) -> str:
    """Write a picture with its heading, key, caption, and its chart's labels as a list.

    Args:
        picture: The picture.
    """
    title = f"<h3>{escape(picture.heading)}</h3>" if picture.heading else ""
    maps = [panel for panel in picture.panels if isinstance(panel, Map)]
    charts = [panel for panel in picture.panels if isinstance(panel, Chart)]
    if maps:
        drawn = svg_maps(maps, _id_of(picture.name))
        shown = f'<div class="maps">{"".join(drawn)}</div>'
    elif len(charts) == 1:
        shown = svg_chart(charts[0]) + _legend(charts[0])
    else:
        drawn = [svg_chart(chart, SMALL) for chart in charts]
        shown = f'<div class="charts">{"".join(drawn)}</div>'
    key = _key(picture)
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return f"{title}<figure>{shown}{key}{caption}</figure>"


def _id_of(name: str) -> str:
    """An id that is valid in HTML and in links, different for different names."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    if safe == name:
        return name
    checksum = zlib.crc32(name.encode("utf-8", "surrogatepass"))
    return f"{safe}-{checksum:08x}"


def _key(picture: Picture) -> str:
    """The colours that all panels share; nothing where there are none."""
    items = ""
    for colour, text in picture.key:
        swatch_html = f'<span class="swatch" style="background:{colour}"></span>'
        items += f"<span>{swatch_html}{escape(text)}</span> "
    return f'<p class="key">{items}</p>' if items else ""


def _legend(chart: Chart) -> str:
    """The labels of a chart, for screens that are too narrow to show its right end."""
    items = ""
    for series in chart.series:
        if series.label:
            items += f"<li>{swatch(series.style)}{escape(series.label)}</li>"
    return f'<ul class="legend">{items}</ul>'


def swatch(style: PolicyStyle) -> str:
    """Draw a short stroke in the look of a policy's line.

    Args:
        style: The look.
    """
    colour = colour_of(style)
    dashes = (
        colour,
        f"linear-gradient(90deg,{colour} 40%,transparent 40% 60%,{colour} 60%)",
        f"repeating-linear-gradient(90deg,{colour} 0 2px,transparent 2px 4px)",
    )
    thin = ";height:2px" if style.thin else ""
    return f'<span class="swatch" style="background:{dashes[style.dash]}{thin}"></span>'


def readable_value(value: Any) -> str:
    """Format a value: numbers to six digits, a spec as ``name (key = value)``, others as JSON.

    Args:
        value: The value; text stays as it is.

    >>> readable_value({"name": "matern", "nu": 2.5})
    'matern (nu = 2.5)'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return significant(value, 6)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        options = []
        for key, option in value.items():
            if key != "name":
                options.append(f"{key} = {readable_value(option)}")
        name = str(value["name"])
        return f"{name} ({', '.join(options)})" if options else name
    return json.dumps(value, ensure_ascii=False, default=str)
