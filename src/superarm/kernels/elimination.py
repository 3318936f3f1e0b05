"""The order in which the columns of a sparse symmetric matrix are eliminated.

Notation

=============  =====================================================================
``L``          (n, n), the sparse factor of a matrix of the same pattern
``reach``      (n,), the entries of every column of ``L`` below the diagonal
``parents``    (n,), the elimination tree: the first of these rows, or the root n
front          a few columns eliminated together, and the rows their factor reaches
=============  =====================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.compiling import is_compiled
from superarm.core.errors import NotPositiveDefiniteError

# Subtrees of at most so many columns become one front: dense work is cheaper than small steps.
_LEAF = 24
_PADDING = 0.3  # share of explicit zeros up to which a front joins its parent
NO_FRONT = -1  # the parent of a front that has none


class Front(NamedTuple):
    """Columns ``start`` … ``stop − 1`` and the later rows that they reach."""

    start: int
    stop: int
    rows: Ints
    parent: int  # number of the parent's front, or ``NO_FRONT``


class Elimination(NamedTuple):
    """How the columns of a sparse symmetric matrix are eliminated."""

    order: Ints  # (n,), the old number of every new one
    fronts: list[Front]  # children come before their parents


class Factor:
    """A sparse factor of a symmetric matrix whose rows and columns were sorted before.

    Args:
        superlu: scipy's factor of the sorted matrix.
        order: The row of the matrix that each row of the sorted one is, (n,); ``None``: the same.
    """

    def __init__(self, superlu: Any, order: Ints | None) -> None:
        self._superlu = superlu
        self._order = order

    def solve(self, right: Floats) -> Floats:
        """A⁻¹ times ``right``.

        Args:
            right: (n,) or (n, k).
        """
        if self._order is None:
            solution: Floats = self._superlu.solve(right)
            return solution
        sorted_right = np.asfortranarray(right[self._order])
        solution = np.empty_like(right)
        solution[self._order] = self._superlu.solve(sorted_right)
        return solution

    @property
    def pivots(self) -> Floats:
        """Positive where the matrix is positive definite, (n,)."""
        pivots: Floats = self._superlu.U.diagonal()
        return pivots

    @property
    def log_det(self) -> float:
        """ln det A."""
        return float(np.log(self.pivots).sum())

    @property
    def is_symmetric(self) -> bool:
        """Whether rows are in the same order as columns: none were exchanged for a larger pivot."""
        return np.array_equal(self._superlu.perm_r, self._superlu.perm_c)

    @property
    def lower(self) -> Any:
        """L, sparse (n, n), in the order :attr:`order`."""
        return self._superlu.L

    @property
    def order(self) -> Ints:
        """The row of the matrix that each row of ``lower`` belongs to, (n,)."""
        order: Ints = np.argsort(self._superlu.perm_c)
        if self._order is not None:
            order = self._order[order]
        return order


def plan_elimination(matrix: Any, order: Ints | None = None) -> Elimination:
    """Order and fronts for the pattern of a sparse symmetric matrix.

    Args:
        matrix: The matrix, (n, n).
        order: Its rows in an order of little fill, (n,); by default SuperLU finds one.
    """
    if order is not None and is_compiled("auto"):
        return _plan_in_order(matrix.tocsc(), order.astype(np.int64))
    return _plan_by_factor(matrix, order)


def _plan_by_factor(matrix: Any, order: Ints | None) -> Elimination:
    """The plan read off a complete factor of SuperLU."""
    from scipy.sparse import csc_array

    n = matrix.shape[0]
    pattern = _without_cancellation(matrix)
    factor = factorise(pattern, order)
    L = csc_array(factor.lower)
    L.sort_indices()
    reach = np.diff(L.indptr) - 1  # entries below the diagonal
    parents = elimination_tree(L, reach)
    post = _postorder(parents)  # new number → position in the factor's order
    new = np.empty(n + 1, dtype=np.intp)
    new[post] = np.arange(n)
    new[n] = n
    new_parents = new[parents[post]]
    fronts = _fronts(L, reach, new_parents, post, new)
    return Elimination(factor.order[post], fronts)


def _plan_in_order(matrix: Any, order: Ints) -> Elimination:
    """The plan from the pattern alone: no factor is computed."""
    from ._compiled import fill_front_rows, find_tree

    n = matrix.shape[0]
    indptr = matrix.indptr.astype(np.int64)
    indices = matrix.indices.astype(np.int32, copy=False)
    parents = np.empty(n, dtype=np.int64)
    reach = np.empty(n, dtype=np.int64)
    find_tree(indptr, indices, order, node_places(order), parents, reach)
    post = _postorder(parents)
    new = np.append(node_places(post), n)
    order = order[post]
    parents = new[parents[post]]
    reach = reach[post]

    firsts = _front_starts(parents.tolist(), reach.tolist())
    starts = np.array([*firsts, n], dtype=np.int64)
    lasts = starts[1:] - 1
    front_of = np.repeat(np.arange(len(firsts)), np.diff(starts))
    front_of = np.append(front_of, NO_FRONT)
    front_parents = front_of[parents[lasts]]
    row_starts = np.concatenate([[0], np.cumsum(reach[lasts])])
    rows = np.empty(row_starts[-1], dtype=np.int64)
    fill_front_rows(
        indptr,
        indices,
        order,
        node_places(order),
        starts,
        front_parents,
        row_starts,
        rows,
    )
    fronts = [
        Front(start, stop, rows[first:end], parent)
        for start, stop, first, end, parent in zip(
            firsts,
            starts[1:].tolist(),
            row_starts[:-1].tolist(),
            row_starts[1:].tolist(),
            front_parents.tolist(),
            strict=True,
        )
    ]
    return Elimination(order, fronts)


def node_places(order: Ints) -> Ints:
    """The new number of every old one, (n,).

    Args:
        order: The old number of every new one, (n,).
    """
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def elimination_tree(L: Any, reach: Ints) -> Ints:
    """The parent of every column: its first row below the diagonal, or the root n above all.

    Args:
        L: The factor by columns, with sorted rows, (n, n).
        reach: The entries of each column below the diagonal, (n,).
    """
    n = len(reach)
    parents = np.full(n, n, dtype=np.intp)
    inner = reach > 0
    starts = L.indptr[:-1]
    first_entries = starts[inner] + 1
    parents[inner] = L.indices[first_entries]
    return parents


def factorise(matrix: Any, order: Ints | None = None) -> Factor:
    """SuperLU of a symmetric matrix, ordered as such and pivoted on its diagonal.

    Args:
        matrix: The matrix in compressed columns, (n, n).
        order: Its rows in an order of little fill, (n,); by default SuperLU finds one.
    """
    from scipy.sparse.linalg import splu

    ordering = "MMD_AT_PLUS_A"
    if order is not None:
        ordering = "NATURAL"
        matrix = matrix[order][:, order].tocsc()
    symmetric: Any = {"permc_spec": ordering, "options": {"SymmetricMode": True}}
    try:
        superlu = splu(matrix, diag_pivot_thresh=0.0, **symmetric)
    except RuntimeError as error:  # "Factor is exactly singular"
        message = "the shifted Laplacian is singular to working precision; use a smaller kappa"
        raise NotPositiveDefiniteError(message) from error
    return Factor(superlu, order)


def _without_cancellation(matrix: Any) -> Any:
    """A matrix of the same pattern whose factor shows all its fill: no two terms can cancel."""
    from scipy.sparse import csc_array, diags_array

    # Its index arrays are copies: nothing of the caller's is touched.
    entries = matrix.tocoo()
    rows, columns = entries.coords
    off_diagonal = (rows != columns) & (entries.data != 0.0)
    rows = rows[off_diagonal]
    columns = columns[off_diagonal]
    values = np.ones(len(rows))
    ones = csc_array((values, (rows, columns)), shape=matrix.shape)
    ones.data[:] = 1.0  # repeated entries were added up
    degree: Ints = np.ravel(ones.sum(axis=0))
    diagonal = diags_array(1.0 + degree)
    return (diagonal - ones).tocsc()


def _postorder(parents: Ints) -> Ints:
    """Nodes such that every subtree is contiguous and ends with its top."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import depth_first_order

    n = len(parents)
    size = n + 1
    children = np.arange(n)
    values = np.ones(n)
    tree = csr_array((values, (parents, children)), shape=(size, size))
    preorder = depth_first_order(tree, n, return_predecessors=False)
    backwards = preorder[:0:-1]  # without the root n
    return np.asarray(backwards, dtype=np.intp)


def _fronts(L: Any, reach: Ints, parents: Ints, post: Ints, new: Ints) -> list[Front]:
    """The fronts of a factor in postorder."""
    n = len(parents)
    ordered_reach = reach[post]
    starts = _front_starts(parents.tolist(), ordered_reach.tolist())
    stops = [*starts[1:], n]
    widths = np.subtract(stops, starts)
    numbers = np.arange(len(starts))
    front_of = np.repeat(numbers, widths)
    fronts = []
    for start, stop in zip(starts, stops, strict=True):
        # All earlier columns of the front reach the rows of its last one too.
        last = stop - 1
        old_last = int(post[last])
        first_below = L.indptr[old_last] + 1
        end = L.indptr[old_last + 1]
        below = L.indices[first_below:end]
        rows = np.sort(new[below])
        above = parents[last]
        parent = NO_FRONT
        if above < n:
            parent = int(front_of[above])
        fronts.append(Front(start, stop, rows, parent))
    return fronts


def _front_starts(parents: list[int], reach: list[int]) -> list[int]:
    """First columns of the fronts: small subtrees as one, then parents that pad little.

    ``reach`` counts the rows of each column below the diagonal.
    """
    n = len(parents)
    starts: list[int] = []
    filled: list[int] = []  # entries that the columns of each front have by themselves
    counts = _subtree_sizes(parents)
    column = 0
    while column < n:
        top = _leaf_top(column, parents, counts)
        following = top + 1
        below = sum(reach[column:following])
        starts.append(column)
        filled.append(below + following - column)
        while len(starts) > 1:
            previous_last = starts[-1] - 1
            if parents[previous_last] > top:
                break  # the front before is no child of this one
            width = following - starts[-2]
            triangle = width * (width + 1) // 2
            area = triangle + width * reach[top]
            joint = filled[-2] + filled[-1]
            if joint < (1.0 - _PADDING) * area:
                break
            starts.pop()
            filled[-2:] = [joint]
        column = following
    return starts


def _subtree_sizes(parents: list[int]) -> list[int]:
    """The number of columns in the subtree of each column, and of all under the root."""
    n = len(parents)
    counts = [1] * (n + 1)
    for column, parent in enumerate(parents):
        counts[parent] += counts[column]
    return counts


def _leaf_top(column: int, parents: list[int], counts: list[int]) -> int:
    """The top of the largest small subtree that begins at this column."""
    n = len(parents)
    top = column
    while True:
        above = parents[top]
        if above >= n:
            return top
        width = above - column + 1
        if counts[above] > min(_LEAF, width):
            return top
        top = above
