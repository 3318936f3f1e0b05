"""Ties within rounding go to the arm offered first, in every path that compares desirabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core import Floats, Ints, Offer
from superarm.kernels import SquaredExponential
from superarm.oracles import Groups, GroupTopK, TopK
from superarm.oracles.base import choose_one_by_one
from superarm.oracles.ties import TIE, best_first, first_best, tie_limit
from superarm.posteriors import FiniteGP

RNG = np.random.default_rng(0)


def slowly(desirability: Floats, k: int) -> list[int]:
    """One after the other: the first arm that ties with the best remaining one."""
    remaining = dict(enumerate(desirability.tolist()))
    chosen = []
    for _ in range(k):
        highest = max(remaining.values())
        arm = next(
            arm
            for arm, value in remaining.items()
            if value >= highest - TIE * abs(highest)
        )
        chosen.append(arm)
        del remaining[arm]
    return chosen


def chosen_by(oracle: TopK, desirability: Floats) -> list[int]:
    chosen: Ints = oracle.select(desirability, None, RNG).positions
    return chosen.tolist()


@pytest.mark.parametrize("level", [1.0, -3.0, 1e200, -1e-200])
def test_the_first_of_arms_that_tie_within_rounding_is_chosen(level: float) -> None:
    values = level + abs(level) * np.array([-1.0, 0.0, 1e-13, 0.0, -0.5])
    assert values[1] < values[2]
    assert first_best(values) == 1
    assert chosen_by(TopK(k=1), values) == [1]
    assert chosen_by(TopK(k=3), values) == [1, 2, 3]


def test_arms_further_apart_do_not_tie() -> None:
    values = np.array([1.0, 1.0 + 4.0 * TIE])
    assert chosen_by(TopK(k=1), values) == [1]
    assert chosen_by(TopK(k=2), values) == [1, 0]


def test_zero_ties_only_with_zero() -> None:
    assert first_best(np.array([-1e-300, 0.0, 0.0])) == 1


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
    st.integers(1, 12),
)
def test_the_order_is_that_of_choosing_one_by_one(
    steps: list[int], coarse: list[int], k: int
) -> None:
    # Steps of 0.3 of the limit: chains whose ends do not tie, next to values that are far apart.
    values = np.array(
        [1.0 + c + 0.3 * TIE * s for s, c in zip(steps, coarse, strict=False)]
    )
    k = min(k, len(values))
    expected = slowly(values, k)
    assert best_first(values, k)[:k].tolist() == expected
    assert first_best(values) == expected[0]
    assert chosen_by(TopK(k=k), values) == expected


def test_arms_that_are_not_available_come_last() -> None:
    values = np.array([-np.inf, 1.0, -np.inf, 1.0 + 1e-14])
    assert chosen_by(TopK(k=2), values) == [1, 3]


def test_arm_by_arm_and_group_by_group() -> None:
    values = np.array([0.5, 2.0, 2.0 + 1e-13, 2.0 + 2e-13])
    chosen = choose_one_by_one(
        2, values, lambda _: values, lambda _: np.zeros(4, dtype=np.bool_)
    )
    assert chosen.tolist() == [1, 2]
    groups = Groups(of_arm=[0, 0, 0, 1], limits=[1, 1])
    assert GroupTopK(k=2).select(values, groups, RNG).positions.tolist() == [1, 3]


def test_compiled_rounds_break_ties_in_the_same_way() -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    from superarm.posteriors.finite import _compiled

    assert _compiled._TIE == TIE
    for seed in range(50):
        rng = np.random.default_rng(seed)
        mean = 1.0 + 0.3 * TIE * rng.integers(0, 12, size=20)
        std = np.ones(20)
        index = std * 2.0 + mean
        assert _compiled._best(mean, std, 2.0, np.empty(20)) == first_best(index)


def test_arms_that_mirror_each_other_are_chosen_by_position() -> None:
    # The arms left and right of the one observed are worth the same, but for rounding.
    arms = np.array([[0.5 + 0.1], [0.5], [0.5 - 0.1]])
    gp = FiniteGP(
        SquaredExponential(lengthscale=0.3), arms, noise_variance=0.01, backend="numpy"
    )
    gp.observe([1], [-1.0])
    from superarm.core import Arms

    belief = gp.belief(Offer(step=1, arms=Arms.numbered(arms)))
    index = belief.mean + 2.0 * belief.std
    assert index[0] == pytest.approx(index[2], rel=1e-14)
    assert chosen_by(TopK(k=1), index) == [0]
    assert chosen_by(TopK(k=1), index[::-1].copy()) == [0]
    assert tie_limit(index.max()) <= index[0]
