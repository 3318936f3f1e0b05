"""Specs of rules and schedules that tests of all of them use: add yours, and tests find it.

``tests/package/test_contracts_parts.py`` runs the contracts, ``tests/package/test_invalid_values.py`` passes
invalid values, and ``tests/states/make.py`` saves a state for one that no state holds yet.
"""

from __future__ import annotations

from typing import Any

QUANTILE = {"family": "schedule", "name": "simple-quantile"}
FIXED = {"family": "schedule", "name": "fixed", "value": 2.0}
SCHEDULES: list[dict[str, Any]] = [
    {"name": "fixed", "value": 2.0},
    {"name": "igp-ucb", "norm_bound": 1.0, "noise_bound": 0.1},
    {"name": "gp-ts", "norm_bound": 1.0, "noise_bound": 0.1},
    {"name": "gp-ucb-agnostic", "norm_bound": 1.0},
    {"name": "kernel-ucb", "eta": 1.0},
    {"name": "ridge-ucb", "norm_bound": 1.0, "noise_bound": 0.1, "regularisation": 0.5},
    {"name": "gp-ucb-finite", "arms": 10},
    {"name": "oclok-ucb", "most_arms": 150},
    {"name": "gp-ucb-bayesian", "arms": 1, "scale": 0.5},
    {"name": "gp-ucb-bayesian-compact", "dimension": 2, "tau": 0.1},
    {"name": "bayes-ucb", "arms": 1},
    {"name": "bayes-ucb", "arms": 10**9, "omega": 40.0, "xi": 50.0},
    {"name": "bayes-ucb-compact", "dimension": 2, "tau": 3.0},
    {"name": "simple-quantile"},
    {"name": "logarithmic", "c2": 0.4},
    {"name": "in-block", "schedule": {"name": "logarithmic"}, "block": 7},
    {"name": "r-gp-ucb", "dimension": 2},
    {"name": "tv-gp-ucb", "dimension": 2, "horizon": 100},
]
RULES: list[dict[str, Any]] = [
    {"name": "ucb", "schedule": FIXED},
    {"name": "bayes-ucb", "schedule": QUANTILE},
    {"name": "thompson"},
    {"name": "thompson", "mode": "independent"},
    {"name": "thompson", "schedule": FIXED},
    {"name": "expected-improvement"},
    {"name": "expected-improvement", "scale": "linear"},
    {"name": "probability-of-improvement"},
    {"name": "probability-of-improvement", "scale": "linear"},
    {"name": "greedy"},
    {"name": "random"},
    {"name": "rectified", "rule": {"name": "thompson"}},
    {
        "name": "rectified",
        "rule": {"name": "ucb", "schedule": FIXED},
        "spread": "posterior",
    },
    {"name": "rectified", "rule": {"name": "greedy"}, "spread": "none"},
]


def first_of_each_name(specs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The first spec of every name."""
    first: dict[str, dict[str, Any]] = {}
    for spec in specs:
        first.setdefault(spec["name"], spec)
    return first
