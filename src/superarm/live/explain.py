"""Why a bandit decided as it did, from what it had learned at the time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Offer
from superarm.core.display import Displayable
from superarm.core.errors import InfeasibleError, InputError
from superarm.policies.exploring import index_policy_of

from .arms import ArmId
from .bandit_journal import BanditJournal
from .column_effects import ColumnEffect, strongest_columns
from .decisions import DecisionRecord, no_decision, value_at
from .event_keys import decided_key
from .fold import Fold
from .snapshots import load_fold_before
from .teachers import Teacher, find_teachers


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReasons(Displayable):
    """Why one arm was chosen, or would have been chosen in the runner-up."""

    arm: ArmId
    mean: float | None
    std: float | None
    index: float | None
    """Its desirability; the oracle compares super arms by its sum."""
    teachers: list[Teacher]
    """The most influential rewards among the 10,000 events before the decision."""
    column: str | None
    """The column that changes the mean most when replaced by its average over the offer."""
    effect: float | None
    """How much the column raises the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Displayable):
    """Why a bandit decided as it did."""

    decision: str
    arms: list[ArmReasons]
    """The chosen arms."""
    runner_up: list[ArmReasons]
    """The arms of the next best super arm; empty if there is no other."""
    margin: float | None
    """How much lower the total index of the runner-up was."""
    teachers_refusal: str | None = None
    """Why no arm has teachers, and what the posterior lacks; ``None`` if rewards are ranked."""


def explain(journal: BanditJournal, decision_id: str) -> Explanation:
    """Explain a decision from what the bandit had learned at the time.

    Args:
        journal: The journal of the bandit.
        decision_id: The id of the decision.
    """
    event = journal.event(decided_key(decision_id))
    if event is None:
        raise no_decision(decision_id)
    journal.flush()
    fold = load_fold_before(journal, event.seq)
    record = fold.reader.decision(event)
    runner_up = _runner_up(fold, record)
    positions = set(record.decision.positions.tolist())
    if runner_up is not None:
        positions.update(runner_up.positions.tolist())
    evidence = _find_evidence(fold, record.offer, sorted(positions))
    return Explanation(
        decision=decision_id,
        arms=_reasons(record.offer, record.decision, evidence),
        runner_up=_reasons(record.offer, runner_up, evidence),
        margin=_margin(record.decision, runner_up),
        teachers_refusal=evidence.refusal,
    )


class _Evidence(NamedTuple):
    """What changed the beliefs about arms, by position in the offer."""

    teachers: dict[int, list[Teacher]]
    refusal: str | None  # why there are no teachers
    effects: dict[int, ColumnEffect]


def _find_evidence(fold: Fold, offer: Offer, positions: list[int]) -> _Evidence:
    search = find_teachers(fold, offer, positions)
    effects = strongest_columns(fold, offer, positions)
    return _Evidence(search.teachers, search.refusal, effects)


def _reasons(
    offer: Offer, decision: Decision | None, evidence: _Evidence
) -> list[ArmReasons]:
    """The reasons for the arms of a super arm; none if there is no such super arm."""
    if decision is None:
        return []
    ids: Any = decision.ids(offer)
    reasons = []
    for place, position in enumerate(decision.positions.tolist()):
        effect = evidence.effects.get(position)
        reasons.append(
            ArmReasons(
                arm=ids[place],
                mean=value_at(decision.mean, place),
                std=value_at(decision.std, place),
                index=value_at(decision.desirability, place),
                teachers=evidence.teachers.get(position, []),
                column=None if effect is None else effect.column,
                effect=None if effect is None else effect.change,
            )
        )
    return reasons


# --- the runner-up -------------------------------------------------------------------------


def _runner_up(fold: Fold, record: DecisionRecord) -> Decision | None:
    """The best super arm that lacks at least one of the chosen arms; ``None`` if there is none."""
    if record.decision.desirability is None:
        return None
    # Without the rounds at random of a policy that explores.
    policy = index_policy_of(fold.policy) or fold.policy
    best: Decision | None = None
    for position in record.decision.positions.tolist():
        try:
            decision = fold.decide(_without(record.offer, position), policy)
        except (InfeasibleError, InputError):
            continue  # no super arm without this arm
        if best is None or _total(decision) > _total(best):
            best = decision
    return best


def _without(offer: Offer, position: int) -> Offer:
    available = np.ones(len(offer.arms), dtype=np.bool_)
    if offer.available is not None:
        available = offer.available.copy()
    available[position] = False
    return replace(offer, available=available)


def _margin(decision: Decision, runner_up: Decision | None) -> float | None:
    if runner_up is None:
        return None
    return _total(decision) - _total(runner_up)


def _total(decision: Decision) -> float:
    if decision.desirability is None:
        return 0.0
    return float(decision.desirability.sum())
