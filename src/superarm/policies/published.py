"""Algorithms under their published names: each a small composition of parts.

Every factory takes the :class:`~superarm.models.Model` that says what the learner is told,
and its own options. Symbols: B ``norm_bound``, R ``noise_bound``, λ ``noise_variance``,
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
from superarm.core.inputs import as_positive, require_choice
from superarm.core.registry import build, register
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.models import Model
from superarm.models.worlds import World
from superarm.rules.base import require_part
from superarm.rules.information import GreedyGrowth

from .discretised import GrowingGrid
from .index import MOST_PENDING, IndexPolicy
from .score import ScorePolicy
from .scores import Truth, Uniform

_OfRows = Literal[
    "streaming", "inducing", "variational", "variational-kept", "variational-fitted"
]
PosteriorName = Literal["auto", "finite", _OfRows, "independent", "drifting"]
GainChoice = Literal["growth", "realised", "greedy"]
_NOISE_RATE = 0.1  # of the natural gradient steps on ς, as of those on q (appendix B.3)


def posterior_for(
    model: Model,
    posterior: PosteriorName = "auto",
    form: str = "auto",
    inducing: int = 50,
) -> Posterior:
    """The exact posterior that fits the model, over its fixed arms where it has them; or another."""
    require_choice(posterior, "posterior", get_args(PosteriorName))
    if posterior == "auto":
        posterior = "streaming" if model.arms is None else "finite"
    options: dict[str, Any] = {"form": form}
    kernel, noise = model.kernel, model.noise_variance
    mean: Any = model.mean
    if posterior in get_args(_OfRows):
        if not callable(mean) and np.ndim(mean) > 0:
            advice = "use posterior 'finite', or a function of the features such as ByNumber(values=…)"
            raise InputError(f"a prior mean per arm needs fixed arms: {advice}")
        if posterior == "inducing":
            return posteriors.InducingGP(kernel, noise, mean, inducing=inducing)
        if posterior == "streaming":
            return posteriors.StreamingGP(kernel, noise, mean, **options)
        options = {"discrete_columns": model.discrete_columns}
        options["restart"] = posterior != "variational-kept"
        if posterior == "variational-fitted":
            options["noise_rate"] = _NOISE_RATE
        return posteriors.SparseVariational(kernel, noise, mean, **options)
    if model.arms is None:
        raise InputError(
            f"posterior {posterior!r} needs fixed arms, but these change every round"
        )
    if posterior == "finite":
        return posteriors.FiniteGP(kernel, model.arms, noise, mean, **options)
    if posterior == "drifting":
        if model.drift is None:
            told = "the model does not say how rewards drift; give Model(drift=…)"
            raise InputError(
                f"{told}, such as Temporal(epsilon=0.01); 'tv-gp-ucb' also takes epsilon"
            )
        # What is periodic has fewer terms so, and no decision depends on a millionth of the variance.
        options = {"drift": model.drift, "time_tolerance": 1e-6}
        return posteriors.DriftingGP(kernel, model.arms, noise, mean, **options)
    return posteriors.IndependentGaussian(
        kernel.diag(model.arms), noise, mean, arms=model.arms
    )


def gamma_for(model: Model, gain: GainChoice = "growth") -> Gamma | None:
    """γ as a callable; ``None`` asks the rule to use the information gain realised so far."""
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
    sizes: dict[str, Any] = {
        "noise_variance": model.noise_variance,
        "horizon": model.horizon,
    }
    return GreedyGrowth(kernel=model.kernel, candidates=model.arms, **sizes)


def index_policy(
    model: Model,
    rule: Rule,
    posterior: PosteriorName = "auto",
    form: str = "auto",
    **options: Any,
) -> IndexPolicy:
    """A rule on the model's own posterior and oracle; ``options`` are those of the policy."""
    engine = posterior_for(model, posterior, form)
    parts: dict[str, Any] = {
        "oracle": model.oracle,
        "direction": model.direction,
        **options,
    }
    policy = IndexPolicy(posterior=engine, rule=rule, **parts)
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
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
    """
    schedule = rules.ImprovedGPUCB(
        **known(model, "norm_bound", "noise_bound"), delta=delta
    )
    return index_policy(
        model, rules.UCB(schedule=schedule, gamma=gamma_for(model, gain)), posterior
    )


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
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
    """
    schedule = rules.AgnosticGPUCB(**known(model, "norm_bound"), delta=delta)
    return index_policy(
        model, rules.UCB(schedule=schedule, gamma=gamma_for(model, gain)), posterior
    )


@register("policy", "gp-ucb-bayesian")
def gp_ucb_bayesian(
    model: Model, *, scale: float = 1.0, posterior: PosteriorName = "auto"
) -> IndexPolicy:
    """GP-UCB with the finite-arm β_t of [sandberg2025bayesian, Theorem 3.2].

    Args:
        model: The learner's model of the problem.
        scale: Multiplies the width or the cost.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
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
        omega: Exponent of the number of arms.
        xi: Exponent of t in the quantile.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
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
        mode: Joint draws all arms together, independent draws each from its own marginal.
        scaled: Whether samples are widened by v_t; else v_t = 1.
        decision_set: All arms, or only those that stand for a grid that grows finer, as Theorem 4
            of On Kernelized Multi-armed Bandits (2017) assumes.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
    """
    require_choice(decision_set, "decision_set", ("all", "discretised"))
    rule = rules.Thompson(mode=mode)
    if scaled:
        schedule = rules.ThompsonScale(
            **known(model, "norm_bound", "noise_bound"), delta=delta
        )
        rule = rules.Thompson(
            mode=mode, schedule=schedule, gamma=gamma_for(model, gain)
        )
    kept = _grid(model) if decision_set == "discretised" else None
    return index_policy(model, rule, posterior, decision_set=kept)


def _grid(model: Model) -> GrowingGrid:
    if model.arms is None:
        raise InputError(
            "a discretised decision set needs fixed arms; use decision_set 'all'"
        )
    lower, upper = model.arms.min(axis=0), model.arms.max(axis=0)
    bounds = {
        **known(model, "norm_bound"),
        "lipschitz": lipschitz_of_kernel(model.kernel),
    }
    return GrowingGrid(**bounds, lower=lower, side=float((upper - lower).max()))


@register("policy", "gp-ei")
def gp_ei(
    model: Model, *, xi: float = 0.01, posterior: PosteriorName = "auto"
) -> IndexPolicy:
    """Expected improvement over the best posterior mean among arms played.

    Args:
        model: The learner's model of the problem.
        xi: By how much an arm must exceed the best so far to count as an improvement.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
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
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
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

    Where ``eta`` is not given it is R √(2 ln(2TN/δ)): the published choice for noise of scale 1,
    times the noise bound R.

    Args:
        model: The learner's model of the problem.
        eta: How much to explore.
        delta: Probability with which the confidence bounds may fail.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
    """
    if eta is None:
        delta = as_positive(delta, "delta")
        tail = 2.0 * model.horizon * arm_count(model) / delta
        eta = known(model, "noise_bound")["noise_bound"] * math.sqrt(
            2.0 * math.log(tail)
        )
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
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        form: Which of the equivalent engines does the algebra; auto chooses.
        stepwise: Whether a super arm is built arm by arm, counting the arms chosen so far as seen.
    """
    schedule = rules.OclokUCB(most_arms=arm_count(model), delta=delta)
    return index_policy(
        model, rules.UCB(schedule=schedule), posterior, form, stepwise=stepwise
    )


@register("policy", "soclok-ucb")
def soclok_ucb(model: Model, *, inducing: int = 50, delta: float = 0.05) -> IndexPolicy:
    """SO'CLOK-UCB [nika2022oclok, section 5.1.2]: O'CLOK-UCB on inducing points, redrawn each round.

    Args:
        model: The learner's model of the problem.
        inducing: How many inducing points, at most.
        delta: Probability with which the confidence bounds may fail.
    """
    schedule = rules.OclokUCB(most_arms=arm_count(model), delta=delta)
    engine = posterior_for(model, "inducing", inducing=inducing)
    parts: dict[str, Any] = {"oracle": model.oracle, "direction": model.direction}
    return IndexPolicy(posterior=engine, rule=rules.UCB(schedule=schedule), **parts)


@register("policy", "gp-greedy")
def gp_greedy(model: Model, *, posterior: PosteriorName = "auto") -> IndexPolicy:
    """The best posterior mean, without exploration.

    Args:
        model: The learner's model of the problem.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
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
        rule: The rule.
        posterior: Which posterior; auto chooses by the model's arms; drifting is for rewards that
            drift.
        stepwise: Whether a super arm is built arm by arm, counting the arms chosen so far as seen.
        switching: What it costs to leave the previous action.
        most_pending: How many chosen arms without feedback are taken into account, at most.
    """
    require_part(rule, "rule", "rule")
    if (
        isinstance(switching, SwitchingCost)
        and switching.fixed_arms
        and model.arms is None
    ):
        raise InputError(
            f"{type(switching).__name__} knows arms by their positions, but here arms change from "
            "round to round; write a switching cost that reads what your action holds"
        )
    options: dict[str, Any] = {"stepwise": stepwise, "most_pending": most_pending}
    return index_policy(model, rule, posterior, switching=switching, **options)


@register("policy", "random")
def random(model: Model) -> ScorePolicy:
    """Arms at random.

    Args:
        model: The learner's model of the problem.
    """
    return ScorePolicy(
        score=Uniform(costs=isinstance(model.oracle, CostsOnly)), oracle=model.oracle
    )


@register("policy", "benchmark")
def benchmark(model: Model, *, problem: World) -> ScorePolicy:
    """The oracle on the true means: what regret is measured against.

    Args:
        model: The learner's model of the problem.
        problem: The world whose truth is used.
    """
    return ScorePolicy(score=Truth(problem=problem), oracle=model.oracle)


def known(model: Model, *names: str) -> dict[str, float]:
    """What the model states under these names."""
    for name in names:
        if getattr(model, name) is None:
            raise InputError(
                f"this policy needs {name}, which the model does not state; give Model({name}=…), or "
                "use a policy without it (gp-ts with scaled=False, gp-bucb, gp-ei)"
            )
    return {name: getattr(model, name) for name in names}


def arm_count(model: Model) -> int:
    if model.most_arms is not None:
        return model.most_arms
    if model.arms is not None:
        return len(model.arms)
    raise InputError("this policy needs most_arms, which the model does not state")
