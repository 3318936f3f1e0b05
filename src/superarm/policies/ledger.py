"""What a policy has decided and what it has heard of it: nothing is learned twice, nothing forgotten.

A decision is *open* from the moment it is taken until all its arms were seen. Steps of decisions of
which everything was seen are kept as ranges, so that a million rounds in a row take two numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Decision, Feedback, Ints, Offer, Posterior, State
from superarm.errors import ConflictError, InputError, StateError, UnknownArmError

CARRY = "chosen-arms"
_REMEMBERED = 16
"""Decisions asked for and not yet taken whose carries are known to be sound."""


def check_feedback(offer: Offer, decision: Decision, feedback: Feedback) -> None:
    """Refuse feedback that belongs to another decision, or to another offer."""
    for value, kind in ((offer, Offer), (decision, Decision), (feedback, Feedback)):
        if type(value) is not kind and not isinstance(value, kind):
            raise InputError(
                f"learn(offer, decision, feedback, rng) takes a {kind.__name__}, not a "
                f"{type(value).__name__}"
            )
    if decision.step != offer.step:
        raise InputError(
            f"the decision is that of step {decision.step}, the offer that of step {offer.step}; "
            "hand over the offer that was decided on"
        )
    seen = feedback.positions.tolist()
    chosen = decision.positions.tolist()
    if chosen and not 0 <= min(chosen) <= max(chosen) < len(offer.arms):
        raise UnknownArmError(
            f"the decision names arms {min(chosen)} to {max(chosen)}, but the offer has arms 0 to "
            f"{len(offer.arms) - 1}"
        )
    if seen != chosen and not set(seen) <= set(chosen):
        strange = next(position for position in seen if position not in chosen)
        raise UnknownArmError(
            f"feedback names position {strange}, which was not chosen in step {decision.step}; "
            f"chosen were {chosen[:9]}"
        )


def _check_carry(carry: State, decision: Decision, posterior: Posterior) -> None:
    """Refuse a carry, which may come from a file, that no later decision could be conditioned on."""
    if carry.kind != CARRY:
        raise InputError(f"the decision carries {carry.kind!r}; it was made by another policy")
    positions, keys = carry.array("positions"), carry.array("keys")
    same = type(positions) is np.ndarray and np.array_equal(positions, decision.positions)
    if not same or type(keys) is not np.ndarray or keys.shape[:1] != positions.shape:
        raise InputError("the decision carries other arms than it chose; it was changed on its way")
    posterior.predict(keys, return_std=False)  # says what is wrong with keys


class Steps:
    """A set of steps, kept as ranges."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, starts: list[int] | None = None, stops: list[int] | None = None) -> None:
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
        joins_before = at > 0 and stops[at - 1] == step
        joins_after = at < len(starts) and starts[at] == step + count
        if joins_before and joins_after:
            stops[at - 1] = stops[at]
            del starts[at], stops[at]
        elif joins_before:
            stops[at - 1] = step + count
        elif joins_after:
            starts[at] = step
        else:
            starts.insert(at, step)
            stops.insert(at, step + count)

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
            raise StateError("this state is damaged: the steps it has learned from do not rise")
        return cls(list(value[0]), list(value[1]))


class Ledger:
    """Decisions by step: which were learned from whole, which in part, and what is awaited."""

    def __init__(self, *, most_pending: int) -> None:
        self._most_pending = most_pending
        self._closed = Steps()
        self._heard: dict[int, set[int]] = {}  # positions seen of decisions not yet seen whole
        self._awaited: dict[int, _Awaited] = {}
        self._made: deque[State] = deque(maxlen=_REMEMBERED)  # by this ledger: they need no check

    # --- deciding --------------------------------------------------------------------------

    def carry(self, positions: Ints, posterior: Posterior, offer: Offer) -> State | None:
        """What :meth:`expect` needs of a decision once it is taken."""
        if not self._most_pending:
            return None
        keys = posterior.keys(offer)[positions]
        carry = State(kind=CARRY, schema=1, arrays={"positions": positions, "keys": keys})
        self._made.append(carry)
        return carry

    def expect(self, decision: Decision, posterior: Posterior) -> None:
        """The decision is taken: until they are seen, its arms are pending."""
        carry, step = decision.carry, decision.step
        if carry is None or not self._most_pending or step in self._closed:
            return
        if not any(carry is each for each in self._made.copy()):
            _check_carry(carry, decision, posterior)
        positions, keys = carry.array("positions").tolist(), carry.array("keys")
        heard = self._heard.get(step, ())
        left = {position: keys[row] for row, position in enumerate(positions) if position not in heard}
        if left:
            self._awaited[step] = left
        if len(self._awaited) > self._most_pending:  # what is lost is not awaited for ever
            del self._awaited[next(iter(self._awaited))]

    def pending(self) -> NDArray[Any] | None:
        """Keys of the arms that were chosen and not seen; of too many those chosen last."""
        if not self._awaited:
            return None
        keys = [key for awaited in self._awaited.values() for key in awaited.values()]
        return np.array(keys[-self._most_pending :])

    # --- learning --------------------------------------------------------------------------

    def check(self, decision: Decision, feedback: Feedback) -> None:
        """Refuse what was learned before."""
        step = decision.step
        if step in self._closed:
            again = feedback.positions.tolist()
        elif step in self._heard:
            again = [each for each in feedback.positions.tolist() if each in self._heard[step]]
        else:
            return
        if again:
            raise ConflictError(
                f"arm {again[0]} of step {step} was learned from already; every decision has a step of "
                "its own, and every reward is learned once (IndexPolicy(repeats=True) learns it again)"
            )

    def note(self, decision: Decision, feedback: Feedback) -> None:
        """This feedback was learned from."""
        step, seen = decision.step, feedback.positions.tolist()
        heard = self._heard.get(step)
        if heard is None:
            if step in self._closed:
                return
            whole = len(seen) >= len(decision.positions)
        else:
            heard.update(seen)
            whole = len(heard) >= len(decision.positions)
        if whole:
            self._closed.add(step)
            self._heard.pop(step, None)
            self._awaited.pop(step, None)
            return
        if heard is None and seen:
            self._heard[step] = set(seen)
        awaited = self._awaited.get(step)
        if awaited is not None:
            for position in seen:
                awaited.pop(position, None)

    def note_rounds(self, step: int, count: int) -> None:
        """Rounds ``step`` … were played and learned from at once."""
        self._closed.add(step, count)

    @property
    def last(self) -> int:
        """The largest step of which something was learned; 0 before that."""
        return max(self._closed.last, max(self._heard, default=0))

    # --- state -----------------------------------------------------------------------------

    def state(self) -> State:
        awaited = [(step, at) for step, left in self._awaited.items() for at in left]
        keys = [key for left in self._awaited.values() for key in left.values()]
        return State(
            kind="ledger",
            schema=1,
            scalars={
                "closed": self._closed.as_lists(),
                "heard": [[step, sorted(seen)] for step, seen in sorted(self._heard.items())],
            },
            arrays={"awaited": np.array(awaited, dtype=np.int64).reshape(-1, 2), "keys": np.array(keys)}
            if keys
            else {},
        )

    def restored(self, state: State) -> Ledger:
        ledger = Ledger(most_pending=self._most_pending)
        try:
            ledger._closed = Steps.from_lists(state.scalar("closed"))
            ledger._heard = {step: set(seen) for step, seen in state.scalar("heard")}
            keys = state.arrays.get("keys", np.empty(0))
            awaited = state.arrays.get("awaited", np.empty((0, 2), dtype=np.int64)).tolist()
            numbers = [each for step, seen in ledger._heard.items() for each in (step, *seen)]
            numbers += [each for pair in awaited for each in pair]
            if not all(type(each) is int and each >= 0 for each in numbers):
                raise ValueError(numbers)
            for (step, position), key in zip(awaited, keys, strict=True):
                ledger._awaited.setdefault(step, {})[position] = key
        except (TypeError, ValueError) as error:
            raise StateError("this state is damaged: what it has heard of cannot be read") from error
        return ledger


_Awaited = dict[int, NDArray[Any]]
"""Keys of the arms of a decision that were not seen yet, by position."""
