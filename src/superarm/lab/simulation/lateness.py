"""Feedback that is late, partial, out of order or lost: the same for every policy.

With a delay of d rounds, a policy sees a reward of round t after its decision of round
t + d and before that of round t + d + 1. So 0 is at once. Delays are drawn for *all* arms
of an offer, from (seed, "delay", step) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Feedback, Ints, Offer, State
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, require_type

_NEVER = -1
_LONGEST = 10**9  # rounds: no run is longer
# Deliveries due after the last round that are stored, in case a longer run resumes.
_MOST_LATER = 10_000


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """How long rewards take: ``earliest`` to ``latest`` rounds, all equally likely.

    Args:
        earliest: The shortest delay, in rounds.
        latest: The longest delay, in rounds.
        lost: The share of rewards that never arrive.
        together: Draw one delay for all arms of a round, instead of one for each arm.
    """

    earliest: int = 0
    latest: int = 0
    lost: float = 0.0
    together: bool = False

    def __post_init__(self) -> None:
        earliest = as_count(self.earliest, "earliest", 0)
        latest = as_count(self.latest, "latest", earliest, _LONGEST)
        object.__setattr__(self, "earliest", earliest)
        object.__setattr__(self, "latest", latest)
        as_number(self.lost, "lost", 0.0, 1.0)
        require_type(self.together, bool, "together")

    def delays(self, offer: Offer, rng: np.random.Generator) -> Ints:
        """Draw the rounds until each arm's reward arrives, (n,); −1 is never.

        Args:
            offer: The round's arms.
            rng: The generator.
        """
        arms = len(offer.arms)
        count = 1 if self.together else arms
        drawn = rng.integers(self.earliest, self.latest + 1, count)
        delays = drawn.astype(np.intp)
        lost = rng.random(count) < self.lost
        delays[lost] = _NEVER
        return np.broadcast_to(delays, arms).copy()


class Delivery(NamedTuple):
    """Feedback on its way to a policy."""

    offer: Offer
    decision: Decision
    feedback: Feedback


class _Entry(NamedTuple):
    """A delivery in the queue; entries compare by their first three numbers."""

    due: int  # the policy sees it after the decision of this round
    step: int  # the round of its decision
    number: int  # different for every entry, rising as they are sent
    delivery: Delivery


def _arrival_order(entry: _Entry) -> tuple[int, int, int]:
    return entry.due, entry.step, entry.number


class Mail:
    """Feedback on its way to one policy.

    Args:
        last: The run's last round.
        in_order: Whether feedback waits for that of earlier decisions.
    """

    def __init__(self, last: int, *, in_order: bool) -> None:
        self._last = last
        self._in_order = in_order
        self._queue: list[_Entry] = []
        self._sent = 0
        self._last_due = 0
        self._later = 0  # deliveries due after the last round

    def exchange(
        self, offer: Offer, decision: Decision, feedback: Feedback, delays: Ints | None
    ) -> Iterable[Delivery]:
        """Send a round's feedback; returns what arrives after the round's decision.

        Args:
            offer: The round's offer.
            decision: The round's decision.
            feedback: The world's feedback, which may state delays of its own.
            delays: Further delays of each arm's reward, in rounds, (n,); −1 is never.
        """
        require_type(feedback, Feedback, "the problem's feedback")
        prompt = feedback.delays is None and delays is None
        if prompt and not self._queue:
            return (Delivery(offer, decision, feedback),)
        if prompt:
            self._put(offer.step, offer, decision, feedback)
        else:
            self._send(offer, decision, feedback, delays)
        return self._take_arrivals(offer.step)

    def _send(
        self, offer: Offer, decision: Decision, feedback: Feedback, delays: Ints | None
    ) -> None:
        total = feedback.delays
        if total is None:
            total = np.zeros(len(feedback.positions), np.intp)
        if delays is not None:
            observed = set(feedback.positions.tolist())
            chosen = set(decision.positions.tolist())
            if not observed <= chosen:
                raise InputError(
                    "the problem's feedback names arms that were not chosen"
                )
            further = delays[feedback.positions]
            total = np.where(further == _NEVER, _NEVER, total + further)
        arriving = total[total != _NEVER]
        for delay in np.unique(arriving).tolist():
            part = feedback.part(total == delay)
            due = offer.step + delay
            self._put(due, offer, decision, part)

    def _put(
        self, due: int, offer: Offer, decision: Decision, feedback: Feedback
    ) -> None:
        if self._in_order:
            due = max(due, self._last_due)
            self._last_due = due
        if due > self._last:
            self._later += 1
            if self._later > _MOST_LATER:
                return
        self._sent += 1
        delivery = Delivery(offer, decision, feedback)
        entry = _Entry(due, offer.step, self._sent, delivery)
        heappush(self._queue, entry)

    def resume_scalars(self) -> Mapping[str, Any] | None:
        """Data on what is still on its way; ``None`` where not all of it was stored."""
        if self._later > _MOST_LATER:
            return None
        queue = []
        for entry in sorted(self._queue, key=_arrival_order):
            offer, decision, feedback = entry.delivery
            previous = offer.previous_action
            queue.append((entry.due, entry.number, previous, decision, feedback))
        return {
            "sent": self._sent,
            "last_due": self._last_due,
            "queue": queue,
        }

    def resume(self, resume_state: State, offer_of: Callable[[int], Offer]) -> None:
        """Restore what :meth:`resume_scalars` returned, in a run that lasts longer.

        Args:
            resume_state: A state with these scalars.
            offer_of: Returns the offer of a round.
        """
        for row in resume_state.scalar("queue"):
            due, number, previous, decision, feedback = row
            step = decision.step
            offer = offer_of(step).after(previous)
            delivery = Delivery(offer, decision, feedback)
            entry = _Entry(due, step, number, delivery)
            self._queue.append(entry)
            if due > self._last:
                self._later += 1
        heapify(self._queue)
        self._sent = resume_state.scalar("sent")
        self._last_due = resume_state.scalar("last_due")

    def _take_arrivals(self, step: int) -> Iterator[Delivery]:
        """Take off the queue what arrives after the decision of this round."""
        while self._queue and self._queue[0].due <= step:
            yield heappop(self._queue).delivery
