"""Pairs of nodes: in order and without repeats."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.core.graphs import sorted_pairs


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_sorted_pairs_are_distinct_rows_in_order(count: int, dtype: type) -> None:
    rng = np.random.default_rng(count)
    pairs = rng.integers(6, size=(count, 2)).astype(dtype)
    expected = np.unique(pairs, axis=0)
    for given in (pairs, expected):  # as drawn; sorted already
        found = sorted_pairs(given)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == dtype
        assert not np.shares_memory(found, given)
