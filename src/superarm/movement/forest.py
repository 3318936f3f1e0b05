"""Metrical task systems: serve one request after another, each with a cost per action, and move little.

Nothing here learns: costs are given. A policy that learns them is ``gp-md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from superarm.core import Bools, Floats, Ints, Rng
from superarm.core.compiling import Backend
from superarm.core.display import Displayable
from superarm.core.errors import InputError, UnknownArmError
from superarm.core.inputs import (
    as_count,
    as_features,
    as_generator,
    require_size,
    require_type,
)

from .coupling import TreeCoupling
from .descent import TreeDescent
from .metrics import ActionMetric
from .tree import Tree, frt_tree

NOWHERE = -1  # the action of a walk that did nothing yet
MOST_TREES = 10_000


class Stand(NamedTuple):
    """Where a walk is: on which tree, with which conditional probabilities, at which action."""

    tree: int
    q: Floats  # (v,), of the tree
    action: int


class Move(NamedTuple):
    """One step of a walk."""

    stand: Stand
    """Where it leads."""
    probability: float
    """Of this action, given where the walk was."""
    distribution: Floats
    """Of the action, (n,), given the costs alone [ramesh2022movement, eq. 8]; with ``from_action``,
    given the previous action, too."""
    distance: float
    """Expected distance of the step, over all actions where the walk might have been (eq. 16); with
    ``from_action``, from where it was."""


class Forest(Displayable):
    """Random trees over one metric, on which mirror descent walks; each walk keeps to one of them.

    >>> import numpy as np
    >>> from superarm.movement import Forest, PointMetric
    >>> rng = np.random.default_rng(0)
    >>> forest = Forest.grown(PointMetric(points=[[0.0], [1.0], [5.0]]), rng, trees=4)
    >>> stand = forest.begin(0)
    >>> for _ in range(50):
    ...     stand = forest.move(stand, [1.0, 1.0, 0.0], rng).stand
    >>> stand.action
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
        if not self.trees or any(len(tree) != len(metric) for tree in self.trees):
            raise InputError(
                f"give one or more trees over the metric's {len(metric)} actions"
            )
        self._descents = [
            TreeDescent(tree, kappa=kappa, backend=backend) for tree in self.trees
        ]
        self._couplings = [TreeCoupling(tree, backend=backend) for tree in self.trees]

    @classmethod
    def grown(
        cls,
        metric: ActionMetric,
        rng: Rng,
        *,
        trees: int = 1,
        tau: float = 2.0,
        kappa: float = 1.0,
    ) -> Self:
        """Trees drawn by :func:`frt_tree`."""
        count = as_count(trees, "trees", 1, MOST_TREES)
        return cls(
            metric, [frt_tree(metric, rng, tau=tau) for _ in range(count)], kappa=kappa
        )

    def _display_fields(self) -> Mapping[str, Any]:
        return {"n": len(self.metric), "trees": len(self.trees)}

    def stretch(self) -> Floats:
        """Of each tree, how much longer its distances are than the metric's, on average, (K,)."""
        apart = ~np.eye(len(self.metric), dtype=bool)
        if not apart.any():
            return np.ones(len(self.trees))
        own = self.metric.distances[apart]
        return np.array([np.mean(tree.distances[apart] / own) for tree in self.trees])

    def begin(self, action: int | None, walk: int = 0) -> Stand:
        """Walk number ``walk`` starts at an action; walks take the trees in turn.

        Where nothing was done before, the first step goes anywhere for nothing.
        """
        descent = self._descents[tree := as_count(walk, "walk", 0) % len(self.trees)]
        if action is None:
            return Stand(tree, descent.theta, NOWHERE)
        return Stand(tree, descent.at(action), int(action))

    def move(
        self,
        stand: Stand,
        costs: Any,
        rng: Rng,
        available: Bools | None = None,
        *,
        from_action: bool = False,
    ) -> Move:
        """The next step, where actions cost ``costs`` (n,); ``stand`` stays as it is.

        With ``from_action`` the move tells what is expected given the previous action. That is right
        even where costs depend on what was drawn in earlier rounds, as those of a learner do.
        """
        descent, coupling = self._descents[stand.tree], self._couplings[stand.tree]
        q = descent.step(stand.q, costs, available)
        before, after = descent.distribution(stand.q), descent.distribution(q)
        plan = coupling.between(before, after)
        action, probability = coupling.lead(plan, stand.action, as_generator(rng))
        distance = 0.0 if stand.action == NOWHERE else plan.cost(self.metric.distances)
        if from_action and stand.action != NOWHERE:
            targets, shares = plan.row(stand.action)
            after = np.zeros_like(after)
            after[targets] = shares
            distance = float(shares @ self.metric.distances[stand.action, targets])
        return Move(Stand(stand.tree, q, action), probability, after, distance)


class OfflinePath(NamedTuple):
    """A sequence of actions, and what it costs in each round, (T,) each."""

    actions: Ints
    service: Floats
    movement: Floats

    @property
    def total(self) -> float:
        return float(self.service.sum() + self.movement.sum())


def offline_optimum(costs: Any, metric: ActionMetric, start: int) -> OfflinePath:
    """The cheapest way from ``start`` when all ``costs`` (T, n) are known beforehand.

    By dynamic programming, O(T n²) [ramesh2022movement, eq. 3].

    >>> from superarm.movement import PointMetric
    >>> way = offline_optimum([[0, 5], [9, 0]], PointMetric(points=[[0.0], [1.0]]), start=0)
    >>> way.actions.tolist(), way.total
    ([0, 1], 1.0)
    """
    require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
    distances, n = metric.distances, len(metric)
    table = as_features(costs, "costs", n)
    require_size(table, "costs")
    if not 0 <= as_count(start, "start", 0) < n:
        raise UnknownArmError(f"start is {start}; the metric has actions 0 to {n - 1}")
    came = np.empty(table.shape, dtype=np.intp)
    least = np.where(np.arange(n) == start, 0.0, np.inf)
    for step, row in enumerate(table):
        through = least[:, None] + distances
        came[step] = np.argmin(through, axis=0)
        least = through[came[step], np.arange(n)] + row
    actions = np.empty(len(table), dtype=np.intp)
    action = int(np.argmin(least))
    for step in range(len(table) - 1, -1, -1):
        actions[step] = action
        action = int(came[step, action])
    before = np.concatenate([[start], actions[:-1]])
    return OfflinePath(
        actions, table[np.arange(len(table)), actions], distances[before, actions]
    )
