"""Limits the requests of each tenant to a rate."""

from __future__ import annotations

import math
import time as clock
from http import HTTPStatus
from threading import Lock
from typing import NamedTuple

from .problems import Refusal


class _Credit(NamedTuple):
    """Requests that a tenant may send at a time; negative: it must wait."""

    time: float  # by the monotonic clock
    requests: float


class RateLimit:
    """Requests of each tenant: ``rate`` a second on average, and as many at once.

    Args:
        rate: Requests a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(rate, 1.0)
        self._lock = Lock()
        self._credits: dict[str, _Credit] = {}  # by tenant

    def take(self, tenant: str, requests: int = 1) -> None:
        """Count requests, or refuse them.

        More requests than the limit pass only together, as a batch, and only if nothing was used before;
        the tenant then waits until they are paid off.

        Args:
            tenant: Who sent them.
            requests: How many.
        """
        now = clock.monotonic()
        needed = min(float(requests), self._most)
        with self._lock:
            earlier = self._credits.get(tenant, _Credit(now, self._most))
            regained = (now - earlier.time) * self._rate
            credit = min(self._most, earlier.requests + regained)
            if credit < needed:
                seconds = (needed - credit) / self._rate
                raise Refusal(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"more than {self._rate:g} requests a second; wait {seconds:.2f} s",
                    {"Retry-After": str(max(1, math.ceil(seconds)))},
                )
            self._credits[tenant] = _Credit(now, credit - requests)
