"""XML files from outside, plain or packed, read as a stream; errors name the file and the line."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from superarm.core.compressed import open_packed
from superarm.core.errors import InputError, MissingDataError

Attributes = dict[str, str]
_CHUNK = 1 << 20
# Bytes of one element with its attributes; the longest of large cities have 10,000.
_LONGEST = 1 << 20
# Elements inside each other; road networks have 5. A parser keeps every one that is open.
_DEEPEST = 32
# Characters of an error.
_MESSAGE = 400


class XmlFile:
    """One pass over an XML file, element by element.

    Document types are refused: a road network has none, and a file of a few lines can declare
    entities that expand to gigabytes.

    Args:
        path: The file, plain or packed.
        root: The tag of the outermost element.
    """

    def __init__(self, path: str | Path, root: str) -> None:
        self.path = Path(path)
        self._root = root
        self._parser = expat.ParserCreate()
        self._depth = 0
        self._on_start: Callable[[str, Attributes], object] | None = None
        self._on_end: Callable[[str], object] | None = None

    @property
    def line(self) -> int:
        """The line at which the element now being handled begins."""
        return self._parser.CurrentLineNumber

    def fault(self, message: str, line: int | None = None) -> InputError:
        """Return an error at a line of this file.

        Args:
            message: What is wrong.
            line: Its line; by default that of the element now being handled.
        """
        if len(message) > _MESSAGE:  # it quotes what is in the file
            half = _MESSAGE // 2
            message = f"{message[:half]} … {message[-half:]}"
        number = line or self.line
        return InputError(f"{self.path}: line {number}: {message}")

    def read(
        self,
        start: Callable[[str, Attributes], object] | None = None,
        end: Callable[[str], object] | None = None,
        copy_to: BinaryIO | None = None,
    ) -> None:
        """Read the file once.

        Args:
            start: Called with the tag and the attributes of every element inside the root.
            end: Called with the tag of every element that ends, the root's too.
            copy_to: Where to write the unpacked bytes.
        """
        require_file(self.path)
        self._on_start = start
        self._on_end = end
        self._parser.StartElementHandler = self._start_root
        self._parser.StartDoctypeDeclHandler = self._refuse
        try:
            with open_packed(self.path) as file:
                self._parse(file, copy_to)
        except InputError:
            raise
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise self.fault(f"not XML: {reason}", error.lineno) from None
        except (LookupError, ValueError) as error:
            # The file declares an unknown encoding.
            raise self.fault(f"not XML: {error}") from None
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise unreadable(self.path, error) from None

    def _parse(self, file: BinaryIO, copy_to: BinaryIO | None) -> None:
        parser = self._parser
        read_bytes = 0
        while chunk := file.read(_CHUNK):
            parser.Parse(chunk, False)
            read_bytes += len(chunk)
            element_begin = max(parser.CurrentByteIndex, 0)
            # An unfinished element is parsed again with every chunk: a long one takes ages.
            if read_bytes - element_begin > _LONGEST:
                raise self.fault(
                    f"an element of more than {_LONGEST} bytes begins here, which is too long for a road"
                )
            if copy_to is not None:
                copy_to.write(chunk)
        parser.Parse(b"", True)

    def _start_root(self, tag: str, attributes: Attributes) -> None:
        if tag != self._root:
            raise self.fault(f"the file contains <{tag}>, not <{self._root}>")
        self._depth = 1
        self._parser.StartElementHandler = self._start_element
        self._parser.EndElementHandler = self._end_element

    def _start_element(self, tag: str, attributes: Attributes) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.fault(f"<{tag}> is nested more than {_DEEPEST} levels deep")
        if self._on_start is not None:
            try:
                self._on_start(tag, attributes)
            except KeyError as error:
                raise self.fault(
                    f"<{tag}> lacks the attribute {error.args[0]!r}"
                ) from None

    def _end_element(self, tag: str) -> None:
        self._depth -= 1
        if self._on_end is not None:
            self._on_end(tag)

    def _refuse(self, name: str, *_: object) -> None:
        raise self.fault(
            f"a document type ({name}) is declared; remove the DOCTYPE to read the file"
        )


def require_file(path: Path) -> None:
    """Raise an error unless ``path`` is a file."""
    if not path.exists():
        raise MissingDataError(f"{path}: file not found")
    if not path.is_file():
        raise InputError(f"{path} is not a file")


def unreadable(path: Path, error: Exception) -> InputError:
    """Return an error about a file that is damaged.

    Args:
        path: The file.
        error: What reading it raised.
    """
    return InputError(f"{path}: the file is damaged or cannot be read: {error}")


def bare_name(path: Path) -> str:
    """Return ``lust3d`` for ``data/lust3d.net.xml.xz``."""
    name = path.name
    for suffix in (".gz", ".xz", ".xml", ".net", ".osm"):
        name = name.removesuffix(suffix)
    return name
