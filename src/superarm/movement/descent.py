"""Mirror descent on a tree, where every action has a cost and moving costs, too.

*Pure entropic regularization for metrical task systems* [coester2019pure], as in
[ramesh2022movement, eqs. 10, 25 and 28]. One step solves, for the children ν of every vertex from the
leaves to the root::

    q'_ν = max(0, (q_ν + δ_ν) exp(κ η_ν / w_ν (b − c_ν)) − δ_ν),   Σ q'_ν = 1

where b is the root of an increasing, convex function: Newton's method from above descends to it.

=========  ================================================================
``q``      conditional probabilities of the vertices, given their parent, (v,)
``theta``  θ: the share of the parent's actions, (v,); η = 1 + ln(1/θ), δ = θ/η
``kappa``  κ ≥ 1: a larger one follows the costs faster
=========  ================================================================
"""

from __future__ import annotations

from math import exp, inf, log
from typing import Any

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InfeasibleError, ShapeError, UnknownArmError
from superarm.core.inputs import (
    as_count,
    as_number,
    as_vector,
    require_size,
    require_type,
)

from .tree import Level, Tree

KAPPA = (1.0, 1e100)  # smallest and largest
_MOST_STEPS = 200  # of Newton's method, which needs about ten


class TreeDescent:
    """Steps from one distribution over the leaves to the next; ``q`` is their only state.

    Args:
        tree: The tree.
        kappa: κ ≥ 1: a larger one follows the costs faster.
        backend: "numba", "numpy", or "auto": numba where it is installed.
    """

    def __init__(
        self, tree: Tree, *, kappa: float = 1.0, backend: Backend = "auto"
    ) -> None:
        require_type(tree, Tree, "tree", ", such as frt_tree(metric, rng)")
        self.tree = tree
        self.kappa = as_number(kappa, "kappa", *KAPPA)
        self._descend = None
        if is_compiled(backend):
            from ._compiled import descend

            self._descend = descend
        self._parent = tree.parent.copy()  # compiled code needs writable arrays
        parents = np.maximum(tree.parent, 0)  # the root counts as its own parent
        parent_sizes = tree.sizes[parents]
        self.theta = tree.sizes / parent_sizes
        self.theta.flags.writeable = False  # walks begin with it
        self.eta = 1.0 - np.log(self.theta)
        self.delta = self.theta / self.eta
        # κ η / w, below the root.
        eta = self.eta[1:]
        weight = tree.weight[1:]
        rate = self.kappa * eta / weight
        self._rate = np.zeros_like(self.eta)
        self._rate[1:] = rate
        # An action that costs this much more than another loses all of its mass, whatever q is.
        delta = self.delta[1:]
        emptied = np.log1p(1.0 / delta) / rate
        largest = float(emptied.max(initial=0.0))
        self._reach = 1.01 * largest

    def point_mass(self, action: int) -> Floats:
        """q of being at an action for certain (eq. 23); θ below vertices that are not above it.

        Args:
            action: Number of the action.
        """
        tree = self.tree
        n = len(tree)
        if not 0 <= as_count(action, "action", 0) < n:
            raise UnknownArmError(
                f"action is {action}; the tree has actions 0 to {n - 1}"
            )
        q = self.theta.copy()
        vertex = int(tree.leaf[action])
        while vertex:
            parent = int(tree.parent[vertex])
            siblings = tree.children(parent)
            q[siblings] = 0.0
            q[vertex] = 1.0
            vertex = parent
        return q

    def distribution(self, q: Floats) -> Floats:
        """l(Δ(q)): the probability of every action, (n,) [ramesh2022movement, eqs. 8 and 11].

        Args:
            q: Conditional probabilities, (v,).
        """
        tree = self.tree
        z = as_vector(q, "q", len(self.delta)).copy()
        z[0] = 1.0
        for level in tree.levels:
            vertices = level.vertices
            parents = tree.parent[vertices]
            z[vertices] *= z[parents]
        return z[tree.leaf]

    def step(self, q: Floats, costs: Any, available: Bools | None = None) -> Floats:
        """q after a round.

        Args:
            q: Conditional probabilities before the round, (v,).
            costs: Cost of each action, (n,); a constant in them is ignored.
            available: Whether each action is available, (n,); those that are not lose all of their
                mass.
        """
        q = as_vector(q, "q", len(self.delta))
        costs = as_vector(costs, "costs", len(self.tree))
        require_size(costs, "costs")
        if available is not None:
            costs = self._bar(costs, available)
        c = np.zeros(len(q))
        c[self.tree.leaf] = costs
        after = np.ones_like(q)
        if self._descend is None:
            self._step_by_level(q, c, after)
        else:
            before = q.copy()
            self._descend(self._parent, self._rate, self.delta, before, c, after)
        return after

    def _bar(self, costs: Floats, available: Bools) -> Floats:
        """Costs with which actions that are not available lose all of their mass, (n,)."""
        is_open = np.asarray(available)
        if is_open.dtype != np.bool_ or is_open.shape != costs.shape:
            raise ShapeError(
                f"available must hold a boolean for each of {len(costs)} actions"
            )
        if not is_open.any():
            raise InfeasibleError("no action is available")
        if is_open.all():
            return costs
        # So far above the others that (q + δ) exp(…) is below δ, whatever b is; counted from the
        # lowest, so that large costs do not swallow the difference.
        lowest = costs[is_open].min()
        above_lowest = costs - lowest
        highest = above_lowest[is_open].max()
        barred = highest + 2.0 * self._reach
        return np.asarray(np.where(is_open, above_lowest, barred))

    def _step_by_level(self, q: Floats, c: Floats, after: Floats) -> None:
        """Fill in ``after`` (v,), and the costs of inner vertices in ``c`` (v,).

        :func:`step_by_family` does the same, vertex by vertex.
        """
        for level in reversed(self.tree.levels):
            vertices = level.vertices
            starts = level.starts
            costs = c[vertices]
            lowest = np.minimum.reduceat(costs, starts)
            # Relative costs, so that large ones lose no digits.
            relative = costs - np.repeat(lowest, level.counts)
            probabilities = self._balance(level, q[vertices], relative)
            after[vertices] = probabilities
            means = np.add.reduceat(probabilities * relative, starts)
            parents = self.tree.parent[vertices]
            c[parents[starts]] = lowest + means

    def _balance(self, level: Level, q: Floats, cost: Floats) -> Floats:
        """q' of the vertices of one level, whose siblings sum to 1, by Newton's method."""
        starts = level.starts
        counts = level.counts
        rate = self._rate[level.vertices]
        delta = self.delta[level.vertices]
        a = q + delta
        # Where the first child would have all of the mass: b is below, and nothing overflows.
        log_ratio = np.log((1.0 + delta) / a)
        upper = cost + log_ratio / rate
        b = np.minimum.reduceat(upper, starts)
        for _ in range(_MOST_STEPS):
            gap = np.repeat(b, counts) - cost
            e = a * np.exp(rate * gap)
            mass = np.maximum(e - delta, 0.0)
            excess = np.add.reduceat(mass, starts) - 1.0
            slopes = np.where(mass > 0.0, rate * e, 0.0)
            slope = np.add.reduceat(slopes, starts)
            lower = b - excess / slope
            if not (lower < b).any():
                break
            b = np.minimum(lower, b)
        totals = np.repeat(1.0 + excess, counts)
        return np.asarray(mass / totals)


def step_by_family(
    parent: Ints,
    rate: Floats,
    delta: Floats,
    q: Floats,
    c: Floats,
    after: Floats,
) -> None:
    """One step as a plain loop, to be compiled: from the last vertex to the root, siblings together.

    ``TreeDescent._step_by_level`` does the same with arrays, all vertices of a level together.

    Args:
        parent: The parent of each vertex, (v,); siblings are neighbours, and parents come before
            children.
        rate: κ η / w of each vertex, (v,).
        delta: δ of each vertex, (v,).
        q: Conditional probabilities before the step, (v,).
        c: Costs of the leaves; receives those of inner vertices, (v,).
        after: Receives the conditional probabilities after the step, (v,).
    """
    last = len(parent) - 1
    while last > 0:
        above = parent[last]
        begin = last
        while begin > 1 and parent[begin - 1] == above:
            begin -= 1
        lowest = inf
        for v in range(begin, last + 1):
            lowest = min(lowest, c[v])
        # Where the first child would have all of the mass: b is below, and nothing overflows.
        b = inf
        for v in range(begin, last + 1):
            # Relative costs, so that large ones lose no digits.
            cost = c[v] - lowest
            a = q[v] + delta[v]
            ratio = (1.0 + delta[v]) / a
            upper = cost + log(ratio) / rate[v]
            b = min(b, upper)
        # Newton's method: the sum of q' is convex and increasing in b, so each step ends above its
        # root. Once rounding lets b fall no more, it is there.
        total = 1.0
        for _ in range(_MOST_STEPS):
            total = 0.0
            slope = 0.0
            for v in range(begin, last + 1):
                cost = c[v] - lowest
                a = q[v] + delta[v]
                e = a * exp(rate[v] * (b - cost))
                after[v] = max(e - delta[v], 0.0)
                # Children without mass stay without it as b falls: their slope is 0.
                if after[v] > 0.0:
                    total += after[v]
                    slope += rate[v] * e
            lower = b - (total - 1.0) / slope
            if not lower < b:
                break
            b = lower
        # The sum is 1 but for rounding, which the division removes.
        mean = 0.0
        for v in range(begin, last + 1):
            cost = c[v] - lowest
            after[v] /= total
            mean += after[v] * cost
        c[above] = lowest + mean
        last = begin - 1
