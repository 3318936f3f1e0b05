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

Multifrontal: eliminating a front's columns leaves ``F_RR − multiplier F_RCᵀ`` for its parent in
the elimination tree. On the way back, with ``Z_RR`` handed down by the parent (Takahashi's
equations in blocks)::

    Z_RC = −Z_RR multiplier,   Z_CC = pivot − multiplierᵀ Z_RC

Only entries within fronts are ever made: about as many as the sparse factor has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Ints
from superarm.core.errors import NotPositiveDefiniteError

_LEAF = 24  # subtrees of at most so many columns become one front: dense work is cheaper than small steps
_PADDING = 0.3  # share of explicit zeros up to which a front joins its parent


class Front(NamedTuple):
    """Columns ``start`` … ``stop − 1`` and the later rows that they reach."""

    start: int
    stop: int
    rows: Ints
    parent: int  # number of the parent's front, or −1


def plan_elimination(matrix: Any) -> tuple[Ints, list[Front]]:
    """Order and fronts for the pattern of a sparse symmetric matrix.

    The order is (n,), the old number of every new one; fronts of children come before their parents.
    """
    from scipy.sparse import csc_array

    n = matrix.shape[0]
    factor = factorise(_without_cancellation(matrix))
    L = csc_array(factor.L)
    L.sort_indices()
    after = np.diff(L.indptr) - 1  # entries below the diagonal
    parents = np.full(n, n, dtype=np.intp)  # n: the root above all
    inner = after > 0
    parents[inner] = L.indices[L.indptr[:-1][inner] + 1]
    post = _postorder(parents)  # new → position in the factor's order
    new = np.empty(n + 1, dtype=np.intp)
    new[post] = np.arange(n)
    new[n] = n
    return np.argsort(factor.perm_c)[post], _fronts(
        L, after, new[parents[post]], post, new
    )


def factorise(matrix: Any) -> Any:
    """SuperLU of a symmetric matrix, ordered as such and pivoted on its diagonal."""
    from scipy.sparse.linalg import splu

    symmetric: Any = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
    try:
        return splu(matrix, diag_pivot_thresh=0.0, **symmetric)
    except RuntimeError as error:  # "Factor is exactly singular"
        told = "the shifted Laplacian is singular to working precision; use a smaller kappa"
        raise NotPositiveDefiniteError(told) from error


def _without_cancellation(matrix: Any) -> Any:
    """A matrix of the same pattern whose factor shows all its fill: no two terms can cancel."""
    from scipy.sparse import csc_array, diags_array

    entries = (
        matrix.tocoo()
    )  # its index arrays are copies: nothing of the caller's is touched
    first, second = entries.coords
    off = (first != second) & (entries.data != 0.0)
    ones = csc_array(
        (np.ones(int(off.sum())), (first[off], second[off])), shape=matrix.shape
    )
    ones.data[:] = 1.0  # repeated entries were added up
    degree: Ints = np.asarray(ones.sum(axis=0)).ravel()
    return (diags_array(1.0 + degree) - ones).tocsc()


def _postorder(parents: Ints) -> Ints:
    """Nodes such that every subtree is contiguous and ends with its top."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import depth_first_order

    n = len(parents)
    tree = csr_array((np.ones(n), (parents, np.arange(n))), shape=(n + 1, n + 1))
    return np.asarray(
        depth_first_order(tree, n, return_predecessors=False)[:0:-1], dtype=np.intp
    )


def _fronts(L: Any, after: Ints, parents: Ints, post: Ints, new: Ints) -> list[Front]:
    """The fronts of a factor in postorder: columns of a front and their reach, front by front."""
    n = len(parents)
    starts = _joined(parents.tolist(), after[post].tolist())
    stops = [*starts[1:], n]
    front_of = np.repeat(np.arange(len(starts)), np.subtract(stops, starts))
    made = []
    for start, stop in zip(starts, stops, strict=True):
        last = int(
            post[stop - 1]
        )  # whose rows all earlier columns of the front reach too
        rows = np.sort(new[L.indices[L.indptr[last] + 1 : L.indptr[last + 1]]])
        parent = int(front_of[parents[stop - 1]]) if parents[stop - 1] < n else -1
        made.append(Front(start, stop, rows, parent))
    return made


def _joined(parents: list[int], reach: list[int]) -> list[int]:
    """First columns of the fronts: small subtrees whole, then parents that pad little.

    ``reach`` counts the rows of each column below the diagonal.
    """
    n = len(parents)
    counts = [1] * (n + 1)  # columns of each subtree
    for column in range(n):
        counts[parents[column]] += counts[column]
    starts: list[int] = []
    filled: list[int] = []  # entries that the columns of a front have by themselves
    column = 0
    while column < n:
        top = column
        while (above := parents[top]) < n and counts[above] <= min(
            _LEAF, above - column + 1
        ):
            top = above  # its subtree begins at this column too
        starts.append(column)
        filled.append(sum(reach[column : top + 1]) + top + 1 - column)
        while (
            len(starts) > 1 and parents[starts[-1] - 1] <= top
        ):  # the front before is a child
            width = top + 1 - starts[-2]
            area = width * (width + 1) // 2 + width * reach[top]
            if filled[-2] + filled[-1] < (1.0 - _PADDING) * area:
                break
            starts.pop()
            filled[-2:] = [filled[-2] + filled[-1]]
        column = top + 1
    return starts


def inverse_diagonal(matrix: Any, plan: tuple[Ints, list[Front]]) -> Any:
    """diag(``matrix``⁻¹), (n,), real or complex as the matrix is; ``plan`` is of its pattern."""
    from scipy.sparse import csc_array

    order, fronts = plan
    ordered = csc_array(matrix)[order][:, order].tocsc()
    diagonal = np.empty(len(order), dtype=ordered.dtype)
    diagonal[order] = _invert(_eliminate(ordered, fronts), fronts, ordered.dtype)
    return diagonal


def _eliminate(A: Any, fronts: list[Front]) -> list[tuple[Any, Any]]:
    """Pivot and multiplier of every front: what the way back needs of it."""
    position = np.empty(A.shape[0], dtype=np.intp)
    waiting: list[list[tuple[Ints, Any]]] = [[] for _ in fronts]
    done = []
    for number, (start, stop, rows, parent) in enumerate(fronts):
        c = stop - start
        position[start:stop] = np.arange(c)
        position[rows] = np.arange(c, c + len(rows))
        F = np.zeros((c + len(rows), c + len(rows)), dtype=A.dtype)
        where = A.indices[A.indptr[start] : A.indptr[stop]]
        columns = np.repeat(np.arange(c), np.diff(A.indptr[start : stop + 1]))
        below = where >= start
        F[position[where[below]], columns[below]] = A.data[
            A.indptr[start] : A.indptr[stop]
        ][below]
        for their_rows, update in waiting[number]:
            at = position[their_rows]
            F[at[:, None], at] += update
        waiting[number] = []
        pivot = np.linalg.inv(F[:c, :c])
        multiplier = F[c:, :c] @ pivot
        if len(rows):
            waiting[parent].append((rows, F[c:, c:] - multiplier @ F[c:, :c].T))
        done.append((pivot, multiplier))
    return done


def _invert(eliminated: list[tuple[Any, Any]], fronts: list[Front], kind: Any) -> Any:
    n = fronts[-1].stop if fronts else 0
    position = np.empty(n, dtype=np.intp)
    diagonal = np.empty(n, dtype=kind)
    handed: list[Any] = [np.empty((0, 0), dtype=kind)] * len(
        fronts
    )  # Z_RR of every front
    children: list[list[int]] = [[] for _ in fronts]
    for number, front in enumerate(fronts):
        if front.parent >= 0:
            children[front.parent].append(number)
    for number in range(len(fronts) - 1, -1, -1):
        start, stop, rows, _ = fronts[number]
        pivot, multiplier = eliminated[number]
        c = stop - start
        Z_RR, handed[number] = handed[number], None
        Z_RC = -(Z_RR @ multiplier)
        Z_CC = pivot - multiplier.T @ Z_RC
        diagonal[start:stop] = np.diagonal(Z_CC)
        if not children[number]:
            continue
        Z = np.empty((c + len(rows), c + len(rows)), dtype=kind)
        Z[:c, :c], Z[c:, :c], Z[:c, c:], Z[c:, c:] = Z_CC, Z_RC, Z_RC.T, Z_RR
        position[start:stop] = np.arange(c)
        position[rows] = np.arange(c, c + len(rows))
        for child in children[number]:
            at = position[fronts[child].rows]
            handed[child] = Z[at[:, None], at]
    return diagonal
