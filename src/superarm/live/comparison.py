"""Decisions of a journal, each beside what a challenger would have decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from superarm.core import Feedback

from .decisions import Status, decision_status


class Obstacle(Enum):
    """Why a decision cannot be used to evaluate the challenger, and what to do about it."""

    UNKNOWN_PROPENSITY = (
        "its propensity is unknown; use the policy 'exploring' around a deterministic rule, then restart "
        "the challenger"
    )
    NO_CHANCE = (
        "the bandit's policy is deterministic and never tried the challenger's choice; use the policy "
        "'exploring', then restart the challenger"
    )
    NO_SUPPORT = (
        "the bandit's policy never makes the challenger's choice; give both policies the same oracle, "
        "then restart the challenger"
    )
    UNKNOWN_CHALLENGER = (
        "the challenger is random with unknown probabilities; use a deterministic rule, "
        "such as ucb"
    )


@dataclass(slots=True)
class Comparison:
    """A decision of the journal, beside what the challenger would have decided."""

    id: str
    agrees: bool
    """Whether the challenger chose the same arms."""
    propensity: float | None
    """Probability of what was chosen, under the policy that acted."""
    probability: float | None
    """Probability of what was chosen, under the challenger."""
    is_certain: bool
    """Whether the challenger decided without chance."""
    largest_weight: float = 1.0
    """The greatest possible quotient of the two."""
    obstacle: Obstacle | None = None
    """Why the decision cannot be used; ``None`` if it can."""
    expected: float | None = None
    """Reward that the challenger predicted of its own choice; ``None`` if it predicts nothing."""
    expected_of_chosen: float | None = None
    """Reward that the challenger predicted of what was chosen."""
    unseen: set[int] = field(default_factory=set)
    """Positions of the arms without a reward so far."""
    seen: int = 0
    """Arms with a reward."""
    reward: float = 0.0
    """The sum of the rewards so far."""
    is_abandoned: bool = False

    def add_rewards(self, feedback: Feedback) -> None:
        """Add rewards; of an arm that is rewarded twice, the first counts.

        Args:
            feedback: Rewards of chosen arms.
        """
        positions = feedback.positions.tolist()
        rewards = feedback.rewards.tolist()
        for position, reward in zip(positions, rewards, strict=True):
            if position in self.unseen:
                self.unseen.remove(position)
                self.seen += 1
                self.reward += reward

    @property
    def status(self) -> Status:
        """What became of the decision. One that got all rewards after it was abandoned is rewarded."""
        is_open = bool(self.unseen)
        return decision_status(
            is_abandoned=self.is_abandoned and is_open,
            is_open=is_open,
            has_rewards=self.seen > 0,
            is_deferred=False,  # a report counts deferred decisions as pending
        )
