"""Graphs as a few arrays: all that a kernel and an oracle need of a network.

``c`` links between ``n`` nodes. A graph has ``successors``, a sparse (n, n) matrix, for oracles, and,
where its links have values, a ``laplacian()`` for kernels.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints
from .caching import cached_property
from .errors import InputError, ShapeError
from .inputs import as_positions, as_vector, is_listed, read_only
from .registry import register

_MOST_NODES = 2**31 - 1
# Node numbers up to this many times their count are renumbered without sorting.
_DENSE = 8
# A dataclass about the arms on offer; its length is their number.
Structure = TypeVar("Structure", bound=Sized)


class Graph:
    """A graph for oracles and kernels: derive from it and define one of its members, or both."""

    @property
    def successors(self) -> Any:
        """Its links for oracles, a sparse (n, n) matrix."""
        raise InputError("this graph does not define which nodes follow each other")

    def laplacian(self) -> Any:
        """For kernels: sparse, symmetric, positive semi-definite, (n, n)."""
        raise InputError("this graph has no Laplacian")

    @property
    def elimination_order(self) -> Ints | None:
        """Its nodes in an order in which a factor of the Laplacian has little fill, (n,).

        ``None`` where it offers none.
        """
        return None

    @property
    def squared_order(self) -> Ints | None:
        """Its nodes in an order of little fill for the square of the Laplacian, (n,), or ``None``."""
        return None


@register("network", "turns")
@dataclass(frozen=True, kw_only=True, eq=False)
class TurnGraph(Graph):
    """Roads as nodes and legal turns as arcs: a line graph without its map.

    Args:
        length: Metres of each road, (n,).
        turns: From which road to which, (c, 2); sorted, without repeats.
    """

    length: Floats
    turns: NDArray[np.int32]

    def __post_init__(self) -> None:
        length = as_vector(self.length, "length")
        turns = as_pairs(self.turns, "turns")
        if not _in_range(turns, len(length)):
            raise InputError(f"turns names a road outside 0 … {len(length) - 1}")
        if len(length) == 0 or not (length > 0.0).all():
            raise InputError("length must hold one number above 0 for each road")
        object.__setattr__(self, "length", read_only(length))
        object.__setattr__(self, "turns", read_only(sorted_pairs(turns)))

    def __len__(self) -> int:
        return len(self.length)

    @cached_property
    def successors(self) -> Any:
        """The turns as a sparse (n, n) matrix, in the order of ``turns``."""
        from scipy.sparse import csr_array

        n = len(self)
        first, second = self.turns.T
        pointers = np.searchsorted(first, np.arange(n + 1))
        ones = np.ones(len(second))
        return csr_array((ones, second, pointers), shape=(n, n))

    @cached_property
    def elimination_order(self) -> Ints:
        """The roads in the order of a nested dissection, (n,); see :mod:`superarm.core.dissection`."""
        from .dissection import elimination_order

        turns = self.turns.astype(np.intp)
        return read_only(elimination_order(self.length, turns))

    @cached_property
    def squared_order(self) -> Ints:
        """The roads in an order for the square of the Laplacian, (n,)."""
        from .dissection import squared_order

        turns = self.turns.astype(np.intp)
        return read_only(squared_order(self.elimination_order, turns))

    def incidence(self) -> Any:
        """B of eq. 133 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025), (n, c).

        A turn e₁ → e₂ weighs mean length / length of e₁: −weight in row e₁, +weight in row e₂.
        """
        from scipy.sparse import csc_array

        first, second = self.turns.T
        weight = self.length.mean() / self.length[first]
        turn_numbers = np.arange(len(first))
        rows = np.concatenate([first, second])
        columns = np.concatenate([turn_numbers, turn_numbers])
        values = np.concatenate([-weight, weight])
        entries = (values, (rows, columns))
        shape = (len(self), len(first))
        return csc_array(entries, shape=shape)

    def laplacian(self) -> Any:
        """The incidence Laplacian Δ = B Bᵀ (eq. 132, with ``incidence`` as B), sparse (n, n)."""
        incidence = self.incidence()
        return (incidence @ incidence.T).tocsc()


@register("network", "sparse")
@dataclass(frozen=True, kw_only=True, eq=False)
class SparseGraph(Graph):
    """Any sparse (n, n) matrix in compressed rows: a Laplacian, or links alone.

    Args:
        indptr: Where the links of each node begin, (n + 1,).
        indices: The node to which each link leads, (c,).
        data: The value of each link, (c,); ``None`` where only the links count.
    """

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: Floats | None = None

    def __post_init__(self) -> None:
        indptr = _numbers(self.indptr, "indptr")
        indices = _numbers(self.indices, "indices")
        n = len(indptr) - 1
        rises = n >= 1 and indptr[0] == 0 and (np.diff(indptr) >= 0).all()
        if not rises or indptr[-1] != len(indices):
            raise InputError(
                f"indptr must rise from 0 to the {len(indices)} links, node by node"
            )
        if not _in_range(indices, n):
            raise InputError(f"indices names a node outside 0 … {n - 1}")
        object.__setattr__(self, "indptr", read_only(indptr))
        object.__setattr__(self, "indices", read_only(indices))
        if self.data is not None:
            data = read_only(as_vector(self.data, "data", len(indices)))
            object.__setattr__(self, "data", data)

    @classmethod
    def of(cls, matrix: Any, *, links_only: bool = False) -> Self:
        """The graph of a sparse matrix.

        Args:
            matrix: A sparse (n, n) matrix of scipy.
            links_only: Whether to drop its values.
        """
        rows = matrix.tocsr()
        data = None if links_only else rows.data
        return cls(indptr=rows.indptr, indices=rows.indices, data=data)

    @cached_property
    def successors(self) -> Any:
        from scipy.sparse import csr_array

        n = len(self.indptr) - 1
        data = np.ones(len(self.indices)) if self.data is None else self.data.copy()
        indices = self.indices.copy()
        indptr = self.indptr.copy()
        return csr_array((data, indices, indptr), shape=(n, n))

    def laplacian(self) -> Any:
        return super().laplacian() if self.data is None else self.successors


def sorted_pairs(pairs: Ints | NDArray[np.int32]) -> Any:
    """Each pair once, in order, (c, 2): like ``np.unique`` by rows, but far faster.

    Args:
        pairs: Pairs of numbers from 0, (m, 2).
    """
    base = int(pairs.max(initial=0)) + 1
    first, second = pairs.T
    keys = first.astype(np.int64) * base + second
    if (np.diff(keys) > 0).all():
        return pairs.copy()
    keys.sort()
    is_first = np.diff(keys, prepend=-1) > 0
    keys = keys[is_first]
    return np.stack(np.divmod(keys, base), axis=1).astype(pairs.dtype)


def as_pairs(values: Any, name: str) -> NDArray[np.int32]:
    """Pairs of node numbers, (c, 2).

    Args:
        values: Rows of two whole numbers; an empty list is no pair.
        name: What errors call them.
    """
    numbers = _numbers(values, name)
    if numbers.size and (numbers.ndim != 2 or numbers.shape[1] != 2):
        raise ShapeError(
            f"{name} must have shape (c, 2), one pair a row, got {numbers.shape}"
        )
    return numbers.reshape(-1, 2)


def _numbers(values: Any, name: str) -> NDArray[np.int32]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(
            f"{name} must be rectangular, got rows of different lengths"
        ) from None
    listed = is_listed(values) and array.ndim > 0
    if not listed or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{name} must hold whole numbers below 2³¹, not {array.dtype} values"
        )
    # Both ends: the absolute value of the smallest integer is itself.
    if array.size and not (array.min() >= -_MOST_NODES and array.max() <= _MOST_NODES):
        raise InputError(f"{name} must hold whole numbers below 2³¹, not {array.max()}")
    return array.astype(np.int32)


def _in_range(numbers: NDArray[np.int32], n: int) -> bool:
    """Whether all numbers are among 0 … n − 1."""
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < n)


@register("structure", "pairs")
@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """An offer's structure where arms join two nodes: arm i goes from ``left[i]`` to ``right[i]``.

    A channel and a user, a film and a viewer, two people in a network. Each side is
    numbered on its own, except where an oracle treats both as the same nodes.

    Args:
        left: The node on the left of each arm, (n,), from 0.
        right: The node on the right of each arm, (n,), from 0.
    """

    left: Ints
    right: Ints

    def __post_init__(self) -> None:
        left = as_positions(self.left, "left")
        right = as_positions(self.right, "right")
        if len(left) != len(right):
            raise InputError(
                f"left has {len(left)} entries and right {len(right)}; give both for every arm"
            )
        _require_nodes(left, "left")
        _require_nodes(right, "right")
        object.__setattr__(self, "left", read_only(left))
        object.__setattr__(self, "right", read_only(right))
        _refuse_repeated_pairs(left, right)

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def numbered(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """:func:`renumbered` of both sides, once for all policies that are offered them."""
        return renumbered(self.left), renumbered(self.right)


def _require_nodes(numbers: Ints, name: str) -> None:
    if numbers.min(initial=0) < 0 or numbers.max(initial=0) > _MOST_NODES:
        raise InputError(f"{name} holds a node outside 0 … {_MOST_NODES}")


def _refuse_repeated_pairs(left: Ints, right: Ints) -> None:
    order = np.lexsort((left, right))
    same_left = np.diff(left[order]) == 0
    same_right = np.diff(right[order]) == 0
    repeats = same_left & same_right  # each sorted arm and its predecessor
    if repeats.any():
        arm = int(order[int(np.argmax(repeats)) + 1])
        raise InputError(
            f"arm {arm} joins {left[arm]} and {right[arm]}, as another arm does; "
            "offer every pair once"
        )


def renumbered(nodes: Ints) -> tuple[Ints, Ints]:
    """The distinct nodes, sorted, and each entry's place among them: ``np.unique`` without sorting.

    Args:
        nodes: Numbers of nodes from 0, (n,).

    >>> [array.tolist() for array in renumbered(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    if nodes.max(initial=0) > _DENSE * len(nodes):
        distinct, places = np.unique(nodes, return_inverse=True)
        return distinct, places
    is_used = np.zeros(int(nodes.max(initial=-1)) + 1, dtype=np.bool_)
    is_used[nodes] = True
    distinct = np.flatnonzero(is_used)
    if len(distinct) == len(is_used):
        return distinct, nodes
    place_of = np.cumsum(is_used) - 1
    return distinct, place_of[nodes]


def require_structure(
    structure: object, kind: type[Structure], n: int, by: str
) -> Structure:
    """The structure of an offer, once it is known to fit.

    Args:
        structure: What the offer contains.
        kind: The type that the oracle needs.
        n: The number of arms on offer.
        by: The oracle, for errors.
    """
    if not isinstance(structure, kind):
        arguments = ", ".join(f"{item.name}=…" for item in fields(cast(Any, kind)))
        raise InputError(
            f"{by} needs {kind.__name__}({arguments}) as the offer's structure, "
            f"not {structure!r:.60}"
        )
    if len(structure) != n:
        raise ShapeError(
            f"{n} arms are on offer, but the structure is for {len(structure)}"
        )
    return structure
