"""Files from outside: regular files of a bounded size, locks, and names that stay in their folder."""

from __future__ import annotations

import os
import re
import stat
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from .errors import FileError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
MOST_TOML = 1 << 22
"""Bytes of a TOML file: 4 MiB, some 20,000 vehicles of a fleet."""
_LONGEST_NAME = 80  # characters; file systems allow 255 bytes, and suffixes are added
# Names that Windows gives to devices, whatever their suffix.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])\Z")
_CHECKSUM = re.compile(r"-[0-9a-f]{8}\Z")


def open_file(path: Path | str) -> BinaryIO:
    """Open a regular file for reading; a pipe or a device, which may never end, is refused.

    Raises:
        FileError: The path is a folder, a pipe, a socket or a device.
        OSError: The file does not exist or must not be read.
    """
    path = Path(path)
    require_regular(path)  # before it is opened: opening a pipe waits for a writer
    file = path.open("rb")
    try:
        _require_regular(
            path, os.fstat(file.fileno())
        )  # it may have been replaced meanwhile
    except FileError:
        file.close()
        raise
    return file


def require_regular(path: Path) -> None:
    """Raise :class:`FileError` if there is a folder, a pipe, a socket or a device at this path."""
    _require_regular(path, os.stat(path))


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
        advice = (
            "name a file"
            if kind == "a folder"
            else "write its contents to a file first"
        )
        raise FileError(f"{path} is {kind}, not a file; {advice}")


def read_bytes(path: Path | str, most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes.

    Raises:
        FileError: The path is no regular file, or the file is larger.
        OSError: The file does not exist or must not be read.
    """
    with open_file(path) as file:
        # The size is known at once; a file may grow, or be larger than it says, while it is read.
        stated = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if stated <= most else b""
    if max(stated, len(data)) > most:
        raise FileError(f"{path} is larger than the limit of {most:,} bytes; split it")
    return data


def read_text(path: Path | str, most: int) -> str:
    """Read a regular file of at most ``most`` bytes as UTF-8; also raises ``UnicodeDecodeError``."""
    return read_bytes(path, most).decode("utf-8")


# --- locks ---------------------------------------------------------------------------------


def open_locked(path: Path, *, wait: bool = True) -> BinaryIO:
    """Create or open a file and lock it for this process; closing it ends the lock.

    A holder may remove the file before its lock ends. Another process that waited for it then holds a
    file without a path, where nobody else would meet it: so it tries again.

    Args:
        path: The lock file.
        wait: Whether to wait for other processes.

    Raises:
        BlockingIOError: Another process holds the lock, and ``wait`` is false.
        OSError: The file cannot be created or opened.
    """
    while True:
        file = path.open("ab")
        try:
            _lock(file, wait)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:  # removed meanwhile
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: BinaryIO, wait: bool) -> None:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(
                file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1
            )
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if wait:
            raise
        raise BlockingIOError(error.errno, "another process holds the lock") from None


# --- names ---------------------------------------------------------------------------------


def file_name(text: str) -> str:
    """Turn any text into a file name of small letters, digits, "_" and "-".

    A text that is such a name already stays as it is. Any other ends in a checksum, so that texts
    that look alike once cleaned (on some file systems "GP" and "gp" do) have different names.

    >>> file_name("mean_regret"), file_name("../../Regret")
    ('mean_regret', '_regret-d1a15aa7')
    """
    name = re.sub(r"[^a-z0-9_-]+", "_", text.lower())[:_LONGEST_NAME]
    usable = (
        name == text and name and not _CHECKSUM.search(name) and not _DEVICE.match(name)
    )
    if usable:
        return name
    checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return f"{name}-{checksum:08x}"


def distinct_file_names(texts: Iterable[str]) -> list[str]:
    """:func:`file_name` of each text; texts that would share a name get "-2", "-3", … appended.

    >>> distinct_file_names(["regret", "regret", "growth"])
    ['regret', 'regret-2', 'growth']
    """
    found: list[str] = []
    taken: set[str] = set()
    for text in texts:
        first = name = file_name(text)
        count = 1
        while name in taken:
            count += 1
            name = f"{first}-{count}"
        taken.add(name)
        found.append(name)
    return found
