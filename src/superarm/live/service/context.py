"""What every route needs: the caller, the bandits, the limits."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request

from superarm.core import Arms
from superarm.core.errors import InputError, StateError
from superarm.live.access import Caller
from superarm.live.journal import Membership
from superarm.live.storage import Storage

from . import bodies
from .description import bearer
from .gate import SUBSCRIPTION_KEY, Gate, RateLimit
from .hub import Hub
from .metrics import Metrics
from .owners import Owners
from .problems import Refusal
from .settings import Settings

Result = TypeVar("Result")


class Service:
    """A running service: its bandits, and who may use them.

    Args:
        storage: Where the journals are.
        settings: How it is run.
    """

    def __init__(self, storage: Storage, settings: Settings) -> None:
        needs_token = not settings.is_loopback or bool(storage.journal.tokens())
        if needs_token and not storage.journal.tokens():
            raise InputError(
                f"{settings.host} can be reached from other machines, so the service needs tokens; create "
                f"one with `superarm token create NAME --storage {storage.journal.url}`, or listen on 127.0.0.1"
            )
        rate = settings.limits.requests_per_second
        self.storage = storage
        self.limits = settings.limits
        self.gate = Gate(storage.journal, needs_token)
        self.rates = None if rate is None else RateLimit(rate)
        self.hub = Hub(storage, settings.limits.bandits)
        journal = storage.journal
        self.owners = None
        if isinstance(journal, Membership):
            self.owners = Owners(journal, settings.own_address)
        self.metrics = Metrics(self.hub)


def service_of(request: Request) -> Service:
    """The service that received a request.

    Args:
        request: The request.
    """
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]


def needs(scope: str) -> Callable[..., Caller]:
    """A dependency that admits callers with a scope.

    Args:
        scope: What the caller's token must allow.
    """

    def admit(
        service: ServiceDep,
        _: Annotated[object, Depends(bearer)],  # for the OpenAPI document
        authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
        subscription_key: Annotated[
            str | None, Header(alias=SUBSCRIPTION_KEY, include_in_schema=False)
        ] = None,
    ) -> Caller:
        caller = service.gate.caller(authorization, subscription_key)
        if scope not in caller.scopes:
            raise Refusal(HTTPStatus.FORBIDDEN, f"this token does not allow {scope!r}")
        if service.rates is not None:
            service.rates.take(caller.tenant)
        return caller

    return admit


Reader = Annotated[Caller, Depends(needs("read"))]
Asker = Annotated[Caller, Depends(needs("ask"))]
Teller = Annotated[Caller, Depends(needs("tell"))]
Admin = Annotated[Caller, Depends(needs("admin"))]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]


def arms_of(arms: bodies.Arms | None, service: Service) -> Any:
    """Arms of a request, unless there are too many, or they have too many features.

    Args:
        arms: The arms, as they came.
        service: Whose limits count.
    """
    if arms is None:
        return None
    limits = service.limits
    rows = _rows_of(arms)
    if len(rows) > limits.arms:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"{len(rows)} arms exceed the limit of {limits.arms}; offer fewer",
        )
    for row in rows:
        if isinstance(row, list | dict) and len(row) > limits.dimension:
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{len(row)} features of an arm exceed the limit of {limits.dimension}",
            )
    if not isinstance(arms, bodies.ArmsTable):
        return arms
    if len(arms.ids) != len(rows) or len(set(arms.ids)) != len(rows):
        raise InputError(
            "arms must have one id, and none twice, for each row of features"
        )
    if all(isinstance(row, list) for row in rows):
        return Arms(ids=arms.ids, features=rows)
    return dict(zip(arms.ids, rows, strict=True))


def _rows_of(arms: bodies.Arms) -> list[Any]:
    if isinstance(arms, bodies.ArmsTable):
        return arms.features
    return list(arms.values()) if isinstance(arms, dict) else list(arms)


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
            f"{name} is {in_body!r} and Idempotency-Key {in_header!r}; give one of them"
        )
    return in_header if in_body is None else in_body
