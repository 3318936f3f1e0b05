"""Algorithms under their published names: each a small composition of parts.

Every factory takes the learner's :class:`~superarm.models.Model` of the problem and its own
options. Symbols: B ``norm_bound``, R ``noise_bound``, λ ``noise_variance``,
γ ``gain``, T ``horizon``, M ``most_arms``, δ ``delta``.
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast, get_args

import numpy as np

from superarm import posteriors, rules
from superarm.core import Gamma, Posterior, Rule, SwitchingCost
from superarm.core.capabilities import CostsOnly
from superarm.core.errors import InputError
from superarm.core.inputs import as_positive, require_choice, require_part
from superarm.core.registry import build, register
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.models import Model
from superarm.models.worlds import World
from superarm.rules.information import GreedyGrowth

from .discretised import GrowingGrid
from .index import MOST_PENDING, IndexPolicy
from .score import ScorePolicy
from .scores import Truth, Uniform

# Posteriors over feature rows: arms may change from round to round.
_RowPosteriorName = Literal[
    "streaming", "inducing", "variational", "variational-kept", "variational-fitted"
]
PosteriorName = Literal["auto", "finite", _RowPosteriorName, "independent", "drifting"]
GainChoice = Literal["growth", "realised", "greedy"]
# Rate of the natural gradient steps on ς, as of those on q (appendix B.3).
_NOISE_RATE = 0.1
# Error of the kernel of time, relative to its variance. A periodic kernel has fewer terms than
# with the default, and no decision depends on a millionth of the variance.
_TIME_TOLERANCE = 1e-6


def posterior_for(
    model: Model,
    posterior: PosteriorName = "auto",
    form: str = "auto",
    inducing: int = 50,
) -> Posterior:
    """A posterior that fits the model.

    Args:
        model: The learner's model of the problem.
        posterior: Which posterior; "auto": "finite" for fixed arms, otherwise "streaming".
        form: The form of an exact posterior; "auto" chooses by cost.
        inducing: Most inducing points of the posterior "inducing".
    """
    require_choice(posterior, "posterior", get_args(PosteriorName))
    if posterior == "auto":
        posterior = "streaming" if model.arms is None else "finite"
    if posterior in get_args(_RowPosteriorName):
        return _row_posterior(model, posterior, form, inducing)
    return _fixed_posterior(model, posterior, form)


def _row_posterior(
    model: Model, posterior: PosteriorName, form: Any, inducing: int
) -> Posterior:
    """A posterior over feature rows."""
    kernel = model.kernel
    noise = model.noise_variance
    mean: Any = model.mean
    if not callable(mean) and np.ndim(mean) > 0:
        raise InputError(
            "a prior mean per arm needs fixed arms: use posterior 'finite', or a function of the "
            "features such as ByNumber(values=…)"
        )
    if posterior == "inducing":
        return posteriors.InducingGP(kernel, noise, mean, inducing=inducing)
    if posterior == "streaming":
        return posteriors.StreamingGP(kernel, noise, mean, form=form)
    options: dict[str, Any] = {}
    if posterior == "variational-fitted":
        options["noise_rate"] = _NOISE_RATE
    return posteriors.SparseVariational(
        kernel,
        noise,
        mean,
        discrete_columns=model.discrete_columns,
        restart=posterior != "variational-kept",
        **options,
    )


def _fixed_posterior(model: Model, posterior: PosteriorName, form: Any) -> Posterior:
    """A posterior over fixed arms."""
    arms = model.arms
    kernel = model.kernel
    noise = model.noise_variance
    mean: Any = model.mean
    if arms is None:
        raise InputError(
            f"posterior {posterior!r} needs fixed arms, but these change every round"
        )
    if posterior == "finite":
        return posteriors.FiniteGP(kernel, arms, noise, mean, form=form)
    if posterior == "drifting":
        drift: Any = model.drift
        if drift is None:
            raise InputError(
                "the model does not say how rewards drift; give Model(drift=…), such as "
                "Temporal(epsilon=0.01); 'tv-gp-ucb' also takes epsilon"
            )
        return posteriors.DriftingGP(
            kernel, arms, noise, mean, drift=drift, time_tolerance=_TIME_TOLERANCE
        )
    return posteriors.IndependentGaussian(kernel.diag(arms), noise, mean, arms=arms)


def gamma_for(model: Model, gain: GainChoice = "growth") -> Gamma | None:
    """γ as a function of the step; ``None``: the rule uses the information gain realised so far.

    Args:
        model: The learner's model of the problem.
        gain: What stands for γ: a growth rate, the gain realised so far, or a bound from greedy
            selection.
    """
    require_choice(gain, "gain", get_args(GainChoice))
    if gain == "realised":
        return None
    if gain == "growth":
        if model.gain is None:
            raise InputError(
                "the model names no growth rate for γ; use gain 'realised' or 'greedy'"
            )
        return cast(Gamma, build("gain", model.gain))
    if model.arms is None:
        raise InputError(
            "greedy information gain needs fixed arms; use gain 'realised'"
        )
    kernel: Any = model.kernel
    return GreedyGrowth(
        kernel=kernel,
        candidates=model.arms,
        noise_variance=model.noise_variance,
        horizon=model.horizon,
    )


def index_policy(
    model: Model,
    rule: Rule,
    posterior: PosteriorName = "auto",
    form: str = "auto",
    **options: Any,
) -> IndexPolicy:
    """A rule on a posterior of the model, with the model's oracle.

    Args:
        model: The learner's model of the problem.
        rule: The rule.
        posterior: Which posterior; "auto" chooses by the model's arms.
        form: The form of an exact posterior; "auto" chooses by cost.
        options: Further parameters of :class:`IndexPolicy`.
    """
    policy = IndexPolicy(
        posterior=posterior_for(model, posterior, form),
        rule=rule,
        oracle=model.oracle,
        direction=model.direction,
        **options,
    )
    if model.drift is not None and posterior != "drifting":
        policy.interpretations = 'its posterior does not know how rewards drift; posterior = "drifting" would'
    return policy


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
        gain: What stands for the information gain γ: a growth rate, the gain realised so far, or a
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
        gain: What stands for the information gain γ: a growth rate, the gain realised so far, or a
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
    """GP-Thompson-sampling [chowdhury2017kernelized, Algorithm 2], or on section 4.2's D_t.

    Args:
        model: The learner's model of the problem.
        delta: Probability with which the confidence bounds may fail.
        gain: What stands for the information gain γ: a growth rate, the gain realised so far, or a
            bound from greedy selection.
        mode: "joint" draws all arms together, "independent" each from its own marginal.
        scaled: Whether samples are widened by v_t; otherwise v_t is 1.
        decision_set: "all" arms, or "discretised": only those that stand for a grid that grows
            finer, as Theorem 4 of On Kernelized Multi-armed Bandits (2017) assumes.
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
        form: Which of the equivalent forms does the algebra; "auto" chooses by cost.
        stepwise: Whether the oracle builds a super arm one arm after another, with the arms chosen
            so far taken as seen.
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
        stepwise: Whether the oracle builds a super arm one arm after another, with the arms chosen
            so far taken as seen.
        switching: What it costs to leave the previous action; ``None``: nothing.
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


def known(model: Model, *names: str) -> dict[str, float]:
    """Fields of the model by name; an error if one is not stated.

    Args:
        model: The learner's model of the problem.
        names: Names of the fields.
    """
    fields = {}
    for name in names:
        value = getattr(model, name)
        if value is None:
            raise InputError(
                f"this policy needs {name}, which the model does not state; give Model({name}=…), or "
                "use a policy without it (gp-ts with scaled=False, gp-bucb, gp-ei)"
            )
        fields[name] = value
    return fields


def arm_count(model: Model) -> int:
    """The largest number of arms in a round.

    Args:
        model: The learner's model of the problem.
    """
    if model.most_arms is not None:
        return model.most_arms
    if model.arms is not None:
        return len(model.arms)
    raise InputError("this policy needs most_arms, which the model does not state")
