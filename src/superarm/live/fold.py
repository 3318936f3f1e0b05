"""What a bandit has learned: its events, folded one after another.

A fold is a function of the events alone. Two processes that fold the same events get the same policy,
and a bandit that restarts goes on as if it had never stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from superarm.core import Arms, Decision, Feedback, Offer, Policy, State
from superarm.core.errors import StateError
from superarm.core.serialization import from_json, to_json
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.core.streams import stream

from .codec import decided_key
from .events import Event, Kind
from .journal import Snapshot
from .log import Log
from .spec import BanditSpec

_SNAPSHOT = "bandit"
_SNAPSHOT_SCHEMA = 1
DECIDE = "ask"
"""The role of the random stream of decisions, by step."""
LEARN = "tell"
"""The role of the random stream of learning, by event."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A decision of the journal, with the offer that it answers."""

    id: str
    offer: Offer
    decision: Decision
    time: float
    """When it was taken, in seconds since 1970."""


@dataclass(slots=True)
class OpenDecision:
    """A decision that awaits rewards."""

    step: int
    time: float
    unseen: set[int] = field(default_factory=set)
    """Positions of the arms without a reward so far."""


class Fold:
    """A bandit after its first ``seq`` events.

    Args:
        log: Where its events are.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.seq = 0
        self.steps = 0
        """Rounds so far: decisions, and batches of history."""
        self.open: dict[str, OpenDecision] = {}
        """Decisions that await rewards, the oldest first."""
        self.named: Arms | None = None
        self.last_action: object = None
        self.spec: BanditSpec
        self.policy: Policy

    # --- reading the journal ---------------------------------------------------------------

    @classmethod
    def load(cls, log: Log) -> Fold:
        """The bandit as it is now: its snapshot, and the events since.

        Args:
            log: Where its events are.
        """
        fold = cls(log)
        snapshot = log.snapshot()
        if snapshot is not None:
            fold._restore(snapshot)
        fold.catch_up()
        return fold

    def catch_up(self) -> None:
        """Fold every event of the journal that is not yet folded."""
        for event in self._log.events(after=self.seq):
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Fold the next event.

        Args:
            event: The event with the number ``seq + 1``.
        """
        if event.seq != self.seq + 1:
            raise StateError(f"event {event.seq} cannot follow event {self.seq}")
        match event.kind:
            case Kind.CREATED:
                self._set_spec(event)
            case Kind.RESPECIFIED | Kind.REFITTED:
                self._set_spec(event)
                self._learn_again(before=event.seq)
            case Kind.NAMED:
                self.named = self._log.arms(event.body["arms"])
            case Kind.DECIDED:
                self._commit(self.asked(event))
            case Kind.OBSERVED:
                self._observe(event)
            case Kind.HISTORY:
                self._learn_history(event)
            case Kind.ABANDONED:
                self._abandon(event.body["decision"])
        self.seq = event.seq

    def _set_spec(self, event: Event) -> None:
        self.spec = BanditSpec.from_json(event.body["spec"])
        self.policy = self.spec.build_policy()

    def _learn_again(self, before: int) -> None:
        """Teach a new policy everything that happened before an event."""
        self.steps = 0
        self.open = {}
        self.named = None
        self.seq = 0
        for event in self._log.events():
            if event.seq == before:
                return
            if event.kind in (Kind.CREATED, Kind.RESPECIFIED, Kind.REFITTED):
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

    def decide(self, offer: Offer) -> Decision:
        """What the policy decides; nothing changes.

        Args:
            offer: The offer of the next round.
        """
        rng = stream(self.spec.seed, DECIDE, offer.step)
        return self.policy.decide(offer, rng)

    def asked(self, event: Event) -> Asked:
        """The decision that an event recorded.

        Args:
            event: An event ``decided``.
        """
        body = event.body
        decision: Decision = from_json(body["decision"])
        offer = Offer(
            step=decision.step,
            arms=self._log.arms(body["arms"]),
            structure=from_json(body["structure"]),
            time=body["time"],
        )
        offer = offer.after(from_json(body["previous_action"]))
        return Asked(body["id"], offer, decision, event.time)

    def find(self, decision_id: str) -> Asked | None:
        """A decision of any age; ``None`` if there is none with this id.

        Args:
            decision_id: Its id.
        """
        event = self._log.event(decided_key(decision_id))
        return None if event is None else self.asked(event)

    def _commit(self, asked: Asked) -> None:
        decision = asked.decision
        self.policy.commit(decision)
        self.steps = decision.step
        self.last_action = decision.action
        unseen = set(decision.positions.tolist())
        self.open[asked.id] = OpenDecision(decision.step, asked.time, unseen)

    def _abandon(self, decision_id: str) -> None:
        self.open.pop(decision_id, None)

    # --- rewards ---------------------------------------------------------------------------

    def _observe(self, event: Event) -> None:
        body = event.body
        asked = self.find(body["decision"])
        if asked is None:
            raise StateError(
                f"the journal is damaged: it has rewards of decision {body['decision']!r}, "
                "but not the decision; restore a backup"
            )
        feedback: Feedback = from_json(body["feedback"])
        self.learn(asked, feedback, event.seq)

    def learn(self, asked: Asked, feedback: Feedback, seq: int) -> None:
        """Learn rewards of a decision.

        Args:
            asked: The decision.
            feedback: Rewards of all or some of its arms.
            seq: The number of the event that records them.
        """
        rng = stream(self.spec.seed, LEARN, seq)
        self.policy.learn(asked.offer, asked.decision, feedback, rng)
        waiting = self.open.get(asked.id)
        if waiting is None:
            return
        waiting.unseen -= set(feedback.positions.tolist())
        if not waiting.unseen:
            del self.open[asked.id]

    def _learn_history(self, event: Event) -> None:
        body = event.body
        arms = self._log.arms(body["arms"])
        offer = Offer(step=self.steps + 1, arms=arms, time=body["time"])
        feedback: Feedback = from_json(body["feedback"])
        rng = stream(self.spec.seed, LEARN, event.seq)
        decision = Decision(step=offer.step, action=None, positions=feedback.positions)
        self.policy.learn(offer, decision, feedback, rng)
        self.steps = offer.step

    # --- snapshots -------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All of it as bytes, without pickle."""
        waiting = {}
        for decision_id, decision in self.open.items():
            waiting[decision_id] = [
                decision.step,
                decision.time,
                sorted(decision.unseen),
            ]
        arrays = {}
        scalars: dict[str, Any] = {
            "seq": self.seq,
            "steps": self.steps,
            "spec": self.spec.as_json(),
            "open": waiting,
            "last_action": to_json(self.last_action),
        }
        if self.named is not None:
            scalars["named"] = list(self.named.ids)
            arrays["named"] = self.named.features
        state = State(
            kind=_SNAPSHOT,
            schema=_SNAPSHOT_SCHEMA,
            scalars=scalars,
            arrays=arrays,
            parts={"policy": self.policy.state()},
        )
        return Snapshot(self.seq, state_to_bytes(state))

    def _restore(self, snapshot: Snapshot) -> None:
        state = state_from_bytes(snapshot.data)
        state.require(_SNAPSHOT, _SNAPSHOT_SCHEMA, type(self).__name__)
        self.spec = BanditSpec.from_json(state.scalar("spec"))
        self.policy = self.spec.build_policy().restored(state.part("policy"))
        self.steps = state.scalar("steps")
        self.last_action = from_json(state.scalar("last_action"))
        for decision_id, (step, time, unseen) in state.scalar("open").items():
            self.open[decision_id] = OpenDecision(step, time, set(unseen))
        if "named" in state.arrays:
            ids = state.scalar("named")
            self.named = Arms(ids=ids, features=state.array("named"))
        self.seq = snapshot.seq
