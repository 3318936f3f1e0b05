"""Couplings of two distributions over actions that move the least on the tree.

[ramesh2022movement, eq. 9]. The mass that leaves an action is matched with mass missing elsewhere, as
low in the tree as possible: every edge then carries the difference of the masses below it, and no
coupling needs less (eq. 21).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InputError
from superarm.core.inputs import as_vector, require_type

from .tree import Tree

# What :func:`match_up` returns where an argument is not a distribution.
BAD_BEFORE = -2
BAD_AFTER = -1
_NONE = -1  # no action
_SLACK = 1e-9  # allowed error of the sum of a distribution


class Row(NamedTuple):
    """Where one action leads: actions and their probabilities."""

    targets: Ints
    probabilities: Floats


class Draw(NamedTuple):
    """An action drawn from a row, and its probability."""

    action: int
    probability: float


class Coupling(NamedTuple):
    """Mass that moves from one action to another, or stays; fewer than 2n entries above 0."""

    source: Ints
    target: Ints
    mass: Floats

    def row(self, action: int) -> Row:
        """Where an action leads; if it has no mass, all targets by their share.

        Args:
            action: Number of the action.
        """
        entries = np.flatnonzero(self.source == action)
        mass = self.mass[entries]
        total = mass.sum()
        if total > 0.0:
            return Row(self.target[entries], mass / total)
        targets, place = np.unique(self.target, return_inverse=True)
        masses = np.bincount(place, self.mass)
        return Row(targets, masses / masses.sum())

    def cost(self, distances: Floats) -> float:
        """The expected distance moved.

        Args:
            distances: Between each two actions, (n, n).
        """
        moved = distances[self.source, self.target]
        return float(self.mass @ moved)


class TreeCoupling:
    """Couplings of distributions over the leaves of one tree.

    Args:
        tree: The tree.
        backend: "numba", "numpy", or "auto": numba where it is installed.
    """

    def __init__(self, tree: Tree, *, backend: Backend = "auto") -> None:
        require_type(tree, Tree, "tree", ", such as frt_tree(metric, rng)")
        self.tree = tree
        if is_compiled(backend):
            from ._compiled import draw, match

            self._match = match
            self._draw = draw
        else:
            self._match = match_up
            self._draw = draw_from
        # Arguments of match_up: actions side by side, and the vertices that end after each.
        first = tree.first
        self._order = np.argsort(first[tree.leaf])
        inner = np.flatnonzero(tree.sizes > 1)
        ends = first[inner] + tree.sizes[inner]
        by_end = np.lexsort((-inner, ends))  # the lower ones first
        counts = np.arange(1, len(tree) + 2)
        self._ends = np.searchsorted(ends[by_end], counts)
        self._begins = first[inner[by_end]]

    def between(self, before: Floats, after: Floats) -> Coupling:
        """The coupling of two distributions that moves the least on the tree.

        Args:
            before: Probability of each action, (n,).
            after: The same after the move.
        """
        n = len(self.tree)
        before = _as_plain(before, "before", n)
        after = _as_plain(after, "after", n)
        most = 2 * n  # entries
        source = np.empty(most, dtype=np.intp)
        target = np.empty(most, dtype=np.intp)
        mass = np.empty(most)
        count = self._match(
            self._order, self._ends, self._begins, before, after, source, target, mass
        )
        if count == BAD_BEFORE:
            _refuse(before, "before")
        if count == BAD_AFTER:
            _refuse(after, "after")
        entries = slice(count)
        return Coupling(source[entries], target[entries], mass[entries])

    def draw(self, plan: Coupling, action: int, rng: Rng) -> Draw:
        """Draw from the row of an action, without computing the row.

        Args:
            plan: The coupling.
            action: Number of the action.
            rng: The random generator.
        """
        share = rng.random()
        source, target, mass = plan
        drawn, probability = self._draw(source, target, mass, action, share)
        if drawn == _NONE:
            target, mass = plan.row(action)
            source = np.zeros_like(target)
            drawn, probability = self._draw(source, target, mass, 0, share)
        return Draw(int(drawn), float(probability))


def _refuse(values: Floats, name: str) -> None:
    """Raise, because the values are not a distribution."""
    as_vector(values, name)  # raises if an entry is not finite
    total = values.sum()
    smallest = values.min()
    message = f"{name} sums to {total:g}, and its smallest entry is {smallest:g}"
    raise InputError(f"{message}; give probabilities, 0 or more, that sum to 1")


def _as_plain(values: Floats, name: str, n: int) -> Floats:
    """A vector that compiled code accepts, which needs it writable; a copy if necessary."""
    if type(values) is np.ndarray and values.shape == (n,):
        flags = values.flags
        is_usable = flags.c_contiguous and flags.writeable
        if values.dtype == np.float64 and is_usable:
            return values
    vector = as_vector(values, name, n)
    return np.array(vector)


def match_up(
    order: Ints,
    ends: Ints,
    begins: Ints,
    before: Floats,
    after: Floats,
    source: Ints,
    target: Ints,
    mass: Floats,
) -> int:
    """Fill in the entries of the coupling and return their number, or BAD_BEFORE or BAD_AFTER.

    Actions are visited side by side. Two stacks hold the actions with too much and those with too
    little mass. After the last action below a vertex, what was pushed since its first one is matched.

    Args:
        order: The actions, side by side, (n,).
        ends: The vertices ends[place] … ends[place + 1] − 1 end at this place, (n + 1,).
        begins: The place where each of these vertices begins.
        before: Probability of each action, (n,).
        after: The same after the move.
        source: Receives the actions that mass leaves, (2n,).
        target: Receives the actions that mass enters, (2n,).
        mass: Receives the mass that moves, (2n,).
    """
    n = len(order)
    for failure, distribution in ((BAD_BEFORE, before), (BAD_AFTER, after)):
        total = 0.0
        for probability in distribution:
            total += probability if probability >= 0.0 else np.inf
        if not abs(total - 1.0) <= _SLACK:
            return failure
    # The stack of actions with too much mass.
    giver = np.empty(n, np.int64)
    surplus = np.empty(n)
    givers = 0
    # The stack of actions with too little mass.
    taker = np.empty(n, np.int64)
    lack = np.empty(n)
    takers = 0
    # Heights of both stacks before each action came.
    givers_before = np.empty(n, np.int64)
    takers_before = np.empty(n, np.int64)
    count = 0
    for place in range(n):
        action = order[place]
        givers_before[place] = givers
        takers_before[place] = takers
        stays = min(before[action], after[action])
        if stays > 0.0:
            source[count] = action
            target[count] = action
            mass[count] = stays
            count += 1
        if before[action] > stays:
            giver[givers] = action
            surplus[givers] = before[action] - stays
            givers += 1
        elif after[action] > stays:
            taker[takers] = action
            lack[takers] = after[action] - stays
            takers += 1
        for vertex in range(ends[place], ends[place + 1]):
            start = begins[vertex]
            least_givers = givers_before[start]
            least_takers = takers_before[start]
            while givers > least_givers and takers > least_takers:
                top_giver = givers - 1
                top_taker = takers - 1
                moved = min(surplus[top_giver], lack[top_taker])
                source[count] = giver[top_giver]
                target[count] = taker[top_taker]
                mass[count] = moved
                count += 1
                surplus[top_giver] -= moved
                lack[top_taker] -= moved
                if surplus[top_giver] <= 0.0:
                    givers -= 1
                if lack[top_taker] <= 0.0:
                    takers -= 1
    return count


def draw_from(
    source: Ints, target: Ints, mass: Floats, action: int, share: float
) -> tuple[int, float]:
    """Where ``share`` of the action's mass ends, and the probability of that; −1 if it has none.

    Args:
        source: The actions that mass leaves.
        target: The actions that mass enters.
        mass: The mass that moves.
        action: Number of the action.
        share: Between 0 and 1.
    """
    total = 0.0
    for entry in range(len(mass)):
        if source[entry] == action:
            total += mass[entry]
    drawn = _NONE
    probability = 0.0
    passed = 0.0
    # If rounding leaves the sum just below 1, the last entry is drawn.
    for entry in range(len(mass)):
        if source[entry] == action and mass[entry] > 0.0:
            drawn = target[entry]
            probability = mass[entry] / total
            passed += probability
            if passed > share:
                break
    return drawn, probability
