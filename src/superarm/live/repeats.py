"""Repeated requests: the same id must mean the same request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from superarm.core import Feedback
from superarm.core.errors import ConflictError
from superarm.core.serialization import from_json, to_json

from .codec import encode_body
from .events import Event

_NAMES = {"feedback": "rewards"}
"""Entries of bodies that users know by another name."""


def check_same(
    earlier: Event,
    request: Mapping[str, Any],
    label: str,
    advice: str = "use another id",
) -> None:
    """Refuse another request under an id that was used before.

    Args:
        earlier: The event that the first request recorded.
        request: What the body of a new event would contain.
        label: What the id belongs to, for the error message.
        advice: What to do, for the error message.
    """
    for name, value in request.items():
        recorded = earlier.body[name]
        if _comparable(name, value) != _comparable(name, recorded):
            raise ConflictError(
                f"{label}: already recorded with different {_NAMES.get(name, name)}; {advice}"
            )


def _comparable(name: str, value: Any) -> str:
    """A value of a body as text."""
    if name == "feedback":
        feedback: Feedback = from_json(value)
        value = to_json(_sort_by_arm(feedback))
    return encode_body({name: value})


def _sort_by_arm(feedback: Feedback) -> Feedback:
    """The same rewards sorted by arm: those of a mapping have no order."""
    order = np.argsort(feedback.positions)
    noise = feedback.noise_variance
    return Feedback(
        positions=feedback.positions[order],
        rewards=feedback.rewards[order],
        noise_variance=None if noise is None else noise[order],
    )
