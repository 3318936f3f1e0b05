"""A sparse factor without the entries that hardly count: cheap solves that are nearly exact.

=============  =======================================================================
``A``          scale · matrix + diag(shift), (n, n), positive definite; P A Pᵀ = L D Lᵀ
``L̃``          L without entries below ``drop``: |Lᵢⱼ| √Dⱼ < drop · √Aᵢᵢ
=============  =======================================================================

L̃ D L̃ᵀ is positive definite whatever was dropped, so it preconditions. Where the inverse of A decays
along its graph, most of the fill of L is that small: of a fleet's 100,000 roads a sixth remains.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property

from .elimination import Elimination, node_places, plan_elimination
from .multifrontal import eliminate
from .selected_inverse import inverse_diagonal

DROP = 3e-4
"""Solutions are off by about 0.1 % in the energy norm."""
# Drop above which entries are stored in single precision.
_LEAST_SINGLE = 1e-5


class IncompleteFactor:
    """An incomplete factor of A = scale · ``matrix`` + diag(shift), made and solved by compiled loops.

    Entries are dropped while the factor is made, so that it never takes the memory of a complete one.

    Args:
        matrix: Sparse and symmetric, (n, n).
        drop: How small entries must be to be dropped; 0 keeps all.
        plan: The elimination of its pattern; by default SuperLU finds one.
        scale: What multiplies the matrix.
        shift: What is added to its diagonal, (n,); by default nothing.
    """

    def __init__(
        self,
        matrix: Any,
        drop: float = DROP,
        *,
        plan: Elimination | None = None,
        scale: float = 1.0,
        shift: Floats | None = None,
    ) -> None:
        self._matrix = matrix.tocsc()
        self._drop = drop
        self._plan = plan_elimination(self._matrix) if plan is None else plan
        self._scale = scale
        self._shift = np.zeros(matrix.shape[0]) if shift is None else shift
        dtype = np.float32 if drop > _LEAST_SINGLE else np.float64
        factor = eliminate(self._matrix, self._plan, drop, scale, self._shift, dtype)
        self.log_det = float(np.log(factor.pivots).sum())
        """ln det A, exact."""
        self._order = self._plan.order
        self._inverse_pivots = 1.0 / factor.pivots
        self._starts = factor.starts
        self._rows = factor.rows
        self._values = factor.values

    @property
    def _is_single(self) -> bool:
        """Whether entries are stored in single precision: its rounding is far below what is dropped."""
        return bool(self._values.dtype == np.float32)

    def __deepcopy__(self, memo: dict[int, Any]) -> IncompleteFactor:
        return self  # it never changes

    def __reduce__(self) -> Any:
        remake = partial(
            IncompleteFactor, plan=self._plan, scale=self._scale, shift=self._shift
        )
        return remake, (self._matrix, self._drop)

    def __len__(self) -> int:
        return len(self._order)

    def solve(self, right: Floats) -> Floats:
        """(L̃ D L̃ᵀ)⁻¹ times ``right``, (n,) or (n, k)."""
        from . import _compiled

        solve: Any
        if right.ndim > 1 and self._is_single:
            solve = _compiled.solve_block_single
        elif right.ndim > 1:
            solve = _compiled.solve_block
        elif self._is_single:
            solve = _compiled.solve_single
        else:
            solve = _compiled.solve_lower_and_upper
        x = np.ascontiguousarray(right[self._order])
        starts = self._starts.view(np.uint64)
        rows = self._rows.view(np.uint32)
        solve(starts, rows, self._values, self._inverse_pivots, x)
        solution = np.empty_like(x)
        solution[self._order] = x
        return solution

    def among(self, nodes: Ints) -> Callable[[Floats], Floats]:
        """Solves of which both sides are read at a few nodes alone, which takes less time.

        Rows of L that these nodes do not reach count for nothing.

        Args:
            nodes: Their numbers, each once, (u,).

        Returns:
            A function from values at the nodes, zero elsewhere, to the solution there, (u,).
        """
        from ._compiled import solve_among, solve_among_single

        solve: Any = solve_among_single if self._is_single else solve_among
        places = self._places[nodes]
        reach = self._reach(places).astype(np.uint64)
        starts = self._starts.view(np.uint64)
        rows = self._rows.view(np.uint32)
        x = np.empty(len(self))

        def solve_at(right: Floats) -> Floats:
            x[reach] = 0.0
            x[places] = right
            solve(starts, rows, self._values, self._inverse_pivots, reach, x)
            return x[places]

        return solve_at

    def _reach(self, places: Ints) -> Ints:
        """Rows of L that these rows fill in a solve, themselves included, rising."""
        from ._compiled import mark_reach

        is_reached = np.zeros(len(self), dtype=np.uint8)
        is_reached[places] = 1
        mark_reach(self._starts, self._rows, is_reached)
        return np.flatnonzero(is_reached)

    def gram(self, nodes: Ints, weights: Floats) -> Floats:
        """Wᵀ (L̃ D L̃ᵀ)⁻¹ W, (k, k), for W with few rows that are not 0.

        With Y = L̃⁻¹ P W it is Yᵀ D⁻¹ Y, and only rows of Y that the nodes reach are not 0.

        Args:
            nodes: Numbers of these rows, each once, (u,).
            weights: The rows, (u, k).
        """
        from ._compiled import solve_lower_part, solve_lower_part_single

        first = self._places[nodes].astype(np.int64)
        reach = self._reach(first)
        place = np.empty(len(self), dtype=np.int64)
        place[reach] = np.arange(len(reach))
        Y = np.zeros((len(reach), weights.shape[1]))
        Y[place[first]] = weights
        solve: Any = solve_lower_part_single if self._is_single else solve_lower_part
        solve(self._starts, self._rows, self._values, reach, place, Y)
        half = Y * np.sqrt(self._inverse_pivots[reach])[:, None]
        return np.asarray(half.T @ half)

    @cached_property
    def _places(self) -> Ints:
        """The row of each node in L, (n,)."""
        return node_places(self._order)

    @cached_property
    def diagonal(self) -> Floats:
        """diag(A⁻¹), (n,), by selected inversion; exact."""
        from scipy.sparse import diags_array

        matrix = self._scale * self._matrix + diags_array(self._shift)
        return np.asarray(inverse_diagonal(matrix, self._plan))
