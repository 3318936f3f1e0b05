"""The graph Matérn kernel against a dense eigendecomposition."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_matrix, eye_array

from superarm.core import Floats
from superarm.core.errors import (
    InputError,
    NotFiniteError,
    NotPositiveDefiniteError,
    ShapeError,
    UnknownArmError,
)
from superarm.core.graphs import Graph, TurnGraph
from superarm.core.registry import build, spec_of
from superarm.kernels import GraphMatern, Matern
from superarm.kernels.elimination import plan_elimination
from superarm.kernels.selected_inverse import inverse_diagonal
from superarm.roads.networks import generate_city

NORMALISATIONS = ("mean", "unit", "raw")


def laplacian(n: int, links: int, seed: int = 0) -> Any:
    """Δ = B Bᵀ of a random graph whose weights span two orders of magnitude."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n, (links, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    weight = 10.0 ** rng.uniform(-1.0, 1.0, len(ends))
    link = np.arange(len(ends))
    rows = np.concatenate([ends[:, 0], ends[:, 1]])
    values = np.concatenate([-weight, weight])
    B = csc_array((values, (rows, np.concatenate([link, link]))), shape=(n, len(ends)))
    return B @ B.T


def dense(matrix: Any, nu: float, kappa: float, normalisation: str) -> Floats:
    """Eq. 134 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025), slowly."""
    values, vectors = np.linalg.eigh(matrix.toarray())
    K: Floats = (vectors * (2.0 * nu / kappa**2 + values) ** -nu) @ vectors.T
    if normalisation == "mean":
        return K / np.diagonal(K).mean()
    if normalisation == "unit":
        root = np.sqrt(np.diagonal(K))
        return K / np.outer(root, root)
    return K


def nodes(n: int) -> Floats:
    return np.arange(n, dtype=np.float64)[:, None]


def test_the_laplacian_of_turns_by_hand() -> None:
    """Eqs. 132 and 133: a turn weighs mean length / length of the road it leaves."""
    turns = [[2, 0], [0, 1], [1, 2], [0, 1]]  # in any order, one of them twice
    graph = TurnGraph(length=[2.0, 1.0, 3.0], turns=turns)
    np.testing.assert_array_equal(graph.turns, [[0, 1], [1, 2], [2, 0]])
    weights = np.array([2.0 / 2.0, 2.0 / 1.0, 2.0 / 3.0])
    incidence = (
        np.array([[-1.0, 0.0, 1.0], [1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]) * weights
    )
    np.testing.assert_allclose(graph.incidence().toarray(), incidence)
    np.testing.assert_allclose(graph.laplacian().toarray(), incidence @ incidence.T)
    links = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    np.testing.assert_array_equal(graph.successors.toarray(), links)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("nu", [1, 2, 3, 4, 1.5])
def test_graph_matern_is_equation_134(nu: float, normalisation: Any) -> None:
    matrix = laplacian(150, 200)
    kernel = GraphMatern(
        matrix, nu=nu, kappa=1.7, variance=2.5, normalisation=normalisation
    )
    expected = 2.5 * dense(matrix, nu, 1.7, normalisation)
    K = kernel(nodes(150))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(K, expected, rtol=0.0, atol=1e-12 * scale)
    np.testing.assert_allclose(
        kernel.diag(nodes(150)), np.diagonal(expected), rtol=1e-11
    )
    assert np.array_equal(K, K.T)
    np.testing.assert_allclose(np.diagonal(K), kernel.diag(nodes(150)), rtol=1e-11)
    assert np.linalg.eigvalsh(K)[0] > -1e-13 * scale
    chosen = np.array([3.0, 149.0, 3.0, 77.0])[:, None]
    chosen_nodes = chosen[:, 0].astype(int)
    np.testing.assert_allclose(
        kernel(chosen), expected[np.ix_(chosen_nodes, chosen_nodes)], atol=1e-12 * scale
    )
    np.testing.assert_allclose(
        kernel(chosen, nodes(150)), expected[chosen_nodes], atol=1e-12 * scale
    )
    np.testing.assert_allclose(
        kernel(nodes(150), chosen), expected[:, chosen_nodes], atol=1e-12 * scale
    )


@given(
    n=st.integers(1, 90),
    density=st.floats(0.0, 3.0),
    seed=st.integers(0, 1000),
    signed=st.booleans(),
)
@settings(max_examples=60)
def test_selected_inversion_is_the_inverses_diagonal(
    n: int, density: float, seed: int, signed: bool
) -> None:
    matrix = laplacian(n, int(density * n), seed)
    if signed:  # positive off the diagonal too, where terms of a factor may cancel
        matrix = abs(matrix)
    A = (matrix + 0.5 * eye_array(n)).tocsc()
    before = A.toarray()
    inverse = np.linalg.inv(before)
    plan = plan_elimination(A)
    np.testing.assert_allclose(
        inverse_diagonal(A, plan), np.diagonal(inverse), rtol=1e-11
    )
    stepped = inverse_diagonal((A + 1e-20j * eye_array(n)).tocsc(), plan)
    squares = np.einsum("ij,ji->i", inverse, inverse)
    np.testing.assert_allclose(-stepped.imag / 1e-20, squares, rtol=1e-10)
    assert np.array_equal(A.toarray(), before)  # nothing of the caller's is touched
    covered = np.concatenate([np.arange(front.start, front.stop) for front in plan[1]])
    assert np.array_equal(covered, np.arange(n))
    assert np.array_equal(np.sort(plan[0]), np.arange(n))


def filled_rows(matrix: Any) -> list[list[int]]:
    """Rows below the diagonal of every column of the factor, ascending, by elimination."""
    pattern = matrix.toarray() != 0.0
    n = len(pattern)
    reached: list[list[int]] = []
    for column in range(n):
        below = column + 1 + np.flatnonzero(pattern[column + 1 :, column])
        pattern[np.ix_(below, below)] = True  # they are neighbours from now on
        reached.append(below.tolist())
    return reached


def test_fronts_reach_the_rows_of_their_last_column_in_ascending_order() -> None:
    n = 150
    A = (laplacian(n, 260) + 0.5 * eye_array(n)).tocsc()
    plan = plan_elimination(A)
    reached = filled_rows(A[plan.order][:, plan.order])
    assert len(plan.fronts) > 5
    for front in plan.fronts:
        assert front.rows.tolist() == reached[front.stop - 1]


@pytest.mark.parametrize("side", [12, 40])
def test_the_diagonal_of_a_grid_is_that_of_solves(side: int) -> None:
    """Fronts of many sizes: a lattice, whose separators grow with it."""
    line = np.arange(side * side).reshape(side, side)
    ends = np.concatenate(
        [
            np.stack([line[:, :-1].ravel(), line[:, 1:].ravel()], axis=1),
            np.stack([line[:-1].ravel(), line[1:].ravel()], axis=1),
        ]
    )
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(ends))
    both = np.concatenate([ends, ends[:, ::-1]])
    n = side * side
    links = coo_array(
        (np.concatenate([weight, weight]), tuple(both.T)), shape=(n, n)
    ).tocsc()
    degree = np.asarray(links.sum(axis=0)).ravel()
    matrix = csc_array((degree, (np.arange(n), np.arange(n))), shape=(n, n)) - links
    for nu in (1, 2):
        kernel = GraphMatern(matrix, nu=nu, normalisation="raw")
        sample = nodes(n)[:: max(1, n // 50)]
        columns = kernel(sample, nodes(n))
        sample_nodes = sample[:, 0].astype(int)
        np.testing.assert_allclose(
            kernel.diag(sample),
            columns[np.arange(len(sample_nodes)), sample_nodes],
            rtol=1e-12,
        )


def test_graph_matern_takes_any_laplacian_and_sparse_format() -> None:
    matrix = laplacian(30, 60)

    class Own(Graph):
        def laplacian(self) -> Any:
            return matrix

    K = GraphMatern(matrix)(nodes(30))
    assert len(GraphMatern(Own())) == 30
    for other in (
        Own(),
        matrix.tocsr(),
        matrix.tocoo(),
        csr_matrix(matrix),
        matrix.todok(),
    ):
        assert np.array_equal(GraphMatern(other)(nodes(30)), K)


def test_a_line_graph_is_one() -> None:
    from superarm.roads.networks import LineGraph

    assert issubclass(LineGraph, Graph)


def test_graph_matern_composes_with_kernels_on_other_columns() -> None:
    matrix, rng = laplacian(40, 80), np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(40, 3)), np.arange(40.0)])
    graph = GraphMatern(matrix, columns=(3,))
    on_features = Matern(nu=2.5, columns=(0, 1, 2))
    kernel = 0.5 * (graph * on_features) + 0.5 * on_features
    expected = 0.5 * dense(matrix, 2, 1.0, "mean") * on_features(X) + 0.5 * on_features(
        X
    )
    np.testing.assert_allclose(kernel(X), expected, atol=1e-13)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(expected), atol=1e-13)
    assert np.linalg.eigvalsh(kernel(X))[0] > -1e-13


def test_cache_is_bounded_and_does_not_change_results() -> None:
    matrix = laplacian(500, 900)
    plain = GraphMatern(matrix, cache_megabytes=0.0)
    caching = GraphMatern(
        matrix, cache_megabytes=500 * 8 * 20 / 1e6
    )  # room for 20 columns
    rng = np.random.default_rng(3)
    everything = nodes(500)
    # Bit for bit: every column is solved separately, whatever other columns are requested.
    for _ in range(30):
        chosen = rng.choice(60, rng.integers(1, 15), replace=False).astype(float)[
            :, None
        ]
        assert np.array_equal(caching(chosen, everything), plain(chosen, everything))
        assert np.array_equal(caching(chosen), plain(chosen))
        assert caching._graph._cached_column.cache_info().currsize <= 20  # type: ignore[union-attr]
    caching(everything[:50], everything)[:] = (
        np.nan
    )  # the returned array belongs to the caller
    assert np.array_equal(
        caching(everything[:50], everything), plain(everything[:50], everything)
    )
    assert caching._graph._cached_column.cache_info().currsize == 20  # type: ignore[union-attr]
    assert not plain._graph._cached_column.cache_info().currsize  # type: ignore[union-attr]


def test_only_the_variance_is_fitted() -> None:
    matrix = laplacian(20, 40)
    kernel = GraphMatern(matrix, variance=3.0, cache_megabytes=1.0)
    np.testing.assert_allclose(kernel.theta, [np.log(3.0)])
    K, gradient = kernel(nodes(20), eval_gradient=True)
    assert np.array_equal(gradient[:, :, 0], K)
    other = kernel.clone_with_theta([np.log(6.0)])
    assert other.variance == pytest.approx(6.0)
    assert other._graph is kernel._graph  # the factor is shared
    np.testing.assert_allclose(other(nodes(20)), 2.0 * K, rtol=1e-14)
    fixed = GraphMatern(matrix, variance_bounds="fixed")
    assert fixed.theta.shape == (0,)
    assert np.array_equal(fixed.clone_with_theta([])(nodes(20)), fixed(nodes(20)))


def test_graph_matern_can_be_pickled_and_has_a_spec() -> None:
    kernel = GraphMatern(laplacian(20, 40), cache_megabytes=1.0)
    K = kernel(nodes(20))
    assert np.array_equal(pickle.loads(pickle.dumps(kernel))(nodes(20)), K)
    assert np.array_equal(build("kernel", spec_of(kernel))(nodes(20)), K)


@pytest.mark.parametrize("value", [-1.0, 20.0, 2.5, np.nan, np.inf])
def test_only_node_numbers_are_accepted(value: float) -> None:
    kernel = GraphMatern(laplacian(20, 40))
    with pytest.raises(
        UnknownArmError, match=r"row 1, column 0 holds .*numbered 0 … 19"
    ):
        kernel.diag([[0.0], [value]])
    with pytest.raises(UnknownArmError, match="row 0"):
        kernel([[0.0]], [[value]])


@pytest.mark.parametrize(
    ("network", "options", "error", "message"),
    [
        (np.eye(3), {}, InputError, "wrap an array"),
        ("lust", {}, InputError, "give a graph with a method"),
        (csc_array((3, 2)), {}, ShapeError, "must be square"),
        (csc_array([[1.0, -1.0], [0.0, 1.0]]), {}, InputError, "not symmetric"),
        (csc_array([[np.nan]]), {}, NotFiniteError, "NaN or infinity"),
        (csc_array(np.eye(2)), {"nu": 0}, InputError, "nu"),
        (csc_array(np.eye(2)), {"kappa": -1.0}, InputError, "kappa"),
        (csc_array(np.eye(2)), {"columns": (0, 1)}, InputError, "the one column"),
        (csc_array(np.eye(2)), {"normalisation": "max"}, InputError, "choose 'mean'"),
        (
            csc_array(np.eye(2)),
            {"cache_megabytes": -1.0},
            InputError,
            "cache_megabytes",
        ),
        (eye_array(9000), {"nu": 1.5}, InputError, "An integer nu works at any size"),
    ],
)
def test_invalid_arguments_raise_with_advice(
    network: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GraphMatern(network, **options)


@pytest.mark.parametrize("nu", [1, 2, 3, 2.5])
def test_an_indefinite_matrix_is_refused(nu: float) -> None:
    kernel = GraphMatern(csc_array(np.diag([1.0, -50.0, 2.0])), nu=nu)
    with pytest.raises(NotPositiveDefiniteError, match="not positive semi-definite"):
        kernel.diag(nodes(3))
    with pytest.raises(NotPositiveDefiniteError, match="not positive semi-definite"):
        kernel(nodes(3))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nu": 1e300}, "nu must be .*, got 1e\\+300"),
        ({"nu": 400}, "nu must be .*, got 400"),
        ({"kappa": 1e-200}, "kappa"),
        ({"kappa": 1e200}, "kappa"),
        ({"cache_megabytes": "x"}, "cache_megabytes"),
        ({"cache_megabytes": None}, "cache_megabytes"),
    ],
)
def test_overflowing_parameters_are_rejected(options, words):
    from scipy.sparse import csc_array

    with pytest.raises(InputError, match=words):
        GraphMatern(csc_array(np.eye(3)), **options)


def test_complex_or_absurd_laplacians_are_refused():
    from scipy.sparse import csc_array

    with pytest.raises(InputError, match="complex"):
        GraphMatern(csc_array(1j * np.eye(3)))
    with pytest.raises(InputError, match="overflow"):
        GraphMatern(csc_array(1e200 * np.eye(3)))


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("nu", [1, 2, 3, 4])
def test_products_with_all_nodes_need_no_matrix(nu: int, normalisation: str) -> None:
    """K v, and R z with R Rᵀ = K, against the matrix itself."""
    matrix = laplacian(25, 60)
    options: dict[str, Any] = {"nu": nu, "kappa": 1.3, "normalisation": normalisation}
    kernel = GraphMatern(matrix, variance=2.5, **options)
    K = 2.5 * dense(matrix, nu, 1.3, normalisation)
    values = np.random.default_rng(0).standard_normal((25, 3))
    np.testing.assert_allclose(kernel.times(values), K @ values, atol=1e-10)
    np.testing.assert_allclose(kernel.times(values[:, 0]), K @ values[:, 0], atol=1e-10)
    if nu % 2:
        with pytest.raises(InputError, match="even"):
            kernel.root_times(values)
        return
    root = kernel.root_times(np.eye(25))
    np.testing.assert_allclose(root @ root.T, K, atol=1e-10)
    np.testing.assert_allclose(
        kernel.root_times(values[:, 0]), root @ values[:, 0], atol=1e-10
    )


def test_products_require_an_integer_nu() -> None:
    with pytest.raises(InputError, match="whole number"):
        GraphMatern(laplacian(9, 20), nu=1.5).times(np.ones(9))
    with pytest.raises(InputError, match="nu is"):
        GraphMatern(laplacian(9, 20), nu=2.5).root_times(np.ones(9))


@pytest.mark.parametrize("nu", [1, 2, 3])
def test_large_graphs_use_their_own_order_and_differ_by_rounding(
    nu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns, variances, products and draws; A is well conditioned, so that rounding stays small.

    Its eigenvalues lie between the shift 2ν and 2ν + ‖Δ‖: the condition number is below 1e4, and a solve
    has a relative error of at most about n·2⁻⁵³·1e4.
    """
    from superarm.kernels import graph_powers

    graph = generate_city(edges=400, seed=3).line_graph().turn_graph
    sizes = abs(graph.laplacian()).sum(axis=0)
    assert sizes.max() < 1e4
    matrix_alone = GraphMatern(graph.laplacian(), nu=nu)
    before = GraphMatern(graph, nu=nu)
    nodes = np.arange(0, len(graph), 10)[:, None]
    expected = before(nodes)
    # Below the least size all is as without an order.
    np.testing.assert_array_equal(matrix_alone(nodes), expected)
    monkeypatch.setattr(graph_powers, "LEAST_ORDERED", 300)
    after = GraphMatern(graph, nu=nu)
    np.testing.assert_allclose(after(nodes), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(after._graph._order, graph.elimination_order)
    np.testing.assert_allclose(after.diag(nodes), before.diag(nodes), rtol=1e-9)
    values = np.random.default_rng(0).standard_normal((len(graph), 3))
    np.testing.assert_allclose(
        after.times(values), before.times(values), rtol=1e-8, atol=1e-9
    )
    # A graph without an order of its own is factorised as before.
    again = GraphMatern(graph.laplacian(), nu=nu)
    np.testing.assert_array_equal(again(nodes), expected)


def test_fronts_in_a_given_order_reach_the_rows_of_their_last_column() -> None:
    graph = generate_city(edges=400, seed=1).line_graph().turn_graph
    A = (graph.laplacian() + 2.0 * eye_array(len(graph))).tocsc()
    plan = plan_elimination(A, graph.elimination_order)
    np.testing.assert_array_equal(np.sort(plan.order), np.arange(len(graph)))
    reached = filled_rows(A[plan.order][:, plan.order])
    for front in plan.fronts:
        assert front.rows.tolist() == reached[front.stop - 1]
