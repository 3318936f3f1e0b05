"""The best matching of two sides: channels to users, drivers to riders, reviewers to papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from superarm.core import Floats, Ints, Rescore, Rng, Selection
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.graphs import Pairs, renumbered, require_structure
from superarm.core.inputs import as_count, require_type
from superarm.core.registry import register

from .base import check_desirability, check_sums

_MOST_ENTRIES = 10**8


@register("oracle", "matching")
@dataclass(frozen=True, kw_only=True)
class Matching:
    """The matching of largest total desirability: every node is in at most one chosen pair.

    The offer's structure is a ``Pairs``; a pair that is not offered, or not available, is forbidden.
    ``pairs`` limits how many are chosen; any number where it is left out. Pairs of negative
    desirability are never chosen, unless ``exactly`` asks for just that many ``pairs``.

    Args:
        pairs: How many pairs are chosen, at most; any number where left out.
        exactly: Whether exactly that many pairs must be chosen.

    >>> from superarm.core.graphs import Pairs
    >>> square = Pairs(left=np.array([0, 0, 1, 1]), right=np.array([0, 1, 0, 1]))
    >>> Matching().select(np.array([3.0, 4.0, 1.0, 4.0]), square, np.random.default_rng(0)).positions
    array([0, 3])
    """

    pairs: int | None = None
    exactly: bool = False
    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_type(self.exactly, bool, "exactly")
        if self.pairs is not None:
            object.__setattr__(self, "pairs", as_count(self.pairs, "pairs"))
        elif self.exactly:
            raise InputError(
                "exactly asks for a fixed number of pairs: give pairs as well"
            )

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        joined = require_structure(structure, Pairs, len(desirability), "Matching")
        if rescore is not None:
            raise InputError(
                "Matching finds all pairs at once, not arm by arm: leave stepwise out"
            )
        useful = -np.inf if self.exactly else 0.0
        arms = None
        if (
            usable := desirability > useful
        ).all():  # copies would take longer than the rest
            (lefts, rows), (rights, columns) = joined.numbered
        else:
            arms = np.flatnonzero(usable)
            desirability = desirability[arms]
            lefts, rows = renumbered(joined.left[arms])
            rights, columns = renumbered(joined.right[arms])
        check_sums(desirability)
        shape = len(lefts), len(rights)
        if self.exactly and self.pairs is not None and self.pairs > min(shape):
            self._refuse()
        if shape[0] * shape[1] > _MOST_ENTRIES:
            raise InputError(
                f"{shape[0]} × {shape[1]} nodes make a table that is too large"
            )
        # Whatever is not offered is worth nothing where pairs may be left out, and barred where not.
        cells = rows * shape[1]
        cells += columns  # in place: fresh memory costs more than the arithmetic
        worth = np.full(shape, useful)
        worth.ravel()[cells] = desirability
        matched = np.zeros(shape, dtype=np.bool_)
        matched[self._matched(worth)] = True
        chosen = np.flatnonzero(matched.ravel()[cells])
        chosen = chosen if arms is None else arms[chosen]
        return Selection(action=chosen, positions=chosen)

    def _matched(self, worth: Floats) -> tuple[Ints, Ints]:
        """Rows and columns of the best matching of ``worth`` (a, b), of as many pairs as are wanted.

        With k pairs the others must go somewhere: b − k further rows and a − k further columns, worth
        nothing to anyone and barred to each other, take them in, and leave exactly k among the rest.
        """
        from scipy.optimize import linear_sum_assignment

        a, b = worth.shape
        limit = min(a, b) if self.pairs is None else min(self.pairs, a, b)
        if limit < min(a, b):
            size = a + b - limit
            if size**2 > _MOST_ENTRIES:
                raise InputError(
                    f"{a} × {b} nodes make a table of {size} × {size}, which is too large"
                )
            wider = np.zeros((size, size))
            wider[:a, :b] = worth
            wider[a:, b:] = -np.inf
            worth = wider
        try:
            rows, columns = linear_sum_assignment(worth, maximize=True)
        except ValueError:  # no assignment without a barred pair
            self._refuse()
        inside = (rows < a) & (columns < b)
        return rows[inside], columns[inside]

    def _refuse(self) -> None:
        raise InfeasibleError(
            f"exactly {self.pairs} pairs are to be chosen, but that many cannot be without using a "
            "node twice; offer more pairs, or use exactly=False"
        )
