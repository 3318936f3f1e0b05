"""What every request must pass first: its host, its origin, the size of its body.

A browser sends requests to loopback addresses for any page that it shows. So a request is refused whose
``Host`` is not a name of this service, or whose ``Origin`` is another site.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import problem
from .settings import Settings

_HOST = re.compile(r"(\[[^\]]*\]|[^\[\]:]*)(?::[0-9]*)?")


class Guard:
    """An ASGI application in front of another.

    Args:
        app: The application that answers what is let through.
        settings: Names of the service, and the largest body.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = settings.allowed_hosts
        self._most_bytes = settings.limits.body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        refusal = self._refusal(headers)
        if refusal is not None:
            status, detail = refusal
            # What follows on the connection may be a part of this request.
            is_ambiguous = status is HTTPStatus.BAD_REQUEST
            closing = {"Connection": "close"} if is_ambiguous else None
            await problem(status, detail, closing)(scope, receive, send)
            return
        body = _LimitedBody(receive, self._most_bytes)
        await self._app(scope, body, send)

    def _refusal(self, headers: dict[bytes, str]) -> tuple[HTTPStatus, str] | None:
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy that reads the other one would see another end of the request.
            detail = "send either Content-Length or Transfer-Encoding, not both"
            return HTTPStatus.BAD_REQUEST, detail
        host = headers.get(b"host", "")
        if _without_port(host) not in self._hosts:
            detail = f"host {host[:200]!r} is not allowed; allow it with --host-name"
            return HTTPStatus.MISDIRECTED_REQUEST, detail
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin) != host:
            return HTTPStatus.FORBIDDEN, "cross-origin requests are not allowed"
        length = headers.get(b"content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._most_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(self._most_bytes)
        return None


class _LimitedBody:
    """The body of a request, which ends with an error where it is too large."""

    def __init__(self, receive: Receive, most_bytes: int) -> None:
        self._receive = receive
        self._most = most_bytes
        self._remaining = most_bytes

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._remaining -= len(message.get("body", b""))
            if self._remaining < 0:  # no Content-Length announced it
                status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                raise HTTPException(status, _too_large(self._most))
        return message


def _too_large(most_bytes: int) -> str:
    return f"the body exceeds the limit of {most_bytes} bytes; send less at once"


def _headers(scope: Scope) -> dict[bytes, str]:
    return {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _netloc(origin: str) -> str | None:
    """Host and port of an origin; ``None`` if it is no URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _without_port(host: str) -> str:
    """The name in a header ``Host``; empty if it is malformed. An IPv6 address keeps its brackets."""
    match = _HOST.fullmatch(host)
    return "" if match is None else match[1]
