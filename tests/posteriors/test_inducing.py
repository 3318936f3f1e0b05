"""InducingGP against Titsias' formula written out, against the exact posterior, and its draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Covariance, Floats, JointPrediction
from superarm.core.errors import InputError, StateError
from superarm.kernels import Matern, SquaredExponential
from superarm.posteriors import InducingGP, StreamingGP
from superarm.testing import restored

SMOOTH = SquaredExponential(lengthscale=0.7, variance=1.5)
ROUGH = Matern(nu=1.5, lengthscale=0.4, variance=2.0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def dense(
    kernel: Covariance,
    Z: Floats,
    X: Floats,
    y: Floats,
    noise: Floats,
    queries: Floats,
    jitter: float,
) -> JointPrediction:
    """Eq. 6 of titsias2009variational as printed, with inverses: D is the noise, one per observation.

    mean = K_*m Σ K_mn D⁻¹ y and cov = K_** − K_*m K_mm⁻¹ K_m* + K_*m Σ K_m*, with
    Σ = (K_mm + K_mn D⁻¹ K_nm)⁻¹.
    """
    K_mm = kernel(Z) + jitter * kernel.diag(Z).max() * np.eye(len(Z))
    K_mn, K_sm = kernel(Z, X), kernel(queries, Z)
    sigma = np.linalg.inv(K_mm + (K_mn / noise) @ K_mn.T)
    mean = K_sm @ sigma @ (K_mn / noise) @ y
    cov = kernel(queries) - K_sm @ np.linalg.inv(K_mm) @ K_sm.T + K_sm @ sigma @ K_sm.T
    return JointPrediction(mean, cov)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 12), st.booleans())
def test_inducing_posterior_matches_the_formula(
    seed: int, count: int, inducing: int, stated: bool
) -> None:
    draw, kernel = rng(seed), ROUGH
    X, y, queries = (
        draw.random((count, 2)),
        draw.normal(size=count),
        draw.random((7, 2)),
    )
    noise = draw.uniform(0.05, 0.5, count) if stated else np.full(count, 0.1)
    gp = InducingGP(kernel, 0.1, inducing=inducing)
    cut = count // 2
    for part in (slice(cut), slice(cut, None)):
        gp.observe(X[part], y[part], noise[part] if stated else None, rng=draw)
    points = gp.points
    assert len(points) == len(set(points.tolist())) == min(count, inducing)
    expected = dense(kernel, X[points], X, y, noise, queries, 1e-6)
    joint = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(joint.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(joint.cov, expected.cov, atol=1e-8)
    np.testing.assert_allclose(
        gp.predict(queries).std ** 2, np.diagonal(expected.cov), atol=1e-8
    )


def test_with_every_observation_it_is_exact() -> None:
    draw = rng(1)
    X, y, queries = draw.random((25, 2)), draw.normal(size=25), draw.random((9, 2))
    sparse = InducingGP(ROUGH, 0.1, 0.3, inducing=25, jitter=0.0)
    exact = StreamingGP(ROUGH, 0.1, 0.3)
    sparse.observe(X, y, rng=draw)
    exact.observe(X, y)
    for ours, theirs in zip(
        sparse.predict(queries, return_cov=True),
        exact.predict(queries, return_cov=True),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_inducing_points_are_redrawn_from_all_observations() -> None:
    """Ten of forty: each observation is an inducing point in a quarter of all rounds."""
    times, draw = np.zeros(40), rng(2)
    gp = InducingGP(SMOOTH, 0.1, inducing=10)
    X = draw.random((40, 2))
    gp.observe(X[:39], np.zeros(39), rng=draw)
    for _ in range(400):
        reloaded = gp.restored(gp.state())
        reloaded.observe(X[39:], [0.0], rng=draw)
        times[reloaded.points] += 1
    # Binomial(400, ¼) of each: five standard deviations hold all forty with probability 1 − 2e-5.
    assert (np.abs(times - 100) <= 5.0 * np.sqrt(400 * 0.25 * 0.75)).all()


def test_learning_needs_a_generator_and_the_same_one_gives_the_same() -> None:
    with pytest.raises(InputError, match=r"rng=np.random.default_rng"):
        InducingGP(SMOOTH, 0.1).observe([[0.0]], [1.0])
    X, y = rng().random((9, 1)), rng(1).normal(size=9)
    means = []
    for _ in range(2):
        gp = InducingGP(SMOOTH, 0.1, inducing=3)
        gp.observe(X, y, rng=rng(7))
        means.append(gp.predict([[0.5]]).mean)
    np.testing.assert_array_equal(*means)


def test_equal_contexts_may_be_inducing_points_together() -> None:
    gp = InducingGP(SMOOTH, 0.1, inducing=10)
    gp.observe(np.full((10, 2), 0.5), np.ones(10), rng=rng())
    exact = StreamingGP(SMOOTH, 0.1)
    exact.observe(np.full((10, 2), 0.5), np.ones(10))
    # Jitter of 1e-6 of the variance moves the posterior by no more than about that share.
    np.testing.assert_allclose(
        gp.predict([[0.5, 0.5]]), exact.predict([[0.5, 0.5]]), atol=1e-5
    )


@pytest.mark.parametrize(
    "harm",
    [lambda points: points + 9, lambda points: points[:-1], lambda points: points * 0],
)
def test_a_damaged_state_is_refused(harm: Any) -> None:
    gp = InducingGP(SMOOTH, 0.1, inducing=3)
    gp.observe(rng().random((9, 1)), np.ones(9), rng=rng())
    state = restored(gp.state())
    np.testing.assert_array_equal(gp.restored(state).points, gp.points)
    arrays = {**state.arrays, "points": harm(state.arrays["points"])}
    with pytest.raises(StateError, match="inducing points are impossible"):
        gp.restored(replace(state, arrays=arrays))


def test_many_rewards_at_once_make_no_large_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The information of one block is that of all; of several it counts each by itself."""
    rng = np.random.default_rng(0)
    arms, rewards = rng.random((40, 2)), rng.random(40)
    kernel, noise = SquaredExponential(lengthscale=0.5), 0.1
    at_once = InducingGP(kernel, noise, inducing=8)
    at_once.observe(arms, rewards, rng=np.random.default_rng(1))
    monkeypatch.setattr("superarm.posteriors.inducing.BLOCK", 16)
    parts = InducingGP(kernel, noise, inducing=8)
    parts.observe(arms, rewards, rng=np.random.default_rng(1))
    # Equal bits: only the information is computed in blocks.
    np.testing.assert_array_equal(parts.predict(arms).mean, at_once.predict(arms).mean)
    blocks = [arms[:16], arms[16:32], arms[32:]]
    gains = [
        0.5 * np.linalg.slogdet(np.eye(len(X)) + kernel(X) / noise)[1] for X in blocks
    ]
    assert parts.information_gain == pytest.approx(sum(gains))
    assert at_once.information_gain < parts.information_gain


def test_information_gain_adds_over_observations() -> None:
    """½ ln(1 + σ²/λ) of one observation after the other, σ² that of the posterior before it."""
    gp, draw, expected = InducingGP(ROUGH, 0.1, inducing=4), rng(3), 0.0
    for _ in range(8):
        arm = draw.random((1, 2))
        expected += 0.5 * np.log1p(gp.predict(arm).std[0] ** 2 / 0.1)
        gp.observe(arm, [0.0], rng=draw)
        assert gp.information_gain == pytest.approx(expected, rel=1e-9)


def test_defaults() -> None:
    gp = InducingGP(SMOOTH, 0.1)
    assert (gp.inducing, gp.jitter) == (50, 1e-6)
    assert not gp.exchangeable  # points are drawn from the observations so far
