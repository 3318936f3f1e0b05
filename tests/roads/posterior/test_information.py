"""The information of trips about vehicles, against its matrices written out."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.core import Floats
from superarm.roads.energy import RoadScales
from superarm.roads.posterior import Borders, Trips
from superarm.roads.posterior.information import _weighted_terms
from superarm.roads.posterior.noise import TripNoise
from superarm.roads.rows import Column, build_rows, terms_of

NOISE = TripNoise(RoadScales())


def shared_trips(vehicle_counts: list[int], *, has_borders: bool) -> Trips:
    """Trips whose roads were driven by so many vehicles each, in sums of one or two roads.

    Args:
        vehicle_counts: How many vehicles drove each trip.
        has_borders: Whether motion crosses between their rewards.
    """
    rng = np.random.default_rng(7)
    trips = []
    for count in vehicle_counts:
        vehicles = rng.permutation(5)[:count]
        roads = 6
        rows = build_rows(
            edges=rng.permutation(20)[:roads].astype(float),
            expected=rng.uniform(1.0, 5.0, roads),
            terms=rng.uniform(0.5, 3.0, (roads, 4)),
            mass_ratio=1.0,
            stops=rng.uniform(0.0, 1.0, roads),
            vehicle=0,
        )
        rows[:, Column.VEHICLE] = vehicles[np.arange(roads) % max(count, 1)]
        reward_of_arm = np.array([0, 0, 1, 2, 2, 3])
        borders = Borders.none()
        if has_borders:
            before = np.arange(3)
            borders = Borders(before, before + 1, np.ones(3), np.full(3, 0.2))
        rewards = rng.normal(4.0, 1.0, 4)
        trips.append(Trips.of_one(rows, reward_of_arm, rewards, borders=borders))
    return Trips.joined(trips)


def written_out(trips: Trips) -> Floats:
    """R⁻¹ Φ, (M, 5 V)."""
    drivers = trips.drivers
    phi = np.zeros((len(trips.rewards), len(drivers.vehicles), 5))
    places = (trips.reward_of_arm, drivers.of_arm)
    np.add.at(phi, places, terms_of(trips.keys))
    flat = phi.reshape(len(phi), -1)
    return np.linalg.solve(NOISE.covariance(trips), flat)


@pytest.mark.parametrize("has_borders", [False, True])
@pytest.mark.parametrize(
    "vehicle_counts",
    [[1, 1, 1], [2, 2], [1, 3, 1, 2, 1], [5, 1]],
    ids=["one each", "two each", "some of several", "one of many"],
)
def test_vehicles_that_share_trips(
    vehicle_counts: list[int], has_borders: bool
) -> None:
    trips = shared_trips(vehicle_counts, has_borders=has_borders)
    weighted = _weighted_terms(NOISE, trips, trips.drivers).toarray()
    expected = written_out(trips)
    # A solution is rounded by about ε times the condition of R, and a dozen operations.
    condition = np.linalg.cond(NOISE.covariance(trips))
    bound = 100 * np.finfo(float).eps * condition * np.abs(expected).max()
    np.testing.assert_allclose(weighted, expected, rtol=0.0, atol=bound)


def test_later_vehicles_are_solved_for_on_their_trips_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trips = shared_trips([1, 3, 1, 2, 1], has_borders=False)
    solved = []
    solve = TripNoise.solve

    def counted(noise: TripNoise, some: Trips, values: Floats) -> Floats:
        solved.append(some.number)
        return solve(noise, some, values)

    monkeypatch.setattr(TripNoise, "solve", counted)
    _weighted_terms(NOISE, trips, trips.drivers)
    assert solved == [5, 2, 1]


def test_no_trips_have_no_information() -> None:
    nothing = shared_trips([1], has_borders=False).between(0, 0)
    assert _weighted_terms(NOISE, nothing, nothing.drivers).shape == (0, 0)
