"""Tables as files, written row by row and complete or not at all: CSV and Parquet."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

from superarm.core.display import Displayable
from superarm.core.errors import require_extra
from superarm.core.inputs import require_choice
from superarm.core.states import atomic_file

Format = Literal["csv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
ROW_GROUP = 10_000
"""Rows that are in memory at a time."""


class Type(Enum):
    """What a column contains. Every column may have missing values."""

    TEXT = "string"
    INTEGER = "int64"
    NUMBER = "float64"


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: Type


def numbers(names: Iterable[str]) -> list[Column]:
    """Columns of numbers.

    Args:
        names: Their names.
    """
    return [Column(name, Type.NUMBER) for name in names]


class TableWriter(ABC):
    """Writes the rows of one table.

    Args:
        columns: The columns.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.rows = 0
        """Rows so far."""

    def write(self, row: Sequence[Any]) -> None:
        """Add a row.

        Args:
            row: One value for each column; ``None`` is a missing value.
        """
        if len(row) != len(self.columns):
            raise AssertionError(f"{len(row)} values for {len(self.columns)} columns")
        self._write(row)
        self.rows += 1

    @abstractmethod
    def _write(self, row: Sequence[Any]) -> None:
        """Add a row of the right length."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is in memory, and the end of the file. The file stays open."""


class CsvWriter(TableWriter):
    """Writes CSV in UTF-8; missing values are empty, and numbers are read back to the bit.

    Args:
        file: Where the bytes go.
        columns: The columns.
    """

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        self._writer = csv.writer(self._text)
        self._writer.writerow([column.name for column in columns])

    def _write(self, row: Sequence[Any]) -> None:
        self._writer.writerow(row)

    def finish(self) -> None:
        self._text.flush()
        self._text.detach()  # otherwise it would close the file


class ParquetWriter(TableWriter):
    """Writes Parquet in groups of rows, with pyarrow.

    Args:
        file: Where the bytes go.
        columns: The columns.
    """

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        self._arrow: Any = require_extra("pyarrow", "parquet")
        parquet: Any = require_extra("pyarrow.parquet", "parquet")
        fields = []
        for column in columns:
            field_type = self._arrow.type_for_alias(column.type.value)
            fields.append(self._arrow.field(column.name, field_type))
        self._schema = self._arrow.schema(fields)
        self._file = parquet.ParquetWriter(file, self._schema)
        self._group: list[Sequence[Any]] = []

    def _write(self, row: Sequence[Any]) -> None:
        self._group.append(row)
        if len(self._group) == ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        arrays = []
        for place, field in enumerate(self._schema):
            values = [row[place] for row in self._group]
            arrays.append(self._arrow.array(values, type=field.type))
        table = self._arrow.Table.from_arrays(arrays, schema=self._schema)
        self._file.write_table(table)
        self._group = []

    def finish(self) -> None:
        if self._group:
            self._write_group()
        self._file.close()


_WRITERS: dict[Format, Callable[[BinaryIO, Sequence[Column]], TableWriter]] = {
    "csv": CsvWriter,
    "parquet": ParquetWriter,
}


@contextmanager
def table_file(
    folder: Path, name: str, columns: Sequence[Column], file_format: Format
) -> Iterator[TableWriter]:
    """Open a table; its file appears when the block ends without an error.

    Args:
        folder: The folder of the file.
        name: The name of the file, without its ending.
        columns: The columns.
        file_format: The format, which is also the ending.
    """
    require_choice(file_format, "format", FORMATS)
    if file_format == "parquet":
        require_extra("pyarrow", "parquet")  # before there is a file
    with atomic_file(folder / f"{name}.{file_format}") as file:
        writer = _WRITERS[file_format](file, columns)
        yield writer
        writer.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Displayable):
    """What was written."""

    files: dict[str, str]
    """Paths by table."""
    rows: dict[str, int]
    """Rows by table."""


class TableSet:
    """The tables of one export, which are files of one folder and format.

    Args:
        folder: Where the files go.
        file_format: Their format.
        files: Closes them.
    """

    def __init__(self, folder: Path, file_format: Format, files: ExitStack) -> None:
        self._folder = folder
        self._format = file_format
        self._files = files
        self._tables: dict[str, TableWriter] = {}

    def open(self, name: str, columns: Sequence[Column]) -> TableWriter:
        """Open a table.

        Args:
            name: The name of the file, without its ending.
            columns: The columns.
        """
        file = table_file(self._folder, name, columns, self._format)
        table = self._files.enter_context(file)
        self._tables[name] = table
        return table

    def summary(self) -> Export:
        """What was written so far."""
        files = {}
        rows = {}
        for name, table in self._tables.items():
            files[name] = str(self._folder / f"{name}.{self._format}")
            rows[name] = table.rows
        return Export(files=files, rows=rows)


@contextmanager
def open_tables(folder: Path, file_format: Format) -> Iterator[TableSet]:
    """Open the tables of an export; their files appear when the block ends without an error.

    Args:
        folder: Where the files go.
        file_format: Their format.
    """
    with ExitStack() as files:
        yield TableSet(folder, file_format, files)
