"""Algorithms for rewards that drift [bogunovic2016time]. Symbols: ε ``epsilon``, N ``block``."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Arms, Feedback, Floats, Offer, Schedule
from superarm.core.errors import InputError
from superarm.core.inputs import require_choice
from superarm.core.registry import register
from superarm.kernels import Columns, Empirical, Matern, Temporal
from superarm.models import Model
from superarm.models.worlds import World
from superarm.posteriors import Resetting, StreamingGP
from superarm.rules import UCB, InBlock, LogarithmicUCB

from .from_model import index_policy, posterior_for
from .index import IndexPolicy
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

    Args:
        model: The learner's model of the problem.
        epsilon: ε: how much is forgotten per unit of time, 0 for no drift; ``None``: that of the
            model.
        c1: c₁, which multiplies the logarithm.
        c2: c₂, which multiplies t inside the logarithm.
        form: "cholesky" solves eqs. 7 and 8 as they are printed, with a matrix that grows with
            every round; "auto" takes the same time in every round.
    """
    require_choice(form, "form", ("auto", "cholesky"))
    if epsilon is not None:
        model = replace(model, drift=Temporal(epsilon=epsilon))
    rule = UCB(schedule=LogarithmicUCB(c1=c1, c2=c2))
    if form == "auto":
        return index_policy(model, rule, "drifting")
    return IndexPolicy(
        posterior=_growing_posterior(model),
        rule=rule,
        oracle=model.oracle,
        direction=model.direction,
    )


def _growing_posterior(model: Model) -> StreamingGP:
    """Eqs. 7 and 8 with the kernel k(x, x′)(1 − ε)^{|t − t′|/2}; the time is the last column."""
    if not isinstance(model.drift, Temporal) or model.arms is None:
        raise InputError(
            "form 'cholesky' needs fixed arms and a known epsilon; give epsilon, or "
            "Model(drift=Temporal(epsilon=…), arms=…)"
        )
    if not callable(model.mean) and np.ndim(model.mean) > 0:
        raise InputError("form 'cholesky' takes no prior mean per arm; use form 'auto'")
    columns = model.arms.shape[1]
    time_column = columns  # after those of the arms
    arm_kernel = Columns(kernel=model.kernel, columns=tuple(range(columns)))
    time_kernel = Temporal(epsilon=model.drift.epsilon, column=time_column)
    kernel = arm_kernel * time_kernel
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
    """R-GP-UCB [bogunovic2016time, Algorithm 1]: GP-UCB that resets every ``block`` steps.

    Args:
        model: The learner's model of the problem.
        block: Steps between two resets; "learned" chooses them by cross-validation on the model's
            past; ``None``: the paper's choice for ε and the kernel.
        epsilon: ε, from which the block is computed if it is ``None``; ``None``: that of the model.
        in_block: Whether t in the widths counts only the steps since the last reset.
        c1: c₁, which multiplies the logarithm.
        c2: c₂, which multiplies t inside the logarithm.
    """
    description = ""
    if isinstance(block, str):
        require_choice(block, "block", ("learned",))
        block, description = _learned_block(model, in_block, c1, c2)
    if block is None:
        drift = model.drift if epsilon is None else Temporal(epsilon=epsilon)
        if not isinstance(drift, Temporal):
            raise InputError(
                "the model does not say how fast rewards drift; give epsilon, or "
                "Model(drift=Temporal(epsilon=…))"
            )
        block = block_length(model, drift.epsilon)
    schedule: Schedule = LogarithmicUCB(c1=c1, c2=c2)
    if in_block:
        schedule = InBlock(schedule=schedule, block=block)
    posterior = Resetting(posterior_for(model), block=block)  # type: ignore[arg-type]
    policy = IndexPolicy(
        posterior=posterior,
        rule=UCB(schedule=schedule),
        oracle=model.oracle,
        direction=model.direction,
    )
    policy.interpretations = description
    return policy


BLOCKS = (3, 5, 10, 15, 20, 30, 48, 72, 144)
"""Lengths that cross-validation chooses from."""


class _LearnedBlock(NamedTuple):
    """A block length, and how it was chosen."""

    length: int
    description: str


@lru_cache(maxsize=8)  # runs of other seeds share a model
def _learned_block(model: Model, in_block: bool, c1: float, c2: float) -> _LearnedBlock:
    """The block with the least average regret on past days, each left out of mean and covariance."""
    past = model.past  # (days, rounds, n)
    if past is None or len(past) < 2:
        raise InputError(
            'block = "learned" needs at least two past days; give block as a number, or '
            "Model(past=…)"
        )
    days, rounds, n = past.shape
    numbers = np.arange(n, dtype=np.float64)
    arms = Arms.numbered(numbers[:, None])
    regrets = np.zeros(len(BLOCKS))
    for day in range(days):
        other_days = np.delete(past, day, axis=0).reshape(-1, n)
        covariance = np.cov(other_days, rowvar=False)
        day_model = replace(
            model,
            kernel=Empirical(covariance=covariance),
            mean=other_days.mean(axis=0),
            arms=arms.features,
        )
        for place, block in enumerate(BLOCKS):
            policy = r_gp_ucb(day_model, block=block, in_block=in_block, c1=c1, c2=c2)
            regret = _regret(policy, day_model, arms, past[day])
            regrets[place] += regret / (days * rounds)
    best = BLOCKS[int(np.argmin(regrets))]
    by_block = zip(BLOCKS, regrets, strict=True)
    results = ", ".join(f"{block}: {regret:.3g}" for block, regret in by_block)
    return _LearnedBlock(
        best,
        f"N = {best}, chosen by cross-validation: each of {days} past days was left out in turn. "
        f"Average regret a round, by N: {results}",
    )


def _regret(policy: IndexPolicy, model: Model, arms: Arms, readings: Floats) -> float:
    """The regret of a policy over these rewards, (T, n)."""
    rng = np.random.default_rng(0)
    sign = 1.0 if model.direction == "maximize" else -1.0
    total = 0.0
    for step, rewards in enumerate(readings, start=1):
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        chosen = decision.positions
        feedback = Feedback(positions=chosen, rewards=rewards[chosen])
        policy.learn(offer, decision, feedback, rng)
        selection = model.oracle.select(sign * rewards, None, rng)
        best = selection.positions
        best_worth = model.reward.worth(rewards[best], best, None)
        worth = model.reward.worth(rewards[chosen], chosen, None)
        total += sign * (best_worth - worth)
    return total


@register("policy", "genie")
def genie(model: Model, *, problem: World) -> ScorePolicy:
    """The maximiser of f_{t−1}, which no learner sees in full [bogunovic2016time, appendix F].

    For functions that drift as in eqs. 3 and 4, no policy has lower mean regret. In round 1 it uses
    the prior mean.

    Args:
        model: The learner's model of the problem.
        problem: The world whose truth is used.
    """
    return ScorePolicy(score=LastTruth(problem=problem), oracle=model.oracle)


def block_length(model: Model, epsilon: float) -> int:
    """N = ⌈min(T, 12 ε^{−1/4})⌉; for Matérn's kernel ⌈min(T, 24 ε^{−1/(4−c)})⌉.

    c = d(d+1)/(2ν + d(d+1)). bogunovic2016time, section 5.1 and Corollary 4.1.

    Args:
        model: The learner's model of the problem.
        epsilon: ε: how much is forgotten per unit of time; 0 for no drift.
    """
    if epsilon == 0.0:
        return model.horizon
    kernel = model.kernel
    arms = model.arms
    length: float
    if arms is None or not isinstance(kernel, Matern) or math.isinf(kernel.nu):
        length = 12.0 * epsilon**-0.25
    else:
        d = arms.shape[1]
        product = d * (d + 1.0)
        c = product / (2.0 * kernel.nu + product)
        exponent = -1.0 / (4.0 - c)
        length = 24.0 * epsilon**exponent
    length = min(float(model.horizon), length)
    return math.ceil(length)
