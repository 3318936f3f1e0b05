"""TopK beyond its contract: ties, rescoring and rejected input."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats, Ints
from superarm.core.errors import InfeasibleError, InputError, NotFiniteError
from superarm.oracles import TopK
from superarm.oracles.ties import tie_limit

RNG = np.random.default_rng(0)
scores = st.lists(
    st.one_of(st.floats(-1e9, 1e9), st.just(-np.inf), st.sampled_from([0.0, 1.0])),
    min_size=1,
    max_size=9,
)


@settings(max_examples=200)
@given(scores, st.integers(1, 4))
def test_top_k_equals_brute_force_and_ties_go_to_the_first(
    values: list[float], k: int
) -> None:
    desirability = np.array(values)
    if np.count_nonzero(desirability > -np.inf) < k:
        with pytest.raises(InfeasibleError):
            TopK(k=k).select(desirability, None, RNG)
        return
    chosen = TopK(k=k).select(desirability, None, RNG).positions
    best = max(
        float(desirability[list(arms)].sum())
        for arms in combinations(range(len(values)), k)
    )
    assert desirability[chosen].sum() == pytest.approx(best, rel=1e-12)
    assert chosen.tolist() == first_of_ties(desirability, k)
    assert chosen.dtype == np.intp


def first_of_ties(desirability: Floats, k: int) -> list[int]:
    """Arm by arm: the first that ties with the best of the remaining ones."""
    remaining = list(range(len(desirability)))
    chosen = []
    for _ in range(k):
        highest = max(float(desirability[arm]) for arm in remaining)
        tied = [arm for arm in remaining if desirability[arm] >= tie_limit(highest)]
        chosen.append(tied[0])
        remaining.remove(tied[0])
    return chosen


def test_too_few_arms_that_tie_within_rounding_are_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="only 3 of 3"):
        TopK(k=4).select(np.array([0.0, 1e9, 999999999.9999999]), None, RNG)


def test_too_few_arms_are_counted_in_the_message() -> None:
    with pytest.raises(
        InfeasibleError, match="k = 3 arms are to be chosen, but only 2 of 2"
    ):
        TopK(k=3).select(np.zeros(2), None, RNG)
    with pytest.raises(InfeasibleError, match="only 1 of 3"):
        TopK(k=2).select(np.array([-np.inf, 0.0, -np.inf]), None, RNG)
    with pytest.raises(InfeasibleError, match="only 0 of 1"):
        TopK().select(np.array([-np.inf]), None, RNG)
    with pytest.raises(InfeasibleError, match="only 1 of 2"):
        TopK(k=2).select(
            np.array([0.0, -np.inf]), None, RNG, rescore=lambda chosen: np.zeros(2)
        )


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("rescore", [None, lambda chosen: np.zeros(3)])
def test_the_bad_entry_is_named(k: int, bad: float, rescore: Any) -> None:
    with pytest.raises(NotFiniteError, match=rf"desirability\[1\] is {bad}"):
        TopK(k=k).select(np.array([-np.inf, bad, 2.0]), None, RNG, rescore)
    with pytest.raises(InputError, match="no arms"):
        TopK(k=k).select(np.empty(0), None, RNG, rescore)


def test_rescoring_builds_the_set_arm_by_arm() -> None:
    first = np.array([5.0, 4.9, 1.0, -np.inf])
    calls: list[list[int]] = []

    def rescore(chosen: Ints) -> Floats:
        calls.append(chosen.tolist())
        # Once arm 0 is in, its twin, arm 1, has nothing to add; arm 3 must stay away all the same.
        scores = np.array([9.0, 0.0, 1.0, 9.0])
        scores.flags.writeable = False
        return scores

    chosen = TopK(k=2).select(first, None, RNG, rescore).positions
    assert chosen.tolist() == [0, 2]
    assert calls[0] == [0]
    assert first.tolist() == [5.0, 4.9, 1.0, -np.inf]


@pytest.mark.parametrize("k", [0, -1, 1.5, "2", True, None])
def test_k_must_be_an_integer(k: Any) -> None:
    with pytest.raises(InputError, match="k must be"):
        TopK(k=k)
    assert TopK(k=np.int64(2)).k == 2  # type: ignore[arg-type]
