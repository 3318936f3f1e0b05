"""Policies whose posterior resets, detects changes or refits its hyper-parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superarm
from superarm.core import Offer
from superarm.core.errors import InputError, SpecError
from superarm.lab.experiments import Experiment, Plan, execute, load_experiment
from superarm.lab.experiments.theorems import regret_bounds
from superarm.lab.problems import DriftingFunction
from superarm.lab.simulation import Run, simulate
from superarm.lab.simulation.lateness import Lateness
from superarm.models import Model
from superarm.policies import IndexPolicy, gp_ts, random, tv_gp_ucb, wrapped
from superarm.posteriors import (
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    Refitting,
    Resetting,
)

RESETTING = {"name": "resetting", "block": 4}
BOTH = [
    {"name": "refitting", "every": 5, "most": 20},
    {"name": "change-detecting", "scale": 2.0},
]
POLICIES: dict[str, dict[str, Any]] = {
    "tv-gp-ucb": {"wrapped": BOTH},
    "r-gp-ucb": {},
    "by hand": {
        "policy": "composed",
        "rule": {
            "name": "ucb",
            "schedule": {"name": "logarithmic", "c1": 0.8, "c2": 4.0},
        },
        "wrapped": RESETTING,
    },
    "gp-ts": {"scaled": False, "wrapped": [RESETTING]},
    "gp-bucb": {"wrapped": "change-detecting"},
    "gp-ei": {"posterior": "streaming", "wrapped": BOTH},
}


def mapping(policies: dict[str, Any] = POLICIES, **problem: Any) -> dict[str, Any]:
    world = {"name": "drifting-function", "side": 4, "epsilon": 0.1, **problem}
    return {
        "id": "mine",
        "rounds": 12,
        "seeds": 1,
        "problem": world,
        "policies": policies,
    }


def experiment(policies: dict[str, Any] = POLICIES) -> Experiment:
    return Experiment.from_mapping(mapping(policies), "here")


def model() -> Model:
    return DriftingFunction(side=4, seed=1, horizon=20).model


def test_specs_wrap_the_posterior_in_their_order() -> None:
    drifting = wrapped(tv_gp_ucb(model()), *BOTH)
    outer = drifting.posterior
    assert isinstance(outer, ChangeDetecting)
    assert isinstance(outer.posterior, Refitting)
    assert isinstance(outer.posterior.posterior, DriftingGP)
    assert (outer.scale, outer.posterior.every) == (2.0, 5)
    plain = gp_ts(model(), scaled=False)
    rewrapped = wrapped(plain, RESETTING)
    assert isinstance(rewrapped.posterior, Resetting)
    assert isinstance(plain.posterior, FiniteGP)  # the given policy is not modified
    assert {**rewrapped.parameters(), "posterior": 0} == {
        **plain.parameters(),
        "posterior": 0,
    }


def test_every_policy_of_an_experiment_runs_and_restores(
    tmp_path: Path,
) -> None:
    setup = experiment()
    world = setup.build_problem(seed=1, horizon=12)
    policies = {name: setup.build_policy(name, world) for name in POLICIES}
    simulate(world, policies, rounds=12, seed=1)
    for name, policy in policies.items():
        assert isinstance(policy, IndexPolicy)
        policy.save(tmp_path / "policy.npz")
        loaded = superarm.load(tmp_path / "policy.npz")
        offer = world.offer(13)
        one, other = (
            player.decide(offer, np.random.default_rng(0))
            for player in (policy, loaded)
        )
        np.testing.assert_array_equal(one.positions, other.positions, name)


def test_blocks_are_those_of_r_gp_ucb() -> None:
    world = experiment().build_problem(seed=1, horizon=12)
    options = {"r-gp-ucb": {"block": 4}, "by hand": POLICIES["by hand"]}
    setup = experiment(options)
    trajectories = simulate(
        world,
        {name: setup.build_policy(name, world) for name in options},
        rounds=12,
        seed=1,
    )
    np.testing.assert_array_equal(
        trajectories["r-gp-ucb"].choices, trajectories["by hand"].choices
    )


def test_late_feedback_reaches_a_wrapped_policy_in_order() -> None:
    setup = experiment()
    world = setup.build_problem(seed=1, horizon=30)
    policy = setup.build_policy("gp-bucb", world)
    assert not policy.exchangeable
    lateness = Lateness(earliest=1, latest=4)
    simulate(world, {"it": policy}, rounds=30, seed=1, lateness=lateness)
    assert isinstance(policy, IndexPolicy)
    assert policy.posterior.count > 20


def test_a_run_of_a_file_can_be_resumed_and_has_no_bound(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
id = "mine"
rounds = 8
seeds = 2
[problem]
name = "drifting-function"
side = 4
[policies.gp-ts-resetting]
policy = "gp-ts"
scaled = false
wrapped = { name = "resetting", block = 3 }
[policies.gp-bucb]
wrapped = ["change-detecting", { name = "resetting", block = 5 }]
""",
        encoding="utf-8",
    )
    execute(Plan.make(load_experiment(str(path)), out=tmp_path / "whole"))
    execute(Plan.make(load_experiment(str(path)), out=tmp_path / "part"))
    cells = sorted((tmp_path / "part" / "cells").iterdir())
    contents = {cell.name: cell.read_bytes() for cell in cells}
    cells[0].unlink()
    execute(Plan.make(load_experiment(str(path)), out=tmp_path / "part"), resume=True)
    assert {
        cell.name: cell.read_bytes()
        for cell in sorted((tmp_path / "part" / "cells").iterdir())
    } == contents
    bounds = regret_bounds(Run.load(tmp_path / "whole"))
    assert not bounds.drawn
    assert all("wrapped" in reason for reason in bounds.missing.values())


@pytest.mark.parametrize(
    ("wrappers", "words"),
    [
        (
            "reseting",
            "'reseting' is no posterior that wraps another; did you mean 'resetting'?",
        ),
        ("finite", "choose one of change-detecting, refitting, resetting"),
        ({"name": "resetting", "blocks": 3}, "did you mean 'block'?"),
        (
            {"name": "resetting", "block": 2.5},
            "block must be a whole number, got 2.5",
        ),
        (
            {"name": "resetting", "posterior": {"name": "finite"}},
            "no parameter 'posterior'",
        ),
        ({"block": 3}, 'write {name = "resetting", block = 48}'),
        ([["resetting"]], 'write {name = "resetting", block = 48}'),
        (7, "a wrapper is 7"),
    ],
)
def test_invalid_wrappers_are_rejected_before_anything_runs(
    wrappers: Any, words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        experiment({"gp-ei": {"wrapped": wrappers}})
    assert words in str(caught.value)
    assert str(caught.value).startswith("here: policies.gp-ei: wrapped: ")


def test_only_policies_with_a_posterior_can_be_wrapped() -> None:
    with pytest.raises(InputError, match="choose a policy that has one"):
        wrapped(random(model()), RESETTING)
    setup = experiment({"random": {"wrapped": RESETTING}})
    with pytest.raises(InputError, match="leave 'wrapped' out"):
        setup.build_policy("random", setup.build_problem(seed=1, horizon=3))
    with pytest.raises(SpecError, match="needs block"):
        wrapped(gp_ts(model(), scaled=False), "resetting")
    policy = gp_ts(model(), scaled=False)
    policy.posterior.observe(
        policy.posterior.keys(Offer(step=1, arms=_arms()))[:1], [1.0]
    )
    with pytest.raises(InputError, match="already learned"):
        wrapped(policy, RESETTING)


def _arms() -> Any:
    return DriftingFunction(side=4, seed=1, horizon=20).offer(1).arms
