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
from scipy import stats

from superarm.networks import RoadMap
from superarm.results import calibration, maps
from superarm.results import roads as road_results
from superarm.results.calibration import _shares, _within
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


Group = list[tuple[float, list[float]]]
"""Rounds: how many arms or choices each has, and which share of them is inside, by level."""


def slow_design_effect(groups: dict[Any, Group]) -> float:
    found = [1.0]
    sizes = [sum(size for size, _ in rows) for rows in groups.values()]
    count = sum(sizes)
    for at in range(len(LEVELS)):
        inside = sum(size * shares[at] for rows in groups.values() for size, shares in rows)
        share = inside / count
        # Each is 1 or 0: Σ (x − c)² over all of them is m c (1 − c).
        squares = count * share * (1.0 - share)
        sums = [sum(size * (shares[at] - share) for size, shares in rows) for rows in groups.values()]
        if squares:
            among = len(groups) / (len(groups) - 1.0)
            found.append(among * sum(each**2 for each in sums) / squares)
    together = sum(size**2 for size in sizes) / count
    return min(max(found), together) if together > 1.0 else 1.0


def test_coverage_against_a_slow_loop(make_run: MakeRun, tmp_path: Path) -> None:
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
            truths = [float(abs(audit["true_score"][t]) <= quantile) for quantile in QUANTILES]
            for kind, group, found in (
                ("edges", (seed, t), (size, audit["within"][t].tolist())),
                ("first visits", (seed, t), (float(audit["firsts"][t]), audit["first"][t].tolist())),
                ("trips", (seed, t), (1.0, hits)),
                ("truth of edges", seed, (size, audit["true_within"][t].tolist())),
                ("truth of trips", seed, (1.0, truths)),
            ):
                if found[0]:
                    kinds[kind].setdefault(group, []).append(found)
        for kind, groups in kinds.items():
            every = [pair for pairs in groups.values() for pair in pairs]
            count = sum(size for size, _ in every)
            design = slow_design_effect(groups)
            for at, level in enumerate(LEVELS):
                share = row[kind][at]
                assert share.observed == pytest.approx(sum(n * each[at] for n, each in every) / count)
                assert share.judged == count
                assert share.effective == pytest.approx(count / design)
                assert share.stderr == pytest.approx((level * (1.0 - level) * design / count) ** 0.5)
                assert share.seeds == (len(run.seeds) if kind in calibration.ON_ROADS.true else 0)
                assert share.groups == len(groups)


def test_tails_are_those_of_the_binomial_and_of_students_t() -> None:
    for level, inside, count in ((0.95, 20, 20), (0.9, 12, 20), (0.5, 3, 20), (0.95, 0, 20)):
        share = calibration.Coverage(level, inside / count, count, count)
        above = inside / count >= level
        tail = (
            stats.binom.sf(inside - 1, count, level) if above else stats.binom.cdf(inside, count, level)
        )
        errors = max(0.0, stats.norm.isf(tail))
        assert abs(share.away) == pytest.approx(errors, rel=1e-9)
        assert share.away == 0.0 or (share.away > 0.0) == above
        few = share._replace(groups=4)
        assert abs(few.away) == pytest.approx(stats.norm.isf(stats.t.sf(errors, 3)), rel=1e-6, abs=1e-9)


def test_five_seeds_that_hold_all_say_little() -> None:
    """At 95 %, five independent looks are all inside in 77 % of cases; 300 trips are as many looks only
    where their truths do not go together."""
    seeds, scores = np.repeat(np.arange(5), 60), np.zeros(300)
    levels = _shares(_within(scores), np.ones(300), seeds, of_seeds=True)
    assert [level.effective for level in levels] == [5.0] * 3
    assert abs(levels[-1].away) < 0.01
    # Whole seeds inside or outside 50 %, and all inside 95 %: five looks all the same.
    scores[seeds < 2] = 1.0
    assert _shares(_within(scores), np.ones(300), seeds, of_seeds=True)[-1].effective == 5.0
    # Where trips of one seed are as different as those of several, there are many.
    scores[:] = np.where(np.arange(300) % 2, 1.0, 0.0)
    many = _shares(_within(scores), np.ones(300), seeds, of_seeds=True)[-1]
    assert many.effective == 300.0
    assert many.away > 2.0


def test_right_intervals_are_called_right_and_narrow_ones_narrow() -> None:
    rng = np.random.default_rng(5)
    score = rng.standard_normal(4000)

    def trips(factor: float) -> tuple[calibration.Coverage, ...]:
        return _shares(_within(factor * score), np.ones(4000), np.arange(4000))

    right = dict.fromkeys(calibration.ON_ROADS.measured, trips(1.0))
    right |= dict.fromkeys(calibration.ON_ROADS.true, ())  # nobody knows it
    assert "cover what they should: 9 of 9" in calibration.calibration_verdict({"right": right})
    found = {"right": right, "narrow": {**right, "trips": trips(1.5)}}
    told = calibration.calibration_verdict({**found, "wide": {**right, "trips": trips(0.5)}})
    assert told.startswith("Not all")
    assert "narrow (trips) too narrow" in told
    assert "wide (trips) too wide" in told
    assert "right" not in told.partition("Further away: ")[2]


def test_independent_edges_would_understate_the_error_of_correlated_ones() -> None:
    """Edges of a trip that fall inside or outside together: a trip is one observation."""
    inside = np.repeat([[1.0], [0.0]], [60, 40], axis=0) * np.ones(3)
    coverage = _shares(inside, np.full(100, 7.0), np.arange(100))[0]
    assert coverage.observed == pytest.approx(0.6)
    assert coverage.stderr == pytest.approx(0.5 / 10.0)


def test_a_sweep_of_settings_that_change_nothing_is_as_sure_as_one_setting() -> None:
    """Equal settings meet the same noise: four of them say nothing that one does not."""
    rng = np.random.default_rng(6)
    score, sizes, rounds = rng.standard_normal(300), rng.integers(1, 5, 300) * 1.0, np.arange(300)
    inside = (np.abs(score)[:, None] <= QUANTILES) * 1.0
    one, four = (
        _shares(np.tile(inside, (times, 1)), np.tile(sizes, times), np.tile(rounds, times))
        for times in (1, 4)
    )
    assert [each.stderr for each in four] == pytest.approx([each.stderr for each in one])
    lone = _shares(inside, np.ones(300), rounds)
    binomial = np.sqrt(np.array(LEVELS) * (1 - np.array(LEVELS)) / 300)
    assert [each.stderr for each in lone] == pytest.approx(binomial, rel=1e-12)
    trips = _shares(np.tile(inside, (4, 1)), np.ones(1200), np.tile(rounds, 4))
    assert [each.stderr for each in trips] == pytest.approx(binomial, rel=1e-12)


def test_one_seed_is_not_judged_by_the_truth() -> None:
    other = dict.fromkeys((*calibration.ON_ROADS.measured, *calibration.ON_ROADS.true), ())
    alone = (calibration.Coverage(0.95, 0.4, 500, 1.0, 1, seeds=1),)
    assert np.isnan(alone[0].away)
    told = calibration.calibration_verdict({"mine": {**other, "truth of edges": alone}})
    assert "0 of 0 shares" in told


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


def _share(inside: int) -> tuple[calibration.Coverage, ...]:
    """So many of 10,000 inside 50 %: the standard error is 0.5 %, that of 50 of them."""
    return (calibration.Coverage(0.5, inside / 10_000, 10_000, 10_000),)


def test_all_shares_are_judged_at_once() -> None:
    """Of three shares, chance takes the farthest up to 2.39 errors away: P(|z| > 2.39) = 5 %/3."""
    assert calibration.chance_limit(3) == pytest.approx(stats.norm.isf(0.05 / 6), rel=1e-9)
    shares: dict[str, Any] = dict.fromkeys(calibration.ON_ROADS.true, ())
    shares |= {"edges": _share(5050), "first visits": _share(5110), "trips": _share(4881)}
    told = calibration.calibration_verdict({"p": shares})
    assert "should: 1 of 3 shares" in told
    shares["trips"] = _share(4878)
    told = calibration.calibration_verdict({"p": shares}).partition("Further away: ")[2]
    assert told.startswith("p (trips) too narrow: 48.8 % inside the 50 % interval")
    # The same share is nothing to speak of among many others.
    many = {f"q-{number}": {"trips": _share(5000)} for number in range(30)}
    assert calibration.calibration_verdict({"p": shares, **many}).startswith("The intervals cover")


def test_forecasts_that_are_surely_and_far_too_narrow_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trips(share: float, effective: float = 400.0) -> dict[str, Any]:
        return {"trips": (calibration.Coverage(0.95, share, 400, effective),)}

    cases = {
        "narrow": trips(0.80),
        "near": trips(0.89),
        "sure": trips(0.91),  # sure, but not far
        "unsure": trips(0.80, 10.0),
        "wide": trips(1.0),
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
