"""What a bandit has learned: its events, folded one after another.

A fold is a function of the events alone. Two processes that fold the same events get the same policy,
and a bandit that restarts goes on as if it had never stopped.
"""

from __future__ import annotations

import time as clock
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Decision, Feedback, Offer, Policy, State
from superarm.core.errors import ConflictError, InputError, StateError, SuperarmError
from superarm.core.inputs import require_size
from superarm.core.serialization import from_json, to_json
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.core.streams import stream
from superarm.policies import Exploring
from superarm.policies.base import Learner
from superarm.posteriors.base import as_noise

from .codec import decided_key
from .events import Event, Kind, digest
from .journal import Snapshot
from .log import Log
from .spec import BanditSpec

_SNAPSHOT = "bandit"
_SNAPSHOT_SCHEMA = 1
_MOST_RECENT = 1000
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A decision of the journal, with the offer that it answers."""

    id: str
    offer: Offer
    decision: Decision
    time: float
    """When it was taken, in seconds since 1970."""

    @property
    def action(self) -> object:
        """What to do: a route, a slate, or the ids of the chosen arms."""
        decision = self.decision
        action = decision.action
        if isinstance(action, np.ndarray) and np.array_equal(
            action, decision.positions
        ):
            return decision.ids(self.offer)  # the arms themselves are the action
        return action


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """Rewards to learn."""

    seq: int
    """The number of the event that recorded them."""
    decision_id: str | None
    """The decision that was rewarded; ``None`` for history."""
    offer: Offer
    decision: Decision
    feedback: Feedback

    def order(self) -> tuple[int, int]:
        """Lessons are learned by step, then as they came."""
        return (self.decision.step, self.seq)


@dataclass(slots=True)
class OpenDecision:
    """A decision that awaits rewards."""

    step: int
    time: float
    unseen: set[int] = field(default_factory=set)
    """Positions of the arms without a reward so far."""
    count: int | None = None
    """Arms that were chosen; ``None`` where a snapshot does not say it."""
    deferred: bool = False
    """Whether rewards are awaited only once the decision is activated."""


class Fold:
    """A bandit after its first ``seq`` events.

    Args:
        log: Where its events are.
        spec: A spec to fold the events with, whatever spec the bandit had; ``None``: the bandit's.
    """

    def __init__(self, log: Log, spec: BanditSpec | None = None) -> None:
        self._log = log
        self._has_own_spec = spec is not None
        self.seq = 0
        self.restored_seq = 0
        """The last event in the snapshot that this was restored from; 0 without one."""
        self.steps = 0
        """Rounds so far: decisions, and batches of history."""
        self.open: dict[str, OpenDecision] = {}
        """Decisions that await rewards, the oldest first."""
        self._waiting: list[Lesson] = []  # until earlier decisions have their rewards
        self.named: Arms | None = None
        self.last_action: object = None
        self._recent: OrderedDict[str, Asked] = OrderedDict()  # by id, the oldest first
        self.challenge: Challenge | None = None
        self.spec: BanditSpec
        self.policy: Policy
        if spec is not None:
            self.spec = spec
            self.policy = spec.build_policy()

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
            try:
                fold._restore(snapshot)
            except SuperarmError:
                # Of another version, perhaps. The events contain all of it.
                fold = cls(log)
        fold.catch_up()
        return fold

    def catch_up(self) -> None:
        """Fold every event of the journal that is not yet folded."""
        for event in self._log.events(after=self.seq):
            self.apply(event)

    def next_event(self, kind: Kind, key: str, body: Mapping[str, Any]) -> Event:
        """The event that may be applied next.

        Args:
            kind: What happened.
            key: What identifies it.
            body: Plain JSON.
        """
        now = clock.time()
        return Event(seq=self.seq + 1, key=key, kind=kind, time=now, body=body)

    def numbered_event(self, kind: Kind, body: Mapping[str, Any]) -> Event:
        """The next event, without an id from outside: it is never repeated.

        Args:
            kind: What happened.
            body: Plain JSON.
        """
        return self.next_event(kind, f"{kind}/{self.seq + 1}", body)

    def apply(self, event: Event) -> None:
        """Fold the next event.

        Args:
            event: The event with the number ``seq + 1``.
        """
        if event.seq != self.seq + 1:
            raise StateError(f"event {event.seq} cannot follow event {self.seq}")
        match event.kind:
            case Kind.CREATED | Kind.RESPECIFIED | Kind.REFITTED:
                self._change_spec(event)
            case Kind.CHALLENGED:
                self._change_challenger(event)
            case Kind.NAMED:
                self.named = self._log.arms(event.body["arms"])
            case Kind.DECIDED:
                deferred = event.body.get("deferred", False)
                self._commit(self.asked(event), deferred)
            case Kind.ACTIVATED:
                self._activate(event.body["decision"])
            case Kind.OBSERVED:
                self._observe(event)
            case Kind.HISTORY:
                self._learn_history(event)
            case Kind.ABANDONED:
                self._abandon(event.body["decision"])
        self.seq = event.seq

    def _change_spec(self, event: Event) -> None:
        if self._has_own_spec:
            return
        self.spec = BanditSpec.from_json(event.body["spec"])
        self.policy = self.spec.build_policy()
        if event.body.get("switched"):
            self.challenge = None  # the challenger is the policy now
        if event.kind is not Kind.CREATED:
            self._learn_again(before=event.seq)

    def _change_challenger(self, event: Event) -> None:
        table = event.body["spec"]
        self.challenge = None
        if table is not None:
            self.challenge = Challenge(BanditSpec.from_json(table), event.seq)

    def _learn_again(self, before: int) -> None:
        """Teach a new policy everything that happened before an event."""
        self.steps = 0
        self.open = {}
        self._waiting = []
        self.named = None
        self.seq = 0
        for event in self._log.events():
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
        return (policy or self.policy).decide(offer, rng)

    def asked(self, event: Event) -> Asked:
        """The decision that an event recorded.

        Args:
            event: An event ``decided``.
        """
        body = event.body
        recent = self.recent(body["id"])
        if recent is not None:
            return recent
        decision: Decision = from_json(body["decision"])
        offer = Offer(
            step=decision.step,
            arms=self._log.arms(body["arms"]),
            structure=from_json(body["structure"]),
            time=body["time"],
        )
        offer = offer.after(from_json(body["previous_action"]))
        asked = Asked(body["id"], offer, decision, event.time)
        # As it was read, not as it was decided: after a restart the same arrays are learned from.
        self._remember(asked)
        return asked

    def recent(self, decision_id: str) -> Asked | None:
        """A decision that is in memory: most rewards are of decisions taken lately.

        Args:
            decision_id: Its id.
        """
        return self._recent.get(decision_id)

    def _remember(self, asked: Asked) -> None:
        """Keep a decision in memory for a while."""
        self._recent[asked.id] = asked
        if len(self._recent) > _MOST_RECENT:
            self._recent.popitem(last=False)

    def is_untouched(self, decision_id: str) -> bool:
        """Whether a decision awaits all of its rewards: then the journal has none of them.

        Args:
            decision_id: Its id.
        """
        waiting = self.open.get(decision_id)
        return waiting is not None and len(waiting.unseen) == waiting.count

    def pending_digest(self) -> str:
        """The ids of the decisions that await rewards, as a digest: there may be thousands."""
        return digest("\n".join(self.open).encode())

    def find(self, decision_id: str) -> Asked | None:
        """A decision of any age; ``None`` if there is none with this id.

        Args:
            decision_id: Its id.
        """
        recent = self.recent(decision_id)
        if recent is not None:
            return recent
        event = self._log.event(decided_key(decision_id))
        return None if event is None else self.asked(event)

    def _commit(self, asked: Asked, deferred: bool) -> None:
        decision = asked.decision
        try:
            self.policy.commit(decision)
        except InputError:
            # A policy of an earlier spec made it, so its arms cannot be pending in this one.
            self.policy.commit(replace(decision, carry=None))
        self.steps = decision.step
        self.last_action = decision.action
        unseen = set(decision.positions.tolist())
        self.open[asked.id] = OpenDecision(
            decision.step, asked.time, unseen, count=len(unseen), deferred=deferred
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
        self._learn_waiting()

    # --- rewards ---------------------------------------------------------------------------

    def _observe(self, event: Event) -> None:
        decision_id = event.body["decision"]
        lesson = self._lesson(event)
        if self.policy.exchangeable:
            self._learn(lesson)
            self._mark_seen(decision_id, lesson.feedback)
            return
        self._check_in_time(decision_id, lesson)
        self._wait(lesson)
        self._mark_seen(decision_id, lesson.feedback)
        self._learn_waiting()

    def _learn_history(self, event: Event) -> None:
        lesson = self._lesson(event)
        if self.policy.exchangeable:
            self._learn(lesson)
        else:
            self._wait(lesson)
            self._learn_waiting()
        self.steps = lesson.decision.step

    def _lesson(self, event: Event) -> Lesson:
        """The rewards that an event recorded."""
        body = event.body
        feedback: Feedback = from_json(body["feedback"])
        if event.kind is Kind.HISTORY:
            arms = self._log.arms(body["arms"])
            offer = Offer(step=body["step"], arms=arms, time=body["time"])
            decision = Decision(
                step=offer.step, action=None, positions=feedback.positions
            )
            return Lesson(event.seq, None, offer, decision, feedback)
        asked = self.find(body["decision"])
        if asked is None:
            raise StateError(
                f"the journal is damaged: it has rewards of decision {body['decision']!r}, "
                "but not the decision; restore a backup"
            )
        return Lesson(event.seq, asked.id, asked.offer, asked.decision, feedback)

    def lessons(self) -> Iterator[Lesson]:
        """All durable rewards, in the order in which they came."""
        for event in self._log.events():
            if event.kind in (Kind.OBSERVED, Kind.HISTORY):
                yield self._lesson(event)

    def _check_in_time(self, decision_id: str, lesson: Lesson) -> None:
        """Refuse rewards that came after those of later decisions, where their order matters."""
        waiting = self.open.get(decision_id)
        if waiting is None:
            raise ConflictError(
                f"decision {decision_id!r} is not pending: all its rewards are recorded, or it was "
                f"abandoned. {type(self.policy).__name__} learns in decision order, so it cannot take more"
            )
        repeated = sorted(set(lesson.feedback.positions.tolist()) - waiting.unseen)
        if repeated:
            arm = lesson.offer.arms.ids[repeated[0]]
            raise ConflictError(
                f"the reward of arm {arm!r} in decision {decision_id!r} is already recorded"
            )

    def _wait(self, lesson: Lesson) -> None:
        """Keep rewards until earlier decisions have theirs; refuse what could not be learned then."""
        feedback = lesson.feedback
        require_size(feedback.rewards, "rewards")
        as_noise(feedback.noise_variance, len(feedback.rewards))
        self._waiting.append(lesson)

    def _learn_waiting(self) -> None:
        """Learn what waited for earlier decisions, in the order of decisions."""
        first_open = next((item.step for item in self.open.values()), None)
        ready = [
            lesson
            for lesson in self._waiting
            if first_open is None or lesson.decision.step < first_open
        ]
        for lesson in sorted(ready, key=Lesson.order):
            self._learn(lesson)
            self._waiting.remove(lesson)

    def _learn(self, lesson: Lesson) -> None:
        rng = stream(self.spec.seed, LEARN, lesson.seq)
        # What it carries was committed; a policy of another spec may know nothing of it.
        decision = replace(lesson.decision, carry=None)
        self.policy.learn(lesson.offer, decision, lesson.feedback, rng)

    def _mark_seen(self, decision_id: str, feedback: Feedback) -> None:
        waiting = self.open.get(decision_id)
        if waiting is None:
            return
        waiting.unseen -= set(feedback.positions.tolist())
        waiting.deferred = False
        if not waiting.unseen:
            del self.open[decision_id]

    # --- snapshots -------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All of it as bytes, without pickle."""
        open_decisions = []  # a list, because the oldest comes first
        for decision_id, decision in self.open.items():
            unseen = sorted(decision.unseen)
            row = [decision_id, decision.step, decision.time, unseen]
            open_decisions.append(row)
        arrays = {}
        scalars: dict[str, Any] = {
            "seq": self.seq,
            "steps": self.steps,
            "spec": self.spec.as_json(),
            "open": open_decisions,
            "waiting": [lesson.seq for lesson in self._waiting],
            "last_action": to_json(self.last_action),
        }
        deferred = [name for name, item in self.open.items() if item.deferred]
        if deferred:
            scalars["deferred"] = deferred
        if self.challenge is not None:
            scalars["challenger"] = self.challenge.spec.as_json()
            scalars["challenged"] = self.challenge.seq
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
        policy = self.spec.build_policy()
        self.policy = policy.restored(state.part("policy"))
        self.steps = state.scalar("steps")
        self.last_action = from_json(state.scalar("last_action"))
        self._restore_decisions(state)
        if "challenger" in state.scalars:
            challenger = BanditSpec.from_json(state.scalar("challenger"))
            self.challenge = Challenge(challenger, state.scalar("challenged"))
        if "named" in state.arrays:
            ids = state.scalar("named")
            self.named = Arms(ids=ids, features=state.array("named"))
        self.seq = snapshot.seq
        self.restored_seq = snapshot.seq

    def _restore_decisions(self, state: State) -> None:
        """Restore open decisions, and rewards that wait to be learned."""
        for decision_id, step, time, unseen in state.scalar("open"):
            self.open[decision_id] = OpenDecision(step, time, set(unseen))
        for decision_id in state.scalars.get("deferred", ()):
            self.open[decision_id].deferred = True
        for seq in state.scalar("waiting"):
            later_events = self._log.events(after=seq - 1)
            event = next(later_events)
            self._waiting.append(self._lesson(event))
