"""The variational posterior against the exact one, closed forms and finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from edge_data import EDGES, batch_rng, edge_data, network_arms, network_kernel
from scipy.sparse import csc_array

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.kernels import GraphMatern, Kernel, Matern, SquaredExponential
from superarm.posteriors import (
    FiniteGP,
    SparseVariational,
    StreamingGP,
    log_marginal_likelihood,
)
from superarm.posteriors.variational.adam import Adam
from superarm.posteriors.variational.distribution import (
    VariationalDistribution,
    inducing_factor,
    prior_at,
    transfer,
)
from superarm.posteriors.variational.history import Batch, History
from superarm.posteriors.variational.steps import (
    natural_step,
    noise_ratio,
    point_gradient,
)


def lower_bound(q: VariationalDistribution, kernel: Any, batch: Batch) -> float:
    """The (minibatch) evidence lower bound, Hensman et al. 2013, eq. 4 with noise per observation::

    s·Σ [ln N(y; Aᵀm, d) − (k(x, x) − |a|² + aᵀ S a)/(2d)] − KL(q ‖ prior)
    """
    A, covariance = (
        q.whitened(kernel, batch.rows),
        np.linalg.inv(np.eye(len(q.shift)) + q.precision),
    )
    error = batch.residual - A.T @ q.mean
    variance = kernel.diag(batch.rows) - np.square(A).sum(axis=0)
    variance += np.einsum("ij,ik,kj->j", A, covariance, A)
    terms = (
        np.log(2.0 * np.pi * batch.noise) + (np.square(error) + variance) / batch.noise
    )
    size = np.trace(covariance) + q.mean @ q.mean - len(q.mean)
    divergence = 0.5 * (size - np.linalg.slogdet(covariance).logabsdet)
    return float(-0.5 * batch.scale * terms.sum() - divergence)


def bound_of(gp: SparseVariational) -> float:
    """That of everything observed."""
    rows, rewards, noise = gp.observed
    assert gp._fit is not None
    residual = rewards - gp._prior_mean(rows)
    return lower_bound(gp._fit.q, gp.kernel, Batch(rows, residual, noise, 1.0))


def assert_same_moments(one: Any, other: Any, rows: Floats, tolerance: float) -> None:
    mean, cov = one.predict(rows, return_cov=True)
    expected_mean, expected_cov = other.predict(rows, return_cov=True)
    np.testing.assert_allclose(mean, expected_mean, atol=tolerance)
    np.testing.assert_allclose(cov, expected_cov, atol=tolerance)
    std = one.predict(rows).std
    np.testing.assert_allclose(std, np.sqrt(np.diagonal(expected_cov)), atol=tolerance)


# --- convergence to the exact posterior ------------------------------------------------------


@pytest.mark.parametrize("discrete", [(), (0,)])
def test_at_rate_one_with_everything_inducing_it_is_exact(
    discrete: tuple[int, ...],
) -> None:
    rows, rewards, noise = edge_data(60)
    kernel = network_kernel()

    def prior(arms: Floats) -> Floats:
        return 0.1 * arms[:, 0] - 0.4

    gp = SparseVariational(
        kernel, 0.1, prior, natural_rate=1.0, adam_rate=0.0, discrete_columns=discrete
    )
    exact = StreamingGP(kernel, 0.1, prior)
    for part in np.split(np.arange(60), 12):
        for posterior in (gp, exact):
            posterior.observe(rows[part], rewards[part], noise[part], rng=batch_rng())
        assert_same_moments(gp, exact, network_arms(np.random.default_rng(0)), 1e-9)
    assert gp.information_gain == pytest.approx(exact.information_gain, abs=1e-9)
    assert gp.incumbent == pytest.approx(exact.incumbent, abs=1e-9)
    assert len(gp.inducing_points) == len(np.unique(rows, axis=0))


def test_natural_steps_converge_to_the_exact_posterior() -> None:
    rows, rewards, noise = edge_data(80, seed=3)
    kernel = network_kernel()
    exact = StreamingGP(kernel, 0.1)
    exact.observe(rows, rewards, noise)
    gp = SparseVariational(kernel, 0.1, steps=250, natural_rate=0.1, adam_rate=0.0)
    for part in np.split(np.arange(80), 4):
        gp.observe(rows[part], rewards[part], noise[part], rng=batch_rng())
    assert_same_moments(gp, exact, network_arms(np.random.default_rng(3)), 1e-8)


@pytest.mark.parametrize("inducing", [6, EDGES])
def test_points_move_only_in_continuous_columns(inducing: int) -> None:
    rows, rewards, noise = edge_data(80, seed=4)
    kernel = network_kernel()
    gp = SparseVariational(
        kernel, 0.1, inducing=inducing, steps=150, discrete_columns=(0,)
    )
    gp.observe(rows, rewards, noise, rng=batch_rng())
    arms = network_arms(np.random.default_rng(4))
    edges = gp.inducing_points[:, 0].astype(int)
    np.testing.assert_array_equal(gp.inducing_points[:, 0], edges)
    moved = np.abs(gp.inducing_points - arms[edges])[:, 1:].max(axis=1)
    if inducing < EDGES:
        assert (moved > 1e-3).all()
    else:
        # On all the data, every move only turns the whitened variables: the gradient is 0.
        assert moved.max() < 1e-4
        exact = StreamingGP(kernel, 0.1)
        exact.observe(rows, rewards, noise)
        assert_same_moments(gp, exact, arms, 1e-5)


def test_fewer_points_are_titsias_closed_form() -> None:
    """Rate 1 with the full batch: Titsias (2009), eq. 10, written out without whitening."""
    rng = np.random.default_rng(5)
    rows, rewards = rng.random((40, 2)), rng.standard_normal(40)
    rows[20:] = rows[rng.integers(0, 6, 20)]  # six arms are visited most
    noise = rng.uniform(0.05, 0.2, 40)
    kernel = Matern(nu=1.5, lengthscale=0.4)
    gp = SparseVariational(
        kernel, 0.1, 0.2, inducing=6, natural_rate=1.0, adam_rate=0.0
    )
    gp.observe(rows, rewards, noise, rng=batch_rng())
    Z = gp.inducing_points
    assert len(Z) == 6
    K, cross = kernel(Z), kernel(Z, rows)
    sigma = np.linalg.inv(K + (cross / noise) @ cross.T)
    queries = rng.random((15, 2))
    k = kernel(Z, queries)
    mean = 0.2 + k.T @ sigma @ (cross @ ((rewards - 0.2) / noise))
    cov = kernel(queries) - k.T @ np.linalg.solve(K, k) + k.T @ sigma @ k
    joint = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(joint.mean, mean, atol=1e-10)
    np.testing.assert_allclose(joint.cov, cov, atol=1e-10)
    # … at which the bound is Titsias' collapsed one, eq. 9.
    Q = cross.T @ np.linalg.solve(K, cross) + np.diag(noise)
    residual = rewards - 0.2
    collapsed = -0.5 * (
        residual @ np.linalg.solve(Q, residual)
        + np.linalg.slogdet(Q)[1]
        + 40 * np.log(2 * np.pi)
        + ((kernel.diag(rows) - np.diagonal(Q) + noise) / noise).sum()
    )
    assert bound_of(gp) == pytest.approx(collapsed, abs=1e-9)


@pytest.mark.slow
def test_on_a_graph_matern_kernel_it_converges_to_the_exact_posterior() -> None:
    """The navigation model on a ring road with a branch, contexts fixed per edge."""
    links = [(i, (i + 1) % EDGES) for i in range(EDGES)] + [(0, 5)]
    incidence = np.zeros((EDGES, len(links)))
    for column, (start, end) in enumerate(links):
        incidence[[start, end], column] = 1.0, -1.0
    graph = GraphMatern(csc_array(incidence @ incidence.T))
    features = Matern(nu=2.5, columns=(1, 2))
    kernel = 0.5 * graph * features + 0.5 * features
    rows, rewards, noise = edge_data(90, seed=11)
    gp = SparseVariational(kernel, 0.1, steps=40, batch=90, discrete_columns=(0,))
    exact = FiniteGP(kernel, network_arms(np.random.default_rng(11)), 0.1)
    for part in np.split(np.arange(90), 6):
        gp.observe(rows[part], rewards[part], noise[part], rng=batch_rng())
        exact.observe(rows[part, 0].astype(int), rewards[part], noise[part])
    # Adam's moves while arms still came are small here; at rest q is exact up to them.
    assert (
        np.abs(gp.predict(exact.arms).mean - exact.predict(np.arange(EDGES)).mean).max()
        < 0.05
    )
    still = SparseVariational(
        kernel, 0.1, steps=40, adam_rate=0.0, discrete_columns=(0,)
    )
    for part in np.split(np.arange(90), 6):
        still.observe(rows[part], rewards[part], noise[part], rng=batch_rng())
    for _ in range(6):  # the last data repeated with almost no weight: only steps
        still.observe(rows[:1], rewards[:1], [1e12], rng=batch_rng())
    joint, expected = (
        still.predict(exact.arms, return_cov=True),
        exact.predict(np.arange(EDGES), return_cov=True),
    )
    np.testing.assert_allclose(joint.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(joint.cov, expected.cov, atol=1e-8)


# --- the bound -------------------------------------------------------------------------------


def test_the_bound_rises_and_stays_below_the_evidence() -> None:
    rng = np.random.default_rng(6)
    rows, rewards = rng.random((50, 2)), rng.standard_normal(50)
    kernel = Matern(nu=2.5, lengthscale=0.5)
    noise = np.full(50, 0.2)
    evidence = log_marginal_likelihood(kernel, rows, rewards, noise_variance=0.2)
    q, batch = prior_at(kernel, rows[:10]), Batch(rows, rewards, noise, 1.0)
    bounds = [lower_bound(q, kernel, batch)]
    for _ in range(30):
        q = natural_step(q, q.whitened(kernel, rows), batch, 0.3)
        bounds.append(lower_bound(q, kernel, batch))
    assert (np.diff(bounds) > -1e-10).all()
    assert bounds[0] < bounds[-1] < evidence
    everywhere = SparseVariational(kernel, 0.2, natural_rate=1.0, adam_rate=0.0)
    everywhere.observe(rows, rewards, rng=batch_rng())
    assert bound_of(everywhere) == pytest.approx(evidence, abs=1e-6)


def test_adam_raises_the_bound() -> None:
    rng = np.random.default_rng(7)
    rows = rng.random((60, 2))
    rewards = np.sin(6.0 * rows[:, 0]) + 0.1 * rng.standard_normal(60)
    bounds = {}
    for rate in (0.0, 0.01):
        gp = SparseVariational(
            SquaredExponential(lengthscale=0.4),
            0.01,
            inducing=5,
            steps=120,
            adam_rate=rate,
        )
        gp.observe(rows, rewards, rng=batch_rng())
        bounds[rate] = bound_of(gp)
    assert bounds[0.01] > bounds[0.0] + 10.0


@pytest.mark.parametrize("where", ["apart", "on the data"])
def test_the_gradient_of_the_points_is_that_of_the_bound(where: str) -> None:
    """Against central differences of the bound, one coordinate after the other."""
    rows, rewards, noise = edge_data(30, seed=8)
    rng = np.random.default_rng(8)
    kernel = network_kernel()
    points = np.unique(rows, axis=0)[:7]
    if where == "apart":
        points = network_arms(np.random.default_rng(80))[:7]
    batch = Batch(rows, rewards, noise, 2.5)
    size = rng.standard_normal((7, 7))
    precision, shift = size @ size.T, rng.standard_normal(7)

    def distribution_at(Z: Floats) -> VariationalDistribution:
        return VariationalDistribution(
            points=Z,
            factor=inducing_factor(kernel, Z),
            precision=precision,
            shift=shift,
        )

    q = distribution_at(points)
    moving = np.array([1, 2])
    whitened = q.whitened_batch(kernel, rows)
    # Of repeated rows that are inducing points, each point's first.
    shared = whitened.point_of >= 0
    assert shared.sum() == (0 if where == "apart" else 7)
    assert len(np.unique(rows, axis=0)) < len(rows)
    gradient = point_gradient(q, kernel, whitened, batch, moving)
    expected = np.zeros((7, 2))
    for row in range(7):
        for place, column in enumerate(moving):
            step = np.zeros_like(points)
            step[row, column] = 1e-5
            rise = lower_bound(distribution_at(points + step), kernel, batch)
            expected[row, place] = (
                rise - lower_bound(distribution_at(points - step), kernel, batch)
            ) / 2e-5
    np.testing.assert_allclose(
        gradient, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
    )


class Foreign:
    """A kernel that is none of ours: it has no derivatives, and its matrices may not be changed."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, X: Any, Y: Any = None) -> Floats:
        K = self.kernel(X, Y)
        K.flags.writeable = False
        return K

    def diag(self, X: Any) -> Floats:
        return self.kernel.diag(X)


def test_a_foreign_kernel_moves_the_points_as_ours_does() -> None:
    """By central differences, which are precise to about ε^(2/3) ≈ 4e-11 of a kernel value."""
    rows, rewards, noise = edge_data(60, seed=12)
    kernel = network_kernel()
    q = prior_at(kernel, network_arms(np.random.default_rng(12))[:7])
    batch = Batch(rows, rewards, noise, 1.0)
    whitened = q.whitened_batch(kernel, rows)
    q = natural_step(q, whitened.A, batch, 0.5)
    moving = np.array([1, 2])
    ours = point_gradient(q, kernel, whitened, batch, moving)
    theirs = point_gradient(q, Foreign(kernel), whitened, batch, moving)
    np.testing.assert_allclose(theirs, ours, rtol=0.0, atol=1e-7 * np.abs(ours).max())
    moved = []
    for one in (kernel, Foreign(kernel)):
        gp = SparseVariational(one, 0.1, inducing=6, steps=20, discrete_columns=(0,))
        gp.observe(rows, rewards, noise, rng=batch_rng())
        moved.append(gp.inducing_points)
    np.testing.assert_allclose(*moved, rtol=0.0, atol=1e-5)


def test_merged_repeats_make_the_same_steps() -> None:
    rows, rewards, noise = edge_data(40, seed=2)
    kernel = network_kernel()
    q = prior_at(kernel, network_arms(np.random.default_rng(5))[:7])
    full = Batch(rows, rewards, noise, 3.0)
    fewer = full.merged()
    assert len(fewer.rows) == len(np.unique(rows[:, 0]))
    for _ in range(2):
        steps = [
            natural_step(q, q.whitened(kernel, batch.rows), batch, 0.4)
            for batch in (full, fewer)
        ]
        np.testing.assert_allclose(steps[0].precision, steps[1].precision, atol=1e-11)
        np.testing.assert_allclose(steps[0].shift, steps[1].shift, atol=1e-11)
        moves = [
            point_gradient(
                q, kernel, q.whitened_batch(kernel, batch.rows), batch, np.array([1, 2])
            )
            for batch in (full, fewer)
        ]
        np.testing.assert_allclose(*moves, atol=1e-7)
        q = steps[0]


def test_adam_is_kingma_and_bas() -> None:
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((4, 3, 2))
    adam, first, second = Adam.zeros(3, 2), np.zeros((3, 2)), np.zeros((3, 2))
    for age, gradient in enumerate(gradients, start=1):
        adam = adam.advanced(gradient)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        expected = first / (1 - 0.9**age) / (np.sqrt(second / (1 - 0.999**age)) + 1e-8)
        np.testing.assert_allclose(adam.direction(), expected, rtol=1e-12)
    chosen = adam.selected(np.array([2, -1]))
    np.testing.assert_array_equal(chosen.first, [adam.first[2], [0.0, 0.0]])
    np.testing.assert_array_equal(chosen.age, [4.0, 0.0])


# --- inducing arms ---------------------------------------------------------------------------


def test_the_most_visited_arms_are_inducing() -> None:
    history = History((0,))
    edges = [5, 3, 3, 8, 5, 1]
    rows = np.column_stack([edges, np.arange(6.0)])
    history.append(rows, np.zeros(6), np.ones(6))
    assert history.most_visited(2).tolist() == [0, 1]  # edges 5 and 3
    assert history.most_visited(3).tolist() == [
        0,
        1,
        2,
    ]  # 8 and 1 are equal: 8 was first
    np.testing.assert_array_equal(
        history.latest_rows(np.array([0, 1, 2])), rows[[4, 2, 3]]
    )
    history.append(np.array([[1.0, 9.0]] * 3), np.zeros(3), np.ones(3))
    assert history.most_visited(1).tolist() == [3]
    history.truncate(3)
    assert history.most_visited(9).tolist() == [0, 1]
    history.append(np.array([[7.0, 0.0]]), np.zeros(1), np.ones(1))
    assert history.most_visited(9).tolist() == [0, 1, 2]
    history.truncate(0)
    history.append(np.array([[7.0, 0.0, 2.0]]), np.zeros(1), np.ones(1))
    assert history.latest_rows(np.array([0])).tolist() == [[7.0, 0.0, 2.0]]


def test_the_defaults_are_the_papers() -> None:
    """Appendix B.3: M = 1000, B = 2500, G = 1, rates 0.1 and 0.01; Algorithm 3, line 2: restart."""
    parameters = dict(SparseVariational(Matern(), 0.1).parameters())
    settings = ("inducing", "batch", "steps", "natural_rate", "adam_rate", "restart")
    assert [parameters[name] for name in settings] == [1000, 2500, 1, 0.1, 0.01, True]


def test_points_start_at_their_arms_in_every_round_or_stay_where_they_were_moved() -> (
    None
):
    rows, rewards, noise = edge_data(40, seed=4)
    arms = network_arms(np.random.default_rng(4))

    def after(
        rounds: int, rate: float, restart: bool
    ) -> tuple[SparseVariational, Floats]:
        gp = SparseVariational(
            network_kernel(),
            0.1,
            inducing=6,
            adam_rate=rate,
            discrete_columns=(0,),
            restart=restart,
        )
        for _ in range(rounds):
            gp.observe(rows, rewards, noise, rng=batch_rng())
        return gp, np.abs(
            gp.inducing_points - arms[gp.inducing_points[:, 0].astype(int)]
        ).max(axis=0)

    restarted, from_home = after(5, 0.01, True)
    moved, gone = after(5, 0.01, False)
    assert from_home[0] == gone[0] == 0.0
    assert 0.005 < from_home.max() <= 0.01  # one step of Adam
    assert gone.max() > 0.02  # several
    # After every round but the last the restarted one is the one that never moved.
    still, nowhere = after(5, 0.0, True)
    assert not nowhere.any()
    back, expected = restarted._with_points_reset(), still._fit
    assert back is not None
    assert expected is not None
    np.testing.assert_array_equal(back.q.points, expected.q.points)
    np.testing.assert_allclose(back.q.mean, expected.q.mean, atol=1e-12)
    assert np.abs(moved.predict(arms).mean - restarted.predict(arms).mean).max() > 1e-3


def test_minus_zero_is_the_same_arm() -> None:
    gp = SparseVariational(Matern(), 0.1)
    gp.observe([[0.0], [-0.0]], [1.0, 1.0], rng=batch_rng())
    assert len(gp.inducing_points) == 1


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize(
    ("staying", "entering"),
    [
        ([0, 1, 2, 3, 4], 3),
        ([0, 1, 4], 2),
        ([0, 1], 0),
        ([3, 0], 0),
        ([1, 4], 2),
        ([], 3),
    ],
)
def test_learned_moments_transfer_to_other_points(
    staying: list[int], entering: int, shuffled: bool
) -> None:
    """q(u) at the new points is the prediction of the old q there: mean and covariance."""
    rng = np.random.default_rng(2)
    kernel = Matern(nu=1.5, lengthscale=0.6)
    size = rng.standard_normal((5, 5))
    old = rng.random((5, 2))
    q = VariationalDistribution(
        points=old,
        factor=inducing_factor(kernel, old),
        precision=size @ size.T,
        shift=rng.standard_normal(5),
    )
    where = np.array([*staying, *[-1] * entering])
    if shuffled:
        where = where[rng.permutation(len(where))]
    new = rng.random((len(where), 2))
    new[where >= 0] = old[where[where >= 0]]

    def moments(q: VariationalDistribution, rows: Floats) -> tuple[Floats, Floats]:
        A = q.whitened(kernel, rows)
        S = np.linalg.inv(np.eye(len(A)) + q.precision)
        return A.T @ S @ q.shift, kernel(rows) - A.T @ A + A.T @ S @ A

    transferred = transfer(q, kernel, new, where)
    for actual, expected in zip(
        moments(transferred, new), moments(q, new), strict=True
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-11)
    assert transferred.precision.tolist() == transferred.precision.T.tolist()
    if len(staying) == 5:  # no point was removed: the prediction is the same everywhere
        elsewhere = rng.random((6, 2))
        for actual, expected in zip(
            moments(transferred, elsewhere), moments(q, elsewhere), strict=True
        ):
            np.testing.assert_allclose(actual, expected, atol=1e-11)


def test_learning_continues_when_arms_change() -> None:
    """A long stream over more arms than inducing points ends near the exact posterior."""
    rng = np.random.default_rng(3)
    arms = np.linspace(0.0, 1.0, 30)[:, None]
    truth = np.sin(5.0 * arms[:, 0])
    kernel = Matern(nu=2.5, lengthscale=0.5)
    gp = SparseVariational(
        kernel, 0.01, inducing=12, batch=40, steps=2, adam_rate=0.002
    )
    changed, batches = 0, batch_rng()
    for _ in range(80):
        rows = rng.integers(0, 30, 5)
        before = gp.inducing_points
        gp.observe(arms[rows], truth[rows] + 0.1 * rng.standard_normal(5), rng=batches)
        changed += (
            before.shape == gp.inducing_points.shape
            and np.abs(before - gp.inducing_points).max() > 0.02
        )
        assert len(gp.inducing_points) <= 12
    assert changed > 3
    assert np.abs(gp.predict(arms).mean - truth).max() < 0.15


# --- noise that is estimated --------------------------------------------------------------------


def trained(count: int = 40) -> tuple[VariationalDistribution, Kernel, Batch]:
    """A q that has learned something, at some of the arms, and the observations."""
    kernel = network_kernel()
    rows, rewards, noise = edge_data(count)
    batch = Batch(rows, rewards, noise, 1.0)
    q = prior_at(kernel, np.unique(rows, axis=0)[::2])
    return natural_step(q, q.whitened(kernel, rows), batch, 0.6), kernel, batch


def test_the_noise_step_is_the_natural_gradient_of_the_bound() -> None:
    """∂ELBO/∂c = N/2·(ĉ − 1) at c = 1, by central differences of the bound itself."""
    q, kernel, batch = trained()
    A = q.whitened(kernel, batch.rows)
    best = noise_ratio(q, A, batch, kernel.diag(batch.rows))
    step = 1e-5

    def bound(factor: float) -> float:
        return lower_bound(q, kernel, batch._replace(noise=factor * batch.noise))

    slope = (bound(1.0 + step) - bound(1.0 - step)) / (2.0 * step)
    assert slope == pytest.approx(0.5 * len(batch.rows) * (best - 1.0), rel=1e-6)
    around = [bound(best * change) for change in (0.99, 1.0, 1.01)]
    assert around[1] == max(around)


def test_merged_rows_give_the_same_noise() -> None:
    q, kernel, batch = trained()
    merged = batch.merged()
    assert len(merged.rows) < len(batch.rows)
    plain, joined = (
        noise_ratio(
            q, q.whitened(kernel, variant.rows), variant, kernel.diag(variant.rows)
        )
        for variant in (batch, merged)
    )
    assert joined == pytest.approx(plain, rel=1e-11)


@pytest.mark.parametrize("assumed", [0.02, 5.0])
def test_a_wrong_noise_is_found(assumed: float) -> None:
    """From a tenth of the noise variance, and from 25 times it.

    At the optimum of the bound ς² = mean((y − m)² + v), and with q(f) as wide as the exact posterior v
    adds what fitting the mean took away, so that ς̂² has about the law of a χ² mean of n − df residuals.
    Its standard error is ς²√(2/(n − df)), with df ≤ 12 arms; five of them are allowed.
    """
    rng = np.random.default_rng(4)
    kernel = network_kernel()
    arms = network_arms(rng)
    noise, count = 0.2, 600
    truth = rng.multivariate_normal(np.zeros(EDGES), kernel(arms))
    edges = rng.integers(0, EDGES, count)
    rewards = truth[edges] + math.sqrt(noise) * rng.standard_normal(count)
    gp = SparseVariational(
        kernel,
        assumed,
        natural_rate=1.0,
        adam_rate=0.0,
        steps=40,
        discrete_columns=0,
        noise_rate=0.5,
    )
    gp.observe(arms[edges], rewards, rng=batch_rng())
    error = math.sqrt(2.0 / (count - EDGES))
    assert gp.noise_std**2 == pytest.approx(noise, rel=5.0 * error)
    assert gp.noise_variance == assumed
    exact = FiniteGP(kernel, arms, gp.noise_std**2)
    exact.observe(edges, rewards)
    np.testing.assert_allclose(
        gp.predict(arms).mean, exact.predict(np.arange(EDGES)).mean, atol=1e-6
    )


def test_known_noise_is_not_fitted() -> None:
    gp = SparseVariational(network_kernel(), 0.3, discrete_columns=0)
    rows, rewards, _ = edge_data(20)
    gp.observe(rows, rewards, rng=batch_rng())
    assert gp.noise_std == math.sqrt(0.3)


def test_fitted_noise_survives_a_state() -> None:
    gp = SparseVariational(network_kernel(), 0.3, discrete_columns=0, noise_rate=0.1)
    rows, rewards, _ = edge_data(20)
    gp.observe(rows, rewards, rng=batch_rng())
    assert gp.noise_std != math.sqrt(0.3)
    copy = SparseVariational.from_state(gp.state())
    assert copy.noise_std == gp.noise_std
    for posterior in (gp, copy):
        posterior.observe(rows, rewards, rng=batch_rng())
    assert copy.noise_std == gp.noise_std


def test_the_rate_of_the_noise_is_checked() -> None:
    with pytest.raises(InputError, match="noise_rate"):
        SparseVariational(network_kernel(), 0.3, noise_rate=1.5)
