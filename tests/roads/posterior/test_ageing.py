"""Trips that count less the older they are: roads change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from road_logs import BACKENDS, KERNEL, ROWS, SIZES

from superarm.core import Floats
from superarm.core.compiling import Backend
from superarm.core.errors import InputError, StateError
from superarm.roads.energy import HourlyScales, RoadScales
from superarm.roads.posterior import Borders, RoadGP, Trips
from superarm.roads.posterior.engine import RoadEngine
from superarm.roads.posterior.log import Log
from superarm.roads.posterior.noise import TripNoise
from superarm.roads.posterior.sparse_engine import SparseRoadEngine
from superarm.roads.rows import COLUMNS, Column
from superarm.testing import raises, restored

SCALES = RoadScales()
HALF_LIFE = 3.0
TOLERANCE = 1e-6
"""Wh or Wh²: roundings of numbers below 10⁴, with equations whose condition is below 10⁵."""


def random_trips(seed: int, count: int) -> list[Trips]:
    """Trips of two vehicles; every third was observed as a total, every fourth with stated noise."""
    rng = np.random.default_rng(seed)
    trips = []
    for number in range(count):
        roads = int(rng.integers(2, 8))
        keys = ROWS[rng.integers(0, len(ROWS), roads)].copy()
        keys[:, Column.VEHICLE] = number % 2
        reward_of_arm = np.arange(roads)
        if number % 3 == 0:
            reward_of_arm = np.zeros(roads, dtype=np.intp)
        expected = np.bincount(reward_of_arm, keys[:, Column.EXPECTED])
        rewards = expected + rng.normal(0.0, 5.0, len(expected))
        stated = np.full(len(expected), 2.0) if number % 4 == 0 else None
        trips.append(Trips.of_one(keys, reward_of_arm, rewards, stated))
    return trips


def moving(trip: Trips) -> Trips:
    """The same trip, whose rewards contain what is stored in motion."""
    rewards = len(trip.rewards)
    inner = np.arange(rewards - 1)
    borders = Borders(
        before=np.concatenate([[-1], inner, [rewards - 1]]),
        after=np.concatenate([[0], inner + 1, [-1]]),
        size=np.linspace(5.0, 20.0, rewards + 1),
        variance=np.linspace(3.0, 0.0, rewards + 1),
    )
    return trip._replace(borders=borders)


def log_of(trips: list[Trips], half_life: float | None = None) -> Log:
    log = Log(COLUMNS, half_life)
    for trip in trips:
        log.append(trip)
    return log.dated()


def fleet(half_life: float | None, **options: Any) -> RoadGP:
    fixed = {"scales": SCALES, "refit": 0, "outliers": "keep"}
    return RoadGP(KERNEL, SIZES, half_life=half_life, **fixed, **options)


def learn_each(gp: RoadGP, trips: list[Trips]) -> None:
    for trip in trips:
        gp.observe_trips(trip)


def aged_noise(trips: Trips, half_life: float) -> Floats:
    """R, written out: the noise of a trip doubles with every half-life."""
    later_trips = trips.number - 1 - trips.trip
    root = np.sqrt(2.0 ** (later_trips / half_life))
    return TripNoise(SCALES).covariance(trips) * np.outer(root, root)


def written_out(trips: Trips, keys: Floats, half_life: float) -> tuple[Floats, Floats]:
    """Mean and covariance of these keys by the equations of a Gaussian process."""
    arms = np.concatenate([trips.keys, keys])
    untaught = RoadEngine(KERNEL, SIZES, SCALES)
    prior = untaught.expect(Trips.of_one(arms)).cov
    count = len(trips.keys)
    sums = np.zeros((len(trips.rewards), len(arms)))
    sums[trips.reward_of_arm, np.arange(count)] = 1.0
    pick = np.eye(len(arms))[count:]
    total = sums @ prior @ sums.T + aged_noise(trips, half_life)
    cross = pick @ prior @ sums.T
    gain = np.linalg.solve(total, cross.T).T
    residual = trips.rewards - sums @ arms[:, Column.EXPECTED]
    mean = keys[:, Column.EXPECTED] + gain @ residual
    return mean, pick @ prior @ pick.T - gain @ cross.T


# --- noise ---------------------------------------------------------------------------------


@pytest.mark.parametrize("has_motion", [False, True])
def test_the_noise_of_a_trip_doubles_with_every_half_life(has_motion: bool) -> None:
    trips = random_trips(0, 7)
    if has_motion:
        trips = [moving(trip) for trip in trips]
    log = log_of(trips, HALF_LIFE)
    noise = TripNoise(SCALES)
    aged = noise.covariance(log.as_learned())
    np.testing.assert_allclose(aged, aged_noise(log.view(), HALF_LIFE), rtol=1e-12)


def test_noise_stays_finite_however_old_a_trip_is() -> None:
    log = log_of(random_trips(0, 40), half_life=0.01)
    aged = TripNoise(SCALES).own_variance(log.as_learned())
    assert np.isfinite(aged).all()


def test_trips_without_a_half_life_do_not_age() -> None:
    assert log_of(random_trips(0, 7)).as_learned().age is None


def test_parts_of_trips_keep_their_ages() -> None:
    trips = log_of(random_trips(0, 7), HALF_LIFE).as_learned()
    assert trips.age is not None
    for number, trip in enumerate(trips.each()):
        np.testing.assert_array_equal(trip.age, trips.age[trips.trip == number])
    is_even = np.arange(7) % 2 == 0
    np.testing.assert_array_equal(
        trips.chosen(is_even).age, trips.age[is_even[trips.trip]]
    )
    totals = trips.totals()
    assert totals.age is not None
    assert len(totals.age) == len(totals.rewards)


def test_trips_since_the_ages_were_counted_are_new() -> None:
    trips = random_trips(0, 7)
    log = log_of(trips[:5], HALF_LIFE)
    for trip in trips[5:]:
        log.append(trip)
    learned = log.as_learned()
    assert learned.age is not None
    assert not learned.age[learned.trip >= 4].any()
    assert learned.age[learned.trip < 4].all()


# --- posteriors ------------------------------------------------------------------------------


def test_an_engine_has_the_posterior_of_aged_noise() -> None:
    trips = log_of(random_trips(1, 9)).view()
    engine = RoadEngine.from_trips(KERNEL, SIZES, SCALES, trips, HALF_LIFE)
    keys = ROWS[:20].copy()
    mean, cov = written_out(trips, keys, HALF_LIFE)
    expected = engine.expect(Trips.of_one(keys))
    np.testing.assert_allclose(expected.mean, mean, rtol=0.0, atol=TOLERANCE)
    np.testing.assert_allclose(expected.cov, cov, rtol=0.0, atol=TOLERANCE)
    rebuilt = engine.rebuild(SCALES)
    np.testing.assert_allclose(
        rebuilt.expect(Trips.of_one(keys)).mean, mean, rtol=0.0, atol=TOLERANCE
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("has_motion", [False, True])
def test_both_forms_learn_the_same_from_aged_trips(
    backend: Backend, has_motion: bool
) -> None:
    share = 1e-6  # of a standard deviation
    driven = random_trips(2, 12)
    if has_motion:
        driven[::2] = [moving(trip) for trip in driven[::2]]
    trips = log_of(driven).view()
    dense = RoadEngine.from_trips(KERNEL, SIZES, SCALES, trips, HALF_LIFE)
    first = SparseRoadEngine(KERNEL, SIZES, SCALES, share, backend, half_life=HALF_LIFE)
    sparse = first.with_all(trips.between(0, 8)).with_all(trips.between(8, 12))
    keys = Trips.of_one(ROWS[:20].copy())
    ours = sparse.expect(keys)
    theirs = dense.expect(keys)
    std = np.sqrt(np.diagonal(theirs.cov))
    assert (np.abs(ours.mean - theirs.mean) <= share * std).all()
    np.testing.assert_allclose(
        np.sqrt(np.diagonal(ours.cov)), std, rtol=share, atol=0.0
    )
    drawn = sparse.draw(keys.keys, np.random.default_rng(0))
    np.testing.assert_allclose(
        drawn, dense.draw(keys.keys, np.random.default_rng(0)), atol=1e-3
    )


def test_trips_one_by_one_and_all_at_once_agree() -> None:
    # Ages advance with every trip, as a sixteenth of the half-life is less than one.
    trips = random_trips(3, 14)
    one_by_one = fleet(HALF_LIFE)
    learn_each(one_by_one, trips)
    at_once = fleet(HALF_LIFE)
    at_once.observe_trips(log_of(trips).view())
    mean, _ = written_out(log_of(trips).view(), ROWS, HALF_LIFE)
    for gp in (one_by_one, at_once):
        np.testing.assert_allclose(gp.predict(ROWS).mean, mean, atol=TOLERANCE)


def test_ages_lag_by_a_sixteenth_of_the_half_life() -> None:
    half_life = 160.0
    trips = random_trips(4, 25)
    gp = fleet(half_life)
    learn_each(gp, trips)
    # Everything was computed anew after 10 and 20 trips; the last five are new.
    log = log_of(trips[:20], half_life)
    for trip in trips[20:]:
        log.append(trip)
    learned = gp._engine.log.as_learned()
    np.testing.assert_array_equal(learned.age, log.as_learned().age)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_saved_fleet_continues_with_its_ages(form: Any) -> None:
    gp = fleet(160.0, form=form)
    trips = random_trips(5, 30)
    learn_each(gp, trips[:25])
    again = fleet(160.0, form=form).restored(restored(gp.state()))
    assert again._engine.log.as_learned().age.tolist() == (
        gp._engine.log.as_learned().age.tolist()
    )
    for posterior in (gp, again):
        learn_each(posterior, trips[25:])
    means = [posterior.predict(ROWS).mean for posterior in (gp, again)]
    stds = [posterior.predict(ROWS).std for posterior in (gp, again)]
    # The sparse form's answers are within its tolerance of 1 % of a standard deviation.
    atol = TOLERANCE if form == "dense" else 0.02 * float(stds[0].max())
    np.testing.assert_allclose(means[0], means[1], rtol=0.0, atol=atol)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_fleet_that_begins_to_age_is_saved_with_its_ages(form: Any) -> None:
    lasting = fleet(None, form=form)
    learn_each(lasting, random_trips(5, 25))
    # With another half-life everything is computed anew: the latest trip has age 0, all others aged.
    aged = RoadGP.from_state(lasting.state(), half_life=160.0)
    again = RoadGP.from_state(restored(aged.state()))
    ages = aged._engine.log.as_learned().age
    np.testing.assert_array_equal(
        ages, log_of(random_trips(5, 25), 160.0).as_learned().age
    )
    np.testing.assert_array_equal(again._engine.log.as_learned().age, ages)


def test_a_state_with_another_half_life_is_refused() -> None:
    lasting = fleet(None)
    learn_each(lasting, random_trips(6, 3))
    with raises(StateError, "half_life is 3.0 here and None in the state"):
        fleet(HALF_LIFE).restored(lasting.state())


@pytest.mark.parametrize("half_life", [None, 4.0])
def test_a_fleet_follows_a_road_that_changes(half_life: float | None) -> None:
    """Means are linear in rewards: of a change, as much arrives as its trips have of all weights."""
    trips = 52
    since_change = 12
    weights = np.ones(trips)
    if half_life is not None:
        weights = 2.0 ** (np.arange(trips) / half_life)
    share = weights[-since_change:].sum() / weights.sum()
    after_change = mean_of_extra(half_life, [0.0] * 40 + [20.0] * since_change)
    from_the_start = mean_of_extra(half_life, [20.0] * trips)
    assert after_change == pytest.approx(share * from_the_start, rel=1e-6)


def mean_of_extra(half_life: float | None, extras: list[float]) -> float:
    """What a fleet believes that a road costs beyond its model, Wh, after these drives."""
    road = ROWS[7:8].copy()
    expected = road[0, Column.EXPECTED]
    gp = fleet(half_life)
    for extra in extras:
        gp.observe(road, [expected + extra])
    return float(gp.predict(road).mean[0]) - expected


def test_seconds_age_as_energies_do() -> None:
    gp = RoadGP(KERNEL, SIZES, scales=HourlyScales(), half_life=500.0)
    assert gp.durations is not None
    assert gp.durations.half_life == 500.0


@pytest.mark.parametrize("half_life", [0.0, 0.5, -3.0, float("nan"), "long"])
def test_impossible_half_lives_are_refused(half_life: Any) -> None:
    with raises(InputError, "half_life"):
        fleet(half_life)
