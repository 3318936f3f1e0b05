"""The visited form: G over prior covariances with the arms visited so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError
from superarm.kernels.state_space import StateSpace
from superarm.posteriors.fixed import as_rows

from .basis import BasisForm
from .form import INITIAL_ROOM
from .prior_rows import PriorRows


class VisitedForm(BasisForm):
    """B are prior covariances with the arms visited so far."""

    name = "visited"
    _grows = True

    def __init__(self, space: StateSpace, prior: PriorRows, n: int) -> None:
        super().__init__(space, prior, n, 0)
        # Visited arms in this form's basis; other forms may have visited more.
        self._size = 0
        # The rank at which its cost is next compared with that of the folded form.
        self.compare_at = 2 * INITIAL_ROOM

    @property
    def _basis(self) -> Floats:
        return self.prior.rows[: self._size]

    @property
    def rank(self) -> int:
        return self._size * self.shape[0]

    def scalars(self) -> dict[str, float]:
        scalars = super().scalars()
        scalars["compare_at"] = self.compare_at
        return scalars

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays = super().arrays()
        visited = self.prior.visited[: self._size]
        arrays["visited"] = np.array(visited, np.intp)
        return arrays

    def resume(self, state: State) -> bool:
        _, n = self.shape
        rows = as_rows(state.array("visited"), n)
        self.prior.visit(rows)
        size = len(rows)
        if self.prior.visited[:size] != rows.tolist():
            raise StateError(
                "this state is damaged: its arms were visited in another order"
            )
        self._size = size
        super().resume(state)
        self.compare_at = state.count("compare_at")
        return True

    def _units(self, rows: Ints) -> Floats:
        slots = self.prior.visit(rows)
        needed_size = int(slots.max()) + 1
        self._size = max(self._size, needed_size)
        count = len(rows)
        units = np.zeros((count, self._size))
        units[np.arange(count), slots] = 1.0
        return units

    def _coordinates_of_one(self, row: int, h: float) -> tuple[Floats, float]:
        slot = self.prior.visit_one(row)
        self._size = max(self._size, slot + 1)
        values = self._basis[:, row].copy()
        coordinates = self._times_learned(values)
        coordinates *= -h
        coordinates[slot] += h  # e_x is a unit vector
        covariance = float(coordinates.dot(values))
        return coordinates, h * covariance
