"""How a report looks: its style sheet, its sections and tables."""

from __future__ import annotations

import json
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
_COLOURS = "".join(
    f"--c{i}:{colour};" for i, colour in enumerate(PALETTE)
)  # on dark screens: page.css
STYLE = f":root{{{_COLOURS}}}\n" + files(__package__).joinpath("page.css").read_text(
    encoding="utf-8"
)
# Nothing may be loaded and no script may run, whatever slips into a page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, body: str) -> str:
    """A whole document around a body, which must be HTML already."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>{body}"
        "<footer><p>Written by superarm.</p></footer></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A headed section of ready-made parts; nothing without any."""
    return (
        f"\n<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"
        if any(parts)
        else ""
    )


def banner(warning: str) -> str:
    """What must be seen first; nothing without a warning."""
    return f'<p class="banner">{escape(warning)}</p>' if warning else ""


def table(
    titles: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    *,
    caption: str = "",
    numbers: int = 0,
    style: str = "",
) -> str:
    """Rows of a heading and cells, all ready-made HTML; so many columns after the first are numbers.

    ``titles`` are text, the first that of the headings; without any there is no head.
    """

    def kind(place: int) -> str:
        return ' class="number"' if place < numbers else ""

    head = "".join(
        f'<th scope="col"{kind(place - 1) if place else ""}>{escape(title)}</th>'
        for place, title in enumerate(titles)
    )
    body = "".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f"<td{kind(place)}>{cell}</td>" for place, cell in enumerate(cells))
        + "</tr>"
        for name, cells in rows
    )
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    look = f' class="{style}"' if style else ""
    return f'<div class="scroll"><table{look}>{told}{head}<tbody>{body}</tbody></table></div>'


def policy_table(
    run: Run,
    titles: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    caption: str,
    numbers: int | None = None,
    style: str = "",
) -> str:
    """Numbers of policies (all columns, or so many), each with a stroke as its line in charts."""
    styles, count = (
        policy_styles(run.policies),
        len(titles) if numbers is None else numbers,
    )
    named = (
        (f"{swatch(styles[policy])}{escape(policy)}", cells) for policy, cells in rows
    )
    return table(
        ["policy", *titles], named, caption=caption, numbers=count, style=style
    )


def fact_table(caption: str, facts: Mapping[str, Any]) -> str:
    """Names and values, those that are None left out; nothing without any."""
    rows = [
        (escape(str(k)), [escape(readable_value(v))])
        for k, v in facts.items()
        if v is not None
    ]
    return table([], rows, caption=caption, style="facts") if rows else ""


def option_table(caption: str, name: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Rows by name against every key that one of them has."""
    keys = list(dict.fromkeys(key for given in rows.values() for key in given))
    cells = (
        (
            escape(row),
            [
                escape(readable_value(given[key])) if key in given else "–"
                for key in keys
            ],
        )
        for row, given in rows.items()
    )
    return table([name, *map(str, keys)], cells, caption=caption)


def claims_table(
    claims: Sequence[Claim],
    origins: Sequence[str] | None = None,
    not_judged: Sequence[Claim] = (),
    noun: str = "claim",
) -> str:
    """What was claimed and what was found; ``origins`` are ready-made HTML, one per claim."""
    body = ""
    for place, claim in enumerate(claims):
        verdict = f"{VERDICTS[claim['verdict']]} {claim['verdict']}"
        origin = f"<td>{origins[place]}</td>" if origins else ""
        body += (
            f'<tr>{origin}<td>{escape(str(claim["text"]))}</td><td class="verdict">{verdict}</td>'
            f"<td>{escape(readable_value(claim.get('evidence', '')))}</td></tr>"
        )
    titles = ("experiment",) * bool(origins) + (noun, "verdict", "evidence")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    table = f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    silent = (
        f'<p class="meta">{escape(silent_text(not_judged))}</p>' if not_judged else ""
    )
    return (table if claims else "") + silent


def verdict_counts(claims: Sequence[Claim]) -> dict[str, int]:
    """How many claims hold, do not hold and are undecided."""
    found = [str(claim["verdict"]) for claim in claims]
    return {word: found.count(word) for word in VERDICTS}


def claim_count(claims: Sequence[Claim], separator: str, noun: str = "claim") -> str:
    """How many claims hold, do not, and are undecided, after a separator; empty without claims."""
    found = [str(claim["verdict"]) for claim in claims]
    if len(found) == 1:
        word = found[0].replace("undecided", "is undecided")
        return f"{separator}{'the' if separator else 'The'} {noun} {word}"
    plural = {"holds": "hold", "does not hold": "do not hold"}
    counts = verdict_counts(claims)
    parts = (
        f"{n} {word if n == 1 else plural.get(word, word)}"
        for word, n in counts.items()
        if n
    )
    first, *rest = noun.split(" ", 1)  # "3 statements of theory"
    named = " ".join([count_text(len(claims), first), *rest])
    return f"{separator}{named}: {', '.join(parts)}" if found else ""


def silent_text(not_judged: Sequence[Claim]) -> str:
    """How many claims a run could not judge, and what it lacks for them."""
    needs = ", ".join(
        dict.fromkeys(str(need) for each in not_judged for need in each["needs"])
    )
    who = "they need" if len(not_judged) > 1 else "it needs"
    return f"{count_text(len(not_judged), 'claim')} not judged: {who} {needs}."


def figure(picture: Picture) -> str:
    """A picture with its heading, the labels of its chart as a list, its key and its caption."""
    title = f"<h3>{escape(picture.heading)}</h3>" if picture.heading else ""
    maps = [panel for panel in picture.panels if isinstance(panel, Map)]
    charts = [panel for panel in picture.panels if isinstance(panel, Chart)]
    if maps:
        shown = f'<div class="maps">{"".join(svg_maps(maps, picture.name))}</div>'
    elif len(charts) == 1:
        shown = svg_chart(charts[0]) + _legend(charts[0])
    else:
        shown = f'<div class="charts">{"".join(svg_chart(chart, SMALL) for chart in charts)}</div>'
    key = "".join(
        f'<span><span class="swatch" style="background:{colour}"></span>{escape(text)}</span> '
        for colour, text in picture.key
    )
    key = f'<p class="key">{key}</p>' if key else ""
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return f"{title}<figure>{shown}{key}{caption}</figure>"


def _legend(chart: Chart) -> str:
    """The labels of a chart, for screens that are too narrow to show its right end."""
    named = [each for each in chart.series if each.label]
    items = "".join(
        f"<li>{swatch(each.style)}{escape(each.label)}</li>" for each in named
    )
    return f'<ul class="legend">{items}</ul>'


def swatch(style: PolicyStyle) -> str:
    """A short stroke that looks as the policy's line does."""
    colour = colour_of(style)
    dashes = (
        colour,
        f"linear-gradient(90deg,{colour} 40%,transparent 40% 60%,{colour} 60%)",
        f"repeating-linear-gradient(90deg,{colour} 0 2px,transparent 2px 4px)",
    )
    thin = ";height:2px" * style.thin
    return f'<span class="swatch" style="background:{dashes[style.dash]}{thin}"></span>'


def readable_value(value: Any) -> str:
    """Text as it is, numbers to six digits, a spec as ``name (key = value)``, the rest as JSON.

    >>> readable_value({"name": "matern", "nu": 2.5})
    'matern (nu = 2.5)'
    """
    if isinstance(value, float):
        return significant(value, 6)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        rest = ", ".join(
            f"{k} = {readable_value(v)}" for k, v in value.items() if k != "name"
        )
        return f"{value['name']} ({rest})" if rest else str(value["name"])
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, default=str)
    )
