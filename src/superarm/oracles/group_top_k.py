"""The k best arms with at most so many of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Bools, Floats, Ints, Rescore, Rng, Selection
from superarm.core.capabilities import ComparesOnly
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.graphs import require_structure
from superarm.core.inputs import as_count, as_positions, read_only
from superarm.core.registry import register

from .base import check_desirability, choose_one_by_one
from .ties import best_first


@register("structure", "groups")
@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Arm i belongs to group ``of_arm[i]``, of which at most ``limits[group]`` arms may be chosen.

    Args:
        of_arm: The group of each arm, (n,), from 0.
        limits: The most arms of each group.
    """

    of_arm: Ints
    limits: Ints

    def __post_init__(self) -> None:
        of_arm = _as_numbers(self.of_arm, "of_arm")
        object.__setattr__(self, "of_arm", of_arm)
        limits = _as_numbers(self.limits, "limits")
        object.__setattr__(self, "limits", limits)
        if of_arm.max(initial=-1) >= len(limits):
            raise InputError(
                f"an arm belongs to group {of_arm.max()}, but there are {len(limits)} limits"
            )

    def __len__(self) -> int:
        return len(self.of_arm)

    def count(self, arms: Ints | Bools) -> Ints:
        """How many of some arms belong to each group.

        Args:
            arms: Positions of the arms, or a mask.
        """
        return np.bincount(self.of_arm[arms], minlength=len(self.limits))


def _as_numbers(values: Ints, name: str) -> Ints:
    numbers = as_positions(values, name)
    if numbers.min(initial=0) < 0:
        raise InputError(f"{name} must be 0 or more, got {numbers.min()}")
    return read_only(numbers)


@register("oracle", "group-top-k")
@dataclass(frozen=True, kw_only=True)
class GroupTopK(ComparesOnly):
    """The ``k`` arms of largest desirability with no more of any group than its limit.

    The offer's structure is a ``Groups``. Exactly ``k`` arms are chosen, even where desirabilities are
    negative; ties go to the arm offered first. Taking the best arm that still fits is exact here: sets
    within limits form a matroid.

    Args:
        k: Number of arms to choose.
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
        limit_of_arm = groups.limits[groups.of_arm]
        is_open = (desirability > -np.inf) & (limit_of_arm > 0)
        open_counts = groups.count(is_open)
        possible = np.minimum(open_counts, groups.limits).sum()
        if possible < self.k:
            raise InfeasibleError(
                f"k = {self.k} arms are to be chosen, but the limits of their groups leave room for "
                f"{possible}; offer more arms, raise a limit or lower k"
            )
        current = np.where(is_open, desirability, -np.inf)

        def closed(chosen: Ints) -> Bools:
            """Arms that are not available, or whose group is full, (n,)."""
            is_full = groups.limits == groups.count(chosen)
            is_closed = ~is_open | is_full[groups.of_arm]
            return np.asarray(is_closed)

        if rescore is not None:
            positions = choose_one_by_one(self.k, current, rescore, closed)
        else:
            positions = self._choose(current, groups)
        return Selection(action=positions, positions=positions)

    def _choose(self, desirability: Floats, groups: Groups) -> Ints:
        """The best arms that fit."""
        order = best_first(desirability, len(desirability))
        group_in_order = groups.of_arm[order]
        # Lists, because Python reads single numbers of an array far more slowly.
        room = groups.limits.tolist()
        chosen: list[int] = []
        for arm, group in zip(order.tolist(), group_in_order.tolist(), strict=True):
            if room[group]:
                chosen.append(arm)
                room[group] -= 1
            if len(chosen) == self.k:
                break
        return np.array(chosen, dtype=np.intp)
