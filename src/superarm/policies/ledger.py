"""What a policy has decided and what feedback it has had: nothing is learned twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Decision, Feedback, Ints, Offer, Posterior, State
from superarm.core.errors import ConflictError, InputError, StateError, UnknownArmError
from superarm.core.inputs import as_count, frozen, require_size, require_type
from superarm.core.migrations import up_to_date

CARRY = "chosen-arms"
_KIND, _SCHEMA = "ledger", 1
_MOST_OPEN = (
    1 << 16
)  # decisions seen in part that are remembered; the rest of older ones is given up
MOST_ROUNDS = 10**9
"""No run is longer: steps beyond it stand for the trips of a log."""
_REMEMBERED = (
    16  # decisions asked for and not yet taken whose carries are known to be sound
)


def check_feedback(offer: Offer, decision: Decision, feedback: Feedback) -> None:
    """Refuse feedback that belongs to another decision, or to another offer."""
    require_type(offer, Offer, "offer")
    require_type(decision, Decision, "decision")
    require_type(feedback, Feedback, "feedback")
    if decision.step != offer.step:
        told = (
            f"the decision is of step {decision.step}, the offer of step {offer.step}"
        )
        raise InputError(f"{told}; pass the offer that the decision was made for")
    seen = feedback.positions.tolist()
    chosen = decision.positions.tolist()
    if chosen and not 0 <= min(chosen) <= max(chosen) < len(offer.arms):
        told = f"the decision names arms {min(chosen)} to {max(chosen)}"
        raise UnknownArmError(
            f"{told}, but the offer has arms 0 to {len(offer.arms) - 1}"
        )
    if seen != chosen and not set(seen) <= set(chosen):
        strange = next(position for position in seen if position not in chosen)
        told = f"feedback names position {strange}, which was not chosen in step {decision.step}"
        raise UnknownArmError(f"{told}: positions {chosen[:9]} were")


def check_rewards(feedback: Feedback) -> None:
    """Refuse rewards too large to learn from, and noise that no observation has."""
    require_size(feedback.rewards, "rewards")
    noise = feedback.noise_variance
    if noise is not None and not (noise > 0.0).all():
        raise InputError(f"noise_variance is {noise.min()}; it must be above 0")


class Steps:
    """A set of steps, kept as ranges: a million rounds in a row take two numbers."""

    __slots__ = ("_starts", "_stops")

    def __init__(
        self, starts: list[int] | None = None, stops: list[int] | None = None
    ) -> None:
        self._starts = starts or []
        self._stops = stops or []  # each one past the last step of its range

    def __contains__(self, step: int) -> bool:
        if not self._stops or step >= self._stops[-1]:
            return False
        at = bisect_right(self._starts, step) - 1
        return at >= 0 and step < self._stops[at]

    def add(self, step: int, count: int = 1) -> None:
        """``count`` steps from ``step`` on, none of which is here."""
        starts, stops = self._starts, self._stops
        if stops and stops[-1] == step:  # the next in a row, as nearly always
            stops[-1] = step + count
            return
        at = bisect_right(starts, step)
        starts.insert(at, step)
        stops.insert(at, step + count)
        for left in (at, at - 1):  # ranges that meet become one
            if left >= 0 and starts[left + 1 : left + 2] == [stops[left]]:
                del starts[left + 1], stops[left]

    @property
    def last(self) -> int:
        """The largest step; 0 where there is none."""
        return self._stops[-1] - 1 if self._stops else 0

    def as_lists(self) -> list[list[int]]:
        return [self._starts.copy(), self._stops.copy()]

    @classmethod
    def from_lists(cls, value: Any) -> Steps:
        """Ranges that rise and leave gaps, or :class:`StateError`."""
        flat = [number for pair in zip(*value, strict=True) for number in pair]
        whole = all(type(number) is int for number in flat)
        if len(value) != 2 or not whole or any(a >= b for a, b in pairwise(flat)):
            raise StateError(
                "this state is damaged: the steps it has learned from do not rise"
            )
        return cls(list(value[0]), list(value[1]))


class Ledger:
    """Decisions by step: which were learned from whole, which in part, and what is awaited."""

    def __init__(self, *, most_pending: int) -> None:
        self._most_pending = most_pending
        self.closed = Steps()  # those of which all rewards were learned
        self.last = 0  # the largest step of which something was learned
        self._committed = Steps()  # decisions that were taken
        self._heard: dict[
            int, set[int]
        ] = {}  # positions seen of decisions not yet seen whole
        self._awaited: dict[
            int, State
        ] = {}  # what decisions carry that were not seen whole
        self._made: deque[State] = deque(
            maxlen=_REMEMBERED
        )  # by this ledger: they need no check

    def __getstate__(self) -> dict[str, Any]:
        # A copy checks every carry: threads that decide may be adding to those that are known.
        return {**vars(self), "_made": deque(maxlen=_REMEMBERED)}

    # --- deciding --------------------------------------------------------------------------

    def carry(
        self, positions: Ints, posterior: Posterior, offer: Offer
    ) -> State | None:
        """What :meth:`expect` needs of a decision once it is taken."""
        if not self._most_pending:
            return None
        keys = posterior.keys(offer)[positions]  # a new array
        keys.setflags(write=False)
        arrays = {"positions": frozen(positions), "keys": frozen(keys)}
        carry = State(kind=CARRY, schema=1, arrays=arrays)
        self._made.append(carry)
        return carry

    def expect(self, decision: Decision, posterior: Posterior) -> None:
        """The decision is taken: until they are seen, its arms are pending."""
        carry, step = decision.carry, decision.step
        if carry is None or not self._most_pending or step in self.closed:
            self.note_commit(step)
            return
        if (
            carry not in self._made.copy()
        ):  # it may come from a file: later beliefs build on it
            _check_carry(carry)
            if not np.array_equal(carry.arrays["positions"], decision.positions):
                raise InputError(CHANGED)
            posterior.predict(
                carry.arrays["keys"], return_std=False
            )  # says what is wrong with keys
        if len(carry.arrays["positions"]):
            self._awaited[step] = _own(carry)
        if (
            len(self._awaited) > self._most_pending
        ):  # what is lost is not awaited for ever
            del self._awaited[min(self._awaited)]
        self.note_commit(step)

    def note_commit(self, step: int) -> None:
        """The decision of this step was taken; a second or a late commit changes nothing."""
        if step not in self._committed and step not in self.closed:
            self._committed.add(step)

    def assume_committed(self, state: State, last: int) -> None:
        """Count steps up to ``last`` as committed where this is a state of version 0.1.0.

        Such states do not list what was committed, and late feedback must still be learned.
        """
        if "committed" not in state.scalars and last not in self._committed and last:
            self._committed = Steps([1], [last + 1])

    @property
    def awaits(self) -> bool:
        """Whether arms were chosen and not seen."""
        return bool(self._awaited)

    def give_up(self) -> None:
        self._awaited.clear()

    def pending(self) -> NDArray[Any] | None:
        """Keys of the arms that were chosen and not yet seen; of too many, those chosen last."""
        if not self._awaited:
            return None
        awaited = sorted(self._awaited.copy().items())  # another thread may add to it
        keys = [
            carry.arrays["keys"][self._unheard(step, carry)] for step, carry in awaited
        ]
        pending = np.concatenate(keys)[-self._most_pending :]
        return pending if len(pending) else None

    def _unheard(self, step: int, carry: State) -> slice | list[int]:
        """Rows of a decision's arms that are not yet seen."""
        heard = self._heard.get(step)
        if heard is None:
            return slice(None)
        positions = carry.arrays["positions"].tolist()
        return [row for row, position in enumerate(positions) if position not in heard]

    # --- learning --------------------------------------------------------------------------

    def check_committed(self, decision: Decision) -> None:
        """Refuse a decision with a ``carry`` that :meth:`Policy.commit` has not adopted."""
        carry, step = decision.carry, decision.step
        if carry is None or step in self.closed:
            return
        if step not in self._committed:
            raise ConflictError(
                f"the decision of step {step} was not committed; call policy.commit(decision) when you "
                "take a decision, before policy.learn(…)"
            )
        awaited = self._awaited.get(step)
        if awaited is None:
            return
        committed = awaited.arrays["positions"].tolist()
        given = decision.positions.tolist()
        if given != committed:
            raise ConflictError(
                f"step {step} was committed with positions {committed[:9]}, but this decision has "
                f"{given[:9]}; pass the decision that was committed"
            )

    def check(self, decision: Decision, feedback: Feedback) -> None:
        """Refuse what was learned before."""
        step = decision.step
        if step in self.closed:
            again = feedback.positions.tolist()
        elif step in self._heard:
            again = [
                each
                for each in feedback.positions.tolist()
                if each in self._heard[step]
            ]
        else:
            return
        if again:
            raise ConflictError(
                f"the reward of position {again[0]} in step {step} was learned already; give every "
                "decision a step of its own, or make an IndexPolicy with repeats=True"
            )

    def check_order(self, decision: Decision, learner: str) -> None:
        """Refuse feedback of an earlier decision than the last one learned from."""
        if decision.step < self.last:
            raise ConflictError(
                f"{learner} learns in the order of decisions: feedback of step {decision.step} came "
                f"after that of step {self.last}; hold later feedback back until earlier feedback "
                "has come"
            )

    def note(self, decision: Decision, feedback: Feedback) -> None:
        """This feedback was learned from."""
        step, seen = decision.step, feedback.positions.tolist()
        if step in self.closed:
            return
        if step in self._heard:
            seen = self._heard[step].union(seen)
        if len(seen) >= len(decision.positions):
            self._close(step)
        elif seen:
            self._heard[step] = set(seen)
            if len(self._heard) > _MOST_OPEN:
                self._close(next(iter(self._heard)))
        else:
            return
        self.last = max(self.last, step)

    def _close(self, step: int) -> None:
        self.closed.add(step)
        self._heard.pop(step, None)
        self._awaited.pop(step, None)

    def note_rounds(self, step: int, count: int) -> None:
        """Rounds ``step`` … were played and learned from at once."""
        self.closed.add(step, count)
        self.last = max(self.last, step + count - 1)

    # --- state -----------------------------------------------------------------------------

    def state(self) -> State:
        heard = [[step, sorted(seen)] for step, seen in sorted(self._heard.items())]
        scalars = {
            "closed": self.closed.as_lists(),
            "heard": heard,
            "committed": self._committed.as_lists(),
        }
        parts = {str(step): _own(carry) for step, carry in self._awaited.items()}
        return State(kind=_KIND, schema=_SCHEMA, scalars=scalars, parts=parts)

    def restored(self, state: State) -> Ledger:
        state = up_to_date(state, _KIND, _SCHEMA, type(self).__name__)
        ledger = Ledger(most_pending=self._most_pending)
        try:
            ledger.closed = Steps.from_lists(state.scalar("closed"))
            ledger._heard = {step: set(seen) for step, seen in state.scalar("heard")}
            for number in {*ledger._heard}.union(*ledger._heard.values()):
                as_count(number, "a step or position", 0)
            ledger.last = max(ledger.closed.last, max(ledger._heard, default=0))
            for step, carry in sorted(
                (int(name), part) for name, part in state.parts.items()
            ):
                _check_carry(carry)
                ledger._awaited[step] = _own(carry)
            if "committed" in state.scalars:
                ledger._committed = Steps.from_lists(state.scalar("committed"))
            ledger.assume_committed(state, max(ledger.last, *ledger._awaited, 0))
        except (TypeError, ValueError) as error:
            raise StateError(
                "this state is damaged: its learned rewards cannot be read"
            ) from error
        return ledger


def last_step(state: State) -> int:
    """The last round that the policy of this state has taken, as far as it knows; 0 before the first.

    Steps beyond ``MOST_ROUNDS`` are no rounds.
    """
    ledger = Ledger(most_pending=0).restored(state.part("ledger"))
    steps = {
        *(stop - 1 for stop in ledger.closed.as_lists()[1]),
        *ledger._heard,
        *ledger._awaited,
    }
    return max((step for step in steps if step <= MOST_ROUNDS), default=0)


CHANGED = (
    "the decision carries arms other than those it chose; it was changed on the way"
)


def _own(carry: State) -> State:
    """The same carry, which nobody outside can change."""
    arrays = {name: frozen(array) for name, array in carry.arrays.items()}
    return State(kind=carry.kind, schema=carry.schema, arrays=arrays)


def _check_carry(carry: State) -> None:
    """Refuse what no decision of this kind of policy carries."""
    if carry.kind != CARRY:
        raise InputError(f"the decision carries {carry.kind!r}: another policy made it")
    positions, keys = carry.array("positions"), carry.array("keys")
    plain = all(type(each) is np.ndarray for each in (positions, keys))
    whole = plain and positions.ndim == 1 and positions.dtype.kind in "iu"
    if not whole or keys.shape[:1] != positions.shape:
        raise InputError(CHANGED)
