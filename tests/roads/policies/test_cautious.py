"""A cautious policy against sums over full routes, and the scores of fleets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Offer
from superarm.core.errors import InputError
from superarm.oracles import ShortestPath, TopK, Trip
from superarm.policies import KnownCosts
from superarm.policies.scores import Expected
from superarm.roads.policies.cautious import CautiousPolicy
from superarm.roads.policies.navigation import informed, route_cautious, route_greedy
from superarm.roads.problems import Fleet
from superarm.rules import Greedy

ROUNDS = 24


@pytest.fixture(scope="module")
def world() -> Fleet:
    options: dict[str, Any] = {
        "edges": 400,
        "least_metres": 600.0,
        "most_metres": 4000.0,
        "trips": 12,
    }
    return Fleet(seed=5, horizon=2 * ROUNDS, **options)


@pytest.fixture(scope="module")
def learned(world: Fleet) -> Any:
    """The state of a policy after some trips."""
    policy = route_greedy(world.model, spread="none")
    for step in range(1, ROUNDS + 1):
        offer, rng = world.offer(step), np.random.default_rng(step)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        policy.learn(offer, decision, world.feedback(offer, decision, np.empty(0)), rng)
    return policy.posterior.state()


def having_learned(world: Fleet, learned: Any, caution: float) -> CautiousPolicy:
    policy = route_cautious(world.model, caution=caution)
    policy.posterior = policy.posterior.restored(learned)
    return policy


def saving(
    world: Fleet, policy: CautiousPolicy, offer: Offer, old: Any, new: Any
) -> tuple[float, float]:
    """Over full routes: roads that both share cancel."""
    trip = offer.structure
    assert isinstance(trip, Trip)
    assert trip.turn_costs is not None
    counts = np.zeros(len(offer.arms))
    np.add.at(counts, old, 1.0)
    np.add.at(counts, new, -1.0)
    mean, cov = policy.posterior.predict(policy.posterior.keys(offer), return_cov=True)
    turns = [
        trip.turn_costs[world.graph.turn_numbers(route)].sum() for route in (old, new)
    ]
    return float(counts @ mean + turns[0] - turns[1]), float(
        np.sqrt(counts @ cov @ counts)
    )


def decided(policy: Any, offer: Offer) -> Decision:
    decision: Decision = policy.decide(offer, np.random.default_rng(0))
    return decision


@pytest.mark.slow
def test_cautious_deviates_only_for_certain_savings(world: Fleet, learned: Any) -> None:
    tried = 0
    for step in range(ROUNDS + 1, 2 * ROUNDS + 1):
        offer = world.offer(step)
        bold, shy, usual = (
            having_learned(world, learned, caution) for caution in (0.0, 1e6, 1.0)
        )
        greedy = route_greedy(world.model, spread="none")
        greedy.posterior = greedy.posterior.restored(learned)
        new, old = (
            decided(greedy, offer).positions,
            decided(informed(world.model), offer).positions,
        )
        np.testing.assert_array_equal(decided(shy, offer).positions, old)
        if np.array_equal(old, new):
            np.testing.assert_array_equal(decided(usual, offer).positions, new)
            continue
        mean, std = saving(world, usual, offer, old, new)
        np.testing.assert_allclose(
            usual._saving(offer, old, new), (mean, std), atol=1e-6
        )
        np.testing.assert_array_equal(
            decided(bold, offer).positions, new if mean > 0.0 else old
        )
        # Exactly at the caution at which it deviates.
        for caution, taken in ((0.999, new), (1.001, old)):
            policy = having_learned(world, learned, caution * max(mean, 0.0) / std)
            expected = taken if mean > 0.0 else old
            np.testing.assert_array_equal(decided(policy, offer).positions, expected)
        tried += mean > 0.0
    assert tried > 2


def test_decision_reports_the_belief_of_the_driven_route(
    world: Fleet, learned: Any
) -> None:
    """Pending roads too are those of the driven route."""
    tried = 0
    for step in range(ROUNDS + 1, 2 * ROUNDS + 1):
        offer, policy = world.offer(step), having_learned(world, learned, 1e6)
        decision = decided(policy, offer)
        keys = policy.posterior.keys(offer)[decision.positions]
        expected = policy.posterior.predict(keys, return_cov=True)
        assert decision.action == tuple(decision.positions.tolist())
        assert decision.mean is not None
        assert decision.std is not None
        np.testing.assert_allclose(decision.mean, expected.mean, atol=1e-9)
        np.testing.assert_allclose(
            decision.std, np.sqrt(np.diagonal(expected.cov)), atol=1e-6
        )
        policy.commit(decision)
        awaited = policy._ledger.pending()
        assert awaited is not None
        assert sorted(awaited[:, 0].tolist()) == sorted(decision.positions.tolist())
        tried += 1
    assert tried


def test_closed_roads_are_not_driven(world: Fleet, learned: Any) -> None:
    """Those of the prescribed route: the next best is prescribed."""
    offer = world.offer(ROUNDS + 1)
    route = decided(informed(world.model), offer).positions
    for edge in route[1:-1]:
        available = np.ones(len(offer.arms), dtype=bool)
        available[edge] = False
        closed = replace(offer, available=available)
        detour = decided(having_learned(world, learned, 1e6), closed).positions
        assert edge not in detour
        np.testing.assert_array_equal(
            detour, decided(informed(world.model), closed).positions
        )


def test_only_routes_of_least_cost_are_compared(world: Fleet) -> None:
    greedy = route_greedy(world.model)
    parts: dict[str, Any] = {
        "posterior": greedy.posterior,
        "rule": Greedy(),
        "oracle": greedy.oracle,
    }
    for wrong in ({"oracle": TopK(k=2)}, {"direction": "maximize"}, {"caution": -1.0}):
        with pytest.raises(InputError):
            CautiousPolicy(**{**parts, **wrong})


# --- scores --------------------------------------------------------------------------------------


def test_expected_reads_a_column_clipped_at_zero() -> None:
    offer = Offer(step=1, arms=Arms.numbered([[9.0, 2.0, -1.0], [9.0, -3.0, 4.0]]))
    rng = np.random.default_rng(0)
    assert Expected().desirability(offer, rng).tolist() == [-2.0, 0.0]
    assert Expected(column=2).desirability(offer, rng).tolist() == [0.0, -4.0]
    assert Expected().deterministic


def test_known_costs_include_their_turns() -> None:
    arms = Arms.numbered(np.zeros((2, 1)))
    offer = Offer(
        step=1, arms=arms, structure=Trip(start=0, goal=1, turn_costs=np.array([7.0]))
    )
    costs, turns = np.array([1.0, 2.0]), np.array([3.0])
    assert KnownCosts(costs=costs).priced(offer) is offer
    priced = KnownCosts(costs=costs, turn_costs=turns).priced(offer).structure
    assert isinstance(priced, Trip)
    assert priced.turn_costs is not None
    assert (priced.start, priced.goal, priced.turn_costs.tolist()) == (0, 1, [3.0])
    other = Offer(step=1, arms=arms)
    assert KnownCosts(costs=costs, turn_costs=turns).priced(other) is other


def test_turns_along_a_route_are_numbered_as_they_cost(world: Fleet) -> None:
    oracle, graph = ShortestPath(successors=world.graph.turn_graph), world.graph
    for edge in range(0, len(graph), 17):
        following = graph.turns[graph.turns[:, 0] == edge][-1, 1]
        (turn,) = oracle.turns_along(np.array([edge, following]))
        assert graph.turns[turn].tolist() == [edge, following]
