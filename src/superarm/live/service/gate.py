"""Finds out who sent a request."""

from __future__ import annotations

import math
import time as clock
from http import HTTPStatus
from threading import Lock
from typing import NamedTuple

from superarm.live.access import ANYBODY, Caller, hash_token
from superarm.live.journal import Journal

from .problems import Refusal

_BEARER = "bearer "
SUBSCRIPTION_KEY = "Ocp-Apim-Subscription-Key"
"""The header in which clients of Personalizer send a token."""
_CACHE_SECONDS = 5.0


class _KnownCaller(NamedTuple):
    """The caller that a token belonged to when it was looked up."""

    checked: float  # by the monotonic clock
    caller: Caller


class Gate:
    """Finds out who sent a request.

    Args:
        journal: Where the tokens are.
        needs_token: Whether a request without a token is refused. It always is once there are tokens.
    """

    def __init__(self, journal: Journal, *, needs_token: bool) -> None:
        self._journal = journal
        self._needs_token = needs_token
        self._lock = Lock()
        self._known: dict[str, _KnownCaller] = {}  # by hash of the token
        self._looked_for_tokens = -math.inf

    def known_caller(
        self, authorization: str | None, subscription_key: str | None = None
    ) -> Caller | None:
        """Who sent a request, where no journal must be read for it; otherwise ``None``.

        Args:
            authorization: The header ``Authorization``.
            subscription_key: The header ``Ocp-Apim-Subscription-Key``.
        """
        now = clock.monotonic()
        with self._lock:
            if not self._needs_token:
                is_recent = now - self._looked_for_tokens < _CACHE_SECONDS
                return ANYBODY if is_recent else None
            token = _require_token(authorization, subscription_key)
            known = self._known.get(hash_token(token))
        if known is None or now - known.checked >= _CACHE_SECONDS:
            return None
        return known.caller

    def caller(
        self, authorization: str | None, subscription_key: str | None = None
    ) -> Caller:
        """Who sent a request. This may read the journal.

        Args:
            authorization: The header ``Authorization``.
            subscription_key: The header ``Ocp-Apim-Subscription-Key``, in which clients of Personalizer
                send a token.
        """
        known = self.known_caller(authorization, subscription_key)
        if known is not None:
            return known
        if not self._are_tokens_needed():
            return ANYBODY
        token_hash = hash_token(_require_token(authorization, subscription_key))
        now = clock.monotonic()
        row = self._journal.find_token(token_hash)
        if row is None:
            raise _unauthorized("this token is unknown or was removed")
        caller = Caller(row.tenant, frozenset(row.scopes.split()))
        with self._lock:
            self._known[token_hash] = _KnownCaller(now, caller)
        return caller

    def _are_tokens_needed(self) -> bool:
        """Whether a token is needed: from the first one on that somebody creates."""
        if self._needs_token:
            return True
        now = clock.monotonic()
        has_tokens = bool(self._journal.tokens())
        with self._lock:
            self._looked_for_tokens = now
            self._needs_token = has_tokens
        return has_tokens

    def forget(self) -> None:
        """Look every token up again, because one may have been created or removed."""
        with self._lock:
            self._known.clear()
            self._looked_for_tokens = -math.inf


def _require_token(authorization: str | None, subscription_key: str | None) -> str:
    token = _token(authorization, subscription_key)
    if token is None:
        raise _unauthorized(
            "this service needs a token: send 'Authorization: Bearer …' (Client: token=…; command line: "
            "SUPERARM_TOKEN)"
        )
    return token


def _token(authorization: str | None, subscription_key: str | None) -> str | None:
    """The token in the headers of a request."""
    if authorization is not None and authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip()
    return None if subscription_key is None else subscription_key.strip()


def _unauthorized(detail: str) -> Refusal:
    headers = {"WWW-Authenticate": "Bearer"}
    return Refusal(HTTPStatus.UNAUTHORIZED, detail, headers)
