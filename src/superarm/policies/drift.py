"""Algorithms for rewards that drift [bogunovic2016time]. Symbols: ε ``epsilon``, N ``block``."""

from __future__ import annotations

import math
from dataclasses import replace

from superarm.errors import InputError
from superarm.kernels import Matern, Temporal
from superarm.models import Model
from superarm.posteriors import Resetting
from superarm.problems.base import World
from superarm.registry import register
from superarm.rules import UCB, LogarithmicUCB

from .base import IndexPolicy, ScorePolicy
from .published import index_policy, posterior_for
from .scores import LastTruth


def _epsilon(model: Model, epsilon: float | None) -> float:
    if epsilon is not None:
        return epsilon
    if not isinstance(model.drift, Temporal):
        raise InputError("how fast rewards drift is not known: give epsilon, or Model(drift=…)")
    return model.drift.epsilon


@register("policy", "tv-gp-ucb")
def tv_gp_ucb(
    model: Model, *, epsilon: float | None = None, c1: float = 0.8, c2: float = 4.0
) -> IndexPolicy:
    """TV-GP-UCB [bogunovic2016time, Algorithm 2]: old observations fade; widths √(c₁ ln(c₂ t)).

    ``epsilon`` is the model's own where it is left out; 0 is GP-UCB with the same widths.
    """
    known = model if epsilon is None else replace(model, drift=Temporal(epsilon=epsilon))
    return index_policy(known, UCB(schedule=LogarithmicUCB(c1=c1, c2=c2)), "drifting")


@register("policy", "r-gp-ucb")
def r_gp_ucb(
    model: Model,
    *,
    block: int | None = None,
    epsilon: float | None = None,
    c1: float = 0.8,
    c2: float = 4.0,
) -> IndexPolicy:
    """R-GP-UCB [bogunovic2016time, Algorithm 1]: GP-UCB that starts anew every ``block`` steps.

    Where it is left out, the block is what the paper uses for ε and the kernel.
    """
    length = block_length(model, _epsilon(model, epsilon)) if block is None else block
    rule = UCB(schedule=LogarithmicUCB(c1=c1, c2=c2))
    return IndexPolicy(
        posterior=Resetting(posterior_for(model), block=length),  # type: ignore[arg-type]
        rule=rule,
        oracle=model.oracle,
        direction=model.direction,
    )


@register("policy", "genie")
def genie(model: Model, *, problem: World) -> ScorePolicy:
    """It knows all of f_{t−1} and plays its maximiser [bogunovic2016time, appendix F]; no learner.

    For functions that drift as in eqs. 3 and 4 this is a line below which no policy falls in the mean.
    In round 1 it knows the prior mean alone.
    """
    return ScorePolicy(score=LastTruth(problem=problem), oracle=model.oracle)


def block_length(model: Model, epsilon: float) -> int:
    """N = ⌈min(T, 12 ε^{−1/4})⌉; for Matérn's kernel ⌈min(T, 24 ε^{−1/(4−c)})⌉.

    c = d(d+1)/(2ν + d(d+1)). bogunovic2016time, section 5.1 and Corollary 4.1.
    """
    if epsilon == 0.0:
        return model.horizon
    if isinstance(model.kernel, Matern) and math.isfinite(model.kernel.nu) and model.arms is not None:
        d = model.arms.shape[1]
        c = d * (d + 1.0) / (2.0 * model.kernel.nu + d * (d + 1.0))
        wanted: float = 24.0 * epsilon ** (-1.0 / (4.0 - c))
    else:
        wanted = 12.0 * epsilon**-0.25
    return math.ceil(min(float(model.horizon), wanted))
