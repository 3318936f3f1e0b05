"""Counts open streams of events, of each tenant and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from .problems import Refusal

_RETRY = {"Retry-After": "5"}  # seconds


class StreamSlots:
    """Limits how many streams are open. All of it happens in the thread of the event loop.

    Args:
        most: Streams of all tenants.
        most_per_tenant: Streams of one tenant.
    """

    def __init__(self, most: int, most_per_tenant: int) -> None:
        self._most = most
        self._most_per_tenant = most_per_tenant
        self._open: Counter[str] = Counter()  # by tenant

    @contextmanager
    def slot(self, tenant: str) -> Iterator[None]:
        """Count a stream as open until the block ends, or refuse it.

        Args:
            tenant: Who reads it.
        """
        if self._open[tenant] >= self._most_per_tenant:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{self._most_per_tenant} streams of this tenant are open, which is the limit; close one first",
                _RETRY,
            )
        if self._open.total() >= self._most:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the limit of open streams, {self._most}, is reached; retry soon",
                _RETRY,
            )
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if self._open[tenant] == 0:
                del self._open[tenant]
