"""The best matching of two sides: channels to users, drivers to riders, reviewers to papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Rescore, Rng, Selection
from superarm.core.capabilities import NeedsGains
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.graphs import Pairs, renumbered, require_structure
from superarm.core.inputs import as_count, require_type
from superarm.core.registry import register

from .base import check_desirability, check_sums, refuse_rescore

_MOST_ENTRIES = 10**8


class _Table(NamedTuple):
    """The pairs worth choosing, by their rows and columns in a table of all nodes."""

    arms: Ints | None  # (m,) positions in the offer, or ``None`` for all of them
    worth: Floats  # (m,)
    rows: Ints  # (m,)
    columns: Ints  # (m,)
    shape: tuple[int, int]  # left nodes, right nodes

    @classmethod
    def from_useful(cls, desirability: Floats, pairs: Pairs, useful: float) -> _Table:
        """The pairs whose desirability is above ``useful``."""
        is_useful = desirability > useful
        arms: Ints | None = None
        worth = desirability
        if is_useful.all():  # copies would take longer than the search
            left, right = pairs.numbered
        else:
            arms = np.flatnonzero(is_useful)
            worth = desirability[arms]
            left = renumbered(pairs.left[arms])
            right = renumbered(pairs.right[arms])
        lefts, rows = left
        rights, columns = right
        shape = (len(lefts), len(rights))
        return cls(arms, worth, rows, columns, shape)

    def cells(self) -> Ints:
        """The number of each pair's cell in the flattened table, (m,)."""
        cells = self.rows * self.shape[1]
        cells += self.columns  # in place: new memory costs more than the arithmetic
        return cells


@register("oracle", "matching")
@dataclass(frozen=True, kw_only=True)
class Matching(NeedsGains):
    """The matching of largest total desirability: every node is in at most one chosen pair.

    The offer's structure is a ``Pairs``; a pair that is not offered, or not available, is forbidden.

    Args:
        pairs: Most pairs to choose; by default, any number.
        exactly: Whether to choose exactly that many pairs. Otherwise the oracle never chooses pairs of
            negative desirability.

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
            raise InputError("exactly=True needs a number of pairs: give pairs as well")

    @property
    def without_gains(self) -> str:
        return "" if self.exactly else "chooses no pair unless exactly=True"

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        check_desirability(desirability)
        joined = require_structure(structure, Pairs, len(desirability), "Matching")
        refuse_rescore(rescore, "Matching finds all pairs at once")
        useful = -np.inf if self.exactly else 0.0
        table = _Table.from_useful(desirability, joined, useful)
        check_sums(table.worth)
        lefts, rights = table.shape
        most = min(lefts, rights)
        if self.exactly and self.pairs is not None and self.pairs > most:
            self._refuse()
        if lefts * rights > _MOST_ENTRIES:
            raise InputError(f"{lefts} × {rights} nodes make a table that is too large")
        cells = table.cells()
        # Pairs that are not offered are worth nothing if pairs may be left out, and barred if not.
        worth = np.full(table.shape, useful)
        worth.ravel()[cells] = table.worth
        rows, columns = self._match(worth)
        matched = np.zeros(table.shape, dtype=np.bool_)
        matched[rows, columns] = True
        is_chosen = matched.ravel()[cells]
        chosen = is_chosen.nonzero()[0]
        if table.arms is not None:
            chosen = table.arms[chosen]
        return Selection(action=chosen, positions=chosen)

    def _match(self, worth: Floats) -> tuple[Ints, Ints]:
        """Rows and columns of the best matching of ``worth`` (a, b).

        With k pairs, the other nodes must go somewhere: b − k further rows and a − k further columns,
        worth nothing to anyone and barred to each other, take them in and leave exactly k pairs.
        """
        from scipy.optimize import linear_sum_assignment

        a, b = worth.shape
        most = min(a, b)
        if self.pairs is not None and self.pairs < most:
            size = a + b - self.pairs
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
        except ValueError:  # every assignment uses a barred pair
            self._refuse()
        inside = (rows < a) & (columns < b)
        return rows[inside], columns[inside]

    def _refuse(self) -> None:
        raise InfeasibleError(
            f"exactly {self.pairs} pairs are to be chosen, but that many cannot be without using a "
            "node twice; offer more pairs, or use exactly=False"
        )
