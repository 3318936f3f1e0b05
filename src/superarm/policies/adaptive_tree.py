"""ACC-UCB [nika2020contextual]: optimism over cells that are cut where they are played.

Notation

===============  ==================================================================
``h``            depth of a cell in the tree; its width on every axis is 2⁻ʰ
``v1, v2, rho``  a cell at depth h has diameter at most v₁ρʰ and holds a ball of v₂ρʰ
``N``            children of a cell, 2ᵈ
===============  ==================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Direction, Floats, Ints, Oracle, Rng, State
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import (
    as_count,
    as_flag,
    as_number,
    as_positive,
)
from superarm.core.registry import register
from superarm.models import Model

from .cells import CellPolicy

_MOST_COLUMNS = 12
# Cells of this depth are not cut: floats tell contexts apart to 2⁻⁵².
_DEEPEST = 48
_NO_CHILD = -1


@register("policy", "adaptive-tree")
class AdaptiveTree(CellPolicy):
    """Optimism over cells that are split where it plays: ACC-UCB.

    The index of a leaf at depth h with mean μ̂ and n plays is
    min(μ̂ + c, μ̂' + c' + v₁ρʰ⁻¹) + v₁ρʰ + N(v₁/v₂)v₁ρʰ, where c = √(2 ln T/n), ∞ for n = 0, and
    primes mark its parent. A leaf is cut after a round in which c ≤ v₁ρʰ. While there is only the
    root, arms are chosen at random.

    Indices lie far above the means, which does not matter to oracles that only compare them. Where
    an oracle reads them as probabilities, all are 1 at first, unless they are ``scaled``.

    Args:
        oracle: The oracle, which finds the best combination of scored arms.
        horizon: Number of rounds T.
        direction: Whether rewards are maximised or costs minimised.
        v1: v₁: a cell of depth h has diameter at most v1·rho^h; ``None``: √d, the diameter of the
            unit cube.
        v2: v₂: a cell of depth h contains a ball of radius v2·rho^h.
        rho: ρ: the factor by which the diameter of a cell shrinks with every cut.
        scaled: Whether the indices of a round are mapped to [0, 1] by the smallest and the largest
            of them, for oracles that read them as probabilities.
        most_cells: Most cells of the tree.
    """

    kind = "adaptive-tree"
    exchangeable = False

    def __init__(
        self,
        *,
        oracle: Oracle,
        horizon: int,
        direction: Direction = "maximize",
        v1: float | None = None,
        v2: float = 1.0,
        rho: float = 0.5,
        scaled: bool = False,
        most_cells: int = 1_000_000,
    ) -> None:
        super().__init__(oracle=oracle, direction=direction)
        self.horizon = as_count(horizon, "horizon")
        self.v1 = None if v1 is None else as_positive(v1, "v1")
        self.v2 = as_positive(v2, "v2")
        self.rho = as_number(rho, "rho", 0.0, 1.0)
        self.scaled = as_flag(scaled, "scaled")
        self.most_cells = as_count(most_cells, "most_cells")
        # One entry for every cell. The children of a cell follow each other.
        self._parent = np.zeros(1, dtype=np.intp)
        self._depth = np.zeros(1, dtype=np.intp)
        self._first_child = np.full(1, _NO_CHILD, dtype=np.intp)
        self._count = np.zeros(1, dtype=np.intp)
        self._mean = np.zeros(1)

    @property
    def cells(self) -> int:
        """Leaves of the tree."""
        return int(np.count_nonzero(self._first_child < 0))

    def _leaves(self, contexts: Floats) -> Ints:
        """The leaf that holds each context, (n,)."""
        cell = np.zeros(len(contexts), dtype=np.intp)
        axes = np.arange(contexts.shape[1])
        inner = np.flatnonzero(self._first_child[cell] >= 0)  # contexts not at a leaf
        while len(inner):
            inner_cell = cell[inner]
            child_depth = self._depth[inner_cell] + 1.0
            per_axis = 2.0 ** child_depth[:, None]  # cells of the children's depth
            place = np.floor(contexts[inner] * per_axis)
            # The last cell along an axis includes its upper end.
            place = np.minimum(place, per_axis - 1.0)
            is_upper = np.mod(place, 2.0).astype(np.intp)  # the upper half of the cell
            child = (is_upper << axes).sum(axis=1)
            cell[inner] = self._first_child[inner_cell] + child
            inner = np.flatnonzero(self._first_child[cell] >= 0)
        return cell

    def _confidence(self, cells: Ints) -> Floats:
        """c = √(2 ln T/n) of each cell, (n,)."""
        count = self._count[cells]
        if self.horizon == 1:  # ln T is 0, and 0/0 not defined
            return np.where(count > 0, 0.0, np.inf)
        numerator = 2.0 * math.log(self.horizon)
        with np.errstate(divide="ignore"):
            radius: Floats = np.sqrt(numerator / count)
        return radius

    def _diameter(self, depth: Ints, columns: int) -> Floats:
        """v₁ρʰ, (n,)."""
        v1 = math.sqrt(columns) if self.v1 is None else self.v1
        return np.asarray(v1 * self.rho ** depth.astype(np.float64))

    def _desirability(self, contexts: Floats, step: int, rng: Rng) -> Floats:
        columns = contexts.shape[1]
        if columns > _MOST_COLUMNS:
            raise InputError(
                f"arms have {columns} feature columns, so a cell would be cut into 2**{columns}; "
                f"{type(self).__name__} takes at most {_MOST_COLUMNS}"
            )
        if len(self._parent) == 1:
            return rng.random(len(contexts))
        leaves = self._leaves(contexts)
        index = self._index(leaves, columns)
        if not self.scaled:
            return index
        low = index.min()
        high = index.max()
        if not high > low:
            return np.ones(len(index))
        scaled: Floats = (index - low) / (high - low)
        return scaled

    def _index(self, leaf: Ints, columns: int) -> Floats:
        """min(μ̂ + c, μ̂' + c' + v₁ρʰ⁻¹) + v₁ρʰ + N(v₁/v₂)v₁ρʰ of each leaf, (n,)."""
        parent = self._parent[leaf]
        depth = self._depth[leaf]
        diameter = self._diameter(depth, columns)
        parent_diameter = self._diameter(depth - 1, columns)
        bound = self._mean[leaf] + self._confidence(leaf)
        parent_bound = self._mean[parent] + self._confidence(parent)
        parent_bound = parent_bound + parent_diameter
        children = 2.0**columns  # N
        root_depth = np.zeros(1, dtype=np.intp)
        v1 = self._diameter(root_depth, columns)
        margin = children * (v1 / self.v2) * diameter
        index: Floats = np.minimum(bound, parent_bound) + diameter + margin
        return index

    def _update_cells(self, contexts: Floats, rewards: Floats) -> None:
        columns = contexts.shape[1]
        leaves = self._leaves(contexts)
        cells, place = np.unique(leaves, return_inverse=True)
        new_count = np.bincount(place)
        new_sum = np.bincount(place, rewards)
        self._count[cells] += new_count
        # The mean moves by (Σ new rewards − new plays · old mean) / plays.
        change = new_sum - new_count * self._mean[cells]
        self._mean[cells] += change / self._count[cells]
        depth = self._depth[cells]
        is_known = self._confidence(cells) <= self._diameter(depth, columns)
        is_due = is_known & (depth < _DEEPEST)
        children = 2**columns
        for cell in cells[is_due].tolist():
            self._cut(cell, children)

    def _cut(self, cell: int, children: int) -> None:
        """Give a cell this many children, unless there would be too many cells."""
        size = len(self._parent)
        if size + children > self.most_cells:
            return
        depth = self._depth[cell] + 1
        self._first_child[cell] = size
        self._parent = _append(self._parent, cell, children)
        self._first_child = _append(self._first_child, _NO_CHILD, children)
        self._depth = _append(self._depth, depth, children)
        self._count = _append(self._count, 0, children)
        self._mean = _append(self._mean, 0.0, children)

    def _memory(self) -> Mapping[str, Any]:
        inner = np.flatnonzero(self._first_child >= 0)
        # Children get the next free places, so that these are in the order of cuts.
        cuts = inner[np.argsort(self._first_child[inner])]
        return {
            **super()._memory(),
            "cuts": cuts.astype(np.int64),
            "count": self._count,
            "mean": self._mean,
        }

    def _remember(self, state: State) -> None:
        """Restore the tree: the same cuts in the same order give the same cells."""
        super()._remember(state)
        as_count(self._columns, "columns", 0, _MOST_COLUMNS)
        cuts = state.positions("cuts")
        count = state.positions("count")
        mean = state.vector("mean")
        children = 2**self._columns
        size = 1 + children * len(cuts)
        message = "this state is damaged: its cells do not form a tree"
        if len(count) != size or len(mean) != size:
            raise StateError(message)
        if count.min() < 0 or size > self.most_cells:
            raise StateError(message)
        for cell in cuts.tolist():
            if not 0 <= cell < len(self._parent) or self._first_child[cell] >= 0:
                raise StateError(message)
            self._cut(cell, children)
        self._count = count.astype(np.intp)
        self._mean = mean.copy()


def _append(array: NDArray[Any], value: float, count: int) -> NDArray[Any]:
    """The array and the same value a few times after it, a new array."""
    values = np.full(count, value, dtype=array.dtype)
    return np.append(array, values)


@register("policy", "acc-ucb")
def acc_ucb(
    model: Model,
    *,
    v1: float | None = None,
    v2: float = 1.0,
    rho: float = 0.5,
    scaled: bool = False,
) -> AdaptiveTree:
    """ACC-UCB [nika2020contextual]: optimism over cells of contexts, which are split where it plays.

    Args:
        model: The learner's model of the problem.
        v1: v₁: a cell of depth h has diameter at most v1·rho^h; ``None``: √d, the diameter of the
            unit cube.
        v2: v₂: a cell of depth h contains a ball of radius v2·rho^h.
        rho: ρ: the factor by which the diameter of a cell shrinks with every cut.
        scaled: Whether the indices of a round are mapped to [0, 1], for oracles that read them as
            probabilities.
    """
    return AdaptiveTree(
        oracle=model.oracle,
        horizon=model.horizon,
        direction=model.direction,
        v1=v1,
        v2=v2,
        rho=rho,
        scaled=scaled,
    )
