"""What the variational posterior saves, against the direct computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_data import batch_rng

from superarm.core import Floats
from superarm.kernels import Empirical, Kernel, Matern
from superarm.posteriors import SparseVariational
from superarm.posteriors.variational.adam import Adam
from superarm.posteriors.variational.distribution import (
    VariationalDistribution,
    WhitenedBatch,
    inducing_factor,
    prior_at,
)
from superarm.posteriors.variational.history import Batch
from superarm.posteriors.variational.steps import natural_step, point_gradient

EDGES = 40


def road_arms(seed: int) -> Floats:
    """Every edge with random features, (EDGES, 3)."""
    features = np.random.default_rng(seed).standard_normal((EDGES, 2))
    return np.column_stack([np.arange(EDGES), features])


def road_kernel() -> Kernel:
    """k_G·k_f + k′_f with equal lengthscales, which is evaluated as (k_G + s)·k_f."""
    root = np.random.default_rng(9).standard_normal((EDGES, EDGES))
    graph = root @ root.T / EDGES + 0.3 * np.eye(EDGES)
    features = Matern(nu=2.5, columns=(1, 2))
    alone = Matern(nu=2.5, variance=0.8, columns=(1, 2))
    return Empirical(covariance=graph) * features + alone


def some_distribution(count: int = 40, rank: int = 40) -> VariationalDistribution:
    """A q at arms of the network to which data have added something of this rank."""
    rng = np.random.default_rng(4)
    points = road_arms(4)[:count]
    root = rng.standard_normal((count, rank))
    return VariationalDistribution(
        points=points,
        factor=inducing_factor(road_kernel(), points),
        precision=root @ root.T,
        shift=rng.standard_normal(count),
    )


@pytest.mark.parametrize("rank", [40, 3])
def test_moments_by_one_triangular_product(rank: int) -> None:
    """With less than full rank, rounding may leave no root: then it takes two solves."""
    q = some_distribution(rank=rank)
    kernel = road_kernel()
    rows = road_arms(5)
    if rank == 40:
        assert q.reduction_root is not None
    A = q.whitened(kernel, rows)
    S = np.linalg.inv(np.eye(len(A)) + q.precision)
    for many in (False, True):
        moments = q.moments(kernel, rows, many)
        np.testing.assert_allclose(moments.mean, A.T @ S @ q.shift, atol=1e-11)
        reduction = np.einsum("ij,ij->j", A, A - S @ A)
        np.testing.assert_allclose(moments.reduction, reduction, atol=1e-11)


def test_a_prior_reduces_nothing() -> None:
    kernel = road_kernel()
    rows = road_arms(5)
    q = prior_at(kernel, rows[:9])
    assert q.reduction_root is None
    moments = q.moments(kernel, rows, many=True)
    np.testing.assert_allclose(moments.reduction, 0.0, atol=1e-14)


def test_rows_at_inducing_points_are_read_from_the_factor() -> None:
    q = some_distribution(12, 12)
    kernel = road_kernel()
    others = road_arms(4)[12:20]
    rows = np.vstack([q.points[[3, 0, 3]], others, q.points[[11]]])
    whitened = q.whitened_batch(kernel, rows)
    assert whitened.point_of.tolist() == [3, 0, *[-1] * 9, 11]
    np.testing.assert_allclose(whitened.A, q.whitened(kernel, rows), atol=1e-13)


class Direct:
    """Algorithm 3 by dense inverses: every round from the whole of q, nothing shared."""

    def __init__(self, gp: SparseVariational, kernel: Any, noise: float) -> None:
        self.gp = gp
        self.kernel = kernel
        self.noise = noise
        self.rows = np.empty((0, 3))
        self.rewards = np.empty(0)
        self.arms: list[float] = []
        self.q: VariationalDistribution | None = None
        self.unmoved: VariationalDistribution | None = None
        self.adam = Adam.zeros(0, 2)

    def observe(self, rows: Floats, rewards: Floats, rng: np.random.Generator) -> None:
        self.rows = np.vstack([self.rows, rows])
        self.rewards = np.append(self.rewards, rewards)
        numbers, first, visits = np.unique(
            self.rows[:, 0], return_index=True, return_counts=True
        )
        most_visited = np.lexsort((first, -visits))[: self.gp.inducing]
        in_order = most_visited[np.argsort(first[most_visited])]
        points = self.rows[first[in_order]]
        arms = numbers[in_order].tolist()
        old_index = [self.arms.index(arm) if arm in self.arms else -1 for arm in arms]
        q = self.moved_to(points)
        adam = self.adam.selected(np.array(old_index, dtype=np.intp))
        count = len(self.rewards)
        drawn = np.arange(count)
        if count > self.gp.batch:
            drawn = rng.choice(count, self.gp.batch, replace=False)
        noise = np.full(len(drawn), self.noise)
        batch = Batch(self.rows[drawn], self.rewards[drawn], noise, count / len(drawn))
        A = np.linalg.solve(q.factor, self.kernel(points, batch.rows))
        whitened = WhitenedBatch(A, np.full(len(drawn), -1))
        moving = np.array([1, 2])
        gradient = point_gradient(q, self.kernel, whitened, batch, moving)
        self.adam = adam.advanced(gradient / count)
        learned = natural_step(q, A, batch, self.gp.natural_rate)
        self.unmoved = learned
        moved = points.copy()
        moved[:, 1:] += self.gp.adam_rate * self.adam.direction()
        self.q = VariationalDistribution(
            points=moved,
            factor=inducing_factor(self.kernel, moved),
            precision=learned.precision,
            shift=learned.shift,
        )
        self.arms = arms

    def moved_to(self, points: Floats) -> VariationalDistribution:
        """The last q, before Adam moved its points, at other ones."""
        prior = prior_at(self.kernel, points)
        old = self.unmoved
        if old is None:
            return prior
        cross = np.linalg.solve(old.factor, self.kernel(old.points, points))
        B = np.linalg.solve(prior.factor, cross.T).T
        C = np.eye(len(B)) - B @ B.T
        inverse = np.linalg.inv(np.eye(len(B)) + old.precision @ C)
        return VariationalDistribution(
            points=points,
            factor=prior.factor,
            precision=B.T @ inverse @ old.precision @ B,
            shift=B.T @ inverse @ old.shift,
        )

    def moments(self, rows: Floats) -> tuple[Floats, Floats]:
        assert self.q is not None
        A = np.linalg.solve(self.q.factor, self.kernel(self.q.points, rows))
        S = np.linalg.inv(np.eye(len(A)) + self.q.precision)
        variance = self.kernel.diag(rows) - np.einsum("ij,ij->j", A, A - S @ A)
        return A.T @ S @ self.q.shift, variance


def test_a_stream_is_algorithm_3_by_dense_inverses() -> None:
    """Arms come and go, batches are drawn, points move: the same posterior in every round.

    Rounding is amplified by Adam, which divides a gradient by its own size: hence 1e-7, where the
    moments are of order 1 and differ by about 1e-10.
    """
    rng = np.random.default_rng(6)
    arms = road_arms(6)
    kernel = road_kernel()
    gp = SparseVariational(
        kernel, 0.1, inducing=14, batch=50, adam_rate=0.02, discrete_columns=(0,)
    )
    direct = Direct(gp, kernel, 0.1)
    changed = 0
    for step in range(25):
        rows = arms[rng.integers(0, EDGES, 6)]
        rewards = rng.standard_normal(6)
        before = direct.arms
        gp.observe(rows, rewards, rng=np.random.default_rng(step))
        direct.observe(rows, rewards, np.random.default_rng(step))
        changed += len(before) == 14 and before != direct.arms
        mean, std = gp.predict(arms)
        expected_mean, expected_variance = direct.moments(arms)
        np.testing.assert_allclose(mean, expected_mean, atol=1e-7)
        np.testing.assert_allclose(np.square(std), expected_variance, atol=1e-7)
    assert changed > 5


def test_a_forecast_asks_about_the_same_covariance() -> None:
    """The cached covariance is a copy, and later rewards replace it."""
    kernel = Matern(nu=2.5, lengthscale=0.5)
    arms = np.linspace(0.0, 1.0, 8)[:, None]
    gp = SparseVariational(kernel, 0.01)
    gp.observe(arms[:3], [1.0, 0.0, -1.0], rng=batch_rng())
    first = gp.predict(arms, return_cov=True)[1]
    first[...] = 0.0
    again = gp.predict(arms, return_cov=True)[1]
    assert np.diagonal(again).min() > 0.0
    gp.observe(arms[3:], np.zeros(5), rng=batch_rng())
    later = gp.predict(arms, return_cov=True)[1]
    assert np.trace(later) < np.trace(again)
