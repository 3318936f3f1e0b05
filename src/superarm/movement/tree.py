"""Rooted trees whose leaves are actions.

==========  ============================================================================
``v``       vertices, numbered level by level from the root 0: the children of a vertex
            are next to each other, after all vertices that are nearer to the root
``weight``  w, of the edge to the parent, at most 1/τ of the weight above it
``leaf``    the vertex of each action
==========  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.display import Displayable
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_positions,
    as_vector,
    read_only,
    require_scale,
)

ROOT = 0
NO_PARENT = -1  # of the root


class Level(NamedTuple):
    """The vertices of one level below the root."""

    vertices: slice
    starts: Ints  # where the children of each parent begin, counted within the level
    counts: Ints  # how many children each parent has


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
            counts = np.diff(starts, append=stop - start)
            level = Level(slice(start, stop), starts, counts)
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
        for level in reversed(self.levels):
            vertices = level.vertices
            starts = level.starts
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
    if v == 0 or parent[ROOT] != NO_PARENT:
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
    if not (below > 0.0).all() or weight[ROOT] != 0.0:
        raise InputError("weights must be above 0, and 0 for the root")
    require_scale(below, "weight")
    parents = parent[1:]
    has_edge_above = parents > ROOT
    above = np.where(has_edge_above, weight[parents], np.inf)
    if (below > above).any():
        raise InputError("weights must not grow from the root to the leaves")
