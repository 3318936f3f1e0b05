"""Statements of On Kernelized Multi-armed Bandits (2017), judged on small runs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import StateError
from superarm.lab import theory
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.experiments.claims import Verdict
from superarm.lab.experiments.statements import RecordedRun, judge_statements
from superarm.lab.experiments.statements import kernelized as module
from superarm.lab.experiments.statements.kernelized_cells import (
    UsedShares,
    judge_probable,
)
from superarm.lab.experiments.statements.kernelized_choices import share_of_noise
from superarm.lab.experiments.statements.kernelized_replay import Replay, replay_cell
from superarm.lab.problems.finite import FiniteProblem
from superarm.lab.results.formats import bound_text
from superarm.lab.simulation import Run
from superarm.rules import information

pytestmark = pytest.mark.slow  # every statement of a paper needs runs

THEORY = {"name": "rkhs-function", "arms": 15, "regularisation": "theory"}
CERTIFIED = {"igp-ucb": {"gain": "greedy"}, "gp-ts": {"gain": "greedy"}}


def recorded_run(out: Path, problem: dict[str, Any], **changes: Any) -> RecordedRun:
    spec = {
        "id": "mine",
        "rounds": 25,
        "seeds": 3,
        "problem": problem,
        "policies": CERTIFIED,
    }
    execute(Plan.make(Experiment.from_mapping({**spec, **changes}, "here"), out=out))
    return RecordedRun.from_run(Run.load(out))


def items(verdicts: list[Verdict]) -> list[str]:
    """What each verdict is about, without the statement."""
    return [verdict.text.split(":")[0] for verdict in verdicts]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return recorded_run(tmp_path_factory.mktemp("run") / "a", THEORY)


def test_every_statement_about_functions_of_the_space(certified: RecordedRun) -> None:
    verdicts = list(module.statements(certified))
    common = ["Eqs. 10, 11", "Lemma 3", "Theorem 1", "Lemma 4"]
    igp_ucb = [*common, "Theorem 2", "Theorem 3, appendix D", "Theorem 3"]
    gp_ts = [*common, "Lemma 6", "Lemma 13, Theorem 4"]
    assert items(verdicts) == igp_ucb + gp_ts
    for verdict in verdicts:
        chance = "probability 1 − δ" in verdict.text
        assert verdict.verdict == ("undecided" if chance else "holds"), verdict
        assert "3 seeds, T = 25" in verdict.evidence


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "independent"},
        {"scaled": False},
        {"decision_set": "discretised"},
        {"gain": "growth"},
    ],
    ids=str,
)
def test_theorem_4_applies_only_to_algorithm_2(
    options: dict[str, Any], tmp_path: Path
) -> None:
    policies = {"gp-ts": {"gain": "greedy", **options}}
    run = recorded_run(tmp_path / "a", THEORY, policies=policies, seeds=1)
    assert items(list(module.statements(run)))[-1] == "Lemma 6"


def test_bands_are_judged_at_their_own_delta(certified: RecordedRun) -> None:
    by_item = {
        verdict.text.split(":")[0]: verdict for verdict in module.statements(certified)
    }
    assert "if 10 % of all runs" in by_item["Theorem 2"].evidence
    assert "if 5 % of all runs" in by_item["Lemma 6"].evidence  # δ/2


def test_the_regret_of_a_round_is_compared_with_twice_its_width(
    certified: RecordedRun,
) -> None:
    shares = []
    for seed, total in enumerate(certified.run.cumulative("igp-ucb", 0)):
        replay = replay_cell(certified, "igp-ucb", seed, 0)
        model = replay.world.model
        assert model.norm_bound is not None
        assert model.noise_bound is not None
        gamma = information.GreedyGrowth(
            kernel=model.kernel, candidates=model.arms, noise_variance=1.08, horizon=25
        )
        bounds = (model.norm_bound, model.noise_bound, 0.1)
        beta = theory.confidence_width(replay.rounds, gamma, *bounds)
        assert (replay.band <= beta).all()  # so that every round counts
        shares.append(
            float(np.max(np.diff(total, prepend=0.0) / (2.0 * beta * replay.stds)))
        )
    by_item = {
        verdict.text.split(":")[0]: verdict for verdict in module.statements(certified)
    }
    evidence = by_item["Theorem 3, appendix D"].evidence
    assert evidence.startswith(f"at most {bound_text(max(shares))} (igp-ucb, seed ")


def test_a_replay_equals_the_slow_computation(certified: RecordedRun) -> None:
    """Posterior, norm and band from matrices of all rounds, as eqs. 2–4, 6 and 10 have them."""
    replay = replay_cell(certified, "gp-ts", 1, 0)
    world = certified.world(1)
    assert isinstance(world, FiniteProblem)
    K, lam = world.model.kernel(world.arms.features), 1.0 + 2.0 / 25
    rounds = list(certified.rounds("gp-ts", 1))
    played = np.array([played_round.positions[0] for played_round in rounds])
    rewards = np.array([played_round.rewards[0] for played_round in rounds])
    np.testing.assert_array_equal(replay.positions, played)
    for t in (0, 1, 7, 24):
        past = played[:t]
        solved = np.linalg.solve(K[np.ix_(past, past)] + lam * np.eye(t), K[past])
        stds = np.sqrt(K.diagonal() - np.einsum("ij,ij->j", K[past], solved))
        errors = np.abs(solved.T @ rewards[:t] - world.truth)
        assert replay.stds[t] == pytest.approx(stds[played[t]], rel=1e-9)
        assert replay.band[t] == pytest.approx((errors / stds).max(), rel=1e-8)
        now = played[: t + 1]
        gram, noise = K[np.ix_(now, now)], rewards[: t + 1] - world.truth[now]
        squared_norm = noise @ noise - noise @ np.linalg.solve(
            gram + lam * np.eye(t + 1), noise
        )
        assert replay.norms[t] == pytest.approx(squared_norm, rel=1e-7)
        gained = information.information_gain(
            world.model.kernel, world.arms.features[now], lam
        )
        assert replay.gained[t + 1] == pytest.approx(gained, rel=1e-9)
    delta = 0.1
    shares = []
    for t in range(1, 26):
        gram = K[np.ix_(played[:t], played[:t])]
        _, log_determinant = np.linalg.slogdet(gram + lam * np.eye(t))
        bound = theory.self_normalised_bound(log_determinant, world.noise_std, delta)
        shares.append(replay.norms[t - 1] / bound)
    assert share_of_noise(replay, delta) == pytest.approx(max(shares), rel=1e-7)


SLIPS: dict[str, Callable[[Replay], Replay]] = {
    "Eqs. 10, 11": lambda replay: replay._replace(gained=1.01 * replay.gained),
    "Lemma 3": lambda replay: replay._replace(gained=9.0 * replay.gained),
    "Lemma 4": lambda replay: replay._replace(stds=3.0 * replay.stds),
    "Theorem 3, appendix D": lambda replay: replay._replace(stds=0.01 * replay.stds),
}


@pytest.mark.parametrize("item", SLIPS)
def test_deliberate_errors_are_detected(
    item: str, certified: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = replay_cell
    monkeypatch.setattr(
        module, "replay_cell", lambda *arguments: SLIPS[item](true(*arguments))
    )
    by_item = {
        verdict.text.split(":")[0]: verdict for verdict in module.statements(certified)
    }
    assert by_item[item].verdict == "does not hold"


def test_band_exceeded_in_too_many_seeds_does_not_hold(
    certified: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of three seeds at δ = 0.1: one in a thousand."""
    true = replay_cell

    def far_off(*arguments: Any) -> Replay:
        replay = true(*arguments)
        return replay._replace(band=9.0 * replay.band)

    monkeypatch.setattr(module, "replay_cell", far_off)
    by_item = {
        verdict.text.split(":")[0]: verdict for verdict in module.statements(certified)
    }
    assert by_item["Theorem 2"].verdict == "does not hold"
    assert "it fails in 3 of 3 seeds" in by_item["Theorem 2"].evidence
    assert (
        "at least 3 failures in 3 seeds would have probability 0.001"
        in by_item["Theorem 2"].evidence
    )


@pytest.mark.parametrize(
    ("failed", "seeds", "delta", "word"),
    [
        (0, 43, 0.1, "undecided"),  # 0.9⁴³ = 0.0108
        (0, 44, 0.1, "holds"),  # 0.0097
        (0, 90, 0.05, "holds"),  # 0.0099
        (5, 44, 0.1, "undecided"),
        (10, 44, 0.1, "undecided"),  # P[X ≥ 10] = 0.0103
        (11, 44, 0.1, "does not hold"),  # 0.0034
    ],
)
def test_exact_binomial_tails_decide(
    failed: int, seeds: int, delta: float, word: str
) -> None:
    shares = (1.5,) * failed + (0.5,) * (seeds - failed)
    result = judge_probable(
        "Theorem 2: …",
        UsedShares("one", tuple(range(seeds)), shares),
        delta,
        f"{seeds} seeds",
    )
    chances = [
        math.comb(seeds, k) * delta**k * (1.0 - delta) ** (seeds - k)
        for k in range(seeds + 1)
    ]
    so_few, so_many = sum(chances[: failed + 1]), sum(chances[failed:])
    expected = (
        "holds" if so_few < 0.01 else "does not hold" if so_many < 0.01 else "undecided"
    )
    assert result.verdict == expected == word
    assert ("; deciding needs " in result.evidence) == (
        word == "undecided" and not failed
    )


def test_theorems_1_and_2_do_not_need_the_learners_lambda(tmp_path: Path) -> None:
    recorded = recorded_run(
        tmp_path / "a", {"name": "rkhs-function", "arms": 15}, policies={"igp-ucb": {}}
    )
    judged = items(list(module.statements(recorded)))
    assert judged == ["Eqs. 10, 11", "Lemma 3", "Theorem 1", "Lemma 4", "Theorem 2"]


@pytest.mark.parametrize(
    "problem",
    [
        {
            "name": "gp-function",
            "arms": 40,
            "regularisation": "theory",
        },  # f has a norm above B
        {
            "name": "temperature-sensors",
            "source": "synthetic",
        },  # and k(x, x) is above 1
    ],
)
def test_where_assumptions_are_not_met(problem: dict[str, Any], tmp_path: Path) -> None:
    recorded = recorded_run(tmp_path / "a", problem, policies={"igp-ucb": {}})
    verdicts = list(module.statements(recorded))
    assert items(verdicts) == ["Eqs. 10, 11", "Lemma 3", "Theorem 1"]
    assert [verdict.verdict for verdict in verdicts] == ["holds", "holds", "undecided"]


@pytest.mark.parametrize(
    ("problem", "policies", "more"),
    [
        ({"name": "landscape", "side": 4}, {"gp-bucb": {}}, {}),
        (THEORY, {"random": {}, "gp-ei": {}}, {}),
        (THEORY, {"igp-ucb": {}}, {"feedback": {"latest": 3}}),
    ],
)
def test_other_runs_are_passed_over(
    problem: dict[str, Any],
    policies: dict[str, Any],
    more: dict[str, Any],
    tmp_path: Path,
) -> None:
    recorded = recorded_run(tmp_path / "a", problem, policies=policies, **more)
    assert list(module.statements(recorded)) == []


def test_settings_are_judged_one_by_one_and_long_runs_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = {"kernel": ["squared-exponential", "matern"]}
    recorded = recorded_run(
        tmp_path / "a", THEORY, policies={"igp-ucb": {}}, sweep=sweep
    )
    monkeypatch.setattr(module, "_MOST_WORK", 2 * 25 * 2 * (1e4 + 15**2))
    verdicts = list(module.statements(recorded))
    assert {verdict.evidence.split("]")[0] for verdict in verdicts} == {
        "[kernel = squared-exponential",
        "[kernel = matern",
    }
    assert all("2 seeds, T = 25" in verdict.evidence for verdict in verdicts)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (np.full((25, 1), 10**6), "round 1 chooses arms that are not on offer"),
        (
            np.zeros((25, 2), dtype=int),
            "round 1 chooses arms that are not on offer, or one twice",
        ),
        (np.full((25, 1), -1), "round 1 must choose 1 arm, got 0"),
        (np.zeros((25, 0), dtype=int), "round 1 must choose 1 arm, got 0"),
    ],
)
def test_impossible_choices_name_their_cell(
    certified: RecordedRun, tmp_path: Path, choices: Any, words: str
) -> None:
    shutil.copytree(certified.run.directory, tmp_path / "a")
    cell = tmp_path / "a" / "cells" / "igp-ucb.s0.seed00000.npz"
    arrays = dict(np.load(cell))
    np.savez(cell, **{**arrays, "choices": choices.astype(np.int32)})
    with pytest.raises(
        StateError, match=f"igp-ucb.s0.seed00000.npz is damaged: {words}"
    ):
        judge_statements(Run.load(tmp_path / "a"))
