"""Random hierarchically separated trees in place of a metric, by FRT.

*A tight bound on approximating arbitrary metrics by tree metrics* [fakcharoenphol2004tight], as used by
*Movement Penalized Bayesian Optimization with Application to Wind Energy Systems*
[ramesh2022movement, appendix B].

==========  ============================================================================
``v``       vertices, numbered level by level from the root 0: the children of a vertex
            are next to each other, after all vertices that are nearer to the root
``weight``  w, of the edge to the parent, at most 1/τ of the weight above it
``leaf``    the vertex of each action
==========  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

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

# The arrays that define a tree, as files and states name them.
TREE_ARRAYS = ("parent", "weight", "leaf")
TAU = (1.01, 1e6)  # smallest and largest
_ROOT = 0
_NO_PARENT = -1
_ROWS = 512  # rows of distances that are compared at a time


class Level(NamedTuple):
    """The vertices of one level below the root."""

    vertices: slice
    starts: Ints  # where the children of each parent begin, counted within the level

    @property
    def counts(self) -> Ints:
        """How many children each parent has."""
        size = self.vertices.stop - self.vertices.start
        return np.diff(self.starts, append=size)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tree(Displayable):
    """A rooted tree whose leaves are actions; each inner vertex has two or more children.

    Args:
        parent: The parent of each vertex, (v,); −1 for the root.
        weight: The weight of the edge to the parent, (v,); 0 for the root.
        leaf: The vertex of each action, (n,).
    """

    parent: Ints
    weight: Floats
    leaf: Ints

    def __post_init__(self) -> None:
        parent = as_positions(self.parent, "parent")
        leaf = as_positions(self.leaf, "leaf")
        weight = as_vector(self.weight, "weight", len(parent))
        if not _is_by_level(parent):
            raise InputError(
                "parent must begin with −1, the root, and number vertices level by level"
            )
        children = np.bincount(parent[1:], minlength=len(parent))
        has_one_child = children == 1
        if has_one_child.any():
            vertex = int(np.argmax(has_one_child))
            raise InputError(f"vertex {vertex} has one child; join the two")
        leaves = np.flatnonzero(children == 0)
        if not np.array_equal(np.sort(leaf), leaves):
            raise InputError("leaf must name every vertex without children once")
        _check_weights(weight, parent)
        object.__setattr__(self, "parent", read_only(parent))
        object.__setattr__(self, "weight", read_only(weight))
        object.__setattr__(self, "leaf", read_only(leaf))

    def __getstate__(self) -> dict[str, Any]:
        # A copy: another thread may be filling in a cached property.
        return dict(vars(self))

    def __len__(self) -> int:
        """n: the number of actions."""
        return len(self.leaf)

    def _display_fields(self) -> Mapping[str, Any]:
        return {"n": len(self), "vertices": len(self.parent), "depth": len(self.levels)}

    @cached_property
    def levels(self) -> list[Level]:
        """The levels below the root, from the top."""
        levels = []
        start = 1
        while start < len(self.parent):
            # The parents of this level are all vertices before it.
            stop = int(np.searchsorted(self.parent, start, side="left"))
            parents = self.parent[start:stop]
            changes = np.diff(parents, prepend=-2)  # no vertex has the parent −2
            starts = np.flatnonzero(changes)
            level = Level(slice(start, stop), starts)
            levels.append(level)
            start = stop
        return levels

    def children(self, vertex: int) -> slice:
        """The vertices right below this one.

        Args:
            vertex: Number of the vertex.
        """
        ends = np.searchsorted(self.parent, [vertex, vertex + 1])
        start, stop = ends.tolist()
        return slice(start, stop)

    @cached_property
    def sizes(self) -> Ints:
        """|L(u)|: the number of actions at or below each vertex, (v,)."""
        ones = np.ones(len(self))
        return self.masses(ones).astype(np.intp)

    @cached_property
    def first(self) -> Ints:
        """Where the actions below each vertex begin when all are side by side, (v,)."""
        first = np.zeros(len(self.parent), dtype=np.intp)
        for level in self.levels:
            vertices = level.vertices
            sizes = self.sizes[vertices]
            before = np.cumsum(sizes) - sizes  # actions of the level before each vertex
            before_siblings = np.repeat(before[level.starts], level.counts)
            parents = self.parent[vertices]
            parents_first = first[parents]
            first[vertices] = parents_first + before - before_siblings
        return first

    def masses(self, distribution: Floats) -> Floats:
        """z: the probability of each vertex, that is of the actions below it, (v,).

        Args:
            distribution: Probability of each action, (n,).
        """
        z = np.zeros(len(self.parent))
        z[self.leaf] = distribution
        for vertices, starts in reversed(self.levels):
            parents = self.parent[vertices]
            sums = np.add.reduceat(z[vertices], starts)
            z[parents[starts]] = sums
        return z

    def distance(self, one: Floats, other: Floats) -> float:
        """Wasserstein-1 between two distributions over actions [ramesh2022movement, eq. 21].

        Args:
            one: Probability of each action, (n,).
            other: The same of another distribution.
        """
        difference = self.masses(one) - self.masses(other)
        moved = np.abs(difference)
        return float(self.weight @ moved)

    @cached_property
    def distances(self) -> Floats:
        """d_T between each two actions, (n, n)."""
        n = len(self)
        first = self.first
        last = first + self.sizes
        vertices = range(len(self.parent))
        # In the order in which actions are side by side.
        height = np.zeros(n)  # distance to the vertex at hand
        distances = np.zeros((n, n))
        for vertex in reversed(vertices):
            children = vertices[self.children(vertex)]
            for child in children:
                below = slice(first[child], last[child])
                height[below] += self.weight[child]
            for child in children:
                below = slice(first[child], last[child])
                right = slice(last[child], last[vertex])  # below its right siblings
                distances[below, right] = height[below, None] + height[right]
        distances += distances.T
        places = first[self.leaf]
        entries = np.ix_(places, places)
        return np.asarray(distances[entries])


def _is_by_level(parent: Ints) -> bool:
    """Whether vertices are numbered level by level from the root."""
    v = len(parent)
    if v == 0 or parent[_ROOT] != _NO_PARENT:
        return False
    parents = parent[1:]
    vertices = np.arange(1, v)
    is_not_negative = (parents >= 0).all()
    is_rising = (np.diff(parents) >= 0).all()
    is_before = (parents < vertices).all()
    return bool(is_not_negative and is_rising and is_before)


def _check_weights(weight: Floats, parent: Ints) -> None:
    """Refuse weights that are not positive, or that grow from the root to the leaves."""
    below = weight[1:]
    if not (below > 0.0).all() or weight[_ROOT] != 0.0:
        raise InputError("weights must be above 0, and 0 for the root")
    require_scale(below, "weight")
    parents = parent[1:]
    has_edge_above = parents > _ROOT
    above = np.where(has_edge_above, weight[parents], np.inf)
    if (below > above).any():
        raise InputError("weights must not grow from the root to the leaves")


def frt_tree(metric: ActionMetric, rng: Rng, *, tau: float = 2.0) -> Tree:
    """A random τ-HST over the actions [fakcharoenphol2004tight].

    It never shortens a distance, and on average lengthens none by more than O(log n).

    With the smallest distance as the unit and β = τ^U, a cluster of level i has the radius βτ^{i−1}
    around the first action, in random order, that reaches its members; the edge above it weighs
    τ^{i+1}. The root is of the lowest level i with τ^i at or above the largest distance. Clusters that
    do not split are one vertex, which has the weight of the highest.

    Args:
        metric: The distances between actions.
        rng: The random generator.
        tau: τ: how many times longer the edges of a level are than those of the next.
    """
    require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
    rng = as_generator(rng)
    tau = as_number(tau, "tau", *TAU)
    n = len(metric)
    order = rng.permutation(n)
    beta = tau ** rng.random()
    if n == 1:
        return Tree(
            parent=np.array([_NO_PARENT]),
            weight=np.zeros(1),
            leaf=np.array([_ROOT]),
        )
    distances = metric.distances
    different = ~np.eye(n, dtype=bool)
    unit = float(np.min(distances, where=different, initial=np.inf))
    # The root's level: the lowest with max d ≤ unit · τ^top [fakcharoenphol2004tight, section 2]. Equal
    # distances still need one level below it.
    spread = np.log(distances.max() / unit)
    levels = np.ceil(spread / np.log(tau))
    top = max(1, int(levels))
    clusters = _Clusters(n)
    for i in reversed(range(top)):
        radius = unit * beta * tau ** (i - 1)
        centre = _first_reached(distances, order, clusters.members, radius)
        weight = unit * tau ** (i + 1)
        clusters.split(centre, weight)
        if len(clusters.members) == 0:
            break
    tree = clusters.tree()
    if (tree.distances < distances).any():
        raise InputError(
            "the tree shortens a distance: some detour is shorter; "
            "MatrixMetric(distances=…) names it, and repair=True repairs it"
        )
    return replace(tree)  # without the n² distances


class _Clusters:
    """A tree while it grows from the root, and the actions whose cluster may still split.

    Args:
        n: Number of actions.
    """

    def __init__(self, n: int) -> None:
        self.members = np.arange(n)  # actions that share their cluster with others
        self._n = n
        self._cluster = np.zeros(n, dtype=np.intp)  # the vertex of each action
        self._leaf = np.full(n, -1, dtype=np.intp)
        self._parents = [np.array([_NO_PARENT])]
        self._weights = [np.zeros(1)]
        self._count = 1  # of vertices

    def split(self, centre: Ints, weight: float) -> None:
        """Split clusters by the centres of their members, (len(members),).

        Args:
            centre: The centre of each member.
            weight: Weight of the edges to new vertices.
        """
        members = self.members
        cluster = self._cluster[members]
        # A part is a cluster and a centre; a cluster with one part stays as it is.
        part = cluster * self._n + centre
        _, first, part_of = np.unique(part, return_index=True, return_inverse=True)
        above = cluster[first]  # the cluster of each part
        part_counts = np.bincount(above, minlength=self._count)
        is_new = part_counts[above] > 1
        new_numbers = self._count + np.cumsum(is_new) - 1
        number = np.where(is_new, new_numbers, above)
        self._cluster[members] = number[part_of]
        new_vertices = int(is_new.sum())
        self._parents.append(above[is_new])
        self._weights.append(np.full(new_vertices, weight))
        self._count += new_vertices
        sizes = np.bincount(part_of)
        is_single = sizes[part_of] == 1
        singles = members[is_single]
        self._leaf[singles] = self._cluster[singles]
        self.members = members[~is_single]

    def tree(self) -> Tree:
        """The tree, numbered level by level."""
        parent = np.concatenate(self._parents)
        weight = np.concatenate(self._weights)
        return _number_by_level(parent, weight, self._leaf)


def _first_reached(
    distances: Floats, order: Ints, members: Ints, radius: float
) -> Ints:
    """For each member the first action of ``order`` within the radius, as its place there."""
    places = np.empty(len(members), dtype=np.intp)
    for start in range(0, len(members), _ROWS):
        rows = slice(start, start + _ROWS)
        some_members = members[rows]
        ordered = distances[some_members][:, order]
        is_within = ordered <= radius
        places[rows] = np.argmax(is_within, axis=1)
    return places


def _number_by_level(parent: Ints, weight: Floats, leaf: Ints) -> Tree:
    """Renumbers vertices level by level: the children of a cluster that split late come late."""
    children: list[list[int]] = [[] for _ in parent]
    for vertex, above in enumerate(parent.tolist()):
        if above != _NO_PARENT:
            children[above].append(vertex)
    order = [_ROOT]
    for vertex in order:  # the list grows while it is read
        order += children[vertex]
    rank = np.argsort(order)
    old_parents = parent[order[1:]]
    parents = rank[old_parents]
    return Tree(
        parent=np.append(_NO_PARENT, parents),
        weight=weight[order],
        leaf=rank[leaf],
    )
