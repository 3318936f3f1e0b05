"""The report about a challenger: what it would have earned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from superarm.core import Floats
from superarm.core.display import Displayable

from .comparison import Comparison
from .decisions import Status
from .off_policy import (
    Estimate,
    RewardRange,
    doubly_robust,
    effective_size,
    inverse_propensity,
    self_normalised,
)

_FEWEST = 2  # decisions, for a standard deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowReport(Displayable):
    """What a challenger would have earned, in rewards per decision."""

    since: int
    """The number of the event that started the challenger."""
    decisions: int
    """Decisions since then."""
    rewarded: int
    """Decisions with all rewards; the estimates use only these."""
    partial: int
    """Decisions that await some of their rewards."""
    pending: int
    """Decisions that await all of their rewards."""
    abandoned: int
    """Decisions that were abandoned before all rewards came."""
    agreement: float | None
    """Share of the decisions in which the challenger chose the same arms."""
    effective_size: float | None
    """Decisions of equal weight that would be as informative as those rewarded."""
    current: Estimate | None
    """What was earned, random rounds included."""
    inverse_propensity: Estimate | None
    self_normalised: Estimate | None
    doubly_robust: Estimate | None
    """``None`` if the challenger predicts nothing."""
    refusal: str | None
    """Why there is no estimate, and what to do; ``None`` if there are estimates."""
    assumptions: list[str]
    """What the estimates assume."""


def make_report(
    comparisons: Sequence[Comparison],
    *,
    since: int,
    reward_range: RewardRange | None,
    level: float,
) -> ShadowReport:
    """What a challenger would have earned so far.

    Args:
        comparisons: All decisions since it was started.
        since: The number of the event that started it.
        reward_range: The range of a decision's reward; ``None``: not known.
        level: Probability that an interval covers.
    """
    counts = Counter(item.status for item in comparisons)
    agreement = None
    if comparisons:
        agreement = sum(item.agrees for item in comparisons) / len(comparisons)
    rewarded = [item for item in comparisons if item.status is Status.REWARDED]
    rewards = np.array([item.reward for item in rewarded])
    if reward_range is not None:
        reward_range.check(rewards)
    current = None
    if len(rewarded) >= _FEWEST:
        current = inverse_propensity(
            rewards, np.ones(len(rewarded)), level=level, reward_range=reward_range
        )
    refusal = _refusal(comparisons, rewarded)
    estimates = _Estimates()
    if refusal is None:
        estimates = _estimate(rewarded, rewards, reward_range, level)
    missing = len(comparisons) - len(rewarded)
    return ShadowReport(
        since=since,
        decisions=len(comparisons),
        rewarded=counts[Status.REWARDED],
        partial=counts[Status.PARTIAL],
        pending=counts[Status.PENDING],
        abandoned=counts[Status.ABANDONED],
        agreement=agreement,
        effective_size=estimates.effective_size,
        current=current,
        inverse_propensity=estimates.inverse_propensity,
        self_normalised=estimates.self_normalised,
        doubly_robust=estimates.doubly_robust,
        refusal=refusal,
        assumptions=_assumptions(reward_range, missing),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimates:
    """Estimates from the decisions with all rewards; ``None`` where one is impossible."""

    effective_size: float | None = None
    inverse_propensity: Estimate | None = None
    self_normalised: Estimate | None = None
    doubly_robust: Estimate | None = None


def _refusal(
    comparisons: Sequence[Comparison], rewarded: Sequence[Comparison]
) -> str | None:
    """Why nothing can be estimated; ``None`` if it can."""
    # Of all decisions, not only of those rewarded: an estimate must not appear and vanish again.
    for item in comparisons:
        if item.obstacle is not None:
            return f"decision {item.id!r} is unusable: {item.obstacle.value}"
    if len(rewarded) < _FEWEST:
        return (
            f"at least {_FEWEST} decisions since the challenger started must have all their rewards, "
            f"got {len(rewarded)}"
        )
    if not any(item.probability for item in rewarded):
        return (
            "the challenger would not have made any of the decisions with rewards; wait for "
            "more decisions, or explore more"
        )
    return None


def _estimate(
    rewarded: Sequence[Comparison],
    rewards: Floats,
    reward_range: RewardRange | None,
    level: float,
) -> _Estimates:
    weights = np.array([_weight(item) for item in rewarded])
    robust = None
    predictions = _column(item.expected for item in rewarded)
    of_chosen = _column(item.expected_of_chosen for item in rewarded)
    if predictions is not None and of_chosen is not None:
        largest_weights = None
        if all(item.is_certain for item in rewarded):
            largest_weights = np.array([item.largest_weight for item in rewarded])
        robust = doubly_robust(
            rewards,
            weights,
            expected=predictions,
            expected_of_chosen=of_chosen,
            largest_weights=largest_weights,
            level=level,
            reward_range=reward_range,
        )
    return _Estimates(
        effective_size=effective_size(weights),
        inverse_propensity=inverse_propensity(
            rewards, weights, level=level, reward_range=reward_range
        ),
        self_normalised=self_normalised(rewards, weights, level=level),
        doubly_robust=robust,
    )


def _weight(item: Comparison) -> float:
    if item.probability is None or item.propensity is None:
        raise AssertionError("a decision with an obstacle is in no estimate")
    return item.probability / item.propensity


def _column(values: Iterable[float | None]) -> Floats | None:
    """Numbers as an array; ``None`` if one of them is missing."""
    numbers = []
    for value in values:
        if value is None:
            return None
        numbers.append(value)
    return np.array(numbers)


def _assumptions(reward_range: RewardRange | None, missing: int) -> list[str]:
    assumptions = [
        "the rewards of a decision depend on its offer and its arms, not on other decisions"
    ]
    if reward_range is None:
        assumptions.append(
            "there are enough decisions of similar weight for normal intervals; without this assumption, "
            "pass reward_range"
        )
    if missing:
        assumptions.append(
            f"rewards are missing at random: the {missing} decisions without all rewards would have earned "
            "as much as the others"
        )
    return assumptions
