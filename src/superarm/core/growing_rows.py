"""Rows that only ever grow, shared by all copies without being copied."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Rows = TypeVar("Rows", bound=NDArray[Any])


class GrowingRows(Generic[Rows]):
    """An array whose successors have more rows. It never changes itself.

    Its buffer has room to spare, which the first successor takes; a second one gets a buffer of its own.

    Args:
        rows: The rows to begin with.
    """

    def __init__(self, rows: Rows) -> None:
        self._buffer = rows
        self._count = len(rows)
        # Who wrote behind so many rows of the buffer; shared by all that share it.
        self._writers: dict[int, object] = {}

    def __len__(self) -> int:
        return self._count

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> Any:
        return GrowingRows, (self.rows.copy(),)

    @property
    def rows(self) -> Rows:
        """The rows, without a copy; do not write into them."""
        rows: Any = self._buffer[: self._count]
        return rows  # type: ignore[no-any-return]

    def extended(self, more: Rows) -> GrowingRows[Rows]:
        """These rows and more behind them."""
        total = self._count + len(more)
        successor: GrowingRows[Rows] = object.__new__(GrowingRows)
        successor._count = total
        token = object()
        # One step for the interpreter: of two threads, one is first.
        is_first = self._writers.setdefault(self._count, token) is token
        if is_first and total <= len(self._buffer):
            successor._buffer = self._buffer
            successor._writers = self._writers
        else:
            capacity = max(2 * self._count, total)
            shape = (capacity, *self._buffer.shape[1:])
            buffer: Any = np.empty(shape, dtype=self._buffer.dtype)
            buffer[: self._count] = self.rows
            successor._buffer = buffer
            successor._writers = {}
        successor._buffer[self._count : total] = more
        return successor
