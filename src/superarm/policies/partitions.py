"""Baselines that cut the context space into cells and learn one mean for each.

Contexts in one cell are treated as the same arm. ``AdaptiveTree`` is ACC-UCB [nika2020contextual],
``Hypercubes`` is CC-MAB [chen2018contextual].

Notation

===========  =====================================================================
``h``        depth of a cell in the tree; its width on every axis is 2⁻ʰ
``v1, v2, rho``  a cell at depth h has diameter at most v₁ρʰ and holds a ball of v₂ρʰ
``N``        children of a cell, 2ᵈ
``h_T``      cubes along every axis
===========  =====================================================================
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from superarm.core import (
    Decision,
    Direction,
    Feedback,
    Floats,
    Ints,
    Offer,
    Oracle,
    Rng,
    State,
)
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import (
    as_count,
    as_flag,
    as_generator,
    as_number,
    as_positions,
    as_positive,
    as_vector,
    require_type,
)
from superarm.core.registry import register
from superarm.models import Model

from .answers import require_part, select
from .base import Learner
from .ledger import check_rewards

_MOST_COLUMNS = 12
_DEEPEST = 48  # cells of this depth are not cut: floats tell contexts apart to 2⁻⁵²


class CellPolicy(Learner):
    """Finds the cell of every arm, scores cells, and learns the mean reward of each.

    Contexts lie in [0, 1]ᵈ. A cell's statistics are of rewards in the direction of the problem, so that
    larger is better.
    """

    schema = 1
    deterministic = False
    exchangeable: bool

    def __init__(self, *, oracle: Oracle, direction: Direction = "maximize") -> None:
        super().__init__(direction=direction)
        require_part(oracle, Oracle, "oracle")
        self.oracle = oracle
        self._columns = 0  # of the contexts; 0 before the first

    @abstractmethod
    def _desirability(self, contexts: Floats, step: int, rng: Rng) -> Floats:
        """One number per arm, (n,)."""

    @abstractmethod
    def _count_in(self, contexts: Floats, rewards: Floats) -> None:
        """Learn from rewards of which larger is better."""

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        require_type(offer, Offer, "offer")
        with (
            self._lock.lock
        ):  # cells are several arrays, which another thread may be changing
            desirability = self._desirability(
                self._contexts(offer), offer.step, as_generator(rng)
            )
        action, positions = select(self.oracle, desirability, offer, rng)
        return Decision(
            step=offer.step,
            action=action,
            positions=positions,
            desirability=desirability[positions],
            version=self.version,
        )

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        check_rewards(feedback)
        if not self.exchangeable:
            self._ledger.check_order(decision, type(self).__name__)
        contexts = self._contexts(offer)[feedback.positions]
        if len(contexts):
            sign = 1.0 if self.direction == "maximize" else -1.0
            self._count_in(contexts, sign * feedback.rewards)
            self._columns = contexts.shape[1]

    def _contexts(self, offer: Offer) -> Floats:
        contexts = offer.arms.features
        name, columns = type(self).__name__, contexts.shape[1]
        if self._columns and columns != self._columns:
            told = f"arms have {columns} feature columns"
            raise InputError(f"{told}, but those observed before have {self._columns}")
        outside = (contexts < 0.0) | (contexts > 1.0)
        if outside.any():
            where = int(outside.any(axis=1).argmax())
            raise InputError(
                f"{name} cuts the unit cube into cells, but arm {where} has the features "
                f"{contexts[where].tolist()[:9]}; scale every column to [0, 1]"
            )
        return contexts

    def _memory(self) -> Mapping[str, Any]:
        return {"columns": self._columns}

    def _remember(self, state: State) -> None:
        self._columns = as_count(state.scalar("columns"), "columns", 0)


@register("policy", "adaptive-tree")
class AdaptiveTree(CellPolicy):
    """Optimism over cells that are cut where they are played: ACC-UCB.

    The index of a leaf at depth h with mean μ̂ and n plays is
    min(μ̂ + c, μ̂' + c' + v₁ρʰ⁻¹) + v₁ρʰ + N(v₁/v₂)v₁ρʰ, where c = √(2 ln T/n), ∞ for n = 0, and primes
    mark its parent. A leaf is cut after a round in which c ≤ v₁ρʰ. While there is only the root, arms
    are chosen at random. ``v1`` is √d, the diameter of the unit cube, where it is not given.

    Indices lie far above the means, which does not matter to oracles that only compare them. Where an
    oracle reads them as probabilities, all are 1 at first; ``scaled`` maps those of a round to [0, 1]
    by the smallest and the largest of them.

    Args:
        oracle: What finds the best combination.
        horizon: Number of rounds T.
        direction: Whether rewards are maximised or costs minimised.
        v1: A cell of depth h has diameter at most v1·rho^h; the diameter of the unit cube where
            left out.
        v2: A cell of depth h holds a ball of radius v2·rho^h.
        rho: The factor by which the diameter of a cell shrinks with every cut.
        scaled: Whether the indices of a round are mapped to [0, 1], for oracles that read them as
            probabilities.
        most_cells: How many cells the tree may have, at most.
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
        self._parent, self._depth, self._count = (
            np.zeros(1, dtype=np.intp) for _ in range(3)
        )
        self._first_child, self._mean = np.full(1, -1, dtype=np.intp), np.zeros(1)

    @property
    def cells(self) -> int:
        """Leaves of the tree."""
        return int(np.count_nonzero(self._first_child < 0))

    def _leaves(self, contexts: Floats) -> Ints:
        """The leaf that holds each context, (n,)."""
        node = np.zeros(len(contexts), dtype=np.intp)
        axes = np.arange(contexts.shape[1])
        while len(inner := np.flatnonzero(self._first_child[node] >= 0)):
            finer = 2.0 ** (self._depth[node[inner]] + 1.0)
            # The last cell along an axis holds its upper end, too.
            place = np.minimum(
                np.floor(contexts[inner] * finer[:, None]), finer[:, None] - 1.0
            )
            upper = np.mod(place, 2.0).astype(np.intp)
            node[inner] = self._first_child[node[inner]] + (upper << axes).sum(axis=1)
        return node

    def _confidence(self, node: Ints) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            radius: Floats = np.sqrt(2.0 * math.log(self.horizon) / self._count[node])
        return (
            radius if self.horizon > 1 else np.where(self._count[node] > 0, 0.0, np.inf)
        )

    def _size(self, depth: Ints, columns: int) -> Floats:
        """v₁ρʰ, (n,)."""
        v1 = math.sqrt(columns) if self.v1 is None else self.v1
        return np.asarray(v1 * self.rho ** depth.astype(np.float64))

    def _desirability(self, contexts: Floats, step: int, rng: Rng) -> Floats:
        columns = contexts.shape[1]
        if columns > _MOST_COLUMNS:
            told = f"arms have {columns} feature columns, so a cell would be cut into 2**{columns}"
            raise InputError(
                f"{told}; {type(self).__name__} takes at most {_MOST_COLUMNS}"
            )
        if len(self._parent) == 1:
            return rng.random(len(contexts))
        leaf = self._leaves(contexts)
        parent, depth = self._parent[leaf], self._depth[leaf]
        size = self._size(depth, columns)
        own = self._mean[leaf] + self._confidence(leaf)
        above = (
            self._mean[parent]
            + self._confidence(parent)
            + self._size(depth - 1, columns)
        )
        v1 = self._size(np.zeros(1, dtype=np.intp), columns)
        index: Floats = (
            np.minimum(own, above) + size + 2.0**columns * (v1 / self.v2) * size
        )
        if self.scaled:
            low, high = index.min(), index.max()
            index = (index - low) / (high - low) if high > low else np.ones(len(index))
        return index

    def _count_in(self, contexts: Floats, rewards: Floats) -> None:
        played, at = np.unique(self._leaves(contexts), return_inverse=True)
        more = np.bincount(at)
        self._count[played] += more
        change = np.bincount(at, rewards) - more * self._mean[played]
        self._mean[played] += change / self._count[played]
        small = self._confidence(played) <= self._size(
            self._depth[played], contexts.shape[1]
        )
        for cell in played[small & (self._depth[played] < _DEEPEST)].tolist():
            self._cut(cell, 2 ** contexts.shape[1])

    def _cut(self, cell: int, children: int) -> None:
        size = len(self._parent)
        if size + children > self.most_cells:
            return
        self._first_child[cell] = size
        self._parent = np.append(self._parent, np.full(children, cell))
        self._first_child = np.append(self._first_child, np.full(children, -1))
        self._depth = np.append(self._depth, np.full(children, self._depth[cell] + 1))
        self._count = np.append(self._count, np.zeros(children, dtype=np.intp))
        self._mean = np.append(self._mean, np.zeros(children))

    def _memory(self) -> Mapping[str, Any]:
        inner = np.flatnonzero(self._first_child >= 0)
        cuts = inner[np.argsort(self._first_child[inner])]
        tallies = {
            "cuts": cuts.astype(np.int64),
            "count": self._count,
            "mean": self._mean,
        }
        return {**super()._memory(), **tallies}

    def _remember(self, state: State) -> None:
        """Cutting the same cells in the same order gives the same tree."""
        super()._remember(state)
        as_count(self._columns, "columns", 0, _MOST_COLUMNS)
        cuts, count = (
            as_positions(state.array(name), name) for name in ("cuts", "count")
        )
        mean, children = as_vector(state.array("mean"), "mean"), 2**self._columns
        size = 1 + children * len(cuts)
        if (
            len(count) != size
            or len(mean) != size
            or count.min() < 0
            or size > self.most_cells
        ):
            raise StateError("this state is damaged: its cells do not form a tree")
        for cell in cuts.tolist():
            if not 0 <= cell < len(self._parent) or self._first_child[cell] >= 0:
                raise StateError("this state is damaged: its cells do not form a tree")
            self._cut(cell, children)
        self._count, self._mean = count.astype(np.intp), mean.copy()


@register("policy", "hypercubes")
class Hypercubes(CellPolicy):
    """Explores cubes that were seen too rarely, otherwise takes the best means: CC-MAB.

    A cube is under-explored in round t if it was played at most t^{2/(3+d)} ln t times. Arms in such
    cubes come first, in random order; the others follow by the mean of their cube. ``horizon`` sets
    the h_T = ⌈T^{1/(3+d)}⌉ cubes along every axis.

    Args:
        oracle: What finds the best combination.
        horizon: Number of rounds T.
        direction: Whether rewards are maximised or costs minimised.
    """

    kind = "hypercubes"
    exchangeable = True

    def __init__(
        self, *, oracle: Oracle, horizon: int, direction: Direction = "maximize"
    ) -> None:
        super().__init__(oracle=oracle, direction=direction)
        self.horizon = as_count(horizon, "horizon", 1, 10**15)
        self._cells: dict[
            tuple[int, ...], tuple[int, float]
        ] = {}  # plays and sum of rewards

    def per_axis(self, dimension: int) -> int:
        """h_T."""
        # A hair above a whole number, as of 64^{1/6}, is rounding.
        return math.ceil(round(math.pow(self.horizon, 1.0 / (3.0 + dimension)), 12))

    def _cubes(self, contexts: Floats) -> list[tuple[int, ...]]:
        per_axis = self.per_axis(contexts.shape[1])
        places = np.minimum(np.floor(contexts * per_axis), per_axis - 1).astype(np.intp)
        return [tuple(place) for place in places.tolist()]

    def _desirability(self, contexts: Floats, step: int, rng: Rng) -> Floats:
        known = [self._cells.get(cube, (0, 0.0)) for cube in self._cubes(contexts)]
        count = np.array([plays for plays, _ in known])
        mean = np.array([total / max(plays, 1) for plays, total in known])
        enough = step ** (2.0 / (3.0 + contexts.shape[1])) * math.log(step)
        # Any explored arm is below any other, whatever its mean.
        above = mean.max(initial=0.0) + 1.0
        return np.where(count <= enough, above + rng.random(len(contexts)), mean)

    def _count_in(self, contexts: Floats, rewards: Floats) -> None:
        for cube, reward in zip(self._cubes(contexts), rewards.tolist(), strict=True):
            plays, total = self._cells.get(cube, (0, 0.0))
            self._cells[cube] = plays + 1, total + reward

    def _memory(self) -> Mapping[str, Any]:
        cubes = sorted(self._cells)
        return {
            **super()._memory(),
            "cubes": np.array(cubes, dtype=np.int64).reshape(len(cubes), self._columns),
            "plays": np.array([self._cells[cube][0] for cube in cubes], dtype=np.int64),
            "totals": np.array(
                [self._cells[cube][1] for cube in cubes], dtype=np.float64
            ),
        }

    def _remember(self, state: State) -> None:
        super()._remember(state)
        cubes, plays, totals = (
            np.array(state.array(name)) for name in ("cubes", "plays", "totals")
        )
        sound = (
            cubes.dtype == plays.dtype == np.int64
            and plays.ndim == 1
            and cubes.shape == (len(plays), self._columns)
            and totals.shape == plays.shape
            and totals.dtype == np.float64
            and bool(np.isfinite(totals).all())
            and plays.min(initial=1) >= 1
            and len(np.unique(cubes, axis=0)) == len(cubes)
            and cubes.min(initial=0) >= 0
            and cubes.max(initial=0) < self.per_axis(self._columns)
        )
        if not sound:
            raise StateError("this state is damaged: its cubes are impossible")
        rows = zip(
            map(tuple, cubes.tolist()), plays.tolist(), totals.tolist(), strict=True
        )
        self._cells = {cube: (count, total) for cube, count, total in rows}


@register("policy", "acc-ucb")
def acc_ucb(
    model: Model,
    *,
    v1: float | None = None,
    v2: float = 1.0,
    rho: float = 0.5,
    scaled: bool = False,
) -> AdaptiveTree:
    """ACC-UCB [nika2020contextual]: optimism over cells of contexts, cut where they are played.

    Args:
        model: What the learner is told about the problem.
        v1: A cell of depth h has diameter at most v1·rho^h; the diameter of the unit cube where
            left out.
        v2: A cell of depth h holds a ball of radius v2·rho^h.
        rho: The factor by which the diameter of a cell shrinks with every cut.
        scaled: Whether the indices of a round are mapped to [0, 1], for oracles that read them as
            probabilities.
    """
    options: dict[str, Any] = {"v1": v1, "v2": v2, "rho": rho, "scaled": scaled}
    parts: dict[str, Any] = {"oracle": model.oracle, "direction": model.direction}
    return AdaptiveTree(horizon=model.horizon, **parts, **options)


@register("policy", "cc-mab")
def cc_mab(model: Model, *, tuned_for: int | None = None) -> Hypercubes:
    """CC-MAB [chen2018contextual]: fixed cubes of contexts, those seen too rarely first.

    Args:
        model: What the learner is told about the problem.
        tuned_for: The number of rounds that sets the number of cubes; the run's own where left out.
    """
    steps = model.horizon if tuned_for is None else tuned_for
    return Hypercubes(oracle=model.oracle, direction=model.direction, horizon=steps)
