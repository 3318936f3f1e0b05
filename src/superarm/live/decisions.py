"""Decisions of a journal, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from superarm.core import Decision, Feedback, Floats, Offer
from superarm.core.errors import ConflictError, InputError, NotFoundError

_MOST_IN_MESSAGE = 9  # ids of arms


@dataclass(frozen=True, slots=True)
class DecisionRecord:
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

    def check_chosen(self, feedback: Feedback) -> None:
        """Refuse rewards of arms that the decision did not choose.

        Args:
            feedback: The rewards.
        """
        chosen_positions = set(self.decision.positions.tolist())
        other_positions = set(feedback.positions.tolist()) - chosen_positions
        if not other_positions:
            return
        arm = self.offer.arms.ids[min(other_positions)]
        chosen_ids = self.decision.ids(self.offer)[:_MOST_IN_MESSAGE]
        chosen = ", ".join(str(chosen_id) for chosen_id in chosen_ids)
        raise InputError(
            f"decision {self.id!r} did not choose arm {arm!r}; it chose {chosen}"
        )


@dataclass(slots=True)
class OpenDecision:
    """A decision that awaits rewards."""

    step: int
    time: float
    unseen: set[int] = field(default_factory=set)
    """Positions of the arms without a reward so far."""
    count: int | None = None
    """Arms that were chosen; ``None`` if the decision comes from a snapshot."""
    deferred: bool = False
    """Whether rewards are awaited only once the decision is activated."""


class Status(StrEnum):
    """What became of a decision."""

    PENDING = "pending"
    """It awaits all of its rewards."""
    DEFERRED = "deferred"
    """It awaits rewards only once it is activated; rewards that arrive earlier are learned."""
    PARTIAL = "partial"
    """It awaits some of its rewards."""
    REWARDED = "rewarded"
    """All its rewards are known."""
    ABANDONED = "abandoned"
    """It was abandoned before all rewards were known; some may have come later."""


def decision_status(
    *, is_abandoned: bool, is_open: bool, has_rewards: bool, is_deferred: bool
) -> Status:
    """The status of a decision.

    Args:
        is_abandoned: Whether it was abandoned before all rewards were known.
        is_open: Whether it awaits rewards.
        has_rewards: Whether a reward is known.
        is_deferred: Whether it was deferred, and is not activated yet.
    """
    if is_abandoned:
        return Status.ABANDONED
    if not is_open:
        return Status.REWARDED
    if has_rewards:
        return Status.PARTIAL
    if is_deferred:
        return Status.DEFERRED
    return Status.PENDING


def value_at(values: Floats | None, place: int) -> float | None:
    """The value of one chosen arm; ``None`` if there are no values.

    Args:
        values: Values of the chosen arms, (k,), such as a decision's means.
        place: The place of the arm among them.
    """
    return None if values is None else float(values[place])


def no_decision(decision_id: str) -> NotFoundError:
    """The error for a decision that does not exist.

    Args:
        decision_id: Its id.
    """
    return NotFoundError(f"there is no decision {decision_id!r}")


def already_rewarded(decision_id: str, arm: object) -> ConflictError:
    """The error for a second reward of an arm.

    Args:
        decision_id: The decision.
        arm: The id of the arm.
    """
    return ConflictError(
        f"the reward of arm {arm!r} in decision {decision_id!r} is already recorded and cannot be "
        "changed; send only rewards of other arms, or repeat the earlier request exactly"
    )
