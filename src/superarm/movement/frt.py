"""Random hierarchically separated trees in place of a metric, by FRT.

*A tight bound on approximating arbitrary metrics by tree metrics* [fakcharoenphol2004tight], as used by
*Movement Penalized Bayesian Optimization with Application to Wind Energy Systems*
[ramesh2022movement, appendix B].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import InputError
from superarm.core.inputs import as_generator, as_number, require_type

from .metrics import ActionMetric
from .tree import NO_PARENT, ROOT, Tree

TAU = (1.01, 1e6)  # smallest and largest
_ROWS = 512  # rows of distances that are compared at a time


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
            parent=np.array([NO_PARENT]),
            weight=np.zeros(1),
            leaf=np.array([ROOT]),
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
        self._parents = [np.array([NO_PARENT])]
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
        if above != NO_PARENT:
            children[above].append(vertex)
    order = [ROOT]
    for vertex in order:  # the list grows while it is read
        order += children[vertex]
    rank = np.argsort(order)
    old_parents = parent[order[1:]]
    parents = rank[old_parents]
    return Tree(
        parent=np.append(NO_PARENT, parents),
        weight=weight[order],
        leaf=rank[leaf],
    )
