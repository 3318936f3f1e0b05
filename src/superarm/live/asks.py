"""An ask, and what the event of its decision records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from superarm.core import Decision, Offer
from superarm.core.capabilities import KnownPropensity
from superarm.core.inputs import as_number, require_type
from superarm.core.serialization import to_json

from .codec import EncodedArms
from .fold import DECIDE, Fold
from .runtime import runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The arguments of one :meth:`Bandit.ask`, checked and encoded."""

    decision_id: str
    arms: EncodedArms
    structure: object
    time: float | None
    deferred: bool
    request: dict[str, Any]
    """What a repeated ask must have in common with the first, as plain JSON."""

    @classmethod
    def of(
        cls,
        decision_id: str,
        arms: EncodedArms,
        *,
        structure: object,
        time: float | None,
        deferred: bool,
    ) -> Self:
        """Check and encode the arguments; this raises before anything changes.

        Args:
            decision_id: The id of the decision.
            arms: The arms on offer.
            structure: The constraints of the round.
            time: Physical time, for rewards that drift.
            deferred: Whether rewards are awaited only once the decision is activated.
        """
        require_type(deferred, bool, "deferred")
        encoded_structure = to_json(structure)
        finite_time = None if time is None else as_number(time, "time")
        return cls(
            decision_id=decision_id,
            arms=arms,
            structure=structure,
            time=finite_time,
            deferred=deferred,
            request={
                "arms": arms.hash,
                "structure": encoded_structure,
                "time": finite_time,
            },
        )


def decided_body(
    ask: Ask, fold: Fold, offer: Offer, decision: Decision
) -> dict[str, Any]:
    """The body of an event ``decided``: every input of the decision, and the decision.

    Args:
        ask: What was asked.
        fold: What was learned before the decision.
        offer: The offer that the decision answers.
        decision: The decision.
    """
    body = {
        **ask.request,
        "id": ask.decision_id,
        "after": fold.seq,
        "pending": fold.pending_digest(),
        "stream": [fold.spec.seed, DECIDE, offer.step],
        "runtime": runtime(),
        "previous_action": to_json(offer.previous_action),
        "decision": to_json(decision),
    }
    if fold.spec.hash_columns is not None and isinstance(fold.policy, KnownPropensity):
        probabilities = fold.policy.inclusion(offer)
        if probabilities is not None:
            body["probabilities"] = probabilities.tolist()
    if ask.deferred:
        body["deferred"] = True
    return body
