"""λ*_K and γ_N of small arm sets by enumeration; the bounds lie above."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import superarm.lab.theory.arm_sets as module
from superarm.core.errors import InputError
from superarm.kernels import Empirical, Linear, Matern, SquaredExponential
from superarm.lab.theory import ArmSetGrowth, eigenvalues, prior_eigenvalue_bound
from superarm.lab.theory.eigenvalues import prior_eigenvalue_bounds
from superarm.lab.theory.water_filling import CappedWater, Water
from superarm.rules.information import greedy_information_gain, information_gain

KERNELS = [
    SquaredExponential(lengthscale=0.5),
    Matern(nu=1.5, lengthscale=0.1, variance=4.0),
    Linear(),
    SquaredExponential(lengthscale=5.0)
    + Matern(nu=0.5, lengthscale=0.01, variance=0.3),
]
KERNEL_NAMES = ["smooth", "rough", "linear", "flat"]


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 2))


def true_maximum(kernel: Any, X: np.ndarray, noise: float, count: int) -> float:
    return max(
        0.5
        * np.linalg.slogdet(np.eye(count) + prior(kernel, X)[np.ix_(A, A)] / noise)[1]
        for A in itertools.combinations_with_replacement(range(len(X)), count)
    )


def prior(kernel: Any, X: np.ndarray) -> np.ndarray:
    return np.asarray(kernel(X))


# --- λ*_K ---------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("kernel", KERNELS, ids=KERNEL_NAMES)
def test_eigenvalue_bounds_hold_for_every_subset_and_history(
    kernel: Any, budget: int
) -> None:
    X = points(8)
    covariance = prior(kernel, X)
    rng = np.random.default_rng(1)
    largest = 0.0
    for history in [[], [0], [3, 3, 5], *rng.integers(0, 8, size=(3, 6)).tolist()]:
        cross = covariance[:, history]
        inner = covariance[np.ix_(history, history)] + 0.1 * np.eye(len(history))
        posterior = covariance - cross @ np.linalg.solve(inner, cross.T)
        for chosen in itertools.combinations(range(8), min(budget, 8)):
            largest = max(
                largest,
                float(np.linalg.eigvalsh(posterior[np.ix_(chosen, chosen)])[-1]),
            )
    bounds = prior_eigenvalue_bounds(kernel, X, budget)
    assert {bound.name for bound in bounds} == {"trace", "rows", "whole"}
    for bound in bounds:
        assert bound.value >= largest * (1.0 - 1e-12)
    assert prior_eigenvalue_bound(kernel, X, budget) == min(bounds)
    if budget == 1:  # a variance
        assert min(bounds).value == pytest.approx(covariance.diagonal().max())
    if budget >= 8:
        assert min(bounds).value == pytest.approx(np.linalg.eigvalsh(covariance)[-1])


@pytest.mark.parametrize(
    ("budget", "rows"), [(1, 9.0), (2, 9.0 + 3.0), (3, 9.0 + 3.0 + 1.0)]
)
def test_rows_by_hand(budget: int, rows: float) -> None:
    """The first arm has the largest variance and row; each row's own entry counts once."""
    table = Empirical(
        covariance=[[9.0, 3.0, -1.0], [3.0, 4.0, 0.5], [-1.0, 0.5, 2.0]], column=0
    )
    bounds = {
        bound.name: bound.value
        for bound in prior_eigenvalue_bounds(table, [[0], [1], [2]], budget)
    }
    assert bounds["rows"] == rows
    assert bounds["trace"] == 9.0 * budget


def test_blockwise_eigenvalues_equal_the_dense_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = points(37)
    covariance = np.abs(prior(KERNELS[1], X))
    off = np.sort(covariance - np.diag(covariance.diagonal()), axis=1)[:, ::-1]
    expected = (covariance.diagonal() + off[:, :4].sum(axis=1)).max()
    for block in (1, 5, 37, 100):
        monkeypatch.setattr(eigenvalues, "_BLOCK", block)
        rows = {
            name: value for value, name in prior_eigenvalue_bounds(KERNELS[1], X, 5)
        }["rows"]
        assert rows == pytest.approx(expected, rel=1e-13)


# --- γ_N ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.01, 1.0])
@pytest.mark.parametrize("kernel", KERNELS, ids=KERNEL_NAMES)
def test_information_bounds_hold(
    kernel: Any, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = points(5)
    exact = ArmSetGrowth(kernel=kernel, features=X, noise_variance=noise, horizon=6)
    names = set()
    truths = [true_maximum(kernel, X, noise, count) for count in range(1, 7)]
    for count, truth in enumerate(truths, start=1):
        for bound in exact.bounds(count):
            names.add(bound.name)
            assert bound.value >= truth * (1.0 - 1e-9)
        assert exact(count) <= truth / (1.0 - math.exp(-1.0)) + 1e-9
        assert exact(count) >= truth * (1.0 - 1e-9)
    assert names == {"hadamard", "spectral", "greedy", "prefix"}
    monkeypatch.setattr(module, "DENSE_LARGEST", 2)  # as if there were too many arms
    large = ArmSetGrowth(kernel=kernel, features=X, noise_variance=noise, horizon=6)
    for count, truth in enumerate(truths, start=1):
        bounds = large.bounds(count)
        assert {bound.name for bound in bounds} == {
            "hadamard",
            "nystrom",
            "greedy",
            "prefix",
        }
        assert all(bound.value >= truth * (1.0 - 1e-9) for bound in bounds)


@pytest.mark.parametrize("kernel", KERNELS, ids=KERNEL_NAMES)
def test_bounds_lie_between_greedy_and_what_greedy_certifies(kernel: Any) -> None:
    X = points(40)
    greedy = greedy_information_gain(kernel, X, 120, 0.1)
    growth = ArmSetGrowth(kernel=kernel, features=X, noise_variance=0.1, horizon=120)
    values = np.array([growth(count) for count in range(121)])
    assert (values >= greedy.gains * (1.0 - 1e-9)).all()
    assert (values <= greedy.upper_bounds + 1e-9).all()
    assert (np.diff(values) >= -1e-9).all()
    assert values[0] == 0.0


def test_hadamard_is_exact_for_independent_arms() -> None:
    """Equal variances: N spread evenly, ½ n ln(1 + N/(nς²))."""
    kernel = SquaredExponential(lengthscale=1e-3)
    X = np.arange(4.0)[:, None]
    for count in (1, 2, 3, 10):
        bounds = ArmSetGrowth(
            kernel=kernel, features=X, noise_variance=0.5, horizon=10
        ).bounds(count)
        values = {name: value for value, name in bounds}
        assert values["hadamard"] == pytest.approx(2.0 * math.log1p(count / 4.0 / 0.5))


def test_spectral_is_exact_for_one_shared_value() -> None:
    """All arms equal: N observations of one number give an information gain of ½ ln(1 + N/ς²)."""
    growth = ArmSetGrowth(
        kernel=SquaredExponential(lengthscale=1e6),
        features=points(6),
        noise_variance=0.5,
        horizon=50,
    )
    assert growth(50) == pytest.approx(0.5 * math.log1p(50 / 0.5), rel=1e-6)
    assert growth.bound(50).name == "spectral"


def test_water_filling_is_the_best_allocation() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(3)
    rates, shares = rng.uniform(0.05, 3.0, size=6), rng.uniform(0.1, 0.5, size=6)
    for total in (0.3, 2.0, 40.0):
        for water, caps in [
            (Water(rates), np.full(6, total)),
            (CappedWater(rates, shares), total * shares),
        ]:
            best = minimize(
                lambda m: -0.5 * np.log1p(rates * m).sum(),
                np.full(6, total / 6.0),
                bounds=[(0.0, cap) for cap in caps],
                constraints={
                    "type": "ineq",
                    "fun": lambda m, total=total: total - m.sum(),
                },
            )
            assert water(total) == pytest.approx(-best.fun, rel=1e-4)
            assert water(total) >= -best.fun - 1e-7
    full = CappedWater(rates, np.full(6, 0.1))(5.0)  # the caps leave some over
    assert full == pytest.approx(0.5 * np.log1p(0.5 * rates).sum())


def test_many_arms_without_a_square_matrix() -> None:
    """More arms than are decomposed: still below Hadamard, above what a run can gather."""

    class Counted:
        largest = 0

        def __call__(self, X: Any, Y: Any = None) -> Any:
            K = KERNELS[0](X, Y)
            self.largest = max(self.largest, K.size)
            return K

        def diag(self, X: Any) -> Any:
            return KERNELS[0].diag(X)

    kernel = Counted()
    X = points(1600)
    growth = ArmSetGrowth(kernel=kernel, features=X, noise_variance=0.1, horizon=300)
    bounds = {name: value for value, name in growth.bounds(300)}
    gathered = information_gain(KERNELS[0], X[:300], 0.1)
    assert gathered < growth(300) < 0.5 * bounds["hadamard"]
    eigenvalue = prior_eigenvalue_bound(kernel, X, 10)
    assert eigenvalue.name == "rows"
    assert kernel.largest <= 300 * 1600


def test_wrong_input_is_named() -> None:
    kernel = KERNELS[0]
    growth = ArmSetGrowth(
        kernel=kernel, features=points(3), noise_variance=0.1, horizon=5
    )
    with pytest.raises(InputError, match="count is 6"):
        growth(6)
    with pytest.raises(InputError, match="count"):
        growth(-1)
    with pytest.raises(InputError, match="no rows"):
        prior_eigenvalue_bound(kernel, np.empty((0, 2)), 1)
    with pytest.raises(InputError, match="budget"):
        prior_eigenvalue_bound(kernel, points(3), 0)
    with pytest.raises(InputError, match="noise_variance"):
        ArmSetGrowth(kernel=kernel, features=points(3), noise_variance=0.0, horizon=2)
    assert growth(0) == 0.0
