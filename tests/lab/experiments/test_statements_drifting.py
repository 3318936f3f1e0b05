"""Statements of the drift paper, judged on recorded runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from superarm.core.errors import InputError
from superarm.core.streams import Streams
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.experiments.claims import Verdict
from superarm.lab.experiments.statements import (
    RecordedRun,
    drift_posteriors,
    drift_regret,
    drifting,
    judge_statements,
)
from superarm.lab.experiments.statements.drift_posteriors import mismatch_used
from superarm.lab.experiments.statements.judging import failure_tails
from superarm.lab.experiments.statements.recovery import sudden_changes
from superarm.lab.problems import DriftingFunction
from superarm.lab.results.formats import plus_minus, significant
from superarm.lab.simulation import Run
from superarm.lab.theory import (
    ArmSetGrowth,
    DriftingGrowth,
    regret_bound_tv_gp_ucb,
    regret_lower_bound,
)
from superarm.policies.drift import block_length
from superarm.rules import SrinivasFinite

pytestmark = pytest.mark.slow  # every statement of a paper needs runs

ROUNDS = 12
DRIFT: dict[str, Any] = {"name": "drifting-function", "side": 5}
SWEEP = {"epsilon": [0.001, 0.1]}


def replayable(
    out: Path,
    policies: dict[str, Any],
    problem: dict[str, Any],
    rounds: int = 40,
    seeds: int = 2,
    **more: Any,
) -> RecordedRun:
    spec = {
        "id": "mine",
        "rounds": rounds,
        "seeds": seeds,
        "problem": problem,
        "policies": policies,
    }
    execute(Plan.make(Experiment.from_mapping({**spec, **more}, "here"), out=out))
    return RecordedRun.from_run(Run.load(out))


def verdicts_about(recorded: RecordedRun, beginning: str) -> list[Verdict]:
    return [
        verdict
        for verdict in drifting.statements(recorded)
        if verdict.text.startswith(beginning)
    ]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    policies = {"tv-gp-ucb": {}, "r-gp-ucb": {}, "random": {}, "genie": {}}
    out = tmp_path_factory.mktemp("swept")
    return replayable(out, policies, DRIFT, seeds=6, sweep=SWEEP)


def test_every_statement_is_judged_once_where_it_belongs(swept: RecordedRun) -> None:
    verdicts = judge_statements(swept.run)
    begins = [verdict.text.split(":")[0] for verdict in verdicts]
    assert begins.count("Theorem 4.1") == 2  # for each ε
    assert (
        begins.count("Corollary 4.1") == 6
    )  # two policies: with T for each ε, and with ε
    assert begins.count("Eq. 29") == 2
    assert begins.count("Lemma D.1") == 2
    assert begins.count("Section 4.2") == 1


# --- Theorem 4.1 ----------------------------------------------------------------------------


def test_the_lower_bound_is_compared_with_the_least_regret_after_round_1(
    swept: RecordedRun,
) -> None:
    run = swept.run
    for index, verdict in enumerate(verdicts_about(swept, "Theorem 4.1")):
        world = swept.world(0, index)
        assert isinstance(world, DriftingFunction)
        inside = 0
        for seed in run.seeds:
            drawn = swept.world(seed, index)
            arms = drawn.offer(1).arms.features
            best = arms[drawn.means(drawn.offer(1)).argmax()]
            inside += bool(((best > 0.0) & (best < 1.0)).all())
        assert f"in {inside} of 6 seeds" in verdict.evidence
        totals = run.cumulative("genie", index)
        values = (totals[:, -1] - totals[:, 0]).astype(np.float64) / 39.0
        mean, stderr = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(6.0)
        proven = regret_lower_bound(
            40, world.model.kernel, epsilon=world.epsilon, dimension=2
        )
        assert (
            f"after the first: genie with {plus_minus(mean, stderr)}"
            in verdict.evidence
        )
        assert mean > proven.per_round
        # So many of 6 inside, or more, have a probability of 1 % if P(A₄) is as small as that.
        least = float(stats.beta.ppf(0.01, inside, 7 - inside)) if inside else 0.0
        assert (
            f"P(A₄) ≥ {significant(max(least, proven.interior))} at 99 %"
            in verdict.evidence
        )


def test_regret_below_the_bound_is_detected(
    swept: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = drift_regret.regret_lower_bound

    def too_high(*arguments: Any, **options: Any) -> Any:
        return genuine(*arguments, **options)._replace(per_round=5.0)

    monkeypatch.setattr(drift_regret, "regret_lower_bound", too_high)
    assert {verdict.verdict for verdict in verdicts_about(swept, "Theorem 4.1")} == {
        "does not hold"
    }


def test_a_bound_of_zero_is_not_judged(tmp_path: Path) -> None:
    """With so long a lengthscale and ε = 0.9, the step of the proof is longer than the margin."""
    problem = {**DRIFT, "lengthscale": 5.0, "epsilon": 0.9}
    recorded = replayable(tmp_path, {"random": {}}, problem, rounds=4)
    assert verdicts_about(recorded, "Theorem 4.1") == []


def test_kernels_without_constants_have_no_lower_bound(tmp_path: Path) -> None:
    problem = {**DRIFT, "kernel": "matern", "nu": 1.5}
    recorded = replayable(tmp_path, {"random": {}, "tv-gp-ucb": {}}, problem, rounds=4)
    assert verdicts_about(recorded, "Theorem 4.1") == []
    assert verdicts_about(recorded, "Corollary 4.1") == []  # it needs ν > 2


# --- Corollary 4.1 --------------------------------------------------------------------------


def with_totals(
    recorded: RecordedRun, totals: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put running totals in the place of what the run recorded: seeds differ by a factor."""
    count = len(recorded.run.seeds)
    factors = 1.0 + 0.01 * np.arange(count)[:, None]

    def cumulative(
        self: Run, policy: str, index: int = 0, metric: str = "regret"
    ) -> Any:
        return factors * totals(index)

    monkeypatch.setattr(Run, "cumulative", cumulative)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("power", "word"), [(0.5, "holds"), (1.0, "undecided"), (1.8, "does not hold")]
)
def test_growth_with_time_is_compared_with_the_order(
    power: float, word: str, swept: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.0 is below the order's exponent, but by too little for six seeds to decide."""
    with_totals(swept, lambda index: np.arange(1.0, 41.0) ** power, monkeypatch)
    verdicts = verdicts_about(swept, "Corollary 4.1: with T")
    assert {verdict.verdict for verdict in verdicts} == {word}
    assert all(f"p = {power:g}" in verdict.evidence for verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize(("power", "word"), [(0.9, "holds"), (-0.6, "does not hold")])
def test_growth_with_drift_is_compared_with_the_order(
    power: float, word: str, swept: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    drifts = SWEEP["epsilon"]
    with_totals(
        swept, lambda index: drifts[index] ** power * np.arange(1.0, 41.0), monkeypatch
    )
    verdicts = verdicts_about(swept, "Corollary 4.1: with ε")
    assert [verdict.verdict for verdict in verdicts] == [word, word]
    shown = "q = " + f"{power:g}".replace("-", "−")
    assert all(shown in verdict.evidence for verdict in verdicts)
    # max(√T, T ε^{1/6}) and ε^{1/8}: at ε = 0.001 √40 = 6.3 is below 40 · 0.316
    assert "the order has q = 0.167" in verdicts[0].evidence
    assert "the order has q = 0.125" in verdicts[1].evidence


def test_policies_outside_the_corollary_are_skipped(tmp_path: Path) -> None:
    policies = {
        "static": {"policy": "tv-gp-ucb", "epsilon": 0.0},
        "short": {"policy": "r-gp-ucb", "block": 4},
        "misled": {"policy": "r-gp-ucb", "epsilon": 0.5},
    }
    recorded = replayable(tmp_path, policies, {**DRIFT, "epsilon": 0.05}, rounds=12)
    assert verdicts_about(recorded, "Corollary 4.1") == []
    assert verdicts_about(recorded, "Eq. 29") == []
    assert verdicts_about(recorded, "Section 4.2") == []
    assert len(verdicts_about(recorded, "Lemma D.1")) == 2  # it holds for any N


# --- eq. 29 ---------------------------------------------------------------------------------


def test_errors_match_dense_matrices(tmp_path: Path) -> None:
    epsilon, rounds = 0.1, 10
    problem = {**DRIFT, "epsilon": epsilon}
    recorded = replayable(tmp_path, {"tv-gp-ucb": {}}, problem, rounds=rounds, seeds=5)
    schedule = SrinivasFinite(arms=25, delta=0.5)
    largest = 0.0
    for seed in recorded.run.seeds:
        world = recorded.world(seed)
        kernel, noise = world.model.kernel, world.model.noise_variance
        streams = Streams(seed, "noise")
        rows: list[int] = []
        y: list[float] = []
        for step, chosen in enumerate(
            recorded.run.choices("tv-gp-ucb", 0, seed)[:, 0], start=1
        ):
            offer = world.offer(step)
            arms, truth, n = offer.arms.features, world.means(offer), len(rows)
            D = np.sqrt(1.0 - epsilon) ** np.abs(
                np.subtract.outer(np.arange(n), np.arange(n))
            )
            k = (
                kernel(arms[rows], arms)
                * (np.sqrt(1.0 - epsilon) ** np.arange(n, 0, -1))[:, None]
            )
            solved = np.linalg.solve(kernel(arms[rows]) * D + noise * np.eye(n), k)
            std = np.sqrt(1.0 - np.einsum("ij,ij->j", k, solved))
            width = schedule.width(step, float)
            largest = max(
                largest, float((np.abs(truth - solved.T @ y) / (width * std)).max())
            )
            rows.append(int(chosen))
            y.append(float((truth + world.noise(offer, streams.at(step)))[chosen]))
    (verdict,) = verdicts_about(recorded, "Eq. 29")
    assert f"the largest error is {largest:.3g} of the width" in verdict.evidence
    assert verdict.verdict == "holds"
    assert "in 0 of 5 replayed seeds" in verdict.evidence
    assert "at most 0.031" in verdict.evidence


@pytest.mark.parametrize(
    ("failures", "trials", "word"),
    [
        (0, 5, "holds"),
        (0, 4, "undecided"),
        (1, 5, "undecided"),
        (4, 5, "undecided"),
        (5, 5, "does not hold"),
    ],
)
def test_binomial_tails_decide(failures: int, trials: int, word: str) -> None:
    tails = failure_tails(failures, trials, 0.5)
    assert tails.word(drift_posteriors._CHANCE) == word
    few = sum(math.comb(trials, count) for count in range(failures + 1)) / 2.0**trials
    assert tails.as_few == pytest.approx(few)


# --- Theorem 4.3 ----------------------------------------------------------------------------


def test_theorem_4_3_with_its_own_widths(tmp_path: Path) -> None:
    """With δ = ½, 0 of 20 seeds above the bound: if it were false, 10⁻⁶ would be the chance of that."""
    epsilon, rounds, delta = 0.05, 30, 0.5
    rule = {
        "name": "ucb",
        "schedule": {"name": "gp-ucb-finite", "arms": 25, "delta": delta},
    }
    policies = {"theory": {"policy": "composed", "posterior": "drifting", "rule": rule}}
    problem = {**DRIFT, "epsilon": epsilon}
    recorded = replayable(tmp_path, policies, problem, rounds=rounds, seeds=20)
    model = recorded.world(0).model
    noise = model.noise_variance
    gamma = ArmSetGrowth(
        kernel=model.kernel, features=model.arms, noise_variance=noise, horizon=rounds
    )
    growth = DriftingGrowth(
        gamma=gamma, epsilon=epsilon, noise_variance=noise, horizon=rounds
    )
    steps = np.arange(1, rounds + 1)
    bound = regret_bound_tv_gp_ucb(
        steps, growth, arms=25, noise_variance=noise, delta=delta
    )
    regrets = recorded.run.cumulative("theory")
    assert (regrets > 0.0).any()
    assert (regrets <= bound).all()


# --- Lemma D.1 ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["r-gp-ucb", "random"])
def test_lemma_d_1_matches_dense_matrices(policy: str, tmp_path: Path) -> None:
    """It is about any choices; with so much noise it is not far from what happens."""
    options: dict[str, Any] = {"side": 4, "epsilon": 0.05, "noise_std": 1.5}
    problem = {"name": "drifting-function", **options}
    recorded = replayable(tmp_path, {policy: {}}, problem, rounds=ROUNDS)
    run, N = recorded.run, 5
    for seed in run.seeds:
        world = DriftingFunction(seed=seed, horizon=ROUNDS, **options)
        arms, noise, streams = (
            world.offer(1).arms.features,
            2.25,
            Streams(seed, "noise"),
        )
        rows: list[int] = []
        y: list[float] = []
        shares = [0.0, 0.0]
        for step, chosen in enumerate(
            run.choices(policy, 0, seed)[:, 0].tolist(), start=1
        ):
            if step % N == 1:
                rows, y = [], []
            n = len(rows)
            moments = []
            for keep in (1.0, np.sqrt(0.95)):
                D = keep ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
                k = (
                    world.model.kernel(arms[rows], arms)
                    * keep ** np.arange(n, 0, -1)[:, None]
                )
                K = world.model.kernel(arms[rows]) * D + noise * np.eye(n)
                solved = np.linalg.solve(K, k)
                moments.append(
                    [solved.T @ y, np.sqrt(1.0 - np.einsum("ij,ij->j", k, solved))]
                )
            if n:
                s, largest = 1.0 / noise, np.abs(y).max()
                allowed = [
                    (s + s**2) * N**3 * 0.05 * largest,
                    np.sqrt((3 * s + s**2) * N**3 * 0.05),
                ]
                off = np.abs(np.subtract(*moments)).max(axis=1)
                shares = np.maximum(shares, off / allowed).tolist()
            offer = world.offer(step)
            rows.append(chosen)
            y.append(
                (world.means(offer) + world.noise(offer, streams.at(step)))[chosen]
            )
        computed = mismatch_used(recorded, policy, seed, 0, N)
        assert list(computed) == pytest.approx(shares, rel=1e-6)
        assert 0.0 < computed.mean <= 1.0
        assert 0.0 < computed.std <= 1.0


def test_lemma_d_1_is_about_functions_that_drift(tmp_path: Path) -> None:
    recorded = replayable(
        tmp_path, {"random": {}}, {"name": "gp-function", "arms": 9}, rounds=3
    )
    with pytest.raises(InputError, match="functions that drift"):
        mismatch_used(recorded, "random", 0, 0, 2)
    assert list(drifting.statements(recorded)) == []


def test_violations_of_lemma_d_1_are_detected(
    swept: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = verdicts_about(swept, "Lemma D.1")
    assert {verdict.verdict for verdict in verdicts} == {"holds"}
    assert all(
        "can contradict that part" in verdict.evidence for verdict in verdicts
    )  # σ² is 0.01
    genuine = drift_posteriors.mismatch_bounds

    def too_low(*arguments: Any) -> Any:
        allowed = genuine(*arguments)
        return allowed._replace(std=1e-9 * allowed.std)

    monkeypatch.setattr(drift_posteriors, "mismatch_bounds", too_low)
    assert {verdict.verdict for verdict in verdicts_about(swept, "Lemma D.1")} == {
        "does not hold"
    }


# --- N and smoothness -----------------------------------------------------------------------


def test_blocks_get_shorter_for_smoother_functions(tmp_path: Path) -> None:
    """The paper's sentence is false by its own constants, and by its own exponents."""
    recorded = replayable(
        tmp_path, {"r-gp-ucb": {}}, {**DRIFT, "epsilon": 0.03}, rounds=200, seeds=1
    )
    (verdict,) = verdicts_about(recorded, "Section 4.2: N increases")
    assert verdict.verdict == "does not hold"
    model = recorded.world(0).model
    rough = 24.0 * 0.03 ** (-1.0 / (4.0 - 6.0 / 11.0))
    middle = 24.0 * 0.03 ** (-1.0 / (4.0 - 6.0 / 15.0))
    smooth = 12.0 * 0.03**-0.25
    lengths = [math.ceil(length) for length in (rough, middle, smooth)]
    assert lengths[2] == block_length(model, 0.03)
    assert f"{lengths[0]}, {lengths[1]}, {lengths[2]} for ε = 0.03" in verdict.evidence
    assert rough / 24.0 > middle / 24.0 > smooth / 12.0  # without the constants, too


def test_short_runs_are_inconclusive(tmp_path: Path) -> None:
    recorded = replayable(
        tmp_path, {"r-gp-ucb": {}}, {**DRIFT, "epsilon": 0.03}, rounds=5
    )
    (verdict,) = verdicts_about(recorded, "Section 4.2: N increases")
    assert verdict.verdict == "undecided"  # every N is T


# --- sudden changes -------------------------------------------------------------------------


def test_sudden_changes_are_the_largest_drops_of_the_best() -> None:
    readings = np.zeros((60, 3))
    readings[:, 0] = 10.0
    readings[19:, 0] = 4.0  # round 20: the best drops by 6
    readings[19:, 1] = 5.0
    readings[39:, 1] = (
        1.0  # round 40: by 4, to below the first sensor, which stays at 4
    )
    readings[49:, 0] = 3.0  # round 50: by 1
    readings[1:3, 2] = [
        20.0,
        0.0,
    ]  # round 3: by 20, but too early for five rounds before it
    readings[57, 0] = 0.0  # round 58: too late for five rounds after it
    assert sudden_changes(readings) == [20, 40, 50]


def test_recovery_is_regret_after_less_regret_before(tmp_path: Path) -> None:
    policies = {
        "tv-gp-ucb": {},
        "static": {"policy": "tv-gp-ucb", "epsilon": 0.0},
        "random": {},
    }
    problem = {"name": "traffic-series", "source": "synthetic"}
    recorded = replayable(tmp_path, policies, problem, rounds=60, seeds=4)
    (verdict,) = verdicts_about(
        recorded, "Section 5.2: tv-gp-ucb recovers more quickly"
    )
    changes = sudden_changes(recorded.world(0).readings[:60])  # type: ignore[attr-defined]
    rises = {}
    for policy in ("tv-gp-ucb", "static"):
        regrets = np.diff(recorded.run.cumulative(policy), axis=1, prepend=0.0)
        after = np.mean(
            [regrets[:, step : step + 5].mean(axis=1) for step in changes], axis=0
        )
        before = np.mean(
            [regrets[:, step - 6 : step - 1].mean(axis=1) for step in changes], axis=0
        )
        rise = after - before
        rises[policy] = float(rise.mean())
        stderr = float(rise.std(ddof=1)) / 2.0
        assert f"{policy} {plus_minus(rises[policy], stderr)}" in verdict.evidence
    assert f"around {len(changes)} sudden drops" in verdict.evidence
    if verdict.verdict != "undecided":
        assert (verdict.verdict == "holds") == (rises["tv-gp-ucb"] < rises["static"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quick", "word"), [("tv-gp-ucb", "holds"), ("static", "does not hold")]
)
def test_the_quicker_policy_is_found(
    quick: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = {"tv-gp-ucb": {}, "static": {"policy": "tv-gp-ucb", "epsilon": 0.0}}
    problem = {"name": "traffic-series", "source": "synthetic"}
    recorded = replayable(tmp_path, policies, problem, rounds=60, seeds=8)
    changes = sudden_changes(recorded.world(0).readings[:60])  # type: ignore[attr-defined]
    slow = np.ones(60)
    for step in changes:
        slow[step : step + 5] = 9.0
    seeds = 1.0 + 0.01 * np.arange(8)[:, None]

    def cumulative(
        self: Run, policy: str, index: int = 0, metric: str = "regret"
    ) -> Any:
        return seeds * np.cumsum(np.ones(60) if policy == quick else slow)

    monkeypatch.setattr(Run, "cumulative", cumulative)
    monkeypatch.setattr(Run, "shared_data", lambda self, index: 0.0)
    (verdict,) = verdicts_about(recorded, "Section 5.2")
    assert verdict.verdict == word


def test_late_feedback_is_not_judged(tmp_path: Path) -> None:
    recorded = replayable(
        tmp_path,
        {"tv-gp-ucb": {}},
        {**DRIFT, "epsilon": 0.05},
        rounds=6,
        feedback={"latest": 2},
    )
    assert list(drifting.statements(recorded)) == []
