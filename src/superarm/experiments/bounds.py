"""The theorem behind a run, as a curve to draw over its regret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from superarm._curves import Bound
from superarm.core import Floats, Gamma
from superarm.errors import StateError
from superarm.problems.base import World
from superarm.registry import build
from superarm.simulation import Run
from superarm.theory import regret_bound_igp_ucb, regret_bound_oclok_ucb

from .spec import Experiment

_POINTS = 200


def regret_bound(run: Run) -> Bound | None:
    """The bound for the run's first setting, averaged over its seeds; ``None`` where there is none."""
    for policy, (label, assumes, curve) in _BOUNDS.items():
        if policy not in run.policies:
            continue
        if "parameters" not in run.spec:
            raise StateError(f"{run.directory / 'run.json'} has no parameters, which a bound needs")
        experiment = Experiment.from_mapping(
            {"id": run.experiment, "rounds": run.rounds, "seeds": 1, **run.spec["parameters"]},
            str(run.directory),
        ).with_setting(run.settings[0])
        rounds = np.unique(np.geomspace(1, run.rounds, _POINTS).astype(np.intp)).astype(np.float64)
        options = experiment.policies[policy]
        worlds = [experiment.build_problem(seed=seed, horizon=run.rounds) for seed in run.seeds]
        if any(_largest_variance(world) > 1.0 + 1e-9 for world in worlds):
            return None  # the theorems take k(x, x) ≤ 1 for granted
        values = [curve(rounds, world, options) for world in worlds]
        return Bound(label, rounds, np.mean(values, axis=0), assumes)
    return None


def _largest_variance(world: World) -> float:
    return float(np.max(world.model.kernel.diag(world.offer(1).arms.features)))


def _igp_ucb(rounds: Floats, world: World, options: Any) -> Floats:
    model = world.model
    if model.norm_bound is None or model.noise_bound is None or model.gain is None:
        raise ValueError("the model states no norm, noise or gain")
    gamma: Gamma = build("gain", model.gain)
    delta = float(options.get("delta", 0.1))
    return regret_bound_igp_ucb(rounds, gamma, model.norm_bound, model.noise_bound, delta)


def _oclok_ucb(rounds: Floats, world: World, options: Any) -> Floats:
    model = world.model
    if model.gain is None or model.most_arms is None:
        raise ValueError("the model states no gain or number of arms")
    gamma: Gamma = build("gain", model.gain)
    budget = len(model.oracle.select(np.arange(model.most_arms * 1.0), None, _ANY).positions)
    return regret_bound_oclok_ucb(
        rounds,
        gamma,
        most_arms=model.most_arms,
        budget=budget,
        noise_variance=model.noise_variance,
        largest_eigenvalue=budget * _largest_variance(world),  # of the prior: at most the trace
        delta=float(options.get("delta", 0.05)),
    )


_ANY = np.random.default_rng(0)
_BOUNDS: dict[str, tuple[str, str, Callable[[Floats, World, Any], Floats]]] = {
    "igp-ucb": (
        "IGP-UCB bound",
        "Theorem 3 of paper 002; it takes λ = 1 + 2/T, and γ as in the experiment",
        _igp_ucb,
    ),
    "oclok-ucb": (
        "O'CLOK-UCB bound",
        "Theorem 1 of paper 001; it takes a reward of Lipschitz constant 1, λ* of the prior, and γ "
        "as in the experiment",
        _oclok_ucb,
    ),
}
