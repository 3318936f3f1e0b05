"""Reading tables of numbers and CSV files, with errors that name file and line."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.compressed import open_packed
from superarm.core.errors import FileError
from superarm.core.inputs import read_only


class Row(NamedTuple):
    """Some words of a line of a file."""

    line: int  # the line's number, from 1
    words: list[str]


@contextmanager
def open_text(path: Path) -> Iterator[TextIOWrapper]:
    """Open a text file, plain or ``.xz``; failures to unpack or decode are file errors.

    Args:
        path: The file.
    """
    with open_packed(path) as raw, TextIOWrapper(raw, encoding="utf-8-sig") as lines:
        try:
            yield lines
        except (lzma.LZMAError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise FileError(
                f"{path}: cannot be read ({error}); download it again"
            ) from error


def parse_number(path: Path, line: int, text: str) -> float:
    """Parse a number of a file.

    Args:
        path: The file, for error messages.
        line: The line's number, for error messages.
        text: The number's text.
    """
    try:
        return float(text)
    except ValueError as error:
        raise FileError(f"{path}, line {line}: {error}") from None


def split_lines(lines: Iterable[str]) -> Iterator[Row]:
    """Split lines at white space.

    Args:
        lines: The lines of a file.
    """
    for number, line in enumerate(lines, start=1):
        yield Row(number, line.split())


def csv_rows(path: Path, *columns: str) -> Iterator[Row]:
    """Read some columns of a CSV file, all lines after the header.

    Args:
        path: The file.
        *columns: Names of the columns, as the header has them.
    """
    with open_text(path) as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        missing = set(columns) - set(header)
        if missing:
            raise FileError(
                f"{path}, line 1: the header has no {', '.join(sorted(missing))}"
            )
        positions = [header.index(column) for column in columns]
        for entries in reader:
            if len(entries) < len(header):
                raise FileError(
                    f"{path}, line {reader.line_num}: {len(entries)} of {len(header)} entries"
                )
            words = [entries[position] for position in positions]
            yield Row(reader.line_num, words)


def number_table(path: Path, rows: Iterable[Row], columns: int, count: int) -> Floats:
    """Parse a table of finite numbers, (count, columns).

    Args:
        path: The file, for error messages.
        rows: The rows of the table.
        columns: The number of columns that each must have.
        count: The number of rows that there must be.
    """
    table: list[list[float]] = []
    for line, words in rows:
        numbers = [parse_number(path, line, word) for word in words]
        if len(numbers) != columns:
            raise FileError(
                f"{path}, line {line}: {len(numbers)} numbers, but {columns} are expected"
            )
        if not all(isfinite(number) for number in numbers):
            raise FileError(f"{path}, line {line}: every number must be finite")
        table.append(numbers)
    if len(table) != count:
        raise FileError(
            f"{path}: {len(table)} rows, but {count} are expected; download it again"
        )
    if all(numbers == table[0] for numbers in table):
        raise FileError(
            f"{path}: all rows are equal, so that no reading varies; download it again"
        )
    return read_only(np.array(table))
