"""The application: routes, errors, and what happens when it starts and stops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

import anyio.to_thread
from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse

from superarm.core.errors import StateError
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
from .description import (
    API_VERSION,
    DESCRIPTION,
    GUARD_PROBLEMS,
    PROBLEMS,
    Responses,
    describe,
    operation_id,
)
from .guard import Guard
from .handover import Handover, connect_others
from .metrics import Measured
from .problems import Refusal, add_handlers
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
_NOT_READY: Responses = {503: {"model": bodies.Problem}}


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

    app = app_without_storage(run)
    app.state.service = service
    if owners is not None and others is not None:
        app.add_middleware(
            Handover, owners=owners, gate=service.gate, hub=service.hub, http=others
        )
    app.add_middleware(Measured, metrics=service.metrics)
    app.add_middleware(Guard, settings=chosen)
    return app


def app_without_storage(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """All routes, and the description of them. Only :func:`create_app` makes them work.

    Args:
        lifespan: What happens when the application starts and stops.
    """
    app = FastAPI(
        title="superarm",
        version=API_VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        generate_unique_id_function=operation_id,
        responses=GUARD_PROBLEMS,
    )
    add_handlers(app)
    for part in _ROUTES:
        app.include_router(part.router, responses=PROBLEMS)
    _add_health(app)
    describe(app)
    return app


def _add_health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"])
    def health() -> bodies.Health:
        """Whether the process answers."""
        return bodies.Health(status="ok")

    @app.get("/readyz", tags=["health"], responses=_NOT_READY)
    def ready(service: ServiceDep) -> bodies.Health:
        """Whether the journals are replayed and the storage answers."""
        if not service.hub.ready:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "still replaying the journals; retry soon",
                {"Retry-After": "1"},
            )
        try:
            service.storage.journal.require_schema()  # StorageError is 503 by itself
        except StateError as error:
            # Another process may serve a storage that is too new for this one.
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        return bodies.Health(status="ok")

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    def metrics(service: ServiceDep) -> Response:
        """Numbers for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")
