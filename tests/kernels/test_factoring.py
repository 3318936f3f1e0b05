"""A common factor of a sum of kernels: the same function, evaluated once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array

from superarm.kernels import (
    Constant,
    GraphMatern,
    Kernel,
    Linear,
    Matern,
    Product,
    SquaredExponential,
)
from superarm.kernels.factoring import with_common_factor

NODES = 6
FEATURES = (1, 2)


def graph_kernel() -> GraphMatern:
    path = np.diag([1.0, 2.0, 2.0, 2.0, 2.0, 1.0])
    path -= np.eye(NODES, k=1) + np.eye(NODES, k=-1)
    return GraphMatern(csc_array(path), nu=2, variance=0.7)


def matern(variance: float = 1.0, lengthscale: float = 0.8, nu: float = 2.5) -> Matern:
    return Matern(nu=nu, lengthscale=lengthscale, variance=variance, columns=FEATURES)


def rows(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    nodes = rng.integers(0, NODES, count)
    return np.column_stack([nodes, rng.random((count, 2))])


def roads() -> Kernel:
    return graph_kernel() * matern() + matern(0.3)


@pytest.mark.parametrize(
    "kernel",
    [
        roads(),
        matern(0.3) + graph_kernel() * matern(2.0),
        Constant(variance=0.2) * matern(0.5) * graph_kernel() + matern(0.3) + matern(),
    ],
    ids=["roads", "scaled", "three parts"],
)
def test_it_is_the_same_function(kernel: Kernel) -> None:
    factored = with_common_factor(kernel)
    assert isinstance(factored, Product)
    X, Y = rows(0, 9), rows(1, 7)
    np.testing.assert_allclose(factored(X, Y), kernel(X, Y), rtol=1e-14)
    np.testing.assert_allclose(factored(X), kernel(X), rtol=1e-14)
    np.testing.assert_allclose(factored.diag(X), kernel.diag(X), rtol=1e-14)
    weights = np.random.default_rng(2).standard_normal((9, 7))
    gradient = factored.input_gradient(X, Y, weights, FEATURES)
    expected = kernel.input_gradient(X, Y, weights, FEATURES)
    assert gradient is not None
    assert expected is not None
    np.testing.assert_allclose(gradient, expected, atol=1e-13)


@pytest.mark.parametrize(
    "kernel",
    [
        matern(),
        graph_kernel() * matern(),
        graph_kernel() * matern() + matern(lengthscale=0.9),
        graph_kernel() * matern() + matern(nu=1.5),
        graph_kernel() * matern() + SquaredExponential(columns=FEATURES),
        graph_kernel() * matern() * matern() + matern(),
        graph_kernel() * matern() + Linear(columns=FEATURES),
    ],
)
def test_without_a_common_factor_it_stays_as_it_is(kernel: Kernel) -> None:
    assert with_common_factor(kernel) is kernel


def test_ids_still_have_no_derivative() -> None:
    """A kernel of ids refuses to move them, inside a sum as alone."""
    X = rows(0, 4)
    weights = np.ones((4, 4))
    assert with_common_factor(roads()).input_gradient(X, X, weights, [0]) is None


def test_a_composite_ignores_what_all_its_parts_ignore() -> None:
    """Its gradient is then not computed: a part without derivatives is enough to see it."""
    kernel = (graph_kernel() + Constant(variance=0.4)) * matern()
    X = rows(0, 4)
    gradient = kernel.input_gradient(X, X, np.ones((4, 4)), FEATURES)
    assert gradient is not None
    assert np.abs(gradient).max() > 0.0
