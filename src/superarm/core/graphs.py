"""Graphs as data: all that a kernel and an oracle need of a network, in a few arrays.

``c`` links between ``n`` nodes. A graph has ``successors``, a sparse (n, n) matrix, for oracles, and
where its links have values a ``laplacian()`` for kernels.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints
from .errors import InputError, ShapeError
from .inputs import as_positions, as_vector, is_listed, read_only
from .registry import register

_MOST_NODES = 2**31 - 1
# A dataclass about the arms on offer, as long as they are.
Structure = TypeVar("Structure", bound=Sized)


class Graph:
    """What oracles and kernels accept as a graph: derive from it and define one of these, or both."""

    @property
    def successors(self) -> Any:
        """Its links for oracles, a sparse (n, n) matrix."""
        raise InputError("this graph does not say which nodes follow each other")

    def laplacian(self) -> Any:
        """For kernels: sparse, symmetric, positive semi-definite, (n, n)."""
        raise InputError("this graph has no Laplacian")


@register("network", "turns")
@dataclass(frozen=True, kw_only=True, eq=False)
class TurnGraph(Graph):
    """Roads as nodes and legal turns as arcs: a line graph without its map.

    Args:
        length: Metres of each road, (n,).
        turns: (c, 2): from, to; sorted, without repeats.
    """

    length: Floats
    turns: NDArray[np.int32]

    def __post_init__(self) -> None:
        length = as_vector(self.length, "length")
        turns = as_pairs(self.turns, "turns")
        if turns.size and not (turns.min() >= 0 and turns.max() < len(length)):
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
        return csr_array((np.ones(len(second)), second, pointers), shape=(n, n))

    def incidence(self) -> Any:
        """B of eq. 133 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025), (n, c).

        A turn e₁ → e₂ weighs mean length / length of e₁: −weight in row e₁, +weight in row e₂.
        """
        from scipy.sparse import csc_array

        first, second = self.turns.T
        weight = self.length.mean() / self.length[first]
        both = np.arange(len(first))
        rows = np.concatenate([first, second])
        values = np.concatenate([-weight, weight])
        return csc_array(
            (values, (rows, np.concatenate([both, both]))),
            shape=(len(self), len(first)),
        )

    def laplacian(self) -> Any:
        """The incidence Laplacian Δ = B Bᵀ (eq. 132, with ``incidence`` as B), sparse (n, n)."""
        incidence = self.incidence()
        return (incidence @ incidence.T).tocsc()


@register("network", "sparse")
@dataclass(frozen=True, kw_only=True, eq=False)
class SparseGraph(Graph):
    """Any sparse (n, n) matrix by its compressed rows: a Laplacian, or mere links.

    Args:
        indptr: (n + 1,): where the links of each node begin.
        indices: (c,).
        data: (c,); ``None`` where only the links count.
    """

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: Floats | None = None

    def __post_init__(self) -> None:
        indptr, indices = (
            _numbers(self.indptr, "indptr"),
            _numbers(self.indices, "indices"),
        )
        n = len(indptr) - 1
        rises = n >= 1 and indptr[0] == 0 and (np.diff(indptr) >= 0).all()
        if not rises or indptr[-1] != len(indices):
            raise InputError(
                f"indptr must rise from 0 to the {len(indices)} links, node by node"
            )
        if indices.size and not (indices.min() >= 0 and indices.max() < n):
            raise InputError(f"indices names a node outside 0 … {n - 1}")
        object.__setattr__(self, "indptr", read_only(indptr))
        object.__setattr__(self, "indices", read_only(indices))
        if self.data is not None:
            data = read_only(as_vector(self.data, "data", len(indices)))
            object.__setattr__(self, "data", data)

    @classmethod
    def of(cls, matrix: Any, *, links_only: bool = False) -> Self:
        """This matrix; with ``links_only`` without its values."""
        rows = matrix.tocsr()
        data = None if links_only else rows.data
        return cls(indptr=rows.indptr, indices=rows.indices, data=data)

    @cached_property
    def successors(self) -> Any:
        from scipy.sparse import csr_array

        n = len(self.indptr) - 1
        data = np.ones(len(self.indices)) if self.data is None else self.data.copy()
        return csr_array((data, self.indices.copy(), self.indptr.copy()), shape=(n, n))

    def laplacian(self) -> Any:
        return super().laplacian() if self.data is None else self.successors


def sorted_pairs(pairs: Ints | NDArray[np.int32]) -> Any:
    """Each pair of numbers from 0 on once, in order, (c, 2): as ``np.unique`` by rows, far faster."""
    largest = int(pairs.max(initial=0)) + 1
    keys = np.unique(pairs[:, 0].astype(np.int64) * largest + pairs[:, 1])
    return np.stack(np.divmod(keys, largest), axis=1).astype(pairs.dtype)


def as_pairs(values: Any, name: str) -> NDArray[np.int32]:
    """Pairs of node numbers, (c, 2); an empty list is none."""
    numbers = _numbers(values, name)
    if numbers.size and (numbers.ndim != 2 or numbers.shape[1] != 2):
        raise ShapeError(
            f"{name} has shape {numbers.shape}; it must be (c, 2), one pair a row"
        )
    return numbers.reshape(-1, 2)


def _numbers(values: Any, name: str) -> NDArray[np.int32]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(
            f"{name} has rows of different lengths; it must be rectangular"
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


@register("structure", "pairs")
@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """An offer's structure where arms join two nodes: arm i goes from ``left[i]`` to ``right[i]``.

    A channel and a user, a film and a viewer, two people in a network. Each side is
    numbered on its own, except where an oracle says that both are the same nodes.

    Args:
        left: (n,), from 0.
        right: (n,), from 0.
    """

    left: Ints
    right: Ints

    def __post_init__(self) -> None:
        sides = [as_positions(getattr(self, name), name) for name in ("left", "right")]
        if len(sides[0]) != len(sides[1]):
            told = f"left has {len(sides[0])} entries and right {len(sides[1])}"
            raise InputError(f"{told}; give both for every arm")
        for name, side in zip(("left", "right"), sides, strict=True):
            if side.min(initial=0) < 0 or side.max(initial=0) > _MOST_NODES:
                raise InputError(f"{name} holds a node outside 0 … {_MOST_NODES}")
            object.__setattr__(self, name, read_only(side))
        order = np.lexsort(sides)
        same = [np.diff(side[order]) == 0 for side in sides]
        if (same[0] & same[1]).any():
            again = int(order[int(np.argmax(same[0] & same[1])) + 1])
            told = f"arm {again} joins {sides[0][again]} and {sides[1][again]}, as another arm does"
            raise InputError(f"{told}; offer every pair once")

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def numbered(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """:func:`renumbered` of both sides, once for all policies that are offered them."""
        return renumbered(self.left), renumbered(self.right)


def renumbered(nodes: Ints) -> tuple[Ints, Ints]:
    """The nodes that are named, rising, and each entry as its place among them: np.unique, unsorted.

    >>> [array.tolist() for array in renumbered(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    if nodes.max(initial=0) > 8 * len(nodes):
        known, places = np.unique(nodes, return_inverse=True)
        return known, places
    used = np.zeros(int(nodes.max(initial=-1)) + 1, dtype=np.bool_)
    used[nodes] = True
    known = np.flatnonzero(used)
    return known, nodes if len(known) == len(used) else (np.cumsum(used) - 1)[nodes]


def require_structure(
    structure: object, kind: type[Structure], n: int, by: str
) -> Structure:
    """The structure of an offer of ``n`` arms, or an error that says who needs what."""
    if not isinstance(structure, kind):
        given = ", ".join(f"{item.name}=…" for item in fields(cast(Any, kind)))
        wanted = f"{kind.__name__}({given})"
        raise InputError(
            f"{by} needs {wanted} as the offer's structure, not {structure!r:.60}"
        )
    if len(structure) != n:
        raise ShapeError(
            f"{n} arms are on offer, but the structure is for {len(structure)}"
        )
    return structure
