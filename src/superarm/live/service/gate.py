"""Finds out who sent a request, and limits how many a second."""

from __future__ import annotations

import math
import time as clock
from http import HTTPStatus
from threading import Lock

from superarm.live.access import ANYBODY, Caller, hash_token
from superarm.live.journal import Journal

from .problems import Refusal

_BEARER = "bearer "
SUBSCRIPTION_KEY = "Ocp-Apim-Subscription-Key"
"""The header in which clients of Personalizer send a token."""
_CACHE_SECONDS = 5.0


class Gate:
    """Finds out who sent a request.

    Args:
        journal: Where the tokens are.
        needs_token: Whether a request without a token is refused even if there are no tokens.
    """

    def __init__(self, journal: Journal, needs_token: bool) -> None:
        self._journal = journal
        self._needs_token = needs_token
        self._lock = Lock()
        self._seen: dict[str, tuple[float, Caller]] = {}  # by hash, with the time
        self._looked_for_tokens = -math.inf

    def caller(
        self, authorization: str | None, subscription_key: str | None = None
    ) -> Caller:
        """Who sent a request.

        Args:
            authorization: The header ``Authorization``.
            subscription_key: The header ``Ocp-Apim-Subscription-Key``, in which clients of Personalizer
                send a token.
        """
        if not self._are_tokens_needed():
            return ANYBODY
        token = _token(authorization, subscription_key)
        if token is None:
            raise _unauthorized("this service needs a token: 'Authorization: Bearer …'")
        token_hash = hash_token(token)
        now = clock.monotonic()
        with self._lock:
            seen = self._seen.get(token_hash)
        if seen is not None:
            checked, known_caller = seen
            if now - checked < _CACHE_SECONDS:
                return known_caller
        row = self._journal.find_token(token_hash)
        if row is None:
            raise _unauthorized("this token is unknown, or was removed")
        caller = Caller(row.tenant, frozenset(row.scopes.split()))
        with self._lock:
            self._seen[token_hash] = (now, caller)
        return caller

    def _are_tokens_needed(self) -> bool:
        """Whether a token is needed: from the first one on that somebody creates."""
        if self._needs_token:
            return True
        now = clock.monotonic()
        with self._lock:
            if now - self._looked_for_tokens < _CACHE_SECONDS:
                return False
        has_tokens = bool(self._journal.tokens())
        with self._lock:
            self._looked_for_tokens = now
            self._needs_token = has_tokens
        return has_tokens

    def forget(self) -> None:
        """Look every token up again, because one may have been created or removed."""
        with self._lock:
            self._seen.clear()
            self._looked_for_tokens = -math.inf


def _token(authorization: str | None, subscription_key: str | None) -> str | None:
    """The token in the headers of a request."""
    if authorization is not None and authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip()
    return None if subscription_key is None else subscription_key.strip()


def _unauthorized(detail: str) -> Refusal:
    headers = {"WWW-Authenticate": "Bearer"}
    return Refusal(HTTPStatus.UNAUTHORIZED, detail, headers)


class RateLimit:
    """Requests of each tenant: ``rate`` a second on average, and as many at once.

    Args:
        rate: Requests a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(rate, 1.0)
        self._lock = Lock()
        self._credits: dict[str, tuple[float, float]] = {}  # by tenant: time, credit

    def take(self, tenant: str) -> None:
        """Count a request, or refuse it.

        Args:
            tenant: Who sent it.
        """
        now = clock.monotonic()
        with self._lock:
            earlier, credit = self._credits.get(tenant, (now, self._most))
            credit = min(self._most, credit + (now - earlier) * self._rate)
            if credit < 1.0:
                seconds = (1.0 - credit) / self._rate
                raise Refusal(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"more than {self._rate:g} requests a second; wait {seconds:.2f} s",
                    {"Retry-After": str(max(1, round(seconds)))},
                )
            self._credits[tenant] = (now, credit - 1.0)
