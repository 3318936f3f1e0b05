"""Every schedule and rule round-trips through JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from superarm import rules
from superarm.core.errors import SpecError
from superarm.core.registry import build, difference, find, names, spec_of
from superarm.core.serialization import from_json, to_json
from superarm.rules.information import MaternGain

SCHEDULES: dict[str, dict[str, Any]] = {
    "fixed": {"value": 2.0},
    "igp-ucb": {"norm_bound": 1.0, "noise_bound": 0.1},
    "gp-ts": {"norm_bound": 1.0, "noise_bound": 0.1, "delta": 0.2},
    "gp-ucb-agnostic": {"norm_bound": 1.0},
    "kernel-ucb": {"eta": 1.0},
    "ridge-ucb": {"norm_bound": 1.0, "noise_bound": 0.1, "regularisation": 0.5},
    "gp-ucb-finite": {"arms": 10},
    "oclok-ucb": {"most_arms": 150},
    "gp-ucb-bayesian": {"arms": 10, "scale": 0.5},
    "gp-ucb-bayesian-compact": {"dimension": 2, "tau": 3.0},
    "bayes-ucb": {"arms": 10, "xi": 0.5},
    "bayes-ucb-compact": {"dimension": 2, "tau": 3.0, "omega": 1.1},
    "simple-quantile": {},
    "logarithmic": {"c2": 0.4},
    "in-block": {"schedule": {"name": "logarithmic"}, "block": 7},
    "r-gp-ucb": {"dimension": 2},
    "tv-gp-ucb": {"dimension": 2, "horizon": 100},
}
RULES: dict[str, dict[str, Any]] = {
    "ucb": {
        "schedule": {
            "family": "schedule",
            "name": "igp-ucb",
            "norm_bound": 1.0,
            "noise_bound": 0.1,
        },
        "gamma": {"family": "gain", "name": "matern", "nu": 2.5, "dimension": 1},
    },
    "bayes-ucb": {"schedule": {"family": "schedule", "name": "simple-quantile"}},
    "thompson": {"mode": "independent"},
    "expected-improvement": {"xi": 0.1},
    "probability-of-improvement": {"scale": "linear"},
    "greedy": {},
    "random": {},
    "rectified": {
        "rule": {"family": "rule", "name": "greedy"},
        "reduction": [0.5, -1.0],
    },
}


def shipped(family: str) -> list[str]:
    """Not what other tests register."""
    return [
        name
        for name in names(family)
        if find(family, name).__module__.startswith("superarm.")
    ]


def test_every_registered_part_is_tried_here() -> None:
    assert shipped("schedule") == sorted(SCHEDULES)
    assert shipped("rule") == sorted(RULES)


@pytest.mark.parametrize(
    ("family", "name"),
    [("schedule", name) for name in SCHEDULES] + [("rule", name) for name in RULES],
)
def test_round_trip(family: str, name: str) -> None:
    spec = {"name": name, **(SCHEDULES if family == "schedule" else RULES)[name]}
    part = build(family, json.loads(json.dumps(spec)))
    rebuilt = build(family, from_json(json.loads(json.dumps(to_json(spec_of(part))))))
    assert difference(spec_of(rebuilt), spec_of(part)) is None
    assert spec_of(part)["name"] == name
    for key, value in spec.items():
        if isinstance(value, dict):
            assert spec_of(part)[key].items() >= value.items()
        else:
            assert np.array_equal(spec_of(part)[key], value)
    assert getattr(rules, type(part).__name__) is type(part)


def test_nested_parts_are_built() -> None:
    rule = build("rule", {"name": "ucb", **RULES["ucb"]})
    assert rule.gamma == MaternGain(nu=2.5, dimension=1)
    assert rule.schedule == rules.ImprovedGPUCB(norm_bound=1.0, noise_bound=0.1)


def test_a_plain_function_has_no_spec() -> None:
    rule = rules.UCB(schedule=rules.Fixed(value=1.0), gamma=lambda t: 1.0)
    with pytest.raises(SpecError, match="cannot be part of a spec"):
        spec_of(rule)
