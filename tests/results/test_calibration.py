"""Whether forecasts were true, for a problem whose arms are no roads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from superarm import report as reports
from superarm.capabilities import AdditiveProblem
from superarm.core import Floats, Offer
from superarm.policies import tv_gp_ucb
from superarm.problems import DriftingFunction
from superarm.results import calibration
from superarm.results.curves import policy_styles
from superarm.simulation import Run, simulate, write_trace
from superarm.simulation.audit import QUANTILES
from superarm.simulation.trace import write_spec

POLICIES = ["tv-gp-ucb", "static"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited(DriftingFunction, AdditiveProblem):
    """A function that drifts, of which the forecasts of three chosen arms are kept."""

    @property
    def distinct(self) -> str:
        return "distinct_arms"

    def truth(self, offer: Offer) -> Floats:
        return self.means(offer)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("audited")
    spec = {"experiment": "x", "rounds": 150, "first_seed": 0, "seeds": 3, "settings": [{}]}
    write_spec(out, {**spec, "policies": POLICIES, "audited": POLICIES})
    for seed in range(3):
        world = Audited(seed=seed, horizon=150, dimension=1, side=15, epsilon=0.1, k=3)
        policies = {"tv-gp-ucb": tv_gp_ucb(world.model), "static": tv_gp_ucb(world.model, epsilon=0.0)}
        for trace in simulate(world, policies, rounds=150, seed=seed).values():
            write_trace(out, trace)
    return Run.load(out)


def test_shares_are_those_of_the_records(run: Run) -> None:
    found = calibration.calibrations(run)
    kinds = ["arms", "first choices", "choices", "truth of arms", "truth of choices"]
    for policy in POLICIES:
        assert list(found[policy]) == kinds
        audits = [audit for seed in run.seeds if (audit := run.audit(policy, 0, seed)) is not None]
        scores = np.concatenate([audit["score"] for audit in audits])
        within = np.concatenate([audit["within"] for audit in audits])
        for at, quantile in enumerate(QUANTILES):
            assert found[policy]["choices"][at].observed == pytest.approx(
                np.mean(np.abs(scores) <= quantile)
            )
            assert found[policy]["arms"][at].observed == pytest.approx(within[:, at].mean())
            assert found[policy]["arms"][at].judged == 3 * 150 * 3


def test_who_knows_of_the_drift_is_right_and_who_does_not_is_too_sure(run: Run) -> None:
    """A right model is outside three standard errors once in 370 shares; the other is far outside."""
    found = calibration.calibrations(run)
    for share in found["tv-gp-ucb"]["choices"]:
        assert abs(share.away) < 3.0
    assert found["static"]["choices"][-1].away < -10.0
    (line,) = calibration.forecast_warnings(run)
    assert line.startswith("forecasts of static are too narrow: ")
    assert "of 450 choices fell inside" in line


def test_the_page_tells_it_without_a_word_of_roads(run: Run, tmp_path: Path) -> None:
    text = reports.write_report(run, [], tmp_path / "report.html").path.read_text("utf-8")
    told = text[text.index("Did the forecasts hold?") : text.index("<h2>Regret")]
    assert not re.search(r"\b(trips?|edges?|roads?|energy|driv\w+)\b", told)
    for caption in (
        "What was measured",
        "The truth behind it",
        "choices in 95 %",
        "truth of arms in 50 %",
    ):
        assert caption in told
    assert "All policies meet the same noise" in told
    assert "Arms of one choice are correlated" in told
    for policy in policy_styles(run.policies):
        for share in calibration.calibrations(run)[policy]["choices"]:
            assert f"{100 * share.observed:.1f} ± {100 * share.stderr:.1f}" in told


def test_single_arms_are_told_once(tmp_path: Path) -> None:
    """Where every choice is one arm, arms and choices would say the same."""
    spec = {"experiment": "x", "rounds": 30, "first_seed": 0, "seeds": 1, "settings": [{}]}
    write_spec(tmp_path, {**spec, "policies": ["tv-gp-ucb"]})
    world = Audited(seed=0, horizon=30, dimension=1, side=15)
    (trace,) = simulate(world, {"tv-gp-ucb": tv_gp_ucb(world.model)}, rounds=30, seed=0).values()
    write_trace(tmp_path, trace)
    run = Run.load(tmp_path)
    (found,) = calibration.calibrations(run).values()
    assert [what for what, levels in found.items() if levels] == [
        "first choices",
        "choices",
        "truth of choices",
    ]
    text = reports.write_report(run, [], tmp_path / "report.html").path.read_text("utf-8")
    assert "arms in 50 %" not in text
    assert "choices in 50 %" in text
    for absent in ("Arms of one choice", "of each arm", "Settings that are compared"):
        assert absent not in text
    assert "is judged by first choices, and by the truth behind the noise" in text
