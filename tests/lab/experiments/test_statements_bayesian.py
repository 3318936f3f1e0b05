"""Statements of the Bayesian paper on small runs, compared with slow computations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.experiments.statements import RecordedRun, bayesian, judge_statements
from superarm.lab.experiments.theorems import regret_bounds
from superarm.lab.simulation import Run

pytestmark = pytest.mark.slow  # every statement of a paper needs runs

CITY: dict[str, Any] = {"name": "navigation", "network": "city", "edges": 200}
POLICIES: dict[str, Any] = {
    "gp-ucb": {"policy": "route-ucb"},
    "gp-bucb": {"policy": "route-bucb"},
    "gp-ts": {"policy": "route-ts"},
    "bi-ts": {"policy": "route-ts", "posterior": "independent"},
}
ROUNDS = 5


def recorded(out: Path, problem: dict[str, Any] = CITY, seeds: int = 4) -> RecordedRun:
    spec = {
        "id": "mine",
        "rounds": ROUNDS,
        "seeds": seeds,
        "problem": problem,
        "policies": POLICIES,
    }
    execute(Plan.make(Experiment.from_mapping(spec, "here"), out=out))
    return RecordedRun.from_run(Run.load(out))


@pytest.fixture(scope="module")
def judged_run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return recorded(tmp_path_factory.mktemp("statements") / "run")


def test_judged_statements(judged_run: RecordedRun) -> None:
    verdicts = list(bayesian.statements(judged_run))
    begins = [verdict.text.split(":")[0] for verdict in verdicts]
    assert begins == ["Section 4.2", "Lemma A.3", "Lemma A.2", "Lemma A.2"]
    assert {verdict.verdict for verdict in verdicts} == {"holds"}
    assert "12 cells replayed, T = 5" in verdicts[1].evidence
    assert "bounds of gp-ucb exceed" in verdicts[2].text


def test_the_replay_by_equations_2_and_3(judged_run: RecordedRun) -> None:
    """Every posterior recomputed from all earlier observations, with numpy."""
    seed = 1
    world: Any = judged_run.world(seed)
    model = world.model
    K = np.asarray(model.kernel(model.arms))
    prior, noise = np.asarray(model.energies), model.noise_variance
    rows: list[int] = []
    rewards: list[float] = []
    explored, missed, gained, largest, longest = 0.0, 0.0, 0.0, 0.0, 0
    for step, played in enumerate(judged_run.rounds("gp-ucb", seed), start=1):
        k = K[:, rows]
        inverse = np.linalg.inv(K[np.ix_(rows, rows)] + noise * np.eye(len(rows)))
        mean = prior + k @ inverse @ (np.array(rewards) - prior[rows])
        covariance = K - k @ inverse @ k.T
        std = np.sqrt(np.diagonal(covariance))
        width = math.sqrt(2.0 * math.log(len(K) * step**2 / math.sqrt(2.0 * math.pi)))
        taken = played.positions
        block = covariance[np.ix_(taken, taken)]
        explored += width * float(std[taken].sum())
        gained += 0.5 * float(np.linalg.slogdet(np.eye(len(taken)) + block / noise)[1])
        largest = max(largest, float(np.linalg.eigvalsh(block)[-1]))
        longest = max(longest, len(taken))
        best = world.cheapest(np.negative(world.scores(played.offer)))
        missed += float((mean[best] - width * std[best] - world.energies[best]).sum())
        rows += taken.tolist()
        rewards += played.rewards.tolist()
    allowed = math.sqrt(2.0 * (largest + noise) * ROUNDS * longest * gained) * width
    replay = bayesian._replay(judged_run, "gp-ucb", seed)
    assert replay.used == pytest.approx(explored / allowed, rel=1e-6)
    assert replay.missed == pytest.approx(missed, rel=1e-6)


def test_a_lemma_that_fails_is_reported(
    judged_run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_little(gain: float, **options: float) -> Any:
        return np.asarray(1e-9 * gain)

    monkeypatch.setattr(bayesian, "variance_sum_bound", too_little)
    verdicts = {
        verdict.text.split(":")[0]: verdict
        for verdict in bayesian.statements(judged_run)
    }
    assert verdicts["Lemma A.3"].verdict == "does not hold"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([-9.0, -8.0, -10.0, -9.5], "holds"),
        ([9.0, 8.0, 10.0, 9.5], "does not hold"),
        ([-9.0, 8.0, -10.0, 9.5], "undecided"),
        ([-9.0, 8.0, -4.0, 19.5], "undecided"),  # on the other side of the limit
        ([-9.0, -8.0, -10.0], "undecided"),  # fewer than four seeds decide nothing
        ([0.6, 0.62, 0.64, 0.61], "undecided"),  # so few may miss seeds that are worse
    ],
)
def test_how_a_mean_is_judged(values: list[float], word: str) -> None:
    assert bayesian._word_of_mean(np.array(values), 1.0) == word


@pytest.mark.parametrize(
    "changes",
    [{"model_lengthscale": 0.5}, {"model_graph_share": 0.3}, {"rush_hours": 1.0}],
    ids=str,
)
def test_misspecified_model_does_not_judge_the_lemmas(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    run = recorded(tmp_path / "run", {**CITY, **changes}, seeds=1)
    assert [verdict.text[:11] for verdict in bayesian.statements(run)] == [
        "Section 4.2"
    ]


def test_statements_are_judged_with_closed_roads(tmp_path: Path) -> None:
    run = recorded(
        tmp_path / "run", {**CITY, "closed_roads": 0.05, "closed_turns": 0.05}, seeds=1
    )
    verdicts = list(bayesian.statements(run))
    assert [verdict.verdict for verdict in verdicts] == [
        "holds",
        "holds",
        "undecided",
        "undecided",
    ]


def test_warm_started_run_is_not_judged(tmp_path: Path) -> None:
    """Its round numbers continue, and no cell contains its earlier observations."""
    policies = {"gp-ucb": {"policy": "route-ucb"}}
    spec = {
        "id": "mine",
        "rounds": 5,
        "seeds": 1,
        "problem": CITY,
        "policies": policies,
    }
    experiment = Experiment.from_mapping(spec, "here")
    execute(Plan.make(experiment, out=tmp_path / "a"))
    assert judge_statements(Run.load(tmp_path / "a"))
    state = tmp_path / "a" / "states" / "gp-ucb.s0.seed00000.npz"
    execute(Plan.make(experiment, out=tmp_path / "b", states=[str(state)]))
    later = Run.load(tmp_path / "b")
    assert judge_statements(later) == []
    bounds = regret_bounds(later)
    assert bounds.drawn == {}
    assert "begins with a state" in bounds.missing["gp-ucb"]
