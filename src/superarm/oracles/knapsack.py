"""Arms within a budget of weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from superarm.core import Floats, Guarantee, Ints, Rescore, Rng, Selection
from superarm.core.capabilities import NeedsGains
from superarm.core.errors import InputError
from superarm.core.graphs import require_structure
from superarm.core.inputs import as_number, as_vector, read_only, require_choice
from superarm.core.registry import register

from .base import check_desirability, check_sums, refuse_rescore

# Bits of the table in which exact knapsacks are traced back: 125 MB.
_MOST_CELLS = 10**9
# Numbers in a row of that table while it is computed: 80 MB, a few times over.
_MOST_BUDGET = 10**7


@register("structure", "weights")
@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """The weight of every arm, and the most that all chosen arms may weigh together.

    Args:
        of_arm: The weight of each arm, (n,), above 0.
        budget: The most that all chosen arms may weigh together.
    """

    of_arm: Floats
    budget: float

    def __post_init__(self) -> None:
        weights = as_vector(self.of_arm, "of_arm")
        is_positive = weights > 0.0
        if not is_positive.all():
            arm = int(np.argmin(is_positive))
            raise InputError(
                f"the weight of arm {arm} must be above 0, got {weights[arm]}"
            )
        object.__setattr__(self, "of_arm", read_only(weights))
        budget = as_number(self.budget, "budget", 0.0)
        object.__setattr__(self, "budget", budget)

    def __len__(self) -> int:
        return len(self.of_arm)


@register("oracle", "knapsack")
@dataclass(frozen=True, kw_only=True)
class Knapsack(NeedsGains):
    """Arms of largest total desirability that together weigh no more than the budget.

    The offer's structure is a ``Weights``. Arms of negative desirability are never chosen. "exact" is
    dynamic programming over whole-number weights, n·budget steps. "density" takes arms by desirability
    per unit of weight, or the best single one if that is worth more: at least half of the optimum.

    Args:
        method: "exact", "density", or "auto": exact where weights are whole numbers and the table
            fits into memory.
    """

    method: Literal["auto", "exact", "density"] = "auto"
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice(self.method, "method", ("auto", "exact", "density"))

    @property
    def without_gains(self) -> str:
        return "packs nothing"

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        packing = require_structure(structure, Weights, len(desirability), "Knapsack")
        refuse_rescore(rescore, "Knapsack packs all arms at once")
        budget = packing.budget
        useful = (desirability > 0.0) & (packing.of_arm <= budget)
        arms = np.flatnonzero(useful)
        worth = desirability[arms]
        weights = packing.of_arm[arms]
        check_sums(worth)
        if weights.sum() <= budget:
            return Selection(arms, arms)
        if self._is_exact(weights, budget):
            integer_weights = weights.astype(np.intp)
            places = _pack_exactly(worth, integer_weights, int(budget))
            chosen = arms[places]
            return Selection(chosen, chosen)
        places = _pack_by_density(worth, weights, budget)
        chosen = arms[places]
        return Selection(chosen, chosen, Guarantee(alpha=0.5))

    def _is_exact(self, weights: Floats, budget: float) -> bool:
        """Whether to pack exactly; raises where that is required but not possible."""
        if self.method == "density":
            return False
        largest = int(budget)
        cells = len(weights) * (largest + 1)
        is_small = largest <= _MOST_BUDGET and cells <= _MOST_CELLS
        rounded = np.floor(weights)
        is_integer = bool((weights == rounded).all())
        is_possible = is_small and is_integer
        if self.method == "exact" and not is_possible:
            raise InputError(
                f"an exact knapsack needs whole-number weights, a budget of at most {_MOST_BUDGET:,} "
                f"and at most {_MOST_CELLS:,} for arms × budget; round the weights, or use "
                "method='density'"
            )
        return is_possible


def _pack_exactly(worth: Floats, weights: Ints, budget: int) -> Ints:
    """Places of the best set, by the best worth within every smaller budget."""
    size = budget + 1
    best = np.zeros(size)
    # One bit for every arm and budget: whether the best set of arms so far contains this arm.
    row_bytes = budget // 8 + 1
    taken = np.zeros((len(worth), row_bytes), dtype=np.uint8)
    for arm in range(len(worth)):
        weight = int(weights[arm])
        gain = float(worth[arm])
        with_arm = best[: size - weight] + gain
        without_arm = best[weight:]
        better = with_arm > without_arm
        best[weight:] = np.where(better, with_arm, without_arm)
        too_heavy = np.zeros(weight, np.bool_)
        bits = np.concatenate([too_heavy, better])
        taken[arm] = np.packbits(bits)
    return _trace_back(taken, weights, budget)


def _trace_back(taken: Any, weights: Ints, budget: int) -> Ints:
    """The best set, from the last arm to the first."""
    chosen: list[int] = []
    room = budget
    for arm in reversed(range(len(weights))):
        column, offset = divmod(room, 8)
        byte = int(taken[arm, column])
        shift = 7 - offset  # np.packbits puts the first bit highest
        if byte >> shift & 1:
            chosen.append(arm)
            room -= int(weights[arm])
    chosen.reverse()
    return np.array(chosen, dtype=np.intp)


def _pack_by_density(worth: Floats, weights: Floats, budget: float) -> Ints:
    """Places of arms by worth per weight while they fit, or of the best single arm."""
    negative_density = -worth / weights
    order = np.argsort(negative_density, kind="stable")
    chosen: list[int] = []
    room = budget
    for arm in order.tolist():
        weight = float(weights[arm])
        if weight <= room:
            chosen.append(arm)
            room -= weight
    single = int(worth.argmax())
    if worth[single] > worth[chosen].sum():
        chosen = [single]
    chosen.sort()
    return np.array(chosen, dtype=np.intp)
