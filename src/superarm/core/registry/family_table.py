"""The families of parts: what each is for, and which packages contain its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from superarm.core.protocols import (
    Oracle,
    Policy,
    Posterior,
    Problem,
    Reward,
    Rule,
    Schedule,
    SwitchingCost,
)


class Family(NamedTuple):
    """A kind of part, such as kernels or oracles."""

    description: str
    packages: tuple[str, ...]  # importing them registers all parts of the family
    protocol: type | None = None  # what its parts promise
    advice: Mapping[str, str] = {}  # by parameter, for parts without it


FAMILIES: dict[str, Family] = {
    "kernel": Family(
        "how similar two arms are: the covariance of the Gaussian process",
        ("superarm.kernels",),
    ),
    "network": Family(
        "graphs for kernels and oracles",
        ("superarm.core.graphs",),
    ),
    "mean": Family(
        "prior mean of an arm's reward",
        ("superarm.models", "superarm.roads.energy"),
    ),
    "gain": Family(
        "how fast the information gain γ may grow, for widths and bounds",
        ("superarm.rules.information",),
    ),
    "posterior": Family(
        "belief about rewards, given the observations",
        ("superarm.posteriors", "superarm.roads.posterior"),
        Posterior,
        {
            "drift": "for rewards that drift use 'drifting', or wrap a posterior in 'resetting' or "
            "'change-detecting'",
            "timed": "for rewards that depend on time use 'streaming' or 'inducing', or 'drifting' for "
            "fixed arms",
        },
    ),
    "schedule": Family(
        "how wide confidence bounds are in round t",
        ("superarm.rules",),
        Schedule,
    ),
    "rule": Family(
        "turns a belief into one desirability per arm",
        ("superarm.rules",),
        Rule,
    ),
    "oracle": Family(
        "finds the best feasible combination of arms",
        ("superarm.oracles",),
        Oracle,
    ),
    "reward": Family(
        "what a combination is worth, given what its arms yield",
        ("superarm.rewards",),
        Reward,
    ),
    "switching": Family(
        "what it costs to leave the previous action",
        ("superarm.movement",),
        SwitchingCost,
    ),
    "metric": Family(
        "what it costs to go from one action to the next",
        ("superarm.movement",),
    ),
    "decision_set": Family(
        "which of the arms on offer a policy may choose from",
        ("superarm.policies",),
    ),
    "encoding": Family(
        "how columns of a table become features",
        ("superarm.core.tables",),
    ),
    "score": Family(
        "desirabilities that are not learned, for baselines",
        ("superarm.policies",),
    ),
    "policy": Family(
        "decides, learns and decides again: the algorithms, ready to run",
        ("superarm.policies", "superarm.roads.policies"),
        Policy,
        {
            "oracle": "leave it out: the policy uses the oracle of its model, or none",
            "switching": "for switching costs use 'index' or 'composed'",
            "metric": "for movement by a metric use 'tree-index' or 'tree-score'",
        },
    ),
    "problem": Family(
        "simulated environments that offer arms and return rewards",
        ("superarm.lab.problems", "superarm.roads.problems"),
        Problem,
    ),
    "structure": Family(
        "constraints of an offer, for the oracle",
        ("superarm.oracles", "superarm.core.graphs"),
    ),
    "vehicle": Family(
        "how much energy roads take",
        ("superarm.roads.energy",),
    ),
    "scales": Family(
        "how wrong energy models may be, and how much trips differ",
        ("superarm.roads.energy",),
    ),
}

_OTHER_PARAMETER_NAMES = {
    "kernels": "kernel",
    "gamma": "gain",
    "successors": "network",
}


def families() -> list[str]:
    """The names of all families, sorted."""
    return sorted(FAMILIES)


def family_description(family: str) -> str:
    """What the parts of a family are for, in a few words.

    Args:
        family: Its name.
    """
    return FAMILIES[family].description


def family_of_parameter(name: object) -> str | None:
    """The family of a spec that does not name it, implied by the parameter that holds the spec.

    Args:
        name: The name of the parameter.
    """
    if not isinstance(name, str):
        return None
    if name in FAMILIES:
        return name
    return _OTHER_PARAMETER_NAMES.get(name)
