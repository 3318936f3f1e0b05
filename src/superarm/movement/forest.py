"""Metrical task systems: serve one request after another, each with a cost per action, and move little.

Costs are known here. The policy ``gp-md`` learns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from superarm.core import Bools, Floats, Rng
from superarm.core.compiling import Backend
from superarm.core.display import Displayable
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_count,
    as_generator,
    require_type,
)

from .coupling import TreeCoupling
from .descent import TreeDescent
from .frt import frt_tree
from .metrics import ActionMetric
from .tree import Tree

NOWHERE = -1  # the action of a walk that has not moved yet
MOST_TREES = 10_000


class WalkState(NamedTuple):
    """Where a walk is: on which tree, with which conditional probabilities, at which action."""

    tree: int
    q: Floats  # (v,), of the tree
    action: int


class Move(NamedTuple):
    """One step of a walk."""

    walk_state: WalkState
    """Where it leads."""
    probability: float
    """Probability of this action, given where the walk was."""
    distribution: Floats
    """Probability of each action, (n,), given only the costs [ramesh2022movement, eq. 8]; with
    ``from_action``, given the previous action, too."""
    distance: float
    """Expected distance of the step, over all actions where the walk might have been (eq. 16); with
    ``from_action``, from where it was."""


class Forest(Displayable):
    """Random trees over one metric, on which mirror descent walks; each walk uses one of them.

    Args:
        metric: The distances between actions.
        trees: One or more trees over the metric's actions.
        kappa: κ ≥ 1 of the mirror descent: a larger one follows the costs faster.
        backend: "numba", "numpy", or "auto": numba where it is installed.

    >>> import numpy as np
    >>> from superarm.movement import Forest, PointMetric
    >>> rng = np.random.default_rng(0)
    >>> forest = Forest.grow(PointMetric(points=[[0.0], [1.0], [5.0]]), rng, trees=4)
    >>> walk_state = forest.begin(0)
    >>> for _ in range(50):
    ...     walk_state = forest.move(walk_state, [1.0, 1.0, 0.0], rng).walk_state
    >>> walk_state.action
    2
    """

    def __init__(
        self,
        metric: ActionMetric,
        trees: Sequence[Tree],
        *,
        kappa: float = 1.0,
        backend: Backend = "auto",
    ) -> None:
        require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
        self.metric = metric
        self.trees = tuple(trees)
        n = len(metric)
        if not self.trees or any(len(tree) != n for tree in self.trees):
            raise InputError(f"give one or more trees over the metric's {n} actions")
        self._descents: list[TreeDescent] = []
        self._couplings: list[TreeCoupling] = []
        for tree in self.trees:
            descent = TreeDescent(tree, kappa=kappa, backend=backend)
            self._descents.append(descent)
            coupling = TreeCoupling(tree, backend=backend)
            self._couplings.append(coupling)

    @classmethod
    def grow(
        cls,
        metric: ActionMetric,
        rng: Rng,
        *,
        trees: int = 1,
        tau: float = 2.0,
        kappa: float = 1.0,
    ) -> Self:
        """A forest of random trees, drawn by :func:`frt_tree`.

        Args:
            metric: The distances between actions.
            rng: The random generator.
            trees: How many trees to draw.
            tau: τ: how many times longer the edges of a level are than those of the next.
            kappa: κ ≥ 1 of the mirror descent: a larger one follows the costs faster.
        """
        count = as_count(trees, "trees", 1, MOST_TREES)
        drawn = [frt_tree(metric, rng, tau=tau) for _ in range(count)]
        return cls(metric, drawn, kappa=kappa)

    def _display_fields(self) -> Mapping[str, Any]:
        return {"n": len(self.metric), "trees": len(self.trees)}

    def stretch(self) -> Floats:
        """How many times longer the distances of each tree are than the metric's, on average, (K,)."""
        different = ~np.eye(len(self.metric), dtype=bool)
        if not different.any():
            return np.ones(len(self.trees))
        distances = self.metric.distances[different]
        stretches = []
        for tree in self.trees:
            ratios = tree.distances[different] / distances
            stretches.append(np.mean(ratios))
        return np.array(stretches)

    def begin(self, action: int | None, walk: int = 0) -> WalkState:
        """The start of a walk.

        Args:
            action: Where it starts; from ``None``, the first step leads anywhere for free.
            walk: Number of the walk; walks take the trees in turn.
        """
        number = as_count(walk, "walk", 0)
        tree = number % len(self.trees)
        descent = self._descents[tree]
        if action is None:
            return WalkState(tree, descent.theta, NOWHERE)
        q = descent.point_mass(action)
        return WalkState(tree, q, int(action))

    def move(
        self,
        walk_state: WalkState,
        costs: Any,
        rng: Rng,
        available: Bools | None = None,
        *,
        from_action: bool = False,
    ) -> Move:
        """The next step; ``walk_state`` stays as it is.

        Args:
            walk_state: Where the walk is.
            costs: Cost of each action, (n,).
            rng: The random generator.
            available: Whether each action is available, (n,).
            from_action: Whether the move's expectations are given the previous action. They are then
                right even where costs depend on earlier draws, as those of a learner do.
        """
        descent = self._descents[walk_state.tree]
        coupling = self._couplings[walk_state.tree]
        q = descent.step(walk_state.q, costs, available)
        before = descent.distribution(walk_state.q)
        after = descent.distribution(q)
        plan = coupling.between(before, after)
        rng = as_generator(rng)
        action, probability = coupling.draw(plan, walk_state.action, rng)
        next_state = WalkState(walk_state.tree, q, action)
        if walk_state.action == NOWHERE:
            return Move(next_state, probability, after, 0.0)
        if not from_action:
            distance = plan.cost(self.metric.distances)
            return Move(next_state, probability, after, distance)
        targets, shares = plan.row(walk_state.action)
        distribution = np.zeros_like(after)
        distribution[targets] = shares
        distances = self.metric.distances[walk_state.action, targets]
        distance = float(shares @ distances)
        return Move(next_state, probability, distribution, distance)
