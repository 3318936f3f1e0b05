"""Coverage: how many nodes a super arm reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError, ShapeError
from superarm.core.graphs import Pairs
from superarm.core.registry import register


@register("reward", "coverage")
@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How many targets are reached on average: Σ over targets of 1 − Π(1 − p), p clipped to [0, 1].

    An arm, one of the offer's ``Pairs``, reaches its right node with probability p, independently of
    the others. B = 1, because the derivative in p is the probability that no other arm reaches it.

    >>> from superarm.core.graphs import Pairs
    >>> both = Pairs(left=np.array([0, 1, 1]), right=np.array([0, 0, 1]))
    >>> Coverage().worth(np.array([0.5, 0.5]), np.array([0, 1]), both)
    0.75
    """

    lipschitz = 1.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        if not isinstance(structure, Pairs):
            raise InputError(
                "coverage needs Pairs(left=…, right=…) as the offer's structure, "
                f"not {structure!r:.60}"
            )
        pairs = len(structure)
        last = int(positions.max(initial=-1))
        if last >= pairs:
            raise ShapeError(
                f"arm {last} has no target; the structure has {pairs} pairs"
            )
        nodes = structure.right[positions]
        targets, target_of_arm = np.unique(nodes, return_inverse=True)
        probability = np.clip(outcomes, 0.0, 1.0)
        missed = np.ones(len(targets))  # Π(1 − p) of each target
        np.multiply.at(missed, target_of_arm, 1.0 - probability)
        reached = 1.0 - missed
        return float(reached.sum())
