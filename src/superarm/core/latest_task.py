"""Work in the background of which only the latest counts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock


class LatestTask:
    """Runs one task at a time in a thread; of those that wait for it, only the latest."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._latest: Future[None] | None = None

    def submit(self, task: Callable[[], None]) -> Future[None]:
        """Run a task after the current one, in place of the one that waits, which is cancelled.

        Args:
            task: Called in the thread; what it raises, the future's ``result()`` raises.
        """
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "superarm-latest")
            if self._latest is not None:
                self._latest.cancel()  # unless it has begun
            self._latest = self._executor.submit(task)
            return self._latest
