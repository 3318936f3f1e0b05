"""Theorem 3.2 and its lemmas: plain arithmetic, and inequalities on simulated bandits."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core.errors import InputError
from superarm.core.normal import rectified_mean
from superarm.kernels import Matern, SquaredExponential
from superarm.lab.theory import (
    ArmSetGrowth,
    bayesian_regret_bound,
    bayesian_regret_bound_of_widths,
    bucb_constant,
    bucb_exploration_term,
    confidence_parameter,
    prior_eigenvalue_bound,
    variance_constant,
    variance_sum_bound,
)
from superarm.posteriors import FiniteGP
from superarm.rules import BayesianGPUCB, BayesUCBQuantile
from superarm.rules.information import information_gain

SETTING: dict[str, Any] = {
    "arms": 50,
    "budget": 3,
    "noise_variance": 0.1,
    "largest_eigenvalue": 2.0,
}
BUCB: dict[str, Any] = {"algorithm": "gp-bucb", "omega": 2.0, "xi": 3.0}
OMEGAS = [1.05, 1.5, 2.0, 4.0, 10.0]


def gamma(count: int) -> float:
    return math.log(1.0 + count)


# --- Theorem 3.2 --------------------------------------------------------------------------


def test_gp_ucb_by_hand() -> None:
    """T = 100: β = 2 ln(50·100²/√(2π)) = 24.4068, C_K = 4.2, γ_300 = ln 301."""
    beta = 2.0 * math.log(50 * 100**2 / math.sqrt(2 * math.pi))
    assert beta == pytest.approx(24.4069, abs=1e-4)
    explored = math.sqrt(4.2 * 100 * 3 * beta * math.log(301))
    ucb = bayesian_regret_bound(100, gamma, algorithm="gp-ucb", **SETTING)
    ts = bayesian_regret_bound(100, gamma, algorithm="gp-ts", **SETTING)
    assert float(ucb) == pytest.approx(math.pi**2 / 6 + explored, rel=1e-13)
    assert float(ts) == pytest.approx(math.pi**2 / 3 + 2 * explored, rel=1e-13)


def test_gp_bucb_by_hand() -> None:
    """η_20 = 2π/(2·2500·8000); C_2 = √(2√π/√(2e)); ξ/(ξ−ω) = 3."""
    eta = 2 * math.pi / (2 * 50**2 * 20**3)
    beta = NormalDist().inv_cdf(eta) ** 2
    explored = math.sqrt(4.2 * 20 * 3 * beta * math.log(61))
    constant = math.sqrt(2 * math.sqrt(math.pi) / math.sqrt(2 * math.e))
    bound = bayesian_regret_bound(20, gamma, **BUCB, **SETTING)
    assert float(bound) == pytest.approx(explored + 3 * constant, rel=1e-12)


@pytest.mark.parametrize("arms", [1, 2, 50, 5895])
def test_beta_in_plain_arithmetic(arms: int) -> None:
    rounds = np.array([1, 7, 500])
    ucb = confidence_parameter(rounds, math.log(arms))
    bucb = confidence_parameter(rounds, math.log(arms), omega=1.5, xi=2.0)
    for place, t in enumerate(rounds.tolist()):
        plain = 2.0 * math.log(arms * t**2 / math.sqrt(2.0 * math.pi))
        assert float(ucb[place]) == pytest.approx(max(0.0, plain), rel=1e-12)
        tail = math.sqrt(2.0 * math.pi) ** 1.5 / (2.0 * arms**1.5 * t**2)
        quantile = -NormalDist().inv_cdf(tail) if tail < 0.5 else 0.0
        assert float(bucb[place]) == pytest.approx(quantile**2, rel=1e-9)


@pytest.mark.parametrize(
    "options", [{"algorithm": "gp-ucb"}, {"algorithm": "gp-ts"}, BUCB], ids=str
)
def test_bounds_are_vectorised_and_grow(options: dict[str, Any]) -> None:
    rounds = np.array([1, 2, 5, 10, 100, 1000])
    curve = bayesian_regret_bound(rounds, gamma, **options, **SETTING)
    single = [
        float(bayesian_regret_bound(int(T), gamma, **options, **SETTING))
        for T in rounds
    ]
    np.testing.assert_allclose(curve, single, rtol=1e-14)
    assert (np.diff(curve) > 0.0).all()
    for name, more in [
        ("arms", 60),
        ("budget", 4),
        ("noise_variance", 0.2),
        ("largest_eigenvalue", 3.0),
    ]:
        larger = bayesian_regret_bound(
            rounds, gamma, **options, **{**SETTING, name: more}
        )
        assert (larger > curve).all()


@pytest.mark.parametrize(
    "options", [{"algorithm": "gp-ucb"}, {"algorithm": "gp-ts"}, BUCB], ids=str
)
def test_units_cancel(options: dict[str, Any]) -> None:
    """Rewards in other units (Wh for kWh) have their bound in those units."""
    v = 1e6
    plain = bayesian_regret_bound(30, gamma, **options, **SETTING)
    scaled = {**SETTING, "noise_variance": 0.1 * v, "largest_eigenvalue": 2.0 * v}
    other = bayesian_regret_bound(30, gamma, **options, **scaled, largest_variance=v)
    assert float(other) == pytest.approx(1e3 * float(plain), rel=1e-13)


def test_the_experiments_bucb_has_no_bound() -> None:
    bound = bayesian_regret_bound(
        [1, 10], gamma, algorithm="gp-bucb", omega=1.0, xi=1.0, **SETTING
    )
    assert np.isinf(bound).all()


def test_wrong_input_is_named() -> None:
    with pytest.raises(InputError, match="'gp-ucb', 'gp-bucb' or 'gp-ts'"):
        bayesian_regret_bound(1, gamma, algorithm="ucb", **SETTING)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="both omega and xi"):
        bayesian_regret_bound(1, gamma, algorithm="gp-bucb", omega=1.5, **SETTING)
    with pytest.raises(InputError, match="leave them out"):
        bayesian_regret_bound(1, gamma, algorithm="gp-ts", omega=1.5, **SETTING)
    with pytest.raises(InputError, match="rounds"):
        bayesian_regret_bound(0, gamma, algorithm="gp-ts", **SETTING)
    with pytest.raises(InputError, match="largest_eigenvalue"):
        variance_constant(-1.0, 0.1)
    with pytest.raises(InputError, match="budget"):
        bayesian_regret_bound(1, gamma, algorithm="gp-ts", **{**SETTING, "budget": 0})
    with pytest.raises(InputError, match="widths"):
        bayesian_regret_bound_of_widths([-1.0], gamma, **SETTING)


# --- Lemma 3.1 and Lemma A.13 -------------------------------------------------------------


@pytest.mark.parametrize(
    ("omega", "xi"), [(2.0, 1.0), (2.0, 2.0), (2.0, 3.0), (1.2, 0.5), (1.2, 1.3)]
)
def test_the_three_cases_bound_the_sum_and_what_it_bounds(
    omega: float, xi: float
) -> None:
    """|A|/√(2π)·Σ exp(−β_t/2) ≤ C_ω Σ t^{−ξ/ω} ≤ the case's closed form: eqs 25–33."""
    t = np.arange(1, 2001)
    plain = np.cumsum([s ** (-xi / omega) for s in range(1, 2001)]) * bucb_constant(
        omega
    )
    bound = bucb_exploration_term(t, omega, xi)
    assert (plain <= bound * (1.0 + 1e-12)).all()
    assert bound[-1] <= 5.0 * plain[-1]
    for arms in (1, 3, 50):
        beta = confidence_parameter(t, math.log(arms), omega=omega, xi=xi)
        missed = np.cumsum(arms / math.sqrt(2 * math.pi) * np.exp(-beta / 2))
        assert (missed <= plain * (1.0 + 1e-12)).all()


def test_the_three_cases_by_hand() -> None:
    constant = bucb_constant(2.0)
    assert float(bucb_exploration_term(100, 2.0, 1.0)) == pytest.approx(
        2.0 * 10.0 * constant
    )
    assert float(bucb_exploration_term(100, 2.0, 2.0)) == pytest.approx(
        (1 + math.log(100)) * constant
    )
    assert float(bucb_exploration_term(100, 2.0, 3.0)) == pytest.approx(3.0 * constant)
    assert np.isinf(bucb_exploration_term([1, 2], 1.0, 2.0)).all()


@pytest.mark.parametrize("omega", OMEGAS)
def test_which_constant_follows_from_chang(omega: float) -> None:
    """erfc(u) ≥ ϑ exp(−ωu²) holds for ϑ = C_ω^{−ω}; for Theorem 3.6's √(πω) it fails."""
    grid = [0.002 * i for i in range(1, 3000)]
    best = min(math.erfc(u) * math.exp(omega * u * u) for u in grid)
    theta = bucb_constant(omega) ** -omega
    assert theta == pytest.approx(
        math.sqrt(2 * math.e / math.pi) * math.sqrt(omega - 1) / omega
    )
    assert theta <= best
    printed = (math.sqrt(math.pi * omega) / math.sqrt(2 * math.e * (omega - 1))) ** (
        1 / omega
    )
    assert printed < bucb_constant(omega)
    assert printed**-omega > best


# --- any widths ---------------------------------------------------------------------------


def test_the_widths_bound_is_below_the_theorem() -> None:
    widths = [BayesianGPUCB(arms=50).width(t, gamma) for t in range(1, 201)]
    ours = bayesian_regret_bound_of_widths(widths, gamma, **SETTING)
    theirs = bayesian_regret_bound(
        np.arange(1, 201), gamma, algorithm="gp-ucb", **SETTING
    )
    assert (ours <= theirs).all()
    beta = confidence_parameter(np.arange(1, 201), math.log(50), omega=2.0, xi=3.0)
    ours = bayesian_regret_bound_of_widths(np.sqrt(beta), gamma, **SETTING)
    assert (
        ours <= bayesian_regret_bound(np.arange(1, 201), gamma, **BUCB, **SETTING)
    ).all()


def test_the_widths_bound_by_hand() -> None:
    normal = NormalDist()
    missed = sum(normal.pdf(w) - w * normal.cdf(-w) for w in (1.0, 2.0))
    explored = math.sqrt(4.2 * 3 * (1.0 + 4.0) * math.log(7))
    bound = bayesian_regret_bound_of_widths(
        [1.0, 2.0], gamma, **SETTING, largest_variance=4.0
    )
    assert float(bound[1]) == pytest.approx(2.0 * 50 * missed + explored, rel=1e-12)


def test_the_widths_bound_covers_the_experiments_bucb() -> None:
    widths = [BayesUCBQuantile(arms=50).width(t, gamma) for t in range(1, 1001)]
    bound = bayesian_regret_bound_of_widths(widths, gamma, **SETTING)
    assert np.isfinite(bound).all()
    assert bound[-1] / 1000 < 0.5 * bound[99] / 100  # sublinear


def test_rectified_regret_widens_the_root_by_what_lies_above_the_index() -> None:
    normal = NormalDist()
    above = [w + normal.pdf(w) - w * normal.cdf(-w) for w in (0.0, 2.0)]
    missed = sum(value - w for value, w in zip(above, (0.0, 2.0), strict=True))
    explored = math.sqrt(4.2 * 3 * sum(value**2 for value in above) * math.log(7))
    bound = bayesian_regret_bound_of_widths(
        [0.0, 2.0], gamma, **SETTING, rectified=True
    )
    assert float(bound[1]) == pytest.approx(50 * missed + explored, rel=1e-12)
    assert above[0] == pytest.approx(1.0 / math.sqrt(2.0 * math.pi))  # E[max(0, Z)]


# --- Lemma A.12 on runs -------------------------------------------------------------------


class RecordedRun(NamedTuple):
    regret: np.ndarray
    """(T,), cumulative"""
    variances_sum: np.ndarray
    information: np.ndarray
    largest_eigenvalue: float
    chosen: list[int]


X = np.random.default_rng(5).uniform(size=(10, 2))
KERNEL = SquaredExponential(lengthscale=0.4)
NOISE, K = 0.25, 3


def play(algorithm: str, rounds: int, seed: int, kernel: Any = KERNEL) -> RecordedRun:
    """Top-K of ten arms with a function drawn from the prior; only some arms offered."""
    rng = np.random.default_rng([seed, 17])
    f = rng.multivariate_normal(np.zeros(len(X)), kernel(X), method="eigh")
    gp = FiniteGP(kernel, X, noise_variance=NOISE)
    regret, variances, gains, eigenvalues, chosen = [], [], [], [0.0], []
    for t in range(1, rounds + 1):
        offered = np.sort(rng.choice(len(X), size=rng.integers(4, 11), replace=False))
        belief = gp.predict(offered, return_std=True)
        if algorithm == "gp-ts":
            index = gp.sample(offered, rng)
        elif algorithm == "gp-ucb":
            index = (
                belief.mean + BayesianGPUCB(arms=len(X)).width(t, gamma) * belief.std
            )
        else:
            index = belief.mean + BayesUCBQuantile(
                arms=len(X), omega=1.2, xi=2.0
            ).width(t, gamma) * (belief.std)
        picked = offered[np.argsort(np.ravel(index))[-K:]]
        cov = gp.predict(picked, return_cov=True).cov
        spectrum = np.linalg.eigvalsh(cov)
        eigenvalues.append(float(spectrum[-1]))
        variances.append(np.trace(cov))
        gains.append(0.5 * np.log1p(np.maximum(0.0, spectrum) / NOISE).sum())
        regret.append(np.sort(f[offered])[-K:].sum() - f[picked].sum())
        gp.observe(picked, f[picked] + math.sqrt(NOISE) * rng.standard_normal(K))
        chosen += picked.tolist()
    return RecordedRun(
        np.cumsum(regret),
        np.cumsum(variances),
        np.cumsum(gains),
        max(eigenvalues),
        chosen,
    )


@pytest.mark.parametrize("algorithm", ["gp-ucb", "gp-bucb", "gp-ts"])
@pytest.mark.parametrize(
    "kernel", [KERNEL, Matern(nu=0.5, lengthscale=0.1, variance=3.0)], ids=repr
)
def test_lemma_a12_on_recorded_runs(algorithm: str, kernel: Any) -> None:
    for seed in range(3):
        run = play(algorithm, 40, seed, kernel)
        assert run.information[-1] == pytest.approx(
            information_gain(kernel, X[run.chosen], NOISE), rel=1e-8
        )
        prior = prior_eigenvalue_bound(kernel, X, K).value
        assert run.largest_eigenvalue <= prior * (1 + 1e-9)
        measured, supremum = (
            variance_sum_bound(
                run.information, largest_eigenvalue=value, noise_variance=NOISE
            )
            for value in (run.largest_eigenvalue, prior)
        )
        assert (run.variances_sum <= measured).all()
        assert (measured <= supremum * (1.0 + 1e-9)).all()
        growth = ArmSetGrowth(
            kernel=kernel, features=X, noise_variance=NOISE, horizon=40 * K
        )
        assert run.information[-1] <= growth(40 * K)


@given(
    # Below 1e-290 the quotient by the noise would no longer have all of its digits.
    eigenvalues=st.lists(st.just(0.0) | st.floats(1e-290, 1e3), min_size=1, max_size=6),
    noise=st.floats(1e-3, 1e3),
)
def test_lemma_a12_on_one_round(eigenvalues: list[float], noise: float) -> None:
    gain = sum(0.5 * math.log1p(value / noise) for value in eigenvalues)
    bound = variance_sum_bound(
        gain, largest_eigenvalue=max(eigenvalues), noise_variance=noise
    )
    assert sum(eigenvalues) <= float(bound) * (1.0 + 1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["gp-ucb", "gp-ts", "gp-bucb"])
def test_bayesian_regret_stays_below_the_bounds(algorithm: Any) -> None:
    """The mean of 40 draws plus four standard errors, at every round."""
    rounds = 40
    curves = np.array([play(algorithm, rounds, seed).regret for seed in range(40)])
    upper = curves.mean(axis=0) + 4.0 * curves.std(axis=0, ddof=1) / math.sqrt(
        len(curves)
    )
    setting: dict[str, Any] = {
        "arms": len(X),
        "budget": K,
        "noise_variance": NOISE,
        "largest_eigenvalue": prior_eigenvalue_bound(KERNEL, X, K).value,
    }
    growth = ArmSetGrowth(
        kernel=KERNEL, features=X, noise_variance=NOISE, horizon=rounds * K
    )
    T = np.arange(1, rounds + 1)
    options = {"omega": 1.2, "xi": 2.0} if algorithm == "gp-bucb" else {}
    bound = bayesian_regret_bound(T, growth, algorithm=algorithm, **options, **setting)
    assert (upper <= bound).all()
    beta = confidence_parameter(T, math.log(len(X)), **options)
    ours = bayesian_regret_bound_of_widths(np.sqrt(beta), growth, **setting)
    assert (upper <= ours).all()
    assert (ours <= bound).all()
    assert (np.diff(curves, axis=1) >= -1e-12).all()


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["index", "joint samples"])
@pytest.mark.parametrize("width", [0.3, 1.5])
def test_rectified_regret_stays_below_its_bound(algorithm: str, width: float) -> None:
    """Costs around 0, where rectifying matters most; one width for the index and the analysis."""
    rounds, s = 25, math.sqrt(NOISE)
    curves = []
    for seed in range(40):
        rng = np.random.default_rng([seed, 29])
        f = rng.multivariate_normal(np.zeros(len(X)), KERNEL(X), method="eigh")
        gp = FiniteGP(KERNEL, X, noise_variance=NOISE)
        costs, everything = rectified_mean(f, s), np.arange(len(X))
        regret = []
        for _ in range(rounds):
            belief = gp.predict(everything, return_std=True)
            lower = belief.mean - width * belief.std
            index = (
                lower if algorithm == "index" else np.ravel(gp.sample(everything, rng))
            )
            picked = np.argsort(rectified_mean(index, s))[:K]
            regret.append(costs[picked].sum() - np.sort(costs)[:K].sum())
            gp.observe(picked, f[picked] + s * rng.standard_normal(K))
        curves.append(np.cumsum(regret))
    upper = np.mean(curves, axis=0) + 4.0 * np.std(curves, axis=0, ddof=1) / math.sqrt(
        len(curves)
    )
    bound = bayesian_regret_bound_of_widths(
        np.full(rounds, width),
        ArmSetGrowth(
            kernel=KERNEL, features=X, noise_variance=NOISE, horizon=rounds * K
        ),
        arms=len(X),
        budget=K,
        noise_variance=NOISE,
        largest_eigenvalue=prior_eigenvalue_bound(KERNEL, X, K).value,
        rectified=True,
    )
    assert (upper <= bound).all()
