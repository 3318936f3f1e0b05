"""Rewards that arrive at the same time reach their bandit together.

A thread for each request would cost several times what learning its reward costs: most of it to pass the
interpreter from thread to thread. So requests wait in the event loop, and a thread takes all that wait
for a bandit at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from anyio.to_thread import run_sync

from superarm.core.errors import SuperarmError
from superarm.live.answers import Tell

from .hub import Hub

_MOST_TOGETHER = 256
"""Tells in one batch, at most: a bandit's asks wait for a whole batch."""
_BATCHES_PER_BANDIT = 2
"""Batches of one bandit at a time: one learns while the other waits for the disk."""


class _WaitingTell(NamedTuple):
    """A tell, and the future that its request waits for."""

    tell: Tell
    is_new: asyncio.Future[bool]


class _Queue:
    """The tells of one bandit."""

    def __init__(self) -> None:
        self.waiting: list[_WaitingTell] = []
        self.batches = 0
        """Batches that are under way."""


class TellBatches:
    """Passes tells on to their bandits. All of it happens in the thread of the event loop.

    Args:
        hub: The bandits.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._queues: dict[tuple[str, str], _Queue] = {}  # by tenant and bandit
        self._tasks: set[asyncio.Task[None]] = (
            set()
        )  # the loop has weak references only

    async def tell(self, tenant: str, bandit: str, tell: Tell) -> bool:
        """Learn rewards; returns whether they are new, once they are durable.

        Args:
            tenant: Whose bandit it is.
            bandit: Its name.
            tell: The rewards.
        """
        key = (tenant, bandit)
        queue = self._queues.setdefault(key, _Queue())
        is_new: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        queue.waiting.append(_WaitingTell(tell, is_new))
        if queue.batches < _BATCHES_PER_BANDIT:
            queue.batches += 1
            task = asyncio.create_task(self._run(tenant, bandit, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await is_new

    async def _run(self, tenant: str, bandit: str, queue: _Queue) -> None:
        """Pass batches on until no tell waits."""
        while queue.waiting:
            batch = queue.waiting[:_MOST_TOGETHER]
            del queue.waiting[:_MOST_TOGETHER]
            tells = [item.tell for item in batch]
            outcomes: Sequence[bool | Exception]
            try:
                outcomes = await run_sync(self._tell_all, tenant, bandit, tells)
            except Exception as error:  # of the bandit, so each of its tells fails
                outcomes = [error] * len(batch)
            for item, outcome in zip(batch, outcomes, strict=True):
                _finish(item.is_new, outcome)
        queue.batches -= 1
        if queue.batches == 0:
            del self._queues[tenant, bandit]

    def _tell_all(
        self, tenant: str, bandit: str, tells: Sequence[Tell]
    ) -> list[bool | SuperarmError]:
        return self._hub.bandit(tenant, bandit).tell_many(tells)


def _finish(is_new: asyncio.Future[bool], outcome: bool | Exception) -> None:
    if is_new.done():  # its request was cancelled
        return
    if isinstance(outcome, Exception):
        is_new.set_exception(outcome)
    else:
        is_new.set_result(outcome)
