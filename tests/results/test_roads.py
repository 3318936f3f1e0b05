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

from superarm.networks import RoadMap
from superarm.results import calibration, maps
from superarm.results import roads as road_results
from superarm.results.calibration import _arm_coverage, _choice_coverage
from superarm.results.curves import policy_styles
from superarm.simulation.audit import LEVELS, QUANTILES
from superarm.simulation.trace import Run, Trace, write_spec, write_trace

MakeRun = Callable[..., Run]
MakeMap = Callable[..., RoadMap]
SIX = road_results.METHODS
SCHEDULES = ("gp-ucb", "gp-ucb-half", "gp-bucb", "gp-bucb-half")
EDGES = 30  # of every map that is not given


def test_visits_and_routes_against_loops(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for seed in run.seeds:
        slow = [0] * EDGES
        for row in run.choices("gp-ts", 0, seed):
            for edge in row:
                if edge >= 0:
                    slow[edge] += 1
        assert road_results.visits(run, "gp-ts", 0, seed, EDGES).tolist() == slow
    last = run.choices("gp-ts", 0, 3)[-1]  # 12 rounds: the last tenth is one round
    assert road_results.usual_route(run, "gp-ts", 0, 3).tolist() == last[last >= 0].tolist()


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
        write_trace(tmp_path, Trace(policy="only", series=series, choices=choices, **where))
        assert road_results.usual_route(run, "only", 0, 3).tolist() == expected


def test_coverage_against_a_slow_loop(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path, settings=({"route": "x-a"}, {"route": "x-b"}))
    rows = calibration.calibrations(run)
    assert list(rows) == list(SIX)  # nothing is forecast by baselines
    for policy, row in rows.items():
        for at, level in enumerate(LEVELS):
            inside = edges = hits = trips = alone = fresh = firsts = 0.0
            away, hit = (dict.fromkeys(itertools.product(run.seeds, range(12)), 0.0) for _ in range(2))
            true: dict[int, list[tuple[float, float]]] = {seed: [] for seed in run.seeds}
            for index in range(2):
                for seed in run.seeds:
                    audit = run.audit(policy, index, seed)
                    assert audit is not None
                    own = np.zeros(4)
                    for t in range(run.rounds):
                        if np.isnan(audit["score"][t]):
                            continue
                        size = sum(edge >= 0 for edge in run.choices(policy, index, seed)[t])
                        share = float(audit["within"][t, at])
                        inside, edges = inside + size * share, edges + size
                        away[seed, t] += size * (share - level)
                        within = float(abs(audit["score"][t]) <= QUANTILES[at])
                        hits, trips = hits + within, trips + 1
                        hit[seed, t] += within - level
                        alone += (within - level) ** 2
                        if audit["firsts"][t]:
                            fresh += float(audit["firsts"][t]) * float(audit["first"][t, at])
                            firsts += float(audit["firsts"][t])
                        sure = abs(audit["true_score"][t]) <= QUANTILES[at]
                        own += [size * float(audit["true_within"][t, at]), size, sure, 1]
                    true[seed].append((own[0] / own[1], own[2] / own[3]))
            squares, shared = (sum(each**2 for each in sums.values()) for sums in (away, hit))
            variance = level * (1 - level) * trips + max(0.0, shared - alone)
            assert row["edges"][at].observed == pytest.approx(inside / edges)
            assert row["edges"][at].stderr == pytest.approx(squares**0.5 / edges)
            assert row["edges"][at].judged == edges
            assert row["trips"][at].observed == pytest.approx(hits / trips)
            assert row["trips"][at].stderr == pytest.approx(variance**0.5 / trips)
            assert row["first visits"][at].observed == pytest.approx(fresh / firsts)
            means = np.array([np.mean(pairs, axis=0) for pairs in true.values()])
            for what, shares in zip(calibration.ON_ROADS.true, means.T, strict=True):
                assert row[what][at].seeds == len(run.seeds)
                assert row[what][at].observed == pytest.approx(shares.mean())
                assert row[what][at].stderr == pytest.approx(shares.std(ddof=1) / len(shares) ** 0.5)


def test_right_intervals_are_called_right_and_narrow_ones_narrow() -> None:
    rng = np.random.default_rng(5)
    score = rng.standard_normal(4000)
    trips = np.arange(4000)
    right = dict.fromkeys(calibration.ON_ROADS.measured, _choice_coverage(score, trips))
    right |= dict.fromkeys(calibration.ON_ROADS.true, ())  # nobody knows it
    assert "cover what they should: 9 of 9" in calibration.calibration_verdict({"right": right})
    narrow = {**right, "trips": _choice_coverage(1.5 * score, trips)}
    wide = {**right, "trips": _choice_coverage(0.5 * score, trips)}
    told = calibration.calibration_verdict({"right": right, "narrow": narrow, "wide": wide})
    assert told.startswith("Not all")
    assert "narrow (trips) too narrow" in told
    assert "wide (trips) too wide" in told
    assert "right" not in told.partition("Outside three standard errors: ")[2]


def test_independent_edges_would_understate_the_error_of_correlated_ones() -> None:
    """Edges of a trip that fall inside or outside together: a trip is one observation."""
    inside = np.repeat([[1.0], [0.0]], [60, 40], axis=0) * np.ones(3)
    coverage = _arm_coverage(inside, np.full(100, 7), np.arange(100))[0]
    assert coverage.observed == pytest.approx(0.6)
    assert coverage.stderr == pytest.approx(0.5 / 10.0)


def test_a_sweep_of_settings_that_change_nothing_is_as_sure_as_one_setting() -> None:
    """Equal settings meet the same noise: four of them say nothing that one does not."""
    rng = np.random.default_rng(6)
    score, sizes, rounds = rng.standard_normal(300), rng.integers(1, 5, 300), np.arange(300)
    inside = (np.abs(score)[:, None] <= QUANTILES) * 1.0
    one, four = (
        _arm_coverage(np.tile(inside, (times, 1)), np.tile(sizes, times), np.tile(rounds, times))
        for times in (1, 4)
    )
    assert [each.stderr for each in four] == pytest.approx([each.stderr for each in one])
    lone = _choice_coverage(score, rounds)
    binomial = np.sqrt(np.array(LEVELS) * (1 - np.array(LEVELS)) / 300)
    assert [each.stderr for each in lone] == binomial.tolist()
    trips = _choice_coverage(np.tile(score, 4), np.tile(rounds, 4))
    assert [each.stderr for each in trips] == pytest.approx(binomial, rel=0.1)


def test_the_verdict_minds_the_truth_as_surely_as_its_seeds_allow() -> None:
    """P(|t| > 19.2 | two degrees) = P(|z| > 3); one seed says nothing, and equal ones say all."""

    def told(observed: float, stderr: float, seeds: int) -> str:
        other = dict.fromkeys((*calibration.ON_ROADS.measured, *calibration.ON_ROADS.true), ())
        coverage = (calibration.Coverage(0.95, observed, stderr, 500, seeds),)
        return calibration.calibration_verdict({"mine": {**other, "truth of edges": coverage}})

    for observed, stderr, seeds in ((0.0, 0.0, 3), (0.94 - 0.19, 0.01, 3), (0.95 - 0.05, 0.01, 30)):
        found = told(observed, stderr, seeds)
        assert "mine (truth of edges) too narrow" in found, found
    assert told(1.0, 0.0, 2).count("too wide") == 1
    for observed, stderr, seeds in ((0.95 - 0.19, 0.01, 3), (0.95, 0.0, 3), (0.95 - 0.05, 0.01, 5)):
        assert told(observed, stderr, seeds).startswith("The intervals cover")
    assert "0 of 0 shares" in told(0.4, 0.0, 1)
    three = calibration.Coverage(0.5, 0.5 + 19.2064 * 0.01, 0.01, 500, 3)
    assert three.away == pytest.approx(3.0, abs=1e-3)


def test_energies_against_a_slow_loop(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path, rounds=25, seeds=3)
    rows = road_results.trip_energies(run, 0)
    overall = [row["energy per trip (Wh)"].mean for row in rows.values()]
    assert overall == sorted(overall)
    series = {
        policy: np.diff(run.cumulative(policy, 0, "true_energy"), prepend=0.0)
        for policy in run.policies
    }
    for policy, row in rows.items():
        each, base = series[policy], series["fastest"]
        expected = {
            "energy per trip (Wh)": [e.mean() for e in each],
            "difference from fastest": [(e - b).mean() for e, b in zip(each, base, strict=True)],
            "first 2 rounds": [e[:2].mean() for e in each],
            "last 2 rounds": [e[-2:].mean() for e in each],
        }
        assert list(row) == list(expected)
        for title, values in expected.items():
            stderr = np.std(values, ddof=1) / 3**0.5
            assert row[title] == pytest.approx((np.mean(values), stderr), abs=1e-9)


@pytest.mark.parametrize("arms", [2, 5895])
def test_widths_in_plain_arithmetic(make_run: MakeRun, tmp_path: Path, arms: int) -> None:
    run = make_run(tmp_path, SCHEDULES, settings=({}, {"gp-bucb.omega": 1.5}))
    assert road_results.compares_schedules(run)
    rounds = np.array([1, 2, 10, 500])

    def beta(policy: str, setting: int) -> list[float]:
        found = road_results.schedule_of(run, policy, setting, arms)
        assert found is not None
        return [found.width(int(t), lambda count: 0.0) ** 2 for t in rounds]

    for policy, scale in (("gp-ucb", 1.0), ("gp-ucb-half", 0.5)):
        expected = [2.0 * scale * math.log(arms * t**2 / math.sqrt(2.0 * math.pi)) for t in rounds]
        np.testing.assert_allclose(beta(policy, 0), np.maximum(expected, 0.0), atol=1e-12)
    for policy, setting, omega, xi in (
        ("gp-bucb", 0, 1.0, 1.0),
        ("gp-bucb-half", 0, 1.0, 0.5),
        ("gp-bucb", 1, 1.5, 1.0),
    ):
        tails = [math.sqrt(2.0 * math.pi) ** omega / (2.0 * arms**omega * t**xi) for t in rounds]
        expected = [NormalDist().inv_cdf(tail) ** 2 if tail < 0.5 else 0.0 for tail in tails]
        np.testing.assert_allclose(beta(policy, setting), expected, rtol=1e-9)
    assert not road_results.compares_schedules(make_run(tmp_path / "b"))


def test_names_and_trips(make_run: MakeRun, chain: MakeMap, tmp_path: Path) -> None:
    roads = (chain(), chain(), chain(goal=7))
    settings = tuple({"route": r, "l": v} for r, v in (("up-town-a", 1), ("up-town-a", 2), ("odd", 1)))
    run = make_run(tmp_path, ("gp-ts",), settings=settings, roads=roads)
    assert road_results.trip_settings(run) == [0, 2]
    assert [road_results.trip_name(run, index) for index in (0, 2)] == ["Up-Town A", "odd"]
    assert road_results.trip_name(make_run(tmp_path / "b", ("x",)), 0) == "tests/roads"


def test_windows_hold_what_was_driven(chain: MakeMap) -> None:
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
    learners = [f"{family}-{rule}" for family in ("gp", "bi", "svgp") for rule in ("ucb", "bucb", "ts")]
    styles = policy_styles([*learners, "prior", "fastest", "shortest"])
    assert len({style.colour for style in styles.values()}) == len(styles)
    assert [styles[policy].dash for policy in learners] == [0] * 3 + [1] * 3 + [2] * 3
    thin = [policy for policy, style in styles.items() if style.thin]
    assert thin == ["prior", "fastest", "shortest"]
    schedules = policy_styles(SCHEDULES)
    assert len({style.colour for style in schedules.values()}) == 4


def _share(away: float) -> tuple[calibration.Coverage, ...]:
    """A share that lies so many standard errors from its level of one half."""
    return (calibration.Coverage(0.5, 0.5 + 0.01 * away, 0.01, 100),)


def test_two_standard_errors_are_counted_and_three_are_told() -> None:
    shares: dict[str, Any] = dict.fromkeys(calibration.ON_ROADS.true, ())
    shares |= {"edges": _share(1.9), "first visits": _share(2.4), "trips": _share(-2.9)}
    found = {"p": shares}
    told = calibration.calibration_verdict(found)
    assert "should: 1 of 3 shares" in told
    assert "and 3 within three" in told
    found["p"]["trips"] = _share(-3.1)
    told = calibration.calibration_verdict(found).partition("Outside three standard errors: ")[2]
    assert told.startswith("p (trips) too narrow: 46.9 % inside the 50 % interval")


def test_forecasts_that_are_surely_and_far_too_narrow_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trips(share: float, stderr: float) -> dict[str, Any]:
        return {"trips": (calibration.Coverage(0.95, share, stderr, 400),)}

    cases = {
        "narrow": trips(0.80, 0.01),
        "near": trips(0.895, 0.01),
        "sure": trips(0.91, 0.01),  # sure, but not far
        "unsure": trips(0.80, 0.06),
        "wide": trips(1.0, 0.01),
    }
    monkeypatch.setattr(calibration, "calibrations", lambda run: cases)
    monkeypatch.setattr(calibration, "words_of", lambda run: calibration.ON_ROADS)
    lines = calibration.forecast_warnings(None)  # type: ignore[arg-type]
    assert [line.split()[2] for line in lines] == ["narrow", "near"]
    assert "80 % of 400 trips fell inside the 95 % interval; do not rely on them" in lines[0]


def test_the_best_policy_is_that_of_the_last_tenth(tmp_path: Path) -> None:
    spec = {"experiment": "x", "rounds": 20, "first_seed": 0, "seeds": 1, "settings": [{}]}
    write_spec(tmp_path, {**spec, "policies": ["early", "late"]})
    for name, first, last in (("early", 0.0, 5.0), ("late", 9.0, 0.0)):
        regret = np.concatenate([np.full(18, first), np.full(2, last)])
        write_trace(tmp_path, Trace(policy=name, setting_index=0, seed=0, series={"regret": regret}))
    assert road_results.best_policy(Run.load(tmp_path), 0) == "late"
