"""Routes that read the body of a request only once its caller is known."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from .context import Service
from .gate import SUBSCRIPTION_KEY

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class AdmittedRoute(APIRoute):
    """A route for callers that the service knows.

    FastAPI reads and parses a body before it asks who sent it. So anybody could keep the service busy
    with large bodies.
    """

    def get_route_handler(self) -> Handler:
        """The handler of requests."""
        handle = super().get_route_handler()

        async def admit(request: Request) -> Response:
            service: Service = request.app.state.service
            headers = request.headers
            await service.identify(
                headers.get("Authorization"), headers.get(SUBSCRIPTION_KEY)
            )
            return await handle(request)

        return admit
