"""Lemmas 1 to 3, eq. 6 and Theorem 1 of O'CLOK-UCB on recorded runs, against dense matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision
from superarm.core.streams import Streams
from superarm.kernels import SquaredExponential
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.experiments.statements import (
    RecordedRun,
    combinatorial,
    judge_statements,
)
from superarm.lab.experiments.statements.combinatorial_replay import Replay, replay
from superarm.lab.experiments.statements.combinatorial_verdicts import verdicts
from superarm.lab.experiments.statements.judging import failure_tails
from superarm.lab.experiments.theorems import high_probability, regret_bounds
from superarm.lab.problems import Codependency, Movies
from superarm.lab.problems.movies import best_coverage
from superarm.lab.report import write_report
from superarm.lab.results.formats import significant
from superarm.lab.simulation import Run
from superarm.lab.theory import regret_bound_oclok_ucb
from superarm.rewards import Sum
from superarm.rules import OclokUCB
from superarm.rules.information import arriving_information_gain

pytestmark = pytest.mark.slow  # every statement of a paper needs runs

OPTIONS: dict[str, Any] = {"arrivals": 8, "pool": 60, "lengthscale": 1.0, "k": 2}
PROBLEM = {"name": "codependency", **OPTIONS}
FILM_OPTIONS: dict[str, Any] = {
    "source": "synthetic",
    "films": 7,
    "viewers": 16,
    "oracle": "greedy",
    "k": 2,
}
FILMS = {"name": "movies", **FILM_OPTIONS}
ROUNDS = 12


def run_of(
    out: Path, policies: dict[str, Any], problem: dict[str, Any] = PROBLEM, **more: Any
) -> RecordedRun:
    spec = {
        "id": "mine",
        "rounds": ROUNDS,
        "seeds": 2,
        "problem": problem,
        "policies": policies,
    }
    execute(Plan.make(Experiment.from_mapping({**spec, **more}, "here"), out=out))
    return RecordedRun.from_run(Run.load(out))


def world_of(seed: int) -> Codependency:
    return Codependency(seed=seed, horizon=ROUNDS, **OPTIONS)


def by_full_matrices(run: Run, policy: str, seed: int, schedule: OclokUCB) -> Replay:
    """The same numbers from the matrices of all observations, round by round."""
    world = world_of(seed)
    kernel = SquaredExponential(lengthscale=1.0)
    noise = world.noise_std**2
    streams = Streams(seed, "noise")
    X = np.empty((0, 3))
    y = np.empty(0)
    variances = regret = 0.0
    eigenvalue = 0.0
    arms = outside = inside = 0
    beyond = np.zeros(4)
    gap_share = regret_share = -math.inf
    for step, chosen in enumerate(run.choices(policy, 0, seed), start=1):
        offer = world.offer(step)
        now = offer.arms.features
        truth = world.means(offer)
        solved = np.linalg.solve(kernel(X) + noise * np.eye(len(X)), kernel(X, now))
        mean = solved.T @ y
        cov = kernel(now) - kernel(now, X) @ solved
        std = np.sqrt(np.diag(cov))
        beta = 2.0 * math.log(
            schedule.most_arms * math.pi**2 * step**2 / (3.0 * schedule.delta)
        )
        z = np.abs(truth - mean) / std
        arms += len(now)
        outside += int((z > math.sqrt(beta)).sum())
        beyond += [(z > level).sum() for level in (1.5, 2.0, 2.5, 3.0)]
        gap = np.sort(truth)[-2:].sum() - truth[chosen].sum()
        if (z <= math.sqrt(beta)).all():
            inside += 1
            gap_share = max(
                gap_share, gap / (2.0 * math.sqrt(beta) * std[chosen].sum())
            )
        eigenvalue = max(
            eigenvalue, np.linalg.eigvalsh(cov[np.ix_(chosen, chosen)])[-1]
        )
        variances += float((std[chosen] ** 2).sum())
        regret += gap
        drawn = world.noise(offer, streams.at(step))
        X = np.vstack([X, now[chosen]])
        y = np.append(y, truth[chosen] + drawn[chosen])
        information = 0.5 * np.linalg.slogdet(np.eye(len(X)) + kernel(X) / noise)[1]
        bound = math.sqrt(8.0 * (eigenvalue + noise) * 2 * beta * step * information)
        regret_share = max(regret_share, regret / bound)
    allowed = 2.0 * (eigenvalue + noise) * information
    return Replay(
        variances / allowed,
        arms,
        outside,
        beyond / arms,
        inside,
        gap_share,
        regret_share,
    )


@pytest.mark.parametrize("delta", [0.05, 30.0])
def test_replays_match_dense_matrices(delta: float, tmp_path: Path) -> None:
    """A δ that no theorem allows makes widths so narrow that Lemma 2 is seen to fail."""
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}, "random": {}})
    schedule = OclokUCB(most_arms=23, delta=0.05)
    object.__setattr__(schedule, "delta", delta)
    for policy in ("oclok-ucb", "random"):
        for seed in recorded.run.seeds:
            replayed = replay(recorded, policy, seed, 0, world_of(seed), schedule)
            expected = by_full_matrices(recorded.run, policy, seed, schedule)
            for name, value in expected._asdict().items():
                assert getattr(replayed, name) == pytest.approx(value, rel=1e-5), name
            assert replayed.variance_share <= 1.0
            assert replayed.all_inside == (delta < 1.0)
            assert delta > 1.0 or policy == "random" or replayed.gap_share <= 1.0
            assert delta > 1.0 or policy == "random" or replayed.regret_share <= 1.0


def items(recorded: RecordedRun) -> dict[str, str]:
    """Verdicts by what they are about, of a run with one setting."""
    verdicts = [*combinatorial.statements(recorded)]
    assert all("(2 of 2 seeds, T = 12, " in verdict.evidence for verdict in verdicts)
    return {verdict.text.partition(":")[0]: verdict.verdict for verdict in verdicts}


def test_verdicts_of_a_run(tmp_path: Path) -> None:
    """Two seeds decide nothing about a probability of 0.05; what is sure on F is checked for sure."""
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}, "random": {}})
    assert items(recorded) == {
        "Lemma 1": "holds",
        "Eq. 6": "undecided",
        "Lemma 2": "undecided",
        "Lemma 3": "holds",
        "Theorem 1, eq. 26": "holds",
    }
    texts = [verdict.text for verdict in judge_statements(recorded.run)]
    assert [verdict.text for verdict in combinatorial.statements(recorded)] == texts


def test_runs_outside_lemma_2_are_not_judged(tmp_path: Path) -> None:
    """Another kernel, or no process at all: neither eq. 6 nor Lemma 2 is judged."""
    other = run_of(
        tmp_path / "other", {"oclok-ucb": {}}, {**PROBLEM, "lengthscale": 0.5}
    )
    assert not {"Eq. 6", "Lemma 2"} & set(items(other))
    lemma_3 = next(
        verdict
        for verdict in combinatorial.statements(other)
        if "Lemma 3" in verdict.text
    )
    assert (
        "but Lemma 2 does not apply: the learner's kernel is not that of f"
        in lemma_3.evidence
    )
    workers = {"name": "crowdsourcing", "source": "synthetic", "workers": 10, "k": 2}
    assert "Lemma 2" not in items(
        run_of(tmp_path / "workers", {"oclok-ucb": {}}, workers)
    )


def test_random_oracle_does_not_affect_lemma_1(tmp_path: Path) -> None:
    films = {**FILMS, "oracle": "tim"}
    assert set(items(run_of(tmp_path / "run", {"oclok-ucb": {}}, films))) == {"Lemma 1"}
    four = {**FILMS, "k": 4, "films": 12}  # whose optimum is not searched for
    assert set(items(run_of(tmp_path / "four", {"oclok-ucb": {}}, four))) == {"Lemma 1"}


@pytest.mark.parametrize(
    "options",
    [
        {"stepwise": True},
        {"posterior": "inducing"},
        {"assumes": {"noise_variance": 0.5}},
    ],
)
def test_other_algorithms_are_not_replayed(
    options: dict[str, Any], tmp_path: Path
) -> None:
    policies = {"other": {"policy": "oclok-ucb", **options}, "random": {}}
    assert not [*combinatorial.statements(run_of(tmp_path / "run", policies))]


def test_late_feedback_is_not_replayed(tmp_path: Path) -> None:
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}}, feedback={"latest": 2})
    assert not [*combinatorial.statements(recorded)]


def test_run_without_choices(tmp_path: Path) -> None:
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}}, FILMS)
    for cell in (tmp_path / "run" / "cells").iterdir():
        arrays = dict(np.load(cell))
        np.savez(cell, **{**arrays, "choices": np.full_like(arrays["choices"], -1)})
    assert items(recorded)["Lemma 1"] == "holds"


def test_one_policy_for_every_delta(tmp_path: Path) -> None:
    twin = {"policy": "oclok-ucb", "form": "cholesky"}
    bold = {"policy": "oclok-ucb", "delta": 0.5}
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}, "twin": twin, "bold": bold})
    about = [
        verdict.text
        for verdict in combinatorial.statements(recorded)
        if verdict.text.startswith("Lemma 2")
    ]
    assert len(about) == 2
    assert "1 − δ = 0.95" in about[0]
    assert "1 − δ = 0.5" in about[1]


def test_words_of_probabilities() -> None:
    """Exact binomial tails at 1 %: 0.95⁸⁹ > 0.01 > 0.95⁹⁰; of five seeds, two fail with 2.3 %."""
    assert failure_tails(0, 89, 0.05).word() == "undecided"
    assert failure_tails(0, 90, 0.05).word() == "holds"
    at_least_two = 1.0 - 0.95**5 - 5.0 * 0.05 * 0.95**4
    assert 0.01 < at_least_two < 0.05
    assert failure_tails(2, 5, 0.05).word() == "undecided"
    at_least_three = at_least_two - 10.0 * 0.05**2 * 0.95**3
    assert at_least_three < 0.01
    assert failure_tails(3, 5, 0.05).word() == "does not hold"


def example_replay(**changes: Any) -> Replay:
    sound = Replay(0.5, 1000, 0, np.array([0.13, 0.05, 0.01, 0.003]), 12, 0.4, 0.2)
    return sound._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "item"),
    [
        ({"variance_share": 1.01}, "Lemma 1"),
        ({"gap_share": 1.01}, "Lemma 3"),
        ({"regret_share": 1.01}, "Theorem 1, eq. 26"),
        ({"outside": 1}, "Lemma 2"),
        ({"beyond": np.array([0.7, 0.3, 0.1, 0.03])}, "Eq. 6"),
    ],
)
def test_violations_are_detected(changes: dict[str, Any], item: str) -> None:
    """One seed is enough where a statement is sure; a share above eq. 6's limit in every seed."""
    count = 90
    wrong = example_replay(**changes)
    everywhere = item in ("Lemma 2", "Eq. 6")
    replays = (
        [wrong] * count if everywhere else [*[example_replay()] * (count - 1), wrong]
    )
    words = {
        verdict.text.partition(":")[0]: verdict.verdict
        for verdict in verdicts(replays, 0.05, "", has_promise=True)
    }
    assert words.pop(item) == "does not hold"
    assert set(words.values()) <= {"holds"}


def test_lemma_3_is_not_judged_without_a_qualifying_round() -> None:
    never = example_replay(outside=40, rounds_inside=0, gap_share=-math.inf)
    judged = [*verdicts([never] * 5, 0.05, "f is another", has_promise=True)]
    assert [verdict.text.partition(":")[0] for verdict in judged] == ["Lemma 1"]


class Steep(Sum):
    """Lemma 3 and Theorem 1 allow twice as much where B = 2."""

    lipschitz = 2.0


def test_gaps_are_measured_by_the_rewards_b(tmp_path: Path) -> None:
    recorded = run_of(tmp_path / "run", {"random": {}})
    schedule = OclokUCB(most_arms=23, delta=0.05)
    world = world_of(0)
    plain = replay(recorded, "random", 0, 0, world, schedule)
    object.__setattr__(world, "model", replace(world.model, reward=Steep()))
    steep = replay(recorded, "random", 0, 0, world, schedule)
    assert plain.gap_share > 0.0
    assert steep.gap_share == pytest.approx(plain.gap_share / 2.0)
    assert steep.regret_share == pytest.approx(plain.regret_share / 2.0)


def test_only_arms_that_are_available_count(tmp_path: Path) -> None:
    recorded = run_of(tmp_path / "run", {"random": {}})
    schedule = OclokUCB(most_arms=23, delta=0.05)
    world = world_of(0)
    everything = replay(recorded, "random", 0, 0, world, schedule)
    full = world.offer

    def without_the_first(step: int) -> Any:
        offer = full(step)
        return replace(offer, available=np.arange(len(offer.arms)) > 0)

    object.__setattr__(world, "offer", without_the_first)
    fewer = replay(recorded, "random", 0, 0, world, schedule)
    assert fewer.arms == everything.arms - ROUNDS


def test_lemma_3_is_about_the_promise_and_rounds_of_any_size(tmp_path: Path) -> None:
    """Super arms of films differ in size; greedy coverage of two promises ¾ of the optimum."""
    recorded = run_of(tmp_path / "run", {"random": {}}, FILMS)
    schedule = OclokUCB(most_arms=60, delta=1e-200)  # so wide that no mean lies outside
    sizes = set()
    gaps = []
    for seed in recorded.run.seeds:
        world = Movies(seed=seed, horizon=ROUNDS, **FILM_OPTIONS)
        kernel = world.model.kernel
        gap = -math.inf
        X = np.empty((0, 1))
        for step, row in enumerate(recorded.run.choices("random", 0, seed), start=1):
            offer = world.offer(step)
            chosen = row[row >= 0]
            sizes.add(len(chosen))
            now = offer.arms.features[chosen]
            solved = np.linalg.solve(kernel(X) + 0.01 * np.eye(len(X)), kernel(X, now))
            std = np.sqrt(np.diag(kernel(now) - kernel(now, X) @ solved))
            value = world.value(
                offer, Decision(step=step, action=None, positions=chosen)
            )
            optimum = best_coverage(world.means(offer), offer, 2)
            assert optimum is not None
            allowed = 2.0 * schedule.width(step, float) * std.sum()
            gap = max(gap, (0.75 * optimum - value) / allowed)
            X = np.vstack([X, now])
        replayed = replay(recorded, "random", seed, 0, world, schedule)
        assert replayed.rounds_inside == ROUNDS
        assert replayed.gap_share == pytest.approx(gap, rel=1e-4)
        gaps.append(gap)
    assert min(gaps) > 0.0
    assert len(sizes) > 1


# --- Theorem 1, drawn ----------------------------------------------------------------------


def test_the_bound_over_arrivals(tmp_path: Path) -> None:
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}})
    bound = regret_bounds(recorded.run).drawn["oclok-ucb"]
    assert (
        bound.label == "O'CLOK-UCB bound"
    )  # f is drawn from the learner's process: all is met
    expected = []
    for seed in recorded.run.seeds:
        model = (world := world_of(seed)).model
        offers = [world.offer(step).arms.features for step in range(1, ROUNDS + 1)]
        gains = arriving_information_gain(model.kernel, offers, 2, model.noise_variance)
        expected.append(
            regret_bound_oclok_ucb(
                bound.rounds,
                lambda count, gains=gains: 2.0 * gains[int(count) // 2],
                most_arms=model.most_arms or 0,
                budget=2,
                noise_variance=model.noise_variance,
                largest_eigenvalue=2.0,
            )
        )
    np.testing.assert_allclose(bound.values, np.mean(expected, axis=0))


@pytest.mark.parametrize("other", [{"lengthscale": 0.5}, {"squared": False}])
def test_other_kernels_and_steps_are_reported(
    other: dict[str, Any], tmp_path: Path
) -> None:
    policies = {"stepwise": {"policy": "oclok-ucb", "stepwise": True}}
    recorded = run_of(tmp_path / "run", policies, {**PROBLEM, **other})
    bound = regret_bounds(recorded.run).drawn["stepwise"]
    assert bound.label.endswith("(assumptions not met)")
    assert "arms chosen all at once" in bound.assumes
    assert "a learner with the kernel of f" in bound.assumes


def test_a_random_oracle_has_no_bound(tmp_path: Path) -> None:
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}}, {**FILMS, "oracle": "tim"})
    assert "its oracle is random" in regret_bounds(recorded.run).missing["oclok-ucb"]


def test_the_budget_is_the_largest_super_arm_of_all_seeds(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"oclok-ucb": {}}, FILMS).run
    widths = [run.choices("oclok-ucb", 0, seed).shape[1] for seed in run.seeds]
    assert widths[0] < widths[1]
    bound = regret_bounds(run).drawn["oclok-ucb"]
    budget = max(widths)
    expected = []
    for seed in run.seeds:
        model = (world := Movies(seed=seed, horizon=ROUNDS, **FILM_OPTIONS)).model
        offers = [world.offer(step).arms.features for step in range(1, ROUNDS + 1)]
        gains = arriving_information_gain(
            model.kernel, offers, budget, model.noise_variance
        )
        expected.append(
            regret_bound_oclok_ucb(
                bound.rounds,
                lambda count, gains=gains: 2.0 * gains[int(count) // budget],
                most_arms=model.most_arms or 0,
                budget=budget,
                noise_variance=model.noise_variance,
                largest_eigenvalue=float(budget),
            )
        )
    np.testing.assert_allclose(bound.values, np.mean(expected, axis=0))
    assert (
        "f drawn from the learner's Gaussian process (here it is not)" in bound.assumes
    )


def test_gamma_is_found_among_arrivals_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two arms in each of twelve rounds are 24; the shipped experiments choose up to 300 times five."""
    assert high_probability._MOST_ARRIVALS >= 300 * 5
    run = run_of(tmp_path / "run", {"oclok-ucb": {}}).run
    unproven = "a proven bound on γ"
    monkeypatch.setattr(high_probability, "_MOST_ARRIVALS", 24)
    assert unproven not in regret_bounds(run).drawn["oclok-ucb"].assumes
    monkeypatch.setattr(high_probability, "_MOST_ARRIVALS", 23)
    assert unproven in regret_bounds(run).drawn["oclok-ucb"].assumes


@pytest.mark.parametrize("problem", ["channels", "crowdsourcing"])
def test_other_truths_are_reported(problem: str, tmp_path: Path) -> None:
    problem_spec: dict[str, Any] = {
        "channels": {"name": "channels", "channels": 2, "users": 4},
        "crowdsourcing": {
            "name": "crowdsourcing",
            "source": "synthetic",
            "workers": 10,
            "k": 2,
        },
    }[problem]
    recorded = run_of(tmp_path / "run", {"oclok-ucb": {}}, problem_spec)
    bound = regret_bounds(recorded.run).drawn["oclok-ucb"]
    assert (
        "f drawn from the learner's Gaussian process (here it is not)" in bound.assumes
    )


# --- Table 1 -------------------------------------------------------------------------------


def test_table_1_at_the_size_of_a_run(tmp_path: Path) -> None:
    """T = 12, K = 2, D = 3, λ* ≤ 2; growth is from the sixth round to the twelfth."""
    policies: dict[str, Any] = {
        "oclok-ucb": {},
        "acc-ucb": {},
        "cc-mab": {},
        "random": {},
    }
    rates = regret_bounds(run_of(tmp_path / "run", policies).run).rates
    assert rates is not None
    rows = {(row.algorithm, row.work.partition(" ")[0]): row for row in rates.rows}
    assert len(rows) == 6
    squared = rows["O'CLOK-UCB", "squared"]
    assert squared.corollary == pytest.approx(
        math.sqrt(2 * 2 * 12 * math.log(12.0) ** 3)
    )
    assert squared.value == pytest.approx(math.sqrt(3.0) * squared.corollary)
    growth = 0.5 * (
        1.0 + 3.0 * math.log(math.log(12.0) / math.log(6.0)) / math.log(2.0)
    )
    assert squared.exponent == pytest.approx(growth)
    cubes = next(row for row in rates.rows if row.algorithm == "CC-MAB")
    assert cubes.value == pytest.approx(2.0 * 12.0 ** (5.0 / 6.0))
    assert cubes.exponent == pytest.approx(5.0 / 6.0)
    assert cubes.corollary is None
    measured = [
        (row.algorithm, row.work) for row in rates.rows if row.measured is not None
    ]
    assert [name for name, _ in measured] == ["CC-MAB", "ACC-UCB", "O'CLOK-UCB"]
    assert measured[-1][1] == "squared exponential kernel"
    assert "K = 2, D = 3" in rates.note


def test_table_1_in_a_report(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"oclok-ucb": {}, "acc-ucb": {}}).run
    bounds = regret_bounds(run)
    page = write_report(
        run, [], tmp_path / "report.html", bounds=bounds
    ).path.read_text("utf-8")
    table = page[page.index("Table 1: orders of the regret") :]
    assert bounds.rates is not None
    for rate in bounds.rates.rows:
        assert f">{significant(rate.value)}<" in table
        assert escape(rate.order) in table
    assert escape(bounds.rates.note) in table
    assert table.count("Corollary 1, T = ") == 1
    without = write_report(
        run, [], tmp_path / "other.html", bounds=bounds._replace(rates=None)
    ).path
    assert "Table 1" not in without.read_text("utf-8")


def test_a_table_without_corollaries_has_no_column_for_them(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"oclok-ucb": {}, "acc-ucb": {}}).run
    bounds = regret_bounds(run)
    assert bounds.rates is not None
    rows = tuple(row._replace(corollary=None) for row in bounds.rates.rows)
    rates = bounds.rates._replace(rows=rows)
    page = write_report(
        run, [], tmp_path / "report.html", bounds=bounds._replace(rates=rates)
    ).path.read_text("utf-8")
    table = page[page.index("Table 1: orders of the regret") :]
    assert "Corollary 1, T = " not in table
    assert "this run grows like" in table
    for rate in rows:
        assert f">{significant(rate.value)}<" in table


def test_other_runs_have_no_table_1(tmp_path: Path) -> None:
    assert regret_bounds(run_of(tmp_path / "run", {"acc-ucb": {}}).run).rates is None
    few = run_of(tmp_path / "few", {"oclok-ucb": {}}, rounds=4)
    assert regret_bounds(few.run).rates is None
