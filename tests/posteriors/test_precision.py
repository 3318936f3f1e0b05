"""Warnings about imprecise means under little noise, against exact fractions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.errors import PrecisionWarning
from superarm.kernels import SquaredExponential
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.posteriors.variances import mean_error

KERNEL = SquaredExponential(lengthscale=0.3)
BASE = np.array([[0.1], [0.4], [0.8]])


def exact_mean_and_misfit(
    arms: Floats, rewards: Floats, noise: float
) -> tuple[Floats, float]:
    """The posterior mean of the observed arms and yᵀ(K + λI)⁻¹y, in fractions."""
    n = len(arms)
    K = [[Fraction(float(value)) for value in row] for row in KERNEL(arms)]
    system = [row.copy() for row in K]
    for i in range(n):
        system[i][i] += Fraction(noise)
        system[i].append(Fraction(float(rewards[i])))
    for column in range(n):  # Gauss–Jordan; the matrix is positive definite
        pivot = system[column][column]
        system[column] = [value / pivot for value in system[column]]
        for row in range(n):
            if row != column:
                factor = system[row][column]
                system[row] = [
                    a - factor * b
                    for a, b in zip(system[row], system[column], strict=True)
                ]
    alpha = [row[n] for row in system]
    mean = [float(sum(k * a for k, a in zip(row, alpha, strict=True))) for row in K]
    misfit = float(
        sum(Fraction(float(y)) * a for y, a in zip(rewards, alpha, strict=True))
    )
    return np.array(mean), misfit


def finite(arms: Floats, noise: float) -> tuple[Any, Any]:
    return FiniteGP(KERNEL, arms, noise, form="root", backend="numpy"), np.arange(
        len(arms)
    )


def streaming(arms: Floats, noise: float) -> tuple[Any, Any]:
    return StreamingGP(KERNEL, noise, form="cholesky"), arms


Make = Callable[[Floats, float], tuple[Any, Any]]


@pytest.fixture(params=[finite, streaming])
def make(request: pytest.FixtureRequest) -> Make:
    maker: Make = request.param
    return maker


def learned(
    make: Make, arms: Floats, rewards: Floats, noise: float
) -> tuple[Floats, list[Any]]:
    gp, keys = make(arms, noise)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for row in range(len(arms)):
            gp.observe(keys[[row]], rewards[[row]])
        return gp.predict(keys).mean, caught


@pytest.mark.parametrize("gap", [1e-3, 1e-7])
@pytest.mark.parametrize("noise", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_the_estimate_holds_and_the_warning_follows_it(
    make: Make, gap: float, noise: float, apart: float
) -> None:
    arms = np.vstack([BASE, BASE + gap])
    rewards = np.sin(6.0 * arms[:, 0]) + apart * np.repeat([0.0, 1.0], 3)
    exact, misfit = exact_mean_and_misfit(arms, rewards, noise)
    mean, caught = learned(make, arms, rewards, noise)
    estimate = mean_error(misfit, noise, 1.0)
    # The bound is c·N times the estimate; c = 4 as for variances, and rounding of what is read.
    assert np.abs(mean - exact).max() <= 4 * len(arms) * estimate + 1e-14
    precision_warnings = [
        warning for warning in caught if issubclass(warning.category, PrecisionWarning)
    ]
    size = max(1.0, np.abs(exact).max())
    if estimate > 3e-6 * size:
        assert len(precision_warnings) == 1, "once"
        assert "noise_variance" in str(precision_warnings[0].message)
    elif estimate < 3e-7 * size:
        assert not precision_warnings


def test_warning_as_error_has_no_side_effects(make: Make) -> None:
    arms = np.vstack([BASE, BASE + 1e-7])
    gp, keys = make(arms, 1e-12)
    gp.observe(keys[:3], np.zeros(3))
    before = gp.predict(keys)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrecisionWarning):
            gp.observe(keys[3:], np.ones(3))
    after = gp.predict(keys)
    assert gp.count == 3
    np.testing.assert_allclose(after.mean, before.mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(after.std, before.std, rtol=0.0, atol=1e-6)
