"""Rewards to learn, and the queue in which they wait for those of earlier decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from superarm.core import Decision, Feedback, Offer
from superarm.core.inputs import require_size
from superarm.posteriors.base import as_noise


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Rewards of the journal, with the offer and the decision that they belong to."""

    seq: int
    """The number of the event that recorded them."""
    decision_id: str | None
    """The decision that was rewarded; ``None`` for history."""
    offer: Offer
    decision: Decision
    feedback: Feedback

    def order(self) -> tuple[int, int]:
        """Observations are learned by step, then as they came."""
        return (self.decision.step, self.seq)


class HoldBackQueue:
    """Holds rewards back until all earlier decisions have theirs.

    A policy that is not exchangeable learns in decision order.
    """

    def __init__(self) -> None:
        self._observations: list[Observation] = []

    def __iter__(self) -> Iterator[Observation]:
        """The observations, as they came."""
        return iter(self._observations)

    def add(self, observation: Observation) -> None:
        """Add rewards; those that no policy could learn later are refused now.

        Args:
            observation: The rewards.
        """
        feedback = observation.feedback
        require_size(feedback.rewards, "rewards")
        as_noise(feedback.noise_variance, len(feedback.rewards))
        self._observations.append(observation)

    def release(self, first_open: int | None) -> list[Observation]:
        """Remove the rewards that can be learned now, and return them in decision order.

        Args:
            first_open: The step of the first decision that awaits rewards; ``None``: there is none.
        """
        ready = []
        waiting = []
        for observation in self._observations:
            if first_open is None or observation.decision.step < first_open:
                ready.append(observation)
            else:
                waiting.append(observation)
        self._observations = waiting
        return sorted(ready, key=Observation.order)
