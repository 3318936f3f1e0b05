"""The preconditioner of the sparse form: its factor, and its correction where it is far off."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from superarm.core import Floats
from superarm.kernels import GraphMatern
from superarm.kernels.incomplete_factor import DROP
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.networks import generate_city
from superarm.roads.posterior import Trips
from superarm.roads.posterior.log import Log
from superarm.roads.posterior.mixed_equations import MixedEquations
from superarm.roads.posterior.near_factor import near_factor
from superarm.roads.posterior.soft_modes import find_soft
from superarm.roads.problems.fleet_model import near_kernel, road_rows, road_sizes
from superarm.roads.rows import Column

GRAPH = generate_city(edges=250, seed=1).line_graph()
ROADS = len(GRAPH)
KERNEL = near_kernel(GRAPH)
VEHICLES = 3


def log_of(trips: int, seed: int = 0) -> Trips:
    """Trips of a few vehicles over random roads, edge by edge."""
    rng = np.random.default_rng(seed)
    rows = road_rows(GRAPH, Vehicle(), 0)
    log = Log(9)
    for number in range(trips):
        keys = rows[rng.integers(0, ROADS, 12)].copy()
        keys[:, Column.VEHICLE] = number % VEHICLES
        rewards = keys[:, Column.EXPECTED] + rng.standard_normal(12)
        log.append(Trips.of_one(keys, None, rewards))
    return log.view()


def equations_of(trips: Trips) -> MixedEquations:
    equations = MixedEquations(KERNEL, road_sizes(GRAPH), RoadScales())
    drivers = trips.keys[:, Column.VEHICLE].astype(np.intp)
    equations.append(trips, drivers, VEHICLES)
    return equations


def matrices_of(equations: MixedEquations) -> tuple[Floats, Floats]:
    """Q and the inverse of M."""
    units = np.eye(equations.size)
    Q = np.array([equations.times(unit) for unit in units])
    equations.prepare()
    inverse = np.array([equations.precondition(unit) for unit in units])
    return Q, inverse


@pytest.mark.parametrize("later", [0, 5])
def test_no_eigenvalue_is_far_below_those_that_were_measured(later: int) -> None:
    equations = equations_of(log_of(60))
    equations.prepare()
    trips = log_of(later, seed=1)
    if later:  # M follows them, but for the factor and the soft modes
        drivers = trips.keys[:, Column.VEHICLE].astype(np.intp)
        equations.append(trips, drivers, VEHICLES)
    Q, inverse = matrices_of(equations)
    modes = equations._modes
    assert len(modes) > 0
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-10 * np.abs(inverse).max())
    assert np.linalg.eigvalsh(inverse).min() > 0.0
    eigenvalues = np.linalg.eigvals(inverse @ Q).real
    if later:
        assert eigenvalues.min() >= 0.3
    else:
        assert eigenvalues.min() >= 0.45
        assert equations._smallest <= 1.05 * eigenvalues.min()


def test_soft_modes_are_the_same_wherever_they_are_read() -> None:
    equations = equations_of(log_of(60))
    equations.prepare()
    modes = equations._modes
    n = ROADS
    size = equations.size
    vectors = np.array(
        [modes.along(unit[:n], unit[n : 2 * n], unit[2 * n :]) for unit in np.eye(size)]
    ).T  # (k, size)
    edges = np.random.default_rng(0).permutation(n)[:40]
    np.testing.assert_allclose(modes.f_at(edges), vectors[:, edges], atol=1e-12)
    amounts = np.arange(1.0, len(modes) + 1.0)
    added = np.zeros(size)
    modes.add(amounts, added[:n], added[n : 2 * n], added[2 * n :])
    np.testing.assert_allclose(added, amounts @ vectors, atol=1e-12)
    # Each is an eigenvector of the blocks of M, but for what the factor dropped.
    for weight, vector in zip(modes.weights, vectors, strict=True):
        product = equations._inverse_blocks(equations.times(vector))
        theta = 1.0 / (1.0 + weight)
        away = product - theta * vector
        norm = np.sqrt(vector @ equations.times(vector) / theta)
        assert np.sqrt(away @ equations.times(away)) <= 0.05 * norm


@pytest.mark.parametrize(
    ("soft", "least", "largest", "count"),
    [
        ([0.05, 0.2], 0.6, 3.0, 50),
        ([], 0.6, 3.0, 50),
        # After 100 steps, the lowest of the others have not been found.
        ([0.01], 0.55, 100.0, 3000),
    ],
)
def test_soft_directions_of_a_known_spectrum_are_found(
    soft: list[float], least: float, largest: float, count: int
) -> None:
    """What is called the smallest of all others is at most that, but for rounding."""
    eigenvalues = np.concatenate([soft, np.linspace(least, largest, count)])

    def difference(values: Floats) -> Floats:
        return (eigenvalues - 1.0) * values

    found = find_soft(difference, np.copy, len(eigenvalues))
    np.testing.assert_allclose(found.values, soft, rtol=0.01)
    products = found.duals @ found.duals.T
    np.testing.assert_allclose(products, np.eye(len(soft)), atol=1e-9)
    assert 0.0 < found.smallest <= least * (1.0 + 1e-9)
    assert found.smallest >= min(least, 0.5)


@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
def test_less_is_dropped_where_roads_have_more_in_common() -> None:
    shift = np.zeros(ROADS)
    usual = near_factor(KERNEL, 1.0, shift, DROP, 0.1)
    assert usual.drop == DROP
    assert 0.9 <= usual.smallest <= 1.0
    smooth = GraphMatern(GRAPH.turn_graph, nu=4, kappa=30.0)
    finer = near_factor(smooth, 1.0, shift, DROP, 0.1)
    assert finer.drop < DROP
    assert 0.9 <= finer.smallest <= 1.0
