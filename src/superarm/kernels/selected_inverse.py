"""The diagonal of the inverse of a sparse symmetric matrix, without the inverse.

Notation

=============  =====================================================================
``A``          (n, n), sparse, symmetric (not Hermitian where complex), in elimination order
front          a few columns eliminated together, ``C``, and the rows their factor reaches, ``R``
``F``          dense matrix of a front, in blocks: ``F_CC``, ``F_RC``, ``F_RR``
``pivot``      ``F_CC⁻¹``, (c, c)
``multiplier`` ``F_RC F_CC⁻¹``, (r, c)
``Z``          ``A⁻¹`` on the front
=============  =====================================================================

Multifrontal: eliminating a front's columns leaves the update ``F_RR − multiplier F_RCᵀ`` for its
parent in the elimination tree. On the way back, with ``Z_RR`` from the parent (Takahashi's equations
in blocks)::

    Z_RC = −Z_RR multiplier,   Z_CC = pivot − multiplierᵀ Z_RC

Only entries within fronts are ever computed: about as many as the sparse factor has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Ints
from superarm.core.errors import NotPositiveDefiniteError

# Subtrees of at most so many columns become one front: dense work is cheaper than small steps.
_LEAF = 24
_PADDING = 0.3  # share of explicit zeros up to which a front joins its parent
_ROOT = -1  # the parent of a front that has none


class Front(NamedTuple):
    """Columns ``start`` … ``stop − 1`` and the later rows that they reach."""

    start: int
    stop: int
    rows: Ints
    parent: int  # number of the parent's front, or −1


class Elimination(NamedTuple):
    """How the columns of a sparse symmetric matrix are eliminated."""

    order: Ints  # (n,), the old number of every new one
    fronts: list[Front]  # children come before their parents


def plan_elimination(matrix: Any) -> Elimination:
    """Order and fronts for the pattern of a sparse symmetric matrix."""
    from scipy.sparse import csc_array

    n = matrix.shape[0]
    factor = factorise(_without_cancellation(matrix))
    L = csc_array(factor.L)
    L.sort_indices()
    reach = np.diff(L.indptr) - 1  # entries below the diagonal
    # The parent of a column is the first row below the diagonal; n is the root above all.
    parents = np.full(n, n, dtype=np.intp)
    inner = reach > 0
    first_entries = L.indptr[:-1][inner] + 1
    parents[inner] = L.indices[first_entries]
    post = _postorder(parents)  # new number → position in the factor's order
    new = np.empty(n + 1, dtype=np.intp)
    new[post] = np.arange(n)
    new[n] = n
    order = np.argsort(factor.perm_c)[post]
    fronts = _fronts(L, reach, new[parents[post]], post, new)
    return Elimination(order, fronts)


def factorise(matrix: Any) -> Any:
    """SuperLU of a symmetric matrix, ordered as such and pivoted on its diagonal."""
    from scipy.sparse.linalg import splu

    symmetric: Any = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
    try:
        return splu(matrix, diag_pivot_thresh=0.0, **symmetric)
    except RuntimeError as error:  # "Factor is exactly singular"
        message = "the shifted Laplacian is singular to working precision; use a smaller kappa"
        raise NotPositiveDefiniteError(message) from error


def _without_cancellation(matrix: Any) -> Any:
    """A matrix of the same pattern whose factor shows all its fill: no two terms can cancel."""
    from scipy.sparse import csc_array, diags_array

    # Its index arrays are copies: nothing of the caller's is touched.
    entries = matrix.tocoo()
    rows, columns = entries.coords
    off_diagonal = (rows != columns) & (entries.data != 0.0)
    count = int(off_diagonal.sum())
    positions = (rows[off_diagonal], columns[off_diagonal])
    ones = csc_array((np.ones(count), positions), shape=matrix.shape)
    ones.data[:] = 1.0  # repeated entries were added up
    degree: Ints = np.asarray(ones.sum(axis=0)).ravel()
    return (diags_array(1.0 + degree) - ones).tocsc()


def _postorder(parents: Ints) -> Ints:
    """Nodes such that every subtree is contiguous and ends with its top."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import depth_first_order

    n = len(parents)
    links = (parents, np.arange(n))
    tree = csr_array((np.ones(n), links), shape=(n + 1, n + 1))
    preorder = depth_first_order(tree, n, return_predecessors=False)
    return np.asarray(preorder[:0:-1], dtype=np.intp)  # backwards, without the root n


def _fronts(L: Any, reach: Ints, parents: Ints, post: Ints, new: Ints) -> list[Front]:
    """The fronts of a factor in postorder."""
    n = len(parents)
    starts = _front_starts(parents.tolist(), reach[post].tolist())
    stops = [*starts[1:], n]
    widths = np.subtract(stops, starts)
    front_of = np.repeat(np.arange(len(starts)), widths)
    fronts = []
    for start, stop in zip(starts, stops, strict=True):
        # All earlier columns of the front reach the rows of its last one too.
        last = int(post[stop - 1])
        first_below = L.indptr[last] + 1
        below = L.indices[first_below : L.indptr[last + 1]]
        rows = np.sort(new[below])
        above = parents[stop - 1]
        parent = int(front_of[above]) if above < n else _ROOT
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
        starts.append(column)
        filled.append(sum(reach[column : top + 1]) + top + 1 - column)
        # While the front before is a child of this one:
        while len(starts) > 1 and parents[starts[-1] - 1] <= top:
            width = top + 1 - starts[-2]
            area = width * (width + 1) // 2 + width * reach[top]
            joint = filled[-2] + filled[-1]
            if joint < (1.0 - _PADDING) * area:
                break
            starts.pop()
            filled[-2:] = [joint]
        column = top + 1
    return starts


def _subtree_sizes(parents: list[int]) -> list[int]:
    """The number of columns in the subtree of each column, and of all under the root."""
    n = len(parents)
    counts = [1] * (n + 1)
    for column in range(n):
        counts[parents[column]] += counts[column]
    return counts


def _leaf_top(column: int, parents: list[int], counts: list[int]) -> int:
    """The top of the largest small subtree that begins at this column."""
    n = len(parents)
    top = column
    while True:
        above = parents[top]
        if above >= n or counts[above] > min(_LEAF, above - column + 1):
            return top
        top = above


def inverse_diagonal(matrix: Any, plan: Elimination) -> Any:
    """diag(``matrix``⁻¹), (n,), real or complex like the matrix.

    Args:
        matrix: A sparse symmetric matrix, (n, n).
        plan: The elimination of its pattern.
    """
    from scipy.sparse import csc_array

    order, fronts = plan
    ordered = csc_array(matrix)[order][:, order].tocsc()
    diagonal = np.empty(len(order), dtype=ordered.dtype)
    diagonal[order] = _invert(_eliminate(ordered, fronts), fronts, ordered.dtype)
    return diagonal


class _Eliminated(NamedTuple):
    """What the way back needs of a front."""

    pivot: Any  # F_CC⁻¹, (c, c)
    multiplier: Any  # F_RC F_CC⁻¹, (r, c)


class _Update(NamedTuple):
    """What eliminating a front adds to its parent."""

    rows: Ints  # (r,)
    matrix: Any  # F_RR − multiplier F_RCᵀ, (r, r)


def _place(position: Ints, front: Front) -> None:
    """Number the columns and rows of a front from 0, in ``position`` (n,)."""
    width = front.stop - front.start
    position[front.start : front.stop] = np.arange(width)
    position[front.rows] = np.arange(width, width + len(front.rows))


def _assemble(A: Any, front: Front, updates: list[_Update], position: Ints) -> Any:
    """F of a front: its entries of A, and the updates of its children."""
    start = front.start
    stop = front.stop
    c = stop - start
    size = c + len(front.rows)
    F = np.zeros((size, size), dtype=A.dtype)
    entries = slice(A.indptr[start], A.indptr[stop])
    rows = A.indices[entries]
    counts = np.diff(A.indptr[start : stop + 1])  # entries of each column
    columns = np.repeat(np.arange(c), counts)
    below = rows >= start
    places = position[rows[below]]
    F[places, columns[below]] = A.data[entries][below]
    for update in updates:
        places = position[update.rows]
        F[places[:, None], places] += update.matrix
    return F


def _eliminate(A: Any, fronts: list[Front]) -> list[_Eliminated]:
    """Pivot and multiplier of every front, children first."""
    position = np.empty(A.shape[0], dtype=np.intp)
    updates: list[list[_Update]] = [[] for _ in fronts]  # for every front
    eliminated = []
    for number, front in enumerate(fronts):
        c = front.stop - front.start
        _place(position, front)
        F = _assemble(A, front, updates[number], position)
        updates[number] = []  # to free their memory
        F_RC = F[c:, :c]
        pivot = np.linalg.inv(F[:c, :c])
        multiplier = F_RC @ pivot
        if len(front.rows):
            remainder = F[c:, c:] - multiplier @ F_RC.T
            update = _Update(front.rows, remainder)
            updates[front.parent].append(update)
        eliminated.append(_Eliminated(pivot, multiplier))
    return eliminated


def _invert(eliminated: list[_Eliminated], fronts: list[Front], dtype: Any) -> Any:
    """The diagonal of A⁻¹, (n,), in elimination order."""
    n = fronts[-1].stop if fronts else 0
    position = np.empty(n, dtype=np.intp)
    diagonal = np.empty(n, dtype=dtype)
    children = _children(fronts)
    # Z_RR of every front, from its parent.
    inherited: list[Any] = [np.empty((0, 0), dtype=dtype)] * len(fronts)
    for number in range(len(fronts) - 1, -1, -1):
        front = fronts[number]
        pivot, multiplier = eliminated[number]
        Z_RR = inherited[number]
        inherited[number] = None  # to free its memory
        Z_RC = -(Z_RR @ multiplier)
        Z_CC = pivot - multiplier.T @ Z_RC
        diagonal[front.start : front.stop] = np.diagonal(Z_CC)
        if not children[number]:
            continue
        c = front.stop - front.start
        size = c + len(front.rows)
        Z = np.empty((size, size), dtype=dtype)
        Z[:c, :c] = Z_CC
        Z[c:, :c] = Z_RC
        Z[:c, c:] = Z_RC.T
        Z[c:, c:] = Z_RR
        _place(position, front)
        for child in children[number]:
            places = position[fronts[child].rows]
            inherited[child] = Z[places[:, None], places]
    return diagonal


def _children(fronts: list[Front]) -> list[list[int]]:
    """Numbers of the children of every front."""
    children: list[list[int]] = [[] for _ in fronts]
    for number, front in enumerate(fronts):
        if front.parent != _ROOT:
            children[front.parent].append(number)
    return children
