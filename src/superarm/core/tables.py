"""Contexts from tables: data frames, lists of dicts or dicts of columns, as feature rows.

Names and categories must mean the same in every round, so they are fixed once, from an example, and
checked from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .arrays import Floats
from .display import Displayable
from .errors import InputError, ShapeError
from .inputs import as_vector, require_choice, require_type
from .records import Arms
from .registry import register

Coding = Literal["one-hot", "index"]
_NO_VALUES = (type(None), complex, np.complexfloating)


@register("encoding", "columns")
@dataclass(frozen=True, kw_only=True, repr=False)
class Encoding(Displayable):
    """How the columns of a table become features.

    A number is a feature as it is. A category is one feature per known value, 1 or 0 ("one-hot"), or
    its place among the known values ("index"), for kernels that read group numbers, such as
    ``Empirical``.

    Args:
        columns: Names of the columns that are read; any others are left alone.
        categories: The known values of the columns that do not hold numbers.
        coding: One feature for each known value (one-hot), or the place of the value among them
            (index).

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
        if strange := sorted(set(self.categories) - set(columns), key=str):
            raise InputError(
                f"categories names {strange[0]!r}, which is not among the columns"
            )
        plain = {
            name: _values(each, f"categories[{name!r}]")
            for name, each in self.categories.items()
        }
        for name, values in plain.items():
            if not values or len(set(values)) < len(values):
                told = f"the categories of {name!r} are {values}"
                raise InputError(f"{told}; give at least one, and each once")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "categories", plain)

    @classmethod
    def of(
        cls,
        example: Any,
        columns: Iterable[str] | None = None,
        categorical: Iterable[str] = (),
        coding: Coding = "one-hot",
    ) -> Encoding:
        """Of all columns of an example, or of some; those that hold no numbers are categories.

        ``categorical`` names columns of numbers, such as ids, that are categories all the same. Every
        value that will ever come must be in the example; otherwise, give ``categories`` yourself.
        """
        table = _columns(example)
        names = tuple(table) if columns is None else _values(columns, "columns")
        categories: dict[str, Any] = dict.fromkeys(
            _values(categorical, "categorical"), ()
        )
        for name in names:
            values = _column(table, name)
            if name in categories or not all(map(_is_number, values)):
                try:
                    # Values of one type in their order; types one after the other.
                    ordered = sorted(
                        set(values), key=lambda value: (type(value).__name__, value)
                    )
                    categories[name] = tuple(ordered)
                except TypeError:
                    raise InputError(
                        f"the values of {name!r} have no order; give categories"
                    ) from None
        return cls(columns=names, categories=categories, coding=coding)

    def as_scalars(self) -> dict[str, Any]:
        """Plain values that a state holds; :meth:`from_scalars` reads them."""
        return {
            "columns": self.columns,
            "categories": dict(self.categories),
            "coding": self.coding,
        }

    @classmethod
    def from_scalars(cls, held: Any) -> Encoding:
        require_type(held, Mapping, "encoding")
        if held.keys() != {"columns", "categories", "coding"}:
            raise InputError(
                f"an encoding has columns, categories and coding, not {[*held][:9]}"
            )
        return cls(**held)

    @property
    def names(self) -> tuple[str, ...]:
        """What each feature is, (d,)."""
        found: list[str] = []
        for name in self.columns:
            if name in self.categories and self.coding == "one-hot":
                found += [f"{name}={value}" for value in self.categories[name]]
            else:
                found.append(name)
        return tuple(found)

    def features(self, table: Any) -> Floats:
        """The rows of a table as features, (n, d)."""
        columns = _columns(table)
        parts: list[Floats] = []
        for name in self.columns:
            values = _column(columns, name)
            if name not in self.categories:
                if wrong := [value for value in values if not _is_number(value)]:
                    raise InputError(
                        f"column {name!r} holds {wrong[0]!r:.60}; it must hold numbers"
                    )
                parts.append(as_vector(values, f"column {name!r}")[:, None])
                continue
            known = self.categories[name]
            place = {value: at for at, value in enumerate(known)}
            try:
                numbers = np.array([place[value] for value in values], dtype=np.intp)
            except KeyError:
                row = next(
                    row for row, value in enumerate(values) if value not in place
                )
                raise InputError(
                    f"row {row}: {name} is {values[row]!r}, which is not among {list(known)[:9]}; make "
                    "the encoding from an example that has every value"
                ) from None
            column = numbers[:, None]
            coded = (
                column == np.arange(len(known)) if self.coding == "one-hot" else column
            )
            parts.append(coded.astype(float))
        if len({*(lengths := [len(part) for part in parts])}) > 1:
            raise ShapeError(f"the columns have {lengths} rows; give as many for each")
        return np.hstack(parts)

    def arms(self, table: Any, ids: str | None = None) -> Arms:
        """The rows as arms, by the column ``ids`` or numbered."""
        features = self.features(table)
        if ids is None:
            return Arms.numbered(features)
        return Arms(ids=_column(_columns(table), ids), features=features)


def _columns(table: Any) -> Mapping[str, Any]:
    """Columns by name: of a pandas or polars frame, a mapping of columns, or rows that are mappings."""
    names = table if isinstance(table, Mapping) else getattr(table, "columns", None)
    if isinstance(names, Iterable) and hasattr(table, "__getitem__"):
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[str(name)] = table[name]
            except (
                LookupError,
                TypeError,
            ) as error:  # a frame that is not what it says
                kind = type(table).__name__
                raise InputError(
                    f"this {kind} names a column {name!r} but has none: {error}"
                ) from None
        return found
    rows = _mappings(table) if names is None else []
    if not rows:
        advice = "give a data frame, a list of dicts (with at least one row), or a dict of columns"
        raise InputError(f"this is a {type(table).__name__}; {advice}")
    first = rows[0]
    for number, row in enumerate(rows):
        if row.keys() != first.keys():
            wrong = sorted(map(str, row.keys() ^ first.keys()))
            raise InputError(
                f"row {number} and row 0 differ in {', '.join(wrong)}; give both the same"
            )
    return {str(name): [row[name] for row in rows] for name in first}


def _mappings(table: Any) -> list[Mapping[Any, Any]]:
    """The rows of a table, if all are mappings, else none; what follows another row is not read."""
    rows: list[Mapping[Any, Any]] = []
    for row in table if isinstance(table, Iterable) else ():
        if not isinstance(row, Mapping):
            return []
        rows.append(row)
    return rows


def _column(columns: Mapping[str, Any], name: Any) -> tuple[Any, ...]:
    if not isinstance(name, str) or name not in columns:
        raise InputError(f"there is no column {name!r}; there are {list(columns)[:9]}")
    if isinstance(columns[name], Set):
        raise ShapeError(
            f"column {name!r} is a set, whose rows have no order; give a list"
        )
    return _values(columns[name], f"column {name!r}")


def _values(given: Any, what: str) -> tuple[Any, ...]:
    """Values as they are: arrays would make text of 1 in [1, "x"], and integers of dates."""
    several = isinstance(given, Iterable) and not isinstance(
        given, str | bytes | Mapping
    )
    if not several or getattr(given, "ndim", 1) != 1:
        shown = " ".join(repr(given).split())
        raise ShapeError(
            f"{what} is {shown:.60}; it must be one-dimensional, such as a list"
        )
    dates = isinstance(given, np.ndarray) and given.dtype.kind in "mM"
    values = tuple(given.tolist() if hasattr(given, "tolist") and not dates else given)
    wrong = next(
        (row for row, value in enumerate(values) if not _is_value(value)), None
    )
    if wrong is not None:
        raise InputError(
            f"{what}, row {wrong}: {values[wrong]!r:.60} is neither number nor category; fill in what "
            "is missing or leave the row out, and give one-dimensional columns"
        )
    return values


def _is_value(value: Any) -> bool:
    """Whether it is there, and can be told from others."""
    try:
        hash(value)
        # NaN and NaT differ from themselves; pandas' NA cannot say, which is a TypeError.
        return bool(value == value) and not isinstance(value, _NO_VALUES)  # noqa: PLR0124
    except Exception:  # objects may raise anything where they are compared
        return False


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.number | np.bool_)
    return number and not isinstance(
        value, np.timedelta64
    )  # which numpy counts among integers
