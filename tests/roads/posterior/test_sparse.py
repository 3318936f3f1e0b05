"""The sparse form of a fleet's posterior against the dense one."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from road_logs import (
    BACKENDS,
    GRAPH,
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
from scipy.sparse import csr_array, diags_array
from scipy.stats import multivariate_normal

from superarm.core import Floats
from superarm.core.compiling import Backend
from superarm.core.errors import InputError, PrecisionWarning
from superarm.kernels import GraphMatern
from superarm.kernels.incomplete_factor import IncompleteFactor
from superarm.kernels.sparse_factor import SparseFactor
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.fleets import LoggedTrip, TripSection, learn_trips
from superarm.roads.networks import generate_city
from superarm.roads.posterior import RoadGP, Trips, terms_of
from superarm.roads.posterior.conjugate_gradients import CAUTION, conjugate_gradients
from superarm.roads.posterior.engine import RoadEngine
from superarm.roads.posterior.fit_schedule import trips_between_fits
from superarm.roads.posterior.forms import EngineFactory, form_of
from superarm.roads.posterior.log import Log
from superarm.roads.posterior.mixed_equations import Unknowns
from superarm.roads.posterior.noise import TripNoise
from superarm.roads.posterior.sparse_engine import SparseRoadEngine
from superarm.roads.posterior.trip_products import (
    RoadsAndVehicles,
    TripProducts,
    trip_diagonals,
)
from superarm.roads.problems import Fleet
from superarm.roads.problems.fleet_model import near_kernel, road_rows, road_sizes
from superarm.roads.routing import Router
from superarm.roads.rows import Column
from superarm.testing import restored

SCALES = RoadScales()


def both(trips: Trips, **options: Any) -> tuple[RoadEngine, SparseRoadEngine]:
    """The dense and the sparse engine of these trips."""
    dense = RoadEngine.from_trips(KERNEL, SIZES, SCALES, trips)
    sparse = SparseRoadEngine(KERNEL, SIZES, SCALES, TOLERANCE, **options)
    return dense, sparse.with_all(trips)


# --- the whole ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_trip_is_learned_as_by_the_dense_form(kind: str) -> None:
    dense, sparse = both(random_log(1, 30, (kind,)))
    assert_same(dense, sparse, some_keys())


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_backend_learns_as_the_dense_form(backend: Backend) -> None:
    dense, sparse = both(random_log(1, 30), backend=backend)
    trip = random_trip(np.random.default_rng(1))
    exact = dense.expect(trip)
    judged = sparse.judge(trip)
    ratio = np.sqrt(judged.total_cov.sum() / exact.total_cov.sum())
    assert abs(ratio - 1.0) <= TOLERANCE
    dense.absorb(trip)
    sparse.absorb(trip)
    assert_same(dense, sparse, some_keys())


def test_forecasts_agree_with_the_dense_form() -> None:
    dense, sparse = both(random_log(2, 60))
    rng = np.random.default_rng(3)
    for kind in KINDS:
        trip = random_trip(rng, kind, vehicles=5)
        exact = dense.expect(trip)
        approximate = sparse.expect(trip)
        std = np.sqrt(np.diagonal(exact.cov))
        assert (np.abs(approximate.mean - exact.mean) <= TOLERANCE * std).all()
        # Each solve is off by at most √(2 · tolerance) in the energy norm: their product bounds this.
        most = 2.0 * TOLERANCE * np.outer(std, std)
        assert (np.abs(approximate.cov - exact.cov) <= most).all()
        np.testing.assert_array_equal(approximate.noise, exact.noise)


def test_forecasts_of_many_rewards_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, sparse = both(random_log(2, 30))
    monkeypatch.setattr("superarm.roads.posterior.sparse_engine._MOST_STORED", 4)
    keys = Trips.of_one(some_keys(count=20))
    exact = dense.expect(keys)
    std = np.sqrt(np.diagonal(exact.cov))
    away = np.abs(sparse.expect(keys).cov - exact.cov)
    assert (away <= TOLERANCE * np.outer(std, std)).all()


def test_totals_are_precise_with_their_noise() -> None:
    dense, sparse = both(random_log(2, 60))
    rng = np.random.default_rng(4)
    for _ in range(5):
        trip = random_trip(rng, "total", vehicles=5)
        exact = dense.expect(trip)
        forecast = sparse.expect_total(trip)
        std = np.sqrt(exact.total_cov)
        assert abs(np.sqrt(forecast.total_cov) / std - 1.0) <= TOLERANCE
        assert abs(forecast.mean - exact.mean) <= TOLERANCE * std


def test_the_sum_of_a_trip_is_judged_as_precisely_as_it_is_forecast() -> None:
    dense, sparse = both(random_log(2, 60))
    rng = np.random.default_rng(4)
    for kind in KINDS:
        trip = random_trip(rng, kind, vehicles=5)
        exact = dense.expect(trip)
        judged = sparse.judge(trip)
        std = np.sqrt(exact.total_cov.sum())
        assert abs(np.sqrt(judged.total_cov.sum()) / std - 1.0) <= TOLERANCE
        total_std = np.sqrt(np.diagonal(exact.total_cov))
        ratios = np.sqrt(np.diagonal(judged.total_cov)) / total_std
        # Of single rewards what M forgets is small beside their noise.
        assert np.abs(ratios - 1.0).max() <= 0.05


def test_many_trips_are_judged_nearly_as_one_by_one() -> None:
    dense, sparse = both(random_log(2, 60))
    trips = random_log(5, 12)
    judged = list(sparse.judge_all(trips))
    assert len(judged) == trips.number
    for number, approximate in enumerate(judged):
        exact = dense.expect(trips.one(number))
        std = np.sqrt(np.diagonal(exact.total_cov))
        ratios = np.sqrt(np.diagonal(approximate.total_cov)) / std
        # A variance from 200 draws is off by 10 %, four times as far at worst; it is a part of the whole.
        assert np.abs(ratios - 1.0).max() <= 0.1
        assert (np.abs(approximate.mean - exact.mean) <= TOLERANCE * std).all()


def test_densities_are_those_of_the_normal_distribution() -> None:
    dense, _ = both(random_log(2, 30))
    trip = random_trip(np.random.default_rng(7))
    expected = dense.expect(trip)
    normal = multivariate_normal(expected.mean, expected.total_cov)
    exact = normal.logpdf(trip.rewards)
    assert expected.log_density(trip.rewards) == pytest.approx(exact, rel=1e-9)


def test_trips_that_wait_for_a_solve_count_when_many_are_judged() -> None:
    """Whatever was predicted for them meanwhile."""
    dense, sparse = both(random_log(2, 120))
    rng = np.random.default_rng(3)
    waiting = random_trip(rng)
    dense.absorb(waiting)
    sparse.absorb(waiting)
    assert sparse._pending == 1
    sparse._x = np.zeros_like(sparse._x)  # as far off as can be
    for trip, judged in zip(
        random_log(5, 6).each(), sparse.judge_all(random_log(5, 6)), strict=True
    ):
        exact = dense.expect(trip)
        std = np.sqrt(np.diagonal(exact.cov))
        assert (np.abs(judged.mean - exact.mean) <= TOLERANCE * std).all()


@pytest.mark.parametrize("is_late", [False, True])
def test_trips_one_by_one_and_all_at_once_agree(is_late: bool) -> None:
    trips = random_log(5, 24)
    dense, at_once = both(trips)
    one_by_one = SparseRoadEngine(KERNEL, SIZES, SCALES, TOLERANCE)
    order = range(trips.number)
    for number in reversed(order) if is_late else order:
        one_by_one.absorb(trips.one(number))
    assert one_by_one.log.view().number == trips.number
    for engine in (at_once, one_by_one):
        assert_same(dense, engine, some_keys())


def test_the_information_of_trips_is_near_that_of_the_dense_form() -> None:
    dense, sparse = both(random_log(6, 60))
    assert sparse.information == pytest.approx(dense.information, rel=0.05)


def test_draws_are_those_of_the_dense_form_from_the_same_random_numbers() -> None:
    dense, sparse = both(random_log(7, 40))
    keys = some_keys(count=25)
    std = np.sqrt(dense.variance_of(keys))
    # They share the order in which vehicles came.
    sparse._draw_order = dense._draw_order
    for seed in range(5):
        exact = dense.draw(keys, np.random.default_rng(seed))
        drawn = sparse.draw(keys, np.random.default_rng(seed))
        assert (np.abs(drawn - exact) <= TOLERANCE * std).all()


def test_pending_roads_lower_the_variance_as_in_the_dense_form() -> None:
    dense, sparse = both(random_log(8, 30))
    keys = some_keys(1, 6)
    noise = np.full(6, 0.7)
    before = sparse.mean_of(keys)
    supposed = sparse.supposing(keys, noise)
    assert_same(dense.supposing(keys, noise), supposed, some_keys())
    np.testing.assert_array_equal(supposed.mean_of(keys), before)
    # The engine itself knows nothing of it.
    assert sparse.log.view().number == 30
    assert_same(dense, sparse, some_keys())


def test_other_scales_are_taken_from_the_log() -> None:
    dense, sparse = both(random_log(9, 30))
    scales = RoadScales(near=1.4, own=0.6, noise=0.8, trip=(0.2, 0.1, 0.2, 0.1, 0.3))
    assert_same(dense.rebuild(scales), sparse.rebuild(scales), some_keys())


def test_scales_are_fitted_to_the_same_covariances() -> None:
    dense, sparse = both(random_log(9, 12))
    trips = random_log(9, 12)
    exact = dense.counted_roads(trips)
    again = sparse.rebuild(RoadScales(near=0.6)).counted_roads(trips)
    for counted in (sparse.counted_roads(trips), again):
        np.testing.assert_array_equal(counted.counts, exact.counts)
        # A thousandth of the product of both standard deviations, and rounding.
        stds = np.sqrt(np.diagonal(exact.near))
        most = 1e-3 * np.outer(stds, stds) + 1e-10
        assert (np.abs(counted.near - exact.near) <= most).all()
        np.testing.assert_array_equal(counted.sizes, exact.sizes)


def test_variances_of_many_roads_are_solved_for_where_that_is_quick() -> None:
    dense, sparse = both(random_log(10, 60))
    keys = np.concatenate([ROWS, ROWS])  # more than are always solved for
    assert_same(dense, sparse, keys)
    assert sparse.variance_error == 0.0
    ratios = np.sqrt(sparse.variances() / dense.variances())
    assert np.abs(ratios - 1.0).max() <= TOLERANCE


def test_variances_of_many_roads_state_their_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("superarm.roads.posterior.sparse_engine._SOLVING_BUDGET", 0)
    dense, sparse = both(random_log(10, 60))
    keys = np.concatenate([ROWS, ROWS])  # more than are solved one by one
    with pytest.warns(PrecisionWarning, match="off by up to"):
        variances = sparse.variance_of(keys)
    ratios = np.sqrt(variances / dense.variance_of(keys))
    assert 0.0 < sparse.variance_error < 0.1
    # The sample is a tenth of all: the rest is a few times worse at most.
    assert np.abs(ratios - 1.0).max() < 5.0 * sparse.variance_error + TOLERANCE


def test_nothing_learned_is_the_prior() -> None:
    dense = RoadEngine(KERNEL, SIZES, SCALES)
    sparse = SparseRoadEngine(KERNEL, SIZES, SCALES, TOLERANCE)
    assert_same(dense, sparse, some_keys())
    keys = some_keys(count=10)
    drawn = sparse.draw(keys, np.random.default_rng(0))
    np.testing.assert_allclose(drawn, dense.draw(keys, np.random.default_rng(0)))


@given(seed=st.integers(0, 1000), trips=st.integers(1, 12))
@settings(max_examples=15)
def test_random_logs_agree(seed: int, trips: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = tuple(rng.permutation(KINDS).tolist())
    dense, sparse = both(random_log(seed, trips, kinds))
    assert_same(dense, sparse, some_keys(seed, 15))


@pytest.mark.parametrize("nu", [2, 4])
@pytest.mark.parametrize("normalisation", ["mean", "unit"])
def test_other_kernels_agree(nu: int, normalisation: Any) -> None:
    kernel = GraphMatern(
        GRAPH.turn_graph, nu=nu, kappa=30.0, normalisation=normalisation
    )
    scales = RoadScales(near=2.0, own=0.3)
    trips = random_log(3, 20)
    dense = RoadEngine.from_trips(kernel, SIZES, scales, trips)
    sparse = SparseRoadEngine(kernel, SIZES, scales, TOLERANCE).with_all(trips)
    assert_same(dense, sparse, some_keys())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", [0, 2])
def test_what_a_factor_drops_may_exceed_what_trips_tell(
    seed: int, backend: Backend
) -> None:
    """The fleet's mass term and the mean of roads are hardly told apart: a direction with θ below 1e-3."""
    kernel = GraphMatern(GRAPH, kappa=100.0)
    scales = RoadScales(near=25.0, own=0.02, fleet=(2.0, 1.5, 0.2, 0.3, 10.0))
    trips = random_log(seed, 40)
    new = SparseRoadEngine(kernel, SIZES, scales, TOLERANCE, backend)
    sparse = new.with_all(trips.between(0, 30))
    for trip in trips.between(30, 40).each():
        sparse.absorb(trip)
    dense = RoadEngine.from_trips(kernel, SIZES, scales, trips)
    assert_same(dense, sparse, some_keys())


@pytest.mark.slow
def test_thousands_of_visited_roads_agree() -> None:
    graph = generate_city(edges=5000, seed=2).line_graph()
    rows = road_rows(graph, Vehicle(), 0)
    kernel = near_kernel(graph)
    sizes = road_sizes(graph)
    rng = np.random.default_rng(0)
    log = Log(9)
    for number in range(250):
        # Neighbours by number are neighbours in the city, too.
        first = rng.integers(0, 2500)
        keys = rows[first : first + 40].copy()
        keys[:, Column.VEHICLE] = number % 20
        observed = keys[:, Column.EXPECTED] + rng.normal(0.0, 3.0, len(keys))
        log.append(Trips.of_one(keys, rewards=observed))
    trips = log.view()
    dense = RoadEngine.from_trips(kernel, sizes, SCALES, trips)
    sparse = SparseRoadEngine(kernel, sizes, SCALES, TOLERANCE).with_all(trips)
    assert len(dense.visited) > 2000
    chosen = rows[rng.integers(0, len(rows), 200)]
    assert_same(dense, sparse, chosen)


# --- products ----------------------------------------------------------------------------------


def written_out(trips: Trips, vehicles: int) -> Floats:
    """Xᵀ R⁻¹ X with every matrix written out, over roads and vehicles' terms."""
    keys = trips.keys
    count = len(keys)
    X = np.zeros((len(trips.rewards), ROADS + 5 * vehicles))
    for arm in range(count):
        reward = trips.reward_of_arm[arm]
        X[reward, int(keys[arm, Column.EDGE])] += keys[arm, Column.MASS_RATIO]
        first = ROADS + 5 * int(keys[arm, Column.VEHICLE])
        X[reward, first : first + 5] += terms_of(keys)[arm]
    R = TripNoise(SCALES).covariance(trips)
    return np.asarray(X.T @ np.linalg.solve(R, X))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_formula(kind: str, backend: Backend) -> None:
    trips = random_log(11, 8, (kind, "edges"))
    products = TripProducts(ROADS, TripNoise(SCALES), np.array(SCALES.trip), backend)
    for part in (trips.between(0, 3), trips.between(3, 8)):
        products.append(part, part.keys[:, Column.VEHICLE].astype(np.intp), 3)
    rng = np.random.default_rng(0)
    values = rng.standard_normal(ROADS + 15)
    product = products.times(
        RoadsAndVehicles(values[:ROADS], values[ROADS:].reshape(3, 5))
    )
    flat = np.concatenate([product.roads, product.vehicles.ravel()])
    exact = written_out(trips, 3) @ values
    # Some hundred roundings of numbers as large as the largest.
    np.testing.assert_allclose(flat, exact, atol=1e-10 * np.abs(exact).max())


@pytest.mark.parametrize("is_plain_apart", [False, True])
@pytest.mark.parametrize("kind", ["edges", "motion", "stated", "convoy"])
def test_diagonals_are_those_of_the_formula(kind: str, is_plain_apart: bool) -> None:
    trips = random_log(12, 8, (kind,))
    noise = TripNoise(SCALES)
    drivers = trips.keys[:, Column.VEHICLE].astype(np.intp)
    if is_plain_apart:
        products = TripProducts(ROADS, noise, np.array(SCALES.trip))
        diagonals = products.append(trips, drivers, 3)
    else:
        diagonals = trip_diagonals(noise, trips, drivers, ROADS, 3)
    exact = written_out(trips, 3)
    for vehicle in range(3):
        block = slice(ROADS + 5 * vehicle, ROADS + 5 * vehicle + 5)
        np.testing.assert_allclose(
            diagonals.vehicles[vehicle], exact[block, block], rtol=1e-8, atol=1e-8
        )
    # A road that a trip drives twice counts as two: only once-driven ones have the exact diagonal.
    edges, counts = np.unique(
        trips.keys[:, Column.EDGE].astype(np.intp), return_counts=True
    )
    once = edges[counts == 1]
    np.testing.assert_allclose(
        diagonals.roads[once], np.diagonal(exact)[once], rtol=1e-9
    )


def test_copies_grow_apart() -> None:
    _, sparse = both(random_log(13, 10))
    keys = some_keys()
    before = sparse.mean_of(keys)
    other = sparse.with_all(random_log(14, 6))
    one_more = random_trip(np.random.default_rng(0))
    third = sparse.with_all(one_more)
    np.testing.assert_array_equal(sparse.mean_of(keys), before)
    dense = RoadEngine.from_trips(KERNEL, SIZES, SCALES, other.log.view())
    assert_same(dense, other, keys)
    dense = RoadEngine.from_trips(KERNEL, SIZES, SCALES, third.log.view())
    assert_same(dense, third, keys)


# --- solutions ---------------------------------------------------------------------------------


def test_the_bound_of_the_error_holds() -> None:
    _, sparse = both(random_log(15, 50))
    equations = sparse._equations
    rng = np.random.default_rng(1)
    for _ in range(5):
        right = rng.standard_normal(equations.size)
        exact = equations.solve(right, None, 1e-9)
        for share in (1.0, 0.1, 0.01):
            solution = equations.solve(right, None, share)
            error = exact.x - solution.x
            norm = np.sqrt(error @ equations.times(error))
            assert norm <= solution.error <= share


def radau_bound(Q: Floats, b: Floats, steps: int, mu: float) -> float:
    """By its definition: the Lanczos matrix T of some steps, with a row that gives it the eigenvalue μ.

    ‖b‖² (T̂⁻¹)₁₁ is above bᵀ Q⁻¹ b, and ‖b‖² (T⁻¹)₁₁ is what the steps have found of it.
    """
    basis = [b / np.linalg.norm(b)]
    below = []
    for _ in range(steps):
        following = Q @ basis[-1]
        for _ in range(2):
            for vector in basis:
                following = following - (vector @ following) * vector
        below.append(float(np.linalg.norm(following)))
        basis.append(following / below[-1])
    V = np.array(basis[:steps])
    T = V @ Q @ V.T
    last = np.zeros(steps)
    last[-1] = below[-1]
    corner = mu + below[-1] * np.linalg.solve(T - mu * np.eye(steps), last)[-1]
    wider = np.block([[T, last[:, None]], [last, np.array([[corner]])]])
    found = np.linalg.inv(T)[0, 0]
    return float((b @ b) * (np.linalg.inv(wider)[0, 0] - found))


def test_the_bound_of_the_error_is_that_of_gauss_and_radau() -> None:
    rng = np.random.default_rng(0)
    eigenvalues = np.linspace(0.5, 9.0, 20)
    rotation = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    Q = (rotation * eigenvalues) @ rotation.T
    b = rng.standard_normal(20)
    exact = np.linalg.solve(Q, b)
    for steps in range(1, 9):
        solution = conjugate_gradients(
            lambda x: Q @ x,
            np.copy,
            b,
            start=None,
            is_enough=lambda squared, gained: False,
            smallest=eigenvalues[0],
            most=steps,
        )
        bound = radau_bound(Q, b, steps, CAUTION * eigenvalues[0])
        assert solution.error**2 == pytest.approx(bound, rel=1e-6)
        away = exact - solution.x
        assert solution.error**2 >= away @ Q @ away
        assert solution.gained == pytest.approx(b @ solution.x)
        assert solution.smallest == eigenvalues[0]


def test_before_anything_is_measured_no_error_is_small() -> None:
    solution = conjugate_gradients(
        np.copy,
        np.copy,
        np.ones(3),
        start=None,
        is_enough=lambda squared, gained: squared < 1e9,
        smallest=np.inf,
        most=0,
    )
    assert solution.error == np.inf
    assert not solution.converged


def test_too_few_steps_are_not_enough() -> None:
    matrix = diags_array(np.linspace(1.0, 1e4, 200)).tocsr()
    solution = conjugate_gradients(
        lambda x: np.asarray(matrix @ x),
        lambda r: r,
        np.ones(200),
        start=None,
        is_enough=lambda squared, _: squared < 1e-20,
        smallest=np.inf,
        most=5,
    )
    assert not solution.converged
    assert solution.steps == 5


def test_a_solve_that_does_not_converge_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, sparse = both(random_log(16, 20))
    trip = random_trip(np.random.default_rng(0))
    expected = sparse.judge(trip)
    keys = some_keys()
    before = sparse.mean_of(keys)
    with monkeypatch.context() as patch:
        patch.setattr("superarm.roads.posterior.preconditioned.MOST_STEPS", 1)
        with pytest.warns(PrecisionWarning, match="stopped after 1 steps"):
            sparse.expect(trip)
        patch.setattr("superarm.roads.posterior.preconditioned.MOST_STEPS", 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(PrecisionWarning):
                sparse.absorb(trip, expected)
        # Nothing was learned.
        assert sparse.log.view().number == 20
        np.testing.assert_array_equal(sparse.mean_of(keys), before)
        patch.setattr("superarm.roads.posterior.sparse_engine._PENDING_SHARE", 1.0)
        sparse.absorb(trip, expected)
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with pytest.raises(PrecisionWarning):
                    sparse.mean_of(keys)
    # The trip waits for a solve that succeeds.
    dense.absorb(trip)
    assert_same(dense, sparse, keys)


def test_trips_that_wait_for_a_solve_are_judged_nearly_as_after_it() -> None:
    trips = random_log(17, 408)
    dense, sparse = both(trips.between(0, 400))
    for number in range(400, 404):
        trip = trips.one(number)
        exact = dense.expect(trip)
        judged = sparse.judge(trip)
        std = np.sqrt(np.diagonal(exact.total_cov))
        # Each trip is predicted by M, whose error is a part of what a trip changes.
        assert (np.abs(judged.mean - exact.mean) <= 0.1 * std).all()
        dense.absorb(trip)
        sparse.absorb(trip, judged)
    assert sparse._pending == 4
    assert_same(dense, sparse, some_keys())
    assert sparse._pending == 0


def test_unknowns_are_flattened_and_back() -> None:
    x = Unknowns(np.arange(4.0), np.arange(4.0) + 10, np.ones(5), np.full((2, 5), 3.0))
    other = Unknowns.from_flat(x.flat(), 4)
    for one, two in zip(x, other, strict=True):
        np.testing.assert_array_equal(one, two)


# --- sparse factors ----------------------------------------------------------------------------


def test_a_factor_has_parts_of_the_inverse() -> None:
    precision = KERNEL.precision()
    factor = SparseFactor(precision)
    inverse = np.linalg.inv(precision.toarray())
    np.testing.assert_allclose(factor.diagonal, np.diagonal(inverse), rtol=1e-9)
    nodes = np.random.default_rng(0).choice(ROADS, 30, replace=False)
    block = factor.gram(nodes, np.eye(len(nodes)))
    np.testing.assert_allclose(block, inverse[np.ix_(nodes, nodes)], atol=1e-9)
    log_det = np.linalg.slogdet(precision.toarray()).logabsdet
    assert factor.log_det == pytest.approx(log_det)
    assert KERNEL.log_det_precision() == pytest.approx(log_det)


@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
def test_an_incomplete_factor_is_nearly_exact() -> None:
    precision = KERNEL.precision()
    exact = SparseFactor(precision)
    rng = np.random.default_rng(0)
    right = rng.standard_normal(ROADS)
    nodes = rng.choice(ROADS, 30, replace=False)
    weights = rng.standard_normal((30, 4))
    solution = exact.solve(right)
    gram = exact.gram(nodes, weights)
    # Without dropping both are the same to rounding; with it, to about as much as is dropped.
    for drop, error in ((0.0, 1e-10), (3e-4, 0.01)):
        incomplete = IncompleteFactor(precision, drop)
        away = incomplete.solve(right) - solution
        norm = np.sqrt(away @ (precision @ away))
        assert norm <= error * np.sqrt(solution @ (precision @ solution))
        stds = np.sqrt(np.diagonal(gram))
        most = error * np.outer(stds, stds)
        assert (np.abs(incomplete.gram(nodes, weights) - gram) <= most).all()
        assert incomplete.log_det == pytest.approx(exact.log_det)
        np.testing.assert_allclose(incomplete.diagonal, exact.diagonal)


def test_a_precision_is_the_inverse_of_the_kernel() -> None:
    for normalisation in ("mean", "unit", "raw"):
        kernel = GraphMatern(
            GRAPH.turn_graph, nu=2, kappa=3.0, variance=2.0, normalisation=normalisation
        )
        nodes = np.arange(ROADS)[:, None].astype(np.float64)
        product = kernel.precision() @ kernel(nodes)
        np.testing.assert_allclose(product, np.eye(ROADS), atol=1e-8)
        log_det = np.linalg.slogdet(kernel(nodes)).logabsdet
        assert kernel.log_det_precision() == pytest.approx(-log_det)


def test_an_indefinite_matrix_has_no_factor() -> None:
    from superarm.core.errors import NotPositiveDefiniteError

    matrix = csr_array(np.array([[1.0, 2.0], [2.0, 1.0]]))
    for factor in (SparseFactor, IncompleteFactor):
        with pytest.raises(NotPositiveDefiniteError, match="positive definite"):
            factor(matrix)


# --- RoadGP ------------------------------------------------------------------------------------


def fleet_gp(form: Any, **options: Any) -> RoadGP:
    return RoadGP(KERNEL, SIZES, form=form, **options)


@pytest.mark.parametrize("refit", [0, 8])
def test_a_posterior_learns_the_same_in_both_forms(refit: int) -> None:
    dense = fleet_gp("dense", refit=refit)
    sparse = fleet_gp("sparse", refit=refit)
    rng = np.random.default_rng(0)
    for number in range(10):
        trip = random_trip(rng, ("edges", "total")[number % 2])
        if number == 5:
            # An outlier, which both weigh.
            trip.rewards[0] += 300.0
        dense.observe_trips(trip)
        sparse.observe_trips(trip)
    assert (dense.form, sparse.form) == ("dense", "sparse")
    assert (dense.tolerance, sparse.tolerance) == (0.0, 0.01)
    assert dense.outlying == sparse.outlying == 1
    keys = some_keys(count=12)
    exact = dense.predict(keys, return_std=True)
    answer = sparse.predict(keys, return_std=True)
    assert exact.std is not None
    assert answer.std is not None
    assert (np.abs(answer.mean - exact.mean) <= 0.02 * exact.std).all()
    np.testing.assert_allclose(answer.std, exact.std, rtol=0.01)
    for one, other in zip(dense.total(keys), sparse.total(keys), strict=True):
        assert one == pytest.approx(other, rel=0.01)


def test_a_sparse_posterior_resumes_from_its_state() -> None:
    gp = fleet_gp("sparse", refit=0)
    gp.observe_trips(random_log(20, 30))
    again = RoadGP.from_state(restored(gp.state()))
    keys = some_keys()
    assert again.form == "sparse"
    np.testing.assert_array_equal(again.predict(keys).mean, gp.predict(keys).mean)
    trip = random_trip(np.random.default_rng(1))
    gp.observe_trips(trip)
    again.observe_trips(trip)
    # Both solve to the tolerance, from preconditioners of different ages.
    std = gp.predict(keys, return_std=True).std
    assert std is not None
    away = np.abs(again.predict(keys).mean - gp.predict(keys).mean)
    assert (away <= 2.0 * TOLERANCE * std).all()


def test_the_form_becomes_sparse_with_many_roads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("superarm.roads.posterior.forms.DENSE_LARGEST", 20)
    gp = fleet_gp("auto", refit=4)
    rng = np.random.default_rng(0)
    forms = []
    for _ in range(8):
        gp.observe_trips(random_trip(rng))
        forms.append(gp.form)
    assert forms == ["dense"] * 3 + ["sparse"] * 5
    at_once = fleet_gp("auto", refit=0)
    at_once.observe_trips(random_log(1, 250, ("edges",)))
    assert at_once.form == "sparse"
    assert fleet_gp("auto").form == "dense"


@pytest.mark.parametrize(("functions", "most"), [(1, 6000), (9, 666)])
def test_the_dense_form_is_used_up_to_its_largest_size(
    functions: int, most: int
) -> None:
    factory = EngineFactory(
        kernel=KERNEL,
        sizes=SIZES,
        functions=functions,
        choice="auto",
        tolerance=TOLERANCE,
    )
    assert factory.form_for(most) == "dense"
    assert factory.form_for(most + 1) == "sparse"


def test_a_log_of_many_roads_is_learned_in_the_sparse_form_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("superarm.roads.posterior.forms.DENSE_LARGEST", 20)
    factory = EngineFactory(
        kernel=KERNEL,
        sizes=SIZES,
        functions=1,
        choice="auto",
        tolerance=TOLERANCE,
        half_life=8.0,
    )
    few, many = random_trip(np.random.default_rng(0)), random_log(1, 30)
    engine = factory.with_all(factory.new(SCALES), few)
    assert form_of(engine) == "dense"
    engine = factory.with_all(engine, many)
    assert form_of(engine) == "sparse"
    age = engine.log.as_learned().age
    assert age is not None
    assert age.max() == 30 / 8.0  # of the first of 31 trips
    trips = engine.log.view()
    dense = RoadEngine.from_trips(KERNEL, SIZES, SCALES, trips, half_life=8.0)
    assert_same(dense, engine, some_keys())
    # So is one that is computed anew, under the scales that are asked for.
    others = RoadScales(near=1.0, own=3.0)
    again = factory.rebuilt(dense, others)
    assert form_of(again) == "sparse"
    assert again.scales == others
    dense = RoadEngine.from_trips(KERNEL, SIZES, others, trips, half_life=8.0)
    assert_same(dense, again, some_keys())


def test_long_logs_are_fitted_less_often_in_the_sparse_form() -> None:
    for trips, between in ((8, 8), (255, 8), (256, 16), (511, 16), (8192, 512)):
        assert trips_between_fits(trips, 8, "dense") == 8
        assert trips_between_fits(trips, 8, "sparse") == between


def test_forms_and_tolerances_are_checked() -> None:
    with pytest.raises(InputError, match="form"):
        fleet_gp("banded")
    with pytest.raises(InputError, match="tolerance"):
        fleet_gp("sparse", tolerance=0.5)


def test_routes_have_the_same_energies_and_intervals(tmp_path: Path) -> None:
    fleet = Fleet(seed=0, horizon=20, edges=250, trips=4, most_metres=2000.0)
    graph = fleet.graph
    log = [logged_trip(fleet, step) for step in range(1, 11)]
    routes = []
    for form in ("dense", "sparse"):
        lesson = learn_trips(graph, log, refit=0, form=form)
        assert lesson.posterior.form == form
        path = tmp_path / f"{form}.npz"
        lesson.policy.save(path)
        router = Router(graph.network, state=path)
        ids = log[0].sections[0].edges[0], log[0].sections[-1].edges[-1]
        routes.append(router.route(*ids).as_json())
    dense, sparse = routes
    assert dense["edges"] == sparse["edges"]
    for end in ("energy_low_wh", "energy_high_wh"):
        # Forecasts made along the way set the widths, and are a per cent apart in either form.
        assert dense[end] == pytest.approx(sparse[end], rel=0.02)


def logged_trip(fleet: Fleet, step: int) -> LoggedTrip:
    """A trip of a fleet, edge by edge."""
    route = fleet.informed_route(fleet.offer(step))
    energies = fleet.energies(step, route)
    sections = tuple(
        TripSection((fleet.graph.ids[edge],), energy)
        for edge, energy in zip(route, energies, strict=True)
    )
    vehicle = str(fleet.journey(step).vehicle)
    return LoggedTrip(name=str(step), vehicle=vehicle, sections=sections)
