"""The navigation problem: its model, its metrics, and routes against slow searches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from superarm.core import Decision, Feedback
from superarm.core.data_files import search_path
from superarm.core.errors import InfeasibleError, InputError, UnknownArmError
from superarm.core.normal import rectified_mean
from superarm.core.registry import build
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.core.streams import Streams, stream
from superarm.lab.simulation import simulate
from superarm.oracles import ShortestPath, Trip
from superarm.policies import benchmark
from superarm.roads.energy import Vehicle
from superarm.roads.policies import prior, route_ts
from superarm.roads.problems import Navigation
from superarm.roads.problems.road_models import (
    ROUTES,
    FeatureKernels,
    load_roads,
    road_kernel,
)
from superarm.rules import Greedy

ANY = np.random.default_rng(0)
NOTHING = Feedback(positions=np.empty(0, dtype=np.intp), rewards=np.empty(0))
# Section 000 of the papers' digest: what rectified routing loses to potentials, Wh.
LOST = {
    "luxembourg-a": 19,
    "luxembourg-b": 50,
    "luxembourg-c": 10,
    "luxembourg-d": 8,
    "monaco-a": 40,
    "monaco-b": 324,
}


def city(**options) -> Navigation:
    return Navigation(**{"seed": 0, "horizon": 10, "edges": 300, **options})


def need(route: str) -> None:
    folder = {"luxembourg": "lust", "monaco": "most"}[route.partition("-")[0]]
    if not any((place / folder / "edges.csv.gz").is_file() for place in search_path()):
        pytest.skip(f"{folder} is not at hand")


def cheapest(graph, weights, trip) -> list[int]:
    oracle = ShortestPath(successors=graph.successors)
    return oracle.select(-weights, trip, ANY).positions.tolist()


def bellman_ford(graph, energies, start: int, goal: int) -> float:
    """The least energy of a route, by an algorithm without potentials."""
    nx = pytest.importorskip("networkx", reason="networkx is not installed")
    digraph = nx.DiGraph()
    digraph.add_weighted_edges_from(
        (i, j, energies[j]) for i, j in graph.turns.tolist()
    )
    return nx.bellman_ford_path_length(digraph, start, goal) + energies[start]


@pytest.mark.parametrize("route", ROUTES)
def test_potentials_find_the_least_energy_and_rectifying_does_not(route: str) -> None:
    need(route)
    network, start, goal = ROUTES[route]
    graph = load_roads(network).graph
    vehicle = Vehicle()
    energies = vehicle.energy(graph.length, graph.speed, graph.rise)
    reduced = energies - vehicle.potential(graph.rise)
    assert reduced.min() >= 0.0
    trip = Trip(start=graph.number(start), goal=graph.number(goal))
    best = energies[cheapest(graph, reduced, trip)].sum()
    rectified = energies[
        cheapest(graph, rectified_mean(energies, 0.1 * energies.std()), trip)
    ].sum()
    assert rectified - best == pytest.approx(LOST[route], abs=0.5)
    if route == "monaco-b":
        assert rectified - best == pytest.approx(324.0, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_potentials_equal_bellman_ford_on_real_roads(route: str) -> None:
    need(route)
    network, start, goal = ROUTES[route]
    graph = load_roads(network).graph
    vehicle = Vehicle()
    energies = vehicle.energy(graph.length, graph.speed, graph.rise)
    first, last = graph.number(start), graph.number(goal)
    reduced = energies - vehicle.potential(graph.rise)
    ours = energies[cheapest(graph, reduced, Trip(start=first, goal=last))].sum()
    assert ours == pytest.approx(bellman_ford(graph, energies, first, last), abs=1e-6)


def test_potentials_equal_bellman_ford_in_a_city() -> None:
    world = city()
    graph, trip = world.roads.graph, world.trip
    energies = np.asarray(world.model.energies)
    ours = energies[cheapest(graph, energies - world.model.reduction, trip)].sum()
    assert ours == pytest.approx(
        bellman_ford(graph, energies, trip.start, trip.goal), abs=1e-9
    )


def test_a_reduction_adds_up_to_the_same_on_every_route() -> None:
    world = city()
    rng = np.random.default_rng(3)
    routes = [
        cheapest(world.roads.graph, rng.random(len(world.roads.graph)), world.trip)
        for _ in range(8)
    ]
    assert len({tuple(route) for route in routes}) > 1
    totals = [world.model.reduction[route].sum() for route in routes]
    np.testing.assert_allclose(totals, totals[0], atol=1e-9)


def test_the_model_is_as_settled() -> None:
    world = city()
    graph, model = world.roads.graph, world.model
    sigma = Vehicle().energy(graph.length, graph.speed, graph.rise).std()
    assert model.noise_variance == pytest.approx((0.1 * sigma) ** 2)
    variance = model.kernel.diag(model.arms)
    # Half from the graph kernel, of mean diagonal 1, and half from the features.
    assert variance.mean() == pytest.approx((0.25 * sigma) ** 2)
    assert variance.min() > 0.5 * (0.25 * sigma) ** 2
    assert model.direction == "minimize"
    assert np.allclose(model.arms[:, 1:].std(axis=0), 1.0)


def test_the_truth_is_a_draw_from_the_prior() -> None:
    # Whitened by the prior's factor, n standard normals: their squares add up to n ± 5√(2n).
    squares = []
    for seed in range(3):
        world = city(seed=seed)
        factor = np.linalg.cholesky(world.model.kernel(world.model.arms))
        white = np.linalg.solve(factor, world.energies - world.model.energies)
        squares.append(white @ white)
        assert abs(squares[-1] - len(white)) < 5.0 * np.sqrt(2.0 * len(white))
    assert len(set(squares)) == 3


def test_metrics_match_their_definitions() -> None:
    world = city()
    policies = {"gp-ts": route_ts(world.model), "prior": prior(world.model)}
    played = simulate(world, policies, rounds=10, seed=0)
    noise_std = np.sqrt(world.model.noise_variance)
    reduced_energies = world.energies - world.model.reduction
    for trajectory in played.values():
        tried: set[int] = set()
        for step, row in enumerate(trajectory.choices):
            route = row[row >= 0].tolist()
            before = len(tried)
            tried.update(route)
            assert trajectory.series["distinct_edges"][step] == len(tried) - before
            energy = world.energies[route].sum()
            assert trajectory.series["true_energy"][step] == pytest.approx(energy)
            for name, energies in (
                ("regret", world.energies),
                ("reduced_regret", reduced_energies),
            ):
                weights = rectified_mean(energies, noise_std)
                best = weights[cheapest(world.roads.graph, weights, world.trip)].sum()
                assert trajectory.series[name][step] == pytest.approx(
                    weights[route].sum() - best, abs=1e-9
                )
                assert trajectory.series[name][step] >= 0.0


def test_closed_roads_and_turns_are_not_driven() -> None:
    world = city(closed_roads=0.05, closed_turns=0.05)
    policy = route_ts(world.model)
    closures = set()
    for step in range(1, 9):
        offer = world.offer(step)
        closures.add(offer.available.tobytes())
        decision = policy.decide(offer, np.random.default_rng(step))
        route = decision.positions
        assert offer.available[route].all()
        turns = world.roads.graph.turns
        shut = {tuple(turn) for turn in turns[offer.structure.closed_turns].tolist()}
        taken = set(zip(route[:-1].tolist(), route[1:].tolist(), strict=True))
        assert taken <= {tuple(turn) for turn in turns.tolist()} - shut
        assert world.value(offer, decision) >= world.best(offer).value
    assert len(closures) == 8
    with pytest.raises(InfeasibleError, match="close fewer"):
        city(closed_roads=0.9).offer(1)


def test_conditions_change_what_trips_cost() -> None:
    world = city(conditions=["congestion", "temperature", "load"])
    first, second = world.offer(1), world.offer(12)
    assert first.arms.features.shape[1] == 7
    assert not np.array_equal(first.arms.features, second.arms.features)
    assert not np.array_equal(world.means(first), world.means(second))
    np.testing.assert_array_equal(world.offer(1).arms.features, first.arms.features)
    assert world.model.arms is None
    # Heating and cooling take 100 W per degree from 20 °C for as long as the drive takes.
    cold = city(conditions=["temperature"])
    offer, graph = cold.offer(5), cold.roads.graph
    degrees = 10.0 + 8.0 * offer.arms.features[0, 4]
    extra = 100.0 * abs(degrees - 20.0) * graph.length / graph.speed / 3600.0
    np.testing.assert_allclose(cold.means(offer) - cold.energies, extra, atol=1e-9)
    # A load of L kg adds what a vehicle of that mass needs more.
    laden = city(conditions=["load"])
    offer = laden.offer(5)
    heavy = Vehicle(mass=1830.0 + 400.0 * offer.arms.features[0, 4])
    more = heavy.energy(graph.length, graph.speed, graph.rise) - laden.model.energies
    np.testing.assert_allclose(laden.means(offer) - laden.energies, more, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"route": "monaco-z"}, InputError, "route is 'monaco-z'"),
        (
            {"route": "monaco-a", "start": "1", "goal": "2"},
            InputError,
            "leave these out",
        ),
        ({"route": "monaco-a", "network": "city"}, InputError, "leave these out"),
        (
            {"network": "city", "elevation": "tiles"},
            InputError,
            "no geographic location",
        ),
        ({"network": "atlantis"}, InputError, "'atlantis' is neither a file nor"),
        ({"start": "x"}, InputError, "name both start and goal"),
        ({"start": "nowhere", "goal": "r1"}, UnknownArmError, "no edge 'nowhere'"),
        ({"closed_roads": 1.0}, InputError, "some must stay open"),
        ({"normalisation": "sum"}, InputError, "normalisation is 'sum'"),
        ({"conditions": ["snow"]}, InputError, "conditions is"),
        ({"lengthscale": 0.0}, InputError, "lengthscale"),
    ],
)
def test_bad_parameters_are_refused(options, error, words) -> None:
    with pytest.raises(error, match=words):
        city(**options)


def test_dividing_by_the_efficiency_has_no_potential() -> None:
    world = city(recuperation="divide")
    assert world.model.reduction is None
    with pytest.raises(InputError, match="no potential"):
        route_ts(world.model, routing="potential")
    played = simulate(world, {"prior": prior(world.model)}, rounds=2, seed=0)["prior"]
    assert "reduced_regret" not in played.series


def test_a_round_without_a_route_can_be_waited_out() -> None:
    world = city(closed_roads=0.5, on_no_path="empty")
    played = simulate(world, {"gp-ts": route_ts(world.model)}, rounds=10, seed=0)[
        "gp-ts"
    ]
    empty = (played.choices >= 0).sum(axis=1) == 0
    assert empty.any()
    assert (played.series["regret"][empty] == 0.0).all()
    assert np.isnan(played.audit["score"][empty]).all()


@pytest.mark.parametrize(
    ("lengthscale", "assumed", "normalisation"),
    [(0.5, None, "mean"), (0.5, 2.0, "unit"), (1.0, None, "unit"), (1.0, 2.0, "mean")],
)
def test_the_truth_is_a_draw_with_its_own_lengthscale(
    lengthscale: float, assumed, normalisation
) -> None:
    """f − mean = root z with K = root rootᵀ: so (f − mean)ᵀK⁻¹(f − mean) is zᵀz, only for this K."""
    world = city(
        seed=3,
        lengthscale=lengthscale,
        model_lengthscale=assumed,
        normalisation=normalisation,
    )
    graph, kind = world.roads.graph, {"normalisation": normalisation}
    variance = (0.25 * np.std(world.model.energies)) ** 2
    arms = world.offer(1).arms.features
    residual = world.energies - world.model.energies
    normals = stream(3, "truth", 0).standard_normal(len(arms))
    K = road_kernel(graph, variance, lengthscale=lengthscale, **kind)(arms)
    assert residual @ np.linalg.solve(K, residual) == pytest.approx(
        normals @ normals, rel=1e-9
    )
    known = road_kernel(graph, variance, lengthscale=assumed or lengthscale, **kind)
    np.testing.assert_allclose(
        world.model.kernel(arms[:9], arms), known(arms[:9], arms), rtol=1e-12
    )


def test_truth_and_model_have_separate_feature_kernels() -> None:
    true = {
        "graph_lengthscales": (0.5, 1.0, 2.0),
        "feature_lengthscales": 3.0,
        "graph_share": 0.3,
    }
    believed = {"model_graph_lengthscales": 0.7, "model_graph_share": 0.6}
    world = city(seed=3, **true, **believed)
    variance = (0.25 * np.std(world.model.energies)) ** 2
    arms = world.offer(1).arms.features
    residual = world.energies - world.model.energies
    normals = stream(3, "truth", 0).standard_normal(len(arms))
    features = FeatureKernels(near=(0.5, 1.0, 2.0), features_only=3.0, share=0.3)
    K = road_kernel(world.graph, variance, features=features)(arms)
    assert residual @ np.linalg.solve(K, residual) == pytest.approx(
        normals @ normals, rel=1e-9
    )
    known = road_kernel(
        world.graph,
        variance,
        features=FeatureKernels(near=0.7, features_only=3.0, share=0.6),
    )
    np.testing.assert_allclose(
        world.model.kernel(arms[:9], arms), known(arms[:9], arms), rtol=1e-12
    )
    near = "k_G·k_f with 30 % of the prior variance and lengthscales 0.5, 1, 2"
    assert (
        f"{near}; k′_f with the rest and lengthscales 3"
        in world.interpretations["kernel"]
    )
    assert (
        "k_G·k_f with 60 % of the prior variance and lengthscales 0.7"
        in world.interpretations["model"]
    )
    assert "model" not in city(seed=3, **true).interpretations


@pytest.mark.parametrize("routing", ["rectified", "potential"])
@pytest.mark.parametrize("spread", ["noise", "none"])
def test_the_prior_routes_by_its_mean_energies(routing, spread) -> None:
    model = city().model
    lifted = model.reduction if routing == "potential" else 0.0
    s = np.sqrt(model.noise_variance) if spread == "noise" else 0.0
    costs = prior(model, routing=routing, spread=spread).score.costs
    np.testing.assert_allclose(
        costs, rectified_mean(model.energies - lifted, s), rtol=1e-12
    )


def test_other_vehicles_have_other_energies() -> None:
    plain, heavy = city(), city(mass=2500.0, auxiliary_power=1500.0)
    graph = plain.roads.graph
    expected = Vehicle(mass=2500.0, auxiliary_power=1500.0).energy(
        graph.length, graph.speed, graph.rise
    )
    np.testing.assert_allclose(heavy.model.energies, expected)
    assert not np.allclose(plain.energies, heavy.energies)


def test_batches_of_a_sparse_posterior_differ_from_seed_to_seed() -> None:
    """They are drawn from the generator that a policy learns with, and from nothing else."""
    world = city()
    offer = world.offer(1)

    def taught(seed: int) -> bytes:
        policy = route_ts(world.model, posterior="variational")
        policy.posterior.batch = 5  # fewer than a route has edges
        decision = policy.decide(offer, np.random.default_rng(0))
        assert len(decision.positions) > 5
        feedback = world.feedback(offer, decision, np.zeros(len(offer.arms)))
        policy.commit(decision)
        policy.learn(offer, decision, feedback, Streams(seed, "learn:me").at(1))
        return state_to_bytes(policy.state())

    assert taught(1) == taught(1) != taught(2)


def test_the_settings_of_the_paper_are_the_defaults() -> None:
    """σ₀ = σ/4 and ς = σ/10 of the deterministic energies' σ; lengthscale 1 of truth and model."""
    world = city()
    spread = world.model.energies.std()
    assert world.model.noise_variance == pytest.approx((0.1 * spread) ** 2, rel=1e-12)
    assert world.model.noise_bound == pytest.approx(0.1 * spread, rel=1e-12)
    assert world.model.kernel.diag(world.model.arms).mean() == pytest.approx(
        (0.25 * spread) ** 2
    )
    assert [kernel.lengthscale for kernel in (world.model.kernel.kernels[1],)] == [1.0]
    draws = world.noise(world.offer(1), np.random.default_rng(0))
    expected = np.random.default_rng(0).standard_normal(len(draws)) * 0.1 * spread
    np.testing.assert_allclose(draws, expected, rtol=1e-12)


def test_the_truth_has_its_own_lengthscale() -> None:
    """A model with another lengthscale does not change the truth."""
    truth = city(lengthscale=3.0).energies
    np.testing.assert_array_equal(
        city(lengthscale=3.0, model_lengthscale=0.3).energies, truth
    )
    assert np.abs(city(lengthscale=0.3).energies - truth).max() > 1.0
    # Longer lengthscales make roads that are alike deviate alike.
    world = city(lengthscale=3.0, model_lengthscale=0.3)
    near, far = (
        road_kernel(world.roads.graph, 1.0, lengthscale=lengthscale)
        for lengthscale in (0.3, 3.0)
    )
    rows = world.model.arms[:2]
    assert world.model.kernel(rows)[0, 1] / world.model.kernel(rows)[
        0, 0
    ] == pytest.approx(near(rows)[0, 1] / near(rows)[0, 0])
    assert far(rows)[0, 1] > near(rows)[0, 1]


# --- changing the route costs --------------------------------------------------------------------


def test_newly_entered_edges_are_charged() -> None:
    """Two routes by hand: value, metrics and the benchmark, per edge and per metre."""
    free, per_edge = city(), city(switch_cost=5.0)
    per_metre = city(switch_cost=0.25, switch_per="metre")
    length = per_edge.graph.length
    short = free.cheapest(length)
    away = free.cheapest(length + 1e6 * np.isin(np.arange(len(length)), short[1:-1]))
    new = sorted(set(away) - set(short))
    assert new
    decisions = {
        name: Decision(step=2, action=tuple(route), positions=np.array(route))
        for name, route in (("stay", short), ("go", away))
    }
    for world, cost in (
        (per_edge, 5.0 * len(new)),
        (per_metre, 0.25 * float(length[new].sum())),
    ):
        offer = world.offer(2).after(tuple(short))
        first = world.offer(2)
        for name, charged in (("stay", 0.0), ("go", cost)):
            decision = decisions[name]
            plain = free.value(free.offer(2), decision)
            assert world.value(first, decision) == plain, "the first route is free"
            assert world.value(offer, decision) == pytest.approx(plain + charged)
            metrics = world.metrics(
                offer, decision, world.feedback(offer, decision, np.zeros(len(length)))
            )
            assert metrics["switching_cost"] == pytest.approx(charged)
            assert metrics["total_cost"] == pytest.approx(
                metrics["true_energy"] + charged
            )
            assert (metrics["route_changes"], metrics["new_edges"]) == (
                (name == "go"),
                len(new) * (name == "go"),
            )
            assert world.metrics(first, decision, NOTHING)["route_changes"] == 0.0
        assert world.best(offer) == free.best(offer), "the benchmark pays nothing"
        assert set(metrics) <= set(world.measures)
    assert "switching_cost" not in free.metrics(
        free.offer(2), decisions["stay"], NOTHING
    )
    assert "not part of the previous one" in per_edge.interpretations["switching"]
    assert "switching" not in free.interpretations


@pytest.mark.parametrize(
    "options",
    [
        {"switch_cost": -1.0},
        {"switch_cost": np.nan},
        {"switch_cost": "5 Wh"},
        {"switch_per": "mile"},
    ],
)
def test_impossible_switching_costs(options) -> None:
    with pytest.raises(InputError):
        city(**options)


def test_no_routes_cost_less_than_the_benchmark_where_changing_costs() -> None:
    """In a fixed city it keeps its route, without regret; where roads close, it pays like everyone."""
    for options, loses in (({}, False), ({"closed_roads": 0.2, "horizon": 30}, True)):
        world = city(switch_cost=3.0, **options)
        policies = {
            "benchmark": benchmark(world.model, problem=world),
            "ts": route_ts(world.model, penalty=1.0),
            "prior": prior(world.model),
        }
        runs = simulate(world, policies, rounds=30, seed=0)
        for run in runs.values():
            regret, paid = run.series["regret"], run.series["switching_cost"]
            assert (regret >= paid - 1e-9).all(), (
                "the benchmark's route is the best of every round"
            )
        regret, paid = (
            runs["benchmark"].series[name] for name in ("regret", "switching_cost")
        )
        np.testing.assert_allclose(regret, paid, atol=1e-9)
        assert (paid.sum() > 0.0) == loses


@pytest.mark.parametrize("penalty", [0.5, 2.0])
@pytest.mark.parametrize("per", ["edge", "metre"])
def test_penalised_policies_count_the_cost_after_rectifying(
    per: str, penalty: float
) -> None:
    world = city(switch_cost=0.1 if per == "metre" else 5.0, switch_per=per)
    before = world.cheapest(world.graph.travel_time)
    offer = world.offer(2).after(tuple(before))
    new = np.isin(np.arange(len(world.graph)), before, invert=True)
    charge = penalty * (0.1 * world.graph.length if per == "metre" else 5.0) * new
    makers = {
        "route-ucb": {},
        "route-bucb": {},
        "route-ts": {},
        "route-greedy": {},
        "route-rule": {"rule": Greedy()},
    }
    for name, options in makers.items():
        plain = build("policy", {"name": name, **options}, model=world.model)
        policy = build(
            "policy", {"name": name, "penalty": penalty, **options}, model=world.model
        )
        assert plain.switching is None
        belief = policy.posterior.belief(offer).negated()
        costs = (
            -policy.rule.desirability(belief, offer.step, np.random.default_rng(1))
            + charge
        )
        decision = policy.decide(offer, np.random.default_rng(1))
        assert decision.positions.tolist() == world.cheapest(costs)
        assert decision.desirability is not None
        np.testing.assert_allclose(-decision.desirability, costs[decision.positions])
        restored = policy.restored(state_from_bytes(state_to_bytes(policy.state())))
        assert (
            restored.decide(offer, np.random.default_rng(1)).action == decision.action
        )


def test_a_penalty_needs_a_cost_to_count() -> None:
    with pytest.raises(InputError, match="give the problem 'navigation' a switch_cost"):
        route_ts(city().model, penalty=1.0)
    with pytest.raises(InputError, match=r"penalty must be .*, got -1"):
        route_ts(city(switch_cost=1.0).model, penalty=-1.0)
    assert route_ts(city(switch_cost=1.0).model).switching is None


def test_large_penalty_keeps_the_first_route() -> None:
    """With a cost above any route's energy, the policy never leaves the first route."""
    world = city(switch_cost=1e6, horizon=20)
    policies = {
        "plain": route_ts(world.model),
        "penalised": route_ts(world.model, penalty=1.0),
    }
    runs = simulate(world, policies, rounds=20, seed=0)
    assert runs["penalised"].series["route_changes"].sum() == 0.0
    changes = runs["plain"].series["route_changes"].sum()
    assert changes > 0.0
    chosen = [tuple(row[row >= 0].tolist()) for row in runs["plain"].choices]
    assert changes == sum(one != other for one, other in pairwise(chosen))
    assert runs["plain"].series["new_edges"].sum() == sum(
        len(set(other) - set(one)) for one, other in pairwise(chosen)
    )
