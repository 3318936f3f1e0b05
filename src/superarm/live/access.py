"""Tokens: who may use a service, and for what."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable
from hashlib import sha256
from secrets import token_urlsafe
from typing import Literal, NamedTuple, get_args

from superarm.core.errors import InputError

from .bandits import NOBODY
from .journal import TokenRow
from .names import require_name

TokenScope = Literal["read", "ask", "tell", "admin"]
"""What a token may allow. ``admin`` creates and changes bandits and tokens."""
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
DEFAULT_SCOPES: tuple[TokenScope, ...] = ("read", "ask", "tell")
"""What a token allows by default."""


class Caller(NamedTuple):
    """Who sent a request."""

    tenant: str
    scopes: frozenset[str]


ANYBODY = Caller(NOBODY, frozenset(SCOPES))
"""Any caller of a service without tokens, which only this machine can reach."""


def make_token(tenant: str, name: str, scopes: Iterable[str]) -> tuple[str, TokenRow]:
    """A new token, and the row to store, which contains only its hash.

    Args:
        tenant: Whose bandits it can use.
        name: Its name, by which it can be removed.
        scopes: What it allows.
    """
    require_name(name, "the name of a token")
    if tenant != NOBODY:
        require_name(tenant, "the name of a tenant")
    chosen = sorted(set(scopes))
    unknown = [scope for scope in chosen if scope not in SCOPES]
    if unknown or not chosen:
        raise InputError(f"scopes must be among {', '.join(SCOPES)}, got {chosen}")
    token = f"sa_{token_urlsafe(32)}"
    row = TokenRow(hash_token(token), tenant, name, " ".join(chosen), clock.time())
    return token, row


def hash_token(token: str) -> str:
    """The hash of a token. A token has 256 random bits, so it needs no salt.

    Args:
        token: The token.
    """
    return sha256(token.encode()).hexdigest()
