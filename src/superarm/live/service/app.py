"""The application: routes, errors, and what happens when it starts and stops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

from anyio import move_on_after
from anyio.to_thread import current_default_thread_limiter, run_sync
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from superarm.core.errors import StateError
from superarm.live.journal import UPGRADED
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
from .context import Service, ServiceDep, require_scope
from .description import (
    API_VERSION,
    DESCRIPTION,
    GUARD_PROBLEMS,
    PROBLEMS,
    Responses,
    describe,
    operation_id,
)
from .direct import DirectRoutes
from .guard import Guard
from .handover import Handover, connect_others
from .metrics import RequestMeter
from .problems import Refusal, add_handlers, retry_headers
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
_READY_SECONDS = 5.0
"""How long the storage may take to answer."""
_NOT_READY: Responses = {503: {"model": bodies.Problem}}
_NOT_ADMITTED: Responses = {401: {"model": bodies.Problem}, **_NOT_READY}


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
        current_default_thread_limiter().total_tokens = _THREADS
        service.hub.start()
        if owners is not None:
            await run_sync(owners.start)
        yield
        if owners is not None:
            await run_sync(owners.stop)
        if others is not None:
            await others.aclose()
        await run_sync(service.hub.stop)

    app = app_without_storage(run)
    app.state.service = service
    app.add_middleware(DirectRoutes, service=service)
    if owners is not None and others is not None:
        app.add_middleware(Handover, owners=owners, service=service, http=others)
    app.add_middleware(RequestMeter, metrics=service.metrics)
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
    async def health() -> bodies.Health:
        """Whether the process answers."""
        return bodies.Health(status="ok")

    @app.get("/readyz", tags=["health"], responses=_NOT_READY)
    async def ready(service: ServiceDep) -> bodies.Health:
        """Whether the journals are replayed and the storage answers."""
        if not service.hub.ready:
            raise _not_ready("still replaying the journals; retry soon")
        with move_on_after(_READY_SECONDS):
            try:
                await run_sync(
                    service.storage.journal.require_schema,  # StorageError is 503 by itself
                    limiter=service.health_threads,
                    abandon_on_cancel=True,
                )
            except StateError as error:
                # Another process may serve a storage that is too new for this one.
                raise _not_ready(UPGRADED) from error
            return bodies.Health(status="ok")
        raise _not_ready("the storage does not answer; retry soon")

    @app.get(
        "/metrics",
        tags=["health"],
        response_class=PlainTextResponse,
        responses=_NOT_ADMITTED,
    )
    async def metrics(service: ServiceDep, request: Request) -> Response:
        """Metrics for Prometheus.

        They need a token with the scope `read` or `admin`, except on loopback or with `--open-metrics`.
        """
        if not service.are_metrics_open:
            caller = await service.identify(request.headers.get("authorization"), None)
            require_scope(caller, "read", "admin")
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _not_ready(detail: str) -> Refusal:
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return Refusal(status, detail, retry_headers(status))
