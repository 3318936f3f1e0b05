"""Answers of a bandit: decisions, forecasts, and details of earlier decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from superarm.core import Floats, Guarantee
from superarm.core.display import Displayable

from .arms import ArmId
from .decisions import DecisionRecord, OpenDecision, Status, decision_status


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Displayable):
    """What a bandit decided."""

    id: str
    """The id of the decision; pass it to ``tell`` with the rewards."""
    action: object
    """What to do: a route, a slate, or the ids of the chosen arms."""
    arms: list[ArmId]
    """Ids of the chosen arms."""
    mean: dict[ArmId, float]
    """Expected reward of each chosen arm."""
    std: dict[ArmId, float]
    """Standard deviation of each chosen arm's expected reward."""
    propensity: float | None = None
    """Probability of this action under the policy, where it is known."""
    guarantee: Guarantee | None = None
    """How close the oracle's choice is to the best super arm, by total index."""

    @classmethod
    def of(cls, record: DecisionRecord) -> Self:
        """The answer to an ask.

        Args:
            record: The decision.
        """
        decision = record.decision
        ids: Any = decision.ids(record.offer)
        return cls(
            id=record.id,
            action=record.action,
            arms=ids,
            mean=_by_id(ids, decision.mean),
            std=_by_id(ids, decision.std),
            propensity=decision.propensity,
            guarantee=decision.guarantee,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Displayable):
    """What a bandit expects of arms."""

    arms: list[ArmId]
    """Ids of the arms, in the order of the request."""
    mean: Floats
    """Expected reward of each, (n,)."""
    std: Floats | None
    """Standard deviation of each expected reward, (n,); ``None`` if the policy has none."""


class DecisionDetails(NamedTuple):
    """A decision of the journal, with its status."""

    answer: Answer
    status: Status
    time: float
    """When it was taken, in seconds since 1970."""
    awaiting: list[ArmId]
    """Ids of the arms whose rewards are awaited."""

    @classmethod
    def of(
        cls,
        record: DecisionRecord,
        open_decision: OpenDecision | None,
        *,
        is_abandoned: bool,
    ) -> Self:
        """The details of a decision.

        Args:
            record: The decision.
            open_decision: The rewards that it awaits; ``None`` if it awaits none.
            is_abandoned: Whether it was abandoned before all rewards were known.
        """
        unseen: list[int] = []
        is_deferred = False
        if open_decision is not None:
            unseen = sorted(open_decision.unseen)
            is_deferred = open_decision.deferred
        status = decision_status(
            is_abandoned=is_abandoned,
            is_open=open_decision is not None,
            has_rewards=len(unseen) < len(record.decision.positions),
            is_deferred=is_deferred,
        )
        ids: Any = record.offer.arms.ids
        awaiting = [ids[position] for position in unseen]
        return cls(Answer.of(record), status, record.time, awaiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """The arguments of one :meth:`Bandit.tell`."""

    decision: str
    """The id of the decision."""
    rewards: Mapping[Any, float]
    """Rewards by arm id."""
    noise_variance: Mapping[Any, float] | None = None
    """The variance of each reward's noise where it is known, by arm id."""
    observation_id: str | None = None
    """An id for these rewards; by default the arms identify them."""


def _by_id(ids: list[ArmId], values: Any) -> dict[ArmId, float]:
    if values is None:
        return {}
    return dict(zip(ids, values.tolist(), strict=True))
