"""Shortest paths against enumeration, Bellman–Ford, and networks with closed roads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from superarm.core import Floats, Ints, Oracle
from superarm.core.errors import (
    InfeasibleError,
    InputError,
    ShapeError,
    UnknownArmError,
)
from superarm.oracles import ShortestPath, Trip
from superarm.testing import OracleContract

RNG = np.random.default_rng(0)
# 0 → 6 with many ways; 5 leads nowhere.
TURNS = [
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 3),
    (1, 4),
    (3, 4),
    (4, 2),
    (3, 6),
    (4, 6),
    (2, 5),
    (6, 0),
]


def graph_of(turns: Iterable[tuple[int, int]], n: int) -> csr_array:
    first, second = np.array(list(turns), dtype=np.intp).reshape(-1, 2).T
    return csr_array((np.ones(len(first)), (first, second)), shape=(n, n))


def simple_paths(
    turns: Iterable[tuple[int, int]], start: int, goal: int
) -> list[list[int]]:
    nx = pytest.importorskip("networkx", reason="networkx is not installed")
    graph = nx.DiGraph()
    graph.add_edges_from(turns)
    graph.add_nodes_from([start, goal])
    if start == goal:
        return [[start]]
    return [list(path) for path in nx.all_simple_paths(graph, start, goal)]


class TestShortestPath(OracleContract):
    n = 7
    rescores = False

    def make_oracle(self) -> Oracle:
        return ShortestPath(successors=graph_of(TURNS, self.n))

    def structure(self, n: int) -> object:
        return Trip(start=0, goal=6)

    def feasible(self, n: int, structure: object) -> Iterable[Iterable[int]]:
        return simple_paths(TURNS, 0, 6)

    def admissible(self, desirability: Floats) -> Floats:
        return np.where(np.isfinite(desirability), -np.abs(desirability), desirability)


def select(
    scores: Floats,
    turns: Iterable[tuple[int, int]],
    trip: Trip,
    on_no_path: str = "error",
) -> Ints:
    oracle = ShortestPath(
        successors=graph_of(turns, len(scores)), on_no_path=on_no_path
    )  # type: ignore[arg-type]
    return oracle.select(scores, trip, RNG).positions


@pytest.mark.parametrize("digits", [0, 1, 9])  # many ties, some, none
def test_shortest_path_does_not_depend_on_earlier_queries(
    monkeypatch: pytest.MonkeyPatch, digits: int
) -> None:
    """The bounded search returns the routes of the full one and examines less where it can."""
    monkeypatch.setattr("superarm.oracles.paths._LARGE", 0)
    rng, n = np.random.default_rng(digits), 60
    graph = graph_of(
        {(int(i), int(j)) for i, j in rng.integers(n, size=(240, 2)) if i != j}, n
    )
    reused = ShortestPath(successors=graph, on_no_path="empty")
    bounds: list[float] = []
    search = ShortestPath._search
    monkeypatch.setattr(
        ShortestPath,
        "_search",
        lambda self, weights, trip, bound: (
            bounds.append(bound) or search(self, weights, trip, bound)
        ),
    )
    for round_ in range(200):
        trip = Trip(
            start=0,
            goal=1 + round_ // 50,
            closed_turns=rng.integers(graph.nnz, size=9),
            turn_costs=np.round(rng.random(graph.nnz), digits) if round_ % 2 else None,
        )
        costs = np.where(rng.random(n) < 0.05, np.inf, np.round(rng.random(n), digits))
        costs[: trip.goal + 1] = 0.5
        new = ShortestPath(successors=graph, on_no_path="empty")
        assert (
            reused.select(-costs, trip, RNG).action
            == new.select(-costs, trip, RNG).action
        )
    assert sum(bound < np.inf for bound in bounds) > 50


def test_bounded_search_breaks_no_ties() -> None:
    """Which of them is found may depend on what else was looked at, by the version of scipy."""
    oracle = ShortestPath(
        successors=graph_of([(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)], 5)
    )
    trip, costs = Trip(start=0, goal=4), np.array([0.0, 1.0, 1.0, 1.0, 1.0])
    weights = costs[oracle.successors.indices]
    assert oracle._search(weights, trip, 3.0) is None
    assert oracle._search(weights, trip, np.inf) in ([0, 1, 3, 4], [0, 2, 3, 4])
    weights[1] = 1.5
    assert oracle._search(weights, trip, 3.0) == [0, 1, 3, 4]
    assert oracle._search(weights, trip, 2.9) is None


@settings(max_examples=80)
@given(st.integers(2, 7), st.integers(0, 2**32 - 1), st.floats(0.1, 0.7))
def test_no_route_is_cheaper(n: int, seed: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    turns = [
        (i, j) for i in range(n) for j in range(n) if i != j and rng.random() < density
    ]
    costs = np.round(rng.random(n), 1)  # with ties and zeros
    closed = rng.random(n) < 0.2
    scores = np.where(closed, -np.inf, -costs)
    start, goal = (int(end) for end in rng.integers(n, size=2))
    graph = graph_of(turns, n)
    shut = np.flatnonzero(rng.random(graph.nnz) < 0.2)
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    away = {
        (int(rows[turn_index]), int(graph.indices[turn_index])) for turn_index in shut
    }
    open_turns = [turn for turn in turns if turn not in away]
    open_paths = [
        path for path in simple_paths(open_turns, start, goal) if not closed[path].any()
    ]
    oracle = ShortestPath(successors=graph, on_no_path="empty")
    selection = oracle.select(
        scores, Trip(start=start, goal=goal, closed_turns=shut), rng
    )
    if not open_paths:
        assert selection.action == ()
        assert len(selection.positions) == 0
        return
    assert list(selection.action) == selection.positions.tolist()
    assert selection.positions.tolist() in open_paths
    best = min(costs[path].sum() for path in open_paths)
    assert costs[selection.positions].sum() == pytest.approx(best, abs=1e-12)


@settings(max_examples=80)
@given(st.integers(2, 7), st.integers(0, 2**32 - 1), st.floats(0.1, 0.7), st.booleans())
def test_no_route_is_cheaper_where_turns_cost(
    n: int, seed: int, density: float, repeat: bool
) -> None:
    """Also for a second query with other costs: the search then stops at the last route's cost."""
    rng = np.random.default_rng(seed)
    turns = [
        (i, j) for i in range(n) for j in range(n) if i != j and rng.random() < density
    ]
    start, goal = (int(end) for end in rng.integers(n, size=2))
    graph = graph_of(turns, n)
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    oracle = ShortestPath(successors=graph, on_no_path="empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("superarm.oracles.paths._LARGE", 0)
        for _ in range(1 + repeat):
            costs, of_turns = (
                np.round(rng.random(n), 1),
                np.round(2.0 * rng.random(graph.nnz), 1),
            )
            cost = dict(
                zip(
                    zip(rows.tolist(), graph.indices.tolist(), strict=True),
                    of_turns,
                    strict=True,
                )
            )
            trip = Trip(start=start, goal=goal, turn_costs=of_turns)
            route = oracle.select(-costs, trip, rng).positions.tolist()
            totals = {
                tuple(path): costs[path].sum()
                + sum(cost[turn] for turn in pairwise(path))
                for path in simple_paths(turns, start, goal)
            }
            if not totals:
                assert route == []
                continue
            assert totals[tuple(route)] == pytest.approx(
                min(totals.values()), abs=1e-12
            )


def test_expensive_turns_are_avoided() -> None:
    """From 0 to 3 by 1 or by 2; costs of turns follow the rows of the graph, not the order given."""
    turns = [(2, 3), (0, 2), (1, 3), (0, 1)]
    graph = graph_of(turns, 4)
    oracle = ShortestPath(successors=graph)
    number = {(0, 1): 0, (0, 2): 1, (1, 3): 2, (2, 3): 3}
    arms = -np.array([0.0, 1.0, 2.0, 0.0])

    def route(**costs: float) -> list[int]:
        of_turns = np.zeros(4)
        for name, cost in costs.items():
            of_turns[number[int(name[1]), int(name[2])]] = cost
        trip = Trip(start=0, goal=3, turn_costs=of_turns)
        return oracle.select(arms, trip, np.random.default_rng(0)).positions.tolist()

    assert route() == route(t01=0.9) == route(t13=0.9) == route(t23=5.0) == [0, 1, 3]
    assert route(t01=1.1) == route(t13=1.1) == route(t01=0.6, t13=0.6) == [0, 2, 3]
    assert route(t01=2.0, t02=3.0) == [0, 1, 3]
    for turn, place in number.items():
        assert oracle.turns_along(np.array(turn)).tolist() == [place]


def test_turns_without_costs_do_not_change_routes() -> None:
    rng = np.random.default_rng(3)
    costs = rng.random(7)
    for goal in range(1, 7):
        free = Trip(start=0, goal=goal, turn_costs=np.zeros(len(TURNS)))
        assert (
            select(-costs, TURNS, free).tolist()
            == select(-costs, TURNS, Trip(start=0, goal=goal)).tolist()
        )


def test_zero_costs_are_roads_and_not_gaps() -> None:
    assert select(np.zeros(3), [(0, 1), (1, 2)], Trip(start=0, goal=2)).tolist() == [
        0,
        1,
        2,
    ]


def test_start_and_goal_may_be_one() -> None:
    assert select(-np.ones(3), [(0, 1)], Trip(start=1, goal=1)).tolist() == [1]


def test_no_path_is_an_error_or_an_empty_decision() -> None:
    trip = Trip(start=2, goal=0)
    with pytest.raises(InfeasibleError, match="no route from arm 2 to arm 0"):
        select(-np.ones(3), [(0, 1), (1, 2)], trip)
    assert len(select(-np.ones(3), [(0, 1), (1, 2)], trip, "empty")) == 0
    shut = Trip(start=0, goal=2, closed_turns=np.array([1]))
    with pytest.raises(InfeasibleError, match="no route from arm 0 to arm 2"):
        select(-np.ones(3), [(0, 1), (1, 2)], shut)
    closed = np.array([-1.0, -1.0, -np.inf])
    with pytest.raises(InfeasibleError, match="arm 2 is closed"):
        select(closed, [(2, 0)], trip)


def test_impossible_routes_are_rejected() -> None:
    turns = [(0, 1), (1, 2)]
    with pytest.raises(InputError, match="wrap the rule in Rectified"):
        select(np.array([-1.0, 0.5, -1.0]), turns, Trip(start=0, goal=2))
    with pytest.raises(UnknownArmError, match="goal is 3"):
        select(-np.ones(3), turns, Trip(start=0, goal=3))
    with pytest.raises(InputError, match=r"needs Trip\(start=…, goal=…\)"):
        select(-np.ones(3), turns, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="closed_turns"):
        select(-np.ones(3), turns, Trip(start=0, goal=2, closed_turns=np.array([2])))
    for wrong in (
        np.ones(3),
        np.array([1.0, -1.0]),
        np.array([1.0, np.nan]),
        [1.0, 1.0],
        np.ones(2, int),
    ):
        with pytest.raises(
            InputError, match="turn_costs must be an array of 2 numbers"
        ):
            select(-np.ones(3), turns, Trip(start=0, goal=2, turn_costs=wrong))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="2 arms are on offer, but the graph has 3"):
        ShortestPath(successors=graph_of(turns, 3)).select(
            -np.ones(2), Trip(start=0, goal=1), RNG
        )
    with pytest.raises(InputError, match="square sparse matrix"):
        ShortestPath(successors=np.ones((2, 2)))
    with pytest.raises(InputError, match="on_no_path"):
        select(-np.ones(3), turns, Trip(start=0, goal=2), "wait")
