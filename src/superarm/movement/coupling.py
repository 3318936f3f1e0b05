"""How to move from one distribution over actions to the next so that the least is moved on the tree.

[ramesh2022movement, eq. 9]. What leaves an action is matched with what is missing elsewhere, as low
in the tree as it can be: every edge then carries the difference of the masses below it, and no
coupling can do with less (eq. 21).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InputError
from superarm.core.inputs import as_vector, require_type

from .tree import Tree


class Row(NamedTuple):
    """Where one action leads: actions and their probabilities."""

    targets: Ints
    probabilities: Floats


class Coupling(NamedTuple):
    """Mass that goes from one action to another, or stays; fewer than 2n entries above 0."""

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
    """Couplings of distributions over the leaves of one tree."""

    def __init__(self, tree: Tree, *, backend: Backend = "auto") -> None:
        require_type(tree, Tree, "tree", ", such as frt_tree(metric, rng)")
        self.tree = tree
        self._match, self._draw = match_up, draw_from
        if is_compiled(backend):
            from ._compiled import draw, match

            self._match, self._draw = match, draw
        inner = np.flatnonzero(tree.sizes > 1)
        end = (tree.first + tree.sizes)[inner]
        closing = np.lexsort((-inner, end))  # the lower ones first
        until = np.searchsorted(end[closing], np.arange(1, len(tree) + 2))
        self._shape = (
            np.argsort(tree.first[tree.leaf]),
            until,
            tree.first[inner[closing]],
        )

    def between(self, before: Floats, after: Floats) -> Coupling:
        """The coupling of two distributions (n,) that moves least on the tree."""
        n = len(self.tree)
        before, after = _plain(before, "before", n), _plain(after, "after", n)
        source, target = np.empty(2 * n, dtype=np.intp), np.empty(2 * n, dtype=np.intp)
        mass = np.empty(2 * n)
        count = self._match(*self._shape, before, after, source, target, mass)
        if count < 0:
            name, each = [("before", before), ("after", after)][count]
            as_vector(each, name)  # says what is not finite
            told = f"{name} sums to {each.sum():g}, and its smallest entry is {each.min():g}"
            raise InputError(f"{told}; give probabilities, 0 or more, that sum to 1")
        return Coupling(source[:count], target[:count], mass[:count])

    def lead(self, plan: Coupling, action: int, rng: Rng) -> tuple[int, float]:
        """Draw from the row of ``action``, without making it, and say how probable that was."""
        share = rng.random()
        found, probability = self._draw(*plan, action, share)
        if found < 0:
            targets, probabilities = plan.row(action)
            found, probability = self._draw(
                np.zeros_like(targets), targets, probabilities, 0, share
            )
        return int(found), float(probability)


def _plain(values: Floats, name: str, n: int) -> Floats:
    """A vector as compiled code wants it, which could write into it; a copy where it is not one."""
    plain = (
        type(values) is np.ndarray
        and values.dtype == np.float64
        and values.shape == (n,)
    )
    if plain and values.flags.c_contiguous and values.flags.writeable:
        return values
    return np.array(as_vector(values, name, n))


def match_up(
    order: Ints, until: Ints, begun: Ints, before: Floats, after: Floats,
    source: Ints, target: Ints, mass: Floats,
) -> int:  # fmt: skip
    """Fill in the entries of the coupling, and count them; −1 or −2 where ``after`` or ``before`` is no
    distribution.

    Actions come side by side, in this ``order``. Two stacks hold who has too much and who too little.
    Where the last action below a vertex has come, what was put on them since its first one is matched:
    ``begun`` says where that was, for the vertices from until[place] to until[place + 1].
    """
    n = len(order)
    for which, given in ((-2, before), (-1, after)):
        total = 0.0
        for each in given:
            total += each if each >= 0.0 else np.inf
        if not abs(total - 1.0) <= 1e-9:
            return which
    giver, surplus, givers = np.empty(n, np.int64), np.empty(n), 0
    taker, lack, takers = np.empty(n, np.int64), np.empty(n), 0
    heights = np.empty((n, 2), np.int64)  # of both stacks, before each action came
    count = 0
    for place in range(n):
        action = order[place]
        heights[place, 0], heights[place, 1] = givers, takers
        stays = min(before[action], after[action])
        if stays > 0.0:
            source[count], target[count], mass[count] = action, action, stays
            count += 1
        if before[action] > stays:
            giver[givers], surplus[givers] = action, before[action] - stays
            givers += 1
        elif after[action] > stays:
            taker[takers], lack[takers] = action, after[action] - stays
            takers += 1
        for vertex in range(until[place], until[place + 1]):
            least_givers, least_takers = (
                heights[begun[vertex], 0],
                heights[begun[vertex], 1],
            )
            while givers > least_givers and takers > least_takers:
                one, other = givers - 1, takers - 1
                moved = min(surplus[one], lack[other])
                source[count], target[count], mass[count] = (
                    giver[one],
                    taker[other],
                    moved,
                )
                count += 1
                surplus[one] -= moved
                lack[other] -= moved
                if surplus[one] <= 0.0:
                    givers -= 1
                if lack[other] <= 0.0:
                    takers -= 1
    return count


def draw_from(
    source: Ints, target: Ints, mass: Floats, action: int, share: float
) -> tuple[int, float]:
    """Where ``share`` of the action's mass ends, and the probability of that; −1 where it has none."""
    total = 0.0
    for at in range(len(mass)):
        if source[at] == action:
            total += mass[at]
    found, probability, passed = -1, 0.0, 0.0
    for at in range(
        len(mass)
    ):  # to the last one, where rounding leaves the sum a hair below 1
        if source[at] == action and mass[at] > 0.0:
            found, probability = target[at], mass[at] / total
            passed += probability
            if passed > share:
                break
    return found, probability
