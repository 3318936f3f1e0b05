"""Slates and budgets: at most so many of each kind, or no heavier than what can be carried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from superarm.core import Bools, Floats, Guarantee, Ints, Rescore, Rng, Selection
from superarm.core.capabilities import ComparesOnly
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.graphs import require_structure
from superarm.core.inputs import (
    as_count,
    as_number,
    as_positions,
    as_vector,
    read_only,
    require_choice,
)
from superarm.core.registry import register

from .base import check_desirability, check_sums, one_by_one
from .ties import best_first

_MOST_CELLS = 10**9  # bits of the table that exact knapsacks are traced back in: 125 MB
_MOST_BUDGET = (
    10**7
)  # numbers in a row of that table while it is made: 80 MB, a few times over


@register("structure", "groups")
@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Arm i belongs to group ``of_arm[i]``, of which at most ``limits[group]`` arms may be chosen.

    Args:
        of_arm: (n,), from 0.
        limits: One for each group.
    """

    of_arm: Ints
    limits: Ints

    def __post_init__(self) -> None:
        for name in ("of_arm", "limits"):
            numbers = as_positions(getattr(self, name), name)
            if numbers.min(initial=0) < 0:
                raise InputError(f"{name} holds {numbers.min()}; it must be 0 or more")
            object.__setattr__(self, name, read_only(numbers))
        if self.of_arm.max(initial=-1) >= len(self.limits):
            raise InputError(
                f"an arm belongs to group {self.of_arm.max()}, but there are {len(self.limits)} limits"
            )

    def __len__(self) -> int:
        return len(self.of_arm)


@register("oracle", "group-top-k")
@dataclass(frozen=True, kw_only=True)
class GroupTopK(ComparesOnly):
    """The ``k`` arms of largest desirability with no more of any group than its limit.

    The offer's structure is a ``Groups``. Exactly ``k`` are chosen, even where desirabilities are
    negative; ties go to the arm offered first. Taking the best arm that still fits is exact here: sets
    within limits form a matroid.

    Args:
        k: How many arms are chosen.
    """

    k: int
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", as_count(self.k, "k"))

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        groups = require_structure(structure, Groups, len(desirability), "GroupTopK")
        room = groups.limits.copy()
        open_arms = (desirability > -np.inf) & (room[groups.of_arm] > 0)
        possible = np.minimum(
            np.bincount(groups.of_arm[open_arms], minlength=len(room)), room
        ).sum()
        if possible < self.k:
            raise InfeasibleError(
                f"k = {self.k} arms are to be chosen, but the limits of their groups leave room for "
                f"{possible}; offer more arms, raise a limit or lower k"
            )
        current = np.where(open_arms, desirability, -np.inf)

        def closed(chosen: Ints) -> Bools:
            left = room - np.bincount(groups.of_arm[chosen], minlength=len(room))
            return np.asarray(~open_arms | (left[groups.of_arm] == 0))

        if rescore is not None:
            positions = one_by_one(self.k, current, rescore, closed)
        else:
            chosen: list[int] = []
            order = iter(best_first(current, len(current)).tolist())
            while len(chosen) < self.k:
                if room[groups.of_arm[arm := next(order)]]:
                    chosen.append(arm)
                    room[groups.of_arm[arm]] -= 1
            positions = np.array(chosen, dtype=np.intp)
        return Selection(action=positions, positions=positions)


@register("structure", "weights")
@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """What every arm weighs, and how much all chosen arms may weigh together.

    Args:
        of_arm: (n,), above 0.
        budget: How much all chosen arms may weigh together.
    """

    of_arm: Floats
    budget: float

    def __post_init__(self) -> None:
        weights = as_vector(self.of_arm, "of_arm")
        if not (weights > 0.0).all():
            where = int(np.argmin(weights > 0.0))
            raise InputError(f"arm {where} weighs {weights[where]}; it must be above 0")
        object.__setattr__(self, "of_arm", read_only(weights))
        object.__setattr__(self, "budget", as_number(self.budget, "budget", 0.0))

    def __len__(self) -> int:
        return len(self.of_arm)


@register("oracle", "knapsack")
@dataclass(frozen=True, kw_only=True)
class Knapsack:
    """Arms of largest total desirability that together weigh no more than the budget.

    The offer's structure is a ``Weights``. Arms of negative desirability are never chosen. "exact" is
    dynamic programming over whole-number weights, n·budget steps. "density" takes arms by desirability
    per unit of weight, or the best single one if that is worth more: at least half of the optimum.

    Args:
        method: Exact, by density, or auto: exact where weights are whole numbers and the table fits
            into memory.
    """

    method: Literal["auto", "exact", "density"] = "auto"
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice(self.method, "method", ("auto", "exact", "density"))

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        packing = require_structure(structure, Weights, len(desirability), "Knapsack")
        if rescore is not None:
            raise InputError(
                "Knapsack packs all arms at once, not arm by arm: leave stepwise out"
            )
        arms = np.flatnonzero((desirability > 0.0) & (packing.of_arm <= packing.budget))
        worth, weights = desirability[arms], packing.of_arm[arms]
        check_sums(worth)
        if weights.sum() <= packing.budget:
            return Selection(arms, arms)
        budget = int(packing.budget)
        whole = bool((weights == np.floor(weights)).all())
        fits = budget <= _MOST_BUDGET and len(arms) * (budget + 1) <= _MOST_CELLS
        if self.method == "exact" and not (whole and fits):
            raise InputError(
                f"an exact knapsack needs whole-number weights, a budget of at most {_MOST_BUDGET:,} "
                f"and at most {_MOST_CELLS:,} for arms × budget; round the weights, or use "
                "method='density'"
            )
        if self.method != "density" and whole and fits:
            best = arms[_best_of_whole(worth, weights.astype(np.intp), budget)]
            return Selection(best, best)
        dense = arms[_densest(worth, weights, packing.budget)]
        return Selection(dense, dense, Guarantee(alpha=0.5))


def _best_of_whole(worth: Floats, weights: Ints, budget: int) -> Ints:
    """Places of the best set, by the best worth within every smaller budget."""
    best = np.zeros(budget + 1)
    taken = np.zeros((len(worth), budget // 8 + 1), dtype=np.uint8)
    for each, (value, weight) in enumerate(
        zip(worth.tolist(), weights.tolist(), strict=True)
    ):
        with_it = best[: budget + 1 - weight] + value
        better = with_it > best[weight:]
        best[weight:] = np.where(better, with_it, best[weight:])
        taken[each] = np.packbits(np.concatenate([np.zeros(weight, np.bool_), better]))
    chosen, room = [], budget
    for each in range(len(worth) - 1, -1, -1):
        if taken[each, room // 8] >> (7 - room % 8) & 1:
            chosen.append(each)
            room -= int(weights[each])
    return np.array(chosen[::-1], dtype=np.intp)


def _densest(worth: Floats, weights: Floats, budget: float) -> Ints:
    """Places of arms by worth per weight while they fit, or of the best single arm."""
    order = np.argsort(-worth / weights, kind="stable")
    chosen, left = [], budget
    for each in order.tolist():
        if weights[each] <= left:
            chosen.append(each)
            left -= float(weights[each])
    single = int(worth.argmax())
    if worth[single] > worth[chosen].sum():
        chosen = [single]
    return np.array(sorted(chosen), dtype=np.intp)
