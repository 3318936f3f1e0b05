"""Runs on roads: numbers against slow loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from superarm.core.road_map import RoadMap
from superarm.lab.results import calibration, maps
from superarm.lab.results import roads as road_results
from superarm.lab.results.styles import policy_styles
from superarm.lab.simulation.audit import LEVELS, QUANTILES
from superarm.lab.simulation.run import Run
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import Trace, write_trace

MakeRun = Callable[..., Run]
MakeMap = Callable[..., RoadMap]
SIX = road_results.METHODS
SCHEDULES = ("gp-ucb", "gp-ucb-half", "gp-bucb", "gp-bucb-half")
EDGES = 30  # of every map that is not given


def test_visits_and_routes_match_plain_loops(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for seed in run.seeds:
        slow = [0] * EDGES
        for row in run.choices("gp-ts", 0, seed):
            for edge in row:
                if edge >= 0:
                    slow[edge] += 1
        assert road_results.visits(run, "gp-ts", 0, seed, EDGES).tolist() == slow
    last = run.choices("gp-ts", 0, 3)[-1]  # 12 rounds: the last tenth is one round
    assert (
        road_results.usual_route(run, "gp-ts", 0, 3).tolist()
        == last[last >= 0].tolist()
    )


def test_the_usual_route_is_the_most_frequent_of_several_the_latest(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(tmp_path, ("only",), rounds=40, seeds=1)
    for rows, expected in (
        ([[1, 2], [1, 2], [3, -1], [4, -1]], [1, 2]),
        ([[1, 2], [3, -1], [1, 2], [3, -1]], [3]),
    ):
        choices = np.full((40, 2), -1, dtype=np.int32)
        choices[-4:] = rows
        series = {"regret": np.ones(40)}
        where = {"setting_index": 0, "seed": 3}
        write_trace(
            tmp_path, Trace(policy="only", series=series, choices=choices, **where)
        )
        assert road_results.usual_route(run, "only", 0, 3).tolist() == expected


Group = list[tuple[float, list[float]]]
"""Rounds: how many arms or choices each has, and which share of them is inside, by level."""


def slow_design_effect(groups: dict[Any, Group]) -> float:
    effects = [1.0]
    sizes = [sum(size for size, _ in rows) for rows in groups.values()]
    count = sum(sizes)
    for index in range(len(LEVELS)):
        inside = sum(
            size * shares[index] for rows in groups.values() for size, shares in rows
        )
        share = inside / count
        # Each is 1 or 0: Σ (x − c)² over all of them is m c (1 − c).
        squares = count * share * (1.0 - share)
        sums = [
            sum(size * (shares[index] - share) for size, shares in rows)
            for rows in groups.values()
        ]
        if squares:
            among = len(groups) / (len(groups) - 1.0)
            effects.append(among * sum(total**2 for total in sums) / squares)
    together = sum(size**2 for size in sizes) / count
    return min(max(effects), together) if together > 1.0 else 1.0


@pytest.mark.slow
def test_coverage_matches_a_slow_loop(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path, settings=({"route": "x-a"}, {"route": "x-b"}))
    rows = calibration.calibrations(run)
    assert list(rows) == list(SIX)  # nothing is forecast by baselines
    for policy, row in rows.items():
        kinds: dict[str, dict[Any, Group]] = {kind: {} for kind in row}
        for index, seed, t in itertools.product(range(2), run.seeds, range(run.rounds)):
            audit = run.audit(policy, index, seed)
            assert audit is not None
            if np.isnan(audit["score"][t]):
                continue
            size = float(sum(edge >= 0 for edge in run.choices(policy, index, seed)[t]))
            hits = [float(abs(audit["score"][t]) <= quantile) for quantile in QUANTILES]
            truths = [
                float(abs(audit["true_score"][t]) <= quantile) for quantile in QUANTILES
            ]
            for kind, group, coverage in (
                ("edges", (seed, t), (size, audit["within"][t].tolist())),
                (
                    "first visits",
                    (seed, t),
                    (float(audit["firsts"][t]), audit["first"][t].tolist()),
                ),
                ("trips", (seed, t), (1.0, hits)),
                ("truth of edges", seed, (size, audit["true_within"][t].tolist())),
                ("truth of trips", seed, (1.0, truths)),
            ):
                if coverage[0]:
                    kinds[kind].setdefault(group, []).append(coverage)
        for kind, groups in kinds.items():
            every = [pair for pairs in groups.values() for pair in pairs]
            count = sum(size for size, _ in every)
            design = slow_design_effect(groups)
            for position, level in enumerate(LEVELS):
                share = row[kind][position]
                assert share.observed == pytest.approx(
                    sum(n * shares[position] for n, shares in every) / count
                )
                assert share.judged == count
                assert share.effective == pytest.approx(count / design)
                assert share.stderr == pytest.approx(
                    (level * (1.0 - level) * design / count) ** 0.5
                )
                assert share.seeds == (
                    len(run.seeds) if kind in calibration.ON_ROADS.true else 0
                )
                assert share.groups == len(groups)


def test_energies_match_a_slow_loop(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path, rounds=25, seeds=3)
    rows = road_results.trip_energies(run, 0)
    overall = [row["energy per trip (Wh)"].mean for row in rows.values()]
    assert overall == sorted(overall)
    series = {
        policy: np.diff(run.cumulative(policy, 0, "true_energy"), prepend=0.0)
        for policy in run.policies
    }
    for policy, row in rows.items():
        own, base = series[policy], series["fastest"]
        expected = {
            "energy per trip (Wh)": [e.mean() for e in own],
            "difference from fastest": [
                (e - b).mean() for e, b in zip(own, base, strict=True)
            ],
            "first 2 rounds": [e[:2].mean() for e in own],
            "last 2 rounds": [e[-2:].mean() for e in own],
        }
        assert list(row) == list(expected)
        for title, values in expected.items():
            stderr = np.std(values, ddof=1) / 3**0.5
            assert row[title] == pytest.approx((np.mean(values), stderr), abs=1e-9)


@pytest.mark.parametrize("arms", [2, 5895])
def test_widths_in_plain_arithmetic(
    make_run: MakeRun, tmp_path: Path, arms: int
) -> None:
    run = make_run(tmp_path, SCHEDULES, settings=({}, {"gp-bucb.omega": 1.5}))
    assert road_results.compares_schedules(run)
    rounds = np.array([1, 2, 10, 500])

    def beta(policy: str, setting: int) -> list[float]:
        schedule = road_results.schedule_of(run, policy, setting, arms)
        assert schedule is not None
        return [schedule.width(int(t), lambda count: 0.0) ** 2 for t in rounds]

    for policy, scale in (("gp-ucb", 1.0), ("gp-ucb-half", 0.5)):
        expected = [
            2.0 * scale * math.log(arms * t**2 / math.sqrt(2.0 * math.pi))
            for t in rounds
        ]
        np.testing.assert_allclose(
            beta(policy, 0), np.maximum(expected, 0.0), atol=1e-12
        )
    for policy, setting, omega, xi in (
        ("gp-bucb", 0, 1.0, 1.0),
        ("gp-bucb-half", 0, 1.0, 0.5),
        ("gp-bucb", 1, 1.5, 1.0),
    ):
        tails = [
            math.sqrt(2.0 * math.pi) ** omega / (2.0 * arms**omega * t**xi)
            for t in rounds
        ]
        expected = [
            NormalDist().inv_cdf(tail) ** 2 if tail < 0.5 else 0.0 for tail in tails
        ]
        np.testing.assert_allclose(beta(policy, setting), expected, rtol=1e-9)
    assert not road_results.compares_schedules(make_run(tmp_path / "b"))


def test_names_and_trips(make_run: MakeRun, chain: MakeMap, tmp_path: Path) -> None:
    roads = (chain(), chain(), chain(goal=7))
    settings = tuple(
        {"route": r, "l": v}
        for r, v in (("up-town-a", 1), ("up-town-a", 2), ("odd", 1))
    )
    run = make_run(tmp_path, ("gp-ts",), settings=settings, roads=roads)
    assert road_results.trip_settings(run) == [0, 2]
    assert [road_results.trip_name(run, index) for index in (0, 2)] == [
        "Up-Town A",
        "odd",
    ]
    assert road_results.trip_name(make_run(tmp_path / "b", ("x",)), 0) == "tests/roads"


def test_windows_contain_the_driven_routes(chain: MakeMap) -> None:
    roads = chain(400)
    driven = np.array([10, 50, 51])
    window = maps.window_around(roads, driven)
    shown = maps.in_window(roads, window)
    assert set(driven) | {roads.start, roads.goal} <= set(shown)
    assert len(shown) < 400
    assert 1 / 3 <= window.aspect <= 3
    assert maps.middle(np.array([[0.0, 0.0], [0.0, 4.0], [2.0, 4.0]])) == (0.0, 3.0)
    assert maps.middle(np.zeros((1, 2))) == (0.0, 0.0)


def test_policies_of_one_run_differ_in_colour() -> None:
    learners = [
        f"{family}-{rule}"
        for family in ("gp", "bi", "svgp")
        for rule in ("ucb", "bucb", "ts")
    ]
    styles = policy_styles([*learners, "prior", "fastest", "shortest"])
    assert len({style.colour for style in styles.values()}) == len(styles)
    assert [styles[policy].dash for policy in learners] == [0] * 3 + [1] * 3 + [2] * 3
    thin = [policy for policy, style in styles.items() if style.thin]
    assert thin == ["prior", "fastest", "shortest"]
    schedules = policy_styles(SCHEDULES)
    assert len({style.colour for style in schedules.values()}) == 4


def test_the_best_policy_is_that_of_the_last_tenth(tmp_path: Path) -> None:
    spec = {
        "experiment": "x",
        "rounds": 20,
        "first_seed": 0,
        "seeds": 1,
        "settings": [{}],
    }
    write_spec(tmp_path, {**spec, "policies": ["early", "late"]})
    for name, first, last in (("early", 0.0, 5.0), ("late", 9.0, 0.0)):
        regret = np.concatenate([np.full(18, first), np.full(2, last)])
        write_trace(
            tmp_path,
            Trace(policy=name, setting_index=0, seed=0, series={"regret": regret}),
        )
    assert road_results.best_policy(Run.load(tmp_path), 0) == "late"
