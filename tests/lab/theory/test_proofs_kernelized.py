"""The proofs of chowdhury2017kernelized, step by step, on small cases.

Features are finite vectors here, so that every quantity of a proof in the Hilbert space can be
computed: φ(x) is a row of Φ, k(x, x') = φ(x)·φ(x'), and f is a vector with f(x) = φ(x)·f.
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import bdtr, erfc

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.kernels import Linear, Matern, SquaredExponential
from superarm.kernels.lipschitz import lipschitz_of_kernel
from superarm.lab import theory
from superarm.posteriors import FiniteGP
from superarm.rules import ImprovedGPUCB, KernelUCB, ThompsonScale, information

pytestmark = pytest.mark.slow  # proofs of the papers, step by step

KERNEL = SquaredExponential(lengthscale=0.3)
P = theory.ANTI_CONCENTRATION
ROUNDING = 1e-9


def tail(x: float) -> float:
    """P[Z > x] of a standard normal Z."""
    return 0.5 * float(erfc(x / math.sqrt(2.0)))


def quadratic(vector: Floats, matrix: Floats) -> float:
    """‖vector‖² in the norm of a matrix."""
    return float(vector @ matrix @ vector)


# Theorem 1 of chowdhury2017kernelized and Theorem 1 of abbasiyadkori2011improved, at the same points,
# compare like this. Let κ_i be the eigenvalues of K and u_i the coordinates of the noise along its
# eigenvectors. The left side of the former is Σ u_i² (κ_i + η)/(κ_i + 1 + η) and that of the latter
# Σ u_i² κ_i/(κ_i + 1); the right sides are R² (Σ ln(1 + η + κ_i) − 2 ln δ) and
# R² (Σ ln(1 + κ_i) − 2 ln δ). So both sides of the former are larger, by at most η ‖ε‖²/(1 + η) and
# R² t ln(1 + η): they meet as η → 0. With η = 0, where K must be positive definite, they are the same.


def log_determinant(matrix: Floats) -> float:
    return float(np.linalg.slogdet(matrix)[1])


def squared_norm(noise: Floats, K: Floats, eta: float) -> float:
    """‖ε‖² in the norm of ((K + ηI)⁻¹ + I)⁻¹ = I − (K + (1+η)I)⁻¹: left of eq. 6."""
    solved = np.linalg.solve(K + (1.0 + eta) * np.eye(len(K)), noise)
    return float(noise @ (noise - solved))


def squared_bound(K: Floats, eta: float, R: float, delta: float) -> float:
    """Right of eq. 6."""
    logarithm = log_determinant(K + (1.0 + eta) * np.eye(len(K)))
    return float(theory.self_normalised_bound(logarithm, R, delta))


def mixture_martingale(noise: Floats, K: Floats, eta: float, R: float = 1.0) -> float:
    """M_t = exp(½‖ε/R‖²)/√det((1+η)I + K), ‖·‖ as in Theorem 1: appendix A."""
    logarithm = log_determinant(K + (1.0 + eta) * np.eye(len(K)))
    return math.exp(0.5 * (squared_norm(noise / R, K, eta) - logarithm))


def linear_squared_norm(noise: Floats, features: Floats, ridge: float = 1.0) -> float:
    """‖S_t‖² in the norm of V_t⁻¹: abbasiyadkori2011improved, Theorem 1, left."""
    S = features.T @ noise
    V = ridge * np.eye(len(S)) + features.T @ features
    return float(S @ np.linalg.solve(V, S))


def linear_squared_bound(
    features: Floats, R: float, delta: float, ridge: float = 1.0
) -> float:
    """2R² ln(√det(V_t) √det(V_0)⁻¹/δ): abbasiyadkori2011improved, Theorem 1, right."""
    scaled = np.eye(features.shape[1]) + features.T @ features / ridge
    return R**2 * (log_determinant(scaled) - 2.0 * math.log(delta))


class Case(NamedTuple):
    """t points played among n, with finite features."""

    features: Floats  # of all points, (n, d)
    f: Floats  # (d,)
    noise: Floats  # (t,)
    played: Any  # (t,)
    lam: float

    @classmethod
    def draw(
        cls, seed: int, t: int = 7, n: int = 6, d: int = 4, lam: float = 1.25
    ) -> Case:
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((n, d))
        features /= np.maximum(
            1.0, np.linalg.norm(features, axis=1, keepdims=True)
        )  # k(x, x) ≤ 1
        played = rng.integers(n, size=t)
        return cls(
            features, rng.standard_normal(d), rng.standard_normal(t), played, lam
        )

    @property
    def Phi(self) -> Floats:  # noqa: N802 (as in the paper)
        return np.asarray(self.features[self.played])

    @property
    def K(self) -> Floats:  # noqa: N802 (as in the paper)
        return np.asarray(self.Phi @ self.Phi.T)

    @property
    def inverse(self) -> Floats:
        """(K_t + λI)⁻¹."""
        return np.asarray(np.linalg.inv(self.K + self.lam * np.eye(len(self.K))))

    @property
    def precision(self) -> Floats:
        """Φᵀ Φ + λI, (d, d)."""
        d = self.features.shape[1]
        return np.asarray(self.Phi.T @ self.Phi + self.lam * np.eye(d))

    def k(self, x: Floats) -> Floats:
        """k_t(x)."""
        return np.asarray(self.Phi @ x)

    def variance(self, x: Floats) -> float:
        return float(x @ x - quadratic(self.k(x), self.inverse))

    def mean(self, x: Floats) -> float:
        return float(self.k(x) @ self.inverse @ (self.Phi @ self.f + self.noise))


CASES = [Case.draw(seed) for seed in range(5)]


# --- the model ----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [-3.0, -0.5, 0.1, 2.0])
def test_eq_1_gaussian_and_bounded_noise_is_sub_gaussian(scale: float) -> None:
    """E[e^{λε}] ≤ e^{λ²R²/2}: equality for a Gaussian; ±R has cosh(λR), uniform sinh(λR)/(λR)."""
    R = 0.7
    limit = math.exp(0.5 * (scale * R) ** 2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    gaussian = float(weights @ np.exp(scale * R * nodes)) / math.sqrt(2.0 * math.pi)
    assert gaussian == pytest.approx(limit, rel=1e-9)
    assert math.cosh(scale * R) <= limit
    assert math.sinh(scale * R) / (scale * R) <= limit


def test_eqs_19_to_21_equal_eqs_2_to_4() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((8, 2))
    K = KERNEL(X)
    lam = 0.3
    mean, cov = np.zeros(8), K.copy()
    played, rewards = [], []
    posterior = FiniteGP(KERNEL, X, lam)
    for _ in range(12):
        arm, reward = int(rng.integers(8)), float(rng.standard_normal())
        spread = lam + cov[arm, arm]
        mean = mean + cov[:, arm] / spread * (reward - mean[arm])  # eq. 19
        cov = cov - np.outer(cov[:, arm], cov[arm]) / spread  # eqs. 20, 21
        played.append(arm)
        rewards.append(reward)
        columns = K[played]  # k_t(x) of all x, (t, n)
        inverse = np.linalg.inv(K[np.ix_(played, played)] + lam * np.eye(len(played)))
        np.testing.assert_allclose(
            mean, columns.T @ inverse @ np.array(rewards), atol=1e-10
        )  # eq. 2
        np.testing.assert_allclose(
            cov, K - columns.T @ inverse @ columns, atol=1e-10
        )  # eqs. 3, 4
        posterior.observe(np.array([arm]), np.array([reward]))
        predicted = posterior.predict(np.arange(8), return_cov=True)
        np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
        np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)


def test_the_schur_complement_of_appendix_f() -> None:
    rng = np.random.default_rng(1)
    X = rng.random((6, 2))
    covariance = KERNEL(X) + 0.3 * np.eye(6)
    A, B, D = covariance[:5, :5], covariance[:5, 5], covariance[5, 5]
    alpha = np.linalg.solve(A, B)
    beta = 1.0 / (D - B @ alpha)
    gamma = np.outer(alpha, alpha)
    blocks = np.block(
        [
            [np.linalg.inv(A) + beta * gamma, -beta * alpha[:, None]],
            [-beta * alpha[None, :], beta],
        ]
    )
    np.testing.assert_allclose(blocks, np.linalg.inv(covariance), atol=1e-9)
    variance = 1.0 - B @ alpha  # σ²_{t−1}(x_t)
    assert beta == pytest.approx(1.0 / (0.3 + variance))


def test_igp_ucb_is_kernel_ucb_only_where_lambda_is_one() -> None:
    """Section 3.1: η/√λ with η = β_t is β_t for λ = 1; otherwise η must be β_t √λ."""
    width = ImprovedGPUCB(norm_bound=2.0, noise_bound=0.5, delta=0.1).width(
        9, lambda count: 3.0
    )

    def kernel_ucb(eta: float, lam: float) -> float:
        return KernelUCB(eta=eta, regularisation=lam).width(9, lambda count: 3.0)

    assert kernel_ucb(width, 1.0) == pytest.approx(width)
    assert kernel_ucb(width, 0.25) == pytest.approx(2.0 * width)
    assert kernel_ucb(width * 0.5, 0.25) == pytest.approx(width)


# --- Theorem 1 ----------------------------------------------------------------------------


def noise_tree(rounds: int) -> list[tuple[float, ...]]:
    """All paths of noise ±1, each as likely: 1-sub-Gaussian."""
    return list(product((-1.0, 1.0), repeat=rounds))


def adaptive_points(path: tuple[float, ...]) -> Floats:
    """Points that depend only on earlier noise: up after a gain, down after a loss; (t, 1)."""
    points = [0.5]
    for noise in path[:-1]:
        points.append(min(1.0, max(0.0, points[-1] + 0.2 * noise)))
    return np.array(points)[:, None]


def function_martingale(path: tuple[float, ...], n: Floats) -> float:
    """M_t^{g,n} for g(x) = sin(5x), R = 1."""
    values = np.sin(5.0 * adaptive_points(path)[:, 0]) + n[: len(path)]
    return float(np.exp(np.array(path) @ values - 0.5 * values @ values))


def test_lemma_2_is_a_super_martingale() -> None:
    n = np.array([0.3, -0.8, 0.1, 0.5])
    for rounds in range(1, 4):
        for path in noise_tree(rounds):
            both = [function_martingale((*path, sign), n) for sign in (-1.0, 1.0)]
            assert np.mean(both) <= function_martingale(path, n) * (1.0 + ROUNDING)
    assert np.mean([function_martingale(path, n) for path in noise_tree(1)]) <= 1.0


def mixture(path: tuple[float, ...], eta: float) -> float:
    return mixture_martingale(np.array(path), KERNEL(adaptive_points(path)), eta)


def test_the_mixture_is_what_appendix_a_integrates() -> None:
    """E over λ ~ N(0, K + ηI) of exp(ε·λ − ½‖λ‖²), by quadrature in two dimensions."""
    K = KERNEL(np.array([[0.1], [0.4]]))
    noise, eta, R = np.array([0.8, -1.1]), 0.2, 0.7
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    root = np.linalg.cholesky(K + eta * np.eye(2))
    total = 0.0
    for (x, wx), (y, wy) in product(zip(nodes, weights, strict=True), repeat=2):
        point = root @ np.array([x, y])
        total += (
            wx
            * wy
            / (2.0 * math.pi)
            * math.exp(noise / R @ point - 0.5 * point @ point)
        )
    assert mixture_martingale(noise, K, eta, R) == pytest.approx(total, rel=1e-8)


def test_completing_the_square() -> None:
    rng = np.random.default_rng(2)
    for _ in range(5):
        P1, P2 = (
            root @ root.T + 0.1 * np.eye(4) for root in rng.standard_normal((2, 4, 4))
        )
        x, a = rng.standard_normal((2, 4))
        both = np.linalg.inv(P1 + P2)
        left = quadratic(x - a, P1) + quadratic(x, P2)
        right = (
            quadratic(x - both @ P1 @ a, P1 + P2)
            + quadratic(a, P1)
            - quadratic(P1 @ a, both)
        )
        assert left == pytest.approx(right)
        inverse = np.linalg.inv(P1)
        product_of = np.linalg.det(P1) * np.linalg.det(inverse + np.eye(4))
        assert product_of == pytest.approx(np.linalg.det(P1 + np.eye(4)))


@pytest.mark.parametrize("eta", [0.01, 0.1])
def test_eqs_8_and_9_at_a_stopping_time_by_enumeration(eta: float) -> None:
    """All 2⁸ paths: stopped where M_t first exceeds 1/δ, E[M_τ] ≤ 1 and P[M_τ > 1/δ] ≤ δ."""
    delta = 0.5
    stopped = []
    for path in noise_tree(8):
        values = [mixture(path[:t], eta) for t in range(1, 9)]
        crossed = [value for value in values if value > 1.0 / delta]
        stopped.append(crossed[0] if crossed else values[-1])
    assert np.mean(stopped) <= 1.0 + ROUNDING
    share = np.mean([value > 1.0 / delta for value in stopped])
    assert 0.0 < share <= delta * np.mean(stopped)


def test_theorem_1_fails_exactly_where_the_mixture_exceeds_one_over_delta() -> None:
    delta, eta, R = 0.4, 0.3, 0.6
    rng = np.random.default_rng(3)
    failed = 0
    for _ in range(200):
        K = KERNEL(rng.random((5, 1)))
        noise = R * rng.standard_normal(5)
        too_large = squared_norm(noise, K, eta) > squared_bound(K, eta, R, delta)
        assert too_large == (mixture_martingale(noise, K, eta, R) > 1.0 / delta)
        failed += too_large
    assert 0 < failed <= 200 * delta


@pytest.mark.parametrize("case", CASES, ids=range(5))
def test_lemma_1(case: Case) -> None:
    """‖S_t‖ in the norm of V_t⁻¹ is ‖ε‖ in that of K(K + I)⁻¹, also where K is singular."""
    K, t = case.K, len(case.noise)
    S = case.Phi.T @ case.noise
    V = np.eye(len(S)) + case.Phi.T @ case.Phi
    left = quadratic(S, np.linalg.inv(V))
    assert left == pytest.approx(
        quadratic(case.noise, K @ np.linalg.inv(K + np.eye(t)))
    )
    assert linear_squared_norm(case.noise, case.Phi) == pytest.approx(left)
    few = case.Phi[:2]  # two of them have an invertible K
    inverse = np.linalg.inv(np.linalg.inv(few @ few.T + 1e-12 * np.eye(2)) + np.eye(2))
    squared = linear_squared_norm(case.noise[:2], few)
    assert squared == pytest.approx(quadratic(case.noise[:2], inverse), rel=1e-6)


@pytest.mark.parametrize("case", CASES, ids=range(5))
@pytest.mark.parametrize("eta", [1.0, 0.1, 1e-3, 1e-6])
def test_theorem_1_against_its_finite_dimensional_forerunner(
    case: Case, eta: float
) -> None:
    """Both sides exceed those of the forerunner as derived above, and meet as η → 0."""
    R, delta, t = 0.8, 0.1, len(case.noise)
    eigenvalues, vectors = np.linalg.eigh(case.K)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    along = (vectors.T @ case.noise) ** 2
    norm = squared_norm(case.noise, Linear()(case.Phi), eta)
    bound = squared_bound(Linear()(case.Phi), eta, R, delta)
    linear_norm = linear_squared_norm(case.noise, case.Phi)
    linear_bound = linear_squared_bound(case.Phi, R, delta)
    more_norm = float(along @ (eta / ((1.0 + eigenvalues) * (1.0 + eta + eigenvalues))))
    more_bound = R**2 * float(np.log1p(eta / (1.0 + eigenvalues)).sum())
    assert norm - linear_norm == pytest.approx(more_norm, rel=1e-6, abs=1e-12)
    assert bound - linear_bound == pytest.approx(more_bound, rel=1e-6, abs=1e-12)
    assert 0.0 < more_norm <= eta / (1.0 + eta) * float(case.noise @ case.noise)
    assert (
        R**2 * (t - 4) * math.log1p(eta)
        <= more_bound
        <= R**2 * t * math.log1p(eta) + ROUNDING
    )


def test_the_forerunner_by_hand_and_with_another_ridge() -> None:
    features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    noise = np.array([1.0, 2.0, -1.0])
    # S = (3, −2), V = diag(ridge + 2, ridge + 4)
    for ridge in (1.0, 0.5):
        norm = linear_squared_norm(noise, features, ridge)
        assert norm == pytest.approx(9.0 / (ridge + 2.0) + 4.0 / (ridge + 4.0))
        bound = linear_squared_bound(features, 2.0, 0.1, ridge)
        determinant = (ridge + 2.0) * (ridge + 4.0) / ridge**2
        assert bound == pytest.approx(8.0 * math.log(math.sqrt(determinant) / 0.1))


def test_the_forerunner_fails_no_more_often_than_delta() -> None:
    """400 runs that fail with probability δ = 0.2 at most: more than 80 + 5·8 would be an error."""
    runs, rounds, delta, R = 400, 12, 0.2, 0.7
    rng = np.random.default_rng(6)
    failures = 0
    for _ in range(runs):
        features = rng.standard_normal((rounds, 3))
        noise = R * rng.standard_normal(rounds)
        failures += any(
            linear_squared_norm(noise[:t], features[:t])
            > linear_squared_bound(features[:t], R, delta)
            for t in range(1, rounds + 1)
        )
    assert failures <= runs * delta + 5.0 * math.sqrt(runs * delta * (1.0 - delta))


# --- Lemmas 3 and 4 -----------------------------------------------------------------------


def test_lemma_3_against_all_choices_of_points() -> None:
    """γ_3 of 5 points is the largest of 35 sets: every run stays below, and greedy comes near."""
    X, lam = np.random.default_rng(4).random((5, 1)), 0.4
    gains = {
        chosen: information.information_gain(KERNEL, X[list(chosen)], lam)
        for chosen in combinations_with_replacement(range(5), 3)
    }
    gamma = max(gains.values())
    greedy = information.greedy_information_gain(KERNEL, X, 3, lam)
    assert gamma <= greedy.upper_bounds[-1] + ROUNDING
    assert greedy.gains[-1] >= (1.0 - 1.0 / math.e) * gamma
    K = KERNEL(X)
    for played in product(range(5), repeat=3):
        variances = []
        for t, arm in enumerate(played):
            past = list(played[:t])
            solved = np.linalg.solve(
                K[np.ix_(past, past)] + lam * np.eye(t), K[past, arm]
            )
            variances.append(max(0.0, K[arm, arm] - K[past, arm] @ solved))
        realised = float(theory.realised_information(variances, lam)[-1])  # eq. 11
        determinant = np.linalg.det(np.eye(3) + K[np.ix_(played, played)] / lam)
        assert realised == pytest.approx(0.5 * math.log(determinant))  # eq. 10
        assert realised <= gamma + ROUNDING


@pytest.mark.parametrize(
    "case", [Case.draw(seed, t=9) for seed in range(4)], ids=range(4)
)
def test_lemma_4_step_by_step(case: Case) -> None:
    T = len(case.noise)
    lam = theory.theory_noise_variance(T)
    variances = np.array(
        [
            case._replace(played=case.played[:t], lam=lam).variance(
                case.features[case.played[t]]
            )
            for t in range(T)
        ]
    )
    total = float(np.sqrt(variances).sum())
    information = 0.5 * float(np.log1p(variances / lam).sum())
    cauchy_schwarz = math.sqrt(T * float(variances.sum()))
    logarithms = math.sqrt(2.0 * T * lam * float(np.log1p(variances / lam).sum()))
    printed = math.sqrt(4.0 * T * lam * 0.5 * float(np.log1p(variances).sum()))
    assert total <= cauchy_schwarz <= logarithms <= printed
    assert logarithms == pytest.approx(math.sqrt(4.0 * T * lam * information))
    assert math.sqrt(4.0 * (T + 2) * information) == pytest.approx(logarithms)
    assert (variances / lam <= 2.0 * np.log1p(variances / lam)).all()


def test_lemma_4_as_printed_loses_lambda_in_the_middle() -> None:
    """T = 1, one arm with k = 1: √(4Tλ·½ ln(1 + σ²)) is above √(4(T+2)γ_T), the next step."""
    lam = theory.theory_noise_variance(1)
    gamma = 0.5 * math.log1p(1.0 / lam)
    printed = math.sqrt(4.0 * lam * 0.5 * math.log(2.0))
    assert printed == pytest.approx(2.04, abs=0.01)
    assert math.sqrt(4.0 * 3.0 * gamma) == pytest.approx(1.31, abs=0.01)
    assert math.sqrt(4.0 * 3.0 * gamma) >= 1.0  # and the lemma itself: Σσ = 1


# --- Theorem 2 ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=range(5))
def test_eqs_12_and_13(case: Case) -> None:
    precision = np.linalg.inv(case.precision)
    np.testing.assert_allclose(
        case.Phi.T @ case.inverse, precision @ case.Phi.T, atol=1e-10
    )  # eq. 12
    for x in case.features:
        assert case.lam * quadratic(x, precision) == pytest.approx(
            case.variance(x)
        )  # eq. 13


@pytest.mark.parametrize("case", CASES, ids=range(5))
def test_the_chain_of_theorem_2(case: Case) -> None:
    t, lam = len(case.noise), case.lam
    eta = lam - 1.0
    K, inverse, precision = case.K, case.inverse, np.linalg.inv(case.precision)
    B = float(np.linalg.norm(case.f))
    inner = quadratic(case.noise, K @ inverse)
    normalised = np.linalg.inv(np.linalg.inv(K + eta * np.eye(t)) + np.eye(t))
    outer = quadratic(case.noise, normalised)
    np.testing.assert_allclose((K + eta * np.eye(t)) @ inverse, normalised, atol=1e-9)
    assert inner <= outer
    assert squared_norm(case.noise, K, eta) == pytest.approx(outer)
    for x in case.features:
        std = math.sqrt(case.variance(x))
        bias = abs(x @ case.f - case.k(x) @ inverse @ case.Phi @ case.f)
        assert bias == pytest.approx(abs(lam * x @ precision @ case.f))
        assert bias <= np.linalg.norm(lam * precision @ x) * B + ROUNDING
        assert np.linalg.norm(lam * precision @ x) <= std + ROUNDING
        error = abs(case.k(x) @ inverse @ case.noise)
        weighted = math.sqrt(quadratic(x, precision))
        S = case.Phi.T @ case.noise
        assert error <= weighted * math.sqrt(quadratic(S, precision)) + ROUNDING
        assert weighted == pytest.approx(std / math.sqrt(lam))
        assert quadratic(S, precision) == pytest.approx(inner)
        reach = B + math.sqrt(inner / lam)
        assert abs(case.mean(x) - x @ case.f) <= std * reach + ROUNDING
        assert reach <= B + math.sqrt(outer)


@pytest.mark.parametrize("case", CASES, ids=range(5))
def test_the_determinant_of_theorem_2(case: Case) -> None:
    t = len(case.noise)
    for T in (t, 3 * t):
        eta = 2.0 / T
        _, logarithm = np.linalg.slogdet((1.0 + eta) * np.eye(t) + case.K)
        gained = information.information_gain(Linear(), case.Phi, 1.0 + eta)
        assert logarithm == pytest.approx(2.0 * gained + t * math.log1p(eta))
        assert logarithm <= 2.0 * gained + eta * t + ROUNDING
        assert 0.5 * logarithm <= gained + 1.0  # and hence the 1 in the width


def test_the_norm_printed_in_theorem_2_lacks_an_inverse() -> None:
    """In the norm of (K + ηI)⁻¹ + I itself, noise exceeds the bound of Theorem 1 in each of 5 draws.

    That matrix is at least I, so that the squared norm is at least ‖ε‖², while the bound grows with
    ln det alone: with one point played 200 times, that is about ln(200)/2.
    """
    K = np.ones((200, 200))
    eta, R, delta = 0.01, 1.0, 0.1
    printed = np.linalg.inv(K + eta * np.eye(200)) + np.eye(200)
    bound = squared_bound(K, eta, R, delta)
    for noise in np.random.default_rng(5).standard_normal((5, 200)):
        assert quadratic(noise, printed) > bound
        assert squared_norm(noise, K, eta) < bound


# --- Theorem 3 ----------------------------------------------------------------------------


def test_the_chain_of_theorem_3_in_every_round() -> None:
    """Wherever the band holds, the arm of the highest index costs at most 2β_t σ_{t−1}(x_t)."""
    rng = np.random.default_rng(7)
    X, T, R, delta = rng.random((12, 1)), 40, 0.3, 0.1
    lam = theory.theory_noise_variance(T)
    K = KERNEL(X)
    alpha = rng.standard_normal(12)
    f = K @ alpha
    B = math.sqrt(quadratic(alpha, K))
    gamma = information.GreedyGrowth(
        kernel=KERNEL, candidates=X, noise_variance=lam, horizon=T
    )
    widths = theory.confidence_width(np.arange(1, T + 1), gamma, B, R, delta)
    bounds = theory.regret_bound_igp_ucb(np.arange(1, T + 1), gamma, B, R, delta)
    mean, cov, regret, inside = np.zeros(12), K.copy(), 0.0, 0
    for t in range(T):
        std = np.sqrt(cov.diagonal())
        arm = int(np.argmax(mean + widths[t] * std))
        loss = float(f.max() - f[arm])
        if (np.abs(mean - f) <= widths[t] * std).all():
            inside += 1
            assert loss <= widths[t] * std[arm] + mean[arm] - f[arm] + ROUNDING
            assert loss <= 2.0 * widths[t] * std[arm] + ROUNDING
        regret += loss
        assert regret <= bounds[t]
        spread = lam + cov[arm, arm]
        reward = f[arm] + R * rng.standard_normal()
        mean = mean + cov[:, arm] * (reward - mean[arm]) / spread
        cov = cov - np.outer(cov[:, arm], cov[arm]) / spread
    assert inside == T


# --- Theorem 4 ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [KERNEL, Matern(nu=2.5, lengthscale=0.3)], ids=["se", "matern"]
)
def test_eq_7_functions_are_lipschitz(kernel: Any) -> None:
    """|f(x) − f(y)| ≤ ‖f‖_k ‖k(x, ·) − k(y, ·)‖_k ≤ ‖f‖_k L ‖x − y‖₁: footnote 5 and eq. 7."""
    rng = np.random.default_rng(8)
    centres, alpha = rng.random((5, 2)), rng.standard_normal(5)
    norm = math.sqrt(quadratic(alpha, kernel(centres)))
    L = lipschitz_of_kernel(kernel)
    points = rng.random((40, 2))
    values = kernel(points, centres) @ alpha
    K = kernel(points)
    for i, j in product(range(40), repeat=2):
        apart = math.sqrt(max(0.0, K[i, i] + K[j, j] - 2.0 * K[i, j]))
        assert abs(values[i] - values[j]) <= norm * apart + 1e-7
        assert apart <= L * np.abs(points[i] - points[j]).sum() + 1e-7


@pytest.mark.parametrize("t", [1, 2, 5, 100])
@pytest.mark.parametrize("points", [1, 10, 1000])
def test_lemma_5_by_the_exact_normal_tail(points: int, t: int) -> None:
    """Each of |D'| draws leaves √(2 ln(|D'|t²)) deviations with probability 1/(|D'|t²) at most."""
    outside = 2.0 * tail(math.sqrt(2.0 * math.log(points * t**2)))
    assert outside <= 1.0 / (points * t**2)
    assert points * outside <= 1.0 / t**2


def test_definition_1() -> None:
    v = ThompsonScale(norm_bound=2.0, noise_bound=0.5, delta=0.1)
    shape: dict[str, Any] = {"lipschitz": 3.0, "side": 1.5, "dimension": 2}
    for t in (1, 2, 50):
        c_tilde = math.sqrt(
            4.0 * math.log(t) + 4.0 * math.log(2.0 * 3.0 * 1.5 * 2 * t**2)
        )
        expected = v.width(t, math.log1p) * (1.0 + c_tilde)
        width = theory.saturation_width(t, math.log1p, 2.0, 0.5, 0.1, **shape)
        assert float(width) == pytest.approx(expected)
    curve = theory.saturation_width(
        np.arange(1, 200), math.log1p, 2.0, 0.5, 0.1, **shape
    )
    assert (np.diff(curve) > 0.0).all()
    # A domain so small that the formula would have less than one point has one.
    tiny = theory.saturation_width(
        1, math.log1p, 0.1, 0.0, 0.1, lipschitz=0.1, side=0.1, dimension=1
    )
    assert float(tiny) == pytest.approx(0.1)
    # The first line of the proof of Theorem 4: γ_{T−1} ≤ γ_T.
    v_T = 2.0 + 0.5 * math.sqrt(2.0 * (math.log1p(50) + 1.0 + math.log(20.0)))
    c_tilde = math.sqrt(4.0 * math.log(50) + 4.0 * math.log(18.0 * 50**2))
    assert float(
        theory.saturation_width(50, math.log1p, 2.0, 0.5, 0.1, **shape)
    ) <= v_T * (1 + c_tilde)


def test_lemma_7_holds_for_beta_above_0_344_only() -> None:
    for beta in (0.344, 0.5, 1.0, 2.0, 5.0):
        assert tail(beta) >= theory.gaussian_tail_bound(beta)
    for beta in (0.01, 0.1, 0.3, 0.34):
        assert tail(beta) < theory.gaussian_tail_bound(beta)
    assert theory.gaussian_tail_bound(0.1) > 1.0  # no probability at all
    assert theory.gaussian_tail_bound(1.0) == pytest.approx(P)


def test_lemma_8_holds_all_the_same() -> None:
    for theta in np.linspace(-1.0, 1.0, 41):  # (f − μ)/(v σ), within E^f(t)
        assert tail(float(theta)) >= tail(1.0) > P


class Posterior(NamedTuple):
    """The posterior of GP-TS after many rounds, and the truth."""

    f: Floats
    mean: Floats
    cov: Floats
    v: float
    c: float
    t: int
    B: float

    @classmethod
    def after(cls, t: int, seed: int, arms: int = 25) -> Posterior:
        """Arms played t times in all, by chance; the reach of Lemma 5 with all arms as D_t."""
        rng = np.random.default_rng(seed)
        K = KERNEL(np.sort(rng.random((arms, 1)), axis=0))
        alpha = rng.standard_normal(arms)
        f = K @ alpha
        B, R = math.sqrt(quadratic(alpha, K)), 0.1
        f, B = f / B, 1.0
        counts = np.bincount(rng.integers(arms, size=t - 1), minlength=arms)
        played = np.flatnonzero(counts)
        noise = np.diag((1.0 + 2.0 / t) / counts[played])
        averages = f[played] + R * rng.standard_normal(len(played)) / np.sqrt(
            counts[played]
        )
        solved = np.linalg.solve(K[np.ix_(played, played)] + noise, K[played])
        mean, cov = solved.T @ averages, K - K[played].T @ solved
        _, information = np.linalg.slogdet(
            np.eye(len(played)) + np.linalg.inv(noise) @ K[np.ix_(played, played)]
        )
        v = B + R * math.sqrt(2.0 * (0.5 * information + 1.0 + math.log(20.0)))
        c = v * (1.0 + math.sqrt(2.0 * math.log(arms * t**2)))
        return cls(f, mean, cov, v, c, t, B)

    @property
    def std(self) -> Floats:
        return np.sqrt(np.maximum(self.cov.diagonal(), 0.0))

    @property
    def gaps(self) -> Floats:
        """Δ_t(x): Definition 3."""
        return np.asarray(self.f.max() - self.f)

    def draws(self, count: int) -> Floats:
        eigenvalues, U = np.linalg.eigh(self.cov)
        root = U * np.sqrt(np.maximum(eigenvalues, 0.0))
        normal = np.random.default_rng(0).standard_normal((count, len(self.f)))
        return np.asarray(self.mean + self.v * normal @ root.T)


@pytest.mark.parametrize("t", [2, 10, 1000, 300_000])
@pytest.mark.parametrize("seed", range(3))
def test_lemmas_9_and_10_and_eqs_14_to_18(t: int, seed: int) -> None:
    """Steps that hold draw by draw are asserted so; shares of 4,000 draws are known to ±0.04 (5 σ)."""
    posterior = Posterior.after(t, seed)
    f, std, gaps, c = posterior.f, posterior.std, posterior.gaps, posterior.c
    assert (
        np.abs(posterior.mean - f) <= posterior.v * std
    ).all()  # E^f(t): what the lemmas assume
    saturated = gaps > c * std  # Definition 3
    best = int(np.argmax(f))
    assert not saturated[best]
    draws = posterior.draws(4000)
    chosen = draws.argmax(axis=1)
    unsaturated = ~saturated[chosen]
    if saturated.any():
        above = draws[:, best] > draws[:, saturated].max(axis=1)
        assert (unsaturated | ~above).all()  # eq. 14
    reach = posterior.v * math.sqrt(2.0 * math.log(len(f) * t**2))
    near = (np.abs(draws - posterior.mean) <= reach * std).all(axis=1)  # E^{f_t}(t)
    assert near.mean() >= 1.0 - 1.0 / t**2 - 0.04  # Lemma 6
    assert (draws[near] <= f + c * std + ROUNDING).all()
    assert (draws[near][:, saturated] < f[best]).all()
    assert unsaturated.mean() >= P - 1.0 / t**2 - 0.04  # Lemma 9
    least = np.flatnonzero(~saturated)[np.argmin(std[~saturated])]  # eq. 15
    assert (
        std[chosen].mean() >= std[least] * unsaturated.mean() - ROUNDING
    )  # eq. 16, first step
    chain = c * (2.0 * std[least] + std[chosen])
    assert (gaps[chosen][near] <= chain[near] + ROUNDING).all()
    assert gaps[chosen].max() <= 2.0 * posterior.B
    allowed = 11.0 * c / P * std[chosen].mean() + (2.0 * posterior.B + 1.0) / t**2
    assert gaps[chosen].mean() <= allowed  # eqs. 17, 18; Lemmas 10 and 12


def test_some_points_are_saturated_late() -> None:
    """Otherwise the test above would not cover them."""
    late = Posterior.after(300_000, 0)
    assert (late.gaps > late.c * late.std).sum() >= 5


def test_eq_17_needs_t_of_at_least_5() -> None:
    """1/(p − 1/t²) ≤ 5/p for t ≥ 5; before, p − 1/t² < 0, and eq. 16 cannot be divided by it."""
    assert all(P - 1.0 / t**2 < 0.0 for t in range(1, 5))
    for t in range(5, 200):
        assert 0.0 < 1.0 / (P - 1.0 / t**2) <= 5.0 / P
    assert 2.0 * 5.0 / P + 1.0 <= 11.0 / P


def test_lemma_10_holds_in_rounds_1_to_4() -> None:
    """Ours: in round 1 (2B+1)/t² is enough, and from round 2 on 1/P[x_t unsaturated] is below 5/p.

    That probability is at least P[Z > 1], of Lemma 8, less that of a draw outside the reach of Lemma 5:
    n·P(|Z| > √(2 ln(nt²))) for n points, which is far below 1/t². With one point nothing is saturated.
    """
    for t in (2, 3, 4):
        misses = [
            n * 2.0 * tail(math.sqrt(2.0 * math.log(n * t**2)))
            for n in (2, 3, 10, 1000, 10**9)
        ]
        assert misses == sorted(
            misses, reverse=True
        )  # n·e^{−b²/2} = 1/t², and the Mills ratio falls
        unsaturated = tail(1.0) - misses[0]
        assert unsaturated > 0.07
        assert 1.0 / unsaturated <= 5.0 / P


def test_the_last_line_of_lemma_10s_chain_has_one_c_too_many() -> None:
    """c(2σ̄ + cσ), as printed, is below c(2σ̄ + σ), which is proved, wherever c < 1."""
    c, least, own = 0.5, 0.2, 0.3
    assert c * (2.0 * least + c * own) < c * (2.0 * least + own)


@pytest.mark.parametrize(("rounds", "delta"), [(10, 0.1), (40, 0.01), (100, 0.3)])
def test_lemma_11_on_a_fair_walk(rounds: int, delta: float) -> None:
    """Steps ±α: the exact probability of a sum above the bound, from the binomial distribution."""
    alpha = 0.7
    bound = alpha * float(theory.azuma_bound(rounds, delta))
    assert bound == pytest.approx(
        math.sqrt(2.0 * math.log(1.0 / delta) * rounds * alpha**2)
    )
    ups = math.floor((bound / alpha + rounds) / 2.0)  # 2·ups − rounds ≤ bound/α
    assert 1.0 - float(bdtr(ups, rounds, 0.5)) <= delta


def widest_step(B: float, c: float, t: int) -> float:
    """What |X_t| is bounded by before the last step of Lemma 13."""
    return 2.0 * B + 11.0 * c / P + (2.0 * B + 1.0) / t**2


@pytest.mark.parametrize("B", [0.19, 0.5, 1.0, 10.0])
def test_lemma_13_bounds_the_steps_where_b_is_not_small(B: float) -> None:
    for factor in (1.0, 2.0, 10.0):
        c = factor * B  # c_t ≥ v_t ≥ B
        for t in (1, 2, 10):
            assert c / P >= 1.0  # 2B ≤ 2Bc/p
            assert (2.0 * B + 1.0) / t**2 <= 2.0 * B * c / P
            assert widest_step(B, c, t) <= (4.0 * B + 11.0) * c / P


def test_lemma_13_does_not_bound_the_steps_where_b_and_r_are_small() -> None:
    """B = 0.01, R = 0 and one point in D_1, so that c_1 = B; r_1 = 0 and σ_0 = 1 are possible."""
    B = 0.01
    c = float(
        theory.saturation_width(
            1, math.log1p, B, 0.0, 0.1, lipschitz=100.0, side=1.0, dimension=1
        )
    )
    assert c == pytest.approx(B)
    step = 11.0 * c / P + (2.0 * B + 1.0)  # |X_1| with r = 0 and σ_0 = 1
    assert step > (4.0 * B + 11.0) * c / P


@pytest.mark.parametrize("B", [1e-6, 0.01, 0.19, 10.0])
def test_lemma_13_holds_for_small_b_all_the_same(B: float) -> None:
    """Ours: (2B+1)/t² is the same in every draw, so that X_t lies in an interval of 2B + 11c_t/p.

    The Azuma–Hoeffding inequality is about intervals, of length 2α_t where |X_t| ≤ α_t; c_t ≥ B.
    """
    for factor in (1.0, 2.0, 10.0):
        c = factor * B
        assert 2.0 * B + 11.0 * c / P <= 2.0 * (4.0 * B + 11.0) * c / P


def test_functions_are_bounded_by_b() -> None:
    """|f(x)| ≤ ‖f‖_k √k(x, x); with k(x, x) itself, as printed, not where it is below 1."""
    feature = np.array([0.5, 0.0])  # k(x, x) = 0.25
    f = np.array([1.0, 0.0])  # of norm 1
    assert abs(feature @ f) <= np.linalg.norm(f) * math.sqrt(feature @ feature)
    assert abs(feature @ f) > np.linalg.norm(f) * (feature @ feature)


# --- input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: theory.gaussian_tail_bound(0.0), InputError, "beta"),
        (lambda: theory.azuma_bound(1, 0.0), InputError, "delta"),
    ],
)
def test_bad_arguments_are_named(call: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        call()
