"""Policies for decisions that are costly to change, under their published names [ramesh2022movement].

lcb is minus what :class:`~superarm.rules.UCB` makes of the belief about minus the cost.
"""

from __future__ import annotations

from typing import Literal

from superarm.core.errors import InputError
from superarm.core.inputs import require_choice
from superarm.core.registry import register
from superarm.models import Model
from superarm.models.worlds import MovementWorld, World
from superarm.movement import ActionMetric
from superarm.oracles import TopK
from superarm.rules import UCB, Fixed, RidgeUCB

from .from_model import (
    GainChoice,
    PosteriorName,
    gamma_for,
    index_policy,
    known,
    posterior_for,
)
from .index import IndexPolicy
from .score import ScorePolicy
from .scores import Planned, Stay, Truth
from .tree_index import TreeIndexPolicy, Update
from .tree_score import TreeScorePolicy

Width = float | Literal["lemma-1"]


def _bound(model: Model, width: Width, delta: float, gain: GainChoice) -> UCB:
    """μ ± βσ with β fixed, or from [ramesh2022movement, Lemma 1]."""
    if not isinstance(width, str):
        return UCB(schedule=Fixed(value=width))
    require_choice(width, "width", ("lemma-1",))
    bounds = known(model, "norm_bound", "noise_bound")
    schedule = RidgeUCB(**bounds, regularisation=model.noise_variance, delta=delta)
    gamma = gamma_for(model, gain)
    return UCB(schedule=schedule, gamma=gamma)


def _metric(model: Model) -> ActionMetric:
    oracle = model.oracle
    if not isinstance(oracle, TopK) or oracle.k != 1:
        raise InputError(
            f"a walk on trees takes one action a round, but the oracle is {oracle!r:.60}; use "
            "TopK(k=1), or, for super arms, the policy 'composed' with a switching cost"
        )
    if model.metric is None:
        raise InputError(
            "the model does not say what it costs to move; give Model(metric=…), such as "
            "PointMetric(points=…)"
        )
    return model.metric


@register("policy", "gp-md")
def gp_md(
    model: Model,
    *,
    width: Width = 2.0,
    delta: float = 0.1,
    gain: GainChoice = "realised",
    update: Update = "episode",
    first_episode: Update = "episode",
    clip: bool = False,
    trees: int = 1,
    tau: float = 2.0,
    kappa: float = 1.0,
    posterior: PosteriorName = "auto",
) -> TreeIndexPolicy:
    """GP-MD [ramesh2022movement, Algorithm 1]: mirror descent on lower bounds of the costs.

    Args:
        model: The learner's model of the problem.
        width: Distance of bounds from the mean, in standard deviations; "lemma-1" is the width of
            the theory.
        delta: Probability with which the confidence bounds may fail.
        gain: What to use as the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        update: When rewards are learned: when the next episode begins ("episode"), or at once ("step").
        first_episode: When rewards of the first episode are learned: when the next one begins
            ("episode"), or at once ("step"), which is a warm start.
        clip: Whether negative lower bounds of costs are raised to 0, which the competitive
            guarantee for movement needs.
        trees: Number of random trees; episodes take them in turn.
        tau: τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: κ, 1 or more: how fast mirror descent follows the costs.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    return TreeIndexPolicy(
        posterior=posterior_for(model, posterior),
        rule=_bound(model, width, delta, gain),
        metric=_metric(model),
        direction=model.direction,
        update=update,
        first_episode=first_episode,
        clip=clip,
        trees=trees,
        tau=tau,
        kappa=kappa,
    )


@register("policy", "cgp-lcb")
def cgp_lcb(
    model: Model,
    *,
    width: Width = 2.0,
    delta: float = 0.1,
    gain: GainChoice = "realised",
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """CGP-LCB [krause2011contextual]: the action of lowest lower bound, whatever moving there costs.

    Args:
        model: The learner's model of the problem.
        width: Distance of bounds from the mean, in standard deviations; "lemma-1" is the width of
            the theory.
        delta: Probability with which the confidence bounds may fail.
        gain: What to use as the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    rule = _bound(model, width, delta, gain)
    return index_policy(model, rule, posterior)


@register("policy", "stationary")
def stationary(model: Model) -> ScorePolicy:
    """Stays with the previous action.

    Args:
        model: The learner's model of the problem.
    """
    return ScorePolicy(score=Stay(), oracle=model.oracle)


@register("policy", "minc-known")
def minc_known(model: Model, *, problem: World) -> ScorePolicy:
    """The action that costs least in this round, with known costs; movement is ignored.

    Args:
        model: The learner's model of the problem.
        problem: The world whose truth is used.
    """
    return ScorePolicy(score=Truth(problem=problem), oracle=model.oracle)


@register("policy", "md-known")
def md_known(
    model: Model,
    *,
    problem: World,
    trees: int = 1,
    tau: float = 2.0,
    kappa: float = 1.0,
) -> TreeScorePolicy:
    """Mirror descent on trees with known costs [coester2019pure].

    Args:
        model: The learner's model of the problem.
        problem: The world whose truth is used.
        trees: Number of random trees; episodes take them in turn.
        tau: τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: κ, 1 or more: how fast mirror descent follows the costs.
    """
    return TreeScorePolicy(
        score=Truth(problem=problem),
        metric=_metric(model),
        trees=trees,
        tau=tau,
        kappa=kappa,
    )


@register("policy", "offline")
def offline(model: Model, *, problem: World) -> ScorePolicy:
    """The cheapest way through each episode, with all costs and contexts known in advance.

    Args:
        model: The learner's model of the problem.
        problem: The world whose truth is used.
    """
    if not isinstance(problem, MovementWorld):
        raise InputError(
            "offline needs a problem where moving has a cost, such as movement-field"
        )
    return ScorePolicy(score=Planned(problem=problem), oracle=model.oracle)
