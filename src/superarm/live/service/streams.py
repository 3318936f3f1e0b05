"""Streams of events, and when they end."""

from __future__ import annotations

import asyncio
import logging
import time as clock
from collections.abc import AsyncGenerator

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from superarm.core.errors import SuperarmError
from superarm.live.access import Caller

from .context import Service
from .gate import SUBSCRIPTION_KEY
from .problems import Refusal

EVENT_STREAM = "text/event-stream"
RECHECK_SECONDS = 5.0
"""How often a stream checks that its token is still valid."""
SEND_SECONDS = 30.0
"""How long a client may leave a part of a stream unread."""
_log = logging.getLogger("superarm.service")


class EventStream(StreamingResponse):
    """Server-sent events, as long as the client reads them.

    Args:
        events: The texts of the events.
        service: Whose streams are counted.
        tenant: Who reads the events.
    """

    media_type = EVENT_STREAM

    def __init__(
        self, events: AsyncGenerator[str], service: Service, tenant: str
    ) -> None:
        super().__init__(events)
        self._events = events
        self._service = service
        self._tenant = tenant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._service.streams.slot(self._tenant):
                await super().__call__(scope, receive, _with_timeout(send))
        except _UnreadError:
            _log.info("ended a stream of events that its client did not read")
        except SuperarmError as error:  # the client continues it later
            _log.warning("a stream of events ended early: %s", error)
        finally:
            await self._events.aclose()


class Permit:
    """Whether the caller of a stream may still read it.

    Args:
        service: Who checks.
        request: The request that opened the stream.
        caller: Who sent it.
    """

    def __init__(self, service: Service, request: Request, caller: Caller) -> None:
        self._service = service
        self._authorization = request.headers.get("authorization")
        self._subscription_key = request.headers.get(SUBSCRIPTION_KEY)
        self._tenant = caller.tenant
        self._checked = clock.monotonic()

    async def is_valid(self) -> bool:
        """Whether the token was valid a few seconds ago."""
        now = clock.monotonic()
        if now - self._checked < RECHECK_SECONDS:
            return True
        try:
            caller = await self._service.identify(
                self._authorization, self._subscription_key
            )
        except Refusal:
            return False
        self._checked = now
        return caller.tenant == self._tenant and "read" in caller.scopes


class _UnreadError(Exception):
    """A client left a part of a stream unread for too long."""


def _with_timeout(send: Send) -> Send:
    """Sends that fail where the client does not read."""

    async def send_in_time(message: Message) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)
        except TimeoutError:
            raise _UnreadError from None

    return send_in_time
