"""The state of a part as data: JSON scalars and arrays under a schema number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .display import Displayable
from .errors import StateError
from .inputs import as_count, as_features, as_number, as_positions, as_vector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class State(Displayable):
    """The complete state of a part: JSON scalars and arrays under a schema number. Never pickle."""

    kind: str
    """What the state is of, such as "index-policy"."""
    schema: int
    """The version of its format; see ``superarm.core.migrations``."""
    scalars: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    parts: Mapping[str, State] = field(default_factory=dict)
    """States of its own parts, by name."""
    spec: Mapping[str, Any] | None = field(default=None, repr=False)
    """The spec of the part, from ``registry.describe``: plain JSON and arrays."""

    def require(self, kind: str, schema: int, reader: str) -> None:
        """Refuse a state of another kind or schema.

        Args:
            kind: The kind that the reader expects.
            schema: The schema that the reader expects.
            reader: The class that reads it, for errors.
        """
        if self.kind == kind and self.schema == schema:
            return
        message = (
            f"this is a {self.kind!r} state of schema {self.schema}; "
            f"{reader} reads {kind!r} of schema {schema}"
        )
        if self.kind == kind and self.schema > schema:
            message += ": a newer version saved it, so upgrade superarm"
        elif self.kind == kind:
            message += ", and no migration leads there"
        raise StateError(message)

    def _get(self, table: Mapping[str, Any], name: str) -> Any:
        if name not in table:
            raise StateError(f"this {self.kind!r} state is damaged: it lacks {name!r}")
        return table[name]

    def part(self, name: str) -> State:
        """The state of one of its parts, or :class:`StateError` if it is missing.

        Args:
            name: The name of the part.
        """
        state: State = self._get(self.parts, name)
        return state

    def scalar(self, name: str) -> Any:
        """A scalar, or :class:`StateError` if it is missing.

        Args:
            name: The name of the scalar.
        """
        return self._get(self.scalars, name)

    def array(self, name: str) -> NDArray[Any]:
        """An array, or :class:`StateError` if it is missing.

        Args:
            name: The name of the array.
        """
        array: NDArray[Any] = self._get(self.arrays, name)
        return array

    # --- checked values --------------------------------------------------------------------

    def number(self, name: str, least: float = -inf, most: float = inf) -> float:
        """A scalar that is a number; see :func:`~superarm.core.inputs.as_number`.

        Args:
            name: The name of the scalar.
            least: The smallest number allowed.
            most: The largest number allowed.
        """
        return as_number(self.scalar(name), name, least, most)

    def count(self, name: str, least: int = 1, most: float = inf) -> int:
        """A scalar that is a whole number; see :func:`~superarm.core.inputs.as_count`.

        Args:
            name: The name of the scalar.
            least: The smallest number allowed.
            most: The largest number allowed.
        """
        return as_count(self.scalar(name), name, least, most)

    def vector(self, name: str, length: int | None = None) -> NDArray[np.float64]:
        """An array that is a vector of finite numbers.

        Args:
            name: The name of the array.
            length: The number of entries that it must have.
        """
        return as_vector(self.array(name), name, length)

    def matrix(self, name: str, columns: int | None = None) -> NDArray[np.float64]:
        """An array that is a matrix of finite numbers.

        Args:
            name: The name of the array.
            columns: The number of columns that it must have.
        """
        return as_features(self.array(name), name, columns)

    def positions(self, name: str) -> NDArray[np.intp]:
        """An array that is a vector of whole numbers.

        Args:
            name: The name of the array.
        """
        return as_positions(self.array(name), name)
