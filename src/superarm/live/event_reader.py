"""Decodes events: the decisions and rewards that a bandit's journal records."""

from __future__ import annotations

from collections.abc import Iterator

from superarm.core import Decision, Feedback, Offer
from superarm.core.errors import StateError
from superarm.core.serialization import from_json

from .bandit_journal import BanditJournal
from .decisions import DecisionRecord
from .event_keys import decided_key
from .events import Event, Kind
from .observations import Observation
from .recent_decisions import RecentDecisions


def feedback_of(event: Event) -> Feedback:
    """The rewards by position that an event recorded.

    Args:
        event: An event ``observed`` or ``history``.
    """
    feedback: Feedback = from_json(event.body["feedback"])
    return feedback


class EventReader:
    """Decodes the events of one bandit; recent decisions stay in memory until all their rewards are known.

    Args:
        journal: Where its events are.
    """

    def __init__(self, journal: BanditJournal) -> None:
        self._journal = journal
        self._recent = RecentDecisions()

    # --- decisions -------------------------------------------------------------------------

    def decision(self, event: Event) -> DecisionRecord:
        """The decision that an event recorded.

        Args:
            event: An event ``decided``.
        """
        body = event.body
        recent = self.recent_decision(body["id"])
        if recent is not None:
            return recent
        decision: Decision = from_json(body["decision"])
        offer = Offer(
            step=decision.step,
            arms=self._journal.arms(body["arms"]),
            structure=from_json(body["structure"]),
            time=body["time"],
        )
        offer = offer.after(from_json(body["previous_action"]))
        record = DecisionRecord(body["id"], offer, decision, event.time)
        # As it was read, not as it was decided: after a restart the same arrays are learned from.
        self._recent.add(record)
        return record

    def recent_decision(self, decision_id: str) -> DecisionRecord | None:
        """A decision that is in memory: most rewards are of decisions taken lately.

        Args:
            decision_id: Its id.
        """
        return self._recent.get(decision_id)

    def forget(self, decision_id: str) -> None:
        """Drop a decision from memory: all its rewards are known, so hardly anybody asks for it again.

        Args:
            decision_id: Its id.
        """
        self._recent.remove(decision_id)

    def find_decision(self, decision_id: str) -> DecisionRecord | None:
        """A decision of any age; ``None`` if there is none with this id.

        Args:
            decision_id: Its id.
        """
        recent = self.recent_decision(decision_id)
        if recent is not None:
            return recent
        event = self._journal.event(decided_key(decision_id))
        return None if event is None else self.decision(event)

    # --- rewards ---------------------------------------------------------------------------

    def observation(
        self, event: Event, feedback: Feedback | None = None
    ) -> Observation:
        """The rewards that an event recorded, with the decision that they belong to.

        Args:
            event: An event ``observed`` or ``history``.
            feedback: Its rewards; ``None``: decode them.
        """
        if feedback is None:
            feedback = feedback_of(event)
        if event.kind is Kind.HISTORY:
            return self._history(event, feedback)
        decision_id = event.body["decision"]
        record = self.find_decision(decision_id)
        if record is None:
            raise StateError(
                f"the journal is damaged: it has rewards of decision {decision_id!r}, "
                "but not the decision; restore a backup"
            )
        return Observation(
            seq=event.seq,
            decision_id=record.id,
            offer=record.offer,
            decision=record.decision,
            feedback=feedback,
        )

    def _history(self, event: Event, feedback: Feedback) -> Observation:
        body = event.body
        arms = self._journal.arms(body["arms"])
        offer = Offer(step=body["step"], arms=arms, time=body["time"])
        # Nobody decided: the observed arms take the place of the chosen ones.
        decision = Decision(step=offer.step, action=None, positions=feedback.positions)
        return Observation(
            seq=event.seq,
            decision_id=None,
            offer=offer,
            decision=decision,
            feedback=feedback,
        )

    def observations(
        self, after: int = 0, last: int | None = None
    ) -> Iterator[Observation]:
        """The durable rewards, in the order in which they came.

        Args:
            after: The number of the event to start after.
            last: The number of the last event to read; ``None``: all.
        """
        for event in self._journal.events(after, last):
            if event.kind in (Kind.OBSERVED, Kind.HISTORY):
                yield self.observation(event)
