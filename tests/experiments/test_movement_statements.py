"""The movement paper's statements, judged on runs: what holds, what does not, and what is undecided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from superarm.experiments import Experiment, Plan, execute
from superarm.experiments.statements import Recorded, judge_statements, movement
from superarm.simulation import Run

POLICIES: dict[str, Any] = {
    "gp-md": {},
    "gp-md-warm": {"policy": "gp-md", "first_episode": "step"},
    "stationary": {},
}


def made(directory: Path, seeds: int = 4, policies: Any = POLICIES, **problem: Any) -> Run:
    spec = {
        "id": "mine",
        "rounds": 20,
        "seeds": seeds,
        "problem": {"name": "movement-field", "side": 3, "contexts": 3, "episode": 5, **problem},
        "policies": policies,
    }
    execute(Plan.make(Experiment.from_mapping(spec, "mine"), out=directory))
    return Run.load(directory)


def test_every_statement_is_judged_once_for_algorithm_1(tmp_path: Path) -> None:
    found = judge_statements(made(tmp_path))
    items = [verdict.text.split(":")[0] for verdict in found]
    assert items == [
        "Eq. 15",
        "Eqs. 51, 52",
        "Eq. 53, as printed",
        "Eq. 56, with exp(2 max ln(σ_m/σ_{h,m})) and the information gained in place of their bounds",
        "Eq. 56, as printed",
        "Eq. 50, with 1.26H ln(1/δ) for 4H ln(1/δ) + 8H ln(4H) + 1",
        "Eqs. 58 to 60",
        "Eq. 12 on the tree",
        "Eq. 38, as printed, with 0 for O(1)",
        "Eq. 13 on the tree, with costs before the step",
        "Lemma 1",
        "Eq. 31, as printed",
        "Eq. 31, by Azuma",
    ]
    words = dict(zip(items, (verdict.verdict for verdict in found), strict=True))
    # These hold for any choices; the others are chances, or need not hold.
    for item in ("Eqs. 51, 52", "Eqs. 58 to 60", "Eq. 12 on the tree", items[3], items[9]):
        assert words[item] == "holds"
    assert words["Eq. 31, as printed"] == "undecided"  # it allows more than all costs
    assert all("gp-md-warm" not in verdict.evidence for verdict in found)
    assert "δ = 0.53" in found[10].evidence  # 1 − 0.05^(1/4)


def test_more_than_a_lower_bound_allows_refutes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy choice may miss much of γ, and O(1) is not 0."""
    run = made(tmp_path, policies={"gp-md": {}})
    genuine = movement._play_again

    def worse(*given: Any) -> Any:
        cell = genuine(*given)
        cell.episodes = [movement._Episode(1e12, 1e-12)]
        cell.service_printed = 1e12
        return cell

    monkeypatch.setattr(movement, "_play_again", worse)
    words = {each.text.split(":")[0]: each.verdict for each in judge_statements(run)}
    assert words["Eq. 53, as printed"] == "undecided"
    assert words["Eq. 56, as printed"] == "undecided"
    assert words["Eq. 38, as printed, with 0 for O(1)"] == "undecided"


def test_one_seed_decides_no_probability(tmp_path: Path) -> None:
    found = judge_statements(made(tmp_path, seeds=1, policies={"gp-md": {}}))
    chances = [verdict for verdict in found if verdict.text.endswith("(with probability 1 − δ)")]
    assert len(chances) == 3
    assert {verdict.verdict for verdict in chances} == {"undecided"}


def test_a_band_that_is_too_narrow_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With B and σ a thousand times too small, f is outside in every seed."""
    run = made(tmp_path, seeds=6, policies={"gp-md": {}})
    world = Recorded.world

    def timid(self: Recorded, seed: int, setting_index: int = 0) -> Any:
        from dataclasses import replace

        found = world(self, seed, setting_index)
        model = found.model
        assert model.norm_bound is not None
        assert model.noise_bound is not None
        small = {"norm_bound": model.norm_bound / 1e3, "noise_bound": model.noise_bound / 1e3}
        object.__setattr__(found, "model", replace(model, **small))
        return found

    monkeypatch.setattr(Recorded, "world", timid)
    (lemma,) = [each for each in judge_statements(run) if each.text.startswith("Lemma 1")]
    assert lemma.verdict == "does not hold"
    assert "it fails in 6 of 6" in lemma.evidence


@pytest.mark.parametrize(
    ("failures", "word"), [(0, "holds"), (1, "undecided"), (6, "undecided"), (9, "does not hold")]
)
def test_failures_are_compared_with_delta(failures: int, word: str) -> None:
    """20 seeds with δ = 0.25: eight failures or fewer are what δ explains in 5 % of all runs."""
    text, found, evidence = movement._with_probability("x", failures, 20, 0.25, "y")
    assert found == word
    assert f"{failures} of 20" in evidence
    assert text.startswith("x")


def test_wind_has_no_statement_about_the_norm(tmp_path: Path) -> None:
    spec = {
        "id": "mine",
        "rounds": 30,
        "seeds": 2,
        "problem": {"name": "wind", "source": "synthetic", "rho": 4.0},
        "policies": {"gp-md": {"trees": 2}},
    }
    execute(Plan.make(Experiment.from_mapping(spec, "mine"), out=tmp_path))
    run = Run.load(tmp_path)
    items = [verdict.text.split(":")[0] for verdict in judge_statements(run)]
    assert "Lemma 1" not in items
    assert "Eqs. 51, 52" in items
    # Each seed fits a model to other days, and is judged by its own.
    recorded = Recorded.of(run)
    cells = [movement._play_again(recorded, "gp-md", seed, 0, 0.5) for seed in run.seeds]
    for cell in cells:
        model = recorded.world(cell.seed).model
        variances = model.kernel.diag(recorded.world(cell.seed).offer(1).arms.features)
        assert cell.noise == pytest.approx(model.noise_variance / float(variances.max()))
    assert cells[0].noise != cells[1].noise
    assert cells[0].gamma[-1] != cells[1].gamma[-1]


def test_runs_about_something_else_are_not_spoken_of(tmp_path: Path) -> None:
    spec = {
        "id": "mine",
        "rounds": 3,
        "seeds": 1,
        "problem": {"name": "gp-function", "arms": 4},
        "policies": {"random": {}},
    }
    execute(Plan.make(Experiment.from_mapping(spec, "mine"), out=tmp_path))
    assert list(movement.statements(Recorded.of(Run.load(tmp_path)))) == []
