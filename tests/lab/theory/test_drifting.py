"""Information and regret of rewards that drift, against brute force and the paper's text."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.kernels import Columns, Linear, Matern, SquaredExponential, Temporal
from superarm.lab.theory import (
    ArmSetGrowth,
    DriftingGrowth,
    SmoothDomain,
    drift_excess,
    drifting_information_gain,
    interior_probability,
    mismatch_bounds,
    rate_drift,
    realised_information,
    regret_bound_r_gp_ucb,
    regret_bound_tv_gp_ucb,
    regret_lower_bound,
)
from superarm.posteriors import DriftingGP
from superarm.rules.information import arriving_information_gain

KERNEL = SquaredExponential(lengthscale=0.3)
NOISE = 0.05
ROUNDS = np.array([1, 2, 5, 30, 400])


def decay(n: int, epsilon: float) -> Floats:
    steps = np.arange(n)
    matrix: Floats = np.sqrt(1.0 - epsilon) ** np.abs(np.subtract.outer(steps, steps))
    return matrix


def information(K: Floats, noise: float) -> float:
    return 0.5 * float(np.linalg.slogdet(np.eye(len(K)) + K / noise)[1])


def most_information(
    arms: Floats, rounds: int, epsilon: float, noise: float = NOISE
) -> float:
    """γ̃_T by trying all sequences; γ_T for ε = 0."""
    K, D = KERNEL(arms), decay(rounds, epsilon)
    return max(
        information(K[np.ix_(chosen, chosen)] * D, noise)
        for chosen in itertools.product(range(len(arms)), repeat=rounds)
    )


def papers_excess(n: int, epsilon: float, noise: float = NOISE) -> float:
    """What eqs 49 to 61 prove: (N/2) ln(1 + F/(√N σ²)), F the Frobenius norm of D − 11ᵀ."""
    norm = float(np.linalg.norm(decay(n, epsilon) - 1.0))
    return 0.5 * n * math.log1p(norm / math.sqrt(n) / noise)


def one_arm(noise: float) -> Any:
    """γ_N of a single arm."""
    return lambda count: 0.5 * math.log1p(count / noise)


# --- γ̃ ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.04, 0.6])
def test_greedy_gain_chooses_among_arrivals(epsilon: float) -> None:
    arms = np.random.default_rng(0).uniform(size=(7, 2))
    gains = drifting_information_gain(KERNEL, arms, 12, NOISE, epsilon)
    spacetime = Columns(kernel=KERNEL, columns=(0, 1)) * Temporal(
        epsilon=epsilon, column=2
    )
    arrivals = [np.column_stack([arms, np.full(7, float(t))]) for t in range(12)]
    slow = arriving_information_gain(spacetime, arrivals, 1, NOISE)
    np.testing.assert_allclose(gains, slow, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_gamma_by_all_sequences_lies_between_greedy_and_every_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms, T = rng.uniform(size=(3, 1)), 6
    static = [most_information(arms, n, 0.0) for n in range(T + 1)]
    for epsilon in (0.0, 0.01, 0.2, 0.9, 1.0):
        greedy = drifting_information_gain(KERNEL, arms, T, NOISE, epsilon)
        shared: dict[str, Any] = {
            "epsilon": epsilon,
            "noise_variance": NOISE,
            "horizon": T,
        }
        for t in range(1, T + 1):
            exact = most_information(arms, t, epsilon)
            assert greedy[t] <= exact * (1.0 + 1e-9)
            assert exact <= 2.0 * greedy[t] * (1.0 + 1e-9)
            assert exact <= DriftingGrowth(gamma=lambda n: static[n], **shared)(t) * (
                1.0 + 1e-9
            )
            for excess in (
                float(drift_excess(t, epsilon, NOISE)),
                papers_excess(t, epsilon),
            ):
                assert exact <= (static[t] + excess) * (1.0 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.003, 0.3, 1.0])
def test_excess_matches_dense_matrices(epsilon: float) -> None:
    sizes = np.array([1, 2, 3, 8, 25])
    for n, split in zip(sizes, drift_excess(sizes, epsilon, NOISE), strict=True):
        D = decay(n, epsilon)
        # the largest c with D − c11ᵀ ⪰ 0, by D = 11ᵀ where nothing drifts
        c = 1.0 if epsilon == 0.0 else 1.0 / np.linalg.solve(D, np.ones(n)).sum()
        assert np.linalg.eigvalsh(D - c)[0] >= -1e-12 * n
        assert split == pytest.approx(
            0.5 * n * math.log1p((1.0 - c) / NOISE), rel=1e-9, abs=1e-12
        )
        norm, paper = np.linalg.norm(D - 1.0), papers_excess(n, epsilon)
        assert norm <= n**2 * epsilon / math.sqrt(6.0) + 1e-12  # eq. 53
        assert split <= paper + 1e-12
        # what eqs 54 to 60 come to with ½ and σ⁻²
        assert paper <= 0.5 * n**3 * epsilon / NOISE + 1e-9
    # Powers may differ by a rounding between libraries, and the product adds another.
    np.testing.assert_allclose(
        drift_excess(sizes, epsilon, NOISE, "printed"), sizes**3.0 * epsilon, rtol=1e-15
    )


def test_all_equal_is_the_worst_of_eq_61() -> None:
    """Σ ln(1 + Δ_i/σ²) with ΣΔ² fixed: what is taken for the bound is the largest."""
    rng, n, F = np.random.default_rng(0), 6, 0.7
    equal = n * math.log1p(F / math.sqrt(n) / NOISE)
    for _ in range(200):
        other = np.abs(rng.standard_normal(n))
        other *= F / np.linalg.norm(other)
        assert np.log1p(other / NOISE).sum() <= equal


def test_equations_46_59_and_60_are_not_bounds_as_printed() -> None:
    """One arm, where every maximum is exact."""
    epsilon, noise = 1e-5, 0.01
    excess = information(decay(2, epsilon), noise) - one_arm(noise)(2)
    assert excess == pytest.approx(
        25.0 * epsilon, rel=0.01
    )  # s²/(2(1 + 2s))·ε for s = 100
    assert excess > drift_excess(2.0, epsilon, noise, "printed")  # 8ε
    assert excess > 2.0 * math.log1p(4.0 * epsilon)
    assert excess <= drift_excess(2.0, epsilon, noise)
    epsilon, noise, T = 1e-4, 1e-6, 100
    exact = information(decay(T, epsilon), noise)
    shared: dict[str, Any] = {
        "gamma": one_arm(noise),
        "epsilon": epsilon,
        "noise_variance": noise,
    }
    assert exact > 4.0 * DriftingGrowth(horizon=T, form="printed", **shared)(T)
    assert exact <= DriftingGrowth(horizon=T, **shared)(T)


@pytest.mark.parametrize("form", ["split", "printed"])
def test_the_best_block_by_trying_all(form: Any) -> None:
    gamma, epsilon, T = one_arm(NOISE), 0.02, 40
    growth = DriftingGrowth(
        gamma=gamma, epsilon=epsilon, noise_variance=NOISE, horizon=T, form=form
    )
    assert growth(0) == 0.0
    blocks = set()
    for t in range(1, T + 1):
        totals = []
        for N in range(1, t + 1):
            per_block = gamma(N) + float(drift_excess(float(N), epsilon, NOISE, form))
            if form == "printed":
                totals.append((t / N + 1) * per_block)
                continue
            remainder = t % N
            last_block = (
                gamma(remainder)
                + float(drift_excess(float(remainder), epsilon, NOISE, form))
                if remainder
                else 0.0
            )
            totals.append((t // N) * per_block + last_block)
        assert growth(t) == pytest.approx(min(totals), rel=1e-12)
        blocks.add(int(np.argmin(totals)))
    assert len(blocks) > 1


def test_growth_grows_with_drift_and_time_and_is_the_static_one_without() -> None:
    arms = np.linspace(0.0, 1.0, 9)[:, None]
    gamma = ArmSetGrowth(kernel=KERNEL, features=arms, noise_variance=NOISE, horizon=50)
    values = [
        [
            DriftingGrowth(
                gamma=gamma, epsilon=epsilon, noise_variance=NOISE, horizon=50
            )(t)
            for t in (1, 2, 10, 50)
        ]
        for epsilon in (0.0, 0.001, 0.05, 0.5)
    ]
    assert (np.diff(values, axis=0) >= 0.0).all()
    assert (np.diff(values, axis=1) > 0.0).all()
    np.testing.assert_allclose(values[0], [gamma(t) for t in (1, 2, 10, 50)])


def test_equation_26_the_chain_rule() -> None:
    """½ Σ ln(1 + σ̃²_{t−1}(x_t)/σ²) is ½ ln det(I + K̃/σ²)."""
    rng, arms, epsilon = (
        np.random.default_rng(3),
        np.linspace(0.0, 1.0, 8)[:, None],
        0.1,
    )
    gp = DriftingGP(KERNEL, arms, NOISE, drift=Temporal(epsilon=epsilon))
    chosen, variances = rng.integers(0, 8, 15), []
    for t, row in enumerate(chosen, start=1):
        variances.append(float(gp.predict([[row, float(t)]]).std[0]) ** 2)
        gp.observe([[row, float(t)]], rng.standard_normal(1))
    K = KERNEL(arms[chosen]) * decay(15, epsilon)
    realised = float(realised_information(variances, NOISE)[-1])
    assert realised == pytest.approx(information(K, NOISE), rel=1e-9)
    assert (
        information(K, NOISE)
        <= 2.0 * drifting_information_gain(KERNEL, arms, 15, NOISE, epsilon)[-1]
    )


# --- constants ----------------------------------------------------------------------------


def test_constants_by_hand() -> None:
    v, length, r, d = 0.7, 0.4, 1.5, 2
    domain = SmoothDomain.of_kernel(
        SquaredExponential(lengthscale=length, variance=v), d, r
    )
    s0, s1 = math.sqrt(v), math.sqrt(v) / length
    m0 = d * r * s1 / math.sqrt(2 * math.pi)
    m1 = r * math.sqrt(v) / length**2 * (math.sqrt(3) + 1) / math.sqrt(2 * math.pi)
    assert domain.a0 == pytest.approx(2 * math.exp(m0 / s0))
    assert domain.b0 == pytest.approx(math.sqrt(s0 * m0 + 2 * s0**2))
    assert domain.a1 == pytest.approx(2 * math.exp(m1 / s1))
    assert domain.b1 == pytest.approx(math.sqrt(s1 * m1 + 2 * s1**2))
    rough = SmoothDomain.of_kernel(Matern(nu=3.0, lengthscale=length, variance=v), d, r)
    assert rough.a1 > domain.a1  # heavier tails of the spectrum: steeper slopes
    smooth = SmoothDomain.of_kernel(
        Matern(nu=math.inf, lengthscale=length, variance=v), d, r
    )
    assert smooth == domain


def test_fourth_moments_are_those_of_the_kernel() -> None:
    """E(f′(x) − f′(y))² ≤ c²(x − y)², with equality as x → y: by differences of the kernel."""
    kernel, h = Matern(nu=3.5, lengthscale=0.5), 2e-2
    k = kernel(np.array([[0.0]]), h * np.arange(-4, 5)[:, None])[0]
    fourth = (k[2] - 4 * k[3] + 6 * k[4] - 4 * k[5] + k[6]) / h**4
    domain = SmoothDomain.of_kernel(kernel, 1)
    slope = math.sqrt(3.5 / 2.5) / 0.5
    m = slope * math.log(domain.a1 / 2.0)
    # the remainder is of order h for ν = 3.5: its fifth "moment" is infinite
    assert m * math.sqrt(2 * math.pi) == pytest.approx(math.sqrt(fourth), rel=0.05)


@pytest.mark.parametrize(
    "kernel", [SquaredExponential(lengthscale=0.3), Matern(nu=2.5, lengthscale=0.3)]
)
def test_draws_stay_within_equations_9_and_10(kernel: Any) -> None:
    """Frequencies of large values, seeded, below the stated tails; on a grid, whose sup is smaller."""
    x = np.linspace(0.0, 1.0, 201)[:, None]
    values, vectors = np.linalg.eigh(kernel(x))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(0).standard_normal((4000, 201)) @ root.T
    domain = SmoothDomain.of_kernel(kernel, 1)
    for size, a, b in (
        (np.abs(draws).max(axis=1), domain.a0, domain.b0),
        (np.abs(np.diff(draws, axis=1)).max(axis=1) * 200.0, domain.a1, domain.b1),
    ):
        for level in np.quantile(size, [0.1, 0.5, 0.9, 0.99]):
            frequency = float((size > level).mean())
            spread = 4.0 * math.sqrt(frequency * (1.0 - frequency) / 4000)
            assert frequency - spread <= a * math.exp(-((level / b) ** 2))


def test_kernels_without_slopes_are_refused() -> None:
    for kernel in (Matern(nu=2.0), Linear()):
        with pytest.raises(InputError):
            SmoothDomain.of_kernel(kernel, 1)
    with pytest.raises(InputError, match="a0"):
        SmoothDomain(dimension=1, side=1.0, a0=0.0, b0=1.0, a1=1.0, b1=1.0)


# --- regret -------------------------------------------------------------------------------

BOX = SmoothDomain(dimension=2, side=1.5, a0=3.0, b0=1.2, a1=5.0, b1=4.0)
DELTA = 0.2


def gamma(count: float) -> float:
    return 2.0 * math.log1p(count)


def test_theorem_4_3_as_printed() -> None:
    a, b, r, d = BOX.a1, BOX.b1, BOX.side, 2
    bounds = regret_bound_tv_gp_ucb(
        ROUNDS, gamma, arms=BOX, noise_variance=NOISE, delta=DELTA
    )
    finite = regret_bound_tv_gp_ucb(
        ROUNDS, gamma, arms=30, noise_variance=NOISE, delta=DELTA
    )
    for T, value, of_arms in zip(ROUNDS.tolist(), bounds, finite, strict=True):
        beta = 2 * math.log(math.pi**2 * T**2 / (2 * DELTA)) + 2 * d * math.log(
            r
            * d
            * b
            * T**2
            * math.sqrt(math.log(d * a * math.pi**2 * T**2 / (2 * DELTA)))
        )
        C1 = 8 / math.log(1 + 1 / NOISE)
        assert value == pytest.approx(math.sqrt(C1 * T * beta * gamma(T)) + 2)
        beta = 2 * math.log(30 * math.pi**2 * T**2 / (6 * DELTA))
        assert of_arms == pytest.approx(math.sqrt(C1 * T * beta * gamma(T)))


def test_equation_21_is_the_smallest_over_blocks() -> None:
    shared: dict[str, Any] = {"epsilon": 0.01, "noise_variance": NOISE}
    growth = DriftingGrowth(gamma=gamma, horizon=60, form="printed", **shared)
    bound = regret_bound_tv_gp_ucb(
        60, growth, arms=BOX, noise_variance=NOISE, delta=DELTA
    )
    by_block = [
        regret_bound_tv_gp_ucb(
            60,
            lambda T, N=N: (T / N + 1) * (gamma(N) + N**3 * 0.01),
            arms=BOX,
            noise_variance=NOISE,
            delta=DELTA,
        )
        for N in range(1, 61)
    ]
    assert bound == pytest.approx(min(by_block))


@pytest.mark.parametrize("printed", [True, False])
def test_theorem_4_2(printed: bool) -> None:
    a1, b1, a0, b0, r, d = BOX.a1, BOX.b1, BOX.a0, BOX.b0, BOX.side, 2
    N, epsilon, s = 7, 1e-4, 1 / NOISE
    shared: dict[str, Any] = {
        "block": N,
        "epsilon": epsilon,
        "noise_variance": NOISE,
        "delta": DELTA,
        "printed": printed,
    }
    bounds = regret_bound_r_gp_ucb(ROUNDS, gamma, arms=BOX, **shared)
    finite = regret_bound_r_gp_ucb(ROUNDS, gamma, arms=30, **shared)
    C1 = 8 / math.log(1 + s)
    for T, value, of_arms in zip(ROUNDS.tolist(), bounds, finite, strict=True):
        n = N if printed else min(N, T)

        def psi(beta: float, reward: float, n: int = n) -> float:
            return (
                math.sqrt(beta * (3 * s + s**2) * n**3 * epsilon)
                + (s + s**2) * n**3 * epsilon * reward
            )

        blocks = (T / N + 1) * gamma(N) if printed else T // N * gamma(N) + gamma(T % N)
        times = 1 if printed else 2
        beta = 2 * math.log(2 * math.pi**2 * T**2 / (3 * DELTA)) + 2 * d * math.log(
            r
            * d
            * b1
            * T**2
            * math.sqrt(math.log(2 * d * a1 * math.pi**2 * T**2 / (3 * DELTA)))
        )
        noise = 2 if printed else math.sqrt(2 * NOISE)
        reward = (noise + b0) * math.sqrt(
            math.log(2 * (1 + a0) * math.pi**2 * T**2 / (3 * DELTA))
        )
        expected = math.sqrt(C1 * T * beta * blocks) + 2 + times * T * psi(beta, reward)
        assert value == pytest.approx(expected)
        beta = 2 * math.log(30 * math.pi**2 * T**2 / (3 * DELTA))
        reward = math.sqrt((1 + NOISE) * beta)
        expected = math.sqrt(C1 * T * beta * blocks) + times * T * psi(beta, reward)
        assert of_arms == pytest.approx(expected)


def test_regret_bounds_grow() -> None:
    shared: dict[str, Any] = {"arms": 30, "noise_variance": NOISE}
    by_delta = [
        regret_bound_tv_gp_ucb(ROUNDS, gamma, delta=delta, **shared)
        for delta in (0.5, 0.1, 0.001)
    ]
    assert (np.diff(by_delta, axis=0) > 0.0).all()
    assert (np.diff(by_delta, axis=1) > 0.0).all()
    by_drift = [
        regret_bound_r_gp_ucb(
            ROUNDS, gamma, block=10, epsilon=epsilon, delta=0.1, **shared
        )
        for epsilon in (0.0, 0.01, 0.1)
    ]
    assert (np.diff(by_drift, axis=0) > 0.0).all()
    single_block = regret_bound_r_gp_ucb(
        ROUNDS, gamma, block=1000, epsilon=0.0, delta=0.1, **shared
    )
    static = regret_bound_tv_gp_ucb(
        ROUNDS, gamma, delta=0.05, **shared
    )  # two events share δ
    np.testing.assert_allclose(single_block, static)


def test_rewards_seldom_exceed_the_l_of_equation_65() -> None:
    """(b₀ + √2σ)√ln((1 + a₀)/p) is exceeded with probability p at most, here for N(0, 1) and 1 arm."""
    a0, b0 = 1.0, math.sqrt(2.0)  # P(|f| > L) ≤ e^{−L²/2} ≤ a₀e^{−(L/b₀)²}
    rng, sigma = np.random.default_rng(0), 0.5
    y = rng.standard_normal(200_000) + sigma * rng.standard_normal(200_000)
    for p in (0.5, 0.1, 0.01):
        limit = (b0 + math.sqrt(2.0) * sigma) * math.sqrt(math.log((1.0 + a0) / p))
        assert float((np.abs(y) > limit).mean()) <= p + 4.0 * math.sqrt(p / 200_000)


@pytest.mark.parametrize("seed", range(5))
def test_lemma_d_1_for_any_points_and_rewards(seed: int) -> None:
    """Noise large enough for a non-trivial bound; rewards are not drawn from any model."""
    rng = np.random.default_rng(seed)
    for epsilon, noise in ((1e-3, 4.0), (0.02, 1.0), (0.5, 0.3)):
        for n in (1, 3, 8):
            x, everywhere = rng.uniform(size=(n, 1)), np.linspace(0.0, 1.0, 60)[:, None]
            y = rng.uniform(-3.0, 3.0, n)
            weights = np.sqrt(1.0 - epsilon) ** np.arange(n, 0, -1)
            moments = []
            for D, d in ((np.ones((n, n)), np.ones(n)), (decay(n, epsilon), weights)):
                k = KERNEL(x, everywhere) * d[:, None]
                solved = np.linalg.solve(KERNEL(x) * D + noise * np.eye(n), k)
                moments.append(
                    (solved.T @ y, np.sqrt(1.0 - np.einsum("ij,ij->j", k, solved)))
                )
            allowed = mismatch_bounds(n, epsilon, noise, np.abs(y).max())
            s = 1 / noise
            assert allowed.mean == pytest.approx(
                (s + s**2) * n**3 * epsilon * np.abs(y).max()
            )
            assert allowed.std == pytest.approx(
                math.sqrt((3 * s + s**2) * n**3 * epsilon)
            )
            assert np.abs(moments[0][0] - moments[1][0]).max() <= allowed.mean
            assert np.abs(moments[0][1] - moments[1][1]).max() <= allowed.std


# --- rates --------------------------------------------------------------------------------


def test_corollary_4_1_as_printed() -> None:
    T, d, nu = 1000, 2, 2.5
    c = d * (d + 1) / (2 * nu + d * (d + 1))
    for epsilon in (1e-14, 1e-3, 0.2):
        for algorithm, p, power in (
            ("r-gp-ucb", 4, 1 / 8),
            ("tv-gp-ucb", 3, 1 / 6),
            ("split", 2, 1 / 4),
        ):
            smooth = rate_drift(T, epsilon, algorithm, dimension=d)  # type: ignore[arg-type]
            assert smooth == pytest.approx(max(math.sqrt(T), T * epsilon**power))
            rough = rate_drift(T, epsilon, algorithm, dimension=d, nu=nu)  # type: ignore[arg-type]
            expected = max(
                math.sqrt(T ** (1 + c)), T * epsilon ** (0.5 * (1 - c) / (p - c))
            )
            assert rough == pytest.approx(expected)
    with pytest.raises(InputError, match="nu"):
        rate_drift(T, 0.1, "tv-gp-ucb", dimension=1, nu=2.0)
    with pytest.raises(InputError, match="algorithm"):
        rate_drift(T, 0.1, "gp-ucb", dimension=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "algorithm"), [("printed", "tv-gp-ucb"), ("split", "split")]
)
def test_the_forms_have_the_rates_that_are_stated(form: Any, algorithm: Any) -> None:
    """γ̃_T/T at the best block falls like ε^{2·power}, up to what γ_N = ln-free N^c leaves: c = ½."""
    nu = 3.0  # with d = 2: c = 6/12
    values = [
        DriftingGrowth(
            gamma=math.sqrt,
            epsilon=epsilon,
            noise_variance=1.0,
            horizon=20_000,
            form=form,
        )(20_000)
        for epsilon in (1e-6, 1e-5)
    ]
    rates = [
        float(rate_drift(1e4, epsilon, algorithm, dimension=2, nu=nu))
        for epsilon in (1e-6, 1e-5)
    ]
    assert math.log(values[1] / values[0]) == pytest.approx(
        2 * math.log(rates[1] / rates[0]), rel=0.1
    )


@pytest.mark.slow
def test_genie_regret_is_linear_in_epsilon() -> None:
    """Theorem 4.1: the mean of max f_t − f_t(argmax f_{t−1}), on a grid finer than the best arm moves.

    The exponent between ε = 0.001 and 0.016 is 1, within four standard errors by the delta method for
    the logarithm of a ratio of paired means.
    """
    x = np.linspace(0.0, 1.0, 1001)[:, None]
    features = SquaredExponential(lengthscale=0.2).features(
        np.zeros(1), np.ones(1), 1e-12
    )
    assert features is not None
    Phi, rng, size = features(x), np.random.default_rng(0), 6_000
    f, g = (rng.standard_normal((size, Phi.shape[1])) @ Phi.T for _ in range(2))
    best, lost = f.argmax(axis=1), []
    for epsilon in (0.001, 0.016):
        now = math.sqrt(1.0 - epsilon) * f + math.sqrt(epsilon) * g
        lost.append(now.max(axis=1) - now[np.arange(size), best])
    small, large = lost
    exponent = math.log(large.mean() / small.mean()) / math.log(16.0)
    spread = (
        np.std(large / large.mean() - small / small.mean())
        / math.sqrt(size)
        / math.log(16.0)
    )
    assert spread < 0.03
    assert abs(exponent - 1.0) <= 4.0 * spread


# --- rejected input -----------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(InputError, match="epsilon"):
        drifting_information_gain(KERNEL, [[0.0]], 3, NOISE, 1.5)
    with pytest.raises(InputError, match="no rows"):
        drifting_information_gain(KERNEL, np.empty((0, 1)), 3, NOISE, 0.1)
    with pytest.raises(InputError, match="form"):
        drift_excess(3.0, 0.1, NOISE, "other")  # type: ignore[arg-type]
    growth = DriftingGrowth(gamma=gamma, epsilon=0.1, noise_variance=NOISE, horizon=5)
    for t in (6, -1, 0.5, "a"):
        with pytest.raises(
            InputError, match=r"t must be a whole number from 0 to 5, got .*"
        ):
            growth(t)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="delta"):
        regret_bound_tv_gp_ucb(5, gamma, arms=3, noise_variance=NOISE, delta=1.5)


@pytest.mark.parametrize(
    "odd", [math.nan, math.inf, -1, 0, 0.5, 1e308, "a", None, [2, -1], 10**400]
)
def test_no_rounds_and_no_blocks(odd: Any) -> None:
    options: dict[str, Any] = {"arms": 3, "noise_variance": NOISE, "delta": 0.1}
    for refused, message in (
        (lambda: regret_bound_tv_gp_ucb(odd, gamma, **options), "rounds"),
        (
            lambda: regret_bound_r_gp_ucb(odd, gamma, block=2, epsilon=0.1, **options),
            "rounds",
        ),
        (
            lambda: regret_bound_r_gp_ucb(5, gamma, block=odd, epsilon=0.1, **options),
            "block",
        ),
        (lambda: drift_excess(odd, 0.1, NOISE), "counts"),
        (lambda: mismatch_bounds(odd, 0.1, NOISE, 1.0), "block"),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            refused()


def test_noise_with_a_non_finite_inverse_is_rejected() -> None:
    with pytest.raises(InputError, match="noise_variance"):
        drift_excess(3.0, 0.1, 1e-320)
    with pytest.raises(InputError, match="noise_variance"):
        mismatch_bounds(3, 0.1, 1e-320, 1.0)


# --- eq. 11 and Theorem 4.1 ---------------------------------------------------------------


def spectral_moment(kernel: Any, powers: tuple[int, ...]) -> float:
    """E Π ω_i^{p_i} of the kernel's spectral distribution, from a mixture of normal ones.

    ω is z √(2ν/χ²)/l with normal z and χ² of 2ν degrees of freedom; z/l for ν = ∞.
    """
    moment = float(kernel.variance)
    for power in powers:
        moment *= math.prod(range(power - 1, 0, -2))  # E z^p = (p − 1)!!
    total = sum(powers)
    moment /= kernel.lengthscale**total
    nu = getattr(kernel, "nu", math.inf)
    if math.isfinite(nu):
        x = np.linspace(1e-6, 400.0, 400_001)
        density = np.exp(
            (nu - 1.0) * np.log(x) - 0.5 * x - math.lgamma(nu) - nu * math.log(2.0)
        )
        moment *= float(np.trapezoid((2.0 * nu / x) ** (total / 2) * density, x))
    return moment


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(lengthscale=0.4, variance=0.7),
        Matern(nu=6.5, lengthscale=0.4, variance=0.7),
    ],
)
def test_constants_of_second_derivatives_by_hand(kernel: Any, d: int) -> None:
    r = 1.5
    domain = SmoothDomain.of_kernel(kernel, d, r)
    tails = []
    for i, j in itertools.combinations_with_replacement(range(d), 2):
        variance_powers = np.bincount([i, i, j, j], minlength=d)
        s = math.sqrt(spectral_moment(kernel, tuple(variance_powers)))
        slopes = []
        for k in range(d):
            powers = np.bincount([i, i, j, j, k, k], minlength=d)
            slopes.append(math.sqrt(spectral_moment(kernel, tuple(powers))))
        m = r * sum(slopes) / math.sqrt(2.0 * math.pi)
        tails.append((2.0 * math.exp(m / s), math.sqrt(s * (m + 2.0 * s))))
    assert domain.a2 == pytest.approx(max(a for a, _ in tails), rel=1e-4)
    assert domain.b2 == pytest.approx(max(b for _, b in tails), rel=1e-4)


def matern52_bend_covariance(h: Floats, i: int, j: int, length: float) -> float:
    """Cov(∂_i∂_j f(x), ∂_i∂_j f(x + h)), by differences of the kernel's closed form in long doubles."""
    a = np.sqrt(np.longdouble(5.0)) / np.longdouble(length)
    step = np.longdouble(2e-3)

    def kernel(point: Any) -> Any:
        distance = np.sqrt(np.sum(np.asarray(point, dtype=np.longdouble) ** 2))
        return (1 + a * distance + a**2 * distance**2 / 3) * np.exp(-a * distance)

    weights = {-1: 1, 0: -2, 1: 1}
    unit_i, unit_j = np.eye(len(h))[i], np.eye(len(h))[j]
    total = np.longdouble(0.0)
    if i != j:
        for p, first in weights.items():
            for q, second in weights.items():
                total += first * second * kernel(h + step * (p * unit_i + q * unit_j))
    else:
        for p, weight in {-2: 1, -1: -4, 0: 6, 1: -4, 2: 1}.items():
            total += weight * kernel(h + step * p * unit_i)
    return float(total / step**4)


@pytest.mark.parametrize("seed", range(3))
def test_second_derivatives_of_matern_5_2_have_the_stated_increments(seed: int) -> None:
    """E(X_x − X_y)² ≤ (2a⁵/3)(Σ|h| + |h_i| + |h_j|), and (2a⁵)(Σ|h| + 2|h_i|) for i = j."""
    rng = np.random.default_rng(seed)
    length, d = 0.7, 3
    a = math.sqrt(5.0) / length
    for _ in range(20):
        h = rng.uniform(-1.0, 1.0, d) * rng.uniform(0.05, 1.0)
        size = np.abs(h)
        for i, j in itertools.combinations_with_replacement(range(d), 2):
            variance = a**4 if i == j else a**4 / 3.0
            increment = 2.0 * (variance - matern52_bend_covariance(h, i, j, length))
            if i == j:
                allowed = 2.0 * a**5 * (size.sum() + 2.0 * size[i])
            else:
                allowed = 2.0 * a**5 / 3.0 * (size.sum() + size[i] + size[j])
            assert increment <= allowed


def test_constants_of_matern_5_2_by_hand() -> None:
    v, length, r = 0.7, 0.4, 1.5
    kernel = Matern(nu=2.5, lengthscale=length, variance=v)
    a = math.sqrt(5.0) / length
    for d in (1, 2, 3):
        s = math.sqrt(v) * a**2
        m = math.sqrt(2.0 * r / math.pi) * (
            math.sqrt(6 * v * a**5) + (d - 1) * math.sqrt(2 * v * a**5)
        )
        tails = [(m, s)]
        if d > 1:
            near, far = math.sqrt(4 * v * a**5 / 3), math.sqrt(2 * v * a**5 / 3)
            tails.append(
                (
                    math.sqrt(2.0 * r / math.pi) * (2 * near + (d - 2) * far),
                    s / math.sqrt(3.0),
                )
            )
        domain = SmoothDomain.of_kernel(kernel, d, r)
        assert domain.a2 == pytest.approx(max(2.0 * math.exp(m / s) for m, s in tails))
        assert domain.b2 == pytest.approx(
            max(math.sqrt(s * (m + 2.0 * s)) for m, s in tails)
        )


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(lengthscale=0.3),
        Matern(nu=3.5, lengthscale=0.3),
        Matern(nu=2.5, lengthscale=0.3),
    ],
)
def test_draws_stay_within_equation_11(kernel: Any) -> None:
    """Second differences on a grid: averages of f″, whose sup is not larger."""
    points, draws_count = 101, 2000
    x = np.linspace(0.0, 1.0, points)[:, None]
    values, vectors = np.linalg.eigh(kernel(x))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(1).standard_normal((draws_count, points)) @ root.T
    size = np.abs(np.diff(draws, n=2, axis=1)).max(axis=1) * (points - 1.0) ** 2
    domain = SmoothDomain.of_kernel(kernel, 1)
    assert domain.a2 is not None
    assert domain.b2 is not None
    for level in np.quantile(size, [0.1, 0.5, 0.9, 0.99]):
        frequency = float((size > level).mean())
        spread = 4.0 * math.sqrt(frequency * (1.0 - frequency) / draws_count)
        assert frequency - spread <= domain.a2 * math.exp(-((level / domain.b2) ** 2))


def test_rough_kernels_have_no_constants_of_equation_11() -> None:
    domain = SmoothDomain.of_kernel(Matern(nu=2.8), 1)
    assert domain.a2 is None
    assert domain.b2 is None
    with pytest.raises(InputError, match="a2 and b2"):
        regret_lower_bound(10, Matern(nu=2.8), epsilon=0.1, dimension=1)
    with pytest.raises(InputError, match="a2 and b2 belong together"):
        SmoothDomain(dimension=1, side=1.0, a0=1.0, b0=1.0, a1=1.0, b1=1.0, a2=2.0)
    with pytest.raises(InputError, match="b2"):
        SmoothDomain(
            dimension=1, side=1.0, a0=1.0, b0=1.0, a1=1.0, b1=1.0, a2=2.0, b2=0.0
        )


def test_the_best_arm_is_inside_at_least_as_often_as_proven() -> None:
    """Long lengthscales make the proven number large enough to be compared with frequencies."""
    draws = 4000
    for length in (0.1, 0.3, 1.0):
        kernel = SquaredExponential(lengthscale=length)
        x = np.linspace(0.0, 1.0, 201)[:, None]
        values, vectors = np.linalg.eigh(kernel(x))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        sampled = np.random.default_rng(2).standard_normal((draws, 201)) @ root.T
        best = x[sampled.argmax(axis=1), 0]
        for margin in (0.02, 0.1):
            inside = float(((best >= margin) & (best <= 1.0 - margin)).mean())
            proven = interior_probability(kernel, 1, 1.0, margin)
            assert 0.0 < proven <= inside + 4.0 * math.sqrt(0.25 / draws)


def test_interior_probability_is_the_integral_from_below() -> None:
    from scipy import integrate, stats

    kernel = Matern(nu=4.0, lengthscale=0.5, variance=2.0)
    margin, r, d = 0.05, 1.2, 2
    rho = float(kernel([[0.0, 0.0]], [[r / 2 - margin, 0.0]])[0, 0]) / 2.0
    slope = math.sqrt(2.0 * 4.0 / 3.0) / 0.5
    m = r * d * slope / math.sqrt(2.0 * math.pi * 2.0)

    def integrand(u: float) -> float:
        return float(
            -np.expm1(-0.5 * max(0.0, (1.0 - rho) * u - m) ** 2) * stats.norm.pdf(u)
        )

    exact = integrate.quad(integrand, m / (1.0 - rho), 30.0)[0]
    probability = interior_probability(kernel, d, r, margin)
    assert 0.98 * exact <= probability <= exact * (1.0 + 1e-6)


@pytest.mark.parametrize(("margin", "epsilon"), [(0.05, 0.02), (0.02, 0.3)])
def test_the_lower_bound_is_the_best_of_many_curvatures(
    margin: float, epsilon: float
) -> None:
    """With a small ε the event A₃ has probability 1 but for rounding; with a larger ε it counts."""
    from scipy import stats

    kernel, d = SquaredExponential(lengthscale=0.5, variance=1.3), 2
    domain = SmoothDomain.of_kernel(kernel, d)
    assert domain.a2 is not None
    assert domain.b2 is not None
    interior, s2 = 0.6, 1.3 / 0.25
    bound = regret_lower_bound(
        ROUNDS, kernel, epsilon=epsilon, dimension=d, margin=margin, interior=interior
    )
    best = 0.0
    for L in np.linspace(0.5, 8.0, 4001) * domain.b2:
        bent = 3.0 * domain.a2 * math.exp(-((L / domain.b2) ** 2))
        steep = (
            2.0
            * 2.0
            * stats.norm.sf(
                2.0 * L * math.sqrt(2.0) * margin / math.sqrt(epsilon) / math.sqrt(s2)
            )
        )
        if bent >= interior or 8.0 * (bent + steep) >= 4.0:
            continue
        squares = s2 * (2.0 - math.sqrt(8.0 * (bent + steep)))
        best = max(best, epsilon / (8.0 * L) * (interior - bent) * squares)
    assert bound.per_round == pytest.approx(best, rel=1e-3)
    np.testing.assert_allclose(bound.values, (ROUNDS - 1.0) * bound.per_round)
    proven = regret_lower_bound(5, kernel, epsilon=epsilon, dimension=d, margin=margin)
    assert proven.interior == interior_probability(kernel, d, 1.0, margin)
    assert 0.0 < proven.per_round < bound.per_round
    assert regret_lower_bound(5, kernel, epsilon=0.0, dimension=d).per_round == 0.0
    assert (
        regret_lower_bound(5, kernel, epsilon=epsilon, dimension=d, side=3.0).margin
        == 0.06
    )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.003, 0.03, 0.3])
def test_the_genie_is_above_the_lower_bound(epsilon: float) -> None:
    """On 801 points of [0, 1], with P(A₄) of the same draws, less four standard errors."""
    kernel, draws = SquaredExponential(lengthscale=0.3), 3000
    x = np.linspace(0.0, 1.0, 801)[:, None]
    values, vectors = np.linalg.eigh(kernel(x))
    positive = values > 1e-12
    root = vectors[:, positive] * np.sqrt(values[positive])
    rng = np.random.default_rng(4)
    before = rng.standard_normal((draws, int(positive.sum()))) @ root.T
    innovations = rng.standard_normal((draws, int(positive.sum()))) @ root.T
    after = math.sqrt(1.0 - epsilon) * before + math.sqrt(epsilon) * innovations
    chosen = before.argmax(axis=1)
    regret = after.max(axis=1) - after[np.arange(draws), chosen]
    best = x[chosen, 0]
    inside = float(((best >= 0.02) & (best <= 0.98)).mean()) - 4.0 * math.sqrt(
        0.25 / draws
    )
    bound = regret_lower_bound(
        2, kernel, epsilon=epsilon, dimension=1, margin=0.02, interior=inside
    )
    stderr = regret.std(ddof=1) / math.sqrt(draws)
    assert regret.mean() - 4.0 * stderr >= bound.per_round > 0.0


def test_the_genies_regret_on_a_coarse_grid_is_of_order_epsilon_in_the_mean() -> None:
    """A parabola whose peak moves by less than a step: few rounds lose, but a full step each."""
    step, bend = 0.1, 3.0
    peaks = np.linspace(0.0, step, 200_001)[
        :-1
    ]  # of −bend (x − peak)²/2, anywhere between two points
    points = step * np.arange(-1, 3)
    for move in (0.001, 0.01, 0.05):
        before = -0.5 * bend * (points - peaks[:, None]) ** 2
        after = -0.5 * bend * (points - peaks[:, None] - move) ** 2
        chosen = before.argmax(axis=1)
        regret = after.max(axis=1) - after[np.arange(len(peaks)), chosen]
        assert regret.mean() == pytest.approx(0.5 * bend * move**2, rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0.5}, "margin must be below half"),
        ({"margin": 0.0}, "margin"),
        ({"interior": 1.5}, "interior"),
        ({"epsilon": 2.0}, "epsilon"),
        ({"dimension": 0}, "dimension"),
        (
            {
                "kernel": SquaredExponential(lengthscale=np.array([0.1, 0.2])),
                "dimension": 2,
            },
            "single",
        ),
    ],
)
def test_wrong_input_to_the_lower_bound_is_refused(
    options: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {
        "kernel": KERNEL,
        "epsilon": 0.1,
        "dimension": 1,
        **options,
    }
    with pytest.raises(InputError, match=message):
        regret_lower_bound(10, **arguments)
