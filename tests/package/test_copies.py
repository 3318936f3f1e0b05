"""Parts can be pickled and copied; copies behave like the original."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision, Feedback, Offer
from superarm.core.registry import build, names
from superarm.kernels import GraphMatern
from superarm.oracles import TopK
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city

WAYS = {
    "pickle": lambda part: pickle.loads(pickle.dumps(part)),
    "deepcopy": copy.deepcopy,
}
ways = pytest.mark.parametrize("duplicate", WAYS.values(), ids=WAYS)
Duplicate = Callable[[Any], Any]
FLEETS = ["route-cautious", "informed"]  # which are only for fleets
ROADS = [
    name for name in names("policy") if name.startswith("route-") and name not in FLEETS
]
ROADS += ["prior", "known-cost"]
OPTIONS = {"route-rule": {"rule": {"name": "greedy"}}, "known-cost": {"cost": "length"}}
ARRAYS = ("junctions", "tail", "head", "length", "speed", "connections")


def road_world() -> Any:
    problem = {"name": "navigation", "network": "city", "edges": 200}
    return build("problem", problem, seed=1, horizon=10)


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return generate_city(edges=200, seed=1)


@ways
def test_networks_and_line_graphs(city: RoadNetwork, duplicate: Duplicate) -> None:
    other = duplicate(city)
    assert (other.name, other.edge_ids) == (city.name, city.edge_ids)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(other, name), getattr(city, name))
        assert not getattr(other, name).flags.writeable
    assert dict(other.permits).keys() == city.permits.keys()
    with pytest.raises(TypeError, match="does not support item assignment"):
        other.permits["bus"] = np.ones(1)
    graph = city.line_graph(uturns=False)
    graph.number(graph.ids[3])  # its cache is not part of its value
    same: LineGraph = duplicate(graph)
    assert same.ids == graph.ids
    assert same.number(graph.ids[3]) == 3
    np.testing.assert_array_equal(same.turns, graph.turns)
    assert not same.turns.flags.writeable
    both = duplicate((graph, city.line_graph(), graph.network))
    assert both[0].network is both[1].network is both[2]


@ways
def test_vehicles_oracles_and_kernels(city: RoadNetwork, duplicate: Duplicate) -> None:
    assert duplicate(Vehicle(mass=2000.0)) == Vehicle(mass=2000.0)
    nodes = np.arange(12.0)[:, None]
    for kernel in (
        GraphMatern(city.line_graph()),
        GraphMatern(city.line_graph(), nu=1.5),
    ):
        expected = kernel(nodes)  # and its cached results are copied or recomputed
        np.testing.assert_allclose(duplicate(kernel)(nodes), expected, rtol=1e-12)
    top = TopK(k=2)
    values = np.array([1.0, 3.0, 2.0])
    rng = np.random.default_rng(0)
    assert duplicate(top).select(values, None, rng).positions.tolist() == [1, 2]
    world = road_world()
    model, trip = world.model, world.offer(1).structure
    weights = -np.abs(model.energies)
    np.testing.assert_array_equal(
        duplicate(model.oracle).select(weights, trip, rng).positions,
        model.oracle.select(weights, trip, rng).positions,
    )
    np.testing.assert_array_equal(
        duplicate(model.kernel)(model.arms), model.kernel(model.arms)
    )


@ways
@pytest.mark.parametrize(
    "name", ["navigation", "landscape", "gp-function", "crowdsourcing"]
)
def test_problems(name: str, duplicate: Duplicate) -> None:
    options: dict[str, Any] = {
        "crowdsourcing": {"source": "synthetic"},
        "gp-function": {"arms": 20},
    }
    world = (
        road_world()
        if name == "navigation"
        else build(
            "problem", {"name": name, **options.get(name, {})}, seed=1, horizon=10
        )
    )
    other = duplicate(world)
    for step in (1, 2, 7):
        offer, same = world.offer(step), other.offer(step)
        assert same.arms.ids == offer.arms.ids
        np.testing.assert_array_equal(same.arms.features, offer.arms.features)
        np.testing.assert_array_equal(other.means(same), world.means(offer))


def assert_copy_decides_alike(
    world: Any,
    policy: Any,
    duplicate: Duplicate,
    feedback: Callable[[Offer, Decision], Feedback],
) -> None:
    """A copy from the middle of a run decides as the original in every later round."""
    policies = [policy]
    for step in range(1, 7):
        if step == 4:
            policies.append(duplicate(policy))
        offer = world.offer(step)
        decisions = [
            twin.decide(offer, np.random.default_rng(step)) for twin in policies
        ]
        for twin, decision in zip(policies, decisions, strict=True):
            np.testing.assert_array_equal(decision.positions, decisions[0].positions)
            twin.commit(decision)
            seen = feedback(offer, decision)
            twin.learn(offer, decision, seen, np.random.default_rng(step))
    assert len(policies) == 2


@ways
@pytest.mark.parametrize("name", [*ROADS, "random", "benchmark"])
def test_copied_road_policies_decide_alike(name: str, duplicate: Duplicate) -> None:
    world = road_world()
    arguments = {"model": world.model} | (
        {"problem": world} if name == "benchmark" else {}
    )
    policy = build("policy", {"name": name, **OPTIONS.get(name, {})}, **arguments)

    def feedback(offer: Offer, decision: Decision) -> Feedback:
        rewards = world.means(offer)[decision.positions]
        return Feedback(positions=decision.positions, rewards=rewards)

    assert_copy_decides_alike(world, policy, duplicate, feedback)


def fleet_world() -> Any:
    options = {"edges": 200, "least_metres": 300.0, "vehicles": 3, "late": 60.0}
    return build("problem", {"name": "fleet", **options}, seed=1, horizon=10)


@ways
def test_fleets(duplicate: Duplicate) -> None:
    world = fleet_world()
    other = duplicate(world)
    for step in (1, 2, 7):
        offer, same = world.offer(step), other.offer(step)
        assert (same.time, same.arms.ids) == (offer.time, offer.arms.ids)
        np.testing.assert_array_equal(same.arms.features, offer.arms.features)
        assert (same.structure.start, same.structure.goal) == (
            offer.structure.start,
            offer.structure.goal,
        )
        assert other.best(same) == world.best(offer)


@pytest.mark.thorough
@ways
@pytest.mark.parametrize("name", [*ROADS, *FLEETS])
def test_copied_fleet_policies_decide_alike(name: str, duplicate: Duplicate) -> None:
    world = fleet_world()
    policy = build("policy", {"name": name, **OPTIONS.get(name, {})}, model=world.model)

    def feedback(offer: Offer, decision: Decision) -> Feedback:
        noise = world.noise(offer, np.random.default_rng(0))
        return replace(world.feedback(offer, decision, noise), delays=None)

    assert_copy_decides_alike(world, policy, duplicate, feedback)
