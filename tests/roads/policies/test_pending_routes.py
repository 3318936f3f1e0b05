"""Decisions without feedback between them spread over a road network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision
from superarm.policies import IndexPolicy
from superarm.roads.policies import route_bucb, route_ucb
from superarm.roads.problems.navigation import Navigation

MAKERS: dict[str, Callable[[Any], IndexPolicy]] = {
    "gp-ucb": route_ucb,
    "gp-bucb": route_bucb,
    "gp-ucb potential": lambda model: route_ucb(model, routing="potential"),
    "bi-ucb": lambda model: route_ucb(model, posterior="independent"),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("learned", [0, 8])
def test_three_decisions_without_feedback_give_three_routes(
    name: str, learned: int
) -> None:
    world = Navigation(seed=0, horizon=20, edges=400)
    policy, rng = MAKERS[name](world.model), np.random.default_rng(1)
    decisions: list[Decision] = []
    for step in range(1, learned + 4):
        offer = world.offer(step)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        if step <= learned:
            feedback = world.feedback(offer, decision, world.noise(offer, rng))
            policy.learn(offer, decision, feedback, rng)
        else:
            decisions.append(decision)
    assert len({decision.action for decision in decisions}) == 3
    blind = policy.beliefs(world.offer(20))
    assert blind.std is not None
    # What is awaited shrinks the uncertainty there: the second ask knew of the first.
    first, second = decisions[0], decisions[1]
    shared = np.intersect1d(first.positions, second.positions)
    assert second.std is not None
    then = dict(zip(second.positions.tolist(), second.std.tolist(), strict=True))
    assert all(then[arm] < blind.std[arm] for arm in shared.tolist())
    for decision in decisions:
        offer = world.offer(decision.step)
        feedback = world.feedback(offer, decision, world.noise(offer, rng))
        policy.learn(offer, decision, feedback, rng)
    assert not policy.awaits
