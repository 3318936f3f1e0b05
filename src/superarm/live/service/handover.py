"""Hands requests over to the process that owns the bandit."""

from __future__ import annotations

import re
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from anyio.to_thread import run_sync
from fastapi import HTTPException
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from superarm.core.errors import SuperarmError, require_extra
from superarm.live.event_keys import decided_key

from .context import Service
from .gate import SUBSCRIPTION_KEY
from .owners import Owners
from .problems import Refusal, problem, refusal_response, retry_headers
from .request_bodies import read_body, repeat_body

if TYPE_CHECKING:
    import httpx

_HANDED_OVER = b"x-superarm-handed-over"
_OF_ONE_HOP = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"host", b"content-length"}
)
_BANDIT = re.compile(r"/v1/bandits/([^/]+)(?!.*/events$)")  # events are read anywhere
_DECISION = re.compile(r"/v1/decisions/([^/]+)")
_TIMEOUT_SECONDS = 60.0
_CONNECT_SECONDS = 2.0
_MOST_CONNECTIONS = 256


def connect_others() -> httpx.AsyncClient:
    """What reaches the other processes."""
    library = require_extra("httpx", "client")
    timeout = library.Timeout(_TIMEOUT_SECONDS, connect=_CONNECT_SECONDS)
    limits = library.Limits(max_connections=_MOST_CONNECTIONS)
    client: httpx.AsyncClient = library.AsyncClient(
        timeout=timeout, limits=limits, trust_env=False
    )
    return client


class _Bandit(NamedTuple):
    tenant: str
    name: str


class Handover:
    """An ASGI application in front of another, for one of several processes.

    Args:
        app: The application that answers for the bandits of this process.
        owners: Who owns a bandit.
        service: The service of this process.
        http: Reaches the other processes.
    """

    def __init__(
        self,
        app: ASGIApp,
        owners: Owners,
        service: Service,
        http: httpx.AsyncClient,
    ) -> None:
        library: Any = require_extra("httpx", "client")
        self._library = library
        self._app = app
        self._owners = owners
        self._service = service
        self._http = http
        self._not_connected: tuple[type[Exception], ...] = (
            library.ConnectError,
            library.ConnectTimeout,
        )
        self._network_error: type[Exception] = library.TransportError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http" and scope["raw_path"].startswith(b"/v1/")
        if not is_request or _header(scope, _HANDED_OVER) is not None:
            await self._app(scope, receive, send)
            return
        threads = self._service.lookup_threads
        bandit = await run_sync(self._bandit_of, scope, limiter=threads)
        address = None if bandit is None else self._owners.other_owner(*bandit)
        if bandit is None or address is None:
            await self._app(scope, receive, send)
            return
        # What this process knows of it goes out of date.
        await run_in_threadpool(self._service.hub.drop, *bandit)
        try:
            body = await read_body(receive)
        except HTTPException as error:  # it is too large
            refusal = problem(error.status_code, str(error.detail))
            await refusal(scope, receive, send)
            return
        try:
            # A tenant whose requests are slow must not hold all connections to the owner.
            # Its slots are not those of this process's own requests: processes that hand over to each
            # other would otherwise wait for each other.
            async with self._service.forwarding.slot(bandit.tenant):
                response = await self._forward(address, scope, body)
        except Refusal as error:
            response = refusal_response(error)
        except self._not_connected:
            # The owner has just stopped. This process can answer as well: the journal decides.
            await self._app(scope, repeat_body(body, receive), send)
            return
        except self._network_error:
            # The owner may have acted: only the client knows whether a repetition counts once.
            status = HTTPStatus.SERVICE_UNAVAILABLE
            response = problem(
                status,
                "the process that owns this bandit did not answer; retry soon",
                retry_headers(status),
            )
        await response(scope, receive, send)

    def _bandit_of(self, scope: Scope) -> _Bandit | None:
        """The bandit that a request is about; ``None`` where any process can answer."""
        path = scope["path"]
        with suppress(SuperarmError, Refusal):  # whoever answers says why
            by_name = _BANDIT.match(path)
            by_decision = _DECISION.match(path)
            if by_name is None and by_decision is None:
                return None
            caller = self._service.gate.caller(
                _header(scope, b"authorization"),
                _header(scope, SUBSCRIPTION_KEY.lower().encode()),
            )
            if by_name is not None:
                return _Bandit(caller.tenant, by_name[1])
            assert by_decision is not None
            named = parse_qs(scope["query_string"].decode("latin-1")).get("bandit")
            if named:
                return _Bandit(caller.tenant, named[-1])
            key = decided_key(by_decision[1])
            rows = self._service.storage.journal.find_decision(caller.tenant, key)
            if len(rows) == 1:
                return _Bandit(caller.tenant, rows[0].name)
        return None

    async def _forward(self, address: str, scope: Scope, body: bytes) -> Response:
        target = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        # Never a text of both: the path of a request must not become part of the host.
        url = self._library.URL(address).copy_with(raw_path=target)
        headers = [
            (name, value)
            for name, value in scope["headers"]
            if name.lower() not in _OF_ONE_HOP and name.lower() != b"origin"
        ]
        headers.append((_HANDED_OVER, b"1"))
        answer = await self._http.request(
            scope["method"], url, content=body, headers=headers
        )
        response = Response(answer.content, status_code=answer.status_code)
        for name in ("content-type", "retry-after", "www-authenticate"):
            if name in answer.headers:
                response.headers[name] = answer.headers[name]
        return response


def _header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name.lower() == wanted:
            text: str = value.decode("latin-1")
            return text
    return None
