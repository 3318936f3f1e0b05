"""The k arms of largest desirability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats, Rescore, Rng, Selection
from superarm.core.capabilities import ComparesOnly
from superarm.core.errors import InfeasibleError
from superarm.core.inputs import as_count
from superarm.core.registry import register

from .base import check_desirability, choose_one_by_one, require_numbers
from .ties import best_first, first_best


@register("oracle", "top-k")
@dataclass(frozen=True, kw_only=True)
class TopK(ComparesOnly):
    """The ``k`` arms of largest desirability; ties within rounding go to the arm offered first.

    Args:
        k: Number of arms to choose.
    """

    k: int = 1
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
        require_numbers(desirability, "desirability")
        if self.k == 1 and rescore is None and len(desirability):
            # NaN wins, so the winner's value shows whether all values are valid.
            best = first_best(desirability)
            if not -np.inf < desirability[best] < np.inf:
                check_desirability(desirability)
                self._refuse(desirability)
            positions = np.array([best], dtype=np.intp)
            return Selection(action=positions, positions=positions)
        check_desirability(desirability)
        order = best_first(desirability, self.k)
        positions = order[: self.k]
        worst = desirability[positions[-1]]
        if len(positions) < self.k or worst == -np.inf:
            self._refuse(desirability)
        if rescore is not None:
            closed = desirability == -np.inf
            positions = choose_one_by_one(
                self.k, desirability, rescore, lambda _: closed
            )
        return Selection(action=positions, positions=positions)

    def _refuse(self, desirability: Floats) -> None:
        available = int(np.count_nonzero(desirability > -np.inf))
        raise InfeasibleError(
            f"k = {self.k} arms are to be chosen, but only {available} of {len(desirability)} "
            "are available; offer more arms or lower k"
        )
