"""Policies as data: a JSON spec rebuilds a policy, and a state contains its spec."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superarm
from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import Decision, Policy
from superarm.core.errors import InputError, SpecError, StateError
from superarm.core.graphs import SparseGraph, TurnGraph
from superarm.core.registry import build, names, parameters_of, spec_of
from superarm.core.serialization import from_json, to_json
from superarm.core.states import (
    load_state,
    save_state,
    state_from_bytes,
    state_to_bytes,
)
from superarm.kernels import GraphMatern, Matern, SquaredExponential
from superarm.lab.simulation import simulate
from superarm.models import ByNumber, Model, World
from superarm.oracles import ShortestPath, TopK, Trip
from superarm.policies import First, GrowingGrid, KnownCosts, ScorePolicy, Uniform
from superarm.posteriors import (
    FiniteGP,
    IndependentGaussian,
    SparseVariational,
    StreamingGP,
)
from superarm.roads.energy import RoadEnergy, Vehicle
from superarm.roads.models import RoadModel
from superarm.roads.networks import generate_city
from superarm.rules import UCB, Fixed, Greedy, Rectified, Thompson

PROBLEMS: dict[str, dict[str, Any]] = {
    "navigation": {"edges": 300},
    "crowdsourcing": {"source": "synthetic"},
    "rkhs-function": {"arms": 40},
    "landscape": {"side": 6},
    "temperature-sensors": {"source": "synthetic"},
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "known-cost": [{"cost": "length"}],
    "composed": [{"rule": {"name": "greedy"}}],
    "route-rule": [{"rule": {"name": "greedy"}}],
    "gp-ts": [{}, {"decision_set": "discretised"}],
    "igp-ucb": [{}, {"gain": "greedy"}],
    "route-ucb": [{}, {"routing": "potential"}, {"posterior": "independent"}],
    "route-greedy": [{}, {"posterior": "variational"}],
    "prior": [{"routing": "potential"}],
}
SPEC_CLASSES = ("index", "score")  # these are specs of policies, not factories


def through_json(spec: dict[str, Any]) -> Any:
    return from_json(json.loads(json.dumps(to_json(spec), allow_nan=False)))


def played(problem: World, policy: Policy) -> Any:
    """What was chosen in ten rounds; or why nothing can be, as of a rule that no route can go by."""
    try:
        [trajectory] = simulate(problem, {"it": policy}, rounds=10, seed=3).values()
    except InputError as error:
        return str(error)
    return [list(np.atleast_1d(choice)) for choice in trajectory.choices]


def cases(problem: str) -> list[tuple[str, dict[str, Any]]]:
    known = [
        name for name in names("policy") if name not in (*SPEC_CLASSES, "benchmark")
    ]
    return [(name, options) for name in known for options in OPTIONS.get(name, [{}])]


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_published_policy_decides_the_same_when_it_is_made_from_json(
    problem: str,
) -> None:
    world = build("problem", {"name": problem, **PROBLEMS[problem]}, seed=1, horizon=10)
    built, refused = 0, 0
    assert isinstance(world, World)
    for name, options in cases(problem):
        try:
            policy = build("policy", {"name": name, **options}, model=world.model)
        except InputError:  # it needs what this problem does not state
            refused += 1
            continue
        spec = spec_of(policy)
        rebuilt = build("policy", through_json(spec))
        assert to_json(spec_of(rebuilt)) == to_json(spec), name
        ours = played(world, policy)
        assert played(world, rebuilt) == ours, (name, options)
        built += isinstance(ours, list)
    assert built >= 5, refused


@pytest.mark.slow
def test_policies_on_roads_whose_conditions_change() -> None:
    problem = {"name": "navigation", "edges": 300, "conditions": ["load"]}
    world = build("problem", problem, seed=1, horizon=10)
    for spec in (
        {"name": "route-ts"},
        {"name": "route-ucb", "posterior": "variational"},
    ):
        policy = build("policy", spec, model=world.model)
        rebuilt = build("policy", through_json(spec_of(policy)))
        assert played(world, rebuilt) == played(world, policy)


def test_benchmark_uses_the_truth_and_has_no_spec() -> None:
    world = build("problem", {"name": "rkhs-function", "arms": 20}, seed=1, horizon=10)
    policy = build("policy", "benchmark", model=world.model, problem=world)
    with pytest.raises(SpecError, match="Truth cannot be part of a spec"):
        spec_of(policy)
    restored = policy.restored(state_from_bytes(state_to_bytes(policy.state())))
    assert played(world, restored) == played(world, policy)


def test_road_policies_require_roads() -> None:
    world = build("problem", {"name": "rkhs-function", "arms": 20}, seed=1, horizon=10)
    for name, options in (
        ("route-ucb", {}),
        ("prior", {}),
        ("known-cost", {"cost": "length"}),
    ):
        with pytest.raises(InputError, match="needs a RoadModel, not a Model"):
            build("policy", {"name": name, **options}, model=world.model)
    roads = build(
        "problem", {"name": "navigation", "edges": 300}, seed=1, horizon=10
    ).model
    assert isinstance(roads, RoadModel)
    assert not {"reduction", "costs", "numbered", "fingerprint"} & set(
        Model.__dataclass_fields__
    )


# --- parts ---------------------------------------------------------------------------------

RING = TurnGraph(length=[2.0, 1.0, 4.0], turns=[[0, 1], [1, 2], [2, 0]])
ARMS = np.linspace(0.0, 1.0, 7)[:, None]
SE = SquaredExponential(lengthscale=0.2)
PARTS: list[tuple[str, Any]] = [
    ("network", RING),
    ("network", SparseGraph.of(RING.laplacian())),
    ("kernel", GraphMatern(RING, nu=2, normalisation="unit")),
    ("kernel", GraphMatern(RING.laplacian(), nu=1.5)),
    ("kernel", GraphMatern(RING, cache_megabytes=3.0) * Matern(columns=(1,)) + SE),
    ("oracle", ShortestPath(successors=RING, on_no_path="empty")),
    ("oracle", ShortestPath(successors=RING.successors)),
    ("mean", ByNumber(values=[1.0, -2.0], column=1)),
    (
        "mean",
        RoadEnergy(vehicle=Vehicle(mass=2e3), length=[9.0], speed=[3.0], rise=[-1.0]),
    ),
    ("rule", Rectified(rule=Greedy(), reduction=[0.1, 0.2])),
    (
        "posterior",
        StreamingGP(SE, 0.1, ByNumber(values=[3.0]), form="cholesky", timed=True),
    ),
    ("posterior", FiniteGP(SE, ARMS, 0.1, np.arange(7.0))),
    ("posterior", FiniteGP(SE, ARMS, 0.1, 0.5, form="visited", backend="numpy")),
    ("posterior", IndependentGaussian(np.ones(7), 0.1, 2.0, arms=ARMS)),
    ("posterior", SparseVariational(SE, 0.1, inducing=5, discrete_columns=0)),
    ("score", Uniform()),
    ("score", Uniform(costs=True)),
    ("score", KnownCosts(costs=[1.0, 2.0])),
    ("score", First()),
    ("structure", Trip(start=1, goal=2, closed_turns=np.array([0]))),
]


@pytest.mark.parametrize(
    ("family", "part"), PARTS, ids=lambda value: type(value).__name__
)
def test_parts_round_trip_through_their_specs(family: str, part: Any) -> None:
    spec = spec_of(part)
    rebuilt = build(family, through_json(spec))
    assert type(rebuilt) is type(part)
    assert to_json(spec_of(rebuilt)) == to_json(spec)
    assert "backend" not in spec
    assert "cache_megabytes" not in json.dumps(to_json(spec))
    for key in parameters_of(family, spec["name"]):
        assert key in spec or key in ("backend", "cache_megabytes"), key


@pytest.mark.parametrize("network", [RING, RING.laplacian()], ids=["graph", "matrix"])
def test_graph_kernels_are_exact_after_json(network: Any) -> None:
    kernel = GraphMatern(network, nu=2)
    rebuilt = build("kernel", through_json(spec_of(kernel)))
    nodes = np.arange(3.0)[:, None]
    np.testing.assert_array_equal(rebuilt(nodes), kernel(nodes))


def test_a_mean_by_number_reads_its_column() -> None:
    rows = np.array([[1.0, 2.0], [0.0, 0.0], [2.0, 1.0]])
    for column in (0, 1):
        mean = ByNumber(values=[0.5, 2.0, 7.0], column=column)
        expected = np.array([0.5, 2.0, 7.0])[rows[:, column].astype(int)]
        np.testing.assert_array_equal(mean(rows), expected)


def test_line_graphs_give_the_turns_as_data() -> None:
    graph = generate_city(edges=300, seed=1).line_graph()
    turns = TurnGraph(length=graph.length, turns=graph.turns)
    assert (graph.laplacian() - turns.laplacian()).nnz == 0
    np.testing.assert_array_equal(graph.successors.indices, turns.successors.indices)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TurnGraph(length=[1.0], turns=[[0, 1]]), "outside 0"),
        (lambda: TurnGraph(length=[0.0], turns=[]), "above 0"),
        (lambda: TurnGraph(length=[1.0], turns=[[0.5, 0.0]]), "whole numbers"),
        (lambda: TurnGraph(length=[1.0], turns=[[0, 2**40]]), "below 2³¹"),
        (lambda: SparseGraph(indptr=[0, 2], indices=[0]), "must rise"),
        (lambda: SparseGraph(indptr=[1, 1], indices=[0]), "must rise"),
        (lambda: SparseGraph(indptr=[0, 2, 1], indices=[0]), "must rise"),
        (lambda: SparseGraph(indptr=[0, 1], indices=[1]), "outside 0"),
        (lambda: SparseGraph(indptr=[0, 1], indices=[0]).laplacian(), "no Laplacian"),
        (lambda: TurnGraph(length=[1.0, 2.0], turns=[[-(2**63), 1]]), "below 2³¹"),
        (lambda: ByNumber(values=[1.0], column=-1), "of at least 0"),
        (lambda: ByNumber(values=[1.0])(np.array([[1.0]])), "numbered 0 … 0"),
        (lambda: ByNumber(values=[1.0])(np.array([[-1.0]])), "numbered 0 … 0"),
        (
            lambda: RoadEnergy(vehicle=None, length=[1.0], speed=[1.0], rise=[0.0]),
            "a Vehicle",
        ),
        (lambda: ScorePolicy(score=len, oracle=TopK()), "score must be"),
        (lambda: ScorePolicy(score=Uniform(), oracle=None), "oracle must be"),
        (
            lambda: GrowingGrid(norm_bound=-1, lipschitz=1, lower=[0], side=1),
            "norm_bound must be .*, got -1",
        ),
    ],
)
def test_invalid_input_is_rejected(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    "kernel", ["se", {"name": "matern"}, SquaredExponential, None, 3.0]
)
def test_a_posterior_needs_a_kernel_where_it_is_made(kernel: Any) -> None:
    for make in (
        lambda: StreamingGP(kernel=kernel, noise_variance=0.1),
        lambda: FiniteGP(kernel=kernel, arms=ARMS, noise_variance=0.1),
        lambda: SparseVariational(kernel=kernel, noise_variance=0.1),
    ):
        with pytest.raises(InputError, match="which is not a kernel"):
            make()


def test_unbuildable_specs_are_rejected() -> None:
    with pytest.raises(
        SpecError, match=r"the rule is of type mine\.Rule, which has no spec"
    ):
        build("rule", {"foreign": "mine.Rule"})
    deep: Any = {"name": "scale", "factor": 1.0}
    for _ in range(5000):
        deep = {"name": "scale", "factor": 1.0, "kernel": deep}
    with pytest.raises(SpecError, match="too deeply"):
        build("kernel", deep)


# --- states --------------------------------------------------------------------------------


def taught(**changes: Any) -> IndexPolicy:
    parts: dict[str, Any] = {
        "posterior": StreamingGP(SquaredExponential(lengthscale=0.2), 0.01),
        "rule": UCB(schedule=Fixed(value=2.0)),
        "oracle": TopK(k=2),
    }
    policy = IndexPolicy(**{**parts, **changes})
    offer = Offer(step=1, arms=Arms.numbered(ARMS))
    decision = Decision(step=1, action=None, positions=np.array([0, 3]))
    feedback = Feedback(positions=np.array([0, 3]), rewards=np.array([1.0, -0.5]))
    policy.learn(offer, decision, feedback, np.random.default_rng(0))
    return policy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"posterior": StreamingGP(SquaredExponential(lengthscale=0.5), 0.01)},
            "posterior.kernel.lengthscale is 0.5 here and 0.2 in the state",
        ),
        (
            {"posterior": StreamingGP(SquaredExponential(lengthscale=0.2), 0.02)},
            "posterior.noise_variance is 0.02 here and 0.01 in the state",
        ),
        (
            {"posterior": StreamingGP(SquaredExponential(lengthscale=0.2), 0.01, 1.0)},
            "posterior.mean is 1.0 here and 0.0 in the state",
        ),
        (
            {"posterior": StreamingGP(Matern(lengthscale=0.2), 0.01)},
            "posterior.kernel is 'matern' here and 'squared-exponential' in the state",
        ),
        ({"rule": Thompson()}, "rule is 'thompson' here and 'ucb' in the state"),
        (
            {"rule": UCB(schedule=Fixed(value=3.0))},
            "rule.schedule.value is 3.0 here and 2.0",
        ),
        ({"oracle": TopK(k=1)}, "oracle.k is 1 here and 2 in the state"),
        (
            {"direction": "minimize"},
            "direction is 'minimize' here and 'maximize' in the state",
        ),
        ({"stepwise": True}, "stepwise is True here and False in the state"),
    ],
)
def test_state_of_another_policy_is_rejected_with_a_reason(
    changes: Any, message: str
) -> None:
    state = state_from_bytes(state_to_bytes(taught().state()))
    with pytest.raises(StateError, match=message):
        taught(**changes).restored(state)
    assert taught().restored(state).version == 1


def test_a_posterior_refuses_the_state_of_another() -> None:
    gp = FiniteGP(SE, ARMS, 0.1)
    gp.observe([1], [2.0])
    state = state_from_bytes(state_to_bytes(gp.state()))
    moved = ARMS.copy()
    moved[2] += 0.25
    cases: list[tuple[Any, str]] = [
        (
            FiniteGP(SquaredExponential(lengthscale=0.5), ARMS, 0.1),
            "kernel.lengthscale is 0.5 here and 0.2",
        ),
        (
            FiniteGP(SE, moved, 0.1),
            r"arms\[2, 0\] is 0.58\d* here and 0.33\d* in the state",
        ),
        (FiniteGP(SE, ARMS[:5], 0.1), r"arms is float64 of shape \(5, 1\) here and"),
        (FiniteGP(SE, ARMS, 0.1, form="visited"), "form is 'visited' here and 'root'"),
    ]
    for other, message in cases:
        with pytest.raises(StateError, match=message):
            other.restored(state)
    restored = FiniteGP.from_state(state)
    np.testing.assert_allclose(restored.predict([0, 6]).mean, gp.predict([0, 6]).mean)
    with pytest.raises(StateError, match="it has no spec"):
        gp.restored(replace(state, spec=None))
    for spec in (
        {"name": "finite", "arms": ARMS},
        {"name": "finite", "kernel": {"name": "no"}},
    ):
        with pytest.raises(StateError, match="is damaged"):
            FiniteGP.from_state(replace(state, spec=spec))


def test_policy_restores_from_its_file(tmp_path: Path) -> None:
    policy, path = taught(), tmp_path / "deep" / "mine.npz"
    policy.save(path)
    restored = superarm.load(path)
    offer = Offer(step=2, arms=Arms.numbered(ARMS))
    ours, theirs = (
        player.decide(offer, np.random.default_rng(0)) for player in (policy, restored)
    )
    assert ours.positions.tolist() == theirs.positions.tolist()
    np.testing.assert_allclose(theirs.mean, ours.mean)
    assert state_to_bytes(restored.state()) == path.read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == ["mine.npz"]


def test_discretised_policy_restores_from_its_file(tmp_path: Path) -> None:
    world = build("problem", {"name": "rkhs-function", "arms": 30}, seed=1, horizon=10)
    spec = {"name": "gp-ts", "decision_set": "discretised"}
    policy = build("policy", spec, model=world.model)
    played(world, policy)
    policy.save(tmp_path / "a.npz")
    restored = superarm.load(tmp_path / "a.npz")
    assert state_to_bytes(restored.state()) == state_to_bytes(policy.state())
    other = build("policy", {**spec, "delta": 0.2}, model=world.model)
    with pytest.raises(
        StateError, match=r"rule\.schedule\.delta is 0\.2 here and 0\.1"
    ):
        other.restored(policy.state())


class Nameless(TopK):
    """A user's oracle that is not registered."""


@dataclass(frozen=True)
class Slope:
    """A user's mean function."""

    by: float = 1.0

    def __call__(self, rows: Any) -> Any:
        return self.by * rows[:, 0]


def test_foreign_parts_are_identified_by_type(tmp_path: Path) -> None:
    reason = "scikit-learn is not installed"
    sklearn = pytest.importorskip("sklearn.gaussian_process.kernels", reason=reason)
    policy = taught(posterior=StreamingGP(sklearn.RBF(0.2), 0.01))
    policy.save(tmp_path / "a.npz")
    state = load_state(tmp_path / "a.npz")
    assert (
        taught(posterior=StreamingGP(sklearn.RBF(0.2), 0.01)).restored(state).version
        == 1
    )
    with pytest.raises(
        StateError, match=r"kernel is 'sklearn.*Matern' here and 'sklearn.*RBF' in"
    ):
        taught(posterior=StreamingGP(sklearn.Matern(), 0.01)).restored(state)
    with pytest.raises(
        StateError,
        match=r"posterior.kernel of .* has type sklearn.*RBF, which cannot be saved",
    ):
        superarm.load(tmp_path / "a.npz")
    with pytest.raises(StateError, match="pass it: from_state"):
        StreamingGP.from_state(state.part("posterior"))
    for kernel in (SE + sklearn.RBF(0.2), SE):
        mixed = StreamingGP(kernel, 0.01, Slope())
        restored = mixed.restored(state_from_bytes(state_to_bytes(mixed.state())))
        assert restored.kernel is kernel
        with pytest.raises(StateError, match="pass it: from_state"):
            StreamingGP.from_state(mixed.state())
        assert (
            StreamingGP.from_state(mixed.state(), kernel=kernel, mean=Slope()).count
            == 0
        )
    nameless = taught(oracle=Nameless(k=1))
    assert nameless.restored(nameless.state()).version == 1


def test_states_that_describe_no_policy(tmp_path: Path) -> None:
    state = taught().state()
    for spec, message in (
        (None, "it has no spec of its policy"),
        ({"name": "nobody"}, "unknown policy 'nobody'"),
        ({"name": "index"}, "needs posterior"),
        ({**(state.spec or {}), "rule": 3}, "rule must be .*, got 3"),
        (
            {**(state.spec or {}), "oracle": {"name": "top-k", "k": {"a": 1}}},
            "k must be",
        ),
    ):
        save_state(replace(state, spec=spec), tmp_path / "bad.npz")
        with pytest.raises(StateError, match=message):
            superarm.load(tmp_path / "bad.npz")
    save_state(taught().posterior.state(), tmp_path / "part.npz")
    with pytest.raises(StateError, match="unknown policy 'streaming'"):
        superarm.load(tmp_path / "part.npz")


def test_arrays_are_stored_once() -> None:
    gp = FiniteGP(SE, np.random.default_rng(0).random((500, 4)), 0.1)
    policy = IndexPolicy(posterior=gp, rule=Greedy(), oracle=TopK())
    single, together = (
        len(state_to_bytes(gp.state())),
        len(state_to_bytes(policy.state())),
    )
    assert gp.arms.nbytes == 16_000 < single
    assert together < single + 8_000
