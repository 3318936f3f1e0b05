"""Every part that superarm ships, crossed with the contract of its protocol."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from superarm import kernels, registry
from superarm.core import Arms, Belief, Floats, Offer, Oracle, Policy, Posterior, Problem, State
from superarm.errors import MissingExtraError, require_extra
from superarm.kernels import (
    Columns,
    Constant,
    Covariance,
    Empirical,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Scale,
    SquaredExponential,
    Temporal,
)
from superarm.oracles import BruteForce, TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP, IndependentGaussian, SparseVariational, StreamingGP
from superarm.rules import UCB, Fixed
from superarm.testing import (
    BeliefContract,
    KernelContract,
    OracleContract,
    PolicyContract,
    PosteriorContract,
    ProblemContract,
    RuleContract,
    ScheduleContract,
)

try:
    require_extra("numba", "fast")
    HAS_NUMBA = True
except MissingExtraError:
    HAS_NUMBA = False
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed: superarm[fast]")

# --- kernels -------------------------------------------------------------------------------

COVARIANCE = ((2.0, 0.5, 0.1), (0.5, 1.0, 0.2), (0.1, 0.2, 1.5))
# Column 0 holds ids 0 … 2, column 1 a time, column 2 a feature.
KERNELS: dict[str, Covariance] = {
    "squared-exponential": SquaredExponential(lengthscale=0.5, variance=2.0),
    "squared-exponential, columns": SquaredExponential(lengthscale=(0.5, 0.7), columns=(2, 1)),
    "matern 1/2": Matern(nu=0.5, lengthscale=0.6),
    "matern 5/2": Matern(nu=2.5, lengthscale=0.6),
    "matern 1.2": Matern(nu=1.2, lengthscale=0.6),
    "rational-quadratic": RationalQuadratic(alpha=0.7, lengthscale=0.4),
    "periodic": Periodic(period=0.9, lengthscale=1.2),
    "linear": Linear(variance=0.3, bias=0.1),
    "polynomial": Polynomial(degree=3, bias=0.5),
    "constant": Constant(variance=2.0),
    "empirical": Empirical(covariance=COVARIANCE),
    "temporal": Temporal(epsilon=0.1, column=1),
    "columns": Columns(kernel=Matern() + Linear(), columns=(2, 1)),
    "sum": Matern(columns=(1, 2)) + Linear(),
    "product": Temporal(column=1) * Empirical(covariance=COVARIANCE) * Matern(columns=(2,)),
    "scale": Scale(kernel=Matern(variance_bounds="fixed"), factor=3.0),
    "scikit-learn": 2.0 * sk.RBF(0.5) + sk.Matern(0.7, nu=1.5),
}


def test_every_registered_kernel_is_here() -> None:
    tried = {
        registry.spec_of(kernel)["name"] for kernel in KERNELS.values() if isinstance(kernel, Kernel)
    }
    assert tried == set(registry.names("kernel"))
    assert all(issubclass(type(kernel), kernels.Covariance) for kernel in KERNELS.values())


class TestKernels(KernelContract):
    @pytest.fixture(autouse=True, params=KERNELS)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make_kernel(self) -> Covariance:
        return KERNELS[self.name]

    def points(self) -> Floats:
        rng = np.random.default_rng(1)
        X = rng.random((9, 3))
        X[:, 0] = rng.integers(0, 3, 9)
        return X


# --- posteriors ----------------------------------------------------------------------------

N = 8
FEATURES = np.random.default_rng(0).random((N, 2))
SMOOTH, ROUGH = SquaredExponential(lengthscale=0.6, variance=1.7), Matern(nu=1.5, lengthscale=0.5)
MEANS = np.linspace(-1.0, 1.0, N)
POSTERIORS: dict[str, Callable[[], Any]] = {
    "streaming auto": lambda: StreamingGP(SMOOTH, 0.05, 0.3),
    "streaming cholesky": lambda: StreamingGP(ROUGH, 0.05, form="cholesky"),
    "streaming finite-rank": lambda: StreamingGP(SMOOTH, 0.05, 0.3, form="finite-rank"),
    "streaming scikit-learn": lambda: StreamingGP(sk.RBF(0.5), 0.05),
    "streaming large": lambda: StreamingGP(1e12 * SMOOTH, 1e10),
    "streaming small": lambda: StreamingGP(1e-12 * SMOOTH, 1e-14, form="finite-rank"),
    "finite root numpy": lambda: FiniteGP(SMOOTH, FEATURES, 0.05, MEANS, form="root", backend="numpy"),
    "finite root numba": lambda: FiniteGP(SMOOTH, FEATURES, 0.05, MEANS, form="root", backend="numba"),
    "finite visited": lambda: FiniteGP(SMOOTH, FEATURES, 0.05, MEANS, form="visited"),
    "finite scikit-learn": lambda: FiniteGP(sk.RBF(0.5), FEATURES, 0.05),
    "finite large": lambda: FiniteGP(1e12 * ROUGH, FEATURES, 1e10, form="visited"),
    "finite small": lambda: FiniteGP(1e-12 * ROUGH, FEATURES, 1e-14, form="root"),
    "independent": lambda: IndependentGaussian(np.linspace(0.5, 2.0, N), 0.05, MEANS),
    # All arms inducing, all observations in every batch: then one natural step is exact.
    "variational": lambda: SparseVariational(ROUGH, 0.05, 0.3, natural_rate=1.0, adam_rate=0.0),
    "variational smooth": lambda: SparseVariational(SMOOTH, 0.05, natural_rate=1.0, adam_rate=0.0),
    "independent features": lambda: IndependentGaussian(np.ones(N), 0.05, arms=FEATURES),
}
POSTERIOR_PARAMS = [
    pytest.param(name, marks=needs_numba) if "numba" in name else name for name in POSTERIORS
]


def test_every_registered_posterior_is_here() -> None:
    tried = {registry._names[type(make())] for name, make in POSTERIORS.items() if "numba" not in name}
    assert tried == {("posterior", name) for name in registry.names("posterior")}


class TestPosteriors(PosteriorContract):
    @pytest.fixture(autouse=True, params=POSTERIOR_PARAMS)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make_posterior(self) -> Posterior:
        made: Posterior = POSTERIORS[self.name]()
        return made

    def make_arms(self) -> Arms:
        return Arms.numbered(FEATURES)

    def restore(self, state: State) -> Posterior:
        options: dict[str, Any] = {}
        if "scikit-learn" in self.name:
            options["kernel"] = sk.RBF(0.5)
        if "numba" in self.name or "numpy" in self.name:
            options["backend"] = self.name.split()[-1]
        again: Posterior = type(POSTERIORS[self.name]()).from_state(state, **options)
        return again


class TestBeliefs(BeliefContract):
    @pytest.fixture(autouse=True, params=POSTERIOR_PARAMS)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make_belief(self) -> Belief:
        posterior = POSTERIORS[self.name]()
        arms = Arms.numbered(FEATURES)
        scale = float(posterior.belief(arms).std.max())
        keys = posterior.keys(arms)[[0, 1, 2, 2, 5]]
        posterior.observe(keys, scale * np.array([1.0, 0.5, -0.3, 0.4, 0.2]))
        belief: Belief = posterior.belief(arms)
        return belief


class TestConditionedBelief(BeliefContract):
    def make_belief(self) -> Belief:
        posterior = StreamingGP(SMOOTH, 0.05)
        posterior.observe(FEATURES[:3], [0.1, 0.2, 0.7])
        return posterior.belief(Arms.numbered(FEATURES)).condition(np.array([4, 5]))


# --- rules and schedules -------------------------------------------------------------------

QUANTILE = {"family": "schedule", "name": "simple-quantile"}
FIXED = {"family": "schedule", "name": "fixed", "value": 2.0}
SCHEDULES: list[dict[str, Any]] = [
    {"name": "fixed", "value": 2.0},
    {"name": "igp-ucb", "norm_bound": 1.0, "noise_bound": 0.1},
    {"name": "gp-ts", "norm_bound": 1.0, "noise_bound": 0.1},
    {"name": "gp-ucb-agnostic", "norm_bound": 1.0},
    {"name": "kernel-ucb", "eta": 1.0},
    {"name": "gp-ucb-finite", "arms": 10},
    {"name": "oclok-ucb", "most_arms": 150},
    {"name": "gp-ucb-bayesian", "arms": 1, "scale": 0.5},
    {"name": "gp-ucb-bayesian-compact", "dimension": 2, "tau": 0.1},
    {"name": "bayes-ucb", "arms": 1},
    {"name": "bayes-ucb", "arms": 10**9, "omega": 40.0, "xi": 50.0},
    {"name": "bayes-ucb-compact", "dimension": 2, "tau": 3.0},
    {"name": "simple-quantile"},
    {"name": "logarithmic", "c2": 0.4},
    {"name": "r-gp-ucb", "dimension": 2},
    {"name": "tv-gp-ucb", "dimension": 2, "horizon": 100},
]
RULES: list[dict[str, Any]] = [
    {"name": "ucb", "schedule": FIXED},
    {"name": "bayes-ucb", "schedule": QUANTILE},
    {"name": "thompson"},
    {"name": "thompson", "mode": "independent"},
    {"name": "thompson", "schedule": FIXED},
    {"name": "expected-improvement"},
    {"name": "expected-improvement", "scale": "linear"},
    {"name": "probability-of-improvement"},
    {"name": "probability-of-improvement", "scale": "linear"},
    {"name": "greedy"},
    {"name": "random"},
    {"name": "rectified", "rule": {"name": "thompson"}},
    {"name": "rectified", "rule": {"name": "ucb", "schedule": FIXED}, "spread": "posterior"},
    {"name": "rectified", "rule": {"name": "greedy"}, "spread": "none"},
]


def label(spec: dict[str, Any]) -> str:
    return " ".join(str(value) for value in spec.values() if not isinstance(value, dict))


def test_every_registered_rule_and_schedule_is_here() -> None:
    assert {spec["name"] for spec in SCHEDULES} == set(registry.names("schedule"))
    assert {spec["name"] for spec in RULES} == set(registry.names("rule"))


class TestSchedules(ScheduleContract):
    @pytest.fixture(autouse=True, params=SCHEDULES, ids=label)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.spec: dict[str, Any] = request.param

    def make_schedule(self) -> Any:
        return registry.build("schedule", self.spec)


class TestRules(RuleContract):
    @pytest.fixture(autouse=True, params=RULES, ids=label)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.spec: dict[str, Any] = request.param

    def make_rule(self) -> Any:
        return registry.build("rule", self.spec)


# --- oracles -------------------------------------------------------------------------------


def intervals(n: int, structure: object) -> Iterable[Iterable[int]]:
    """Runs of neighbouring arms: a family that is no matroid."""
    return [range(start, end) for start in range(n) for end in range(start + 1, n + 1)]


def pairs(n: int, structure: object) -> Iterable[Iterable[int]]:
    return itertools.combinations(range(n), 2)


ORACLES: dict[str, tuple[Oracle, Callable[[int, object], Iterable[Iterable[int]]]]] = {
    "top 1": (TopK(), lambda n, structure: itertools.combinations(range(n), 1)),
    "top 2": (TopK(k=2), pairs),
    "top 7": (TopK(k=7), lambda n, structure: [range(7)]),
    "brute force": (BruteForce(family=intervals), intervals),
}


class TestOracles(OracleContract):
    @pytest.fixture(autouse=True, params=ORACLES)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make_oracle(self) -> Oracle:
        return ORACLES[self.name][0]

    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        return ORACLES[self.name][1](n, structure)


# --- problems ------------------------------------------------------------------------------

HORIZON = 2000
PROBLEMS: list[dict[str, Any]] = [
    {"name": "rkhs-function", "arms": 30},
    {"name": "gp-function", "kernel": "matern", "arms": 30},
    {"name": "benchmark-function", "function": "hartmann3", "arms": 40},
    {"name": "temperature-sensors", "source": "made"},
    {"name": "light-sensors", "source": "made"},
    {"name": "crowdsourcing", "source": "made"},
    {"name": "landscape", "side": 8},
    {"name": "navigation", "edges": 300},
    {"name": "navigation", "edges": 300, "closed_roads": 0.05, "closed_turns": 0.05},
    {"name": "navigation", "edges": 300, "conditions": ["congestion", "load"]},
]
NEEDS_SUMO = {"sumo-navigation"}
"""Tried by themselves, with a network file, where SUMO is installed."""


def test_every_registered_problem_and_oracle_is_here() -> None:
    assert {spec["name"] for spec in PROBLEMS} == set(registry.names("problem")) - NEEDS_SUMO
    assert registry.names("oracle") == ["top-k"]


class TestProblems(ProblemContract):
    @pytest.fixture(autouse=True, params=PROBLEMS, ids=label)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.spec: dict[str, Any] = request.param

    def make_problem(self, seed: int) -> Problem:
        made: Problem = registry.build("problem", self.spec, seed=seed, horizon=HORIZON)
        return made


# --- policies ------------------------------------------------------------------------------

CHANGING = {"name": "crowdsourcing", "source": "made", "k": 3, "workers": 20}
FIXED_ARMS = {"name": "rkhs-function", "arms": 20}
ROADS = {"name": "navigation", "edges": 300}
NOT_LEARNING = {"random", "benchmark", "prior", "known-cost"}
ROUTES = {"route-ucb", "route-bucb", "route-ts", "route-greedy", "prior"}
GREEDY = {"name": "greedy"}
POLICIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(
        ({"name": name}, FIXED_ARMS)
        for name in sorted(
            set(registry.names("policy"))
            - {"composed", "benchmark", "random", "route-rule", "known-cost"}
            - ROUTES
        )
    ),
    *(
        ({"name": name, "routing": routing}, ROADS)
        for name in sorted(ROUTES)
        for routing in ("rectified", "potential")
    ),
    ({"name": "route-ts", "mode": "joint"}, ROADS),
    ({"name": "route-ts", "posterior": "independent"}, ROADS),
    ({"name": "route-ts", "posterior": "variational"}, ROADS),
    ({"name": "route-ts", "posterior": "streaming"}, ROADS),
    ({"name": "route-rule", "rule": GREEDY, "spread": "posterior"}, ROADS),
    ({"name": "known-cost", "cost": "length"}, ROADS),
    *(
        ({"name": name}, problem)
        for name in ("random", "benchmark")
        for problem in (CHANGING, FIXED_ARMS, ROADS)
    ),
    ({"name": "oclok-ucb"}, CHANGING),
    ({"name": "oclok-ucb", "form": "finite-rank"}, CHANGING),
    ({"name": "gp-greedy"}, CHANGING),
    ({"name": "gp-ts", "scaled": False}, CHANGING),
    ({"name": "gp-ei"}, CHANGING),
    ({"name": "composed", "rule": {"name": "ucb", "schedule": FIXED}, "pending_aware": True}, CHANGING),
    ({"name": "composed", "rule": {"name": "thompson"}, "posterior": "independent"}, FIXED_ARMS),
]


class TestPolicies(PolicyContract):
    @pytest.fixture(
        autouse=True, params=POLICIES, ids=lambda pair: f"{label(pair[0])}, {pair[1]['name']}"
    )
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.spec, problem = request.param
        self.problem = registry.build("problem", problem, seed=3, horizon=100)
        self.learns = self.spec["name"] not in NOT_LEARNING

    def make_policy(self) -> Policy:
        given = {"problem": self.problem} if self.spec["name"] == "benchmark" else {}
        made: Policy = registry.build("policy", self.spec, model=self.problem.model, **given)
        return made

    def make_offer(self, step: int) -> Offer:
        offer: Offer = self.problem.offer(step)
        return offer


class TestCostPolicy(PolicyContract):
    """Costs are minimised."""

    def make_policy(self) -> Policy:
        return IndexPolicy(
            posterior=StreamingGP(ROUGH, 0.1),
            rule=UCB(schedule=Fixed(value=2.0)),
            oracle=TopK(k=2),
            direction="minimize",
            pending_aware=True,
        )

    def make_offer(self, step: int) -> Offer:
        return Offer(step=step, arms=Arms.numbered(np.random.default_rng(step).random((6, 2))))


# --- a contract that cannot fail proves nothing ----------------------------------------------


class Wrong(Matern):
    """Not symmetric, and its diagonal is another's."""

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        return np.tril(super()._covariance(X, Y))

    def _diagonal(self, X: Floats) -> Floats:
        return 2.0 * super()._diagonal(X)


class WrongKernel(KernelContract):
    def make_kernel(self) -> Covariance:
        return Wrong()


class Forgetful(StreamingGP):
    """Looking changes it, it lets NaN in, and its draws are too wide."""

    def predict(self, *arguments: Any, **options: Any) -> Any:
        self.information_gain += 1.0
        return super().predict(*arguments, **options)

    def observe(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        super().observe(arms, np.nan_to_num(np.asarray(rewards, dtype=np.float64)), noise_variance)

    def _draw(self, keys: Any, rng: np.random.Generator, size: int) -> Floats:
        return 1.5 * super()._draw(keys, rng, size)


class WrongPosterior(PosteriorContract):
    def make_posterior(self) -> Posterior:
        return Forgetful(SMOOTH, 0.05)

    def make_arms(self) -> Arms:
        return Arms.numbered(FEATURES)

    def restore(self, state: State) -> Posterior:
        return StreamingGP.from_state(state)


class WrongBelief(BeliefContract):
    def make_belief(self) -> Belief:
        return Forgetful(SMOOTH, 0.05).belief(Arms.numbered(FEATURES))


class Hopeful:
    """A rule that says it needs no chance, yet uses it, and a schedule that goes negative."""

    deterministic = True

    def desirability(self, belief: Belief, step: int, rng: np.random.Generator) -> Floats:
        return belief.mean + rng.random(len(belief.mean))

    def width(self, step: int, gamma: Any) -> float:
        return 3.0 - np.log(step)


class WrongRule(RuleContract):
    def make_rule(self) -> Any:
        return Hopeful()


class WrongSchedule(ScheduleContract):
    def make_schedule(self) -> Any:
        return Hopeful()


class Careless(TopK):
    """Chooses what is not available, and the worst."""

    def select(self, desirability: Floats, structure: object, rng: Any, rescore: Any = None) -> Any:
        return super().select(-np.maximum(desirability, -9.0), structure, rng)


class WrongOracle(OracleContract):
    def make_oracle(self) -> Oracle:
        return Careless(k=2)

    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        return pairs(n, structure)


class Restless(IndexPolicy):
    """Learns while it decides."""

    def decide(self, offer: Offer, rng: np.random.Generator) -> Any:
        self.posterior.observe(offer.arms.features[:1], [1.0])
        return super().decide(offer, rng)


class WrongPolicy(PolicyContract):
    def make_policy(self) -> Policy:
        return Restless(
            posterior=StreamingGP(ROUGH, 0.1),
            rule=UCB(schedule=Fixed(value=2.0)),
            oracle=Careless(k=2),
        )

    def make_offer(self, step: int) -> Offer:
        return Offer(step=step, arms=Arms.numbered(FEATURES))


class Moody:
    """A problem whose offers depend on how often it was asked, and whose best is beaten."""

    def __init__(self) -> None:
        self.asked = 0
        self.inner = registry.build("problem", PROBLEMS[0], seed=3, horizon=HORIZON)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def offer(self, step: int) -> Offer:
        self.asked += 1
        return Offer(step=step, arms=self.inner.arms, time=float(self.asked))

    def best(self, offer: Offer) -> float:
        return -9.0


class WrongProblem(ProblemContract):
    def make_problem(self, seed: int) -> Any:
        return Moody()

    def choose(self, problem: Any, offer: Offer, rng: np.random.Generator) -> Any:
        return rng.integers(0, len(offer.arms), 1)


@pytest.mark.parametrize(
    ("suite", "test"),
    [
        (WrongKernel, "symmetric_and_positive_semi_definite"),
        (WrongKernel, "diag_is_the_diagonal"),
        (WrongKernel, "a_pair_is_a_block_of_the_whole"),
        (WrongPosterior, "looking_changes_nothing"),
        (WrongPosterior, "bad_input_is_refused_and_changes_nothing"),
        (WrongPosterior, "draws_have_the_stated_moments"),
        (WrongBelief, "draws_have_the_stated_moments"),
        (WrongRule, "the_deterministic_flag_is_true"),
        (WrongSchedule, "widths_are_finite_and_not_negative"),
        (WrongOracle, "it_keeps_its_guarantee"),
        (WrongOracle, "arms_at_minus_infinity_are_never_chosen"),
        (WrongPolicy, "deciding_changes_nothing"),
        (WrongPolicy, "arms_that_are_not_available_are_left_alone"),
        (WrongProblem, "offers_depend_on_seed_and_step_alone"),
        (WrongProblem, "nothing_beats_the_best"),
    ],
)
def test_contracts_catch_what_is_wrong(suite: Callable[[], Any], test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(suite(), f"test_{test}")()


def test_the_contracts_need_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import superarm.testing"
    subprocess.run([sys.executable, "-c", code], check=True)
