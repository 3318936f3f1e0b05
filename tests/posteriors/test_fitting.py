"""Marginal likelihood and its optimum, against scikit-learn and finite differences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from superarm.core import errors
from superarm.kernels import (
    Constant,
    Linear,
    Matern,
    Periodic,
    SquaredExponential,
    Temporal,
)
from superarm.posteriors import fitting
from superarm.posteriors.fitting import FitProgress, fit_kernel
from superarm.posteriors.marginal_likelihood import likelihood, log_marginal_likelihood


def data(n: int = 40, width: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, width))
    y = np.sin(6.0 * X[:, 0]) + X[:, -1] + 0.1 * rng.standard_normal(n)
    X.flags.writeable = y.flags.writeable = False
    return X, y


def test_value_is_that_of_sklearn(sk: Any, regressor: Any) -> None:
    X, y = data()
    theirs = regressor(2.0 * sk.RBF([0.3, 0.6]), alpha=0.05, optimizer=None).fit(X, y)
    ours = SquaredExponential(lengthscale=(0.3, 0.6), variance=2.0)
    for kernel in (ours, theirs.kernel_):
        value = log_marginal_likelihood(kernel, X, y, noise_variance=0.05)
        assert value == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-12)
    shifted = log_marginal_likelihood(ours, X, y + 3.0, noise_variance=0.05, mean=3.0)
    assert shifted == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-10)


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(lengthscale=(0.3, 0.6), variance=2.0),
        Matern(nu=1.5, lengthscale=0.4) * Temporal(epsilon=0.2, column=1)
        + Linear(bias=0.5),
    ],
)
def test_gradient_matches_central_differences(kernel: object) -> None:
    assert_gradient_matches_central_differences(kernel)


def assert_gradient_matches_central_differences(kernel: object) -> None:
    X, y = data(25)
    result = likelihood(kernel, X, y, noise=0.1, mean=0.2)  # type: ignore[arg-type]

    def value(theta: np.ndarray, log_noise: float, mean: float) -> float:
        trial = kernel.clone_with_theta(theta)  # type: ignore[attr-defined]
        return log_marginal_likelihood(
            trial, X, y, noise_variance=np.exp(log_noise), mean=mean
        )

    theta, log_noise, h = np.array(kernel.theta), np.log(0.1), 1e-5  # type: ignore[attr-defined]
    assert result.value == pytest.approx(value(theta, log_noise, 0.2), rel=1e-10)
    for i in range(len(theta)):
        step = h * np.eye(len(theta))[i]
        numeric = (
            value(theta + step, log_noise, 0.2) - value(theta - step, log_noise, 0.2)
        ) / (2 * h)
        assert result.theta[i] == pytest.approx(numeric, rel=1e-5, abs=1e-6)
    numeric = (value(theta, log_noise + h, 0.2) - value(theta, log_noise - h, 0.2)) / (
        2 * h
    )
    assert result.log_noise_variance == pytest.approx(numeric, rel=1e-5)


def test_groups_are_independent() -> None:
    """Values and derivatives add up over days, whose covariance with each other is 0."""
    X, y = data(24)
    kernel = Matern(nu=1.5, lengthscale=0.4) * Temporal(epsilon=0.2, column=1)
    days = np.array(["mon", "tue", "wed"] * 8)
    rows = [np.flatnonzero(days == day) for day in ("mon", "tue", "wed")]
    parts = [
        likelihood(kernel, X[members], y[members], noise=0.1, mean=0.2)
        for members in rows
    ]
    joint = likelihood(kernel, X, y, noise=0.1, mean=0.2, blocks=rows)
    assert joint.value == pytest.approx(sum(part.value for part in parts), rel=1e-12)
    np.testing.assert_allclose(
        joint.theta, sum(part.theta for part in parts), rtol=1e-10
    )
    assert joint.log_noise_variance == pytest.approx(
        sum(part.log_noise_variance for part in parts)
    )
    value = log_marginal_likelihood(
        kernel, X, y, noise_variance=0.1, mean=0.2, groups=days
    )
    assert value == pytest.approx(joint.value, rel=1e-12)
    together = kernel(X) * (days[:, None] == days) + 0.1 * np.eye(24)
    logarithm = np.linalg.slogdet(together)[1]
    square = (y - 0.2) @ np.linalg.solve(together, y - 0.2)
    assert value == pytest.approx(
        -0.5 * (square + logarithm + 24 * np.log(2 * np.pi)), rel=1e-10
    )

    options: Any = {"noise_variance": 0.1, "restarts": 0, "groups": days}
    fit = fit_kernel(
        kernel, X, y, fit_mean=True, rng=np.random.default_rng(0), **options
    )
    fixed = {"noise_variance": fit.noise_variance, "groups": days}

    def likelihood_at(mean: float) -> float:
        return log_marginal_likelihood(fit.kernel, X, y, mean=mean, **fixed)

    assert likelihood_at(fit.mean) == pytest.approx(
        fit.log_marginal_likelihood, rel=1e-9
    )
    assert likelihood_at(fit.mean) > max(
        likelihood_at(fit.mean - 0.01), likelihood_at(fit.mean + 0.01)
    )
    with pytest.raises(errors.ShapeError, match="one label for each of 24"):
        fit_kernel(
            kernel,
            X,
            y,
            noise_variance=0.1,
            groups=days[1:],
            rng=np.random.default_rng(0),
        )


def test_gradient_of_foreign_kernels_matches_central_differences(sk: Any) -> None:
    assert_gradient_matches_central_differences(
        Periodic(period=0.8) + sk.RationalQuadratic(0.5, 0.7)
    )
    assert_gradient_matches_central_differences(sk.RBF(0.5) + sk.ConstantKernel(0.3))


def test_optimum_is_that_of_sklearn(sk: Any, regressor: Any) -> None:
    X, y = data()
    theirs = regressor(
        sk.ConstantKernel(1.0) * sk.RBF([0.5, 0.5]) + sk.WhiteKernel(0.1, (1e-8, 1e3)),
        alpha=0.0,
        n_restarts_optimizer=2,
        random_state=0,
    )
    best = theirs.fit(X, y).log_marginal_likelihood_value_
    for kernel in (
        SquaredExponential(lengthscale=(0.5, 0.5)),
        sk.ConstantKernel(1.0) * sk.RBF([0.5, 0.5]),
    ):
        fit = fit_kernel(
            kernel, X, y, noise_variance=0.1, restarts=2, rng=np.random.default_rng(1)
        )
        assert fit.log_marginal_likelihood == pytest.approx(best, abs=1e-3)
        assert fit.converged
        assert fit.evaluations > 5
        recomputed = log_marginal_likelihood(
            fit.kernel, X, y, noise_variance=fit.noise_variance
        )
        assert recomputed == pytest.approx(fit.log_marginal_likelihood, rel=1e-9)
        assert type(fit.kernel) is type(kernel)


def test_fit_recovers_the_generating_parameters() -> None:
    rng = np.random.default_rng(7)
    X = rng.random((250, 1)) * 10.0
    truth = SquaredExponential(lengthscale=0.7, variance=2.0)
    root = np.linalg.cholesky(truth(X) + 1e-10 * np.eye(len(X)))
    y = 5.0 + root @ rng.standard_normal(len(X)) + 0.1 * rng.standard_normal(len(X))
    fit = fit_kernel(
        SquaredExponential(),
        X,
        y,
        noise_variance=1.0,
        fit_mean=True,
        restarts=1,
        rng=rng,
    )
    assert fit.kernel.lengthscale == pytest.approx(0.7, rel=0.15)
    assert fit.noise_variance == pytest.approx(0.01, rel=0.3)
    assert fit.mean == pytest.approx(5.0, abs=1.5)


def test_the_mean_is_at_its_optimum() -> None:
    X, y = data(20)
    fit = fit_kernel(
        SquaredExponential(), X, y + 9.0, noise_variance=0.1, fit_mean=True, restarts=0,
        rng=np.random.default_rng(0),
    )  # fmt: skip

    def value(mean: float) -> float:
        return log_marginal_likelihood(
            fit.kernel, X, y + 9.0, noise_variance=fit.noise_variance, mean=mean
        )

    assert value(fit.mean) == pytest.approx(fit.log_marginal_likelihood, rel=1e-9)
    assert value(fit.mean) > max(value(fit.mean - 0.01), value(fit.mean + 0.01))
    slope = (value(fit.mean + 1e-3) - value(fit.mean - 1e-3)) / 2e-3
    assert abs(slope) < 1e-7


def test_fixed_things_stay() -> None:
    X, y = data(15)
    kernel = SquaredExponential(lengthscale_bounds="fixed")
    fit = fit_kernel(
        kernel, X, y, noise_variance=0.2, fit_noise=False, rng=np.random.default_rng(0)
    )
    assert fit.kernel.lengthscale == 1.0
    assert fit.noise_variance == 0.2
    still = 2.0 * SquaredExponential(
        lengthscale_bounds="fixed", variance_bounds="fixed"
    )
    fit = fit_kernel(
        still, X, y, noise_variance=0.2, fit_noise=False, rng=np.random.default_rng(0)
    )
    assert fit.kernel is still
    assert fit.log_marginal_likelihood == log_marginal_likelihood(
        still, X, y, noise_variance=0.2
    )


def test_same_seed_same_fit() -> None:
    X, y = data(20)
    fits = [
        fit_kernel(Matern(), X, y, noise_variance=0.1, rng=np.random.default_rng(4))
        for _ in range(2)
    ]
    assert fits[0] == fits[1]


def test_fit_skips_impossible_points_and_raises_when_all_fail() -> None:
    X, y = np.repeat(data(4)[0], 10, axis=0), np.arange(40.0)
    rng = np.random.default_rng(0)
    kernel = SquaredExponential(variance=1e4)
    fit = fit_kernel(
        kernel, X, y, noise_variance=1e-20, noise_bounds=(1e-20, 1e3), rng=rng
    )
    assert np.isfinite(fit.log_marginal_likelihood)
    with pytest.raises(errors.NotPositiveDefiniteError, match="noise"):
        fit_kernel(
            Constant(variance=1.0, variance_bounds=(1.0, 2.0)),
            X, y, noise_variance=1e-300, fit_noise=False, rng=rng,
        )  # fmt: skip
    with pytest.raises(errors.NotPositiveDefiniteError, match="raise noise_variance"):
        log_marginal_likelihood(Constant(), X, y, noise_variance=1e-300)


def test_bad_input() -> None:
    X, y = data(5)
    rng = np.random.default_rng(0)
    with pytest.raises(errors.ShapeError):
        fit_kernel(Matern(), X, y[:-1], noise_variance=0.1, rng=rng)
    with pytest.raises(errors.InputError, match="noise_variance"):
        fit_kernel(Matern(), X, y, noise_variance=0.0, rng=rng)
    with pytest.raises(errors.InputError, match="noise_bounds"):
        fit_kernel(Matern(), X, y, noise_variance=0.1, noise_bounds=(1.0, 0.1), rng=rng)
    with pytest.raises(errors.InputError, match="empty"):
        fit_kernel(Matern(), X[:0], y[:0], noise_variance=0.1, rng=rng)
    with pytest.raises(errors.InputError, match="cannot be fitted"):
        fit_kernel(lambda X: X, X, y, noise_variance=0.1, rng=rng)  # type: ignore[arg-type]


def test_many_rows_are_fitted_by_a_subsample() -> None:
    """The fit of a subsample is the fit of just those rows, restarts and groups included."""
    X, y = data(60)
    days = np.arange(60) % 3
    options: Any = {"noise_variance": 0.1, "restarts": 1}
    fit = fit_kernel(
        Matern(),
        X,
        y,
        groups=days,
        most_rows=25,
        rng=np.random.default_rng(3),
        **options,
    )
    rng = np.random.default_rng(3)
    drawn = np.sort(rng.choice(60, 25, replace=False))
    subsampled = fit_kernel(
        Matern(), X[drawn], y[drawn], groups=days[drawn], rng=rng, **options
    )
    assert fit == subsampled
    assert fit.rows == 25
    full = fit_kernel(
        Matern(), X, y, most_rows=None, rng=np.random.default_rng(3), **options
    )
    assert full.rows == 60
    with pytest.raises(errors.InputError, match="most_rows"):
        fit_kernel(Matern(), X, y, most_rows=0, rng=rng, **options)


def test_by_default_500_rows_are_fitted() -> None:
    rng = np.random.default_rng(0)
    options: Any = {"noise_variance": 0.1, "restarts": 0, "most_evaluations": 1}
    fit = fit_kernel(
        Constant(), rng.random((501, 1)), rng.random(501), rng=rng, **options
    )
    assert fit.rows == 500


def test_progress_is_reported_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is ours here: it advances by a second whenever it is read, or not at all."""
    X, y = data(20)
    options: Any = {"noise_variance": 0.1, "restarts": 2}
    seen: list[FitProgress] = []
    monkeypatch.setattr(fitting, "perf_counter", lambda: 0.0)
    fit_kernel(
        Matern(), X, y, rng=np.random.default_rng(0), progress=seen.append, **options
    )
    assert [report.start for report in seen] == [1, 2, 3]
    seen.clear()
    ticks = itertools.count()
    monkeypatch.setattr(fitting, "perf_counter", lambda: float(next(ticks)))
    fit = fit_kernel(
        Matern(), X, y, rng=np.random.default_rng(0), progress=seen.append, **options
    )
    assert [report.start for report in seen] == sorted(report.start for report in seen)
    assert {report.start for report in seen} == {1, 2, 3}
    assert all(report.starts == 3 and report.rows == 20 for report in seen)
    best = [report.log_marginal_likelihood for report in seen]
    assert best == sorted(best)
    assert best[-1] == fit.log_marginal_likelihood
    assert seen[-1].evaluations <= fit.evaluations
    assert str(seen[-1]).startswith("fit of 20 rows, start 3 of 3: ")


def test_a_budget_of_seconds_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is ours here: it advances by a second whenever it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(fitting, "perf_counter", lambda: float(next(ticks)))
    X, y = data(20)
    options: Any = {"noise_variance": 0.1, "restarts": 2}
    fit = fit_kernel(
        Matern(), X, y, most_seconds=2.5, rng=np.random.default_rng(0), **options
    )
    assert not fit.converged
    assert "most_seconds=2.5" in fit.message
    assert np.isfinite(fit.log_marginal_likelihood)
    recomputed = log_marginal_likelihood(
        fit.kernel, X, y, noise_variance=fit.noise_variance
    )
    assert recomputed == pytest.approx(fit.log_marginal_likelihood, rel=1e-9)
    # However short the budget, the first start takes a step.
    short = fit_kernel(
        Matern(), X, y, most_seconds=0.5, rng=np.random.default_rng(0), **options
    )
    assert not short.converged
    assert np.isfinite(short.log_marginal_likelihood)
    with pytest.raises(errors.InputError, match="most_seconds"):
        fit_kernel(
            Matern(), X, y, most_seconds=0.0, rng=np.random.default_rng(0), **options
        )
