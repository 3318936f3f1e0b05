"""Events: everything that ever happened to a bandit, in order.

The journal of a bandit is a list of events, numbered 1, 2, 3, … It is only ever appended to. Whatever
a bandit has learned can be computed from its events again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What happened."""

    CREATED = "created"
    """The bandit was created with its first spec."""
    RESPECIFIED = "respecified"
    """The bandit got another spec. The new policy learns all rewards from the start."""
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
