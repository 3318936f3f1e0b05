"""A sparse symmetric positive definite matrix, factorised: solves, and parts of its inverse.

=============  =======================================================================
``A``          (n, n), symmetric and positive definite; P A Pᵀ = L D Lᵀ
``parents``    (n,), the elimination tree: the first row that each column of L reaches
=============  =======================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.errors import NotPositiveDefiniteError

from .elimination import (
    elimination_tree,
    factorise,
    node_places,
    plan_elimination,
)
from .selected_inverse import inverse_diagonal


class _Lower(NamedTuple):
    """L, and what is needed to solve with a few of its rows."""

    L: Any  # sparse, by columns, (n, n)
    pivots: Floats  # diagonal of D, (n,)
    parents: list[int]  # (n,), n at a root
    places: Ints  # the row of each node in L, (n,)


class SparseFactor:
    """The factor of a sparse symmetric positive definite matrix.

    Args:
        matrix: A, sparse, (n, n).
    """

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix.tocsc()
        self._factor = factorise(self._matrix)
        self._pivots = self._factor.pivots
        if not self._pivots.min() > 0.0:
            raise NotPositiveDefiniteError(
                f"a sparse matrix has a pivot of {self._pivots.min():.3g}; it must be positive definite"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseFactor:
        return self  # it never changes

    def __reduce__(self) -> Any:
        return SparseFactor, (self._matrix,)

    def __len__(self) -> int:
        return int(self._matrix.shape[0])

    def solve(self, right: Floats) -> Floats:
        """A⁻¹ times ``right``, (n,) or (n, k)."""
        solution: Floats = self._factor.solve(right)
        return solution

    def among(self, nodes: Ints) -> Callable[[Floats], Floats]:
        """A function from values at some nodes, zero elsewhere, to the solution there, (u,).

        Args:
            nodes: Their numbers, each once, (u,).
        """

        def solve_at(right: Floats) -> Floats:
            everywhere = np.zeros(len(self))
            everywhere[nodes] = right
            return self.solve(everywhere)[nodes]

        return solve_at

    def gram(self, nodes: Ints, weights: Floats) -> Floats:
        """Wᵀ A⁻¹ W, (k, k), for W with few rows that are not 0.

        With Y = L⁻¹ P W it is Yᵀ D⁻¹ Y, and Y is 0 except at the ancestors of the nodes in the
        elimination tree: so only a small part of L counts.

        Args:
            nodes: Numbers of these rows, each once, (u,).
            weights: The rows, (u, k).
        """
        from scipy.sparse.linalg import spsolve_triangular

        lower = self._lower
        if lower is None:
            right = np.zeros((len(self), weights.shape[1]))
            right[nodes] = weights
            gram = weights.T @ self.solve(right)[nodes]
            return np.asarray(0.5 * (gram + gram.T))
        rows = lower.places[nodes]
        reach = _ancestors(lower.parents, rows)
        part = _columns(lower.L, reach)
        right = np.zeros((len(reach), weights.shape[1]))
        right[np.searchsorted(reach, rows)] = weights
        Y = spsolve_triangular(part, right, lower=True, unit_diagonal=True)
        half = Y / np.sqrt(lower.pivots[reach])[:, None]
        return np.asarray(half.T @ half)

    @property
    def log_det(self) -> float:
        """ln det A."""
        return float(np.log(self._pivots).sum())

    @cached_property
    def diagonal(self) -> Floats:
        """diag(A⁻¹), (n,), by selected inversion."""
        plan = plan_elimination(self._matrix)
        return np.asarray(inverse_diagonal(self._matrix, plan))

    @cached_property
    def _lower(self) -> _Lower | None:
        """L; ``None`` where rows were exchanged, which happens only to rounding's advantage."""
        factor = self._factor
        if not factor.is_symmetric:
            return None
        L = factor.lower.tocsc()
        L.sort_indices()
        reach = np.diff(L.indptr) - 1
        parents = elimination_tree(L, reach)
        places = node_places(factor.order)
        return _Lower(L, self._pivots, parents.tolist(), places)


def _ancestors(parents: list[int], rows: Ints) -> Ints:
    """Rows and all above them in a tree, sorted."""
    found = {len(parents)}
    for row in rows.tolist():
        above = row
        while above not in found:
            found.add(above)
            above = parents[above]
    found.remove(len(parents))
    return np.array(sorted(found), dtype=np.intp)


def _columns(L: Any, chosen: Ints) -> Any:
    """The square part of L at columns that reach no other rows, by columns."""
    from scipy.sparse import csc_array

    starts = L.indptr[chosen]
    counts = L.indptr[chosen + 1] - starts
    stops = np.cumsum(counts)
    new_starts = stops - counts
    shifts = np.repeat(starts - new_starts, counts)  # from new to old places
    entries = shifts + np.arange(stops[-1])
    # SuperLU takes 32-bit indices; L has no more entries than these count.
    rows = np.searchsorted(chosen, L.indices[entries]).astype(np.int32)
    indptr = np.concatenate([[0], stops]).astype(np.int32)
    size = len(chosen)
    return csc_array((L.data[entries], rows, indptr), shape=(size, size))
