"""Index rules: formulas, tails, moments, and their deterministic flags."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from superarm.core import Floats, Rule
from superarm.core.errors import InputError
from superarm.rules import (
    UCB,
    BayesUCB,
    BayesUCBQuantile,
    ExpectedImprovement,
    Fixed,
    Greedy,
    ImprovedGPUCB,
    ProbabilityOfImprovement,
    Random,
    Thompson,
)
from superarm.rules.improvement import CERTAIN, log_expected_improvement


def frozen(values: object) -> Floats:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


@dataclass
class FakeBelief:
    """Read-only arrays: a rule that writes into its belief fails every test here."""

    mean: Floats = field(default_factory=lambda: frozen([0.3, -1.0, 0.9]))
    std: Floats = field(default_factory=lambda: frozen([0.5, 2.0, 0.1]))
    incumbent: float = 0.4
    information_gain: float = 2.0
    noise_std: float = 0.1
    correlation: float = 0.8

    @property
    def cov(self) -> Floats:
        n = len(self.mean)
        base = self.correlation * np.ones((n, n)) + (1.0 - self.correlation) * np.eye(n)
        return base * np.outer(self.std, self.std)

    def sample(self, rng: np.random.Generator) -> Floats:
        draw = self.mean + np.linalg.cholesky(self.cov) @ rng.standard_normal(
            len(self.mean)
        )
        return frozen(draw)

    def condition(self, positions: object) -> FakeBelief:
        return self

    def negated(self) -> FakeBelief:
        return self


RULES: list[Rule] = [
    UCB(schedule=Fixed(value=2.0)),
    BayesUCB(schedule=BayesUCBQuantile(arms=10)),
    Thompson(),
    Thompson(mode="independent"),
    Thompson(schedule=Fixed(value=2.0)),
    ExpectedImprovement(),
    ExpectedImprovement(scale="linear"),
    ProbabilityOfImprovement(),
    ProbabilityOfImprovement(scale="linear"),
    Greedy(),
    Random(),
]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_the_deterministic_flag_is_truthful(rule: Rule) -> None:
    generator = rng()
    before = generator.bit_generator.state
    first = rule.desirability(FakeBelief(), 3, generator)
    assert (generator.bit_generator.state == before) == rule.deterministic
    second = rule.desirability(FakeBelief(), 3, rng())
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_desirability_is_fresh_finite_and_writable(rule: Rule) -> None:
    belief = FakeBelief()
    index = rule.desirability(belief, 3, rng())
    assert index.shape == (3,)
    assert index.dtype == np.float64
    assert np.isfinite(index).all()
    index[0] = -np.inf
    assert belief.mean[0] == 0.3


def test_ucb_is_mean_plus_width_times_std() -> None:
    index = UCB(schedule=Fixed(value=2.0)).desirability(FakeBelief(), 1, rng())
    np.testing.assert_allclose(index, [1.3, 3.0, 1.1], rtol=1e-15)


def test_ucb_takes_the_realised_gain_unless_gamma_is_given() -> None:
    schedule = ImprovedGPUCB(norm_bound=1.0, noise_bound=0.5)
    belief = FakeBelief()
    realised = UCB(schedule=schedule).desirability(belief, 4, rng())
    explicit = UCB(schedule=schedule, gamma=lambda t: 2.0).desirability(
        belief, 4, rng()
    )
    other = UCB(schedule=schedule, gamma=lambda t: 7.0 * t).desirability(
        belief, 4, rng()
    )
    np.testing.assert_array_equal(realised, explicit)
    width = 1.0 + 0.5 * math.sqrt(2.0 * (21.0 + 1.0 + math.log(10.0)))
    np.testing.assert_allclose(other, belief.mean + width * belief.std, rtol=1e-14)


def test_bayes_ucb_is_the_posterior_quantile() -> None:
    schedule = BayesUCBQuantile(arms=10)
    belief = FakeBelief()
    index = BayesUCB(schedule=schedule).desirability(belief, 5, rng())
    eta = math.sqrt(2.0 * math.pi) / (2.0 * 10.0 * 5.0)
    np.testing.assert_allclose(
        index, norm.isf(eta, belief.mean, belief.std), rtol=1e-12
    )
    np.testing.assert_array_equal(
        index, UCB(schedule=schedule).desirability(belief, 5, rng())
    )


def test_bayes_ucb_rejects_invalid_quantiles() -> None:
    with pytest.raises(InputError, match="Fixed is not a quantile"):
        BayesUCB(schedule=Fixed(value=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["joint", "independent"])
def test_thompson_moments(mode: str) -> None:
    """Five standard errors: sd/√m for a mean, √((1+ρ²)/m)·s_i·s_j for a covariance."""
    draws, v = 20_000, 1.5
    rule = Thompson(mode=mode, schedule=Fixed(value=v))  # type: ignore[arg-type]
    belief, generator = FakeBelief(), rng(1)
    samples = np.array([rule.desirability(belief, 1, generator) for _ in range(draws)])
    cov = belief.cov if mode == "joint" else np.diag(belief.std**2)
    target = v**2 * cov
    sd = np.sqrt(np.diagonal(target))
    assert (
        np.abs(samples.mean(axis=0) - belief.mean) < 5.0 * sd / math.sqrt(draws)
    ).all()
    error = np.sqrt((target**2 + np.outer(sd, sd) ** 2) / draws)
    assert (np.abs(np.cov(samples.T) - target) < 5.0 * error).all()


def test_thompson_without_a_schedule_is_the_sample_itself() -> None:
    belief = FakeBelief()
    index = Thompson().desirability(belief, 1, rng(3))
    np.testing.assert_array_equal(index, belief.sample(rng(3)))


@pytest.mark.parametrize(
    ("mean", "std"), [(0.3, 0.5), (-1.0, 2.0), (0.9, 0.1), (3.0, 0.2)]
)
def test_expected_improvement_is_the_integral(mean: float, std: float) -> None:
    belief = FakeBelief(mean=frozen([mean]), std=frozen([std]))
    threshold = belief.incumbent + 0.01
    integral, _ = quad(
        lambda f: max(0.0, f - threshold) * norm.pdf(f, mean, std),
        mean - 12.0 * std,
        mean + 12.0 * std,
        points=[threshold],
        epsabs=1e-14,
    )
    linear = ExpectedImprovement(scale="linear").desirability(belief, 1, rng())
    assert linear[0] == pytest.approx(integral, rel=1e-9)
    logarithm = ExpectedImprovement().desirability(belief, 1, rng())
    assert logarithm[0] == pytest.approx(math.log(integral), rel=1e-9)


@pytest.mark.parametrize(
    ("z", "expected"),  # ln(½(φ(z) + zΦ(z))), in 900-digit arithmetic
    [
        (-40.0, -808.99171553717991),
        (-38.0, -730.88933058267368),
        (-10.0, -56.246269216682301),
        (-1.0, -3.1782682062725866),
        (0.0, -1.6120857137646181),
        (2.0, 0.0042363652282830028),
        (35.0, 2.8622008809294684),
        (60.0, 3.4011973816621554),
    ],
)
@pytest.mark.parametrize("companion", [0.5, 0.0], ids=["fast", "careful"])
def test_log_expected_improvement_far_in_both_tails(
    z: float, expected: float, companion: float
) -> None:
    index = log_expected_improvement(
        frozen([0.5 * z, 0.0]), frozen([0.5, companion]), 0.0
    )
    assert index[0] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_expected_improvement_preserves_order_under_underflow() -> None:
    z = -np.array([30.0, 39.0, 40.0, 100.0, 9e3, 1.1e4, 1e5, 1e7, 1e12, 1e140])
    index = ExpectedImprovement(xi=0.0).desirability(
        FakeBelief(mean=frozen(z), std=frozen(np.ones(len(z))), incumbent=0.0), 1, rng()
    )
    assert (np.diff(index) < 0.0).all()
    assert np.isfinite(index).all()


def test_branches_of_log_expected_improvement_agree() -> None:
    z = np.concatenate([-np.geomspace(1e-3, 9.9e3, 60), np.geomspace(1e-3, 37.0, 40)])
    std = np.geomspace(0.01, 3.0, len(z))
    fast = np.array(
        [
            log_expected_improvement(frozen([m]), frozen([s]), 0.0)[0]
            for m, s in zip(z * std, std, strict=True)
        ]
    )
    careful = log_expected_improvement(
        frozen([*(z * std), 0.0]), frozen([*std, 0.0]), 0.0
    )[:-1]
    np.testing.assert_allclose(fast, careful, rtol=1e-12, atol=1e-12)
    below = log_expected_improvement(frozen([-9999.0, 0.0]), frozen([1.0, 0.0]), 0.0)[0]
    above = log_expected_improvement(frozen([-10001.0, 0.0]), frozen([1.0, 0.0]), 0.0)[
        0
    ]
    # d/dz ln EI ≈ −z there; the asymptotic form is good to 3/z² = 3e-8
    assert below - above == pytest.approx(2.0 * 1e4, rel=1e-7)


def test_expected_improvement_without_uncertainty_is_exact() -> None:
    belief = FakeBelief(mean=frozen([1.0, 0.41, 0.2]), std=frozen([0.0, 0.0, 0.0]))
    linear = ExpectedImprovement(scale="linear").desirability(belief, 1, rng())
    np.testing.assert_allclose(linear, [0.59, 0.0, 0.0], rtol=1e-14, atol=1e-16)
    logarithm = ExpectedImprovement().desirability(belief, 1, rng())
    assert logarithm[0] == pytest.approx(math.log(0.59))
    assert logarithm[2] == -CERTAIN
    tied = FakeBelief(
        mean=frozen([0.4, 0.9]), std=frozen([0.0, 0.0])
    )  # no better than the incumbent
    assert ExpectedImprovement(xi=0.0).desirability(tied, 1, rng())[0] == -CERTAIN


def test_nan_is_passed_on_for_the_oracle_to_refuse() -> None:
    belief = FakeBelief(mean=frozen([np.nan, 0.0]), std=frozen([1.0, 1.0]))
    for rule in (ExpectedImprovement(), ProbabilityOfImprovement()):
        assert np.isnan(rule.desirability(belief, 1, rng())).tolist() == [True, False]


def test_probability_of_improvement() -> None:
    belief = FakeBelief()
    z = (belief.mean - 0.41) / belief.std
    np.testing.assert_allclose(
        ProbabilityOfImprovement().desirability(belief, 1, rng()), z, rtol=1e-14
    )
    np.testing.assert_allclose(
        ProbabilityOfImprovement(scale="linear").desirability(belief, 1, rng()),
        ndtr(z),
        rtol=1e-13,
    )


def test_probability_of_improvement_without_uncertainty_is_one_or_zero() -> None:
    belief = FakeBelief(
        mean=frozen([1.0, 0.5, 0.2, 0.9]),
        std=frozen([0.0, 0.0, 0.0, 0.7]),
        incumbent=0.5,
    )
    linear = ProbabilityOfImprovement(xi=0.0, scale="linear").desirability(
        belief, 1, rng()
    )
    np.testing.assert_allclose(linear, [1.0, 0.0, 0.0, ndtr(0.4 / 0.7)], rtol=1e-14)
    score = ProbabilityOfImprovement(xi=0.0).desirability(belief, 1, rng())
    assert score.argmax() == 0
    assert np.isfinite(score).all()


def test_greedy_and_random() -> None:
    belief = FakeBelief()
    np.testing.assert_array_equal(Greedy().desirability(belief, 1, rng()), belief.mean)
    scores = Random().desirability(belief, 1, rng(5))
    other = FakeBelief(mean=frozen([9.0, 9.0, 9.0]))
    np.testing.assert_array_equal(scores, Random().desirability(other, 1, rng(5)))
    assert ((scores >= 0.0) & (scores < 1.0)).all()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Thompson(mode="both"), "mode"),  # type: ignore[arg-type]
        (lambda: ExpectedImprovement(xi=math.nan), "xi"),
        (lambda: ExpectedImprovement(scale="score"), "scale"),  # type: ignore[arg-type]
        (lambda: ProbabilityOfImprovement(scale="log"), "scale"),  # type: ignore[arg-type]
        (lambda: UCB(schedule={"name": "fixed"}), "must be a schedule"),  # type: ignore[arg-type]
        (lambda: UCB(schedule=3), "schedule must be a schedule .*, got 3"),  # type: ignore[arg-type]
        (lambda: UCB(schedule=None), "schedule must be .*, got None"),  # type: ignore[arg-type]
        (lambda: UCB(schedule=Fixed), "must be a schedule"),  # type: ignore[arg-type]
        (lambda: UCB(schedule=Fixed(value=1.0), gamma="linear"), "gain"),  # type: ignore[arg-type]
        (lambda: Thompson(schedule="fixed"), "must be a schedule"),  # type: ignore[arg-type]
        (
            lambda: Thompson(schedule=Fixed(value=1.0), gamma=2.0),
            "gamma must be .*, got 2.0",
        ),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters_are_named(make: Callable[[], Rule], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make()


def test_importing_rules_loads_no_part_of_scipy() -> None:
    code = "import sys, superarm.rules; print([name for name in sys.modules if name.startswith('scipy.')])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_log_expected_improvement_where_only_the_product_overflows() -> None:
    """erfcx(w) is finite at w = −26.6 and w·erfcx(w) is not: no warning, and ln of the sure gain."""
    z = 26.6 * math.sqrt(2.0)
    index = log_expected_improvement(frozen([0.5 * z, 0.0]), frozen([0.5, 0.5]), 0.0)
    assert index[0] == pytest.approx(math.log(0.5 * z), rel=1e-12)
    assert index[1] == pytest.approx(
        math.log(0.5 / math.sqrt(2.0 * math.pi)), rel=1e-12
    )
