"""Every registered part, built and called with invalid values, raises only our own errors.

A part is built from its own parameters with one of them replaced, and its methods are called with one
argument replaced. A value may be accepted where it has a meaning; what must not happen is an error
from numpy or Python that does not name the invalid argument.
"""

from __future__ import annotations

import dataclasses
import datetime
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from part_names import FILES, own_names, sample_named
from sample_kernels import kernel_of_each_kind, kernel_rows
from sample_oracles import ARM_COUNT, ORACLES
from sample_rules import RULES, SCHEDULES, first_of_each_name
from scipy.sparse import csc_array

from superarm.core import Arms, Decision, Feedback, Offer, registry
from superarm.core.errors import SuperarmError
from superarm.core.graphs import Pairs, SparseGraph, TurnGraph
from superarm.kernels import GraphMatern, Matern, SquaredExponential, Temporal
from superarm.movement import Distance, MatrixMetric, PointMetric, Switch
from superarm.oracles import Groups, TopK, Trip, Weights
from superarm.policies import (
    AdaptiveTree,
    Hypercubes,
    IndexPolicy,
    ScorePolicy,
    TreeIndexPolicy,
)
from superarm.policies.discretised import GrowingGrid
from superarm.policies.exp3 import Exp3
from superarm.policies.exploring import Exploring
from superarm.policies.scores import Uniform
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
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.posterior import RoadGP
from superarm.rules import UCB, Fixed
from superarm.rules.information.computed import GreedyGrowth

ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "odd",
    "bytes": lambda: b"1",
    "NaN": lambda: np.nan,
    "a complex number": lambda: 1j,
    "a negative number": lambda: -1,
    "2**63": lambda: 2**63,
    "1e300": lambda: 1e300,
    "a span of time": lambda: datetime.timedelta(1),
    "a date": lambda: datetime.datetime(2020, 1, 1),
    "numpy's span of time": lambda: np.timedelta64(5, "s"),
    "numpy's date": lambda: np.datetime64("2020"),
    "a ragged list": lambda: [[1], [1, 2]],
    "an array of objects": lambda: np.array([object(), 1], dtype=object),
    "an array without an axis": lambda: np.array(None),
    "an empty list": lambda: [],
    "a dictionary": lambda: {},
    "a set": lambda: {1},
    "a generator": lambda: (number for number in (1, 2)),
    "an object": object,
    "a masked number": lambda: np.ma.masked,
}

N = 6
FEATURES = np.random.default_rng(0).random((N, 2))
ARMS = Arms.numbered(FEATURES)
OFFER = Offer(step=1, arms=ARMS)
ROUGH = Matern(nu=1.5, lengthscale=0.5)
LINKS = np.eye(N, k=1) + np.eye(N, k=-1)
LAPLACIAN = csc_array(np.diag(LINKS.sum(axis=0)) - LINKS)
ROAD_KEYS = np.column_stack([np.arange(N), np.ones((N, 6)), np.zeros(N), np.zeros(N)])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def foreign(call: Callable[[], Any]) -> str | None:
    """What came out of a call besides an answer and our own errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except SuperarmError as error:
            return None if str(error) else "an error without a word"
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:120]
    return None


def with_each_replaced(
    call: Callable[..., Any],
    arguments: Mapping[str, Any],
    names: list[str] | None = None,
) -> Iterator[str]:
    """What goes wrong when one argument at a time is odd."""
    for name in arguments if names is None else names:
        for label, make in ODD.items():
            # Methods may store their arguments, so each call gets a new value.
            changed = {**arguments, name: make()}
            problem = foreign(lambda changed=changed: call(**changed))  # type: ignore[misc]
            if problem is not None:
                yield f"{name} = {label}: {problem}"


def parameters(part: Any) -> dict[str, Any]:
    if isinstance(part, registry.HasParameters):
        return dict(part.parameters())
    return {
        field.name: getattr(part, field.name)
        for field in dataclasses.fields(part)
        if field.init
    }


# --- parts that are made of odd values -----------------------------------------------------

SPECS: dict[str, list[dict[str, Any]]] = {
    "schedule": list(first_of_each_name(SCHEDULES).values()),
    "rule": list(first_of_each_name(RULES).values()),
    "gain": [
        {"name": "constant", "value": 1.0},
        {"name": "linear", "dimension": 2},
        {"name": "matern", "nu": 1.5, "dimension": 2},
        {"name": "squared-exponential", "dimension": 2},
    ],
}

PARTS: dict[str, Callable[[], Any]] = {
    "gain greedy": lambda: GreedyGrowth(
        kernel=ROUGH, candidates=FEATURES, noise_variance=0.1, horizon=3
    ),
    "streaming": lambda: StreamingGP(ROUGH, 0.1),
    "finite": lambda: FiniteGP(ROUGH, FEATURES, 0.1, form="root"),
    "visited": lambda: FiniteGP(ROUGH, FEATURES, 0.1, form="visited"),
    "independent": lambda: IndependentGaussian(np.ones(N), 0.1, arms=FEATURES),
    "inducing": lambda: InducingGP(ROUGH, 0.1, inducing=3),
    "variational": lambda: SparseVariational(ROUGH, 0.1, inducing=3),
    "drifting": lambda: DriftingGP(ROUGH, FEATURES, 0.1, drift=Temporal(epsilon=0.1)),
    "resetting": lambda: Resetting(FiniteGP(ROUGH, FEATURES, 0.1), block=3),
    "change-detecting": lambda: ChangeDetecting(StreamingGP(ROUGH, 0.1)),
    "refitting": lambda: Refitting(StreamingGP(ROUGH, 0.1)),
    "separate": lambda: Separate(StreamingGP(ROUGH, 0.1), column=0),
    "roads": lambda: RoadGP(
        GraphMatern(SparseGraph.of(LAPLACIAN)), np.ones(N), refit=0
    ),
    "points": lambda: PointMetric(points=FEATURES),
    "matrix": lambda: MatrixMetric(distances=1.0 - np.eye(N)),
    "distance": Distance,
    "switch": lambda: Switch(cost=1.0),
    "grid": lambda: GrowingGrid(
        norm_bound=1.0, lipschitz=1.0, lower=[0.0, 0.0], side=1.0
    ),
    "turns": lambda: TurnGraph(length=np.ones(3), turns=[[0, 1], [1, 2]]),  # type: ignore[arg-type]
    "sparse": lambda: SparseGraph.of(LAPLACIAN),
    "vehicle": Vehicle,
    "scales": RoadScales,
    "pairs": lambda: Pairs(left=np.arange(N) // 2, right=np.arange(N) % 2),
    "groups": lambda: Groups(
        of_arm=np.arange(N) // 2, limits=np.ones(3, dtype=np.intp)
    ),
    "weights": lambda: Weights(of_arm=np.ones(N), budget=2.0),
    "trip": lambda: Trip(start=0, goal=2),
    "index": lambda: policy_of(StreamingGP(ROUGH, 0.1)),
    "score": lambda: ScorePolicy(score=Uniform(), oracle=TopK(k=2)),
    "exp3": lambda: Exp3(arms=FEATURES, block=5, low=0.0, high=1.0),
    "exploring": lambda: Exploring(
        policy=policy_of(StreamingGP(ROUGH, 0.1)), epsilon=0.5
    ),
    "adaptive-tree": lambda: AdaptiveTree(oracle=TopK(k=2), horizon=50),
    "hypercubes": lambda: Hypercubes(oracle=TopK(k=2), horizon=50),
    "tree-index": lambda: TreeIndexPolicy(
        posterior=FiniteGP(ROUGH, FEATURES, 0.1),
        rule=UCB(schedule=Fixed(value=1.0)),
        metric=PointMetric(points=FEATURES),
    ),
}


def policy_of(posterior: Any) -> IndexPolicy:
    return IndexPolicy(
        posterior=posterior, rule=UCB(schedule=Fixed(value=1.0)), oracle=TopK(k=2)
    )


def built(family: str, spec: dict[str, Any]) -> Callable[[], Any]:
    return lambda: registry.build(family, spec)


def always(part: Any) -> Callable[[], Any]:
    return lambda: part


MAKERS: dict[str, Callable[[], Any]] = dict(PARTS)
for name, kernel in kernel_of_each_kind().items():
    MAKERS[f"kernel {name}"] = always(kernel)
for name, sample in ORACLES.items():
    MAKERS[f"oracle {name}"] = always(sample.oracle)
for family, specs in SPECS.items():
    for spec in specs:
        MAKERS[f"{family} {spec['name']}"] = built(family, spec)
    # Parts that need no arguments need no line above.
    for name in registry.names(family):
        if f"{family} {name}" not in MAKERS and f"{family} {name}" not in PARTS:
            MAKERS[f"{family} {name}"] = built(family, {"name": name})


@pytest.mark.parametrize("name", MAKERS)
def test_parts_reject_invalid_values(name: str) -> None:
    try:
        part = MAKERS[name]()
    except SuperarmError as error:
        place = FILES.get(name.split(maxsplit=1)[0], "SPECS or PARTS above")
        pytest.fail(f"{name} needs arguments: add it to {place} ({error})")
    assert list(with_each_replaced(type(part), parameters(part))) == []


# --- what users call -----------------------------------------------------------------------


def features_of(name: str) -> Any:
    return (
        ROAD_KEYS
        if name == "roads"
        else np.round(FEATURES)
        if name == "separate"
        else FEATURES
    )


POSTERIORS = [
    *(
        "streaming",
        "finite",
        "visited",
        "independent",
        "inducing",
        "variational",
        "drifting",
    ),
    *("resetting", "change-detecting", "refitting", "separate", "roads"),
]


def test_every_posterior_is_here() -> None:
    names = {registry.catalogue._names[type(PARTS[name]())][1] for name in POSTERIORS}
    assert names == set(registry.names("posterior"))


@pytest.mark.parametrize("name", POSTERIORS)
def test_posteriors_reject_invalid_calls(name: str) -> None:
    posterior = PARTS[name]()
    offer = Offer(step=1, arms=Arms.numbered(features_of(name)))
    keys = posterior.keys(offer)
    posterior.observe(keys[:2], [1.0, 2.0], rng=rng())
    belief = posterior.belief(offer)
    calls: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "observe": (
            posterior.observe,
            {"arms": keys[:1], "rewards": [1.0], "noise_variance": [0.1], "rng": rng()},
        ),
        "predict": (posterior.predict, {"arms": keys[:2]}),
        "sample": (posterior.sample, {"arms": keys[:1], "rng": rng(), "size": 1}),
        "belief": (posterior.belief, {"offer": offer, "pending": keys[:1]}),
        "keys": (posterior.keys, {"offer": offer}),
    }
    problems = [
        f"{method}: {problem}"
        for method, (call, arguments) in calls.items()
        for problem in with_each_replaced(call, arguments)
    ]
    posterior = PARTS[name]()
    belief = posterior.belief(offer)
    problems += with_each_replaced(belief.sample, {"rng": rng()})
    problems += with_each_replaced(belief.condition, {"positions": np.array([0])})
    assert problems == []


@pytest.mark.parametrize("name", own_names("kernel"))
def test_kernels_reject_invalid_calls(name: str) -> None:
    kernel = sample_named("kernel", name, kernel_of_each_kind())
    rows = kernel_rows(n=N)
    problems = [
        *with_each_replaced(kernel, {"X": rows, "Y": rows}),
        *with_each_replaced(kernel.diag, {"X": rows}),
        *with_each_replaced(kernel.clone_with_theta, {"theta": kernel.theta}),
    ]
    assert problems == []


@pytest.mark.parametrize("name", own_names("oracle"))
def test_oracles_reject_invalid_calls(name: str) -> None:
    sample = sample_named("oracle", name, ORACLES)
    oracle, structure = sample.oracle, sample.structure(ARM_COUNT)
    low, high = (-0.9, -0.1) if sample.costs else (0.1, 0.9)
    values = np.linspace(low, high, ARM_COUNT)
    arguments = {"desirability": values, "structure": structure, "rng": rng()}
    problems = list(with_each_replaced(oracle.select, arguments))
    for label, make in {**ODD, "too few numbers": lambda: values[:-1]}.items():
        problem = foreign(
            lambda make=make: oracle.select(**arguments, rescore=lambda _: make())
        )  # type: ignore[misc]
        if problem is not None:
            problems.append(f"rescore gives {label}: {problem}")
    assert problems == []


@pytest.mark.parametrize(
    "name",
    [
        "index",
        "score",
        "exp3",
        "exploring",
        "adaptive-tree",
        "hypercubes",
        "tree-index",
    ],
)
def test_policies_reject_invalid_calls(name: str) -> None:
    policy = PARTS[name]()
    decision = policy.decide(OFFER, rng())
    policy.commit(decision)
    feedback = Feedback(
        positions=decision.positions, rewards=np.ones(len(decision.positions))
    )
    arguments = {
        "offer": OFFER,
        "decision": decision,
        "feedback": feedback,
        "rng": rng(),
    }
    names = ["offer", "decision", "feedback"]
    problems = [
        *with_each_replaced(
            policy.decide, {"offer": Offer(step=2, arms=ARMS), "rng": rng()}
        ),
        *with_each_replaced(policy.commit, {"decision": decision}),
        *with_each_replaced(policy.learn, arguments, names),
    ]
    assert problems == []


def test_records_reject_invalid_values() -> None:
    offer: dict[str, Any] = {
        "step": 1,
        "arms": ARMS,
        "time": 1.0,
        "available": np.ones(N, bool),
    }
    decision: dict[str, Any] = {"step": 1, "action": 0, "positions": np.array([0])}
    decision |= {"propensity": 1.0, "carry": None}
    feedback: dict[str, Any] = {
        "positions": [0],
        "rewards": [1.0],
        "noise_variance": [1.0],
    }
    feedback |= {"delays": [0], "sums": [0]}
    problems = [
        *with_each_replaced(Arms, {"ids": range(N), "features": FEATURES}),
        *with_each_replaced(Arms.numbered, {"features": FEATURES}),
        *with_each_replaced(ARMS.positions, {"ids": [0]}),
        *with_each_replaced(Offer, {**offer, "begins": False}),
        *with_each_replaced(Decision, decision),
        *with_each_replaced(Feedback, feedback),
    ]
    assert problems == []


def test_more_draws_than_memory_are_refused_at_once() -> None:
    for name in POSTERIORS:
        posterior = PARTS[name]()
        keys = posterior.keys(Offer(step=1, arms=Arms.numbered(features_of(name))))
        for size in (2**63, 2**40, 10**400):
            with pytest.raises(SuperarmError, match="draw at most"):
                posterior.sample(keys, rng(), size)


def test_grid_rejects_extremely_large_features() -> None:
    grid = GrowingGrid(norm_bound=1.0, lipschitz=1.0, lower=[0.0], side=1.0)  # type: ignore[arg-type]
    for features in ([[1e300], [0.0]], [[0.0, 1.0]]):
        with pytest.raises(SuperarmError):
            grid.allowed_arms(Offer(step=1, arms=Arms.numbered(features)))
    fine = GrowingGrid(norm_bound=1e99, lipschitz=1e99, lower=[0.0], side=1e99)  # type: ignore[arg-type]
    assert fine.allowed_arms(Offer(step=3, arms=Arms.numbered([[0.0], [1.0]]))).all()


def test_smooth_kernels_ask_for_rows() -> None:
    with pytest.raises(SuperarmError, match=r"X must be numbers in a rectangular"):
        SquaredExponential()([[0.0], [0.0, 1.0]])
