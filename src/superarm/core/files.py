"""Files from outside: regular files of limited size, locks, and safe file names."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from .errors import FileError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
MOST_TOML = 1 << 22
"""Largest size of a TOML file in bytes: 4 MiB, about 20,000 vehicles of a fleet."""
_LONGEST_NAME = 80  # characters; file systems allow 255 bytes, and suffixes are added
# Names that Windows gives to devices, whatever their suffix.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])\Z")
_CHECKSUM = re.compile(r"-[0-9a-f]{8}\Z")


def open_file(path: Path | str) -> BinaryIO:
    """Open a regular file for reading; refuses a pipe or a device, which may never end.

    Args:
        path: The file.

    Raises:
        FileError: The path is a folder, a pipe, a socket or a device.
        OSError: The file does not exist or must not be read.
    """
    path = Path(path)
    require_regular(path)  # before it is opened: opening a pipe waits for a writer
    file = path.open("rb")
    try:
        # Somebody may have replaced it in the meantime.
        _require_regular(path, os.fstat(file.fileno()))
    except FileError:
        file.close()
        raise
    return file


def require_regular(path: Path) -> None:
    """Raise :class:`FileError` for a folder, a pipe, a socket or a device.

    Args:
        path: The file, which must exist.
    """
    _require_regular(path, os.stat(path))


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
    advice = "write its contents to a file first"
    if kind == "a folder":
        advice = "name a file"
    raise FileError(f"{path} is {kind}, not a file; {advice}")


def read_bytes(path: Path | str, most: int) -> bytes:
    """Read a regular file of limited size.

    Args:
        path: The file.
        most: The most bytes that it may have.

    Raises:
        FileError: The path is no regular file, or the file is larger.
        OSError: The file does not exist or must not be read.
    """
    with open_file(path) as file:
        # Check twice: a file may grow while it is read, or be larger than it states.
        stated_size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if stated_size <= most else b""
    if max(stated_size, len(data)) > most:
        raise FileError(f"{path} is larger than the limit of {most:,} bytes; split it")
    return data


def read_text(path: Path | str, most: int) -> str:
    """Read a regular file of limited size as UTF-8.

    Args:
        path: The file.
        most: The most bytes that it may have.

    Raises:
        FileError: The path is no regular file, or the file is larger.
        OSError: The file does not exist or must not be read.
        UnicodeDecodeError: The file is not UTF-8.
    """
    return read_bytes(path, most).decode("utf-8")


def read_toml(path: Path | str, content: str = "TOML") -> dict[str, Any]:
    """Read a TOML file of limited size.

    Args:
        path: The file.
        content: What it should contain, for error messages.

    Raises:
        FileError: The file is not TOML, too large, or cannot be read.
    """
    tables: dict[str, Any] = _parse(path, tomllib.loads, MOST_TOML, content)
    return tables


def read_json(path: Path | str, most: int, content: str = "JSON") -> Any:
    """Read a JSON file of limited size.

    Args:
        path: The file.
        most: The most bytes that it may have.
        content: What it should contain, for error messages.

    Raises:
        FileError: The file is not JSON, too large, or cannot be read.
    """
    return _parse(path, json.loads, most, content)


def _parse(
    path: Path | str, parser: Callable[[str], Any], most: int, content: str
) -> Any:
    try:
        return parser(read_text(path, most))
    except FileError:
        raise
    except OSError as error:
        reason = error.strerror
    except (ValueError, RecursionError) as error:
        # Bad syntax, not UTF-8, absurd numbers or depth.
        reason = str(error)
    raise FileError(f"{path} cannot be read as {content}: {reason}")


# --- locks ---------------------------------------------------------------------------------


def open_locked(path: Path, *, wait: bool = True) -> BinaryIO:
    """Create or open a file and lock it for this process; closing it ends the lock.

    A process may remove the file while it holds the lock. Another one that waited for it then has locked
    a file without a path, on which nobody else waits: so it tries again.

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
        except FileNotFoundError:  # removed in the meantime
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: BinaryIO, wait: bool) -> None:
    try:
        if sys.platform == "win32":
            import msvcrt

            mode = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK
            msvcrt.locking(file.fileno(), mode, 1)
        else:
            import fcntl

            operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.flock(file, operation)
    except OSError as error:
        if wait:
            raise
        raise BlockingIOError(error.errno, "another process holds the lock") from None


# --- names ---------------------------------------------------------------------------------


def file_name(text: str) -> str:
    """Turn any text into a file name of small letters, digits, "_" and "-".

    A text that is already such a name stays unchanged. Any other gets a checksum, so that texts that
    become equal (on some file systems "GP" and "gp" do) have different names.

    Args:
        text: Any text, such as the name of a metric.

    >>> file_name("mean_regret"), file_name("../../Regret")
    ('mean_regret', '_regret-d1a15aa7')
    """
    name = re.sub(r"[^a-z0-9_-]+", "_", text.lower())[:_LONGEST_NAME]
    is_ambiguous = _CHECKSUM.search(name) or _DEVICE.match(name)
    if name and name == text and not is_ambiguous:
        return name
    checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return f"{name}-{checksum:08x}"


def distinct_file_names(texts: Iterable[str]) -> list[str]:
    """:func:`file_name` of each text; texts that would share a name get "-2", "-3", … appended.

    Args:
        texts: Any texts.

    >>> distinct_file_names(["regret", "regret", "growth"])
    ['regret', 'regret-2', 'growth']
    """
    names: list[str] = []
    used: set[str] = set()
    for text in texts:
        stem = file_name(text)
        name = stem
        count = 1
        while name in used:
            count += 1
            name = f"{stem}-{count}"
        used.add(name)
        names.append(name)
    return names
