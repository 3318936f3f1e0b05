"""From a belief to one desirability per arm; larger is better.

=================  ===================================================================
``μ``, ``σ``       ``belief.mean``, ``belief.std``, (n,)
``f⁺``             ``belief.incumbent``, the highest posterior mean among observed arms
``ξ``              ``xi``, by how much an improvement must exceed ``f⁺``
``z``              (μ − f⁺ − ξ)/σ
=================  ===================================================================

Desirabilities are finite and fresh: callers may write into them, beliefs are never changed.
−∞ would say "not available", so an arm that is merely hopeless gets ``−CERTAIN`` instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from superarm.core import Belief, Floats, Gamma, Schedule
from superarm.core.capabilities import Ranking
from superarm.core.errors import InputError
from superarm.core.inputs import as_generator, as_number, require_choice
from superarm.core.registry import register

from .base import require_part, special
from .bayesian import QuantileSchedule

CERTAIN = 1e300  # stands for an infinite score: finite, so that sums over a super arm stay finite too
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_SLOPE = -_ROOT_HALF  # −√π/√(2π)
_LARGEST_SQUARE = (
    1e10  # |w| ≤ 1e5 keeps 1 − √π·w·erfcx(w) ≈ 1/(2w²) good to five digits or more
)
_ASYMPTOTIC = 1e4
_LOG_DENSITY = math.log(_DENSITY)


@register("rule", "ucb")
@dataclass(frozen=True, kw_only=True)
class UCB:
    """Optimism: μ + width·σ.

    ``gamma`` is what the schedule takes for γ_t: a bound, or ``None`` for the information
    gain that the belief has realised so far (then the argument t is ignored). With super
    arms, t counts rounds; wrap ``gamma`` to count observations.

    srinivas2010gaussian, Algorithm 1; the schedules cite their own sources.

    Args:
        schedule: How wide the confidence bound is in each round.
        gamma: The information gain that the schedule is given; where left out, the gain realised so
            far.
    """

    schedule: Schedule
    gamma: Gamma | None = None

    def __post_init__(self) -> None:
        require_part(self.schedule, "schedule", "schedule")
        require_part(self.gamma, "gamma", "gain", optional=True)

    deterministic = True

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        index: Floats = belief.std * _width(self.schedule, self.gamma, belief, step)
        index += belief.mean
        return index


@register("rule", "bayes-ucb")
@dataclass(frozen=True, kw_only=True)
class BayesUCB(UCB):
    """The posterior quantile Q(1 − η_t, N(μ, σ²)).

    For a Gaussian this *is* μ + Φ⁻¹(1 − η_t)·σ (sandberg2025bayesian, section 2.2, after
    kaufmann2012bayesian): UCB under another name, restricted to schedules that are quantiles.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.schedule, QuantileSchedule):
            advice = "use UCB with it, or BayesUCB with a bayes-ucb or simple-quantile schedule"
            raise InputError(
                f"{type(self.schedule).__name__} is not a quantile; {advice}"
            )


@register("rule", "thompson")
@dataclass(frozen=True, kw_only=True)
class Thompson:
    """A draw from the posterior, its deviation from the mean scaled by v_t.

    ``joint`` draws all arms together: μ + v·(f̃ − μ), f̃ from the joint posterior
    (chowdhury2017kernelized, Algorithm 2). ``independent`` draws each arm from its own
    marginal: μ + v·σ·ε, ε standard normal (the experiments of sandberg2025bayesian;
    cheaper, and without the correlation that the theorems assume). v_t = 1 without a schedule.

    Args:
        mode: Joint draws all arms together, independent draws each from its own marginal.
        schedule: How wide the confidence bound is in each round.
        gamma: The information gain that the schedule is given; where left out, the gain realised so
            far.
    """

    mode: Literal["joint", "independent"] = "joint"
    schedule: Schedule | None = None
    gamma: Gamma | None = None

    def __post_init__(self) -> None:
        require_choice(self.mode, "mode", ("joint", "independent"))
        require_part(self.schedule, "schedule", "schedule", optional=True)
        require_part(self.gamma, "gamma", "gain", optional=True)

    deterministic = False

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        deviation: Floats
        mean = belief.mean
        if self.mode == "independent":
            deviation = as_generator(rng).standard_normal(len(mean))
            deviation *= belief.std
        elif self.schedule is None:
            return np.array(belief.sample(rng))
        else:
            deviation = belief.sample(rng) - mean
        if self.schedule is not None:
            deviation *= _width(self.schedule, self.gamma, belief, step)
        deviation += mean
        return deviation


@register("rule", "expected-improvement")
@dataclass(frozen=True, kw_only=True)
class ExpectedImprovement(Ranking):
    """E[max(0, f − f⁺ − ξ)] = σ(φ(z) + zΦ(z)); for σ = 0, max(0, μ − f⁺ − ξ).

    mockus1975bayesian. By default the desirability is its logarithm: the same order of arms,
    and so the same choice of one or of the k best, also where the improvement itself would
    underflow (z below about −38). Oracles that *add* desirabilities over a super arm want
    ``scale="linear"``, the improvement itself.

    Args:
        xi: By how much an arm must exceed the best so far to count as an improvement.
        scale: Log for the logarithm of the improvement, linear for oracles that add desirabilities.
    """

    xi: float = 0.01
    scale: Literal["log", "linear"] = "log"

    def __post_init__(self) -> None:
        object.__setattr__(self, "xi", as_number(self.xi, "xi"))
        require_choice(self.scale, "scale", ("log", "linear"))

    deterministic = True

    @property
    def ranks_only(self) -> str:
        return (
            ""
            if self.scale == "linear"
            else "use scale='linear', the improvement itself"
        )

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        index = log_expected_improvement(
            belief.mean, belief.std, belief.incumbent + self.xi
        )
        if self.scale == "linear":
            np.exp(index, out=index)
        return index


@register("rule", "probability-of-improvement")
@dataclass(frozen=True, kw_only=True)
class ProbabilityOfImprovement(Ranking):
    """P[f > f⁺ + ξ] = Φ(z); for σ = 0, one where μ > f⁺ + ξ and else zero.

    kushner1964new. By default the desirability is z, of which Φ(z) is an increasing function:
    the same choices, cheaper, and still ordered where Φ(z) rounds to 0 or 1.
    ``scale="linear"`` gives the probability itself.

    Args:
        xi: By how much an arm must exceed the best so far to count as an improvement.
        scale: Score for the z-score, linear for the probability itself.
    """

    xi: float = 0.01
    scale: Literal["score", "linear"] = "score"

    def __post_init__(self) -> None:
        object.__setattr__(self, "xi", as_number(self.xi, "xi"))
        require_choice(self.scale, "scale", ("score", "linear"))

    deterministic = True

    @property
    def ranks_only(self) -> str:
        return (
            ""
            if self.scale == "linear"
            else "use scale='linear', the probability itself"
        )

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        std = belief.std
        score: Floats = belief.mean - (belief.incumbent + self.xi)
        if np.count_nonzero(std) == len(std):
            score /= std
        else:
            known = std == 0.0
            certain = np.where(score > 0.0, CERTAIN, -CERTAIN)
            np.divide(score, std, out=score, where=~known)
            score[known] = certain[known]
        if self.scale == "linear":
            special().ndtr(score, out=score)
        return score


@register("rule", "greedy")
@dataclass(frozen=True, kw_only=True)
class Greedy:
    """The posterior mean: no exploration."""

    deterministic = True

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        return belief.mean.copy()


@register("rule", "random")
@dataclass(frozen=True, kw_only=True)
class Random:
    """Scores uniform on [0, 1], whatever is believed: the floor that learning must beat.

    Where known costs are added to the scores, as in routing by height potentials (in Wh), costs larger
    than 1 decide instead; the policy ``random`` is fair there, too.
    """

    deterministic = False

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        return as_generator(rng).random(len(belief.mean))


def _width(schedule: Schedule, gamma: Gamma | None, belief: Belief, step: int) -> float:
    if gamma is None:
        return schedule.width(step, lambda t: belief.information_gain)
    return schedule.width(step, gamma)


def log_expected_improvement(mean: Floats, std: Floats, threshold: float) -> Floats:
    """ln E[max(0, f − threshold)] for f ~ N(mean, std²), (n,); −CERTAIN where it is zero.

    With w = −z/√2, φ(z) + zΦ(z) = φ(z)·(1 − √π·w·erfcx(w)): one expression for both tails,
    its logarithm free of underflow. erfcx overflows for w below −26 and the bracket cancels for
    w beyond 1e5; such rounds take the careful way.
    """
    if np.count_nonzero(std) != len(std):
        return _careful(mean, std, threshold)
    w: Floats = threshold - mean
    w /= std
    w *= _ROOT_HALF
    # ‖w‖² bounds every |w| in one pass (NaN and overflow fail the comparison as well).
    if not w.dot(w) <= _LARGEST_SQUARE:
        return _careful(mean, std, threshold)
    index: Floats = special().erfcx(w)
    with np.errstate(
        over="ignore"
    ):  # erfcx may be finite, and its product with w infinite
        index *= w
    index *= _SLOPE
    index += _DENSITY
    index *= std
    np.log(index, out=index)
    w *= w
    index -= w
    # An overflow of erfcx is +inf here and nowhere else, so the sum of squares tells.
    if not index.dot(index) < math.inf:
        return _careful(mean, std, threshold)
    return index


def _careful(mean: Floats, std: Floats, threshold: float) -> Floats:
    """The same by cases, for σ = 0 and for scores far out."""
    gain = mean - threshold
    index = np.full(len(mean), -CERTAIN)
    index[np.isnan(gain) | np.isnan(std)] = np.nan  # for the oracle to refuse
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        z = gain / std  # ±inf or NaN where σ = 0
        # z > 30: what Φ(z) leaves out is below 1e-190 of the gain.
        sure = (gain > 0.0) & ~(z < 30.0)
        index[sure] = np.log(gain[sure])
        far = z < -_ASYMPTOTIC
        z_far = z[far]
        # φ(z) + zΦ(z) = φ(z)/z²·(1 − 3/z² + …)
        value = np.log(std[far]) + _LOG_DENSITY - 0.5 * z_far**2 - 2.0 * np.log(-z_far)
        index[far] = np.where(std[far] > 0.0, np.maximum(value, -CERTAIN), -CERTAIN)
    near = (z >= -_ASYMPTOTIC) & ~sure
    w = -_ROOT_HALF * z[near]
    bracket = _DENSITY + _SLOPE * (w * special().erfcx(w))
    index[near] = np.log(std[near] * bracket) - w**2
    return index
