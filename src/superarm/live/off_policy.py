"""Off-policy estimates: what another policy would have earned, from the rewards of the one that acted.

Notation, for the n decisions whose rewards are all known

=========  ======================================================================================
``r_i``    reward of the super arm S_i that was chosen: the sum of its arms' rewards
``p_i``    propensity of S_i: its probability under the policy that acted
``q_i``    probability of S_i under the other policy, at the same offer
``w_i``    weight q_i/p_i, at most W_i; its mean under the policy that acted is 1
``V_i``    what the other policy earns at offer i in expectation: the estimates are of (1/n) Σ V_i
``m(S)``   the other policy's prediction of the reward of S, from rewards before decision i alone
``v_i``    mean of m(S) over the other policy's own choices S
``a, b``   least and greatest possible reward of a decision
=========  ======================================================================================

Estimates

- *inverse propensity*: (1/n) Σ w_i r_i [horvitz1952generalization]. Unbiased.
- *self-normalised*: Σ w_i r_i / Σ w_i [swaminathan2015self]. Slightly biased, of less variance.
- *doubly robust*: (1/n) Σ v_i + w_i (r_i − m(S_i)) [dudik2014doubly]. Unbiased, because m is fixed before
  S_i is drawn; of little variance where m is good.

Intervals

Weights are heavy-tailed, so normal intervals cover too rarely in small samples. If the range [a, b]
is known, intervals are *anytime*: with probability ``level`` they contain the mean at every n at once,
however often you look. They need no normality and no large n, and V_i may change from decision to
decision, as it does while the other policy learns.

Derivation. Let x_i ≥ c_i − B, where c_i depends only on x_1 … x_{i−1} and what was known before S_i was
drawn, and let μ_i be the mean of x_i given all that. With ψ(λ) = −log(1 − λ) − λ and 0 ≤ λ < 1, Fan's
inequality [fan2015exponential], exp(λξ − ψ(λ)ξ²) ≤ 1 + λξ for ξ ≥ −1, applied to ξ = (x_i − c_i)/B, gives

    E exp(λ (x_i − μ_i)/B − ψ(λ) (x_i − c_i)²/B²) ≤ (1 + λ(μ_i − c_i)/B) exp(−λ(μ_i − c_i)/B) ≤ 1.

So exp(λ Σ(x_i − μ_i)/B − ψ(λ) Σ(x_i − c_i)²/B²) is a supermartingale that begins at 1, and so is any mixture
of them over λ. By Ville's inequality, a mixture exceeds 1/α at any n with probability at most α. Solved
for Σ μ_i, this is a lower bound of the mean (:func:`_lower_mean`). λ is constant over time, hence the bound is
of the plain mean of μ_i, not of a weighted one as with the λ_i of [waudbysmith2024anytime].

- Inverse propensity: x_i = w_i (r_i − a)/(b − a) ≥ 0, so B = 1 whatever the weights. The upper bound is the
  lower one of x_i = w_i (b − r_i)/(b − a), since the mean of w_i b is b.
- Doubly robust, for another policy without chance, whose weight is 0 except for its own choice: with m cut
  to [a, b], x_i = u_i + w_i (y_i − u_i) for the scaled v_i and r_i. It may be as low as −(W_i − 1) u_i. So u_i
  is cut to K/(W_i − 1), which does not change the mean of x_i, and B = 1 + K. K = 0 is inverse propensity; a
  larger K pays once n is large. The bound is the best of K = 0, 1, 2, 4, 8, …, which share α: the j-th of them,
  from j = 0, has 1/((j + 1)(j + 2)) of it. The upper bound is the lower one of 1 − y_i and 1 − u_i.

Without the range, and for the self-normalised estimate, intervals are *asymptotic*: estimate ± z standard
errors, which cover only if n is large and no weight dominates.

All of this assumes that the reward of a decision depends on its offer and super arm, not on other
decisions; and that decisions whose rewards are missing do not differ from the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from superarm.core import Floats
from superarm.core.display import Displayable
from superarm.core.errors import InputError
from superarm.core.inputs import as_number

_COMPONENTS = np.arange(40.0)
# λ = 1/2, 1/4, … with weights 1/2, 1/6, 1/12, …, whose sum is below 1.
_LAMBDAS: Floats = np.exp2(-(_COMPONENTS + 1.0))
_LOG_WEIGHTS: Floats = -np.log((_COMPONENTS + 1.0) * (_COMPONENTS + 2.0))
_PSI: Floats = -np.log1p(-_LAMBDAS) - _LAMBDAS


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Displayable):
    """An estimate of the mean reward of a decision, with an interval."""

    value: float
    lower: float
    upper: float
    level: float
    """Probability that the interval covers, such as 0.95."""
    interval: Literal["anytime", "asymptotic"]
    """``anytime``: covers at every n at once. ``asymptotic``: covers only if n is large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRange:
    """The least and the greatest reward that a decision can have.

    Args:
        low: The least reward of a decision: the sum over its arms.
        high: The greatest reward of a decision.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low = as_number(self.low, "low")
        high = as_number(self.high, "high")
        if not low < high:
            raise InputError(
                f"the first number of reward_range must be below the second, got {low} and {high}"
            )

    def scaled(self, rewards: Floats) -> Floats:
        """Rewards in units of the range, from 0 to 1, (n,).

        Args:
            rewards: Rewards in the user's unit, (n,).
        """
        return (rewards - self.low) / (self.high - self.low)

    def unscaled(self, share: float) -> float:
        """A share of the range as a reward.

        Args:
            share: From 0 to 1.
        """
        return self.low + (self.high - self.low) * share

    def check(self, rewards: Floats) -> None:
        """Refuse rewards outside the range: intervals would be wrong.

        Args:
            rewards: Rewards of decisions, (n,).
        """
        outside = (rewards < self.low) | (rewards > self.high)
        if outside.any():
            reward = float(rewards[outside][0])
            raise InputError(
                f"a decision has the reward {reward:g}, outside the range {self.low:g} to "
                f"{self.high:g}; reward_range must cover the sum over all arms of a decision"
            )


def as_reward_range(bounds: tuple[float, float] | None) -> RewardRange | None:
    """The range that a user stated.

    Args:
        bounds: The least and the greatest reward of a decision; ``None``: not known.
    """
    if bounds is None:
        return None
    try:
        low, high = bounds
    except (TypeError, ValueError):
        raise InputError(
            f"reward_range must be two numbers, as in (0.0, 1.0), got {bounds!r:.60}"
        ) from None
    return RewardRange(low=low, high=high)


def check_level(level: float) -> None:
    """Refuse a level outside (0, 1).

    Args:
        level: Probability that an interval covers.
    """
    as_number(level, "level", 0.0, 1.0)
    if level in (0.0, 1.0):
        raise InputError(f"level must be between 0 and 1, got {level}")


# --- estimates -----------------------------------------------------------------------------


def inverse_propensity(
    rewards: Floats,
    weights: Floats,
    *,
    level: float,
    reward_range: RewardRange | None = None,
) -> Estimate:
    """The mean of weighted rewards.

    Args:
        rewards: r, (n,).
        weights: w, (n,).
        level: Probability that the interval covers.
        reward_range: The range of rewards; ``None``: not known; the interval is then asymptotic.
    """
    terms = weights * rewards
    if reward_range is None:
        return _asymptotic(terms, level)
    alpha = (1.0 - level) / 2.0
    scaled = reward_range.scaled(rewards)
    lower = _lower_mean(weights * scaled, 1.0, alpha)
    upper = 1.0 - _lower_mean(weights * (1.0 - scaled), 1.0, alpha)
    return _anytime(float(terms.mean()), lower, upper, level, reward_range)


def self_normalised(rewards: Floats, weights: Floats, *, level: float) -> Estimate:
    """The weighted mean of rewards; its interval is asymptotic.

    Args:
        rewards: r, (n,).
        weights: w, (n,), of which one at least is positive.
        level: Probability that the interval covers.
    """
    total = float(weights.sum())
    value = float(weights @ rewards) / total
    # The delta method: the variance of Σ w (r − value), over the square of Σ w.
    deviations = weights * (rewards - value)
    standard_error = math.sqrt(float(deviations @ deviations)) / total
    return _normal(value, standard_error, level)


def doubly_robust(
    rewards: Floats,
    weights: Floats,
    *,
    expected: Floats,
    expected_of_chosen: Floats,
    largest_weights: Floats | None,
    level: float,
    reward_range: RewardRange | None = None,
) -> Estimate:
    """The mean of predictions, corrected by weighted errors of prediction.

    Args:
        rewards: r, (n,).
        weights: w, (n,).
        expected: v: predicted reward of the other policy's own choice, (n,).
        expected_of_chosen: m(S): predicted reward of what was chosen, (n,).
        largest_weights: W, (n,), if the other policy draws nothing; ``None``: it draws, and the
            interval is asymptotic.
        level: Probability that the interval covers.
        reward_range: The range of rewards; ``None``: not known; the interval is then asymptotic.
    """
    if reward_range is None or largest_weights is None:
        return _asymptotic(expected + weights * (rewards - expected_of_chosen), level)
    scaled = reward_range.scaled(rewards)
    # Where the weight is not 0, what was chosen is the other policy's own choice.
    u = np.clip(reward_range.scaled(expected), 0.0, 1.0)
    alpha = (1.0 - level) / 2.0
    lower = _lower_robust_mean(scaled, weights, u, largest_weights, alpha)
    upper = 1.0 - _lower_robust_mean(
        1.0 - scaled, weights, 1.0 - u, largest_weights, alpha
    )
    terms = u + weights * (scaled - u)
    value = reward_range.unscaled(float(terms.mean()))
    return _anytime(value, lower, upper, level, reward_range)


def effective_size(weights: Floats) -> float:
    """Decisions of weight 1 that would be as informative: (Σ w)²/Σ w²; 0 if all weights are 0.

    Args:
        weights: w, (n,).
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0


# --- intervals -----------------------------------------------------------------------------


def _anytime(
    value: float, lower: float, upper: float, level: float, reward_range: RewardRange
) -> Estimate:
    """An estimate between bounds in units of the range."""
    inside = min(max(value, reward_range.low), reward_range.high)
    lowest = reward_range.unscaled(max(lower, 0.0))
    highest = reward_range.unscaled(min(upper, 1.0))
    return Estimate(
        value=value,
        # The two bounds stem from two estimates: the interval contains what lies between.
        lower=min(lowest, inside),
        upper=max(highest, inside),
        level=level,
        interval="anytime",
    )


def _asymptotic(terms: Floats, level: float) -> Estimate:
    standard_error = float(terms.std(ddof=1)) / math.sqrt(len(terms))
    return _normal(float(terms.mean()), standard_error, level)


def _normal(value: float, standard_error: float, level: float) -> Estimate:
    half_width = float(ndtri((1.0 + level) / 2.0)) * standard_error
    return Estimate(
        value=value,
        lower=value - half_width,
        upper=value + half_width,
        level=level,
        interval="asymptotic",
    )


def _lower_robust_mean(
    y: Floats, weights: Floats, u: Floats, largest_weights: Floats, alpha: float
) -> float:
    """The best of the lower bounds with predictions cut at K = 0, 1, 2, 4, …

    Args:
        y: Scaled rewards, (n,).
        weights: w, (n,).
        u: Scaled predictions of the other policy's own choice, (n,).
        largest_weights: W, (n,).
        alpha: The probability that the bound fails.
    """
    excess = np.maximum(largest_weights - 1.0, 0.0)
    deepest = float((excess * u).max())
    bounds = []
    j = 0
    K = 0.0
    while True:
        # A weight that never exceeds 1 needs no cut.
        cut = np.divide(K, excess, out=np.ones_like(excess), where=excess > 0.0)
        u_cut = np.minimum(u, cut)
        x = u_cut + weights * (y - u_cut)
        bounds.append(_lower_mean(x, 1.0 + K, alpha / ((j + 1) * (j + 2))))
        if deepest <= K:
            return max(bounds)
        K = 2.0**j
        j += 1


def _lower_mean(x: Floats, B: float, alpha: float) -> float:
    """A bound below the mean of μ_1 … μ_n, at every n at once, with probability 1 − α.

    Args:
        x: The terms, each at least its centre − B, (n,).
        B: How far a term can be below its centre.
        alpha: The probability that the bound fails.
    """
    scaled_deviations = (x - _centres(x)) / B
    squares = float(scaled_deviations @ scaled_deviations)  # Σ (x − c)²/B²
    log_threshold = -math.log(alpha)

    def log_excess(total: float) -> float:
        """The logarithm of the mixture, less that of 1/α, if Σ (x − μ)/B is ``total``."""
        log_components = _LOG_WEIGHTS + _LAMBDAS * total - _PSI * squares
        log_mixture = float(np.logaddexp.reduce(log_components))
        return log_mixture - log_threshold

    # A component by itself reaches 1/α later than the mixture.
    component_totals = (log_threshold + _PSI * squares - _LOG_WEIGHTS) / _LAMBDAS
    highest = float(component_totals.min())
    largest_total = float(brentq(log_excess, 0.0, highest))
    return float(x.mean()) - B * largest_total / len(x)


def _centres(x: Floats) -> Floats:
    """c: the mean of the terms before each, cut to [0, 1]; ½ counts as one term more, (n,)."""
    counts = np.arange(1.0, len(x) + 1.0)
    before = np.concatenate([[0.0], np.cumsum(x)[:-1]])
    return np.clip((0.5 + before) / counts, 0.0, 1.0)
