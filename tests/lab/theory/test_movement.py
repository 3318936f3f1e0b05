"""Mirror descent on trees: bounds on its service cost, and the order of Theorem 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core.errors import InputError
from superarm.lab.theory import movement_rate, service_constant
from superarm.movement import (
    MatrixMetric,
    PointMetric,
    Tree,
    TreeDescent,
    frt_tree,
    offline_optimum,
)


@given(st.integers(0, 10**6), st.integers(2, 9), st.sampled_from([1.0, 1.5, 4.0]))
def test_service_is_below_that_of_every_way_and_c_times_its_movement(
    seed: int, n: int, kappa: float
) -> None:
    """Against the way that is cheapest when distances on the tree count C times: the worst one."""
    rng = np.random.default_rng(seed)
    tree = frt_tree(
        PointMetric(points=rng.random((n, 2))), rng, tau=float(rng.choice([1.5, 2, 4]))
    )
    C, descent = service_constant(tree, kappa), TreeDescent(tree, kappa=kappa)
    size = 10.0 ** rng.uniform(-2, 2)
    costs = size * rng.random((25, n)) * (rng.random((25, n)) < rng.random())
    start = int(rng.integers(n))
    q, service = descent.point_mass(start), 0.0
    for row in costs:
        q = descent.step(q, row)
        service += float(descent.distribution(q) @ row)
    charged = MatrixMetric(distances=C * tree.distances, repair=True)
    assert (
        service
        <= offline_optimum(costs, charged, start).total * (1.0 + 1e-12) + 1e-12 * size
    )


def slow_constant(tree: object, kappa: float) -> float:
    """Every way from one action to another, with the divergence of eq. 26 at every corner."""
    descent = TreeDescent(tree, kappa=kappa)  # type: ignore[arg-type]
    parent, weight = descent.tree.parent, descent.tree.weight
    theta = [
        1.0 if p < 0 else descent.tree.sizes[v] / descent.tree.sizes[p]
        for v, p in enumerate(parent)
    ]
    eta = [1.0 + math.log(1.0 / share) for share in theta]
    delta = [one / other for one, other in zip(theta, eta, strict=True)]

    def divergence(children: list[int], first: int, second: int) -> float:
        total = 0.0
        for v in children:
            p, q = float(v == first), float(v == second)
            inner = (p + delta[v]) * math.log((p + delta[v]) / (q + delta[v])) + q - p
            total += weight[v] / eta[v] * inner
        return total / kappa

    def above(action: int) -> list[int]:
        vertex, ancestors = int(descent.tree.leaf[action]), []
        while vertex:
            ancestors.append(vertex)
            vertex = int(parent[vertex])
        return ancestors

    worst = 0.0
    for one in range(len(descent.tree)):
        for other in range(len(descent.tree)):
            new = [v for v in above(other) if v not in above(one)]
            grown = 0.0
            for v in new:
                children = [u for u in range(len(parent)) if parent[u] == parent[v]]
                grown += max(divergence(children, v, second) for second in children)
            if new:
                worst = max(worst, grown / descent.tree.distances[one, other])
    return worst


@pytest.mark.parametrize("kappa", [1.0, 2.5])
def test_the_constant_is_that_of_the_worst_move(kappa: float) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        tree = frt_tree(PointMetric(points=rng.random((7, 2))), rng)
        slow, constant = slow_constant(tree, kappa), service_constant(tree, kappa)
        assert (
            slow * (1.0 - 1e-12) <= constant
        )  # the way's other end is taken to be as near as it can be
        assert constant <= 1.5 * slow


@pytest.mark.parametrize(
    "weights", [(1.0, 0.1, 0.5), (0.3, 0.3, 2.0), (0.2, 1.0, 1.0, 0.7)]
)
def test_a_way_may_begin_at_the_nearest_of_siblings_that_weigh_different_amounts(
    weights: tuple[float, ...],
) -> None:
    """On a star every way is from one leaf to another: the constant is that of the worst, exactly."""
    count = len(weights)
    tree = Tree(
        parent=np.array([-1, *[0] * count]),
        weight=np.array([0.0, *weights]),
        leaf=np.arange(1, count + 1),
    )
    assert service_constant(tree) == pytest.approx(slow_constant(tree, 1.0), rel=1e-12)


def test_the_grid_of_the_paper_is_1_competitive_on_its_trees() -> None:
    axis = np.linspace(0.0, 1.0, 20)
    metric = PointMetric(
        points=np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    )
    constants = [
        service_constant(frt_tree(metric, np.random.default_rng(seed)))
        for seed in range(3)
    ]
    assert max(constants) < 1.0
    tree = frt_tree(metric, np.random.default_rng(0))
    assert service_constant(tree, 3.0) == pytest.approx(service_constant(tree) / 3.0)


def test_no_tree_with_tau_2_has_a_constant_above_one() -> None:
    """Siblings weigh the same, w. Caps of two children are below 1.383 w for all shares θ, and a way
    down weighs at most 2w, beside w on the other side: C ≤ 1.383 · 2/3."""
    theta = np.geomspace(1e-12, 1.0, 20_001)
    eta = 1.0 - np.log(theta)
    delta = theta / eta
    reach = np.log1p(1.0 / delta)
    enters, leaves = ((1.0 + delta) * reach - 1.0) / eta, (1.0 - delta * reach) / eta
    # The other child's share is at most 1 − θ; what leaves it is largest there.
    for share, enter in zip(theta[::50], enters[::50], strict=True):
        assert enter + leaves[theta <= 1.0 - share].max(initial=0.0) < 1.383
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tree = frt_tree(
            PointMetric(points=rng.random((int(rng.integers(2, 40)), 2))), rng
        )
        assert service_constant(tree) <= 1.383 * 2.0 / 3.0


def test_the_order_of_theorem_1() -> None:
    rounds = np.array([10, 100])
    rates = movement_rate(rounds, math.log, delta=0.05)
    for T, value in zip(rounds.tolist(), rates.tolist(), strict=True):
        beta = math.sqrt(2.0 * math.log(T) + 2.0 * math.log(20.0))
        assert value == pytest.approx(beta * math.sqrt(T * math.log(T)))
    with pytest.raises(InputError, match="delta"):
        movement_rate(10, math.log, delta=1.0)
    with pytest.raises(InputError, match="rounds"):
        movement_rate(0, math.log)
