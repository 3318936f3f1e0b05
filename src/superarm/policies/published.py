"""Algorithms under their published names: each a small composition of parts.

Every factory takes the learner's :class:`~superarm.models.Model` of the problem and its own
options. Symbols: B ``norm_bound``, R ``noise_bound``, λ ``noise_variance``,
γ ``gain``, T ``horizon``, M ``most_arms``, δ ``delta``.
"""

from __future__ import annotations

import math
from typing import Literal

from superarm import rules
from superarm.core import Rule, SwitchingCost
from superarm.core.capabilities import CostsOnly
from superarm.core.errors import InputError
from superarm.core.inputs import as_positive, require_choice, require_part
from superarm.core.registry import register
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.models import Model
from superarm.models.worlds import World

from .discretised import GrowingGrid
from .from_model import (
    GainChoice,
    PosteriorName,
    arm_count,
    gamma_for,
    index_policy,
    known,
    posterior_for,
)
from .index import MOST_PENDING, IndexPolicy
from .score import ScorePolicy
from .scores import Truth, Uniform


@register("policy", "igp-ucb")
def igp_ucb(
    model: Model,
    *,
    delta: float = 0.1,
    gain: GainChoice = "growth",
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """Improved GP-UCB [chowdhury2017kernelized, Algorithm 1].

    Args:
        model: The learner's model of the problem.
        delta: Probability with which the confidence bounds may fail.
        gain: What to use as the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    bounds = known(model, "norm_bound", "noise_bound")
    schedule = rules.ImprovedGPUCB(**bounds, delta=delta)
    rule = rules.UCB(schedule=schedule, gamma=gamma_for(model, gain))
    return index_policy(model, rule, posterior)


@register("policy", "gp-ucb")
def gp_ucb(
    model: Model,
    *,
    delta: float = 0.1,
    gain: GainChoice = "growth",
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """GP-UCB in the agnostic setting [srinivas2010gaussian, Theorem 3].

    Args:
        model: The learner's model of the problem.
        delta: Probability with which the confidence bounds may fail.
        gain: What to use as the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    bounds = known(model, "norm_bound")
    schedule = rules.AgnosticGPUCB(**bounds, delta=delta)
    rule = rules.UCB(schedule=schedule, gamma=gamma_for(model, gain))
    return index_policy(model, rule, posterior)


@register("policy", "gp-ucb-bayesian")
def gp_ucb_bayesian(
    model: Model, *, scale: float = 1.0, posterior: PosteriorName = "auto"
) -> IndexPolicy:
    """GP-UCB with the finite-arm β_t of [sandberg2025bayesian, Theorem 3.2].

    Args:
        model: The learner's model of the problem.
        scale: Multiplies the width.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    schedule = rules.BayesianGPUCB(arms=arm_count(model), scale=scale)
    return index_policy(model, rules.UCB(schedule=schedule), posterior)


@register("policy", "gp-bucb")
def gp_bucb(
    model: Model,
    *,
    omega: float = 1.0,
    xi: float = 1.0,
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """Bayes-UCB on a Gaussian process: an upper quantile of the posterior.

    Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025) calls it GP-BUCB. It is not the
    batch algorithm of the same name in Parallelizing Exploration-Exploitation Tradeoffs in Gaussian
    Process Bandit Optimization (2014).

    Args:
        model: The learner's model of the problem.
        omega: ω: exponent of the number of arms in the quantile.
        xi: ξ: exponent of t in the quantile.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    schedule = rules.BayesUCBQuantile(arms=arm_count(model), omega=omega, xi=xi)
    return index_policy(model, rules.BayesUCB(schedule=schedule), posterior)


@register("policy", "gp-ts")
def gp_ts(
    model: Model,
    *,
    delta: float = 0.1,
    gain: GainChoice = "growth",
    mode: Literal["joint", "independent"] = "joint",
    scaled: bool = True,
    decision_set: Literal["all", "discretised"] = "all",
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """GP-Thompson-sampling [chowdhury2017kernelized, Algorithm 2].

    Args:
        model: The learner's model of the problem.
        delta: Probability with which the confidence bounds may fail.
        gain: What to use as the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        mode: "joint" draws all arms together, "independent" each from its own marginal.
        scaled: Whether to widen samples by v_t; otherwise v_t is 1.
        decision_set: "all" arms, or "discretised": only those that stand for the points of a grid
            that grows finer: D_t of section 4.2, which Theorem 4 of On Kernelized Multi-armed Bandits
            (2017) assumes.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    require_choice(decision_set, "decision_set", ("all", "discretised"))
    rule = rules.Thompson(mode=mode)
    if scaled:
        bounds = known(model, "norm_bound", "noise_bound")
        schedule = rules.ThompsonScale(**bounds, delta=delta)
        gamma = gamma_for(model, gain)
        rule = rules.Thompson(mode=mode, schedule=schedule, gamma=gamma)
    grid = _grid(model) if decision_set == "discretised" else None
    return index_policy(model, rule, posterior, decision_set=grid)


def _grid(model: Model) -> GrowingGrid:
    if model.arms is None:
        raise InputError(
            "a discretised decision set needs fixed arms; use decision_set 'all'"
        )
    lower = model.arms.min(axis=0)
    upper = model.arms.max(axis=0)
    bounds = known(model, "norm_bound")
    return GrowingGrid(
        **bounds,
        lipschitz=lipschitz_of_kernel(model.kernel),
        lower=lower,
        side=float((upper - lower).max()),
    )


@register("policy", "gp-ei")
def gp_ei(
    model: Model, *, xi: float = 0.01, posterior: PosteriorName = "auto"
) -> IndexPolicy:
    """Expected improvement over the best posterior mean among arms played.

    Args:
        model: The learner's model of the problem.
        xi: By how much an arm must exceed the best so far to count as an improvement.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    return index_policy(model, rules.ExpectedImprovement(xi=xi), posterior)


@register("policy", "gp-pi")
def gp_pi(
    model: Model, *, xi: float = 0.01, posterior: PosteriorName = "auto"
) -> IndexPolicy:
    """Probability of improvement over the best posterior mean among arms played.

    Args:
        model: The learner's model of the problem.
        xi: By how much an arm must exceed the best so far to count as an improvement.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    return index_policy(model, rules.ProbabilityOfImprovement(xi=xi), posterior)


@register("policy", "kernel-ucb")
def kernel_ucb(
    model: Model,
    *,
    eta: float | None = None,
    delta: float = 0.1,
    posterior: PosteriorName = "auto",
) -> IndexPolicy:
    """KernelUCB [valko2013finite]: width η/√λ.

    Args:
        model: The learner's model of the problem.
        eta: η: how much to explore; ``None``: R √(2 ln(2TN/δ)), the published choice for noise of
            scale 1, times the noise bound R.
        delta: Probability with which the confidence bounds may fail.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    if eta is None:
        delta = as_positive(delta, "delta")
        tail = 2.0 * model.horizon * arm_count(model) / delta
        noise_bound = known(model, "noise_bound")["noise_bound"]
        eta = noise_bound * math.sqrt(2.0 * math.log(tail))
    schedule = rules.KernelUCB(eta=eta, regularisation=model.noise_variance)
    return index_policy(model, rules.UCB(schedule=schedule), posterior)


@register("policy", "oclok-ucb")
def oclok_ucb(
    model: Model,
    *,
    delta: float = 0.05,
    posterior: PosteriorName = "auto",
    form: str = "auto",
    stepwise: bool = False,
) -> IndexPolicy:
    """O'CLOK-UCB [nika2022oclok, Algorithm 1]: optimism for changing arms and super arms.

    Args:
        model: The learner's model of the problem.
        delta: Probability with which the confidence bounds may fail.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
        form: Which of the equivalent forms to use; "auto" chooses by cost.
        stepwise: Whether the oracle builds a super arm one arm after another, counting the arms chosen
            so far as observed.
    """
    schedule = rules.OclokUCB(most_arms=arm_count(model), delta=delta)
    rule = rules.UCB(schedule=schedule)
    return index_policy(model, rule, posterior, form, stepwise=stepwise)


@register("policy", "soclok-ucb")
def soclok_ucb(model: Model, *, inducing: int = 50, delta: float = 0.05) -> IndexPolicy:
    """SO'CLOK-UCB [nika2022oclok, section 5.1.2]: O'CLOK-UCB on inducing points, redrawn each round.

    Args:
        model: The learner's model of the problem.
        inducing: Most inducing points.
        delta: Probability with which the confidence bounds may fail.
    """
    schedule = rules.OclokUCB(most_arms=arm_count(model), delta=delta)
    return IndexPolicy(
        posterior=posterior_for(model, "inducing", inducing=inducing),
        rule=rules.UCB(schedule=schedule),
        oracle=model.oracle,
        direction=model.direction,
    )


@register("policy", "gp-greedy")
def gp_greedy(model: Model, *, posterior: PosteriorName = "auto") -> IndexPolicy:
    """The best posterior mean, without exploration.

    Args:
        model: The learner's model of the problem.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
    """
    return index_policy(model, rules.Greedy(), posterior)


@register("policy", "composed")
def composed(
    model: Model,
    *,
    rule: Rule,
    posterior: PosteriorName = "auto",
    stepwise: bool = False,
    switching: SwitchingCost | None = None,
    most_pending: int = MOST_PENDING,
) -> IndexPolicy:
    """Any registered rule on the model's posterior: your own composition from a TOML file.

    Args:
        model: The learner's model of the problem.
        rule: The rule, which scores every arm by the posterior's belief.
        posterior: Which posterior; "auto" chooses by the model's arms, "drifting" is for rewards
            that drift.
        stepwise: Whether the oracle builds a super arm one arm after another, counting the arms chosen
            so far as observed.
        switching: The cost of leaving the previous action; ``None``: no cost.
        most_pending: Most pending arms that count, those chosen last; 0 counts none.
    """
    require_part(rule, Rule, "rule")
    needs_fixed_arms = isinstance(switching, SwitchingCost) and switching.fixed_arms
    if needs_fixed_arms and model.arms is None:
        raise InputError(
            f"{type(switching).__name__} knows arms by their positions, but here arms change from "
            "round to round; write a switching cost that reads what your action holds"
        )
    return index_policy(
        model,
        rule,
        posterior,
        stepwise=stepwise,
        switching=switching,
        most_pending=most_pending,
    )


@register("policy", "random")
def random(model: Model) -> ScorePolicy:
    """Arms at random.

    Args:
        model: The learner's model of the problem.
    """
    takes_costs = isinstance(model.oracle, CostsOnly)
    return ScorePolicy(score=Uniform(costs=takes_costs), oracle=model.oracle)


@register("policy", "benchmark")
def benchmark(model: Model, *, problem: World) -> ScorePolicy:
    """The oracle on the true means: what regret is measured against.

    Args:
        model: The learner's model of the problem.
        problem: The world whose truth is used.
    """
    return ScorePolicy(score=Truth(problem=problem), oracle=model.oracle)
