"""The cheapest path through costs that are known beforehand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import UnknownArmError
from superarm.core.inputs import as_count, as_features, require_size, require_type

from .metrics import ActionMetric


class OfflinePath(NamedTuple):
    """A sequence of actions and its costs."""

    actions: Ints  # (T,)
    service: Floats  # cost of each action, (T,)
    movement: Floats  # distance to each action from the one before, (T,)

    @property
    def total(self) -> float:
        """The cost of all rounds."""
        service = self.service.sum()
        movement = self.movement.sum()
        return float(service + movement)


def offline_optimum(costs: Any, metric: ActionMetric, start: int) -> OfflinePath:
    """The cheapest path when all costs are known beforehand [ramesh2022movement, eq. 3].

    By dynamic programming, O(T n²).

    Args:
        costs: Cost of each action in each round, (T, n).
        metric: The distances between actions.
        start: The action before the first round.

    >>> from superarm.movement import PointMetric
    >>> way = offline_optimum([[0, 5], [9, 0]], PointMetric(points=[[0.0], [1.0]]), start=0)
    >>> way.actions.tolist(), way.total
    ([0, 1], 1.0)
    """
    require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
    n = len(metric)
    table = as_features(costs, "costs", n)
    require_size(table, "costs")
    if not 0 <= as_count(start, "start", 0) < n:
        raise UnknownArmError(f"start is {start}; the metric has actions 0 to {n - 1}")
    actions = _cheapest_actions(table, metric.distances, start)
    before = np.concatenate([[start], actions[:-1]])
    rounds = np.arange(len(table))
    service = table[rounds, actions]
    movement = metric.distances[before, actions]
    return OfflinePath(actions, service, movement)


def _cheapest_actions(table: Floats, distances: Floats, start: int) -> Ints:
    """The actions of the cheapest path, (T,)."""
    rounds, n = table.shape
    all_actions = np.arange(n)
    previous = np.empty(table.shape, dtype=np.intp)  # the best action before each one
    least = np.full(n, np.inf)  # cost of being at each action
    least[start] = 0.0
    for step, costs in enumerate(table):
        through = least[:, None] + distances  # from each action to each action
        best = np.argmin(through, axis=0)
        previous[step] = best
        least = through[best, all_actions] + costs
    actions = np.empty(rounds, dtype=np.intp)
    action = int(np.argmin(least))
    for step in reversed(range(rounds)):
        actions[step] = action
        action = int(previous[step, action])
    return actions
