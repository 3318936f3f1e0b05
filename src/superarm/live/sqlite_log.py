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

_LITTLE_ENDIAN_MAGIC = 0x377F0682  # of a log with little-endian checksums
_BIG_ENDIAN_MAGIC = 0x377F0683
_MAGIC = (_LITTLE_ENDIAN_MAGIC, _BIG_ENDIAN_MAGIC)
_SMALLEST_PAGE = 512  # bytes
_LARGEST_PAGE = 65_536  # bytes, written as 1
_WORD = 0xFFFFFFFF
_LOG_HEADER = struct.Struct(">IIII8sII")
_FRAME_HEADER = struct.Struct(">II8sII")
_SUMMED_OF_LOG_HEADER = 24  # bytes that its checksum covers
_SUMMED_OF_FRAME_HEADER = 8  # bytes that its checksum covers; those of the page follow


class _LogHeader(NamedTuple):
    magic: int
    version: int
    page_bytes: int
    checkpoint: int
    salts: bytes
    first_sum: int
    second_sum: int

    @property
    def checksum(self) -> tuple[int, int]:
        return self.first_sum, self.second_sum


class _FrameHeader(NamedTuple):
    page: int
    pages_after_commit: int  # 0 where no commit ends
    salts: bytes
    first_sum: int
    second_sum: int

    @property
    def checksum(self) -> tuple[int, int]:
        return self.first_sum, self.second_sum


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
        if frame.is_commit and following.continues:
            lost_commits += 1
    if lost_commits:
        start = dropped[0].start
        raise StateError(
            f"{log} is damaged at byte {start} or before, and {lost_commits} or more commits follow; move "
            f"{database} and {log} elsewhere and restore a backup. Without one, compare two copies with "
            f"`superarm storage check` and `superarm replay --verify`: one without the -wal file, and one "
            f"after `truncate --size={start}` of it"
        )


def _page_bytes(database: Path) -> int:
    """Bytes of a page, by the header of the database."""
    with database.open("rb") as file:
        header = file.read(18)
    size = int.from_bytes(header[16:18], "big")
    return _LARGEST_PAGE if size == 1 else size


def _frames(content: bytes, page_bytes: int) -> Iterator[_Frame]:
    """All frames of a log; those of before it was started anew have other salts."""
    frame_bytes = _FRAME_HEADER.size + page_bytes
    last_start = len(content) - frame_bytes
    is_page_size = page_bytes >= _SMALLEST_PAGE and page_bytes.bit_count() == 1
    if not is_page_size or last_start < _LOG_HEADER.size:
        return  # SQLite refuses such a database itself
    log_header = _LogHeader(*_LOG_HEADER.unpack_from(content))
    order = ">" if log_header.magic == _BIG_ENDIAN_MAGIC else "<"
    before = _checksum(content[:_SUMMED_OF_LOG_HEADER], order, (0, 0))
    has_header = log_header.magic in _MAGIC and before == log_header.checksum
    is_valid = has_header
    salts = log_header.salts
    for start in range(_LOG_HEADER.size, last_start + 1, frame_bytes):
        header = _frame_header(content, start)
        summed_header = content[start : start + _SUMMED_OF_FRAME_HEADER]
        page = content[start + _FRAME_HEADER.size : start + frame_bytes]
        checksum = _checksum(summed_header, order, before)
        checksum = _checksum(page, order, checksum)
        has_salts = header.salts == salts
        continues = has_salts and checksum == header.checksum
        is_valid = is_valid and continues
        is_commit = has_salts and header.pages_after_commit > 0
        yield _Frame(start, is_commit, is_valid, continues)
        before = header.checksum
        if not has_header:
            salts = (
                header.salts
            )  # those of the log are lost: a frame has those of the one before


def _frame_header(content: bytes, start: int) -> _FrameHeader:
    return _FrameHeader(*_FRAME_HEADER.unpack_from(content, start))


def _checksum(data: bytes, order: str, before: tuple[int, int]) -> tuple[int, int]:
    first, second = before
    for even, odd in struct.iter_unpack(f"{order}II", data):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second
