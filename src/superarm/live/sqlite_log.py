"""Damage in the write-ahead log of SQLite that SQLite does not report.

After a crash SQLite reads its log up to the first frame whose checksum is wrong, because a crash may tear
the frames of the last commit. But each checksum continues that of the frame before. If a frame continues
a commit, then this commit had succeeded: it was on disk, with all frames before it. One of these that is
wrong was damaged afterwards, and SQLite would drop events that were acknowledged.

The format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from superarm.core.errors import StateError

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_BIG_ENDIAN_MAGIC = 0x377F0683  # of a log with big-endian checksums
_LARGEST_PAGE = 65_536  # bytes, written as 1
_WORD = 0xFFFFFFFF


class _Frame(NamedTuple):
    start: int  # the byte of the file
    is_commit: bool
    is_valid: bool  # as SQLite sees it: its checksum, and those of all frames before
    continues: bool  # the frame before it, as that is now


def check_log(database: Path) -> None:
    """Refuse a database whose log has commits behind a damaged place.

    Args:
        database: The file of the database, which nobody has open.
    """
    log = database.with_name(f"{database.name}-wal")
    try:
        content = log.read_bytes()
        page_bytes = _page_bytes(database)
    except OSError:  # after a clean end there is no log; SQLite states any other reason
        return
    dropped = [frame for frame in _frames(content, page_bytes) if not frame.is_valid]
    lost_commits = 0
    for frame, following in pairwise(dropped):
        lost_commits += frame.is_commit and following.continues
    if lost_commits:
        start = dropped[0].start
        raise StateError(
            f"{log} is damaged at byte {start} or before, and {lost_commits} or more commits follow; restore "
            f"a backup, or continue without them after `truncate --size={start} {log}`"
        )


def _page_bytes(database: Path) -> int:
    """Bytes of a page, by the header of the database."""
    with database.open("rb") as file:
        header = file.read(18)
    size = int.from_bytes(header[16:18], "big")
    return _LARGEST_PAGE if size == 1 else size


def _frames(content: bytes, page_bytes: int) -> Iterator[_Frame]:
    """All frames of a log; those of before it was started anew have other salts."""
    frame_bytes = _FRAME_HEADER_BYTES + page_bytes
    last_start = len(content) - frame_bytes
    if page_bytes == 0 or last_start < _HEADER_BYTES:
        return
    header = struct.unpack_from(">IIIIIIII", content)
    order = ">" if header[0] == _BIG_ENDIAN_MAGIC else "<"
    before = _checksum(content[:24], order, (0, 0))
    is_valid = before == header[6:]
    salts = content[16:24] if is_valid else content[40:48]  # else of the first frame
    for start in range(_HEADER_BYTES, last_start + 1, frame_bytes):
        has_salts = content[start + 8 : start + 16] == salts
        checksum = _checksum(content[start : start + 8], order, before)
        page = content[start + _FRAME_HEADER_BYTES : start + frame_bytes]
        checksum = _checksum(page, order, checksum)
        before = struct.unpack_from(">II", content, start + 16)
        continues = has_salts and checksum == before
        is_valid = is_valid and continues
        _, pages_after_commit = struct.unpack_from(">II", content, start)
        is_commit = has_salts and pages_after_commit > 0
        yield _Frame(start, is_commit, is_valid, continues)


def _checksum(data: bytes, order: str, before: tuple[int, int]) -> tuple[int, int]:
    first, second = before
    for even, odd in struct.iter_unpack(f"{order}II", data):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second
