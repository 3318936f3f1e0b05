"""A sparse factor without the entries that hardly count: cheap solves that are nearly exact.

=============  =======================================================================
``A``          (n, n), symmetric and positive definite; P A Pᵀ = L D Lᵀ
``L̃``          L without entries below ``drop``: |Lᵢⱼ| √Dⱼ < drop · √Aᵢᵢ
=============  =======================================================================

L̃ D L̃ᵀ is positive definite whatever was dropped, so it preconditions. Where the inverse of A decays
along its graph, most of the fill of L is that small: of a fleet's 100,000 roads a sixth remains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.errors import NotPositiveDefiniteError

from .elimination import factorise, plan_elimination
from .selected_inverse import inverse_diagonal

DROP = 3e-4
"""Solutions are off by about 0.1 % in the energy norm."""


class IncompleteFactor:
    """An incomplete factor, solved by compiled loops.

    Args:
        matrix: A, sparse, (n, n).
        drop: How small entries must be to be dropped; 0 keeps all.
    """

    def __init__(self, matrix: Any, drop: float = DROP) -> None:
        self._matrix = matrix.tocsc()
        factor = factorise(self._matrix)
        pivots = factor.pivots
        if not pivots.min() > 0.0:
            raise NotPositiveDefiniteError(
                f"a sparse matrix has a pivot of {pivots.min():.3g}; it must be positive definite"
            )
        if not factor.is_symmetric:
            raise NotPositiveDefiniteError(
                "a sparse matrix is so badly scaled that its rows were exchanged"
            )
        self.log_det = float(np.log(pivots).sum())
        """ln det A, exact."""
        self._order = factor.order
        self._inverse_pivots = 1.0 / pivots
        L = factor.lower.tocsc()
        columns = np.repeat(np.arange(len(pivots)), np.diff(L.indptr))
        sizes = np.abs(L.data) * np.sqrt(pivots)[columns]
        least = drop * np.sqrt(self._matrix.diagonal()[self._order])
        is_kept = (L.indices != columns) & (sizes >= least[L.indices])
        counts = np.bincount(columns[is_kept], minlength=len(pivots))
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._rows = L.indices[is_kept].astype(np.int32)
        self._values = L.data[is_kept]

    def __deepcopy__(self, memo: dict[int, Any]) -> IncompleteFactor:
        return self  # it never changes

    def __reduce__(self) -> Any:
        return IncompleteFactor, (self._matrix,)

    def __len__(self) -> int:
        return len(self._order)

    def solve(self, right: Floats) -> Floats:
        """(L̃ D L̃ᵀ)⁻¹ times ``right``, (n,)."""
        from ._compiled import solve_lower_and_upper

        x = right[self._order]
        solve_lower_and_upper(
            self._starts, self._rows, self._values, self._inverse_pivots, x
        )
        solution = np.empty_like(x)
        solution[self._order] = x
        return solution

    def gram(self, nodes: Ints, weights: Floats) -> Floats:
        """Wᵀ (L̃ D L̃ᵀ)⁻¹ W, (k, k), for W with few rows that are not 0.

        With Y = L̃⁻¹ P W it is Yᵀ D⁻¹ Y, and only rows of Y that the nodes reach are not 0.

        Args:
            nodes: Numbers of these rows, each once, (u,).
            weights: The rows, (u, k).
        """
        from ._compiled import mark_reach, solve_lower_part

        first = self._places[nodes].astype(np.int64)
        is_reached = np.zeros(len(self), dtype=np.uint8)
        is_reached[first] = 1
        mark_reach(self._starts, self._rows, is_reached)
        reach = np.flatnonzero(is_reached)
        place = np.empty(len(self), dtype=np.int64)
        place[reach] = np.arange(len(reach))
        Y = np.zeros((len(reach), weights.shape[1]))
        Y[place[first]] = weights
        solve_lower_part(self._starts, self._rows, self._values, reach, place, Y)
        half = Y * np.sqrt(self._inverse_pivots[reach])[:, None]
        return np.asarray(half.T @ half)

    @cached_property
    def _places(self) -> Ints:
        """The row of each node in L, (n,)."""
        return np.argsort(self._order)

    @cached_property
    def diagonal(self) -> Floats:
        """diag(A⁻¹), (n,), by selected inversion; exact."""
        plan = plan_elimination(self._matrix)
        return np.asarray(inverse_diagonal(self._matrix, plan))
