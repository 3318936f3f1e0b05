"""Answers plain asks and tells without FastAPI.

To find a route, its dependencies and its body takes FastAPI twice as long as a bandit takes to learn a
reward. So asks and tells as most clients send them are answered here, by the same functions as those of
the routes. Any other request goes on to the routes, and so does one whose body they would refuse: they
describe its faults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from anyio.to_thread import run_sync
from fastapi.routing import APIRouter
from pydantic import ValidationError
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from superarm.core.errors import SuperarmError
from superarm.live.access import Caller
from superarm.live.names import NAME

from . import bandit_routes, bodies, decision_routes
from .context import Service, admitted
from .gate import SUBSCRIPTION_KEY
from .problems import Refusal, error_response, log_error, refusal_response
from .request_bodies import read_body, repeat_body

_ASK = re.compile(r"/v1/bandits/([^/]+)/decisions")
_TELL = re.compile(r"/v1/decisions/([^/]+)/observations")
_QUERY = re.compile(rf"(?:bandit=({NAME}))?".encode())
_JSON = b"application/json"
_MOST_BYTES = 2**20
"""Larger bodies take so long to parse that FastAPI adds little."""
_TOLD = {
    is_new: bodies.Told(new=is_new).model_dump_json().encode()
    for is_new in (True, False)
}
AnyBody = TypeVar("AnyBody", bound=bodies.Body)


class _DirectRequest(NamedTuple):
    """An ask or a tell that may be answered without FastAPI."""

    is_tell: bool
    name: str
    """The bandit of an ask, the decision of a tell."""
    bandit: str | None
    """The bandit that the query of a tell names."""
    headers: Mapping[bytes, bytes]

    @classmethod
    def of(cls, scope: Scope) -> _DirectRequest | None:
        """The request; ``None`` if the routes must answer it.

        Args:
            scope: What ASGI states about the request.
        """
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        tell = _TELL.fullmatch(scope["path"])
        place = tell or _ASK.fullmatch(scope["path"])
        query = _QUERY.fullmatch(scope["query_string"])
        if place is None or query is None:
            return None
        if scope["query_string"] and tell is None:
            return None
        headers: dict[bytes, bytes] = {}
        for key, value in scope["headers"]:
            headers.setdefault(key, value)
        length = headers.get(b"content-length", b"")
        is_plain = (
            headers.get(b"content-type") == _JSON
            and length.isdigit()
            and int(length[:9]) <= _MOST_BYTES
            and b"idempotency-key" not in headers
        )
        if not is_plain:
            return None
        bandit = None if query[1] is None else query[1].decode("ascii")
        return cls(tell is not None, place[1], bandit, headers)

    def header(self, name: str) -> str | None:
        """A header as text; ``None`` if there is none.

        Args:
            name: Its name.
        """
        value = self.headers.get(name.lower().encode())
        return None if value is None else value.decode("latin-1")


class DirectRoutes:
    """An ASGI application in front of another, which answers plain asks and tells.

    Args:
        app: The application that answers everything else.
        service: The service.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        # Metrics count requests by route.
        self._tell_route = _route_of(decision_routes.router, decision_routes.tell)
        self._ask_route = _route_of(bandit_routes.router, bandit_routes.ask)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _DirectRequest.of(scope)
        if request is None:
            await self._app(scope, receive, send)
            return
        body = b""
        try:
            # A body is read only once its caller is known.
            caller = await self._service.identify(
                request.header("Authorization"), request.header(SUBSCRIPTION_KEY)
            )
            body = await read_body(receive)
            response = await self._answer(request, caller, body)
        except Refusal as refusal:
            response = refusal_response(refusal)
        except SuperarmError as error:
            log_error(error)
            response = error_response(error)
        if response is None:
            await self._app(scope, repeat_body(body, receive), send)
            return
        scope["route"] = self._tell_route if request.is_tell else self._ask_route
        await response(scope, receive, send)

    async def _answer(
        self, request: _DirectRequest, caller: Caller, body: bytes
    ) -> Response | None:
        """The answer; ``None`` if the routes must describe what is wrong with the body."""
        if request.is_tell:
            tell = _parse(bodies.Tell, body)
            return None if tell is None else await self._tell(request, caller, tell)
        ask = _parse(bodies.Ask, body)
        return None if ask is None else await self._ask(request, caller, ask)

    async def _tell(
        self, request: _DirectRequest, caller: Caller, body: bodies.Tell
    ) -> Response:
        async with admitted(self._service, caller, "tell"):
            is_new = await decision_routes.learn(
                self._service, caller, request.name, body, bandit=request.bandit
            )
        status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
        return Response(_TOLD[is_new], status, media_type="application/json")

    async def _ask(
        self, request: _DirectRequest, caller: Caller, body: bodies.Ask
    ) -> Response:
        def decide() -> str:
            decision = bandit_routes.decide(self._service, caller, request.name, body)
            return decision.model_dump_json()

        async with admitted(self._service, caller, "ask"):
            text = await run_sync(decide)
        return Response(text, HTTPStatus.CREATED, media_type="application/json")


def _route_of(router: APIRouter, endpoint: Any) -> BaseRoute:
    """The route of a function."""
    for route in router.routes:
        if getattr(route, "endpoint", None) is endpoint:
            return route
    raise LookupError(f"{endpoint.__name__} has no route")


def _parse(model: type[AnyBody], body: bytes) -> AnyBody | None:
    """The body of a request, read as FastAPI reads it; ``None`` if it is not valid."""
    try:
        return model.model_validate(json.loads(body))
    except (ValidationError, ValueError, RecursionError):
        return None
