"""Calibration of forecasts, for a problem whose arms are not roads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from superarm.core import AT_95, Floats, Offer
from superarm.core.capabilities import AdditiveProblem
from superarm.lab import report as reports
from superarm.lab.problems import DriftingFunction
from superarm.lab.results import calibration
from superarm.lab.results.calibration import _shares, _within
from superarm.lab.results.styles import policy_styles
from superarm.lab.simulation import Run, Trace, simulate, write_trace
from superarm.lab.simulation.audit import LEVELS, QUANTILES, audit_shapes
from superarm.lab.simulation.run_spec import write_spec
from superarm.policies import tv_gp_ucb

POLICIES = ["tv-gp-ucb", "static"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited(DriftingFunction, AdditiveProblem):
    """A drifting function; forecasts of three chosen arms are recorded."""

    @property
    def distinct(self) -> str:
        return "distinct_arms"

    def truth(self, offer: Offer) -> Floats:
        return self.means(offer)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("audited")
    spec = {
        "experiment": "x",
        "rounds": 150,
        "first_seed": 0,
        "seeds": 3,
        "settings": [{}],
    }
    write_spec(out, {**spec, "policies": POLICIES, "audited": POLICIES})
    for seed in range(3):
        world = Audited(seed=seed, horizon=150, dimension=1, side=15, epsilon=0.1, k=3)
        policies = {
            "tv-gp-ucb": tv_gp_ucb(world.model),
            "static": tv_gp_ucb(world.model, epsilon=0.0),
        }
        for trace in simulate(world, policies, rounds=150, seed=seed).values():
            write_trace(out, trace)
    return Run.load(out)


@pytest.mark.slow
def test_shares_are_those_of_the_records(run: Run) -> None:
    calibrations = calibration.calibrations(run)
    kinds = ["arms", "first choices", "choices", "truth of arms", "truth of choices"]
    for policy in POLICIES:
        assert list(calibrations[policy]) == kinds
        audits = [
            audit
            for seed in run.seeds
            if (audit := run.audit(policy, 0, seed)) is not None
        ]
        scores = np.concatenate([audit["score"] for audit in audits])
        within = np.concatenate([audit["within"] for audit in audits])
        for index, quantile in enumerate(QUANTILES):
            assert calibrations[policy]["choices"][index].observed == pytest.approx(
                np.mean(np.abs(scores) <= quantile)
            )
            assert calibrations[policy]["arms"][index].observed == pytest.approx(
                within[:, index].mean()
            )
            assert calibrations[policy]["arms"][index].judged == 3 * 150 * 3


@pytest.mark.thorough
def test_drift_aware_policy_is_calibrated_and_others_are_overconfident(
    run: Run,
) -> None:
    """A right model is outside three standard errors once in 370 shares; the other is far outside."""
    calibrations = calibration.calibrations(run)
    for share in calibrations["tv-gp-ucb"]["choices"]:
        assert abs(share.away) < 3.0
    assert calibrations["static"]["choices"][AT_95].away < -10.0
    (line,) = calibration.forecast_warnings(run)
    assert line.startswith("forecasts of static are too narrow: ")
    assert "of 450 choices fell inside" in line


def test_calibration_section_uses_no_road_terms(run: Run, tmp_path: Path) -> None:
    text = reports.write_report(run, [], tmp_path / "report.html").path.read_text(
        "utf-8"
    )
    section = text[text.index("Did the forecasts hold?") : text.index("<h2>Regret")]
    assert not re.search(r"\b(trips?|edges?|roads?|energy|driv\w+)\b", section)
    for caption in (
        "What was measured",
        "The truth behind it",
        "choices in 95\N{NO-BREAK SPACE}%",
        "truth of arms in 50\N{NO-BREAK SPACE}%",
    ):
        assert caption in section
    assert "All policies share the same noise" in section
    assert "Arms of one choice are correlated" in section
    for policy in policy_styles(run.policies):
        for share in calibration.calibrations(run)[policy]["choices"]:
            assert f"{100 * share.observed:.1f} ± {100 * share.stderr:.1f}" in section


def test_single_arms_are_reported_once(tmp_path: Path) -> None:
    """Where every choice is one arm, arms and choices have the same coverage."""
    spec = {
        "experiment": "x",
        "rounds": 30,
        "first_seed": 0,
        "seeds": 1,
        "settings": [{}],
    }
    write_spec(tmp_path, {**spec, "policies": ["tv-gp-ucb"]})
    world = Audited(seed=0, horizon=30, dimension=1, side=15)
    (trace,) = simulate(
        world, {"tv-gp-ucb": tv_gp_ucb(world.model)}, rounds=30, seed=0
    ).values()
    write_trace(tmp_path, trace)
    run = Run.load(tmp_path)
    (by_kind,) = calibration.calibrations(run).values()
    assert [what for what, levels in by_kind.items() if levels] == [
        "first choices",
        "choices",
        "truth of choices",
    ]
    text = reports.write_report(run, [], tmp_path / "report.html").path.read_text(
        "utf-8"
    )
    assert "arms in 50\N{NO-BREAK SPACE}%" not in text
    assert "choices in 50\N{NO-BREAK SPACE}%" in text
    for absent in ("Arms of one choice", "of each arm", "Settings that are compared"):
        assert absent not in text
    assert (
        "first choices and the truth behind the noise show what a policy has learned"
        in text
    )


# --- shares, and how far they are from their levels ------------------------------------------


def test_tails_are_those_of_the_binomial_and_of_students_t() -> None:
    for level, inside, count in (
        (0.95, 20, 20),
        (0.9, 12, 20),
        (0.5, 3, 20),
        (0.95, 0, 20),
    ):
        share = calibration.IntervalCoverage(level, inside / count, count, count)
        above = inside / count >= level
        tail = (
            stats.binom.sf(inside - 1, count, level)
            if above
            else stats.binom.cdf(inside, count, level)
        )
        errors = max(0.0, stats.norm.isf(tail))
        assert abs(share.away) == pytest.approx(errors, rel=1e-9)
        assert share.away == 0.0 or (share.away > 0.0) == above
        few = share._replace(groups=4)
        assert abs(few.away) == pytest.approx(
            stats.norm.isf(stats.t.sf(errors, 3)), rel=1e-6, abs=1e-9
        )


def test_five_seeds_count_as_five_observations() -> None:
    """At 95 %, five independent looks are all inside in 77 % of cases; 300 trips are as many looks only
    where their truths do not go together."""
    seeds, scores = np.repeat(np.arange(5), 60), np.zeros(300)
    levels = _shares(_within(scores), np.ones(300), seeds, of_seeds=True)
    assert [level.effective for level in levels] == [5.0] * len(LEVELS)
    assert abs(levels[AT_95].away) < 0.01
    # Whole seeds inside or outside 50 %, and all inside 95 %: five looks all the same.
    scores[seeds < 2] = 1.0
    assert (
        _shares(_within(scores), np.ones(300), seeds, of_seeds=True)[AT_95].effective
        == 5.0
    )
    # … also where a few trips are outside it, each in another seed: what 95 % shows of D is little.
    scores[[7, 67, 127, 187, 247]] = 3.0
    few = _shares(_within(scores), np.ones(300), seeds, of_seeds=True)
    assert few[AT_95].observed == 295 / 300
    assert 5.0 <= few[AT_95].effective < 6.0
    # Where trips of one seed are as different as those of several, there are many.
    scores[:] = np.where(np.arange(300) % 2, 1.0, 0.0)
    many = _shares(_within(scores), np.ones(300), seeds, of_seeds=True)[AT_95]
    assert many.effective == 300.0
    assert many.away > 2.0


def test_verdict_distinguishes_calibrated_and_narrow_intervals() -> None:
    rng = np.random.default_rng(5)
    score = rng.standard_normal(4000)

    def trips(factor: float) -> tuple[calibration.IntervalCoverage, ...]:
        return _shares(_within(factor * score), np.ones(4000), np.arange(4000))

    right = dict.fromkeys(calibration.ON_ROADS.measured, trips(1.0))
    right |= dict.fromkeys(calibration.ON_ROADS.true, ())  # unknown
    count = len(calibration.ON_ROADS.measured) * len(LEVELS)
    verdict = calibration.calibration_verdict({"right": right})
    assert f"have the right coverage: {count} of {count}" in verdict
    cases = {"right": right, "narrow": {**right, "trips": trips(1.5)}}
    verdict = calibration.calibration_verdict(
        {**cases, "wide": {**right, "trips": trips(0.5)}}
    )
    assert verdict.startswith("Not all")
    assert "narrow (trips) too narrow" in verdict
    assert "wide (trips) too wide" in verdict
    assert "right" not in verdict.partition("Beyond chance: ")[2]


def test_independent_edges_would_understate_the_error_of_correlated_ones() -> None:
    """Edges of a trip that fall inside or outside together: a trip is one observation."""
    inside = np.repeat([[1.0], [0.0]], [60, 40], axis=0) * np.ones(len(LEVELS))
    coverages = _shares(inside, np.full(100, 7.0), np.arange(100))
    coverage = coverages[LEVELS.index(0.50)]
    assert coverage.observed == pytest.approx(0.6)
    assert coverage.stderr == pytest.approx(0.5 / 10.0)


def test_redundant_settings_do_not_reduce_standard_errors() -> None:
    """Equal settings meet the same noise: four of them carry no more evidence than one."""
    rng = np.random.default_rng(6)
    score, sizes, rounds = (
        rng.standard_normal(300),
        rng.integers(1, 5, 300) * 1.0,
        np.arange(300),
    )
    inside = (np.abs(score)[:, None] <= QUANTILES) * 1.0
    one, four = (
        _shares(
            np.tile(inside, (times, 1)), np.tile(sizes, times), np.tile(rounds, times)
        )
        for times in (1, 4)
    )
    assert [share.stderr for share in four] == pytest.approx(
        [share.stderr for share in one]
    )
    lone = _shares(inside, np.ones(300), rounds)
    binomial = np.sqrt(np.array(LEVELS) * (1 - np.array(LEVELS)) / 300)
    assert [share.stderr for share in lone] == pytest.approx(binomial, rel=1e-12)
    trips = _shares(np.tile(inside, (4, 1)), np.ones(1200), np.tile(rounds, 4))
    assert [share.stderr for share in trips] == pytest.approx(binomial, rel=1e-12)


def test_one_seed_is_not_judged_by_the_truth() -> None:
    other = dict.fromkeys(
        (*calibration.ON_ROADS.measured, *calibration.ON_ROADS.true), ()
    )
    single = (calibration.IntervalCoverage(0.95, 0.4, 500, 1.0, 1, seeds=1),)
    assert np.isnan(single[0].away)
    verdict = calibration.calibration_verdict(
        {"mine": {**other, "truth of edges": single}}
    )
    assert (
        verdict == "One seed cannot show whether the intervals have the right coverage."
    )


def test_choices_before_their_feedback_are_wrong_together(tmp_path: Path) -> None:
    """One arm is chosen until its first reward comes, 30 rounds later: all forecasts err alike.

    The prior is right: f ~ N(0, 1), known but for a noise of 0.1. So a forecast holds or fails for a
    whole seed, and 8 seeds count as 8 observations, not as 240.
    """
    rng, seeds, rounds = np.random.default_rng(3), 8, 30
    spec = {
        "experiment": "x",
        "rounds": rounds,
        "first_seed": 0,
        "seeds": seeds,
        "settings": [{}],
    }
    late = {
        "parameters": {"feedback": {"latest": rounds}},
        "policies": ["p"],
        "audited": ["p"],
    }
    shapes = audit_shapes(rounds)
    for seed in range(seeds):
        truth = rng.normal()
        audit = {name: np.zeros(shape) for name, shape in shapes.items()}
        audit["score"] = (truth + 0.1 * rng.normal(size=rounds)) / np.hypot(1.0, 0.1)
        audit["true_score"] = np.full(rounds, truth)
        audit |= {"mean": np.zeros(1), "std": np.zeros(1)}
        choices = np.zeros((rounds, 1), dtype=np.int32)
        series = {"regret": np.zeros(rounds)}
        trace = Trace(
            policy="p",
            setting_index=0,
            seed=seed,
            series=series,
            choices=choices,
            audit=audit,
        )
        write_trace(tmp_path, trace)
    write_spec(tmp_path, {**spec, **late})
    calibrations = calibration.calibrations(Run.load(tmp_path))
    for share in calibrations["p"]["choices"]:
        assert (share.seeds, share.groups, share.judged) == (
            seeds,
            seeds,
            seeds * rounds,
        )
        assert share.effective < 2 * seeds
        assert abs(share.away) < 2.0
    assert calibration.calibration_verdict(calibrations).startswith(
        "The intervals have the right coverage"
    )
    text = reports.write_report(
        Run.load(tmp_path), [], tmp_path / "late.html"
    ).path.read_text("utf-8")
    assert (
        "Feedback arrived late or was lost, so choices made before it share errors"
        in text
    )


def _share(inside: int) -> tuple[calibration.IntervalCoverage, ...]:
    """So many of 10,000 inside 50 %: the standard error is 0.5 %, that of 50 of them."""
    return (calibration.IntervalCoverage(0.5, inside / 10_000, 10_000, 10_000),)


def test_all_shares_are_judged_at_once() -> None:
    """Of three shares, chance takes the farthest up to 2.39 errors away: P(|z| > 2.39) = 5 %/3."""
    assert calibration.chance_limit(3) == pytest.approx(
        stats.norm.isf(0.05 / 6), rel=1e-9
    )
    shares: dict[str, Any] = dict.fromkeys(calibration.ON_ROADS.true, ())
    shares |= {
        "edges": _share(5050),
        "first visits": _share(5110),
        "trips": _share(4881),
    }
    verdict = calibration.calibration_verdict({"p": shares})
    assert "coverage: 1 of 3 shares" in verdict
    shares["trips"] = _share(4878)
    verdict = calibration.calibration_verdict({"p": shares}).partition(
        "Beyond chance: "
    )[2]
    assert verdict.startswith("p (trips) too narrow: 48.8 % inside the 50 % interval")
    # The same share is nothing to speak of among many others.
    many = {f"q-{number}": {"trips": _share(5000)} for number in range(30)}
    assert calibration.calibration_verdict({"p": shares, **many}).startswith(
        "The intervals have"
    )


def test_far_too_narrow_forecasts_raise_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trips(share: float, effective: float = 400.0) -> dict[str, Any]:
        return {"trips": (calibration.IntervalCoverage(0.95, share, 400, effective),)}

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
    assert (
        "80 % of 400 trips fell inside the 95 % interval; do not rely on them"
        in lines[0]
    )
