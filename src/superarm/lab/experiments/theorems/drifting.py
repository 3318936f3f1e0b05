"""Theorems 4.2 and 4.3 and Corollary 4.1 of bogunovic2016time, for rewards that drift."""

from __future__ import annotations

import math
from typing import Any, cast

from superarm.core import Gamma
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


def drift_bound(shared: BoundInputs, policy: str, name: str, options: Options) -> Bound:
    """The bound of TV-GP-UCB or R-GP-UCB: the same for all seeds, as they share one model.

    Args:
        shared: what all bounds need.
        policy: its name in the run.
        name: under which it is registered.
        options: its parameters.
    """
    world = shared.world
    rounds = shared.rounds
    T = shared.run.rounds
    learner = cast(Any, shared.experiment.build_policy(policy, world))
    posterior: Any = learner.posterior
    is_tv_gp_ucb = name == "tv-gp-ucb"
    epsilon = _true_drift(world, posterior.drift if is_tv_gp_ucb else None)
    arms = len(world.offer(1).arms)
    theorem: Options = {
        "arms": arms,
        "noise_variance": world.model.noise_variance,
        "delta": _DELTA,
    }
    if is_tv_gp_ucb:
        gamma = _drifting_gamma(shared, epsilon)
        values = theory.regret_bound_tv_gp_ucb(rounds, gamma, **theorem)
    else:
        values = theory.regret_bound_r_gp_ucb(
            rounds,
            shared.growth(T),
            block=posterior.block,
            epsilon=epsilon,
            **theorem,
        )
    text = f"{DRIFT_POLICIES[name]}. Drawn although the run does not meet this assumption: "
    text += f"widths √β_t (here √({options['c1']:g} ln({options['c2']:g} t)))"
    largest_loss = 2.0 * T * math.sqrt(2.0 * math.log(arms))
    if values[-1] > largest_loss:
        text += ". This bound is too loose to say anything: no policy loses more than "
        text += f"2T√(2 ln n) = {largest_loss:,.0f} in the mean"
    if drift_order(shared, policy, name, options):
        text += ". The order of Corollary 4.1 is drawn as well, scaled to end where the regret does"
    return Bound(f"{name.upper()} bound (assumptions not met)", rounds, values, text)


def _drifting_gamma(shared: BoundInputs, epsilon: float) -> Gamma:
    """γ̃ from above: by greedy choice, or by blocks."""
    model = shared.world.model
    T = shared.run.rounds
    noise = model.noise_variance
    greedy = theory.drifting_information_gain(
        model.kernel, model.arms, T, noise, epsilon
    )
    growth = theory.DriftingGrowth(
        gamma=shared.growth(T), epsilon=epsilon, noise_variance=noise, horizon=T
    )

    def gamma(t: int) -> float:
        by_greedy = 2.0 * float(greedy[t])  # greedy choice reaches at least half
        return min(by_greedy, growth(t))

    return gamma


def drift_order(
    shared: BoundInputs, policy: str, name: str, options: Options
) -> dict[str, Bound]:
    """Corollary 4.1, where it covers the policy; scaled, as it states no constants.

    Args:
        shared: what all bounds need.
        policy: its name in the run.
        name: under which it is registered.
        options: its parameters.
    """
    world = shared.world
    if not isinstance(world, DriftingFunction) or world.epsilon == 0.0:
        return {}
    nu = world.nu if world.kernel == "matern" else math.inf
    if nu <= 2.0 or world.model.drift != Temporal(epsilon=world.epsilon):
        return {}
    algorithm: theory.DriftAlgorithm = "tv-gp-ucb"
    if name == "r-gp-ucb":
        algorithm = "r-gp-ucb"
        if options["block"] is not None or options["epsilon"] is not None:
            return {}  # its N is not that of section 5.1 for the true ε
    rate = theory.rate_drift(
        shared.rounds, world.epsilon, algorithm, dimension=world.dimension, nu=nu
    )
    totals = shared.run.cumulative(policy, 0)[:, -1]
    end = float(totals.mean())
    scaled_rate = rate * end / (float(rate[-1]) or 1.0)
    text = "The order of Corollary 4.1, without logarithms, scaled to end where the regret does"
    label = f"order of Corollary 4.1, {policy}"
    return {policy: Bound(label, shared.rounds, scaled_rate, text)}


def _true_drift(world: World, assumed: Kernel | None) -> float:
    """ε of the truth, if the theorem covers what a learner assumes of it.

    Args:
        world: the problem.
        assumed: the learner's drift; ``None`` where it assumes none.
    """
    if not isinstance(world, DriftingFunction):
        reason = "the truth is no draw of a Gaussian process that drifts by a known ε"
        raise NoBoundError(f"{reason}: the theorems need one")
    if world.k != 1:
        raise NoBoundError(
            f"{world.k} arms are chosen in a round: the theorems are about one"
        )
    true = world.epsilon
    if assumed not in (None, Temporal(epsilon=true)):
        if not isinstance(assumed, Temporal):
            reason = f"assumes {assumed}"
        elif assumed.epsilon == 0.0:
            reason = "forgets nothing"
        else:
            reason = f"assumes ε = {assumed.epsilon:g}"
        raise NoBoundError(
            f"it {reason} while the truth drifts by {true:g}: the theorem needs a learner that assumes "
            "the true ε"
        )
    return true
