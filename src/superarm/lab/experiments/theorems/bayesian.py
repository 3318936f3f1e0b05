"""Theorems 3.2 and 3.6 of sandberg2025bayesian, where f is a draw of the learner's prior.

They are about GP-BUCB, and about GP-TS with samples that are not scaled. Arms are points of a cube:
Theorem 3.2 is about these points, Theorem 3.6 about the whole cube.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from superarm.core.errors import InputError
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.lab import theory
from superarm.lab.experiments.statements.judging import EXACT_POSTERIORS
from superarm.lab.results.bounds import Bound
from superarm.lab.results.formats import significant
from superarm.models import Model

from .cases import BoundInputs, NoBoundError, Options

_PAPER = "“Bayesian Analysis of Combinatorial Gaussian Process Bandits” (2025)"
_DRAWN_FROM_PRIOR = "gp-function"
_SIDE = 1.0  # C₁, of the cube that holds the arms of such a problem


def is_bayesian(shared: BoundInputs, name: str, options: Options) -> bool:
    """Whether Theorem 3.2 is about a policy and the problem of the run.

    Args:
        shared: what all bounds need.
        name: under which the policy is registered.
        options: its parameters.
    """
    if shared.experiment.problem["name"] != _DRAWN_FROM_PRIOR:
        return False
    if name == "gp-ts":
        return options["mode"] == "joint" and not options["scaled"]
    return name == "gp-bucb"


def bayesian_bound(shared: BoundInputs, name: str, options: Options) -> Bound:
    """Theorem 3.2, averaged over the run's seeds; its text has Theorem 3.6 for the first of them.

    Args:
        shared: what all bounds need.
        name: under which the policy is registered.
        options: its parameters.
    """
    obstacle = next(_obstacles(name, options), None)
    if obstacle is not None:
        raise NoBoundError(obstacle)
    run = shared.run
    values = []
    for seed in run.seeds:
        world = shared.experiment.build_problem(seed=seed, horizon=run.rounds)
        arms = len(world.offer(1).arms)
        arguments = _arguments(world.model, run.rounds, name, options)
        bound = theory.bayesian_regret_bound(shared.rounds, arms=arms, **arguments)
        values.append(bound)
    text = f"Theorem 3.2 of {_PAPER}, on the mean over draws of f"
    text += _on_cube(shared, name, options)
    unmet = "; ".join(_unmet(shared.world.model))
    text += f". Drawn although the run does not meet these assumptions: {unmet}"
    label = f"{name.upper()} bound (assumptions not met)"
    return Bound(label, shared.rounds, np.mean(values, axis=0), text)


def _obstacles(name: str, options: Options) -> Iterator[str]:
    """Why there is no bound."""
    if options["posterior"] not in EXACT_POSTERIORS:
        posterior = options["posterior"]
        yield f"the posterior is {posterior}: the theorems need the exact one"
    if name == "gp-ts" and options["decision_set"] != "all":
        yield "it samples on some arms only: Theorem 3.2 needs samples of all arms"
    if name == "gp-bucb" and math.isinf(theory.bucb_constant(options["omega"])):
        omega = options["omega"]
        yield f"omega = {omega:g} makes C_omega infinite: Lemma A.13 needs omega > 1"


def _unmet(model: Model) -> Iterator[str]:
    """What the theorem needs and the problem does not have: "need (what is there instead)"."""
    yield "a noise variance that does not depend on f (here it is a share of the range of f)"
    true_noise_variance = (model.noise_bound or 0.0) ** 2
    if not np.isclose(model.noise_variance, true_noise_variance):
        assumed = f"the learner assumes {model.noise_variance:.3g}"
        yield f"the true noise variance (here {assumed})"


def _arguments(model: Model, rounds: int, name: str, options: Options) -> Options:
    """Arguments of the theorems, but for T and the arms."""
    variance = float(np.max(model.kernel.diag(model.arms)))
    gamma = theory.ArmSetGrowth(
        kernel=model.kernel,
        features=model.arms,
        noise_variance=model.noise_variance,
        horizon=rounds,
    )
    is_bucb = name == "gp-bucb"
    return {
        "gamma": gamma,
        "algorithm": name,
        "budget": 1,
        "noise_variance": model.noise_variance,
        "largest_eigenvalue": variance,  # of one arm
        "largest_variance": variance,
        "omega": options["omega"] if is_bucb else None,
        "xi": options["xi"] if is_bucb else None,
    }


def _on_cube(shared: BoundInputs, name: str, options: Options) -> str:
    """Theorem 3.6 and its lemmas in words; empty where no constants of the kernel are known."""
    model = shared.world.model
    rounds = shared.run.rounds
    arms = _cube(model)
    if arms is None:
        return ""
    arguments = _arguments(model, rounds, name, options)
    bound = theory.bayesian_regret_bound(rounds, arms=arms, **arguments)
    grid: Options = {
        "budget": 1,
        "noise_variance": model.noise_variance,
        "omega": arguments["omega"],
        "xi": arguments["xi"],
    }
    log_size = arms.log_size(rounds, **grid)
    per_side = f"10^{float(log_size) / math.log(10.0):.1f}"
    steps = np.arange(1, rounds + 1)
    errors = theory.discretisation_errors(arms, steps, **grid)
    cost = float(errors.path.sum() + errors.of_index.sum())
    return (
        f". Were all points of the cube arms, with the same γ, Theorem 3.6 would allow "
        f"{significant(float(bound))} after {rounds:,} rounds (first seed): with {per_side} grid points "
        f"a side in the last round, and π²/3 for the grids, of which Lemmas 3.5 and A.8 use "
        f"{significant(cost)}"
    )


def _cube(model: Model) -> theory.CompactSet | None:
    """The cube that holds the arms, with the constants of the kernel where they are known."""
    assert model.arms is not None
    dimension = model.arms.shape[1]
    try:
        domain = theory.SmoothDomain.of_kernel(model.kernel, dimension, _SIDE)
    except InputError:
        return None
    variance = float(np.max(model.kernel.diag(model.arms)))
    std = math.sqrt(variance)
    # |k(x, z) − k(y, z)| ≤ ‖φ(x) − φ(y)‖‖φ(z)‖
    lipschitz = lipschitz_of_kernel(model.kernel) * std
    return theory.CompactSet(
        dimension=dimension,
        side=_SIDE,
        lipschitz=lipschitz,
        derivative_constants=(domain.a1, domain.b1),  # eq. 5
    )
