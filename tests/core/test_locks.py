"""Reads that cache their result; ``tests/posteriors`` covers copies, forks and other reads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

from superarm.core.locks import ReadWriteLock, exclusive


class Pair:
    """Two numbers that are equal except while they are written."""

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self.left = 0
        self.right = 0

    @contextmanager
    def half_written(self) -> Iterator[None]:
        with self._lock:
            self.left += 1
            yield
            self.right += 1

    @exclusive
    def is_equal(self) -> bool:
        return self.left == self.right


def test_exclusive_reads_wait_for_a_writer() -> None:
    pair = Pair()
    with ThreadPoolExecutor(1) as threads:
        with pair.half_written():
            reading = threads.submit(pair.is_equal)
            finished, _ = wait([reading], timeout=0.2)
            assert not finished
        assert reading.result(60)
