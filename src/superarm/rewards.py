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
from .inputs import as_positions
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


@register("structure", "targets")
@dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """An offer's structure where arms reach targets: arm i can reach ``of_arm[i]``."""

    of_arm: Ints
    """The target of every arm on offer, (n,)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "of_arm", as_positions(self.of_arm, "of_arm"))


@register("reward", "coverage")
@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How many targets are reached on average: Σ over targets of 1 − Π(1 − p), p clipped to [0, 1].

    An arm reaches its target with probability p, independently of the others. B = 1, because the
    derivative by p is the probability that no other arm reaches the target.

    >>> both = Targets(of_arm=np.array([0, 0, 1]))
    >>> Coverage().worth(np.array([0.5, 0.5]), np.array([0, 1]), both)
    0.75
    """

    lipschitz = 1.0

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        if not isinstance(structure, Targets):
            raise InputError(
                f"coverage needs Targets(of_arm=…) as the offer's structure, not {structure!r}"
            )
        if len(positions) and positions.max() >= len(structure.of_arm):
            raise ShapeError(
                f"arm {int(positions.max())} has no target; of_arm has {len(structure.of_arm)} entries"
            )
        targets, of_chosen = np.unique(structure.of_arm[positions], return_inverse=True)
        missed = np.ones(len(targets))
        np.multiply.at(missed, of_chosen, 1.0 - np.clip(outcomes, 0.0, 1.0))
        return float((1.0 - missed).sum())
