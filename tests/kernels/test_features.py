"""Finite-rank forms stay within the error they state."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import errors
from superarm.kernels import (
    Columns,
    Constant,
    Empirical,
    FeatureMap,
    Kernel,
    Linear,
    Matern,
    Polynomial,
    Scale,
    SquaredExponential,
    Temporal,
)


def box_points(
    lower: np.ndarray, upper: np.ndarray, seed: int = 0, n: int = 150
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    inside = lower + (upper - lower) * rng.random((n, len(lower)))
    corners = np.array(list(itertools.product(*zip(lower, upper, strict=True))))
    return np.clip(np.concatenate([inside, corners]), lower, upper)


def assert_within(kernel: Kernel, form: FeatureMap, X: np.ndarray) -> None:
    phi = form(X)
    assert phi.shape == (len(X), form.rank)
    assert phi.flags.c_contiguous
    assert np.abs(kernel(X) - phi @ phi.T).max() <= form.error
    assert (np.square(phi) <= form.suprema * (1 + 1e-9) + 1e-30).all()
    assert kernel.diag(X).max() <= form.largest * (1 + 1e-12)


def test_rank_of_the_unit_cube() -> None:
    form = SquaredExponential(lengthscale=1.0).features(np.zeros(3), np.ones(3), 1e-13)
    assert form is not None
    assert 200 <= form.rank <= 280
    assert form.error < 3e-13
    assert_within(
        SquaredExponential(lengthscale=1.0), form, box_points(np.zeros(3), np.ones(3))
    )


@given(
    lengthscale=st.lists(st.floats(0.15, 20.0), min_size=1, max_size=3),
    variance=st.floats(1e-3, 1e3),
    digits=st.integers(2, 14),
    shift=st.floats(-5.0, 5.0),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60)
def test_squared_exponential(
    lengthscale: list[float], variance: float, digits: int, shift: float, seed: int
) -> None:
    kernel = SquaredExponential(lengthscale=tuple(lengthscale), variance=variance)
    lower = np.full(len(lengthscale), shift)
    upper = lower + np.linspace(0.5, 1.5, len(lengthscale))
    form = kernel.features(lower, upper, variance * 10.0**-digits, max_rank=6000)
    if form is None:
        return
    assert_within(kernel, form, box_points(lower, upper, seed, 60))


@pytest.mark.parametrize("lengthscale", [0.01, 0.02, 0.05, 0.2, 1.0, 1e3])
@pytest.mark.parametrize("variance", [1.0, 1e12, 1e-12])
def test_one_dimension(lengthscale: float, variance: float) -> None:
    kernel = SquaredExponential(lengthscale=lengthscale, variance=variance)
    form = kernel.features([0.0], [1.0], 1e-13 * variance)
    assert form is not None
    assert form.error <= 4e-12 * variance
    assert_within(kernel, form, box_points(np.zeros(1), np.ones(1), n=400))


def test_smaller_tolerance_costs_rank() -> None:
    ranks = []
    for tolerance in (1e-3, 1e-6, 1e-9, 1e-13):
        form = SquaredExponential(lengthscale=0.5).features(
            np.zeros(2), np.ones(2), tolerance
        )
        assert form is not None
        assert form.error <= tolerance + 2e-13
        ranks.append(form.rank)
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1] / 3


@pytest.mark.parametrize(
    ("kernel", "rank"),
    [
        (Linear(variance=0.3), 3),
        (Linear(variance=0.3, bias=2.0), 4),
        (Polynomial(degree=3, variance=0.1, bias=0.5), 20),
        (Polynomial(degree=2, bias=0.0), 6),
        (Constant(variance=2.0), 1),
        (3.0 * Linear(), 3),
        (Linear() + Constant(), 4),
        (Linear() * Linear(), 9),
        (Columns(kernel=Linear(bias=1.0), columns=(2,)), 2),
        (Linear(columns=(0, 2)) * SquaredExponential(columns=(1,)), None),
        (
            SquaredExponential(columns=(0,), variance=50.0)
            * SquaredExponential(columns=(2,))
            * Linear(),
            None,
        ),
        (
            SquaredExponential(lengthscale=2.0)
            + Scale(kernel=Polynomial(), factor=1e3),
            None,
        ),
        (
            Columns(kernel=SquaredExponential(lengthscale=(1.0, 3.0)), columns=(2, 0)),
            None,
        ),
    ],
)
def test_exact_and_composed_forms(kernel: Kernel, rank: int | None) -> None:
    lower, upper = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 1.0, 3.0])
    form = kernel.features(lower, upper, 1e-12)
    assert form is not None
    if rank is not None:
        assert form.rank == rank
    assert_within(kernel, form, box_points(lower, upper))
    assert form.error <= 1e-12 + 1e-12 * form.largest


def test_product_of_columns_is_truncated_like_one_kernel() -> None:
    lower, upper = np.zeros(2), np.ones(2)
    joint = SquaredExponential(lengthscale=0.5).features(lower, upper)
    product = SquaredExponential(lengthscale=0.5, columns=(0,)) * SquaredExponential(
        lengthscale=0.5, columns=(1,)
    )
    form = product.features(lower, upper)
    assert joint is not None
    assert form is not None
    assert form.rank <= 1.15 * joint.rank
    assert_within(product, form, box_points(lower, upper))


def test_empirical_over_ids() -> None:
    root = np.random.default_rng(1).random((6, 3))
    kernel = Empirical(covariance=root @ root.T, column=1)
    form = kernel.features([0.0, 0.0], [1.0, 5.0], 1e-12)
    assert form is not None
    assert form.rank == 3
    X = np.column_stack([np.zeros(6), np.arange(6.0)])
    assert_within(kernel, form, X)
    with pytest.raises(errors.InputError, match="integers"):
        form(np.array([[0.0, 0.5]]))


@pytest.mark.parametrize(
    "kernel",
    [
        Matern(),
        Temporal(),
        Linear() + Matern(),
        SquaredExponential(lengthscale=1e-4),
        SquaredExponential(lengthscale=0.05),
    ],
)
def test_kernels_without_features_return_none(kernel: Kernel) -> None:
    assert kernel.features(np.zeros(3), np.ones(3)) is None


def test_none_for_foreign_kernels(sk: Any) -> None:
    for kernel in (
        SquaredExponential() * sk.RBF(),
        Columns(kernel=sk.RBF(), columns=(0,)),
    ):
        assert kernel.features(np.zeros(3), np.ones(3)) is None


def test_max_rank() -> None:
    assert SquaredExponential().features(np.zeros(3), np.ones(3), max_rank=100) is None
    assert Polynomial(degree=3).features(np.zeros(9), np.ones(9), max_rank=100) is None


def test_columns_that_are_not_seen_are_free() -> None:
    kernel = SquaredExponential(columns=(1,))
    form = kernel.features([-np.inf, 0.0], [np.inf, 1.0])
    assert form is not None
    X = np.array([[1e9, 0.2], [-3.0, 1.0]])
    assert_within(kernel, form, X)


def test_a_column_that_does_not_vary() -> None:
    kernel = SquaredExponential()
    form = kernel.features([0.0, 2.0], [1.0, 2.0])
    assert form is not None
    assert_within(kernel, form, np.array([[0.1, 2.0], [0.9, 2.0]]))


def test_refuses_points_outside_and_bad_boxes() -> None:
    form = SquaredExponential().features(np.zeros(2), np.ones(2))
    assert form is not None
    with pytest.raises(errors.InputError, match=r"X\[1, 0\] is .* outside the box"):
        form(np.array([[0.5, 0.5], [1.1, 0.5]]))
    with pytest.raises(errors.InputError, match="outside the box"):
        form(np.array([[np.nan, 0.5]]))
    with pytest.raises(errors.ShapeError):
        form(np.zeros((3, 1)))
    with pytest.raises(errors.InputError, match="finite bounds"):
        SquaredExponential().features([0.0], [np.inf])
    with pytest.raises(errors.InputError, match="lower"):
        SquaredExponential().features([1.0], [0.0])
    with pytest.raises(errors.ShapeError):
        SquaredExponential().features([1.0], [0.0, 1.0])


def test_maps_can_be_sent_to_other_processes() -> None:
    form = (SquaredExponential() * Linear() + 2.0 * Constant()).features(
        np.zeros(2), np.ones(2)
    )
    assert form is not None
    X = box_points(np.zeros(2), np.ones(2))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(form))(X), form(X))
