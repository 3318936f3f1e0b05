"""Headers of arrays in numpy's file format, read without Python's parser.

numpy parses them with ``ast.literal_eval``. In Python 3.11 and 3.12, parsers in several threads may disturb
each other: one of them then raises a ``SystemError`` ("AST constructor recursion depth mismatch"). A service
reads arrays in many threads, so headers are matched as text, in the one form that numpy writes.
"""

from __future__ import annotations

import math
import re
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import InputError

# By version: how many bytes state the length of the header.
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
_LONGEST = 10_000  # bytes of a header
_HEADER = re.compile(
    r"\{'descr': '(?P<dtype>[<>|=]?[biufcSU][1-9]\d{0,8})', "
    r"'fortran_order': (?P<is_fortran>True|False), "
    r"'shape': \((?P<shape>(?:\d{1,18}, ?)*(?:\d{1,18})?)\), \} *\n"
)


class ArrayHeader(NamedTuple):
    """What precedes the numbers of an array."""

    shape: tuple[int, ...]
    is_fortran: bool  # whether the first index varies fastest
    dtype: np.dtype[Any]


def read_array_header(file: IO[bytes]) -> ArrayHeader:
    """The header of an array; the file is then at its first number.

    Args:
        file: A file of one array, at its begin.
    """
    version = np.lib.format.read_magic(file)
    if version not in _LENGTH_BYTES:
        raise InputError(
            f"it has an array in version {version} of numpy's format; versions 1.0 and 2.0 are read"
        )
    length = int.from_bytes(file.read(_LENGTH_BYTES[version]), "little")
    text = file.read(min(length, _LONGEST)).decode("latin-1")
    match = _HEADER.fullmatch(text)
    if match is None or len(text) != length:
        raise InputError(
            f"it has an array with a header that is not valid: {text!r:.80}"
        )
    try:
        dtype = np.dtype(match["dtype"])
    except TypeError:
        raise InputError(f"it has an array of {match['dtype']!r}") from None
    sizes = [size for size in match["shape"].split(",") if size.strip()]
    shape = tuple(int(size) for size in sizes)
    return ArrayHeader(shape, match["is_fortran"] == "True", dtype)


def read_array(file: IO[bytes]) -> NDArray[Any]:
    """One array, as ``numpy.lib.format.read_array`` reads it.

    Args:
        file: A file of one array, at its begin.
    """
    header = read_array_header(file)
    flat = np.empty(math.prod(header.shape), dtype=header.dtype)
    content = flat.view(np.uint8)
    buffer: Any = file  # typeshed's IO lacks ``readinto``
    if buffer.readinto(content.data) != len(content):
        raise InputError("it has an array that is cut off")
    return flat.reshape(header.shape, order="F" if header.is_fortran else "C")
