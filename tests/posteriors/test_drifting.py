"""Rewards that drift, against eqs. 7 and 8 of bogunovic2016time with whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, Floats, Offer
from superarm.errors import InputError, UnknownArmError
from superarm.kernels import Kernel, Matern, SquaredExponential, Temporal
from superarm.posteriors import DriftingGP, StreamingGP

NOISE = 0.05
ARMS = np.random.default_rng(0).random((25, 2))
KERNELS: list[Kernel] = [SquaredExponential(lengthscale=0.3), Matern(nu=2.5, lengthscale=0.3)]


def whole(kernel: Kernel, keys: Floats, rewards: Floats, asked: Floats, epsilon: float) -> Any:
    """Mean and covariance by eqs. 7 and 8, for any times."""

    def covariance(a: Floats, b: Floats) -> Floats:
        space = kernel(ARMS[a[:, 0].astype(int)], ARMS[b[:, 0].astype(int)])
        return space * (1.0 - epsilon) ** (np.abs(np.subtract.outer(a[:, 1], b[:, 1])) / 2.0)

    K, k = covariance(keys, keys) + NOISE * np.eye(len(keys)), covariance(asked, keys)
    solved = np.linalg.solve(K, np.column_stack([rewards, k.T]))
    return k @ solved[:, 0], covariance(asked, asked) - k @ solved[:, 1:]


def observations(seed: int, count: int, last: int) -> tuple[Floats, Floats]:
    """Several at one time, none at others."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, last, count)) * 0.5
    return np.column_stack([rng.integers(0, len(ARMS), count), times]), rng.standard_normal(count)


@pytest.mark.parametrize("kernel", KERNELS, ids=["se", "matern"])
@pytest.mark.parametrize("epsilon", [0.0, 0.001, 0.03, 0.5])
def test_the_textbook_formula(kernel: Kernel, epsilon: float) -> None:
    keys, rewards = observations(1, 300, 400)
    gp = DriftingGP(kernel, ARMS, NOISE, drift=Temporal(epsilon=epsilon))
    for key, reward in zip(keys, rewards, strict=True):
        gp.observe(key[None], [reward])
    rng = np.random.default_rng(2)
    asked = np.column_stack([np.arange(len(ARMS)), 200.0 + rng.integers(0, 9, len(ARMS))])
    mean, cov = whole(kernel, keys, rewards, asked, epsilon)
    found = gp.predict(asked, return_cov=True)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.cov, cov, atol=1e-9)
    np.testing.assert_allclose(gp.predict(asked).std, np.sqrt(np.diag(cov)), atol=1e-9)
    assert gp.rank < 2 * len(ARMS) + 64 + 64  # it was rotated, and what has faded left out
    assert gp.tolerance <= 1e-12


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.02, 0.3]), st.integers(1, 12))
def test_feedback_in_any_order_and_parts(seed: int, epsilon: float, parts: int) -> None:
    """What comes late is learned as of its own time: equal to all at once, in time."""
    keys, rewards = observations(seed, 40, 60)
    order = np.random.default_rng(seed).permutation(40)
    gp = DriftingGP(KERNELS[1], ARMS, NOISE, drift=Temporal(epsilon=epsilon))
    for part in np.array_split(order, parts):
        gp.observe(keys[part], rewards[part])
    asked = np.column_stack([np.arange(len(ARMS)), np.full(len(ARMS), 31.0)])
    mean, cov = whole(KERNELS[1], keys, rewards, asked, epsilon)
    found = gp.predict(asked, return_cov=True)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.cov, cov, atol=1e-9)
    K = KERNELS[1](ARMS[keys[:, 0].astype(int)])
    K *= (1.0 - epsilon) ** (np.abs(np.subtract.outer(keys[:, 1], keys[:, 1])) / 2.0)
    information = 0.5 * np.linalg.slogdet(np.eye(40) + K / NOISE)[1]
    assert gp.information_gain == pytest.approx(information, rel=1e-9)


def test_it_is_the_streaming_posterior_with_a_temporal_kernel() -> None:
    keys, rewards = observations(3, 60, 80)
    space = SquaredExponential(lengthscale=0.3, columns=(0, 1))
    timed = StreamingGP(space * Temporal(epsilon=0.05, column=2), NOISE, timed=True)
    gp = DriftingGP(KERNELS[0], ARMS, NOISE, drift=Temporal(epsilon=0.05))
    gp.observe(keys, rewards)
    timed.observe(np.column_stack([ARMS[keys[:, 0].astype(int)], keys[:, 1]]), rewards)
    offer = Offer(step=1, arms=Arms.numbered(ARMS), time=44.0)
    ours, theirs = gp.belief(offer), timed.belief(offer)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-9)
    np.testing.assert_allclose(ours.cov, theirs.cov, atol=1e-9)


def test_old_observations_are_forgotten() -> None:
    """(1 − ε)^{Δ/2} falls below 1e-13 after Δ = 2 ln 10¹³ / −ln(1 − ε), 19.7 for ε = 0.95."""
    gp = DriftingGP(KERNELS[1], ARMS, NOISE, drift=Temporal(epsilon=0.95))
    for step in range(100):
        gp.observe([[step % 25, step]], [1.0])
    assert len(gp.state().array("times")) == 20
    assert gp.count == 100


def test_the_past_can_be_learned_but_not_asked_about() -> None:
    gp = DriftingGP(KERNELS[0], ARMS, NOISE)
    gp.observe([[3, 10.0]], [1.0])
    gp.observe([[4, 7.0]], [1.0])
    with pytest.raises(InputError, match="time 9 is before the last observation, at 10"):
        gp.predict([[3, 9.0]])


@pytest.mark.parametrize(
    "bad", [[[1.5, 0.0]], [3], [[1.0, 2.0, 3.0]], [[np.nan, 1.0]], [[1.0, np.inf]]]
)
def test_keys_are_a_row_number_and_a_time(bad: Any) -> None:
    gp = DriftingGP(KERNELS[0], ARMS, NOISE)
    with pytest.raises(InputError):
        gp.observe(bad, [1.0])
    assert gp.count == 0


def test_impossible_parameters() -> None:
    with pytest.raises(UnknownArmError, match="no arm 25"):
        DriftingGP(KERNELS[0], ARMS, NOISE).observe([[25, 1.0]], [1.0])
    for epsilon in (-0.1, 1.0, 1.5, np.nan):
        with pytest.raises(InputError, match="epsilon"):
            DriftingGP(KERNELS[0], ARMS, NOISE, drift=Temporal(epsilon=epsilon))
    with pytest.raises(InputError, match="arms"):
        DriftingGP(KERNELS[0], np.empty((0, 2)), NOISE)
