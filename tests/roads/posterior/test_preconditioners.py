"""What the preconditioner M of both sparse forms contains, against products with its inverse.

Factors are exact here, unless a test is about how they are made, so that both sides of a comparison differ
by rounding alone: some thousand roundings, far below ``ROUNDING``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from road_logs import (
    BACKENDS,
    KERNEL,
    ROWS,
    SIZES,
    TOLERANCE,
    assert_same,
    random_log,
    some_keys,
)

from superarm.core import Floats
from superarm.core.compiling import Backend
from superarm.roads.energy import HourlyScales, RoadScales
from superarm.roads.posterior import (
    RoadGP,
    Trips,
    hourly_equations,
    mixed_equations,
)
from superarm.roads.posterior.engine import RoadEngine
from superarm.roads.posterior.hourly_engine import HourlyEngine
from superarm.roads.posterior.hourly_sparse_engine import HourlySparseEngine
from superarm.roads.posterior.near_factor import NearFactor, near_factor
from superarm.roads.posterior.sparse_engine import SparseRoadEngine
from superarm.roads.rows import Column, with_hours
from superarm.testing import restored

ROUNDING = 1e-7
FORMS = ["plain", "hours"]


def new_engine(form: str, backend: Backend = "numpy") -> SparseRoadEngine:
    if form == "hours":
        scales = HourlyScales(near=0.8, near_hour=0.6, harmonics=1)
        return HourlySparseEngine(KERNEL, SIZES, scales, TOLERANCE, backend)
    return SparseRoadEngine(KERNEL, SIZES, RoadScales(), TOLERANCE, backend)


def in_form(form: str, keys: Floats) -> Floats:
    """Keys with an hour where the form has hours."""
    if form == "plain":
        return keys
    hours = np.random.default_rng(len(keys)).uniform(0.0, 24.0, len(keys))
    return with_hours(keys, hours)


def log_of(form: str, seed: int, trips: int) -> Trips:
    log = random_log(seed, trips, ("edges",))
    return log._replace(keys=in_form(form, log.keys))


def trip_by(form: str, vehicle: int, roads: int = 5) -> Trips:
    """A trip of one vehicle over the first roads."""
    keys = ROWS[:roads].copy()
    keys[:, Column.VEHICLE] = vehicle
    return Trips.of_one(in_form(form, keys), None, keys[:, Column.EXPECTED] + 1.0)


def inverse_between(engine: SparseRoadEngine, keys: Floats) -> Floats:
    """X M⁻¹ Xᵀ, column by column."""
    arms = Trips.of_one(keys)
    weights = [engine._gathered(arms, unit) for unit in np.eye(len(keys))]
    X = np.array(weights)
    solved = [engine._equations.precondition(row) for row in X]
    return np.asarray(X @ np.array(solved).T)


def soft_modes_of(engine: SparseRoadEngine) -> int:
    equations: Any = engine._equations
    equations.prepare()
    return len(equations._modes.weights)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("vehicle", [None, 3, 7])
def test_what_m_contains_is_the_product_with_its_inverse(
    form: str, vehicle: int | None
) -> None:
    """Also of vehicles that came after the soft modes were found, and of those that never drove."""
    engine = new_engine(form).with_all(log_of(form, 1, 60))
    assert soft_modes_of(engine) > 0
    if vehicle is not None:
        engine._add(trip_by(form, vehicle))
    assert soft_modes_of(engine) > 0
    keys = some_keys(2, 30)  # of vehicles from 0 to 3
    if vehicle is not None:
        keys[::5, Column.VEHICLE] = vehicle
    keys = in_form(form, keys)
    exact = inverse_between(engine, keys)
    std = np.sqrt(np.diagonal(exact))
    most = ROUNDING * np.outer(std, std)
    equations = engine._equations
    cov = equations.approximate_cov(engine._sums_of(Trips.of_one(keys)))
    assert (np.abs(cov - exact) <= most).all()
    variances = equations.approximate_variances(engine._arms(keys))
    assert (np.abs(variances - std**2) <= np.diagonal(most)).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_asked_for", [False, True])
def test_m_made_anew_is_that_of_new_equations(form: str, is_asked_for: bool) -> None:
    """Nothing of the older M remains: neither soft modes nor what was measured."""
    trips = log_of(form, 1, 60)
    begin = 59 if is_asked_for else 12  # one trip changes too little by itself
    earlier, later = trips.between(0, begin), trips.between(begin, 60)
    engine, fresh = new_engine(form), new_engine(form)
    engine._add(earlier)
    assert soft_modes_of(engine) > 0
    engine._add(later)
    if is_asked_for:
        engine._equations.refresh()
    fresh._add(earlier)
    fresh._add(later)
    for one in (engine, fresh):
        assert soft_modes_of(one) > 0
    keys = in_form(form, some_keys(3, 30))
    ours, theirs = engine._equations, fresh._equations
    np.testing.assert_allclose(
        ours.approximate_variances(engine._arms(keys)),
        theirs.approximate_variances(fresh._arms(keys)),
        rtol=ROUNDING,
    )
    assert ours.information() == pytest.approx(theirs.information(), rel=ROUNDING)
    assert ours.most_variance_error == pytest.approx(
        theirs.most_variance_error, rel=ROUNDING
    )


@pytest.mark.parametrize("form", FORMS)
def test_information_is_that_of_the_determinants(form: str) -> None:
    engine = new_engine(form)
    engine._add(log_of(form, 1, 60))
    equations: Any = engine._equations
    assert soft_modes_of(engine) > 0
    units = np.eye(equations.size)
    inverse = np.array([equations.precondition(unit) for unit in units])
    prior = np.array(
        [equations.prior_times(engine._unknowns(unit)).flat() for unit in units]
    )
    exact = -0.5 * (
        np.linalg.slogdet(inverse).logabsdet + np.linalg.slogdet(prior).logabsdet
    )
    # Soft modes are orthogonal to 1e-6 or better.
    assert equations.information() == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_copies_are_factorised_apart(form: str, backend: Backend) -> None:
    """Before anything is factorised, a copy has no factor that it could share."""
    engines = [new_engine(form, backend) for _ in range(2)]
    for engine in engines:
        engine._add(log_of(form, 1, 40))
    engine, fresh = engines
    engine._equations.copy().prepare()
    edges = np.arange(10)
    np.testing.assert_array_equal(
        engine._equations.near_draws(edges, 4), fresh._equations.near_draws(edges, 4)
    )
    assert engine._equations.most_variance_error == fresh._equations.most_variance_error


@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
@pytest.mark.parametrize("form", FORMS)
def test_bounds_of_errors_include_what_a_factor_may_be_off(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variance may be off by 1/θ, less 1: twice as much where θ of the factor is half as large."""

    def bound() -> float:
        engine = new_engine(form, "numba")
        engine._add(log_of(form, 1, 40))
        return 1.0 + engine._equations.most_variance_error

    usual = bound()

    def half_as_good(*arguments: Any) -> NearFactor:
        made = near_factor(*arguments)
        return made._replace(smallest=0.5 * made.smallest)

    for module in (mixed_equations, hourly_equations):
        monkeypatch.setattr(module, "near_factor", half_as_good)
    assert bound() == pytest.approx(2.0 * usual)


def test_draws_of_what_neighbours_share_have_the_covariance_of_m() -> None:
    """With so much in common that trips contain more about it than its prior."""
    draws = 400
    edges = np.arange(12)
    much = {"near": 10.0, "own": 0.5}
    plain = SparseRoadEngine(KERNEL, SIZES, RoadScales(**much), backend="numpy")
    scales = HourlyScales(**much, near_hour=10.0, own_hour=0.5, harmonics=2)
    hours = HourlySparseEngine(KERNEL, SIZES, scales, backend="numpy")
    for form, engine in (("plain", plain), ("hours", hours)):
        engine._add(log_of(form, 1, 120))
        equations: Any = engine._equations
        drawn = equations.near_draws(edges, draws)
        if form == "plain":
            factors, columns = [equations._factor], drawn[None]
        else:
            factors, columns = equations._near_inverse.factors, drawn
        for factor, column in zip(factors, columns, strict=True):
            exact = factor.gram(edges, np.eye(len(edges)))
            # Whitened draws: each mean square is 1, with a standard deviation of √(2/draws).
            whitened = np.linalg.solve(np.linalg.cholesky(exact), column)
            # Of all of them together, it has one of √(2/(draws · roads)).
            squares = np.mean(np.square(whitened), axis=1)
            assert np.abs(squares - 1.0).max() <= 5.0 * np.sqrt(2.0 / draws)
            assert abs(squares.mean() - 1.0) <= 4.0 * np.sqrt(2.0 / whitened.size)


@pytest.mark.parametrize("form", FORMS)
def test_vehicles_of_other_masses_are_learned_as_by_the_dense_form(form: str) -> None:
    """What a road does to all vehicles grows with their mass."""
    log = log_of(form, 1, 30)
    keys = in_form(form, some_keys(2, 30))
    for rows in (log.keys, keys):
        rows[:, Column.MASS_RATIO] = 1.0 + 0.5 * rows[:, Column.VEHICLE]
    sparse = new_engine(form).with_all(log)
    dense_type = RoadEngine if form == "plain" else HourlyEngine
    dense = dense_type.from_trips(KERNEL, SIZES, sparse.scales, log)
    assert_same(dense, sparse, keys)


def test_variances_of_all_roads_follow_later_trips() -> None:
    log = log_of("plain", 1, 30)
    dense = RoadEngine.from_trips(KERNEL, SIZES, RoadScales(), log)
    sparse = new_engine("plain").with_all(log)
    trip = trip_by("plain", 1, roads=20)
    for _ in range(2):
        ratios = np.sqrt(sparse.variances() / dense.variances())
        assert np.abs(ratios - 1.0).max() <= TOLERANCE
        dense.absorb(trip)
        sparse.absorb(trip)


def test_a_restored_posterior_draws_from_the_same_random_numbers() -> None:
    """Which belong to roads and vehicles in the order in which they came."""
    gp = RoadGP(KERNEL, SIZES, form="sparse", refit=0)
    for vehicle in (2, 0, 1):
        keys = trip_by("plain", vehicle).keys
        gp.observe_trips(Trips.of_one(keys, None, keys[:, Column.EXPECTED]))
    again = RoadGP.from_state(restored(gp.state()))
    keys = some_keys(4, 20)
    std = np.sqrt(gp._engine.variance_of(keys))
    for seed in range(3):
        drawn = gp._engine.draw(keys, np.random.default_rng(seed))
        repeated = again._engine.draw(keys, np.random.default_rng(seed))
        # Both solve to the tolerance.
        assert (np.abs(repeated - drawn) <= 2.0 * TOLERANCE * std).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("later_trips", "asks_for_variances"), [(12, False), (2, True)]
)
def test_soft_modes_are_found_again_once_trips_contain_more(
    form: str, later_trips: int, asks_for_variances: bool
) -> None:
    """A direction that few trips left wide is narrow after many, also where no road is new."""

    def trips(count: int) -> Trips:
        vehicles = [number % 2 for number in range(count)]
        return Trips.joined([trip_by(form, vehicle, 40) for vehicle in vehicles])

    engine, fresh = new_engine(form), new_engine(form)
    engine._add(trips(10))
    assert soft_modes_of(engine) > 0
    engine._add(trips(later_trips))
    fresh._add(trips(10 + later_trips))
    keys = in_form(form, ROWS[fresh._visited])
    if asks_for_variances:
        engine._equations.refresh_for_variances()
    np.testing.assert_allclose(
        engine._equations.approximate_variances(engine._arms(keys)),
        fresh._equations.approximate_variances(fresh._arms(keys)),
        rtol=ROUNDING,
    )
