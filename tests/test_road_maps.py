"""Runs on roads: numbers against slow loops, maps and pages that hold what they should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm import _roads, plotting
from superarm import report as reports
from superarm._curves import learners_height, metric_text, plus_minus, policy_styles
from superarm._report_template import Line, svg_lines
from superarm.errors import InputError
from superarm.networks import RoadMap
from superarm.plotting import files
from superarm.rules import BayesianGPUCB, BayesUCBQuantile
from superarm.simulation.audit import LEVELS, QUANTILES
from superarm.simulation.trace import Run, Trace, write_map, write_spec, write_trace

SIX = _roads.METHODS
LEARNERS = (*SIX, "gp-ts-joint", "gp-greedy", "gp-ts-potential")
EDGES = 30
OPTIONS = {
    "gp-ucb": {"policy": "route-ucb"},
    "gp-ucb-half": {"policy": "route-ucb", "scale": 0.5},
    "gp-bucb": {"policy": "route-bucb"},
    "gp-bucb-half": {"policy": "route-bucb", "xi": 0.5},
}


def chain(edges: int = EDGES, *, seed: int = 0, start: int = 0, goal: int = 5) -> RoadMap:
    """Edges of two or three points each, one after the other, on a walk over the plane."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(100.0, 60.0, (2 * edges + 1, 2))
    walk = np.cumsum(steps, axis=0)
    sizes = rng.integers(2, 4, edges)
    courses = [walk[2 * i : 2 * i + size] for i, size in enumerate(sizes)]
    return RoadMap(
        points=np.round(np.concatenate(courses), 2),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        speed=rng.choice([8.3, 13.9, 27.8], edges),
        height=np.zeros(edges),
        start=start,
        goal=goal,
    )


def make_run(
    directory: Path,
    policies: tuple[str, ...] = (*SIX, "prior", "fastest"),
    *,
    rounds: int = 12,
    seeds: int = 2,
    settings: tuple[dict[str, Any], ...] = ({},),
    roads: tuple[RoadMap, ...] | None = None,
    audited: tuple[str, ...] = LEARNERS,
    empty: bool = False,
) -> Run:
    """Random trips on a small map; learners have audits, as a runner writes them."""
    spec: dict[str, Any] = {"experiment": "tests/roads", "title": "Roads", "rounds": rounds}
    spec |= {"first_seed": 3, "seeds": seeds, "policies": list(policies), "settings": list(settings)}
    given = {policy: OPTIONS.get(policy, {}) for policy in policies}
    spec["parameters"] = {"problem": {"name": "navigation"}, "policies": given}
    write_spec(directory, spec)
    rng = np.random.default_rng(11)
    for index, setting in enumerate(settings):
        write_map(directory, index, roads[index] if roads else chain())
        for place, policy in enumerate(policies):
            for seed in range(3, 3 + seeds):
                choices = np.full((rounds, 0 if empty else 6), -1, dtype=np.int32)
                for row in choices if not empty else ():
                    size = int(rng.integers(2, 7))
                    row[:size] = rng.choice(EDGES, size, replace=False)
                new = [len(set(choices[: t + 1].ravel()) - {-1}) for t in range(rounds)]
                series = {
                    "regret": (place + 1) * rng.uniform(0.5, 1.0, rounds),
                    "true_energy": rng.normal(100.0, 10.0, rounds),
                    "distinct_edges": np.diff(new, prepend=0).astype(float),
                }
                audit = audit_of(rng, choices) if policy in audited else None
                trace = Trace(
                    policy=policy,
                    setting=setting,
                    setting_index=index,
                    seed=seed,
                    series=series,
                    choices=choices,
                    seconds=np.full(rounds, 1e-4, np.float32),
                    audit=audit,
                )
                write_trace(directory, trace)
    return Run.load(directory)


def audit_of(rng: np.random.Generator, choices: Any) -> dict[str, Any]:
    rounds = len(choices)
    sizes = (choices >= 0).sum(axis=1)
    within = np.full((rounds, 3), np.nan, dtype=np.float32)
    score = np.full(rounds, np.nan, dtype=np.float32)
    for t, size in enumerate(sizes):
        if size and t != 1:  # a round in which nothing came back
            away = np.abs(rng.standard_normal(size))
            within[t] = [(away <= limit).mean() for limit in QUANTILES]
            score[t] = rng.standard_normal()
    return {"within": within, "score": score, "std": rng.uniform(1, 2, EDGES).astype(np.float32)}


# --- numbers -----------------------------------------------------------------------------


def test_visits_and_routes_against_loops(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    counts = _roads.visits(run, "gp-ts", 0, run.seeds, EDGES)
    slow = [0] * EDGES
    for seed in run.seeds:
        for row in run.choices("gp-ts", 0, seed):
            for edge in row:
                if edge >= 0:
                    slow[edge] += 1
    assert counts.tolist() == slow
    last = run.choices("gp-ts", 0, 3)[-1]  # 12 rounds: the last tenth is one round
    assert _roads.usual_route(run, "gp-ts", 0, 3).tolist() == last[last >= 0].tolist()


def test_the_usual_route_is_the_most_frequent_and_of_several_the_latest(tmp_path: Path) -> None:
    run = make_run(tmp_path, ("only",), rounds=40, seeds=1)
    for rows, expected in (
        ([[1, 2], [1, 2], [3, -1], [4, -1]], [1, 2]),
        ([[1, 2], [3, -1], [1, 2], [3, -1]], [3]),
    ):
        choices = np.full((40, 2), -1, dtype=np.int32)
        choices[-4:] = rows
        series = {"regret": np.ones(40)}
        where = {"setting": {}, "setting_index": 0, "seed": 3}
        write_trace(tmp_path, Trace(policy="only", series=series, choices=choices, **where))
        assert _roads.usual_route(run, "only", 0, 3).tolist() == expected


def test_coverage_against_a_slow_loop(tmp_path: Path) -> None:
    run = make_run(tmp_path, settings=({"route": "x-a"}, {"route": "x-b"}))
    rows = {row.policy: row for row in _roads.calibrations(run)}
    assert list(rows) == list(SIX)  # nothing is forecast by baselines
    for policy, row in rows.items():
        for at, level in enumerate(LEVELS):
            inside = edges = squares = hits = trips = 0.0
            for index in range(2):
                for seed in run.seeds:
                    audit = run.audit(policy, index, seed)
                    assert audit is not None
                    for t in range(run.rounds):
                        if np.isnan(audit["score"][t]):
                            continue
                        size = sum(edge >= 0 for edge in run.choices(policy, index, seed)[t])
                        share = float(audit["within"][t, at])
                        inside, edges = inside + size * share, edges + size
                        squares += (size * (share - level)) ** 2
                        hits, trips = hits + (abs(audit["score"][t]) <= QUANTILES[at]), trips + 1
            assert row.edges[at].observed == pytest.approx(inside / edges)
            assert row.edges[at].stderr == pytest.approx(squares**0.5 / edges)
            assert row.edges[at].judged == edges
            assert row.trips[at].observed == pytest.approx(hits / trips)
            assert row.trips[at].stderr == pytest.approx((level * (1 - level) / trips) ** 0.5)


def test_right_intervals_are_called_right_and_narrow_ones_narrow() -> None:
    rng = np.random.default_rng(5)
    score = rng.standard_normal(4000)
    right = _roads.Calibration("right", *[_roads._trip_coverage(np.abs(score))] * 2)
    assert "cover what they should: 6 of 6" in _roads.calibration_verdict([right])
    narrow = _roads.Calibration("narrow", right.edges, _roads._trip_coverage(np.abs(1.5 * score)))
    wide = _roads.Calibration("wide", right.edges, _roads._trip_coverage(np.abs(0.5 * score)))
    told = _roads.calibration_verdict([right, narrow, wide])
    assert told.startswith("Not all")
    assert "narrow (trips) too narrow" in told
    assert "wide (trips) too wide" in told
    assert "right" not in told.partition("are off")[2]


def test_independent_edges_would_understate_the_error_of_correlated_ones() -> None:
    """Edges of a trip that fall inside or outside together: a trip is one observation."""
    inside = np.repeat([[1.0], [0.0]], [60, 40], axis=0) * np.ones(3)
    coverage = _roads._edge_coverage(inside, np.full(100, 7))[0]
    assert coverage.observed == pytest.approx(0.6)
    assert coverage.stderr == pytest.approx(0.5 / 10.0)


def test_energies_against_a_slow_loop(tmp_path: Path) -> None:
    run = make_run(tmp_path, rounds=25, seeds=3)
    assert _roads.reference_policy(run) == "fastest"
    rows = _roads.trip_energies(run, 0)
    assert [row.overall[0] for row in rows] == sorted(row.overall[0] for row in rows)
    series = {(t.policy, t.seed): t.series["true_energy"] for t in run.traces}
    for row in rows:
        each = [series[row.policy, seed] for seed in run.seeds]
        base = [series["fastest", seed] for seed in run.seeds]
        for pair, values in (
            (row.overall, [e.mean() for e in each]),
            (row.first, [e[:2].mean() for e in each]),
            (row.last, [e[-2:].mean() for e in each]),
            (row.against, [(e - b).mean() for e, b in zip(each, base, strict=True)]),
        ):
            stderr = np.std(values, ddof=1) / 3**0.5
            assert pair == pytest.approx((np.mean(values), stderr), abs=1e-9)


@pytest.mark.parametrize("arms", [2, 5895])
def test_widths_equal_the_schedules(tmp_path: Path, arms: int) -> None:
    run = make_run(tmp_path, tuple(OPTIONS), settings=({}, {"gp-bucb.omega": 1.5}))
    assert _roads.compares_schedules(run)
    rounds = np.array([1, 2, 10, 500])

    def gamma() -> float:
        raise AssertionError

    for policy, schedule in (
        ("gp-ucb", BayesianGPUCB(arms=arms)),
        ("gp-ucb-half", BayesianGPUCB(arms=arms, scale=0.5)),
        ("gp-bucb", BayesUCBQuantile(arms=arms)),
        ("gp-bucb-half", BayesUCBQuantile(arms=arms, xi=0.5)),
    ):
        found = _roads.schedule_of(run, policy, 0)
        assert found is not None
        expected = [schedule.width(int(t), gamma) ** 2 for t in rounds]
        np.testing.assert_allclose(found.beta(rounds, arms), expected, rtol=1e-9, atol=1e-12)
    swept = _roads.schedule_of(run, "gp-bucb", 1)
    assert swept is not None
    assert swept.omega == 1.5
    assert not _roads.compares_schedules(make_run(tmp_path / "b"))


def test_names_and_trips(tmp_path: Path) -> None:
    maps = (chain(), chain(), chain(goal=7))
    settings = tuple({"route": r, "l": v} for r, v in (("up-town-a", 1), ("up-town-a", 2), ("odd", 1)))
    run = make_run(tmp_path, ("gp-ts",), settings=settings, roads=maps)
    assert _roads.trip_settings(run) == [0, 2]
    assert [_roads.trip_name(run, index) for index in (0, 2)] == ["Up-Town A", "odd"]
    assert _roads.trip_name(make_run(tmp_path / "b", ("x",)), 0) == "tests/roads"
    assert metric_text("true_energy") == "true energy (Wh)"


def test_windows_hold_what_was_driven() -> None:
    roads = chain(400)
    driven = np.array([10, 50, 51])
    window = _roads.window_around(roads, driven)
    shown = _roads.in_window(roads, window)
    assert set(driven) | {roads.start, roads.goal} <= set(shown)
    assert len(shown) < 400
    assert 1 / 3 <= window.aspect <= 3
    assert _roads.middle(np.array([[0.0, 0.0], [0.0, 4.0], [2.0, 4.0]])) == (0.0, 3.0)
    assert _roads.middle(np.zeros((1, 2))) == (0.0, 0.0)


def test_rules_share_a_colour_and_posteriors_a_dash(tmp_path: Path) -> None:
    styles = policy_styles([*SIX, "svgp-ts", "prior", "fastest", "shortest", "gp-greedy"])
    for rule in ("ucb", "bucb", "ts"):
        assert styles[f"gp-{rule}"].colour == styles[f"bi-{rule}"].colour
        assert (styles[f"gp-{rule}"].dash, styles[f"bi-{rule}"].dash) == (0, 1)
    assert len({styles[f"gp-{rule}"].colour for rule in ("ucb", "bucb", "ts")}) == 3
    thin = [policy for policy, style in styles.items() if style.thin]
    assert thin == ["prior", "fastest", "shortest", "gp-greedy"]
    assert len(set(styles.values())) == len(styles)
    run = make_run(tmp_path, ("gp-ts", "prior"))
    top = run.cumulative("gp-ts")[:, -1]
    expected = 1.05 * (top.mean() + top.std(ddof=1) / 2**0.5)
    assert learners_height(run) == pytest.approx(expected)
    assert learners_height(make_run(tmp_path / "b", ("prior",))) is None


# --- figures -----------------------------------------------------------------------------


def texts(figure: Any) -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def gids(axes: Any) -> list[str]:
    return [each.get_gid() for each in axes.collections if each.get_gid()]


def test_maps_show_visits_uncertainty_and_ends(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = make_run(tmp_path)
    figure = plotting.plot_exploration(run, 0, ["gp-ts", "bi-ts", "prior"])
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    for policy in ("gp-ts", "bi-ts", "prior"):
        distinct = np.count_nonzero(_roads.visits(run, policy, 0, (3,), EDGES))
        assert f"{policy} · distinct edges: {distinct}" in titles
    assert "gp-ts · uncertainty at the end" in titles
    assert not any(title.startswith("prior · uncertainty") for title in titles)
    assert gids(figure.axes[0]) == ["start", "goal"]
    driven = max(figure.axes[0].collections, key=lambda each: each.get_zorder() == 3)
    counts = _roads.visits(run, "gp-ts", 0, (3,), EDGES)
    assert len(driven.get_segments()) == np.count_nonzero(counts)
    widths = np.asarray(driven.get_linewidths())
    assert (np.diff(widths) >= 0).all()  # the most driven last, on top, and widest
    figure.canvas.draw()
    with pytest.raises(InputError, match="not in this run"):
        plotting.plot_exploration(run, 0, ["nobody"])


def test_networks_show_every_trip_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    settings = tuple({"route": f"north-{letter}"} for letter in "ba")
    many = make_run(tmp_path / "a", ("gp-ts",), settings=settings, roads=(chain(goal=7), chain()))
    other = make_run(
        tmp_path / "b", ("prior",), settings=({"route": "coast-a"},), roads=(chain(seed=9),)
    )
    figure = plotting.plot_networks([many, other, many])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Coast", "North"]
    labels = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert labels == ["North A", "North B", "start", "goal"]
    assert gids(figure.axes[1]) == ["start", "goal"] * 2
    single = plotting.plot_network(many, 1)
    assert "route of gp-ts" in texts(single)
    bare = make_run(tmp_path / "c", ("gp-ts",))
    (bare.directory / "maps" / "s0.npz").unlink()
    with pytest.raises(InputError, match="no road map"):
        plotting.plot_network(bare)
    with pytest.raises(InputError, match="none of these runs"):
        plotting.plot_networks([bare])
    assert plotting.save_group_figures([bare], tmp_path / "figures") == {}


def test_methods_in_two_scales(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = make_run(tmp_path, (*SIX, "prior", "fastest", "shortest", "gp-greedy", "odd $name"))
    linear, logarithmic = plotting.plot_methods(run).axes
    assert (linear.get_yscale(), logarithmic.get_yscale()) == ("linear", "log")
    assert linear.get_ylim()[1] == pytest.approx(learners_height(run) or linear.get_ylim()[1])
    written = [text.get_text() for text in logarithmic.texts]
    for policy in run.policies:
        assert any(text.startswith(policy.replace("$", r"\$")) for text in written)
    thin = [line for line in logarithmic.lines if line.get_linewidth() == 1.1]
    assert len(thin) == 4
    assert any("dashed: independent edges" in text.get_text() for text in linear.texts)
    (panel,) = plotting.plot_trips([run]).axes
    assert [text.get_text() for text in panel.texts[1:]] == list(SIX)


def test_schedules_and_sweeps(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    settings = tuple({"route": f"x-{r}", "lengthscale": v} for r in "ab" for v in (0.5, 1.0))
    maps = (chain(), chain(), chain(goal=9), chain(goal=9))
    run = make_run(tmp_path, tuple(OPTIONS), settings=settings, roads=maps)
    figure = plotting.plot_schedules(run)
    assert len(figure.axes) == 12
    widths = figure.axes[2].lines
    schedule = _roads.schedule_of(run, "gp-bucb-half", 0)
    assert schedule is not None
    np.testing.assert_allclose(widths[3].get_ydata(), schedule.beta(np.arange(1, 13), EDGES))
    curves = plotting.plot_sweep_curves(run)
    assert len(curves.axes) == 2 * 4
    labels = [line.get_label() for line in curves.axes[0].lines]
    assert labels[:2] == ["0.5", "1"]
    totals = plotting.plot_sweep_totals(run).axes
    assert [axes.get_title(loc="left") for axes in totals] == ["X A", "X B"]
    expected = [run.cumulative("gp-ucb", index)[:, -1].mean() for index in (2, 3)]
    np.testing.assert_allclose(totals[1].lines[0].get_ydata(), expected)
    with pytest.raises(InputError, match="sweeps no number"):
        plotting.plot_sweep_curves(make_run(tmp_path / "b", ("gp-ts",)))
    with pytest.raises(InputError, match="no policy"):
        plotting.plot_schedules(make_run(tmp_path / "c", ("gp-ts",)))


def test_calibration_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = make_run(tmp_path)
    edges, trips = plotting.plot_calibration(run).axes
    assert [label.get_text() for label in edges.get_yticklabels()] == list(SIX)
    drawn = [line.get_xdata().tolist() for line in trips.lines if len(line.get_xdata()) == 3]
    rows = _roads.calibrations(run)
    assert drawn == [[level.observed for level in row.trips] for row in rows]
    with pytest.raises(InputError, match="no forecasts"):
        plotting.plot_calibration(make_run(tmp_path / "b", audited=()))


@pytest.mark.parametrize(
    ("policies", "options", "expected"),
    [
        (("only",), {"seeds": 1, "rounds": 1}, {"network", "exploration", "regret"}),
        (("gp-ts",), {"empty": True, "seeds": 1}, {"network", "exploration", "regret"}),
        (
            (*SIX, "prior", "We/ird <name>$"),
            {"rounds": 2},
            {"network", "exploration", "exploration-others", "calibration", "regret"},
        ),
        (
            tuple(OPTIONS),
            {"settings": ({"k": 1}, {"k": 2}), "audited": ()},
            {"betas", "sweep-k", "curves-k", "network-0", "regret-1"},
        ),
    ],
)
def test_every_figure_that_applies_is_saved(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policies: tuple[str, ...],
    options: dict[str, Any],
    expected: set[str],
) -> None:
    pytest.importorskip("matplotlib")
    run = make_run(tmp_path, policies, **options)
    made: dict[str, Any] = {}

    def keep(figure: Any, path: Path) -> tuple[Path, Path]:
        made[path.name] = figure
        return path.with_suffix(".png"), path.with_suffix(".svg")

    monkeypatch.setattr(files, "save_figure", keep)
    paths = plotting.save_run_figures(run, tmp_path / "figures")
    assert expected <= set(made)
    assert len(paths) == 2 * len(made)
    assert "calibration" in made or "calibration" not in expected
    made["exploration" if "exploration" in made else "exploration-0"].canvas.draw()


def test_group_figures_are_part_of_the_index(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = make_run(tmp_path / "a", ("gp-ts", "bi-ts"), rounds=3)
    pictures = plotting.save_group_figures([run], tmp_path / "figures")
    assert [path.name for path in pictures.values()] == ["networks.png", "methods.png"]
    assert all(path.with_suffix(".svg").exists() for path in pictures.values())
    report = reports.write_report(run, [], tmp_path / "a" / "report.html")
    page = reports.write_index([report], tmp_path / "index.html", pictures=pictures).read_text("utf-8")
    assert page.count('src="data:image/png;base64,') == 2
    assert 'alt="Networks with the routes' in page


# --- pages -------------------------------------------------------------------------------


def written(run: Run, directory: Path) -> str:
    return reports.write_report(run, [], directory / "report.html").path.read_text("utf-8")


def test_the_page_has_maps_energy_and_calibration(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    text = written(run, tmp_path)
    for row in _roads.trip_energies(run, 0):
        cells = (row.overall, row.against, row.first, row.last, row.edges)
        numbers = "".join(f'<td class="number">{plus_minus(*pair)}</td>' for pair in cells)
        assert f"{row.policy}</th>{numbers}" in text
    for calibration in _roads.calibrations(run):
        for level in (*calibration.edges, *calibration.trips):
            assert f"{100 * level.observed:.1f} ± {100 * level.stderr:.1f}" in text
    assert "true energy (Wh)" in text
    assert "true_energy" not in text.partition("<h2>Settings")[0]
    maps = text[text.index("Where they drove") : text.index("Did the forecasts hold?")]
    assert maps.count('id="roads-0"') == 1
    assert maps.count('<use href="#roads-0"/>') == 5  # eight policies: the six methods are shown
    for policy in SIX:
        distinct = np.count_nonzero(_roads.visits(run, policy, 0, (3,), EDGES))
        assert f"  distinct edges: {distinct}</tspan>" in maps
        assert f"Map of the roads that {policy} drove on: {distinct} different edges" in maps
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_pages_of_odd_runs(tmp_path: Path) -> None:
    evil = "<b onclick=x>&"
    odd = written(make_run(tmp_path / "a", (evil,), rounds=1, seeds=1, audited=(evil,)), tmp_path)
    assert evil not in odd
    empty = written(make_run(tmp_path / "b", ("gp-ts",), empty=True), tmp_path)
    assert "distinct edges: 0" in empty
    assert "Did the forecasts hold?" not in empty
    schedules = written(make_run(tmp_path / "c", tuple(OPTIONS)), tmp_path)
    assert f"β of Theorem 3.2 for {EDGES} edges." in schedules
    for text in (odd, empty, schedules):
        assert not re.search(r"\bnan\b|\binf\b", text)
    bare = make_run(tmp_path / "d", ("gp-ts",), audited=())
    (bare.directory / "maps" / "s0.npz").unlink()
    assert "Where they drove" not in written(bare, tmp_path)


def test_the_page_of_a_whole_city_is_small(tmp_path: Path) -> None:
    run = make_run(tmp_path, roads=(chain(6000),))
    assert len(written(run, tmp_path)) < 400_000


def test_a_ceiling_cuts_curves_where_they_leave() -> None:
    low = Line(label="low", x=[0, 10], y=[0.0, 10.0])
    high = Line(label="high", x=[0.0, 10.0], y=[0.0, 40.0])
    whole = svg_lines([low, high], description="d")
    cut = svg_lines([low, high], description="d", ceiling=20.0)
    assert whole != cut
    assert ">40<" in whole
    assert ">40<" not in cut
    ends = re.findall(r'd="M[\d.]+ [\d.]+L([\d.]+) ([\d.]+)" fill="none" style', cut)
    x_low, x_high = (float(x) for x, _ in ends[:2])
    start = float(re.findall(r'd="M([\d.]+) [\d.]+L', cut)[0])
    assert x_high - start == pytest.approx((x_low - start) / 2.0, abs=0.2)
