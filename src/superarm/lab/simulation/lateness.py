"""Feedback that comes late, in part, out of order or never: the same for every policy.

With a delay of d rounds, a reward of round t is known after the decision of round t + d and before that
of round t + d + 1. So 0 is at once. Delays are drawn for *all* arms of an offer, from (seed, "delay",
step) alone.
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
_MOST_LATER = 10_000  # deliveries beyond the end that are kept, in case the run goes on


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """How long rewards take: ``earliest`` to ``latest`` rounds, all equally likely.

    The share ``lost`` never comes. With ``together`` one delay is drawn for all arms of a round,
    otherwise one for each arm.
    """

    earliest: int = 0
    latest: int = 0
    lost: float = 0.0
    together: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "earliest", as_count(self.earliest, "earliest", 0))
        object.__setattr__(
            self, "latest", as_count(self.latest, "latest", self.earliest, _LONGEST)
        )
        as_number(self.lost, "lost", 0.0, 1.0)
        require_type(self.together, bool, "together")

    def delays(self, offer: Offer, rng: np.random.Generator) -> Ints:
        """Rounds until each arm's reward is known, (n,); −1 is never."""
        shape = 1 if self.together else len(offer.arms)
        delays = rng.integers(self.earliest, self.latest + 1, shape).astype(np.intp)
        delays[rng.random(shape) < self.lost] = _NEVER
        return np.broadcast_to(delays, len(offer.arms)).copy()


class Delivery(NamedTuple):
    """Feedback on its way to a policy."""

    offer: Offer
    decision: Decision
    feedback: Feedback


class Mail:
    """What is on its way to one policy in a run whose last round is known.

    ``in_order``: feedback waits for that of earlier decisions.
    """

    def __init__(self, last: int, *, in_order: bool) -> None:
        self._last = last
        self._in_order = in_order
        # By the round after whose decision it is known, then by its own round, then as sent.
        self._queue: list[tuple[int, int, int, Delivery]] = []
        self._sent = 0
        self._last_due = 0
        self._later = 0  # due after the last round

    def exchange(
        self, offer: Offer, decision: Decision, feedback: Feedback, delays: Ints | None
    ) -> Iterable[Delivery]:
        """Put a round's feedback on its way; returns what is known after the round's decision.

        ``delays`` (n,) come on top of what the world says of it.
        """
        require_type(feedback, Feedback, "the problem's feedback")
        prompt = feedback.delays is None and delays is None
        if prompt and not self._queue:
            return (Delivery(offer, decision, feedback),)
        if prompt:
            self._put(offer.step, offer, decision, feedback)
        else:
            self._send(offer, decision, feedback, delays)
        return self._arrived(offer.step)

    def _send(
        self, offer: Offer, decision: Decision, feedback: Feedback, delays: Ints | None
    ) -> None:
        prompt = np.zeros(len(feedback.positions), np.intp)
        late = prompt if feedback.delays is None else feedback.delays
        if delays is not None:
            if not set(feedback.positions.tolist()) <= set(decision.positions.tolist()):
                raise InputError(
                    "the problem's feedback names arms that were not chosen"
                )
            more = delays[feedback.positions]
            late = np.where(more == _NEVER, _NEVER, late + more)
        for delay in np.unique(late[late != _NEVER]).tolist():
            self._put(offer.step + delay, offer, decision, feedback.part(late == delay))

    def _put(
        self, due: int, offer: Offer, decision: Decision, feedback: Feedback
    ) -> None:
        if self._in_order:
            due = self._last_due = max(due, self._last_due)
        self._later += due > self._last
        if due > self._last and self._later > _MOST_LATER:
            return
        self._sent += 1
        heappush(
            self._queue,
            (due, offer.step, self._sent, Delivery(offer, decision, feedback)),
        )

    def left(self) -> Mapping[str, Any] | None:
        """What is on its way after the last round; ``None`` where not all of it was kept."""
        if self._later > _MOST_LATER:
            return None
        queue = [
            (due, sent, post.offer.previous_action, post.decision, post.feedback)
            for due, _, sent, post in sorted(self._queue, key=lambda each: each[:3])
        ]
        return {"sent": self._sent, "last_due": self._last_due, "queue": queue}

    def go_on(self, left: State, offer_of: Callable[[int], Offer]) -> None:
        """Take in what :meth:`left` gave, in a run whose last round is a later one."""
        for due, sent, previous, decision, feedback in left.scalar("queue"):
            delivery = Delivery(
                offer_of(decision.step).after(previous), decision, feedback
            )
            self._queue.append((due, decision.step, sent, delivery))
        heapify(self._queue)
        self._later = sum(due > self._last for due, *_ in self._queue)
        self._sent, self._last_due = left.scalar("sent"), left.scalar("last_due")

    def _arrived(self, step: int) -> Iterator[Delivery]:
        """What is known after the decision of this round, taken off the queue."""
        while self._queue and self._queue[0][0] <= step:
            yield heappop(self._queue)[-1]
