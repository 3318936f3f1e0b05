"""The application: routes, errors, and what happens when it starts and stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import anyio.to_thread
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from superarm._version import __version__
from superarm.live.storage import Storage

from . import (
    bandit_routes,
    batch_routes,
    bodies,
    challenger_routes,
    decision_routes,
    personalizer_routes,
    token_routes,
)
from .context import Service, ServiceDep
from .guard import Guard
from .handover import Handover, connect_others
from .metrics import Measured
from .problems import MEDIA_TYPE, add_handlers
from .settings import Settings

_ROUTES = (
    bandit_routes,
    batch_routes,
    challenger_routes,
    decision_routes,
    personalizer_routes,
    token_routes,
)
_THREADS = 256
"""Requests at a time: most of them wait for the disk."""
_DESCRIPTION = """
Bandits over combinations: **ask** which arms to choose, act, **tell** the rewards, perhaps a week later.
What was acknowledged is durable. Repeating a request is harmless: it counts once.
"""
_ERRORS = {
    status: {"model": bodies.Problem, "content": {MEDIA_TYPE: {}}}
    for status in (401, 403, 404, 409, 413, 422, 429, 503)
}


def create_app(storage: Storage, settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application.

    Args:
        storage: Where the journals of its bandits are.
        settings: How it is run; by default on loopback, without tokens if there are none.
    """
    chosen = settings or Settings()
    service = Service(storage, chosen)

    owners = service.owners
    others = None if owners is None else connect_others()

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        service.hub.start()
        if owners is not None:
            await anyio.to_thread.run_sync(owners.start)
        yield
        if owners is not None:
            await anyio.to_thread.run_sync(owners.stop)
        if others is not None:
            await others.aclose()
        await anyio.to_thread.run_sync(service.hub.stop)

    app = FastAPI(
        title="superarm",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=run,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        responses=_ERRORS,  # type: ignore[arg-type]
    )
    app.state.service = service
    add_handlers(app)
    if owners is not None and others is not None:
        app.add_middleware(
            Handover, owners=owners, gate=service.gate, hub=service.hub, http=others
        )
    app.add_middleware(Measured, metrics=service.metrics)
    app.add_middleware(Guard, settings=chosen)
    for part in _ROUTES:
        app.include_router(part.router)
    _add_health(app)
    return app


def _add_health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"])
    def health() -> bodies.Health:
        """Whether the process answers."""
        return bodies.Health(status="ok")

    @app.get("/readyz", tags=["health"])
    def ready(service: ServiceDep) -> Response:
        """Whether the journals are replayed and the storage answers."""
        if not service.hub.ready:
            return _health(
                HTTPStatus.SERVICE_UNAVAILABLE, "journals are being replayed"
            )
        service.storage.journal.newest(1)  # raises if the storage does not answer
        return _health(HTTPStatus.OK, None)

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    def metrics(service: ServiceDep) -> Response:
        """Numbers for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _health(status: HTTPStatus, detail: str | None) -> JSONResponse:
    text = "ok" if status is HTTPStatus.OK else "starting"
    body = bodies.Health(status=text, detail=detail)
    return JSONResponse(body.model_dump(), status_code=status)
