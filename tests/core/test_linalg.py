"""Growing factors, low-rank roots, and jitter with a warning."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats
from superarm.core.errors import JitterWarning, NotPositiveDefiniteError
from superarm.core.growing_cholesky import GrowingCholesky
from superarm.core.linalg import (
    JITTER_STEPS,
    cholesky,
    factor_if_positive,
    inverse_of_factored,
    leading_root,
    multiply_lower_in_place,
    psd_root,
    root_update,
    solve_lower,
    solve_lower_in_place,
    solve_lower_right,
)

stable = settings(max_examples=40)
seeds = st.integers(0, 10_000)


def spd(n: int, seed: int = 0, rank: int | None = None) -> Floats:
    root = np.random.default_rng(seed).standard_normal((n, n if rank is None else rank))
    return root @ root.T


# --- triangular products, inverses, solves ----------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (70, 40), (7, 0)])
def test_a_product_in_place_is_the_product(order: str, rows: int, columns: int) -> None:
    """Sums of up to 70 products of normals: rounding below 70 ε |L| |B| < 1e-12."""
    L = cholesky(spd(rows) + rows * np.eye(rows))
    B = np.random.default_rng(1).standard_normal((rows, columns))
    right = np.array(B, order=order)  # type: ignore[call-overload]
    product = multiply_lower_in_place(L, right)
    np.testing.assert_allclose(product, L @ B, atol=1e-12)
    assert np.shares_memory(product, right) or not B.size


def test_a_product_in_place_needs_an_array_that_it_may_overwrite() -> None:
    B = np.ones((4, 3))
    B.flags.writeable = False
    with pytest.raises(ValueError, match="writeable float64"):
        multiply_lower_in_place(np.eye(4), B)


def test_a_solve_from_the_right() -> None:
    L = cholesky(spd(9) + 9.0 * np.eye(9))
    B = np.asfortranarray(np.random.default_rng(2).standard_normal((4, 9)))
    solved = solve_lower_right(L, B)
    np.testing.assert_allclose(solved @ L, B, atol=1e-13)


def test_the_inverse_of_what_was_factored() -> None:
    matrix = spd(9) + 9.0 * np.eye(9)
    inverse = inverse_of_factored(cholesky(matrix))
    np.testing.assert_allclose(inverse @ matrix, np.eye(9), atol=1e-13)
    assert inverse.tolist() == inverse.T.tolist()


def test_a_factor_only_where_the_matrix_is_positive() -> None:
    matrix = np.asfortranarray(spd(6) + np.eye(6))
    factor = factor_if_positive(matrix)
    assert factor is not None
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-13)
    assert factor_if_positive(-matrix) is None
    assert factor_if_positive(np.zeros((2, 2), order="F")) is None
    empty = factor_if_positive(np.zeros((0, 0)))
    assert empty is not None
    assert empty.shape == (0, 0)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (5, 3), (128, 40), (300, 7), (300, 0)]
)
def test_a_solve_in_place_is_the_solve(
    order: str, transposed: bool, rows: int, columns: int
) -> None:
    """Several blocks and one: both solves are backward stable, with |δL| ≤ n ε |L| for each."""
    L = cholesky(spd(rows) + rows * np.eye(rows))
    B = np.random.default_rng(1).standard_normal((rows, columns))
    right = np.array(B, order=order)  # type: ignore[call-overload]
    solved = solve_lower_in_place(L, right, transposed=transposed)
    assert solved.shape == B.shape
    if columns:
        assert np.shares_memory(solved, right)
        expected = solve_lower(L, B, transposed=transposed)
        condition = float(np.linalg.cond(L))
        tolerance = (
            4.0 * rows * np.finfo(np.float64).eps * condition * np.abs(expected).max()
        )
        np.testing.assert_allclose(solved, expected, rtol=0.0, atol=tolerance)


def test_solve_in_place_rejects_unsuitable_arrays() -> None:
    L = np.eye(3)
    for bad in (
        np.ones((3, 4))[:, ::2],
        np.ones((3, 2), dtype=np.float32),
        np.broadcast_to(1.0, (3, 2)),
    ):
        with pytest.raises(ValueError, match="writeable float64"):
            solve_lower_in_place(L, bad)
    with pytest.raises(NotPositiveDefiniteError, match="0 in row 1"):
        solve_lower_in_place(np.diag([1.0, 0.0, 1.0]), np.ones((3, 2)))


# --- Cholesky and jitter -------------------------------------------------------------------


def test_cholesky_is_numpys_where_that_works() -> None:
    matrix = spd(6) + np.eye(6)
    np.testing.assert_array_equal(cholesky(matrix), np.linalg.cholesky(matrix))


def test_jitter_is_announced_before_it_is_used() -> None:
    matrix = np.diag([1.0, 1.0, -1e-11])
    with pytest.warns(
        JitterWarning, match="the covariance of three arms is not numerically"
    ) as caught:
        L = cholesky(matrix, "the covariance of three arms")
    assert [
        f"{step:g} x its size" in str(warning.message)
        for warning, step in zip(caught, JITTER_STEPS, strict=False)
    ] == [True] * len(caught)
    mean_diagonal = np.mean(np.diagonal(matrix))
    added = np.diagonal(L @ L.T - matrix)
    np.testing.assert_allclose(
        added, JITTER_STEPS[len(caught) - 1] * mean_diagonal, rtol=1e-4
    )


@pytest.mark.filterwarnings("ignore::superarm.core.errors.JitterWarning")
def test_jitter_past_the_limit_is_rejected_with_advice() -> None:
    with pytest.raises(
        NotPositiveDefiniteError, match=r"Likely causes: \(a\) the kernel"
    ):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.parametrize("bad", [np.nan, 0.0, -1.0])
def test_invalid_diagonal_is_rejected_immediately(bad: float) -> None:
    with pytest.raises(NotPositiveDefiniteError, match=r"must be positive|NaN"):
        cholesky(np.full((2, 2), bad))


@pytest.mark.parametrize("scale", [1e-24, 1.0, 1e24])
def test_jitter_is_relative(scale: float) -> None:
    with pytest.warns(JitterWarning):
        L = cholesky(scale * np.diag([1.0, 1.0, -1e-13]))
    np.testing.assert_allclose(L @ L.T / scale, np.diag([1.0, 1.0, 0.0]), atol=1e-11)


# --- triangular solves ---------------------------------------------------------------------


@stable
@given(seeds, st.integers(1, 12), st.integers(0, 9), st.integers(0, 5))
def test_solving_in_place_equals_scipy(
    seed: int, n: int, rows: int, spare: int
) -> None:
    L = np.linalg.cholesky(spd(n, seed) + np.eye(n))
    grown = GrowingCholesky(n + spare)
    grown._buffer[:] = np.nan  # only the leading block may be read
    grown.append(np.empty((n, 0)), L)
    B = np.random.default_rng(seed).standard_normal((rows, n))
    expected = scipy.linalg.solve_triangular(L, B.T, lower=True).T
    assert grown.solve_rows(B) is B
    np.testing.assert_allclose(B, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(solve_lower(L, np.eye(n)), np.linalg.inv(L), atol=1e-9)


def test_arrays_that_blas_would_misread_are_refused() -> None:
    grown = GrowingCholesky(8)
    grown.append(np.empty((4, 0)), np.eye(4))
    frozen = np.zeros((1, 4))
    frozen.flags.writeable = False
    for B in (
        np.zeros((4, 4)).T[:3],
        np.zeros((1, 4), dtype=np.float32),
        np.zeros((1, 5)),
        np.zeros((1, 3)),
        frozen,
    ):
        with pytest.raises(ValueError, match="writeable C-contiguous float64"):
            grown.solve_rows(B)


# --- the factor that grows -----------------------------------------------------------------


@stable
@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 8))
def test_grown_factor_equals_a_new_factorisation(
    seed: int, blocks: list[int], capacity: int
) -> None:
    n = sum(blocks)
    matrix = spd(n, seed) + np.eye(n)
    grown = GrowingCholesky(capacity)
    for block in blocks:
        old, new = len(grown), len(grown) + block
        W = grown.solve_rows(matrix[old:new, :old].copy())
        grown.append(W, cholesky(matrix[old:new, old:new] - W @ W.T))
    assert len(grown) == n
    expected = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(grown.factor, expected, rtol=1e-9, atol=1e-10)


def test_an_empty_factor_solves_nothing() -> None:
    empty = GrowingCholesky(2)
    assert empty.solve_rows(np.empty((3, 0))).shape == (3, 0)
    assert empty.factor.shape == (0, 0)


# --- roots ---------------------------------------------------------------------------------


@stable
@given(
    seeds, st.integers(1, 15), st.integers(1, 15), st.sampled_from([1e-12, 1.0, 1e12])
)
def test_a_root_has_the_numerical_rank_and_the_stated_error(
    seed: int, n: int, rank: int, scale: float
) -> None:
    matrix = scale * spd(n, seed, rank)
    before = matrix.copy()
    root, error = psd_root(matrix)
    assert root.shape == (n, root.shape[1])
    assert root.shape[1] <= n
    largest = np.diagonal(matrix).max()
    assert np.abs(root @ root.T - matrix).max() <= (error + 1e-15) * largest
    assert error <= 1e-12
    np.testing.assert_array_equal(matrix, before)


@stable
@given(seeds, st.integers(1, 15), st.integers(1, 15), st.integers(0, 15))
def test_leading_root_returns_the_diagonal_of_its_positive_residual(
    seed: int, n: int, rank: int, most: int
) -> None:
    matrix = spd(n, seed, rank)
    largest = np.diagonal(matrix).max()
    rows, residual_diagonal = leading_root(
        lambda row: matrix[row], np.diagonal(matrix), most, 1e-9 * largest
    )
    residual = matrix - rows.T @ rows
    np.testing.assert_allclose(
        np.diagonal(residual), residual_diagonal, atol=1e-12 * largest
    )
    assert np.linalg.eigvalsh(residual)[0] >= -1e-12 * largest * n
    assert len(rows) == min(most, n) or residual_diagonal.max() <= 1e-9 * largest
    assert len(rows) <= min(most, rank)


def test_a_smooth_kernel_has_a_low_rank() -> None:
    x = np.linspace(0.0, 1.0, 200)
    assert psd_root(np.exp(-0.5 * (x[:, None] - x) ** 2)).root.shape[1] < 15


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
def test_a_root_does_not_depend_on_units(scale: float) -> None:
    x = np.linspace(0.0, 1.0, 60)
    matrix = np.exp(-0.5 * (x[:, None] - x) ** 2)
    root, error = psd_root(matrix)
    scaled, scaled_error = psd_root(scale * matrix)
    assert scaled.shape == root.shape
    assert scaled_error == pytest.approx(error, abs=1e-14)
    np.testing.assert_allclose(scaled @ scaled.T / scale, matrix, atol=1e-13)


def test_a_matrix_that_is_nearly_psd_is_warned_about() -> None:
    with pytest.warns(JitterWarning, match="only up to 1e-09"):
        psd_root(np.diag([1.0, -1e-9]))


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.diag([1.0, -1e-3]),
        np.full((2, 2), np.nan),
        np.array([[1.0, np.nan], [np.nan, 1.0]]),
    ],
    ids=["indefinite", "negative", "nan", "nan off the diagonal"],
)
def test_other_matrices_are_refused(matrix: Floats) -> None:
    with pytest.raises(NotPositiveDefiniteError):
        psd_root(matrix)


def test_rounding_is_relative_to_the_given_scale() -> None:
    """A posterior covariance of 1e-9 made from a prior of 1 carries rounding of 1e-16."""
    matrix = 1e-9 * np.ones((2, 2)) + 1e-16 * np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.warns(JitterWarning):
        psd_root(matrix)
    root, error = psd_root(matrix, scale=1.0)
    assert error <= 1e-15
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-15)
    assert psd_root(np.zeros((3, 3)), scale=1.0).root.shape == (3, 0)
    assert psd_root(np.empty((0, 0))).root.shape == (0, 0)


@pytest.mark.parametrize("smooth", [True, False])
def test_rounding_does_not_decide_between_equal_arms(smooth: bool) -> None:
    """On a grid many arms tie for the next pivot: a root must not turn with the last digit."""
    side = np.linspace(0.0, 1.0, 9)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    distance = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2)) / 0.4
    matrix = np.exp(-0.5 * distance**2) if smooth else np.exp(-distance)
    rng = np.random.default_rng(0)
    for _ in range(10):
        noise = 1e-15 * rng.standard_normal(matrix.shape)
        root, other = (
            psd_root(variant, scale=1.0, steady=True).root
            for variant in (matrix, matrix + noise + noise.T)
        )
        normals = rng.standard_normal(len(matrix))
        draw = root @ normals[: root.shape[1]]
        other_draw = other @ normals[: other.shape[1]]
        np.testing.assert_allclose(other_draw, draw, atol=1e-4 if smooth else 1e-10)


@stable
@given(seeds, st.integers(1, 10), st.integers(1, 10), st.integers(1, 4))
def test_root_update_equals_the_dense_formula(
    seed: int, n: int, rank: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, rank))
    rows = rng.integers(0, n, k)  # repeats are legal
    noise = 10.0 ** rng.uniform(-4.0, 1.0, k)
    P = root @ root.T
    update = root_update(root, root[rows], noise)
    total = P[np.ix_(rows, rows)] + np.diag(noise)
    shrunk = root - update.downdate @ root[rows]
    tolerance = 1e-9 * max(1.0, np.abs(P).max())
    np.testing.assert_allclose(
        shrunk @ shrunk.T,
        P - P[:, rows] @ np.linalg.solve(total, P[rows]),
        atol=tolerance,
    )
    np.testing.assert_allclose(
        update.gain @ total,
        P[:, rows],
        atol=tolerance * max(1.0, np.abs(update.gain).max()),
    )
    whitened = P[np.ix_(rows, rows)] / np.sqrt(np.outer(noise, noise))
    expected = 0.5 * np.linalg.slogdet(np.eye(k) + whitened)[1]
    assert update.information == pytest.approx(expected, abs=1e-8)
