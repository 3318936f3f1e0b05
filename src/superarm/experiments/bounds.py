"""The theorem behind a run, as a curve to draw over its regret."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from superarm._curves import Bound
from superarm.core import Floats, Gamma
from superarm.errors import InputError, StateError
from superarm.problems.base import Model, World
from superarm.registry import build, parameters_of
from superarm.simulation import Run
from superarm.theory import regret_bound_igp_ucb, regret_bound_oclok_ucb

from .spec import Experiment

_POINTS = 200


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
        if name not in _BOUNDS:
            continue
        theorem, assumes, curve = _BOUNDS[name]
        delta = float(options.get("delta", parameters_of("policy", name)["delta"]))
        rounds = np.unique(np.geomspace(1, run.rounds, _POINTS).astype(np.intp)).astype(np.float64)
        values = []
        for seed in run.seeds:
            world = experiment.build_problem(seed=seed, horizon=run.rounds)
            if _largest_variance(world) > 1.0 + 1e-9:
                return None  # the theorems take k(x, x) ≤ 1 for granted
            value = curve(rounds, world, delta)
            if value is None:
                break
            values.append(value)
        else:
            return Bound(theorem, rounds, np.mean(values, axis=0), assumes)
    return None


def _largest_variance(world: World) -> float:
    return float(np.max(world.model.kernel.diag(world.offer(1).arms.features)))


def _igp_ucb(rounds: Floats, world: World, delta: float) -> Floats | None:
    model = world.model
    if model.norm_bound is None or model.noise_bound is None or model.gain is None:
        return None
    gamma: Gamma = build("gain", model.gain)
    return regret_bound_igp_ucb(rounds, gamma, model.norm_bound, model.noise_bound, delta)


def _oclok_ucb(rounds: Floats, world: World, delta: float) -> Floats | None:
    model = world.model
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


_ANY = np.random.default_rng(0)
_BOUNDS: dict[str, tuple[str, str, Callable[[Floats, World, float], Floats | None]]] = {
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
