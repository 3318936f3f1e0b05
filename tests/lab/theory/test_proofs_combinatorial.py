"""The proofs of nika2022oclok, line by line, on small random cases.

Cases are computed from dense matrices here, independently of the library. Inequalities may fail by rounding
alone: sums of a few dozen terms of order 1 are good to about 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import erfc

from superarm.core import Feedback
from superarm.core.graphs import Pairs
from superarm.kernels import SquaredExponential
from superarm.lab.experiments.statements.judging import failure_tails
from superarm.lab.problems import Codependency
from superarm.lab.theory import rate_oclok, regret_bound_oclok_ucb
from superarm.oracles import GreedyCoverage, TopK
from superarm.policies import oclok_ucb
from superarm.rewards import Coverage, LogSum, Sum
from superarm.rules.information import (
    LinearGain,
    MaternGain,
    SquaredExponentialGain,
    arriving_information_gain,
    information_gain,
)

pytestmark = pytest.mark.slow  # proofs of the papers, step by step

KERNEL = SquaredExponential(lengthscale=0.5)
ROUNDING = 1e-10


def at_most(left: float, right: float) -> bool:
    return left <= right + ROUNDING * max(1.0, abs(left), abs(right))


class Posterior(NamedTuple):
    mean: np.ndarray  # (n,)
    cov: np.ndarray  # (n, n)


def posterior(X: np.ndarray, y: np.ndarray, now: np.ndarray, noise: float) -> Posterior:
    """Eqs. 1 to 3 from the matrix of all observations."""
    K = KERNEL(X) + noise * np.eye(len(X))
    solved = np.linalg.solve(K, KERNEL(X, now))
    return Posterior(solved.T @ y, KERNEL(now) - KERNEL(now, X) @ solved)


def beta(t: int, most_arms: int, delta: float) -> float:
    return 2.0 * math.log(most_arms * math.pi**2 * t**2 / (3.0 * delta))


# --- the model -----------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [Sum(), LogSum(), Coverage()])
@pytest.mark.parametrize("seed", range(5))
def test_assumptions_1_and_2(reward: Any, seed: int) -> None:
    """Monotone, and Lipschitz with B: at random vectors of means."""
    rng = np.random.default_rng(seed)
    pairs = Pairs(left=np.array([0, 0, 1, 1, 2]), right=np.array([0, 1, 0, 2, 1]))
    positions = np.arange(5)
    for _ in range(50):
        f = rng.uniform(-0.5, 1.5, 5)
        other = rng.uniform(-0.5, 1.5, 5)
        worth, changed = (reward.worth(value, positions, pairs) for value in (f, other))
        assert at_most(worth, reward.worth(np.maximum(f, other), positions, pairs))
        assert at_most(abs(worth - changed), reward.lipschitz * np.abs(f - other).sum())


def test_algorithm_1_step_by_step() -> None:
    """Eq. 5 with eqs. 1 to 3, then the two largest indices: the choices of ``oclok-ucb``."""
    world = Codependency(seed=3, horizon=15, arrivals=8, pool=60, lengthscale=1.0, k=2)
    kernel, noise = world.model.kernel, world.model.noise_variance
    policy = oclok_ucb(world.model)
    rng = np.random.default_rng(0)
    X = np.empty((0, 3))
    y = np.empty(0)
    for step in range(1, 16):
        offer = world.offer(step)
        now = offer.arms.features
        K = kernel(X) + noise * np.eye(len(X))
        solved = np.linalg.solve(K, kernel(X, now))
        std = np.sqrt(kernel.diag(now) - np.einsum("ij,ij->j", kernel(X, now), solved))
        index = (
            solved.T @ y + math.sqrt(beta(step, world.model.most_arms or 0, 0.05)) * std
        )
        decision = policy.decide(offer, rng)
        chosen = decision.positions
        # In the first round all indices are equal; later a difference beyond rounding decides.
        np.testing.assert_allclose(
            np.sort(index[chosen]), np.sort(index)[-2:], atol=1e-7
        )
        rewards = world.means(offer)[chosen] + rng.normal(0.0, world.noise_std, 2)
        policy.commit(decision)
        policy.learn(offer, decision, Feedback(positions=chosen, rewards=rewards), rng)
        X = np.vstack([X, now[chosen]])
        y = np.append(y, rewards)


@pytest.mark.parametrize("seed", range(4))
def test_equation_4_by_brute_force(seed: int) -> None:
    """γ_KT is the best of all sequences of super arms; ours reaches at least half of it."""
    rng = np.random.default_rng(seed)
    rounds = [rng.uniform(size=(4, 2)) for _ in range(3)]
    rounds[0] *= (
        0.01  # of the first four arms, two give hardly more information than one
    )
    noise = 0.05
    feasible = [*combinations(range(4), 2)]
    gains = [
        information_gain(
            KERNEL,
            np.vstack(
                [arms[list(S)] for arms, S in zip(rounds, sequence, strict=True)]
            ),
            noise,
        )
        for sequence in product(feasible, repeat=3)
    ]
    largest = max(gains)
    gain = float(arriving_information_gain(KERNEL, rounds, 2, noise)[-1])
    assert at_most(largest / 2.0, gain)
    assert at_most(gain, largest)
    # "The usual maximum over the union" is less restricted, so that it is larger.
    union = np.vstack(rounds)
    usual = max(
        information_gain(KERNEL, union[list(chosen)], noise)
        for chosen in combinations(range(12), 6)
    )
    assert at_most(largest, usual)
    assert usual > largest + 1e-3  # and larger: the two differ


# --- Lemma 2 -------------------------------------------------------------------------------


def test_equation_6_for_every_width() -> None:
    """P(|Z| > √β) = erfc(√(β/2)) ≤ 2 exp(−β/2); it is less than half of it beyond 1.6 std."""
    b = np.linspace(0.0, 8.0, 801)
    exact = erfc(b / math.sqrt(2.0))
    assert (exact <= 2.0 * np.exp(-(b**2) / 2.0)).all()
    assert (exact <= np.exp(-(b**2) / 2.0) + 1e-15).all()  # the factor 2 is not needed


@pytest.mark.parametrize(("most_arms", "delta"), [(1, 0.9), (150, 0.05)])
def test_the_last_lines_of_lemma_2(most_arms: int, delta: float) -> None:
    """2M Σ exp(−β_t/2) = δ (6/π²) Σ t⁻²: up to N rounds, and δ in the limit (the rest is below 1/N)."""
    N = 20_000
    t = np.arange(1, N + 1)
    terms = np.exp([-beta(int(step), most_arms, delta) / 2.0 for step in t])
    np.testing.assert_allclose(
        terms, 6.0 * delta / (2.0 * most_arms * math.pi**2 * t**2.0)
    )
    total = 2.0 * most_arms * terms.sum()
    assert total < delta
    assert total > delta * (1.0 - 6.0 / (math.pi**2 * N) - 1e-12)


class Draw(NamedTuple):
    """One truth and a run of O'CLOK-UCB on it."""

    violations: np.ndarray  # (T,), arms outside in each round
    arms: int
    regret: float
    bound: float  # of Theorem 1, with the information gained in place of γ


M, K, T, DELTA, NOISE = 5, 2, 6, 0.9, 0.04


def draw(seed: int) -> Draw:
    rng = np.random.default_rng([7, seed])
    pool = rng.uniform(size=(30, 2))
    root = np.linalg.cholesky(KERNEL(pool) + 1e-10 * np.eye(30))
    truth = root @ rng.normal(size=30)
    X = np.empty((0, 2))
    y = np.empty(0)
    violations = np.zeros(T)
    regret = eigenvalue = 0.0
    for t in range(1, T + 1):
        arrived = rng.choice(30, size=M, replace=False)
        mean, cov = posterior(X, y, pool[arrived], NOISE)
        std = np.sqrt(np.diag(cov))
        width = math.sqrt(beta(t, M, DELTA))
        f = truth[arrived]
        violations[t - 1] = np.count_nonzero(np.abs(f - mean) > width * std)
        S = np.argsort(mean + width * std)[-K:]
        eigenvalue = max(eigenvalue, float(np.linalg.eigvalsh(cov[np.ix_(S, S)])[-1]))
        regret += float(np.sort(f)[-K:].sum() - f[S].sum())
        X = np.vstack([X, pool[arrived[S]]])
        y = np.append(y, f[S] + rng.normal(0.0, math.sqrt(NOISE), K))
    gained = 0.5 * np.linalg.slogdet(np.eye(len(X)) + KERNEL(X) / NOISE)[1]
    bound = math.sqrt(8.0 * (eigenvalue + NOISE) * K * beta(T, M, DELTA) * T * gained)
    return Draw(violations, M * T, regret, bound)


@pytest.fixture(scope="module")
def draws() -> list[Draw]:
    return [draw(seed) for seed in range(3000)]


@pytest.mark.slow
def test_equations_7_to_9_on_draws(draws: Sequence[Draw]) -> None:
    """1 − P(F) ≤ E[number of violations] = ΣΣ P(|Z| > √β_t) ≤ δ.

    The middle is the tower rule: given the past, every mean on offer is normal. The count of a draw has
    a standard deviation, and the mean over draws must be within five standard errors: chance exceeds
    this in fewer than one of a million samples.
    """
    counts = np.array([sample.violations.sum() for sample in draws])
    failed = counts > 0
    assert failed.mean() <= counts.mean()  # eq. 7 and the line below, draw by draw
    exact = sum(M * erfc(math.sqrt(beta(t, M, DELTA) / 2.0)) for t in range(1, T + 1))
    error = counts.std(ddof=1) / math.sqrt(len(counts))
    assert abs(counts.mean() - exact) < 5.0 * error  # eq. 8
    tails = sum(2.0 * M * math.exp(-beta(t, M, DELTA) / 2.0) for t in range(1, T + 1))
    assert exact < tails < DELTA  # eq. 9
    assert (
        failure_tails(int(failed.sum()), len(draws), DELTA).word() == "holds"
    )  # Lemma 2
    assert failed.any()  # so that it is no empty statement here


@pytest.mark.slow
def test_theorem_1_on_draws(draws: Sequence[Draw]) -> None:
    exceeded = sum(sample.regret > sample.bound for sample in draws)
    assert failure_tails(exceeded, len(draws), DELTA).word() == "holds"
    inside = [sample for sample in draws if not sample.violations.any()]
    assert len(inside) > 100
    assert all(
        at_most(sample.regret, sample.bound) for sample in inside
    )  # on F it is sure


# --- Lemma 3 -------------------------------------------------------------------------------


class Round(NamedTuple):
    """A round in which all means lie within their widths, and how super arms are worth."""

    mean: np.ndarray
    std: np.ndarray
    width: float
    f: np.ndarray
    feasible: list[np.ndarray]
    worth: Callable[
        [np.ndarray, np.ndarray], float
    ]  # of outcomes of all arms, and positions
    chosen: np.ndarray
    alpha: float


def a_round(kind: str, seed: int) -> Round:
    rng = np.random.default_rng(seed)
    n = 7
    mean = rng.uniform(0.1, 0.6, n)
    std = rng.uniform(0.01, 0.3, n)
    width = math.sqrt(beta(3, n, 0.05))
    f = mean + rng.uniform(-1.0, 1.0, n) * width * std  # the event F, from end to end
    if kind != "coverage":
        reward = Sum() if kind == "sum" else LogSum()
        oracle: Any = TopK(k=3)
        structure: Any = None
        feasible = [np.array(S) for S in combinations(range(n), 3)]
    else:
        f = np.clip(f, 0.0, 1.0)
        mean = np.clip(mean, f - width * std, f + width * std)
        reward = Coverage()  # type: ignore[assignment]
        oracle = GreedyCoverage(k=2)
        left = np.array([0, 0, 1, 1, 2, 3, 3])
        right = np.array([0, 1, 0, 2, 1, 1, 2])
        structure = Pairs(left=left, right=rng.permutation(3)[right])
        feasible = [
            np.flatnonzero(np.isin(left, pair)) for pair in combinations(range(4), 2)
        ]
    index = mean + width * std
    selected = oracle.select(index, structure, rng)

    def worth(outcomes: np.ndarray, positions: np.ndarray) -> float:
        return reward.worth(outcomes[positions], positions, structure)

    return Round(mean, std, width, f, feasible, worth, selected[1], selected[2].alpha)


@pytest.mark.parametrize("kind", ["sum", "log-sum", "coverage"])
@pytest.mark.parametrize("seed", range(40))
def test_equations_10_to_15(kind: str, seed: int) -> None:
    """Every line of Lemma 3, with B = 1 and the super arms tried one by one."""
    mean, std, width, f, feasible, worth, S, alpha = a_round(kind, seed)
    index = mean + width * std
    assert (np.abs(f - mean) <= width * std * (1.0 + 1e-12)).all()
    best = max(feasible, key=lambda arms: worth(f, arms))
    greatest = max(feasible, key=lambda arms: worth(index, arms))
    own = worth(f, S)
    lines = [
        alpha * worth(f, best) - own,
        alpha * worth(index, best) - own,  # eq. 10
        alpha * worth(index, greatest) - own,  # eq. 11
        worth(index, S) - own,  # eq. 12
        float(np.abs(index - f)[S].sum()),  # eq. 13
        float(np.abs(mean - f)[S].sum() + np.abs(width * std)[S].sum()),  # eq. 14
        2.0 * width * float(std[S].sum()),  # eq. 15
    ]
    for place, (left, right) in enumerate(pairwise(lines)):
        assert at_most(left, right), f"eq. {10 + place}"


# --- Lemma 1 and Theorem 1 -----------------------------------------------------------------


class Chosen(NamedTuple):
    """Super arms of any size, and their covariances before each of them is observed."""

    X: np.ndarray
    covariances: list[np.ndarray]
    noise: float


def super_arms(seed: int) -> Chosen:
    rng = np.random.default_rng(seed)
    noise = float(rng.choice([0.01, 0.5, 3.0]))
    X = np.empty((0, 2))
    covariances = []
    for size in rng.integers(1, 5, 6):
        now = rng.uniform(size=(size, 2))
        covariances.append(posterior(X, np.zeros(len(X)), now, noise).cov)
        X = np.vstack([X, now])
    return Chosen(X, covariances, noise)


def entropy(cov: np.ndarray) -> float:
    """Of a normal vector: ½ ln|2πe Σ|."""
    return 0.5 * float(np.linalg.slogdet(2.0 * math.pi * math.e * cov)[1])


@pytest.mark.parametrize("seed", range(30))
def test_equations_16_to_21(seed: int) -> None:
    """From the mutual information to Lemma 1, through entropies, eigenvalues and traces."""
    X, covariances, noise = super_arms(seed)
    n = len(X)
    given_f = entropy(noise * np.eye(n))  # H(r|f): only the noise
    assert given_f == pytest.approx(
        sum(entropy(noise * np.eye(len(cov))) for cov in covariances)
    )
    information = entropy(KERNEL(X) + noise * np.eye(n)) - given_f
    assert information == pytest.approx(information_gain(KERNEL, X, noise))
    chain = [entropy(cov + noise * np.eye(len(cov))) for cov in covariances]
    assert sum(chain) - given_f == pytest.approx(information)  # eq. 16
    determinants = [
        np.linalg.slogdet(cov / noise + np.eye(len(cov)))[1] for cov in covariances
    ]
    assert 0.5 * sum(determinants) == pytest.approx(information)  # eq. 17
    eigenvalues = [np.linalg.eigvalsh(cov) for cov in covariances]
    products = [math.log(np.prod(values / noise + 1.0)) for values in eigenvalues]
    assert 0.5 * sum(products) == pytest.approx(information)  # eq. 18
    ratios = [values / noise for values in eigenvalues]
    equation_19 = 0.5 * sum(float(np.sum(ratio / (ratio + 1.0))) for ratio in ratios)
    largest = max(float(values[-1]) for values in eigenvalues)
    equation_20 = sum(float(ratio.sum()) for ratio in ratios) / (
        2.0 * (largest / noise + 1.0)
    )
    traces = sum(float(np.trace(cov)) for cov in covariances)
    equation_21 = traces / noise / (2.0 * (largest / noise + 1.0))
    assert at_most(equation_19, information)
    assert at_most(equation_20, equation_19)
    assert equation_21 == pytest.approx(equation_20)  # Lemma 1


@pytest.mark.parametrize("seed", range(30))
def test_equations_23_to_26(seed: int) -> None:
    """(ΣΣσ)² ≤ T Σ(Σσ)² ≤ TK ΣΣσ² ≤ 2TK(λ* + σ²) I; factors 4B²β_T apart."""
    X, covariances, noise = super_arms(seed)
    rounds = len(covariances)
    budget = max(map(len, covariances))
    stds = [np.sqrt(np.diag(cov)) for cov in covariances]
    start = sum(float(std.sum()) for std in stds) ** 2
    equation_23 = rounds * sum(float(std.sum()) ** 2 for std in stds)
    by_size = rounds * sum(len(std) * float(np.sum(std**2)) for std in stds)
    equation_24 = rounds * budget * sum(float(np.sum(std**2)) for std in stds)
    equation_25 = (
        rounds * budget * noise * sum(float(np.sum(std**2)) / noise for std in stds)
    )
    largest = max(float(np.linalg.eigvalsh(cov)[-1]) for cov in covariances)
    gained = information_gain(KERNEL, X, noise)
    equation_26 = 2.0 * rounds * budget * (largest / noise + 1.0) * noise * gained
    assert at_most(start, equation_23)
    assert at_most(equation_23, by_size)
    assert at_most(by_size, equation_24)
    assert equation_25 == pytest.approx(equation_24)
    assert at_most(equation_25, equation_26)
    # Eq. 27 is C(K) = 8B²(λ* + σ²), which is 4B² times the factor of I, and I ≤ γ: eq. 4.
    assert 4.0 * equation_26 == pytest.approx(
        8.0 * (largest + noise) * rounds * budget * gained
    )


def test_equation_22_sums_lemma_3() -> None:
    """β_t rises with t, so that the widths of all rounds are at most that of the last."""
    widths = [beta(t, 150, 0.05) for t in range(1, 301)]
    assert widths == sorted(widths)
    gaps = []
    allowed = []
    for seed in range(40):
        _, std, width, f, feasible, worth, S, alpha = a_round("sum", seed)
        best = max(worth(f, arms) for arms in feasible)
        gaps.append(alpha * best - worth(f, S))
        allowed.append(float(std[S].sum()))
    assert at_most(sum(gaps), 2.0 * width * sum(allowed))


def test_a_negative_regret_has_no_square_root_bound() -> None:
    """ "Taking the square of both sides" needs R ≥ 0: where α < 1, R may be far below zero.

    One film of three reaches a viewer for sure, and nothing is uncertain. Greedy coverage of k = 2
    promises ¾ of the optimum and finds all of it: R = ¾ − 1 after a round, R² > 0, and Σσ = 0.
    """
    pairs = Pairs(left=np.array([0, 1, 2]), right=np.array([0, 0, 0]))
    means = np.array([1.0, 0.0, 0.0])
    selected = GreedyCoverage(k=2).select(means, pairs, np.random.default_rng(0))
    value = Coverage().worth(means[selected[1]], selected[1], pairs)
    regret = selected[2].alpha * 1.0 - value
    sum_of_std = 0.0
    assert regret == pytest.approx(-0.25)
    assert regret**2 > (2.0 * sum_of_std) ** 2  # the printed line fails
    assert regret <= 2.0 * sum_of_std  # eq. 22 and Theorem 1 do not


# --- Corollary 1 ---------------------------------------------------------------------------

HUGE = [10**4, 10**6, 10**8, 10**10]
SETTING: dict[str, Any] = {
    "most_arms": 150,
    "noise_variance": 0.01,
    "largest_eigenvalue": 2.0,
}


def beyond_the_rate(
    kernel: Any, gamma: Any, rounds: int, budget: int, nu: float = math.inf
) -> float:
    """Theorem 1 over Corollary 1, squared, without β_T and the constant 8(λ* + σ²)/λ*."""
    rate = rate_oclok(
        rounds, kernel, dimension=3, budget=budget, largest_eigenvalue=2.0, nu=nu
    )
    bound = regret_bound_oclok_ucb(rounds, gamma, budget=budget, **SETTING)
    constant = 8.0 * 2.01 / 2.0
    return float(bound / rate) ** 2 / (constant * beta(rounds, 150, 0.05))


@pytest.mark.parametrize("budget", [1, 5, 50])
@pytest.mark.parametrize("rounds", HUGE)
def test_corollary_1_is_theorem_1_up_to_logarithms(rounds: int, budget: int) -> None:
    """Linear: ln KT is left; squared exponential: ln⁴ KT over ln³ T. Both are logarithms."""
    linear = beyond_the_rate("linear", LinearGain(dimension=3), rounds, budget)
    assert linear == pytest.approx(math.log(budget * rounds))
    squared = beyond_the_rate(
        "squared-exponential", SquaredExponentialGain(dimension=3), rounds, budget
    )
    assert squared == pytest.approx(
        math.log(budget * rounds) ** 4 / math.log(rounds) ** 3
    )


@pytest.mark.parametrize("budget", [1, 5, 50])
@pytest.mark.parametrize("rounds", HUGE)
def test_corollary_1_lacks_a_power_of_k_for_matern(rounds: int, budget: int) -> None:
    """γ_KT grows with (KT)^(D/(D + 2ν)), of which the printed rate has the power of T alone.

    For ν = 2.5 and D = 3 the bound is larger by K^(3/16), about 2.1 for K = 50, beside logarithms.
    """
    gamma = MaternGain(nu=2.5, dimension=3, rate="vakili")
    excess = beyond_the_rate("matern", gamma, rounds, budget, nu=2.5)
    logarithm = math.log(budget * rounds) ** (5.0 / 8.0)
    assert excess == pytest.approx(budget ** (3.0 / 8.0) * logarithm)
