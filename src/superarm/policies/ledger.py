"""Decisions that a policy has taken and feedback that it has learned, so that none is learned twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Decision, Feedback, Ints, Offer, Posterior, State
from superarm.core.errors import (
    ConflictError,
    InputError,
    RepeatedRewardError,
    StateError,
    UnknownArmError,
)
from superarm.core.inputs import as_count, frozen, require_size, require_type
from superarm.core.migrations import up_to_date

CARRY = "chosen-arms"
"""Kind of the state that a decision carries."""
_KIND = "ledger"
_SCHEMA = 1
MOST_ROUNDS = 10**9
"""No run is longer: steps beyond it stand for the trips of a log."""
CHANGED = (
    "the decision carries arms other than those it chose; it was changed on the way"
)
# Partly seen decisions that are remembered. Older ones count as seen in full.
_MOST_PARTIAL = 1 << 16
# Recent carries that need no check, because this ledger created them.
_MOST_TRUSTED = 16


def check_feedback(offer: Offer, decision: Decision, feedback: Feedback) -> None:
    """Refuse feedback that belongs to another decision, or to another offer.

    Args:
        offer: The offer that the decision was made for.
        decision: The decision.
        feedback: Rewards of all or some of its arms.
    """
    require_type(offer, Offer, "offer")
    require_type(decision, Decision, "decision")
    require_type(feedback, Feedback, "feedback")
    if decision.step != offer.step:
        raise InputError(
            f"the decision is of step {decision.step}, the offer of step {offer.step}; pass the offer "
            "that the decision was made for"
        )
    seen = feedback.positions.tolist()
    chosen = decision.positions.tolist()
    if chosen and not 0 <= min(chosen) <= max(chosen) < len(offer.arms):
        raise UnknownArmError(
            f"the decision names arms {min(chosen)} to {max(chosen)}, but the offer has arms 0 to "
            f"{len(offer.arms) - 1}"
        )
    if seen != chosen and not set(seen) <= set(chosen):
        unknown = next(position for position in seen if position not in chosen)
        raise UnknownArmError(
            f"feedback names position {unknown}, which was not chosen in step {decision.step}: "
            f"positions {chosen[:9]} were"
        )


def check_rewards(feedback: Feedback) -> None:
    """Refuse rewards too large to learn from, and noise variances that are not positive.

    Args:
        feedback: The feedback.
    """
    require_size(feedback.rewards, "rewards")
    noise = feedback.noise_variance
    if noise is not None and not (noise > 0.0).all():
        raise InputError(f"noise_variance must be above 0, got {noise.min()}")


class Steps:
    """A set of steps, stored as ranges: a million rounds in a row take two numbers."""

    __slots__ = ("_starts", "_stops")

    def __init__(
        self, starts: list[int] | None = None, stops: list[int] | None = None
    ) -> None:
        self._starts = starts or []
        self._stops = stops or []  # each one past the last step of its range

    def __contains__(self, step: int) -> bool:
        if not self._stops or step >= self._stops[-1]:
            return False
        place = bisect_right(self._starts, step) - 1
        return place >= 0 and step < self._stops[place]

    def add(self, step: int, count: int = 1) -> None:
        """Add steps, none of which is in the set.

        Args:
            step: The first step to add.
            count: How many steps to add.
        """
        if self._stops and self._stops[-1] == step:  # the next in a row: nearly always
            self._stops[-1] = step + count
            return
        place = bisect_right(self._starts, step)
        self._starts.insert(place, step)
        self._stops.insert(place, step + count)
        self._merge_with_next(place)
        self._merge_with_next(place - 1)

    def _merge_with_next(self, place: int) -> None:
        """Make one range of two that touch."""
        following = place + 1
        if place < 0 or following >= len(self._starts):
            return
        if self._starts[following] == self._stops[place]:
            del self._starts[following]
            del self._stops[place]

    @property
    def last(self) -> int:
        """The largest step; 0 for the empty set."""
        return self._stops[-1] - 1 if self._stops else 0

    @property
    def last_of_ranges(self) -> list[int]:
        """The last step of every range."""
        return [stop - 1 for stop in self._stops]

    def as_lists(self) -> list[list[int]]:
        """The first steps of all ranges, and those just after their last steps."""
        return [self._starts.copy(), self._stops.copy()]

    @classmethod
    def from_lists(cls, lists: Any) -> Steps:
        """The set of these ranges; :class:`StateError` unless they ascend with gaps between them.

        Args:
            lists: What :meth:`as_lists` returned.
        """
        bounds: list[Any] = []
        for pair in zip(*lists, strict=True):
            bounds.extend(pair)
        is_integer = all(type(bound) is int for bound in bounds)
        has_two_lists = len(lists) == 2
        if not has_two_lists or not is_integer or not _is_ascending(bounds):
            raise StateError(
                "this state is damaged: the steps it has learned from do not rise"
            )
        starts, stops = lists
        return cls(list(starts), list(stops))


def _is_ascending(numbers: list[int]) -> bool:
    return all(earlier < later for earlier, later in pairwise(numbers))


class Ledger:
    """Decisions by step: which were learned in full, which in part, and which are pending."""

    def __init__(self, *, most_pending: int) -> None:
        self._most_pending = most_pending
        self.closed = Steps()
        """Steps of which all rewards were learned."""
        self.last = 0
        """The largest step of which something was learned."""
        self._committed = Steps()  # decisions that were taken
        # By step: positions seen of decisions that were not yet seen in full.
        self._seen: dict[int, set[int]] = {}
        # By step: carries of decisions that were taken and not yet seen in full.
        self._pending: dict[int, State] = {}
        # Carries that this ledger created: they need no check.
        self._trusted: deque[State] = deque(maxlen=_MOST_TRUSTED)

    def __getstate__(self) -> dict[str, Any]:
        # A copy trusts no carry: threads that decide may be adding to them just now.
        return {**vars(self), "_trusted": deque(maxlen=_MOST_TRUSTED)}

    # --- deciding --------------------------------------------------------------------------

    def carry(
        self, positions: Ints, posterior: Posterior, offer: Offer
    ) -> State | None:
        """What :meth:`expect` needs of a decision once it is taken.

        Args:
            positions: Positions of the chosen arms, (k,).
            posterior: The posterior, which gives arms their keys.
            offer: The arms on offer.
        """
        if not self._most_pending:
            return None
        keys = posterior.keys(offer)[positions]  # a new array
        keys.setflags(write=False)
        arrays = {"positions": frozen(positions), "keys": frozen(keys)}
        carry = State(kind=CARRY, schema=1, arrays=arrays)
        self._trusted.append(carry)
        return carry

    def expect(self, decision: Decision, posterior: Posterior) -> None:
        """Take a decision: its arms are pending until they are seen.

        Args:
            decision: The decision.
            posterior: The posterior, which checks keys from elsewhere.
        """
        carry = decision.carry
        step = decision.step
        if carry is None or not self._most_pending or step in self.closed:
            self.note_commit(step)
            return
        if carry not in self._trusted.copy():
            # It may come from a file, and later beliefs build on it.
            _check_carry(carry)
            if not np.array_equal(carry.arrays["positions"], decision.positions):
                raise InputError(CHANGED)
            # Raises for keys that are no arms.
            posterior.predict(carry.arrays["keys"], return_std=False)
        if len(carry.arrays["positions"]):
            self._pending[step] = _frozen_carry(carry)
        if len(self._pending) > self._most_pending:
            # Lost feedback is not awaited forever.
            del self._pending[min(self._pending)]
        self.note_commit(step)

    def note_commit(self, step: int) -> None:
        """Record that a decision was taken; a second or a late commit changes nothing.

        Args:
            step: The step of the decision.
        """
        if step not in self._committed and step not in self.closed:
            self._committed.add(step)

    def assume_committed(self, state: State, last: int) -> None:
        """Count steps up to ``last`` as committed where a state is of version 0.1.0.

        Such states do not list what was committed, and late feedback must still be learned.

        Args:
            state: The state of the ledger.
            last: The last step that was taken.
        """
        if "committed" not in state.scalars and last not in self._committed and last:
            self._committed = Steps([1], [last + 1])

    @property
    def awaits(self) -> bool:
        """Whether arms are pending."""
        return bool(self._pending)

    def give_up(self, step: int | None = None) -> None:
        """Stop waiting for feedback: chosen arms are pending no more.

        Args:
            step: The step of the decision; ``None``: all decisions.
        """
        if step is None:
            self._pending.clear()
        else:
            self._pending.pop(step, None)

    def pending(self) -> NDArray[Any] | None:
        """Keys of pending arms, those chosen last if there are too many; ``None`` without any."""
        if not self._pending:
            return None
        carries = self._pending.copy()  # another thread may add to it
        unseen_keys = []
        for step, carry in sorted(carries.items()):
            keys = carry.arrays["keys"]
            rows = self._unseen_rows(step, carry)
            unseen_keys.append(keys[rows])
        pending = np.concatenate(unseen_keys)
        pending = pending[-self._most_pending :]
        return pending if len(pending) else None

    def _unseen_rows(self, step: int, carry: State) -> slice | list[int]:
        """Rows of a decision's arms that are not yet seen."""
        seen = self._seen.get(step)
        if seen is None:
            return slice(None)
        positions = carry.arrays["positions"].tolist()
        return [row for row, position in enumerate(positions) if position not in seen]

    # --- learning --------------------------------------------------------------------------

    def check_committed(self, decision: Decision) -> None:
        """Refuse a decision with a ``carry`` that :meth:`Policy.commit` has not adopted.

        Args:
            decision: The decision.
        """
        step = decision.step
        if decision.carry is None or step in self.closed:
            return
        if step not in self._committed:
            raise ConflictError(
                f"the decision of step {step} was not committed; call policy.commit(decision) when you "
                "take a decision, before policy.learn(…)"
            )
        pending = self._pending.get(step)
        if pending is None:
            return
        committed = pending.arrays["positions"].tolist()
        positions = decision.positions.tolist()
        if positions != committed:
            raise ConflictError(
                f"step {step} was committed with positions {committed[:9]}, but this decision has "
                f"{positions[:9]}; pass the decision that was committed"
            )

    def check(self, decision: Decision, feedback: Feedback) -> None:
        """Refuse rewards that were learned before.

        Args:
            decision: The decision.
            feedback: Rewards of all or some of its arms.
        """
        step = decision.step
        positions = feedback.positions.tolist()
        if step in self.closed:
            repeated = positions
        elif step in self._seen:
            seen = self._seen[step]
            repeated = [position for position in positions if position in seen]
        else:
            return
        if repeated:
            raise RepeatedRewardError(
                f"the reward of position {repeated[0]} in step {step} was learned already; give every "
                "decision a step of its own, or make an IndexPolicy with repeats=True",
                position=repeated[0],
            )

    def check_order(self, decision: Decision, learner: str) -> None:
        """Refuse feedback of an earlier decision than the last one learned from.

        Args:
            decision: The decision.
            learner: Name of the class that needs the order, for the error.
        """
        if decision.step < self.last:
            raise ConflictError(
                f"{learner} learns in the order of decisions: feedback of step {decision.step} came "
                f"after that of step {self.last}; hold later feedback back until earlier feedback "
                "has come"
            )

    def note(self, decision: Decision, feedback: Feedback) -> None:
        """Record that feedback was learned.

        Args:
            decision: The decision.
            feedback: Rewards of all or some of its arms.
        """
        step = decision.step
        seen = feedback.positions.tolist()
        if step in self.closed:
            return
        if step in self._seen:
            seen = self._seen[step].union(seen)
        if len(seen) >= len(decision.positions):
            self._close(step)
        elif seen:
            self._seen[step] = set(seen)
            if len(self._seen) > _MOST_PARTIAL:
                oldest = next(iter(self._seen))
                self._close(oldest)
        else:
            return
        self.last = max(self.last, step)

    def _close(self, step: int) -> None:
        self.closed.add(step)
        self._seen.pop(step, None)
        self._pending.pop(step, None)

    def note_rounds(self, step: int, count: int) -> None:
        """Record rounds that were played and learned at once.

        Args:
            step: The first of these rounds.
            count: How many rounds.
        """
        self.closed.add(step, count)
        self.last = max(self.last, step + count - 1)

    # --- state -----------------------------------------------------------------------------

    def state(self) -> State:
        """All that the ledger holds."""
        partly_seen = []
        for step, positions in sorted(self._seen.items()):
            partly_seen.append([step, sorted(positions)])
        scalars = {
            "closed": self.closed.as_lists(),
            "heard": partly_seen,
            "committed": self._committed.as_lists(),
        }
        parts = {}
        for step, carry in self._pending.items():
            parts[str(step)] = _frozen_carry(carry)
        return State(kind=_KIND, schema=_SCHEMA, scalars=scalars, parts=parts)

    def restored(self, state: State) -> Ledger:
        """A ledger with the content of a state.

        Args:
            state: What :meth:`state` returned.
        """
        state = up_to_date(state, _KIND, _SCHEMA, type(self).__name__)
        ledger = Ledger(most_pending=self._most_pending)
        try:
            ledger._load(state)
        except (TypeError, ValueError) as error:
            raise StateError(
                "this state is damaged: its learned rewards cannot be read"
            ) from error
        return ledger

    def _load(self, state: State) -> None:
        self.closed = Steps.from_lists(state.scalar("closed"))
        for step, positions in state.scalar("heard"):
            self._seen[step] = set(positions)
        for step, seen in self._seen.items():
            as_count(step, "a step or position", 0)
            for position in seen:
                as_count(position, "a step or position", 0)
        last_seen = max(self._seen, default=0)
        self.last = max(self.closed.last, last_seen)
        self._load_pending(state)
        if "committed" in state.scalars:
            committed = state.scalar("committed")
            self._committed = Steps.from_lists(committed)
        last_pending = max(self._pending, default=0)
        last_taken = max(self.last, last_pending, 0)
        self.assume_committed(state, last_taken)

    def _load_pending(self, state: State) -> None:
        """Load the carries of pending decisions."""
        carries = {int(name): carry for name, carry in state.parts.items()}
        if len(carries) < len(state.parts):
            raise ValueError("two parts have the same step")
        for step in sorted(carries):
            carry = carries[step]
            _check_carry(carry)
            self._pending[step] = _frozen_carry(carry)


def last_step(state: State) -> int:
    """The last round in a policy's state, as far as it is recorded; 0 before the first.

    Args:
        state: The state of a policy. Its steps beyond ``MOST_ROUNDS`` are no rounds.
    """
    empty_ledger = Ledger(most_pending=0)
    ledger = empty_ledger.restored(state.part("ledger"))
    steps = [*ledger.closed.last_of_ranges, *ledger._seen, *ledger._pending]
    rounds = [step for step in steps if step <= MOST_ROUNDS]
    return max(rounds, default=0)


def _frozen_carry(carry: State) -> State:
    """The same carry in arrays that nobody can change."""
    arrays = {name: frozen(array) for name, array in carry.arrays.items()}
    return State(kind=carry.kind, schema=carry.schema, arrays=arrays)


def _check_carry(carry: State) -> None:
    """Refuse what no decision of this kind of policy carries."""
    if carry.kind != CARRY:
        raise InputError(f"the decision carries {carry.kind!r}: another policy made it")
    positions = carry.array("positions")
    keys = carry.array("keys")
    if type(positions) is not np.ndarray or type(keys) is not np.ndarray:
        raise InputError(CHANGED)
    is_integer = positions.ndim == 1 and positions.dtype.kind in "iu"
    if not is_integer or keys.shape[:1] != positions.shape:
        raise InputError(CHANGED)
