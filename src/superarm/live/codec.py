"""JSON and bytes, as the journal stores and hashes them.

Equal values have equal texts, bytes and hashes. Journals of earlier versions depend on every byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, State
from superarm.core.errors import InputError, StateError
from superarm.core.states import state_from_bytes, state_to_bytes

_BODY_ENCODER = json.JSONEncoder(sort_keys=True, allow_nan=False, separators=(",", ":"))


def encode_body(body: Mapping[str, Any]) -> str:
    """The body of an event as text: equal bodies give equal texts.

    Args:
        body: Plain JSON with finite numbers.
    """
    return _BODY_ENCODER.encode(body)


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


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text. JSON can escape half of a surrogate pair, but no answer can contain it.

    Args:
        text: The text.
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_unicode(value: Any, what: str) -> None:
    """Refuse plain JSON whose texts are not valid Unicode.

    Args:
        value: Plain JSON.
        what: What it is, for the error message.
    """
    if not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise InputError(f"{what} contains text that is not valid Unicode")


def readable_json(value: Any) -> str:
    """Plain JSON as text with spaces, as exported tables contain it.

    Args:
        value: Plain JSON.
    """
    return json.dumps(value, sort_keys=True)


def digest(data: bytes) -> str:
    """The name under which a blob is stored: equal contents have equal names.

    Args:
        data: The blob.
    """
    return sha256(data).hexdigest()


class EncodedArms(NamedTuple):
    """Arms, with the blob that stores them."""

    arms: Arms
    data: bytes
    hash: str
    """The name of the blob."""


def encode_arms(arms: Arms) -> EncodedArms:
    """Arms with the blob that stores them.

    Args:
        arms: The arms.
    """
    data = arms_to_bytes(arms)
    return EncodedArms(arms, data, digest(data))


def arms_to_bytes(arms: Arms) -> bytes:
    """Arms as bytes; equal arms give equal bytes.

    Args:
        arms: The arms.
    """
    state = State(
        kind="arms",
        schema=1,
        scalars={"ids": list(arms.ids)},
        arrays={"features": np.ascontiguousarray(arms.features)},
    )
    return state_to_bytes(state)


def arms_from_bytes(data: bytes) -> Arms:
    """The arms that bytes represent.

    Args:
        data: What :func:`arms_to_bytes` returned.
    """
    state = state_from_bytes(data)
    state.require("arms", 1, "Arms")
    return Arms(ids=state.scalar("ids"), features=state.array("features"))
