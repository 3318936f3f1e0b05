"""Parts and policies that fit a model: what the published algorithms are composed of."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np

from superarm import posteriors
from superarm.core import Gamma, Posterior, Rule
from superarm.core.errors import InputError
from superarm.core.inputs import require_choice
from superarm.core.registry import build
from superarm.models import Model
from superarm.rules.information import GreedyGrowth

from .index import IndexPolicy

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
