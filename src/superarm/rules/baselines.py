"""Rules without exploration, or without learning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Belief, Floats
from superarm.core.inputs import as_generator
from superarm.core.registry import register


@register("rule", "greedy")
@dataclass(frozen=True, kw_only=True)
class Greedy:
    """The posterior mean: no exploration."""

    deterministic = True

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        return belief.mean.copy()


@register("rule", "random")
@dataclass(frozen=True, kw_only=True)
class Random:
    """Scores uniform on [0, 1], whatever the belief: the baseline that learning must beat.

    Where known costs are added to the scores, as in routing by height potentials (in Wh), costs larger
    than 1 dominate; the policy ``random`` is fair there, too.
    """

    deterministic = False

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        return as_generator(rng).random(len(belief.mean))
