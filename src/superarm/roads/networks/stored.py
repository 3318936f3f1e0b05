"""Arrays that are computed once for a network, and stored beside its file.

The rules are those of :mod:`superarm.roads.networks.cache`: a file is written completely or not at all,
belongs to the user or to the owner of the network, and is ignored where it is damaged or belongs to other
roads. Arrays are opened memory-mapped: what is not used is not read.

A file is one array of 32-bit integers in numpy's format::

    version, digest of the roads (8), checksum, number of arrays, their lengths, their values
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from superarm.core.errors import InputError
from superarm.core.npy_headers import read_array_header

from .trusted_files import open_trusted, write_whole

if TYPE_CHECKING:
    from .line_graph import LineGraph

Numbers = NDArray[np.int32]

LEAST_STORED = 10_000
"""Roads of fewer edges store nothing: all is computed in no time."""
# Raise it when arrays mean something else.
_VERSION = 2
_DIGEST_WORDS = 8
_MOST_ARRAYS = 16
# Files of one kind beside a network, for its vehicle classes and kinds of U-turns.
_MOST_FILES = 4


def read_stored(graph: LineGraph, kind: str) -> list[Numbers] | None:
    """The arrays that are stored for a line graph, memory-mapped; ``None`` where there are none.

    Args:
        graph: The roads.
        kind: What the arrays are, as part of the file's name.
    """
    source = _source_of(graph)
    if source is None:
        return None
    digest = _digest_of(graph)
    try:
        with open_trusted(_path(source, kind, digest), source) as file:
            values = _map(file)
        return _parts(values, digest)
    except (InputError, OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def store(graph: LineGraph, kind: str, arrays: Sequence[Numbers]) -> None:
    """Store arrays for a line graph, if its network was read from a file and is cached.

    Args:
        graph: The roads.
        kind: What the arrays are, as part of the file's name.
        arrays: 32-bit integers.
    """
    source = _source_of(graph)
    if source is None or not os.access(source.parent, os.W_OK):
        return
    digest = _digest_of(graph)
    lengths = [len(array) for array in arrays]
    values = np.concatenate([np.ravel(array) for array in arrays]).astype(np.int32)
    head = [_VERSION, *_words(digest), _checksum(values), len(lengths), *lengths]
    content = np.concatenate([np.array(head, dtype=np.int32), values])
    buffer = io.BytesIO()
    np.save(buffer, content, allow_pickle=False)
    # A full disk: then nothing is stored.
    with suppress(OSError):
        path = _path(source, kind, digest)
        write_whole(path, buffer.getvalue())
        _drop_oldest(source, kind, path)


def _source_of(graph: LineGraph) -> Path | None:
    """The network's file, where arrays of these roads may be stored beside it."""
    return graph.network.source if len(graph) >= LEAST_STORED else None


def _path(source: Path, kind: str, digest: bytes) -> Path:
    return source.with_name(f"{_prefix(source, kind)}{digest.hex()[:12]}.superarm.npy")


def _prefix(source: Path, kind: str) -> str:
    return f".{source.name}.{kind}-"


def _drop_oldest(source: Path, kind: str, written: Path) -> None:
    """Remove all but the newest files of a kind: a network that changes leaves its old ones."""
    prefix = _prefix(source, kind)
    files = [
        path
        for path in source.parent.iterdir()
        if path.name.startswith(prefix)
        and path.name.endswith(".superarm.npy")
        and path != written
    ]
    files.sort(key=lambda path: path.lstat().st_mtime, reverse=True)
    for path in files[_MOST_FILES - 1 :]:
        path.unlink()


def _digest_of(graph: LineGraph) -> bytes:
    """Of all that an elimination order depends on."""
    digest = sha256(str((_VERSION, len(graph))).encode())
    digest.update(np.ascontiguousarray(graph.length, dtype="<f8").data)
    digest.update(np.ascontiguousarray(graph.turns, dtype="<i8").data)
    return digest.digest()


def _words(digest: bytes) -> list[int]:
    words: list[int] = np.frombuffer(digest, dtype="<i4").tolist()
    return words


def _checksum(values: Numbers) -> int:
    """A number of 32 bits, with its sign."""
    unsigned = zlib.crc32(np.ascontiguousarray(values).data)
    return unsigned - (1 << 31)


def _map(file: Any) -> Numbers:
    """The one array of a file, memory-mapped."""
    header = read_array_header(file)
    if header.dtype != np.dtype(np.int32) or len(header.shape) != 1:
        raise InputError("not a file of this kind")
    begin = file.tell()
    return np.memmap(file, dtype=np.int32, mode="r", offset=begin, shape=header.shape)


def _parts(values: Numbers, digest: bytes) -> list[Numbers]:
    """The arrays of a file, whose digest and checksum must be right."""
    counted = 2 + _DIGEST_WORDS  # where the number of arrays stands
    expected = [_VERSION, *_words(digest)]
    if len(values) <= counted or values[: counted - 1].tolist() != expected:
        raise InputError("of other roads")
    count = int(values[counted])
    if not 0 < count <= _MOST_ARRAYS:
        raise InputError("damaged")
    first = counted + 1 + count
    lengths = values[counted + 1 : first].astype(np.int64)
    content = np.asarray(values[first:])
    is_whole = (lengths >= 0).all() and int(lengths.sum()) == len(content)
    if not is_whole or _checksum(content) != int(values[counted - 1]):
        raise InputError("damaged")
    return np.split(content, np.cumsum(lengths)[:-1])
