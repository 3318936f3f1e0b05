"""Contexts from tables: data frames, lists of dicts or dicts of columns, as feature rows.

Names and categories must mean the same in every round, so that they are settled once, from an example,
and checked from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .core import Arms, Floats
from .errors import InputError, ShapeError
from .inputs import as_vector, require_choice
from .registry import register
from .shown import Shown

Coding = Literal["one-hot", "index"]


@register("encoding", "columns")
@dataclass(frozen=True, kw_only=True, repr=False)
class Encoding(Shown):
    """How the columns of a table become features.

    A number is a feature as it is. A category is one feature per known value, 1 or 0 ("one-hot"), or
    its place among the known values ("index"), for kernels that read numbers of groups, such as
    ``Empirical``.

    >>> encoding = Encoding.of([{"size": 2.0, "colour": "red"}, {"size": 3.5, "colour": "blue"}])
    >>> encoding.names
    ('size', 'colour=blue', 'colour=red')
    >>> encoding.features([{"colour": "red", "size": 1.0}])
    array([[1., 0., 1.]])
    """

    columns: tuple[str, ...]
    """Names of the columns that are read; any others are left alone."""
    categories: Mapping[str, tuple[Any, ...]]
    """The known values of the columns that are no numbers."""
    coding: Coding = "one-hot"

    def __post_init__(self) -> None:
        require_choice(self.coding, "coding", ("one-hot", "index"))
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise InputError(f"columns is {self.columns}; name at least one, and each once")
        strange = sorted(set(self.categories) - set(self.columns))
        if strange:
            raise InputError(f"categories names {strange[0]!r}, which is not among the columns")
        for name, values in self.categories.items():
            if not values or len(set(values)) < len(values):
                raise InputError(f"the categories of {name!r} are {values}; give each once")
        object.__setattr__(self, "columns", tuple(self.columns))
        plain = {name: tuple(values) for name, values in self.categories.items()}
        object.__setattr__(self, "categories", plain)

    @classmethod
    def of(
        cls,
        example: Any,
        columns: Iterable[str] | None = None,
        categorical: Iterable[str] = (),
        coding: Coding = "one-hot",
    ) -> Encoding:
        """Of all columns of an example, or some; those that hold no numbers are categories.

        ``categorical`` names columns of numbers, such as ids, that are categories all the same. All
        values that will ever come must be in the example, or give ``categories`` yourself.
        """
        table = _columns(example)
        names = tuple(table if columns is None else columns)
        told = set(categorical)
        categories = {}
        for name in names:
            values = _column(table, name)
            if name in told or values.dtype.kind not in "biuf":
                categories[name] = tuple(sorted(set(values.tolist()), key=_order))
        return cls(columns=names, categories=categories, coding=coding)

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
                if values.dtype.kind not in "biuf":
                    raise InputError(f"column {name!r} holds {values.dtype} values; it held numbers")
                parts.append(as_vector(values, f"column {name!r}")[:, None])
                continue
            known = self.categories[name]
            place = {value: at for at, value in enumerate(known)}
            try:
                numbers = np.array([place[value] for value in values.tolist()], dtype=np.intp)
            except (KeyError, TypeError):
                row, value = next(
                    (row, each) for row, each in enumerate(values.tolist()) if each not in known
                )
                raise InputError(
                    f"row {row}: {name} is {value!r}, which is not among {list(known)[:9]}; make the "
                    "encoding from an example that has every value"
                ) from None
            one_hot = self.coding == "one-hot"
            parts.append(np.eye(len(known))[numbers] if one_hot else numbers[:, None].astype(float))
        if len({len(part) for part in parts}) > 1:
            raise ShapeError(f"the columns have {[len(part) for part in parts]} rows; give all alike")
        return np.hstack(parts)

    def arms(self, table: Any, ids: str | None = None) -> Arms:
        """The rows as arms, by the column ``ids`` or numbered."""
        features = self.features(table)
        if ids is None:
            return Arms.numbered(features)
        return Arms(ids=_column(_columns(table), ids).tolist(), features=features)


def _columns(table: Any) -> Mapping[str, Any]:
    """Columns by name: of a pandas or polars frame, a mapping of columns, or rows that are mappings."""
    if isinstance(table, Mapping):
        return table
    names = getattr(table, "columns", None)
    if names is not None and hasattr(table, "__getitem__"):
        return {str(name): table[name] for name in names}
    try:
        rows = list(table)
    except TypeError:
        rows = [None]
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(
            f"this is a {type(table).__name__}; give a data frame, a list of dicts (with a row at "
            "least), or a dict of columns"
        )
    first = rows[0]
    for number, row in enumerate(rows):
        if row.keys() != first.keys():
            wrong = sorted(map(str, row.keys() ^ first.keys()))
            raise InputError(f"row {number} and row 0 differ in {', '.join(wrong)}; give all the same")
    return {name: [row[name] for row in rows] for name in first}


def _column(columns: Mapping[str, Any], name: str) -> NDArray[Any]:
    if name not in columns:
        raise InputError(f"there is no column {name!r}; there are {list(columns)[:9]}")
    values = np.asarray(columns[name])
    if values.ndim != 1:
        raise ShapeError(f"column {name!r} has shape {values.shape}; it must be one-dimensional")
    return values


def _order(value: Any) -> tuple[str, Any]:
    """Values of one type in their order; types one after the other."""
    return type(value).__name__, value
