"""Problems and policies that superarm ships, crossed with their contracts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Offer, Policy, Problem, registry
from superarm.kernels import Matern
from superarm.oracles import TopK
from superarm.policies import Exploring, IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed
from superarm.testing import PolicyContract, ProblemContract

ROUGH = Matern(nu=1.5, lengthscale=0.5)
FIXED = {"family": "schedule", "name": "fixed", "value": 2.0}


def label(spec: dict[str, Any]) -> str:
    return " ".join(
        str(value) for value in spec.values() if not isinstance(value, dict)
    )


# --- problems ------------------------------------------------------------------------------

HORIZON = 2000
PROBLEMS: list[dict[str, Any]] = [
    {"name": "rkhs-function", "arms": 30},
    {"name": "gp-function", "kernel": "matern", "arms": 30},
    {"name": "benchmark-function", "function": "hartmann3", "arms": 40},
    {"name": "temperature-sensors", "source": "synthetic"},
    {"name": "light-sensors", "source": "synthetic"},
    {"name": "temperature-series", "source": "synthetic"},
    {"name": "traffic-series", "source": "synthetic", "k": 3},
    {"name": "crowdsourcing", "source": "synthetic"},
    {"name": "codependency", "pool": 300, "arrivals": 30},
    {"name": "channels"},
    {
        "name": "movies",
        "source": "synthetic",
        "oracle": "greedy",
        "films": 15,
        "viewers": 40,
    },
    {"name": "landscape", "side": 8},
    {"name": "drifting-function", "side": 5, "epsilon": 0.1, "k": 2},
    {"name": "movement-field", "side": 4, "contexts": 3, "episode": 4},
    {"name": "wind", "profile": "lidar", "source": "synthetic"},
    {"name": "navigation", "edges": 300},
    {"name": "navigation", "edges": 300, "closed_roads": 0.05, "closed_turns": 0.05},
    {"name": "navigation", "edges": 300, "conditions": ["congestion", "load"]},
]
APART = {"sumo-navigation", "fleet"}
"""Tried by themselves: chance is in their drives, not in the noise of arms."""


def test_every_registered_problem_is_here() -> None:
    assert {spec["name"] for spec in PROBLEMS} == set(registry.names("problem")) - APART


class TestProblems(ProblemContract):
    @pytest.fixture(autouse=True, params=PROBLEMS, ids=label)
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.spec: dict[str, Any] = request.param
        self.connected = self.spec["name"] in ("movement-field", "wind")

    def make_problem(self, seed: int) -> Problem:
        real = self.spec["name"] == "wind" or self.spec["name"].endswith("-series")
        horizon = 50 if real else HORIZON  # they have so many rows
        problem: Problem = registry.build(
            "problem", self.spec, seed=seed, horizon=horizon
        )
        return problem


# --- policies ------------------------------------------------------------------------------

CHANGING = {"name": "crowdsourcing", "source": "synthetic", "k": 3, "workers": 20}
FIXED_ARMS = {"name": "rkhs-function", "arms": 20}
ROADS = {"name": "navigation", "edges": 300}
FLEET = {"name": "fleet", "edges": 200, "least_metres": 300.0, "vehicles": 3}
DRIFTING = {"name": "drifting-function", "side": 5, "epsilon": 0.1, "k": 2}
MOVING = {"name": "movement-field", "side": 4, "contexts": 3, "episode": 4}
NEED_TRUTH = {"benchmark", "genie", "minc-known", "md-known", "offline"}
NOT_LEARNING = {
    "random",
    "prior",
    "known-cost",
    "informed",
    "stationary",
    *NEED_TRUTH - {"md-known"},
}
FLEETS = {"route-cautious", "informed"}
ROUTES = {"route-ucb", "route-bucb", "route-ts", "route-greedy", "prior"}
GREEDY = {"name": "greedy"}
POLICIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(
        ({"name": name}, FIXED_ARMS)
        for name in sorted(
            {
                policy_name
                for policy_name in registry.names("policy")
                if "model" in registry.parameters_of("policy", policy_name)
            }
            - {
                "composed",
                "random",
                "route-rule",
                "known-cost",
                "tv-gp-ucb",
                "r-gp-ucb",
                "gp-md",
            }
            - FLEETS
            - NEED_TRUTH
            - ROUTES
        )
    ),
    *(
        ({"name": name, "routing": routing}, ROADS)
        for name in sorted(ROUTES)
        for routing in ("rectified", "potential")
    ),
    ({"name": "route-ts", "mode": "joint"}, ROADS),
    ({"name": "route-ts", "posterior": "independent"}, ROADS),
    ({"name": "route-ts", "posterior": "variational"}, ROADS),
    ({"name": "route-ts", "posterior": "streaming"}, ROADS),
    ({"name": "route-rule", "rule": GREEDY, "spread": "posterior"}, ROADS),
    ({"name": "known-cost", "cost": "length"}, ROADS),
    *(({"name": name}, FLEET) for name in sorted(FLEETS | ROUTES)),
    ({"name": "route-ts", "mode": "joint", "spread": "none"}, FLEET),
    ({"name": "route-rule", "rule": GREEDY, "spread": "posterior"}, FLEET),
    ({"name": "known-cost", "cost": "travel_time"}, FLEET),
    *(
        ({"name": name}, problem)
        for name in ("random", "benchmark")
        for problem in (CHANGING, FIXED_ARMS, ROADS)
    ),
    *(
        (spec, DRIFTING)
        for spec in (
            {"name": "tv-gp-ucb"},
            {"name": "r-gp-ucb"},
            {"name": "genie"},
            {"name": "gp-ts", "scaled": False, "posterior": "drifting"},
            {"name": "gp-bucb", "posterior": "drifting"},
            {"name": "composed", "rule": GREEDY, "posterior": "drifting"},
        )
    ),
    ({"name": "genie"}, FIXED_ARMS),
    ({"name": "rexp3", "block": 6}, {**DRIFTING, "k": 1}),
    (
        {"name": "r-gp-ucb", "block": 3, "in_block": True},
        {"name": "drifting-function", "side": 5},
    ),
    *(
        (spec, MOVING)
        for spec in (
            {"name": "gp-md"},
            {"name": "gp-md", "update": "step", "clip": True, "trees": 3, "kappa": 2.0},
            {"name": "cgp-lcb"},
            {"name": "stationary"},
            {"name": "minc-known"},
            {"name": "md-known"},
            {"name": "offline"},
        )
    ),
    ({"name": "oclok-ucb"}, CHANGING),
    ({"name": "oclok-ucb", "form": "finite-rank"}, CHANGING),
    ({"name": "soclok-ucb", "inducing": 4}, CHANGING),
    ({"name": "acc-ucb"}, CHANGING),
    ({"name": "cc-mab"}, CHANGING),
    ({"name": "gp-ts", "scaled": False, "posterior": "inducing"}, CHANGING),
    ({"name": "gp-greedy"}, CHANGING),
    ({"name": "gp-ts", "scaled": False}, CHANGING),
    ({"name": "gp-ei"}, CHANGING),
    (
        {
            "name": "composed",
            "rule": {"name": "ucb", "schedule": FIXED},
            "stepwise": True,
        },
        CHANGING,
    ),
    (
        {"name": "composed", "rule": {"name": "thompson"}, "posterior": "independent"},
        FIXED_ARMS,
    ),
]


def first_of_each_name() -> list[Any]:
    """All policies; a further case of a policy is marked ``thorough``."""
    names: set[str] = set()
    cases = []
    for spec, problem in POLICIES:
        is_further = spec["name"] in names
        names.add(spec["name"])
        marks = [pytest.mark.thorough] if is_further else []
        case_id = f"{label(spec)}, {problem['name']}"
        cases.append(pytest.param((spec, problem), marks=marks, id=case_id))
    return cases


@cache
def problem_of(spec: str) -> Any:
    """A problem, which no policy can change: its offers depend on seed and step alone."""
    return registry.build("problem", json.loads(spec), seed=3, horizon=100)


class TestPolicies(PolicyContract):
    @pytest.fixture(autouse=True, params=first_of_each_name())
    def _part(self, request: pytest.FixtureRequest) -> None:
        self.spec, problem = request.param
        self.problem = problem_of(json.dumps(problem))
        self.learns = self.spec["name"] not in NOT_LEARNING

    def make_policy(self) -> Policy:
        extra = {"problem": self.problem} if self.spec["name"] in NEED_TRUTH else {}
        policy: Policy = registry.build(
            "policy", self.spec, model=self.problem.model, **extra
        )
        return policy

    def make_offer(self, step: int) -> Offer:
        offer: Offer = self.problem.offer(step)
        return offer


class TestCostPolicy(PolicyContract):
    """Costs are minimised."""

    def make_policy(self) -> Policy:
        return IndexPolicy(
            posterior=StreamingGP(ROUGH, 0.1),
            rule=UCB(schedule=Fixed(value=2.0)),
            oracle=TopK(k=2),
            direction="minimize",
            stepwise=True,
        )

    def make_offer(self, step: int) -> Offer:
        return Offer(
            step=step, arms=Arms.numbered(np.random.default_rng(step).random((6, 2)))
        )


class TestExploringPolicy(PolicyContract):
    """Some rounds are at random."""

    def make_policy(self) -> Policy:
        policy = IndexPolicy(
            posterior=StreamingGP(ROUGH, 0.1),
            rule=UCB(schedule=Fixed(value=2.0)),
            oracle=TopK(k=2),
        )
        return Exploring(policy=policy, epsilon=0.5)

    def make_offer(self, step: int) -> Offer:
        features = np.random.default_rng(step).random((6, 2))
        return Offer(step=step, arms=Arms.numbered(features))
