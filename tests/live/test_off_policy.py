"""Off-policy estimates against brute force, and intervals that hold at every number of decisions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, norm

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.live.off_policy import (
    _LAMBDAS,
    _LOG_WEIGHTS,
    _PSI,
    RewardRange,
    _centres,
    _lower_mean,
    _lower_robust_mean,
    as_reward_range,
    doubly_robust,
    effective_size,
    inverse_propensity,
    self_normalised,
)

RANGE = RewardRange(low=-1.0, high=3.0)


class Log(NamedTuple):
    """Decisions of a policy that acts, of one among four super arms each."""

    rewards: Floats
    weights: Floats
    expected: Floats
    expected_of_chosen: Floats
    largest_weights: Floats
    value: float  # what the other policy earns in expectation


def simulate(n: int, seed: int, epsilon: float = 0.3) -> Log:
    """The other policy always takes super arm 1; the one that acts prefers arm 0 and explores.

    Rewards are −1 or 3, as noisy as the range allows.
    """
    rng = np.random.default_rng(seed)
    propensities = np.full(4, epsilon / 4)
    propensities[0] += 1.0 - epsilon
    chance_of_high = np.array([0.7, 0.4, 0.2, 0.9])
    chosen = rng.choice(4, size=n, p=propensities)
    rewards = np.where(rng.random(n) < chance_of_high[chosen], 3.0, -1.0)
    weights = (chosen == 1) / propensities[1]
    model = np.array([1.0, 0.2, 2.0, -5.0])  # wrong, and outside the range
    return Log(
        rewards=rewards,
        weights=weights,
        expected=np.full(n, model[1]),
        expected_of_chosen=model[chosen],
        largest_weights=np.full(n, 4 / epsilon),
        value=4.0 * 0.4 - 1.0,
    )


# --- estimates -----------------------------------------------------------------------------


@pytest.mark.parametrize("certain", [True, False])
def test_expectations_are_exact(certain: bool) -> None:
    """Enumerating what may be chosen: the mean of the estimates is the other policy's value."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(5))
    q = np.eye(5)[2] if certain else rng.dirichlet(np.ones(5))
    rewards = rng.normal(size=5)
    model = rng.normal(size=5)
    of_inverse = 0.0
    of_robust = 0.0
    for chosen in range(5):
        reward = np.full(2, rewards[chosen])
        weight = np.full(2, q[chosen] / p[chosen])
        of_inverse += p[chosen] * inverse_propensity(reward, weight, level=0.95).value
        robust = doubly_robust(
            reward,
            weight,
            expected=np.full(2, q @ model),
            expected_of_chosen=np.full(2, model[chosen]),
            largest_weights=None,
            level=0.95,
        )
        of_robust += p[chosen] * robust.value
    assert of_inverse == pytest.approx(q @ rewards)
    assert of_robust == pytest.approx(q @ rewards)


def test_self_normalised_is_a_weighted_mean() -> None:
    log = simulate(200, seed=1)
    estimate = self_normalised(log.rewards, log.weights, level=0.9)
    assert estimate.value == pytest.approx(np.average(log.rewards, weights=log.weights))
    assert estimate.interval == "asymptotic"
    shifted = self_normalised(log.rewards + 100.0, log.weights, level=0.9)
    assert shifted.value == pytest.approx(estimate.value + 100.0)
    assert shifted.upper - shifted.lower == pytest.approx(
        estimate.upper - estimate.lower
    )


def test_a_perfect_model_needs_no_weights() -> None:
    """Rewards without noise that the model predicts: all terms are equal."""
    weights = simulate(50, seed=2).weights
    rewards = np.full(50, 0.7)
    estimate = doubly_robust(
        rewards,
        weights,
        expected=rewards,
        expected_of_chosen=rewards,
        largest_weights=None,
        level=0.95,
    )
    assert estimate.lower == pytest.approx(0.7)
    assert estimate.upper == pytest.approx(0.7)


def test_asymptotic_intervals_are_the_normal_ones() -> None:
    log = simulate(300, seed=4)
    terms = log.weights * log.rewards
    estimate = inverse_propensity(log.rewards, log.weights, level=0.8)
    half_width = norm.ppf(0.9) * terms.std(ddof=1) / np.sqrt(300)
    assert estimate.upper - estimate.value == pytest.approx(half_width)
    assert estimate.value - estimate.lower == pytest.approx(half_width)


def test_effective_size() -> None:
    assert effective_size(np.full(7, 3.0)) == pytest.approx(7.0)
    assert effective_size(np.array([5.0, 0.0, 0.0])) == pytest.approx(1.0)
    assert effective_size(np.zeros(3)) == 0.0


def test_ranges_are_checked() -> None:
    with pytest.raises(InputError, match="must be below the second"):
        RewardRange(low=2.0, high=1.0)
    with pytest.raises(InputError, match="finite"):
        RewardRange(low=0.0, high=float("inf"))
    with pytest.raises(InputError, match=r"the reward 3.5, outside .* -1 to 3"):
        RANGE.check(np.array([0.0, 3.5]))
    bad: tuple[Any, ...] = (3.0, (), (1.0,), (0.0, 1.0, 2.0))
    for bounds in bad:
        with pytest.raises(InputError, match="must be two numbers"):
            as_reward_range(bounds)


# --- anytime intervals ---------------------------------------------------------------------


def test_fans_inequality() -> None:
    """exp(λξ − ψ(λ)ξ²) ≤ 1 + λξ for ξ ≥ −1, on a grid."""
    xi = np.concatenate([np.linspace(-1.0, 3.0, 801), np.geomspace(3.0, 1e4, 200)])
    for factor, psi in zip(_LAMBDAS, _PSI, strict=True):
        left = np.exp(factor * xi - psi * xi**2)
        assert (left <= 1.0 + factor * xi + 1e-12).all()


def test_mixture_weights_sum_to_at_most_one() -> None:
    assert logsumexp(_LOG_WEIGHTS) < 0.0
    assert ((_LAMBDAS > 0.0) & (_LAMBDAS < 1.0)).all()


def test_each_term_multiplies_a_component_by_at_most_one_on_average() -> None:
    """Exactly, for two-point terms of any weight: the process is a supermartingale."""
    for p in (0.003, 0.05, 0.5):
        for reward in (0.1, 1.0):
            x = np.array([0.0, reward / p])
            probabilities = np.array([1.0 - p, p])
            mean = probabilities @ x
            for centre in (0.0, 0.3, 1.0):
                for factor, psi in zip(_LAMBDAS, _PSI, strict=True):
                    growth = np.exp(factor * (x - mean) - psi * (x - centre) ** 2)
                    assert probabilities @ growth <= 1.0 + 1e-12


def test_the_bound_is_where_the_mixture_reaches_its_threshold() -> None:
    x = np.random.default_rng(5).exponential(size=80)
    alpha = 0.025
    for B in (1.0, 4.0):
        bound = _lower_mean(x, B, alpha)
        total = (x - bound).sum() / B
        variance = (((x - _centres(x)) / B) ** 2).sum()
        logs = _LOG_WEIGHTS + _LAMBDAS * total - _PSI * variance
        assert logsumexp(logs) == pytest.approx(-np.log(alpha))


def test_centres_depend_only_on_earlier_terms() -> None:
    x = np.random.default_rng(6).exponential(size=30)
    centres = _centres(x)
    for n in (1, 7, 29):
        np.testing.assert_array_equal(_centres(x[:n]), centres[:n])
    changed = x.copy()
    changed[10] += 5.0
    np.testing.assert_array_equal(_centres(changed)[:11], centres[:11])
    assert ((centres >= 0.0) & (centres <= 1.0)).all()


def test_the_robust_bound_is_the_best_of_all_cuts() -> None:
    """By hand for K = 0, 1, 2, 4: weights of at most 6 and predictions of at most 0.7.

    Predictions are good, so that one with a cut that matters is best: K = 2.
    """
    rng = np.random.default_rng(7)
    n = 1000
    u = rng.uniform(0.3, 0.7, size=n)
    y = np.clip(u + 0.1 * rng.standard_normal(n), 0.0, 1.0)
    largest = np.full(n, 6.0)
    weights = np.where(rng.random(n) < 1 / 6, 6.0, 0.0)
    alpha = 0.025
    bounds = []
    for j, K in enumerate((0.0, 1.0, 2.0, 4.0)):
        u_cut = np.minimum(u, K / 5.0)
        x = u_cut + weights * (y - u_cut)
        # No term is farther below its centre than B.
        assert (x - _centres(x)).min() >= -(1.0 + K)
        bounds.append(_lower_mean(x, 1.0 + K, alpha / ((j + 1) * (j + 2))))
    best = _lower_robust_mean(y, weights, u, largest, alpha)
    assert best == max(bounds)
    assert bounds.index(best) == 2


def test_doubly_robust_bounds_share_what_may_fail() -> None:
    """Each end may fail with half of 1 − level, and K = 0 has half of that.

    Predictions at the low end of the range have nothing to cut: what remains is inverse propensity.
    """
    log = simulate(2000, seed=1)
    low = np.full(2000, RANGE.low)
    robust = doubly_robust(
        log.rewards,
        log.weights,
        expected=low,
        expected_of_chosen=low,
        largest_weights=log.largest_weights,
        level=0.9,
        reward_range=RANGE,
    )
    inverse = inverse_propensity(
        log.rewards, log.weights, level=0.95, reward_range=RANGE
    )
    assert robust.lower == pytest.approx(inverse.lower, rel=1e-12)
    assert robust.lower > RANGE.low


def test_the_robust_bound_gains_from_good_predictions() -> None:
    """At many decisions it is much tighter than inverse propensity."""
    rng = np.random.default_rng(8)
    n = 20_000
    y = np.clip(0.6 + 0.05 * rng.standard_normal(n), 0.0, 1.0)
    weights = np.where(rng.random(n) < 0.1, 10.0, 0.0)
    largest = np.full(n, 10.0)
    robust = _lower_robust_mean(y, weights, np.full(n, 0.6), largest, 0.025)
    inverse = _lower_mean(weights * y, 1.0, 0.025)
    assert 0.6 - robust < 0.3 * (0.6 - inverse)


def test_weights_of_one_need_no_cut() -> None:
    y = np.random.default_rng(9).random(50)
    ones = np.ones(50)
    bound = _lower_robust_mean(y, ones, np.full(50, 0.5), ones, 0.025)
    assert bound == _lower_mean(y, 1.0, 0.025 / 2)


def test_intervals_contain_the_estimate_and_stay_in_the_range() -> None:
    for seed in range(20):
        log = simulate(5, seed)
        robust = doubly_robust(
            log.rewards,
            log.weights,
            expected=log.expected,
            expected_of_chosen=log.expected_of_chosen,
            largest_weights=log.largest_weights,
            level=0.95,
            reward_range=RANGE,
        )
        inverse = inverse_propensity(
            log.rewards, log.weights, level=0.95, reward_range=RANGE
        )
        for estimate in (robust, inverse):
            assert -1.0 <= estimate.lower <= estimate.upper <= 3.0
            inside = np.clip(estimate.value, -1.0, 3.0)
            assert estimate.lower <= inside <= estimate.upper


def test_intervals_cover_at_all_sizes_at_once() -> None:
    """100 logs, each looked at five times: at level 80 %, all looks of 80 % of the logs cover.

    The count of logs with a failure is at most binomial(100, 0.2). It exceeds its 99.99 % quantile
    with probability 1e-4, if the bound were tight.
    """
    runs = 100
    most_failures = binom.ppf(0.9999, runs, 0.2)
    failures = {"inverse": 0, "robust": 0}
    for seed in range(runs):
        log = simulate(1000, seed, epsilon=0.8)
        failed = {"inverse": False, "robust": False}
        for n in (4, 16, 64, 250, 1000):
            rewards = log.rewards[:n]
            weights = log.weights[:n]
            inverse = inverse_propensity(
                rewards, weights, level=0.8, reward_range=RANGE
            )
            robust = doubly_robust(
                rewards,
                weights,
                expected=log.expected[:n],
                expected_of_chosen=log.expected_of_chosen[:n],
                largest_weights=log.largest_weights[:n],
                level=0.8,
                reward_range=RANGE,
            )
            for name, estimate in (("inverse", inverse), ("robust", robust)):
                covers = estimate.lower <= log.value <= estimate.upper
                failed[name] |= not covers
        for name, has_failed in failed.items():
            failures[name] += has_failed
    assert max(failures.values()) <= most_failures
    # They are of use: far narrower than the range at 1000 decisions.
    assert inverse.upper - inverse.lower < 0.4 * 4.0
    assert robust.upper - robust.lower < 0.4 * 4.0
