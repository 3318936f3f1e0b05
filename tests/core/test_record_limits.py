"""Records and graphs at their limits: rounding below 0, episodes, masks, smallest integers."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.core import Arms, Offer
from superarm.core.errors import InputError, NotPositiveDefiniteError, ShapeError
from superarm.core.graphs import TurnGraph
from superarm.core.linalg import psd_root
from superarm.core.records import Forecast

ARMS = Arms.numbered(np.linspace(0.0, 1.0, 4)[:, None])


def test_variances_that_rounding_brings_below_0_are_0() -> None:
    cov = np.array([[-1e-18, 0.0], [0.0, 4.0]])
    forecast = Forecast(mean=np.zeros(2), cov=cov, noise_std=0.0)
    np.testing.assert_array_equal(forecast.stds(), [0.0, 2.0])
    small = Forecast(mean=np.ones(2), cov=np.full((2, 2), -1e-18), noise_std=0.0)
    assert small.total() == (2.0, 0.0)


def test_an_episode_begins_where_its_offer_places_it() -> None:
    """An offer that begins an episode without a place of its own continues from the last action."""
    placed = Offer(step=1, arms=ARMS, begins=True, previous_action="depot")
    assert placed.after("somewhere").previous_action == "depot"
    unplaced = Offer(step=1, arms=ARMS, begins=True)
    assert unplaced.after("somewhere").previous_action == "somewhere"
    assert unplaced.after(None).previous_action is None


def test_masked_arrays_of_availability_are_refused() -> None:
    masked = np.ma.array(np.ones(4, dtype=bool), mask=[True, False, False, False])
    with pytest.raises(ShapeError, match="not a masked one"):
        Offer(step=1, arms=ARMS, available=masked)


@pytest.mark.parametrize("number", [-(2**63), -(2**32), 2**31])
def test_numbers_of_roads_fit_32_bits(number: int) -> None:
    """The absolute value of the smallest integer is itself, and −2³² would wrap around to 0."""
    with pytest.raises(InputError, match="whole numbers below 2³¹"):
        TurnGraph(length=np.ones(2), turns=np.array([[0, number]]))


def test_covariance_without_variance_is_refused() -> None:
    with pytest.raises(NotPositiveDefiniteError, match="must be positive, got 0"):
        psd_root(np.array([[0.0, 1.0], [1.0, 0.0]]))
    root = psd_root(np.zeros((2, 2)))
    assert root.root.shape == (2, 0)
    assert root.error == 0.0
