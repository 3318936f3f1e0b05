"""Rows of one array among those of another."""

from __future__ import annotations

from superarm.core import Floats


def find_rows(rows: Floats, table: Floats) -> list[int] | None:
    """The first place of each row in a table; ``None`` if one is missing.

    Rows are compared by their bytes, in which 0 and −0 differ.

    Args:
        rows: Rows to find, (k, d).
        table: The rows among which to look, (m, d).
    """
    table_bytes = table.tobytes()
    row_bytes = rows.tobytes()
    width = table.shape[1] * table.itemsize  # bytes of a row
    if not width:
        return None
    places = []
    for start in range(0, len(row_bytes), width):
        row = row_bytes[start : start + width]
        offset = table_bytes.find(row)
        while offset >= 0 and offset % width:  # a match across two rows
            offset = table_bytes.find(row, offset + 1)
        if offset < 0:
            return None
        places.append(offset // width)
    return places
