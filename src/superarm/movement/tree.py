"""Random trees in place of a metric: hierarchically separated ones, by FRT.

*A tight bound on approximating arbitrary metrics by tree metrics* [fakcharoenphol2004tight], as used by
*Movement Penalized Bayesian Optimization with Application to Wind Energy Systems*
[ramesh2022movement, appendix B].

==========  ============================================================================
``v``       vertices, numbered level by level from the root 0: the children of a vertex
            stand next to each other, after all vertices that are nearer to the root
``weight``  w, of the edge to the parent, at most 1/τ of the weight above it
``leaf``    the vertex of each action
==========  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.display import Displayable
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_generator,
    as_number,
    as_positions,
    as_vector,
    read_only,
    require_scale,
    require_type,
)

from .metrics import ActionMetric

TREE_ARRAYS = (
    "parent",
    "weight",
    "leaf",
)  # what makes a tree, as files and states name it
TAU = (1.01, 1e6)  # the least and the most
_ROWS = 512  # of distances compared at a time


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tree(Displayable):
    """A rooted tree whose leaves are actions; each inner vertex has two or more children."""

    parent: Ints
    """(v,); −1 for the root."""
    weight: Floats
    """(v,); 0 for the root."""
    leaf: Ints
    """(n,)"""

    def __post_init__(self) -> None:
        parent, leaf = (
            as_positions(self.parent, "parent"),
            as_positions(self.leaf, "leaf"),
        )
        weight, v = as_vector(self.weight, "weight", len(parent)), len(parent)
        below = parent[1:]
        ordered = (
            v > 0
            and parent[0] == -1
            and (below >= 0).all()
            and (np.diff(below) >= 0).all()
        )
        if not ordered or not (below < np.arange(1, v)).all():
            raise InputError(
                "parent must begin with −1, the root, and number vertices level by level"
            )
        children = np.bincount(below, minlength=v)
        if (children == 1).any():
            raise InputError(
                f"vertex {int(np.argmax(children == 1))} has one child; join the two"
            )
        if sorted(leaf.tolist()) != np.flatnonzero(children == 0).tolist():
            raise InputError("leaf must name every vertex without children once")
        if not (weight[1:] > 0.0).all() or weight[0] != 0.0:
            raise InputError("weights must be above 0, and 0 for the root")
        require_scale(weight[1:], "weight")
        if (weight[1:] > np.where(below > 0, weight[below], np.inf)).any():
            raise InputError("weights must not grow from the root to the leaves")
        for name, value in zip(TREE_ARRAYS, (parent, weight, leaf), strict=True):
            object.__setattr__(self, name, read_only(value))

    def __getstate__(self) -> dict[str, Any]:
        return dict(
            vars(self)
        )  # a copy of it: another thread may be filling in what is lazy

    def __len__(self) -> int:
        """n: how many actions there are."""
        return len(self.leaf)

    def _display_fields(self) -> Mapping[str, Any]:
        return {"n": len(self), "vertices": len(self.parent), "depth": len(self.levels)}

    @cached_property
    def levels(self) -> list[tuple[slice, Ints]]:
        """Of each level below the root: its vertices, and where each parent's children begin in it."""
        levels, first, last = [], 1, len(self.parent)
        reached = 1  # vertices above this number are below the level before
        while first < last:
            end = int(np.searchsorted(self.parent, reached, side="left"))
            parents = self.parent[first:end]
            starts = np.flatnonzero(np.diff(parents, prepend=-2))
            levels.append((slice(first, end), starts))
            first, reached = end, end
        return levels

    def children(self, vertex: int) -> slice:
        """The vertices right below this one."""
        return slice(*np.searchsorted(self.parent, [vertex, vertex + 1]).tolist())

    @cached_property
    def sizes(self) -> Ints:
        """|L(u)|: how many actions are below each vertex, or are it, (v,)."""
        return self.masses(np.ones(len(self))).astype(np.intp)

    @cached_property
    def first(self) -> Ints:
        """Where the actions below each vertex begin when they stand side by side, (v,)."""
        first = np.zeros(len(self.parent), dtype=np.intp)
        for level, starts in self.levels:
            before = np.cumsum(self.sizes[level]) - self.sizes[level]
            counts = np.diff(starts, append=level.stop - level.start)
            first[level] = (
                first[self.parent[level]] + before - np.repeat(before[starts], counts)
            )
        return first

    def masses(self, distribution: Floats) -> Floats:
        """z: what a distribution over actions (n,) puts below each vertex, (v,)."""
        z = np.zeros(len(self.parent))
        z[self.leaf] = distribution
        for level, starts in reversed(self.levels):
            z[self.parent[level][starts]] = np.add.reduceat(z[level], starts)
        return z

    def distance(self, one: Floats, other: Floats) -> float:
        """Wasserstein-1 between two distributions over actions (n,) [ramesh2022movement, eq. 21]."""
        return float(self.weight @ np.abs(self.masses(one) - self.masses(other)))

    @cached_property
    def distances(self) -> Floats:
        """d_T between each two actions, (n, n)."""
        n, first, last = len(self), self.first, self.first + self.sizes
        up, side = (
            np.zeros(n),
            np.zeros((n, n)),
        )  # actions side by side; ``up``: to the vertex at hand
        for vertex in reversed(range(len(self.parent))):
            children = range(len(self.parent))[self.children(vertex)]
            for child in children:
                up[first[child] : last[child]] += self.weight[child]
            for child in children:  # the others that are on its right
                own, right = (
                    slice(first[child], last[child]),
                    slice(last[child], last[vertex]),
                )
                side[own, right] = up[own, None] + up[right]
        place = first[self.leaf]
        side += side.T
        return np.asarray(side[np.ix_(place, place)])


def frt_tree(metric: ActionMetric, rng: Rng, *, tau: float = 2.0) -> Tree:
    """A random τ-HST over the actions that never shortens a distance, and on average lengthens none by
    more than O(log n) [fakcharoenphol2004tight].

    With the smallest distance as the unit and β = τ^U, a cluster of level i has the radius βτ^{i−1}
    around the first action, in random order, that reaches its members; the edge above it weighs
    τ^{i+1}. The root is of the lowest level i with τ^i at or above the largest distance. Clusters that
    do not split are one vertex, which keeps the weight at the top.
    """
    require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
    rng, tau = as_generator(rng), as_number(tau, "tau", *TAU)
    distances, n = metric.distances, len(metric)
    order, beta = rng.permutation(n), tau ** rng.random()
    if n == 1:
        return Tree(parent=np.array([-1]), weight=np.zeros(1), leaf=np.array([0]))
    unit = float(np.min(distances, where=~np.eye(n, dtype=bool), initial=np.inf))
    # The root's level: the lowest with max d ≤ unit · τ^top [fakcharoenphol2004tight, section 2]. Equal
    # distances still need one level below it.
    top = max(1, int(np.ceil(np.log(distances.max() / unit) / np.log(tau))))
    cluster = np.zeros(
        n, dtype=np.intp
    )  # the vertex that holds each action, while it may still split
    parents, weights = [np.array([-1])], [np.zeros(1)]
    leaf, count = np.full(n, -1, dtype=np.intp), 1
    rest = np.arange(n)  # actions whose cluster holds others, too
    for i in range(top - 1, -1, -1):
        centre = _first_reached(distances, order, rest, unit * beta * tau ** (i - 1))
        pair = cluster[rest] * n + centre  # numbered, so that equal ones are found
        _, found, members = np.unique(pair, return_index=True, return_inverse=True)
        above = cluster[rest][found]
        split = np.bincount(above, minlength=count)[above] > 1
        number = np.where(split, count + np.cumsum(split) - 1, above)
        cluster[rest] = number[members]
        parents.append(above[split])
        weights.append(np.full(int(split.sum()), unit * tau ** (i + 1)))
        count += int(split.sum())
        alone = np.bincount(members)[members] == 1
        leaf[rest[alone]] = cluster[rest[alone]]
        rest = rest[~alone]
        if not len(rest):
            break
    tree = _by_level(np.concatenate(parents), np.concatenate(weights), leaf)
    if (tree.distances < distances).any():
        told = "the tree shortens a distance: some detour is shorter"
        raise InputError(
            f"{told}; MatrixMetric(distances=…) says which, and repair=True mends it"
        )
    return replace(tree)  # without the n² distances


def _first_reached(
    distances: Floats, order: Ints, members: Ints, radius: float
) -> Ints:
    """For each member the first action of ``order`` within the radius, as its place there."""
    found = np.empty(len(members), dtype=np.intp)
    for begin in range(0, len(members), _ROWS):
        rows = distances[members[begin : begin + _ROWS]]
        found[begin : begin + _ROWS] = np.argmax(rows[:, order] <= radius, axis=1)
    return found


def _by_level(parent: Ints, weight: Floats, leaf: Ints) -> Tree:
    """Vertices numbered anew, level by level: a chain that was joined may have come later."""
    below: list[list[int]] = [[] for _ in parent]
    for vertex, above in enumerate(parent[1:].tolist(), start=1):
        below[above].append(vertex)
    order = [0]
    for vertex in order:  # it grows meanwhile
        order += below[vertex]
    rank = np.argsort(order)
    return Tree(
        parent=np.append(-1, rank[parent[order[1:]]]),
        weight=weight[order],
        leaf=rank[leaf],
    )
