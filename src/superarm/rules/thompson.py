"""Thompson sampling.

=================  ===================================================================
``μ``, ``σ``       ``belief.mean``, ``belief.std``, (n,)
``v_t``            the schedule's width, which scales the draw
=================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from superarm.core import Belief, Floats, Gamma, Schedule
from superarm.core.inputs import as_generator, require_choice, require_part
from superarm.core.registry import register

from .ucb import schedule_width


@register("rule", "thompson")
@dataclass(frozen=True, kw_only=True)
class Thompson:
    """A draw from the posterior, its deviation from the mean scaled by v_t.

    "joint" draws all arms together: μ + v·(f̃ − μ), f̃ from the joint posterior
    (chowdhury2017kernelized, Algorithm 2). "independent" draws each arm from its marginal: μ + v·σ·ε, ε
    standard normal (the experiments of sandberg2025bayesian; cheaper, and without the correlation that
    the theorems assume).

    Args:
        mode: "joint" draws all arms together, "independent" each from its marginal.
        schedule: The scale v_t in each round; 1 by default.
        gamma: γ_t for the schedule, such as a bound; by default the information gain that the
            belief has realised so far, whatever t is.
    """

    mode: Literal["joint", "independent"] = "joint"
    schedule: Schedule | None = None
    gamma: Gamma | None = None

    def __post_init__(self) -> None:
        require_choice(self.mode, "mode", ("joint", "independent"))
        require_part(self.schedule, Schedule, "schedule", optional=True)
        require_part(self.gamma, Callable, "gamma", kind="gain", optional=True)

    deterministic = False

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        if self.mode == "joint" and self.schedule is None:
            return np.array(belief.sample(rng))
        deviation = self._deviation(belief, rng)
        if self.schedule is not None:
            width = schedule_width(self.schedule, self.gamma, belief, step)
            deviation *= width
        deviation += belief.mean
        return deviation

    def _deviation(self, belief: Belief, rng: np.random.Generator) -> Floats:
        """A draw less the mean, (n,)."""
        if self.mode == "joint":
            draw = belief.sample(rng)
            return np.asarray(draw - belief.mean)
        n = len(belief.mean)
        deviation: Floats = as_generator(rng).standard_normal(n)
        deviation *= belief.std
        return deviation
