"""Expected improvement and the probability of improvement.

=================  ===================================================================
``μ``, ``σ``       ``belief.mean``, ``belief.std``, (n,)
``f⁺``             ``belief.incumbent``, the highest posterior mean among observed arms
``ξ``              ``xi``, by how much an improvement must exceed ``f⁺``
``z``              (μ − f⁺ − ξ)/σ
=================  ===================================================================

Desirabilities are finite, because −∞ means "not available": a hopeless arm gets ``−CERTAIN`` instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from superarm.core import Belief, Floats
from superarm.core.capabilities import Ranking
from superarm.core.inputs import as_number, require_choice
from superarm.core.registry import register

from .base import special

# Stands for an infinite score: finite, so that sums over a super arm stay finite too.
CERTAIN = 1e300
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_LOG_DENSITY = math.log(_DENSITY)
_SLOPE = -_ROOT_HALF  # −√π/√(2π)
# |w| ≤ 1e5 keeps 1 − √π·w·erfcx(w) ≈ 1/(2w²) good to five digits or more.
_LARGEST_SQUARE = 1e10
_ASYMPTOTIC = 1e4
_SURE = 30.0


@register("rule", "expected-improvement")
@dataclass(frozen=True, kw_only=True)
class ExpectedImprovement(Ranking):
    """E[max(0, f − f⁺ − ξ)] = σ(φ(z) + zΦ(z)); for σ = 0, max(0, μ − f⁺ − ξ).

    mockus1975bayesian. By default the desirability is its logarithm: the same order of arms, and so the
    same choice of one or of the k best, also where the improvement itself would underflow (z below
    about −38). Oracles that *add* desirabilities over a super arm need ``scale="linear"``.

    Args:
        xi: ξ: by how much an arm must exceed the best so far to count as an improvement.
        scale: "log" for the logarithm of the improvement, "linear" for the improvement itself.
    """

    xi: float = 0.01
    scale: Literal["log", "linear"] = "log"

    def __post_init__(self) -> None:
        object.__setattr__(self, "xi", as_number(self.xi, "xi"))
        require_choice(self.scale, "scale", ("log", "linear"))

    deterministic = True

    @property
    def ranks_only(self) -> str:
        if self.scale == "linear":
            return ""
        return "use scale='linear', the improvement itself"

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        threshold = belief.incumbent + self.xi
        index = log_expected_improvement(belief.mean, belief.std, threshold)
        if self.scale == "linear":
            np.exp(index, out=index)
        return index


@register("rule", "probability-of-improvement")
@dataclass(frozen=True, kw_only=True)
class ProbabilityOfImprovement(Ranking):
    """P[f > f⁺ + ξ] = Φ(z); for σ = 0, one where μ > f⁺ + ξ and else zero.

    kushner1964new. By default the desirability is z, of which Φ(z) is an increasing function: the same
    choices, cheaper, and still ordered where Φ(z) rounds to 0 or 1.

    Args:
        xi: ξ: by how much an arm must exceed the best so far to count as an improvement.
        scale: "score" for z, "linear" for the probability itself.
    """

    xi: float = 0.01
    scale: Literal["score", "linear"] = "score"

    def __post_init__(self) -> None:
        object.__setattr__(self, "xi", as_number(self.xi, "xi"))
        require_choice(self.scale, "scale", ("score", "linear"))

    deterministic = True

    @property
    def ranks_only(self) -> str:
        if self.scale == "linear":
            return ""
        return "use scale='linear', the probability itself"

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        std = belief.std
        threshold = belief.incumbent + self.xi
        score: Floats = belief.mean - threshold
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


def log_expected_improvement(mean: Floats, std: Floats, threshold: float) -> Floats:
    """ln E[max(0, f − threshold)] for f ~ N(mean, std²), (n,); −CERTAIN where it is zero.

    With w = −z/√2, φ(z) + zΦ(z) = φ(z)·(1 − √π·w·erfcx(w)): one expression for both tails, its
    logarithm free of underflow. erfcx overflows for w below −26 and the bracket cancels for w beyond
    1e5; such rounds are computed by cases.

    Args:
        mean: μ, (n,).
        std: σ, (n,), 0 or more.
        threshold: What f must exceed.
    """
    if np.count_nonzero(std) != len(std):
        return _by_cases(mean, std, threshold)
    w: Floats = threshold - mean
    w /= std
    w *= _ROOT_HALF
    # ‖w‖² bounds every |w| in one pass (NaN and overflow fail the comparison as well).
    if not w.dot(w) <= _LARGEST_SQUARE:
        return _by_cases(mean, std, threshold)
    index: Floats = special().erfcx(w)
    # erfcx may be finite, and its product with w infinite.
    with np.errstate(over="ignore"):
        index *= w
    index *= _SLOPE
    index += _DENSITY
    index *= std
    np.log(index, out=index)
    w *= w
    index -= w
    # Only an overflow of erfcx is +inf here, so the sum of squares shows it.
    if not index.dot(index) < math.inf:
        return _by_cases(mean, std, threshold)
    return index


def _by_cases(mean: Floats, std: Floats, threshold: float) -> Floats:
    """The same for σ = 0 and for scores far out."""
    gain = mean - threshold
    index = np.full(len(mean), -CERTAIN)
    is_unknown = np.isnan(gain) | np.isnan(std)
    index[is_unknown] = np.nan  # for the oracle to refuse
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        z = gain / std  # ±inf or NaN where σ = 0
        # Beyond this, what Φ(z) leaves out is below 1e-190 of the gain.
        sure = (gain > 0.0) & ~(z < _SURE)
        index[sure] = np.log(gain[sure])
        far = z < -_ASYMPTOTIC
        index[far] = _log_improvement_far(z[far], std[far])
    near = (z >= -_ASYMPTOTIC) & ~sure
    index[near] = _log_improvement_near(z[near], std[near])
    return index


def _log_improvement_near(z: Floats, std: Floats) -> Floats:
    """The same where neither erfcx overflows nor the bracket cancels."""
    w = -_ROOT_HALF * z
    product = w * special().erfcx(w)
    bracket = _DENSITY + _SLOPE * product
    log_bracket = np.log(std * bracket)
    return np.asarray(log_bracket - w**2)


def _log_improvement_far(z: Floats, std: Floats) -> Floats:
    """The same for z ≪ 0: φ(z) + zΦ(z) = φ(z)/z²·(1 − 3/z² + …); −CERTAIN where σ = 0."""
    log_std = np.log(std)
    log_square = 2.0 * np.log(-z)
    logarithm = log_std + _LOG_DENSITY - 0.5 * z**2 - log_square
    finite = np.maximum(logarithm, -CERTAIN)
    return np.where(std > 0.0, finite, -CERTAIN)
