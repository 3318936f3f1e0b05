"""A challenger: another policy that decides on the same offers without acting.

A challenger follows the journal, long after the bandit has answered, so that it never delays an ask. First
it learns all rewards from before it was started. Then, at every decision, it decides on the same offer,
with random numbers of its own; and it learns the rewards that the bandit learns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from superarm.core import Decision, Feedback, Floats, Offer, Policy
from superarm.core.capabilities import Forecaster, KnownPropensity
from superarm.core.display import Displayable
from superarm.core.errors import InputError, SuperarmError
from superarm.core.serialization import from_json
from superarm.core.streams import stream

from .events import Event, Kind
from .fold import SPEC_KINDS, Challenge, Fold
from .log import Log
from .off_policy import (
    Estimate,
    RewardRange,
    doubly_robust,
    effective_size,
    inverse_propensity,
    self_normalised,
)
from .spec import BanditSpec

SHADOW = "shadow"
"""The role of the random stream of a challenger's decisions, by step."""
_FEWEST = 2  # decisions, for a standard deviation


class Obstacle(Enum):
    """Why a decision says nothing about the challenger, and what to do about it."""

    UNKNOWN_PROPENSITY = (
        "its propensity is unknown; use the policy 'exploring' around a deterministic rule, then restart "
        "the challenger"
    )
    NO_CHANCE = (
        "the bandit's policy is deterministic and never tried the challenger's choice; use the policy "
        "'exploring', then restart the challenger"
    )
    NO_SUPPORT = (
        "the bandit's policy never makes the challenger's choice; give both policies the same oracle, "
        "then restart the challenger"
    )
    UNKNOWN_CHALLENGER = (
        "the challenger is random with unknown probabilities; use a deterministic rule, "
        "such as ucb"
    )


@dataclass(slots=True)
class Comparison:
    """A decision of the journal, beside what the challenger would have decided."""

    id: str
    agrees: bool
    """Whether the challenger chose the same arms."""
    propensity: float | None
    """Probability of what was chosen, under the policy that acted."""
    probability: float | None
    """Probability of what was chosen, under the challenger."""
    is_certain: bool
    """Whether the challenger decided without chance."""
    largest_weight: float
    """The greatest possible quotient of the two."""
    obstacle: Obstacle | None
    expected: float | None
    """Reward that the challenger predicted of its own choice; ``None`` if it predicts nothing."""
    expected_of_chosen: float | None
    """Reward that the challenger predicted of what was chosen."""
    unseen: set[int] = field(default_factory=set)
    """Positions of the arms without a reward so far."""
    seen: int = 0
    """Arms with a reward."""
    reward: float = 0.0
    """The sum of the rewards so far."""
    is_abandoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowReport(Displayable):
    """What a challenger would have earned, in rewards per decision."""

    since: int
    """The number of the event that started the challenger."""
    decisions: int
    """Decisions since then."""
    rewarded: int
    """Decisions with all rewards. The estimates are of these."""
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


class Challenger:
    """Follows the journal of a bandit.

    Args:
        log: The journal.
        challenge: The challenger's spec and start.
    """

    def __init__(self, log: Log, challenge: Challenge) -> None:
        self.challenge = challenge
        self._log = log
        self._fold = Fold(log, challenge.spec)
        self._acting: Policy | None = (
            None  # the bandit's policy; it has learned nothing
        )
        self._comparisons: dict[str, Comparison] = {}
        self._failure: InputError | None = None

    def catch_up(self, last: int) -> None:
        """Follow the journal.

        Args:
            last: The number of the last event to follow.
        """
        if self._failure is not None:
            raise self._failure
        for event in self._log.events(after=self._fold.seq):
            if event.seq > last:
                return
            try:
                self._follow(event)
            except SuperarmError as error:
                # What it has learned may be incomplete, so that it cannot continue.
                self._failure = InputError(
                    f"the challenger cannot follow the journal at event {event.seq}: {error}"
                )
                raise self._failure from error

    def _follow(self, event: Event) -> None:
        if event.kind in SPEC_KINDS:
            spec = BanditSpec.from_json(event.body["spec"])
            self._acting = spec.build_policy()
        elif event.kind is Kind.DECIDED and event.seq > self.challenge.seq:
            self._compare(event)
        self._fold.apply(event)
        if event.kind is Kind.OBSERVED:
            self._note_rewards(event)
        elif event.kind is Kind.ABANDONED:
            comparison = self._comparisons.get(event.body["decision"])
            if comparison is not None:
                comparison.is_abandoned = True

    # --- decisions -------------------------------------------------------------------------

    def _compare(self, event: Event) -> None:
        """Decide on the offer of a decision, from what was known before it."""
        asked = self._fold.asked(event)
        offer = asked.offer
        chosen = asked.decision
        policy = self._fold.policy
        rng = stream(self.challenge.spec.seed, SHADOW, offer.step)
        own = policy.decide(offer, rng)
        is_certain = own.propensity == 1.0
        agrees = set(own.positions.tolist()) == set(chosen.positions.tolist())
        probability: float | None = None
        if is_certain:
            probability = float(agrees)
        elif isinstance(policy, KnownPropensity):
            probability = policy.propensity(offer, chosen.positions)
        comparison = Comparison(
            id=asked.id,
            agrees=agrees,
            propensity=chosen.propensity,
            probability=probability,
            is_certain=is_certain,
            largest_weight=1.0,
            obstacle=None,
            expected=None,
            expected_of_chosen=None,
            unseen=set(chosen.positions.tolist()),
        )
        self._check_support(comparison, offer, own)
        self._predict(comparison, offer, chosen, own)
        self._comparisons[asked.id] = comparison

    def _check_support(
        self, comparison: Comparison, offer: Offer, own: Decision
    ) -> None:
        """Find the largest possible weight, or what keeps the decision from having one."""
        acting: object = self._acting
        if comparison.probability is None:
            comparison.obstacle = Obstacle.UNKNOWN_CHALLENGER
        elif comparison.propensity is None or comparison.propensity == 0.0:
            comparison.obstacle = Obstacle.UNKNOWN_PROPENSITY
        elif comparison.propensity == 1.0:
            if comparison.probability < 1.0:
                comparison.obstacle = Obstacle.NO_CHANCE
        elif not isinstance(acting, KnownPropensity):
            # It knows the probability of its own choice, but perhaps not of the challenger's.
            comparison.obstacle = Obstacle.UNKNOWN_PROPENSITY
        else:
            least = acting.least_propensity(offer, own.positions)
            if least > 0.0:
                comparison.largest_weight = 1.0 / least
            else:
                comparison.obstacle = Obstacle.NO_SUPPORT

    def _predict(
        self, comparison: Comparison, offer: Offer, chosen: Decision, own: Decision
    ) -> None:
        """Predict the rewards of both choices, where the challenger predicts rewards."""
        policy = self._fold.policy
        if not isinstance(policy, Forecaster):
            return
        mean = policy.beliefs(offer).mean
        if comparison.is_certain:
            comparison.expected = float(mean[own.positions].sum())
        elif isinstance(policy, KnownPropensity):
            inclusion = policy.inclusion(offer)
            if inclusion is not None:
                comparison.expected = float(inclusion @ mean)
        comparison.expected_of_chosen = float(mean[chosen.positions].sum())

    def _note_rewards(self, event: Event) -> None:
        comparison = self._comparisons.get(event.body["decision"])
        if comparison is None:
            return  # of a decision before the challenger
        feedback: Feedback = from_json(event.body["feedback"])
        rewards = feedback.rewards.tolist()
        for position, reward in zip(feedback.positions.tolist(), rewards, strict=True):
            if position in comparison.unseen:
                comparison.unseen.remove(position)
                comparison.seen += 1
                comparison.reward += reward

    # --- the report ------------------------------------------------------------------------

    def report(self, reward_range: RewardRange | None, level: float) -> ShadowReport:
        """What the challenger would have earned so far.

        Args:
            reward_range: The range of a decision's reward; ``None``: not known.
            level: Probability that an interval covers.
        """
        comparisons = list(self._comparisons.values())
        rewarded = [item for item in comparisons if not item.unseen]
        open_ones = [item for item in comparisons if item.unseen]
        awaited = [item for item in open_ones if not item.is_abandoned]
        partial = sum(item.seen > 0 for item in awaited)
        agreement = None
        if comparisons:
            agreement = sum(item.agrees for item in comparisons) / len(comparisons)
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
        return ShadowReport(
            since=self.challenge.seq,
            decisions=len(comparisons),
            rewarded=len(rewarded),
            partial=partial,
            pending=len(awaited) - partial,
            abandoned=len(open_ones) - len(awaited),
            agreement=agreement,
            effective_size=estimates.effective_size,
            current=current,
            inverse_propensity=estimates.inverse_propensity,
            self_normalised=estimates.self_normalised,
            doubly_robust=estimates.doubly_robust,
            refusal=refusal,
            assumptions=_assumptions(reward_range, len(open_ones)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimates:
    effective_size: float | None = None
    inverse_propensity: Estimate | None = None
    self_normalised: Estimate | None = None
    doubly_robust: Estimate | None = None


def _refusal(comparisons: list[Comparison], rewarded: list[Comparison]) -> str | None:
    """Why nothing can be estimated; ``None`` if it can."""
    # Of all decisions, not only of those rewarded: an estimate must not appear and vanish again.
    for item in comparisons:
        if item.obstacle is not None:
            return f"decision {item.id!r} cannot be used: {item.obstacle.value}"
    if len(rewarded) < _FEWEST:
        return (
            f"only {len(rewarded)} decisions since the challenger started have all their rewards; at "
            f"least {_FEWEST} are needed"
        )
    if not any(item.probability for item in rewarded):
        return (
            "none of the decisions with rewards is one that the challenger would have taken; wait for "
            "more decisions, or explore more"
        )
    return None


def _estimate(
    rewarded: list[Comparison],
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
            "there are so many decisions of similar weight that normal intervals hold; state "
            "reward_range to do without"
        )
    if missing:
        assumptions.append(
            f"the {missing} decisions without all rewards are missing at random: they would have earned "
            "as much as the others"
        )
    return assumptions
