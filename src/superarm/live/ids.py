"""Ids of decisions and observations. They are parts of URLs and of keys in the journal."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from superarm.core.errors import InputError

from .answers import Answer

LONGEST_ID = 200  # characters


def as_id(value: Any) -> str:
    """An id from outside; one that does not fit a URL is refused.

    Args:
        value: The id.
    """
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID:
        raise InputError(
            f"an id must be text of 1 to {LONGEST_ID} characters, got {value!r:.60}"
        )
    if not value.isprintable() or "/" in value or value in (".", ".."):
        raise InputError(
            f"an id must be printable text without '/', and not '.' or '..', got {value!r:.60}"
        )
    return value


def as_id_or_new(value: Any) -> str:
    """An id from outside, or a new one.

    Args:
        value: The id; ``None``: a new one.
    """
    return uuid4().hex if value is None else as_id(value)


def decision_id_of(decision: Answer | str) -> str:
    """The id of a decision.

    Args:
        decision: The decision, or its id.
    """
    return decision.id if isinstance(decision, Answer) else as_id(decision)
