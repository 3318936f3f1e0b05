"""Nested dissection: a permutation whose separators separate, and little fill."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from superarm.core import Ints, dissection
from superarm.core.dissection import dissect, elimination_order, junctions_of
from superarm.core.graphs import TurnGraph
from superarm.roads.networks import generate_city


def components_without(removed: Ints, turns: Ints, n: int) -> Ints:
    """The connected part of each road where some are removed."""
    is_removed = np.zeros(n, dtype=bool)
    is_removed[removed] = True
    kept = turns[~is_removed[turns].any(axis=1)]
    links = (np.ones(len(kept)), tuple(kept.T))
    return connected_components(coo_array(links, shape=(n, n)), directed=False)[1]


def fill_of(order: Ints, turns: Ints) -> int:
    """Entries of the factor below the diagonal, by elimination with sets."""
    n = len(order)
    rank = np.empty(n, dtype=int)
    rank[order] = np.arange(n)
    later: list[set[int]] = [set() for _ in range(n)]
    for one, other in rank[turns].tolist():
        if one != other:
            later[min(one, other)].add(max(one, other))
    entries = 0
    for node in range(n):
        entries += len(later[node])
        if later[node]:
            parent = min(later[node])
            later[parent] |= later[node] - {parent}
    return entries


@pytest.fixture(scope="module")
def city() -> TurnGraph:
    return generate_city(edges=1500, seed=2).line_graph().turn_graph


def test_the_order_is_a_permutation_and_is_repeated(city: TurnGraph) -> None:
    order = elimination_order(city.length, city.turns)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(city)))
    np.testing.assert_array_equal(order, city.elimination_order)
    np.testing.assert_array_equal(order, elimination_order(city.length, city.turns))


def test_separators_separate(city: TurnGraph) -> None:
    """Without its separator, and all larger ones, no turn joins the sides of a cell."""
    cells = dissect(city.length, city.turns)
    n = len(city)
    pairs = np.unique(np.stack([cells.start, cells.stop], axis=1), axis=0)
    by_size = pairs[np.argsort(pairs[:, 0] - pairs[:, 1])]
    order_of = {road: place for place, road in enumerate(cells.order().tolist())}
    for start, stop in by_size[:40].tolist():
        inside = (cells.start >= start) & (cells.stop <= stop)
        separator = (cells.start == start) & (cells.stop == stop)
        within = np.flatnonzero(inside & ~separator)
        parts = components_without(np.flatnonzero(~inside | separator), city.turns, n)
        # Neither side is more than three quarters of the cell's junctions, so the roads fall apart.
        if stop - start >= 8 and len(within):
            assert len(np.unique(parts[within])) > 1
        last = max((order_of[road] for road in within.tolist()), default=-1)
        assert all(order_of[road] > last for road in np.flatnonzero(separator).tolist())


def test_cells_are_cut_alike_in_any_batches(
    city: TurnGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minimal cuts of many cells are sought together, which changes none of them."""
    monkeypatch.setattr(dissection, "_LEAST_FLOW", 16)
    together = dissect(city.length, city.turns)
    monkeypatch.setattr(dissection, "_BATCH", 50)
    for one, other in zip(together, dissect(city.length, city.turns), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_road_that_ends_where_it_began_is_a_cell_of_its_own() -> None:
    """A chain of five junctions there and back, and a loop at the third."""
    ends = [(j, j + 1) for j in range(4)] + [(j + 1, j) for j in range(4)] + [(2, 2)]
    turns = np.array(
        [
            (one, other)
            for one, (_, head) in enumerate(ends)
            for other, (tail, _) in enumerate(ends)
            if head == tail
        ]
    )
    cells = dissect(np.ones(len(ends)), turns)
    sizes = cells.stop - cells.start
    assert sizes[-1] == 1
    assert sizes[:-1].min() >= 2
    np.testing.assert_array_equal(np.sort(cells.order()), np.arange(len(ends)))


def test_there_is_no_more_fill_than_by_minimum_degree(city: TurnGraph) -> None:
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    A = (city.laplacian() + diags_array(np.full(len(city), 4.0))).tocsc()
    options = {"SymmetricMode": True}
    factor = splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    by_degree = factor.L.nnz - len(city)
    assert fill_of(city.elimination_order, city.turns) < 1.1 * by_degree


def test_junctions_join_roads_that_turns_join() -> None:
    # 0 → 1 and 0 → 2 fork; 3 leads to 2 as well; 4 is alone.
    ends = junctions_of(5, np.array([[0, 1], [0, 2], [3, 2]]))
    tail, head = ends.T
    assert head[0] == tail[1] == tail[2] == head[3]
    assert len(np.unique(ends)) == 7


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n=st.integers(1, 40))
def test_any_graph_has_an_order(data: st.DataObject, n: int) -> None:
    """Without turns, with loops, in many parts."""
    count = data.draw(st.integers(0, 3 * n))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    turns = np.unique(rng.integers(n, size=(count, 2)), axis=0).reshape(-1, 2)
    length = rng.choice([1.0, 2.0, 50.0], size=n)
    order = elimination_order(length, turns)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))


def test_roads_are_ordered_for_the_square_too(city: TurnGraph) -> None:
    n = len(city)
    order = city.squared_order
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    links = city.successors + city.successors.T
    one, other = (links @ links + links).nonzero()
    pairs = np.stack([one, other], axis=1)
    # The roads of a cut separate no sides in the square, so their order has far more fill there.
    assert fill_of(order, pairs) < 0.6 * fill_of(city.elimination_order, pairs)
