"""How fast rewards drift, against eqs. 24 and 25 of bogunovic2016time with dense matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from superarm.core import errors
from superarm.kernels import (
    DriftFit,
    Empirical,
    SquaredExponential,
    Temporal,
    drift_log_likelihood,
    fit_drift,
)
from superarm.posteriors import fit_kernel, log_marginal_likelihood

TIMES = np.array([1.0, 2.0, 4.5, 5.0, 9.0])


def small(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A covariance of rank 3 of four arms, and two blocks of readings at five times."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((4, 3))
    return root @ root.T, rng.standard_normal((2, 5, 4))


def by_full_matrices(
    K: np.ndarray, block: np.ndarray, epsilon: float, noise: float
) -> np.ndarray:
    """Eq. 24 of one block, and its derivative, eq. 25."""
    v = np.abs(np.subtract.outer(TIMES, TIMES)) / 2.0
    y, faded = block.ravel(), np.kron((1.0 - epsilon) ** v, K)
    C = faded + noise * np.eye(len(y))
    alpha = np.linalg.solve(C, y)
    value = (
        -0.5 * y @ alpha
        - 0.5 * np.linalg.slogdet(C)[1]
        - 0.5 * len(y) * math.log(2.0 * math.pi)
    )
    slope = np.kron(-v * (1.0 - epsilon) ** (v - 1.0), K)
    return np.array(
        [value, 0.5 * np.trace((np.outer(alpha, alpha) - np.linalg.inv(C)) @ slope)]
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.2, 0.9])
def test_equations_24_and_25(epsilon: float) -> None:
    K, Y = small()
    value, slope = sum(by_full_matrices(K, block, epsilon, 0.3) for block in Y)

    def fast(rate: float) -> float:
        return drift_log_likelihood(K, Y, epsilon=rate, noise_variance=0.3, times=TIMES)

    assert fast(epsilon) == pytest.approx(value, rel=1e-12)
    h = 1e-5 * epsilon
    assert (fast(epsilon + h) - fast(epsilon - h)) / (2 * h) == pytest.approx(
        slope, rel=1e-4, abs=1e-4
    )
    one = drift_log_likelihood(
        K, Y[0], epsilon=epsilon, noise_variance=0.3, times=TIMES
    )
    assert one == pytest.approx(by_full_matrices(K, Y[0], epsilon, 0.3)[0], rel=1e-12)


def test_the_same_as_a_kernel_over_arms_and_time() -> None:
    """The table's fast path and the general one have one likelihood and one maximum."""
    K, Y = small(3)
    K = K + 0.1 * np.eye(4)
    rows = np.array([[arm, time] for _ in Y for time in TIMES for arm in range(4)])
    days = np.repeat([7, 5], 20)
    space = Empirical(covariance=K)
    kernel = space * Temporal(epsilon=0.3, column=1)
    slow = log_marginal_likelihood(
        kernel, rows, Y.ravel(), noise_variance=0.3, groups=days
    )
    fast = drift_log_likelihood(K, Y, epsilon=0.3, noise_variance=0.3, times=TIMES)
    assert fast == pytest.approx(slow, rel=1e-12)
    fit = fit_drift(K, Y, noise_variance=0.3, times=TIMES)
    general = fit_kernel(
        kernel, rows, Y.ravel(), noise_variance=0.3, fit_noise=False, groups=days, restarts=2,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert fit.log_likelihood == pytest.approx(
        general.log_marginal_likelihood, abs=1e-6
    )
    assert fit.log_likelihood >= general.log_marginal_likelihood - 1e-9


def drawn(epsilon: float, seed: int, locations: int = 20, times: int = 40) -> DriftFit:
    """A fit to a function drawn at 20 places and 40 times, eqs. 3 and 4, read with noise 0.01."""
    rng = np.random.default_rng([seed, round(1e4 * epsilon)])
    K = SquaredExponential(lengthscale=0.2)(rng.random((locations, 2)))
    root = np.linalg.cholesky(K + 1e-10 * np.eye(locations))
    innovations = rng.standard_normal((times, locations)) @ root.T
    for step in range(1, times):
        innovations[step] = (
            math.sqrt(1.0 - epsilon) * innovations[step - 1]
            + math.sqrt(epsilon) * innovations[step]
        )
    readings = innovations + 0.1 * rng.standard_normal(innovations.shape)
    return fit_drift(K, readings, noise_variance=0.01)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "epsilon",
    [
        pytest.param(0.01, marks=pytest.mark.slow),
        0.03,
        pytest.param(0.1, marks=pytest.mark.slow),
    ],
)
def test_recovers_the_drift_and_covers_it(epsilon: float) -> None:
    """A fit is off by 6 to 13 %, so that the mean of 50 is off by less than 2 % as a rule.

    Of 50 intervals of 95 % fewer than 42 cover once in a thousand times.
    """
    fits = [drawn(epsilon, seed) for seed in range(50)]
    assert np.mean([fit.epsilon for fit in fits]) == pytest.approx(epsilon, rel=0.05)
    covered = sum(
        low <= epsilon <= high for low, high in (fit.interval for fit in fits)
    )
    assert covered >= binom.ppf(0.001, 50, 0.95)


def test_the_interval_is_the_curvature() -> None:
    """ln ε ± 1.96/√(−second derivative), here from a wider step."""
    rng = np.random.default_rng(0)
    K, Y = small()[0], rng.standard_normal((3, 30, 4)).cumsum(axis=1) * 0.2
    fit = fit_drift(K, Y, noise_variance=0.1)
    assert 1e-4 < fit.epsilon < 0.9

    def likelihood_at(log_epsilon: float) -> float:
        return drift_log_likelihood(
            K, Y, epsilon=math.exp(log_epsilon), noise_variance=0.1
        )

    best, h = math.log(fit.epsilon), 0.03
    curvature = (
        -(likelihood_at(best + h) - 2.0 * likelihood_at(best) + likelihood_at(best - h))
        / h**2
    )
    away = 1.959964 / math.sqrt(curvature)
    np.testing.assert_allclose(
        np.log(fit.interval), [best - away, best + away], rtol=2e-3
    )


def test_no_drift_is_the_lower_bound() -> None:
    still = np.tile([1.0, -0.5, 0.3], (40, 1))
    fit = fit_drift(np.eye(3), still, noise_variance=0.1)
    assert fit.epsilon == pytest.approx(1e-5, rel=1e-3)
    assert fit.interval == pytest.approx((1e-5, 0.99))


def test_bad_input() -> None:
    K, Y = small()
    for change, message in (
        ({"readings": Y[:, :, :3]}, "3 columns, but 4"),
        ({"readings": [Y[0], Y[1, :3]]}, "equal length"),
        ({"readings": Y[:, :0]}, "equal length"),
        ({"readings": np.where(Y < 0.0, np.nan, Y)}, "finite"),
        ({"covariance": K - 9.0 * np.eye(4)}, "not a covariance"),
        (
            {"covariance": SquaredExponential()},
            "^covariance must be numbers .*'SquaredExponential'",
        ),
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"times": [1.0, 2.0, 2.0, 3.0, 4.0]}, "times must rise"),
        ({"bounds": (0.5, 0.1)}, "the lower one comes first"),
        ({"bounds": (0.5, 1.0)}, "both below 1"),
    ):
        with pytest.raises(errors.SuperarmError, match=message):
            fit_drift(
                **{"covariance": K, "readings": Y, "noise_variance": 0.1, **change}
            )  # type: ignore[arg-type]
