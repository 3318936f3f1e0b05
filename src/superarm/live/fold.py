"""What a bandit has learned: its events, folded one after another.

A fold is a function of the events alone. Two processes that fold the same events get the same policy,
and a bandit that restarts continues as if it had never stopped.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from superarm.core import Arms, Decision, Feedback, Offer, Policy
from superarm.core.errors import (
    ConflictError,
    InputError,
    RepeatedRewardError,
    StateError,
)
from superarm.core.streams import stream
from superarm.policies import Exploring
from superarm.policies.base import Learner

from .bandit_journal import BanditJournal
from .codec import digest
from .decisions import DecisionRecord, OpenDecision, already_rewarded
from .event_reader import EventReader
from .events import Event, Kind
from .observations import HoldBackQueue, Observation
from .spec import BanditSpec

DECIDE = "ask"
"""The role of the random stream of decisions, by step."""
LEARN = "tell"
"""The role of the random stream of learning, by event."""
SPEC_KINDS = (Kind.CREATED, Kind.RESPECIFIED, Kind.REFITTED)
"""Events that give the bandit a spec."""


class Challenge(NamedTuple):
    """A challenger of the bandit's policy."""

    spec: BanditSpec
    seq: int
    """The number of the event that started it."""


class Fold:
    """A bandit after its first ``seq`` events.

    Args:
        journal: Where its events are.
        spec: A spec to fold the events with, whatever spec the bandit had; ``None``: the bandit's.
    """

    def __init__(self, journal: BanditJournal, spec: BanditSpec | None = None) -> None:
        self.journal = journal
        self.reader = EventReader(journal)
        self._has_own_spec = spec is not None
        self.seq = 0
        self.restored_seq = 0
        """The last event in the snapshot that this was restored from; 0 without one."""
        self.steps = 0
        """Rounds so far: decisions, and batches of history."""
        self.open: dict[str, OpenDecision] = {}
        """Decisions that await rewards, the oldest first."""
        self.held_back = HoldBackQueue()
        """Rewards that wait for those of earlier decisions."""
        self.named: Arms | None = None
        """Arms that asks refer to by id."""
        self.last_action: object = None
        self.time = 0.0
        """Of the latest event, in seconds since 1970."""
        self.challenge: Challenge | None = None
        self.spec: BanditSpec
        self.policy: Policy
        if spec is not None:
            self.spec = spec
            self.policy = spec.build_policy()

    # --- events ----------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Fold every event of the journal that is not yet folded."""
        for event in self.journal.events(after=self.seq):
            self.apply(event)

    def next_event(
        self, kind: Kind, body: Mapping[str, Any], key: str | None = None
    ) -> Event:
        """The event that may be applied next.

        Args:
            kind: What happened.
            body: Plain JSON.
            key: What identifies it; ``None``: its number does.
        """
        seq = self.seq + 1
        if key is None:
            key = f"{kind}/{seq}"
        now = max(clock.time(), self.time)  # a clock may jump back, events do not
        return Event(seq=seq, key=key, kind=kind, time=now, body=body)

    def apply(self, event: Event, feedback: Feedback | None = None) -> None:
        """Fold the next event.

        Args:
            event: The event with the number ``seq + 1``.
            feedback: The rewards in its body; ``None``: decode them, if it has any.
        """
        if event.seq != self.seq + 1:
            raise StateError(f"event {event.seq} cannot follow event {self.seq}")
        match event.kind:
            case Kind.CREATED | Kind.RESPECIFIED | Kind.REFITTED:
                self._change_spec(event)
            case Kind.CHALLENGED:
                self._change_challenger(event)
            case Kind.NAMED:
                self.named = self.journal.arms(event.body["arms"])
            case Kind.DECIDED:
                deferred = event.body.get("deferred", False)
                self._commit(self.reader.decision(event), deferred)
            case Kind.ACTIVATED:
                self._activate(event.body["decision"])
            case Kind.OBSERVED:
                self._observe(event, feedback)
            case Kind.HISTORY:
                self._learn_history(event, feedback)
            case Kind.ABANDONED:
                self._abandon(event.body["decision"])
        self.seq = event.seq
        self.time = max(self.time, event.time)

    def _change_spec(self, event: Event) -> None:
        if self._has_own_spec:
            return
        self.spec = BanditSpec.from_json(event.body["spec"])
        self.policy = self.spec.build_policy()
        if event.body.get("switched"):
            self.challenge = None  # the challenger is the policy now
        if event.kind is not Kind.CREATED:
            self._relearn(before=event.seq)

    def _change_challenger(self, event: Event) -> None:
        table = event.body["spec"]
        self.challenge = None
        if table is not None:
            self.challenge = Challenge(BanditSpec.from_json(table), event.seq)

    def _relearn(self, before: int) -> None:
        """Replay everything before an event for a new policy."""
        self.steps = 0
        self.open = {}
        self.held_back = HoldBackQueue()
        self.named = None
        self.seq = 0
        for event in self.journal.events():
            if event.seq == before:
                return
            if event.kind in SPEC_KINDS or event.kind is Kind.CHALLENGED:
                self.seq = event.seq
            else:
                self.apply(event)

    # --- decisions -------------------------------------------------------------------------

    def offer(
        self,
        arms: Arms,
        *,
        structure: object = None,
        time: float | None = None,
    ) -> Offer:
        """The offer of the next round.

        Args:
            arms: The arms on offer.
            structure: The constraints of the round.
            time: Physical time, for rewards that drift.
        """
        offer = Offer(step=self.steps + 1, arms=arms, structure=structure, time=time)
        return offer.after(self.last_action)

    def decide(self, offer: Offer, policy: Policy | None = None) -> Decision:
        """What the policy decides; nothing changes.

        Args:
            offer: The offer of the next round.
            policy: Another policy that decides; ``None``: that of the bandit.
        """
        rng = stream(self.spec.seed, DECIDE, offer.step)
        decider = self.policy if policy is None else policy
        return decider.decide(offer, rng)

    def awaits_all_rewards(self, decision_id: str) -> bool:
        """Whether a decision awaits all of its rewards: then the journal has none of them.

        Args:
            decision_id: Its id.
        """
        open_decision = self.open.get(decision_id)
        return (
            open_decision is not None
            and len(open_decision.unseen) == open_decision.count
        )

    def decided_before(self, oldest: float) -> list[str]:
        """Ids of the open decisions that were taken before a time.

        Args:
            oldest: The time, in seconds since 1970.
        """
        return [name for name, item in self.open.items() if item.time < oldest]

    def check_deferrable(self) -> None:
        """Refuse to defer decisions if the policy learns in decision order."""
        if not self.policy.exchangeable:
            raise InputError(
                f"{type(self.policy).__name__} learns in decision order, so you cannot defer a "
                "decision: later ones would wait for it. Ask without deferred"
            )

    def pending_digest(self) -> str:
        """The ids of the decisions that await rewards, as a digest: there may be thousands."""
        return digest("\n".join(self.open).encode())

    def _commit(self, record: DecisionRecord, deferred: bool) -> None:
        decision = record.decision
        try:
            self.policy.commit(decision)
        except InputError:
            # A policy of an earlier spec made it, so its arms cannot be pending in this one.
            self.policy.commit(replace(decision, carry=None))
        self.steps = decision.step
        self.last_action = decision.action
        unseen = set(decision.positions.tolist())
        self.open[record.id] = OpenDecision(
            decision.step, record.time, unseen, count=len(unseen), deferred=deferred
        )

    def _activate(self, decision_id: str) -> None:
        decision = self.open.get(decision_id)
        if decision is not None:
            decision.deferred = False

    def _abandon(self, decision_id: str) -> None:
        abandoned = self.open.pop(decision_id, None)
        if abandoned is None:
            return
        if isinstance(self.policy, Learner | Exploring):
            self.policy.give_up(abandoned.step)
        self._learn_ready()

    # --- rewards ---------------------------------------------------------------------------

    def _observe(self, event: Event, feedback: Feedback | None) -> None:
        decision_id = event.body["decision"]
        observation = self.reader.observation(event, feedback)
        if self.policy.exchangeable:
            try:
                self._learn(observation)
            except RepeatedRewardError as error:
                if error.position is None:
                    raise
                arm = observation.offer.arms.ids[error.position]
                raise already_rewarded(decision_id, arm) from error
            self._mark_seen(decision_id, observation.feedback)
            return
        self._check_in_time(decision_id, observation)
        self.held_back.add(observation)
        self._mark_seen(decision_id, observation.feedback)
        self._learn_ready()

    def _learn_history(self, event: Event, feedback: Feedback | None) -> None:
        observation = self.reader.observation(event, feedback)
        if self.policy.exchangeable:
            self._learn(observation)
        else:
            self.held_back.add(observation)
            self._learn_ready()
        self.steps = observation.decision.step

    def _check_in_time(self, decision_id: str, observation: Observation) -> None:
        """Refuse rewards that came after those of later decisions, where their order matters."""
        open_decision = self.open.get(decision_id)
        if open_decision is None:
            raise ConflictError(
                f"decision {decision_id!r} is not pending: all its rewards are recorded, or it was "
                f"abandoned. {type(self.policy).__name__} learns in decision order, so it cannot learn more"
            )
        repeated = sorted(
            set(observation.feedback.positions.tolist()) - open_decision.unseen
        )
        if repeated:
            arm = observation.offer.arms.ids[repeated[0]]
            raise already_rewarded(decision_id, arm)

    def _learn_ready(self) -> None:
        """Learn what waited for earlier decisions, in the order of decisions."""
        first_open = next((item.step for item in self.open.values()), None)
        for observation in self.held_back.release(first_open):
            self._learn(observation)

    def _learn(self, observation: Observation) -> None:
        rng = stream(self.spec.seed, LEARN, observation.seq)
        # What it carries was committed; a policy of another spec may not accept it.
        decision = replace(observation.decision, carry=None)
        self.policy.learn(observation.offer, decision, observation.feedback, rng)

    def _mark_seen(self, decision_id: str, feedback: Feedback) -> None:
        open_decision = self.open.get(decision_id)
        if open_decision is None:
            return
        open_decision.unseen -= set(feedback.positions.tolist())
        open_decision.deferred = False
        if not open_decision.unseen:
            del self.open[decision_id]
            self.reader.forget(decision_id)
