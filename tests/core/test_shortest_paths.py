"""Shortest paths match an exhaustive search; unreachable nodes have none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse.csgraph import floyd_warshall

from superarm.core.shortest_paths import shortest_costs, shortest_paths


@pytest.mark.parametrize("seed", range(5))
def test_routes_cost_what_is_stated_and_nothing_is_cheaper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.uniform(1.0, 2.0, (12, 12)) * (rng.uniform(size=(12, 12)) < 0.2)
    matrix = csr_array(costs)
    least = floyd_warshall(matrix)
    for source in range(12):
        paths = shortest_paths(matrix, source)
        np.testing.assert_allclose(paths.costs, least[source])
        np.testing.assert_array_equal(paths.costs, shortest_costs(matrix, source))
        for goal in range(12):
            route = paths.route_to(goal)
            if least[source, goal] == np.inf:
                assert route is None
                continue
            assert route is not None
            assert (route[0], route[-1]) == (source, goal)
            total = sum(costs[first, second] for first, second in pairwise(route))
            assert total == pytest.approx(least[source, goal])


def test_path_to_the_source_is_only_the_source() -> None:
    loop = csr_array([[0.0, 1.0], [1.0, 0.0]])
    assert shortest_paths(loop, 1).route_to(1) == [1]


def test_search_stops_at_the_limit_and_at_infinite_costs() -> None:
    chain = csr_array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    near = shortest_paths(chain, 0, limit=1.0)
    assert near.route_to(1) == [0, 1]
    assert near.route_to(2) is None
    assert near.costs.tolist() == [0.0, 1.0, np.inf]
    chain.data[1] = np.inf
    assert shortest_paths(chain, 0).route_to(2) is None


def test_links_may_have_zero_cost() -> None:
    entries = (np.zeros(2), np.array([1, 2]), np.array([0, 1, 2, 2]))
    assert shortest_paths(csr_matrix(entries, shape=(3, 3)), 0).route_to(2) == [0, 1, 2]
