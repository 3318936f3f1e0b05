"""Draws from a prior, and the one root that truth and learners share."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from superarm.core import Arms, Floats, Offer
from superarm.core.errors import InputError, NotPositiveDefiniteError
from superarm.core.streams import stream
from superarm.kernels import (
    GraphMatern,
    Kernel,
    Linear,
    Matern,
    SquaredExponential,
    drawing,
    prior_root,
    sparse_root,
)
from superarm.kernels.roots import DenseRoot
from superarm.kernels.sparse_root import SparseRoot
from superarm.posteriors import FiniteGP
from superarm.roads.problems import Navigation, navigation

ARMS = np.random.default_rng(2).random((41, 3))
NOISE = 0.05


@pytest.fixture
def root_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the priors that were factorised, one for each."""
    sizes: list[int] = []
    make = DenseRoot.__init__

    def count_text(self: Any, kernel: Any, arms: Floats) -> None:
        sizes.append(len(arms))
        make(self, kernel, arms)

    monkeypatch.setattr(DenseRoot, "__init__", count_text)
    monkeypatch.setattr(drawing, "_cached_roots", [])
    return sizes


def drawn(kernel: Any, count: int = 40) -> Floats:
    gp = FiniteGP(kernel, ARMS[:count], NOISE, form="visited")
    gp.observe(np.arange(5), np.ones(5))
    return gp.belief(Offer(step=1, arms=Arms.numbered(gp.arms))).sample(
        np.random.default_rng(3)
    )


def test_the_root_is_the_lower_factor() -> None:
    kernel = Matern(nu=1.5)
    root, lower = prior_root(kernel, ARMS, "…"), np.linalg.cholesky(kernel(ARMS))
    np.testing.assert_allclose(root.times(np.eye(41)), lower.T, atol=1e-12)
    normals = np.random.default_rng(0).standard_normal((1, 41))
    np.testing.assert_allclose(root.times(normals)[0], lower @ normals[0], atol=1e-12)


def test_singular_prior_is_drawn_with_truncated_rank() -> None:
    twice = np.vstack([ARMS, ARMS])
    normals = np.random.default_rng(0).standard_normal((2, 82))
    draws = prior_root(SquaredExponential(), twice, "…").times(normals)
    np.testing.assert_allclose(draws[:, :41], draws[:, 41:], atol=1e-6)


class Undefined:
    """A kernel that is NaN everywhere, as one that divides zero by zero."""

    def __call__(self, X: Floats, Y: Floats | None = None) -> Floats:
        return np.full((len(X), len(X if Y is None else Y)), np.nan)

    def diag(self, X: Floats) -> Floats:
        return np.full(len(X), np.nan)


def test_prior_that_is_not_finite_is_refused() -> None:
    """Not every LAPACK reports NaN: some return a factor of NaN and no error."""
    with pytest.raises(NotPositiveDefiniteError, match="must be positive, got nan"):
        DenseRoot(Undefined(), ARMS)


def test_too_many_arms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "LARGEST_DRAW", 10)
    with pytest.raises(
        InputError, match=r"up to 10 arms: draw every arm from its own mean"
    ):
        drawn(Matern(nu=2.5))
    assert drawn(Matern(nu=2.5), 10).shape == (10,)


def test_posteriors_on_the_same_prior_share_its_root(root_sizes: list[int]) -> None:
    kernel = Matern(nu=2.5)
    first = drawn(kernel)  # that posterior is gone now
    second = drawn(kernel)
    assert root_sizes == [40]
    np.testing.assert_array_equal(first, second)
    separate = drawn(Matern(nu=2.5))  # an equal kernel, another object
    assert root_sizes == [40, 40]
    np.testing.assert_array_equal(first, separate)


def test_root_cache_holds_two_roots(root_sizes: list[int]) -> None:
    kernel = Matern(nu=2.5)
    for count in (40, 41, 40, 39, 40, 41):
        drawn(kernel, count)
    assert root_sizes == [40, 41, 39, 41]
    assert len(drawing._cached_roots) == 2


def test_different_arms_of_equal_number_do_not_share_a_root(
    root_sizes: list[int],
) -> None:
    kernel = Matern(nu=2.5)
    for arms in (ARMS, ARMS[::-1]):
        root = prior_root(kernel, arms, "…").times(np.eye(41)).T
        np.testing.assert_allclose(root, np.linalg.cholesky(kernel(arms)), atol=1e-12)
    assert root_sizes == [41, 41]


def test_mutable_kernels_are_not_cached(root_sizes: list[int], sk: Any) -> None:
    own = sk.RBF(0.5)
    one = drawn(own)
    own.length_scale = 5.0
    assert not np.array_equal(one, drawn(own))
    assert root_sizes == [40, 40]


def test_root_is_freed_with_its_kernel(root_sizes: list[int]) -> None:
    kernel = Matern(nu=2.5)
    drawn(kernel)
    assert len(drawing._cached_roots) == 1
    del kernel
    gc.collect()
    assert not drawing._cached_roots
    assert root_sizes == [40]


def test_truth_and_learner_share_one_root(root_sizes: list[int]) -> None:
    """Every seed of an experiment, and every posterior on its roads, draw by the same n² numbers."""
    for seed in (0, 1):
        problem = Navigation(seed=seed, horizon=5, edges=200)
        energies = problem.energies
        model = problem.model
        gp = FiniteGP(
            model.kernel, model.arms, model.noise_variance, model.mean, form="visited"
        )
        gp.sample([0, 1], np.random.default_rng(0))
        n = len(energies)
        assert root_sizes == [n]
        lower = np.linalg.cholesky(model.kernel(model.arms))
        expected = lower @ stream(seed, "truth", 0).standard_normal(n) + model.energies
        np.testing.assert_allclose(energies, expected, rtol=1e-10)


def test_misspecified_model_has_its_own_root(root_sizes: list[int]) -> None:
    problem = Navigation(seed=0, horizon=5, edges=200, model_lengthscale=2.0)
    model = problem.model
    for _ in range(2):
        _ = problem.energies
        gp = FiniteGP(
            model.kernel, model.arms, model.noise_variance, model.mean, form="visited"
        )
        gp.sample([0, 1], np.random.default_rng(0))
        problem = Navigation(seed=1, horizon=5, edges=200, model_lengthscale=2.0)
    assert root_sizes == [len(gp.arms)] * 2


# --- more arms than a dense covariance has room for -------------------------------------------

NODES = 30
CHAIN = sparse.diags_array(
    [-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(NODES, NODES)
).tocsc()
NUMBERED = np.column_stack(
    [np.arange(NODES), np.random.default_rng(4).standard_normal((NODES, 2))]
)


def graph(**options: Any) -> GraphMatern:
    return GraphMatern(CHAIN, **options)


def roads(**options: Any) -> Kernel:
    """As that of roads: ½v·k_G·k_f + ½v·k_f."""
    alike = Matern(nu=2.5, columns=(1, 2))
    return graph(variance=2.0, **options) * alike + replace(alike, variance=3.0)


SPARSE = {
    "graph": graph(nu=2),
    "rough": graph(nu=4, kappa=2.0, variance=0.3, normalisation="raw"),
    **{name: roads(normalisation=name) for name in ("mean", "unit", "raw")},
    "two groups": roads()
    + Linear(columns=(1, 2)) * graph(nu=4)
    + SquaredExponential(columns=(2,)),
}


def exact(root: drawing.PriorRoot) -> Floats:
    """The covariance of its draws: they are linear in their normals."""
    drawn = root.times(np.eye(root.normals))
    return drawn.T @ drawn


@pytest.mark.thorough
@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize(
    "arms", [NUMBERED, NUMBERED[[7, 3, 21, 3]]], ids=["all", "some"]
)
def test_sparse_draws_have_the_kernels_covariance(
    name: str, arms: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_root, "_SMALL_RESIDUAL", 1e-14)
    root = SparseRoot(SPARSE[name], arms)
    assert root.tolerance <= 1e-14
    K = SPARSE[name](arms)
    np.testing.assert_allclose(exact(root), K, atol=1e-10 * K.max())


@pytest.mark.parametrize(
    "name", [name for name in SPARSE if name not in ("graph", "rough")]
)
@pytest.mark.parametrize("most", [1, 4, 12])
def test_truncation_is_reported_and_variances_are_exact(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is positive semi-definite, and so is its product with a graph's kernel."""
    monkeypatch.setattr(sparse_root, "MOST_FEATURES", most)
    root, K = SparseRoot(SPARSE[name], NUMBERED), SPARSE[name](NUMBERED)
    lost = np.abs(exact(root) - K)
    largest = np.diagonal(K).max()
    np.testing.assert_allclose(np.diagonal(lost), 0.0, atol=1e-12 * largest)
    assert 1e-3 * largest < lost.max() <= root.tolerance * largest * (1.0 + 1e-9)


def test_terms_that_differ_only_in_variance_share_features() -> None:
    root = SparseRoot(SPARSE["mean"], NUMBERED)
    (group,) = root._groups
    assert [term.graph is None for term in group.terms] == [False, True]
    assert root.normals == NODES + len(group.features) * (NODES + 1)


def test_large_sets_are_drawn_by_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "LARGEST_DRAW", NODES)
    kernel = roads()
    assert isinstance(prior_root(kernel, NUMBERED, "…"), DenseRoot)
    monkeypatch.setattr(drawing, "_cached_roots", [])
    monkeypatch.setattr(drawing, "LARGEST_DRAW", NODES - 1)
    root = prior_root(kernel, NUMBERED, "…")
    assert isinstance(root, SparseRoot)
    assert prior_root(kernel, NUMBERED, "…") is root


@pytest.mark.parametrize("kind", ["features alone", "odd", "two graphs", "foreign"])
def test_kernels_without_a_sparse_form_are_refused(
    kind: str, sk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "LARGEST_DRAW", 10)
    kernel = {
        "features alone": lambda: Matern(columns=(1, 2)) + Linear(),
        "odd": lambda: roads(nu=1),
        "two graphs": lambda: roads() + graph() * graph(nu=4),
        "foreign": lambda: roads() + sk.RBF(0.5),
    }[kind]()
    with pytest.raises(
        InputError, match="it is made for up to 10 arms: do something else"
    ):
        prior_root(kernel, NUMBERED, "do something else")


def test_coarse_features_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawing, "LARGEST_DRAW", 10)
    monkeypatch.setattr(sparse_root, "MOST_FEATURES", 2)
    kernel = roads()
    with pytest.raises(
        InputError, match=r"2 features in its place leave \d+% of a variance out: use"
    ):
        prior_root(kernel, NUMBERED, "…")
    with pytest.raises(
        InputError, match="nu is 3; draws are made by sparse solves where it is even"
    ):
        graph(nu=3).draws(np.ones((1, NODES)))


@pytest.mark.parametrize("most", [30, 8])
def test_joint_draws_of_large_sets_have_the_posteriors_covariance(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """u − K_EV H (u_V + ε) = B u − K_EV H ε, so that an error E of the prior becomes B E Bᵀ."""
    monkeypatch.setattr(drawing, "LARGEST_DRAW", 10)
    monkeypatch.setattr(sparse_root, "MOST_FEATURES", most)
    monkeypatch.setattr(drawing, "_LARGEST_RESIDUAL", 1.0)
    kernel, visited = roads(), np.array([2, 9, 9, 20])
    gp = FiniteGP(kernel, NUMBERED, NOISE, form="visited")
    assert gp.tolerance == 0.0
    gp.observe(visited, np.ones(4))
    normals = np.eye(gp.normals_per_draw)
    drawn = gp._engine.draw(normals, gp._weight)
    root = prior_root(kernel, NUMBERED, "…")
    assert gp.tolerance == root.tolerance
    K, seen = kernel(NUMBERED), np.unique(visited)
    H = np.linalg.inv(K[np.ix_(seen, seen)] + np.diag(1.0 / gp._weight[seen]))
    B = np.eye(NODES)
    B[:, seen] -= K[:, seen] @ H
    expected = K - K[:, seen] @ H @ K[seen] + B @ (exact(root) - K) @ B.T
    np.testing.assert_allclose(drawn.T @ drawn, expected, atol=1e-9 * K.max())


@pytest.mark.parametrize("rush", [0.0, 1.0])
def test_truths_of_large_networks(rush: float, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Navigation(seed=0, horizon=5, edges=200, rush_hours=rush)
    assert "truth" not in small.interpretations
    for module in (drawing, navigation):
        monkeypatch.setattr(module, "LARGEST_DRAW", 10)
    monkeypatch.setattr(drawing, "_cached_roots", [])
    one, two = (
        Navigation(seed=0, horizon=5, edges=200, rush_hours=rush) for _ in range(2)
    )
    assert isinstance(one._root, SparseRoot)
    assert (
        f"off by at most {one._root.tolerance:.1%} of the largest"
        in one.interpretations["truth"]
    )
    np.testing.assert_array_equal(one.means(one.offer(3)), two.means(two.offer(3)))
    normals = stream(0, "truth", 0).standard_normal((1, one._root.normals))
    expected = one._root.times(normals)[0] + one.model.energies
    np.testing.assert_array_equal(one.energies, expected)
