"""The charts of a run: regret and how it grows, time per round, what was swept, and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import StateError
from superarm.lab.simulation.illustrations import TreeMasses, TruthRecord
from superarm.lab.simulation.run import Run
from superarm.movement import Tree
from superarm.rules import BayesianGPUCB

from .averages import Band, band_text, mean_band
from .bounds import Bound, RegretBounds
from .curves import growth_exponent, growth_of, regret_curve, seconds_curve, thinned
from .formats import power_text, readable_seconds, setting_text, significant
from .maps import networks_picture
from .pictures import Chart, Picture, Series
from .roads import (
    METHODS,
    Schedule,
    compares_schedules,
    schedule_of,
    trip_name,
    trip_settings,
)
from .settings import Sweep, matches, sweeps
from .styles import PolicyStyle, policy_styles, shade
from .totals import outcomes, per_round

_MANY_SETTINGS = 4
_POINTS = 200
_FINE = 500  # points of a running mean, which shows where a policy starts anew
_TIMES = 5  # rounds in which a function that drifts is drawn
_LEAST_MASS = 0.015  # from which a probability is written on a tree
_WIDE = 20.0  # ratio of swept numbers from which on their axis is logarithmic
_FAR_APART = (
    10.0  # ratio of totals from which on it is: on a linear axis some would lie on it
)
_LEAST_GROWTH = 0.1  # exponent of t from which the time of a round is said to grow: below it is noise


def run_charts(
    run: Run, bounds: RegretBounds | None = None, band: Band | None = None
) -> dict[str, list[Picture]]:
    """All of them, by what they are about; ``band`` is what the experiment wants unless it is given."""
    panels, band = sweeps(run), band or run.chart.band
    many = bool(panels) and len(run.settings) > _MANY_SETTINGS
    first = range(min(len(run.settings), _MANY_SETTINGS))
    if many:
        regret = [_sweep_curves(run, panels, band)]
    else:
        regret = [_regret(run, index, band) for index in range(len(run.settings))]
    timed = [_seconds(run, index) for index in first]
    return {
        "truth": _truths(run),
        "tree": _tree(run),
        "totals": _totals(run, band),
        # Means of many settings are told by the sweep.
        "derived": [
            _derived(run, each, band)
            for each in run.derived
            if "versus" in each or not many
        ],
        "horizons": [_horizons(run, band)] if run.horizons else [],
        "sweep": [_sweep_totals(run, panels, band)] if panels else [],
        "widths": [_schedules(run, band)]
        if trip_settings(run) and compares_schedules(run)
        else [],
        "regret": regret,
        "growth": [_growth(run, index, None if index else bounds) for index in first],
        "seconds": [each for each in timed if each is not None],
    }


def group_pictures(runs: Sequence[Run]) -> list[Picture]:
    """Pictures over several runs: on roads the networks, and the methods on every trip."""
    # A trip's route is best taken from a run that made no other trip.
    mapped = sorted(
        (run for run in runs if trip_settings(run)), key=lambda run: len(run.settings)
    )
    networks = networks_picture(mapped)
    pictures = [networks] if networks else []
    single = [
        run
        for run in mapped
        if len(run.settings) == 1 and set(METHODS) & set(run.policies)
    ]
    if single:
        panels = tuple(
            regret_chart(run, 0, policies=METHODS, title=trip_name(run, 0))
            for run in single
        )
        caption = _sentence(band_text(single[0], "stderr"))
        pictures.append(
            Picture(name="methods", panels=panels, caption=caption, columns=3)
        )
    return pictures


def regret_chart(
    run: Run,
    index: int,
    band: Band = "stderr",
    policies: Sequence[str] = (),
    title: str = "",
    points: int = _POINTS,
) -> Chart:
    """Cumulative regret of some policies, else of all; where it differs much, on a logarithmic axis."""
    chosen = [policy for policy in run.policies if policy in policies] or run.policies
    series = tuple(_curve(run, policy, index, band, points=points) for policy in chosen)
    ends = [float(each.y[-1]) for each in series if each.y[-1] > 0.0]
    log = len(ends) > 1 and max(ends) > _FAR_APART * min(ends)
    log = log and all(
        each.y[-1] >= 0.0 for each in series
    )  # better than what is compared with
    label = _regret_text(run, index) + ", log scale" * log
    return Chart(series=series, title=title, y_label=label, log_y=log, totals=True)


def _regret_text(run: Run, index: int) -> str:
    return run.metric("regret", index).text


def _curve(
    run: Run,
    policy: str,
    index: int,
    band: Band,
    label: str = "",
    style: PolicyStyle | None = None,
    points: int = _POINTS,
    metric: str = "regret",
) -> Series:
    style, rounds = (
        style or policy_styles(run.policies)[policy],
        thinned(run.rounds, points),
    )
    line = _line(
        policy,
        style,
        rounds,
        run.cumulative(policy, index, metric)[:, rounds - 1],
        band,
    )
    return line._replace(label=label or line.label)


def _line(
    policy: str, style: PolicyStyle, x: Floats | Ints, values: Floats, band: Band
) -> Series:
    """Of values (seeds, places), with the last of their means as a label."""
    mean, half = mean_band(values, band)
    return Series(f"{policy}  {significant(float(mean[-1]))}", x, mean, style, half)


def _regret(run: Run, index: int, band: Band) -> Picture:
    chart = regret_chart(run, index, band)
    return _single(
        run, index, "regret", chart, _sentence(band_text(run, band)) + _thin([chart])
    )


def _growth(run: Run, index: int, bounds: RegretBounds | None) -> Picture:
    series = []
    for policy, style in policy_styles(run.policies).items():
        curve = regret_curve(run, policy, index, points=_POINTS)
        label = f"{policy}  {power_text(growth_exponent(run, policy, index))}"
        series.append(Series(label, curve.rounds, curve.mean, style))
    caption = "The exponent is the slope over the last half of the rounds."
    if bounds is not None and bounds.drawn:
        caption += " Dotted: bounds from theory."
        series += _of_theory(run, bounds.drawn, dash=2)
    if bounds is not None and bounds.orders:
        caption += " Dashed: orders from theory, scaled to end where the regret does."
        series += _of_theory(run, bounds.orders, dash=1)
    across, up = "round, log scale", _regret_text(run, index) + ", log scale"
    chart = Chart(
        series=tuple(series), x_label=across, y_label=up, log_x=True, log_y=True
    )
    return _single(run, index, "growth", chart, caption)


def _of_theory(run: Run, curves: Mapping[str, Bound], dash: int) -> list[Series]:
    """A curve for each policy, in its colour."""
    styles = policy_styles(run.policies)
    return [
        Series(
            curve.label,
            curve.rounds,
            curve.values,
            PolicyStyle(styles[policy].colour, dash),
        )
        for policy, curve in curves.items()
    ]


def _truths(run: Run) -> list[Picture]:
    """Expected rewards as they change, a panel for every setting."""
    functions = run.chart.truth == "functions"
    charts, across = [], "arm" if functions else "round"
    for index in range(len(run.settings)):
        if (truth := run.truth(index)) is not None:
            label = run.metric("regret", index)._replace(label="expected reward").text
            series = _functions(truth) if functions else _expected(truth)
            charts.append(
                _panel(run, index, series, label, x_label=across, from_zero=False)
            )
    dots, lines = "A dot marks the best arm", "One line for each arm, and the best"
    caption = f"{dots if functions else lines} of each round. Seed {run.seeds[0]}."
    return (
        [Picture(name="truth", panels=tuple(charts), caption=caption, columns=2)]
        if charts
        else []
    )


def _tree(run: Run) -> list[Picture]:
    """A tree over the actions, and the probabilities of a policy that walks on one."""
    tree = run.tree()
    if tree is None:
        return []
    caption = (
        "A random tree in place of the metric: dots are actions, and edges are at most half as long "
        f"as those above them. Between these {len(tree)} actions, distances along the tree are never "
        "shorter than in the metric."
    )
    pictures = [Picture(name="tree", panels=(_tree_chart(tree),), caption=caption)]
    masses = run.tree_masses()
    return pictures if masses is None else [*pictures, _tree_masses(run, masses)]


def _tree_masses(run: Run, masses: TreeMasses) -> Picture:
    """z of the vertices and q of the edges above them, where there is any mass."""
    tree, q, policy = masses
    z = np.ones(len(q))
    for level, _ in tree.levels:
        z[level] = z[tree.parent[level]] * q[level]  # eq. 11
    seen = np.flatnonzero(z >= _LEAST_MASS)
    vertices = {int(vertex): f"{100.0 * z[vertex]:.0f}" for vertex in seen}
    edges = {int(vertex): f"{100.0 * q[vertex]:.0f}" for vertex in seen if vertex}
    panels = (
        _tree_chart(tree, vertices, title="z of the vertices, in %"),
        _tree_chart(tree, edges, toward_parent=0.2, title="q of the edges, in %"),
    )
    caption = (
        f"The tree that {policy} walks on, after the last round of seed {run.seeds[0]}. z is the "
        "probability of being at one of the actions below a vertex, and q that of taking an edge, "
        "given the vertex above it: z is the product of q along the way. Where z is below "
        f"{100.0 * _LEAST_MASS:g} %, nothing is written."
    )
    return Picture(name="tree-masses", panels=panels, caption=caption, columns=2)


def _tree_chart(
    tree: Tree,
    notes: Mapping[int, str] | None = None,
    *,
    toward_parent: float = 0.0,
    title: str = "",
) -> Chart:
    """A tree, drawn by walking around it.

    Args:
        tree: what is drawn.
        notes: texts of some vertices.
        toward_parent: where they stand, as a share of the way from the vertex to its parent.
        title: of the chart.
    """
    vertex, walk = 0, [0]
    vertices = range(len(tree.parent))
    left = {each: list(vertices[tree.children(each)]) for each in vertices}
    while left[vertex] or vertex:
        vertex = left[vertex].pop(0) if left[vertex] else int(tree.parent[vertex])
        walk.append(vertex)
    depth = np.zeros(len(tree.parent))
    for level, _ in tree.levels:
        depth[level] = depth[tree.parent[level]] + 1.0
    x = tree.first + (tree.sizes - 1) / 2.0
    leaves = tuple(at for at, u in enumerate(walk) if tree.sizes[u] == 1)
    series = [
        Series("", x[walk], -depth[walk], PolicyStyle(1, thin=True), marked=leaves)
    ]
    if notes:
        own = np.array(list(notes), dtype=np.intp)
        above = np.maximum(tree.parent[own], 0)
        across = (1.0 - toward_parent) * x[own] + toward_parent * x[above]
        up = (1.0 - toward_parent) * -depth[own] + toward_parent * -depth[above]
        for place, text in enumerate(notes.values()):
            here = slice(place, place + 1)
            series.append(
                Series(
                    "",
                    across[here],
                    up[here],
                    PolicyStyle(1, thin=True),
                    notes=((0, text),),
                )
            )
    return Chart(
        series=tuple(series),
        title=title,
        x_label="actions, side by side",
        y_label="level of the tree",
        from_zero=False,
    )


def _totals(run: Run, band: Band) -> list[Picture]:
    """Running totals of the metrics that the experiment wants, a panel for each."""
    charts = []
    for curve, (index, setting) in product(run.chart.curves, enumerate(run.settings)):
        metric, where = curve["metric"], curve.get("where", {})
        if matches(run, setting, where) and metric in run.metrics_at(index):
            series = [
                _curve(run, policy, index, band, metric=metric)
                for policy in run.policies
            ]
            charts.append(_panel(run, index, series, run.metric(metric, index).text))
    caption = f"Running totals; {band_text(run, band)}.{_thin(charts)}"
    return (
        [Picture(name="totals", panels=tuple(charts), caption=caption, columns=2)]
        if charts
        else []
    )


def _panel(
    run: Run, index: int, series: Iterable[Series], label: str, **look: Any
) -> Chart:
    """The curves of one setting."""
    title = setting_text(run.settings[index])
    return Chart(series=tuple(series), title=title, y_label=label, **look)


def _functions(truth: TruthRecord) -> list[Series]:
    """Over the arms, in a few rounds, from light to dark."""
    wanted = np.maximum(np.rint(np.linspace(0.0, truth.rounds[-1], _TIMES)), 1)
    rows = np.unique(np.searchsorted(truth.rounds, wanted))
    order, series = np.argsort(truth.places[:, 0]), []
    for at, row in enumerate(rows.tolist()):
        y, style = truth.values[row, order], PolicyStyle(shade(at, len(rows)))
        told, best = f"t = {truth.rounds[row]}", int(y.argmax())
        series.append(Series(told, truth.places[order, 0], y, style, marked=(best,)))
    return series


def _expected(truth: TruthRecord) -> list[Series]:
    """Every arm over the rounds, lower ones lighter, and the largest of them."""
    arms = truth.values.mean(axis=0).argsort()
    lines = [
        Series(
            "",
            truth.rounds,
            truth.values[:, arm],
            PolicyStyle(shade(at, len(arms)), 0, thin=True),
        )
        for at, arm in enumerate(arms.tolist())
    ]
    return [
        *lines,
        Series("best", truth.rounds, truth.values.max(axis=1), PolicyStyle(1)),
    ]


def _derived(run: Run, declared: Mapping[str, str], band: Band) -> Picture:
    """A running total over that of another policy, or over the number of rounds so far, a panel for
    every setting."""
    metric, versus = declared["metric"], declared.get("versus")
    rounds = thinned(run.rounds, _POINTS if versus else _FINE)
    charts, negative = [], []
    for index in range(len(run.settings)):
        other = rounds[None].astype(np.float64)
        if versus:
            other = run.cumulative(versus, index, metric)[:, rounds - 1]
            negative += (
                [setting_text(run.settings[index])] if other[:, -1].min() <= 0.0 else []
            )
            other = np.where(other == 0.0, np.nan, other)
        series = []
        for policy, style in policy_styles(run.policies).items():
            if policy != versus:
                ratios = run.cumulative(policy, index, metric)[:, rounds - 1] / other
                series.append(_line(policy, style, rounds, ratios, band))
        told, name = run.metric(metric, index), declared["name"].replace("_", " ")
        ratio = f"{told.label}, relative to {versus}"
        label = ratio if versus else told._replace(label=name).text
        charts.append(_panel(run, index, series, label, from_zero=not versus))
    caption = _sentence(band_text(run, band))
    if negative:
        where = f" ({'; '.join(negative)})" if any(negative) else ""
        caption += f" Where the total of {versus} is not above 0 in every seed{where}, a ratio to it "
        caption += "means nothing: see the regret instead."
    columns = 3 if len(charts) in (3, 5, 6) else 2
    return Picture(
        name=declared["name"], panels=tuple(charts), caption=caption, columns=columns
    )


def _horizons(run: Run, band: Band) -> Picture:
    """Regret after T rounds against T, also of policies that were run again for every T."""
    lengths = [*run.horizons, run.rounds]
    parts = [*map(run.at_horizon, run.horizons), run]
    charts = []
    for index in range(len(run.settings)):
        series = []
        for policy, style in policy_styles(run.policies).items():
            told = parts if policy in parts[0].policies else [run] * len(parts)
            ends = zip(told, lengths, strict=True)
            totals = [
                part.cumulative(policy, index)[:, rounds - 1] for part, rounds in ends
            ]
            series.append(
                _line(policy, style, np.array(lengths), np.stack(totals, axis=1), band)
            )
        across, label = (
            "number of rounds T",
            f"{_regret_text(run, index)} after T rounds",
        )
        charts.append(_panel(run, index, series, label, x_label=across, markers=True))
    names = ", ".join(parts[0].policies)
    caption = (
        f"Policies run again for every T, which they must know in advance: {names}; "
        f"{band_text(run, band)}."
    )
    return Picture(name="horizons", panels=tuple(charts), caption=caption, columns=2)


def _seconds(run: Run, index: int) -> Picture | None:
    """None where rounds were not timed."""
    series = []
    for policy, style in policy_styles(run.policies).items():
        try:
            curve = seconds_curve(run, policy, index)
        except (
            StateError
        ):  # timings are no part of a trace; a run may have been copied without them
            return None
        label = f"{policy}  {readable_seconds(run.seconds_per_round(policy, index))}"
        growth = growth_of(curve)
        if growth >= _LEAST_GROWTH:
            label += f", {power_text(growth)}"
        series.append(Series(label, curve.rounds, curve.mean, style))
    label = "time per round, log scale"
    chart = Chart(series=tuple(series), y_label=label, log_y=True, seconds=True)
    caption = (
        "Time to decide and learn, averaged over blocks of rounds and over seeds; labels give the "
        "overall mean and, where it grows, how the time of a round grows over the last half of the run."
    )
    return _single(run, index, "seconds", chart, caption)


def _single(run: Run, index: int, name: str, chart: Chart, caption: str) -> Picture:
    suffix = f"-{index}" if len(run.settings) > 1 else ""
    heading = setting_text(run.settings[index])
    return Picture(
        name=name + suffix, panels=(chart,), heading=heading, caption=caption
    )


# --- what was swept ----------------------------------------------------------------------


def _sweep_totals(run: Run, panels: Sequence[Sweep], band: Band) -> Picture:
    """Totals against a swept number, a panel for every metric and for what else was swept."""
    charts = []
    means = {
        each["metric"]: each["name"] for each in run.derived if "versus" not in each
    }
    for panel in panels:
        x = np.asarray(panel.values, dtype=np.float64)
        positive = x[x > 0.0]
        log = bool(
            x[0] >= 0.0 and len(positive) > 1 and positive[-1] / positive[0] >= _WIDE
        )
        marks = {
            text: at for text, at in run.chart.marks.items() if x[0] <= at <= x[-1]
        }
        for metric in run.metrics:
            told = run.metric(metric, panel.settings[0])
            if metric in means:
                told = told._replace(label=means[metric].replace("_", " "))
            series = []
            for policy, style in policy_styles(run.policies).items():
                read = per_round if metric in means else outcomes
                found = [read(run, policy, index, metric) for index in panel.settings]
                line = _line(policy, style, x, np.stack(found, axis=1), band)
                # Whom the swept number does not concern is there to be compared with.
                thin = style.thin or bool(np.ptp(line.y) == 0.0)
                series.append(line._replace(style=style._replace(thin=thin)))
            chart = Chart(
                series=tuple(series),
                title=setting_text(panel.fixed),
                x_label=panel.key + ", log scale" * log,
                y_label=told.text,
                log_x=log,
                markers=True,
                marks=marks,
            )
            charts.append(chart)
    caption = f"After {run.rounds:,} rounds; {band_text(run, band)}.{_thin(charts)}"
    name = f"sweep-{panels[0].key}".replace(".", "-")
    return Picture(name=name, panels=tuple(charts), caption=caption, columns=2)


def _sweep_curves(run: Run, panels: Sequence[Sweep], band: Band) -> Picture:
    """Regret over time by the value of a swept number, a panel for every policy."""
    charts = []
    for panel in panels:
        pairs = [*zip(panel.values, panel.settings, strict=True)]
        for policy in run.policies:
            curves = []
            for place, (value, index) in enumerate(pairs):
                style = PolicyStyle(shade(place, len(pairs)))
                curves.append(
                    _curve(run, policy, index, band, f"{value:g}", style, points=80)
                )
            title = ", ".join(filter(None, (policy, setting_text(panel.fixed))))
            label = _regret_text(run, panel.settings[0])
            charts.append(Chart(series=tuple(curves), title=title, y_label=label))
    caption = f"By {panels[0].key}; {band_text(run, band)}."
    name = f"curves-{panels[0].key}".replace(".", "-")
    return Picture(
        name=name, panels=tuple(charts), caption=caption, columns=len(run.policies)
    )


# --- schedules ---------------------------------------------------------------------------


def _schedules(run: Run, band: Band) -> Picture:
    """For every trip, the regret under each schedule of one kind, and β_t."""
    rounds = thinned(run.rounds, _POINTS)
    charts = []
    for index in trip_settings(run):
        roads = run.road_map(index)
        assert roads is not None  # it has a trip
        widths = []
        regrets: dict[str, list[Series]] = {"UCB": [], "BUCB": []}
        for policy, style in policy_styles(run.policies).items():
            schedule = schedule_of(run, policy, index, len(roads))
            assert schedule is not None  # ``compares_schedules``
            kind, text = _schedule_text(schedule)
            regrets[kind].append(_curve(run, policy, index, band, text, points=80))
            beta = np.array(
                [schedule.width(int(step), lambda count: 0.0) ** 2 for step in rounds]
            )
            widths.append(Series(f"{kind} {text}", rounds, beta, style))
        where = f"{trip_name(run, index)}, {len(roads):,} edges"
        for kind, curves in regrets.items():
            title, label = f"GP-{kind}: {where}", _regret_text(run, index)
            charts.append(Chart(series=tuple(curves), title=title, y_label=label))
        charts.append(Chart(series=tuple(widths), title=f"β: {where}", y_label="β"))
    caption = (
        f"The index is mean − √β · standard deviation. Regret: {band_text(run, band)}."
    )
    return Picture(name="betas", panels=tuple(charts), caption=caption, columns=3)


def _schedule_text(schedule: Schedule) -> tuple[str, str]:
    if isinstance(schedule, BayesianGPUCB):
        return "UCB", "β" if schedule.scale == 1.0 else f"{schedule.scale:g} β"
    return "BUCB", f"ω = {schedule.omega:g}, ξ = {schedule.xi:g}"


def _thin(charts: Sequence[Chart]) -> str:
    thin = any(each.style.thin for chart in charts for each in chart.series)
    told = " Thin lines are baselines, or do not depend on what was swept; they have no bands."
    return told if thin else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
