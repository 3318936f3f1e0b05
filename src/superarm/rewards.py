"""What a super arm is worth, given what its arms yield.

Each is monotone (an arm that yields more never lowers the worth) and Lipschitz: the worth changes by
at most ``lipschitz`` · Σ|change of an outcome|. Problems measure regret by it, and bounds take its
constant B.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

import numpy as np

from .core import Floats, Ints
from .errors import InputError, ShapeError
from .graphs import Pairs
from .registry import register


def total(values: Floats) -> float:
    """The sum, smallest first.

    In one fixed order, rounding cannot lift a super arm above one whose arms are each at least
    as good; so the regret against the best super arm is never below zero, not even by 1e-16.
    """
    return float(np.sort(values).sum())


@register("reward", "sum")
@dataclass(frozen=True, kw_only=True)
class Sum:
    """What the arms yield together.

    >>> Sum().worth(np.array([1.0, 2.0]), np.array([0, 1]), None)
    3.0
    """

    lipschitz = 1.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        return total(outcomes)


@register("reward", "log-sum")
@dataclass(frozen=True, kw_only=True)
class LogSum:
    """ln(1 + Σ outcomes): each further arm is worth less [nika2022oclok, section 5.1].

    Noise may bring the sum below 0, where the logarithm is steep and then ends: such a sum is worth 0,
    so that the worth is monotone with B = 1 everywhere.
    """

    lipschitz = 1.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        return log1p(max(total(outcomes), 0.0))


@register("reward", "coverage")
@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How many targets are reached on average: Σ over targets of 1 − Π(1 − p), p clipped to [0, 1].

    An arm, one of the offer's ``Pairs``, reaches its right node with probability p, independently of
    the others. B = 1, because the derivative in p is the probability that no other arm reaches it.

    >>> from superarm.graphs import Pairs
    >>> both = Pairs(left=np.array([0, 1, 1]), right=np.array([0, 0, 1]))
    >>> Coverage().worth(np.array([0.5, 0.5]), np.array([0, 1]), both)
    0.75
    """

    lipschitz = 1.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        if not isinstance(structure, Pairs):
            told = "coverage needs Pairs(left=…, right=…) as the offer's structure"
            raise InputError(f"{told}, not {structure!r:.60}")
        if len(positions) and (last := int(positions.max())) >= len(structure):
            raise ShapeError(f"arm {last} has no target; the structure has {len(structure)} pairs")
        targets, of_chosen = np.unique(structure.right[positions], return_inverse=True)
        missed = np.ones(len(targets))
        np.multiply.at(missed, of_chosen, 1.0 - np.clip(outcomes, 0.0, 1.0))
        return float((1.0 - missed).sum())
