"""Compressed files from outside, which must not unpack to more than is safe.

A file of a few kilobytes can unpack to gigabytes. Text (``.gz``, ``.xz``) is unpacked as it is read
and refused once it outgrows its packed size; arrays (``.npz``) state their size beforehand.
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

from numpy.typing import NDArray

from .errors import FileError, InputError
from .files import open_file
from .npy_headers import read_array, read_array_header

# The most by which a text may grow when it is unpacked: road networks grow 5 to 15 times.
_GROWTH = 100
_SMALL = 1 << 24  # 16 MiB: up to this size a text may grow by any factor
# What numpy and zipfile raise for bytes that are cut off, changed or of another kind.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    OverflowError,
)


def open_packed(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked if its name ends in ``.gz`` or ``.xz``.

    Args:
        path: The file.
    """
    file = open_file(path)
    # It has those methods of a file that unpacking needs.
    packed: Any = _Packed(path, file)
    suffix = path.suffix.lower()
    if suffix == ".gz":
        unzipped = gzip.GzipFile(fileobj=packed, mode="rb")
        return io.BufferedReader(_Bounded(path, packed, unzipped))
    if suffix == ".xz":
        return io.BufferedReader(_Bounded(path, packed, lzma.LZMAFile(packed, "rb")))
    return file


class _Packed:
    """A packed file that stops reading when too many bytes unpack to nothing.

    A packed text may be followed by padding, which can be endless in a sparse file.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        self.empty_bytes = 0  # read since something was last unpacked

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.empty_bytes += len(data)
        if self.empty_bytes > _SMALL:
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
    """An unpacked text that stops when it is out of proportion to the file."""

    def __init__(
        self, path: Path, packed: _Packed, unpacked: gzip.GzipFile | lzma.LZMAFile
    ) -> None:
        self._path = path
        self._packed = packed
        self._unpacked = unpacked
        self._bytes_left = max(_SMALL, _GROWTH * packed.size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._unpacked.readinto(buffer)
        self._packed.empty_bytes = 0
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise FileError(
                f"{self._path}: it unpacks to more than {_GROWTH} times its size, as no road network "
                "or table does; if you trust it, unpack it yourself and give the plain file"
            )
        return count

    def close(self) -> None:
        self._unpacked.close()
        self._packed.close()  # which closing the unpacked text leaves open
        super().close()


@contextmanager
def _archive(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except _DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError("not a valid .npz file") from error


def read_npz(
    file: BinaryIO,
    *,
    most: int | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name; other files raise ``InputError``.

    Every size is checked before any array is unpacked.

    Args:
        file: The file, opened for reading.
        most: How many bytes the arrays may have once unpacked. By default nothing may be compressed,
            so that they have no more than the file itself.
        wanted: Whether to read the array of a name.
    """
    methods = [zipfile.ZIP_STORED]
    if most is not None:
        methods.append(zipfile.ZIP_DEFLATED)
    file_size = file.seek(0, os.SEEK_END)
    most_bytes = file_size if most is None else most
    arrays: dict[str, NDArray[Any]] = {}
    with _archive(file) as archive:
        members = _members_by_name(archive)
        if any(member.compress_type not in methods for member in members.values()):
            raise InputError(
                "its arrays are compressed in a way that superarm never writes"
            )
        if sum(member.compress_size for member in members.values()) > file_size:
            raise InputError("its arrays overlap")
        chosen = {name: member for name, member in members.items() if wanted(name)}
        total = sum(member.file_size for member in chosen.values())
        if total > most_bytes:
            raise InputError(
                f"its arrays would take {total} bytes, far more than such a file holds"
            )
        for name, member in chosen.items():
            if _stated_size(archive, member) != member.file_size:
                raise InputError(
                    f"the array {name!r} is not of the size that it states"
                )
        for name, member in chosen.items():
            with archive.open(member) as packed:
                arrays[name] = read_array(packed)
    return arrays


def npz_names(file: BinaryIO) -> list[str]:
    """The names of the arrays of an ``.npz`` file; nothing is unpacked.

    Args:
        file: The file, opened for reading.
    """
    with _archive(file) as archive:
        return [_array_name(member) for member in archive.infolist()]


def _members_by_name(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = _array_name(member)
        if name in members:
            raise InputError("it names an array twice")
        members[name] = member
    return members


def _array_name(member: zipfile.ZipInfo) -> str:
    if not member.filename.endswith(".npy"):
        raise InputError(f"it holds {member.filename!r:.80}, which is not an array")
    return member.filename.removesuffix(".npy")


def _stated_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The bytes of a member, header included, as its header states them."""
    with archive.open(member) as packed:
        header = read_array_header(packed)
        numbers_size: int = math.prod(header.shape) * header.dtype.itemsize
        return packed.tell() + numbers_size
