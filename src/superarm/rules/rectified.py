"""Costs that Dijkstra's algorithm can use: rectified, and reduced by a potential first.

=================  ====================================================================
``μ̃``              an optimistic or sampled cost: minus the inner rule's desirability
``s``              ``spread``: the noise's standard deviation ς, or the posterior's, or 0
``U``              E[max(0, X)] with X ~ N(μ̃, s²), = μ̃Φ(μ̃/s) + sφ(μ̃/s): the cost used
``Δh``             ``reduction``: what each arm changes in a potential; μ̃ − Δh is rectified
=================  ====================================================================

Algorithm 2 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025) rectifies μ̃ itself.
That discards the energy a downhill road gives back, and so avoids useful hills. A potential shifts this
gain to where it was paid for: Δh adds up to the same for every route between two places, so it changes
no route's rank, but it lifts costs to where rectifying hardly changes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from superarm.core import Belief, Floats, Rule
from superarm.core.capabilities import NeverPositive
from superarm.core.errors import ShapeError
from superarm.core.inputs import as_vector, read_only, require_choice, require_part
from superarm.core.normal import rectified_mean
from superarm.core.registry import register

Spread = Literal["noise", "posterior", "none"]


@register("rule", "rectified")
@dataclass(frozen=True, kw_only=True, eq=False)
class Rectified(NeverPositive):
    """Minus the rectified cost of another rule: desirabilities of 0 or less.

    sandberg2025bayesian, Algorithm 2, with s = ς; its prose uses the posterior's standard deviation.

    Args:
        rule: The rule whose costs are rectified.
        spread: s: the standard deviation of the "noise", that of the "posterior", or "none", which
            cuts costs off at zero.
        reduction: Δh, (n,), subtracted from each arm's cost before it is rectified; see
            :meth:`superarm.roads.energy.Vehicle.potential`.
    """

    rule: Rule
    spread: Spread = "noise"
    reduction: Floats | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_part(self.rule, Rule, "rule")
        require_choice(self.spread, "spread", ("noise", "posterior", "none"))
        if self.reduction is not None:
            reduction = read_only(as_vector(self.reduction, "reduction"))
            object.__setattr__(self, "reduction", reduction)

    @property
    def deterministic(self) -> bool:
        return self.rule.deterministic

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        desirability = self.rule.desirability(belief, step, rng)
        cost = np.negative(desirability)
        reduction = self.reduction
        if reduction is not None:
            if reduction.shape != cost.shape:
                raise ShapeError(
                    f"reduction has {len(reduction)} entries for {len(cost)} arms on offer"
                )
            cost -= reduction
        if self.spread == "none":
            return np.minimum(-cost, 0.0)
        spread = belief.noise_std if self.spread == "noise" else belief.std
        rectified = rectified_mean(cost, spread)
        return np.negative(rectified)
