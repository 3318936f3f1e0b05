"""The sparse form of a fleet with hours against the dense one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from road_logs import (
    BACKENDS,
    KERNEL,
    KINDS,
    ROADS,
    ROWS,
    SIZES,
    TOLERANCE,
    assert_same,
    random_log,
    random_trip,
    some_keys,
)

from superarm.core import Floats
from superarm.core.compiling import Backend
from superarm.core.errors import InputError, PrecisionWarning, StateError
from superarm.roads.energy import HourlyScales
from superarm.roads.posterior import RoadGP, Trips, terms_of
from superarm.roads.posterior.fitting import fit_scales
from superarm.roads.posterior.hourly_engine import HourlyEngine
from superarm.roads.posterior.hourly_equations import HourlyEquations
from superarm.roads.posterior.hourly_products import HourlyProducts, HourlyValues
from superarm.roads.posterior.hourly_sparse_engine import HourlySparseEngine
from superarm.roads.posterior.hourly_unknowns import HourlyUnknowns
from superarm.roads.posterior.hours import DayBasis
from superarm.roads.posterior.noise import TripNoise
from superarm.roads.rows import ANY_HOUR, Column, with_hours
from superarm.testing import restored

SCALES = HourlyScales(near=0.8, near_hour=0.6, harmonics=3)
MORNING = 2.0
"""Hours that a fleet drives, if it drives in the morning only."""


def at_some_time(trips: Trips, seed: int, span: float = 24.0) -> Trips:
    """The same trips, each from some hour after seven on, one arm a minute and a half after another."""
    rng = np.random.default_rng(seed)
    trip_of_arm = trips.trip[trips.reward_of_arm]
    begins = 7.0 + rng.uniform(0.0, span, trips.number)
    arms = np.arange(len(trip_of_arm))
    first_arm = np.searchsorted(trip_of_arm, trip_of_arm)
    hours = (begins[trip_of_arm] + 0.025 * (arms - first_arm)) % 24.0
    hours[trip_of_arm % 10 == 9] = ANY_HOUR
    return trips._replace(keys=with_hours(trips.keys, hours))


def hourly_log(
    seed: int, trips: int, kinds: tuple[str, ...] = KINDS, span: float = 24.0
) -> Trips:
    return at_some_time(random_log(seed, trips, kinds), seed, span)


def hourly_trip(seed: int, kind: str = "edges", vehicles: int = 5) -> Trips:
    rng = np.random.default_rng(seed)
    return at_some_time(random_trip(rng, kind, vehicles), seed)


def hourly_keys(seed: int = 0, count: int = 40) -> Floats:
    """Keys at any hour, and some of the day's mean."""
    hours = np.random.default_rng(seed).uniform(0.0, 24.0, count)
    hours[::7] = ANY_HOUR
    return with_hours(some_keys(seed, count), hours)


def both(
    trips: Trips, scales: HourlyScales = SCALES, **options: Any
) -> tuple[HourlyEngine, HourlySparseEngine]:
    """The dense and the sparse engine of these trips."""
    dense = HourlyEngine.from_trips(KERNEL, SIZES, scales, trips)
    sparse = HourlySparseEngine(KERNEL, SIZES, scales, TOLERANCE, **options)
    return dense, sparse.with_all(trips)


# --- the whole ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_trip_is_learned_as_by_the_dense_form(kind: str) -> None:
    dense, sparse = both(hourly_log(1, 30, (kind,)))
    assert_same(dense, sparse, hourly_keys())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("span", [24.0, MORNING])
def test_each_backend_learns_as_the_dense_form(backend: Backend, span: float) -> None:
    dense, sparse = both(hourly_log(2, 60, span=span), backend=backend)
    assert_same(dense, sparse, hourly_keys())
    trip = hourly_trip(3)
    dense.absorb(trip)
    sparse.absorb(trip)
    assert_same(dense, sparse, hourly_keys())


@given(
    seed=st.integers(0, 1000), trips=st.integers(1, 12), harmonics=st.integers(1, 12)
)
@settings(max_examples=12)
def test_random_logs_agree(seed: int, trips: int, harmonics: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = tuple(rng.permutation(KINDS).tolist())
    scales = replace(SCALES, harmonics=harmonics)
    dense, sparse = both(hourly_log(seed, trips, kinds), scales)
    assert_same(dense, sparse, hourly_keys(seed, 12))


def test_forecasts_agree_with_the_dense_form() -> None:
    dense, sparse = both(hourly_log(2, 60))
    for kind in KINDS:
        trip = hourly_trip(4, kind)
        exact = dense.expect(trip)
        approximate = sparse.expect(trip)
        std = np.sqrt(np.diagonal(exact.cov))
        assert (np.abs(approximate.mean - exact.mean) <= TOLERANCE * std).all()
        # Each solve is off by at most √(2 · tolerance) in the energy norm: their product bounds this.
        most = 2.0 * TOLERANCE * np.outer(std, std)
        assert (np.abs(approximate.cov - exact.cov) <= most).all()
        np.testing.assert_array_equal(approximate.noise, exact.noise)


@pytest.mark.parametrize("kind", KINDS)
def test_totals_of_routes_are_precise_with_their_noise(kind: str) -> None:
    dense, sparse = both(hourly_log(2, 60))
    trip = hourly_trip(5, kind)
    exact = dense.expect(trip)
    std = np.sqrt(exact.total_cov.sum())
    for forecast in (sparse.expect_total(trip), sparse.judge(trip)):
        assert abs(np.sqrt(forecast.total_cov.sum()) / std - 1.0) <= TOLERANCE
        away = abs(forecast.mean.sum() - exact.mean.sum())
        assert away <= TOLERANCE * std


def test_many_trips_are_judged_nearly_as_one_by_one() -> None:
    dense, sparse = both(hourly_log(2, 60))
    trips = hourly_log(5, 12)
    judged = list(sparse.judge_all(trips))
    assert len(judged) == trips.number
    for number, approximate in enumerate(judged):
        exact = dense.expect(trips.one(number))
        std = np.sqrt(np.diagonal(exact.total_cov))
        ratios = np.sqrt(np.diagonal(approximate.total_cov)) / std
        # A variance from 200 draws is off by 10 %, four times as far at worst; it is a part of the whole.
        assert np.abs(ratios - 1.0).max() <= 0.1
        assert (np.abs(approximate.mean - exact.mean) <= TOLERANCE * std).all()


@pytest.mark.parametrize("is_late", [False, True])
def test_trips_one_by_one_and_all_at_once_agree(is_late: bool) -> None:
    trips = hourly_log(5, 24)
    dense, at_once = both(trips)
    one_by_one = HourlySparseEngine(KERNEL, SIZES, SCALES, TOLERANCE)
    order = range(trips.number)
    for number in reversed(order) if is_late else order:
        one_by_one.absorb(trips.one(number))
    assert one_by_one.log.view().number == trips.number
    for engine in (at_once, one_by_one):
        assert_same(dense, engine, hourly_keys())


def test_copies_grow_apart() -> None:
    _, sparse = both(hourly_log(13, 10))
    keys = hourly_keys()
    before = sparse.mean_of(keys)
    other = sparse.with_all(hourly_log(14, 6))
    third = sparse.with_all(hourly_trip(0, vehicles=3))
    np.testing.assert_array_equal(sparse.mean_of(keys), before)
    for engine in (other, third):
        dense = HourlyEngine.from_trips(KERNEL, SIZES, SCALES, engine.log.view())
        assert_same(dense, engine, keys)


def test_the_information_of_trips_is_near_that_of_the_dense_form() -> None:
    dense, sparse = both(hourly_log(6, 60))
    assert sparse.information == pytest.approx(dense.information, rel=0.05)


def test_draws_are_those_of_the_dense_form_from_the_same_random_numbers() -> None:
    dense, sparse = both(hourly_log(7, 40))
    keys = hourly_keys(count=25)
    std = np.sqrt(dense.variance_of(keys))
    # They share the order in which vehicles came.
    sparse._draw_order = dense._draw_order
    for seed in range(5):
        exact = dense.draw(keys, np.random.default_rng(seed))
        drawn = sparse.draw(keys, np.random.default_rng(seed))
        assert (np.abs(drawn - exact) <= TOLERANCE * std).all()


def test_pending_roads_lower_the_variance_as_in_the_dense_form() -> None:
    dense, sparse = both(hourly_log(8, 30))
    keys = hourly_keys(1, 6)
    noise = np.full(6, 0.7)
    before = sparse.mean_of(keys)
    supposed = sparse.supposing(keys, noise)
    assert_same(dense.supposing(keys, noise), supposed, hourly_keys())
    np.testing.assert_array_equal(supposed.mean_of(keys), before)


def test_nothing_learned_is_the_prior() -> None:
    dense = HourlyEngine(KERNEL, SIZES, SCALES)
    sparse = HourlySparseEngine(KERNEL, SIZES, SCALES, TOLERANCE)
    keys = hourly_keys()
    assert_same(dense, sparse, keys)
    drawn = sparse.draw(keys, np.random.default_rng(0))
    np.testing.assert_allclose(drawn, dense.draw(keys, np.random.default_rng(0)))


def test_variances_of_many_arms_are_solved_for_where_that_is_quick() -> None:
    dense, sparse = both(hourly_log(10, 60))
    keys = with_hours(np.concatenate([ROWS, ROWS]), np.arange(2 * ROADS) % 24.0)
    assert_same(dense, sparse, keys)
    assert sparse.variance_error == 0.0


def test_variances_of_many_arms_state_their_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("superarm.roads.posterior.sparse_engine._SOLVING_BUDGET", 0)
    dense, sparse = both(hourly_log(10, 60))
    keys = with_hours(np.concatenate([ROWS, ROWS]), np.arange(2 * ROADS) % 24.0)
    with pytest.warns(PrecisionWarning, match="off by up to"):
        variances = sparse.variance_of(keys)
    ratios = np.sqrt(variances / dense.variance_of(keys))
    # The sample is a sixteenth of all: the rest is a few times worse at most.
    assert 0.0 < sparse.variance_error < 0.1
    assert np.abs(ratios - 1.0).max() < 5.0 * sparse.variance_error + TOLERANCE


# --- scales ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_scales_are_fitted_to_the_same_covariances(backend: Backend) -> None:
    trips = hourly_log(9, 12)
    dense, sparse = both(trips, backend=backend)
    exact = dense.counted_by_hour(trips)
    counted = sparse.counted_by_hour(trips)
    std = np.sqrt(np.diagonal(exact.near))
    # Compiled, it is the covariance by a factor without its small entries.
    share = 1e-10 if backend == "numpy" else 1e-3
    away = np.abs(counted.near - exact.near)
    assert (away <= share * np.outer(std, std)).all()
    np.testing.assert_array_equal(counted.counts, exact.counts)
    np.testing.assert_array_equal(counted.sizes, exact.sizes)
    np.testing.assert_array_equal(counted.terms, exact.terms)
    fitted = fit_scales(dense, trips, SCALES, 10).as_vector()
    scales = fit_scales(sparse, trips, SCALES, 10).as_vector()
    # Ten steps of a search, in which what covariances are off by grows.
    rtol = 1e-6 if backend == "numpy" else 0.02
    np.testing.assert_allclose(scales, fitted, rtol=rtol)


def test_other_scales_are_taken_from_the_log() -> None:
    dense, sparse = both(hourly_log(9, 30))
    scales = replace(SCALES, near=1.4, own=0.6, own_hour=1.5, trip=(0.2,) * 5)
    assert_same(dense.rebuild(scales), sparse.rebuild(scales), hourly_keys())


# --- products ----------------------------------------------------------------------------------


def written_out(trips: Trips, vehicles: int) -> Floats:
    """Xᵀ R⁻¹ X with every matrix written out, over roads, the fleet's terms and those of vehicles."""
    keys = trips.keys
    phi = DayBasis(SCALES.harmonics).of(keys)
    functions = phi.shape[1]
    of_roads = ROADS * functions
    X = np.zeros((len(trips.rewards), of_roads + 5 * functions + 5 * vehicles))
    for arm in range(len(keys)):
        reward = trips.reward_of_arm[arm]
        road = functions * int(keys[arm, Column.EDGE])
        X[reward, road : road + functions] += keys[arm, Column.MASS_RATIO] * phi[arm]
        terms = terms_of(keys)[arm]
        fleet = np.outer(terms, phi[arm]).ravel()
        X[reward, of_roads : of_roads + 5 * functions] += fleet
        first = of_roads + 5 * functions + 5 * int(keys[arm, Column.VEHICLE])
        X[reward, first : first + 5] += terms
    R = TripNoise(SCALES).covariance(trips)
    return np.asarray(X.T @ np.linalg.solve(R, X))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_formula(backend: Backend, kind: str) -> None:
    trips = hourly_log(11, 8, (kind,))
    basis = DayBasis(SCALES.harmonics)
    products = HourlyProducts(ROADS, len(basis), TripNoise(SCALES), backend)
    drivers = trips.keys[:, Column.VEHICLE].astype(np.intp)
    arms = len(drivers)
    half = trips.number // 2
    first = trips.between(0, half)
    rest = trips.between(half, trips.number)
    before = len(first.keys)
    products.append(first, basis.of(first.keys), drivers[:before], 3)
    earlier = products.copy()
    products.append(rest, basis.of(rest.keys), drivers[before:arms], 3)
    rng = np.random.default_rng(0)
    values = HourlyValues(
        roads=rng.standard_normal((ROADS, len(basis))),
        fleet=rng.standard_normal((5, len(basis))),
        vehicles=rng.standard_normal((3, 5)),
    )
    flat = np.concatenate([part.ravel() for part in values])
    for grown, log in ((earlier, first), (products, trips)):
        exact = written_out(log, 3) @ flat
        product = np.concatenate([part.ravel() for part in grown.times(values)])
        # A few hundred roundings of the largest entry.
        most = 1e-12 * np.abs(exact).max()
        np.testing.assert_allclose(product, exact, rtol=1e-9, atol=most)


@pytest.mark.parametrize("span", [24.0, MORNING])
def test_the_preconditioner_is_symmetric_and_what_it_neglects_is_known(
    span: float,
) -> None:
    _, sparse = both(hourly_log(3, 40, span=span), backend="numpy")
    equations = sparse._equations
    assert isinstance(equations, HourlyEquations)
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, equations.size))
    # Symmetric and positive definite, as conjugate gradients require.
    inverse = equations.precondition
    assert one @ inverse(other) == pytest.approx(other @ inverse(one), rel=1e-9)
    assert one @ inverse(one) > 0.0
    # With the blocks of M, M⁻¹ Q v = v + M⁻¹ (Q − M) v.
    x = equations._unknowns(one)
    roads = equations._driven()
    beyond = equations._beyond_blocks(x)
    neglected = equations._neglected_of_near(roads)
    beyond.g[roads] = np.einsum("sbc,sc->sb", neglected, x.g[roads])
    product = equations._unknowns(equations.times(one))
    preconditioned = equations._inverse_blocks(product)
    expected = one + equations._inverse_blocks(beyond).flat()
    np.testing.assert_allclose(preconditioned.flat(), expected, atol=1e-7)


def test_unknowns_are_flattened_and_back() -> None:
    rng = np.random.default_rng(0)
    x = HourlyUnknowns(
        f=rng.standard_normal((4, 3)),
        g=rng.standard_normal((4, 3)),
        fleet=rng.standard_normal((5, 3)),
        vehicles=rng.standard_normal((2, 5)),
    )
    other = HourlyUnknowns.from_flat(x.flat(), 4, 3)
    for one, two in zip(x, other, strict=True):
        np.testing.assert_array_equal(one, two)


# --- RoadGP ------------------------------------------------------------------------------------


def fleet_gp(form: Any, **options: Any) -> RoadGP:
    defaults: dict[str, Any] = {"scales": SCALES, "refit": 0}
    return RoadGP(KERNEL, SIZES, form=form, **{**defaults, **options})


@pytest.mark.parametrize("refit", [0, 8])
def test_a_posterior_learns_the_same_in_both_forms(refit: int) -> None:
    dense = fleet_gp("dense", refit=refit)
    sparse = fleet_gp("sparse", refit=refit)
    for number in range(10):
        trip = hourly_trip(number, ("edges", "total")[number % 2])
        if number == 5:
            # An outlier, which both weigh.
            trip.rewards[0] += 300.0
        for gp in (dense, sparse):
            assert gp.durations is not None
            gp.observe_trips(trip)
            gp.durations.observe_trips(trip)
    assert (dense.form, sparse.form) == ("dense", "sparse")
    assert (dense.tolerance, sparse.tolerance) == (0.0, 0.01)
    assert dense.outlying == sparse.outlying == 1
    keys = hourly_keys(count=12)
    assert dense.durations is not None
    assert sparse.durations is not None
    assert sparse.durations.form == "sparse"
    for exact, gp in ((dense, sparse), (dense.durations, sparse.durations)):
        expected = exact.predict(keys, return_std=True)
        answer = gp.predict(keys, return_std=True)
        assert expected.std is not None
        assert answer.std is not None
        # Outliers are weighed by forecasts that differ by the tolerance, too.
        assert (np.abs(answer.mean - expected.mean) <= 0.02 * expected.std).all()
        np.testing.assert_allclose(answer.std, expected.std, rtol=0.02)
        for one, other in zip(exact.total(keys), gp.total(keys), strict=True):
            assert one == pytest.approx(other, rel=0.02)


def test_a_sparse_posterior_resumes_from_its_state() -> None:
    gp = fleet_gp("sparse")
    gp.observe_trips(hourly_log(20, 30))
    assert gp.durations is not None
    gp.durations.observe_trips(hourly_log(21, 10))
    state = restored(gp.state())
    resumed = RoadGP.from_state(state)
    keys = hourly_keys()
    assert resumed.form == "sparse"
    assert resumed.durations is not None
    for one, other in ((gp, resumed), (gp.durations, resumed.durations)):
        np.testing.assert_array_equal(other.predict(keys).mean, one.predict(keys).mean)
    trip = hourly_trip(1)
    gp.observe_trips(trip)
    resumed.observe_trips(trip)
    # Both solve to the tolerance, from preconditioners of different ages.
    std = gp.predict(keys, return_std=True).std
    assert std is not None
    away = np.abs(resumed.predict(keys).mean - gp.predict(keys).mean)
    assert (away <= 2.0 * TOLERANCE * std).all()
    arrays = {**state.arrays, "solution": state.arrays["solution"][:-1]}
    with pytest.raises(StateError, match="solution"):
        RoadGP.from_state(replace(state, arrays=arrays))


def test_a_dense_state_continues_in_the_sparse_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense = fleet_gp("auto")
    dense.observe_trips(hourly_log(22, 20))
    assert dense.form == "dense"
    limit = len(dense.visited) * (1 + 2 * SCALES.harmonics)
    monkeypatch.setattr("superarm.roads.posterior.forms.DENSE_LARGEST", limit)
    gp = RoadGP.from_state(restored(dense.state()))
    assert gp.form == "dense"
    trip = hourly_trip(2)
    gp.observe_trips(trip)
    assert gp.form == "sparse"
    monkeypatch.undo()
    dense.observe_trips(trip)
    assert dense.form == "dense"
    assert_same(dense._engine, gp._engine, hourly_keys())


def test_a_fleet_that_turned_sparse_is_saved_with_its_ages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With this half-life ages are counted anew every 10 trips, and when the form changes.
    gp = fleet_gp("auto", half_life=160.0)
    for number in range(5):
        gp.observe_trips(hourly_trip(number))
    limit = len(gp.visited) * (1 + 2 * SCALES.harmonics)
    monkeypatch.setattr("superarm.roads.posterior.forms.DENSE_LARGEST", limit)
    gp.observe_trips(hourly_trip(5))
    assert gp.form == "sparse"
    trips = gp._engine.log.as_learned()
    later_trips = np.array([4.0, 3.0, 2.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(trips.age, later_trips[trips.trip] / 160.0)
    again = RoadGP.from_state(restored(gp.state()))
    np.testing.assert_array_equal(again._engine.log.as_learned().age, trips.age)


def test_a_trip_that_fails_leaves_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    gp = fleet_gp("auto")
    gp.observe_trips(hourly_log(22, 5))
    monkeypatch.setattr("superarm.roads.posterior.forms.DENSE_LARGEST", 1)

    def fails(*_: object) -> None:
        raise InputError("no")

    with monkeypatch.context() as patch:
        patch.setattr(HourlySparseEngine, "absorb", fails)
        trip = hourly_trip(2)
        with pytest.raises(InputError, match="no"):
            gp.observe(trip.keys, trip.rewards)
    assert gp.form == "dense"
    assert gp.trips == 5


def test_trips_age_as_in_the_dense_form() -> None:
    trips = hourly_log(23, 40)
    dense = fleet_gp("dense", half_life=10.0)
    sparse = fleet_gp("sparse", half_life=10.0)
    for gp in (dense, sparse):
        gp._learner.learn_together(trips)
    assert_same(dense._engine, sparse._engine, hourly_keys())
    ageless = fleet_gp("sparse")
    ageless._learner.learn_together(trips)
    keys = hourly_keys()
    older = sparse._engine.variance_of(keys)
    assert (older > ageless._engine.variance_of(keys)).all()
