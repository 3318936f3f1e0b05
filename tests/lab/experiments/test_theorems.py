"""Bounds over a run: drawn for every policy that theory covers, and reasons for the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Floats, Ints, registry
from superarm.core.errors import InputError, StateError
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.experiments.statements import RecordedRun
from superarm.lab.experiments.theorems import regret_bounds
from superarm.lab.results.bounds import Bound, RegretBounds
from superarm.lab.results.formats import significant
from superarm.lab.simulation import Run
from superarm.lab.theory import (
    COMPARED_WORKS,
    ArmSetGrowth,
    CompactSet,
    DriftingGrowth,
    SmoothDomain,
    bayesian_regret_bound,
    bayesian_regret_bound_of_widths,
    drifting_information_gain,
    prior_eigenvalue_bound,
    rate_drift,
    regret_bound_gp_md,
    regret_bound_gp_ts,
    regret_bound_oclok_ucb,
    regret_bound_r_gp_ucb,
    regret_bound_tv_gp_ucb,
)
from superarm.policies.drift import block_length
from superarm.rewards import Sum
from superarm.roads.problems.navigation import Navigation
from superarm.rules import BayesUCBQuantile
from superarm.rules.information import GreedyGrowth, arriving_information_gain

FUNCTION = {"name": "rkhs-function", "arms": 20}
CITY = {"name": "navigation", "edges": 200}


def bounds_of(out: Path, policies: dict[str, Any], **changes: Any) -> RegretBounds:
    spec = {
        "id": "mine",
        "rounds": 8,
        "seeds": 1,
        "problem": FUNCTION,
        "policies": policies,
    }
    execute(Plan.make(Experiment.from_mapping({**spec, **changes}, "here"), out=out))
    bounds = regret_bounds(Run.load(out))
    assert {*bounds.drawn, *bounds.missing} == set(policies)
    assert not {*bounds.drawn} & {*bounds.missing}
    assert all(
        reason.startswith("no bound because ") for reason in bounds.missing.values()
    )
    return bounds


def test_a_bound_is_drawn_where_there_is_one(tmp_path: Path) -> None:
    names = ["igp-ucb", "gp-ts", "gp-ucb", "gp-ei", "gp-greedy", "kernel-ucb", "random"]
    bounds = bounds_of(tmp_path / "b", {name: {} for name in names}, seeds=2)
    assert list(bounds.drawn) == names[:3]
    assert all((bound.values[1:] > 0.0).all() for bound in bounds.drawn.values())
    for name, reason in {
        "gp-ei": "none is drawn here for such a policy",
        "gp-greedy": "does not explore",
        "kernel-ucb": "SupKernelUCB",
        "random": "learns nothing",
    }.items():
        assert reason in bounds.missing[name]
    spec = json.loads((tmp_path / "b" / "run.json").read_text(encoding="utf-8"))
    del spec["parameters"]
    (tmp_path / "b" / "run.json").write_text(json.dumps(spec), encoding="utf-8")
    with pytest.raises(StateError, match="parameters"):
        regret_bounds(Run.load(tmp_path / "b"))


def edited(directory: Path, **changes: Any) -> Run:
    """The run after an edit of its problem in ``run.json``."""
    path = directory / "run.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["parameters"]["problem"].update(changes)
    path.write_text(json.dumps(spec), encoding="utf-8")
    return Run.load(directory)


def test_bound_does_not_build_arbitrary_parts_named_in_run_json(tmp_path: Path) -> None:
    policies = {"route-ucb": {}}
    bounds_of(tmp_path / "city", policies, problem=CITY, rounds=1)
    with pytest.raises(
        StateError, match=r"has a city of 2,000,000 edges, but the run was on \d+"
    ):
        regret_bounds(edited(tmp_path / "city", edges=2_000_000))
    bounds_of(tmp_path / "function", {"gp-ucb": {}}, rounds=1)
    for huge in ({"arms": 10**9}, {"dimension": 10**9}):
        with pytest.raises(InputError, match="must be a whole number from"):
            regret_bounds(edited(tmp_path / "function", **huge))


def test_bound_creates_no_drive_cache(tmp_path: Path) -> None:
    bounds_of(tmp_path / "run", {"gp-ucb": {}}, rounds=1)
    run = Run.load(tmp_path / "run")
    problem = {"name": "sumo-navigation", "cache": str(tmp_path / "elsewhere.sqlite")}
    parameters = {**run.spec["parameters"], "problem": problem}
    hostile = Run(run.directory, {**run.spec, "parameters": parameters})
    assert "cache" not in RecordedRun.from_run(hostile).in_setting(0).problem


def test_a_bound_belongs_to_the_policy_not_to_its_label(tmp_path: Path) -> None:
    own = {"policy": "composed", "rule": {"name": "greedy"}}
    labels = bounds_of(
        tmp_path / "label", {"igp-ucb": own, "oclok-ucb": {"policy": "random"}}
    )
    assert not labels.drawn

    def mine(name: str, **options: Any) -> Bound:
        return bounds_of(tmp_path / name, {"random": {}, "mine": options}).drawn["mine"]

    plain = bounds_of(tmp_path / "plain", {"igp-ucb": {}}).drawn["igp-ucb"]
    np.testing.assert_array_equal(
        mine("renamed", policy="igp-ucb").values, plain.values
    )
    default = registry.parameters_of("policy", "igp-ucb")["delta"]
    stated = mine("stated", policy="igp-ucb", delta=default)
    np.testing.assert_array_equal(stated.values, plain.values)
    stricter = mine("stricter", policy="igp-ucb", delta=default / 10)
    assert (stricter.values[1:] > plain.values[1:]).all()
    assert mine("oclok", policy="oclok-ucb").label.startswith("O'CLOK")


GAIN, NORM, NOISE, RIDGE, GRID, DRAWN, EXACT = (
    "a proven bound on γ",
    "‖f‖ ≤ B",
    "noise that never exceeds √λ",
    "λ = 1 + 2/T",
    "grids D_t",
    "f drawn from the learner's Gaussian process",
    "the exact posterior (here it is independent)",
)


@pytest.mark.parametrize(
    ("policy", "options", "problem", "lacking"),
    [
        ("igp-ucb", {}, {}, {GAIN, RIDGE}),
        ("igp-ucb", {"gain": "greedy"}, {}, {RIDGE}),
        ("igp-ucb", {"gain": "greedy"}, {"regularisation": "theory"}, set()),
        ("igp-ucb", {}, {"name": "gp-function"}, {GAIN, NORM, RIDGE}),
        ("igp-ucb", {"posterior": "independent"}, {}, {GAIN, RIDGE, EXACT}),
        ("gp-ts", {}, {}, {GAIN, RIDGE, GRID}),
        (
            "gp-ts",
            {"decision_set": "discretised"},
            {"regularisation": "theory"},
            {GAIN},
        ),
        ("gp-ucb", {}, {}, {GAIN, NOISE}),
        ("oclok-ucb", {}, {}, {GAIN, DRAWN}),
        ("oclok-ucb", {}, {"name": "gp-function"}, {GAIN}),
    ],
)
def test_missing_requirements_of_the_theorem_are_reported(
    policy: str,
    options: dict[str, Any],
    problem: dict[str, Any],
    lacking: set[str],
    tmp_path: Path,
) -> None:
    bound = bounds_of(
        tmp_path, {policy: options}, problem={**FUNCTION, **problem}
    ).drawn[policy]
    reasons = {
        text
        for text in (GAIN, NORM, NOISE, RIDGE, GRID, DRAWN, EXACT)
        if text in bound.assumes
    }
    assert reasons == lacking
    assert ("assumptions not met" in bound.label) == bool(lacking)


@pytest.mark.parametrize(
    ("policy", "options", "problem", "reason"),
    [
        ("igp-ucb", {"gain": "realised"}, {}, "the information actually gained"),
        ("gp-ts", {"mode": "independent"}, {}, "joint samples"),
        ("gp-ts", {"scaled": False}, {}, "scaled by v_t"),
        ("gp-ts", {}, {"kernel": "matern", "nu": 0.5}, "Lipschitz"),
        (
            "gp-ucb",
            {},
            {"name": "temperature-sensors", "source": "synthetic"},
            "assumes k ≤ 1",
        ),
    ],
)
def test_no_bound_where_a_theorem_cannot_be_drawn(
    policy: str,
    options: dict[str, Any],
    problem: dict[str, Any],
    reason: str,
    tmp_path: Path,
) -> None:
    full_problem = problem if "name" in problem else {**FUNCTION, **problem}
    assert (
        reason
        in bounds_of(tmp_path, {policy: options}, problem=full_problem).missing[policy]
    )


def test_theorem_4_uses_the_kernel_and_the_box_of_the_arms(tmp_path: Path) -> None:
    bound = bounds_of(tmp_path, {"gp-ts": {"delta": 0.2}}).drawn["gp-ts"]
    world = registry.build("problem", FUNCTION, seed=0, horizon=8)
    model, places = world.model, world.arms.features
    expected = regret_bound_gp_ts(
        bound.rounds,
        registry.build("gain", model.gain),
        model.norm_bound,
        model.noise_bound,
        0.2,
        lipschitz=1.0 / 0.2,
        side=float(places.max() - places.min()),
        dimension=1,
    )
    np.testing.assert_allclose(bound.values, expected)


class Steep(Sum):
    """Twice what the arms yield together."""

    lipschitz = 2.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        return 2.0 * super().worth(outcomes, positions, structure)


@pytest.mark.parametrize("reward", [Sum(), Steep()], ids=["sum", "steep"])
def test_theorem_1_uses_the_problems_constants(
    reward: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K arms of k(x, x) = 1, so that λ* ≤ K; B is that of the reward."""
    full = Experiment.build_problem

    def rewarded(self: Experiment, **sizes: Any) -> Any:
        world = full(self, **sizes)
        return replace(world, model=replace(world.model, reward=reward))

    monkeypatch.setattr(Experiment, "build_problem", rewarded)
    problem = {"name": "landscape", "side": 5}
    bound = bounds_of(tmp_path, {"oclok-ucb": {"delta": 0.1}}, problem=problem).drawn[
        "oclok-ucb"
    ]
    model = registry.build("problem", problem, seed=0, horizon=8).model
    expected = regret_bound_oclok_ucb(
        bound.rounds,
        registry.build("gain", model.gain),
        most_arms=25,
        budget=3,
        noise_variance=model.noise_variance,
        largest_eigenvalue=3.0,
        lipschitz=reward.lipschitz,
        delta=0.1,
    )
    np.testing.assert_allclose(bound.values, expected)


def test_theorem_1_takes_twice_what_greedy_choice_among_arrivals_reaches(
    tmp_path: Path,
) -> None:
    """Where arms change, γ_KT is that of the contexts that arrived; greedy choice reaches half."""
    problem = {
        "name": "codependency",
        "pool": 60,
        "arrivals": 20,
        "k": 3,
        "lengthscale": 1.0,
    }
    out = tmp_path / "run"
    bound = bounds_of(
        out, {"oclok-ucb": {"delta": 0.1}}, problem=problem, rounds=4
    ).drawn["oclok-ucb"]
    world = registry.build("problem", problem, seed=0, horizon=4)
    model, arrivals = (
        world.model,
        [world.offer(step).arms.features for step in range(1, 5)],
    )
    budget = Run.load(out).choices("oclok-ucb", 0, 0).shape[1]
    gains = arriving_information_gain(
        model.kernel, arrivals, budget, model.noise_variance
    )
    expected = regret_bound_oclok_ucb(
        bound.rounds,
        lambda count: 2.0 * float(gains[int(count) // budget]),
        most_arms=model.most_arms,
        budget=budget,
        noise_variance=model.noise_variance,
        largest_eigenvalue=float(budget),
        lipschitz=1.0,
        delta=0.1,
    )
    np.testing.assert_allclose(bound.values, expected)


@pytest.mark.parametrize("missing", ["norm_bound", "noise_bound", "gain"])
def test_no_bound_without_the_required_model(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds_of(tmp_path / "a", {"igp-ucb": {}})
    full = Experiment.build_problem

    def lacking(self: Experiment, **sizes: Any) -> Any:
        world = full(self, **sizes)
        return replace(world, model=replace(world.model, **{missing: None}))

    monkeypatch.setattr(Experiment, "build_problem", lacking)
    assert (
        "does not state" in regret_bounds(Run.load(tmp_path / "a")).missing["igp-ucb"]
    )


# --- routes ------------------------------------------------------------------------------


def test_route_policies_have_a_bound_or_the_theorems_reason(tmp_path: Path) -> None:
    policies: dict[str, dict[str, Any]] = {
        "ucb": {"policy": "route-ucb"},
        "half": {"policy": "route-ucb", "scale": 0.5},
        "wide": {"policy": "route-ucb", "scale": 2.0},
        "bucb": {"policy": "route-bucb"},
        "joint": {"policy": "route-ts", "mode": "joint"},
        "ts": {"policy": "route-ts"},
        "bi": {"policy": "route-ucb", "posterior": "independent"},
        "svgp": {"policy": "route-bucb", "posterior": "variational"},
        "hills": {"policy": "route-ucb", "routing": "potential"},
        "other": {"policy": "route-ucb", "spread": "posterior"},
        "greedy": {"policy": "route-greedy"},
        "own": {"policy": "route-rule", "rule": {"name": "greedy"}},
        "prior": {},
    }
    bounds = bounds_of(tmp_path / "a", policies, problem=CITY, rounds=4)
    assert list(bounds.drawn) == ["ucb", "half", "wide", "bucb", "joint"]
    assert "rectified regret" in bounds.note
    run = Run.load(tmp_path / "a")
    for policy, bound in bounds.drawn.items():
        assert "Theorem 3.2 itself gives no bound because" in bound.assumes
        assert (
            run.cumulative(policy).mean(axis=0)[bound.rounds.astype(int) - 1]
            <= bound.values
        ).all()
    assert "omega = 1" in bounds.drawn["bucb"].assumes
    assert "multiplied by 2" in bounds.drawn["wide"].assumes
    half, full, wide = (
        bounds.drawn[name].values[-1] for name in ("half", "ucb", "wide")
    )
    assert half < full < wide  # each with its own widths
    np.testing.assert_array_equal(
        bounds.drawn["joint"].values, bounds.drawn["ucb"].values
    )
    for policy, reason in {
        "ts": "sampled one by one: the theorem needs joint samples; and because regret is rectified",
        "bi": "independent",
        "svgp": "approximate",
        "hills": "potential",
        "other": "the s that regret uses",
        "greedy": "does not explore",
        "own": "custom rules",
        "prior": "learns nothing",
    }.items():
        assert reason in bounds.missing[policy]


def test_a_route_bound_is_the_one_of_its_widths(tmp_path: Path) -> None:
    bounds = bounds_of(tmp_path / "a", {"route-bucb": {"omega": 1.5}}, problem=CITY)
    model = Navigation(seed=0, horizon=8, edges=200).model
    assert model.arms is not None
    budget = Run.load(tmp_path / "a").choices("route-bucb", 0, 0).shape[1]
    schedule = BayesUCBQuantile(arms=len(model.arms), omega=1.5)
    expected = bayesian_regret_bound_of_widths(
        [schedule.width(t, lambda count: 0.0) for t in range(1, 9)],
        ArmSetGrowth(
            kernel=model.kernel,
            features=model.arms,
            noise_variance=model.noise_variance,
            horizon=8 * budget,
        ),
        arms=len(model.arms),
        budget=budget,
        noise_variance=model.noise_variance,
        largest_eigenvalue=prior_eigenvalue_bound(
            model.kernel, model.arms, budget
        ).value,
        largest_variance=float(model.kernel.diag(model.arms).max()),
        rectified=True,
    )
    bound = bounds.drawn["route-bucb"]
    np.testing.assert_allclose(
        bound.values, expected[bound.rounds.astype(int) - 1], rtol=1e-12
    )


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ({**CITY, "model_lengthscale": 0.5}, "lengthscale is not that of the truth"),
        ({**CITY, "model_graph_share": 0.3}, "kernels are not those of the truth"),
        ({**CITY, "switch_cost": 5.0}, "switching costs"),
        ({**CITY, "conditions": ["load"]}, "arms change from round to round"),
    ],
)
def test_no_route_bound_where_the_model_is_not_the_truths(
    problem: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    policies = {"route-ucb": {"posterior": "streaming"}}
    bounds = bounds_of(tmp_path / "a", policies, problem=problem, rounds=2)
    assert reason in bounds.missing["route-ucb"]


def test_table_1_of_similar_work_at_the_size_of_a_run(tmp_path: Path) -> None:
    found = bounds_of(tmp_path / "a", {"route-ucb": {}}, problem=CITY).rates
    assert found is not None
    assert [row.work.partition(":")[0] for row in found.rows] == [
        work.name for work in COMPARED_WORKS
    ]
    ours, nika, *others = found.rows
    assert ours.value == nika.value
    assert all(row.value < ours.value for row in others)
    assert "the longest route driven" in found.note
    short = bounds_of(tmp_path / "b", {"route-ucb": {}}, problem=CITY, rounds=4)
    assert short.rates is None


# --- functions drawn from the prior --------------------------------------------------------

DRAW = {"name": "gp-function", "arms": 20}


def test_theorem_3_2_covers_plain_samples_and_quantiles(tmp_path: Path) -> None:
    policies = {
        "ts": {"policy": "gp-ts", "scaled": False},
        "bucb": {"policy": "gp-bucb", "omega": 1.5, "xi": 2.0},
    }
    found = bounds_of(tmp_path / "a", policies, problem=DRAW)
    model = model_of(tmp_path / "a")
    shared: dict[str, Any] = {
        "gamma": ArmSetGrowth(
            kernel=model.kernel,
            features=model.arms,
            noise_variance=model.noise_variance,
            horizon=8,
        ),
        "arms": 20,
        "budget": 1,
        "noise_variance": model.noise_variance,
        "largest_eigenvalue": 1.0,
    }
    rounds = found.drawn["ts"].rounds
    samples = bayesian_regret_bound(rounds, algorithm="gp-ts", **shared)
    np.testing.assert_allclose(found.drawn["ts"].values, samples, rtol=1e-12)
    quantiles = bayesian_regret_bound(
        rounds, algorithm="gp-bucb", omega=1.5, xi=2.0, **shared
    )
    np.testing.assert_allclose(found.drawn["bucb"].values, quantiles, rtol=1e-12)
    for bound in found.drawn.values():
        assert "Theorem 3.6 would allow" in bound.assumes
        assert "a noise variance that does not depend on f" in bound.assumes
    of_cube = bayesian_regret_bound(
        8, algorithm="gp-ts", **{**shared, "arms": cube_of(model)}
    )
    assert f"allow {significant(float(of_cube))} after" in found.drawn["ts"].assumes


def model_of(out: Path) -> Any:
    """The model of the run's first seed."""
    return RecordedRun.from_run(Run.load(out)).world(0).model


def cube_of(model: Any) -> CompactSet:
    """[0, 1] with the constants of a squared exponential."""
    domain = SmoothDomain.of_kernel(model.kernel, 1)
    return CompactSet(
        dimension=1,
        side=1.0,
        lipschitz=1.0 / model.kernel.lengthscale,
        derivative_constants=(domain.a1, domain.b1),
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"policy": "gp-bucb"}, "omega = 1 makes C_omega infinite"),
        (
            {"policy": "gp-ts", "scaled": False, "posterior": "independent"},
            "the posterior is independent",
        ),
        (
            {"policy": "gp-ts", "scaled": False, "decision_set": "discretised"},
            "samples of all arms",
        ),
        ({"policy": "gp-ts", "scaled": False, "mode": "independent"}, "joint"),
    ],
)
def test_no_bound_where_theorem_3_2_does_not_apply(
    options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    found = bounds_of(tmp_path, {"mine": options}, problem=DRAW)
    assert reason in found.missing["mine"]


def test_theorem_3_2_is_not_about_scaled_samples(tmp_path: Path) -> None:
    policies = {"mine": {"policy": "gp-ts", "scaled": True}}
    found = bounds_of(tmp_path, policies, problem=DRAW)
    assert "Theorem 3.2" not in found.drawn["mine"].assumes


def test_no_cube_for_a_rough_kernel(tmp_path: Path) -> None:
    policies = {"mine": {"policy": "gp-ts", "scaled": False}}
    rough = {**DRAW, "kernel": "matern", "nu": 1.5, "regularisation": "theory"}
    bound = bounds_of(tmp_path, policies, problem=rough).drawn["mine"]
    assert "Theorem 3.6" not in bound.assumes
    assert "the true noise variance" in bound.assumes


# --- rewards that drift -------------------------------------------------------------------

DRIFT = {"name": "drifting-function", "side": 6, "epsilon": 0.02}


@pytest.mark.parametrize("epsilon", [0.0, 0.02])
def test_drift_theorems_are_drawn_for_the_arms_there_are(
    epsilon: float, tmp_path: Path
) -> None:
    policies = {
        "tv-gp-ucb": {},
        "r-gp-ucb": {"block": 3},
        "short": {"policy": "r-gp-ucb"},
    }
    problem = {**DRIFT, "epsilon": epsilon}
    bounds = bounds_of(tmp_path, policies, problem=problem, seeds=2)
    assert list(bounds.drawn) == list(policies)
    model = registry.build("problem", problem, seed=0, horizon=8).model
    noise, T = model.noise_variance, bounds.drawn["tv-gp-ucb"].rounds
    gamma = ArmSetGrowth(
        kernel=model.kernel, features=model.arms, noise_variance=noise, horizon=8
    )
    greedy = drifting_information_gain(model.kernel, model.arms, 8, noise, epsilon)
    growth = DriftingGrowth(
        gamma=gamma, epsilon=epsilon, noise_variance=noise, horizon=8
    )
    shared: dict[str, Any] = {"arms": 36, "noise_variance": noise, "delta": 0.1}
    expected = regret_bound_tv_gp_ucb(
        T, lambda t: min(2.0 * greedy[t], growth(t)), **shared
    )
    np.testing.assert_allclose(bounds.drawn["tv-gp-ucb"].values, expected)
    for name, block in (("r-gp-ucb", 3), ("short", block_length(model, epsilon))):
        expected = regret_bound_r_gp_ucb(
            T, gamma, block=block, epsilon=epsilon, **shared
        )
        np.testing.assert_allclose(bounds.drawn[name].values, expected)
    for name, bound in bounds.drawn.items():
        assert bound.label.endswith("bound (assumptions not met)")
        assert "widths √β_t (here √(0.8 ln(4 t)))" in bound.assumes
        assert (
            "Theorem 4.3" in bound.assumes
            if name == "tv-gp-ucb"
            else "Theorem 4.2" in bound.assumes
        )
        above = bound.values[-1] > 16.0 * np.sqrt(2.0 * np.log(36))
        assert ("no policy loses more than" in bound.assumes) == above
    assert "“Time-Varying Gaussian Process Bandit Optimization” (2016)" in bounds.note
    # Corollary 4.1 is about the N of section 5.1, and about functions that drift.
    assert list(bounds.orders) == (["tv-gp-ucb", "short"] if epsilon else [])
    for name, order in bounds.orders.items():
        algorithm: Any = "tv-gp-ucb" if name == "tv-gp-ucb" else "r-gp-ucb"
        rate = rate_drift(order.rounds, epsilon, algorithm, dimension=2)
        np.testing.assert_allclose(order.values / order.values[-1], rate / rate[-1])
        run = Run.load(tmp_path)
        assert order.values[-1] == pytest.approx(run.cumulative(name)[:, -1].mean())
        assert (
            "The order of Corollary 4.1 is drawn as well" in bounds.drawn[name].assumes
        )


@pytest.mark.parametrize(
    ("policy", "options", "problem", "reason"),
    [
        (
            "tv-gp-ucb",
            {"epsilon": 0.0},
            DRIFT,
            "it forgets nothing while the truth drifts by 0.02",
        ),
        (
            "tv-gp-ucb",
            {"epsilon": 0.1},
            DRIFT,
            "it assumes ε = 0.1 while the truth drifts by 0.02",
        ),
        ("tv-gp-ucb", {}, {**DRIFT, "k": 2}, "2 arms are chosen in a round"),
        ("r-gp-ucb", {"block": 3}, {"name": "gp-function", "arms": 9}, "is no draw of"),
        (
            "tv-gp-ucb",
            {"epsilon": 0.1},
            {"name": "temperature-sensors", "source": "synthetic"},
            "the truth is no draw of a Gaussian process that drifts by a known ε",
        ),
    ],
)
def test_no_drift_bound_where_the_theorems_do_not_apply(
    policy: str,
    options: dict[str, Any],
    problem: dict[str, Any],
    reason: str,
    tmp_path: Path,
) -> None:
    assert (
        reason
        in bounds_of(tmp_path, {policy: options}, problem=problem).missing[policy]
    )


def test_blocks_may_rest_on_any_epsilon(tmp_path: Path) -> None:
    """Theorem 4.2 holds for every block length, so R-GP-UCB may assume any drift."""
    policies = {"r-gp-ucb": {"epsilon": 0.9}}
    assert "r-gp-ucb" in bounds_of(tmp_path, policies, problem=DRIFT).drawn


# --- movement -----------------------------------------------------------------------------

MOVEMENT = {"name": "movement-field", "side": 3, "contexts": 3, "episode": 4}


@pytest.mark.parametrize("rounds", [1, 3])
def test_no_ratio_to_a_cheapest_path_of_zero_cost(rounds: int, tmp_path: Path) -> None:
    # One context: a walk that starts at the cheapest action pays nothing. Seed 0 does.
    problem = {"name": "movement-field", "side": 2, "contexts": 1}
    bounds = bounds_of(
        tmp_path, {"gp-md": {}, "md-known": {}}, problem=problem, rounds=rounds, seeds=1
    )
    for text in (bounds.drawn["gp-md"].assumes, bounds.missing["md-known"]):
        assert "which costs nothing here" in text
    assert np.isfinite(bounds.drawn["gp-md"].values).all()


def test_movement_gets_the_theorem_with_its_constants_and_its_equations_on_the_run(
    tmp_path: Path,
) -> None:
    policies = {
        "gp-md": {},
        "md-known": {},
        "cgp-lcb": {},
        "offline": {},
        "stationary": {},
    }
    bounds = bounds_of(tmp_path, policies, problem=MOVEMENT, rounds=10, seeds=2)
    assert list(bounds.drawn) == ["gp-md"]
    bound = bounds.drawn["gp-md"]
    run = Run.load(tmp_path)
    world = registry.build("problem", MOVEMENT, seed=0, horizon=10)
    model, psi = world.model, float(world.metric.distances.max())
    candidates = np.concatenate(
        [world.offer(step).arms.features for step in range(1, 11)]
    )
    gamma = GreedyGrowth(
        kernel=model.kernel,
        candidates=np.unique(candidates, axis=0),
        noise_variance=model.noise_variance,
        horizon=12,
    )
    episodes = np.ceil(bound.rounds / 4)
    values = regret_bound_gp_md(
        episodes,
        lambda count: gamma(int(count)),
        episode=4,
        norm_bound=model.norm_bound,
        noise_bound=model.noise_bound,
        noise_variance=model.noise_variance,
        diameter=psi,
    )
    np.testing.assert_allclose(
        bound.values, np.minimum(values, episodes * 4 * (model.norm_bound + psi))
    )
    assert f"the regret is at most {significant(float(values[-1]))}" in bound.assumes
    assert "widths of Lemma 1 (here 2)" in bound.assumes
    for name, text in (
        ("gp-md", bound.assumes),
        ("md-known", bounds.missing["md-known"]),
    ):
        # Two full episodes and one of two rounds, in each of two seeds.
        edges = [3, 7, 9]
        service, movement, total, regret = (
            np.diff(run.cumulative(name, 0, metric)[:, edges], axis=1, prepend=0.0)
            for metric in ("service_cost", "movement_cost", "total_cost", "regret")
        )
        optimum = total - regret
        assert "Eqs. 12 and 13, from one given start to the next (6 times): " in text
        assert (
            f"service costs {significant(service.sum() / optimum.sum())} times" in text
        )
        assert (
            f"difference of {significant((service - optimum).mean())} on average"
            in text
        )
        assert f"and of {significant((service - optimum).max())} at most" in text
        assert (
            f"movement costs {significant(movement.sum() / optimum.sum())} times"
            in text
        )
        assert f"ln² n is {significant(np.log(9.0) ** 2)}" in text
    assert "it ignores what moving costs" in bounds.missing["cgp-lcb"]
