"""What a part remembers, as data: JSON scalars and arrays under a schema number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from .display import Displayable
from .errors import StateError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class State(Displayable):
    """A part's whole state: JSON scalars and arrays under a schema number. Never pickle."""

    kind: str
    schema: int
    scalars: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    parts: Mapping[str, State] = field(default_factory=dict)
    """States of what it is composed of, by name."""
    spec: Mapping[str, Any] | None = field(default=None, repr=False)
    """The spec of what made it, from ``registry.describe``: plain JSON and arrays."""

    def require(self, kind: str, schema: int, reader: str) -> None:
        """Refuse a state of another kind or schema than ``reader`` reads."""
        if self.kind == kind and self.schema == schema:
            return
        message = f"this is a {self.kind!r} state of schema {self.schema}"
        message += f"; {reader} reads {kind!r} of schema {schema}"
        if self.kind == kind:
            newer = self.schema > schema
            message += (
                ": a newer version saved it, so upgrade superarm" if newer else ""
            )
            message += "" if newer else ", and no migration leads there"
        raise StateError(message)

    def _get(self, table: Mapping[str, Any], name: str) -> Any:
        if name not in table:
            raise StateError(f"this {self.kind!r} state is damaged: it lacks {name!r}")
        return table[name]

    def part(self, name: str) -> State:
        """A part's state by name, or :class:`StateError` if it is missing; so for the others."""
        found: State = self._get(self.parts, name)
        return found

    def scalar(self, name: str) -> Any:
        return self._get(self.scalars, name)

    def array(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self._get(self.arrays, name)
        return found
