"""A fleet whose roads have a profile over the day, against its model with every matrix written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array
from scipy.special import ive
from scipy.stats import binom

from superarm.core import Arms, Floats, Ints, Offer
from superarm.core.errors import InputError, StateError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import GraphMatern
from superarm.roads.energy import HourlyScales, RoadScales
from superarm.roads.posterior import RoadGP, Trips, terms_of
from superarm.roads.posterior.hourly_slots import MOST_SLOTS
from superarm.roads.posterior.hours import DayBasis
from superarm.roads.rows import ANY_HOUR, with_hours

N = 10
SIZES = np.linspace(0.0, 20.0, N)
SCALES = HourlyScales(
    near=1.5,
    own=1.1,
    share=0.07,
    near_hour=1.2,
    own_hour=0.9,
    share_hour=0.05,
    fleet_hour=(0.1, 0.4, 0.2, 0.05, 0.6),
    harmonics=3,
)
MASS = {0: 1.0, 1: 1.3, 7: 0.8}
# Wh or Wh²: a few hundred roundings of numbers below 100, and a condition below 1e4
TOLERANCE = 1e-9
Rng = np.random.Generator


def ring(n: int) -> Any:
    A = np.zeros((n, n))
    for i in range(n):
        A[i, (i + 1) % n] = A[(i + 1) % n, i] = 1.0
    return csc_array(np.diag(A.sum(axis=1)) - A)


KERNEL = GraphMatern(ring(N), nu=2, kappa=1.3, normalisation="raw", variance=14.0)
_rng = np.random.default_rng(5)
EXPECTED = _rng.uniform(1.0, 5.0, N)
TERMS = _rng.uniform(0.5, 3.0, (N, 4))
STOPS = np.where(np.arange(N) % 3 == 0, 1.4, 0.0)


def rows(edges: Ints, hours: Floats | float, vehicle: int = 0) -> Floats:
    """Keys of some roads at some hours."""
    count = len(edges)
    mass = np.full(count, MASS[vehicle])
    number = np.full(count, float(vehicle))
    columns = [edges, EXPECTED[edges], TERMS[edges], mass, STOPS[edges], number]
    return with_hours(np.column_stack(columns), hours)


EVERYWHERE = np.concatenate(
    [
        rows(np.arange(N), hour, vehicle)
        for vehicle in MASS
        for hour in (ANY_HOUR, 0.0, 7.5, 8.1, 23.9)
    ]
)


def some_trips(seed: int, count: int = 6) -> list[Trips]:
    """Trips edge by edge, as totals and as sections, of three vehicles at any hour."""
    rng = np.random.default_rng(seed)
    trips = []
    for number in range(count):
        length = int(rng.integers(1, 7))
        edges = rng.integers(0, N - 2, length)
        hours = (rng.uniform(0.0, 24.0) + 0.1 * np.arange(length)) % 24.0
        keys = rows(edges, hours, list(MASS)[number % 3])
        sums = [np.arange(length), np.zeros(length, np.intp), np.arange(length) // 2]
        reward_of_arm = sums[number % 3]
        rewards = rng.normal(4.0, 2.0, int(reward_of_arm[-1]) + 1)
        trips.append(Trips.of_one(keys, reward_of_arm, rewards))
    return trips


def profile_correlation(hours: Floats, other: Floats, harmonics: int) -> Floats:
    """The periodic kernel, its waves written out."""
    angles = 2.0 * np.pi / 24.0 * (hours[:, None] - other)
    waves = range(1, harmonics + 1)
    shares = [ive(wave, harmonics**2 / 4.0) for wave in waves]
    total = sum(
        share * np.cos(wave * angles) for wave, share in zip(waves, shares, strict=True)
    )
    both_have_one = (hours[:, None] >= 0.0) & (other >= 0.0)
    return np.where(both_have_one, total / sum(shares), 0.0)


def prior_cov(left: Floats, right: Floats, scales: HourlyScales = SCALES) -> Floats:
    """The prior covariance of single arms, entry by entry of the model."""
    near = KERNEL(left[:, :1], right[:, :1])
    same_edge = left[:, [0]] == right[:, 0]
    same_vehicle = left[:, [8]] == right[:, 8]
    sizes = SIZES[left[:, 0].astype(int)]
    own = scales.own**2 + np.square(scales.share * sizes)
    own_hour = scales.own_hour**2 + np.square(scales.share_hour * sizes)
    of_day = scales.near**2 * near + own[:, None] * same_edge
    of_hour = scales.near_hour**2 * near + own_hour[:, None] * same_edge
    alike = profile_correlation(left[:, 9], right[:, 9], scales.harmonics)
    roads = left[:, [6]] * right[:, 6] * (of_day + alike * of_hour)

    def of_terms(std: tuple[float, ...]) -> Floats:
        return (terms_of(left) * np.square(std)) @ terms_of(right).T

    of_fleet = of_terms(scales.fleet) + alike * of_terms(scales.fleet_hour)
    return roads + of_fleet + same_vehicle * of_terms(scales.vehicle)


def written_out(gp: RoadGP, trips: list[Trips], keys: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of arms by textbook formulas."""
    log = Trips.joined(trips)
    A = np.zeros((len(log.rewards), len(log.keys)))
    A[log.reward_of_arm, np.arange(len(log.keys))] = 1.0
    noise = gp._engine.noise.covariance(log)
    covariance = A @ prior_cov(log.keys, log.keys) @ A.T + noise
    cross = prior_cov(keys, log.keys) @ A.T
    residual = log.rewards - A @ log.keys[:, 1]
    mean = keys[:, 1] + cross @ np.linalg.solve(covariance, residual)
    cov = prior_cov(keys, keys) - cross @ np.linalg.solve(covariance, cross.T)
    return mean, cov


def learner(**options: Any) -> RoadGP:
    defaults = {"scales": SCALES, "refit": 0, "outliers": "keep"}
    return RoadGP(KERNEL, SIZES, **{**defaults, **options})


def learn(gp: RoadGP, trips: list[Trips]) -> RoadGP:
    for trip in trips:
        gp.observe_trips(trip)
    return gp


# --- what is believed ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hours_follow_the_model(seed: int) -> None:
    trips = some_trips(seed)
    gp = learn(learner(), trips)
    mean, cov = written_out(gp, trips, EVERYWHERE)
    predicted = gp.predict(EVERYWHERE)
    assert predicted.std is not None
    np.testing.assert_allclose(predicted.mean, mean, atol=TOLERANCE)
    np.testing.assert_allclose(predicted.std**2, np.diagonal(cov), atol=TOLERANCE)
    joint = gp.predict(EVERYWHERE, return_cov=True).cov
    np.testing.assert_allclose(joint, cov, atol=TOLERANCE)
    total, std = gp.total(EVERYWHERE[:7])
    noise = gp.noise_cov(EVERYWHERE[:7])
    np.testing.assert_allclose(total, mean[:7].sum(), atol=7 * TOLERANCE)
    np.testing.assert_allclose(std**2, (cov[:7, :7] + noise).sum(), atol=1e-7)


def test_trip_by_trip_equals_all_at_once() -> None:
    trips = some_trips(4)
    gp = learn(learner(), trips)
    together = gp._engine.from_trips(KERNEL, SIZES, SCALES, Trips.joined(trips))
    for other in (together, gp._engine.rebuild(SCALES)):
        mean, cov = gp._engine.mean_of(EVERYWHERE), gp._engine.variance_of(EVERYWHERE)
        np.testing.assert_allclose(other.mean_of(EVERYWHERE), mean, atol=TOLERANCE)
        np.testing.assert_allclose(other.variance_of(EVERYWHERE), cov, atol=TOLERANCE)
        assert np.isclose(
            other.information, gp._engine.information, atol=TOLERANCE, rtol=0.0
        )


def test_draws_have_the_posterior_covariance() -> None:
    gp = learn(learner(), some_trips(5))
    keys = EVERYWHERE[::7]
    cov = gp.predict(keys, return_cov=True).cov
    draws = gp.sample(keys, np.random.default_rng(0), 800)
    away = draws - gp.predict(keys, return_std=False).mean
    # Each entry of a sample covariance has a variance of (c_ij² + c_ii c_jj)/size: five of its roots.
    variance = np.diagonal(cov)
    bound = 5.0 * np.sqrt((cov**2 + np.outer(variance, variance)) / len(draws))
    assert (np.abs(away.T @ away / len(draws) - cov) < bound).all()


def test_midnight_is_no_border() -> None:
    """23:59 and 00:01 are two minutes apart, as any two such times are; 24:00 is 0:00."""
    gp = learn(learner(), some_trips(6))
    edges = np.arange(N)

    def mean_at(hour: float) -> Floats:
        return gp.predict(rows(edges, hour), return_std=False).mean

    np.testing.assert_allclose(mean_at(24.0), mean_at(0.0), atol=TOLERANCE)
    minute = 1.0 / 60.0
    across = np.abs(mean_at(24.0 - minute) - mean_at(minute))
    # The slope of each wave is at most its frequency times its amplitude.
    day = np.array([mean_at(hour) for hour in np.arange(0.0, 24.0, 0.05)])
    steepest = np.abs(np.diff(day, axis=0)).max(axis=0) / 0.05
    assert (across <= 2.0 * minute * steepest * 1.01 + TOLERANCE).all()


def test_the_mean_of_the_day_is_that_of_any_time() -> None:
    gp = learn(learner(), some_trips(7))
    edges = np.arange(N)
    hours = np.arange(0.0, 24.0, 1.0)
    by_hour = [gp.predict(rows(edges, hour), return_std=False).mean for hour in hours]
    any_time = gp.predict(rows(edges, ANY_HOUR), return_std=False).mean
    np.testing.assert_allclose(np.mean(by_hour, axis=0), any_time, atol=TOLERANCE)


def test_waves_cut_off_little() -> None:
    for harmonics in range(1, 13):
        all_waves = np.arange(1, 200)
        shares = ive(all_waves, harmonics**2 / 4.0)
        assert shares[:harmonics].sum() / shares.sum() > 0.95 or harmonics < 3
        phi = DayBasis(harmonics).at(np.array([0.0, 7.7, 23.0]))
        np.testing.assert_allclose(np.square(phi[:, 1:]).sum(axis=1), 1.0, atol=1e-12)


def test_a_jam_is_borrowed_by_neighbours_and_neighbouring_hours() -> None:
    """Road 3 costs 10 Wh more at 8:00: less so at 7:00, on road 4, and not at noon."""
    gp = learner()
    for number in range(12):
        jammed = number % 2 == 0
        keys = rows(np.array([3]), 8.0 if jammed else 13.0)
        reward = EXPECTED[[3]] + (10.0 if jammed else 0.0)
        gp.observe_trips(Trips.of_one(keys, rewards=reward))

    def more(edge: int, hour: float) -> float:
        keys = rows(np.array([edge]), hour)
        return float(gp.predict(keys, return_std=False).mean[0] - EXPECTED[edge])

    assert more(3, 8.0) > 8.0
    assert abs(more(3, 13.0)) < 2.0
    assert more(3, 13.0) < more(3, 7.0) < more(3, 8.0)
    assert 0.5 < more(4, 8.0) < more(3, 8.0)


def test_roads_that_are_driven_on_now_are_less_uncertain() -> None:
    """A pending road has the variance that it has once it is learned; means stay."""
    gp = learn(learner(), some_trips(11))
    offer = Offer(step=1, arms=Arms.numbered(EVERYWHERE))
    pending = rows(np.array([9]), 7.0)
    belief = gp.belief(offer, pending)
    mean, std = belief.mean, belief.std
    noise = np.diagonal(gp.noise_cov(pending))
    gp.observe(pending, gp.predict(pending).mean, noise)
    learned = gp.predict(EVERYWHERE)
    assert learned.std is not None
    np.testing.assert_allclose(np.square(std), np.square(learned.std), atol=TOLERANCE)
    np.testing.assert_allclose(mean, learned.mean, atol=TOLERANCE)


# --- scales --------------------------------------------------------------------------------


def test_scales_of_hours_are_fitted() -> None:
    """The gradient is that of the likelihood, and the likelihood that of the model."""
    from superarm.roads.posterior.fitting import _covariance_of

    trips = some_trips(8, count=9)
    gp = learn(learner(), trips)
    log = Trips.joined(trips)
    model = _covariance_of(gp._engine, log)
    covariance = model.under(np.square(SCALES.as_vector()[model.places]))
    A = np.zeros((len(log.rewards), len(log.keys)))
    A[log.reward_of_arm, np.arange(len(log.keys))] = 1.0
    noise = gp._engine.noise.covariance(log)
    expected = A @ prior_cov(log.keys, log.keys) @ A.T + noise
    np.testing.assert_allclose(covariance, expected, atol=TOLERANCE)
    gp.fit()
    assert isinstance(gp.fitted, HourlyScales)
    assert gp.fitted.harmonics == SCALES.harmonics
    assert gp.fitted.own_hour != SCALES.own_hour


def test_a_strong_profile_widens_its_scale() -> None:
    rng = np.random.default_rng(3)
    gp = RoadGP(KERNEL, SIZES, scales=HourlyScales(harmonics=2), refit=32)
    for _ in range(64):
        edges = rng.permutation(N)[:5]
        hour = float(rng.uniform(0.0, 24.0))
        jam = 8.0 * np.cos(2.0 * np.pi * hour / 24.0) * np.where(edges % 2, 1.0, -1.0)
        rewards = EXPECTED[edges] + jam + rng.normal(0.0, 0.5, 5)
        gp.observe_trips(Trips.of_one(rows(edges, hour), rewards=rewards))
    assert isinstance(gp.fitted, HourlyScales)
    assert gp.fitted.own_hour > 3.0 * HourlyScales().own_hour


@pytest.mark.slow
def test_intervals_hold_at_every_hour() -> None:
    """Truth drawn from the model: of 95 % intervals at each quarter of the day, 95 % hold it.

    The model is right and its scales are fixed. Worlds are independent, and each adds one trip to each
    quarter: how many of these lie inside is binomial. The bounds fail once in 10,000 runs, over four
    quarters and two sides.
    """
    quarters = np.arange(4)
    inside = np.zeros(4, dtype=int)
    worlds = 400
    for world in range(worlds):
        rng = np.random.default_rng(world)
        gp = learner()
        trips = [rows(rng.integers(0, N, 4), rng.uniform(0, 24)) for _ in range(12)]
        asked = [rows(rng.integers(0, N, 4), 6.0 * q + 3.0) for q in quarters]
        everything = np.concatenate([*trips, *asked])
        cov = prior_cov(everything, everything)
        root = np.linalg.cholesky(cov + 1e-10 * np.eye(len(cov)))
        truth = everything[:, 1] + root @ rng.standard_normal(len(cov))
        for number, keys in enumerate(trips):
            noise = np.linalg.cholesky(gp.noise_cov(keys)) @ rng.standard_normal(4)
            rewards = truth[4 * number : 4 * number + 4] + noise
            gp.observe_trips(Trips.of_one(keys, rewards=rewards))
        for q, keys in enumerate(asked):
            noise = np.linalg.cholesky(gp.noise_cov(keys)) @ rng.standard_normal(4)
            first = 4 * (len(trips) + q)
            reward = (truth[first : first + 4] + noise).sum()
            mean, std = gp.total(keys)
            inside[q] += abs(reward - mean) <= 1.959964 * std
    low, high = binom.ppf([1e-4 / 8, 1 - 1e-4 / 8], worlds, 0.95)
    is_held = (inside >= low) & (inside <= high)
    assert is_held.all(), inside


# --- states and edges ----------------------------------------------------------------------


def test_states_restore_profiles_and_durations() -> None:
    gp = learn(learner(refit=4), some_trips(9))
    assert gp.durations is not None
    learn(gp.durations, some_trips(10))
    state = state_from_bytes(state_to_bytes(gp.state()))
    other = RoadGP.from_state(state)
    np.testing.assert_array_equal(
        other.predict(EVERYWHERE).mean, gp.predict(EVERYWHERE).mean
    )
    np.testing.assert_array_equal(
        other.predict(EVERYWHERE).std, gp.predict(EVERYWHERE).std
    )
    assert other.fitted == gp.fitted
    assert other.durations is not None
    np.testing.assert_array_equal(
        other.durations.predict(EVERYWHERE).mean, gp.durations.predict(EVERYWHERE).mean
    )
    one, two = np.random.default_rng(1), np.random.default_rng(1)
    np.testing.assert_array_equal(
        other.sample(EVERYWHERE, one), gp.sample(EVERYWHERE, two)
    )
    arrays = {**state.arrays, "alpha": state.arrays["alpha"][:-1]}
    with pytest.raises(StateError, match="damaged"):
        RoadGP.from_state(replace(state, arrays=arrays))


def test_without_hours_there_are_none() -> None:
    gp = RoadGP(KERNEL, SIZES, scales=RoadScales())
    assert not gp.has_hours
    assert gp.durations is None
    with pytest.raises(InputError, match="column"):
        gp.predict(EVERYWHERE)


def test_what_cannot_have_hours_is_refused() -> None:
    gp = learner()
    with pytest.raises(InputError, match="column"):
        gp.predict(EVERYWHERE[:, :9])
    for wrong in (24.5, -2.0):
        with pytest.raises(InputError, match="hours"):
            gp.predict(with_hours(EVERYWHERE, wrong))


def test_more_roads_than_the_dense_form_takes_are_refused() -> None:
    harmonics = 12
    count = MOST_SLOTS // (1 + 2 * harmonics)
    kernel = GraphMatern(ring(count), nu=2, kappa=1.0, normalisation="raw")
    scales = HourlyScales(harmonics=harmonics)
    gp = RoadGP(kernel, np.ones(count), scales=scales, form="dense")
    keys = np.zeros((count, 10))
    keys[:, 0] = np.arange(count)
    keys[:, 6] = 1.0
    with pytest.raises(InputError, match="harmonics"):
        gp.observe_sums(keys, np.zeros(count, dtype=int), [5.0])
    assert gp.trips == 0
    gp = RoadGP(kernel, np.ones(count), scales=scales)
    gp.observe_sums(keys, np.zeros(count, dtype=int), [5.0])
    assert gp.form == "sparse"
