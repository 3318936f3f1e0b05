"""Short words for records and parts: one line of text, and in notebooks a small table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from html import escape
from typing import Any

import numpy as np

_LONGEST = 60
_FEW = 6


class Displayable:
    """A record or part that says what it is in few words, however much it holds."""

    __slots__ = ()

    def _display_fields(self) -> Mapping[str, Any]:
        """What to tell, by name; ``None`` is left out. By default the fields of a dataclass."""
        kept: Any = self
        return {
            item.name: getattr(self, item.name) for item in fields(kept) if item.repr
        }

    def _texts(self) -> Iterator[tuple[str, str]]:
        return (
            (name, _brief(value))
            for name, value in self._display_fields().items()
            if value is not None
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self._texts())})"

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{name}</th><td>{escape(text)}</td></tr>"
            for name, text in self._texts()
        )
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.dtype == np.bool_:
            return f"{np.count_nonzero(value)} of {value.size}"
        if value.ndim != 1 or len(value) > _FEW:
            return f"array of shape {value.shape}"
        return np.array2string(value, precision=4, separator=", ")
    text = (
        f"{{{', '.join(map(str, value))}}}"
        if isinstance(value, Mapping)
        else repr(value)
    )
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
