"""Steps of the proofs in *Time-Varying Gaussian Process Bandit Optimization* (2016), on small cases.

Every inequality of a chain is asserted where both of its sides can be computed. Where a printed step is
false, a counterexample shows it next to the corrected step.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from superarm.core import Floats
from superarm.kernels import SquaredExponential
from superarm.lab.theory import mismatch_bounds
from superarm.rules import ResettingGPUCB, TimeVaryingGPUCB

pytestmark = pytest.mark.slow  # proofs of the papers, step by step

ROUNDING = 1e-9
CASES = range(40)


class Case(NamedTuple):
    """Arms, what was chosen, and what R-GP-UCB and TV-GP-UCB make of it."""

    K: Floats
    drifted: Floats  # K ∘ D
    k: Floats  # (n, queries)
    faded: Floats  # k ∘ d
    y: Floats
    epsilon: float
    noise: float


def decay(n: int, epsilon: float) -> Floats:
    steps = np.arange(n)
    matrix: Floats = np.sqrt(1.0 - epsilon) ** np.abs(np.subtract.outer(steps, steps))
    return matrix


def make_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    epsilon = float(rng.choice([1e-4, 1e-2, 0.3, 0.9]))
    noise = float(rng.choice([0.01, 0.3, 2.0]))
    kernel = SquaredExponential(lengthscale=float(rng.choice([0.1, 0.5, 3.0])))
    x, queries = rng.uniform(size=(n, 1)), rng.uniform(size=(5, 1))
    K, k = kernel(x), kernel(x, queries)
    fading = np.sqrt(1.0 - epsilon) ** np.arange(n, 0, -1)
    y = rng.standard_normal(n)
    return Case(K, K * decay(n, epsilon), k, k * fading[:, None], y, epsilon, noise)


def inverse(K: Floats, noise: float) -> Floats:
    return np.asarray(np.linalg.inv(K + noise * np.eye(len(K))))


def information(K: Floats, noise: float) -> float:
    return 0.5 * float(np.linalg.slogdet(np.eye(len(K)) + K / noise)[1])


# --- appendix A ---------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.8])
def test_equations_22_and_23(epsilon: float) -> None:
    """f_t is a sum of g_1, …, g_t: its covariances follow without drawing anything."""
    T, j = 6, 3
    weights = np.zeros((T, T))  # f_t = Σ weights[t, i] g_i
    weights[0, 0] = 1.0
    for t in range(1, T):
        weights[t] = math.sqrt(1.0 - epsilon) * weights[t - 1]
        weights[t, t] += math.sqrt(epsilon)
    covariance = weights @ weights.T  # times k(x, x′)
    np.testing.assert_allclose(covariance, decay(T, epsilon), atol=1e-12)
    assert covariance[1, 1 + j] == pytest.approx((1.0 - epsilon) ** (j / 2))
    fading = np.sqrt(1.0 - epsilon) ** np.arange(T - 1, 0, -1)  # d_t of eq. 23
    np.testing.assert_allclose(covariance[-1, :-1], fading, atol=1e-12)


# --- appendix C.1 -------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2])
def test_equation_27_a_grid_is_near_every_arm(d: int) -> None:
    r, tau = 1.5, 6
    axis = (np.arange(tau) + 0.5) * r / tau
    grid = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    assert len(grid) == tau**d
    arms = np.random.default_rng(0).uniform(0.0, r, size=(500, d))
    nearest = np.abs(arms[:, None] - grid).sum(axis=2).min(axis=1)
    assert nearest.max() <= r * d / tau


def test_a_normal_number_is_within_root_beta_as_often_as_equation_28_needs() -> None:
    from scipy import stats

    for beta in np.linspace(0.0, 60.0, 121):
        assert 2.0 * stats.norm.sf(math.sqrt(beta)) <= math.exp(-beta / 2.0)


def test_equation_30_has_the_probability_that_it_needs() -> None:
    """d a exp(−(L_t/b)²) is δ/(3π_t), and the same for eq. 64 with 4 in place of 3."""
    d, a, b, delta = 2, 5.0, 3.0, 0.2
    for t, parts in itertools.product((1, 4, 30), (3.0, 4.0)):
        pi_t = math.pi**2 * t**2 / 6.0
        L = b * math.sqrt(math.log(parts * d * a * pi_t / delta))
        assert d * a * math.exp(-((L / b) ** 2)) == pytest.approx(
            delta / (parts * pi_t)
        )
    assert sum(6.0 / (math.pi**2 * t**2) for t in range(1, 10_000)) <= 1.0


def test_equations_31_to_33_need_3_where_the_size_of_the_grid_is_printed_with_2() -> (
    None
):
    r, d, a, b, delta = 1.5, 2, 5.0, 3.0, 0.2
    for t in (1, 4, 30):
        pi_t = math.pi**2 * t**2 / 6.0
        L = b * math.sqrt(math.log(3.0 * d * a * pi_t / delta))
        tau = {
            parts: r * d * b * t**2 * math.sqrt(math.log(parts * d * a * pi_t / delta))
            for parts in (2.0, 3.0)
        }
        assert L * r * d / tau[3.0] == pytest.approx(1.0 / t**2)
        assert L * r * d / tau[2.0] > (1.0 + 1e-3) / t**2


def test_equation_34_is_equation_19_and_its_counterpart_is_equation_16() -> None:
    r, d, a, b, delta = 1.5, 2, 5.0, 3.0, 0.2
    options: dict[str, Any] = {
        "dimension": d,
        "side": r,
        "a": a,
        "b": b,
        "delta": delta,
    }
    for t in (1, 4, 30):
        pi_t = math.pi**2 * t**2 / 6.0
        for schedule, parts in (
            (TimeVaryingGPUCB(**options), 3.0),
            (ResettingGPUCB(**options), 4.0),
        ):
            grid = r * d * b * t**2 * math.sqrt(math.log(parts * d * a * pi_t / delta))
            beta = 2.0 * math.log(parts * pi_t / delta) + 2.0 * d * math.log(grid)
            assert schedule.width(t, float) ** 2 == pytest.approx(beta)


class Chain(NamedTuple):
    """A function on a grid, its posterior, and the arm with the largest upper bound."""

    f: Floats
    mean: Floats
    std: Floats
    best: int
    near: int  # [x*]: the point of a coarser grid that is nearest to the best arm
    chosen: int
    gap: float  # |f(x*) − f([x*])|


def upper_bound_chain(width: float, mean: Floats, std: Floats, f: Floats) -> Chain:
    coarse = np.arange(0, len(f), 5)
    best = int(f.argmax())
    near = int(coarse[np.abs(coarse - best).argmin()])
    chosen = int((mean + width * std).argmax())
    return Chain(f, mean, std, best, near, chosen, abs(float(f[best] - f[near])))


def posterior_and_truth(
    seed: int,
) -> tuple[Floats, Floats, Floats, Floats, Floats, float]:
    """f_t on 60 points, and its posterior with and without forgetting."""
    rng = np.random.default_rng(seed)
    epsilon, noise, T = 0.05, 0.1, 8
    kernel = SquaredExponential(lengthscale=0.2)
    x = np.linspace(0.0, 1.0, 60)[:, None]
    K = kernel(x)
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    f = root @ rng.standard_normal(60)
    chosen = rng.integers(0, 60, T)
    y = np.empty(T)
    for t, arm in enumerate(chosen):
        y[t] = f[arm] + math.sqrt(noise) * rng.standard_normal()
        f = math.sqrt(1.0 - epsilon) * f + math.sqrt(epsilon) * (
            root @ rng.standard_normal(60)
        )
    moments = []
    for drift in (epsilon, 0.0):
        k = K[chosen] * (np.sqrt(1.0 - drift) ** np.arange(T, 0, -1))[:, None]
        solved = np.linalg.solve(
            K[np.ix_(chosen, chosen)] * decay(T, drift) + noise * np.eye(T), k
        )
        moments.append((solved.T @ y, np.sqrt(1.0 - np.einsum("ij,ij->j", k, solved))))
    (true_mean, true_std), (stale_mean, stale_std) = moments
    return f, true_mean, true_std, stale_mean, stale_std, epsilon


@pytest.mark.parametrize("seed", range(20))
def test_equations_35_to_39(seed: int) -> None:
    """With a width that makes eqs. 28 and 29 true, and the gap to the nearest point for 1/t²."""
    f, mean, std, _, _, _ = posterior_and_truth(seed)
    width = float((np.abs(f - mean) / std).max())
    chain = upper_bound_chain(width, mean, std, f)
    upper = mean + width * std
    regret = f[chain.best] - f[chain.chosen]
    assert (
        abs(f[chain.best] - mean[chain.near])
        <= width * std[chain.near] + chain.gap + ROUNDING
    )
    steps = [
        regret,
        upper[chain.near] + chain.gap - f[chain.chosen],
        upper[chain.chosen] + chain.gap - f[chain.chosen],
        2.0 * width * std[chain.chosen] + chain.gap,
    ]
    assert (np.diff(steps) >= -ROUNDING).all()


@pytest.mark.parametrize("seed", range(20))
def test_equations_68_to_72(seed: int) -> None:
    """The same for R-GP-UCB, which maximises bounds of the posterior that does not forget."""
    f, mean, std, stale_mean, stale_std, _ = posterior_and_truth(seed)
    width = float((np.abs(f - mean) / std).max())
    chain = upper_bound_chain(width, stale_mean, stale_std, f)
    off_mean = float(np.abs(mean - stale_mean).max())  # eq. 66
    off_std = float(np.abs(std - stale_std).max())  # eq. 67
    near, chosen = chain.near, chain.chosen
    off = 2.0 * off_mean + 2.0 * width * off_std
    steps = [
        f[chain.best] - f[chosen],
        f[near] - f[chosen] + chain.gap,
        mean[near] + width * std[near] - mean[chosen] + width * std[chosen] + chain.gap,
        stale_mean[near]
        + width * stale_std[near]
        - stale_mean[chosen]
        + width * stale_std[chosen]
        + off
        + chain.gap,
        2.0 * width * stale_std[chosen] + off + chain.gap,
    ]
    assert (np.diff(steps) >= -ROUNDING).all()


@pytest.mark.parametrize("seed", CASES)
def test_equations_40_to_45(seed: int) -> None:
    """Σ2√β_t σ̃ + Σ1/t² up to √(C₁ T β_T Ĩ) + 2, for widths that grow."""
    case = make_case(seed)
    n, noise = len(case.K), case.noise
    variances = np.empty(n)
    for t in range(n):
        past = case.drifted[:t, t]
        variances[t] = 1.0 - past @ inverse(case.drifted[:t, :t], noise) @ past
    rounds = np.arange(1.0, n + 1.0)
    beta = 2.0 + np.log(rounds)
    gained = information(case.drifted, noise)
    np.testing.assert_allclose(
        0.5 * np.log1p(variances / noise).sum(), gained, rtol=1e-7
    )  # eq. 26
    C2 = (1.0 / noise) / math.log1p(1.0 / noise)
    squares = [
        4.0 * beta @ variances,
        4.0 * beta[-1] * noise * (variances / noise).sum(),  # eq. 43
        4.0 * beta[-1] * noise * C2 * np.log1p(variances / noise).sum(),  # eq. 44
        8.0 / math.log1p(1.0 / noise) * beta[-1] * gained,  # eq. 45
    ]
    assert (np.diff(squares) >= -ROUNDING * squares[-1]).all()
    totals = [
        (2.0 * np.sqrt(beta * variances) + 1.0 / rounds**2).sum(),  # eq. 40
        math.sqrt(n * squares[0]) + 2.0,  # eq. 41
        math.sqrt(n * squares[-1]) + 2.0,  # eq. 42
    ]
    assert (np.diff(totals) >= -ROUNDING * totals[-1]).all()


# --- appendix C.2 -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", CASES)
def test_equation_47_blocks_are_worth_more_than_the_whole(seed: int) -> None:
    case = make_case(seed)
    n = len(case.K)
    total = information(case.drifted, case.noise)
    for size in range(1, n + 1):
        starts = range(0, n, size)
        blocks = [
            case.drifted[start : start + size, start : start + size] for start in starts
        ]
        assert (
            total <= sum(information(block, case.noise) for block in blocks) + ROUNDING
        )


def test_equation_48_by_all_sequences() -> None:
    K = SquaredExponential(lengthscale=0.3)(np.array([[0.0], [0.2], [0.9]]))
    noise, epsilon = 0.1, 0.1

    def most(T: int) -> float:
        return max(
            information(K[np.ix_(chosen, chosen)] * decay(T, epsilon), noise)
            for chosen in itertools.product(range(3), repeat=T)
        )

    for N in (1, 2, 3):
        assert most(6) <= 6 / N * most(N) + ROUNDING


@pytest.mark.parametrize("seed", CASES)
def test_equations_49_to_55(seed: int) -> None:
    case = make_case(seed)
    n, epsilon = len(case.K), case.epsilon
    A = case.drifted - case.K
    np.testing.assert_allclose(
        A, case.K * (decay(n, epsilon) - 1.0), atol=1e-15
    )  # eqs. 50, 51
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    assert (1.0 - decay(n, epsilon) <= epsilon * lags + 1e-15).all()  # footnote 4
    squares = [
        float(np.sum(A**2)),
        float(np.sum(lags**2.0)) * epsilon**2,  # eq. 52
        n**2 * (n**2 - 1) / 6.0 * epsilon**2,  # eq. 53, which is equal to it
        n**4 * epsilon**2,  # eq. 54
    ]
    assert (np.diff(squares) >= -ROUNDING).all()
    assert squares[1] == pytest.approx(squares[2], abs=1e-15)
    change = np.linalg.eigvalsh(case.drifted) - np.linalg.eigvalsh(case.K)
    for order in (None, 2):  # eq. 55 in the Frobenius norm and in the spectral one
        size = np.linalg.norm(change) if order is None else np.abs(change).max()
        assert size <= np.linalg.norm(A, order) + ROUNDING


def test_equation_56_leaves_out_a_half_and_the_noise() -> None:
    """One arm twice: γ̃_2 is ½ Σ ln(1 + λ_i/σ²), not Σ ln(1 + λ_i)."""
    for noise in (0.01, 0.2, 3.0):
        eigenvalues = np.linalg.eigvalsh(decay(2, 0.1))
        exact = information(decay(2, 0.1), noise)
        assert exact == pytest.approx(0.5 * np.log1p(eigenvalues / noise).sum())
        assert abs(exact - np.log1p(eigenvalues).sum()) > 0.05


def test_equation_58_does_not_hold_where_eigenvalues_fall() -> None:
    """One arm twice: Δ is (φ − 1, 1 − φ), and ln(1 + a + b) > ln(1 + a) + ln(1 + b) for b < 0."""
    keep = math.sqrt(0.5)
    before, after = np.array([2.0, 0.0]), np.array([1.0 + keep, 1.0 - keep])
    change = after - before
    assert np.log1p(after).sum() > np.log1p(before).sum() + np.log1p(change).sum() + 0.1
    assert (
        np.log1p(after).sum() <= np.log1p(before).sum() + np.log1p(np.abs(change)).sum()
    )


@pytest.mark.parametrize("seed", CASES)
def test_equations_57_to_60_with_the_half_the_noise_and_sizes_of_changes(
    seed: int,
) -> None:
    case = make_case(seed)
    n, noise, epsilon = len(case.K), case.noise, case.epsilon
    change = np.linalg.eigvalsh(case.drifted) - np.linalg.eigvalsh(case.K)
    steps = [
        information(case.drifted, noise),
        information(case.K, noise)
        + 0.5 * np.log1p(np.abs(change) / noise).sum(),  # eq. 58
        information(case.K, noise)
        + 0.5 * n * math.log1p(n**1.5 * epsilon / noise),  # eq. 61's worst
        information(case.K, noise)
        + 0.5 * n * math.log1p(n**2 * epsilon / noise),  # eq. 59
        information(case.K, noise) + 0.5 * n**3 * epsilon / noise,  # eq. 60
    ]
    assert (np.diff(steps) >= -1e-7).all()


def test_equation_61_has_another_maximum() -> None:
    """All Δ_i are N^{3/2}ε there: N²ε for each would have squares that add up to N⁵ε²."""
    n, epsilon = 5, 0.1
    budget = n**4 * epsilon**2
    assert n * (n**2 * epsilon) ** 2 > budget
    best = n * math.log1p(n**1.5 * epsilon)
    rng = np.random.default_rng(0)
    for _ in range(300):
        other = np.abs(rng.standard_normal(n))
        other *= math.sqrt(budget) / np.linalg.norm(other)
        assert np.log1p(other).sum() <= best
    assert best <= n * math.log1p(
        n**2 * epsilon
    )  # so that eq. 59 follows from what is true


# --- appendix D ---------------------------------------------------------------------------


def test_equation_65_for_noise_of_variance_up_to_two() -> None:
    """P(|y| > L̃) ≤ δ/(4π_t) from eq. 9 and a normal tail, by splitting L̃ as b₀ : √2 σ."""
    for a0, b0, noise in itertools.product((1.0, 20.0), (0.5, 3.0), (0.01, 1.0, 2.0)):
        for bound in (3.0, 50.0):  # 4(1 + a₀)π_t/δ is (1 + a₀) times this
            level = (2.0 + b0) * math.sqrt(math.log((1.0 + a0) * bound))
            share = level / (b0 + math.sqrt(2.0 * noise))
            of_f = a0 * math.exp(-(share**2))  # P(|f| > share · b₀)
            of_noise = math.exp(-(share**2))  # P(|z| > share · √2 σ) at most
            assert of_f + of_noise <= 1.0 / bound * (1.0 + ROUNDING)


@pytest.mark.parametrize("seed", CASES)
def test_equations_73_to_82(seed: int) -> None:
    case = make_case(seed)
    n, noise, epsilon = len(case.K), case.noise, case.epsilon
    stale, true = inverse(case.K, noise), inverse(case.drifted, noise)
    for k, faded in zip(case.k.T, case.faded.T, strict=True):
        off = abs(faded @ true @ faded - k @ stale @ k)  # eq. 73
        moved = abs(faded @ true @ faded - faded @ stale @ faded)
        aged = abs(faded @ stale @ faded - k @ stale @ k)
        assert off <= moved + aged + ROUNDING  # eqs. 74, 75
        change = faded - k
        assert (
            aged
            <= 2.0 * abs(k @ stale @ change) + abs(change @ stale @ change) + ROUNDING
        )  # eq. 76
        assert (
            aged <= 2.0 * n**2 * epsilon / noise + n**3 * epsilon**2 / noise + ROUNDING
        )  # eq. 77
        assert moved <= n**3 * epsilon / noise**2 + ROUNDING  # eq. 80
        allowed = (3.0 / noise + 1.0 / noise**2) * n**3 * epsilon
        assert off <= allowed + ROUNDING  # eq. 81
        stds = [math.sqrt(1.0 - faded @ true @ faded), math.sqrt(1.0 - k @ stale @ k)]
        assert abs(stds[0] - stds[1]) <= math.sqrt(allowed) + ROUNDING  # eq. 82
        assert (
            abs(stds[0] - stds[1])
            <= mismatch_bounds(n, epsilon, noise, 1.0).std + ROUNDING
        )


@pytest.mark.parametrize("seed", CASES)
def test_equation_78_for_positive_matrices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    roots = rng.standard_normal((2, n, n))
    U, V = (root @ root.T for root in roots)
    eye = np.eye(n)
    change = np.linalg.inv(U + eye) - np.linalg.inv(U + V + eye)
    limit = eye - np.linalg.inv(V + eye)
    for order in ("fro", 2, "nuc"):
        assert np.linalg.norm(change, order) <= np.linalg.norm(limit, order) + ROUNDING


@pytest.mark.parametrize("seed", CASES)
def test_after_equation_79(seed: int) -> None:
    """K̃ − K has trace 0, so that eq. 78 does not cover it; σ⁻⁴‖K̃ − K‖ bounds its left side anyway."""
    case = make_case(seed)
    n, noise = len(case.K), case.noise
    change = case.drifted - case.K
    assert np.trace(change) == pytest.approx(0.0, abs=1e-12)
    difference = np.linalg.norm(
        inverse(case.K, noise) - inverse(case.drifted, noise), 2
    )
    assert difference <= np.linalg.norm(change, 2) / noise**2 + 1e-7
    shifted = np.linalg.eigvalsh(change) + noise
    if np.abs(shifted).min() > 1e-6:
        right = float(np.abs(1.0 / noise - 1.0 / shifted).max())
        assert difference <= right * (1.0 + 1e-6) + 1e-7  # eq. 79
        if n == 2 and shifted.min() > 0.0:
            assert (
                right >= np.linalg.norm(change, 2) / noise**2 - 1e-7
            )  # not at most, as stated


@pytest.mark.parametrize("seed", CASES)
def test_equation_79_by_the_positive_and_the_negative_part(seed: int) -> None:
    """For any U ⪰ 0 and U + V ⪰ 0, as K and K̃ are: eq. 78 with V₊ from U, and with V₋ from U + V."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    U, W = (
        10.0 ** rng.uniform(-2.0, 1.0) * root @ root.T
        for root in rng.standard_normal((2, n, n))
    )
    values, vectors = np.linalg.eigh(W - U)
    risen = vectors * np.maximum(values, 0.0) @ vectors.T  # V₊
    fallen = vectors * np.maximum(-values, 0.0) @ vectors.T  # V₋
    eye = np.eye(n)
    before, after = np.linalg.inv(U + eye), np.linalg.inv(W + eye)
    gains = before - np.linalg.inv(U + risen + eye) - (before - after)
    losses = after - np.linalg.inv(W + fallen + eye) - (after - before)
    assert np.linalg.eigvalsh(gains).min() >= -ROUNDING
    assert np.linalg.eigvalsh(losses).min() >= -ROUNDING
    a, b = max(0.0, -float(values[0])), max(0.0, float(values[-1]))
    between = max(a / (1.0 + a), b / (1.0 + b))
    assert np.linalg.norm(before - after, 2) <= between + ROUNDING
    right = float(np.abs(values / (1.0 + values)).max())  # of eq. 79
    assert between <= right + ROUNDING


def mean_terms(case: Case, k: Floats, faded: Floats, y: Floats) -> tuple[float, float]:
    stale, true = inverse(case.K, case.noise), inverse(case.drifted, case.noise)
    moved = abs(faded @ true @ y - faded @ stale @ y)
    aged = abs(faded @ stale @ y - k @ stale @ y)
    return float(moved), float(aged)


@pytest.mark.parametrize("seed", CASES)
def test_equations_83_to_87_without_squares_and_with_bounds_exchanged(
    seed: int,
) -> None:
    case = make_case(seed)
    n, noise, epsilon = len(case.K), case.noise, case.epsilon
    largest = float(np.abs(case.y).max())
    for k, faded in zip(case.k.T, case.faded.T, strict=True):
        moved, aged = mean_terms(case, k, faded, case.y)
        means = (
            faded @ inverse(case.drifted, noise) @ case.y,
            k @ inverse(case.K, noise) @ case.y,
        )
        off = abs(means[0] - means[1])
        assert off <= moved + aged + ROUNDING
        assert moved <= n**3 * epsilon * largest / noise**2 + ROUNDING
        assert aged <= n**2 * epsilon * largest / noise + ROUNDING
        assert (
            off <= (1.0 / noise + 1.0 / noise**2) * n**3 * epsilon * largest + ROUNDING
        )  # eq. 87
        assert off <= mismatch_bounds(n, epsilon, noise, largest).mean + ROUNDING


def test_equations_83_85_and_86_do_not_hold_as_printed() -> None:
    one = np.ones((1, 1))
    keep = math.sqrt(0.1)
    case = Case(one, one, one, keep * one, np.array([1.0]), 0.9, 3.0)
    moved, aged = mean_terms(case, case.k[:, 0], case.faded[:, 0], case.y)
    assert aged > 1.5 * case.epsilon / case.noise**2  # eq. 86: σ⁻⁴N³ε max|y|, N = 1
    large = 10.0 * case.y
    squares = [(keep * 10.0 / 4.0) ** 2, (10.0 / 4.0) ** 2]
    terms = sum(mean_terms(case, case.k[:, 0], case.faded[:, 0], large))
    assert terms == pytest.approx(10.0 * (moved + aged))
    assert (
        abs(squares[0] - squares[1]) > 1.5 * terms
    )  # eq. 83: squares only on the left
    # eq. 85: σ⁻²N²ε max|y| for two arms that are near each other, little noise and a far query
    epsilon, noise = 1e-4, 2e-5
    kernel = SquaredExponential(lengthscale=1.5)
    x = np.array([[0.0], [0.0063]])
    K, k = kernel(x), kernel(x, np.array([[0.9]]))[:, 0]
    faded = k * np.sqrt(1.0 - epsilon) ** np.array([2, 1])
    close = Case(
        K,
        K * decay(2, epsilon),
        k[:, None],
        faded[:, None],
        np.zeros(2),
        epsilon,
        noise,
    )
    y = np.array([1.0, -1.0])
    moved, _ = mean_terms(close, k, faded, y)
    assert moved > 1.2 * 4.0 * epsilon / noise
    assert moved <= 8.0 * epsilon / noise**2


# --- appendix E ---------------------------------------------------------------------------


@pytest.mark.parametrize("c", [0.0, 6.0 / 11.0])
def test_equations_88_and_89_are_of_the_stated_order(c: float) -> None:
    """(T/Ñ + 1)(Ñ^c + Ñ³ε) at Ñ = 1, …, T nearest to ε^{−1/(3−c)}, over T ε^{(1−c)/(3−c)}, or T^c."""
    for T, epsilon in itertools.product(
        (10, 1_000, 10**6), (1e-12, 1e-6, 1e-3, 0.1, 1.0)
    ):
        N = min(T, max(1, round(epsilon ** (-1.0 / (3.0 - c)))))
        value = (T / N + 1.0) * (N**c + N**3 * epsilon)
        drifts = epsilon >= T ** -(3.0 - c)
        order = T * epsilon ** ((1.0 - c) / (3.0 - c)) if drifts else float(T) ** c
        # Rounding changes Ñ by at most a factor of 3/2, and there are four terms.
        assert order / 2.0 <= value <= 4.0 * 1.5**3 * order


# --- appendix F ---------------------------------------------------------------------------


class Waves:
    """A sum of plane waves on [0, 1]^d: every derivative is exact."""

    def __init__(self, rng: np.random.Generator, d: int, count: int = 12) -> None:
        self.frequency = 3.0 * rng.standard_normal((count, d))
        self.phase = rng.uniform(0.0, 2.0 * math.pi, count)
        self.height = rng.standard_normal(count) / math.sqrt(count)

    def value(self, x: Floats) -> Floats:
        return np.asarray(np.cos(x @ self.frequency.T + self.phase) @ self.height)

    def slope(self, x: Floats) -> Floats:
        waves = -np.sin(x @ self.frequency.T + self.phase) * self.height
        return np.asarray(waves @ self.frequency)

    def largest_bend(self) -> float:
        """No second derivative is larger anywhere."""
        pairs = self.frequency[:, :, None] * self.frequency[:, None, :]
        return float(
            np.max(np.sum(np.abs(pairs) * np.abs(self.height)[:, None, None], axis=0))
        )


def best_inside(f: Waves, d: int) -> Floats | None:
    """A maximiser of f on [0, 1]^d, if it is inside and found to the last digits."""
    from scipy.optimize import minimize

    axis = np.linspace(0.0, 1.0, 41)
    grid = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    start = grid[int(f.value(grid).argmax())]
    if (np.minimum(start, 1.0 - start) < 0.1).any():
        return None
    optimum = minimize(
        lambda x: -f.value(x), start, jac=lambda x: -f.slope(x), tol=1e-13
    )
    return np.asarray(optimum.x)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.6, 1.0])
def test_equations_90_to_100(epsilon: float) -> None:
    d, checked = 2, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        before, innovation = Waves(rng, d), Waves(rng, d)
        x = best_inside(before, d)
        if x is None:
            continue
        L = max(before.largest_bend(), innovation.largest_bend())  # eqs. 90, 91
        slope = innovation.slope(x)
        size = float(np.linalg.norm(slope))
        keep, new = math.sqrt(1.0 - epsilon), math.sqrt(epsilon)
        delta = new * size / (2.0 * L * d)
        eta = new * float(np.abs(slope).max()) / (2.0 * L * math.sqrt(d))
        assert delta <= eta * (1.0 + ROUNDING)  # eq. 92
        moved = x + delta * slope / size
        if (np.minimum(x, 1.0 - x) < eta).any():  # eq. 93
            continue
        checked += 1
        assert ((moved >= 0.0) & (moved <= 1.0)).all()
        drops = keep * (before.value(moved) - before.value(x))
        gain = float(
            drops + new * (innovation.value(moved) - innovation.value(x))
        )  # eqs. 95, 96
        bends = 0.5 * L * d * delta**2
        steps = [
            new * delta * size - 2.0 * bends,  # eq. 99
            new * delta * size - bends * (keep + new),  # eq. 98 with √(1 − ε)
            gain,
        ]
        assert (np.diff(steps) >= -1e-9).all()
        printed = new * delta * size - bends * (math.sqrt(1.0 + epsilon) + new)
        assert printed <= gain + 1e-9  # eq. 98 as printed gives less, and so holds, too
        assert steps[0] == pytest.approx(epsilon * size**2 / (4.0 * L * d))  # eq. 100
    assert checked >= 10


def test_the_step_from_equation_98_to_99_needs_the_minus() -> None:
    drifts = np.linspace(0.0, 1.0, 1001)
    assert (np.sqrt(1.0 - drifts) + np.sqrt(drifts)).max() <= math.sqrt(2.0) + ROUNDING
    printed = np.sqrt(1.0 + drifts) + np.sqrt(drifts)
    assert (
        printed[drifts > 9.0 / 16.0].min() > 2.0
    )  # as printed, it is above 2 from there on
