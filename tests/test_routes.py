"""Routes for users of the library: networks in memory, what is minimised, and lines on a map."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Feedback, Floats, Offer
from superarm.errors import InputError, SpecError, StateError, UnknownArmError
from superarm.kernels import SquaredExponential, Temporal
from superarm.networks import RoadNetwork, Vehicle, generate_city
from superarm.networks.geography import from_utm
from superarm.normal import rectified_mean
from superarm.oracles import TopK
from superarm.policies import IndexPolicy, known_cost, route_greedy, wrapped
from superarm.posteriors import FiniteGP
from superarm.problems.road_models import road_arms, road_model, with_conditions
from superarm.routes import RouteAnswer, find_route
from superarm.rules import Greedy

ENDS = ("r1", "r20")


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return generate_city(edges=300, seed=1)


def learned(network: RoadNetwork, energy: float, posterior: Any = "finite") -> Any:
    """A state in which some roads were seen to cost this much."""
    graph = network.line_graph()
    policy = route_greedy(road_model(graph, Vehicle(), horizon=1), posterior=posterior)
    features = road_model(graph, Vehicle(), horizon=1).arms
    seen = np.arange(0, len(graph), 9)
    keys = features[seen] if posterior == "variational" else seen
    policy.posterior.observe(keys, np.full(len(seen), energy), rng=np.random.default_rng(0))
    return policy


def cheapest(answer: RouteAnswer, costs: Floats) -> float:
    """By Bellman's and Ford's algorithm, first and last edge included."""
    graph, start = answer.graph, answer.trip.start
    total = np.full(len(graph), np.inf)
    total[start] = costs[start]
    first, second = graph.turns.T
    for _ in range(len(graph)):
        np.minimum.at(total, second, total[first] + costs[second])
    return float(total[answer.trip.goal])


@pytest.mark.parametrize("routing", ["potential", "rectified"])
@pytest.mark.parametrize("energy", [-60.0, 40.0])
def test_what_is_minimised(city: RoadNetwork, routing: Any, energy: float) -> None:
    """max(0, m − Δh), or E[max(0, N(m, ς²))]; and the edges where that is not m are counted."""
    policy = learned(city, energy)
    answer = find_route(city, *ENDS, state=policy.state(), routing=routing)
    graph = answer.graph
    model = road_model(graph, Vehicle(), horizon=1)
    mean = policy.posterior.predict(np.arange(len(graph))).mean
    lifted = model.reduction if routing == "potential" else np.zeros(len(graph))
    noise_std = float(np.sqrt(model.noise_variance))
    costs = (
        np.maximum(mean - lifted, 0.0) if routing == "potential" else rectified_mean(mean, noise_std)
    )
    assert costs[answer.best.edges].sum() == pytest.approx(cheapest(answer, costs))
    assert answer.cut_edges == np.count_nonzero(mean < lifted)
    assert answer.cut_edges > 0 or energy > 0.0
    assert answer.as_json()["cut_edges"] == answer.cut_edges
    np.testing.assert_allclose(answer.means, mean[answer.best.edges])
    assert answer.best.energy == pytest.approx(mean[answer.best.edges].sum())


def test_the_energy_model_is_never_cut(city: RoadNetwork) -> None:
    """So that its route is the cheapest itself, though some energies are below zero."""
    answer = find_route(city, *ENDS)
    energies = Vehicle().energy(answer.graph.length, answer.graph.speed, answer.graph.rise)
    assert answer.cut_edges == 0
    assert answer.best.energy == pytest.approx(cheapest(answer, energies))


@pytest.mark.parametrize("posterior", ["finite", "independent", "variational"])
def test_states_in_memory(city: RoadNetwork, posterior: Any) -> None:
    policy = learned(city, 40.0, posterior)
    answer = find_route(city, *ENDS, state=policy.state())
    assert answer.observations == policy.posterior.count > 0
    with pytest.raises(StateError, match=r"learned on roads other than these: length"):
        find_route(generate_city(edges=300, seed=2), *ENDS, state=policy.state())
    level = replace(city, junctions=city.junctions * [1.0, 1.0, 0.0])
    with pytest.raises(StateError, match=r"roads other than these: rise\[.* is 0.0 here"):
        find_route(level, *ENDS, state=policy.state())
    for settings in ({"mass": 3000.0}, {"lengthscale": 2.0}, {"prior_scale": 1.0}):
        with pytest.raises(StateError, match="brings its own vehicle and model"):
            find_route(city, *ENDS, state=policy.state(), settings=settings)


@pytest.mark.parametrize(
    ("posterior", "wrapper"),
    [
        ("drifting", None),
        ("finite", {"name": "resetting", "block": 4}),
        ("drifting", {"name": "resetting", "block": 5}),
        ("finite", {"name": "refitting", "every": 1000}),
        ("finite", "change-detecting"),
    ],
)
def test_a_state_that_forgets_is_asked_about_its_next_round(
    city: RoadNetwork, posterior: Any, wrapper: Any
) -> None:
    """As the policy itself would be; step 1 is long ago, or in a block that was forgotten."""
    model = road_model(city.line_graph(), Vehicle(), horizon=9)
    policy = route_greedy(replace(model, drift=Temporal(epsilon=0.2)), posterior=posterior)
    policy = wrapped(policy, wrapper) if wrapper else policy
    assert policy.last_step == 0
    arms, rng = road_arms(city.line_graph()), np.random.default_rng(0)
    trip = find_route(city, *ENDS).trip
    for step in range(1, 7):
        offer = Offer(step=step, arms=arms, structure=trip)
        decision = policy.decide(offer, rng)
        rewards = np.full(len(decision.positions), 30.0)
        policy.learn(offer, decision, Feedback(positions=decision.positions, rewards=rewards), rng)
    answer = find_route(city, *ENDS, state=policy.state())
    expected = policy.posterior.belief(Offer(step=7, arms=arms)).mean
    np.testing.assert_allclose(answer.means, expected[answer.best.edges])
    if posterior == "drifting":
        past = policy.posterior.belief(Offer(step=1, arms=arms)).mean
        assert np.abs(past - expected).max() > 1.0


def test_a_state_knows_its_vehicle_and_its_turns(city: RoadNetwork) -> None:
    graph, heavy = city.line_graph(uturns=False), Vehicle(mass=3000.0)
    model = road_model(graph, heavy, horizon=1, lengthscale=2.0, noise_scale=0.3)
    state = route_greedy(model).state()
    answer = find_route(city, *ENDS, state=state)
    settings = {"uturns": False, "mass": 3000.0, "lengthscale": 2.0, "noise_scale": 0.3}
    alone = find_route(city, *ENDS, settings=settings)
    assert answer.ids() == alone.ids()
    assert answer.best.energy == pytest.approx(alone.best.energy)
    assert answer.best.spread == pytest.approx(alone.best.spread, rel=0.05)
    assert find_route(city, *ENDS).best.spread < 0.9 * alone.best.spread
    with pytest.raises(StateError, match="length is float64 of shape"):
        find_route(city, *ENDS, state=state, settings={"uturns": True})


def test_states_that_know_no_roads(city: RoadNetwork) -> None:
    model = road_model(city.line_graph(), Vehicle(), horizon=1)
    for state in (known_cost(model, cost="length").state(), of_other_arms()):
        with pytest.raises(StateError, match="not learned by a policy that finds routes"):
            find_route(city, *ENDS, state=state)
    changing = with_conditions(model, 1)
    policy = route_greedy(changing)
    policy.posterior.observe(np.zeros((1, 5)), [1.0])
    with pytest.raises(StateError, match="conditions change from trip to trip"):
        find_route(city, *ENDS, state=policy.state())


def of_other_arms() -> Any:
    """The state of a policy on other arms."""
    posterior = FiniteGP(SquaredExponential(), [[0.0], [1.0]], 0.1)
    return IndexPolicy(posterior=posterior, rule=Greedy(), oracle=TopK()).state()


def test_a_flat_network_says_so(city: RoadNetwork) -> None:
    level = replace(city, junctions=city.junctions * [1.0, 1.0, 0.0])
    assert find_route(level, *ENDS).flat
    assert not find_route(city, *ENDS).flat


def test_what_is_refused(city: RoadNetwork) -> None:
    with pytest.raises(UnknownArmError, match="no edge 'r1000000'"):
        find_route(city, "r1000000", "r20")
    with pytest.raises(SpecError, match="did you mean 'mass'"):
        find_route(city, *ENDS, settings={"mas": 1.0})
    with pytest.raises(InputError, match="there is no network 'nowhere'"):
        find_route("nowhere", *ENDS)
    with pytest.raises(InputError, match=r"there is no network '.*city'"):
        find_route(Path("city"), *ENDS)  # a file, not the name
    with pytest.raises(InputError, match="where on Earth"):
        find_route(city, *ENDS, elevation="N49E006.hgt")


# --- on the map ----------------------------------------------------------------------------


def line_of(answer: RouteAnswer) -> Floats:
    [feature] = answer.as_geojson()["features"]
    return np.array(feature["geometry"]["coordinates"])


@pytest.mark.parametrize(("zone", "south"), [(32, False), (31, False), (19, True)])
def test_lines_follow_shapes_in_utm(city: RoadNetwork, zone: int, south: bool) -> None:
    """Also in the zone beside its own, and south of the equator."""
    offset = np.array([820_000.0 if zone == 31 else 300_000.0, 5_400_000.0])
    lon_lat = from_utm(city.junctions[:, :2] + offset, zone, south=south)
    begin, end = city.junctions[city.tail, :2], city.junctions[city.head, :2]
    shapes = tuple(np.stack([begin, 0.5 * (begin + end) + 3.0, end], axis=1))
    answer = find_route(replace(city, lon_lat=lon_lat, shapes=shapes), *ENDS)
    metres = np.concatenate([shapes[edge] for edge in answer.graph.edges[answer.best.edges]])
    whole = np.round(from_utm(metres + offset, zone, south=south), 7)
    kept = [0, *(1 + np.flatnonzero(np.diff(whole, axis=0).any(axis=1)))]
    np.testing.assert_allclose(line_of(answer), whole[kept], atol=2e-7)


def test_elsewhere_lines_go_from_junction_to_junction(city: RoadNetwork) -> None:
    """In no projection that we know, or without shapes."""
    stretched = city.junctions[:, :2] / 70_000.0 + [6.0, 49.0]
    for network in (
        replace(city, lon_lat=stretched),
        replace(city, lon_lat=stretched, shapes=None),
        replace(city, lon_lat=from_utm(city.junctions[:, :2] + [3e5, 54e5], 32), shapes=None),
    ):
        answer = find_route(network, *ENDS)
        edges = answer.graph.edges[answer.best.edges]
        junctions = [network.tail[edges[0]], *network.head[edges]]
        np.testing.assert_allclose(line_of(answer), np.round(network.lon_lat[junctions], 7))
    with pytest.raises(InputError, match="no geographic reference"):
        find_route(city, *ENDS).as_geojson()


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("arms", "", np.array(3.0)),
        ("arms", "", np.array([["a", "b"]])),
        ("mean", "", np.zeros(2)),
        ("mean", "rise", np.array(["x"])),
        ("kernel", "", 3.0),
        ("kernel", "kernels", []),
    ],
)
def test_a_damaged_state_is_refused_and_not_a_crash(
    city: RoadNetwork, part: str, name: str, value: Any
) -> None:
    state = learned(city, 40.0).state()
    posterior = state.spec["posterior"]
    broken = {**posterior[part], name: value} if name else value
    spec = {**state.spec, "posterior": {**posterior, part: broken}}
    with pytest.raises(StateError):
        find_route(city, *ENDS, state=replace(state, spec=spec))
    weight = {"weight": np.array([["x"]])}
    inner = replace(state.part("posterior"), arrays=weight)
    with pytest.raises(StateError, match="is damaged"):
        find_route(city, *ENDS, state=replace(state, parts={**state.parts, "posterior": inner}))
