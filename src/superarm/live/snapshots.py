"""Snapshots: a fold as bytes, without pickle, so that a start does not fold every event."""

from __future__ import annotations

from typing import Any

from superarm.core import Arms, State
from superarm.core.errors import SuperarmError
from superarm.core.serialization import from_json, to_json
from superarm.core.states import state_from_bytes, state_to_bytes

from .bandit_journal import BanditJournal
from .decisions import OpenDecision
from .fold import Challenge, Fold
from .journal import Snapshot
from .spec import BanditSpec

_KIND = "bandit"
_SCHEMA = 1


def load_fold(journal: BanditJournal) -> Fold:
    """The bandit as it is now: its snapshot, and the events since.

    Args:
        journal: Where its events are.
    """
    fold = _start(journal)
    fold.catch_up()
    return fold


def load_fold_before(journal: BanditJournal, seq: int) -> Fold:
    """The bandit as it was just before an event.

    It starts from the latest snapshot that is old enough, or from the first event.

    Args:
        journal: Where its events are.
        seq: The number of the event.
    """
    fold = _start(journal, last=seq - 1)
    for event in journal.events(after=fold.seq, last=seq - 1):
        fold.apply(event)
    return fold


def _start(journal: BanditJournal, last: int | None = None) -> Fold:
    """A fold that contains the events of the latest snapshot that can be read, or none.

    Args:
        journal: Where the events of the bandit are.
        last: The number of the last event that it may contain; ``None``: any.
    """
    snapshot = journal.snapshot(last)
    while snapshot is not None:
        fold = Fold(journal)
        try:
            _restore(fold, snapshot)
        except SuperarmError:
            # Of another version, perhaps. The events contain all of it.
            snapshot = journal.snapshot(snapshot.seq - 1)
        else:
            return fold
    return Fold(journal)


def take_snapshot(fold: Fold) -> Snapshot:
    """A fold as bytes.

    Args:
        fold: The fold.
    """
    open_decisions = []  # a list, because the oldest comes first
    for decision_id, decision in fold.open.items():
        unseen = sorted(decision.unseen)
        open_decisions.append([decision_id, decision.step, decision.time, unseen])
    arrays = {}
    scalars: dict[str, Any] = {
        "seq": fold.seq,
        "steps": fold.steps,
        "spec": fold.spec.as_json(),
        "open": open_decisions,
        "waiting": [observation.seq for observation in fold.held_back],
        "last_action": to_json(fold.last_action),
    }
    deferred = [name for name, item in fold.open.items() if item.deferred]
    if deferred:
        scalars["deferred"] = deferred
    if fold.challenge is not None:
        scalars["challenger"] = fold.challenge.spec.as_json()
        scalars["challenged"] = fold.challenge.seq
    if fold.named is not None:
        scalars["named"] = list(fold.named.ids)
        arrays["named"] = fold.named.features
    state = State(
        kind=_KIND,
        schema=_SCHEMA,
        scalars=scalars,
        arrays=arrays,
        parts={"policy": fold.policy.state()},
    )
    return Snapshot(fold.seq, state_to_bytes(state))


def _restore(fold: Fold, snapshot: Snapshot) -> None:
    """Bring a new fold to where a snapshot was taken."""
    state = state_from_bytes(snapshot.data)
    state.require(_KIND, _SCHEMA, "Fold")
    fold.spec = BanditSpec.from_json(state.scalar("spec"))
    policy = fold.spec.build_policy()
    fold.policy = policy.restored(state.part("policy"))
    fold.steps = state.scalar("steps")
    fold.last_action = from_json(state.scalar("last_action"))
    _restore_open_decisions(fold, state)
    _restore_held_back(fold, state)
    if "challenger" in state.scalars:
        challenger = BanditSpec.from_json(state.scalar("challenger"))
        fold.challenge = Challenge(challenger, state.scalar("challenged"))
    if "named" in state.arrays:
        ids = state.scalar("named")
        fold.named = Arms(ids=ids, features=state.array("named"))
    fold.seq = snapshot.seq
    fold.restored_seq = snapshot.seq
    last_event = next(fold.journal.events(after=snapshot.seq - 1), None)
    if last_event is not None:
        fold.time = last_event.time


def _restore_open_decisions(fold: Fold, state: State) -> None:
    for decision_id, step, time, unseen in state.scalar("open"):
        fold.open[decision_id] = OpenDecision(step, time, set(unseen))
    for decision_id in state.scalars.get("deferred", ()):
        fold.open[decision_id].deferred = True


def _restore_held_back(fold: Fold, state: State) -> None:
    """Read the rewards that wait to be learned from their events."""
    for seq in state.scalar("waiting"):
        event = next(fold.journal.events(after=seq - 1))
        fold.held_back.add(fold.reader.observation(event))
