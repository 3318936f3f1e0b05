"""Growing grids: the arms that represent them, wherever the arms are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Offer
from superarm.core.registry import build
from superarm.kernels import SquaredExponential
from superarm.models import Model
from superarm.oracles import TopK
from superarm.policies import GrowingGrid


def on(points: Any, norm_bound: float = 1.0) -> GrowingGrid:
    lower = points.min(axis=0)
    side = float((points.max(axis=0) - lower).max())
    return GrowingGrid(norm_bound=norm_bound, lipschitz=2.0, lower=lower, side=side)


def offered_arms(
    grid: GrowingGrid, points: Any, step: int, available: Any = None
) -> Any:
    return grid.allowed_arms(
        Offer(step=step, arms=Arms.numbered(points), available=available)
    )


BOXES = [(0.0, 1.0), (-1.0, 1.0), (-7.0, -5.0), (100.0, 100.5)]


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize(("low", "high"), BOXES)
def test_every_arm_is_near_an_offered_arm(
    low: float, high: float, dimension: int
) -> None:
    points = np.random.default_rng(dimension).uniform(low, high, (400, dimension))
    grid = on(points)
    assert 0 < offered_arms(grid, points, 1).sum() < len(points)
    for step in (1, 2, 3):
        near = points[offered_arms(grid, points, step)]
        distances = (
            np.abs(points[:, None, :] - near[None, :, :]).sum(axis=2).min(axis=1)
        )
        assert (
            1.0 * 2.0 * distances.max() <= 1.0 / step**2 + 1e-12
        )  # B L ‖x − [x]_t‖₁ ≤ 1/t²


@pytest.mark.parametrize(("low", "high"), BOXES)
def test_grid_does_not_depend_on_the_position_of_the_arms(
    low: float, high: float
) -> None:
    unit = np.random.default_rng(0).random((60, 2))
    moved = low + unit
    for step in (1, 2):
        here, there = (
            offered_arms(on(unit), unit, step),
            offered_arms(on(moved), moved, step),
        )
        np.testing.assert_array_equal(here, there)


def test_extents_that_differ_and_arms_all_in_one_place() -> None:
    points = np.random.default_rng(1).random((50, 2)) * [4.0, 0.01]
    assert np.ptp(points[offered_arms(on(points), points, 1), 0]) > 3.0
    single = np.full((3, 2), -2.0)
    assert offered_arms(on(single), single, 5).sum() == 1


@pytest.mark.parametrize("step", [1, 2, 50])
def test_only_available_arms_are_offered(step: int) -> None:
    points = np.linspace(-1.0, 1.0, 41)[:, None]
    available = np.arange(41) >= 30
    some = offered_arms(on(points), points, step, available)
    assert some.any()
    assert not (some & ~available).any()
    if step == 50:
        np.testing.assert_array_equal(some, available)
    assert available.sum() == 11  # the argument is not modified


def test_all_arms_are_offered_once_the_grid_is_fine() -> None:
    points = np.linspace(-1.0, 1.0, 21)[:, None]
    sizes = [int(offered_arms(on(points), points, step).sum()) for step in range(1, 12)]
    assert sizes[0] < 21
    assert sizes == sorted(sizes)
    assert sizes[-1] == 21
    wide = np.random.default_rng(0).random((30, 6))
    assert offered_arms(
        on(wide, norm_bound=9.0), wide, 1
    ).all()  # a grid too large to build


@pytest.mark.parametrize("shift", [0.0, -1.0, -3.0])
def test_gp_ts_on_shifted_arms(shift: float) -> None:
    points = np.random.default_rng(2).random((30, 2)) + shift
    model = Model(
        kernel=SquaredExponential(lengthscale=0.5),
        noise_variance=0.01,
        oracle=TopK(k=1),
        horizon=10,
        arms=points,
        norm_bound=1.0,
        noise_bound=0.1,
        gain={"name": "constant", "value": 1.0},
    )
    policy = build(
        "policy", {"name": "gp-ts", "decision_set": "discretised"}, model=model
    )
    some = offered_arms(policy.decision_set, points, 1)
    assert 1 < some.sum() < 30
    offer, rng = Offer(step=1, arms=Arms.numbered(points)), np.random.default_rng(0)
    assert some[policy.decide(offer, rng).positions].all()
    assert policy.play_table(offer, np.zeros((3, 30)), lambda step: rng) is None
