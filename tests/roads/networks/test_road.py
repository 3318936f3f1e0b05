"""A road network in numbers that can be checked by hand: turns, their matrices, and features."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from superarm.roads.networks import LineGraph, RoadNetwork, generate_city


@pytest.fixture
def graph() -> LineGraph:
    """A round trip of 100, 200 and 300 m, over junctions at 0, 10 and −20 m."""
    everyone = {"passenger": np.ones(3, dtype=bool)}
    return RoadNetwork(
        name="loop",
        junction_ids=("a", "b", "c"),
        junctions=np.array([[0.0, 0.0, 0.0], [80.0, 0.0, 10.0], [80.0, 250.0, -20.0]]),
        edge_ids=("ab", "bc", "ca"),
        tail=np.array([0, 1, 2]),
        head=np.array([1, 2, 0]),
        length=np.array([100.0, 200.0, 300.0]),
        speed=np.array([10.0, 20.0, 10.0]),
        permits=everyone,
        connections=np.array([[0, 1], [1, 2], [2, 0]]),
        turn_permits=everyone,
    ).line_graph()


def test_incidence_and_laplacian(graph: LineGraph) -> None:
    """A turn weighs mean length / length of the road it leaves: minus there, plus where it enters."""
    incidence = [[-2.0, 0.0, 2 / 3], [2.0, -1.0, 0.0], [0.0, 1.0, -2 / 3]]
    np.testing.assert_allclose(
        graph.turn_graph.incidence().toarray(), incidence, rtol=1e-15
    )
    laplacian = [[40 / 9, -4.0, -4 / 9], [-4.0, 5.0, -1.0], [-4 / 9, -1.0, 13 / 9]]
    np.testing.assert_allclose(
        graph.turn_graph.laplacian().toarray(), laplacian, rtol=1e-15
    )
    assert graph.turn_graph.successors.toarray().tolist() == [
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
    ]


def test_incline_and_features(graph: LineGraph) -> None:
    """Rise over the longest of length, distance of the junctions and 1 m."""
    assert graph.rise.tolist() == [10.0, -30.0, 20.0]
    incline = [10 / 100, -30 / 250, 20 / 300]  # bc is stated shorter than it can be
    np.testing.assert_allclose(graph.incline, incline, rtol=1e-15)
    short = replace(
        graph.network,
        junctions=graph.network.junctions * [0.0, 0.0, 1.0],
        length=np.array([0.5, 200.0, 300.0]),
    )
    assert short.incline[0] == 10.0
    root = np.sqrt(1.5)
    np.testing.assert_allclose(graph.features[:, 0], [-root, 0.0, root], atol=1e-15)
    np.testing.assert_allclose(
        graph.features[:, 1],
        [-root / np.sqrt(3), 2 * root / np.sqrt(3), -root / np.sqrt(3)],
    )
    mean, std = np.mean(incline), np.std(incline)
    np.testing.assert_allclose(
        graph.features[:, 2], (np.array(incline) - mean) / std, rtol=1e-12
    )


def test_turns_are_found_as_by_looking_for_each() -> None:
    """Also where there is none between two edges, and on routes of no or one edge."""
    graph, rng = generate_city(edges=300, seed=1).line_graph(), np.random.default_rng(0)
    turns = {tuple(pair): number for number, pair in enumerate(graph.turns.tolist())}
    for route in (
        *rng.integers(len(graph), size=(20, 9)),
        graph.turns[5],
        graph.turns[-1],
        [3],
        [],
    ):
        pairs = pairwise(np.asarray(route).tolist())
        expected = [turns.get(pair, -1) for pair in pairs]
        assert graph.turns_between(route).tolist() == expected
