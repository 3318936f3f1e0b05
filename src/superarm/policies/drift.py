"""Algorithms for rewards that drift [bogunovic2016time]. Symbols: ε ``epsilon``, N ``block``."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from superarm.core import Arms, Feedback, Floats, Offer
from superarm.core.errors import InputError
from superarm.core.inputs import require_choice
from superarm.core.registry import register
from superarm.kernels import Columns, Empirical, Matern, Temporal
from superarm.models import Model
from superarm.models.worlds import World
from superarm.posteriors import Resetting, StreamingGP
from superarm.rules import UCB, InBlock, LogarithmicUCB

from .index import IndexPolicy
from .published import index_policy, posterior_for
from .score import ScorePolicy
from .scores import LastTruth


@register("policy", "tv-gp-ucb")
def tv_gp_ucb(
    model: Model,
    *,
    epsilon: float | None = None,
    c1: float = 0.8,
    c2: float = 4.0,
    form: Literal["auto", "cholesky"] = "auto",
) -> IndexPolicy:
    """TV-GP-UCB [bogunovic2016time, Algorithm 2]: old observations fade; widths √(c₁ ln(c₂ t)).

    ``form = "cholesky"`` solves eqs. 7 and 8 as they are printed, with a matrix that grows with every
    round; the other form takes the same time in every round.

    Args:
        model: The learner's model of the problem.
        epsilon: Ε: how much is forgotten per unit of time, the model's own where left out; 0 is no
            drift.
        c1: Multiplies the logarithm.
        c2: Multiplies t inside the logarithm.
        form: Cholesky solves with a matrix that grows every round, as in the paper; auto takes the
            same time in every round.
    """
    require_choice(form, "form", ("auto", "cholesky"))
    known = (
        model if epsilon is None else replace(model, drift=Temporal(epsilon=epsilon))
    )
    rule = UCB(schedule=LogarithmicUCB(c1=c1, c2=c2))
    if form == "auto":
        return index_policy(known, rule, "drifting")
    parts: dict[str, Any] = {"oracle": model.oracle, "direction": model.direction}
    return IndexPolicy(posterior=_growing_posterior(known), rule=rule, **parts)


def _growing_posterior(model: Model) -> StreamingGP:
    """Eqs. 7 and 8 with the kernel k(x, x′)(1 − ε)^{|t − t′|/2}; the time is the last column."""
    if not isinstance(model.drift, Temporal) or model.arms is None:
        message = "form 'cholesky' needs fixed arms and a known epsilon"
        raise InputError(
            f"{message}; give epsilon, or Model(drift=Temporal(epsilon=…), arms=…)"
        )
    if not callable(model.mean) and np.ndim(model.mean) > 0:
        raise InputError("form 'cholesky' takes no prior mean per arm; use form 'auto'")
    columns = model.arms.shape[1]
    space = Columns(kernel=model.kernel, columns=tuple(range(columns)))
    kernel = space * Temporal(epsilon=model.drift.epsilon, column=columns)
    mean: Any = model.mean
    return StreamingGP(kernel, model.noise_variance, mean, form="cholesky", timed=True)


@register("policy", "r-gp-ucb")
def r_gp_ucb(
    model: Model,
    *,
    block: int | str | None = None,
    epsilon: float | None = None,
    in_block: bool = False,
    c1: float = 0.8,
    c2: float = 4.0,
) -> IndexPolicy:
    """R-GP-UCB [bogunovic2016time, Algorithm 1]: GP-UCB that starts anew every ``block`` steps.

    Args:
        model: The learner's model of the problem.
        block: How many steps lie between two resets; "learned" chooses it by cross-validation on
            the model's past; where left out, it is the paper's choice for ε and the kernel.
        epsilon: Ε, from which the block is computed where that is left out; the model's own where
            left out.
        in_block: Whether t in the widths counts only the steps since the last reset.
        c1: Multiplies the logarithm.
        c2: Multiplies t inside the logarithm.
    """
    told = ""
    if isinstance(block, str):
        require_choice(block, "block", ("learned",))
        block, told = _learned_block(model, in_block, c1, c2)
    if block is None:
        drift = model.drift if epsilon is None else Temporal(epsilon=epsilon)
        if not isinstance(drift, Temporal):
            told = "the model does not say how fast rewards drift"
            raise InputError(
                f"{told}; give epsilon, or Model(drift=Temporal(epsilon=…))"
            )
        block = block_length(model, drift.epsilon)
    widths = LogarithmicUCB(c1=c1, c2=c2)
    rule = UCB(schedule=InBlock(schedule=widths, block=block) if in_block else widths)
    posterior = Resetting(posterior_for(model), block=block)  # type: ignore[arg-type]
    parts: dict[str, Any] = {"oracle": model.oracle, "direction": model.direction}
    policy = IndexPolicy(posterior=posterior, rule=rule, **parts)
    policy.interpretations = told
    return policy


BLOCKS = (
    3,
    5,
    10,
    15,
    20,
    30,
    48,
    72,
    144,
)  # lengths that cross-validation chooses from


@lru_cache(maxsize=8)  # runs of other seeds share a model
def _learned_block(
    model: Model, in_block: bool, c1: float, c2: float
) -> tuple[int, str]:
    """The block with the least average regret on past days, each left out of mean and covariance."""
    past = model.past
    if past is None or len(past) < 2:
        told = 'block = "learned" needs at least two past days'
        raise InputError(f"{told}; give block as a number, or Model(past=…)")
    n, regrets = past.shape[2], np.zeros(len(BLOCKS))
    arms = Arms.numbered(np.arange(n, dtype=np.float64)[:, None])
    for day in range(len(past)):
        others = np.delete(past, day, axis=0).reshape(-1, n)
        kernel = Empirical(covariance=np.cov(others, rowvar=False))
        known = replace(
            model, kernel=kernel, mean=others.mean(axis=0), arms=arms.features
        )
        for place, block in enumerate(BLOCKS):
            policy = r_gp_ucb(known, block=block, in_block=in_block, c1=c1, c2=c2)
            regrets[place] += (
                _regret(policy, known, arms, past[day]) / past[:, :, 0].size
            )
    best = BLOCKS[int(np.argmin(regrets))]
    tried = ", ".join(
        f"{block}: {regret:.3g}" for block, regret in zip(BLOCKS, regrets, strict=True)
    )
    told = f"N = {best}, chosen by cross-validation: each of {len(past)} past days was left out in turn"
    return best, f"{told}. Average regret a round, by N: {tried}"


def _regret(policy: IndexPolicy, model: Model, arms: Arms, readings: Floats) -> float:
    """Of a policy that meets these readings (T, n), row by row."""
    rng, total = np.random.default_rng(0), 0.0
    sign = 1.0 if model.direction == "maximize" else -1.0
    for step, row in enumerate(readings, start=1):
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        seen = decision.positions
        policy.learn(offer, decision, Feedback(positions=seen, rewards=row[seen]), rng)
        best = model.oracle.select(sign * row, None, rng).positions
        worths = [
            model.reward.worth(row[chosen], chosen, None) for chosen in (best, seen)
        ]
        total += sign * (worths[0] - worths[1])
    return total


@register("policy", "genie")
def genie(model: Model, *, problem: World) -> ScorePolicy:
    """Not a learner: it knows all of f_{t−1} and plays its maximiser [bogunovic2016time, appendix F].

    For functions that drift as in eqs. 3 and 4, no policy has lower mean regret. In round 1 it knows
    only the prior mean.

    Args:
        model: The learner's model of the problem.
        problem: The world whose truth is used.
    """
    return ScorePolicy(score=LastTruth(problem=problem), oracle=model.oracle)


def block_length(model: Model, epsilon: float) -> int:
    """N = ⌈min(T, 12 ε^{−1/4})⌉; for Matérn's kernel ⌈min(T, 24 ε^{−1/(4−c)})⌉.

    c = d(d+1)/(2ν + d(d+1)). bogunovic2016time, section 5.1 and Corollary 4.1.
    """
    if epsilon == 0.0:
        return model.horizon
    if (
        isinstance(model.kernel, Matern)
        and math.isfinite(model.kernel.nu)
        and model.arms is not None
    ):
        d = model.arms.shape[1]
        c = d * (d + 1.0) / (2.0 * model.kernel.nu + d * (d + 1.0))
        wanted: float = 24.0 * epsilon ** (-1.0 / (4.0 - c))
    else:
        wanted = 12.0 * epsilon**-0.25
    return math.ceil(min(float(model.horizon), wanted))
