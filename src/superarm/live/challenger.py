"""A challenger: another policy that decides on the same offers without acting.

A challenger follows the journal, long after the bandit has answered, so that it never delays an ask. First
it learns all rewards from before it was started. Then, at every decision, it decides on the same offer,
with random numbers of its own; and it learns the rewards that the bandit learns.
"""

from __future__ import annotations

from superarm.core import Decision, Offer, Policy
from superarm.core.capabilities import Forecaster, KnownPropensity
from superarm.core.errors import InputError, SuperarmError
from superarm.core.streams import stream

from .bandit_journal import BanditJournal
from .comparison import Comparison, Obstacle
from .event_reader import feedback_of
from .events import Event, Kind
from .fold import SPEC_KINDS, Challenge, Fold
from .off_policy import RewardRange
from .shadow_report import ShadowReport, make_report
from .spec import BanditSpec

SHADOW = "shadow"
"""The role of the random stream of a challenger's decisions, by step."""


class Challenger:
    """Follows the journal of a bandit.

    Args:
        journal: The journal.
        challenge: The challenger's spec and start.
    """

    def __init__(self, journal: BanditJournal, challenge: Challenge) -> None:
        self.challenge = challenge
        self._journal = journal
        self._fold = Fold(journal, challenge.spec)
        # The bandit's policy, which has learned nothing.
        self._acting: Policy | None = None
        # By decision; those before the challenger have none.
        self._comparisons: dict[str, Comparison] = {}
        self._failure: InputError | None = None

    def catch_up(self, last: int) -> None:
        """Follow the journal.

        Args:
            last: The number of the last event to follow.
        """
        if self._failure is not None:
            raise self._failure
        for event in self._journal.events(after=self._fold.seq, last=last):
            try:
                self._follow(event)
            except SuperarmError as error:
                # What it has learned may be incomplete, so that it cannot continue.
                self._failure = InputError(
                    f"the challenger cannot learn event {event.seq} of the journal: {error}"
                )
                raise self._failure from error

    def _follow(self, event: Event) -> None:
        # It decides from what was known before the event.
        if event.kind in SPEC_KINDS:
            spec = BanditSpec.from_json(event.body["spec"])
            self._acting = spec.build_policy()
        elif event.kind is Kind.DECIDED and event.seq > self.challenge.seq:
            self._compare(event)
        self._fold.apply(event)
        if event.kind is Kind.OBSERVED:
            self._note_rewards(event)
        elif event.kind is Kind.ABANDONED:
            self._note_abandonment(event)

    # --- decisions -------------------------------------------------------------------------

    def _compare(self, event: Event) -> None:
        """Decide on the offer of a decision, from what was known before it."""
        record = self._fold.reader.decision(event)
        offer = record.offer
        chosen = record.decision
        policy = self._fold.policy
        rng = stream(self.challenge.spec.seed, SHADOW, offer.step)
        alternative = policy.decide(offer, rng)
        is_certain = alternative.propensity == 1.0
        agrees = set(alternative.positions.tolist()) == set(chosen.positions.tolist())
        probability: float | None = None
        if is_certain:
            probability = float(agrees)
        elif isinstance(policy, KnownPropensity):
            probability = policy.propensity(offer, chosen.positions)
        comparison = Comparison(
            id=record.id,
            agrees=agrees,
            propensity=chosen.propensity,
            probability=probability,
            is_certain=is_certain,
            unseen=set(chosen.positions.tolist()),
        )
        self._check_support(comparison, offer, alternative)
        self._predict(comparison, offer, chosen, alternative)
        self._comparisons[record.id] = comparison

    def _check_support(
        self, comparison: Comparison, offer: Offer, alternative: Decision
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
            # Its propensity of its own choice is known, but perhaps not of the challenger's.
            comparison.obstacle = Obstacle.UNKNOWN_PROPENSITY
        else:
            least = acting.least_propensity(offer, alternative.positions)
            if least > 0.0:
                comparison.largest_weight = 1.0 / least
            else:
                comparison.obstacle = Obstacle.NO_SUPPORT

    def _predict(
        self,
        comparison: Comparison,
        offer: Offer,
        chosen: Decision,
        alternative: Decision,
    ) -> None:
        """Predict the rewards of both choices, where the challenger predicts rewards."""
        policy = self._fold.policy
        if not isinstance(policy, Forecaster):
            return
        mean = policy.beliefs(offer).mean
        if comparison.is_certain:
            comparison.expected = float(mean[alternative.positions].sum())
        elif isinstance(policy, KnownPropensity):
            inclusion = policy.inclusion(offer)
            if inclusion is not None:
                comparison.expected = float(inclusion @ mean)
        comparison.expected_of_chosen = float(mean[chosen.positions].sum())

    def _note_abandonment(self, event: Event) -> None:
        comparison = self._comparisons.get(event.body["decision"])
        if comparison is not None:
            comparison.is_abandoned = True

    def _note_rewards(self, event: Event) -> None:
        comparison = self._comparisons.get(event.body["decision"])
        if comparison is not None:
            comparison.add_rewards(feedback_of(event))

    def report(self, reward_range: RewardRange | None, level: float) -> ShadowReport:
        """What the challenger would have earned so far.

        Args:
            reward_range: The range of a decision's reward; ``None``: not known.
            level: Probability that an interval covers.
        """
        return make_report(
            list(self._comparisons.values()),
            since=self.challenge.seq,
            reward_range=reward_range,
            level=level,
        )
