"""Mirror descent on trees against general solvers, the paper's algorithm, and optimality conditions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_trees import any_tree, drawn_tree, rng
from scipy.optimize import brentq, minimize

from superarm.core import Floats, Ints
from superarm.core.compiling import Backend
from superarm.core.errors import InfeasibleError, InputError, UnknownArmError
from superarm.movement import PointMetric, Tree, TreeDescent, frt_tree
from superarm.movement.descent import step_by_family

EPS = float(np.finfo(np.float64).eps)
compiled = pytest.mark.skipif(
    find_spec("numba") is None, reason="numba is not installed"
)
BACKENDS = [
    pytest.param("numpy", marks=pytest.mark.thorough),  # slow loops
    pytest.param("numba", marks=compiled),
]
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 12)


trees = st.one_of(
    st.builds(drawn_tree, sizes, seeds), st.builds(any_tree, sizes, seeds)
)


def families(tree: Tree) -> Iterator[tuple[int, Ints]]:
    """Inner vertices and their children, from the leaves to the root."""
    for vertex in range(len(tree.parent) - 1, -1, -1):
        children = np.flatnonzero(tree.parent == vertex)
        if len(children):
            yield vertex, children


def some_q(tree: Tree, seed: int) -> Floats:
    """Conditional probabilities, of which some are 0."""
    source, q = rng(seed), np.ones(len(tree.parent))
    for _, children in families(tree):
        shares = source.exponential(size=len(children)) * (
            source.random(len(children)) < 0.7
        )
        shares[source.integers(len(children))] += 0.1
        q[children] = shares / shares.sum()
    return q


class Part:
    """Eq. 25 for the children of one vertex, and their problem of eq. 10."""

    def __init__(
        self, tree: Tree, children: Ints, kappa: float, q: Floats, costs: Floats
    ) -> None:
        leaves = [_leaves(tree, int(child)) for child in children]
        theta = np.array(leaves) / sum(leaves)
        eta = 1.0 + np.log(1.0 / theta)
        self.delta = theta / eta
        self.rate = kappa * eta / tree.weight[children]
        lowest = costs[
            children
        ].min()  # a constant changes no optimum, but may swallow digits
        self.q, self.costs = (
            q[children],
            costs[children] - (lowest if np.isfinite(lowest) else 0.0),
        )

    def objective(self, p: Floats) -> float:
        """D(p‖q) + ⟨p, c⟩, with the divergence as it is written below eq. 26."""
        ratio = np.log((p + self.delta) / (self.q + self.delta))
        terms = (p + self.delta) * ratio + self.q - p
        return float(np.sum(terms / self.rate) + p @ self.costs)

    def unclipped(self, b: float, alpha: Floats | float = 0.0) -> Floats:
        """Eq. 28."""
        with np.errstate(over="ignore"):
            grown = np.exp(self.rate * (b - (self.costs - alpha)))
        return np.asarray((self.q + self.delta) * grown - self.delta)


def _leaves(tree: Tree, vertex: int) -> int:
    children = np.flatnonzero(tree.parent == vertex)
    return sum(_leaves(tree, int(child)) for child in children) if len(children) else 1


def parts(
    descent: TreeDescent, q: Floats, costs: Floats, after: Floats
) -> Iterator[tuple[Part, Ints]]:
    """The problem at each vertex, where a child costs what its own children do on average after it."""
    tree = descent.tree
    c = np.zeros(len(q))
    c[tree.leaf] = costs
    for vertex, children in families(tree):
        yield Part(tree, children, descent.kappa, q, c), children
        with np.errstate(invalid="ignore"):
            c[vertex] = np.nansum(
                after[children] * c[children]
            )  # what is gone may cost ∞


def slow_step(descent: TreeDescent, q: Floats, costs: Floats) -> Floats:
    """Each vertex by bisection; a cost of ∞ takes all mass."""
    after = np.ones(len(q))
    for part, children in parts(descent, q, costs, after):
        if np.isinf(part.costs).all():
            after[children] = part.q
            continue
        full = np.min(
            part.costs + np.log((1.0 + part.delta) / (part.q + part.delta)) / part.rate
        )
        low = np.min(
            part.costs + np.log(part.delta / (part.q + part.delta)) / part.rate
        )
        for _ in range(200):
            b = 0.5 * (low + full)
            if np.maximum(part.unclipped(b), 0.0).sum() < 1.0:
                low = b
            else:
                full = b
        after[children] = np.maximum(part.unclipped(full), 0.0)
        after[children] /= after[children].sum()
    return after


def assert_probabilities(tree: Tree, q: Floats) -> None:
    assert np.isfinite(q).all()
    assert (q >= 0.0).all()
    assert q[0] == 1.0
    for _, children in families(tree):
        assert q[children].sum() == pytest.approx(1.0, abs=2 * len(children) * EPS)


def largest_fault(
    descent: TreeDescent, q: Floats, costs: Floats, after: Floats
) -> float:
    """By how much the conditions of an optimum (eq. 27) are missed, as a share of what they compare.

    Where there is mass, c + ln((q′ + δ)/(q + δ))/rate is the same number b; elsewhere it is at least b.
    """
    worst = 0.0
    for part, children in parts(descent, q, costs, after):
        p = after[children]
        own = part.rate * part.costs
        grown = np.log((p + part.delta) / (part.q + part.delta))
        level, has = (own + grown) / part.rate, p > 0.0
        b = np.average(level[has], weights=(p * part.rate)[has])
        off = np.where(has, np.abs(level - b), np.maximum(b - level, 0.0)) * part.rate
        worst = max(worst, float((off / (1.0 + own + part.rate * abs(b))).max()))
    return worst


# --- one step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    tree=trees,
    seed=seeds,
    kappa=st.sampled_from([1.0, 3.0]),
    size=st.sampled_from([0.1, 1.0, 9.0]),
)
def test_a_step_is_optimal(
    backend: Backend, tree: Tree, seed: int, kappa: float, size: float
) -> None:
    descent, q = TreeDescent(tree, kappa=kappa, backend=backend), some_q(tree, seed)
    costs = size * rng(seed).normal(size=len(tree))
    after = descent.step(q, costs)
    assert_probabilities(tree, after)
    assert largest_fault(descent, q, costs, after) < 1e-12
    np.testing.assert_allclose(
        after, slow_step(descent, q, costs), rtol=0.0, atol=1e-12
    )


@given(tree=trees, seed=seeds, size=st.sampled_from([0.1, 1.0, 9.0]))
@settings(max_examples=30)
def test_the_plain_loop_is_the_step_by_levels(
    tree: Tree, seed: int, size: float
) -> None:
    """The loop that numba compiles, without numba."""
    descent, q = TreeDescent(tree, backend="numpy"), some_q(tree, seed)
    costs = size * rng(seed).normal(size=len(tree))
    c = np.zeros(len(q))
    c[tree.leaf] = costs
    after = np.ones(len(q))
    step_by_family(tree.parent, descent._rate, descent.delta, q, c, after)
    np.testing.assert_allclose(after, descent.step(q, costs), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    tree=st.one_of(st.builds(drawn_tree, st.integers(2, 7), seeds), trees), seed=seeds
)
@settings(max_examples=30)
def test_step_is_as_good_as_a_general_solvers(
    backend: Backend, tree: Tree, seed: int
) -> None:
    """Eq. 10. D is strongly convex: what is ‖x‖ from its optimum is worse by m‖x‖²/2 or more."""
    descent, q = TreeDescent(tree, backend=backend), some_q(tree, seed)
    costs = rng(seed).normal(size=len(tree)) * tree.weight.max()
    after = descent.step(q, costs)
    for part, children in parts(descent, q, costs, after):
        k, unit = len(children), float(np.max(1.0 / part.rate))
        solution = minimize(
            lambda p, part=part, unit=unit: part.objective(np.maximum(p, 0.0)) / unit,
            np.full(k, 1.0 / k),
            method="SLSQP",
            bounds=[(0.0, 1.0)] * k,
            constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1.0}],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        other = np.maximum(solution.x, 0.0) / np.maximum(solution.x, 0.0).sum()
        distance = float(np.linalg.norm(other - after[children]))
        # Forward differences of 1.5e-8 are what the solver sees of a slope.
        assert distance < 1e-4
        worse = (part.objective(other) - part.objective(after[children])) / unit
        strength = float(np.min(1.0 / (part.rate * (1.0 + part.delta)))) / unit
        assert worse >= 0.5 * strength * distance**2 - 1e-13 * (
            1.0 + abs(part.objective(other)) / unit
        )


def projected_gradient(part: Part) -> Floats:
    """Appendix D.1: α ≥ 0 follows its gradient, and b sees to it that the sum is 1."""
    alpha, total = np.zeros_like(part.q), 1.0 + part.delta.sum()
    step = 1.0 / (
        part.rate.max() * total
    )  # p has no steeper slope, as (q + δ) exp(…) ≤ total
    for _ in range(20_000):
        heights = part.costs - alpha - np.log(part.q + part.delta) / part.rate
        b = brentq(
            lambda b, alpha=alpha: part.unclipped(b, alpha).sum() - 1.0,
            np.min(heights + np.log(total / len(part.q)) / part.rate) - 1e-9,
            np.min(heights + np.log(total) / part.rate) + 1e-9,
            xtol=1e-14,
        )
        p = part.unclipped(b, alpha)
        moved = np.maximum(alpha - step * p, 0.0)
        if np.abs(moved - alpha).max() < 1e-13 * step:
            break
        alpha = moved
    return p


@pytest.mark.thorough
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [drawn_tree, any_tree])
def test_step_matches_projected_gradient_descent(backend: Backend, make: Any) -> None:
    emptied = 0
    for seed in range(4):
        tree = make(6, seed)
        descent, q = TreeDescent(tree, backend=backend), some_q(tree, seed)
        costs = 1.5 * tree.weight.max() * rng(seed).random(len(tree))
        after = descent.step(q, costs)
        for part, children in parts(descent, q, costs, after):
            np.testing.assert_allclose(
                after[children], projected_gradient(part), atol=1e-9
            )
            emptied += int((after[children] == 0.0).sum())
    assert emptied > 0, "of no child was α above 0"


@compiled
@given(
    tree=trees, seed=seeds, kappa=st.sampled_from([1.0, 10.0]), blocked=st.booleans()
)
def test_compiled_steps_equal_plain_ones(
    tree: Tree, seed: int, kappa: float, blocked: bool
) -> None:
    source = rng(seed)
    plain, fast = (
        TreeDescent(tree, kappa=kappa, backend=b) for b in ("numpy", "numba")
    )
    q = some_q(tree, seed)
    for _ in range(10):
        costs = source.exponential(size=len(tree)) * 10.0 ** source.integers(-3, 4)
        available = source.random(len(tree)) < 0.7 if blocked else None
        if available is not None:
            available[source.integers(len(tree))] = True
        one, other = plain.step(q, costs, available), fast.step(q, costs, available)
        # Both are optimal to 1e-12 (above); exp and the order of sums differ by some roundings.
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-12)
        masses = plain.distribution(one), fast.distribution(other)
        # A product over the levels of factors of at most 1: their errors add up.
        np.testing.assert_allclose(
            *masses, rtol=0.0, atol=1e-12 * max(1, len(tree.levels))
        )
        if available is not None:  # exactly 0, by a margin that no rounding takes
            assert not any(mass[~available].any() for mass in masses)
        q = one


@pytest.mark.parametrize("backend", BACKENDS)
@given(tree=trees, seed=seeds)
@settings(max_examples=50)
def test_step_ignores_a_constant_added_to_all_costs(
    backend: Backend, tree: Tree, seed: int
) -> None:
    descent, q = TreeDescent(tree, backend=backend), some_q(tree, seed)
    costs = (
        rng(seed).integers(0, 1024, size=len(tree)) / 1024.0
    )  # so that sums are exact
    after = descent.step(q, costs)
    fastest = float(
        (np.diff(np.sort(costs)).max(initial=0.0) + 1.0) * descent._rate.max()
    )
    for constant in (-1024.0, 1.0, 2.0**20):
        # At inner vertices, costs of this size are off by half a rounding per level.
        allowed = 1e-13 + 4 * len(tree.levels) * abs(constant) * EPS * fastest
        np.testing.assert_allclose(
            descent.step(q, costs + constant), after, rtol=0.0, atol=allowed
        )
    np.testing.assert_allclose(
        descent.step(q, np.full(len(tree), 3.0)), q, rtol=0.0, atol=1e-14
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_kappa_multiplies_costs(backend: Backend) -> None:
    for seed in range(10):
        tree, costs = drawn_tree(9, seed), 0.05 * rng(seed).normal(size=9)
        q = some_q(tree, seed)
        plain, eager = (
            TreeDescent(tree, kappa=kappa, backend=backend) for kappa in (1.0, 4.0)
        )
        # 4 is a power of two: nothing is rounded otherwise.
        np.testing.assert_array_equal(eager.step(q, costs), plain.step(q, 4.0 * costs))
        paid = [
            descent.distribution(descent.step(q, costs)) @ costs
            for descent in (plain, eager)
        ]
        assert paid[1] < paid[0] < plain.distribution(q) @ costs


@pytest.mark.parametrize("backend", BACKENDS)
def test_step_does_not_depend_on_units(backend: Backend) -> None:
    """Distances and costs in another unit: a power of two, so that the bits are the same."""
    tree, costs = drawn_tree(9, 0), rng(0).normal(size=9)
    q, after = (
        some_q(tree, 0),
        TreeDescent(tree, backend=backend).step(some_q(tree, 0), costs),
    )
    for unit in (2.0**-300, 2.0**-30, 2.0**30, 2.0**300):
        other = Tree(parent=tree.parent, weight=unit * tree.weight, leaf=tree.leaf)
        moved = TreeDescent(other, backend=backend).step(q, unit * costs)
        np.testing.assert_array_equal(moved, after)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_are_not_modified_and_may_be_read_only(backend: Backend) -> None:
    tree = drawn_tree(9, 1)
    descent, q, costs = (
        TreeDescent(tree, backend=backend),
        some_q(tree, 1),
        rng(1).normal(size=9),
    )
    copies, after = (q.copy(), costs.copy()), descent.step(q, costs)
    np.testing.assert_array_equal(q, copies[0])
    np.testing.assert_array_equal(costs, copies[1])
    q.flags.writeable = costs.flags.writeable = False
    np.testing.assert_array_equal(descent.step(q, costs), after)
    strided = np.repeat(q, 2)[::2], np.repeat(costs, 3)[::3]
    np.testing.assert_array_equal(descent.step(*strided), after)
    np.testing.assert_array_equal(descent.step(q, costs.tolist(), [True] * 9), after)  # type: ignore[arg-type]


# --- sizes ---------------------------------------------------------------------------------------

SIZES = [1e-100, 1e-30, 1e-9, 1e-3, 1e3, 1e6, 1e9, 1e16, 1e30, 1e99]


@pytest.mark.thorough
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES)
def test_costs_of_any_size_yield_probabilities(backend: Backend, size: float) -> None:
    for seed, make in ((0, drawn_tree), (1, any_tree), (2, drawn_tree)):
        tree = make(12, seed)
        descent, q, source = (
            TreeDescent(tree, backend=backend),
            some_q(tree, seed),
            rng(seed),
        )
        for _ in range(5):
            costs = size * source.normal(size=12)
            after = descent.step(q, costs)
            assert_probabilities(tree, after)
            assert largest_fault(descent, q, costs, after) < 1e-12
            slow = slow_step(descent, q, costs)
            np.testing.assert_allclose(after, slow, rtol=0.0, atol=1e-12)
            assert descent.distribution(after).sum() == pytest.approx(
                1.0, abs=100 * EPS
            )
            q = after


@pytest.mark.parametrize("backend", BACKENDS)
def test_very_large_costs_leave_the_cheapest_action_and_tiny_ones_leave_all(
    backend: Backend,
) -> None:
    for seed in range(5):
        tree, costs = drawn_tree(12, seed), rng(seed).normal(size=12)
        descent, q = TreeDescent(tree, backend=backend), some_q(tree, seed)
        cheapest = np.eye(12)[costs.argmin()]
        for size in (1e9, 1e50, 1e99):
            np.testing.assert_array_equal(
                descent.distribution(descent.step(q, size * costs)), cheapest
            )
        for size in (1e-20, 1e-50, 1e-100):
            np.testing.assert_allclose(
                descent.step(q, size * costs), q, rtol=0.0, atol=20 * EPS
            )


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_of_any_size_yield_probabilities(backend: Backend) -> None:
    between = PointMetric(
        points=np.array([[0.0], [1e-9], [3e-9], [1.0], [1e6], [1e6 + 1e-9]])
    )
    for seed in range(5):
        tree, source = frt_tree(between, rng(seed)), rng(seed)
        for kappa in (1.0, 1e6, 1e100):
            descent = TreeDescent(tree, kappa=kappa, backend=backend)
            q = descent.point_mass(int(source.integers(6)))
            for power in source.integers(-100, 100, size=20):
                costs = 10.0**power * source.normal(size=6)
                after = descent.step(q, costs)
                assert_probabilities(tree, after)
                assert largest_fault(descent, q, costs, after) < 1e-12
                q = after


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_probabilities_stay_normalised_over_a_long_walk(backend: Backend) -> None:
    tree, source = drawn_tree(30, 3), rng(3)
    descent = TreeDescent(tree, backend=backend)
    q = descent.point_mass(0)
    for _ in range(1500):
        q = descent.step(q, source.exponential(size=30))
    assert_probabilities(tree, q)
    assert descent.distribution(q).sum() == pytest.approx(1.0, abs=100 * EPS)


# --- actions that are not available --------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@given(tree=trees, seed=seeds, size=st.sampled_from([0.0, 1e-3, 1.0, 1e3]))
def test_unavailable_actions_have_infinite_cost(
    backend: Backend, tree: Tree, seed: int, size: float
) -> None:
    descent, q, source = (
        TreeDescent(tree, backend=backend),
        some_q(tree, seed),
        rng(seed),
    )
    available = source.random(len(tree)) < 0.5
    available[source.integers(len(tree))] = True
    costs = size * source.normal(size=len(tree))
    after = descent.step(q, costs, available)
    assert_probabilities(tree, after)
    np.testing.assert_array_equal(descent.distribution(after)[~available], 0.0)
    slow = slow_step(descent, q, np.where(available, costs, np.inf))
    np.testing.assert_allclose(after, slow, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    tree=trees,
    seed=seeds,
    size=st.sampled_from(SIZES),
    constant=st.sampled_from([0.0, -1.0, 1.0, 8.0]),
)
def test_the_mass_of_unavailable_actions_is_exactly_0(
    backend: Backend, tree: Tree, seed: int, size: float, constant: float
) -> None:
    descent, q, source = (
        TreeDescent(tree, backend=backend),
        some_q(tree, seed),
        rng(seed),
    )
    for _ in range(5):
        available = source.random(len(tree)) < 0.5
        available[source.integers(len(tree))] = True
        # Few different costs: a difference of one rounding must not keep anything alive.
        costs = size * (
            constant + source.integers(0, 3, size=len(tree)) * source.choice([EPS, 1.0])
        )
        q = descent.step(q, costs, available)
        assert_probabilities(tree, q)
        np.testing.assert_array_equal(descent.distribution(q)[~available], 0.0)
        assert descent.distribution(q).sum() == pytest.approx(1.0, abs=100 * EPS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_mass_returns_to_actions_available_again(backend: Backend) -> None:
    for seed in range(5):
        tree = drawn_tree(8, seed)
        descent, costs = TreeDescent(tree, backend=backend), np.ones(8)
        costs[3] = 0.0
        gone = np.arange(8) != 3
        q = descent.point_mass(3)
        for _ in range(5):
            q = descent.step(q, costs, gone)
            assert descent.distribution(q)[3] == 0.0
        shares = []
        for _ in range(200):
            q = descent.step(q, costs, np.ones(8, dtype=bool))
            shares.append(float(descent.distribution(q)[3]))
        assert shares[0] > 0.0
        assert (np.diff(shares) >= -8 * EPS).all()
        assert shares[-1] == 1.0


def test_invalid_masks_are_rejected() -> None:
    descent = TreeDescent(drawn_tree(4, 0))
    q = descent.point_mass(0)
    for mask in (
        [True] * 3,
        [1, 0, 1, 1],
        np.ones((4, 1), dtype=bool),
        ["a"] * 4,
        True,
    ):
        with pytest.raises(InputError, match="available"):
            descent.step(q, np.ones(4), mask)  # type: ignore[arg-type]
    with pytest.raises(InfeasibleError, match="no action is available"):
        descent.step(q, np.ones(4), np.zeros(4, dtype=bool))


# --- places and distributions --------------------------------------------------------------------


def line_up(tree: Tree, action: int) -> list[int]:
    """The action's vertex, its parent, and so on; without the root."""
    vertex, path = int(tree.leaf[action]), []
    while vertex:
        path.append(vertex)
        vertex = int(tree.parent[vertex])
    return path


@given(tree=trees, seed=seeds)
def test_distribution_is_the_product_along_the_path(tree: Tree, seed: int) -> None:
    """[ramesh2022movement, eqs. 8 and 11]"""
    descent, q = TreeDescent(tree), some_q(tree, seed)
    slow = [
        np.prod([q[v] for v in line_up(tree, action)]) for action in range(len(tree))
    ]
    np.testing.assert_allclose(descent.distribution(q), slow, rtol=2 * len(tree) * EPS)
    z = tree.masses(descent.distribution(q))
    for vertex, children in families(tree):
        np.testing.assert_allclose(
            z[children], z[vertex] * q[children], rtol=0.0, atol=50 * EPS
        )


@given(tree=trees)
def test_being_somewhere_for_certain(tree: Tree) -> None:
    """[ramesh2022movement, eq. 23], and the share of actions wherever that leaves q open."""
    descent = TreeDescent(tree)
    for action in range(len(tree)):
        q, way = descent.point_mass(action), line_up(tree, action)
        np.testing.assert_array_equal(
            descent.distribution(q), np.eye(len(tree))[action]
        )
        for vertex, children in families(tree):
            if vertex == 0 or vertex in way:
                np.testing.assert_array_equal(q[children], np.isin(children, way))
            else:
                leaves = np.array([_leaves(tree, int(child)) for child in children])
                np.testing.assert_allclose(q[children], leaves / leaves.sum(), rtol=EPS)


def test_weights_of_the_potential_are_those_of_the_paper() -> None:
    """[ramesh2022movement, eq. 25]: θ, η and δ of two children with 1 and 3 actions."""
    tree = Tree(
        parent=[-1, 0, 0, 1, 1, 1], weight=[0, 2, 2, 1, 1, 1], leaf=[2, 3, 4, 5]
    )  # type: ignore[arg-type]
    descent = TreeDescent(tree, kappa=2.0)
    np.testing.assert_allclose(descent.theta[1:3], [0.75, 0.25])
    np.testing.assert_allclose(descent.theta[3:], 1 / 3)
    eta = 1.0 + np.log(1.0 / descent.theta[1:])
    np.testing.assert_allclose(descent.delta[1:], descent.theta[1:] / eta, rtol=4 * EPS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_single_action_keeps_its_position(backend: Backend) -> None:
    descent = TreeDescent(
        frt_tree(PointMetric(points=np.zeros((1, 1))), rng(0)), backend=backend
    )
    q = descent.point_mass(0)
    np.testing.assert_array_equal(q, [1.0])
    for costs in ([5.0], [-1e99]):
        q = descent.step(q, costs, np.array([True]))
        np.testing.assert_array_equal(descent.distribution(q), [1.0])
    with pytest.raises(InfeasibleError):
        descent.step(q, [1.0], np.array([False]))


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_invalid_costs_are_rejected(backend: Backend) -> None:
    descent = TreeDescent(drawn_tree(3, 0), backend=backend)
    q = descent.point_mass(0)
    wrong: list[Any] = [
        [1.0, 2.0], [1.0, 2.0, np.nan], [1.0, np.inf, 0.0], [[1.0, 2.0, 3.0]], "abc", None,
        [1e101, 0.0, 0.0], [0.0, -1e101, 0.0], np.ma.masked_equal([1.0, 2.0, 3.0], 2.0),
    ]  # fmt: skip
    for costs in wrong:
        with pytest.raises(InputError, match="costs"):
            descent.step(q, costs)


def test_invalid_settings_are_rejected() -> None:
    tree = drawn_tree(3, 0)
    for kappa in (0.5, 0.0, -1.0, np.nan, np.inf, 1e101, "1", None):
        with pytest.raises(InputError, match="kappa"):
            TreeDescent(tree, kappa=kappa)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="backend is 'cuda'; choose"):
        TreeDescent(tree, backend="cuda")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tree"):
        TreeDescent(tree.distances)  # type: ignore[arg-type]
    descent = TreeDescent(tree)
    with pytest.raises(
        UnknownArmError, match="action is 3; the tree has actions 0 to 2"
    ):
        descent.point_mass(3)
    for action in (-1, 0.5, True, "0", None):
        with pytest.raises(InputError, match="action"):
            descent.point_mass(action)  # type: ignore[arg-type]


def test_without_numba_plain_loops_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = drawn_tree(5, 0)
    plain = TreeDescent(tree, backend="numpy")
    monkeypatch.setitem(sys.modules, "numba", None)
    descent = TreeDescent(tree)
    q, costs = descent.point_mass(0), np.arange(5.0)
    np.testing.assert_array_equal(descent.step(q, costs), plain.step(q, costs))
    with pytest.raises(ImportError, match="pip install 'numba"):
        TreeDescent(tree, backend="numba")


def test_probabilities_of_another_tree_are_refused() -> None:
    small, large = (
        TreeDescent(
            frt_tree(
                PointMetric(points=np.arange(n)[:, None]), np.random.default_rng(0)
            )
        )
        for n in (2, 9)
    )
    q = large.point_mass(3)
    for wrong in (small.point_mass(1), q[:-1], np.full_like(q, np.nan), None, "q"):
        for ask in (large.distribution, lambda q: large.step(q, np.zeros(9))):
            with pytest.raises(InputError, match="q"):
                ask(wrong)
    np.testing.assert_array_equal(
        large.step(q.tolist(), np.zeros(9)), large.step(q, np.zeros(9))
    )
