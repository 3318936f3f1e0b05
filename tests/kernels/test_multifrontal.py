"""Sparse Cholesky factors by fronts, with and without their small entries."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, eye_array, random_array

from superarm.core import Floats
from superarm.core.errors import NotPositiveDefiniteError
from superarm.kernels import GraphMatern, elimination, multifrontal
from superarm.kernels.elimination import plan_elimination
from superarm.kernels.incomplete_factor import IncompleteFactor
from superarm.kernels.multifrontal import eliminate
from superarm.roads.networks import generate_city

pytestmark = pytest.mark.skipif(
    find_spec("numba") is None, reason="numba is not installed"
)


def random_matrix(n: int, density: float, seed: int) -> Any:
    """A sparse positive definite matrix with entries of both signs."""
    rng = np.random.default_rng(seed)
    root = random_array((n, n), density=min(density / n, 1.0), rng=rng)
    root.data = rng.standard_normal(len(root.data))
    return (root @ root.T + 0.5 * eye_array(n)).tocsc()


def lower_of(factor: Any, n: int) -> Floats:
    """L without its diagonal, (n, n)."""
    entries = (factor.values, factor.rows, factor.starts)
    return csc_array(entries, shape=(n, n)).toarray()


@given(
    n=st.integers(1, 80),
    density=st.floats(0.0, 3.0),
    seed=st.integers(0, 1000),
    is_ordered=st.booleans(),
)
@settings(max_examples=60)
def test_a_factor_is_that_of_the_dense_matrix(
    n: int, density: float, seed: int, is_ordered: bool
) -> None:
    matrix = random_matrix(n, density, seed)
    rng = np.random.default_rng(seed)
    shift = rng.uniform(0.0, 2.0, n)
    plan = plan_elimination(matrix, rng.permutation(n) if is_ordered else None)
    factor = eliminate(matrix, plan, 0.0, 3.0, shift)
    order = plan.order
    sorted_matrix = (3.0 * matrix.toarray() + np.diag(shift))[np.ix_(order, order)]
    C = np.linalg.cholesky(sorted_matrix)
    L = C / np.diagonal(C)
    np.testing.assert_allclose(factor.pivots, np.square(np.diagonal(C)), rtol=1e-9)
    np.testing.assert_allclose(lower_of(factor, n), np.tril(L, -1), atol=1e-9)


@pytest.mark.parametrize("chunk", [1, 100, 1_000_000])
def test_small_entries_are_dropped_and_others_are_exact(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multifrontal, "_CHUNK", chunk)
    n, drop = 120, 0.05
    matrix = random_matrix(n, 4.0, 0)
    plan = plan_elimination(matrix)
    factor = eliminate(matrix, plan, drop, 1.0, np.zeros(n))
    sorted_matrix = matrix.toarray()[np.ix_(plan.order, plan.order)]
    C = np.linalg.cholesky(sorted_matrix)
    size = np.abs(C) / np.sqrt(np.diagonal(sorted_matrix))[:, None]
    L = np.tril(C / np.diagonal(C), -1)
    expected = np.where(size >= drop, L, 0.0)
    assert 0 < np.count_nonzero(expected) < 0.8 * np.count_nonzero(np.abs(L) > 1e-12)
    np.testing.assert_allclose(lower_of(factor, n), expected, atol=1e-12)


def test_plans_with_and_without_a_factor_have_the_same_fronts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = generate_city(edges=400, seed=1).line_graph().turn_graph
    matrix = (graph.laplacian() + 2.0 * eye_array(len(graph))).tocsc()
    compiled = plan_elimination(matrix, graph.elimination_order)
    monkeypatch.setattr(elimination, "is_compiled", lambda backend: False)
    plain = plan_elimination(matrix, graph.elimination_order)
    np.testing.assert_array_equal(compiled.order, plain.order)
    assert len(compiled.fronts) == len(plain.fronts)
    for one, other in zip(compiled.fronts, plain.fronts, strict=True):
        assert one[:2] == other[:2]
        assert one.parent == other.parent
        np.testing.assert_array_equal(one.rows, other.rows)


def test_a_matrix_that_is_not_positive_is_refused() -> None:
    matrix = csc_array(np.array([[1.0, 0.2, 0.9], [0.2, 1.0, 0.9], [0.9, 0.9, 1.0]]))
    with pytest.raises(NotPositiveDefiniteError, match="must be positive definite"):
        IncompleteFactor(matrix)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_is_refused(value: float) -> None:
    matrix = csc_array(np.array([[1.0, 0.5], [0.5, value]]))
    with pytest.raises(NotPositiveDefiniteError, match="holds NaN or infinity"):
        IncompleteFactor(matrix)


@pytest.mark.parametrize("normalisation", ["mean", "unit", "raw"])
@pytest.mark.parametrize("nu", [1, 2, 3])
def test_factors_of_a_graphs_precision_are_nearly_exact(
    nu: int, normalisation: Any
) -> None:
    graph = generate_city(edges=300, seed=1).line_graph()
    kernel = GraphMatern(graph, nu=nu, variance=2.0, normalisation=normalisation)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((len(graph), 2))
    precision = kernel.precision()
    product = precision @ values
    np.testing.assert_allclose(
        kernel.precision_times(values), product, rtol=1e-9, atol=1e-9
    )
    shift = rng.uniform(0.0, 3.0, len(graph))
    matrix = 0.5 * precision.toarray() + np.diag(shift)
    factor = kernel.precision_factor(0.5, shift, 0.0)
    solution = np.linalg.solve(matrix, values[:, 0])
    np.testing.assert_allclose(factor.solve(values[:, 0]), solution, atol=1e-9)
    np.testing.assert_allclose(factor.diagonal, np.diagonal(np.linalg.inv(matrix)))
    assert factor.log_det == pytest.approx(np.linalg.slogdet(matrix).logabsdet)


@pytest.mark.parametrize("drop", [0.0, 3e-4])
def test_pickled_factors_are_of_the_same_matrix(drop: float) -> None:
    graph = generate_city(edges=200, seed=1).line_graph()
    rng = np.random.default_rng(0)
    shift = rng.uniform(0.0, 3.0, len(graph))
    factor = GraphMatern(graph).precision_factor(0.5, shift, drop)
    same = pickle.loads(pickle.dumps(factor))
    right = rng.standard_normal(len(graph))
    np.testing.assert_array_equal(same.solve(right), factor.solve(right))
    np.testing.assert_array_equal(same.diagonal, factor.diagonal)
    assert same.log_det == factor.log_det


@pytest.mark.parametrize("drop", [0.0, 3e-4])
def test_solves_among_a_few_nodes_and_for_many_right_hand_sides(drop: float) -> None:
    graph = generate_city(edges=300, seed=1).line_graph()
    n = len(graph)
    rng = np.random.default_rng(0)
    factor = GraphMatern(graph).precision_factor(1.0, np.zeros(n), drop)
    right = rng.standard_normal((n, 3))
    together = factor.solve(right)
    for column, solution in zip(right.T, together.T, strict=True):
        np.testing.assert_allclose(factor.solve(column), solution, atol=1e-12)
    nodes = rng.permutation(n)[:20]
    solve_at = factor.among(nodes)
    for _ in range(2):  # nothing is left over from one to the next
        values = rng.standard_normal(20)
        everywhere = np.zeros(n)
        everywhere[nodes] = values
        expected = factor.solve(everywhere)[nodes]
        np.testing.assert_allclose(solve_at(values), expected, atol=1e-12)
