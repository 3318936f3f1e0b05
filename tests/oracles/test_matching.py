"""Matching against brute force over all sets of pairs, and against networkx's own."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats, Oracle
from superarm.core.errors import InfeasibleError, InputError, ShapeError
from superarm.core.graphs import Pairs
from superarm.oracles import Matching
from superarm.testing import OracleContract

SQUARE = Pairs(
    left=np.array([0, 0, 0, 1, 1, 4, 4]), right=np.array([0, 1, 5, 0, 1, 1, 5])
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def matchings(pairs: Pairs) -> list[tuple[int, ...]]:
    """Every set of arms that names no node twice."""
    feasible = []
    for size in range(len(pairs) + 1):
        for arms in combinations(range(len(pairs)), size):
            left, right = pairs.left[list(arms)], pairs.right[list(arms)]
            if len(set(left.tolist())) == len(set(right.tolist())) == size:
                feasible.append(arms)
    return feasible


class Matchings(OracleContract):
    rescores = False
    pairs: int | None = None
    exactly = False

    def make_oracle(self) -> Oracle:
        return Matching(pairs=self.pairs, exactly=self.exactly)

    def structure(self, n: int) -> object:
        return SQUARE if n == 7 else Pairs(left=np.arange(n), right=np.arange(n))

    def feasible(self, n: int, structure: object) -> Any:
        for arms in matchings(SQUARE):
            few = self.pairs is None or len(arms) <= self.pairs
            if few and (not self.exactly or len(arms) == self.pairs):
                yield arms


class TestMatching(Matchings):
    pass


class TestTwoPairs(Matchings):
    pairs = 2


class TestExactlyTwoPairs(Matchings):
    pairs, exactly = 2, True


class TestExactlyThreePairs(Matchings):
    pairs, exactly = 3, True


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from("ame"),
)
def test_matching_is_optimal(seed: int, a: int, b: int, k: int, kind: str) -> None:
    draw = rng(seed)
    cells = draw.permutation(a * b)[: draw.integers(1, a * b + 1)]
    pairs = Pairs(left=cells // b, right=cells % b)
    worth = np.round(draw.normal(size=len(cells)), 1)
    worth[draw.random(len(cells)) < 0.2] = -np.inf
    oracle = {
        "a": Matching(),
        "m": Matching(pairs=k),
        "e": Matching(pairs=k, exactly=True),
    }[kind]
    allowed = [
        arms
        for arms in matchings(pairs)
        if np.isfinite(worth[list(arms)]).all()
        and (kind == "a" or len(arms) <= k)
        and (kind != "e" or len(arms) == k)
    ]
    if not allowed:
        with pytest.raises(InfeasibleError, match=f"exactly {k} pairs"):
            oracle.select(worth, pairs, rng())
        return
    chosen = oracle.select(worth, pairs, rng()).positions
    assert tuple(sorted(chosen.tolist())) in allowed
    best = max(float(worth[list(arms)].sum()) for arms in allowed)
    assert float(worth[chosen].sum()) == pytest.approx(best)


def test_matching_equals_networkx_on_larger_graphs() -> None:
    networkx = pytest.importorskip("networkx")
    for seed in range(10):
        draw = rng(seed)
        cells = draw.permutation(20 * 30)[:150]
        pairs, worth = Pairs(left=cells // 30, right=cells % 30), draw.random(150)
        graph = networkx.Graph()
        for u, v, w in zip(
            pairs.left.tolist(), pairs.right.tolist(), worth.tolist(), strict=True
        ):
            graph.add_edge(("left", u), ("right", v), weight=w)
        theirs = sum(
            graph[u][v]["weight"] for u, v in networkx.max_weight_matching(graph)
        )
        chosen = Matching().select(worth, pairs, rng()).positions
        assert float(worth[chosen].sum()) == pytest.approx(theirs)


def test_invalid_input_is_rejected() -> None:
    worth: Floats = np.ones(7)
    with pytest.raises(InputError, match=r"Matching needs Pairs\(left=…, right=…\)"):
        Matching().select(worth, None, rng())
    with pytest.raises(
        ShapeError, match="3 arms are on offer, but the structure is for 7"
    ):
        Matching().select(worth[:3], SQUARE, rng())
    with pytest.raises(InputError, match="give pairs as well"):
        Matching(exactly=True)
    with pytest.raises(InputError, match="overflow"):
        Matching().select(np.full(7, 1e300), SQUARE, rng())
    with pytest.raises(InputError, match="overflow"):
        Matching(pairs=2, exactly=True).select(np.full(7, -1e300), SQUARE, rng())
    with pytest.raises(InfeasibleError, match="exactly 4 pairs"):
        Matching(pairs=4, exactly=True).select(worth, SQUARE, rng())
    with pytest.raises(InputError, match="arm 2 joins 0 and 1, as another arm does"):
        Pairs(left=np.array([0, 1, 0]), right=np.array([1, 1, 1]))
    with pytest.raises(InputError, match="left has 2 entries and right 1"):
        Pairs(left=np.array([0, 1]), right=np.array([1]))
    with pytest.raises(InputError, match="outside 0"):
        Pairs(left=np.array([0, -1]), right=np.array([1, 2]))
    with pytest.raises(InputError, match="right holds a node outside 0 … 2147483647"):
        Pairs(left=np.array([0, 1]), right=np.array([1, 2**31]))
    with pytest.raises(InputError, match="whole numbers"):
        Pairs(left=np.array([0.5]), right=np.array([1]))


def test_no_pair_is_chosen_when_none_is_worthwhile() -> None:
    assert Matching().select(np.full(7, -1.0), SQUARE, rng()).positions.tolist() == []


def test_a_table_larger_than_memory_is_refused() -> None:
    apart = np.arange(30_000)
    with pytest.raises(
        InputError, match="30000 × 30000 nodes make a table that is too large"
    ):
        Matching().select(
            np.ones(30_000), Pairs(left=apart, right=apart), np.random.default_rng(0)
        )


def test_pairs_keep_their_own_copy() -> None:
    left = np.array([3, 1])
    pairs = Pairs(left=left[:], right=np.array([0, 1]))
    left[0] = 7
    assert pairs.left.tolist() == [3, 1]


def test_tables_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pairs of 3 × 3 nodes need a table of (3 + 3 − 2)² = 16 entries."""
    monkeypatch.setattr("superarm.oracles.matching._MOST_ENTRIES", 16)
    assert len(Matching(pairs=2).select(np.ones(7), SQUARE, rng()).positions) == 2
    monkeypatch.setattr("superarm.oracles.matching._MOST_ENTRIES", 15)
    with pytest.raises(InputError, match="3 × 3 nodes make a table of 4 × 4"):
        Matching(pairs=2).select(np.ones(7), SQUARE, rng())
