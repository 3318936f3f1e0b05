"""The theorem behind a run, as a curve to draw over its regret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm._curves import Bound
from superarm.core import Floats, Gamma
from superarm.errors import InputError, StateError
from superarm.problems.base import Model, World
from superarm.registry import build, parameters_of
from superarm.simulation import Run
from superarm.theory import (
    ArmSetGrowth,
    bayesian_regret_bound,
    prior_eigenvalue_bound,
    regret_bound_igp_ucb,
    regret_bound_oclok_ucb,
)

from .spec import Experiment

_POINTS = 200
Options = Mapping[str, Any]


class _Theorem(NamedTuple):
    label: str
    assumes: str
    curve: Callable[[Floats, World, Options, Run], Floats | None]
    scaled: bool = False
    """Whether it holds for any k(x, x), not only for k ≤ 1."""


def regret_bound(run: Run) -> Bound | None:
    """The bound for the run's first setting, averaged over its seeds; ``None`` where there is none.

    It is that of the first policy, under whatever label, that is one of those with a theorem.
    """
    if "parameters" not in run.spec:
        raise StateError(f"{run.directory / 'run.json'} has no parameters, which a bound needs")
    experiment = Experiment.from_mapping(
        {"id": run.experiment, "rounds": run.rounds, "seeds": 1, **run.spec["parameters"]},
        str(run.directory),
    ).with_setting(run.settings[0])
    for label, options in experiment.policies.items():
        name = options.get("policy", label)
        if name not in _BOUNDS or not _covered(name, options):
            continue
        theorem = _BOUNDS[name]
        rounds = np.unique(np.geomspace(1, run.rounds, _POINTS).astype(np.intp)).astype(np.float64)
        values = []
        # Where the truth alone differs from seed to seed, one of them stands for all.
        seeds = run.seeds[:1] if theorem.scaled else run.seeds
        for seed in seeds:
            world = experiment.build_problem(seed=seed, horizon=run.rounds)
            if not theorem.scaled and _largest_variance(world) > 1.0 + 1e-9:
                return None  # the theorem takes k(x, x) ≤ 1 for granted
            value = theorem.curve(rounds, world, options, run)
            if value is None:
                break
            values.append(value)
        else:
            return Bound(theorem.label, rounds, np.mean(values, axis=0), theorem.assumes)
    return None


def _covered(name: str, options: Options) -> bool:
    """Whether a policy is the one of the theorem: another width or posterior is not."""
    if name != "route-ucb":
        return True
    exact = options.get("posterior", "auto") in ("auto", "finite")
    return exact and float(options.get("scale", 1.0)) >= 1.0


def _delta(name: str, options: Options) -> float:
    return float(options.get("delta", parameters_of("policy", name)["delta"]))


def _largest_variance(world: World) -> float:
    return float(np.max(world.model.kernel.diag(world.offer(1).arms.features)))


def _igp_ucb(rounds: Floats, world: World, options: Options, run: Run) -> Floats | None:
    model, delta = world.model, _delta("igp-ucb", options)
    if model.norm_bound is None or model.noise_bound is None or model.gain is None:
        return None
    gamma: Gamma = build("gain", model.gain)
    return regret_bound_igp_ucb(rounds, gamma, model.norm_bound, model.noise_bound, delta)


def _oclok_ucb(rounds: Floats, world: World, options: Options, run: Run) -> Floats | None:
    model, delta = world.model, _delta("oclok-ucb", options)
    most_arms = _most_arms(model)
    if model.gain is None or most_arms is None:
        return None
    gamma: Gamma = build("gain", model.gain)
    try:
        budget = len(model.oracle.select(np.arange(most_arms * 1.0), None, _ANY).positions)
    except InputError:
        return None  # what may be chosen depends on the round
    return regret_bound_oclok_ucb(
        rounds,
        gamma,
        most_arms=most_arms,
        budget=budget,
        noise_variance=model.noise_variance,
        largest_eigenvalue=budget * _largest_variance(world),  # of the prior: at most the trace
        delta=delta,
    )


def _most_arms(model: Model) -> int | None:
    if model.most_arms is not None or model.arms is None:
        return model.most_arms
    return len(model.arms)


def _route_ucb(rounds: Floats, world: World, options: Options, run: Run) -> Floats | None:
    model = world.model
    if model.arms is None:
        return None
    # The theorem's K is the most arms that a route may have; the longest that was driven stands in.
    budget = max(run.choices(policy, 0, seed).shape[1] for policy in run.policies for seed in run.seeds)
    growth = ArmSetGrowth(
        kernel=model.kernel,
        features=model.arms,
        noise_variance=model.noise_variance,
        horizon=int(rounds[-1]) * budget,
    )
    return bayesian_regret_bound(
        rounds,
        growth,
        algorithm="gp-ucb",
        arms=len(model.arms),
        budget=budget,
        noise_variance=model.noise_variance,
        largest_eigenvalue=prior_eigenvalue_bound(model.kernel, model.arms, budget).value,
        largest_variance=_largest_variance(world),
    )


_ANY = np.random.default_rng(0)
_BOUNDS = {
    "igp-ucb": _Theorem(
        "IGP-UCB bound",
        "Theorem 3 of paper 002; it takes λ = 1 + 2/T, and γ as in the experiment",
        _igp_ucb,
    ),
    "oclok-ucb": _Theorem(
        "O'CLOK-UCB bound",
        "Theorem 1 of paper 001; it takes a reward of Lipschitz constant 1, λ* of the prior, and γ "
        "as in the experiment",
        _oclok_ucb,
    ),
    "route-ucb": _Theorem(
        "GP-UCB bound",
        "Theorem 3.2 of paper 000 for the mean over truths; it speaks of regret that is not rectified, "
        "with λ* of the prior, an upper bound on γ, and K the longest route driven",
        _route_ucb,
        scaled=True,
    ),
}
