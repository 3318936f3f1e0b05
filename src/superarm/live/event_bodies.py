"""Bodies of the events that record more than the request itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superarm.core import Decision, Offer
from superarm.core.capabilities import KnownPropensity
from superarm.core.serialization import to_json

from .fold import DECIDE, Fold
from .runtime import runtime


def decided_body(
    decision_id: str,
    request: Mapping[str, Any],
    fold: Fold,
    offer: Offer,
    decision: Decision,
    *,
    deferred: bool,
) -> dict[str, Any]:
    """The body of an event ``decided``: every input of the decision, and the decision.

    Args:
        decision_id: The id of the decision.
        request: What was asked.
        fold: What was learned before the decision.
        offer: The offer that it answers.
        decision: The decision.
        deferred: Whether its rewards are awaited only once it is activated.
    """
    body = {
        **request,
        "id": decision_id,
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
    if deferred:
        body["deferred"] = True
    return body
