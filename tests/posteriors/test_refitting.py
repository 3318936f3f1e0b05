"""Hyper-parameters that are refitted as observations arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sample_posteriors import fading_kernel, rough_kernel

import superarm.posteriors.refitting as module
from superarm.core import Arms, Floats, Offer
from superarm.core.errors import (
    InputError,
    NotPositiveDefiniteError,
    PrecisionWarning,
    StateError,
)
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import (
    Columns,
    Empirical,
    Linear,
    Periodic,
    Product,
    SquaredExponential,
    Temporal,
)
from superarm.posteriors import (
    ChangeDetecting,
    DriftingGP,
    FiniteGP,
    FitResult,
    IndependentGaussian,
    Refitting,
    Resetting,
    StreamingGP,
    fit_kernel,
    log_marginal_likelihood,
)

NOISE = 0.05
ARMS = np.random.default_rng(0).random((8, 2))
KERNEL = rough_kernel(0.4)
FADING = fading_kernel(0.4, epsilon=0.05)
DRIFT = Temporal(epsilon=0.05)
INSIDE: dict[str, Any] = {
    "finite": lambda: FiniteGP(KERNEL, ARMS, NOISE, np.linspace(-1.0, 1.0, 8)),
    "streaming": lambda: StreamingGP(KERNEL, NOISE, 0.4),
    "timed": lambda: StreamingGP(FADING, NOISE, timed=True, forget=1e-4),
    "drifting": lambda: DriftingGP(KERNEL, ARMS, NOISE, 0.4, drift=DRIFT),
}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def seen(inside: Any, count: int, seed: int = 1) -> tuple[Any, Floats, Floats]:
    """Keys, rewards and feature rows with their times."""
    draw = np.random.default_rng(seed)
    rows = draw.integers(0, 8, count)
    offers = [
        Offer(step=step, arms=Arms.numbered(ARMS)) for step in range(1, count + 1)
    ]
    keys = np.array(
        [inside.keys(offer)[row] for offer, row in zip(offers, rows, strict=True)]
    )
    rewards = np.sin(
        4.0 * ARMS[rows, 0] + 0.05 * np.arange(count)
    ) + 0.3 * draw.standard_normal(count)
    return keys, rewards, np.column_stack([ARMS[rows], np.arange(1.0, count + 1.0)])


def by_hand(
    name: str, features: Floats, residual: Floats
) -> tuple[FitResult, dict[str, Any]]:
    options: dict[str, Any] = {"noise_variance": NOISE, "rng": rng(), "restarts": 0}
    options["noise_bounds"] = (NOISE / 1e4, NOISE * 1e4)
    if name == "drifting":
        joint = Columns(kernel=KERNEL, columns=(0, 1)) * Temporal(
            epsilon=0.05, column=2
        )
        fit = fit_kernel(joint, features, residual, **options)  # type: ignore[arg-type]
        space, time = fit.kernel.kernels
        return fit, {"kernel": space.kernel, "drift": Temporal(epsilon=time.epsilon)}
    kernel: Any = FADING if name == "timed" else KERNEL
    rows = features if name == "timed" else features[:, :2]
    fit = fit_kernel(kernel, rows, residual, **options)
    return fit, {"kernel": fit.kernel}


@pytest.mark.parametrize("name", INSIDE)
def test_refitting_equals_fitting_and_learning_by_hand(name: str) -> None:
    inside = INSIDE[name]()
    gp = Refitting(inside, every=40, most=30)
    keys, rewards, features = seen(inside, 45)
    for row in range(39):
        gp.observe(keys[[row]], rewards[[row]])
    untouched = INSIDE[name]()
    for row in range(39):
        untouched.observe(keys[[row]], rewards[[row]])
    now = Offer(step=50, arms=Arms.numbered(ARMS))
    np.testing.assert_allclose(
        gp.belief(now).mean, untouched.belief(now).mean, atol=1e-12
    )
    assert gp.fits == 0

    gp.observe(keys[[39]], rewards[[39]])
    last = slice(10, 40)
    residual = rewards[last] - inside.predict(keys[last]).mean  # less the prior mean
    fit, expected = by_hand(name, features[last], residual)
    assert gp.fits == 1
    for part, kernel in expected.items():  # a search magnifies rounding
        np.testing.assert_allclose(gp.fitted[part].theta, kernel.theta, atol=1e-2)
    assert (
        gp.noise_variance
        == gp.fitted["noise_variance"]
        == pytest.approx(fit.noise_variance, rel=1e-2)
    )
    assert gp.noise_std == pytest.approx(np.sqrt(gp.noise_variance))
    reference = inside._clone(**gp.fitted)
    reference.observe(keys[last], rewards[last])
    for row in range(40, 45):
        gp.observe(keys[[row]], rewards[[row]])
        reference.observe(keys[[row]], rewards[[row]])
    np.testing.assert_allclose(
        gp.belief(now).mean, reference.belief(now).mean, atol=1e-10
    )
    np.testing.assert_allclose(
        gp.belief(now).cov, reference.belief(now).cov, atol=1e-10
    )
    assert gp.information_gain == pytest.approx(reference.information_gain)
    assert (gp.count, gp.incumbent) == (45, pytest.approx(reference.incumbent))

    restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
    assert (restored.fitted, restored.fits) == (gp.fitted, 1)
    np.testing.assert_allclose(restored.belief(now).cov, gp.belief(now).cov, atol=1e-12)


@pytest.mark.parametrize("name", ["finite", "drifting"])
def test_restored_refitting_fits_the_same_values(name: str) -> None:
    gp = Refitting(INSIDE[name](), every=15, most=40)
    keys, rewards, _ = seen(gp, 70)
    for row in range(70):
        gp.observe(keys[[row]], rewards[[row]])
        if row in (20, 44):
            restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
            assert restored.fitted == gp.fitted
            for later in range(row + 1, row + 20):
                restored.observe(keys[[later]], rewards[[later]])
        if row in (39, 63):
            for part, value in restored.fitted.items():
                own = getattr(value, "theta", value)
                there = getattr(gp.fitted[part], "theta", gp.fitted[part])
                np.testing.assert_allclose(own, there, atol=1e-2)
    assert gp.fits == 4


def test_refit_preserves_ratios_of_stated_noise() -> None:
    """Against the likelihood with one noise variance for each observation."""
    gp = Refitting(StreamingGP(KERNEL, NOISE), every=40, work=100_000)
    keys, rewards, _ = seen(gp, 40)
    ratio = np.random.default_rng(2).uniform(0.3, 3.0, 40)
    gp.observe(keys, rewards, NOISE * ratio)

    def likelihood(theta: Floats, noise: float) -> float:
        C = KERNEL.clone_with_theta(theta)(keys) + np.diag(noise * ratio)
        _, log_determinant = np.linalg.slogdet(C)
        return float(
            -0.5 * rewards @ np.linalg.solve(C, rewards) - 0.5 * log_determinant
        )

    theta, noise = gp.fitted["kernel"].theta, gp.noise_variance
    best = likelihood(theta, noise)
    for shift in np.vstack([0.05 * np.eye(3), -0.05 * np.eye(3)]):  # the top of a hill
        assert likelihood(theta + shift[:2], noise * np.exp(shift[2])) < best
    reference = StreamingGP(gp.fitted["kernel"], noise)
    reference.observe(keys, rewards, noise * ratio)
    np.testing.assert_allclose(
        gp.predict(keys).mean, reference.predict(keys).mean, atol=1e-9
    )


def test_the_work_of_a_fit_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []

    def spied(*args: Any, **options: Any) -> FitResult:
        limits.append(options["most_evaluations"])
        assert options["restarts"] == 0
        return fit_kernel(*args, **options)

    monkeypatch.setattr(module, "fit_kernel", spied)
    gp = Refitting(StreamingGP(KERNEL, NOISE), every=20, most=50, work=200)
    keys, rewards, _ = seen(gp, 80)
    for row in range(80):
        gp.observe(keys[[row]], rewards[[row]])
    assert limits == [10, 5, 4, 4]


def test_a_search_ends_with_the_step_that_reaches_the_limit() -> None:
    """L-BFGS-B tries at most 20 points a step; what it has is the best of those it moved to."""
    X = rng().random((40, 2))
    y = np.sin(5.0 * X[:, 0])
    fits = [
        fit_kernel(
            SquaredExponential(lengthscale=2.0),  # type: ignore[arg-type]
            X,
            y,
            noise_variance=0.1,
            rng=rng(),
            restarts=0,
            most_evaluations=most,
        )
        for most in (1, 5, 9, 10_000)
    ]
    values = [fit.log_marginal_likelihood for fit in fits]
    assert [fit.converged for fit in fits] == [False, False, False, True]
    assert values == sorted(values)
    assert all(
        fit.evaluations <= most + 21 for fit, most in zip(fits, (1, 5, 9), strict=False)
    )
    start = log_marginal_likelihood(
        SquaredExponential(lengthscale=2.0), X, y, noise_variance=0.1
    )
    assert values[0] > start


@pytest.mark.slow
def test_epsilon_is_found_while_it_runs() -> None:
    """The likelihood of the fitted values is no worse than that of the true ones, from 400 rewards."""
    truth = Product(
        kernels=(
            Columns(kernel=KERNEL, columns=(0, 1)),
            Temporal(epsilon=0.1, column=2),
        )
    )
    draw = np.random.default_rng(4)
    rows, times = draw.integers(0, 8, 400), np.repeat(np.arange(1.0, 101.0), 4)
    features = np.column_stack([ARMS[rows], times])
    C = truth(features) + NOISE * np.eye(400)
    rewards = np.linalg.cholesky(C) @ draw.standard_normal(400)
    gp = Refitting(
        DriftingGP(KERNEL, ARMS, 0.2, drift=Temporal(epsilon=0.01)), every=100
    )
    keys = np.column_stack([rows, times])
    for part in np.array_split(np.arange(400), 100):
        gp.observe(keys[part], rewards[part])
    assert gp.fits == 4
    fitted = gp.fitted
    fitted_kernel = Product(
        kernels=(
            Columns(kernel=fitted["kernel"], columns=(0, 1)),
            Columns(kernel=fitted["drift"], columns=(2,)),
        )
    )
    reached = log_marginal_likelihood(
        fitted_kernel, features, rewards, noise_variance=gp.noise_variance
    )
    assert (
        reached
        > log_marginal_likelihood(truth, features, rewards, noise_variance=NOISE) - 0.01
    )
    assert 0.05 < fitted["drift"].epsilon < 0.2


def test_failed_fit_has_no_side_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> FitResult:
        raise NotPositiveDefiniteError("no factor")

    monkeypatch.setattr(module, "fit_kernel", broken)
    gp, plain = (
        Refitting(StreamingGP(KERNEL, NOISE), every=5),
        StreamingGP(KERNEL, NOISE),
    )
    keys, rewards, _ = seen(gp, 5)
    with pytest.warns(
        PrecisionWarning, match="the fit failed, .* stay as they are: no factor"
    ):
        gp.observe(keys, rewards)
    plain.observe(keys, rewards)
    assert (gp.fits, gp.count, gp.fitted["kernel"]) == (0, 5, KERNEL)
    np.testing.assert_allclose(
        gp.predict(keys).mean, plain.predict(keys).mean, atol=1e-12
    )


def test_unfittable_posteriors_are_rejected() -> None:
    fixed = SquaredExponential(lengthscale_bounds="fixed", variance_bounds="fixed")
    for inside in (
        IndependentGaussian(np.ones(3), NOISE),
        Resetting(FiniteGP(KERNEL, ARMS, NOISE), block=5),
        ChangeDetecting(FiniteGP(KERNEL, ARMS, NOISE)),
    ):
        with pytest.raises(InputError, match="wrappers around"):
            Refitting(inside)
    with pytest.raises(InputError, match="nothing to fit"):
        Refitting(StreamingGP(fixed, NOISE), fit_noise=False)
    only_noise = Refitting(StreamingGP(fixed, NOISE), every=5)
    only_noise.observe(ARMS[:5], np.arange(5.0))
    assert only_noise.fitted["kernel"] == fixed
    assert only_noise.noise_variance != NOISE
    numbered = Refitting(StreamingGP(Empirical(covariance=np.eye(3)), NOISE), every=4)
    numbered.observe([[0.0], [1.0], [2.0], [0.0]], [1.0, 2.0, 3.0, 1.5])
    assert numbered.fits == 1
    for options in ({"every": 0}, {"most": 1}, {"work": 10}):
        with pytest.raises(InputError):
            Refitting(StreamingGP(KERNEL, NOISE), **options)
    taught = StreamingGP(KERNEL, NOISE)
    taught.observe(ARMS[:1], [1.0])
    with pytest.raises(InputError, match="already learned"):
        Refitting(taught)


def test_refitting_a_resetting_posterior_starts_from_the_first_values() -> None:
    gp = Resetting(Refitting(FiniteGP(KERNEL, ARMS, NOISE), every=5), block=10)
    for step in range(1, 12):
        offer = Offer(step=step, arms=Arms.numbered(ARMS))
        gp.observe(gp.keys(offer)[[step % 8]], [float(step % 3)])
        assert (gp.noise_variance == NOISE) == (step < 5 or step == 11)
    restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
    assert restored.noise_variance == gp.noise_variance


def test_damaged_states() -> None:
    gp = Refitting(StreamingGP(KERNEL + Linear(), NOISE), every=10)
    keys, rewards, _ = seen(gp, 12)
    gp.observe(keys, rewards)
    state = gp.state()
    for arrays, scalars in (
        ({"theta": np.zeros(2)}, {}),
        ({"theta": np.array([np.nan, 0.0, 0.0])}, {}),
        ({"noise": -state.arrays["noise"]}, {}),
        ({}, {"noise_variance": -1.0}),
        ({}, {"fits": 0}),
        ({}, {"fits": "many"}),
    ):
        damaged = replace(
            state,
            arrays={**state.arrays, **arrays},
            scalars={**state.scalars, **scalars},
        )
        with pytest.raises(StateError):
            gp.restored(damaged)


def test_any_drift_is_fitted() -> None:
    """A product of temporal kernels; the drift's hyper-parameters survive a restart."""
    drift = Periodic(period=12.0, lengthscale_bounds=(0.5, 5.0)) * Temporal(
        epsilon=0.02
    )
    gp = Refitting(DriftingGP(KERNEL, ARMS, NOISE, drift=drift), every=30)
    keys, rewards, _ = seen(gp, 40)
    for start in range(0, 40, 5):
        gp.observe(keys[start : start + 5], rewards[start : start + 5])
    assert gp.fits == 1
    assert not np.allclose(gp.fitted["drift"].theta, drift.theta)
    restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
    assert restored.fitted == gp.fitted
    now = Offer(step=41, arms=Arms.numbered(ARMS))
    np.testing.assert_allclose(
        restored.belief(now).mean, gp.belief(now).mean, atol=1e-9
    )
