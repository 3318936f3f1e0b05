"""Lets schemathesis send lines of JSON: it has no serializer of its own for them."""

from __future__ import annotations

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def serialize_lines(context: object, value: object) -> bytes:
    """What is sent for a generated value.

    Args:
        context: The request.
        value: The generated value.
    """
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogatepass")
