"""GP-TS on a road network, round by round: what ``superarm run navigation/luxembourg-a`` plays.

A round is the policy's own: ``decide`` (the belief over all edges, a sample of each, rectified,
the shortest path) and ``learn`` (the energies of the route). The problem's part, drawing noise and
keeping regret, is not timed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Floats
from superarm.core.errors import MissingDataError
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP
from superarm.roads.policies import route_ts
from superarm.roads.problems import Navigation

from .measure import Target, at_most, seconds, without_gc
from .network_routes import Roads, paths_that_visit

ROUTE = "luxembourg-a"
MOST = 600
"""Visited edges up to which rounds are played."""


class Played(NamedTuple):
    """What a policy's rounds took."""

    seconds: Floats
    visited: int


class PolicyFound(NamedTuple):
    facts: dict[str, Any]
    targets: list[Target]
    skipped: list[str]


def the_problem(quick: bool, rounds: int) -> tuple[Navigation, list[str]]:
    """Luxembourg A where its roads are at hand, else a city of that size; and what is left out."""
    if quick:
        return Navigation(
            seed=0, horizon=rounds, network="city", edges=500, city_seed=1
        ), []
    try:
        return Navigation(seed=0, horizon=rounds, route=ROUTE), []
    except MissingDataError:
        city = Navigation(
            seed=0, horizon=rounds, network="city", edges=5895, city_seed=1
        )
        return city, ["Luxembourg: not at hand, a generated city takes its place"]


def play(world: Navigation, rounds: int, before: int) -> Played:
    """Rounds of GP-TS until ``MOST`` edges are visited; ``before`` of them to begin with."""
    policy = route_ts(world.model)
    posterior = policy.posterior
    assert isinstance(posterior, FiniteGP)
    for path in paths_that_visit(Roads(world.roads.graph), before, set(), seed=0):
        posterior.observe(path, world.energies[path])
    times = []
    with without_gc():
        for step in range(1, rounds + 1):
            times.append(_round(world, policy, step))
            if posterior.rank >= MOST:
                break
    return Played(np.array(times), posterior.rank)


def _round(world: Navigation, policy: IndexPolicy, step: int) -> float:
    """Seconds of ``decide``, ``commit`` and ``learn``."""
    offer = world.offer(step)
    rng, nature = np.random.default_rng([3, step]), np.random.default_rng([4, step])
    noise = world.noise(offer, nature)
    decided: list[Decision] = []
    taken = seconds(lambda: decided.append(policy.decide(offer, rng)))
    decision = decided[0]
    taken += seconds(lambda: policy.commit(decision))
    feedback = world.feedback(offer, decision, noise)
    return taken + seconds(lambda: policy.learn(offer, decision, feedback, rng))


def measure_policy(quick: bool) -> PolicyFound:
    rounds = 10 if quick else 500
    world, skipped = the_problem(quick, rounds)
    graph = world.roads.graph
    facts: dict[str, Any] = {}
    targets: list[Target] = []
    for before in (0, 30) if quick else (0, 350):
        played = play(world, rounds, before)
        case = f"GP-TS round on {graph.network.name}, {len(graph)} edges, V = {before} … {played.visited}"
        middle = 1e3 * float(np.median(played.seconds))
        facts[f"{case}: rounds, median ms, largest ms"] = [
            len(played.seconds),
            round(middle, 2),
            round(1e3 * float(played.seconds.max()), 2),
        ]
        if not quick:
            targets.append(at_most(f"{case}, ms", middle, 30.0))
    return PolicyFound(facts, targets, skipped)
