"""Contexts from tables: data frames, lists of dicts or dicts of columns, as feature rows.

Names and categories must mean the same in every round. So they are fixed once, from an example, and
checked in every later table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .arrays import Bools, Floats
from .display import Displayable
from .errors import InputError, ShapeError
from .inputs import as_vector, require_choice, require_type
from .records import Arms
from .registry import register

Coding = Literal["one-hot", "index"]
_NOT_VALUES = (type(None), complex, np.complexfloating)
_MOST_NAMED = 9  # columns or categories that an error lists


@register("encoding", "columns")
@dataclass(frozen=True, kw_only=True, repr=False)
class Encoding(Displayable):
    """How the columns of a table become features.

    A number is a feature as it is. A category is one feature per known value, 1 or 0 ("one-hot"), or
    its place among the known values ("index"), for kernels that read group numbers, such as
    ``Empirical``.

    Args:
        columns: Names of the columns to read; others are ignored.
        categories: The known values of each column that does not contain numbers.
        coding: One feature per known value ("one-hot"), or the value's place among them ("index").

    >>> encoding = Encoding.of([{"size": 2.0, "colour": "red"}, {"size": 3.5, "colour": "blue"}])
    >>> encoding.names
    ('size', 'colour=blue', 'colour=red')
    >>> encoding.features([{"colour": "red", "size": 1.0}])
    array([[1., 0., 1.]])
    """

    columns: tuple[str, ...]
    categories: Mapping[str, tuple[Any, ...]]
    coding: Coding = "one-hot"

    def __post_init__(self) -> None:
        require_choice(self.coding, "coding", ("one-hot", "index"))
        columns = _values(self.columns, "columns")
        if not columns or len(set(columns)) < len(columns):
            raise InputError(f"columns is {columns}; name at least one, and each once")
        require_type(self.categories, Mapping, "categories")
        if unknown := sorted(set(self.categories) - set(columns), key=str):
            raise InputError(
                f"categories names {unknown[0]!r}, which is not among the columns"
            )
        categories: dict[str, tuple[Any, ...]] = {}
        for name, entries in self.categories.items():
            values = _values(entries, f"categories[{name!r}]")
            if not values or len(set(values)) < len(values):
                raise InputError(
                    f"the categories of {name!r} are {values}; give at least one, and each once"
                )
            categories[name] = values
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "categories", categories)

    @classmethod
    def of(
        cls,
        example: Any,
        columns: Iterable[str] | None = None,
        categorical: Iterable[str] = (),
        coding: Coding = "one-hot",
    ) -> Encoding:
        """The encoding of a table's columns; those without numbers become categories.

        Args:
            example: A table with every value that will ever come. If you have none, give
                ``categories`` to the constructor.
            columns: Names of the columns to read; all by default.
            categorical: Columns of numbers, such as ids, that are categories all the same.
            coding: One feature per known value ("one-hot"), or the value's place ("index").
        """
        table = _columns(example)
        names = tuple(table) if columns is None else _values(columns, "columns")
        categories: dict[str, Any] = dict.fromkeys(
            _values(categorical, "categorical"), ()
        )
        for name in names:
            values = _column(table, name)
            if name in categories or not all(map(_is_number, values)):
                categories[name] = _sorted_categories(values, name)
        return cls(columns=names, categories=categories, coding=coding)

    def as_scalars(self) -> dict[str, Any]:
        """The encoding as plain values for a state; :meth:`from_scalars` reads them."""
        return {
            "columns": self.columns,
            "categories": dict(self.categories),
            "coding": self.coding,
        }

    @classmethod
    def from_scalars(cls, scalars: Any) -> Encoding:
        """The encoding in a state.

        Args:
            scalars: What :meth:`as_scalars` returned.
        """
        require_type(scalars, Mapping, "encoding")
        if scalars.keys() != {"columns", "categories", "coding"}:
            keys = list(scalars)[:_MOST_NAMED]
            raise InputError(
                f"an encoding has columns, categories and coding, not {keys}"
            )
        return cls(**scalars)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each feature, (d,)."""
        features: list[str] = []
        for name in self.columns:
            if name in self.categories and self.coding == "one-hot":
                features += [f"{name}={value}" for value in self.categories[name]]
            else:
                features.append(name)
        return tuple(features)

    def features(self, table: Any) -> Floats:
        """The rows of a table as features, (n, d).

        Args:
            table: A data frame, a list of dicts, or a dict of columns.
        """
        columns = _columns(table)
        blocks: list[Floats] = []
        for name in self.columns:
            values = _column(columns, name)
            if name in self.categories:
                blocks.append(self._coded_categories(name, values))
            else:
                blocks.append(_number_column(name, values))
        lengths = [len(block) for block in blocks]
        if len(set(lengths)) > 1:
            raise ShapeError(f"the columns have {lengths} rows; give as many for each")
        return np.hstack(blocks)

    def _coded_categories(self, name: str, values: tuple[Any, ...]) -> Floats:
        """A column of categories as features: (n, values), or (n, 1) for coding "index"."""
        categories = self.categories[name]
        place_of = {value: place for place, value in enumerate(categories)}
        for row, value in enumerate(values):
            if value not in place_of:
                raise InputError(
                    f"row {row}: {name} is {value!r}, which is not among "
                    f"{list(categories)[:_MOST_NAMED]}; make the encoding from an example that has "
                    "every value"
                )
        places = np.array([place_of[value] for value in values], dtype=np.intp)
        if self.coding == "index":
            return places[:, None].astype(float)
        one_hot: Bools = places[:, None] == np.arange(len(categories))
        return one_hot.astype(float)

    def arms(self, table: Any, ids: str | None = None) -> Arms:
        """The rows of a table as arms.

        Args:
            table: A data frame, a list of dicts, or a dict of columns.
            ids: The column of ids; by default arms are numbered.
        """
        features = self.features(table)
        if ids is None:
            return Arms.numbered(features)
        return Arms(ids=_column(_columns(table), ids), features=features)


def _sorted_categories(values: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Distinct values: sorted within each type, one type after the other."""
    try:
        ordered = sorted(set(values), key=lambda value: (type(value).__name__, value))
    except TypeError:
        raise InputError(
            f"the values of {name!r} have no order; give categories"
        ) from None
    return tuple(ordered)


def _number_column(name: str, values: tuple[Any, ...]) -> Floats:
    for value in values:
        if not _is_number(value):
            raise InputError(f"column {name!r} must hold numbers, got {value!r:.60}")
    return as_vector(values, f"column {name!r}")[:, None]


def _columns(table: Any) -> Mapping[str, Any]:
    """Columns by name: of a pandas or polars frame, a mapping of columns, or rows that are mappings."""
    names = table if isinstance(table, Mapping) else getattr(table, "columns", None)
    if isinstance(names, Iterable) and hasattr(table, "__getitem__"):
        return _named_columns(table, names)
    rows = _mappings(table) if names is None else []
    if not rows:
        raise InputError(
            f"this is a {type(table).__name__}; give a data frame, a list of dicts (with at least one "
            "row), or a dict of columns"
        )
    first = rows[0]
    for number, row in enumerate(rows):
        if row.keys() != first.keys():
            differing = sorted(map(str, row.keys() ^ first.keys()))
            raise InputError(
                f"row {number} and row 0 differ in {', '.join(differing)}; give both the same"
            )
    return {str(name): [row[name] for row in rows] for name in first}


def _named_columns(table: Any, names: Iterable[Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in names:
        try:
            columns[str(name)] = table[name]
        except (LookupError, TypeError) as error:
            # An object with ``columns`` that is no data frame.
            raise InputError(
                f"this {type(table).__name__} names a column {name!r} but has none: {error}"
            ) from None
    return columns


def _mappings(table: Any) -> list[Mapping[Any, Any]]:
    """The rows of a table if all are mappings, else none; nothing is read after another row."""
    if not isinstance(table, Iterable):
        return []
    rows: list[Mapping[Any, Any]] = []
    for row in table:
        if not isinstance(row, Mapping):
            return []
        rows.append(row)
    return rows


def _column(columns: Mapping[str, Any], name: Any) -> tuple[Any, ...]:
    if not isinstance(name, str) or name not in columns:
        raise InputError(
            f"there is no column {name!r}; there are {list(columns)[:_MOST_NAMED]}"
        )
    if isinstance(columns[name], Set):
        raise ShapeError(
            f"column {name!r} is a set, whose rows have no order; give a list"
        )
    return _values(columns[name], f"column {name!r}")


def _values(column: Any, what: str) -> tuple[Any, ...]:
    """Values as they are: an array would turn 1 in [1, "x"] into text, and dates into integers."""
    is_list = isinstance(column, Iterable) and not isinstance(
        column, str | bytes | Mapping
    )
    if not is_list or getattr(column, "ndim", 1) != 1:
        column_text = " ".join(repr(column).split())
        raise ShapeError(
            f"{what} must be one-dimensional, such as a list, got {column_text:.60}"
        )
    has_dates = isinstance(column, np.ndarray) and column.dtype.kind in "mM"
    if hasattr(column, "tolist") and not has_dates:
        column = column.tolist()
    values = tuple(column)
    for row, value in enumerate(values):
        if not _is_value(value):
            raise InputError(
                f"{what}, row {row}: {value!r:.60} is neither number nor category; fill in what is "
                "missing or leave the row out, and give one-dimensional columns"
            )
    return values


def _is_value(value: Any) -> bool:
    """Whether a value is present and can be distinguished from others."""
    try:
        hash(value)
        # NaN and NaT differ from themselves; pandas' NA raises a TypeError.
        equals_itself = bool(value == value)  # noqa: PLR0124
    except Exception:  # objects may raise anything when they are compared
        return False
    return equals_itself and not isinstance(value, _NOT_VALUES)


def _is_number(value: Any) -> bool:
    if isinstance(value, np.timedelta64):  # which derives from numpy's integers
        return False
    return isinstance(value, int | float | np.number | np.bool_)
