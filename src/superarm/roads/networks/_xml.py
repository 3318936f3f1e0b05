"""XML files from outside, plain or packed, read as a stream; errors name the file and the line."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from superarm.core.compressed import open_packed
from superarm.core.errors import InputError, MissingDataError

Attributes = dict[str, str]
_CHUNK = 1 << 20
_LONGEST = (
    1 << 20
)  # bytes of one element with its attributes; the longest of large cities have 10,000
_DEEPEST = 32  # elements inside each other; road networks have 5. A parser keeps every one that is open
_MESSAGE = 400


class XmlFile:
    """One pass over an XML file: what stands in it is handed on, element by element.

    Document types are refused: a road network has none, and a file of a few lines can declare
    entities that expand to gigabytes.
    """

    def __init__(self, path: str | Path, root: str) -> None:
        self.path = Path(path)
        self._root = root
        self._parser = expat.ParserCreate()

    @property
    def line(self) -> int:
        """The line at which the element now being handled begins."""
        return self._parser.CurrentLineNumber

    def fault(self, message: str, line: int | None = None) -> InputError:
        """An error at a line of this file; without one, at the element now being handled."""
        if len(message) > _MESSAGE:  # it quotes what is in the file
            message = f"{message[: _MESSAGE // 2]} … {message[-_MESSAGE // 2 :]}"
        return InputError(f"{self.path}: line {line or self.line}: {message}")

    def read(
        self,
        start: Callable[[str, Attributes], object] | None = None,
        end: Callable[[str], object] | None = None,
        copy_to: BinaryIO | None = None,
    ) -> None:
        """Call ``start`` and ``end`` for every element; write the unpacked bytes to ``copy_to``."""
        depth, parser = 1, self._parser

        def first(tag: str, attributes: Attributes) -> None:
            if tag != self._root:
                raise self.fault(f"the file holds <{tag}>, not <{self._root}>")
            parser.StartElementHandler = begin
            parser.EndElementHandler = close

        def begin(tag: str, attributes: Attributes) -> None:
            nonlocal depth
            depth += 1
            if depth > _DEEPEST:
                raise self.fault(f"<{tag}> is nested more than {_DEEPEST} levels deep")
            if start is not None:
                try:
                    start(tag, attributes)
                except KeyError as error:
                    raise self.fault(
                        f"<{tag}> lacks the attribute {error.args[0]!r}"
                    ) from None

        def close(tag: str) -> None:
            nonlocal depth
            depth -= 1
            if end is not None:
                end(tag)

        require_file(self.path)
        parser.StartElementHandler = first
        parser.StartDoctypeDeclHandler = self._refuse
        try:
            with open_packed(self.path) as file:
                fed = 0
                while chunk := file.read(_CHUNK):
                    parser.Parse(chunk, False)
                    fed += len(chunk)
                    # An element that goes on is read again with every chunk: a long one takes ages.
                    if fed - max(parser.CurrentByteIndex, 0) > _LONGEST:
                        raise self.fault(
                            f"an element of more than {_LONGEST} bytes begins here; no road has one"
                        )
                    if copy_to is not None:
                        copy_to.write(chunk)
                parser.Parse(b"", True)
        except InputError:
            raise
        except expat.ExpatError as error:
            raise self.fault(
                f"not XML: {expat.ErrorString(error.code)}", error.lineno
            ) from None
        except (
            LookupError,
            ValueError,
        ) as error:  # an encoding that is declared but unknown
            raise self.fault(f"not XML: {error}") from None
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise unreadable(self.path, error) from None

    def _refuse(self, name: str, *_: object) -> None:
        raise self.fault(
            f"a document type ({name}) is declared; remove the DOCTYPE to read the file"
        )


def require_file(path: Path) -> None:
    """An error that names ``path`` unless it is a file."""
    if not path.exists():
        raise MissingDataError(f"{path} does not exist; check the path")
    if not path.is_file():
        raise InputError(f"{path} is not a file")


def unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: the file is damaged or cannot be read: {error}")


def bare_name(path: Path) -> str:
    """``lust3d`` for ``data/lust3d.net.xml.xz``."""
    return reduce(str.removesuffix, (".gz", ".xz", ".xml", ".net", ".osm"), path.name)
