"""Theorems 4.2 and 4.3 and Corollary 4.1 of bogunovic2016time, for rewards that drift."""

from __future__ import annotations

import math
from typing import Any, cast

from superarm.kernels import Kernel, Temporal
from superarm.lab import theory
from superarm.lab.problems import DriftingFunction
from superarm.lab.results.bounds import Bound
from superarm.models.worlds import World

from .cases import BoundInputs, NoBoundError, Options

DRIFT_POLICIES = {"tv-gp-ucb": "Theorem 4.3", "r-gp-ucb": "Theorem 4.2"}
_DELTA = 0.1
DRIFT_NOTE = (
    "For rewards that drift, bounds are those of “Time-Varying Gaussian Process Bandit Optimization” "
    f"(2016) for finitely many arms, with δ = {_DELTA:g} and upper bounds on γ. Where a printed "
    "step does not follow, what the proof does give is used."
)


def drift_bound(shared: BoundInputs, policy: str, name: str, given: Options) -> Bound:
    """The same for all seeds, as they share one model."""
    world = shared.world
    rounds = shared.rounds
    T = shared.run.rounds
    posterior: Any = cast(Any, shared.experiment.build_policy(policy, world)).posterior
    true = _true_drift(world, posterior.drift if name == "tv-gp-ucb" else None)
    model = world.model
    noise = model.noise_variance
    n = len(world.offer(1).arms)
    gamma = shared.growth(T)
    theorem: Options = {"arms": n, "noise_variance": noise, "delta": _DELTA}
    words = f"{DRIFT_POLICIES[name]}. Drawn although the run does not meet this assumption: "
    words += f"widths √β_t (here √({given['c1']:g} ln({given['c2']:g} t)))"
    if name == "tv-gp-ucb":
        found = theory.drifting_information_gain(
            model.kernel, model.arms, T, noise, true
        )
        growth = theory.DriftingGrowth(
            gamma=gamma, epsilon=true, noise_variance=noise, horizon=T
        )

        def drifting(t: int) -> float:
            return min(2.0 * float(found[t]), growth(t))  # greedy reaches half at least

        values = theory.regret_bound_tv_gp_ucb(rounds, drifting, **theorem)
    else:
        block = posterior.block
        values = theory.regret_bound_r_gp_ucb(
            rounds, gamma, block=block, epsilon=true, **theorem
        )
    most = 2.0 * T * math.sqrt(2.0 * math.log(n))
    if values[-1] > most:
        words += ". This bound is too loose to say anything: no policy loses more than "
        words += f"2T√(2 ln n) = {most:,.0f} in the mean"
    if drift_order(shared, policy, name, given):
        words += ". The order of Corollary 4.1 is drawn as well, scaled to end where the regret does"
    return Bound(f"{name.upper()} bound (assumptions not met)", rounds, values, words)


def drift_order(
    shared: BoundInputs, policy: str, name: str, given: Options
) -> dict[str, Bound]:
    """Corollary 4.1, where it covers the policy; scaled, as it states no constants."""
    world = shared.world
    if not isinstance(world, DriftingFunction) or world.epsilon == 0.0:
        return {}
    nu = world.nu if world.kernel == "matern" else math.inf
    chosen_block = name == "r-gp-ucb" and (
        given["block"] is not None or given["epsilon"] is not None
    )
    if (
        nu <= 2.0
        or chosen_block
        or world.model.drift != Temporal(epsilon=world.epsilon)
    ):
        return {}
    algorithm: theory.DriftAlgorithm = "r-gp-ucb" if name == "r-gp-ucb" else "tv-gp-ucb"
    rate = theory.rate_drift(
        shared.rounds, world.epsilon, algorithm, dimension=world.dimension, nu=nu
    )
    end = float(shared.run.cumulative(policy, 0)[:, -1].mean())
    words = "The order of Corollary 4.1, without logarithms, scaled to end where the regret does"
    label = f"order of Corollary 4.1, {policy}"
    return {
        policy: Bound(
            label, shared.rounds, rate * end / (float(rate[-1]) or 1.0), words
        )
    }


def _true_drift(world: World, assumed: Kernel | None) -> float:
    """ε of the truth, if the theorem covers what a learner assumes of it, where it assumes any."""
    if not isinstance(world, DriftingFunction):
        reason = "the truth is no draw of a Gaussian process that drifts by a known ε"
        raise NoBoundError(f"{reason}: the theorems need one")
    if world.k != 1:
        raise NoBoundError(
            f"{world.k} arms are chosen in a round: the theorems are about one"
        )
    true = world.epsilon
    if assumed not in (None, Temporal(epsilon=true)):
        epsilon = assumed.epsilon if isinstance(assumed, Temporal) else None
        reason = f"is told {assumed if epsilon is None else f'ε = {epsilon:g}'}"
        reason = "forgets nothing" if epsilon == 0.0 else reason
        raise NoBoundError(
            f"it {reason} while the truth drifts by {true:g}: the theorem needs a learner that is told "
            "the true ε"
        )
    return true
