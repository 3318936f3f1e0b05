"""Files beside a network that are written whole and read only where their owner is trusted."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from superarm.core.errors import InputError

# A file may have so many times the network's size, or 64 MiB.
_GROWTH = 100
_SMALL = 1 << 26


def write_whole(cache: Path, data: bytes) -> None:
    """Write completely or not at all. A link is replaced; the file that it leads to is not touched.

    Args:
        cache: The file.
        data: What it will contain.
    """
    temporary = cache.with_name(f"{cache.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        os.replace(temporary, cache)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def open_trusted(cache: Path, path: Path) -> BinaryIO:
    """Open a regular file of the user or of the network's owner, of a size that a cache can have.

    Args:
        cache: The file.
        path: The network's file.
    """
    # Not every system has these flags: follow no link, wait for no pipe, change no byte.
    flags = os.O_RDONLY
    flags |= getattr(os, "O_NOFOLLOW", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_BINARY", 0)
    handle = os.open(cache, flags)
    file = os.fdopen(handle, "rb")
    try:
        facts = os.fstat(handle)
        source = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise InputError("it is not a regular file")
        if hasattr(os, "geteuid"):  # Windows has no owners
            trusted_owners = (os.geteuid(), source.st_uid)
            if facts.st_uid not in trusted_owners:
                raise InputError("it belongs to another user")
        most_bytes = max(_SMALL, _GROWTH * source.st_size)
        if facts.st_size > most_bytes:
            raise InputError("it is too large")
    except BaseException:
        file.close()
        raise
    return file
