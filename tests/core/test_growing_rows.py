"""Rows that grow, shared by copies."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from superarm.core.growing_rows import GrowingRows


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=12))
def test_every_successor_has_its_own_rows(steps: list[tuple[int, int]]) -> None:
    known = [GrowingRows(np.empty(0))]
    expected = [np.empty(0)]
    for number, (which, count) in enumerate(steps):
        parent = which % len(known)
        more = np.full(count, float(number))
        known.append(known[parent].extended(more))
        expected.append(np.concatenate([expected[parent], more]))
    for grown, rows in zip(known, expected, strict=True):
        np.testing.assert_array_equal(grown.rows, rows)
        assert len(grown) == len(rows)


def test_the_first_successor_shares_the_buffer() -> None:
    rows = GrowingRows(np.zeros((3, 2))).extended(np.ones((1, 2)))
    first = rows.extended(np.full((1, 2), 2.0))
    second = rows.extended(np.full((1, 2), 3.0))
    assert np.shares_memory(first.rows, rows.rows)
    assert not np.shares_memory(second.rows, rows.rows)
    np.testing.assert_array_equal(first.rows[-1], [2.0, 2.0])
    np.testing.assert_array_equal(second.rows[-1], [3.0, 3.0])


def test_of_several_threads_one_writes_into_the_buffer() -> None:
    rows = GrowingRows(np.zeros(8)).extended(np.ones(1))
    with ThreadPoolExecutor(4) as pool:
        grown = list(
            pool.map(lambda value: rows.extended(np.full(1, value)), range(20))
        )
    assert [int(each.rows[-1]) for each in grown] == list(range(20))


def test_copies_share_and_pickles_do_not() -> None:
    rows = GrowingRows(np.arange(3.0))
    assert copy.deepcopy(rows) is rows
    assert copy.copy(rows) is rows
    loaded = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(loaded.rows, rows.rows)
