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
            seen = self._seen.get(hash_token(token))
        if seen is None:
            return None
        checked, caller = seen
        return caller if now - checked < _CACHE_SECONDS else None

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
            self._seen[token_hash] = (now, caller)
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
            self._seen.clear()
            self._looked_for_tokens = -math.inf


def _require_token(authorization: str | None, subscription_key: str | None) -> str:
    token = _token(authorization, subscription_key)
    if token is None:
        raise _unauthorized("this service needs a token: 'Authorization: Bearer …'")
    return token


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

    def take(self, tenant: str, requests: int = 1) -> None:
        """Count requests, or refuse them.

        More requests than the limit pass only together, as a batch, and only if nothing was used before;
        the next requests are then refused until the average is back below the limit.

        Args:
            tenant: Who sent them.
            requests: How many.
        """
        now = clock.monotonic()
        needed = min(float(requests), self._most)
        with self._lock:
            earlier, credit = self._credits.get(tenant, (now, self._most))
            credit = min(self._most, credit + (now - earlier) * self._rate)
            if credit < needed:
                seconds = (needed - credit) / self._rate
                raise Refusal(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"more than {self._rate:g} requests a second; wait {seconds:.2f} s",
                    {"Retry-After": str(max(1, math.ceil(seconds)))},
                )
            self._credits[tenant] = (now, credit - requests)
