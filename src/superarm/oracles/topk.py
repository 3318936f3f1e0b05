"""The k arms of largest desirability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.capabilities import ComparesOnly
from superarm.core import Floats, Rescore, Rng, Selection
from superarm.errors import InfeasibleError
from superarm.inputs import as_count
from superarm.registry import register

from .base import check_desirability, one_by_one, require_numbers


@register("oracle", "top-k")
@dataclass(frozen=True, kw_only=True)
class TopK(ComparesOnly):
    """The ``k`` arms of largest desirability; ties go to the arm offered first."""

    k: int = 1
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", as_count(self.k, "k"))

    def select(
        self, desirability: Floats, structure: object, rng: Rng, rescore: Rescore | None = None
    ) -> Selection:
        require_numbers(desirability, "desirability")
        if self.k == 1 and rescore is None and len(desirability):
            # NaN wins argmax, so the winner's own value tells whether all is well.
            best = int(desirability.argmax())
            if not -np.inf < desirability[best] < np.inf:
                check_desirability(desirability)
                self._refuse(desirability)
            positions = np.array([best], dtype=np.intp)
            return Selection(action=positions, positions=positions)
        check_desirability(desirability)
        closed = desirability == -np.inf
        if len(closed) - np.count_nonzero(closed) < self.k:
            self._refuse(desirability)
        if rescore is not None:
            positions = one_by_one(self.k, desirability, rescore, lambda _: closed)
        else:
            # A stable sort of the negated values keeps the first of equals in front.
            positions = np.argsort(-desirability, kind="stable")[: self.k]
        return Selection(action=positions, positions=positions)

    def _refuse(self, desirability: Floats) -> None:
        available = int(np.count_nonzero(desirability > -np.inf))
        raise InfeasibleError(
            f"k = {self.k} arms are to be chosen, but only {available} of {len(desirability)} "
            "are available; offer more arms or lower k"
        )
