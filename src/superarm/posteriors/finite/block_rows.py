"""Rows that grow by blocks, for an array too large to be copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints

# Size of a block: what may lie unused at its end.
_BLOCK_BYTES = 2**24


class RowBlock(NamedTuple):
    """Some rows that follow each other."""

    start: int  # number of the first row
    stop: int  # one past the number of the last row
    rows: Floats  # a view


class BlockRows:
    """Rows of one length, grown by blocks that are never copied."""

    def __init__(self, length: int) -> None:
        self.length = length
        most = _BLOCK_BYTES // (8 * length)  # rows of a block
        clipped = min(max(most, 32), 256)
        self.height = int(2 ** np.floor(np.log2(clipped)))
        self.blocks: list[Floats] = []

    def write(self, first: int, rows: Floats) -> None:
        """Write rows.

        Args:
            first: Number of the first row to write; all rows before it must have been written.
            rows: The rows, (k, length).
        """
        total = len(rows)
        written = 0
        while written < total:
            number, start = divmod(first + written, self.height)
            if number == len(self.blocks):
                new_block = np.empty((self.height, self.length))
                self.blocks.append(new_block)
            block = self.blocks[number]
            room = self.height - start
            count = min(total - written, room)
            part = rows[written : written + count]
            block[start : start + count] = part
            written += count

    def parts(self, size: int) -> Iterator[RowBlock]:
        """The first rows, block by block.

        Args:
            size: How many rows.
        """
        for number, span in enumerate(spans(size, self.height)):
            start = span.start
            stop = span.stop
            rows = self.blocks[number][: stop - start]
            yield RowBlock(start, stop, rows)

    def row(self, number: int) -> Floats:
        """One row, a view.

        Args:
            number: Its number.
        """
        block, inside = divmod(number, self.height)
        row: Floats = self.blocks[block][inside]
        return row

    def take(self, rows: Ints, columns: Ints) -> Floats:
        """Entries where these rows and columns cross, (len(rows), len(columns)).

        Args:
            rows: Numbers of rows.
            columns: Numbers of columns.
        """
        entries = np.empty((len(rows), len(columns)))
        numbers, inside = np.divmod(rows, self.height)
        for number in np.unique(numbers):
            block = self.blocks[number]
            places = np.flatnonzero(numbers == number)  # of rows in this block
            block_rows = inside[places, None]
            entries[places] = block[block_rows, columns]
        return entries


def spans(size: int, width: int) -> Iterator[slice]:
    """0 … ``size`` in slices of at most ``width``."""
    for start in range(0, size, width):
        yield slice(start, min(start + width, size))
