"""Theorems as numbers: formulas worked out in 40-digit arithmetic, inequalities on simulated runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import InputError
from superarm.kernels import Linear, Matern, SquaredExponential
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.lab.theory import (
    ANTI_CONCENTRATION,
    confidence_width,
    discretisation_size,
    rate_oclok,
    rates_side_by_side,
    realised_information,
    regret_bound_gp_ts,
    regret_bound_gp_ucb,
    regret_bound_igp_ucb,
    regret_bound_oclok_ucb,
    self_normalised_bound,
    std_sum_bound,
    theory_noise_variance,
    variance_sum_bound,
)
from superarm.rules.information import greedy_information_gain, information_gain

KERNEL = SquaredExponential(lengthscale=0.3)


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(n, 2))


def twelve(t: int) -> float:
    return 12.0


class Run:
    """Random points observed one by one: the standard deviation just before each."""

    def __init__(self, rounds: int, noise_variance: float, seed: int = 0) -> None:
        self.X = points(rounds, seed)
        K = KERNEL(self.X)
        stds = []
        for t in range(rounds):
            solved = np.linalg.solve(K[:t, :t] + noise_variance * np.eye(t), K[:t, t])
            stds.append(math.sqrt(K[t, t] - K[:t, t] @ solved))
        self.stds = np.array(stds)


# --- chowdhury2017kernelized ---------------------------------------------------------------


def squared_norm(noise: np.ndarray, K: np.ndarray, eta: float) -> float:
    """‖ε‖² in the norm of ((K + ηI)⁻¹ + I)⁻¹ = I − (K + (1+η)I)⁻¹: left of eq. 6."""
    solved = np.linalg.solve(K + (1.0 + eta) * np.eye(len(K)), noise)
    return float(noise @ (noise - solved))


def squared_bound(K: np.ndarray, eta: float, R: float, delta: float) -> float:
    """Right of eq. 6."""
    _, log_determinant = np.linalg.slogdet(K + (1.0 + eta) * np.eye(len(K)))
    return float(self_normalised_bound(log_determinant, R, delta))


def test_self_normalised_norm_equals_its_definition() -> None:
    K = KERNEL(points(6))
    noise = np.random.default_rng(1).standard_normal(6)
    for eta in (0.5, 0.01):
        inverse = np.linalg.inv(np.linalg.inv(K + eta * np.eye(6)) + np.eye(6))
        expected = noise @ inverse @ noise
        assert squared_norm(noise, K, eta) == pytest.approx(expected, rel=1e-9)


def test_self_normalised_bound_of_one_point_by_hand() -> None:
    expected = 2.0 * 2.0**2 * math.log(math.sqrt(2.5) / 0.1)
    found = self_normalised_bound([math.log(2.5), 0.0], 2.0, 0.1)
    np.testing.assert_allclose(found, [expected, 8.0 * math.log(10.0)], rtol=1e-13)


@pytest.mark.parametrize("adaptive", [False, True], ids=["fixed", "adaptive"])
def test_theorem_1_is_violated_no_more_often_than_delta(adaptive: bool) -> None:
    """Runs violate independently with probability ≤ δ: at most Nδ + 5√(Nδ(1−δ)) of N."""
    runs, rounds, delta, eta, R = 400, 12, 0.2, 0.2, 0.7
    rng = np.random.default_rng(5)
    grid = np.linspace(0.0, 1.0, 25)[:, None]
    violations = 0
    for _ in range(runs):
        noise = R * rng.standard_normal(rounds)
        chosen = [int(rng.integers(25))]
        for t in range(1, rounds):
            # A predictable choice: stay where the noise was kind, else move away.
            kind = adaptive and noise[t - 1] > 0.0
            chosen.append(chosen[-1] if kind else int(rng.integers(25)))
        K = KERNEL(grid[chosen])
        violations += any(
            squared_norm(noise[:t], K[:t, :t], eta)
            > squared_bound(K[:t, :t], eta, R, delta)
            for t in range(1, rounds + 1)
        )
    assert violations <= runs * delta + 5.0 * math.sqrt(runs * delta * (1.0 - delta))


def test_theorem_2_band_covers_a_function_of_known_norm() -> None:
    """The band may fail in a share δ of runs; the count is bounded as in the test above."""
    runs, T, R, delta = 60, 25, 0.2, 0.2
    grid = np.linspace(0.0, 1.0, 30)[:, None]
    K = KERNEL(grid)
    noise_variance = theory_noise_variance(T)
    gains = greedy_information_gain(KERNEL, grid, T, noise_variance).upper_bounds
    rng = np.random.default_rng(9)
    failures = 0
    for _ in range(runs):
        alpha = rng.standard_normal(4)
        centres = rng.integers(30, size=4)
        f = K[:, centres] @ alpha
        B = math.sqrt(alpha @ K[np.ix_(centres, centres)] @ alpha)
        chosen = rng.integers(30, size=T)
        y = f[chosen] + R * rng.standard_normal(T)
        widths = confidence_width(
            np.arange(1, T + 1), lambda t: float(gains[t]), B, R, delta
        )
        for t in range(T):
            past = chosen[:t]
            gram = K[np.ix_(past, past)] + noise_variance * np.eye(t)
            solved = np.linalg.solve(gram, K[past])
            std = np.sqrt(1.0 - np.einsum("ij,ij->j", K[past], solved))
            if (np.abs(solved.T @ y[:t] - f) > widths[t] * std).any():
                failures += 1
                break
    assert failures <= runs * delta + 5.0 * math.sqrt(runs * delta * (1.0 - delta))


def test_confidence_width_uses_the_round_before() -> None:
    width = confidence_width([1, 7], lambda t: {0: 0.0, 6: 5.0}[t], 2.0, 0.3, 0.1)
    first = 2.0 + 0.3 * math.sqrt(2.0 * (1.0 + math.log(10.0)))
    seventh = 2.0 + 0.3 * math.sqrt(2.0 * (5.0 + 1.0 + math.log(10.0)))
    np.testing.assert_allclose(width, [first, seventh], rtol=1e-13)


def test_lemma_3_on_a_run() -> None:
    run = Run(40, noise_variance=0.1)
    realised = float(realised_information(run.stds**2, 0.1)[-1])
    assert realised <= greedy_information_gain(KERNEL, run.X, 40, 0.1).upper_bounds[-1]
    # Eqs 10 and 11 are the same number.
    assert realised == pytest.approx(information_gain(KERNEL, run.X, 0.1), rel=1e-9)


def test_lemma_4_on_a_run() -> None:
    T = 40
    noise_variance = theory_noise_variance(T)
    assert noise_variance == pytest.approx(1.05)
    run = Run(T, noise_variance)
    gains = realised_information(run.stds**2, noise_variance)
    assert gains[0] == 0.0
    for t in (1, 10, T):
        # The realised gain is a lower bound on γ_t, so that this is the harder inequality.
        realised = float(gains[t])
        bound = float(std_sum_bound(t, lambda count, value=realised: value))
        assert run.stds[:t].sum() <= bound
        assert bound == pytest.approx(math.sqrt(4.0 * (t + 2) * realised))


def test_igp_ucb_bound() -> None:
    bound = regret_bound_igp_ucb(100, twelve, 2.0, 0.3, 0.1)
    width = 2.0 + 0.3 * math.sqrt(2.0 * (12.0 + 1.0 + math.log(1.0 / 0.1)))
    expected = 2.0 * width * math.sqrt(4.0 * 102.0 * 12.0)
    assert float(bound) == pytest.approx(expected, rel=1e-13)
    curve = regret_bound_igp_ucb(np.arange(1, 101), math.log1p, 2.0, 0.3, 0.1)
    assert curve.shape == (100,)
    assert (np.diff(curve) > 0.0).all()
    assert float(std_sum_bound(100, twelve)) == pytest.approx(math.sqrt(4896.0))


def test_gp_ts_bound() -> None:
    shape = {"lipschitz": 3.0, "side": 1.5, "dimension": 2}
    bound = regret_bound_gp_ts(100, twelve, 2.0, 0.3, 0.1, **shape)
    assert float(bound) == pytest.approx(807105.90655277217 + 16.0, rel=1e-13)
    for rounds, first in (
        (1, 4.0),
        (3, 12.0),
        (9, 16.0),
    ):  # with γ = R = 0: c_T = B(1 + √…)
        c = 2.0 * (
            1.0
            + math.sqrt(
                4.0 * math.log(rounds) + 4.0 * math.log(2.0 * 3.0 * 1.5 * 2 * rounds**2)
            )
        )
        azuma = 19.0 * c / ANTI_CONCENTRATION * math.sqrt(2.0 * rounds * math.log(20.0))
        bound = regret_bound_gp_ts(rounds, lambda count: 0.0, 2.0, 0.0, 0.1, **shape)
        assert float(bound) == pytest.approx(
            first + 5.0 * math.pi**2 / 6.0 + azuma, rel=1e-13
        )


def test_anti_concentration_constant() -> None:
    """P[X > 1] for a standard normal is above p, as Lemma 8 claims."""
    assert pytest.approx(0.05189, abs=1e-5) == ANTI_CONCENTRATION
    assert 0.5 * math.erfc(1.0 / math.sqrt(2.0)) > ANTI_CONCENTRATION


def test_discretisation_size_meets_its_guarantee() -> None:
    """(B L r d t²)^d points in a grid leave |f(x) − f([x])| ≤ 1/t² for a function of norm B."""
    B, L, r, d, t = 2.0, 1.0 / 0.3, 1.0, 1, 3
    size = float(discretisation_size(t, B, L, r, d))
    assert size == pytest.approx(B * L * r * d * t**2)
    per_axis = math.ceil(size)
    grid = (np.arange(per_axis) + 0.5) / per_axis
    x = np.linspace(0.0, 1.0, 500)
    centre = np.array([[0.4]])
    f = B * KERNEL(x[:, None], centre)[:, 0]  # ‖B·k(·, c)‖_k = B
    nearest = grid[np.abs(x[:, None] - grid).argmin(axis=1)]
    error = np.abs(f - B * KERNEL(nearest[:, None], centre)[:, 0])
    assert error.max() <= 1.0 / t**2
    assert float(discretisation_size(1, 0.1, 0.1, 0.1, 1)) == 1.0
    np.testing.assert_allclose(
        discretisation_size([1, 2], 2.0, 3.0, 1.5, 2), [18.0**2, 72.0**2]
    )


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(lengthscale=0.4, variance=2.0),
        Matern(nu=1.5, lengthscale=0.4, variance=2.0),
        Matern(nu=2.5, lengthscale=0.7),
        Matern(nu=3.7, lengthscale=0.4),
    ],
    ids=repr,
)
def test_lipschitz_constant_by_finite_differences(
    kernel: SquaredExponential | Matern,
) -> None:
    h = 1e-4
    k = kernel(np.array([[0.0]]), np.array([[0.0], [h]]))[0]
    # ∂²k/∂p∂q at p = q is −k″(0) ≈ 2(k(0) − k(h))/h²
    numeric = math.sqrt(2.0 * (k[0] - k[1])) / h
    assert lipschitz_of_kernel(kernel) == pytest.approx(numeric, rel=2e-3)


def test_lipschitz_constant_takes_the_shortest_lengthscale() -> None:
    kernel = SquaredExponential(lengthscale=[0.5, 0.2])
    assert lipschitz_of_kernel(kernel) == pytest.approx(5.0)
    assert lipschitz_of_kernel(Matern(nu=math.inf, lengthscale=0.2)) == pytest.approx(
        5.0
    )
    with pytest.raises(InputError, match="nu"):
        lipschitz_of_kernel(Matern(nu=0.5))
    with pytest.raises(InputError, match="Linear"):
        lipschitz_of_kernel(Linear())


# --- srinivas2010gaussian ------------------------------------------------------------------


def test_gp_ucb_bound_is_far_above_igp_ucb() -> None:
    bound = regret_bound_gp_ucb(100, twelve, 2.0, 0.04, 0.1)
    assert float(bound) == pytest.approx(59130.530014091191, rel=1e-13)
    assert bound > 100.0 * regret_bound_igp_ucb(100, twelve, 2.0, 0.3, 0.1)


# --- nika2022oclok -------------------------------------------------------------------------


def test_oclok_lemma_1_on_a_run_of_super_arms() -> None:
    X, noise_variance, k = points(48, seed=2), 0.05, 4
    K = KERNEL(X)
    covariances = []
    for start in range(0, 48, k):
        now = slice(start, start + k)
        gram = K[:start, :start] + noise_variance * np.eye(start)
        solved = np.linalg.solve(gram, K[:start, now])
        covariances.append(K[now, now] - K[:start, now].T @ solved)
    traces = sum(np.trace(cov) for cov in covariances)
    largest = max(np.linalg.eigvalsh(cov)[-1] for cov in covariances)
    gain = information_gain(KERNEL, X, noise_variance)
    # Lemma 1 as printed, and in the form of Lemma A.12 of sandberg2025bayesian.
    assert traces / noise_variance / (2.0 * (largest / noise_variance + 1.0)) <= gain
    bound = variance_sum_bound(
        gain, largest_eigenvalue=largest, noise_variance=noise_variance
    )
    assert float(bound) == pytest.approx(gain * 2.0 * (largest + noise_variance))
    assert traces <= float(bound)


def test_oclok_bound() -> None:
    calls: list[int] = []

    def gamma(t: int) -> float:
        calls.append(t)
        return 12.0

    bound = regret_bound_oclok_ucb(
        100,
        gamma,
        most_arms=150,
        budget=5,
        noise_variance=0.01,
        largest_eigenvalue=2.5,
        lipschitz=1.5,
    )
    assert calls == [500]
    beta = 2.0 * math.log(150.0 * math.pi**2 * 100.0**2 / (3.0 * 0.05))
    constant = 8.0 * 1.5**2 * (2.5 + 0.01)
    expected = math.sqrt(constant * 5.0 * beta * 100.0 * 12.0)
    assert float(bound) == pytest.approx(expected, rel=1e-13)


def test_oclok_rates() -> None:
    setting: dict[str, Any] = {"dimension": 3, "budget": 5, "largest_eigenvalue": 2.0}
    for kernel, nu, expected in [
        ("linear", math.inf, math.sqrt(3000.0)),
        ("squared-exponential", math.inf, math.sqrt(1000.0 * math.log(100.0) ** 3)),
        ("matern", 2.5, math.sqrt(10.0) * 100.0 ** (5.5 / 8.0)),
        ("matern", 1.25, math.sqrt(10.0) * 100.0 ** (4.25 / 5.5)),
    ]:
        assert float(rate_oclok(100, kernel, nu=nu, **setting)) == pytest.approx(
            expected
        )
    with pytest.raises(InputError, match="nu"):
        rate_oclok(100, "matern", nu=1.0, **setting)


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: confidence_width(0, twelve, 1.0, 1.0, 0.1), InputError, "rounds"),
        (lambda: confidence_width(1, twelve, -1.0, 1.0, 0.1), InputError, "norm_bound"),
        (lambda: confidence_width(1, twelve, 1.0, 1.0, 1.0), InputError, "delta"),
        (lambda: self_normalised_bound(1.0, -0.1, 0.1), InputError, "noise_bound"),
        (lambda: realised_information([1.0], 0.0), InputError, "noise_variance"),
        (lambda: theory_noise_variance(0), InputError, "horizon"),
        (lambda: discretisation_size(1, 1.0, 1.0, 1.0, 0), InputError, "dimension"),
        (
            lambda: regret_bound_gp_ucb(1, twelve, 1.0, 0.0, 0.1),
            InputError,
            "noise_variance",
        ),
    ],
)
def test_bad_arguments_are_named(
    call: object, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        call()  # type: ignore[operator]


def test_table_1_side_by_side() -> None:
    """T = 256, K = 5, D = 3, λ* = 2: CC-MAB has T^{5/6}, ACC-UCB T^{4/5}, Matérn's T^{(D+ν)/(D+2ν)}."""
    rates = rates_side_by_side(
        256, dimension=3, budget=5, largest_eigenvalue=2.0, nu=2.5
    )
    expected = {
        "CUCB": math.sqrt(1280.0),
        "CC-MAB": 5.0 * 256.0 ** (5.0 / 6.0),
        "ACC-UCB": 5.0 * 256.0**0.8,
        "O'CLOK-UCB, linear": math.sqrt(2.0 * 5.0 * 256.0 * 3.0),
        "O'CLOK-UCB, squared exponential": math.sqrt(
            2.0 * 5.0 * 256.0 * math.log(256.0) ** 3
        ),
        "O'CLOK-UCB, Matérn": math.sqrt(10.0) * 256.0 ** (5.5 / 8.0),
    }
    assert {name: float(rate) for name, rate in rates.items()} == pytest.approx(
        expected
    )
    printed = rates_side_by_side(
        256, dimension=3, budget=5, largest_eigenvalue=2.0, as_printed=True
    )
    as_table = {
        **expected,
        "O'CLOK-UCB, squared exponential": math.sqrt(
            2.0 * 5.0 * 3.0 * 256.0 * math.log(256.0) ** 3
        ),
        "O'CLOK-UCB, Matérn": 2.0 * 256.0 ** (5.5 / 8.0),
    }
    assert {name: float(rate) for name, rate in printed.items()} == pytest.approx(
        as_table
    )
    rough = rates_side_by_side(
        256,
        dimension=3,
        budget=1,
        largest_eigenvalue=1.0,
        holder=0.5,
        optimality_dimension=1.0,
    )
    assert float(rough["CC-MAB"]) == pytest.approx(256.0 ** (4.0 / 4.5))
    assert float(rough["ACC-UCB"]) == pytest.approx(256.0 ** (2.0 / 3.0))
    smooth = rates_side_by_side(256, dimension=3, budget=5, largest_eigenvalue=2.0)
    assert float(smooth["O'CLOK-UCB, Matérn"]) == pytest.approx(
        expected["O'CLOK-UCB, Matérn"]
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": -3},
        {"holder": math.nan},
        {"holder": 0.0},
        {"dimension": -2},
        {"largest_eigenvalue": -1.0},
        {"optimality_dimension": 4.0},
    ],
)
def test_invalid_rates_are_rejected(wrong: dict[str, Any]) -> None:
    sound: dict[str, Any] = {"dimension": 3, "budget": 5, "largest_eigenvalue": 2.0}
    with pytest.raises(InputError, match=next(iter(wrong))):
        rates_side_by_side(256, **{**sound, **wrong})
