"""Reads the body of a request in front of the application that answers it."""

from __future__ import annotations

from starlette.types import Message, Receive


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request.

    Args:
        receive: Receives its parts.
    """
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def repeat_body(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, once more.

    Args:
        body: The whole body.
        receive: Receives what follows it.
    """
    was_read = False

    async def receive_again() -> Message:
        nonlocal was_read
        if was_read:
            return await receive()
        was_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
