"""Upper confidence bounds.

=================  ===================================================================
``μ``, ``σ``       ``belief.mean``, ``belief.std``, (n,)
=================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from superarm.core import Belief, Floats, Gamma, Schedule
from superarm.core.errors import InputError
from superarm.core.inputs import require_part
from superarm.core.registry import register

from .schedules import QuantileSchedule


def schedule_width(
    schedule: Schedule, gamma: Gamma | None, belief: Belief, step: int
) -> float:
    """The schedule's width, with the realised information gain where no ``gamma`` is set.

    Args:
        schedule: How wide the confidence bound is in each round.
        gamma: γ_t, or ``None``.
        belief: What has the realised information gain.
        step: The round t.
    """
    if gamma is None:
        return schedule.width(step, lambda t: belief.information_gain)
    return schedule.width(step, gamma)


@register("rule", "ucb")
@dataclass(frozen=True, kw_only=True)
class UCB:
    """Optimism: μ + width·σ.

    srinivas2010gaussian, Algorithm 1; the schedules cite their own sources. With super arms, t counts
    rounds; wrap ``gamma`` to count observations.

    Args:
        schedule: How wide the confidence bound is in each round.
        gamma: γ_t for the schedule, such as a bound; by default the information gain that the
            belief has realised so far, whatever t is.
    """

    schedule: Schedule
    gamma: Gamma | None = None

    def __post_init__(self) -> None:
        require_part(self.schedule, Schedule, "schedule")
        require_part(self.gamma, Callable, "gamma", kind="gain", optional=True)

    deterministic = True

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        width = schedule_width(self.schedule, self.gamma, belief, step)
        index: Floats = belief.std * width
        index += belief.mean
        return index


@register("rule", "bayes-ucb")
@dataclass(frozen=True, kw_only=True)
class BayesUCB(UCB):
    """The posterior quantile Q(1 − η_t, N(μ, σ²)).

    For a Gaussian this *is* μ + Φ⁻¹(1 − η_t)·σ (sandberg2025bayesian, section 2.2, after
    kaufmann2012bayesian): UCB under another name, restricted to schedules that are quantiles.

    Args:
        schedule: A quantile in each round, such as :class:`BayesUCBQuantile`.
        gamma: γ_t for the schedule, such as a bound; by default the information gain that the
            belief has realised so far, whatever t is.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.schedule, QuantileSchedule):
            advice = "use UCB with it, or BayesUCB with a bayes-ucb or simple-quantile schedule"
            kind = type(self.schedule).__name__
            raise InputError(f"{kind} is not a quantile; {advice}")
