"""Write a folder of saved states: one of every kind of policy and posterior, and its answers.

``python tests/states/make.py`` writes tests/states/VERSION, where VERSION is that of the superarm that
is imported. Run it for every release, and when a part is added: existing files are never
overwritten. States of every release must load forever and decide alike (``test_saved_states.py``).

A kernel, oracle, rule or schedule needs no case here: whatever is sampled in ``tests/support`` and in no
state of the folder becomes a case by itself (``sample_cases``). Other parts need a case.

A case is a part that has learned something. Its folder holds two files:

=============  ========================================================================
``NAME.npz``   the saved state
``NAME.json``  questions, and the answers of the version that saved it: of a policy some
               further rounds (offer, seed, decision, feedback), after feedback that was late
               for decisions made before it was saved; of a posterior predictions
               and draws. ``tolerance`` bounds how far numbers may be off, ``load`` says whether
               the file alone is enough to make the policy
=============  ========================================================================

Offers are generated here and recorded, so that problems may change later. No choice
depends on rounding: each oracle is rerun with slightly perturbed desirabilities, and the case is
rejected if the choice changes.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "support"))  # as pytest does

from part_names import parts_of
from sample_kernels import kernel_of_each_kind, kernel_rows
from sample_oracles import ARM_COUNT, ORACLES, OracleSample
from sample_rules import RULES, SCHEDULES, first_of_each_name

import superarm
from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import Decision, Policy
from superarm.core.errors import PrecisionWarning
from superarm.core.graphs import Pairs, SparseGraph, TurnGraph
from superarm.core.registry import build
from superarm.core.serialization import to_json
from superarm.core.states import load_state, save_state
from superarm.kernels import (
    Columns,
    Constant,
    Empirical,
    GraphMatern,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Scale,
    SquaredExponential,
    Temporal,
)
from superarm.models import ByNumber, Model
from superarm.movement import MatrixMetric, PointMetric, Switch
from superarm.oracles import (
    TIM,
    GreedyCoverage,
    Groups,
    GroupTopK,
    Knapsack,
    Matching,
    ShortestPath,
    TopK,
    Trip,
    Weights,
)
from superarm.policies import Exploring, First, ScorePolicy, TreeScorePolicy, wrapped
from superarm.policies.scores import Stay
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
from superarm.roads.energy import (
    DurationScales,
    HourlyScales,
    RoadEnergy,
    RoadScales,
    Vehicle,
)
from superarm.roads.models import FleetModel, RoadModel
from superarm.roads.posterior import RoadGP
from superarm.roads.rows import with_hours
from superarm.rules import UCB, Fixed, Greedy, Rectified, Thompson

HERE = Path(__file__).parent
SLIGHTLY = 1e-6  # relative change of desirabilities that must not change a choice
ROUNDING = (
    1e4 * np.finfo(float).eps
)  # for each unit of a problem's condition; see ``tolerance_of``


@dataclass(frozen=True, kw_only=True)
class PolicyCase:
    make: Callable[[], Policy]
    offer: Callable[[int], Offer]
    before: int = 12
    """Rounds that it has learned from when it is saved."""
    after: int = 3
    """Further rounds that are recorded."""
    late: bool = False
    """Whether the last decisions before it is saved still wait for feedback, one of them in part."""
    load: bool = True
    """Whether its file alone is enough: a policy that knows the truth cannot be saved whole."""


@dataclass(frozen=True, kw_only=True)
class PosteriorCase:
    make: Callable[[], Any]
    data: Callable[[int], tuple[Any, Any]]
    """Keys and rewards of a round."""
    queries: Any
    """Keys that the posterior predicts."""
    before: int = 12
    after: int = 2
    load: bool = True


# --- problems: offers that depend only on the step -----------------------------------------


def chance(step: int, role: int) -> np.random.Generator:
    return np.random.default_rng([role, step])


def changing(step: int) -> Offer:
    """Eight arms in the unit square, others in every round."""
    return Offer(step=step, arms=Arms.numbered(chance(step, 1).random((8, 2)).round(3)))


POINTS = np.random.default_rng(7).random((6, 2)).round(3)


def fixed(step: int) -> Offer:
    return Offer(step=step, arms=Arms.numbered(POINTS))


def episodes(step: int) -> Offer:
    """Six actions, an episode of four rounds after the other."""
    begins = step % 4 == 1
    return Offer(step=step, arms=Arms.numbered(POINTS), begins=begins)


def with_structure(structure: Any, n: int) -> Callable[[int], Offer]:
    def offer(step: int) -> Offer:
        arms = Arms.numbered(chance(step, 2).random((n, 2)).round(3))
        return Offer(step=step, arms=arms, structure=structure)

    return offer


def _streets() -> TurnGraph:
    """The 24 directed streets of a grid of 3 × 3 corners, and every turn that is not a U-turn."""
    corners = [(x, y) for x in range(3) for y in range(3)]
    ends = [
        (start, goal)
        for start in corners
        for goal in corners
        if abs(start[0] - goal[0]) + abs(start[1] - goal[1]) == 1
    ]
    turns = [
        (i, j)
        for i, (start, middle) in enumerate(ends)
        for j, (tail, goal) in enumerate(ends)
        if middle == tail and goal != start
    ]
    lengths = np.random.default_rng(3).uniform(80.0, 200.0, len(ends)).round(1)
    return TurnGraph(length=lengths, turns=np.array(turns))


STREETS = _streets()
N = len(STREETS)
ENERGIES = (0.1 * STREETS.length * np.random.default_rng(4).uniform(0.8, 1.3, N)).round(
    3
)
RISE = np.random.default_rng(5).normal(0.0, 1.0, N).round(2)
NUMBERS = np.arange(N, dtype=float)[:, None]


def _trip(step: int, **more: Any) -> Trip:
    start, goal = chance(step, 3).choice(N, 2, replace=False).tolist()
    return Trip(start=start, goal=goal, **more)


def road(step: int) -> Offer:
    return Offer(step=step, arms=Arms.numbered(NUMBERS), structure=_trip(step))


def _vehicle_rows(step: int) -> Any:
    """What ``RoadGP`` reads: road, expected Wh, four terms of it, mass, stops, vehicle."""
    vehicle, mass = step % 3, (1.0, 1.2, 0.9)[step % 3]
    terms = [
        0.5 * mass * ENERGIES,
        0.02 * STREETS.length / 8.0,
        0.3 * ENERGIES,
        0.1 * mass * RISE,
    ]
    expected = mass * ENERGIES
    ones = np.ones(N)
    rows = [NUMBERS[:, 0], expected, *terms, mass * ones, 0.05 * ones, vehicle * ones]
    return np.column_stack(rows).round(4)


def fleet(step: int) -> Offer:
    trip = _trip(step, turn_costs=np.full(len(STREETS.turns), 0.25))
    return Offer(step=step, arms=Arms.numbered(_vehicle_rows(step)), structure=trip)


SE = SquaredExponential(lengthscale=0.4)
BOUNDS: dict[str, Any] = {"norm_bound": 1.5, "noise_bound": 0.3, "horizon": 50}
GAIN = {"name": "squared-exponential", "dimension": 2}
CHANGING = Model(
    kernel=SE, noise_variance=0.05, oracle=TopK(k=2), most_arms=8, gain=GAIN, **BOUNDS
)
METRIC = PointMetric(points=POINTS)
APART = np.abs(POINTS[:, None, :] - POINTS).sum(axis=2)  # (6, 6)
FIXED = Model(
    kernel=Matern(nu=1.5, lengthscale=0.5),
    noise_variance=0.05,
    oracle=TopK(k=1),
    arms=POINTS,
    gain={"name": "matern", "nu": 2.5, "dimension": 2},
    drift=Temporal(epsilon=0.1),
    metric=METRIC,
    **BOUNDS,
)
COSTS = replace(FIXED, direction="minimize", drift=None)
ROAD_KERNEL = GraphMatern(STREETS, nu=2, variance=4.0)
ROADS = RoadModel(
    kernel=ROAD_KERNEL,
    noise_variance=1.0,
    oracle=ShortestPath(successors=STREETS),
    horizon=50,
    mean=ByNumber(values=ENERGIES),
    arms=NUMBERS,
    direction="minimize",
    energies=ENERGIES,
    reduction=(0.1 * RISE).round(4),
    discrete_columns=(0,),
    switching=Switch(cost=1.0, weights=STREETS.length / 100.0),
    costs={"length": STREETS.length},
)
FLEET = FleetModel(
    kernel=GraphMatern(STREETS, nu=2),
    noise_variance=1.0,
    oracle=ShortestPath(successors=STREETS),
    horizon=50,
    direction="minimize",
    energies=ENERGIES,
    sizes=ENERGIES,
    scales=RoadScales(noise=0.5),
    refit=8,
    costs={"length": STREETS.length},
    turn_costs={
        "energy": np.full(len(STREETS.turns), 0.25),
        "length": np.zeros(len(STREETS.turns)),
    },
)


# --- policies --------------------------------------------------------------------------------


def published(
    name: str, model: Model, offer: Callable[[int], Offer], **options: Any
) -> PolicyCase:
    spec = {"name": name, **options}
    return PolicyCase(make=lambda: build("policy", spec, model=model), offer=offer)


def composed(offer: Callable[[int], Offer] = changing, **parts: Any) -> PolicyCase:
    """A policy from parts; makers of parts are called, so that each policy has its own."""
    defaults: dict[str, Any] = {
        "rule": UCB(schedule=Fixed(value=2.0)),
        "oracle": TopK(k=2),
    }

    def make() -> IndexPolicy:
        posterior = parts["posterior"]()
        return IndexPolicy(**{**defaults, **parts, "posterior": posterior})

    return PolicyCase(make=make, offer=offer)


def streaming(kernel: Any = SE, **options: Any) -> Callable[[], StreamingGP]:
    return lambda: StreamingGP(kernel, 0.05, **options)


def finite(**options: Any) -> Callable[[], FiniteGP]:
    return lambda: FiniteGP(SE, POINTS, 0.05, **options)


def drifting(**options: Any) -> Callable[[], DriftingGP]:
    return lambda: DriftingGP(SE, POINTS, 0.05, **options)


def with_schedule(
    name: str, gain: dict[str, Any] | None = None, **options: Any
) -> PolicyCase:
    schedule = build("schedule", {"name": name, **options})
    rule = UCB(schedule=schedule, gamma=None if gain is None else build("gain", gain))
    return composed(posterior=streaming(), rule=rule)


def with_kernel(kernel: Any) -> PolicyCase:
    return composed(posterior=streaming(kernel, form="cholesky"))


def truth_case(name: str, problem: dict[str, Any]) -> PolicyCase:
    """A policy that is given the truth: only its maker can restore it."""
    world = build("problem", problem, seed=3, horizon=30)

    def make() -> Policy:
        policy: Policy = build("policy", name, model=world.model, problem=world)
        return policy

    return PolicyCase(make=make, offer=world.offer, before=5, load=False)


def late(case: PolicyCase) -> PolicyCase:
    return replace(case, late=True)


TIMED = SquaredExponential(lengthscale=0.4, columns=(0, 1)) * Temporal(
    epsilon=0.5, column=2
)
SIDES = Pairs(
    left=np.array([0, 0, 1, 1, 2, 2, 3]), right=np.array([0, 1, 1, 2, 0, 3, 4])
)
BIPARTITE = with_structure(SIDES, 7)
GROUPED = with_structure(
    Groups(of_arm=np.array([0, 0, 0, 1, 1, 2]), limits=np.array([1, 2, 1])), 6
)
WEIGHED = with_structure(Weights(of_arm=np.array([3, 1, 4, 1, 5, 2]), budget=6), 6)
MOVING: dict[str, Any] = {
    "name": "movement-field",
    "side": 3,
    "contexts": 3,
    "episode": 4,
}
DRIFTS: dict[str, Any] = {
    "name": "drifting-function",
    "side": 3,
    "epsilon": 0.1,
    "k": 1,
}
FLEET_POSTERIOR: dict[str, Any] = {"scales": RoadScales(noise=0.5), "refit": 8}
ROAD_VEHICLE = Vehicle(mass=1500.0)
BY_SPEED = RoadEnergy(
    vehicle=ROAD_VEHICLE, length=STREETS.length, speed=np.full(N, 8.0), rise=RISE
)


def _road_rows(step: int) -> Offer:
    """Roads with the payload of the round as a second column, which ``RoadEnergy`` reads."""
    rows = np.column_stack([NUMBERS, np.full(N, 50.0 * (step % 3))])
    return Offer(step=step, arms=Arms.numbered(rows), structure=_trip(step))


def _covariance() -> Any:
    factor = np.random.default_rng(8).normal(size=(6, 6)).round(3)
    return factor @ factor.T / 6.0 + 0.1 * np.eye(6)


POLICIES: dict[str, PolicyCase] = {
    # Under their published names.
    **{
        name: published(name, FIXED, fixed)
        for name in (
            "igp-ucb",
            "gp-ucb",
            "gp-ucb-bayesian",
            "gp-bucb",
            "gp-ts",
            "kernel-ucb",
            "random",
        )
    },
    "gp-ts-discretised": published("gp-ts", FIXED, fixed, decision_set="discretised"),
    "igp-ucb-greedy-gain": published("igp-ucb", FIXED, fixed, gain="greedy"),
    "gp-ei": published("gp-ei", CHANGING, changing),
    "gp-pi": published("gp-pi", CHANGING, changing),
    "gp-greedy": published("gp-greedy", CHANGING, changing),
    "oclok-ucb": published("oclok-ucb", CHANGING, changing),
    "oclok-ucb-stepwise": published("oclok-ucb", CHANGING, changing, stepwise=True),
    "oclok-ucb-finite-rank": published(
        "oclok-ucb",
        replace(CHANGING, kernel=SquaredExponential(lengthscale=4.0)),
        changing,
        form="finite-rank",
    ),
    "igp-ucb-changing": published("igp-ucb", CHANGING, changing),
    "soclok-ucb": published("soclok-ucb", CHANGING, changing, inducing=4),
    "acc-ucb": replace(published("acc-ucb", CHANGING, changing), before=30),
    "acc-ucb-scaled": published("acc-ucb", CHANGING, changing, scaled=True, v1=0.5),
    "cc-mab": published("cc-mab", CHANGING, changing),
    "tv-gp-ucb": published("tv-gp-ucb", FIXED, fixed),
    "r-gp-ucb": published("r-gp-ucb", FIXED, fixed, block=5, in_block=True),
    "rexp3": published("rexp3", FIXED, fixed, block=6),
    "composed": published(
        "composed",
        CHANGING,
        changing,
        rule={"name": "greedy"},
        stepwise=True,
        most_pending=4,
    ),
    "composed-switching": published(
        "composed",
        FIXED,
        fixed,
        rule={"name": "greedy"},
        switching={"name": "distance", "scale": 0.3},
    ),
    "gp-md": published("gp-md", COSTS, episodes),
    "gp-md-step": published(
        "gp-md", COSTS, episodes, update="step", clip=True, trees=2, kappa=2.0
    ),
    "gp-md-lemma-1": published("gp-md", COSTS, episodes, width="lemma-1"),
    "cgp-lcb": published("cgp-lcb", COSTS, episodes),
    "stationary": published("stationary", COSTS, episodes),
    # On roads.
    **{
        name: published(name, ROADS, road)
        for name in ("route-ucb", "route-bucb", "route-ts", "route-greedy", "prior")
    },
    "route-ucb-potential": published(
        "route-ucb", ROADS, road, routing="potential", penalty=0.5
    ),
    "route-ts-joint": published("route-ts", ROADS, road, mode="joint"),
    "route-ucb-independent": published(
        "route-ucb", ROADS, road, posterior="independent"
    ),
    "route-greedy-variational": published(
        "route-greedy", ROADS, road, posterior="variational"
    ),
    "route-rule": published(
        "route-rule", ROADS, road, rule={"name": "greedy"}, spread="posterior"
    ),
    "known-cost": published("known-cost", ROADS, road, cost="length"),
    "road-energy": composed(
        _road_rows,
        posterior=lambda: StreamingGP(
            Matern(lengthscale=9.0), 1.0, BY_SPEED, form="cholesky"
        ),
        rule=Rectified(rule=Greedy()),
        oracle=ShortestPath(successors=STREETS.successors),
        direction="minimize",
    ),
    # Fleets.
    **{
        f"fleet-{name}": published(name, FLEET, fleet)
        for name in ("route-greedy", "route-cautious")
    },
    "fleet-informed": published("informed", FLEET, fleet),
    "fleet-route-ts-joint": published(
        "route-ts", FLEET, fleet, mode="joint", spread="none"
    ),
    "fleet-known-cost": published("known-cost", FLEET, fleet, cost="length"),
    "fleet-separate": composed(
        fleet,
        posterior=lambda: Separate(
            RoadGP(FLEET.kernel, ENERGIES, **FLEET_POSTERIOR), column=8
        ),
        rule=Rectified(rule=Greedy(), spread="none"),
        oracle=FLEET.oracle,
        direction="minimize",
    ),
    # Those that use the truth.
    "benchmark": truth_case("benchmark", {"name": "landscape", "side": 4}),
    "genie": truth_case("genie", DRIFTS),
    "minc-known": truth_case("minc-known", MOVING),
    "md-known": truth_case("md-known", MOVING),
    "offline": truth_case("offline", MOVING),
    "tree-score": PolicyCase(
        make=lambda: TreeScorePolicy(
            score=Stay(), metric=MatrixMetric(distances=APART)
        ),
        offer=episodes,
    ),
    "first-score": PolicyCase(
        make=lambda: ScorePolicy(score=First(), oracle=TopK(k=2)),
        offer=fixed,
    ),
    "exploring": PolicyCase(
        make=lambda: Exploring(
            policy=build("policy", "gp-ucb-bayesian", model=FIXED), epsilon=0.5
        ),
        offer=fixed,
    ),
    # Posteriors that wrap others.
    "wrapped": PolicyCase(
        make=lambda: wrapped(
            build("policy", "gp-ucb-bayesian", model=FIXED),
            {"name": "refitting", "every": 10, "most": 40},
            {"name": "change-detecting", "run_length": 50.0, "scale": 1.5},
            {"name": "resetting", "block": 14},
        ),
        offer=fixed,
    ),
    # Feedback that is late.
    "late-streaming": late(composed(posterior=streaming())),
    "late-finite": late(composed(fixed, posterior=finite(), oracle=TopK(k=3))),
    "late-drifting": late(composed(fixed, posterior=drifting())),
    "late-roads": late(published("route-greedy", ROADS, road)),
    "late-fleet": late(published("route-greedy", FLEET, fleet)),
    "late-gp-md": late(published("gp-md", COSTS, episodes)),
    "late-exp3": late(published("rexp3", FIXED, fixed, block=30)),
    "repeats": composed(posterior=streaming(), repeats=True, direction="minimize"),
    # Rules and schedules.
    "independent-thompson": composed(
        posterior=streaming(), rule=Thompson(mode="independent")
    ),
    "random-rule": composed(posterior=streaming(), rule=build("rule", "random")),
    "bayes-ucb-compact": composed(
        posterior=streaming(),
        rule=build(
            "rule",
            {
                "name": "bayes-ucb",
                "schedule": {"name": "bayes-ucb-compact", "dimension": 2, "tau": 2.0},
            },
        ),
    ),
    "simple-quantile": composed(
        posterior=streaming(),
        rule=build(
            "rule", {"name": "bayes-ucb", "schedule": {"name": "simple-quantile"}}
        ),
    ),
    "gp-ucb-bayesian-compact": with_schedule(
        "gp-ucb-bayesian-compact", dimension=2, tau=2.0
    ),
    "gp-ucb-finite": with_schedule("gp-ucb-finite", arms=8),
    "schedule-r-gp-ucb": with_schedule("r-gp-ucb", dimension=2),
    "schedule-tv-gp-ucb": with_schedule("tv-gp-ucb", dimension=2),
    "gain-linear": with_schedule(
        "igp-ucb", {"name": "linear", "dimension": 2}, norm_bound=1.0, noise_bound=0.3
    ),
    "gain-constant": with_schedule(
        "igp-ucb", {"name": "constant", "value": 2.0}, norm_bound=1.0, noise_bound=0.3
    ),
    # Oracles.
    "group-top-k": composed(GROUPED, posterior=streaming(), oracle=GroupTopK(k=3)),
    "knapsack": composed(WEIGHED, posterior=streaming(), oracle=Knapsack()),
    "matching": composed(BIPARTITE, posterior=streaming(), oracle=Matching(pairs=2)),
    "coverage": composed(BIPARTITE, posterior=streaming(), oracle=GreedyCoverage(k=2)),
    "tim": composed(BIPARTITE, posterior=streaming(), oracle=TIM(k=1, epsilon=0.9)),
    # Kernels.
    "rational-quadratic": with_kernel(RationalQuadratic(lengthscale=0.4, alpha=2.0)),
    "periodic": with_kernel(Periodic(lengthscale=0.8, period=0.7)),
    "polynomial": with_kernel(Polynomial(degree=2) + Constant(variance=0.1)),
    "linear": with_kernel(Scale(kernel=Linear(bias=0.5), factor=0.3) + Matern(nu=0.5)),
    "columns": with_kernel(Columns(kernel=SE, columns=(1,)) * Matern(nu=2.5)),
    "empirical": composed(
        lambda step: Offer(step=step, arms=Arms.numbered(np.arange(6.0)[:, None])),
        posterior=lambda: StreamingGP(
            Empirical(covariance=_covariance()), 0.05, form="cholesky"
        ),
    ),
    "graph-by-matrix": composed(
        lambda step: Offer(step=step, arms=Arms.numbered(NUMBERS)),
        posterior=lambda: FiniteGP(
            GraphMatern(SparseGraph.of(STREETS.laplacian()), nu=1.5),
            NUMBERS,
            0.05,
            form="visited",
        ),
    ),
}


# --- posteriors ------------------------------------------------------------------------------


def reward(features: Any, step: int) -> Any:
    """A smooth function of the features, and noise."""
    rows = np.atleast_2d(features)
    return np.sin(3.0 * rows.sum(axis=1)) + 0.2 * chance(step, 4).normal(size=len(rows))


def of_rows(step: int) -> tuple[Any, Any]:
    rows = changing(step).arms.features[:2]
    return rows, reward(rows, step)


def of_numbers(step: int) -> tuple[Any, Any]:
    numbers = chance(step, 5).choice(6, 2, replace=False)
    return numbers, reward(POINTS[numbers], step)


def numbered(column: Callable[[int], float]) -> Callable[[int], tuple[Any, Any]]:
    """Row numbers with a time, a block or a step."""

    def data(step: int) -> tuple[Any, Any]:
        numbers, rewards = of_numbers(step)
        return np.column_stack([numbers, np.full(len(numbers), column(step))]), rewards

    return data


def timed_rows(step: int) -> tuple[Any, Any]:
    rows, rewards = of_rows(step)
    return np.column_stack([rows, np.full(len(rows), float(step))]), rewards


def of_timed_trips(step: int) -> tuple[Any, Any]:
    """The same trips, each at another hour."""
    keys, rewards = of_trips(step)
    return with_hours(keys, 5.0 * step % 24.0), rewards


def of_trips(step: int) -> tuple[Any, Any]:
    rows = _vehicle_rows(step)[chance(step, 6).choice(N, 5, replace=False)]
    return rows, rows[:, 1] * 1.1 + 0.5 * chance(step, 4).normal(size=len(rows))


def at_time(time: float) -> Any:
    return np.column_stack([np.arange(6.0), np.full(6, time)])


ROWS = np.random.default_rng(9).random((5, 2)).round(3)
SHORT_MEMORY = SquaredExponential(columns=(0, 1)) * Temporal(epsilon=0.9, column=2)


def row_case(make: Callable[[], Any], **more: Any) -> PosteriorCase:
    return PosteriorCase(make=make, **{"data": of_rows, "queries": ROWS, **more})


def drift_case(make: Callable[[], Any], **more: Any) -> PosteriorCase:
    """Queries about now and later: other tests cover how far back a restored posterior answers."""
    queries = np.vstack([at_time(14.0), at_time(15.5)])
    return PosteriorCase(
        make=make, **{"data": numbered(float), "queries": queries, **more}
    )


def fleet_case(make: Callable[[], Any]) -> PosteriorCase:
    return PosteriorCase(make=make, data=of_trips, queries=_vehicle_rows(13)[:6])


def hourly_case(scales: RoadScales) -> PosteriorCase:
    options = {**FLEET_POSTERIOR, "scales": scales}
    return PosteriorCase(
        make=lambda: RoadGP(FLEET.kernel, ENERGIES, **options),
        data=of_timed_trips,
        queries=with_hours(_vehicle_rows(13)[:6], 4.0 * np.arange(6)),
    )


POSTERIORS: dict[str, PosteriorCase] = {
    "streaming-cholesky": row_case(streaming(form="cholesky")),
    "streaming-finite-rank": row_case(
        streaming(SquaredExponential(lengthscale=4.0), form="finite-rank")
    ),
    "streaming-inducing": row_case(
        streaming(Matern(nu=0.5), most_exact=10, inducing=4)
    ),
    "streaming-forgetting": row_case(
        streaming(SHORT_MEMORY, timed=True, forget=0.1),
        data=timed_rows,
        queries=np.column_stack([ROWS, np.full(5, 13.0)]),
    ),
    "finite-root": PosteriorCase(make=finite(), data=of_numbers, queries=np.arange(6)),
    "finite-visited": PosteriorCase(
        make=finite(form="visited"), data=of_numbers, queries=np.arange(6)
    ),
    "drifting-kalman": drift_case(drifting(form="kalman")),
    "drifting-visited": drift_case(drifting(form="visited")),
    "drifting-folded": drift_case(
        drifting(form="folded", drift=Matern(nu=1.5, lengthscale=8.0))
    ),
    "drifting-periodic": drift_case(
        drifting(drift=Periodic(lengthscale=1.0, period=7.0), time_tolerance=1e-4)
    ),
    "drifting-forgotten": drift_case(
        drifting(drift=Temporal(epsilon=0.9)),
        before=150,
        queries=np.vstack([at_time(152.0), at_time(153.5)]),
    ),
    "independent": PosteriorCase(
        make=lambda: IndependentGaussian(
            np.linspace(0.5, 2.0, 6), 0.05, 0.3, arms=POINTS
        ),
        data=of_numbers,
        queries=np.arange(6),
    ),
    "inducing": row_case(lambda: InducingGP(SE, 0.05, inducing=5)),
    "variational": row_case(lambda: SparseVariational(SE, 0.05, inducing=6)),
    "variational-kept": row_case(
        lambda: SparseVariational(SE, 0.05, inducing=6, restart=False, steps=2)
    ),
    "roads": fleet_case(lambda: RoadGP(FLEET.kernel, ENERGIES, **FLEET_POSTERIOR)),
    "roads-sparse": fleet_case(
        lambda: RoadGP(
            FLEET.kernel, ENERGIES, form="sparse", tolerance=1e-9, **FLEET_POSTERIOR
        )
    ),
    "roads-by-hour": hourly_case(HourlyScales(harmonics=2)),
    "road-durations": hourly_case(DurationScales(harmonics=2)),
    "separate": fleet_case(
        lambda: Separate(RoadGP(FLEET.kernel, ENERGIES, **FLEET_POSTERIOR), column=8)
    ),
    "resetting": PosteriorCase(
        make=lambda: Resetting(finite()(), block=5),
        data=numbered(lambda step: (step - 1) // 5),
        queries=at_time(2.0),
    ),
    "change-detecting": PosteriorCase(
        make=lambda: ChangeDetecting(finite()(), run_length=30.0, scale=1.3),
        data=numbered(float),
        queries=at_time(13.0),
    ),
    "refitting": row_case(lambda: Refitting(streaming()(), every=20, most=30)),
    "refitting-drift": drift_case(
        lambda: Refitting(
            drifting(drift=Temporal(epsilon=0.1))(), every=20, fit_noise=False
        )
    ),
}


def _torch_posterior() -> Any:
    """A model of GPyTorch's, which only its maker can restore."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, as it is imported
        import gpytorch
        import torch
    from superarm.posteriors import TorchPosterior

    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self, likelihood: Any) -> None:
            super().__init__(None, None, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.MaternKernel(nu=2.5)
            self.covar_module.lengthscale = 0.4

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    Exact.__module__ = (
        "saved_states"  # a state names it, and this file has several names
    )
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = torch.tensor(0.05)
    return TorchPosterior(Exact(likelihood).double())


POSTERIORS["torch"] = row_case(_torch_posterior, load=False)


# --- samples -----------------------------------------------------------------------------------


def rows_of_kernels(step: int) -> Offer:
    """Eight arms with an id, a time and two features."""
    return Offer(
        step=step, arms=Arms.numbered(kernel_rows(step, 8, longest=1.0).round(3))
    )


def kernel_case(kernel: Any) -> PolicyCase:
    """The kernel with a variance of at most 1, and a smooth one: alone it may not tell arms apart."""
    largest = float(kernel.diag(kernel_rows(n=100, longest=1.0)).max())
    smooth = SquaredExponential(lengthscale=0.4, columns=(2, 3))
    return composed(
        rows_of_kernels,
        posterior=streaming(smooth + kernel * (1.0 / largest), form="cholesky"),
    )


def oracle_case(sample: OracleSample) -> PolicyCase:
    offer = with_structure(sample.structure(ARM_COUNT), ARM_COUNT)
    parts = {"posterior": streaming(), "oracle": sample.oracle}
    if not sample.costs:
        return composed(offer, **parts)
    return composed(offer, rule=Rectified(rule=Greedy()), direction="minimize", **parts)


def rule_case(spec: dict[str, Any]) -> PolicyCase:
    return composed(posterior=streaming(), rule=build("rule", spec))


def sample_cases() -> dict[tuple[str, str], PolicyCase]:
    """A case for each part that is sampled, by its family and name."""
    found: dict[tuple[str, str], PolicyCase] = {}
    for name, kernel in kernel_of_each_kind().items():
        found["kernel", name] = kernel_case(kernel)
    for name, sample in ORACLES.items():
        found["oracle", name] = oracle_case(sample)
    for name, spec in first_of_each_name(RULES).items():
        found["rule", name] = rule_case(spec)
    for name, spec in first_of_each_name(SCHEDULES).items():
        found["schedule", name] = rule_case({"name": "ucb", "schedule": spec})
    return found


def parts_in_folder(folder: Path) -> set[tuple[str, str]]:
    """Family and name of every part in its states; one without answers was not finished."""
    parts: set[tuple[str, str]] = set()
    for answers in folder.glob("*.json"):
        parts |= set(parts_of(load_state(answers.with_suffix(".npz"))))
    return parts


# --- playing -----------------------------------------------------------------------------------


def feedback_of(offer: Offer, decision: Decision) -> Feedback:
    positions = decision.positions
    rows = offer.arms.features[positions]
    if isinstance(offer.structure, Trip):  # the energy of a road, for any vehicle
        numbers = rows[:, 0].astype(int)
        noise = chance(offer.step, 4).normal(size=len(rows))
        rewards = 1.1 * ENERGIES[numbers] + 0.5 * noise
    else:
        rewards = reward(rows, offer.step)
    return Feedback(positions=positions, rewards=rewards.round(6))


def seeded(step: int) -> np.random.Generator:
    return np.random.default_rng([step, 11])


class Late(NamedTuple):
    """A decision that is pending until its feedback arrives."""

    offer: Offer
    decision: Decision
    feedback: Feedback


def taught(case: PolicyCase) -> tuple[Policy, Decision | None, list[Late]]:
    """The policy after its first rounds, its last decision, and what it still waits for."""
    policy, decision, waiting = case.make(), None, list[Late]()
    for step in range(1, case.before + 1):
        offer = case.offer(step)
        offer = offer if decision is None else offer.after(decision.action)
        decision = policy.decide(offer, seeded(step))
        policy.commit(decision)
        feedback = feedback_of(offer, decision)
        if case.late and step > case.before - 3:
            now, later = (
                _halves(feedback) if step == case.before - 1 else (None, feedback)
            )
            if later is not None:
                waiting.append(Late(offer, decision, later))
        else:
            now = feedback
        if now is not None:
            policy.learn(offer, decision, now, seeded(step))
    return policy, decision, waiting


def _halves(feedback: Feedback) -> tuple[Feedback, Feedback | None]:
    """The first reward, and the others if there are any."""
    positions, rewards = feedback.positions, feedback.rewards
    first = replace(feedback, positions=positions[:1], rewards=rewards[:1])
    if len(positions) == 1:
        return first, None
    return first, replace(feedback, positions=positions[1:], rewards=rewards[1:])


def record_policy(case: PolicyCase, path: Path) -> dict[str, Any]:
    policy, decision, waiting = taught(case)
    save_state(policy.state(), path)  # type: ignore[attr-defined]
    late = [
        {**to_json(arrival._asdict()), "seed": [arrival.offer.step, 11]}
        for arrival in waiting
    ]
    for arrival in waiting:
        policy.learn(*arrival, seeded(arrival.offer.step))
    rounds: list[dict[str, Any]] = []
    for step in range(case.before + 1, case.before + 1 + case.after):
        offer = case.offer(step)
        offer = offer if decision is None else offer.after(decision.action)
        with unmoved_by_rounding(policy):
            decision = policy.decide(offer, seeded(step))
        feedback = feedback_of(offer, decision)
        rounds.append(
            {
                "offer": to_json(offer),
                "seed": [step, 11],
                "decision": answer_of(decision),
                "feedback": to_json(feedback),
            }
        )
        policy.commit(decision)
        policy.learn(offer, decision, feedback, seeded(step))
    record = {
        "is": "policy",
        "load": case.load,
        "tolerance": tolerance_of(policy),
        "rounds": rounds,
    }
    return {**record, "late": late} if late else record


def answer_of(decision: Decision) -> dict[str, Any]:
    """What must be alike; the rest of a decision follows from it."""
    numbers = {
        name: getattr(decision, name) for name in ("mean", "std", "desirability")
    }
    return {
        "action": to_json(decision.action),
        "positions": decision.positions.tolist(),
        "propensity": decision.propensity,
        **{
            name: None if value is None else value.tolist()
            for name, value in numbers.items()
        },
    }


@contextmanager
def unmoved_by_rounding(policy: Policy) -> Iterator[None]:
    """Rerun the oracle with slightly perturbed desirabilities; it must choose the same."""
    oracle = type(getattr(policy, "oracle", TopK(k=1)))
    select = oracle.select

    def checked(
        self: Any, desirability: Any, structure: Any, rng: Any, rescore: Any = None
    ) -> Any:
        plain = select(self, desirability, structure, deepcopy(rng), None)
        _, same = np.unique(desirability, return_inverse=True)  # exact ties stay ties
        for number in range(5):
            factors = 1.0 + SLIGHTLY * np.random.default_rng(number).uniform(
                -1.0, 1.0, len(same)
            )
            off = factors[same]
            with np.errstate(invalid="ignore"):
                moved = select(self, desirability * off, structure, deepcopy(rng), None)
            if moved.positions.tolist() != plain.positions.tolist():
                raise ValueError("a choice hangs on rounding; choose other offers")
        return select(self, desirability, structure, rng, rescore)

    oracle.select = checked  # type: ignore[method-assign]
    try:
        yield
    finally:
        oracle.select = select  # type: ignore[method-assign]


def tolerance_of(part: Any) -> float:
    """How far numbers may be off, relative to the largest of their kind.

    Rounding ε times the condition of K + σ²I, which is at most 1 + N s/σ² for N observations with
    noise σ² and prior variances of at most s; a policy that keeps no posterior has condition 1.
    ``ROUNDING`` is 10⁴ ε: for the few thousand operations behind each number.
    """
    posterior = getattr(part, "posterior", part)
    count = getattr(posterior, "count", 0)
    largest = (
        20.0 if isinstance(posterior, RoadGP | Separate) else 4.0
    )  # of all prior variances here
    noise = getattr(posterior, "noise_variance", 1.0)
    return float(ROUNDING * (1.0 + count * largest / noise))


def record_posterior(case: PosteriorCase, path: Path) -> dict[str, Any]:
    posterior = case.make()
    steps = range(1, case.before + 1)
    for step in steps:
        posterior.observe(*case.data(step), rng=seeded(step))
    save_state(posterior.state(), path)
    queries = np.asarray(case.queries)
    answers = [predicted(posterior, queries)]
    learned = []
    for step in range(case.before + 1, case.before + 1 + case.after):
        keys, rewards = case.data(step)
        learned.append(
            {"keys": to_json(keys), "rewards": to_json(rewards), "seed": [step, 11]}
        )
        posterior.observe(keys, rewards, rng=seeded(step))
        answers.append(predicted(posterior, queries))
    return {
        "is": "posterior",
        "load": case.load,
        "tolerance": tolerance_of(posterior),
        "asked": to_json(queries),
        "learned": learned,
        "answers": answers,
    }


def predicted(posterior: Any, keys: Any) -> dict[str, Any]:
    """Mean, covariance, a draw; what was learned so far in nats."""
    mean, cov = posterior.predict(keys, return_cov=True)
    std = posterior.predict(keys).std
    drawn = posterior.sample(keys, seeded(0), 1)[0]
    named = {"mean": mean, "std": std, "cov": cov, "draw": drawn}
    gain = posterior.information_gain
    return {
        **{name: array.tolist() for name, array in named.items()},
        "information_gain": gain,
    }


def cases() -> Mapping[str, PolicyCase | PosteriorCase]:
    both: dict[str, PolicyCase | PosteriorCase] = {}
    both |= {f"policy-{name}": case for name, case in POLICIES.items()}
    both |= {f"posterior-{name}": case for name, case in POSTERIORS.items()}
    return both


def record_of(case: PolicyCase | PosteriorCase, path: Path) -> dict[str, Any]:
    """Save the state of a case; returns questions and its answers."""
    if isinstance(case, PolicyCase):
        return record_policy(case, path)
    return record_posterior(case, path)


def write(folder: Path) -> list[str]:
    """Add the cases that the folder lacks, then samples of parts that it lacks; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    added = []
    for name, case in cases().items():
        if not (folder / f"{name}.json").exists():
            write_case(folder, name, case)
            added.append(name)
    held = parts_in_folder(folder)
    for (family, part), case in sample_cases().items():
        if (family, part) not in held:
            name = f"policy-sample-{family}-{part}"
            write_case(folder, name, case)
            added.append(name)
    return added


def write_case(folder: Path, name: str, case: PolicyCase | PosteriorCase) -> None:
    state, answers = folder / f"{name}.npz", folder / f"{name}.json"
    try:
        record = record_of(case, state)
    except Exception as error:
        error.add_note(f"in the case {name!r}")
        raise
    answers.write_text(json.dumps(record, allow_nan=False) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.simplefilter(
        "ignore", PrecisionWarning
    )  # one posterior is approximate on purpose
    folder = HERE / superarm.__version__
    for name in write(folder):
        print(f"added {name}")
    size = sum(file.stat().st_size for file in folder.iterdir())
    count = len(list(folder.glob("*.npz")))
    print(f"{count} states in {folder}, {size / 1e3:.0f} kB")
