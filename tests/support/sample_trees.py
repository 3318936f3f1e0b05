"""Random trees over actions, for tests of mirror descent and couplings."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from superarm.movement import PointMetric, Tree
from superarm.movement.frt import frt_tree


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn_tree(n: int, seed: int) -> Tree:
    """A tree that FRT draws for n points of the plane."""
    points = rng(seed).normal(size=(n, 2))
    return frt_tree(PointMetric(points=points), rng(seed))


def any_tree(n: int, seed: int) -> Tree:
    """Any tree over n actions; siblings weigh different amounts."""
    source = rng(seed)
    parent = [-1]
    weight = [0.0]
    leaves: list[int] = []
    vertices = [(0, n)]  # each with the number of leaves below it
    for vertex, size in vertices:  # grows as it is read, so level by level
        if size == 1:
            leaves.append(vertex)
            continue
        cuts = source.choice(
            np.arange(1, size), size=source.integers(1, size), replace=False
        )
        for begin, end in pairwise([0, *np.sort(cuts).tolist(), size]):
            parent.append(vertex)
            weight.append((weight[vertex] or 1.0) * source.uniform(0.2, 1.0))
            vertices.append((len(parent) - 1, end - begin))
    return Tree(parent=parent, weight=weight, leaf=source.permutation(leaves))  # type: ignore[arg-type]
