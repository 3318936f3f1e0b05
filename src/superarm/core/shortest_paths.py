"""Cheapest paths from one node of a sparse graph to all others, by Dijkstra's algorithm."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats


class ShortestPaths(NamedTuple):
    """What a search from one node has reached."""

    source: int
    costs: Floats  # from the source to each node, infinite where not reached, (n,)
    previous: NDArray[
        np.int32
    ]  # the node before each; negative where there is none, (n,)

    def route_to(self, goal: int) -> list[int] | None:
        """The nodes of the cheapest path, both ends included; ``None`` if it was not reached.

        Args:
            goal: The node where the path ends.
        """
        route = [goal]
        while route[-1] != self.source:
            before = int(self.previous[route[-1]])
            if before < 0:
                return None
            route.append(before)
        route.reverse()
        return route


def shortest_paths(matrix: Any, source: int, limit: float = np.inf) -> ShortestPaths:
    """The cheapest paths from a node.

    Args:
        matrix: The cost of each link, a sparse (n, n) matrix: 0 or more, infinite where closed.
            Zeros that it stores are links.
        source: The node where the paths begin.
        limit: The largest cost of a path; by default there is none.

    >>> from scipy.sparse import csr_array
    >>> triangle = csr_array([[0.0, 1.0, 5.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    >>> shortest_paths(triangle, 0).route_to(2)
    [0, 1, 2]
    """
    from scipy.sparse.csgraph import dijkstra

    costs, previous = dijkstra(
        matrix, indices=np.array([source]), return_predecessors=True, limit=limit
    )
    return ShortestPaths(source, costs[0], previous[0])


def shortest_costs(matrix: Any, source: int) -> Floats:
    """The cost of the cheapest path from a node to each node, (n,); infinite where there is none.

    It needs less time than :func:`shortest_paths`, which also finds the paths.

    Args:
        matrix: The cost of each link, a sparse (n, n) matrix, as for :func:`shortest_paths`.
        source: The node where the paths begin.
    """
    from scipy.sparse.csgraph import dijkstra

    costs: Floats = dijkstra(matrix, indices=np.array([source]))[0]
    return costs
