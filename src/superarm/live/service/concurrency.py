"""How many requests of one tenant are worked on at a time.

Every request that works on a bandit needs a thread, and all tenants share the threads. A tenant whose
asks are slow must not hold all of them.
"""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from .problems import Refusal

MOST_WAITING = 1000
"""Requests of one tenant that wait for a thread; further ones are refused."""


class _Queue:
    """The requests of one tenant.

    Args:
        most: Requests that are worked on at a time.
    """

    def __init__(self, most: int) -> None:
        self.running = Semaphore(most)
        self.requests = 0
        """Those that run, and those that wait."""


class ConcurrencyLimit:
    """Limits how many requests of each tenant run at a time. The others wait without a thread.

    All of it happens in the thread of the event loop.

    Args:
        most: Requests of one tenant that run at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """Wait until a request may run; it runs until the block ends.

        Args:
            tenant: Who sent it.
        """
        queue = self._queues.setdefault(tenant, _Queue(self._most))
        if queue.requests >= self._most + MOST_WAITING:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{queue.requests} requests of this tenant are running or waiting; retry soon",
                {"Retry-After": "1"},
            )
        queue.requests += 1
        try:
            async with queue.running:
                yield
        finally:
            queue.requests -= 1
            if queue.requests == 0:
                del self._queues[tenant]
