"""Packed files from outside, which must not unpack to more than is safe.

A file of a few kilobytes can unpack to gigabytes. Text (``.gz``, ``.xz``) is unpacked as it is read
and refused once it outgrows its packed size; arrays (``.npz``) say beforehand how large they are.
"""

from __future__ import annotations

import gzip
import io
import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .errors import FileError, InputError
from .files import open_file

_GROWTH = 100  # how many times its packed size a text may have: road networks have 5 to 15 times
_SMALL = 1 << 24  # 16 MiB: below this a text may have grown by any factor
# What numpy and zipfile raise for bytes that are cut off, changed or of another kind.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, EOFError),
    *(OSError, ValueError, KeyError, TypeError, RuntimeError),
)


def open_packed(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked where its name ends in ``.gz`` or ``.xz``."""
    file = open_file(path)
    suffix = path.suffix.lower()
    packed: Any = _Packed(path, file)  # of a file, what those that unpack use
    if suffix == ".gz":
        return io.BufferedReader(
            _Bounded(path, packed, gzip.GzipFile(fileobj=packed, mode="rb"))
        )
    if suffix == ".xz":
        return io.BufferedReader(_Bounded(path, packed, lzma.LZMAFile(packed, "rb")))
    return file


class _Packed:
    """A packed file as it is read, as long as something comes out of it.

    What follows a packed text may be padding, which can be endless where a file is sparse.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        self.fruitless = 0  # bytes since something was unpacked

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.fruitless += len(data)
        if self.fruitless > _SMALL:
            raise FileError(
                f"{self._path}: more than {_SMALL:,} bytes without content; it is damaged, or padded"
            )
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()


class _Bounded(io.RawIOBase):
    """What is unpacked, as long as it stays in proportion to the file."""

    def __init__(
        self, path: Path, packed: _Packed, unpacked: gzip.GzipFile | lzma.LZMAFile
    ) -> None:
        self._path = path
        self._packed = packed
        self._unpacked = unpacked
        self._left = max(_SMALL, _GROWTH * packed.size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._unpacked.readinto(buffer)
        self._packed.fruitless = 0
        self._left -= count
        if self._left < 0:
            raise FileError(
                f"{self._path}: it unpacks to more than {_GROWTH} times its size, as no road network "
                "or table does; if you trust it, unpack it yourself and give the plain file"
            )
        return count

    def close(self) -> None:
        self._unpacked.close()
        self._packed.close()  # which those that unpack leave open
        super().close()


@contextmanager
def _archive(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except _DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"it is cut off, changed or no .npz file ({type(error).__name__})"
        ) from error


def read_npz(
    file: BinaryIO,
    *,
    most: int | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file whose names are ``wanted``; other files raise ``InputError``.

    ``most``: how many bytes they may have once unpacked. Without it nothing may be packed, so that
    they have no more than the file itself. Every size is known and checked before any is unpacked.
    """
    methods = (
        (zipfile.ZIP_STORED,)
        if most is None
        else (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    )
    end = file.seek(0, os.SEEK_END)
    with _archive(file) as archive:
        members = archive.infolist()
        names = [_array_name(member) for member in members]
        if len(set(names)) != len(names):
            raise InputError("it names an array twice")
        if any(member.compress_type not in methods for member in members):
            raise InputError(
                "its arrays are compressed in a way that superarm never writes"
            )
        if sum(member.compress_size for member in members) > end:
            raise InputError("its arrays overlap")
        chosen = [pair for pair in zip(names, members, strict=True) if wanted(pair[0])]
        total = sum(member.file_size for _, member in chosen)
        if total > (end if most is None else most):
            raise InputError(
                f"its arrays would take {total} bytes, far more than such a file holds"
            )
        for name, member in chosen:
            if _stated_size(archive, member) != member.file_size:
                raise InputError(
                    f"the array {name!r} is not of the size that it states"
                )
        arrays = {}
        for name, member in chosen:
            with archive.open(member) as packed:
                arrays[name] = np.lib.format.read_array(packed, allow_pickle=False)
    return arrays


def npz_names(file: BinaryIO) -> list[str]:
    """The names of the arrays of an ``.npz`` file; nothing is unpacked."""
    with _archive(file) as archive:
        return [_array_name(member) for member in archive.infolist()]


def _array_name(member: zipfile.ZipInfo) -> str:
    if not member.filename.endswith(".npy"):
        raise InputError(f"it holds {member.filename!r:.80}, which is not an array")
    return member.filename.removesuffix(".npy")


def _stated_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes of a whole member, by what stands before its numbers."""
    with archive.open(member) as packed:
        form, version = np.lib.format, np.lib.format.read_magic(packed)
        readers = {
            (1, 0): form.read_array_header_1_0,
            (2, 0): form.read_array_header_2_0,
        }
        if version not in readers:
            told = f"it has an array in version {version} of numpy's format"
            raise InputError(f"{told}; versions 1.0 and 2.0 are read")
        shape, _, dtype = readers[version](packed)
        if dtype.hasobject or dtype.itemsize == 0 or min(shape, default=0) < 0:
            raise InputError(
                f"it has an array of {dtype} and shape {shape}, which is impossible"
            )
        return packed.tell() + math.prod(shape) * dtype.itemsize
