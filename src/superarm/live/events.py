"""Events: everything that ever happened to a bandit, in order.

The journal of a bandit is a list of events, numbered 1, 2, 3, … It is only ever appended to. Whatever
a bandit has learned can be computed from its events again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

from superarm.core.errors import StateError


class Kind(StrEnum):
    """What happened."""

    CREATED = "created"
    """The bandit was created with its first spec."""
    RESPECIFIED = "respecified"
    """The bandit got another spec, with which it learns everything anew."""
    REFITTED = "refitted"
    """Hyper-parameters were fitted; what was learned counts under the new spec."""
    CHALLENGED = "challenged"
    """A challenger began to follow the journal, or ended."""
    NAMED = "named"
    """Arms got names by which later asks refer to them."""
    DECIDED = "decided"
    """A decision was taken."""
    ACTIVATED = "activated"
    """A decision that was deferred awaits its rewards from now on."""
    OBSERVED = "observed"
    """Rewards of a decision's arms arrived."""
    HISTORY = "history"
    """Rewards that no decision of this bandit led to."""
    ABANDONED = "abandoned"
    """A decision will get no further rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of a bandit's journal."""

    seq: int
    """Its number in the journal, from 1."""
    key: str
    """Identifies what happened: an event with the same key is a repetition."""
    kind: Kind
    time: float
    """When it was recorded, in seconds since 1970, by the clock of the machine."""
    body: Mapping[str, Any]
    """Plain JSON."""


def encode_body(body: Mapping[str, Any]) -> str:
    """The body of an event as text: equal bodies give equal texts.

    Args:
        body: Plain JSON with finite numbers.
    """
    return json.dumps(body, sort_keys=True, allow_nan=False, separators=(",", ":"))


def decode_body(text: str, where: str) -> dict[str, Any]:
    """The body that a text represents.

    Args:
        text: What :func:`encode_body` returned.
        where: The event's place, for error messages.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{where} is damaged: {error}; restore a backup") from None
    if not isinstance(body, dict):
        raise StateError(
            f"{where} is damaged: it is not a JSON object; restore a backup"
        )
    return body


def digest(data: bytes) -> str:
    """The name under which a blob is stored: equal contents have equal names.

    Args:
        data: The blob.
    """
    return sha256(data).hexdigest()
