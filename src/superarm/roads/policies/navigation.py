"""Policies that find routes, and baselines.

Each is a rule whose costs are rectified, on a posterior of choice, with the model's own oracle.
``routing="rectified"`` rectifies the cost itself (Algorithm 2 of
Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025)); ``"potential"`` rectifies the
cost reduced by the model's potential (ours), which credits energy won back downhill. ``penalty`` (ours)
adds, after rectifying, that many times the cost of roads that were not part of the previous route.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from superarm.core import Floats, Rule, SwitchingCost
from superarm.core.errors import InputError
from superarm.core.inputs import as_number, require_choice, require_part
from superarm.core.normal import rectified_mean
from superarm.core.registry import register
from superarm.models import Model
from superarm.policies import IndexPolicy, ScorePolicy
from superarm.policies.from_model import PosteriorName, arm_count, index_policy
from superarm.policies.scores import Expected, KnownCosts
from superarm.roads.models import FleetModel, RoadModel
from superarm.roads.posterior import RoadGP
from superarm.rules import (
    UCB,
    BayesianGPUCB,
    BayesUCB,
    BayesUCBQuantile,
    Greedy,
    Rectified,
    Thompson,
)
from superarm.rules.rectified import Spread

from .cautious import CautiousPolicy

Routing = Literal["rectified", "potential"]


def _roads(model: Model) -> RoadModel:
    if not isinstance(model, RoadModel):
        raise InputError(
            f"this policy finds routes: it needs a RoadModel, not a {type(model).__name__}. Use it on "
            "the problem 'navigation' or 'sumo-navigation', or choose a policy for any arms, such as "
            "'gp-ucb-bayesian'"
        )
    return model


def _reduction(model: RoadModel, routing: Routing) -> Floats | None:
    require_choice(routing, "routing", ("rectified", "potential"))
    if model.reduction is None and routing == "potential":
        raise InputError(
            "this model has no potential: recuperation 'divide' returns more energy than was spent; "
            "use routing 'rectified'"
        )
    return model.reduction if routing == "potential" else None


def _switching(model: RoadModel, penalty: float) -> SwitchingCost | None:
    if as_number(penalty, "penalty", 0.0) == 0.0:
        return None
    if model.switching is None:
        raise InputError(
            f"penalty is {penalty:g}, but this problem does not say what leaving a route costs: give "
            "the problem 'navigation' a switch_cost, or leave penalty out"
        )
    return replace(model.switching, cost=penalty * model.switching.cost)


def _policy(
    model: Model,
    rule: Rule,
    posterior: PosteriorName,
    routing: Routing,
    spread: Spread,
    penalty: float,
) -> IndexPolicy:
    model = _roads(model)
    rectified = Rectified(
        rule=rule, spread=spread, reduction=_reduction(model, routing)
    )
    if isinstance(model, FleetModel):
        if posterior != "auto" or penalty:
            raise InputError(
                "a fleet learns with the posterior 'roads' and pays nothing for changing its routes: "
                "leave posterior and penalty out"
            )
        return _fleet_policy(model, rectified)
    is_exact = model.arms is not None and posterior in ("auto", "finite")
    # A route is many arms at once, few of all: the form that stores only visited ones is faster.
    form: Any = "visited" if is_exact else "auto"
    switching = _switching(model, penalty)
    return index_policy(model, rectified, posterior, form, switching=switching)


def _fleet_policy(model: FleetModel, rule: Rule) -> IndexPolicy:
    posterior = RoadGP(
        model.kernel,
        model.sizes,
        scales=model.scales,
        refit=model.refit,
        outliers=model.outliers,
        form=model.form,
        half_life=model.half_life,
    )
    return IndexPolicy(
        posterior=posterior,
        rule=rule,
        oracle=model.oracle,
        direction=model.direction,
    )


def _turn_costs(model: RoadModel, cost: str) -> Floats | None:
    """What turns add to a known cost, (c,); ``None`` where it is part of the edges' cost."""
    if not isinstance(model, FleetModel):
        return None
    return model.turn_costs[cost]


@register("policy", "route-rule")
def route_rule(
    model: Model,
    *,
    rule: Rule,
    posterior: PosteriorName = "auto",
    routing: Routing = "rectified",
    spread: Spread = "noise",
    penalty: float = 0.0,
) -> IndexPolicy:
    """Any registered rule, rectified: your own route policy from a TOML file.

    Args:
        model: What the learner knows about the problem.
        rule: The rule.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        routing: How to handle negative edge costs: by rectifying each edge (Bayesian Analysis of
            Combinatorial Gaussian Process Bandits (2025), Algorithm 2), or by height potentials.
        spread: The s of the rectified cost: the noise, the posterior's standard deviation, or none.
        penalty: How many times the switching cost that the problem states is counted: 0 ignores it,
            and 0.1 counts a tenth, as if it were spread over ten rounds.
    """
    require_part(rule, Rule, "rule")
    return _policy(model, rule, posterior, routing, spread, penalty)


@register("policy", "route-ucb")
def route_ucb(
    model: Model,
    *,
    scale: float = 1.0,
    posterior: PosteriorName = "auto",
    routing: Routing = "rectified",
    spread: Spread = "noise",
    penalty: float = 0.0,
) -> IndexPolicy:
    """UCB on roads (GP-UCB, BI-UCB): μ − √(scale·β_t)·σ [sandberg2025bayesian, Theorem 3.2].

    Args:
        model: What the learner knows about the problem.
        scale: Multiplies the width or the cost.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        routing: How to handle negative edge costs: by rectifying each edge (Bayesian Analysis of
            Combinatorial Gaussian Process Bandits (2025), Algorithm 2), or by height potentials.
        spread: The s of the rectified cost: the noise, the posterior's standard deviation, or none.
        penalty: How many times the switching cost that the problem states is counted: 0 ignores it,
            and 0.1 counts a tenth, as if it were spread over ten rounds.
    """
    rule = UCB(schedule=BayesianGPUCB(arms=arm_count(model), scale=scale))
    return _policy(model, rule, posterior, routing, spread, penalty)


@register("policy", "route-bucb")
def route_bucb(
    model: Model,
    *,
    omega: float = 1.0,
    xi: float = 1.0,
    posterior: PosteriorName = "auto",
    routing: Routing = "rectified",
    spread: Spread = "noise",
    penalty: float = 0.0,
) -> IndexPolicy:
    """Bayes-UCB on roads (GP-BUCB, BI-BUCB): a lower quantile of each edge's energy.

    Args:
        model: What the learner knows about the problem.
        omega: Exponent of the number of arms.
        xi: Exponent of t in the quantile.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        routing: How to handle negative edge costs: by rectifying each edge (Bayesian Analysis of
            Combinatorial Gaussian Process Bandits (2025), Algorithm 2), or by height potentials.
        spread: The s of the rectified cost: the noise, the posterior's standard deviation, or none.
        penalty: How many times the switching cost that the problem states is counted: 0 ignores it,
            and 0.1 counts a tenth, as if it were spread over ten rounds.
    """
    rule = BayesUCB(
        schedule=BayesUCBQuantile(arms=arm_count(model), omega=omega, xi=xi)
    )
    return _policy(model, rule, posterior, routing, spread, penalty)


@register("policy", "route-ts")
def route_ts(
    model: Model,
    *,
    mode: Literal["independent", "joint"] = "independent",
    posterior: PosteriorName = "auto",
    routing: Routing = "rectified",
    spread: Spread = "noise",
    penalty: float = 0.0,
) -> IndexPolicy:
    """Thompson sampling on roads (GP-TS, BI-TS): samples of energies, edge by edge or jointly.

    Args:
        model: What the learner knows about the problem.
        mode: "joint" draws all arms together, "independent" each from its own marginal.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        routing: How to handle negative edge costs: by rectifying each edge (Bayesian Analysis of
            Combinatorial Gaussian Process Bandits (2025), Algorithm 2), or by height potentials.
        spread: The s of the rectified cost: the noise, the posterior's standard deviation, or none.
        penalty: How many times the switching cost that the problem states is counted: 0 ignores it,
            and 0.1 counts a tenth, as if it were spread over ten rounds.
    """
    return _policy(model, Thompson(mode=mode), posterior, routing, spread, penalty)


@register("policy", "route-greedy")
def route_greedy(
    model: Model,
    *,
    posterior: PosteriorName = "auto",
    routing: Routing = "rectified",
    spread: Spread = "noise",
    penalty: float = 0.0,
) -> IndexPolicy:
    """The posterior mean, without exploration.

    Args:
        model: What the learner knows about the problem.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        routing: How to handle negative edge costs: by rectifying each edge (Bayesian Analysis of
            Combinatorial Gaussian Process Bandits (2025), Algorithm 2), or by height potentials.
        spread: The s of the rectified cost: the noise, the posterior's standard deviation, or none.
        penalty: How many times the switching cost that the problem states is counted: 0 ignores it,
            and 0.1 counts a tenth, as if it were spread over ten rounds.
    """
    return _policy(model, Greedy(), posterior, routing, spread, penalty)


@register("policy", "prior")
def prior(
    model: Model, *, routing: Routing = "rectified", spread: Spread = "noise"
) -> ScorePolicy:
    """The route that the prior mean makes cheapest; it never learns.

    Args:
        model: What the learner knows about the problem.
        routing: How to handle negative edge costs: by rectifying each edge (Bayesian Analysis of
            Combinatorial Gaussian Process Bandits (2025), Algorithm 2), or by height potentials.
        spread: The s of the rectified cost: the noise, the posterior's standard deviation, or none.
    """
    model = _roads(model)
    reduction = _reduction(model, routing)
    costs = model.energies
    if reduction is not None:
        costs = model.energies - reduction
    require_choice(spread, "spread", ("noise", "none"))
    noise_std = 0.0
    if spread == "noise":
        noise_std = math.sqrt(model.noise_variance)
    weights = rectified_mean(costs, noise_std)
    score = KnownCosts(costs=weights, turn_costs=_turn_costs(model, "energy"))
    return ScorePolicy(score=score, oracle=model.oracle)


@register("policy", "known-cost")
def known_cost(model: Model, *, cost: str) -> ScorePolicy:
    """The route of least known cost, such as ``length`` or ``travel_time``.

    Args:
        model: What the learner knows about the problem.
        cost: Which known cost: length, travel_time, ….
    """
    model = _roads(model)
    # A list: what comes from a file may not be hashable.
    if cost not in list(model.costs):
        raise InputError(f"cost is {cost!r}; this problem knows {sorted(model.costs)}")
    costs = model.costs[cost]
    score = KnownCosts(costs=costs, turn_costs=_turn_costs(model, cost))
    return ScorePolicy(score=score, oracle=model.oracle)


@register("policy", "route-cautious")
def route_cautious(model: Model, *, caution: float = 1.0) -> CautiousPolicy:
    """The posterior mean of a fleet, where it confidently beats the model's own route.

    Args:
        model: What the learner knows about the problem.
        caution: How many standard deviations above 0 the saving must be to deviate from the
            informed route.
    """
    if not isinstance(model, FleetModel):
        raise InputError("'route-cautious' is for fleets; use 'route-greedy'")
    greedy = route_greedy(model, spread="none")
    return CautiousPolicy(
        posterior=greedy.posterior,
        rule=greedy.rule,
        oracle=greedy.oracle,
        caution=caution,
    )


@register("policy", "informed")
def informed(model: Model) -> ScorePolicy:
    """The route that the energy model makes cheapest for the trip's vehicle; it never learns.

    Args:
        model: What the learner knows about the problem.
    """
    if not isinstance(model, FleetModel):
        raise InputError(
            "'informed' is for fleets, whose offers say which vehicle drives; use 'prior'"
        )
    return ScorePolicy(score=Expected(), oracle=model.oracle)
