"""What every route needs: the caller, the bandits, the limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Header, Request

from superarm.core.errors import InputError, StateError
from superarm.live.access import Caller, TokenScope
from superarm.live.ids import LONGEST_ID
from superarm.live.journal import Membership
from superarm.live.storage import Storage

from .concurrency import ConcurrencyLimit
from .description import bearer
from .gate import SUBSCRIPTION_KEY, Gate
from .hub import Hub
from .metrics import Metrics
from .owners import Owners
from .problems import Refusal
from .rate_limit import RateLimit
from .settings import Settings
from .stream_slots import StreamSlots
from .tell_batches import TellBatches

_LOOKUP_THREADS = 16
_STREAM_THREADS = 16
Result = TypeVar("Result")


class Service:
    """A running service: its bandits, and who may use them.

    Args:
        storage: Where the journals are.
        settings: How it is run.
    """

    def __init__(self, storage: Storage, settings: Settings) -> None:
        journal = storage.journal
        has_tokens = bool(journal.tokens())
        if not settings.is_loopback and not has_tokens:
            raise InputError(
                f"other machines can connect to {settings.host}, so the service needs tokens; create "
                f"one with `superarm token create NAME --storage {journal.url}`, or listen on 127.0.0.1"
            )
        limits = settings.limits
        rate = limits.requests_per_second
        self.storage = storage
        self.limits = limits
        self.gate = Gate(journal, needs_token=has_tokens)
        self.rates = None if rate is None else RateLimit(rate)
        self.hub = Hub(storage, limits)
        self.tells = TellBatches(self.hub)
        self.owners = None
        if isinstance(journal, Membership):
            self.owners = Owners(journal, settings.own_address)
        self.metrics = Metrics(self.hub)
        self.are_metrics_open = settings.is_loopback or settings.open_metrics
        self.concurrency = ConcurrencyLimit(limits.threads_per_tenant)
        self.forwarding = ConcurrencyLimit(limits.threads_per_tenant)
        self.streams = StreamSlots(limits.streams, limits.streams_per_tenant)
        # Threads of their own: requests that hold all others do not delay these.
        self.lookup_threads = CapacityLimiter(_LOOKUP_THREADS)
        self.stream_threads = CapacityLimiter(_STREAM_THREADS)
        self.health_threads = CapacityLimiter(1)

    async def identify(
        self, authorization: str | None, subscription_key: str | None
    ) -> Caller:
        """Who sent a request.

        Args:
            authorization: The header ``Authorization``.
            subscription_key: The header ``Ocp-Apim-Subscription-Key``.
        """
        known = self.gate.known_caller(authorization, subscription_key)
        if known is not None:
            return known
        return await run_sync(
            self.gate.caller,
            authorization,
            subscription_key,
            limiter=self.lookup_threads,
        )

    def count_requests(self, tenant: str, requests: int = 1) -> None:
        """Count requests against the rate of a tenant, or refuse them.

        Args:
            tenant: Who sent them.
            requests: How many.
        """
        if self.rates is not None:
            self.rates.take(tenant, requests)


async def service_of(request: Request) -> Service:
    """The service that received a request.

    Args:
        request: The request.
    """
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]


# Only for the OpenAPI document: `_caller_of` reads the headers.
BearerDep = Annotated[object, Depends(bearer)]


async def _caller_of(request: Request, service: Service) -> Caller:
    """Who sent a request. Header parameters of FastAPI would be far slower than this."""
    headers = request.headers
    return await service.identify(
        headers.get("Authorization"), headers.get(SUBSCRIPTION_KEY)
    )


def require_scope(caller: Caller, *scopes: TokenScope) -> None:
    """Refuse a caller whose token has none of the given scopes.

    Args:
        caller: Who sent a request.
        scopes: The scopes.
    """
    if caller.scopes.isdisjoint(scopes):
        allowed = " or ".join(map(repr, scopes))
        raise Refusal(HTTPStatus.FORBIDDEN, f"this token does not allow {allowed}")


@asynccontextmanager
async def admitted(
    service: Service, caller: Caller, scope: TokenScope
) -> AsyncIterator[None]:
    """Count a request and wait until it may run, or refuse it; it runs until the block ends.

    Args:
        service: The service that received it.
        caller: Who sent it.
        scope: What the caller's token must allow.
    """
    require_scope(caller, scope)
    service.count_requests(caller.tenant)
    async with service.concurrency.slot(caller.tenant):
        yield


def needs(scope: TokenScope) -> Callable[..., AsyncIterator[Caller]]:
    """A dependency that admits callers with a scope, once they may run.

    Args:
        scope: What the caller's token must allow.
    """

    async def admit(request: Request, _: BearerDep) -> AsyncIterator[Caller]:
        service = await service_of(request)
        caller = await _caller_of(request, service)
        async with admitted(service, caller, scope):
            yield caller

    return admit


async def admit_batch(request: Request, _: BearerDep) -> AsyncIterator[Caller]:
    """Admit callers who send rewards; the route counts each of its lines as a request.

    Args:
        request: The request.
    """
    service = await service_of(request)
    caller = await _caller_of(request, service)
    require_scope(caller, "tell")
    async with service.concurrency.slot(caller.tenant):
        yield caller


async def admit_stream(request: Request, _: BearerDep) -> Caller:
    """Admit callers who read; a stream has a limit of its own, and is no running request.

    Args:
        request: The request.
    """
    service = await service_of(request)
    caller = await _caller_of(request, service)
    require_scope(caller, "read")
    service.count_requests(caller.tenant)
    return caller


Reader = Annotated[Caller, Depends(needs("read"))]
Asker = Annotated[Caller, Depends(needs("ask"))]
Teller = Annotated[Caller, Depends(needs("tell"))]
Admin = Annotated[Caller, Depends(needs("admin"))]
BatchTeller = Annotated[Caller, Depends(admit_batch)]
StreamReader = Annotated[Caller, Depends(admit_stream)]
IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", max_length=LONGEST_ID)
]


def from_request(read: Callable[[Any], Result], value: Any) -> Result:
    """What a request describes. If it cannot be read, the request is wrong, not the journal.

    Args:
        read: Reads the value.
        value: What came.
    """
    try:
        return read(value)
    except StateError as error:
        raise InputError(str(error)) from error


def one_id(in_body: str | None, in_header: str | None, name: str) -> str | None:
    """The id of a request, which is in its body or in the header ``Idempotency-Key``.

    Args:
        in_body: The id in the body.
        in_header: The header.
        name: What the body calls it.
    """
    if in_body is not None and in_header is not None and in_body != in_header:
        raise InputError(
            f"{name} {in_body!r} and Idempotency-Key {in_header!r} differ; send one of them"
        )
    return in_header if in_body is None else in_body
