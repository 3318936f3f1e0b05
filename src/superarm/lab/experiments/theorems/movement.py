"""Theorem 1 where moving has a cost, and eqs. 12 and 13 on a run."""

from __future__ import annotations

from typing import cast

import numpy as np

from superarm.core import Floats, Gamma
from superarm.lab import theory
from superarm.lab.problems import MovementProblem
from superarm.lab.results.bounds import Bound
from superarm.lab.results.formats import count_text, significant
from superarm.lab.simulation import Run
from superarm.policies.from_model import gamma_for
from superarm.rules import information

from .cases import BoundInputs, NoBoundError, Options

TREE_POLICIES = ("gp-md", "md-known")
_DELTA = 0.1
_MOST_GREEDY = 2e10  # count² × candidates up to which γ is found by greedy choice
_MOVEMENT = "“Movement Penalized Bayesian Optimization with Application to Wind Energy Systems” (2022)"


def movement_bound(
    shared: BoundInputs, policy: str, name: str, options: Options
) -> Bound:
    """Theorem 1 with its constants, or its order alone; eqs. 12 and 13 on what was recorded.

    Args:
        shared: what all bounds need.
        policy: its name in the run.
        name: under which it is registered.
        options: its parameters.
    """
    run = shared.run
    world = shared.world
    rounds = shared.rounds
    if not isinstance(world, MovementProblem):
        raise NoBoundError("the theorem is about problems in which moving has a cost")
    competitive = _competitive(run, policy, world)
    if name == "md-known":
        raise NoBoundError(
            f"it knows the costs: there is nothing to learn. {competitive}"
        )
    model = world.model
    if model.gain is None:
        raise NoBoundError(f"the model names no growth rate for γ. {competitive}")
    features = world.offer(1).arms.features
    largest = float(np.max(model.kernel.diag(features)))
    if model.norm_bound is None or model.noise_bound is None or largest > 1.0:
        return _scaled_order(shared, policy, competitive)
    H = world.span
    psi = float(world.metric.distances.max())
    norm = model.norm_bound
    episodes = np.maximum(np.ceil(rounds / H), 1.0)
    gamma = _gamma_bound(world, H * int(episodes[-1]), H)
    values = theory.regret_bound_gp_md(
        episodes,
        gamma,
        episode=H,
        norm_bound=norm,
        noise_bound=model.noise_bound,
        noise_variance=model.noise_variance,
        diameter=psi,
        delta=_DELTA,
    )
    all_costs = episodes * H * (norm + psi)
    text = (
        f"Theorem 1 of {_MOVEMENT}, with all constants, δ = {_DELTA:g}, H = {H}, "
        f"B = {norm:.3g}, ψ = {psi:.3g} and γ_{{H−1}} ≤ {gamma(H - 1):.3g}: after {int(episodes[-1])} "
        f"episodes the regret is at most {significant(float(values[-1]))}"
    )
    if values[-1] > all_costs[-1]:
        text += (
            f". All rounds together cannot cost more than H(B + ψ) per episode, "
            f"{significant(float(all_costs[-1]))}, so this is drawn instead"
        )
    text += (
        ". The theorem bounds the regret against α times the optimum, with α and β for which eqs. 38 "
        f"and 39 hold; the regret here is against the optimum itself. {_unmet(options)}{competitive}"
    )
    bound = np.minimum(values, all_costs)
    return Bound("Theorem 1, or all costs", rounds, bound, text)


def _scaled_order(shared: BoundInputs, policy: str, competitive: str) -> Bound:
    """The order of Theorem 1, where its constants are not known."""
    rounds = shared.rounds
    growth = cast(Gamma, gamma_for(shared.world.model, "growth"))
    rate = theory.movement_rate(rounds, growth)
    totals = shared.run.cumulative(policy, 0)[:, -1]
    end = float(totals.mean())
    scaled_rate = rate * end / (rate[-1] or 1.0)
    text = (
        f"The order of Theorem 1 of {_MOVEMENT}, scaled to end where the regret does, because the "
        f"problem does not state B and σ with k ≤ 1. {competitive}"
    )
    return Bound("order of Theorem 1, scaled", rounds, scaled_rate, text)


def _unmet(options: Options) -> str:
    """What Theorem 1 needs and the policy does not have, as a sentence."""
    unmet = []
    if options["width"] != "lemma-1":
        unmet.append(f"widths of Lemma 1 (here {options['width']:g})")
    if not options["clip"]:
        unmet.append("costs of at least 0 (here lower bounds may be negative)")
    if options["update"] != "episode" or options["first_episode"] != "episode":
        unmet.append("learning once per episode (here at once)")
    if not unmet:
        return ""
    return (
        f"Drawn although the run does not meet these assumptions: {'; '.join(unmet)}. "
    )


def _gamma_bound(world: MovementProblem, count: int, episode: int) -> Gamma:
    """An upper bound on γ_t of all actions and contexts of a run: by greedy choice, over 1 − 1/e.

    Where that takes long, of one episode alone, times the number of episodes: γ is subadditive.
    """
    features_by_arms = {}  # rounds may share the same arms
    for step in range(1, world.horizon + 1):
        arms = world.offer(step).arms
        features_by_arms[id(arms)] = arms.features
    offered = np.concatenate(list(features_by_arms.values()))
    candidates = np.unique(offered, axis=0)
    model = world.model
    work = float(count) ** 2 * len(candidates)
    span = count if work <= _MOST_GREEDY else episode
    growth = information.GreedyGrowth(
        kernel=model.kernel,
        candidates=candidates,
        noise_variance=model.noise_variance,
        horizon=span,
    )

    def gamma(t: float) -> float:
        times, remainder = divmod(int(t), span)
        return times * growth(span) + growth(remainder)

    return gamma


def _competitive(run: Run, policy: str, world: MovementProblem) -> str:
    """Service and movement of every span beside the cheapest way through it, as a sentence."""
    span = world.span
    last_rounds = np.append(np.arange(span, run.rounds, span), run.rounds)

    def sums_of_spans(metric: str) -> Floats:
        """What a metric adds up to in each span, (seeds, spans)."""
        totals = run.cumulative(policy, 0, metric)[:, last_rounds - 1]
        return np.diff(totals, axis=1, prepend=0.0)

    service = sums_of_spans("service_cost")
    movement = sums_of_spans("movement_cost")
    total = sums_of_spans("total_cost")
    optimum = total - sums_of_spans("regret")
    if not optimum.sum() > 0.0:
        return "Eqs. 12 and 13 compare with the cheapest way, which costs nothing here"
    optimum_sum = optimum.sum()
    served = significant(float(service.sum() / optimum_sum))
    moved = significant(float(movement.sum() / optimum_sum))
    alpha = float(total.sum() / optimum_sum)
    excess = service - optimum
    mean = significant(float(excess.mean()))
    most = significant(float(excess.max()))
    log_actions = float(np.log(len(world.metric)))
    limit = log_actions**2
    costly = optimum > 0.0
    ratios = total[costly] / optimum[costly]
    largest = float(ratios.max())
    return (
        f"Eqs. 12 and 13, from one given start to the next ({count_text(optimum.size, 'time')}): in "
        f"total, service costs {served} times as much as the offline optimum, which is a difference of "
        f"{mean} on average and of {most} at most; movement costs {moved} times as much, where ln² n "
        f"is {significant(limit)}. With β = 0, the regret is 0 for α = {significant(alpha)}, and at "
        f"most 0 every time for α = {significant(largest)}, where 1 + ln² n is "
        f"{significant(1.0 + limit)}"
    )
