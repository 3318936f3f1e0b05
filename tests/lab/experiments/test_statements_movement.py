"""Statements of the movement paper, judged on recorded runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.lab import theory
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.experiments.statements import (
    RecordedRun,
    judge_statements,
    movement,
    movement_replay,
)
from superarm.lab.problems import MovementProblem
from superarm.lab.results.formats import bound_text
from superarm.lab.simulation import Run, simulate
from superarm.movement.carrying import start_of
from superarm.policies import TreeIndexPolicy

pytestmark = pytest.mark.slow  # every statement of a paper needs runs

POLICIES: dict[str, Any] = {
    "gp-md": {},
    "gp-md-warm": {"policy": "gp-md", "first_episode": "step"},
    "stationary": {},
}


def recorded_run(
    directory: Path, seeds: int = 4, policies: Any = POLICIES, **problem: Any
) -> Run:
    spec = {
        "id": "mine",
        "rounds": 20,
        "seeds": seeds,
        "problem": {
            "name": "movement-field",
            "side": 3,
            "contexts": 3,
            "episode": 5,
            **problem,
        },
        "policies": policies,
    }
    execute(Plan.make(Experiment.from_mapping(spec, "mine"), out=directory))
    return Run.load(directory)


def test_every_statement_is_judged_once_for_algorithm_1(tmp_path: Path) -> None:
    verdicts = judge_statements(recorded_run(tmp_path))
    items = [verdict.text.split(":")[0] for verdict in verdicts]
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
    words = dict(zip(items, (verdict.verdict for verdict in verdicts), strict=True))
    # These hold for any choices; the others are chances, or need not hold.
    for item in (
        "Eqs. 51, 52",
        "Eqs. 58 to 60",
        "Eq. 12 on the tree",
        items[3],
        items[9],
    ):
        assert words[item] == "holds"
    assert words["Eq. 31, as printed"] == "undecided"  # it allows more than all costs
    assert all("gp-md-warm" not in verdict.evidence for verdict in verdicts)
    assert "δ = 0.53" in verdicts[10].evidence  # 1 − 0.05^(1/4)


def test_regret_above_a_lower_bound_refutes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy choice may miss much of γ, and O(1) is not 0."""
    run = recorded_run(tmp_path, policies={"gp-md": {}})
    genuine = movement.play_again

    def worse(*arguments: Any) -> Any:
        cell = genuine(*arguments)
        cell.episodes = [movement_replay.Episode(1e12, 1e-12)]
        cell.service_printed = 1e12
        return cell

    monkeypatch.setattr(movement, "play_again", worse)
    words = {
        verdict.text.split(":")[0]: verdict.verdict for verdict in judge_statements(run)
    }
    assert words["Eq. 53, as printed"] == "undecided"
    assert words["Eq. 56, as printed"] == "undecided"
    assert words["Eq. 38, as printed, with 0 for O(1)"] == "undecided"


def test_one_seed_cannot_decide_a_probability(tmp_path: Path) -> None:
    verdicts = judge_statements(recorded_run(tmp_path, seeds=1, policies={"gp-md": {}}))
    chances = [
        verdict
        for verdict in verdicts
        if verdict.text.endswith("(with probability 1 − δ)")
    ]
    assert len(chances) == 3
    assert {verdict.verdict for verdict in chances} == {"undecided"}


@pytest.mark.slow
def test_too_narrow_band_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With B and σ a thousand times too small, f is outside in every seed."""
    run = recorded_run(tmp_path, seeds=6, policies={"gp-md": {}})
    world = RecordedRun.world

    def timid(self: RecordedRun, seed: int, setting_index: int = 0) -> Any:
        from dataclasses import replace

        problem = world(self, seed, setting_index)
        model = problem.model
        assert model.norm_bound is not None
        assert model.noise_bound is not None
        small = {
            "norm_bound": model.norm_bound / 1e3,
            "noise_bound": model.noise_bound / 1e3,
        }
        object.__setattr__(problem, "model", replace(model, **small))
        return problem

    monkeypatch.setattr(RecordedRun, "world", timid)
    (lemma,) = [
        verdict
        for verdict in judge_statements(run)
        if verdict.text.startswith("Lemma 1")
    ]
    assert lemma.verdict == "does not hold"
    assert "it fails in 6 of 6" in lemma.evidence


@pytest.mark.parametrize(
    ("failures", "word"),
    [(0, "holds"), (1, "undecided"), (8, "undecided"), (9, "does not hold")],
)
def test_failures_are_compared_with_delta(failures: int, word: str) -> None:
    """20 seeds with δ = 0.25: eight failures or fewer are what δ explains in 5 % of all runs."""
    text, verdict, evidence = movement._with_probability("x", failures, 20, 0.25, "y")
    assert verdict == word
    assert f"{failures} of 20" in evidence
    assert text.startswith("x")


@pytest.mark.slow
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
    recorded = RecordedRun.from_run(run)
    cells = [movement.play_again(recorded, "gp-md", seed, 0, 0.5) for seed in run.seeds]
    for cell in cells:
        model = recorded.world(cell.seed).model
        variances = model.kernel.diag(recorded.world(cell.seed).offer(1).arms.features)
        assert cell.noise == pytest.approx(
            model.noise_variance / float(variances.max())
        )
    assert cells[0].noise != cells[1].noise
    assert cells[0].gamma[-1] != cells[1].gamma[-1]


def test_unrelated_runs_are_not_judged(tmp_path: Path) -> None:
    spec = {
        "id": "mine",
        "rounds": 3,
        "seeds": 1,
        "problem": {"name": "gp-function", "arms": 4},
        "policies": {"random": {}},
    }
    execute(Plan.make(Experiment.from_mapping(spec, "mine"), out=tmp_path))
    assert list(movement.statements(RecordedRun.from_run(Run.load(tmp_path)))) == []


# --- what is replayed, and where each verdict turns ---------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return RecordedRun.from_run(
        recorded_run(
            tmp_path_factory.mktemp("run") / "a", policies={"gp-md": {"trees": 3}}
        )
    )


def movement_world(recorded: RecordedRun, seed: int = 0) -> MovementProblem:
    world = recorded.world(seed)
    assert isinstance(world, MovementProblem)
    return world


def test_a_replay_equals_the_slow_computation(recorded: RecordedRun) -> None:
    """Variances from matrices of all rounds, and sums over the distributions that GP-MD had."""
    cell = movement.play_again(recorded, "gp-md", 1, 0, 0.5)
    assert cell.same
    world = movement_world(recorded, 1)
    learner = recorded.in_setting(0).build_policy("gp-md", world)
    assert isinstance(learner, TreeIndexPolicy)
    means: list[np.ndarray] = []

    def watch(
        name: str, offer: Any, decision: Any, feedback: Any, forecast: Any
    ) -> None:
        means.append(decision.carry.array("distribution"))

    simulate(world, {"gp-md": learner}, rounds=20, seed=1, watch=watch)
    kernel, noise = world.model.kernel, world.model.noise_variance
    played = [int(row[0]) for row in recorded.run.choices("gp-md", 0, 1)]
    seen = np.array([world.offer(t + 1).arms.features[played[t]] for t in range(20)])

    def variances(step: int, known: int) -> np.ndarray:
        """Of all actions in a round, after so many observations."""
        X, past = world.offer(step + 1).arms.features, seen[:known]
        cross = kernel(past, X)
        solved = (
            np.linalg.solve(kernel(past) + noise * np.eye(known), cross)
            if known
            else cross
        )
        return kernel.diag(X) - np.einsum("ij,ij->j", cross, solved)

    unit = float(kernel.diag(world.offer(1).arms.features).max())
    H = 5
    stale = [variances(t, t - t % H) for t in range(20)]
    played_variances = [float(variances(t, t)[played[t]]) for t in range(20)]
    before = [float(stale[t][played[t]]) for t in range(20)]
    gains = 0.5 * np.log1p(np.array(played_variances) / noise)
    ratios = 0.5 * np.log(np.array(before) / played_variances)
    shares = [ratios[t] / gains[t - t % H : t].sum() for t in range(20) if t % H]
    assert cell.log_ratio == pytest.approx(ratios.max(), rel=1e-6)
    assert cell.ratio == pytest.approx(max(shares), rel=1e-6)
    assert cell.information == pytest.approx(gains.sum(), rel=1e-9)
    sums = [
        (sum(before[m : m + H]) / unit, sum(played_variances[m : m + H]) / unit)
        for m in range(0, 20, H)
    ]
    np.testing.assert_allclose(cell.episodes, sums, rtol=1e-8)
    expected = sum(float(z @ v) for z, v in zip(means, stale, strict=True)) / unit
    assert cell.expected == pytest.approx(expected, rel=1e-8)
    stds = sum(
        float(z @ np.sqrt(v)) for z, v in zip(means, stale, strict=True)
    ) / math.sqrt(unit)
    assert cell.stds == pytest.approx(stds, rel=1e-8)
    assert learner.forest is not None
    trees = learner.forest.trees
    assert len(trees) == 3  # so the fourth episode returns to the first tree
    moved = 0.0
    for t in range(20):
        last = means[t - 1]
        if t % H == 0:
            start = start_of(world.offer(t + 1))
            assert start is not None
            last = np.eye(len(world.metric))[start]
        moved += trees[t // H % 3].distance(last, means[t])
    assert cell.moved == pytest.approx(moved, rel=1e-8)


def plain_cell(**fields: Any) -> movement_replay.ReplayedCell:
    """One with λ = 0.25 of the prior's variance, H = 5 and γ_h = h/5."""
    return movement_replay.ReplayedCell(
        seed=0, unit=1.0, noise=0.25, gamma=np.arange(6) / 5.0, **fields
    )


def test_common_cost_of_all_actions_does_not_matter(recorded: RecordedRun) -> None:
    """Service and movement of one episode, with and without 7 more for every action in every round."""
    world = movement_world(recorded)
    learner = recorded.in_setting(0).build_policy("gp-md", world)
    assert isinstance(learner, TreeIndexPolicy)
    simulate(world, {"gp-md": learner}, rounds=1, seed=0)  # draws its trees
    rng = np.random.default_rng(0)
    n = len(world.metric)
    costs, means = rng.random((5, n)), rng.dirichlet(np.ones(n), size=5)
    results = []
    for more in (0.0, 7.0):
        cell = plain_cell()
        replay = movement_replay._Replay(world, learner, cell, 0.5)
        replay._begin(world.offer(1))
        replay._rounds = [
            movement_replay._Round(c + more, z)
            for c, z in zip(costs, means, strict=True)
        ]
        replay.end_episode()
        results.append(
            (cell.service, cell.service_printed, cell.movement, cell.moved, cell.hit)
        )
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)


def words(verdicts: Any) -> dict[str, str]:
    """Each verdict by its equation."""
    return {
        text.split(":")[0].split(",")[0].split(" ", 1)[1]: word
        for text, word, _ in verdicts
    }


@pytest.mark.parametrize(
    ("item", "fields", "beyond"),
    [
        ("12 on the tree", lambda over: {"service": over}, "does not hold"),
        (
            "38",
            lambda over: {"service_printed": over},
            "undecided",
        ),  # 0 is less than O(1)
        ("13 on the tree", lambda over: {"movement": 1.0 + over}, "does not hold"),
    ],
)
def test_where_service_and_movement_turn(
    item: str, fields: Callable[[float], dict[str, float]], beyond: str
) -> None:
    for over, word in ((-0.1, "holds"), (1e-9, "holds"), (0.01, beyond)):
        cell = plain_cell(service_size=10.0, **fields(over))
        assert words(movement._competitive([cell]))[item] == word


def learning_cell(item: str, share: float) -> movement_replay.ReplayedCell:
    """A cell that uses this share of what an equation allows, with T = 20."""
    cell = plain_cell(information=1.5, log_ratio=0.3, expected=0.1, stds=0.1)
    stale, updated = 0.5, 1e3
    if item == "51":
        cell.ratio = share
    elif item == "53":
        updated = stale / (share * math.exp(0.8))
    elif item == "56, derived":
        stale = share * math.exp(0.6) * 2.0 * 1.5 / math.log(5.0)
    elif item == "56, printed":
        stale = share * 2.0 * math.exp(1.0) * 1.5
    elif item == "50":
        allowed = theory.conditional_mean_bound(
            stale, episode=5, delta=0.5, form="derived"
        )
        cell.expected = share * float(allowed)
    elif item == "58":
        cell.stds = share * math.sqrt(20.0 * 0.1)
    cell.episodes = [movement_replay.Episode(stale, updated)]
    return cell


ITEMS = ["51", "53", "56, derived", "56, printed", "50", "58"]


@pytest.mark.parametrize("item", ITEMS)
def test_where_the_steps_of_learning_turn(item: str, recorded: RecordedRun) -> None:
    """Six seeds alike: with δ = 0.5 six failures have probability 1/64, and so has none."""
    world = movement_world(recorded)
    place = ITEMS.index(item)
    beyond = (
        "undecided" if item in ("53", "56, printed") else "does not hold"
    )  # γ is larger there
    for share, word in ((0.999, "holds"), (1.001, beyond)):
        cells = [learning_cell(item, share)] * 6
        verdicts = list(movement._learning(cells, world, 5, 0.5))
        assert verdicts[place][1] == word, verdicts[place]


def test_costs_are_compared_with_expectations_over_full_episodes(
    recorded: RecordedRun,
) -> None:
    """Four episodes of five rounds: the excess after round 20, over H(B + ψ)√(N ln(1/δ)/2)."""
    world = movement_world(recorded)
    assert movement_replay.episode_length(world) == 5
    run = recorded.run
    total, expected = (
        run.cumulative("gp-md", 0, name)[:, 19]
        for name in ("total_cost", "expected_total_cost")
    )
    delta = 1.0 - 0.05**0.25
    worlds = [movement_world(recorded, seed) for seed in range(4)]
    most = max(
        float(world_.means(world_.offer(step)).max())
        for world_ in worlds
        for step in range(1, 21)
    )
    allowed = (
        5.0
        * (most + float(world.metric.distances.max()))
        * math.sqrt(-2.0 * math.log(delta))
    )
    _, azuma = movement._concentration(recorded, "gp-md", 0, world, 5)
    share = float(((total - expected) / allowed).max())
    assert f"at most {bound_text(share)} after 4 episodes" in azuma[2]


@pytest.mark.parametrize(
    ("away", "word"), [(-2.0, "holds"), (-0.5, "undecided"), (2.0, "does not hold")]
)
def test_the_mean_stretch_needs_room(
    away: float, word: str, recorded: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Hoeffding for all 36 pairs at once, at 95 %: no tree lengthens beyond 8 max d/min d."""
    world = movement_world(recorded)
    apart = world.metric.distances[~np.eye(9, dtype=bool)]
    room = (
        8.0
        * float(apart.max() / apart.min())
        * math.sqrt(math.log(36.0 / 0.05) / 200.0)
    )
    worst = theory.stretch_bound(9) + away * room
    monkeypatch.setattr(theory, "mean_stretch", lambda *_, **__: np.full((9, 9), worst))
    assert movement._stretch(recorded, world).verdict == word
