"""How to move from one distribution over actions to the next so that the least is moved on the tree.

[ramesh2022movement, eq. 9]. What leaves an action is matched with what is missing elsewhere, as low
in the tree as it can be: every edge then carries the difference of the masses below it, and no
coupling can do with less (eq. 21).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.compiling import Backend, is_compiled
from superarm.core import Floats, Ints, Rng
from superarm.errors import InputError
from superarm.inputs import as_vector, require_type

from .tree import Tree


class Row(NamedTuple):
    """Where one action leads: actions and their probabilities."""

    targets: Ints
    probabilities: Floats

    def draw(self, rng: Rng) -> tuple[int, float]:
        """An action, and how probable it was."""
        at = int(np.searchsorted(np.cumsum(self.probabilities), rng.random(), side="right"))
        at = min(at, len(self.targets) - 1)  # the sum may be a hair below 1
        return int(self.targets[at]), float(self.probabilities[at])


class Coupling(NamedTuple):
    """Mass that goes from one action to another, or stays; at most 3n entries above 0."""

    source: Ints
    target: Ints
    mass: Floats

    def row(self, action: int) -> Row:
        """Where ``action`` leads; where it has no mass, all actions as the targets share it."""
        here = np.flatnonzero(self.source == action)
        total = self.mass[here].sum()
        if total > 0.0:
            return Row(self.target[here], self.mass[here] / total)
        targets, place = np.unique(self.target, return_inverse=True)
        shares = np.bincount(place, self.mass)
        return Row(targets, shares / shares.sum())

    def cost(self, distances: Floats) -> float:
        """The expected distance moved."""
        return float(self.mass @ distances[self.source, self.target])


class TreeCoupling:
    """Couplings of distributions over the leaves of one tree.

    >>> from superarm.movement import PointMetric, frt_tree
    >>> import numpy as np
    >>> tree = frt_tree(PointMetric(points=[[0.0], [1.0]]), np.random.default_rng(0))
    >>> TreeCoupling(tree).between([0.5, 0.5], [0.2, 0.8]).row(0)
    Row(targets=array([0, 1]), probabilities=array([0.4, 0.6]))
    """

    def __init__(self, tree: Tree, *, backend: Backend = "auto") -> None:
        require_type(tree, Tree, "tree", ", such as frt_tree(metric, rng)")
        self.tree = tree
        self._match, self._lead = match_up, None
        if is_compiled(backend):
            from ._compiled import lead, match

            self._match, self._lead = match, lead
        side_by_side = np.argsort(tree.first[tree.leaf])
        end = tree.first + tree.sizes
        self._shape = (tree.parent.copy(), tree.first, end, tree.leaf.copy(), side_by_side)

    def between(self, before: Floats, after: Floats) -> Coupling:
        """The coupling of two distributions (n,) that moves least on the tree."""
        n = len(self.tree)
        # Copies: compiled code wants arrays that it could write into.
        before, after = np.array(as_vector(before, "before", n)), np.array(as_vector(after, "after", n))
        for name, each in (("before", before), ("after", after)):
            if each.min() < 0.0 or abs(each.sum() - 1.0) > 1e-9:
                told = f"{name} sums to {each.sum():g}, and its smallest entry is {each.min():g}"
                raise InputError(f"{told}; give probabilities, 0 or more, that sum to 1")
        source, target = np.empty(3 * n, dtype=np.intp), np.empty(3 * n, dtype=np.intp)
        mass = np.empty(3 * n)
        count = self._match(*self._shape, before, after, source, target, mass)
        return Coupling(source[:count], target[:count], mass[:count])

    def lead(self, plan: Coupling, action: int, rng: Rng) -> tuple[int, float]:
        """Draw where ``action`` leads, and say how probable that was: a row's ``draw``, but faster."""
        if self._lead is None:
            return plan.row(action).draw(rng)
        found, probability = self._lead(*plan, action, rng.random())
        return (found, probability) if found >= 0 else plan.row(action).draw(rng)


def match_up(
    parent: Ints, first: Ints, end: Ints, leaf: Ints, order: Ints, before: Floats, after: Floats,
    source: Ints, target: Ints, mass: Floats,
) -> int:  # fmt: skip
    """Fill in the entries of the coupling, and count them.

    Leaves come side by side. Two stacks hold who has too much and who too little; when the last leaf of
    a vertex has come, what was put on them since its first leaf is matched.
    """
    n = len(order)
    giver, surplus, takers, lack = (
        np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64), np.empty(n)
    )  # fmt: skip
    from_giver, from_taker = np.zeros(len(parent), np.int64), np.zeros(len(parent), np.int64)
    count, givers, taking = 0, 0, 0
    for place in range(n):
        action = order[place]
        vertex = leaf[action]
        while vertex >= 0 and first[vertex] == place:  # the first leaf of these
            from_giver[vertex], from_taker[vertex] = givers, taking
            vertex = parent[vertex]
        stays = min(before[action], after[action])
        if stays > 0.0:
            source[count], target[count], mass[count] = action, action, stays
            count += 1
        if before[action] > stays:
            giver[givers], surplus[givers] = action, before[action] - stays
            givers += 1
        elif after[action] > stays:
            takers[taking], lack[taking] = action, after[action] - stays
            taking += 1
        vertex = leaf[action]
        while vertex >= 0 and end[vertex] == place + 1:  # the last leaf of these
            while givers > from_giver[vertex] and taking > from_taker[vertex]:
                moved = min(surplus[givers - 1], lack[taking - 1])
                source[count], target[count] = giver[givers - 1], takers[taking - 1]
                mass[count] = moved
                count += 1
                surplus[givers - 1] -= moved
                lack[taking - 1] -= moved
                if surplus[givers - 1] <= 0.0:
                    givers -= 1
                if lack[taking - 1] <= 0.0:
                    taking -= 1
            vertex = parent[vertex]
    return count
