"""Routes of tokens. A caller manages those of its own tenant."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from superarm.core.errors import NotFoundError
from superarm.live.access import make_token

from . import bodies
from .admission import AdmittedRoute
from .context import Admin, ServiceDep

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=AdmittedRoute)


@router.post("", status_code=HTTPStatus.CREATED)
def create_token(
    body: bodies.NewToken, service: ServiceDep, caller: Admin
) -> bodies.Token:
    """Create a token. The response shows it once; the storage has only its hash."""
    token, row = make_token(caller.tenant, body.name, body.scopes)
    service.storage.journal.add_token(row)
    service.gate.forget()
    return bodies.Token(name=row.name, scopes=row.scopes.split(), token=token)


@router.get("")
def list_tokens(service: ServiceDep, caller: Admin) -> list[bodies.TokenInfo]:
    """Names and scopes of all tokens of the tenant."""
    infos = []
    for row in service.storage.journal.tokens():
        if row.tenant == caller.tenant:
            scopes = row.scopes.split()
            info = bodies.TokenInfo(name=row.name, scopes=scopes, created=row.created)
            infos.append(info)
    return infos


@router.delete("/{name}", status_code=HTTPStatus.NO_CONTENT)
def remove_token(name: str, service: ServiceDep, caller: Admin) -> None:
    """Remove a token. The service refuses it within seconds."""
    if not service.storage.journal.remove_token(caller.tenant, name):
        raise NotFoundError(f"there is no token {name!r}")
    service.gate.forget()
