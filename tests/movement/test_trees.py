"""Random trees against a slow FRT, its theorem with the constants written out, and slow walks."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_trees import any_tree
from scipy.optimize import linprog

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.movement import (
    ActionMetric,
    MatrixMetric,
    PointMetric,
    Tree,
    frt_tree,
    shortest_path_metric,
)

EPS = float(np.finfo(np.float64).eps)
TAUS = [1.5, 2.0, 3.0, 8.0]
KINDS = ["plane", "graph", "equal", "spread"]
seeds = st.integers(0, 2**32 - 1)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def make_metric(kind: str, n: int, seed: int) -> ActionMetric:
    source = rng(seed)
    if kind == "plane":
        return PointMetric(points=source.normal(size=(n, 2)))
    if kind == "equal":
        return MatrixMetric(distances=source.uniform(1e-3, 1e3) * (1.0 - np.eye(n)))
    if kind == "spread":  # from 1e-9 to 1e6, on a line
        return PointMetric(
            points=np.cumsum(10.0 ** source.uniform(-9.0, 6.0, size=n))[:, None]
        )
    links = np.where(
        source.random((n, n)) < 0.3, source.uniform(0.1, 2.0, size=(n, n)), 0.0
    )
    links[np.arange(n - 1), np.arange(1, n)] = source.uniform(0.1, 2.0, size=n - 1)
    return shortest_path_metric(links)


metrics = st.builds(make_metric, st.sampled_from(KINDS), st.integers(2, 12), seeds)


# --- slow, and certain ---------------------------------------------------------------------------


def slow_frt(distances: Floats, order: Any, beta: float, tau: float) -> Floats:
    """d_T of the tree of [fakcharoenphol2004tight], cluster by cluster, with its chains joined."""
    n = len(distances)
    tree = np.zeros((n, n))
    unit = min(distances[i, j] for i, j in combinations(range(n), 2))
    top = 1
    while unit * tau**top < distances.max():
        top += 1

    def split(members: list[int], level: int) -> dict[int, float]:
        """How far its actions are below this cluster, which is of the level above ``level``."""
        if len(members) == 1:
            return {members[0]: 0.0}
        radius = unit * beta * tau ** (level - 1)
        groups: dict[int, list[int]] = {}
        for action in members:
            centre = next(c for c in order if distances[action, c] <= radius)
            groups.setdefault(int(centre), []).append(action)
        if len(groups) == 1:
            return split(members, level - 1)
        below = [split(group, level - 1) for group in groups.values()]
        below = [
            {a: d + unit * tau ** (level + 1) for a, d in vertex.items()}
            for vertex in below
        ]
        for one, other in combinations(below, 2):
            for a, up in one.items():
                for b, down in other.items():
                    tree[a, b] = tree[b, a] = up + down
        return {a: d for vertex in below for a, d in vertex.items()}

    split(list(range(n)), top - 1)
    return tree


def line_up(tree: Tree, vertex: int) -> list[int]:
    """The vertex, its parent, and so on to the root."""
    path = [vertex]
    while path[-1]:
        path.append(int(tree.parent[path[-1]]))
    return path


def slow_distance(tree: Tree, one: int, other: int) -> float:
    ups = [line_up(tree, int(tree.leaf[action])) for action in (one, other)]
    return sum(float(tree.weight[v]) for v in set(ups[0]) ^ set(ups[1]))


def slow_distances(tree: Tree) -> Floats:
    n = len(tree)
    return np.array([[slow_distance(tree, i, j) for j in range(n)] for i in range(n)])


def below(tree: Tree, vertex: int) -> set[int]:
    return {a for a in range(len(tree)) if vertex in line_up(tree, int(tree.leaf[a]))}


# --- frt -----------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("tau", TAUS)
@given(metric=metrics, seed=seeds)
@settings(max_examples=60)
def test_trees_equal_slow_ones(tau: float, metric: ActionMetric, seed: int) -> None:
    tree, source = frt_tree(metric, rng(seed), tau=tau), rng(seed)
    order, beta = source.permutation(len(metric)), tau ** source.random()
    slow = slow_frt(metric.distances, order, beta, tau)
    # Both add up at most 2n weights, in different orders.
    np.testing.assert_allclose(tree.distances, slow, rtol=4 * len(metric) * EPS)


@pytest.mark.parametrize("tau", TAUS)
@given(metric=metrics, seed=seeds)
@settings(max_examples=40)
def test_trees_are_separated_and_shorten_no_distance(
    tau: float, metric: ActionMetric, seed: int
) -> None:
    tree = frt_tree(metric, rng(seed), tau=tau)
    n = len(metric)
    assert len(tree) == n
    assert len(tree.parent) <= 2 * n - 1, "each inner vertex has two or more children"
    assert (tree.distances >= metric.distances).all()  # eq. 14
    inner = np.flatnonzero(tree.parent > 0)
    assert (
        tree.weight[inner] * tau <= tree.weight[tree.parent[inner]] * (1.0 + 4 * EPS)
    ).all()
    for vertex in range(
        1, len(tree.parent)
    ):  # clusters: within 2βτ^{i−1}, where τ^{i+1} is above
        members = sorted(below(tree, vertex))
        widest = metric.distances[np.ix_(members, members)].max()
        assert widest <= 2.0 * tree.weight[vertex] / tau * (1.0 + 8 * EPS)


def test_one_action_is_its_own_tree() -> None:
    tree = frt_tree(PointMetric(points=np.zeros((1, 2))), rng(0))
    assert (tree.parent.tolist(), tree.weight.tolist(), tree.leaf.tolist()) == (
        [-1],
        [0.0],
        [0],
    )
    assert tree.levels == []
    np.testing.assert_array_equal(tree.distances, [[0.0]])
    assert tree.distance(np.ones(1), np.ones(1)) == 0.0


@pytest.mark.parametrize("tau", TAUS)
def test_two_actions_are_two_edges_apart(tau: float) -> None:
    for seed in range(5):
        tree = frt_tree(
            PointMetric(points=np.array([[0.0], [0.3]])), rng(seed), tau=tau
        )
        assert tree.parent.tolist() == [-1, 0, 0]
        assert tree.weight.tolist() == [0.0, 0.3 * tau, 0.3 * tau]
        assert sorted(tree.leaf.tolist()) == [1, 2]


def test_equal_distances_make_a_star() -> None:
    tree = frt_tree(MatrixMetric(distances=0.7 * (1.0 - np.eye(9))), rng(0), tau=3.0)
    assert tree.parent.tolist() == [-1] + [0] * 9
    np.testing.assert_allclose(
        tree.distances, 6.0 * 0.7 * (1.0 - np.eye(9)), rtol=4 * EPS
    )


@pytest.mark.slow
@pytest.mark.parametrize("tau", TAUS)
def test_distances_may_differ_by_fifteen_orders_and_more(tau: float) -> None:
    for small, large in ((1e-9, 1e6), (1e-90, 1e90)):
        between = np.full((6, 6), large)
        between[:3, :3] = between[3:, 3:] = small
        np.fill_diagonal(between, 0.0)
        for seed in range(10):
            tree = frt_tree(MatrixMetric(distances=between), rng(seed), tau=tau)
            assert (tree.distances >= between).all()
            # Neither is longer than the theorem's worst: separated at the top of its own scale, whose
            # edges weigh τ^top, at most τ times the distance, and those below it less and less.
            assert (
                tree.distances <= 2.0 * tau**2 / (tau - 1.0) * between * (1.0 + 1e-9)
            ).all()


def test_the_same_generator_grows_the_same_tree() -> None:
    metric = make_metric("plane", 40, 0)
    one, other, third = (frt_tree(metric, rng(seed)) for seed in (1, 1, 2))
    for name in ("parent", "weight", "leaf"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(one.distances, third.distances)


def test_more_actions_than_are_compared_at_a_time() -> None:
    metric = PointMetric(points=rng(0).normal(size=(700, 2)))
    tree = frt_tree(metric, rng(1))
    source = rng(1)
    slow = slow_frt(
        metric.distances, source.permutation(700), 2.0 ** source.random(), 2.0
    )
    np.testing.assert_allclose(tree.distances, slow, rtol=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.5, 1e7, np.nan, np.inf, "2", None])
def test_invalid_ratios_are_rejected(tau: Any) -> None:
    with pytest.raises(InputError, match="tau"):
        frt_tree(make_metric("plane", 3, 0), rng(0), tau=tau)


def test_tree_growth_rejects_invalid_input() -> None:
    table: Any = np.ones((2, 2))
    with pytest.raises(InputError, match="metric"):
        frt_tree(table, rng(0))
    seed: Any = 3
    with pytest.raises(InputError, match="rng"):
        frt_tree(make_metric("plane", 3, 0), seed)


# --- the theorem [fakcharoenphol2004tight, theorem 2], with the constants of these weights --------
#
# Let the smallest distance be 1, x and y be D apart, and C = 2τ/(τ − 1). If they part at level i, then
# d_T ≤ 2(τ^{i+1} + τ^i + …) ≤ Cτ^{i+1}. At level i, the first action in the random order that reaches
# either of them must reach one alone. Order all actions by m, the distance to the nearer of the two;
# M is that to the other, and M − m ≤ D. The k-th does it only if m ≤ r_i < M, and it comes before the
# k − 1 that are nearer: of probability 1/k at most, whatever β is. r_i = τ^{U+i−1}, so the r_i of all
# levels together have the density ds/(s ln τ); and τ^{i+1} ≤ τ² r_i. Hence
#
#     E d_T  ≤ Σ_k 1/k · Cτ²  ∫_m^M s  ds/(s ln τ) = Cτ²/ln τ · Σ_k (M_k − m_k)/k ≤ Cτ²/ln τ · H_n D,
#     E d_T² ≤ Σ_k 1/k · C²τ⁴ ∫_m^M s² ds/(s ln τ) = C²τ⁴/(2 ln τ) · Σ_k (M_k² − m_k²)/k,
#
# and d_T ≤ Cτ^top ≤ Cτ · (largest distance) always.


def mean_bounds(distances: Floats, tau: float) -> tuple[Floats, Floats]:
    """Of E d_T and E d_T², for each two actions."""
    n, C = len(distances), 2.0 * tau / (tau - 1.0)
    first, second = np.zeros((n, n)), np.zeros((n, n))
    for x, y in combinations(range(n), 2):
        ends = sorted(
            (min(a, b), max(a, b))
            for a, b in zip(distances[x], distances[y], strict=True)
        )
        for k, (m, M) in enumerate(ends, 1):
            first[x, y] += C * tau**2 / np.log(tau) * (M - m) / k
            second[x, y] += (C * tau**2) ** 2 / (2.0 * np.log(tau)) * (M**2 - m**2) / k
    return first + first.T, second + second.T


def theorem(n: int, tau: float) -> float:
    return float(
        2.0 * tau**3 / ((tau - 1.0) * np.log(tau)) * np.sum(1.0 / np.arange(1, n + 1))
    )


def expected(distances: Floats, tau: float) -> tuple[Floats, Floats, float]:
    """E d_T, E d_T² and the largest d_T, exactly.

    Over all orders, and over the pieces of U on which the tree does not change.
    """
    n, largest = len(distances), 0.0
    own = distances[np.triu_indices(n, 1)]
    turns = np.log(own / own.min()) / np.log(tau) % 1.0
    mean, second = np.zeros((n, n)), np.zeros((n, n))
    orders = list(permutations(range(n)))
    for begin, end in pairwise(np.unique([0.0, *turns, 1.0])):
        for order in orders:
            tree = slow_frt(distances, order, tau ** (0.5 * (begin + end)), tau)
            mean += (end - begin) / len(orders) * tree
            second += (end - begin) / len(orders) * tree**2
            largest = max(largest, tree.max())
    return mean, second, largest


@pytest.mark.thorough
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("kind", KINDS)
def test_mean_stretch_is_within_the_theorem(kind: str, tau: float) -> None:
    for seed, n in ((0, 3), (1, 4), (2, 5)):
        own = make_metric(kind, n, seed).distances
        (mean, second, _), bounds = expected(own, tau), mean_bounds(own, tau)
        assert (mean <= bounds[0] * (1.0 + 1e-12)).all()
        assert (second <= bounds[1] * (1.0 + 1e-12)).all()
        assert (bounds[0] <= theorem(n, tau) * own * (1.0 + 1e-12)).all()
        assert (mean >= own).all()


def slack(variance: Floats, largest: float, count: int, chances: int) -> Floats:
    """Bernstein: by what a mean of ``count`` draws from 0 to ``largest`` may be off.

    For all of ``chances`` such means at once, with probability 1 − 1e-9.
    """
    surprise = np.log(2.0 * chances / 1e-9)
    return np.sqrt(2.0 * variance * surprise / count) + largest * surprise / (
        3.0 * count
    )


@pytest.mark.thorough
@pytest.mark.parametrize("tau", TAUS)
def test_drawn_trees_have_the_expected_distances(tau: float) -> None:
    """That orders and radii are drawn as they should be: for few actions, the mean is known."""
    own, count = make_metric("graph", 4, 1).distances, 500
    source = rng(3)
    trees = [
        frt_tree(MatrixMetric(distances=own), source, tau=tau).distances
        for _ in range(count)
    ]
    mean, second, largest = expected(own, tau)
    assert np.max(trees) == pytest.approx(largest)
    off = np.abs(np.mean(trees, axis=0) - mean)
    assert (off <= slack(np.maximum(second - mean**2, 0.0), largest, count, 6)).all()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["plane", "graph"])
def test_mean_over_many_trees_is_within_the_theorem(kind: str) -> None:
    metric, count, tau, n = make_metric(kind, 24, 5), 400, 2.0, 24
    source, own = rng(6), metric.distances
    mean = np.mean([frt_tree(metric, source).distances for _ in range(count)], axis=0)
    first, second = mean_bounds(own, tau)
    largest = 2.0 * tau**2 / (tau - 1.0) * own.max()
    allowed = slack(second, largest, count, n * (n - 1) // 2)
    assert (mean <= first + allowed).all()
    assert (mean <= theorem(n, tau) * own + allowed).all()


# --- trees as arrays -----------------------------------------------------------------------------

trees = st.builds(any_tree, st.integers(1, 12), seeds)


@given(tree=trees)
def test_distances_equal_a_slow_walk(tree: Tree) -> None:
    np.testing.assert_allclose(
        tree.distances, slow_distances(tree), rtol=4 * len(tree) * EPS
    )
    np.testing.assert_array_equal(tree.distances, tree.distances.T)


@given(tree=trees)
def test_levels_sizes_and_places_equal_slow_ones(tree: Tree) -> None:
    depth = np.array([len(line_up(tree, v)) - 1 for v in range(len(tree.parent))])
    assert len(tree.levels) == depth.max()
    for number, level in enumerate(tree.levels, 1):
        members = np.flatnonzero(depth == number)
        vertices = np.arange(level.vertices.start, level.vertices.stop)
        np.testing.assert_array_equal(members, vertices)
        parents = tree.parent[members].tolist()
        starts = sorted({parents.index(parent) for parent in parents})
        assert level.starts.tolist() == starts
        counts = [parents.count(parents[start]) for start in starts]
        assert level.counts.tolist() == counts
    side_by_side = np.argsort(tree.first[tree.leaf])
    assert sorted(tree.first[tree.leaf].tolist()) == list(range(len(tree)))
    for vertex in range(len(tree.parent)):
        own = below(tree, vertex)
        assert tree.sizes[vertex] == len(own)
        begin = tree.first[vertex]
        assert set(side_by_side[begin : begin + len(own)].tolist()) == own


@given(tree=trees, seed=seeds)
def test_masses_equal_slow_ones(tree: Tree, seed: int) -> None:
    given_ = rng(seed).dirichlet(np.ones(len(tree)))
    slow = [sum(given_[a] for a in below(tree, v)) for v in range(len(tree.parent))]
    np.testing.assert_allclose(tree.masses(given_), slow, atol=len(tree) * EPS)


def cheapest_transport(one: Floats, other: Floats, distances: Floats) -> float:
    n = len(one)
    rows, columns = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
    equal = {"A_eq": np.vstack([rows, columns]), "b_eq": np.concatenate([one, other])}
    return float(linprog(distances.ravel(), **equal, method="highs").fun)


@given(tree=st.builds(any_tree, st.integers(2, 7), seeds), seed=seeds)
@settings(max_examples=40)
def test_the_distance_of_distributions_is_that_of_the_cheapest_transport(
    tree: Tree, seed: int
) -> None:
    """[ramesh2022movement, eqs. 19 and 21]; the solver keeps its constraints to 1e-7."""
    one, other = rng(seed).dirichlet(np.full(len(tree), 0.3), size=2)
    cheapest = cheapest_transport(one, other, slow_distances(tree))
    assert tree.distance(one, other) == pytest.approx(
        cheapest, abs=1e-6 * tree.distances.max()
    )
    assert tree.distance(one, other) == tree.distance(other, one)
    assert tree.distance(one, one) == 0.0


@given(tree=st.builds(any_tree, st.integers(2, 7), seeds))
def test_certain_places_are_as_far_apart_as_actions(tree: Tree) -> None:
    certain = np.eye(len(tree))
    distances = [[tree.distance(one, other) for other in certain] for one in certain]
    np.testing.assert_allclose(
        distances, slow_distances(tree), rtol=4 * len(tree) * EPS
    )


GOOD: dict[str, list[float]] = {
    "parent": [-1, 0, 0, 1, 1],
    "weight": [0.0, 2.0, 2.0, 1.0, 1.0],
    "leaf": [3, 4, 2],
}


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("parent", [0, 0, 0, 1, 1], "begin with −1"),
        ("parent", [-1, 0, 0, 2, 1], "level by level"),
        ("parent", [-1, 1, 0, 1, 1], "level by level"),
        ("parent", [-1, 0, 0, 3, 3], "level by level"),
        ("parent", [-1, 0, 0, 9, 9], "level by level"),
        ("parent", [-1, -1, 0, 1, 1], "level by level"),
        ("parent", [-1, 0, 0, 1, 2], "vertex 1 has one child"),
        ("parent", [-1, 0, 1, 2, 2], "vertex 0 has one child"),
        ("parent", [-1.0, 0.0, 0.0, 1.0, 1.0], "whole numbers"),
        ("parent", [[-1, 0, 0, 1, 1]], "one-dimensional"),
        ("parent", [], "weight has 5 entries, but 0"),
        ("weight", [0.0, 2.0, 2.0, 1.0], "weight has 4 entries, but 5"),
        ("weight", [1.0, 2.0, 2.0, 1.0, 1.0], "0 for the root"),
        ("weight", [0.0, 2.0, 0.0, 1.0, 1.0], "above 0"),
        ("weight", [0.0, 2.0, -1.0, 1.0, 1.0], "above 0"),
        ("weight", [0.0, 2.0, 2.0, 1.0, 2.5], "must not grow"),
        ("weight", [0.0, 2.0, np.nan, 1.0, 1.0], "finite"),
        ("weight", [0.0, 2.0, np.inf, 1.0, 1.0], "finite"),
        ("weight", [0.0, 2.0, 2.0, 1e-200, 1.0], "choose units"),
        ("weight", [0.0, 2.0, 1e200, 1.0, 1.0], "choose units"),
        ("leaf", [3, 4], "every vertex without children once"),
        ("leaf", [3, 4, 4], "every vertex without children once"),
        ("leaf", [3, 4, 1], "every vertex without children once"),
        ("leaf", [3, 4, -1], "every vertex without children once"),
        ("leaf", [3, 4, 2, 5], "every vertex without children once"),
        ("leaf", [3.0, 4.0, 2.0], "whole numbers"),
    ],
)
def test_damaged_trees_are_refused(name: str, wrong: Any, message: str) -> None:
    good: Any = GOOD
    with pytest.raises(InputError, match=message):
        Tree(**{**good, name: wrong})


def test_an_empty_tree_is_refused() -> None:
    nothing = np.array([], dtype=np.intp)
    with pytest.raises(InputError, match="begin with −1"):
        Tree(parent=nothing, weight=np.array([]), leaf=nothing)


def test_tree_is_a_read_only_copy() -> None:
    given_: Any = {name: np.array(value) for name, value in GOOD.items()}
    tree = Tree(**given_)
    for name, value in given_.items():
        value[:] = 0
        np.testing.assert_array_equal(getattr(tree, name), GOOD[name])
        with pytest.raises(ValueError, match="read-only"):
            getattr(tree, name)[0] = 1
    assert repr(tree) == "Tree(n=3, vertices=5, depth=2)"
    np.testing.assert_array_equal(tree.distances, [[0, 2, 5], [2, 0, 5], [5, 5, 0]])


def test_user_metric_that_is_not_a_metric_is_rejected() -> None:
    class Own(ActionMetric):
        """From 0 to 2 it is nearer by way of 1."""

        distances = np.array([[0.0, 1.0, 99.0], [1.0, 0.0, 1.0], [99.0, 1.0, 0.0]])

    seed = next(
        candidate for candidate in range(99) if rng(candidate).permutation(3)[0] == 1
    )  # 1 reaches both
    with pytest.raises(InputError, match="some detour is shorter; MatrixMetric"):
        frt_tree(Own(), rng(seed))


def test_drawn_tree_stores_no_distance_table() -> None:
    """A forest over thousands of actions would hold one of n² numbers for each tree."""
    tree = frt_tree(
        PointMetric(points=np.arange(5.0)[:, None]), np.random.default_rng(0)
    )
    assert "distances" not in vars(tree)
