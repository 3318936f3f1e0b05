"""Kernels, posteriors, rules and oracles that superarm ships, crossed with their contracts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from part_names import assert_sampled
from sample_kernels import KERNELS, kernel_of_each_kind, kernel_rows
from sample_oracles import ARM_COUNT, ORACLES, OracleSample
from sample_rules import RULES, SCHEDULES
from scipy.sparse import csc_array

from superarm import kernels
from superarm.core import (
    Arms,
    Belief,
    Covariance,
    Floats,
    Offer,
    Oracle,
    Posterior,
    Selection,
    State,
    registry,
)
from superarm.core.errors import InfeasibleError
from superarm.kernels import (
    GraphMatern,
    Matern,
    SquaredExponential,
    Temporal,
)
from superarm.oracles import TopK, check_desirability
from superarm.posteriors import (
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    IndependentGaussian,
    InducingGP,
    Refitting,
    Resetting,
    Separate,
    SparseVariational,
    StreamingGP,
)
from superarm.roads.energy import RoadScales
from superarm.roads.posterior import RoadGP
from superarm.testing import (
    BeliefContract,
    KernelContract,
    OracleContract,
    PosteriorContract,
    RuleContract,
    ScheduleContract,
)

NEEDED = {"numba": "numba", "scikit-learn": "sklearn"}
"""Modules by a word in the names of the parts that need them."""


FURTHER = {
    "streaming scikit-learn",
    "streaming large",
    "streaming small",
    "finite root numpy",
    "finite scikit-learn",
    "finite large",
    "finite small",
    "resetting drifting",
    "change-detecting streaming",
    "refitting drifting",
    "variational smooth",
    "independent features",
    "separate roads",
    "roads sparse",
}
"""Further cases of posteriors of which another case is tried: they are marked ``thorough``."""


def named(parts: Iterable[str]) -> list[Any]:
    """The parts as parameters; those whose package is missing are skipped."""

    def marks_of(name: str) -> list[pytest.MarkDecorator]:
        marks = [
            pytest.mark.skipif(
                find_spec(module) is None, reason=f"{word} is not installed"
            )
            for word, module in NEEDED.items()
            if word in name
        ]
        if name in FURTHER:
            marks.append(pytest.mark.thorough)
        return marks

    return [pytest.param(name, marks=marks_of(name)) for name in parts]


def foreign_kernel() -> Any:
    from sklearn.gaussian_process import kernels as sk

    return 2.0 * sk.RBF(0.5) + sk.Matern(0.7, nu=1.5)


# --- kernels -------------------------------------------------------------------------------


def test_every_registered_kernel_is_sampled() -> None:
    assert_sampled("kernel", kernel_of_each_kind())
    assert all(
        issubclass(type(kernel), kernels.Covariance) for kernel in KERNELS.values()
    )


class TestKernels(KernelContract):
    @pytest.fixture(autouse=True, params=named([*KERNELS, "scikit-learn"]))
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param

    def make_kernel(self) -> Covariance:
        return KERNELS[self.name] if self.name in KERNELS else foreign_kernel()

    def points(self) -> Floats:
        return kernel_rows(seed=1, n=9, longest=1.0)


# --- posteriors ----------------------------------------------------------------------------

N = 8
FEATURES = np.random.default_rng(0).random((N, 2))
SMOOTH, ROUGH = (
    SquaredExponential(lengthscale=0.6, variance=1.7),
    Matern(nu=1.5, lengthscale=0.5),
)
MEANS = np.linspace(-1.0, 1.0, N)
FADING = Matern(nu=1.5, lengthscale=0.5, columns=(0, 1)) * Temporal(
    epsilon=0.1, column=2
)
POSTERIORS: dict[str, Callable[[], Any]] = {
    "streaming auto": lambda: StreamingGP(SMOOTH, 0.05, 0.3),
    "streaming cholesky": lambda: StreamingGP(ROUGH, 0.05, form="cholesky"),
    "streaming timed": lambda: StreamingGP(ROUGH, 0.05, timed=True),
    "streaming finite-rank": lambda: StreamingGP(SMOOTH, 0.05, 0.3, form="finite-rank"),
    "streaming scikit-learn": lambda: StreamingGP(foreign_kernel(), 0.05),
    "streaming large": lambda: StreamingGP(1e12 * SMOOTH, 1e10),
    "streaming small": lambda: StreamingGP(1e-12 * SMOOTH, 1e-14, form="finite-rank"),
    "finite root numpy": lambda: FiniteGP(
        SMOOTH, FEATURES, 0.05, MEANS, form="root", backend="numpy"
    ),
    "finite root numba": lambda: FiniteGP(
        SMOOTH, FEATURES, 0.05, MEANS, form="root", backend="numba"
    ),
    "finite visited": lambda: FiniteGP(SMOOTH, FEATURES, 0.05, MEANS, form="visited"),
    "finite scikit-learn": lambda: FiniteGP(foreign_kernel(), FEATURES, 0.05),
    "finite large": lambda: FiniteGP(1e12 * ROUGH, FEATURES, 1e10, form="visited"),
    "finite small": lambda: FiniteGP(1e-12 * ROUGH, FEATURES, 1e-14, form="root"),
    "independent": lambda: IndependentGaussian(np.linspace(0.5, 2.0, N), 0.05, MEANS),
    # All arms inducing, all observations in every batch: then one natural step is exact.
    "inducing": lambda: InducingGP(ROUGH, 0.05, 0.3, jitter=1e-13),
    "drifting": lambda: DriftingGP(
        ROUGH, FEATURES, 0.05, 0.3, drift=Temporal(epsilon=0.1)
    ),
    "streaming forgetting": lambda: StreamingGP(FADING, 0.05, timed=True, forget=1e-9),
    "resetting": lambda: Resetting(FiniteGP(SMOOTH, FEATURES, 0.05, MEANS), block=7),
    "resetting drifting": lambda: Resetting(DriftingGP(ROUGH, FEATURES, 0.05), block=7),
    # The contract's data are unlikely under the prior: the test must expect it.
    "change-detecting": lambda: ChangeDetecting(
        FiniteGP(SMOOTH, FEATURES, 0.05, MEANS), run_length=1e99
    ),
    "change-detecting streaming": lambda: ChangeDetecting(
        StreamingGP(ROUGH, 0.05), run_length=1e99
    ),
    "refitting": lambda: Refitting(FiniteGP(SMOOTH, FEATURES, 0.05, MEANS)),
    "refitting drifting": lambda: Refitting(DriftingGP(ROUGH, FEATURES, 0.05)),
    "variational": lambda: SparseVariational(
        ROUGH, 0.05, 0.3, natural_rate=1.0, adam_rate=0.0
    ),
    "variational smooth": lambda: SparseVariational(
        SMOOTH, 0.05, natural_rate=1.0, adam_rate=0.0
    ),
    "independent features": lambda: IndependentGaussian(
        np.ones(N), 0.05, arms=FEATURES
    ),
    "roads": lambda: road_gp(),  # noqa: PLW0108
    # Contracts compare to more digits than fleets need.
    "roads sparse": lambda: road_gp(form="sparse", tolerance=1e-9),
    "separate": lambda: Separate(StreamingGP(ROUGH, 0.05, 0.3), column=0),
    "separate roads": lambda: Separate(road_gp(), column=8),
}


def road_gp(**options: Any) -> RoadGP:
    """With one noise for all, as contracts ask for it: so small are the scales of what roads of a trip
    share, and of what grows with time and size."""
    ring = np.roll(np.eye(N), 1, axis=0) + np.roll(np.eye(N), -1, axis=0)
    kernel = GraphMatern(csc_array(2.0 * np.eye(N) - ring), nu=2)
    tiny = {"noise_per_time": 1e-4, "noise_share": 1e-4}
    scales = RoadScales(near=20.0, own=15.0, trip=(1e-4,) * 5, noise=3.0, **tiny)
    return RoadGP(
        kernel,
        np.linspace(0.0, 9.0, N),
        scales=scales,
        refit=0,
        outliers="keep",
        **options,
    )


def arms_of(name: str) -> Floats:
    """Arms of the posterior with this name."""
    if "roads" in name:
        terms = np.random.default_rng(1).uniform(0.1, 1.0, (N, 4))
        return np.column_stack(
            [np.arange(N), MEANS, terms, np.ones(N), np.zeros(N), np.arange(N) % 2]
        )
    if name == "separate":
        return np.column_stack([np.arange(N) % 3, FEATURES])
    return FEATURES


def test_every_registered_posterior_is_here() -> None:
    tried = {
        registry.catalogue._names[type(make())]
        for name, make in POSTERIORS.items()
        if not any(word in name for word in NEEDED)
    }
    assert tried == {("posterior", name) for name in registry.names("posterior")}


class TestPosteriors(PosteriorContract):
    draws = 1000  # what is allowed grows as fewer are drawn

    @pytest.fixture(autouse=True, params=named(POSTERIORS))
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param
        if "roads" in self.name:
            self.draws = 500  # of 4 ms each

    def make_posterior(self) -> Posterior:
        posterior: Posterior = POSTERIORS[self.name]()
        return posterior

    def make_arms(self) -> Arms:
        return Arms.numbered(arms_of(self.name))

    def restore(self, state: State) -> Posterior:
        options: dict[str, Any] = {}
        if "scikit-learn" in self.name:
            options["kernel"] = foreign_kernel()
        if "numba" in self.name or "numpy" in self.name:
            options["backend"] = self.name.split()[-1]
        restored: Posterior = type(POSTERIORS[self.name]()).from_state(state, **options)
        return restored


class TestBeliefs(BeliefContract):
    draws = 1000

    @pytest.fixture(autouse=True, params=named(POSTERIORS))
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.name: str = request.param
        if "roads" in self.name:
            self.draws = 500

    def make_belief(self) -> Belief:
        posterior = POSTERIORS[self.name]()
        offer = Offer(step=1, arms=Arms.numbered(arms_of(self.name)))
        scale = float(posterior.belief(offer).std.max())
        keys = posterior.keys(offer)[[0, 1, 2, 2, 5]]
        posterior.observe(
            keys,
            scale * np.array([1.0, 0.5, -0.3, 0.4, 0.2]),
            rng=np.random.default_rng(0),
        )
        belief: Belief = posterior.belief(offer)
        return belief


class TestConditionedBelief(BeliefContract):
    def make_belief(self) -> Belief:
        posterior = StreamingGP(SMOOTH, 0.05)
        posterior.observe(FEATURES[:3], [0.1, 0.2, 0.7])
        return posterior.belief(Offer(step=1, arms=Arms.numbered(FEATURES))).condition(
            np.array([4, 5])
        )


# --- rules and schedules -------------------------------------------------------------------


def label(spec: dict[str, Any]) -> str:
    return " ".join(
        str(value) for value in spec.values() if not isinstance(value, dict)
    )


def test_every_registered_rule_and_schedule_is_sampled() -> None:
    assert_sampled("schedule", [spec["name"] for spec in SCHEDULES])
    assert_sampled("rule", [spec["name"] for spec in RULES])


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


class BestRun:
    """An exact oracle over them, by trying each."""

    deterministic = True

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: np.random.Generator,
        rescore: Any = None,
    ) -> Selection:
        check_desirability(desirability)
        runs = [
            np.array(run, dtype=np.intp)
            for run in intervals(len(desirability), structure)
        ]
        best = max(runs, key=lambda run: float(desirability[run].sum()))
        if desirability[best].min() == -np.inf:
            raise InfeasibleError("no arm is available")
        return Selection(action=best, positions=best)


CONTRACTED: dict[str, OracleSample] = {
    **{name: sample for name, sample in ORACLES.items() if sample.feasible is not None},
    "top 1": OracleSample(
        TopK(), lambda n, structure: itertools.combinations(range(n), 1)
    ),
    "top 7": OracleSample(TopK(k=7), lambda n, structure: [range(7)]),
    "best run": OracleSample(BestRun(), intervals),
}


def test_every_registered_oracle_is_sampled() -> None:
    assert_sampled("oracle", ORACLES)


class TestOracles(OracleContract):
    n = ARM_COUNT

    @pytest.fixture(autouse=True, params=CONTRACTED)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.sample: OracleSample = CONTRACTED[request.param]
        self.rescores = self.sample.rescores

    def make_oracle(self) -> Oracle:
        oracle: Oracle = self.sample.oracle
        return oracle

    def structure(self, n: int) -> object:
        return self.sample.structure(n)

    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        assert self.sample.feasible is not None
        return self.sample.feasible(n, structure)

    def admissible(self, desirability: Floats) -> Floats:
        if not self.sample.costs:
            return desirability
        return np.where(np.isfinite(desirability), -np.abs(desirability), desirability)
