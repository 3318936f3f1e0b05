"""What a page says about a run on roads: maps, energy per trip, and whether forecasts were true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.networks import RoadMap
from superarm.results.curves import (
    PALETTE,
    plus_minus,
    policy_styles,
    setting_text,
    significant,
    thinned,
)
from superarm.results.roads import (
    OFF,
    Calibration,
    Coverage,
    TripEnergy,
    Window,
    calibration_verdict,
    calibrations,
    compares_schedules,
    in_window,
    main_policies,
    middle,
    reference_policy,
    round_length,
    schedule_of,
    trip_energies,
    trip_name,
    trip_settings,
    visits,
    window_around,
)
from superarm.simulation.audit import LEVELS
from superarm.simulation.trace import Run

from .pages import legend, section, swatch
from .svg import Line, colour_of, svg_lines, svg_open

_WIDTH = 420
_CLASSES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Least numbers of visits of the classes that are told apart by colour and width."""


def road_sections(run: Run) -> list[str]:
    """What only runs on roads have: energy per trip, maps, and whether forecasts were true."""
    parts = {
        "How wide the bounds are": _width_parts(run),
        "Energy per trip": _energy_parts(run),
        "Where they drove": _map_parts(run),
        "Did the forecasts hold?": _calibration_parts(run),
    }
    made = {title: list(pieces) for title, pieces in parts.items()}
    return [section(title, *pieces) for title, pieces in made.items() if pieces]


# --- widths ------------------------------------------------------------------------------


def _width_parts(run: Run) -> Iterable[str]:
    """β_t over the rounds, for every number of edges, where a run compares schedules."""
    if not compares_schedules(run):
        return
    edges = {len(roads) for index in trip_settings(run) if (roads := run.road_map(index))}
    rounds = thinned(run.rounds, 120)
    for arms in sorted(edges):
        lines = []
        for policy, style in policy_styles(run.policies).items():
            schedule = schedule_of(run, policy, 0)
            if schedule is not None:
                label = f"{policy}  {schedule.text}"
                lines.append(Line(label=label, x=rounds, y=schedule.beta(rounds, arms), style=style))
        chart = svg_lines(
            lines,
            description="Squared widths β over the rounds: " + ", ".join(line.label for line in lines),
            x_label="round",
            y_label="β: the index is mean − √β · standard deviation",
        )
        caption = f"β of Theorem 3.2 for {arms:,} edges."
        yield f"<figure>{chart}{legend(lines)}<figcaption>{caption}</figcaption></figure>"


# --- maps --------------------------------------------------------------------------------


def _map_parts(run: Run) -> Iterable[str]:
    """For every trip, where the main learners drove in the first seed."""
    for index in trip_settings(run):
        roads = run.road_map(index)
        if roads is None:
            continue
        policies = main_policies(run)
        seed = run.seeds[0]
        counts = {each: visits(run, each, index, (seed,), len(roads)) for each in policies}
        window = window_around(roads, np.flatnonzero(np.sum(list(counts.values()), axis=0)))
        plane = _Plane(window)
        base = f"roads-{index}"
        most = max(int(each.max(initial=0)) for each in counts.values())
        used = [least for least in _CLASSES if least <= max(most, 1)]
        panels = "".join(
            _panel(plane, roads, policy, counts[policy], used, base, holds_base=place == 0)
            for place, policy in enumerate(policies)
        )
        rest = {key: value for key, value in run.settings[index].items() if key != "route"}
        title = ", ".join(part for part in (trip_name(run, index), setting_text(rest)) if part)
        yield (
            f'<h3>{escape(title)}</h3><figure><div class="panels">{panels}</div>{_key(used)}'
            f"<figcaption>Edges driven on in {run.rounds:,} rounds of seed {seed}; the disc is the "
            "start, the square the goal. Grey roads were not driven on.</figcaption></figure>"
        )


class _Plane:
    """From metres to the whole numbers of a drawing, y downwards."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.scale = _WIDTH / window.width
        self.height = round(window.height * self.scale)

    def place(self, points: Floats) -> Floats:
        x = (points[:, 0] - self.window.left) * self.scale
        y = (self.window.bottom + self.window.height - points[:, 1]) * self.scale
        return np.stack([x, y], axis=1)

    def path(self, roads: RoadMap, edges: Ints) -> str:
        """Edges as one path in half units, without what is too short to be seen or drawn already."""
        drawn: set[frozenset[tuple[int, int]]] = set()
        parts = []
        for edge in edges.tolist():
            points = np.rint(2.0 * self.place(roads.course(edge))).astype(int)
            moved = np.concatenate([[True], np.any(np.diff(points, axis=0) != 0, axis=1)])
            course = [(int(x), int(y)) for x, y in points[moved]]
            key = frozenset(course)
            if len(course) < 2 or key in drawn:
                continue
            drawn.add(key)
            steps = "".join(f"l{x - a} {y - b}" for (a, b), (x, y) in pairwise(course))
            parts.append(f"M{course[0][0]} {course[0][1]}{steps}")
        return "".join(parts).replace(" -", "-") or "M0 0"


def _panel(
    plane: _Plane,
    roads: RoadMap,
    policy: str,
    counts: Ints,
    used: Sequence[int],
    base: str,
    *,
    holds_base: bool,
) -> str:
    """One policy's map; the roads of the first are used again by the others."""
    distinct = int(np.count_nonzero(counts))
    head = 30
    description = (
        f"Map of the roads that {policy} drove on: {distinct} different edges, "
        f"the most driven one {int(counts.max(initial=0))} times"
    )
    parts = [svg_open(_WIDTH, plane.height + head, description)]
    parts.append(f'<text x="0" y="20" font-size="20"><tspan font-weight="600">{escape(policy)}</tspan>')
    parts.append(f'<tspan opacity=".75">  distinct edges: {distinct:,}</tspan></text>')
    parts.append(f'<svg x="0" y="{head}" width="{_WIDTH}" height="{plane.height}"')
    parts.append(f' viewBox="0 0 {2 * _WIDTH} {2 * plane.height}" fill="none">')
    if holds_base:
        edges = in_window(roads, plane.window)
        grey = f'<path d="{plane.path(roads, edges)}" stroke="currentColor" opacity=".3"/>'
        parts.append(f'<g id="{base}">{grey}</g>')
    else:
        parts.append(f'<use href="#{base}"/>')
    for place, least in enumerate(used):
        limit = used[place + 1] if place + 1 < len(used) else np.inf
        edges = np.flatnonzero((counts >= least) & (counts < limit))
        if len(edges):
            style = f'stroke="{_shade(place, len(used))}" stroke-width="{_thickness(place, len(used))}"'
            parts.append(f'<path d="{plane.path(roads, edges)}" {style} stroke-linejoin="round"/>')
    parts.append(_ends(plane, roads) + "</svg>" + _scale_bar(plane, head) + "</svg>")
    return "".join(parts)


def _shade(place: int, count: int) -> str:
    """From yellow-green to blue: seen on white and on black."""
    unit = np.asarray(0.85 - 0.57 * place / max(count - 1, 1))
    return "#" + bytes(colour_of(unit, "viridis").tolist()).hex()


def _thickness(place: int, count: int) -> str:
    return f"{2.5 + 5.5 * place / max(count - 1, 1):.1f}"


def _ends(plane: _Plane, roads: RoadMap) -> str:
    marks = []
    for edge, shape in ((roads.start, "disc"), (roads.goal, "square")):
        x, y = 2.0 * plane.place(np.array([middle(roads.course(edge))]))[0]
        look = 'fill="#fff" stroke="#d55e00" stroke-width="5"'
        if shape == "disc":
            marks.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="9" {look}/>')
        else:
            marks.append(f'<rect x="{x - 8:.0f}" y="{y - 8:.0f}" width="16" height="16" {look}/>')
    return "".join(marks)


def _scale_bar(plane: _Plane, head: int) -> str:
    length = round_length(plane.window.width / 4.0)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    right, y, wide = _WIDTH - 6, plane.height + head - 6, length * plane.scale
    bar = f'<path d="M{right - wide:.1f} {y}H{right}" stroke="currentColor" stroke-width="2"/>'
    place = f'x="{right - wide / 2:.1f}" y="{y - 5}" text-anchor="middle" font-size="17"'
    return f"{bar}<text {place}>{text}</text>"


def _key(used: Sequence[int]) -> str:
    """The classes of visits in a row."""
    items = []
    for place, least in enumerate(used):
        last = used[place + 1] - 1 if place + 1 < len(used) else None
        text = f"{least}" if last == least else f"{least}–{last}" if last else f"{least}+"
        items.append(
            f'<span class="swatch" style="background:{_shade(place, len(used))}"></span>{text} &emsp;'
        )
    return f'<p class="meta">visits: {"".join(items)}</p>'


# --- energy ------------------------------------------------------------------------------


def _energy_parts(run: Run) -> Iterable[str]:
    """Energy per trip, over all rounds and in the first and last tenth, for every trip."""
    told = False
    for index in trip_settings(run):
        rows = trip_energies(run, index)
        if not rows:
            continue
        if not told:
            yield (
                "<p>True energy of the routes driven: what the trips cost on average, noise left out. "
                "Regret counts every edge's energy from zero upwards, as the paper does, and so holds "
                "hills that pay against a route; routes that use them (names ending in “potential”) "
                "are to be compared here. Differences are taken seed by seed, so they are surer than "
                "the energies themselves, which change with the world of each seed.</p>"
            )
            told = True
        yield _energy_table(run, index, rows)


def _energy_table(run: Run, index: int, rows: Sequence[TripEnergy]) -> str:
    tenth = max(1, run.rounds // 10)
    titles = (
        *("true energy (Wh) per trip", f"minus {reference_policy(run)}’s"),
        *(f"first {tenth:,} rounds", f"last {tenth:,} rounds", "distinct edges"),
    )
    head = '<th scope="col">policy</th>' + "".join(
        f'<th scope="col" class="number">{escape(title)}</th>' for title in titles
    )
    body = ""
    for row in rows:
        shown = (row.overall, row.against, row.first, row.last, row.edges)
        cells = (
            plus_minus(each.mean, each.stderr) if len(run.seeds) > 1 else significant(each.mean)
            for each in shown
        )
        name = f"{swatch(policy_styles(run.policies)[row.policy])}{escape(row.policy)}"
        numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
        body += f'<tr><th scope="row">{name}</th>{numbers}</tr>'
    setting = setting_text(run.settings[index])
    caption = f"<caption>{escape(setting)}</caption>" if setting else ""
    return (
        f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


# --- calibration -------------------------------------------------------------------------


def _calibration_parts(run: Run) -> Iterable[str]:
    """A sentence, a chart and a table; nothing where no forecasts were recorded."""
    rows = calibrations(run)
    if not rows:
        return
    yield (
        f"<p>{escape(calibration_verdict(rows))}</p>"
        "<p>Before each trip every learner forecast the energy of each edge and of the whole trip; "
        "this is how often the measured energy fell inside the central 50, 90 and 95 % of the "
        "forecast. If a model is right, then whatever it has seen, the next trip falls inside with "
        "just that probability: trips count as independent, and the standard error of their share is "
        "binomial. Edges of one trip hang together, so for edges the error is taken over "
        "whole trips. Independent edges (names starting with “bi”) leave out that roads err together, "
        "which narrows most of all their forecasts of trips. All policies meet the same noise, "
        "so what chance does to one it does to others.</p>"
    )
    yield (
        f"<figure>{_calibration_chart(run, rows)}<figcaption>Dots: observed shares in percent, "
        "± 2 standard errors. Dashed: what they should be.</figcaption></figure>"
    )
    yield _calibration_table(run, rows)


class _Shares(NamedTuple):
    """Where shares stand in one half of the chart."""

    start: int
    low: float

    def place(self, share: float) -> float:
        return self.start + (share - self.low) / (1.01 - self.low) * _HALF


_HALF = 280
# 90 and 95 % lie too close together for labels in the middle.
_SIDES = {0.50: ("middle", 0), 0.90: ("end", 5), 0.95: ("start", -5)}


def _calibration_chart(run: Run, rows: Sequence[Calibration]) -> str:
    """Edges on the left, trips on the right, a line per policy."""
    gap, top, left = 26, 40, 140
    height = top + gap * len(rows) + 28
    every = [level for row in rows for level in (*row.edges, *row.trips)]
    low = max(0.0, min(0.45, *(level.observed - 2.0 * level.stderr for level in every)) - 0.02)
    edges, trips = _Shares(left, low), _Shares(left + _HALF + 36, low)
    parts = [svg_open(trips.start + _HALF + 10, height, calibration_verdict(rows))]
    for shares, what in ((edges, "edges"), (trips, "trips")):
        parts.append(f'<text x="{shares.start}" y="15" font-weight="600">Energy of {what}</text>')
        for level in LEVELS:
            x = shares.place(level)
            line = f'<path d="M{x:.1f} {top - 12}V{height - 24}" stroke="currentColor"'
            side, shift = _SIDES[level]
            place = f'x="{x + shift:.1f}" y="{height - 8}" text-anchor="{side}"'
            parts.append(f'{line} stroke-dasharray="4 3" opacity=".6"/>')
            parts.append(f'<text {place} opacity=".75">{100 * level:.0f}</text>')
    for line_number, row in enumerate(rows):
        y = top + gap * line_number + 8
        colour = policy_styles(run.policies)[row.policy].colour
        parts.append(
            f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(row.policy)}</text>'
            f'<g style="color:var(--c{colour},{PALETTE[colour]})">'
        )
        # A little apart, so that the bars of neighbouring levels do not merge.
        for shift, edge, trip in zip((-5, 0, 5), row.edges, row.trips, strict=True):
            parts += [_coverage_mark(edge, edges, y + shift), _coverage_mark(trip, trips, y + shift)]
        parts.append("</g>")
    return "".join(parts) + "</svg>"


def _coverage_mark(coverage: Coverage, shares: _Shares, y: int) -> str:
    x = shares.place(coverage.observed)
    low = shares.place(max(coverage.observed - 2.0 * coverage.stderr, shares.low))
    high = shares.place(min(coverage.observed + 2.0 * coverage.stderr, 1.01))
    bar = f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="currentColor" stroke-width="2"/>'
    return f'{bar}<circle cx="{x:.1f}" cy="{y}" r="3.4"/>'


def _calibration_table(run: Run, rows: Sequence[Calibration]) -> str:
    known = bool(rows[0].true_edges)
    told = (*("edges", "trips", "first visits"), *("truth of edges", "truth of trips") * known)
    titles = [f"{what} in {100 * level:.0f} %" for what in told for level in LEVELS]
    head = '<th scope="col">policy</th>' + "".join(
        f'<th scope="col" class="number">{title}</th>' for title in titles
    )
    body = ""
    for row in rows:
        cells = "".join(
            f'<td class="number">{_percent(coverage)}</td>' for levels in row[1:] for coverage in levels
        )
        name = f"{swatch(policy_styles(run.policies)[row.policy])}{escape(row.policy)}"
        body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        '<p class="meta">Observed share ± 1 standard error, in percent; bold where it is more than '
        "three standard errors away from its level.</p>"
    )


def _percent(coverage: Coverage) -> str:
    text = f"{100 * coverage.observed:.1f} ± {100 * coverage.stderr:.1f}"
    return f"<b>{text}</b>" if abs(coverage.away) > OFF else text
